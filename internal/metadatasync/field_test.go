package metadatasync

import (
	"maps"
	"slices"
	"testing"
)

func off(offset int64) *Offset { return &Offset{Offset: offset, LeaderEpoch: None} }

// wrote is the memory of a group that the source has at seen, and that the mirror has brought to offset.
func wrote(seen, offset int64) Memory {
	return Memory{Seen: seen, SeenEpoch: None, Wrote: offset, Before: offset}
}

// want compares what a decision writes; None: nothing.
func want(t *testing.T, what string, d Decision, offset int64, reason Reason) {
	t.Helper()
	got := int64(None)
	if d.Write != nil {
		got = d.Write.Offset
	}
	if got != offset || d.Reason != reason {
		t.Errorf("%s: wrote %d for reason %d, not %d for reason %d", what, got, d.Reason, offset, reason)
	}
}

// The destination has 100 to 1000; the source's commits are ahead of it, in it, behind it. Then it reaches 1500.
func TestF56AGroupIsPutInsideTheCopy(t *testing.T) {
	c := Copy{Start: 100, Replicated: 1000}
	for _, x := range []struct{ source, to int64 }{{1500, 1000}, {1000, 1000}, {500, 500}, {50, 100}} {
		want(t, "a new group", Decide(Look{Source: off(x.source), Copy: c, Memory: Forgotten()}), x.to, InStep)
	}
	want(t, "without an offset", Decide(Look{Destination: off(400), Copy: c, Memory: Forgotten(), First: true}), None, NoOffset)

	first := Decide(Look{Source: off(1500), Copy: c, Memory: Forgotten()})
	c.Replicated = 1500
	next := Decide(Look{Source: off(1500), Destination: first.Write, Copy: c, Memory: first.Memory})
	want(t, "when the copy has it", next, 1500, InStep)
	want(t, "and then", Decide(Look{Source: off(1500), Destination: next.Write, Copy: c, Memory: next.Memory}), None, InStep)
}

// At its own place a group keeps epoch and metadata; elsewhere it has the copy's epoch there, and no metadata. No epoch is above the destination's (F-42).
func TestF56AGroupAtAnotherPlaceHasTheEpochOfThatPlace(t *testing.T) {
	c := Copy{Start: 100, Replicated: 1000, LeaderEpoch: 7, EpochBelow: func(offset int64) int32 { return int32(offset / 200) }}
	for _, x := range []struct{ source, want Offset }{
		{Offset{500, 6, "mine"}, Offset{500, 6, "mine"}},
		{Offset{500, 8, "mine"}, Offset{500, None, "mine"}},
		{Offset{1500, 7, "mine"}, Offset{1000, 5, ""}},
		{Offset{50, 1, "mine"}, Offset{100, 0, ""}},
		{Offset{500, None, ""}, Offset{500, None, ""}},
	} {
		if got := Place(x.source, c); got != x.want {
			t.Errorf("%+v belongs to %+v, not %+v", x.source, x.want, got)
		}
	}
	c.EpochBelow = func(int64) int32 { return 8 }
	if got := Place(Offset{1500, 7, ""}, c); got.LeaderEpoch != None {
		t.Errorf("leader epoch %d, the destination is at 7", got.LeaderEpoch)
	}
	c.EpochBelow = nil
	if got := Place(Offset{1500, 7, ""}, c); got != (Offset{1000, None, ""}) {
		t.Errorf("%+v", got)
	}
}

