package metadatasync

import (
	"maps"
	"testing"
)

// What is remembered decides later whose a group is. Each case is a look, what is to be remembered after it, and what the next one does.
func TestF57WhatIsRememberedOfAGroup(t *testing.T) {
	c := Copy{Replicated: 1000}
	remembered := func(wrote, before int64) Memory {
		return Memory{Seen: 500, SeenEpoch: None, Wrote: wrote, Before: before}
	}
	for _, x := range []struct {
		name          string
		look          Look
		wrote, before int64

		next   Look // Memory is what is remembered by then
		to     int64
		reason Reason
	}{
		{"a write that is known to be done: who goes back to before is somebody else",
			Look{Source: off(500), Destination: off(500), Memory: remembered(500, 300)}, 500, 500,
			Look{Source: off(100), Destination: off(300)}, None, Moved},
		{"somebody has moved it: who brings it to where it was left is somebody else too",
			Look{Source: off(500), Destination: off(700), Memory: remembered(500, 500)}, None, None,
			Look{Source: off(100), Destination: off(500)}, None, Moved},
		{"somebody has moved it, then to the beginning",
			Look{Source: off(500), Destination: off(700), Memory: remembered(500, 500)}, None, None,
			Look{Source: off(100), Destination: off(0)}, 100, InStep}, // the source has moved, to behind the beginning
		{"it is where somebody has put it, and where it belongs",
			Look{Source: off(500), Destination: off(500), Memory: remembered(300, 300)}, None, None,
			Look{Source: off(100), Destination: off(300)}, None, Moved},
		{"its members have committed nothing",
			Look{Source: off(500), Destination: off(500), Memory: remembered(500, 500), Active: true}, 500, 500,
			Look{Source: off(100), Destination: off(500)}, 100, InStep},
		{"its members have committed nothing, at the beginning",
			Look{Source: off(500), Destination: off(0), Memory: remembered(0, 0), Active: true}, 0, 0,
			Look{Source: off(100), Destination: off(0)}, 100, InStep},
		{"its members were there before the write, which was not done, and read up to where it was to be",
			Look{Source: off(500), Destination: off(300), Memory: remembered(500, 300), Active: true}, 300, 300,
			Look{Source: off(100), Destination: off(500)}, None, Moved},
		{"its members have committed",
			Look{Source: off(500), Destination: off(700), Memory: remembered(500, 500), Active: true}, None, None,
			Look{Source: off(100), Destination: off(500)}, None, Moved},
		{"its members have committed nothing ever",
			Look{Source: off(500), Memory: remembered(500, 500), Active: true}, None, None,
			Look{Source: off(600)}, 600, InStep},
		{"the source passes it from its very beginning",
			Look{Source: off(0), Destination: off(700), Memory: Memory{Seen: 0, SeenEpoch: None, Wrote: None, Before: None}}, None, None,
			Look{Source: off(800), Destination: off(700)}, 800, InStep},
		{"forgotten here, and written",
			Look{Source: off(500), Memory: remembered(300, 300)}, 500, 500,
			Look{Source: off(100), Destination: off(500)}, 100, InStep},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.look.Copy, x.next.Copy = c, c
			d := Decide(x.look)
			if m := (Memory{Seen: x.look.Source.Offset, SeenEpoch: None, Wrote: x.wrote, Before: x.before}); d.Memory != m {
				t.Errorf("remembered is %+v, want %+v", d.Memory, m)
			}
			x.next.Memory = d.Memory
			want(t, "the next look", Decide(x.next), x.to, x.reason)
		})
	}
}

