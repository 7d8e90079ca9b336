package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
)

func TestWithoutJavaOneLineSaysWhatToInstall(t *testing.T) {
	c := child(t)
	c.cmd.Env = append(c.cmd.Env, "PATH=", "JAVA_HOME=")
	if status := c.until("", nil); status != 2 || strings.Count(c.err.String(), "\n") != 1 || !strings.Contains(c.err.String(), "Java is missing") || !strings.Contains(c.err.String(), "apt-get install") {
		t.Errorf("exit status %d", status)
	}
	if left := c.folders(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestJavaVersion(t *testing.T) {
	for said, want := range map[string]int{
		"openjdk version \"21.0.4\" 2024-07-16\nOpenJDK": 21, "java version \"1.8.0_421\"": 8, "openjdk version \"17\" 2021-09-14": 17, "unknown": 0,
	} {
		if got := javaVersion(said); got != want {
			t.Errorf("%q: %d, want %d", said, got, want)
		}
	}
}

func TestObviousMistakesEndInOneLine(t *testing.T) {
	for args, says := range map[string]string{
		"-break=everything": "it is one of: byte, missing, lost, skip",
		"-brokers 2":        "-brokers is 1 or 3, not 2",
		"now":               `what is "now"?`,
		"-kep":              "-h lists the options",
	} {
		if _, err := readOptions(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
	}
}

func TestMemoryDecides(t *testing.T) {
	if free, err := available("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"); err != nil || free != 2<<30 {
		t.Errorf("%d, %v", free, err)
	}
	if _, err := available("MemTotal: 9 kB\n"); err == nil {
		t.Error("an unknown size is no error")
	}
	if n, why, err := (options{brokers: 1}).size(); err != nil || n != 1 || why != "-brokers 1" {
		t.Errorf("%d, %s, %v", n, why, err)
	}
}

func TestFoldersOfKilledRunsAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, err := openFolder(false)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := openFolder(true)
	if err != nil {
		t.Fatal(err)
	}
	kept.lock.Close()
	killed, err := openFolder(false)
	if err != nil {
		t.Fatal(err)
	}
	killed.lock.Close()
	strange := filepath.Join(os.TempDir(), prefix+"of-somebody-else")
	if err := os.Mkdir(strange, 0o755); err != nil {
		t.Fatal(err)
	}
	next, err := openFolder(false)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{alive.path: true, kept.path: true, killed.path: false, strange: true, next.path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want there %t", path, err, want)
		}
	}
	if err := alive.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(alive.path); err == nil {
		t.Error("a folder that was closed is there")
	}
}

func TestChildrenAreFoundAndEnded(t *testing.T) {
	c := child(t)
	c.cmd.Path, c.cmd.Args = shell(t), []string{"sh", "-c", "sleep 60 & sleep 61"} // they have a parent that ends before them
	c.cmd.Stderr = nil
	if err := adopt(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found, err := children(os.Getpid())
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(c.left()) < 3 && time.Now().Before(deadline); time.Sleep(time.Millisecond) { // until the shell has started both
	}
	if err := endChildren(); err != nil {
		t.Error(err)
	}
	c.cmd.Wait() // somebody else has seen its end
	if found, err = children(os.Getpid()); err != nil || len(found) > 0 || len(c.left()) > 0 {
		t.Errorf("%v and %v are there, %v", found, c.left(), err)
	}
}

// fake is a log of records, one batch each.
func fake(ids ...string) (log []byte) {
	for i, id := range ids {
		log = batch.AppendData(log, batch.DataSpec{BaseOffset: int64(i), LeaderEpoch: 1, ProducerID: -1, Records: []batch.Record{{Value: value(id)}}})
	}
	return log
}

// everywhere has a log as each partition on one broker.
func everywhere(log []byte) disks {
	d := disks{}
	for _, t := range topics {
		for p := range t.partitions {
			d[partitionName(t.name, p)] = map[int32][]byte{1: bytes.Clone(log)}
		}
	}
	return d
}

func TestComparisonsSayNo(t *testing.T) {
	whole := fake("orders-000001", "orders-000002", "orders-000003")
	ends := map[string]int64{}
	for name := range everywhere(nil) {
		ends[name] = 2
	}
	if c, err := sameUpTo(everywhere(fake("orders-000001", "orders-000002", "orders-000009")), everywhere(whole), ends); err != nil || c.partitions != 4 || c.batches != 8 {
		t.Errorf("equal in front of the end: %+v, %v", c, err)
	}
	if c, err := sameBeginning(everywhere(fake("orders-000001", "orders-000002")), everywhere(whole)); err != nil || c.brokers != 2 || c.batches != 8 {
		t.Errorf("a beginning: %+v, %v", c, err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	for name, other := range map[string][]byte{"a changed bit": changed, "a missing batch": batches(whole)[0], "another batch": fake("orders-000001", "orders-000007", "orders-000003"), "nothing": nil} {
		one := everywhere(whole)
		one[partitionName(payments, 0)][1] = other
		if _, err := sameUpTo(one, everywhere(whole), ends); err == nil {
			t.Errorf("%s is not seen", name)
		}
		if _, err := sameBeginning(everywhere(whole), one); err == nil {
			t.Errorf("%s is not seen in what goes on", name)
		}
		one[partitionName(payments, 0)][2] = whole
		if _, err := sameBeginning(one, everywhere(whole)); err == nil {
			t.Errorf("%s is not seen on one of two disks", name)
		}
	}
	if _, err := sameUpTo(everywhere(nil), everywhere(nil), ends); err == nil {
		t.Error("nothing is equal to nothing")
	}
}

func TestRecordsAreFoundInBytes(t *testing.T) {
	got := idsIn(append([]byte("something"), fake("orders-000001", "payments-000002")...))
	if len(got) != 2 || !got["orders-000001"] || !got["payments-000002"] {
		t.Errorf("%v", got)
	}
}

func TestLedgerCounts(t *testing.T) {
	l := newLedger()
	l.wrote("orders-000001", position{"east", orders, 0, 7})
	l.wrote("orders-000002", position{"east", orders, 0, 8})
	l.got("orders-000001", position{"east", orders, 0, 7})
	if left := l.unread("east"); left != "orders-0: orders-000002" {
		t.Errorf("unread: %q", left)
	}
	for _, offset := range []int64{7, 8} {
		l.got("orders-00000"+string(rune('1'+offset-7)), position{"west", orders, 0, offset})
	}
	if l.unread("east") != "" || l.readTwice() != 1 || l.readAt("west") != 2 || l.writtenAt("east") != 2 {
		t.Errorf("%+v", l)
	}
}

// TestScreen: a table that is drawn again leaves nothing of the one before; elsewhere a line is printed only if something has changed. No colour, no codes but those that move the cursor.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	text := "1 of 1"
	s := &screen{out: &out, began: time.Now(), rows: func() []row { return []row{{"east", text}, {"west", "dead"}} }}
	s.show()
	s.show()
	text = "dead"
	s.show()
	s.say("  hello\n")
	if got := out.String(); strings.Count(got, "\n") != 3 || strings.Contains(got, "\x1b") || !strings.HasSuffix(got, "s  east dead | west dead\n  hello\n") {
		t.Errorf("plain: %q", got)
	}
	out.Reset()
	s.terminal, s.width = true, func() int { return 0 }
	s.show()
	s.say("  hello")
	if got := out.String(); strings.Count(got, "\x1b") != 2 || !strings.HasSuffix(got, "west      dead\n\x1b[2A\x1b[J  hello\n") {
		t.Errorf("terminal: %q", got)
	}
	out.Reset()
	s.colours = true
	s.show()
	if !strings.Contains(out.String(), "\x1b[1meast") {
		t.Errorf("colours: %q", out.String())
	}
	out.Reset()
	s.colours, s.drawn, s.width = false, 0, func() int { return 23 }
	text = "3 of 3 brokers"
	s.show()
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 23 {
			t.Errorf("a line of %d characters on a terminal of 23: %q", n, line)
		}
	}
	if !strings.Contains(out.String(), "east      3 of…\n") || !strings.Contains(out.String(), "west      dead\n") {
		t.Errorf("narrow: %q", out.String())
	}
}
