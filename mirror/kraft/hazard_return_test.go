//go:build long

package kraft_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaReturn: a process dies without a word and one comes back: under the same folder within its session (nobody notices: the same broker epoch, no leader change), under the
// same folder after the session, and another one that has waited in Join with a folder of its own since before the death. Each time everything is known again, the copies are byte-identical,
// and appends go on. How long each takes is printed.
func TestRealKafkaReturn(t *testing.T) {
	c := short(t, 3, nil)
	s := play(t, c, []string{"a", "b"}, quick)
	both := []string{"a", "b"}
	check := func(epoch int32) {
		t.Helper()
		for _, topic := range both {
			if got := s.open(topic, 0).End(); got != int64(3*s.batches(topic)) {
				t.Errorf("%s ends at %d, %d batches of 3 were appended", topic, got, s.batches(topic))
			}
			if got := s.w.partition(topic, 0); got.LeaderEpoch != epoch || got.Recovering || got.Leader != nodeID {
				t.Errorf("%s: leader %d, leader epoch %d, recovering %v; expected epoch %d", topic, got.Leader, got.LeaderEpoch, got.Recovering, epoch)
			}
			s.more(topic, 3)
			await(t, s.open(topic, 0))
			s.exactly(topic, 1, 2, 3)
		}
		s.closedAll()
		if t.Failed() {
			t.Log(s.w.history("a", 0))
		}
	}
	brokerEpoch := func() int64 { b, _ := s.w.image().Broker(nodeID); return b.Epoch }
	first := brokerEpoch()
	began := time.Now()
	s.Close()
	s.returns()
	t.Logf("the same folder within the session: %v from the death on", time.Since(began).Round(time.Millisecond))
	check(0)
	if brokerEpoch() != first {
		t.Error("another broker epoch")
	}

	s.dies()
	began = time.Now()
	s.returns()
	t.Logf("the same folder after the session: %v from the return on", time.Since(began).Round(time.Millisecond))
	check(2)

	// A standby waits in Join.
	cfg := s.cfg
	cfg.Listener, cfg.Folder = nil, t.TempDir()
	type result struct {
		d   *kraft.Destination
		err error
		at  time.Time
	}
	comes := make(chan result, 1)
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	go func() {
		d, err := kraft.Join(ctx, cfg)
		comes <- result{d, err, time.Now()}
	}()
	// It is kept out while the first one lives, longer than a session.
	started := time.Now()
	eventually(t, "a session to pass", func() bool { return time.Since(started) > session+session/2 })
	select {
	case r := <-comes:
		t.Fatalf("the standby came in while the first process lives: %v", r.err)
	default:
	}
	s.more("a", 1)
	await(t, s.open("a", 0))
	died := time.Now()
	s.Close()
	r := <-comes
	if r.err != nil {
		t.Fatal(r.err)
	}
	s.joined = &joined{Destination: r.d, t: t, c: c, cfg: cfg}
	t.Cleanup(func() { r.d.Close() })
	l := s.open("a", 0)
	owner, _, err := l.Owner(bound(t))
	if owner != mirror.OwnerOurs || err != nil {
		t.Errorf("the standby has %v, %v", owner, err)
	}
	s.more("a", 1)
	t.Logf("a standby: in %v after the death, appended after %v; the session timeout is %v", r.at.Sub(died).Round(time.Millisecond), time.Since(died).Round(time.Millisecond), session)
	check(4)
	s.handOver("a")
	s.handOverNow("b")
	for _, topic := range both {
		s.inSync(topic, 1, 2, 3)
	}
	s.writer.Stop()
	for _, topic := range both {
		s.same(topic, 1, 2, 3)
	}
	if got := s.leaders(both...); slices.Contains(got, nodeID) {
		t.Errorf("leaders %v", got)
	}
}

// batches is how many batches were appended to a topic.
func (s *scene) batches(topic string) int {
	n := 0
	for range batch.All(s.written[topic]) {
		n++
	}
	return n
}
