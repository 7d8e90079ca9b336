package mirror

import (
	"maps"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// draining holds stops back for partitions whose source still gives what their copy lacks (TopicWish.DrainUntil). Each is on its own: it is stopped as soon as it has all that the source has, or
// the source does not answer for it, and at DrainUntil whatever the source does. Until then it is mirrored as before, so nothing else has to know of it; a stop itself makes no call to the source
// (spec decision 4).
type draining struct {
	m *Mirror

	mu   sync.Mutex
	held map[*runner]heldStop // nil: none, and nobody looks at it
}

// heldStop is a stop that its partition has not been told of.
type heldStop struct {
	wish  TopicWish
	since time.Time
}

const (
	// drainInterval is how often partitions that are drained are looked at.
	drainInterval = 50 * time.Millisecond
	// drainGrace is how long a drain waits for a source that has not said anything yet to this process about the partition, which may have begun to mirror it just now.
	drainGrace = 5 * time.Second
)

// tell has a partition in this state follow what is wanted, at once or when it is drained. Under Mirror.mu, by whoever holds it since he looked or changed what is wanted: what was wanted before would be
// told last otherwise, and never be corrected.
func (d *draining) tell(r *runner, w TopicWish, state statemachine.State) {
	now := time.Now()
	_, want, _ := w.Wish()
	hold := want == statemachine.WantStopped && now.Before(w.DrainUntil) && drainable(state)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !hold {
		delete(d.held, r)
		r.send(wishEvent(w))
		return
	}
	if _, held := d.held[r]; !held {
		// A process that has just begun mirrors until then; to the others it is no news.
		r.send(partition.Event{Kind: partition.Wish, Want: statemachine.WantMirroring})
	}
	begins := d.held == nil
	if begins {
		d.held = map[*runner]heldStop{}
	}
	d.held[r] = heldStop{w, now}
	if begins {
		d.m.spawn(d.watch)
	}
}

// drainable says that a partition in this state may get more from its source. What is not compared with the source yet, fails, or is paused is stopped at once.
func drainable(s statemachine.State) bool {
	return s == statemachine.Mirroring || s == statemachine.EpochFencing
}

// holds says that the stop of a partition is held back.
func (d *draining) holds(r *runner) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, held := d.held[r]
	return held
}

// watch lets stops go until none is held.
func (d *draining) watch() {
	for {
		d.mu.Lock()
		held := maps.Clone(d.held)
		d.mu.Unlock()
		now := time.Now()
		for r, h := range held {
			// Before it has taken in what it was told, as where its record says that it was, its status says nothing.
			if settled := r.decided(); drained(h, r.status(now), now) && (settled || !now.Before(h.wish.DrainUntil)) {
				d.release(r, h)
			}
		}
		d.mu.Lock()
		done := len(d.held) == 0
		if done {
			d.held = nil
		}
		d.mu.Unlock()
		if done || !d.m.pause(d.m.ctx, drainInterval) {
			return
		}
	}
}

// release tells the partition of its stop, unless something else is wanted by now.
func (d *draining) release(r *runner, h heldStop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, held := d.held[r]
	if !held || !now.since.Equal(h.since) {
		return
	}
	delete(d.held, r)
	r.send(wishEvent(h.wish)) // before anybody tells what is wanted instead
}

// drained says that nothing more is waited for.
func drained(h heldStop, p PartitionStatus, now time.Time) bool {
	switch {
	case !now.Before(h.wish.DrainUntil), p.Halted, !drainable(p.State):
		return true
	case !p.LagUnknown.IsZero(): // the source does not answer for it, any more or yet
		return !p.SourceSeen.IsZero() && p.SourceSeen.Before(h.since) || now.Sub(h.since) >= drainGrace
	}
	return p.SourceSeen.After(h.since) && p.LagOffsets == 0
}