// A write that was not done says nothing of the one before it; where the group was when it was decided does. Whoever brings it later to where that earlier write was to bring it is somebody else.
func TestF57WhatIsRememberedOfAWriteThatWasMissed(t *testing.T) {
	remembered := func(wrote, before int64, theirs bool) Memory {
		return Memory{Seen: 500, SeenEpoch: None, Wrote: wrote, Before: before, Theirs: theirs}
	}
	for _, x := range []struct {
		name        string
		memory      Memory
		destination *Offset
		active      bool
		want        Memory
	}{
		{"the write before it was not done: there was nothing", remembered(500, 500, false), nil, false, remembered(None, None, false)},
		{"the write before it was not done: it was where it had been", remembered(500, 300, false), off(300), false, remembered(300, 300, false)},
		{"the write before it was done", remembered(500, 300, false), off(500), false, remembered(500, 500, false)},
		{"it is being taken over still", remembered(500, 300, true), off(300), false, remembered(None, 300, true)},
		{"it was somebody else's", remembered(500, 300, false), off(400), false, remembered(None, None, false)},
		{"nothing was written ever", remembered(None, None, false), nil, false, remembered(None, None, false)},
		{"it has members where the write before was to bring it", remembered(500, 300, false), off(500), true, remembered(500, 500, false)},
		{"it has members where a write was to bring it back from: they may have read up to there again", remembered(300, 500, false), off(500), true, remembered(None, None, false)},
		{"it has members and was being taken over", remembered(500, 300, true), off(300), true, remembered(None, None, false)},
	} {
		if got := x.memory.Missed(x.destination, x.active); got != x.want {
			t.Errorf("%s: remembered is %+v, want %+v", x.name, got, x.want)
		}
	}
	missed := remembered(500, 500, false).Missed(nil, false)
	want(t, "somebody has brought it there", Decide(Look{Source: off(100), Destination: off(500), Copy: Copy{Replicated: 1000}, Memory: missed}), None, Moved)
	missed = remembered(500, 300, true).Missed(off(300), false)
	want(t, "the taking over is tried again", Decide(Look{Source: off(500), Destination: off(300), Copy: Copy{Replicated: 1000}, Memory: missed}), 500, InStep)
}

func TestGroupsThatTheSourceForgets(t *testing.T) {
	d := Decide(Look{Destination: off(500), Copy: Copy{Replicated: 1000}, Memory: Memory{Seen: 500, SeenEpoch: 3, Wrote: 500, Before: 500}})
	if d.Memory != (Memory{Seen: None, SeenEpoch: None, Wrote: 500, Before: 500}) {
		t.Errorf("remembered is %+v: a stop would put it there", d.Memory)
	}
	if f := Forgotten(); f != (Memory{Seen: None, SeenEpoch: None, Wrote: None, Before: None}) {
		t.Errorf("a group that was never looked at is remembered as %+v", f)
	}
}

// A client may resume with the leader epoch that the destination is in; only a higher one makes it ask for ever.
func TestF42TheDestinationsOwnEpochIsKept(t *testing.T) {
	c := Copy{Replicated: 1000, LeaderEpoch: 7, EpochBelow: func(int64) int32 { return 7 }}
	for _, s := range []int64{500, 1500} {
		if at := Place(Offset{Offset: s, LeaderEpoch: 7}, c); at.LeaderEpoch != 7 {
			t.Errorf("%d belongs to %+v", s, at)
		}
	}
}

func TestSettingsThatAreEqual(t *testing.T) {
	a, again, b := "a", "a", "b"
	for _, x := range []struct {
		s, o  Setting
		equal bool
	}{
		{Setting{}, Setting{}, true},
		{Setting{"x", &a, &b}, Setting{"x", &again, &b}, true},
		{Setting{"x", &a, &b}, Setting{"y", &a, &b}, false},
		{Setting{"x", &a, nil}, Setting{"x", nil, nil}, false},
		{Setting{"x", nil, nil}, Setting{"x", &a, nil}, false},
		{Setting{"x", &a, nil}, Setting{"x", &b, nil}, false},
		{Setting{"x", &a, &a}, Setting{"x", &a, nil}, false},
		{Setting{"x", &a, nil}, Setting{"x", &a, &a}, false},
		{Setting{"x", &a, &a}, Setting{"x", &a, &b}, false},
	} {
		if got := x.s.Equal(x.o); got != x.equal {
			t.Errorf("%+v and %+v: %v", x.s, x.o, got)
		}
	}
}

