package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/statemachine"
)

// standing is how topic orders of mirror dr is in a folder that a test makes.
type standing struct {
	name   string // of the state; "in no mirror": the mirror is there, and has no topic
	wish   statemachine.Desired
	state  statemachine.State
	before []statemachine.State // that led to it
}

const inNoMirror = "in no mirror"

var (
	copying   = []statemachine.State{statemachine.Preparing, statemachine.Mirroring}
	standings = []standing{
		{name: "UNKNOWN", wish: statemachine.WantMirroring, state: statemachine.Unknown}, // no process has taken it up yet
		{name: "PREPARING", wish: statemachine.WantMirroring, state: statemachine.Preparing},
		{"EPOCH_FENCING", statemachine.WantMirroring, statemachine.EpochFencing, copying},
		{"MIRRORING", statemachine.WantMirroring, statemachine.Mirroring, copying[:1]},
		{"PAUSING", statemachine.WantPaused, statemachine.Pausing, copying},
		{"PAUSED", statemachine.WantPaused, statemachine.Paused, append(slices.Clone(copying), statemachine.Pausing)},
		{"STOPPING", statemachine.WantStopped, statemachine.Stopping, copying},
		{"STOPPED", statemachine.WantStopped, statemachine.Stopped, append(slices.Clone(copying), statemachine.Stopping)},
		{"FAILED", statemachine.WantMirroring, statemachine.Failed, copying},
		{name: inNoMirror},
	}
)

// made puts a mirror that nobody runs into a folder: what is wanted, the state of its one partition, and what a process reported, which was heard of at that moment.
func made(t *testing.T, source string, s standing, heard time.Time) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "states")
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	fill(t, records, source, s, standbyID, heard)
	return dir
}

// fill is what made puts into the folder.
func fill(t *testing.T, records keyedlog.Log, source string, s standing, destinationID string, heard time.Time) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	control := mirror.NewControl(records)
	created := heard.Add(-time.Hour).Truncate(time.Second)
	must(control.Update(t.Context(), func(c *mirror.ControlState) error {
		c.SetMirror(mirror.MirrorEntry{Name: "dr", Settings: mirror.Settings{"bootstrap.servers": source}, SourceClusterID: sourceID, Created: created})
		if s.name != inNoMirror {
			c.Set(mirror.TopicWish{Topic: "orders", MirrorName: statemachine.MirrorNameValue("dr", s.wish)})
		}
		return nil
	}))
	var reports []mirror.PartitionReport
	if s.name != inNoMirror && s.state != statemachine.Unknown {
		id := statemachine.TopicID{15: 7}
		state := statemachine.NewPartitionState()
		session, err := keyedlog.NewStateStore(records).Open(t.Context(), "dr")
		must(err)
		for i, to := range append(slices.Clone(s.before), s.state) {
			if to == statemachine.Failed {
				state = statemachine.Fail(state, "the source has no such topic any more", true)
			} else {
				state, err = statemachine.Move(state, to)
				must(err)
			}
			write := statemachine.Write{Key: statemachine.Key{Mirror: "dr", TopicID: id}, ExpectedStateEpoch: int32(i), LeaderEpoch: 1, State: &state}
			if to == statemachine.Stopped {
				write.LME = &statemachine.LastMirrorEpoch{Epoch: 3, Offset: 3, SourceClusterID: sourceID, Episode: 1}
			}
			written, err := session.Write(t.Context(), []statemachine.Write{write})
			must(err)
			must(written[0].Err)
		}
		must(session.Close())
		reports = []mirror.PartitionReport{{
			Mirror: "dr", Topic: "orders", TopicID: mirror.TopicID(id), Owner: "dr", State: s.state, Reason: state.ErrorMessage, RetryAttempt: state.RetryAttempt, SourceEnd: 3, SourceSeen: heard,
			DestinationEnd: 3, InStep: heard, At: heard,
		}}
	}
	reporter, err := control.OpenReporter(t.Context(), "dr")
	must(err)
	must(reporter.Report(t.Context(), mirror.NodeReport{Owner: "dr", Mirror: "dr", Host: "host-1", PID: 4711, Opened: created, Seen: heard, DestinationID: destinationID}, reports))
	must(reporter.Close())
}

