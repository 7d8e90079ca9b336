package producerstate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"pgregory.net/rapid"
)

// kind is what one batch of a history is.
type kind int

const (
	data kind = iota
	transactional
	emptied // a data batch without records
	commit
	abort
	reset
	leaderChange
	emptiedMarker // a control batch without records
	kinds
)

// entry is one batch of a history.
type entry struct {
	kind        kind
	base, last  int64
	id          int64
	epoch       int16
	sequence    int32
	coordinator int32
	at          int64 // milliseconds
}

func (e entry) marker() bool { return e.kind == commit || e.kind == abort }
func (e entry) data() bool   { return e.kind <= emptied }

func (e entry) bytes() []byte {
	control := func(t batch.ControlType, id int64, value []byte) []byte {
		return batch.AppendControl(nil, batch.ControlSpec{BaseOffset: e.base, ProducerID: id, ProducerEpoch: e.epoch, BaseSequence: -1, Transactional: id >= 0,
			Timestamp: e.at, Key: []byte{0, 0, 0, byte(t)}, Value: value})
	}
	switch e.kind {
	case commit, abort:
		t := batch.ControlCommit
		if e.kind == abort {
			t = batch.ControlAbort
		}
		return control(t, e.id, []byte{0, 0, byte(e.coordinator >> 24), byte(e.coordinator >> 16), byte(e.coordinator >> 8), byte(e.coordinator)})
	case reset:
		return control(batch.ControlMirrorPIDReset, -1, []byte{0, 0, 0})
	case leaderChange:
		return control(batch.ControlLeaderChange, -1, []byte{0, 0})
	}
	spec := batch.DataSpec{BaseOffset: e.base, LastOffsetDelta: int32(e.last - e.base), ProducerID: e.id, ProducerEpoch: e.epoch, BaseSequence: e.sequence,
		Transactional: e.kind == transactional, BaseTimestamp: e.at, MaxTimestamp: e.at + 1}
	if e.kind == data || e.kind == transactional {
		spec.Records = []batch.Record{{}}
	}
	b := batch.AppendData(nil, spec)
	if e.kind == emptiedMarker {
		b[22] |= 0x30
		batch.Seal(b)
	}
	return b
}

// timestamp is the greatest one in the batch.
func (e entry) timestamp() int64 {
	if e.data() {
		return e.at + 1
	}
	return e.at
}

// history is a log. Its methods say by looking back over all of it what a Manager must know: slow, and with none of the Manager's bookkeeping.
type history []entry

func (l history) bytes() []byte {
	var b []byte
	for _, e := range l {
		b = append(b, e.bytes()...)
	}
	return b
}

func (l history) next() int64 {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1].last + 1
}

// lastIndex is the last index below n for which ok holds, -1 if none.
func (l history) lastIndex(n int, ok func(e entry) bool) int {
	for i := n - 1; i >= 0; i-- {
		if ok(l[i]) {
			return i
		}
	}
	return -1
}

func (l history) lastReset(n int) int {
	return l.lastIndex(n, func(e entry) bool { return e.kind == reset })
}
func (l history) lastMarker(n int, id int64) int {
	return l.lastIndex(n, func(e entry) bool { return e.marker() && e.id == id })
}

// openAt is the open transaction of id before index n.
func (l history) openAt(n int, id int64) (Transaction, bool) {
	t := Transaction{FirstOffset: -1}
	for i := l.lastMarker(n, id) + 1; i < n; i++ {
		e := l[i]
		if e.kind != transactional || e.id != id {
			continue
		}
		if t.FirstOffset < 0 {
			t = Transaction{ProducerID: id, FirstOffset: e.base, CoordinatorEpoch: -1, FirstTimestamp: e.at}
			if m := l.lastMarker(i, id); m > l.lastReset(i) {
				t.CoordinatorEpoch = l[m].coordinator
			}
		}
		t.ProducerEpoch, t.LastOffset = e.epoch, e.last
	}
	return t, t.FirstOffset >= 0
}

// known says whether the producer itself, not only the log, knows of its open transaction: none of its batches lies before a reset.
func (l history) known(n int, id int64) bool {
	i := l.lastIndex(n, func(e entry) bool { return e.kind == transactional && e.id == id })
	return i > l.lastReset(n) && i > l.lastMarker(n, id)
}