// A group has read up to 500 under leader epoch 3. Where the copy has something of a later epoch below that, it goes on there (KIP-320); an epoch that the copy has not reached says nothing.
func TestF56AGroupGoesOnWhereItsLeaderEpochEndsInTheCopy(t *testing.T) {
	ends := map[int32]int64{0: 50, 1: 200, 2: 200, 3: 400, 4: 1000}
	c := Copy{Start: 100, Replicated: 900, LeaderEpoch: 7, EpochBelow: func(int64) int32 { return 3 }, EpochEnd: func(epoch int32) int64 {
		if end, ok := ends[epoch]; ok {
			return end
		}
		return None
	}}
	for _, x := range []struct{ source, want Offset }{
		{Offset{500, 3, "mine"}, Offset{400, 3, ""}},
		{Offset{400, 3, "mine"}, Offset{400, 3, "mine"}},
		{Offset{500, 4, "mine"}, Offset{500, 4, "mine"}},
		{Offset{500, 5, "mine"}, Offset{500, 5, "mine"}},
		{Offset{500, None, "mine"}, Offset{500, None, "mine"}},
		{Offset{500, 0, "mine"}, Offset{100, 3, ""}},
		{Offset{950, 4, "mine"}, Offset{900, 3, ""}},
	} {
		if got := Place(x.source, c); got != x.want {
			t.Errorf("%+v belongs to %+v, not %+v", x.source, x.want, got)
		}
	}
	rests := Look{Source: &Offset{500, 3, ""}, Destination: off(400), Copy: c, Memory: wrote(500, 400)}
	want(t, "it is there, and is not brought back again", Decide(rests), None, InStep)
}

// What is remembered of a group is about one topic of the source, which is made again under its name then.
func TestF28WhatIsRememberedOfAGroupIsAboutOneTopic(t *testing.T) {
	old, now := [16]byte{1}, [16]byte{2}
	before := Decide(Look{Source: off(90), Copy: Copy{Replicated: 100}, Topic: old, Memory: Forgotten()}).Memory
	c := Copy{Replicated: 10, End: 95}
	look := Look{Source: off(5), Destination: off(90), Copy: c, Topic: now, Memory: before}
	again := Decide(look)
	want(t, "the first look at the new topic", again, 5, InStep)
	if again.Memory.Topic != now || again.Memory.Before != 90 {
		t.Errorf("remembered is %+v", again.Memory)
	}
	look.Destination = off(70)
	want(t, "somebody has moved it in the old one", Decide(look), 5, InStep)
	look.Destination, look.Source = off(90), off(50)
	want(t, "what was written in the old one says nothing of how far the copy is replicated", Decide(look), 10, InStep)

	look.Topic = [16]byte{}
	want(t, "the topic is not known", Decide(look), 50, InStep)

	last := before.Last(now)
	want(t, "a stop before any look", Decide(Look{Source: &last, Destination: off(90), Copy: c, Topic: now, Memory: before}), 0, InStep)
	if last := before.Last(old); last.Offset != 90 {
		t.Errorf("a stop of the old one puts it to %d", last.Offset)
	}
	none := Decide(Look{Destination: off(90), Copy: c, Topic: now, Memory: before})
	want(t, "the source has none in the new one", none, None, NoOffset)
	if none.Memory.Wrote != None || none.Memory.Seen != None || none.Memory.Topic != now {
		t.Errorf("remembered is %+v", none.Memory)
	}
	kept := before
	if kept.Saw(Offset{Offset: 5}, now); kept != before {
		t.Errorf("what was about the old topic was made about the new one: %+v", kept)
	}
}

func TestF57AGroupOfTheDestinationIsNotMoved(t *testing.T) {
	c := Copy{Replicated: 1000}
	active := Decide(Look{Source: off(500), Destination: off(900), Copy: c, Memory: wrote(500, 500), Active: true})
	want(t, "active at 900, the source says 500", active, None, IsActive)
	want(t, "when its members have left", Decide(Look{Source: off(500), Destination: off(900), Copy: c, Memory: active.Memory}), None, Moved)
	want(t, "when they have left before the look", Decide(Look{Source: off(500), Destination: off(900), Copy: c, Memory: wrote(500, 500)}), None, Moved)
	want(t, "when the source rewinds too", Decide(Look{Source: off(100), Destination: off(900), Copy: c, Memory: wrote(500, 500)}), None, Moved)
	want(t, "when the source goes on, not so far", Decide(Look{Source: off(800), Destination: off(900), Copy: c, Memory: wrote(500, 500)}), None, Moved)
	want(t, "active when mirroring begins", Decide(Look{Source: off(500), Destination: off(900), Copy: c, Memory: Forgotten(), First: true, Active: true}), None, IsActive)
}

