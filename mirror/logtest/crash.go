package logtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// Opened is a log that was opened in a directory.
type Opened struct {
	Log   mirror.Log
	Close func() error
}

// CrashFactory says how to open a log that survives its process.
type CrashFactory struct {
	// Open opens the log that lives in a directory, and creates it when the directory is empty. It needs nothing but the directory: child processes call it too.
	Open func(dir string) (Opened, error)
	// OpenOn does the same on a FaultyDir; nil: power cuts are not tried.
	OpenOn func(d *FaultyDir) (Opened, error)
	// Kills is how often a child process is killed [25].
	Kills int
	// PowerCuts is the number of runs with power cuts and failing files [200].
	PowerCuts int
	// Elsewhere says that batches do not lie verbatim in files of the directory: torn tails are then not tried.
	Elsewhere bool
}

// RunCrash checks what a Log promises about crashes: the log that is there after one is a prefix of whole batches, and nothing that was Replicated is missing.
// It reopens logs after Close, kills -9 processes that append, tears the last batch in the log's files at every byte, and, with OpenOn, cuts the power.
//
// The children are this test binary, with -test.run for the calling test: the test must come to RunCrash by itself, and not depend on other tests.
func RunCrash(t *testing.T, f CrashFactory) {
	t.Helper()
	if dir := os.Getenv(childVariable); dir != "" {
		child(f, dir)
	}
	test := t.Name()
	t.Run("Reopened after Close", func(t *testing.T) { checkReopen(t, f) })
	t.Run("Killed", func(t *testing.T) { checkKill(t, f, test) })
	if !f.Elsewhere {
		t.Run("Torn tail", func(t *testing.T) { checkTornTail(t, f) })
	}
	if f.OpenOn != nil {
		t.Run("Power cut", func(t *testing.T) { checkPowerCuts(t, f) })
	}
}

func openIn(t testing.TB, f CrashFactory, dir string) Opened {
	t.Helper()
	o, err := f.Open(dir)
	if err != nil {
		t.Fatalf("opening the log in %s: %v", dir, err)
	}
	return o
}

func closeOpened(t testing.TB, o Opened) {
	t.Helper()
	if o.Close == nil {
		return
	}
	if err := o.Close(); err != nil {
		t.Errorf("closing the log: %v", err)
	}
}

func checkReopen(t testing.TB, f CrashFactory) {
	dir := t.TempDir()
	o := openIn(t, f, dir)
	reopen := func(start, end int64, want ...made) {
		t.Helper()
		epoch := o.Log.LeaderEpoch()
		closeOpened(t, o)
		o = openIn(t, f, dir)
		positions(t, o.Log, start, end)
		content(t, o.Log, want)
		owner(t, o.Log, mirror.OwnerOurs)
		if o.Log.LeaderEpoch() < epoch {
			t.Errorf("leader epoch %d fell to %d", epoch, o.Log.LeaderEpoch())
		}
		replicated(t, o.Log, end)
	}
	reopen(0, 0)
	log := []made{data(0, 5), hole(5, 2, 9), emptied(15, 4), control(20), compressed(21, 4), data(30, 5)}
	add(t, o.Log, log[0])
	add(t, o.Log, log[1:]...)
	reopen(0, 35, log...)
	truncate(t, o.Log, 30, 25, 30)
	reopen(0, o.Log.End(), log[:5]...)
	add(t, o.Log, other(30, 3))
	log[5] = other(30, 3)
	reopen(0, 33, log...)
	if err := o.Log.RaiseStart(bounded(t), 16); err != nil {
		t.Fatal(err)
	}
	reopen(16, 33, log[2:]...)
	if err := o.Log.ResetTo(bounded(t), 1000); err != nil {
		t.Fatal(err)
	}
	reopen(1000, 1000)
	add(t, o.Log, data(998, 5))
	reopen(1000, 1003, data(998, 5))
	truncate(t, o.Log, 7, 7, 7)
	reopen(7, 7)
	// One that was opened may come back open or closed; either way it can be opened, closed and appended to.
	openLog(t, o.Log)
	closeOpened(t, o)
	o = openIn(t, f, dir)
	openLog(t, o.Log)
	closeLog(t, o.Log)
	add(t, o.Log, data(7, 2))
	reopen(7, 9, data(7, 2))
	closeOpened(t, o)
}

// childVariable holds the directory in which a child process is to append.
const childVariable = "CLUSTERMIRROR_LOGTEST_DIRECTORY"

// What a child says on its standard output.
const (
	saysReplicated = "logtest: replicated "
	saysCutting    = "logtest: cutting at "
	saysFailed     = "logtest: failed: "
)

