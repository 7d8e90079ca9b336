package metadatasync

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// groupModel is both sides of one group in one partition, and who put it where it is at the destination. What is remembered survives every restart; a look may break off anywhere.
type groupModel struct {
	source, destination *Offset
	copy                Copy
	memory              Memory
	first, active       bool

	by      owner
	written int64   // what was to be written last, None: nothing, or it is certain that it is gone
	ours    []int64 // where it may have been left by us, as far as anybody can tell who was not there: whoever commits just there cannot be told from us
	quiet   bool    // our last write was done, and nothing has happened since
	due     bool    // we have decided to move it, and nothing has happened since, but that the program ended
}

// owner is who put a group where it is.
type owner uint8

const (
	byUs owner = iota
	byOthers
	byEither // it cannot be told
)

// The ways of a look.
const (
	whole          = iota // it comes to its end; whether the program ends then or goes on is the same, for it keeps nothing else
	endsBefore            // the program ends before it has remembered anything
	endsRemembered        // it ends between remembering and writing
	joined                // a member joins between the look and the write
	ways
)

func (m *groupModel) look(t *rapid.T, way int) {
	d := Decide(Look{Source: m.source, Destination: m.destination, Copy: m.copy, Memory: m.memory, First: m.first, Active: m.active})
	if way == endsBefore {
		return
	}
	if d.Write != nil {
		m.check(t, *d.Write)
	}
	if m.source != nil {
		m.learn(d.Write)
		m.first = false
	}
	m.memory = d.Memory
	switch {
	case d.Write == nil:
	case way == endsRemembered:
		m.due = true
	case way == joined:
		m.active = true
	default:
		at := *d.Write
		m.destination, m.by, m.quiet, m.due = &at, byUs, true, false
	}
}

// learn is what a look that is remembered tells of who put the group where it is.
func (m *groupModel) learn(write *Offset) {
	at := int64(None)
	if m.destination != nil {
		at = m.destination.Offset
	}
	known := slices.Contains(m.ours, at)
	switch {
	case m.active && at == m.written && known:
		m.ours = []int64{at}
	case m.active && known && at < m.written: // members do not go back: our write was not done
		m.ours = []int64{at}
	case m.active: // what was to be left, members may have read up to again
		m.ours = nil
		if at != None {
			m.by = byOthers
		}
	case m.first: // taken over: what is there is from before
		m.by, m.ours = byUs, []int64{at}
	case m.by == byOthers:
		m.ours = nil
	}
	if write != nil {
		m.ours = append(m.ours, write.Offset)
		m.written = write.Offset
	} else if m.by == byUs {
		m.ours = []int64{at}
	}
}

// check is what holds of each write.
func (m *groupModel) check(t *rapid.T, w Offset) {
	switch {
	case m.active || m.source == nil:
		t.Fatalf("wrote %+v: active %v, source %v", w, m.active, m.source)
	case w.Offset < m.copy.Start || w.Offset > m.copy.Replicated:
		t.Fatalf("wrote %d outside the copy [%d, %d]", w.Offset, m.copy.Start, m.copy.Replicated)
	case w.LeaderEpoch > m.copy.LeaderEpoch:
		t.Fatalf("wrote leader epoch %d above the destination's %d", w.LeaderEpoch, m.copy.LeaderEpoch)
	case m.quiet:
		t.Fatalf("wrote %+v once more, over %+v", w, *m.destination)
	case m.by == byOthers && !m.first && w.Offset <= m.destination.Offset:
		t.Fatalf("moved somebody else's group from %d back to %d", m.destination.Offset, w.Offset)
	case m.by == byOthers && !m.first && m.source.Offset == m.memory.Seen && !m.due && !m.memory.taking(m.destination):
		t.Fatalf("moved somebody else's group to %d though it stands still at the source", w.Offset)
	}
}

