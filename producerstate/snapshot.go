package producerstate

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A snapshot, all big-endian:
//
//	"MPST"  int8 version
//	int64 start, next, highest producer id; int8 last batch is a reset
//	int32 count, producers     in order of id
//	int32 count, transactions  open ones, in order of first offset
//	int32 count, aborted       in order of last offset
//	int32 count, decided       first and marker offset
//	uint32 CRC32C of all before it
const (
	snapshotMagic   = "MPST"
	snapshotVersion = 1

	producerSize    = 8 + 2 + 4 + 8 + 8 + 4 + 8 + 8
	transactionSize = 8 + 2 + 8 + 8 + 4 + 8
	abortedSize     = 4 * 8
	decidedSize     = 2 * 8
	fixedSize       = len(snapshotMagic) + 1 + 3*8 + 1 + 4*4 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// SnapshotError refuses a snapshot. Nothing is lost with it: an empty Manager that observes the log from its start has the same state.
type SnapshotError struct {
	Reason string // for a person; starts with a lower-case word
}

func (e *SnapshotError) Error() string {
	return "producer state snapshot: " + e.Reason + "; drop it and observe the log from its start"
}

// Snapshot is the whole state in a versioned, checksummed form of our own. Equal states give equal bytes. The slice is the caller's.
// Points that TruncateTo could go back to are not in it, only its own offset and the log's start.
func (m *Manager) Snapshot() []byte {
	s := &m.current
	e := binary.BigEndian
	b := make([]byte, 0, fixedSize+len(s.producers)*producerSize+s.open.count()*transactionSize+len(m.aborted)*abortedSize+len(s.decided.list)*decidedSize)
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion)
	b = e.AppendUint64(b, uint64(m.start))
	b = e.AppendUint64(b, uint64(s.next))
	b = e.AppendUint64(b, uint64(m.highest))
	if s.isReset {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = e.AppendUint32(b, uint32(len(s.producers)))
	for _, p := range s.producers.appendSorted(nil) {
		b = e.AppendUint64(b, uint64(p.ID))
		b = e.AppendUint16(b, uint16(p.Epoch))
		b = e.AppendUint32(b, uint32(p.LastSequence))
		b = e.AppendUint64(b, uint64(p.LastOffset))
		b = e.AppendUint64(b, uint64(p.LastTimestamp))
		b = e.AppendUint32(b, uint32(p.CoordinatorEpoch))
		b = e.AppendUint64(b, uint64(p.OpenSince))
		b = e.AppendUint64(b, uint64(p.seen))
	}
	open := s.open.appendTo(nil)
	b = e.AppendUint32(b, uint32(len(open)))
	for _, t := range open {
		b = e.AppendUint64(b, uint64(t.ProducerID))
		b = e.AppendUint16(b, uint16(t.ProducerEpoch))
		b = e.AppendUint64(b, uint64(t.FirstOffset))
		b = e.AppendUint64(b, uint64(t.LastOffset))
		b = e.AppendUint32(b, uint32(t.CoordinatorEpoch))
		b = e.AppendUint64(b, uint64(t.FirstTimestamp))
	}
	b = e.AppendUint32(b, uint32(len(m.aborted)))
	for _, a := range m.aborted {
		b = e.AppendUint64(b, uint64(a.ProducerID))
		b = e.AppendUint64(b, uint64(a.FirstOffset))
		b = e.AppendUint64(b, uint64(a.LastOffset))
		b = e.AppendUint64(b, uint64(a.LastStable))
	}
	b = e.AppendUint32(b, uint32(len(s.decided.list)))
	for _, d := range s.decided.list {
		b = e.AppendUint64(b, uint64(d.first))
		b = e.AppendUint64(b, uint64(d.marker))
	}
	return e.AppendUint32(b, checksum(b))
}

// Restore reads a Snapshot and replaces the state by it. Errors: *SnapshotError when it is damaged or of an unknown version; the manager is then unchanged.
// The bytes are not kept.
func (m *Manager) Restore(snapshot []byte) error {
	if len(snapshot) < fixedSize {
		return &SnapshotError{fmt.Sprintf("has %d bytes, at least %d are needed", len(snapshot), fixedSize)}
	}
	body, sum := snapshot[:len(snapshot)-4], binary.BigEndian.Uint32(snapshot[len(snapshot)-4:])
	if string(body[:len(snapshotMagic)]) != snapshotMagic {
		return &SnapshotError{fmt.Sprintf("begins with %x, that is something else", body[:len(snapshotMagic)])}
	}
	if got := checksum(body); got != sum {
		return &SnapshotError{fmt.Sprintf("checksum is %08x, its bytes give %08x", sum, got)}
	}
	if v := body[len(snapshotMagic)]; v != snapshotVersion {
		return &SnapshotError{fmt.Sprintf("version %d is unknown, this program reads %d", v, snapshotVersion)}
	}
	r := &reader{b: body[len(snapshotMagic)+1:]}
	start := r.int64()
	restored := Manager{start: start, current: emptyAt(r.int64()), highest: r.int64(), pointEvery: pointInterval}
	s := &restored.current
	last := r.int8()
	s.isReset = last == 1
	ordered := last == 0 || last == 1
	id := int64(-1)
	for range r.count(producerSize) {
		p := producer{
			Producer: Producer{ID: r.int64(), Epoch: r.int16(), LastSequence: r.int32(), LastOffset: r.int64(), LastTimestamp: r.int64(), CoordinatorEpoch: r.int32(), OpenSince: r.int64()},
			seen:     r.int64(),
		}
		ordered = ordered && p.ID > id
		id = p.ID
		s.producers.put(&p)
	}
	for range r.count(transactionSize) {
		s.open.list = append(s.open.list, openTransaction{Transaction: Transaction{
			ProducerID: r.int64(), ProducerEpoch: r.int16(), FirstOffset: r.int64(), LastOffset: r.int64(), CoordinatorEpoch: r.int32(), FirstTimestamp: r.int64(),
		}})
	}
	for range r.count(abortedSize) {
		restored.aborted = append(restored.aborted, Aborted{ProducerID: r.int64(), FirstOffset: r.int64(), LastOffset: r.int64(), LastStable: r.int64()})
	}
	for range r.count(decidedSize) {
		s.decided.list = append(s.decided.list, decided{first: r.int64(), marker: r.int64()})
	}
	switch {
	case r.short || len(r.b) > 0:
		return &SnapshotError{"counts and length contradict each other"}
	case !ordered || id > restored.highest || !restored.ordered():
		return &SnapshotError{"its parts are not in order, or reach beyond the log"}
	}
	if err := s.relink(); err != nil {
		return err
	}
	restored.keepPoint()
	*m = restored
	return nil
}

// ordered says whether what was read is in the order in which a state is kept, and inside the log: a right checksum says only that somebody wrote it so.
func (m *Manager) ordered() bool {
	s := &m.current
	if m.start < 0 || s.next < m.start || m.highest < -1 || len(s.decided.list) > maxDecided {
		return false
	}
	inside := func(first, last int64) bool { return 0 <= first && first <= last && last < s.next }
	first, opened := int64(-1), make(map[int64]bool, len(s.open.list))
	for i := range s.open.list {
		t := &s.open.list[i]
		if t.FirstOffset <= first || !inside(t.FirstOffset, t.LastOffset) || opened[t.ProducerID] {
			return false
		}
		first, opened[t.ProducerID] = t.FirstOffset, true
	}
	last := int64(-1)
	for _, a := range m.aborted {
		if a.LastOffset <= last || !inside(a.FirstOffset, a.LastOffset) {
			return false
		}
		last = a.LastOffset
	}
	d := decided{-1, -1}
	for _, next := range s.decided.list {
		if next.first <= d.first || next.marker <= d.marker || !inside(next.first, next.marker) {
			return false
		}
		d = next
	}
	return true
}

// relink finds the orphans: open transactions to which no producer entry leads. It refuses an entry that leads nowhere.
func (s *state) relink() error {
	s.open.orphan()
	for id, p := range s.producers {
		if p.OpenSince >= 0 && s.open.adopt(id) != p.OpenSince {
			return &SnapshotError{"a producer's open transaction is not among the open ones"}
		}
	}
	return nil
}

// reader reads numbers off the front of b. Once b is too short all it gives is 0.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.b, r.short = nil, true
		return make([]byte, n)
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) int8() int8   { return int8(r.take(1)[0]) }
func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

// count reads how many entries of size bytes follow, no more than there are bytes for.
func (r *reader) count(size int) int {
	n := int(r.int32())
	if n < 0 || n > len(r.b)/size {
		r.b, r.short = nil, true
		return 0
	}
	return n
}
