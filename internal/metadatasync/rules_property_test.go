package metadatasync

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// rulesModel is both sides' access rules. What is remembered survives every restart, what the look before missed does not; a look may break off anywhere.
type rulesModel struct {
	source, destination map[int]bool
	memory, missed      []int

	made   map[int]bool // rules of the destination that the mirror made, as far as anybody can tell
	absent map[int]int  // how many looks of this process in a row did not find a rule at the source
}

func rulesOf(m map[int]bool) []int { return slices.Sorted(maps.Keys(m)) }

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
	for _, r := range d.Create {
		if whole || rapid.Bool().Draw(t, "made") {
			m.destination[r], m.made[r] = true, true
		}
	}
	for _, r := range d.Delete {
		if whole || rapid.Bool().Draw(t, "removed") {
			delete(m.destination, r)
			delete(m.made, r)
		}
	}
	if whole && rapid.Bool().Draw(t, "says that it is done") {
		m.memory = d.Done
	}
	if !whole && rapid.Bool().Draw(t, "restarts") {
		m.restart()
	}
}

func (m *rulesModel) restart() {
	m.missed = nil
	clear(m.absent)
}

func TestRulesFollowTheSourceAndKeepTheDestinationsOwn(t *testing.T) {
	check(t, func(t *rapid.T) {
		m := &rulesModel{source: map[int]bool{}, destination: map[int]bool{}, made: map[int]bool{}, absent: map[int]int{}}
		rule := rapid.IntRange(0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"added at the source":   func(t *rapid.T) { m.source[rule.Draw(t, "rule")] = true },
			"removed at the source": func(t *rapid.T) { delete(m.source, rule.Draw(t, "rule")) },
			"somebody adds here": func(t *rapid.T) {
				r := rule.Draw(t, "rule")
				if !m.destination[r] && slices.Contains(m.memory, r) {
					m.made[r] = true // as the mirror was about to, or had: it cannot be told
				}
				m.destination[r] = true
			},
			"somebody removes here": func(t *rapid.T) {
				r := rule.Draw(t, "rule")
				delete(m.destination, r)
				delete(m.made, r)
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
