package verify

import (
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/mirror"
)

// DifferenceOrder is a kind of mirror.Difference beside those of mirror.Compare: a batch lies in front of one with lower offsets, or there twice.
const DifferenceOrder mirror.DifferenceKind = "out of order"

// Proof counts what was found to be the same on both sides in one way.
type Proof struct {
	Batches int64
	Records int64 // as headers count them
	Bytes   int64 // of the batches, on side a
}

func (p *Proof) add(batches, records, bytes int64) {
	p.Batches, p.Records, p.Bytes = p.Batches+batches, p.Records+records, p.Bytes+bytes
}

// Hole is a range of offsets of which one side lacks all records that the other one has, and neither retention nor compaction explains it.
type Hole struct {
	In       string // the side that lacks them, "a" or "b"
	From, To int64
}

func (h Hole) String() string {
	return fmt.Sprintf("hole: [%d,%d) is missing in %s", h.From, h.To, h.In)
}

// Reason says why a range cannot be compared.
type Reason string

// The reasons.
const (
	Retention  Reason = "retention"                 // the side starts later, or the range was deleted while it was read
	Cut        Reason = "cut"                       // the side's end fell below the range: it was truncated
	Remote     Reason = "remote storage"            // the side cannot read it out of remote storage now
	Compaction Reason = "compaction"                // the side lacks records, and what would show that compaction took them may be gone too
	Ambiguous  Reason = "the same record elsewhere" // the side has records of this content at offsets that the other side lacks, and nothing shows which of the two is right
	Memory     Reason = "more keys than are kept"   // Options.Waiting
	Size       Reason = "batch larger than is read" // Options.MaxBatch; the batches' bytes differ
	Changing   Reason = "changed while it was read" // each look found other bytes than the one before
)

// Uncomparable is a range that was not compared: neither equal nor different.
type Uncomparable struct {
	Reason   Reason
	In       string // the side that is the reason, "a" or "b"
	From, To int64
}

func (u Uncomparable) String() string {
	return fmt.Sprintf("cannot be compared: [%d,%d) (%s in %s)", u.From, u.To, u.Reason, u.In)
}

// Report is what a verification found. It is plain data: JSON keeps all of it.
type Report struct {
	Partition mirror.TopicPartition
	A, B      Bounds // as they were when it began
	From, To  int64  // what both sides held then, within Options: [From, To)
	Asked     int64  // Options.To: nothing from there on was asked for; 0: no end was named
	At        int64  // [From, At) was looked at; Complete: At == To and no explanation is waited for
	Complete  bool

	Bytewise   Proof // batches that are equal byte by byte
	Recordwise Proof // batches of the same offsets whose bytes differ because compaction wrote one of them anew: fields and records that both have are equal
	Compacted  int64 // records that only one side has, each explained by compaction
	Clean      int64 // Options.Compacted: from here on both sides have a record at every offset and are equal byte by byte

	Mismatch     *mirror.Difference // the first; nothing behind it was looked at. Byte is -1 where records were compared
	Holes        []Hole             // in the order in which they were found, joined where they touch; at most Options.Findings
	Uncomparable []Uncomparable     // the same
	MoreFindings int                // holes and ranges that are not listed any more
	Uncompared   int64              // offsets of the ranges that cannot be compared, also of those that are not listed
	Read         int64              // bytes that were read or digested, on both sides together
	Resume       *Resume            `json:",omitempty"` // how to go on; nil when it is complete, or when there is a mismatch
}

// Wrong says that something was found that must not be: a mismatch or a hole.
func (r *Report) Wrong() bool { return r.Mismatch != nil || len(r.Holes) > 0 }

// FirstWrong is the first offset with a mismatch, or in a hole; mirror.Unknown: there is none.
func (r *Report) FirstWrong() int64 {
	first := int64(mirror.Unknown)
	if r.Mismatch != nil {
		first = r.Mismatch.Offset
	}
	for _, h := range r.Holes {
		if first == mirror.Unknown || h.From < first {
			first = h.From
		}
	}
	return first
}