// The group is empty when it is looked at; the cluster refuses the write because a member has joined. Members are not moved by what was to be written.
func TestF57AMemberJoinsBeforeTheWrite(t *testing.T) {
	c := Copy{Replicated: 1000}
	refused := Decide(Look{Source: off(900), Destination: off(500), Copy: c, Memory: wrote(500, 500)})
	want(t, "the look", refused, 900, InStep)
	idle := Decide(Look{Source: off(900), Destination: off(500), Copy: c, Memory: refused.Memory, Active: true})
	want(t, "while it has members", idle, None, IsActive)
	want(t, "they have left and committed nothing", Decide(Look{Source: off(900), Destination: off(500), Copy: c, Memory: idle.Memory}), 900, InStep)

	read := Decide(Look{Source: off(900), Destination: off(700), Copy: c, Memory: refused.Memory, Active: true})
	want(t, "they have read to just where it was to be, and the source rewinds", Decide(Look{Source: off(100), Destination: off(900), Copy: c, Memory: read.Memory}), None, Moved)
}

// The group was brought back from 900, where the log ends, to 500. Members read up to the end again: that is theirs.
func TestF57MembersReadUpToWhatTheGroupWasBroughtBackFrom(t *testing.T) {
	c := Copy{Replicated: 900}
	back := Decide(Look{Source: off(500), Destination: off(900), Copy: c, Memory: wrote(900, 900)})
	want(t, "a rewind", back, 500, InStep)
	for _, seen := range []int64{500, 700, 900} {
		active := Decide(Look{Source: off(500), Destination: off(seen), Copy: c, Memory: back.Memory, Active: true})
		want(t, "they are at the end", Decide(Look{Source: off(500), Destination: off(900), Copy: c, Memory: active.Memory}), None, Moved)
	}
}

// The source goes on to behind where the group is here: whoever used it here has gone back, and it is taken over. It never goes back to before what was somebody else's until that is written.
func TestF57AGroupIsTakenOverWhenTheSourcePassesIt(t *testing.T) {
	c := Copy{Replicated: 1000}
	look := Look{Source: off(950), Destination: off(900), Copy: c, Memory: wrote(500, 500)}
	over := Decide(look)
	want(t, "the source passes it", over, 950, InStep)
	look.Memory = over.Memory
	want(t, "the write was lost", Decide(look), 950, InStep)
	look.Source = off(100)
	want(t, "the write was lost and the source rewinds", Decide(look), None, Moved)
	look.Destination = off(950)
	want(t, "the write was done and the source rewinds", Decide(look), 100, InStep)
	look = Look{Source: off(950), Destination: off(900), Copy: c, Memory: wrote(950, 500)}
	want(t, "the source has been there since before", Decide(look), None, Moved)

	look = Look{Source: off(950), Destination: off(920), Copy: c, Memory: over.Memory}
	again := Decide(look)
	want(t, "the write was done, or not, and somebody has moved it since", again, None, Moved)
	look.Destination, look.Memory = off(900), again.Memory
	want(t, "and to where it was before", Decide(look), None, Moved)
	active := Decide(Look{Source: off(950), Destination: off(900), Copy: c, Memory: over.Memory, Active: true})
	want(t, "the write was refused, because it has members", active, None, IsActive)
	want(t, "they have left it there", Decide(Look{Source: off(950), Destination: off(900), Copy: c, Memory: active.Memory}), None, Moved)
}

// It is where the source has it, and the mirror did not bring it there: it stays somebody else's.
func TestF57AGroupThatHappensToBeThereStaysSomebodyElses(t *testing.T) {
	c := Copy{Replicated: 1000}
	d := Decide(Look{Source: off(900), Destination: &Offset{900, None, "theirs"}, Copy: c, Memory: wrote(500, 500)})
	want(t, "it is there", d, None, InStep)
	want(t, "the source rewinds", Decide(Look{Source: off(100), Destination: off(900), Copy: c, Memory: d.Memory}), None, Moved)
}

