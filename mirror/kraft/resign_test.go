package kraft_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// standby is a process that waits in Join.
type standby struct {
	*joined
	err  chan error
	stop context.CancelFunc
}

// standBy starts one, and returns when it waits.
func standBy(t *testing.T, of *joined, change ...func(*kraft.Config)) *standby {
	t.Helper()
	s := &standby{joined: &joined{t: t, c: of.c, cfg: of.cfg}, err: make(chan error, 1)}
	s.cfg.Folder = t.TempDir()
	s.cfg.Notice = func(e kraft.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	}
	for _, f := range change {
		f(&s.cfg)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() {
		d, err := kraft.Join(ctx, s.cfg)
		s.Destination = d
		s.err <- err
	}()
	s.saw(kraft.StandingBy)
	return s
}

// goesOn returns when it has joined.
func (s *standby) goesOn() {
	s.t.Helper()
	select {
	case err := <-s.err:
		if err != nil {
			s.t.Fatalf("standby: %v", err)
		}
	case <-time.After(40 * time.Second):
		s.t.Fatal("the standby does not go on")
	}
	s.t.Cleanup(func() { s.Close() })
	if n := s.told(kraft.StandingBy); n != 2 {
		s.t.Errorf("that it waits, and goes on, was told %d times", n)
	}
}

func (s *standby) told(kind kraft.EventKind) (n int) {
	for _, e := range s.seen() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// TestRealKafkaResign: a process resigns, and the one that waits under its node id in another folder leads at once, under the same registration: nobody waited for the end of its session. It
// resigns too, after a broker had been put in sync behind its back, and one that starts in the first one's folder goes on. A process that nobody waits for, and that stands aside for nobody, leads
// after all of that what was mirrored; no stock broker has led, no client has got through.
func TestRealKafkaResign(t *testing.T) {
	c := kafkatest.Shared(t)
	const node = 8103
	w := watchOf(t, c, "resigned")
	w.ours = []int32{node}
	a := join(t, c, func(cfg *kraft.Config) { cfg.NodeID = node })
	l := a.create("resigned", 2)
	var mirrored []byte
	more := func(l mirror.Log, text string) {
		t.Helper()
		b := data(l.End(), l.LeaderEpoch(), 5, text)
		mirrored = append(mirrored, b...)
		appendTo(t, l, b)
		await(t, l)
	}
	more(l, "first")
	registered := func() int64 {
		b, _ := w.image().Broker(node)
		return b.Epoch
	}
	epoch := registered()
	writer := c.WriteAlways(map[string][]int32{"resigned": {0, 1}})
	b := standBy(t, a)
	if s := a.Standing(); !s.Registered || !s.Fenced.IsZero() || s.Lost != nil || s.Leads != 2 || s.Unknown != 0 || len(s.Absent) != 0 || s.Err() != nil || s.NodeID != node || s.ClusterID != c.ID() {
		t.Errorf("it stands as %+v", s)
	}

	began := time.Now()
	if err := a.Resign(bound(t)); err != nil {
		t.Fatal(err)
	}
	left := time.Since(began)
	b.goesOn()
	l = b.open("resigned", 0)
	t.Logf("resigned in %s, the standby had joined after %s", left, time.Since(began))
	if l.End() != 5 || registered() != epoch {
		t.Errorf("it ends at %d, and its registration's epoch is %d, before %d", l.End(), registered(), epoch)
	}
	if err := a.Resign(bound(t)); err != nil {
		t.Errorf("resigned again: %v", err)
	}
	if _, err := a.CreateTopic(bound(t), mirror.TopicSpec{Name: "later", Partitions: 1}); !errors.Is(err, kraft.ErrClosed) {
		t.Errorf("a creation after it: %v", err)
	}
	more(l, "second")

	alterISR(t, c, w, "resigned", 1, node, 2)
	if err := b.Resign(bound(t)); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	again := joinWith(t, c, a.cfg)
	t.Logf("in the first one's folder after %s", time.Since(began))
	l = again.open("resigned", 0)
	if l.End() != 10 || registered() != epoch {
		t.Errorf("it ends at %d, and its registration's epoch is %d, before %d", l.End(), registered(), epoch)
	}
	more(l, "third")

	// One that resigns with nobody waiting: who comes next finds the place.
	if err := again.Resign(bound(t)); err != nil {
		t.Fatal(err)
	}
	cfg := b.cfg
	cfg.Folder = t.TempDir()
	last := joinWith(t, c, cfg)
	l = last.open("resigned", 0)
	more(l, "fourth")
	if registered() != epoch {
		t.Errorf("its registration's epoch is %d, before %d", registered(), epoch)
	}

	// Nobody comes in beside one that lives, and the wait ends with its context at once.
	s := standBy(t, last)
	s.stop()
	began = time.Now()
	if err := <-s.err; !errors.Is(err, context.Canceled) || !errors.Is(err, kraft.ErrNodeIDTaken) {
		t.Errorf("the wait ended with: %v", err)
	}
	t.Logf("the wait ended after %s", time.Since(began))

	if got := c.WaitSameSegments("resigned", 0, 1, 2, 3); !bytes.Equal(got, mirrored) {
		t.Errorf("the brokers hold %d bytes, %d were appended", len(got), len(mirrored))
	}
	writer.Stop()
	if vs, got := w.violations(), writer.Successes(); len(vs)+len(got) > 0 {
		t.Errorf("%v, %v%s", vs, got, w.history("resigned", 1))
	}
	for p := range int32(2) {
		if err := last.open("resigned", p).Open(bound(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.Leave(bound(t)); err != nil {
		t.Fatal(err)
	}
}
