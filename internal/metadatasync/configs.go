package metadatasync

import (
	"maps"
	"slices"
)

// Setting is what is remembered of one setting that the mirror set.
type Setting struct {
	Set    string  // what the mirror set
	Was    *string // what the topic had of its own before that, nil: nothing. It is put back when the source drops the setting.
	Before *string // what the mirror had set before, nil: nothing, or it is known that Set was written. As long as nobody knows that, either is the mirror's own.
}

// own says that what the destination has is what the mirror left there.
func (m Setting) own(have string) bool {
	return have == m.Set || m.Before != nil && have == *m.Before
}

// SettingsLook is what is known of one topic's settings.
type SettingsLook struct {
	Source, Destination map[string]string
	Memory              map[string]Setting
	Excluded            func(name string) bool // settings that are not followed
}

// SettingsDecision is what to do. Memory is to be remembered, durably, before Set and Delete are carried out; After when it is known what became of them.
type SettingsDecision struct {
	Set    map[string]string
	Delete []string           // sorted
	Memory map[string]Setting // nil if empty
	Done   map[string]Setting // of Memory, when all was carried out; nil if empty
	kept   map[string]Setting // of Memory, when all was refused
}

// Changes says whether there is anything to carry out.
func (d SettingsDecision) Changes() bool { return len(d.Set)+len(d.Delete) > 0 }

// After is what is to be remembered when it is known what became of each change; nil if empty. What somebody sets here from then on is his, also if it is what the mirror set, or was to set.
func (d SettingsDecision) After(outcome func(name string) Outcome) map[string]Setting {
	var after map[string]Setting
	for name, m := range d.Memory {
		is := true
		_, set := d.Set[name]
		switch changed := set || slices.Contains(d.Delete, name); {
		case !changed || outcome(name) == CarriedOut:
			m, is = d.Done[name]
		case outcome(name) == Refused:
			m, is = d.kept[name]
		}
		if !is {
			continue
		}
		if after == nil {
			after = map[string]Setting{}
		}
		after[name] = m
	}
	return after
}

// Settings follows one topic's settings. What the source sets is set where it differs; what it drops goes back to what it was, if the mirror had set it and nobody has changed it here since;
// every other setting of the destination is its own (F-63, KIP-894). What somebody sets here over the source's is set back, and is what the topic has of its own from then on.
func Settings(l SettingsLook) SettingsDecision {
	d := SettingsDecision{Set: map[string]string{}, Memory: maps.Clone(l.Memory), Done: map[string]Setting{}, kept: map[string]Setting{}}
	if d.Memory == nil {
		d.Memory = map[string]Setting{}
	}
	for name, value := range l.Source {
		if l.Excluded(name) {
			continue
		}
		have, is := l.Destination[name]
		m, ours := d.Memory[name]
		own := ours && is && m.own(have)
		if own {
			d.kept[name] = m
		}
		switch {
		case is && have == value && !own: // it is the destination's own, and the same
			delete(d.Memory, name)
			continue
		case is && have == value:
			d.Memory[name] = Setting{Set: value, Was: m.Was}
			continue
		case own:
			d.Memory[name] = Setting{Set: value, Was: m.Was, Before: &have}
		case is: // somebody has set it here, at first or since
			d.Memory[name] = Setting{Set: value, Was: &have}
		default:
			d.Memory[name] = Setting{Set: value}
		}
		d.Set[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(d.Memory)) {
		m := d.Memory[name]
		if _, wanted := l.Source[name]; wanted && !l.Excluded(name) {
			d.Done[name] = Setting{Set: m.Set, Was: m.Was}
			continue
		}
		have, is := l.Destination[name]
		switch {
		case l.Excluded(name), !is, !m.own(have): // nobody's business any more, or somebody has changed it since
			delete(d.Memory, name)
		case m.Was != nil && *m.Was != have:
			d.Set[name], d.kept[name] = *m.Was, m
		case m.Was != nil:
			delete(d.Memory, name)
		default:
			d.Delete, d.kept[name] = append(d.Delete, name), m
		}
	}
	if len(d.Memory) == 0 {
		d.Memory = nil
	}
	if len(d.Done) == 0 {
		d.Done = nil
	}
	return d
}

// Equal says whether two memories are the same.
func (s Setting) Equal(o Setting) bool {
	return s.Set == o.Set && equal(s.Was, o.Was) && equal(s.Before, o.Before)
}

func equal(a, b *string) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}