func TestChangesOfSettings(t *testing.T) {
	for _, x := range []struct {
		d       SettingsDecision
		changes bool
	}{
		{SettingsDecision{}, false}, {SettingsDecision{Set: map[string]string{"a": "1"}}, true}, {SettingsDecision{Delete: []string{"a"}}, true},
		{SettingsDecision{Set: map[string]string{"a": "1"}, Delete: []string{"b"}}, true},
	} {
		if got := x.d.Changes(); got != x.changes {
			t.Errorf("%+v: %v", x.d, got)
		}
	}
}

// F-63: what the destination had of its own is put back, also if it was empty.
func TestF63AnEmptySettingIsTheDestinationsOwn(t *testing.T) {
	d := Settings(SettingsLook{Source: map[string]string{"a": "1"}, Destination: map[string]string{"a": ""}, Excluded: excluded})
	if m := d.Memory["a"]; d.Set["a"] != "1" || m.Was == nil || *m.Was != "" || m.Before != nil {
		t.Errorf("set %v, remembered %+v", d.Set, m)
	}
}

// A change that the cluster refused leaves what was remembered: the setting still is the mirror's, and is put back when the source drops it.
func TestF63ARefusedChangeIsRememberedAsItWas(t *testing.T) {
	own := "own"
	memory := map[string]Setting{"a": {Set: "1", Was: &own}}
	for _, source := range []map[string]string{{"a": "2"}, {}} {
		d := Settings(SettingsLook{Source: source, Destination: map[string]string{"a": "1"}, Memory: memory, Excluded: excluded})
		after := d.After(func(string) Outcome { return Refused })
		if m, is := after["a"]; !is || !m.Equal(memory["a"]) {
			t.Errorf("the source has %v: remembered is %+v, want %+v", source, after, memory)
		}
	}
}

// What somebody has changed since, and what is back at what it was, is nothing that the mirror has to remember before it writes something else.
func TestF63WhatIsNotTheMirrorsIsForgotten(t *testing.T) {
	own, set := "own", "1"
	for name, x := range map[string]SettingsLook{
		"dropped at the source, changed here":       {Destination: map[string]string{"a": "3"}, Memory: map[string]Setting{"a": {Set: set}}},
		"dropped at the source, deleted here":       {Destination: map[string]string{}, Memory: map[string]Setting{"a": {Set: set}}},
		"dropped at the source, and what it was":    {Destination: map[string]string{"a": own}, Memory: map[string]Setting{"a": {Set: own, Was: &own}}},
		"the same at both sides, of itself":         {Source: map[string]string{"a": "3"}, Destination: map[string]string{"a": "3"}, Memory: map[string]Setting{"a": {Set: set}}},
		"no longer followed, though it is the same": {Source: map[string]string{"excluded": "1"}, Destination: map[string]string{"excluded": "1"}, Memory: map[string]Setting{"excluded": {Set: set}}},
	} {
		x.Excluded = excluded
		if d := Settings(x); d.Memory != nil || d.Changes() {
			t.Errorf("%s: remembered %v, set %v, delete %v", name, maps.Clone(d.Memory), d.Set, d.Delete)
		}
	}
}

// Decision 17: a group that was taken over is not moved beyond what is replicated, wherever it was before.
func TestWhereATakenGroupWasSaysNothingOfTheCopy(t *testing.T) {
	source, old := Offset{Offset: 12, LeaderEpoch: 1}, Offset{Offset: 24, LeaderEpoch: 1}
	c := Copy{Replicated: 10, End: 12, LeaderEpoch: 1}
	first := Decide(Look{Source: &source, Destination: &old, Copy: c, Memory: Forgotten(), First: true})
	if first.Write == nil || first.Write.Offset != 10 {
		t.Fatalf("it is taken over to %+v", first.Write)
	}
	if again := Decide(Look{Source: &source, Destination: first.Write, Copy: c, Memory: first.Memory}); again.Write != nil && again.Write.Offset > 10 {
		t.Errorf("it is moved to %d, and 10 is replicated", again.Write.Offset)
	}
	c.Replicated = 0 // a process that took over, and does not know yet; the write may or may not have been done
	if again := Decide(Look{Source: &source, Destination: first.Write, Copy: c, Memory: first.Memory}); again.Write != nil && again.Write.Offset != 10 {
		t.Errorf("it goes back to %d", again.Write.Offset)
	}
}
