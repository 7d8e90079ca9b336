package simulator

import (
	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Stats is what a run, or many, have seen. Add makes one of many.
type Stats struct {
	Simulated    float64 // hours
	Events       int
	Ops          int
	Faults       int // that the adversary caused and that hit a partition which was neither STOPPED nor UNKNOWN, each once
	Answers      int // consequences: what clusters answered by the protocol's rules, what was lost, who was fenced
	Preparings   int // PREPARING that came to MIRRORING
	Stoppings    int // STOPPING that came to STOPPED
	Failovers    int // … of partitions that hold something
	Failbacks    int // PREPARING of a cluster whose end the source had recorded, that came to MIRRORING
	Judged       int // partitions whose clients' history was judged at the end
	Unjudged     int // … and those that had no common line any more
	Reads        int // records that consumers read
	StateEvents  [nStates][nEvents]int
	StateFaults  map[string]*[nStates]int
	StateAnswers map[string]*[nStates]int
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

func (s *Stats) init() {
	s.StateFaults, s.StateAnswers = map[string]*[nStates]int{}, map[string]*[nStates]int{}
}

// cover counts an event that a core was given in a state.
func (s *Stats) cover(state statemachine.State, kind partition.EventKind) {
	s.StateEvents[stateIndex(state)][kind]++
}

// fault counts a fault that the adversary caused and that took effect, with the states of the partitions that it hit: in the table for each, among the faults once, and only when one of them was at
// work. What hits nobody is counted nowhere.
func (s *Stats) fault(name string, states ...statemachine.State) {
	works := false
	for _, state := range states {
		note(s.StateFaults, name, state)
		works = works || state != statemachine.Stopped && state != statemachine.Unknown
	}
	if works {
		s.Faults++
	}
}

// answer counts what follows of faults.
func (s *Stats) answer(name string, state statemachine.State) {
	s.Answers++
	note(s.StateAnswers, name, state)
}

func note(table map[string]*[nStates]int, name string, state statemachine.State) {
	row := table[name]
	if row == nil {
		row = new([nStates]int)
		table[name] = row
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
	s.Answers += t.Answers
	s.Preparings += t.Preparings
	s.Stoppings += t.Stoppings
	s.Failovers += t.Failovers
	s.Failbacks += t.Failbacks
	s.Judged += t.Judged
	s.Unjudged += t.Unjudged
	s.Reads += t.Reads
	for i := range s.StateEvents {
		for j := range s.StateEvents[i] {
			s.StateEvents[i][j] += t.StateEvents[i][j]
		}
	}
	add(s.StateFaults, t.StateFaults)
	add(s.StateAnswers, t.StateAnswers)
}

func add(to, from map[string]*[nStates]int) {
	for name, row := range from {
		if to[name] == nil {
			to[name] = new([nStates]int)
		}
		for i := range row {
			to[name][i] += row[i]
		}
	}
}
