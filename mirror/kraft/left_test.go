package kraft_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaUnregister: what there is of a node id is told without being it. Unregistered, its partition has no leader, no stock broker leads and no client writes; started again it leads all that it
// held. When it was stopped and has left, nothing is there.
func TestRealKafkaUnregister(t *testing.T) {
	c := kafkatest.Shared(t)
	const node = 8102
	w := watchOf(t, c, "killed-off")
	w.ours = []int32{node}
	j := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = node })
	look := kraft.Config{NodeID: node, Controllers: j.cfg.Controllers, Remember: j.cfg.Remember} // no folder, no listener
	left := func() kraft.Remains {
		t.Helper()
		r, err := kraft.Left(bound(t), look)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	says := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("it does not say %q:\n%s", want, text)
			}
		}
	}
	l := j.create("killed-off", 1)
	mirrored := data(0, l.LeaderEpoch(), 5, "first")
	appendTo(t, l, mirrored)
	await(t, l)
	writer := c.WriteAlways(map[string][]int32{"killed-off": {0}})

	before := w.image().NextProducerID() // clients may be given some meanwhile
	r := left()
	if r.Registration != kraft.RegisteredAlive || r.Stranger || r.Resigned || r.ClusterID != c.ID() || len(r.Partitions) != 1 || r.Partitions[0].Leader != node || r.Partitions[0].Elects != -1 ||
		len(r.Kept) != 1 || !r.Kept[0].Mirrored || len(r.Late()) != 0 || r.NextProducerID < before {
		t.Errorf("%+v", r)
	}
	says(r.String(), "alive (INTERNAL://127.0.0.1:", "killed-off-0: it leads it; in sync [8102]", "topic killed-off, to be put back (when it is stopped): min.insync.replicas=(none of its own)")
	says(r.IfUnregistered(), "1 partitions have no leader from then on", "to undo it start a process under node id 8102")
	if strings.Contains(r.IfUnregistered(), "WARNING") {
		t.Error(r.IfUnregistered())
	}

	waits := standBy(t, j)
	if _, err := kraft.Unregister(bound(t), look); err != nil {
		t.Fatal(err)
	}
	j.saw(kraft.Unregistered)
	waits.saw(kraft.Unregistered)
	if err := <-waits.err; !errors.Is(err, kraft.ErrUnregistered) {
		t.Errorf("the one that stood by: %v", err)
	}
	r = left()
	if r.Registration != kraft.NotRegistered || len(r.Partitions) != 1 || r.Partitions[0].Leader != -1 || r.Partitions[0].Elects != -1 {
		t.Errorf("%+v", r)
	}
	says(r.String(), "not registered", "nobody leads it")
	says(r.IfUnregistered(), "is not registered: nothing is changed")
	if _, err := kraft.Unregister(bound(t), look); err != nil {
		t.Errorf("once more: %v", err)
	}
	if _, err := kraft.Depart(bound(t), look); err == nil || !strings.Contains(err.Error(), "still has 1 partitions (killed-off-0)") {
		t.Errorf("departed: %v", err)
	}
	if err := j.Standing().Err(); err == nil || !strings.Contains(err.Error(), kraft.ErrUnregistered.Error()) {
		t.Errorf("it stands: %v", err)
	}
	writer.WaitRounds(1)
	j.Close()

	again := joinWith(t, c, j.cfg)
	l = again.open("killed-off", 0)
	if l.End() != 5 {
		t.Errorf("it ends at %d", l.End())
	}
	more := data(5, l.LeaderEpoch(), 5, "second")
	mirrored = append(mirrored, more...)
	appendTo(t, l, more)
	await(t, l)
	if got := c.WaitSameSegments("killed-off", 0, 1, 2, 3); !bytes.Equal(got, mirrored) {
		t.Errorf("the brokers hold %d bytes, %d were appended", len(got), len(mirrored))
	}
	writer.Stop()
	if vs, got := w.violations(), writer.Successes(); len(vs)+len(got) > 0 {
		t.Errorf("%v, %v%s", vs, got, w.history("killed-off", 0))
	}

	// What is not in its shape is named before.
	w.mayLead("killed-off")
	alterISR(t, c, w, "killed-off", 0, node, 2)
	if r := left(); slices.ContainsFunc(r.Partitions, func(p kraft.RemainingPartition) bool { return p.Elects == 2 }) {
		says(r.IfUnregistered(), "WARNING: killed-off-0: broker 2 may be elected (in sync [8102 2])")
	} else if len(r.Partitions) != 1 || len(r.Partitions[0].ISR) != 1 { // else the process has mended it already
		t.Errorf("%+v", r)
	}
	eventually(t, "it to be in its shape", func() bool { return len(w.partition("killed-off", 0).ISR) == 1 })
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	if r := left(); len(r.Partitions) != 0 || len(r.Kept) != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := kraft.Depart(bound(t), look); err == nil || !strings.Contains(err.Error(), "is alive") {
		t.Errorf("departed: %v", err)
	}
	if err := again.Resign(bound(t)); err != nil {
		t.Fatal(err)
	}
	if r, err := kraft.Depart(bound(t), look); err != nil || !r.Resigned || r.Registration != kraft.RegisteredFenced {
		t.Fatalf("departed: %+v, %v", r, err)
	}
	if r := left(); r.Registration != kraft.NotRegistered || r.Resigned {
		t.Errorf("%+v", r)
	}
}