// endless is the batch at an offset in the log that children write: the same in every process.
func endless(base int64) made {
	r := rand.New(rand.NewPCG(uint64(base), 81))
	n := 1 + r.Int32N(6)
	spec := batch.DataSpec{BaseOffset: base, Records: records(n, uint64(base)+7, 1+r.IntN(700))}
	if r.IntN(8) == 0 {
		spec.LastOffsetDelta = n + 3
	}
	return build(spec)
}

// child appends until it is killed. It ends when its parent does.
func child(f CrashFactory, dir string) {
	fail := func(what string, err error) {
		fmt.Printf("%s%s: %v\n", saysFailed, what, err)
		os.Exit(1)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends with the parent
		os.Exit(2)
	}()
	o, err := f.Open(dir)
	if err != nil {
		fail("open", err)
	}
	ctx, log := context.Background(), o.Log
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(log.End())))
	for {
		switch r.IntN(24) {
		case 0:
			to := max(log.End()-r.Int64N(30), log.Start())
			fmt.Printf("%s%d\n", saysCutting, to)
			if _, err := log.TruncateTo(ctx, to); err != nil {
				fail("truncate", err)
			}
			if err := log.AwaitTruncated(ctx); err != nil {
				fail("await truncated", err)
			}
		case 1:
			if err := log.RaiseStart(ctx, log.Start()+r.Int64N(20)); err != nil {
				fail("raise start", err)
			}
		}
		var chunk []byte
		next := log.End()
		for range 1 + r.IntN(4) {
			b := endless(next)
			chunk, next = append(chunk, b.bytes...), b.next
		}
		if err := log.Append(ctx, log.LeaderEpoch(), chunk); err != nil {
			fail("append", err)
		}
		if r.IntN(3) == 0 {
			if err := log.AwaitReplicated(ctx, next); err != nil {
				fail("await replicated", err)
			}
		}
		fmt.Printf("%s%d\n", saysReplicated, log.Replicated())
	}
}

// checkKill lets children append in one directory and kills each of them at another point.
func checkKill(t testing.TB, f CrashFactory, test string) {
	kills := f.Kills
	if kills == 0 {
		kills = 25
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, uint64(kills)))
	for round := range kills {
		floor := killOne(t, binary, pattern, dir, r.IntN(40))
		o := openIn(t, f, dir)
		end, err := checkEndless(bounded(t), o.Log)
		switch {
		case err != nil:
			t.Errorf("kill %d: %v", round, err)
		case end < floor:
			t.Errorf("kill %d: the log ends at %d, though it was replicated up to %d", round, end, floor)
		}
		closeOpened(t, o)
		if t.Failed() {
			return
		}
	}
}

