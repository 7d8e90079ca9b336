package metadatasync

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// rulesModel is both sides' access rules. What is remembered survives every restart, what the look before missed does not; a look may break off anywhere, and one that does not remembers what
// became of its changes.
type rulesModel struct {
	source, destination map[int]bool
	memory, missed      []int

	made   map[int]bool // rules of the destination that the mirror made, as far as anybody can tell
	unseen map[int]bool // rules that are remembered, and that somebody has removed, or a look that broke off has made or removed, where nobody has looked since
	absent map[int]int  // how many looks of this process in a row did not find a rule at the source
}

func rulesOf(m map[int]bool) []int { return slices.Sorted(maps.Keys(m)) }

// outcomeOf draws what becomes of one change.
func outcomeOf(t *rapid.T, what string) (o Outcome, done bool) {
	o = rapid.SampledFrom([]Outcome{NotKnown, CarriedOut, Refused}).Draw(t, what)
	return o, o == CarriedOut || o == NotKnown && rapid.Bool().Draw(t, what+", in truth")
}

// look looks once. whole: everything is carried out; else changes are refused, or nobody knows of them, or the program ends.
func (m *rulesModel) look(t *rapid.T, whole bool) {
	for r := range 5 {
		m.absent[r]++
		if m.source[r] {
			m.absent[r] = 0
		}
	}
	d := Rules(RulesLook[int]{Source: rulesOf(m.source), Destination: rulesOf(m.destination), Memory: m.memory, Missed: m.missed})
	for _, r := range d.Delete {
		if !m.made[r] || m.absent[r] < 2 {
			t.Fatalf("rule %d is removed: the mirror made it: %v; %d looks in a row did not find it", r, m.made[r], m.absent[r])
		}
	}
	for _, r := range d.Create {
		if !m.source[r] || m.destination[r] || !slices.Contains(d.Memory, r) {
			t.Fatalf("rule %d is made: the source has it: %v, the destination: %v; remembered are %v", r, m.source[r], m.destination[r], d.Memory)
		}
	}
	if !whole && rapid.Bool().Draw(t, "ends before it remembers") {
		m.restart()
		return
	}
	m.memory, m.missed = d.Memory, d.Missed
	clear(m.unseen)
	outcomes := map[int]Outcome{}
	change := func(r int, f func()) {
		o, done := CarriedOut, true
		if !whole {
			o, done = outcomeOf(t, fmt.Sprint("rule ", r))
		}
		outcomes[r] = o
		if done {
			f()
		}
	}
	for _, r := range d.Create {
		change(r, func() { m.destination[r], m.made[r] = true, true })
	}
	for _, r := range d.Delete {
		change(r, func() {
			delete(m.destination, r)
			delete(m.made, r)
		})
	}
	if !whole && rapid.Bool().Draw(t, "ends before it remembers what became of it") {
		for r := range outcomes {
			m.unseen[r] = true
		}
		m.restart()
		return
	}
	for r, o := range outcomes {
		m.unseen[r] = o == NotKnown
	}
	m.memory = d.After(func(r int) Outcome { return outcomes[r] })
	for _, r := range m.memory {
		if !m.made[r] && !m.unseen[r] {
			t.Fatalf("rule %d is remembered, and the mirror has not made it", r)
		}
	}
}

func (m *rulesModel) restart() {
	m.missed = nil
	clear(m.absent)
}

func TestRulesFollowTheSourceAndKeepTheDestinationsOwn(t *testing.T) {
	check(t, func(t *rapid.T) {
		m := &rulesModel{source: map[int]bool{}, destination: map[int]bool{}, made: map[int]bool{}, unseen: map[int]bool{}, absent: map[int]int{}}
		rule := rapid.IntRange(0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"added at the source":   func(t *rapid.T) { m.source[rule.Draw(t, "rule")] = true },
			"removed at the source": func(t *rapid.T) { delete(m.source, rule.Draw(t, "rule")) },
			"somebody adds here": func(t *rapid.T) {
				r := rule.Draw(t, "rule")
				if !m.destination[r] && m.unseen[r] && slices.Contains(m.memory, r) {
					m.made[r] = true // as the mirror had, or was about to, for all that is known
				}
				m.destination[r] = true
			},
			"somebody removes here": func(t *rapid.T) {
				r := rule.Draw(t, "rule")
				delete(m.destination, r)
				delete(m.made, r)
				m.unseen[r] = true
			},
			"a restart":         func(*rapid.T) { m.restart() },
			"a look breaks off": func(t *rapid.T) { m.look(t, false) },
			"two looks": func(t *rapid.T) {
				m.look(t, true)
				for r := range m.source {
					if !m.destination[r] {
						t.Fatalf("rule %d of the source is not here", r)
					}
				}
				m.look(t, true)
				for r := range m.destination {
					if m.made[r] && !m.source[r] {
						t.Fatalf("rule %d is here still; remembered are %v", r, m.memory)
					}
				}
				for r := range m.made {
					if !slices.Contains(m.memory, r) {
						t.Fatalf("rule %d is the mirror's, and it is not remembered: %v", r, m.memory)
					}
				}
			},
		})
	})
}