// Where mirroring has begun, what the destination has is from before: offsets of records, perhaps, that it has no more.
func TestGroupsAreTakenOverWhenMirroringBegins(t *testing.T) {
	c := Copy{Replicated: 1000}
	look := Look{Source: off(500), Destination: off(900), Copy: c, Memory: Forgotten(), First: true}
	first := Decide(look)
	want(t, "the first look", first, 500, InStep)
	look.First, look.Memory = false, first.Memory
	want(t, "the first write was lost", Decide(look), 500, InStep)
	look.Destination = off(700)
	want(t, "somebody has moved it since", Decide(look), None, Moved)
}

func TestF58AnOffsetOf0IsAnOffset(t *testing.T) {
	for _, c := range []Copy{{Replicated: 10}, {}} {
		d := Decide(Look{Source: off(0), Copy: c, Memory: Forgotten()})
		want(t, "nothing is there", d, 0, InStep)
		want(t, "it is written", Decide(Look{Source: off(0), Destination: off(0), Copy: c, Memory: d.Memory}), None, InStep)
	}
	want(t, "back to 0", Decide(Look{Source: off(0), Destination: off(10), Copy: Copy{Replicated: 10}, Memory: wrote(10, 10)}), 0, InStep)
	want(t, "on from 0", Decide(Look{Source: off(10), Destination: off(0), Copy: Copy{Replicated: 10}, Memory: wrote(0, 0)}), 10, InStep)
}

// The group is at 900 on both sides, the mirror brought it there. An operator resets it to 100 at the source; the mirror restarts in between, at any point.
func TestF62ADeliberateRewindIsFollowedAndARestartMovesNothing(t *testing.T) {
	c := Copy{Replicated: 1000}
	look := Look{Source: off(900), Destination: off(900), Copy: c, Memory: wrote(900, 900)}
	restarted := Decide(look)
	want(t, "a restart", restarted, None, InStep)
	if restarted.Memory != look.Memory {
		t.Errorf("a restart changes what is remembered to %+v", restarted.Memory)
	}
	look.Source = off(100)
	rewind := Decide(look)
	want(t, "a rewind", rewind, 100, InStep)
	look.Memory = rewind.Memory
	want(t, "a restart before the write", Decide(look), 100, InStep)
	look.Destination = off(100)
	want(t, "a restart after it", Decide(look), None, InStep)
	look.Source, look.Destination = off(150), off(900)
	want(t, "the write was lost and the source goes on", Decide(look), 150, InStep)

	moved := Look{Source: off(900), Destination: off(400), Copy: c, Memory: wrote(900, 900)}
	want(t, "a restart, and somebody has moved it here", Decide(moved), None, Moved)
}

// A cluster forgets the offsets of a group without members: what is ours and in step is written again when it is time, and what was forgotten at once.
func TestRenewedOffsets(t *testing.T) {
	look := Look{Source: off(5), Destination: off(5), Copy: Copy{Replicated: 9}, Memory: wrote(5, 5), Renew: true}
	want(t, "ours", Decide(look), 5, InStep)
	look.Memory = wrote(5, 3)
	want(t, "somebody else's", Decide(look), None, InStep)
	look.Renew, look.Destination = false, nil
	want(t, "forgotten", Decide(look), 5, InStep)
}

// topic is one topic's settings, followed over some looks.
type topic struct {
	source, here map[string]string
	memory       map[string]Setting
}

func (x *topic) follow(excluded ...string) {
	d := Settings(SettingsLook{Source: x.source, Destination: x.here, Memory: x.memory, Excluded: func(name string) bool { return slices.Contains(excluded, name) }})
	maps.Copy(x.here, d.Set)
	for _, name := range d.Delete {
		delete(x.here, name)
	}
	x.memory = d.Done
}

func (x *topic) has(t *testing.T, what string, want map[string]string) {
	t.Helper()
	if !maps.Equal(x.here, want) {
		t.Errorf("%s: the destination has %v, not %v", what, x.here, want)
	}
}

