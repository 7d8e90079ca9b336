package kafkasource

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// A first reading that was broken off is gone on with, but not after a time in which tombstones of what it has read may have vanished.
func TestABrokenFirstReadingIsBegunAnewBeforeTombstonesVanish(t *testing.T) {
	c := records(t)
	w := writerTo(t, c)
	id := w.create(1, "orders")[0]
	w.create(1, stateTopic)
	w.lme(statemachine.Key{Mirror: "m", TopicID: id}, statemachine.LastMirrorEpoch{Epoch: 1, SourceClusterID: "west"})
	// An open transaction hides the end.
	open, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(t.Context(), &kgo.Record{Topic: stateTopic, Key: []byte{0, 99}}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	broken := func() *Source {
		s := sourceOf(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := s.LastMirrorEpochs(ctx, "west", []mirror.TopicPartition{orders}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v: the reading was not broken off", err)
		}
		if n := len(s.mirrors.states.unjudged); n != 1 {
			t.Fatalf("%d records were read, want 1", n)
		}
		if ago := time.Since(s.mirrors.states.readAt); ago > time.Hour {
			t.Fatalf("a reading that was begun just now is taken for one of %v ago, or of no time", ago)
		}
		return s
	}
	soon, late := broken(), broken()
	if err := open.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	// As compaction leaves the log: neither the record nor its tombstone.
	if _, err := kadm.NewClient(w.cl).DeleteRecords(t.Context(), kadm.Offsets{stateTopic: {0: {Topic: stateTopic, At: 1}}}); err != nil {
		t.Fatal(err)
	}
	late.mirrors.states.readAt = late.mirrors.states.readAt.Add(-24 * time.Hour)
	for s, want := range map[*Source]int{soon: 1, late: 0} {
		if got := lastMirrorEpochs(t, s, "west", orders); len(got) != want {
			t.Errorf("late: %v: %+v", s == late, got)
		}
	}
}
