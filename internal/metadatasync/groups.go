package metadatasync

import "cmp"

// None stands for an offset or an epoch that is not there.
const None = -1

// Offset is where a group goes on in one partition.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // of the record before it; None
	Metadata    string
}

// Copy is the partition's log at the destination.
type Copy struct {
	Start, Replicated int64
	End               int64                    // Replicated ≤ End; 0: not known
	LeaderEpoch       int32                    // the destination's
	EpochBelow        func(offset int64) int32 // leader epoch of the last batch below an offset, None if there is none
	EpochEnd          func(epoch int32) int64  // where what it has of leader epochs up to this one ends, None if it has none so high
}

// Place is where a group that is at s at the source belongs in the copy: max(start, min(s, end of its leader epoch, replicated)), so that it never points behind what would be there after a
// failover (F-56), and never below what can be read. The end of its leader epoch is what a client asks for itself that goes on from a committed offset (KIP-320): behind it lies what was
// written in place of what the group has read, because an election or a cut took that. At its own place it keeps epoch and metadata; elsewhere it has the epoch of the copy there. An epoch that
// the destination has not reached is left out, because a client that resumes with one asks for new metadata for ever (F-42).
func Place(s Offset, c Copy) Offset {
	at := Offset{Offset: min(s.Offset, c.Replicated), LeaderEpoch: s.LeaderEpoch, Metadata: s.Metadata}
	if c.EpochEnd != nil && s.LeaderEpoch != None {
		if end := c.EpochEnd(s.LeaderEpoch); end != None {
			at.Offset = min(at.Offset, end)
		}
	}
	at.Offset = max(at.Offset, c.Start)
	if at.Offset != s.Offset {
		at.Metadata, at.LeaderEpoch = "", None
		if c.EpochBelow != nil {
			at.LeaderEpoch = c.EpochBelow(at.Offset)
		}
	}
	if at.LeaderEpoch > c.LeaderEpoch {
		at.LeaderEpoch = None
	}
	return at
}

// writtenTo is the copy for a group that was put somewhere in it: all below that was replicated then. A process that takes over does not know yet how far the copies are, and says a low
// Replicated, down to Start, until they have told it. No group goes back for that. What a write replaced counts only while the group is still there: a group that was taken over may have been
// anywhere (decision 17).
func (c Copy) writtenTo(m Memory, destination *Offset) Copy {
	at := m.Wrote
	if destination != nil && destination.Offset == m.Before {
		at = max(at, m.Before)
	}
	c.Replicated = max(c.Replicated, min(at, c.End))
	return c
}

// Memory is what is remembered of one group in one partition.
type Memory struct {
	// Topic is the source's topic that this is about, zero: not known. Its id, for one that is made again under the same name has other records at the same offsets (F-28).
	Topic     [16]byte
	Seen      int64 // where the source had it when it was looked at last; None: never
	SeenEpoch int32
	Wrote     int64 // what was written at the destination last and is the mirror's there; None: nothing, or somebody has moved it since
	// Before is what the destination had before that write: as long as nobody knows that the write was done, either is the mirror's. It is Wrote where there was nothing, and when the write is
	// known to be done, and None where Wrote is.
	Before int64
	Theirs bool // Before was somebody else's, from whom the group is being taken over: then only Wrote is the mirror's
}

// Forgotten is the memory of a group that was never looked at.
func Forgotten() Memory { return Memory{Seen: None, SeenEpoch: None, Wrote: None, Before: None} }

// Earlier says that what is remembered is about a topic that was made again since. Nothing of it counts: not where the group was at the source, nor what was written for that.
func (m Memory) Earlier(topic [16]byte) bool {
	return m.Topic != [16]byte{} && topic != [16]byte{} && m.Topic != topic
}

// Saw notes where the source has the group, and nothing else. What is about an earlier topic stays, until it is decided about this one.
func (m *Memory) Saw(source Offset, topic [16]byte) {
	if !m.Earlier(topic) {
		m.Seen, m.SeenEpoch, m.Topic = source.Offset, source.LeaderEpoch, cmp.Or(topic, m.Topic)
	}
}

// Last is where the source had the group when it was looked at last: to there a stop puts it. Where the topic was made again since, nobody has seen the group read anything of it: it begins anew.
func (m Memory) Last(topic [16]byte) Offset {
	if m.Earlier(topic) {
		return Offset{LeaderEpoch: None}
	}
	return Offset{Offset: m.Seen, LeaderEpoch: m.SeenEpoch}
}

// own says that what the destination has is what the mirror left there, or nothing.
func (m Memory) own(destination *Offset) bool {
	return destination == nil || m.Wrote != None && (destination.Offset == m.Wrote || destination.Offset == m.Before && !m.Theirs)
}

// taking says that the group is to be taken over from where somebody else has it still: that was decided, and not written. Where they have moved it since, it is theirs again.
func (m Memory) taking(destination *Offset) bool {
	return m.Theirs && destination != nil && destination.Offset == m.Before
}