// converges has what is ours, or was to be, brought to its place by one look.
func (m *groupModel) converges(t *rapid.T) {
	if m.source == nil || m.active || m.by != byUs && !m.due {
		return
	}
	m.look(t, whole)
	if want := Place(*m.source, m.copy); m.destination == nil || m.destination.Offset != want.Offset || m.destination.Metadata != want.Metadata {
		t.Fatalf("ours is at %+v, not at %+v; remembered %+v", m.destination, want, m.memory)
	}
}

func drawOffset(t *rapid.T, label string) *Offset {
	return &Offset{
		Offset: rapid.Int64Range(0, 8).Draw(t, label), LeaderEpoch: rapid.Int32Range(None, 6).Draw(t, label+" epoch"), Metadata: rapid.SampledFrom([]string{"", "m"}).Draw(t, label+" metadata"),
	}
}

func TestGroupsFollowWhatIsOursAndLeaveWhatIsNot(t *testing.T) {
	check(t, func(t *rapid.T) {
		m := &groupModel{
			copy:   Copy{Replicated: rapid.Int64Range(0, 8).Draw(t, "replicated"), LeaderEpoch: 2, EpochBelow: func(offset int64) int32 { return int32(offset / 3) }, EpochEnd: func(epoch int32) int64 { return int64(epoch+1) * 3 }},
			memory: Forgotten(), first: true, written: None,
		}
		if rapid.Bool().Draw(t, "it was there before") {
			m.destination, m.by = drawOffset(t, "destination"), byOthers
		}
		changes := func(f func(*rapid.T)) func(*rapid.T) {
			return func(t *rapid.T) {
				m.quiet, m.due = false, false
				f(t)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"source":          changes(func(t *rapid.T) { m.source = drawOffset(t, "source") }),
			"source has none": changes(func(*rapid.T) { m.source = nil }),
			"copy": changes(func(t *rapid.T) {
				m.copy.Start = rapid.Int64Range(0, 5).Draw(t, "start")
				m.copy.Replicated = rapid.Int64Range(m.copy.Start, 8).Draw(t, "replicated")
				m.copy.LeaderEpoch += rapid.Int32Range(0, 1).Draw(t, "epoch")
			}),
			"somebody commits here": changes(func(t *rapid.T) {
				m.destination, m.by = drawOffset(t, "destination"), byOthers
				if slices.Contains(m.ours, m.destination.Offset) {
					m.by = byEither
				}
			}),
			"forgotten here": changes(func(*rapid.T) { m.destination, m.by = nil, byUs }),
			"members":        changes(func(*rapid.T) { m.active = !m.active }),
			"look":           func(t *rapid.T) { m.look(t, rapid.IntRange(whole, ways-1).Draw(t, "way")) },
			"look, and it is in its place": func(t *rapid.T) {
				m.converges(t)
			},
		})
		m.active = false
		m.converges(t)
	})
}

// A stop is the last look: what was seen last, in a copy that ends where the mirror ended. What is the mirror's ends there whatever has been written or lost before, and never behind the end.
func TestGroupsEndWhereTheSourceHadThem(t *testing.T) {
	check(t, func(t *rapid.T) {
		m := &groupModel{copy: Copy{Replicated: 8, LeaderEpoch: 9}, memory: Forgotten(), first: true, written: None}
		for range rapid.IntRange(1, 4).Draw(t, "looks") {
			m.source, m.quiet = drawOffset(t, "source"), false
			m.look(t, rapid.SampledFrom([]int{whole, endsRemembered}).Draw(t, "way"))
		}
		m.copy.Replicated = rapid.Int64Range(0, 8).Draw(t, "last mirror offset")
		m.source, m.quiet = &Offset{Offset: m.memory.Seen, LeaderEpoch: m.memory.SeenEpoch}, false
		m.look(t, whole)
		if want := min(m.source.Offset, m.copy.Replicated); m.destination == nil || m.destination.Offset != want {
			t.Fatalf("it ended at %+v, not at %d", m.destination, want)
		}
	})
}
