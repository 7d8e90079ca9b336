package metadatasync

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// check is rapid.Check with more tries: the histories that matter are rare.
func check(t *testing.T, property func(*rapid.T)) {
	for range 15 {
		rapid.Check(t, property)
	}
}

// settingsModel is one topic on both sides. What is remembered survives every restart; a look may break off anywhere, with some settings written, others refused and others not known, and one
// that does not remembers what became of its changes.
type settingsModel struct {
	source, destination map[string]string
	memory              map[string]Setting
	own                 map[string]string // what the destination has of its own, seen or behind what the mirror set
	followed            map[string]bool   // ever set by the source
	unseen              map[string]bool   // settings that somebody has changed here, or a look that broke off, where nobody has looked since
}

func excluded(name string) bool { return name == "excluded" }

func (m *settingsModel) look(t *rapid.T, whole bool) {
	d := Settings(SettingsLook{Source: m.source, Destination: m.destination, Memory: m.memory, Excluded: excluded})
	for name, s := range d.Memory {
		if !m.followed[name] || excluded(name) {
			t.Fatalf("%s is remembered as %+v", name, s)
		}
	}
	if !whole && rapid.Bool().Draw(t, "ends before it remembers") {
		return
	}
	m.memory = d.Memory
	clear(m.unseen)
	outcomes := map[string]Outcome{}
	change := func(name string, f func()) {
		o, done := CarriedOut, true
		if !whole {
			o, done = outcomeOf(t, name)
		}
		outcomes[name] = o
		if done {
			f()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Set)) {
		change(name, func() { m.destination[name] = d.Set[name] })
	}
	for _, name := range d.Delete {
		change(name, func() { delete(m.destination, name) })
	}
	if !whole && rapid.Bool().Draw(t, "ends before it remembers what became of it") {
		for name := range outcomes {
			m.unseen[name] = true
		}
		return
	}
	for name, o := range outcomes {
		m.unseen[name] = o == NotKnown
	}
	m.memory = d.After(func(name string) Outcome { return outcomes[name] })
	for name, s := range m.memory {
		if have, is := m.destination[name]; !m.unseen[name] && (!is || !s.own(have)) {
			t.Fatalf("%s is remembered as %+v, and the destination has %q, %v", name, s, have, is)
		}
	}
}

// somebody changes a setting at the destination. Who sets just what the mirror has left there, or may have while nobody has looked, cannot be told from it.
func (m *settingsModel) somebody(name string, value *string) {
	s, ours := m.memory[name]
	have, is := m.destination[name]
	ours = ours && (is && s.own(have) || m.unseen[name])
	m.unseen[name] = true
	switch {
	case value == nil:
		delete(m.destination, name)
		delete(m.own, name)
		return
	case !ours || !s.own(*value):
		m.own[name] = *value
	case s.Was == nil:
		delete(m.own, name)
	default:
		m.own[name] = *s.Was
	}
	m.destination[name] = *value
}

func (m *settingsModel) invariants(t *rapid.T) {
	for _, name := range []string{"a", "b", "excluded"} {
		have, is := m.destination[name]
		own, had := m.own[name]
		if (!m.followed[name] || excluded(name)) && (is != had || have != own) {
			t.Fatalf("%s is %q, %v; it is the destination's own, and was %q, %v", name, have, is, own, had)
		}
	}
}

func TestSettingsFollowTheSourceAndKeepTheDestinationsOwn(t *testing.T) {
	check(t, func(t *rapid.T) {
		m := &settingsModel{source: map[string]string{}, destination: map[string]string{}, own: map[string]string{}, followed: map[string]bool{}, unseen: map[string]bool{}}
		name, value := rapid.SampledFrom([]string{"a", "b", "excluded"}), rapid.SampledFrom([]string{"1", "2", "3", "4"})
		t.Repeat(map[string]func(*rapid.T){
			"": m.invariants,
			"the source sets": func(t *rapid.T) {
				n := name.Draw(t, "name")
				m.source[n], m.followed[n] = value.Draw(t, "value"), true
			},
			"the source drops":      func(t *rapid.T) { delete(m.source, name.Draw(t, "name")) },
			"somebody sets here":    func(t *rapid.T) { v := value.Draw(t, "value"); m.somebody(name.Draw(t, "name"), &v) },
			"somebody deletes here": func(t *rapid.T) { m.somebody(name.Draw(t, "name"), nil) },
			"a look breaks off":     func(t *rapid.T) { m.look(t, false) },
			"a look": func(t *rapid.T) {
				m.look(t, true)
				m.inStep(t)
			},
		})
	})
}

// inStep is what holds after a look that came to its end: the source's settings, and of the others the destination's own; and nothing is left to do.
func (m *settingsModel) inStep(t *rapid.T) {
	want := maps.Clone(m.own)
	for name, value := range m.source {
		if !excluded(name) {
			want[name] = value
		}
	}
	if !maps.Equal(want, m.destination) {
		t.Fatalf("the destination has %v, not %v; its own are %v, remembered is %v", m.destination, want, m.own, m.memory)
	}
	again := Settings(SettingsLook{Source: m.source, Destination: m.destination, Memory: m.memory, Excluded: excluded})
	if again.Changes() || !reflect.DeepEqual(again.Done, again.Memory) {
		t.Fatalf("the next look sets %v and deletes %v, remembers %+v and then %+v", again.Set, again.Delete, again.Memory, again.Done)
	}
}
