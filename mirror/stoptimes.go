package mirror

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// StepTime is how long one step of a failover took.
type StepTime struct {
	Step string        `json:"step"` // BeginStep, a step of STOPPING as the KIP's states are written, or FAILED, which a partition was in between
	Took time.Duration `json:"tookNanoseconds"`
}

// BeginStep is the step of a failover before those of STOPPING: from the moment at which the process was told of the stop until STOPPING is recorded. The last one, OPEN_LOG, ends when STOPPED is recorded.
const BeginStep = "BEGIN"

// MeasuredFailover is how long a failover took: of partitions that a process was told to stop together, from that moment until the last one was open for clients and recorded. It is plain data.
type MeasuredFailover struct {
	Ended      time.Time     `json:"ended"`
	Took       time.Duration `json:"tookNanoseconds"`
	Partitions int           `json:"partitions"` // that were opened
	// Steps are those of the partition that was open last. Their sum is Took.
	Steps []StepTime `json:"steps"`
}

// PredictFailover is the longest of the failovers that were measured, which is what another one is expected to take; ok is false if none was.
func PredictFailover(measured []MeasuredFailover) (longest MeasuredFailover, ok bool) {
	if len(measured) == 0 {
		return longest, false
	}
	return slices.MaxFunc(measured, func(a, b MeasuredFailover) int { return cmp.Compare(a.Took, b.Took) }), true
}

// stopTimes are a partition's, of its last stop in this process.
type stopTimes struct {
	told  time.Time // zero: it was not told to stop, or is stopped
	step  string    // that it is in
	since time.Time
	steps []StepTime
	ended time.Time
}

// observe takes in where the partition is now, as its record says. It says that a stop begins, and that it is over: open, or halted, which does not end by itself.
func (s *stopTimes) observe(now time.Time, ev *partition.Event, state statemachine.State, step string, halted bool) (begins, ends, opened bool) {
	stopped := state == statemachine.Stopped
	if s.told.IsZero() {
		if ev.Kind != partition.Wish || ev.Want != statemachine.WantStopped || stopped || state == statemachine.Stopping || state == statemachine.Failed {
			return false, false, false // of a stop that an earlier process has begun, or that has failed, only the rest would be measured
		}
		*s, begins = stopTimes{told: now, step: BeginStep, since: now}, true
	}
	name := BeginStep
	switch {
	case state == statemachine.Stopping && step != "":
		name = step
	case state == statemachine.Failed:
		name = state.String()
	case stopped, len(s.steps) > 0:
		name = s.step
	}
	if name != s.step {
		s.add(now)
		s.step = name
	}
	if stopped || halted {
		s.add(now)
		s.told, s.ended = time.Time{}, now
		return begins, true, stopped
	}
	return begins, false, false
}

// add closes the step that the partition is in. Steps that come again are one.
func (s *stopTimes) add(now time.Time) {
	took := now.Sub(s.since)
	s.since = now
	if i := slices.IndexFunc(s.steps, func(t StepTime) bool { return t.Step == s.step }); i >= 0 {
		s.steps[i].Took += took
		return
	}
	s.steps = append(s.steps, StepTime{s.step, took})
}

// measuredFailovers is how many are kept.
const measuredFailovers = 8

// failovers measures those of this process: each begins when nothing is being stopped and something is told to, and ends when nothing is being stopped any more.
type failovers struct {
	mu       sync.Mutex
	running  map[*runner]bool
	began    time.Time
	opened   int
	last     time.Time
	steps    []StepTime // of the partition that was opened last
	lasted   time.Time  // when that was told
	measured []MeasuredFailover
}

func (f *failovers) begins(r *runner, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.running) == 0 {
		f.running, f.began, f.opened = map[*runner]bool{}, now, 0
	}
	f.running[r] = true
}

func (f *failovers) ends(r *runner, told, now time.Time, opened bool, steps []StepTime) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running[r] {
		return
	}
	delete(f.running, r)
	if opened {
		f.opened++
		f.last, f.lasted, f.steps = now, told, slices.Clone(steps)
	}
	if len(f.running) > 0 || f.opened == 0 {
		return
	}
	m := MeasuredFailover{Ended: f.last.Round(0).UTC(), Took: f.last.Sub(f.began), Partitions: f.opened, Steps: f.steps}
	if len(m.Steps) > 0 {
		m.Steps[0].Took += f.lasted.Sub(f.began) // it was told later than the first one
	}
	f.keep(m)
}

// keep adds one; the oldest goes.
func (f *failovers) keep(m ...MeasuredFailover) {
	f.measured = append(f.measured, m...)
	slices.SortFunc(f.measured, func(a, b MeasuredFailover) int { return a.Ended.Compare(b.Ended) })
	f.measured = slices.CompactFunc(f.measured, func(a, b MeasuredFailover) bool { return a.Ended.Equal(b.Ended) })
	f.measured = f.measured[max(0, len(f.measured)-measuredFailovers):]
}

// remember takes in what earlier processes have measured.
func (f *failovers) remember(m []MeasuredFailover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(m...)
}

// now are those that were measured, the oldest first.
func (f *failovers) now() []MeasuredFailover {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.measured)
	for i := range all {
		all[i].Steps = slices.Clone(all[i].Steps)
	}
	return all
}

// stepsText is steps in a line, without those that took no time to speak of.
func stepsText(steps []StepTime) string {
	var words []string
	for _, s := range steps {
		if s.Took >= time.Millisecond {
			words = append(words, s.Step+" "+seconds(s.Took))
		}
	}
	if len(words) == 0 {
		return "none took a millisecond"
	}
	return strings.Join(words, ", ")
}
