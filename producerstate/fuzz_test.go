package producerstate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"pgregory.net/rapid"
)

// agrees demands what holds of every Manager: what it lists is in order, open transactions and the entries that lead to them belong together, what is stable is not above the
// end nor rises over an open transaction, and its snapshot is the same state.
func agrees(t *testing.T, m *Manager) {
	t.Helper()
	open := m.InFlight()
	for i, o := range open {
		if i > 0 && open[i-1].FirstOffset >= o.FirstOffset {
			t.Fatalf("open transactions at %d and %d", open[i-1].FirstOffset, o.FirstOffset)
		}
	}
	for i, p := range m.Producers() {
		if list := m.Producers(); i > 0 && list[i-1].ID >= p.ID {
			t.Fatalf("producers %d and %d", list[i-1].ID, p.ID)
		}
		if p.OpenSince >= 0 && !slices.ContainsFunc(open, func(o Transaction) bool { return o.ProducerID == p.ID && o.FirstOffset == p.OpenSince }) {
			t.Fatalf("%+v, open are %+v", p, open)
		}
	}
	end := m.Next()
	if stable := m.LastStable(end); stable > end || len(open) > 0 && stable > max(open[0].FirstOffset, m.start) {
		t.Fatalf("stable up to %d of %d, open are %+v", stable, end, open)
	}
	for _, a := range m.Aborted(0, end) {
		if a.FirstOffset > a.LastOffset {
			t.Fatalf("%+v", a)
		}
	}
	snapshot := m.Snapshot()
	again := New()
	if err := again.Restore(snapshot); err != nil || !bytes.Equal(again.Snapshot(), snapshot) {
		t.Fatalf("the state's own snapshot: %v\n%x became\n%x", err, snapshot, again.Snapshot())
	}
}

// FuzzObserve: whatever whole batches a log has, none brings the state out of order; however the log is cut into calls, the state is the same; and after a truncation it is that of
// the shorter log. Batches that no log has, because they overlap, break nothing.
func FuzzObserve(f *testing.F) {
	for _, b := range fuzzbound.Recorded(f) {
		f.Add(b, uint16(2))
	}
	l := history{
		{kind: transactional, base: 0, last: 4, id: 7}, {kind: data, base: 5, last: 5, id: 8}, {kind: abort, base: 6, last: 6, id: 7}, {kind: reset, base: 7, last: 7, id: -1},
		{kind: transactional, base: 8, last: 8, id: 7}, {kind: emptiedMarker, base: 9, last: 9, id: 7}, {kind: commit, base: 10, last: 10, id: 7, epoch: 1, coordinator: 3},
	}
	f.Add(l.bytes(), uint16(3))
	f.Add(append(l.bytes(), l.bytes()...), uint16(9))
	f.Fuzz(func(t *testing.T, b []byte, keep uint16) {
		m := New()
		m.pointEvery = 2
		var err error
		fuzzbound.Run(t, len(b), func() {
			m.Reset(0)
			m.highest = -1
			err = m.Observe(b)
		})
		end := int64(-1)
		for h := range batch.All(b) {
			if h.BaseOffset < end {
				m.TruncateTo(int64(keep))
				m.RaiseStart(int64(keep) + 1)
				_, _ = m.Snapshot(), m.Aborted(0, m.Next())
				return
			}
			end = h.NextOffset()
		}
		agrees(t, m)
		// One call for each batch. taken are the offsets behind those that were applied.
		single := New()
		single.pointEvery = 2
		var whole []byte
		var taken []int64
		for h, raw := range batch.All(b) {
			before := single.Next()
			if single.Observe(raw) != nil {
				break
			}
			whole = append(whole, raw...)
			if h.NextOffset() > before {
				taken = append(taken, h.NextOffset())
			}
		}
		if !bytes.Equal(m.Snapshot(), single.Snapshot()) {
			t.Fatalf("in one call (%v)\n%x, in many\n%x", err, m.Snapshot(), single.Snapshot())
		}
		if len(taken) == 0 {
			return
		}
		// Back to some batch's end, and the batches from where it went back to on once more.
		offset := taken[int(keep)%len(taken)]
		at := m.TruncateTo(offset)
		agrees(t, m)
		if at > offset || at != m.Next() {
			t.Fatalf("went back to %d, asked for %d, next is %d", at, offset, m.Next())
		}
		shorter := New()
		shorter.pointEvery = 2
		next := int64(0)
		for h, raw := range batch.All(whole) {
			if h.NextOffset() <= next {
				continue // was passed over: it is in no log
			}
			if next = h.NextOffset(); next > offset {
				break
			}
			if err := errors.Join(shorter.Observe(raw), m.Observe(raw)); err != nil {
				t.Fatal(err)
			}
		}
		shorter.highest = m.highest
		if !bytes.Equal(m.Snapshot(), shorter.Snapshot()) {
			t.Fatalf("truncated to %d\n%x, of a log that ends there\n%x", offset, m.Snapshot(), shorter.Snapshot())
		}
		m.RaiseStart(offset)
		agrees(t, m)
	})
}