// copied is a folder with the same files.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "states")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// bytesOf are the files of a folder, without those that are empty: locks.
func bytesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		if len(b) > 0 {
			files[path] = string(b)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

// standsFor is written instead of the name of a state.
const standsFor = "(STATE)"

// heading are lines that say which verb it is, between which clusters.
var heading = regexp.MustCompile(`^(source .* → destination .*|(what will be done: |dry run of )?\w+, mirror \S+|PREFLIGHT +mirror \S+.*|.* …|)$`)

// line is what tells most of what was printed: the complaint, or else the first line behind the headings, or the last of these.
func line(out, complaints string) (first string) {
	for l := range strings.Lines(complaints + out) {
		if l = strings.TrimSpace(l); l != "" {
			first = l
		}
		if !heading.MatchString(l) {
			break
		}
	}
	return first
}

// tableVerb is a verb with what it needs besides the mirror and topics.
type tableVerb struct {
	name   string
	more   []string // besides --mirror and --topics
	mirror string   // "dr" if not said
	topics bool     // it takes --topics
	opens  bool     // it asks for consent
	dry    bool     // it takes --dry-run
	asks   bool     // it asks the process that runs the mirror, which is recorded too; here none answers
}

func tableVerbs(config, change string) []tableVerb {
	return []tableVerb{
		{name: "create", more: []string{"--mirror-config", config}, mirror: "new", dry: true},
		{name: "list", mirror: "-"},
		{name: "describe"},
		{name: "groups"},
		{name: "alter", more: []string{"--mirror-config", change}, dry: true},
		{name: "delete", opens: true, dry: true},
		{name: "start", topics: true, dry: true},
		{name: "stop", topics: true, opens: true, dry: true},
		{name: "pause", topics: true, dry: true},
		{name: "resume", topics: true, dry: true},
		{name: "recover", topics: true, dry: true},
		{name: "failback", more: []string{"--timeout", "2s"}, topics: true, opens: true, dry: true, asks: true},
		{name: "preflight"},
		{name: "history"},
	}
}

// args is the command line of a verb on a folder.
func (v tableVerb) args(dir, name, topic string, dry bool) []string {
	args := append([]string{"--" + v.name, "--store", dir}, v.more...)
	if name != "-" {
		args = append(args, "--mirror", name)
	}
	if v.topics {
		args = append(args, "--topics", topic)
	}
	if dry {
		args = append(args, "--dry-run")
	} else if v.opens {
		args = append(args, "--reason", "drill", "--destination-cluster-id", standbyID, "--yes")
	}
	return args
}

// TestEveryVerbInEveryState: what a verb says and how it ends, for each state of a topic and each thing that may be wrong. testdata/table.txt is read by people: states in which all is
// the same share a line, in which (STATE) stands for each. A dry run changes no byte of the store, and says what the verb then does.
func TestEveryVerbInEveryState(t *testing.T) {
	t.Parallel() // it waits most of the time
	source := startSource(t, "orders").ListenAddrs()[0]
	config, change := writeFile(t, "new.properties", "bootstrap.servers="+source), writeFile(t, "change.properties", "mirror.groups.exclude=console-.*")
	shown := strings.NewReplacer(source, "primary:9092", config, "new.properties", change, "change.properties")
	type folder struct{ alive, dead string }
	folders := map[string]folder{}
	for _, s := range standings {
		folders[s.name] = folder{made(t, source, s, time.Now()), made(t, source, s, time.Now().Add(-time.Hour))}
	}
	var table strings.Builder
	table.WriteString("verb | state | way | exit | first line\n")
	for _, v := range tableVerbs(config, change) {
		wrongName := "rd"
		if v.name == "create" {
			wrongName = "dr.stopped"
		}
		name := v.mirror
		if name == "" {
			name = "dr"
		}
		ways := map[string][]*cell{}
		var running sync.WaitGroup
		for _, way := range tableWays {
			if way == "dry run" && !v.dry || way == "wrong mirror" && name == "-" || strings.Contains(way, "topic") && !v.topics {
				continue
			}
			for _, s := range standings {
				c := &cell{state: s.name, name: name, topic: "orders"}
				dir := folders[s.name].alive
				switch way {
				case "wrong mirror":
					c.name = wrongName
				case "wrong topic":
					c.topic = "ordres"
				case "one of two topics wrong":
					c.topic = "ordres,orders"
				case "node dead":
					dir = folders[s.name].dead
				}
				if v.dry && !v.asks && way != "dry run" {
					v.drilled(t, way+", "+s.name, dir, c.name, c.topic)
				}
				c.dir = copied(t, dir)
				before := bytesOf(t, c.dir)
				ways[way] = append(ways[way], c)
				running.Go(func() { // some wait
					c.status, c.out, c.complaints = command(t, v.args(c.dir, c.name, c.topic, way == "dry run")...)
					if (way == "dry run" || !v.dry) && !v.asks && !reflect.DeepEqual(bytesOf(t, c.dir), before) {
						t.Errorf("--%s, %s, %s: it only looks, and has changed the store", v.name, s.name, way)
					}
				})
			}
		}
		running.Wait()
		for _, way := range tableWays {
			for _, row := range rowsOf(ways[way], shown) {
				fmt.Fprintf(&table, "%s | %s | %s | %s\n", v.name, row[0], way, row[1])
			}
		}
		for _, way := range []string{"unreadable", "unwritable"} {
			at := copied(t, folders["MIRRORING"].alive)
			status, out, complaints := commandWithoutRights(t, at, way, v.args(at, name, "orders", false)...)
			fmt.Fprintf(&table, "%s | any | not permitted, %s | %d | %s\n", v.name, way, status, masked(shown.Replace(strings.ReplaceAll(line(out, complaints), at, "/var/lib/mirror"))))
		}
	}
	golden(t, "table.txt", table.String())
}

// tableWays are what may be wrong, besides rights.
var tableWays = []string{"ok", "dry run", "wrong mirror", "wrong topic", "one of two topics wrong", "node dead"}

// cell is one use of a verb, and what came of it.
type cell struct {
	state, dir, name, topic string
	status                  int
	out, complaints         string
}

// rowsOf are states, and the exit status and the line that they have in common: literally, or but for the name of the state.
func rowsOf(cells []*cell, shown *strings.Replacer) (rows [][2]string) {
	literal := make([]string, len(cells))
	same := map[string]int{}
	for i, c := range cells {
		literal[i] = fmt.Sprintf("%d | %s", c.status, masked(shown.Replace(strings.ReplaceAll(line(c.out, c.complaints), c.dir, "/var/lib/mirror"))))
		same[literal[i]]++
	}
	var order []string
	states := map[string][]string{}
	for i, c := range cells {
		row := literal[i]
		if same[row] == 1 && c.state != inNoMirror {
			row = regexp.MustCompile(`\b`+c.state+`\b`).ReplaceAllString(row, standsFor)
		}
		if !slices.Contains(order, row) {
			order = append(order, row)
		}
		states[row] = append(states[row], c.state)
	}
	for _, row := range order {
		which := strings.Join(states[row], " ")
		switch {
		case len(states[row]) == len(standings):
			which = "any"
		case len(states[row]) == 1:
			row = strings.ReplaceAll(row, standsFor, which)
		}
		rows = append(rows, [2]string{which, row})
	}
	return rows
}

// drilled compares a dry run with the verb itself.
func (v tableVerb) drilled(t *testing.T, what, dir, name, topic string) {
	t.Helper()
	at := copied(t, dir)
	before := bytesOf(t, at)
	run := func(dry bool) (int, resultJSON) {
		t.Helper()
		args := append(v.args(at, name, topic, false), "--json")
		if dry {
			args = append(slices.DeleteFunc(args, func(a string) bool { return a == "--yes" }), "--dry-run")
		}
		status, out, complaints := command(t, args...)
		var r resultJSON
		if out != "" {
			if err := json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&r); err != nil {
				t.Fatalf("--%s, %s: %v\n%s%s", v.name, what, err, out, complaints)
			}
		}
		r.DryRun, r.GroupPlaces = false, nil
		for i, note := range r.Notes {
			r.Notes[i] = masked(note)
		}
		return status, r
	}
	dryStatus, dry := run(true)
	if !reflect.DeepEqual(bytesOf(t, at), before) {
		t.Errorf("--%s, %s: a dry run has changed the store", v.name, what)
	}
	status, real := run(false)
	if status != dryStatus || !reflect.DeepEqual(real, dry) {
		t.Errorf("--%s, %s: exit status %d and\n%+v\na dry run said %d and\n%+v", v.name, what, status, real, dryStatus, dry)
	}
}