// wrote is the memory of a write; before is what it replaces, of the mirror's.
func (m *Memory) wrote(to, before int64) { m.Wrote, m.Before, m.Theirs = to, before, false }

// settle ends what is not known of the last write, now that the group has members: what it is at from here on may be theirs. What a write was to bring it back from, members may have read up
// to again, so it is theirs; what a write was to bring it forward from, they do not come back to, so the write was not done.
func (m *Memory) settle(destination *Offset) {
	switch {
	case destination != nil && m.Wrote != None && destination.Offset == m.Wrote:
		m.wrote(m.Wrote, m.Wrote)
	case destination != nil && destination.Offset == m.Before && m.Before < m.Wrote && !m.Theirs:
		m.wrote(m.Before, m.Before)
	default:
		m.wrote(None, None)
	}
}

// Missed is what is remembered of a write that is known not to have been done, when it was decided with this memory. Where the destination had the group then (nil: nowhere) says what had become of the write
// before it: it is looked for no more, and whoever brings the group to just that place later is somebody else. active: the write was refused because the group has members.
func (m Memory) Missed(destination *Offset, active bool) Memory {
	switch {
	case active:
		m.settle(destination)
	case destination != nil && m.own(destination):
		m.wrote(destination.Offset, destination.Offset)
	case m.taking(destination):
		m.Wrote = None
	default:
		m.wrote(None, None)
	}
	return m
}

// Look is what is known of one group in one partition at one moment.
type Look struct {
	Source      *Offset // nil: the source has none
	Destination *Offset // nil: the destination has none
	Copy        Copy
	Topic       [16]byte // that Copy is of, at the source; zero: not known
	Memory      Memory
	First       bool // the first look at this partition's groups since its mirroring began: what the destination has is from before
	Active      bool // the group has members at the destination
	Renew       bool // what is in step is to be written all the same: a cluster forgets the offsets of a group without members after a while (offsets.retention.minutes)
}

// Reason is why a group is left where it is.
type Reason uint8

// The reasons.
const (
	InStep   Reason = iota // nothing is to be done, or what is to be written was returned
	NoOffset               // the source has no offset
	IsActive               // it has members at the destination
	Moved                  // it was moved at the destination, by somebody else than the mirror
)

// Decision is what to do. Memory is to be remembered, durably, before Write is written.
type Decision struct {
	Write  *Offset // nil: nothing
	Memory Memory
	Reason Reason
}

// Decide follows a group in one partition.
//
// What the mirror wrote, it moves as the source moves, also back: a deliberate rewind is followed, and a restart alone, after which the source says what it said before, moves nothing
// (F-62). What somebody else committed at the destination is left (F-57), until the group has moved on at the source, since that was noticed, to behind the place where it is here: then
// whoever used it here has gone back, and what lies in between was processed there. Until that is written it is theirs, and is not moved back. Where mirroring has just begun, what the
// destination has is from before, and the group is taken over: a cluster that was failed back to keeps offsets of records that it has no more. It is as if it had just begun for a group
// that was looked at last when the topic was another one.
//
// When a mirror stops, the last look is with Memory.Last as the source's offset and the last mirror offset as Replicated: so a group ends where the source had it last, and never
// behind where the mirror ended.
func Decide(l Look) Decision {
	if l.Memory.Earlier(l.Topic) {
		l.Memory, l.First = Forgotten(), true
	}
	d := Decision{Memory: l.Memory}
	if l.Source == nil {
		d.Memory.Saw(Offset{Offset: None, LeaderEpoch: None}, l.Topic) // a stop has nothing to put it to
		d.Reason = NoOffset
		return d
	}
	moved := l.Memory.Seen != None && l.Source.Offset != l.Memory.Seen
	d.Memory.Saw(*l.Source, l.Topic)
	if l.Active {
		d.Memory.settle(l.Destination)
		d.Reason = IsActive
		return d
	}
	if !l.First {
		l.Copy = l.Copy.writtenTo(l.Memory, l.Destination)
	}
	to := Place(*l.Source, l.Copy)
	own := l.First || l.Memory.own(l.Destination)
	same := l.Destination != nil && l.Destination.Offset == to.Offset
	switch {
	case same && own && l.Destination.Metadata == to.Metadata:
		d.Memory.wrote(to.Offset, to.Offset)
		if l.Renew {
			d.Write = &to
		}
	case same && !own: // it happens to be there: it stays somebody else's
		d.Memory.wrote(None, None)
	case l.Destination == nil:
		d.Write = &to
		d.Memory.wrote(to.Offset, to.Offset)
	case own:
		d.Write = &to
		d.Memory.wrote(to.Offset, l.Destination.Offset)
	case to.Offset > l.Destination.Offset && (moved || l.Memory.taking(l.Destination)):
		d.Write = &to
		d.Memory.wrote(to.Offset, l.Destination.Offset)
		d.Memory.Theirs = true
	default:
		d.Memory.wrote(None, None)
		d.Reason = Moved
	}
	return d
}