// FuzzRestore: whatever the bytes, they are refused, or are a state that works: it goes on with any batches, and its own snapshot is the same.
func FuzzRestore(f *testing.F) {
	l := history{
		{kind: transactional, base: 0, last: 4, id: 7}, {kind: abort, base: 5, last: 5, id: 7}, {kind: transactional, base: 6, last: 6, id: 7}, {kind: data, base: 7, last: 7, id: 8},
		{kind: transactional, base: 8, last: 8, id: 9},
	}
	for n := range len(l) + 1 {
		m := New()
		if err := m.Observe(l[:n].bytes()); err != nil {
			f.Fatal(err)
		}
		s := m.Snapshot()
		f.Add(s[len(snapshotMagic)+1 : len(s)-4])
		m.RaiseStart(6)
		s = m.Snapshot()
		f.Add(s[len(snapshotMagic)+1 : len(s)-4])
	}
	more := func(next int64) []byte {
		return history{{kind: transactional, base: next, last: next, id: 7}, {kind: commit, base: next + 1, last: next + 1, id: 7}, {kind: abort, base: next + 2, last: next + 2, id: 9},
			{kind: data, base: next + 3, last: next + 3, id: 8}}.bytes()
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		// A checksum is never right by chance.
		b := append(append([]byte(snapshotMagic), snapshotVersion), body...)
		b = binary.BigEndian.AppendUint32(b, checksum(b))
		m := New()
		var err error
		fuzzbound.Run(t, len(b), func() { err = m.Restore(b) })
		if err != nil {
			var bad *SnapshotError
			if !errors.As(err, &bad) {
				t.Fatalf("error %T", err)
			}
			return
		}
		if again := m.Snapshot(); !bytes.Equal(again, b) {
			t.Fatalf("%x is a state whose snapshot is\n%x", b, again)
		}
		agrees(t, m)
		if err := m.Observe(more(max(0, min(m.Next(), 1<<60)))); err != nil {
			var broken *TransactionError
			if !errors.As(err, &broken) {
				t.Fatal(err)
			}
		}
		agrees(t, m)
		m.TruncateTo(m.Next() - 1)
		agrees(t, m)
		m.RaiseStart(m.Next() - 1)
		m.Expire(1 << 40)
		agrees(t, m)
	})
}

// FuzzAgainstModel draws histories from the bytes: see agreesWithNaiveModel.
func FuzzAgainstModel(f *testing.F) {
	f.Add(slices.Repeat([]byte{0}, 800))
	f.Add(fuzzbound.Drawn(1 << 16))
	f.Add(fuzzbound.Drawn(1<<16 + 1))
	f.Fuzz(rapid.MakeFuzz(agreesWithNaiveModel))
}