func (l history) ids(from int) []int64 {
	var ids []int64
	for _, e := range l[from:] {
		if e.id >= 0 && e.kind != emptiedMarker && e.kind != reset && e.kind != leaderChange && !slices.Contains(ids, e.id) {
			ids = append(ids, e.id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (l history) inFlightAt(n int) []Transaction {
	var list []Transaction
	for _, id := range l[:n].ids(0) {
		if t, open := l.openAt(n, id); open {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b Transaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return list
}

func (l history) producers() []Producer {
	list := []Producer{}
	begin := l.lastReset(len(l)) + 1
	for _, id := range l.ids(begin) {
		p := Producer{ID: id, LastSequence: -1, LastOffset: -1, CoordinatorEpoch: -1, OpenSince: -1}
		for _, e := range l[begin:] {
			if e.id != id || !e.data() && !e.marker() {
				continue
			}
			if e.data() {
				p.LastOffset, p.LastSequence = e.last, int32((int64(e.sequence)+e.last-e.base)%(1<<31))
			} else {
				p.CoordinatorEpoch = e.coordinator
				if e.epoch != p.Epoch {
					p.LastOffset, p.LastSequence = -1, -1
				}
			}
			p.Epoch, p.LastTimestamp = e.epoch, e.timestamp()
		}
		if t, open := l.openAt(len(l), id); open && l.known(len(l), id) {
			p.OpenSince = t.FirstOffset
		}
		list = append(list, p)
	}
	return list
}

func (l history) aborted(from, to int64) []Aborted {
	var list []Aborted
	for i, e := range l {
		if e.kind != abort {
			continue
		}
		t, open := l.openAt(i, e.id)
		if !open || t.FirstOffset >= to || e.last < from {
			continue
		}
		a := Aborted{ProducerID: e.id, FirstOffset: t.FirstOffset, LastOffset: e.last, LastStable: e.last + 1}
		if rest := l.inFlightAt(i + 1); len(rest) > 0 {
			a.LastStable = rest[0].FirstOffset
		}
		list = append(list, a)
	}
	return list
}

// lastStable looks for the oldest transaction whose marker is not below end.
func (l history) lastStable(end int64) int64 {
	stable := end
	for i, e := range l {
		if e.kind != transactional {
			continue
		}
		decided := slices.IndexFunc(l[i:], func(m entry) bool { return m.marker() && m.id == e.id && m.last < end })
		if decided < 0 {
			stable = min(stable, e.base)
		}
	}
	return stable
}

// difference compares all that a Manager says with what the history says; "" if nothing differs.
func (l history) difference(m *Manager, highest int64) string {
	if m.Next() != l.next() {
		return fmt.Sprintf("next is %d, want %d", m.Next(), l.next())
	}
	if got, want := m.Producers(), l.producers(); !slices.Equal(got, want) {
		return fmt.Sprintf("producers are\n%+v, want\n%+v", got, want)
	}
	if got, want := m.InFlight(), l.inFlightAt(len(l)); !slices.Equal(got, want) {
		return fmt.Sprintf("in flight are\n%+v, want\n%+v", got, want)
	}
	if got, want := m.LastIsReset(), len(l) > 0 && l[len(l)-1].kind == reset; got != want {
		return fmt.Sprintf("last is reset: %v", got)
	}
	if m.HighestProducerID() != highest {
		return fmt.Sprintf("highest producer id is %d, want %d", m.HighestProducerID(), highest)
	}
	for end := int64(0); end <= l.next()+1; end++ {
		if got, want := m.LastStable(end), l.lastStable(end); got != want {
			return fmt.Sprintf("last stable offset below %d is %d, want %d", end, got, want)
		}
	}
	for from := int64(0); from <= l.next(); from += 3 {
		for _, to := range []int64{from, from + 1, from + 5, l.next()} {
			if got, want := m.Aborted(from, to), l.aborted(from, to); from < to && !slices.Equal(got, want) {
				return fmt.Sprintf("aborted in [%d, %d) are\n%+v, want\n%+v", from, to, got, want)
			}
		}
	}
	return ""
}

func TestDifferenceSaysNo(t *testing.T) {
	l := history{
		{kind: transactional, base: 0, last: 2, id: 7, epoch: 1, sequence: 5, at: 10},
		{kind: abort, base: 3, last: 3, id: 7, epoch: 1, coordinator: 2, at: 20},
		{kind: transactional, base: 4, last: 4, id: 7, epoch: 1, sequence: 8, at: 30},
		{kind: transactional, base: 5, last: 5, id: 8, epoch: 1, sequence: 8, at: 30},
		{kind: commit, base: 6, last: 6, id: 8, epoch: 1, coordinator: 2, at: 20},
	}
	observe := func(l history) *Manager {
		m := New()
		if err := m.Observe(l.bytes()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if d := l.difference(observe(l), 8); d != "" {
		t.Fatal(d)
	}
	if l.difference(observe(l), 9) == "" || l.difference(New(), 8) == "" {
		t.Error("a wrong highest id or an empty state passes")
	}
	for i, change := range []func(e []entry){
		func(e []entry) { e[0].base++ }, func(e []entry) { e[1].kind = commit }, func(e []entry) { e[1].coordinator++ }, func(e []entry) { e[2].sequence++ },
		func(e []entry) { e[2].kind = data }, func(e []entry) { e[2].at++ }, func(e []entry) { e[4].kind = reset }, func(e []entry) { e[4].epoch++ }, func(e []entry) { e[3].base, e[3].last = 5, 6; e[4].base, e[4].last = 7, 7 },
	} {
		changed := slices.Clone(l)
		change(changed)
		if l.difference(observe(changed), 8) == "" {
			t.Errorf("change %d is not seen", i)
		}
	}
}

func drawEntry(t *rapid.T, next int64) entry {
	e := entry{
		kind:        kind(rapid.IntRange(0, int(kinds)-1).Draw(t, "kind")),
		base:        next + max(0, rapid.Int64Range(-6, 2).Draw(t, "gap")),
		id:          rapid.Int64Range(-1, 3).Draw(t, "id"),
		epoch:       rapid.Int16Range(0, 3).Draw(t, "epoch"),
		sequence:    rapid.SampledFrom([]int32{0, 57, 1<<31 - 2}).Draw(t, "sequence"),
		coordinator: rapid.Int32Range(0, 4).Draw(t, "coordinator epoch"),
		at:          rapid.Int64Range(0, 1000).Draw(t, "at"),
	}
	e.last = e.base
	if e.data() {
		e.last += rapid.Int64Range(0, 4).Draw(t, "delta")
	}
	switch {
	case e.marker() || e.kind == transactional || e.kind == emptiedMarker:
		e.id = max(e.id, 0)
	case e.kind == reset || e.kind == leaderChange:
		e.id, e.epoch = -1, -1
	}
	return e
}

// refused says whether the log takes e: not a batch outside the transaction that its producer has open.
func (l history) refused(e entry) bool {
	return (e.kind == data || e.kind == emptied) && e.id >= 0 && l.known(len(l), e.id)
}

// The Manager agrees with the naive model on any history, however it is cut into calls, truncated at any batch and replayed, or written to a snapshot and read again;
// and after a truncation its whole state, hidden parts too, is that of a Manager that only ever saw the shorter log.
func TestAgreesWithNaiveModel(t *testing.T) { rapid.Check(t, agreesWithNaiveModel) }

func agreesWithNaiveModel(t *rapid.T) {
	m := New()
	m.pointEvery = rapid.IntRange(1, 6).Draw(t, "points every")
	var l history
	highest := int64(-1)
	t.Repeat(map[string]func(*rapid.T){
		"observe": func(t *rapid.T) {
			var chunk history
			for range rapid.IntRange(1, 8).Draw(t, "batches") {
				grown := append(slices.Clone(l), chunk...)
				e := drawEntry(t, grown.next())
				if !grown.refused(e) {
					chunk = append(chunk, e)
					highest = max(highest, e.id)
					continue
				}
				// All before the refused batch is applied, nothing from it on.
				err := m.Observe(append(chunk.bytes(), append(e.bytes(), entry{kind: data, base: e.last + 1, last: e.last + 1, id: 99}.bytes()...)...))
				open, _ := grown.openAt(len(grown), e.id)
				if want := (TransactionError{ProducerID: e.id, Offset: e.base, OpenSince: open.FirstOffset}); err == nil || err.Error() != want.Error() {
					t.Fatalf("%v, want %v", err, &want)
				}
				l = grown
				return
			}
			if err := m.Observe(chunk.bytes()); err != nil {
				t.Fatal(err)
			}
			l = append(l, chunk...)
		},
		"observe again": func(t *rapid.T) {
			if err := m.Observe(l[rapid.IntRange(0, len(l)).Draw(t, "from"):].bytes()); err != nil {
				t.Fatal(err)
			}
		},
		"truncate": func(t *rapid.T) {
			keep := rapid.IntRange(0, len(l)).Draw(t, "keep")
			short := l[:keep]
			at := m.TruncateTo(short.next())
			if at > short.next() || at != m.Next() {
				t.Fatalf("went back to %d, asked for %d, next is %d", at, short.next(), m.Next())
			}
			from := slices.IndexFunc(short, func(e entry) bool { return e.last >= at })
			if from >= 0 {
				if before := short[:from]; before.next() != at {
					t.Fatalf("%d is inside a batch", at)
				}
				if err := m.Observe(short[from:].bytes()); err != nil {
					t.Fatal(err)
				}
			}
			l = slices.Clone(short)
			fresh := New()
			if err := fresh.Observe(l.bytes()); err != nil {
				t.Fatal(err)
			}
			fresh.highest = highest
			if !bytes.Equal(m.Snapshot(), fresh.Snapshot()) {
				t.Fatalf("snapshot\n%x, fresh\n%x", m.Snapshot(), fresh.Snapshot())
			}
		},
		"restore": func(t *rapid.T) {
			snapshot := m.Snapshot()
			restored := New()
			if err := restored.Restore(snapshot); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(restored.Snapshot(), snapshot) {
				t.Fatalf("snapshot\n%x, after restoring\n%x", snapshot, restored.Snapshot())
			}
			restored.pointEvery = m.pointEvery
			m = restored
		},
		"": func(t *rapid.T) {
			if d := l.difference(m, highest); d != "" {
				t.Fatalf("%s\nlog %+v", d, l)
			}
			if len(m.points) > maxPoints {
				t.Fatalf("%d points", len(m.points))
			}
		},
	})
}