func TestF63TheDestinationsOwnSettingsStay(t *testing.T) {
	own := map[string]string{"min.insync.replicas": "2", "retention.ms": "7d"}
	x := topic{source: map[string]string{"retention.ms": "1h", "cleanup.policy": "compact"}, here: maps.Clone(own)}
	x.follow("retention.ms")
	x.has(t, "a look", map[string]string{"min.insync.replicas": "2", "retention.ms": "7d", "cleanup.policy": "compact"})
	delete(x.source, "cleanup.policy")
	delete(x.source, "retention.ms")
	x.follow("retention.ms")
	x.has(t, "the source drops both", own)
	if x.memory != nil {
		t.Errorf("remembered is %v", x.memory)
	}
}

func TestF63ADroppedSettingGoesBackIfItIsOurs(t *testing.T) {
	for _, c := range []struct {
		what        string
		before      map[string]string
		edit        func(here map[string]string)
		after, want map[string]string
	}{
		{"it was not set", nil, nil, map[string]string{"x": "2"}, map[string]string{}},
		{"it was set to something else", map[string]string{"x": "1"}, nil, map[string]string{"x": "2"}, map[string]string{"x": "1"}},
		{"it was the same", map[string]string{"x": "2"}, nil, map[string]string{"x": "2"}, map[string]string{"x": "2"}},
		{"somebody has set it since", map[string]string{"x": "1"}, func(here map[string]string) { here["x"] = "3" }, map[string]string{"x": "3"}, map[string]string{"x": "3"}},
		{"somebody has deleted it since", map[string]string{"x": "1"}, func(here map[string]string) { delete(here, "x") }, map[string]string{}, map[string]string{}},
	} {
		x := topic{source: map[string]string{"x": "2"}, here: map[string]string{}}
		maps.Copy(x.here, c.before)
		x.follow()
		if c.edit != nil {
			c.edit(x.here)
		}
		x.has(t, c.what+", while the source sets it", c.after)
		delete(x.source, "x")
		x.follow()
		x.has(t, c.what+", when the source drops it", c.want)
	}
}

// What somebody sets here over the source's is set back, and is what the topic has of its own from then on.
func TestF63ALocalEditComesBackWhenTheSourceDropsTheSetting(t *testing.T) {
	x := topic{source: map[string]string{"x": "2"}, here: map[string]string{"x": "1"}}
	x.follow()
	x.here["x"] = "3"
	x.follow()
	x.has(t, "after an edit here", map[string]string{"x": "2"})
	delete(x.source, "x")
	x.follow()
	x.has(t, "when the source drops it", map[string]string{"x": "3"})
}

// The source sets 2, then 3; the program ends when it has remembered 3 and not written it, and the source sets 4 or drops it. 2 is the mirror's, and not what the topic had before.
func TestF63ACrashBeforeTheWriteDoesNotMakeOursTheDestinationsOwn(t *testing.T) {
	for _, own := range []map[string]string{{}, {"x": "1"}} {
		for _, then := range []string{"", "4", "2"} {
			x := topic{source: map[string]string{"x": "2"}, here: maps.Clone(own)}
			x.follow()
			x.source["x"] = "3"
			x.memory = Settings(SettingsLook{Source: x.source, Destination: x.here, Memory: x.memory, Excluded: func(string) bool { return false }}).Memory
			if then != "" {
				x.source["x"] = then
				x.follow()
				x.has(t, "the source goes on", map[string]string{"x": then})
			}
			delete(x.source, "x")
			x.follow()
			x.has(t, "the source drops it", own)
		}
	}
}

func TestAnExcludedSettingIsNobodysBusinessAnyMore(t *testing.T) {
	x := topic{source: map[string]string{"x": "2"}, here: map[string]string{}}
	x.follow()
	x.follow("x")
	x.has(t, "when it is excluded", map[string]string{"x": "2"})
	delete(x.source, "x")
	x.follow("x")
	x.has(t, "when the source drops it then", map[string]string{"x": "2"})
	if x.memory != nil {
		t.Errorf("remembered is %v", x.memory)
	}
}

// carriedOut is what is remembered of rules when everything was.
func carriedOut(d RulesDecision[string]) []string {
	return d.After(func(string) Outcome { return CarriedOut })
}