// killOne starts a child and kills it once it has said something so many times. It returns what was replicated then, as far as the child came to say it.
func killOne(t testing.TB, binary, pattern, dir string, after int) (floor int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-test.run="+pattern, "-test.count=1")
	cmd.Env = append(os.Environ(), childVariable+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	lines := bufio.NewScanner(stdout)
	killed := after == 0
	if killed {
		cmd.Process.Kill()
	}
	// What it said before it died counts, also what is read after the kill.
	for lines.Scan() {
		line := lines.Text()
		said = append(said, line)
		if s, ok := strings.CutPrefix(line, saysReplicated); ok {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil {
				floor = max(floor, n)
			}
		}
		if s, ok := strings.CutPrefix(line, saysCutting); ok {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil {
				floor = min(floor, lastWholeBelow(n))
			}
		}
		if strings.HasPrefix(line, saysFailed) {
			killed = false
			break
		}
		if after--; after <= 0 && !killed {
			killed = true
			cmd.Process.Kill()
		}
	}
	cmd.Process.Kill()
	io.Copy(io.Discard, stdout)
	cmd.Wait()
	if !killed {
		t.Fatalf("the child process did not get as far as to be killed (-test.run=%s):\n%s\n%s", pattern, strings.Join(said[max(0, len(said)-20):], "\n"), stderr.String())
	}
	return floor
}

// lastWholeBelow is the end that the endless log must still have when it is cut at an offset: the batch that contains the offset goes whole.
func lastWholeBelow(offset int64) int64 {
	const largest = 10 // offsets in one batch of the endless log
	return max(offset-largest, 0)
}

// checkEndless checks that a log is a prefix of the endless log, and returns its end.
func checkEndless(ctx context.Context, log mirror.Log) (int64, error) {
	at := log.Start()
	for at < log.End() {
		b, err := log.Read(ctx, at, 1<<20)
		if err != nil {
			return 0, fmt.Errorf("read at %d of [%d, %d]: %w", at, log.Start(), log.End(), err)
		}
		n := 0
		for info, whole := range mirror.Batches(b) {
			if info.Base > at || info.Base < at && at != log.Start() {
				return 0, fmt.Errorf("a batch at %d, where %d is next", info.Base, at)
			}
			if !bytes.Equal(whole, endless(info.Base).bytes) {
				return 0, fmt.Errorf("the batch at %d is not the one that was appended", info.Base)
			}
			n, at = n+len(whole), info.Next()
		}
		if n < len(b) || n == 0 {
			return 0, fmt.Errorf("read at %d: %d bytes, of which %d are whole batches; the log is [%d, %d]", at, len(b), n, log.Start(), log.End())
		}
	}
	if at > log.End() {
		return 0, fmt.Errorf("the last batch ends at %d, the log at %d", at, log.End())
	}
	if r := log.Replicated(); r < log.Start() || r > log.End() {
		return 0, fmt.Errorf("what is replicated is %d in [%d, %d]", r, log.Start(), log.End())
	}
	return log.End(), nil
}

// checkTornTail opens copies of a log whose last batch is not all there.
func checkTornTail(t testing.TB, f CrashFactory) {
	dir := t.TempDir()
	o := openIn(t, f, dir)
	log := []made{data(0, 3), data(3, 2), data(5, 1)}
	add(t, o.Log, log[:2]...)
	add(t, o.Log, log[2])
	replicated(t, o.Log, 6)
	living := t.TempDir()
	copyDir(t, dir, living) // as it is while the log is open: a crash closes nothing
	closeOpened(t, o)

	last := log[2].bytes
	var file string
	var whole []byte
	var from int
	err := filepath.WalkDir(living, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if i := bytes.LastIndex(b, last); err == nil && i >= 0 {
			file, whole, from = path, b, i
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if file == "" {
		t.Fatal("no file of the log holds the last batch verbatim; if batches are kept in another way, set CrashFactory.Elsewhere")
	}
	relative, err := filepath.Rel(living, file)
	if err != nil {
		t.Fatal(err)
	}
	garbage := make([]byte, len(last))
	for i, r := 0, rand.New(rand.NewPCG(3, 3)); i < len(garbage); i++ {
		garbage[i] = byte(r.Uint32())
	}
	end := from + len(last)
	try := func(what string, content []byte, least int) {
		t.Helper()
		torn := t.TempDir()
		copyDir(t, living, torn)
		if err := os.WriteFile(filepath.Join(torn, relative), content, 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := f.Open(torn)
		if err != nil {
			t.Errorf("%s: the log does not open: %v", what, err)
			return
		}
		all, err := everything(bounded(t), o.Log, 1<<20)
		n := 0
		for n < 3 && o.Log.End() >= log[n].next {
			n++
		}
		if err != nil || n < least || o.Log.End() != log[n-1].next || !bytes.Equal(all, join(log[:n]...)) {
			t.Errorf("%s: the log is [%d, %d] and holds %s, error %v; it should be whole up to %d", what, o.Log.Start(), o.Log.End(), describe(all), err, log[least-1].next)
			closeOpened(t, o)
			return
		}
		// It goes on where it ends, and what was torn never comes back.
		next := other(o.Log.End(), 2)
		if err := o.Log.Append(bounded(t), o.Log.LeaderEpoch(), next.bytes); err != nil {
			t.Errorf("%s: append afterwards: %v", what, err)
		}
		closeOpened(t, o)
		if t.Failed() {
			return
		}
		o = openIn(t, f, torn)
		all, err = everything(bounded(t), o.Log, 1<<20)
		if err != nil || !bytes.Equal(all, join(append(append([]made{}, log[:n]...), next)...)) {
			t.Errorf("%s, an append, and opened again: the log holds %s, error %v", what, describe(all), err)
		}
		closeOpened(t, o)
	}
	for cut := range len(last) {
		if t.Failed() {
			return
		}
		at := from + cut
		try(fmt.Sprintf("cut after %d bytes of the last batch", cut), whole[:at], 2)
		try(fmt.Sprintf("zeros after %d bytes of the last batch", cut), append(append(bytes.Clone(whole[:at]), make([]byte, end-at)...), whole[end:]...), 2)
		try(fmt.Sprintf("garbage after %d bytes of the last batch", cut), append(append(bytes.Clone(whole[:at]), garbage[cut:]...), whole[end:]...), 2)
	}
	if len(bytes.TrimRight(whole[end:], "\x00")) > 0 {
		return // something else lies behind the batch: nothing can be put there
	}
	whole = whole[:end]
	try("zeros behind the last batch", append(bytes.Clone(whole), make([]byte, 200)...), 3)
	try("garbage behind the last batch", append(bytes.Clone(whole), garbage...), 3)
	try("an old batch behind the last batch", append(bytes.Clone(whole), data(3, 2).bytes...), 3)
	try("a third of a batch behind the last batch", append(bytes.Clone(whole), data(6, 2).bytes[:40]...), 3)
}

// copyDir copies files and folders into a directory that exists.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
