package logtest

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// checkRecovered does random operations on a log and compares what it says of itself (mirror.Recoverer) with its batches after each: transactions of several producers, leader
// epochs, gaps, cuts that take away a marker, a start that is raised, and replicas that lag.
func checkRecovered(t testing.TB, factory Factory) {
	rapid.Check(t, func(r *rapid.T) {
		s := factory(t)
		defer closeSubject(t, s)
		if canHold(s) {
			defer s.ReleaseReplication()
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ok := func(what string, err error) {
			r.Helper()
			if err != nil {
				r.Fatalf("%s: %v", what, err)
			}
		}
		inside := func(label string) int64 { return rapid.Int64Range(s.Log.Start(), s.Log.End()).Draw(r, label) }
		held := false
		epoch := int32(0) // of the batches that are added
		operations := map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				base := s.Log.End()
				var some []made
				for range rapid.IntRange(1, 4).Draw(r, "batches") {
					if rapid.IntRange(0, 5).Draw(r, "gap?") == 0 {
						base += rapid.Int64Range(1, 3).Draw(r, "gap")
					}
					b := written(base, epoch, rapid.Int64Range(1, 3).Draw(r, "producer"), rapid.SampledFrom([]string{"plain", "begin", "begin", "end"}).Draw(r, "kind"))
					some = append(some, b)
					base = b.next
				}
				ok("append", s.Log.Append(ctx, s.Log.LeaderEpoch(), join(some...)))
			},
			"truncate": func(r *rapid.T) {
				_, err := s.Log.TruncateTo(ctx, inside("to"))
				ok("truncate", err)
			},
			"raise start": func(r *rapid.T) { ok("raise start", s.Log.RaiseStart(ctx, min(inside("to"), s.Log.Replicated()))) },
			"reset": func(r *rapid.T) {
				if rapid.IntRange(0, 4).Draw(r, "reset?") == 0 {
					ok("reset", s.Log.ResetTo(ctx, inside("to")))
				}
			},
			"": func(r *rapid.T) { ok("Recovered", agrees(ctx, s.Log)) },
		}
		if canRaise(s) {
			operations["raise epoch"] = func(r *rapid.T) {
				ok("raise the leader epoch", s.RaiseLeaderEpoch(ctx, s.Log.LeaderEpoch()+1))
				epoch = s.Log.LeaderEpoch()
			}
		}
		if canHold(s) {
			operations["hold or release"] = func(*rapid.T) {
				if held = !held; held {
					s.HoldReplication()
				} else {
					s.ReleaseReplication()
				}
			}
		}
		r.Repeat(operations)
	})
}

// written is a batch of a producer: a plain record of nobody, one inside a transaction, or a marker that ends it.
func written(base int64, epoch int32, producer int64, kind string) made {
	spec := batch.DataSpec{BaseOffset: base, LeaderEpoch: epoch, Records: records(2, uint64(base), 4)}
	switch kind {
	case "begin":
		spec.ProducerID, spec.Transactional = producer, true
	case "end":
		return made{base, base + 1, batch.AppendControl(nil, batch.ControlSpec{
			BaseOffset: base, LeaderEpoch: epoch, ProducerID: producer, BaseSequence: -1, Transactional: true, Timestamp: timestamp, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6),
		})}
	}
	return build(spec)
}

// agrees compares what a log says of itself with what its batches say.
func agrees(ctx context.Context, log mirror.Log) error {
	known, err := log.(mirror.Recoverer).Recovered(ctx)
	if err != nil {
		return err
	}
	if known.From < log.Start() || known.From > log.End() {
		return fmt.Errorf("it is to be read from %d on, outside the log, [%d, %d]", known.From, log.Start(), log.End())
	}
	for i := 1; i < len(known.Epochs); i++ {
		if a, b := known.Epochs[i-1], known.Epochs[i]; a.Epoch >= b.Epoch || a.Start >= b.Start {
			return fmt.Errorf("epochs do not rise: %v", known.Epochs)
		}
	}
	all, err := everything(ctx, log, 1<<20)
	if err != nil {
		return err
	}
	undecided := map[int64]batch.Header{} // by producer: the first batch of its open transaction
	stuck := func(first batch.Header, why string) error {
		return fmt.Errorf("it is to be read from %d on, but the transaction of producer %d that begins at %d %s", known.From, first.ProducerID, first.BaseOffset, why)
	}
	for h := range batch.All(all) {
		if h.BaseOffset < known.From {
			if at := max(h.BaseOffset, log.Start()); h.LeaderEpoch >= 0 && epochAt(known.Epochs, at) != h.LeaderEpoch {
				return fmt.Errorf("the batch at %d has epoch %d, by Epochs %v it has %d", h.BaseOffset, h.LeaderEpoch, known.Epochs, epochAt(known.Epochs, at))
			}
			if h.ProducerID > known.HighestProducerID {
				return fmt.Errorf("the batch at %d is of producer %d, HighestProducerID is %d", h.BaseOffset, h.ProducerID, known.HighestProducerID)
			}
		}
		first, open := undecided[h.ProducerID]
		switch {
		case !h.Transactional():
		case !h.Control() && !open:
			undecided[h.ProducerID] = h
		case h.Control() && open:
			delete(undecided, h.ProducerID)
			if first.NextOffset() <= known.From && h.NextOffset() > log.Replicated() {
				return stuck(first, fmt.Sprintf("is ended at %d only, not below Replicated, %d", h.BaseOffset, log.Replicated()))
			}
		}
	}
	for _, first := range undecided {
		if first.NextOffset() <= known.From {
			return stuck(first, "is open")
		}
	}
	return nil
}

func epochAt(epochs []mirror.EpochStart, offset int64) int32 {
	at := int32(mirror.Unknown)
	for _, e := range epochs {
		if e.Start <= offset {
			at = e.Epoch
		}
	}
	return at
}
