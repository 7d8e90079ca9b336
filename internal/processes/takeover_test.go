package processes_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/children"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestAKilledProcessIsTakenOver: a broker on plain files is killed with kill -9 in the middle of its copy, four times, while its source is written to. The next process goes
// on from the recorded states, in a folder or in __mirror_state: in the same episode, at the end of the log as it lies on disk, and in the end with the source's bytes.
func TestAKilledProcessIsTakenOver(t *testing.T) {
	everywhere(t, takeOver)
}

func takeOver(t *testing.T, p place) {
	const topic = "taken-orders"
	r := seeded(t)
	program := filepath.Join(t.TempDir(), "custombroker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/custombroker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	src := startSource(t, "primary", topic)
	dir := t.TempDir()
	args := []string{"-dir", dir, "-source", strings.Join(src.seeds(), ","), "-topic", topic, "-every", "1s"}
	if p.Dir == "" {
		args = append(args, "-state", strings.Join(p.Seeds, ","), "-state-replicas", "1")
	} else {
		p.Dir = filepath.Join(dir, "states")
	}
	data := filepath.Join(dir, "topics", topic, "0", "data-0")
	// life starts a broker, and kills it when the copy has grown by so many bytes, while more is written; or when it holds what the source holds.
	var episode int32
	life := func(name string, grown int, whole []byte) {
		t.Helper()
		before, err := os.ReadFile(data)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		src.from.Store(-1)
		var said children.Said
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := kafkatest.StartProcess(cmd); err != nil {
			t.Fatal(err)
		}
		ended := false
		kill := func() {
			if !ended {
				ended = true
				cmd.Process.Kill()
				cmd.Wait() // that it was killed is what the test wanted
			}
		}
		defer func() {
			kill()
			if t.Failed() {
				t.Logf("%s said:\n%s", name, said.String())
			}
		}()
		took := eventually(t, name+" copies", func() (bool, string) {
			if whole == nil {
				src.produce(topic, 1+r.IntN(5)) // there is always more to copy
			}
			now, err := os.ReadFile(data)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return whole == nil && len(now) >= len(before)+grown || whole != nil && bytes.Equal(now, whole), said.String()
		})
		kill()
		whole0 := 0 // bytes of whole batches that the last process had left
		end := int64(0)
		for b, raw := range mirror.Batches(before) {
			whole0, end = whole0+len(raw), b.Next()
		}
		if from := src.from.Load(); from != end {
			t.Errorf("%s began to fetch at %d; the log on disk ended at %d", name, from, end)
		}
		now, err := os.ReadFile(data)
		if err != nil || !bytes.HasPrefix(now, before[:whole0]) {
			t.Errorf("%s: the copy of %d bytes does not begin with what was there, %d bytes; %v", name, len(now), whole0, err)
		}
		e := entryOf(t, p, "files")
		if episode == 0 {
			episode = e.State.Episode
		}
		if e.State.Episode != episode || e.State.State != statemachine.Mirroring {
			t.Errorf("%s left %v in episode %d; it was episode %d", name, e.State.State, e.State.Episode, episode)
		}
		t.Logf("%s: from offset %d, %v from its start to its end", name, end, took.Round(time.Millisecond))
	}
	for _, name := range []string{"the first", "the second", "the third", "the fourth"} {
		src.produce(topic, 40)
		life(name, 1+r.IntN(20_000), nil)
	}
	src.produce(topic, 40)
	life("the last", 0, src.everything(topic))
}

// entryOf reads the one partition's entry of a mirror.
func entryOf(t *testing.T, p place, name string) (entry statemachine.Entry) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	l, err := p.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	if err := keyedlog.NewStateStore(l).Load(ctx, func(e statemachine.Entry) error {
		if e.Key.Mirror == name {
			entry = e
			n++
		}
		return nil
	}); err != nil || n != 1 {
		t.Fatalf("%d entries, error %v; want one", n, err)
	}
	return entry
}