// lastWrong is the newest finding, and up to where it has to be looked at to see it again, 0 for as far as both sides go; mirror.Unknown: there is none.
func (r *Report) lastWrong() (from, to int64) {
	if r.Mismatch != nil {
		return r.Mismatch.Offset, 0
	}
	from = mirror.Unknown
	for _, h := range r.Holes {
		if h.From > from {
			from, to = h.From, h.To
		}
	}
	return from, to
}

// Equal says that everything that either side held below To, and Options asked for, was compared and is equal, byte by byte or record by record. Where one side has nothing yet of what the other one
// has, nothing was compared: that is not equal.
func (r *Report) Equal() bool {
	return r.Complete && !r.Wrong() && len(r.Uncomparable) == 0 && r.MoreFindings == 0 && !nothing(r, r.A, r.B) && !nothing(r, r.B, r.A)
}

// nothing says that a side ends where it would have been compared from, though the other one has something of what was asked for.
func nothing(r *Report, has, lacks Bounds) bool {
	return lacks.End <= r.From && r.From < has.End && (r.Asked == 0 || r.From < r.Asked)
}

func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s-%d [%d,%d): ", r.Partition.Topic, r.Partition.Partition, r.From, r.To)
	switch {
	case r.Mismatch != nil:
		s.WriteString("DIFFERENT")
	case len(r.Holes) > 0:
		s.WriteString("INCOMPLETE COPY")
	case !r.Complete:
		fmt.Fprintf(&s, "looked at up to %d, no difference so far", r.At)
	case r.Equal():
		s.WriteString("equal")
	case r.From >= r.To:
		s.WriteString("nothing in common")
	default:
		s.WriteString("no difference where it could be compared")
	}
	fmt.Fprintf(&s, "; byte by byte %d batches, %d records, %d bytes", r.Bytewise.Batches, r.Bytewise.Records, r.Bytewise.Bytes)
	if r.Recordwise.Batches > 0 || r.Compacted > 0 {
		fmt.Fprintf(&s, "; record by record %d batches, %d records; compacted away on one side %d records", r.Recordwise.Batches, r.Recordwise.Records, r.Compacted)
	}
	if r.Mismatch != nil {
		s.WriteString("; " + describe(r.Mismatch))
	}
	for _, h := range r.Holes {
		s.WriteString("; " + h.String())
	}
	for _, u := range r.Uncomparable {
		s.WriteString("; " + u.String())
	}
	if r.MoreFindings > 0 {
		fmt.Fprintf(&s, "; %d more", r.MoreFindings)
	}
	return s.String()
}

func describe(d *mirror.Difference) string {
	var s string
	switch {
	case d.Kind == mirror.DifferenceBytes && d.Byte < 0:
		s = fmt.Sprintf("record at offset %d differs in its %s", d.Offset, d.Field)
	default:
		return d.String()
	}
	if d.Detail != "" {
		s += ": " + d.Detail
	}
	return s
}

func (r *Report) hole(in int, from, to int64, most int) {
	if n := len(r.Holes); n > 0 && r.Holes[n-1].In == names[in] && r.Holes[n-1].To == from {
		r.Holes[n-1].To = to
		return
	}
	if len(r.Holes) >= most {
		r.MoreFindings++
		return
	}
	r.Holes = append(r.Holes, Hole{In: names[in], From: from, To: to})
}

func (r *Report) cannot(why Reason, in int, from, to int64, most int) {
	if from >= to {
		return
	}
	r.Uncompared += to - from
	if n := len(r.Uncomparable); n > 0 && r.Uncomparable[n-1].In == names[in] && r.Uncomparable[n-1].Reason == why && r.Uncomparable[n-1].To == from {
		r.Uncomparable[n-1].To = to
		return
	}
	if len(r.Uncomparable) >= most {
		r.MoreFindings++
		return
	}
	r.Uncomparable = append(r.Uncomparable, Uncomparable{Reason: why, In: names[in], From: from, To: to})
}

var names = [2]string{"a", "b"}
