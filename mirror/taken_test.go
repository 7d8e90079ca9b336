package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// A leader epoch that somebody else raises between what the mirror knows and its append is no failure.
func TestALeaderEpochRaisedByOthersIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 3)
		m.start("t")
		m.inStepAndSame()
		var raised atomic.Int32
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if c.Operation != "Log.Append" || raised.Add(1)%2 == 0 {
				return nil
			}
			_, err := m.b.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{c.Partition: m.b.log("t", 0).LeaderEpoch() + 2})
			return err
		}})
		for range 3 {
			m.a.fill("t", 0, 2)
			m.inStepAndSame()
		}
		if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		m.untilOne("stopped", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		for _, e := range eventsOf[mirror.StateChanged](m.running) {
			if e.To == statemachine.Failed {
				t.Error(e)
			}
		}
		if raised.Load() < 8 {
			t.Errorf("only %d appends", raised.Load())
		}
		m.b.SetHooks(memlog.Hooks{})
	})
}

// A leader epoch under which somebody else has the log is not recorded as one under which it was the mirror's: the next process would take what clients wrote under it for mirrored.
func TestTheLeaderEpochOfWhoTookTheLogIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		log := m.b.log("t", 0)
		theirs := log.LeaderEpoch() + 50
		if _, err := m.b.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{{Topic: "t"}: theirs}); err != nil {
			t.Fatal(err)
		}
		if err := log.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.b.produce("t", 0, "a client's")
		if _, err := m.Admin().Pause(t.Context(), []string{"t"}, mirror.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		m.untilOne("paused", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Paused })
		session, err := m.b.StateStore().Open(t.Context(), "somebody who looks")
		if err != nil {
			t.Fatal(err)
		}
		looked := false
		err = session.Load(t.Context(), func(e statemachine.Entry) error {
			if looked = true; e.State.LeaderEpoch >= theirs || e.State.State != statemachine.Paused {
				t.Errorf("%+v", e.State)
			}
			return nil
		})
		if err != nil || !looked {
			t.Errorf("looked %v: %v", looked, err)
		}
	})
}

// Somebody who takes the log while its leader epoch is being raised has it from then on, and a start that was at its end looks at the log anew: it closes what it finds open, before anything is copied.
func TestRaisingALeaderEpochAsksWhoHasTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 3)
		if _, err := m.a.RaiseLeaderEpochs(t.Context(), map[mirror.TopicPartition]int32{{Topic: "t"}: 5}); err != nil {
			t.Fatal(err)
		}
		var taken atomic.Bool
		m.b.SetHooks(memlog.Hooks{After: func(ctx context.Context, c memlog.Call) error {
			if c.Operation != "Destination.RaiseLeaderEpochs" || taken.Swap(true) {
				return nil
			}
			return m.b.log("t", 0).Open(ctx)
		}})
		m.start("t")
		m.inStepAndSame()
		for _, e := range eventsOf[mirror.StateChanged](m.running) {
			if e.To == statemachine.Failed {
				t.Error(e)
			}
		}
		if !taken.Load() {
			t.Error("no leader epoch was raised")
		}
		m.b.SetHooks(memlog.Hooks{})
	})
}

// A log that clients could write before it was stopped is stopped as what it is: it is recorded where the mirror ended, and nothing is written into it.
func TestStopOfALogThatIsOpenAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1)
		m.a.fill("t", 0, 5)
		m.start("t")
		m.inStepAndSame()
		if err := m.b.log("t", 0).Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.b.produce("t", 0, "a client's", "another one")
		m.a.fill("t", 0, 1)
		m.untilFailed("t", 0)
		before := m.b.raw("t", 0)
		if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		p := m.untilOne("stopped", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		expectWords(t, p.Reason, "open for clients before the stop", "the mirror ended at 5")
		if p.LME == nil || p.LME.Offset != 5 || p.LME.Epoch != 0 {
			t.Errorf("LME %+v", p.LME)
		}
		time.Sleep(time.Minute)
		if string(m.b.raw("t", 0)) != string(before) {
			t.Error("the clients' log was written")
		}
	})
}
