package simulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/statemachine"
)

// storeFault is how the next writes of a state store go wrong.
type storeFault struct {
	before, after int // writes that fail, and were not done or done
	loads         int // loads that fail
	refused       int // writes that were not done, and whose error the core is told
	slow          time.Duration
}

// persist writes a record until the store has answered: what is not durable must not be acted on, and what may be durable must not be guessed at.
func (r *runner) persist(e partition.Effect, try int) {
	if r.halted {
		return
	}
	r.writing = true
	if try == 0 {
		r.tell(func(m *model.World) { m.Began(r.of, "record", 0) })
	}
	w, c := r.w, r.m.destination
	wait := min(storeWait<<min(try, 8), maxStoreWait)
	again := func() { w.after(wait, func() { r.p.guard(func() { r.persist(e, try+1) }) }) }
	w.after(c.storeFail.slow+w.jitter(r.purpose(30), 200*time.Microsecond, 3*time.Millisecond), func() {
		r.p.guard(func() {
			f := &c.storeFail
			switch {
			case r.halted:
				return
			case c.lost:
				again()
				return
			case f.refused > 0 && try == 0:
				f.refused--
				w.stats.fault("state write refused", r.state)
				r.answer(partition.Event{Kind: partition.Persisted, Token: e.Token, Err: errLost})
				return
			case f.before > 0:
				f.before--
				w.stats.fault("state write fails before", r.state)
				again()
				return
			}
			record := e.Record
			results, err := r.p.session.Write(context.Background(), []statemachine.Write{{
				Key: r.key, ExpectedStateEpoch: e.ExpectedStateEpoch, LeaderEpoch: e.Record.LeaderEpoch, State: &record, LME: e.LME,
			}})
			if err == nil && results[0].Err == nil {
				r.stored(e.LME != nil)
				if record.State == statemachine.Mirroring && r.state != statemachine.Mirroring { // whether or not this process comes to hear that it is written
					w.history.mirrors(r)
				}
			}
			if err == nil && f.after > 0 {
				f.after--
				w.stats.fault("state write fails after", r.state)
				again()
				return
			}
			switch {
			case errors.Is(err, statemachine.ErrFenced):
				w.stats.answer("state session fenced", r.state)
				r.answer(partition.Event{Kind: partition.Persisted, Token: e.Token, Err: err})
			case err != nil:
				w.wrong(fmt.Errorf("the memory store fails: %w", err))
			case try > 0 && errors.Is(results[0].Err, statemachine.ErrStateEpoch):
				r.doubt(e, results[0], 0)
			default:
				r.answer(partition.Event{Kind: partition.Persisted, Token: e.Token, StateEpoch: results[0].StateEpoch, Err: results[0].Err})
			}
		})
	})
}

// doubt reads what is stored, until the store answers, to find out whether a write that was tried again had been done.
func (r *runner) doubt(e partition.Effect, result statemachine.WriteResult, try int) {
	w, c := r.w, r.m.destination
	w.after(w.jitter(r.purpose(31), 200*time.Microsecond, 3*time.Millisecond), func() {
		r.p.guard(func() {
			if c.lost || c.storeFail.loads > 0 {
				if c.storeFail.loads > 0 {
					c.storeFail.loads--
					w.stats.fault("state load fails", r.state)
				}
				w.after(min(storeWait<<min(try, 8), maxStoreWait), func() { r.p.guard(func() { r.doubt(e, result, try+1) }) })
				return
			}
			for _, got := range c.entries(r.l.t, r.l.at.Partition) {
				if got.Key != r.key {
					continue
				}
				if epoch, ours := partition.Settled(e, got); ours {
					result = statemachine.WriteResult{StateEpoch: epoch}
				}
			}
			r.answer(partition.Event{Kind: partition.Persisted, Token: e.Token, StateEpoch: result.StateEpoch, Err: result.Err})
		})
	})
}

// stored tells the model what now lies in the store. ended: an end was written with it; one that comes with STOPPED belongs to the stop, one with STOPPING too.
func (r *runner) stored(ended bool) {
	for _, e := range r.m.destination.entries(r.l.t, r.l.at.Partition) {
		if e.Key != r.key {
			continue
		}
		s := e.State
		r.w.say("%s %v stored %v episode %d attempt %d %s", r.p.name, r.l.at, s.State, s.Episode, s.RetryAttempt, s.ErrorMessage)
		end := func(m *model.World) {
			if ended && e.LME != nil {
				m.StoredEnd(r.of, model.End{LME: e.LME.Epoch, LMO: e.LME.Offset, Episode: e.LME.Episode, SourceCluster: e.LME.SourceClusterID})
			}
		}
		record := func(m *model.World) {
			m.Stored(r.of, model.Record{State: int8(s.State), StateEpoch: s.StateEpoch, Episode: s.Episode, Attempt: s.RetryAttempt, Previous: int8(s.PreviousState), Message: s.ErrorMessage, FoundOpen: s.FoundOpen, Hole: map[int64]int64{s.HoleFrom: s.HoleTo}, Topic: s.SourceTopicID.String()})
		}
		if s.State == statemachine.Stopped {
			r.w.tell(end)
			r.w.tell(record)
		} else {
			r.w.tell(record)
			r.w.tell(end)
		}
	}
}
