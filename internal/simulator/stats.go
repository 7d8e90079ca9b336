package simulator

import (
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Stats is what a run, or many, have seen. Add makes one of many.
type Stats struct {
	Simulated   float64 // hours
	Events      int
	Ops         int
	Faults      int // that took effect on something
	Preparings  int // PREPARING that came to MIRRORING
	Stoppings   int // STOPPING that came to STOPPED
	Failovers   int // … of partitions that hold something
	Failbacks   int // PREPARING of a cluster whose end the source had recorded, that came to MIRRORING
	StateEvents [nStates][nEvents]int
	StateFaults map[string]*[nStates]int
}

// nStates counts the states of a record, UNKNOWN last; nEvents the kinds of events.
const (
	nStates = 9
	nEvents = int(partition.Tuned) + 1
)

func stateIndex(s statemachine.State) int {
	if s == statemachine.Unknown {
		return nStates - 1
	}
	return int(s)
}

func stateAt(i int) statemachine.State {
	if i == nStates-1 {
		return statemachine.Unknown
	}
	return statemachine.State(i)
}

func (s *Stats) init() { s.StateFaults = map[string]*[nStates]int{} }

// cover counts an event that a core was given in a state.
func (s *Stats) cover(state statemachine.State, kind partition.EventKind) {
	s.StateEvents[stateIndex(state)][kind]++
}

// fault counts a fault that took effect.
func (s *Stats) fault(name string, state statemachine.State) {
	s.Faults++
	row := s.StateFaults[name]
	if row == nil {
		row = new([nStates]int)
		s.StateFaults[name] = row
	}
	row[stateIndex(state)]++
}

// Add adds what another run has seen.
func (s *Stats) Add(t *Stats) {
	if s.StateFaults == nil {
		s.init()
	}
	s.Simulated += t.Simulated
	s.Events += t.Events
	s.Ops += t.Ops
	s.Faults += t.Faults
	s.Preparings += t.Preparings
	s.Stoppings += t.Stoppings
	s.Failovers += t.Failovers
	s.Failbacks += t.Failbacks
	for i := range s.StateEvents {
		for j := range s.StateEvents[i] {
			s.StateEvents[i][j] += t.StateEvents[i][j]
		}
	}
	for name, row := range t.StateFaults {
		into := s.StateFaults[name]
		if into == nil {
			into = new([nStates]int)
			s.StateFaults[name] = into
		}
		for i := range row {
			into[i] += row[i]
		}
	}
}