func TestF66OnlyRulesThatTheMirrorMadeAreRemoved(t *testing.T) {
	source, here := []string{"alice", "bob"}, []string{"own", "bob"}
	d := Rules(RulesLook[string]{Source: source, Destination: here})
	if !slices.Equal(d.Create, []string{"alice"}) || len(d.Delete) > 0 || !slices.Equal(d.Memory, []string{"alice"}) {
		t.Errorf("added: %+v", d)
	}
	here = append(here, "alice")
	d = Rules(RulesLook[string]{Source: source, Destination: here, Memory: carriedOut(d)})
	if len(d.Create)+len(d.Delete) > 0 {
		t.Errorf("in step: %+v", d)
	}
	// A change is one rule less and one more: alice becomes carol. bob goes too, but bob was here before.
	source = []string{"carol"}
	d = Rules(RulesLook[string]{Source: source, Destination: here, Memory: carriedOut(d)})
	if !slices.Equal(d.Create, []string{"carol"}) || len(d.Delete) > 0 || !slices.Equal(d.Missed, []string{"alice"}) {
		t.Errorf("missed once: %+v", d)
	}
	here = append(here, "carol")
	d = Rules(RulesLook[string]{Source: source, Destination: here, Memory: carriedOut(d), Missed: d.Missed})
	if len(d.Create) > 0 || !slices.Equal(d.Delete, []string{"alice"}) || !slices.Contains(d.Memory, "alice") || slices.Contains(carriedOut(d), "alice") {
		t.Errorf("missed twice: %+v", d)
	}
	if again := Rules(RulesLook[string]{Source: source, Destination: here, Memory: d.Memory, Missed: d.Missed}); !slices.Equal(again.Delete, []string{"alice"}) {
		t.Errorf("the removal was refused: %+v", again)
	}
}

func TestF66ARuleThatWasMissedOnceStays(t *testing.T) {
	look := RulesLook[string]{Destination: []string{"alice"}, Memory: []string{"alice"}}
	once := Rules(look)
	if len(once.Delete) > 0 || !slices.Equal(once.Missed, look.Memory) || !slices.Equal(once.Memory, look.Memory) {
		t.Errorf("missed once: %+v", once)
	}
	if restarted := Rules(look); len(restarted.Delete) > 0 {
		t.Errorf("after a restart: %+v", restarted)
	}
	look.Source, look.Missed = []string{"alice", "alice"}, once.Missed
	if back := Rules(look); len(back.Create)+len(back.Delete)+len(back.Missed) > 0 || !slices.Equal(back.Memory, look.Memory) {
		t.Errorf("it is there again: %+v", back)
	}
	look = RulesLook[string]{Source: []string{"alice", "alice"}, Memory: []string{"alice"}}
	if removed := Rules(look); !slices.Equal(removed.Create, []string{"alice"}) || !slices.Equal(removed.Memory, look.Memory) {
		t.Errorf("somebody has removed it here: %+v", removed)
	}
}

// Another process takes over, and no copy has told it yet how far it is: Replicated is the log's start. The group stays, and a rewind is followed all the same.
func TestF62ATakeoverMovesNothing(t *testing.T) {
	c := Copy{Replicated: 0, End: 1000}
	want(t, "nothing is new", Decide(Look{Source: off(900), Destination: off(900), Copy: c, Memory: wrote(900, 900)}), None, InStep)
	want(t, "the source goes on", Decide(Look{Source: off(950), Destination: off(900), Copy: c, Memory: wrote(900, 900)}), None, InStep)
	want(t, "the source goes back", Decide(Look{Source: off(100), Destination: off(900), Copy: c, Memory: wrote(900, 900)}), 100, InStep)
	half := Memory{Seen: 900, SeenEpoch: None, Wrote: 900, Before: 400}
	want(t, "the write was lost", Decide(Look{Source: off(900), Destination: off(400), Copy: c, Memory: half}), 900, InStep)
	c.End = 500
	want(t, "the log was cut", Decide(Look{Source: off(900), Destination: off(900), Copy: c, Memory: wrote(900, 900)}), 500, InStep)
	want(t, "it is from before", Decide(Look{Source: off(900), Destination: off(900), Copy: c, Memory: wrote(900, 900), First: true}), 0, InStep)
}