// argsVariable has the arguments of a child of the test, one a line: it is the program, run by a user who has no rights.
const argsVariable = "KAFKA_MIRROR_TEST_ARGS"

func TestMain(m *testing.M) {
	args := os.Getenv(argsVariable)
	if args == "" {
		os.Exit(m.Run())
	}
	if os.Getuid() == 0 { // for whom files have no rights
		if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(100)
		}
	}
	p := &program{out: os.Stdout, complaints: os.Stderr}
	os.Exit(p.run(context.Background(), strings.Split(args, "\n")))
}

// nobody is a user's number that owns nothing.
const nobody = 65534

// commandWithoutRights runs the program as a user who may not read, or not write, the folder.
func commandWithoutRights(t *testing.T, dir, way string, args ...string) (status int, out, complaints string) {
	t.Helper()
	change := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for above := filepath.Dir(dir); above != filepath.Clean(os.TempDir()); above = filepath.Dir(above) {
		change(above, 0o755)
	}
	t.Cleanup(func() { change(dir, 0o700) })
	folder, file := os.FileMode(0o555), os.FileMode(0o444)
	if way == "unreadable" {
		folder, file = 0, 0
	}
	for path := range bytesOf(t, dir) {
		change(filepath.Join(dir, path), file)
	}
	for _, arg := range args {
		if strings.HasSuffix(arg, ".properties") {
			change(filepath.Dir(arg), 0o755)
			change(filepath.Dir(filepath.Dir(arg)), 0o755)
			change(arg, 0o644)
		}
	}
	change(dir, folder)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), program)
	child.Env = append(os.Environ(), argsVariable+"="+strings.Join(args, "\n"))
	var o, c bytes.Buffer
	child.Stdout, child.Stderr = &o, &c
	if err := child.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return child.ProcessState.ExitCode(), o.String(), c.String()
}
