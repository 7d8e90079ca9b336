package producerstate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// observed is the state after a log, given as one call.
func observed(t testing.TB, l history) *Manager {
	t.Helper()
	m := New()
	if err := m.Observe(l.bytes()); err != nil {
		t.Fatal(err)
	}
	return m
}

func equal[T any](t testing.TB, what string, got, want T, same func(a, b T) bool) {
	t.Helper()
	if !same(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func wantProducers(t testing.TB, m *Manager, want ...Producer) {
	t.Helper()
	equal(t, "producers", m.Producers(), want, slices.Equal)
}

func wantInFlight(t testing.TB, m *Manager, want ...Transaction) {
	t.Helper()
	equal(t, "in flight", m.InFlight(), want, slices.Equal)
}

func wantAborted(t testing.TB, m *Manager, from, to int64, want ...Aborted) {
	t.Helper()
	equal(t, "aborted", m.Aborted(from, to), want, slices.Equal)
}

func TestEmptyLog(t *testing.T) {
	m := New()
	wantProducers(t, m)
	wantInFlight(t, m)
	wantAborted(t, m, 0, 100)
	if m.Next() != 0 || m.LastStable(0) != 0 || m.LastStable(9) != 9 || m.HighestProducerID() != -1 || m.LastIsReset() || m.TruncateTo(0) != 0 {
		t.Errorf("%+v", m)
	}
	if err := m.Observe(nil); err != nil {
		t.Error(err)
	}
}

func TestF02EmptiedBatchSaysTheLastSequence(t *testing.T) {
	m := observed(t, history{
		{kind: data, base: 0, last: 0, id: -1},
		{kind: emptied, base: 1, last: 9, id: 7, sequence: 20, at: 5},
		{kind: data, base: 10, last: 10, id: -1},
	})
	wantProducers(t, m, Producer{ID: 7, LastSequence: 28, LastOffset: 9, LastTimestamp: 6, CoordinatorEpoch: -1, OpenSince: -1})
	if m.Next() != 11 {
		t.Error(m.Next())
	}
}

func TestF46OpenTransactionAtFailover(t *testing.T) {
	m := observed(t, history{
		{kind: transactional, base: 0, last: 4, id: 7, at: 1000},
		{kind: data, base: 5, last: 5, id: -1},
	})
	if m.Next() != 6 || m.LastStable(6) != 0 {
		t.Fatalf("next %d, last stable %d", m.Next(), m.LastStable(6))
	}
	wantInFlight(t, m, Transaction{ProducerID: 7, FirstOffset: 0, LastOffset: 4, CoordinatorEpoch: -1, FirstTimestamp: 1000})
	// The ABORT at 6 that a failover appends.
	if err := m.Observe(entry{kind: abort, base: 6, last: 6, id: 7}.bytes()); err != nil {
		t.Fatal(err)
	}
	wantInFlight(t, m)
	wantAborted(t, m, 0, 7, Aborted{ProducerID: 7, FirstOffset: 0, LastOffset: 6, LastStable: 7})
	if m.LastStable(7) != 7 {
		t.Error(m.LastStable(7))
	}
}

func TestF48ResetMakesOldProducersVanish(t *testing.T) {
	before := history{{kind: data, base: 0, last: 9, id: 5, sequence: 0}, {kind: data, base: 10, last: 10, id: 6, sequence: 3}}
	pidReset := entry{kind: reset, base: 11, last: 11, id: -1, epoch: -1}
	after := entry{kind: data, base: 12, last: 12, id: 5, sequence: 0, at: 9}
	whole := append(slices.Clone(before), pidReset, after)
	want := Producer{ID: 5, LastSequence: 0, LastOffset: 12, LastTimestamp: 10, CoordinatorEpoch: -1, OpenSince: -1}

	t.Run("batch by batch", func(t *testing.T) {
		m := New()
		for _, e := range whole {
			if err := m.Observe(e.bytes()); err != nil {
				t.Fatal(err)
			}
			if m.LastIsReset() != (e.kind == reset) {
				t.Fatalf("last is reset: %v after %+v", m.LastIsReset(), e)
			}
			if e.kind == reset {
				wantProducers(t, m)
			}
		}
		wantProducers(t, m, want)
	})
	t.Run("inside one call", func(t *testing.T) { wantProducers(t, observed(t, whole), want) })
	t.Run("inside one replayed segment", func(t *testing.T) {
		m := New()
		if err := m.Restore(observed(t, before[:1]).Snapshot()); err != nil {
			t.Fatal(err)
		}
		if err := m.Observe(whole[1:].bytes()); err != nil {
			t.Fatal(err)
		}
		wantProducers(t, m, want)
		if err := m.Restore(m.Snapshot()); err != nil {
			t.Fatal(err)
		}
		wantProducers(t, m, want)
	})
	t.Run("highest id stays", func(t *testing.T) {
		m := observed(t, whole)
		if m.HighestProducerID() != 6 {
			t.Error(m.HighestProducerID())
		}
		if m.TruncateTo(0); m.HighestProducerID() != 6 {
			t.Error("lowered by a truncation:", m.HighestProducerID())
		}
		if m.Reset(3); m.HighestProducerID() != 6 || m.Next() != 3 {
			t.Error("lowered by a reset:", m.HighestProducerID())
		}
	})
	t.Run("truncation below the reset brings them back", func(t *testing.T) {
		m := observed(t, whole)
		at := m.TruncateTo(11)
		from := slices.IndexFunc(before, func(e entry) bool { return e.last >= at })
		if err := m.Observe(before[max(from, 0):].bytes()); err != nil {
			t.Fatal(err)
		}
		if len(m.Producers()) != 2 || m.LastIsReset() {
			t.Errorf("%+v", m.Producers())
		}
	})
}

func TestF50FirstSequenceIsNotZero(t *testing.T) {
	m := New()
	m.Reset(100)
	l := history{{kind: data, base: 100, last: 104, id: 7, sequence: 57}, {kind: data, base: 105, last: 109, id: 7, sequence: 62}}
	if err := m.Observe(l.bytes()); err != nil {
		t.Fatal(err)
	}
	wantProducers(t, m, Producer{ID: 7, LastSequence: 66, LastOffset: 109, LastTimestamp: 1, CoordinatorEpoch: -1, OpenSince: -1})
}

func TestF52MarkersOfNewerTransactionsBumpTheEpoch(t *testing.T) {
	l := history{
		{kind: transactional, base: 0, last: 4, id: 7, epoch: 3, sequence: 0},
		{kind: commit, base: 5, last: 5, id: 7, epoch: 4, coordinator: 2},
		{kind: transactional, base: 6, last: 9, id: 7, epoch: 4, sequence: 0},
		{kind: abort, base: 10, last: 10, id: 7, epoch: 5, coordinator: 2, at: 8},
	}
	m := New()
	for i, stable := range []int64{0, 6, 6, 11} {
		if err := m.Observe(l[i].bytes()); err != nil {
			t.Fatal(err)
		}
		if got := m.LastStable(m.Next()); got != stable {
			t.Errorf("last stable offset after batch %d: %d, want %d", i, got, stable)
		}
	}
	wantInFlight(t, m)
	wantAborted(t, m, 0, 11, Aborted{ProducerID: 7, FirstOffset: 6, LastOffset: 10, LastStable: 11})
	wantProducers(t, m, Producer{ID: 7, Epoch: 5, LastSequence: -1, LastOffset: -1, LastTimestamp: 8, CoordinatorEpoch: 2, OpenSince: -1})
}

func TestSpec4NoSequenceOrDuplicateCheck(t *testing.T) {
	m := observed(t, history{
		{kind: data, base: 0, last: 4, id: 7, sequence: 0},
		{kind: data, base: 5, last: 9, id: 7, sequence: 0},
		{kind: data, base: 10, last: 10, id: 7, sequence: 1000},
	})
	if p := m.Producers()[0]; p.LastSequence != 1000 || p.LastOffset != 10 {
		t.Errorf("%+v", p)
	}
}

func TestSpec4OlderEpochsAreTaken(t *testing.T) {
	m := observed(t, history{
		{kind: data, base: 0, last: 0, id: 7, epoch: 9},
		{kind: transactional, base: 1, last: 1, id: 7, epoch: 2, sequence: 4},
		{kind: commit, base: 2, last: 2, id: 7, epoch: 2, coordinator: 8},
		{kind: commit, base: 3, last: 3, id: 7, epoch: 1, coordinator: 3, at: 5},
	})
	wantProducers(t, m, Producer{ID: 7, Epoch: 1, LastSequence: -1, LastOffset: -1, LastTimestamp: 5, CoordinatorEpoch: 3, OpenSince: -1})
}

func TestSpec4BatchOutsideAnOpenTransactionIsRefused(t *testing.T) {
	good := history{{kind: transactional, base: 0, last: 4, id: 7}, {kind: data, base: 5, last: 5, id: 8}}
	bad := entry{kind: data, base: 6, last: 6, id: 7, epoch: 1}
	rest := entry{kind: data, base: 7, last: 7, id: 9}
	m := New()
	err := m.Observe(append(append(good.bytes(), bad.bytes()...), rest.bytes()...))
	var e *TransactionError
	if !errors.As(err, &e) || *e != (TransactionError{ProducerID: 7, Offset: 6, OpenSince: 0}) || !strings.Contains(err.Error(), "at 6 of producer 7") {
		t.Fatal(err)
	}
	if m.Next() != 6 || m.HighestProducerID() != 8 || m.Producers()[0].Epoch != 0 {
		t.Errorf("next %d, %+v", m.Next(), m.Producers())
	}
}

func TestMarkerWithNothingOpenUpdatesEpochsOnly(t *testing.T) {
	m := observed(t, history{{kind: abort, base: 0, last: 0, id: 7, epoch: 3, coordinator: 6, at: 4}})
	wantProducers(t, m, Producer{ID: 7, Epoch: 3, LastSequence: -1, LastOffset: -1, LastTimestamp: 4, CoordinatorEpoch: 6, OpenSince: -1})
	wantAborted(t, m, 0, 10)
	// The next transaction knows the coordinator epoch, which its ABORT will carry.
	if err := m.Observe(entry{kind: transactional, base: 1, last: 1, id: 7, epoch: 3, at: 9}.bytes()); err != nil {
		t.Fatal(err)
	}
	wantInFlight(t, m, Transaction{ProducerID: 7, ProducerEpoch: 3, FirstOffset: 1, LastOffset: 1, CoordinatorEpoch: 6, FirstTimestamp: 9})
}

func TestSpec5ResetLeavesOpenTransactions(t *testing.T) {
	m := observed(t, history{{kind: transactional, base: 0, last: 4, id: 7}, {kind: reset, base: 5, last: 5, id: -1}})
	wantProducers(t, m)
	if len(m.InFlight()) != 1 || m.LastStable(6) != 0 {
		t.Fatalf("%+v", m.InFlight())
	}
	// A new producer with the same id is free to write outside the old transaction; a marker still closes that one.
	for _, e := range []entry{{kind: data, base: 6, last: 6, id: 7}, {kind: abort, base: 7, last: 7, id: 7}} {
		if err := m.Observe(e.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	wantInFlight(t, m)
	wantAborted(t, m, 0, 8, Aborted{ProducerID: 7, FirstOffset: 0, LastOffset: 7, LastStable: 8})
}

func TestInFlightIsInOrderOfFirstOffset(t *testing.T) {
	m := observed(t, history{
		{kind: transactional, base: 0, last: 0, id: 9},
		{kind: transactional, base: 1, last: 1, id: 3},
		{kind: transactional, base: 2, last: 2, id: 6},
		{kind: transactional, base: 3, last: 3, id: 3},
		{kind: commit, base: 4, last: 4, id: 9},
		{kind: transactional, base: 5, last: 5, id: 9},
	})
	var first []int64
	for _, tr := range m.InFlight() {
		first = append(first, tr.FirstOffset)
	}
	if !slices.Equal(first, []int64{1, 2, 5}) {
		t.Errorf("%v", first)
	}
	m.InFlight()[0].FirstOffset = 99
	if m.InFlight()[0].FirstOffset != 1 {
		t.Error("the slice is not the caller's")
	}
}

func TestFirstTimestamp(t *testing.T) {
	spec := batch.DataSpec{ProducerID: 7, Transactional: true, BaseTimestamp: 100, MaxTimestamp: 300, Records: []batch.Record{{}}}
	plain := batch.AppendData(nil, spec)
	spec.LogAppendTime = true
	logAppend := batch.AppendData(nil, spec)
	horizon := bytes.Clone(plain)
	horizon[22] |= 0x40
	for name, c := range map[string]struct {
		b    []byte
		want int64
	}{"producer's": {plain, 100}, "broker's": {logAppend, 300}, "delete horizon in its place": {horizon, 300}} {
		m := New()
		if err := m.Observe(c.b); err != nil {
			t.Fatal(err)
		}
		if got := m.InFlight()[0].FirstTimestamp; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A long aborted transaction is found behind a short one that began after what is asked for.
func TestAbortedLooksBehindShortTransactions(t *testing.T) {
	m := observed(t, history{
		{kind: transactional, base: 0, last: 0, id: 1},
		{kind: data, base: 1, last: 9, id: -1},
		{kind: transactional, base: 10, last: 10, id: 2},
		{kind: abort, base: 11, last: 11, id: 2},
		{kind: abort, base: 12, last: 12, id: 1},
		{kind: transactional, base: 13, last: 13, id: 1},
		{kind: abort, base: 14, last: 14, id: 1},
	})
	short := Aborted{ProducerID: 2, FirstOffset: 10, LastOffset: 11, LastStable: 0}
	long := Aborted{ProducerID: 1, FirstOffset: 0, LastOffset: 12, LastStable: 13}
	last := Aborted{ProducerID: 1, FirstOffset: 13, LastOffset: 14, LastStable: 15}
	wantAborted(t, m, 2, 5, long)
	wantAborted(t, m, 2, 11, short, long)
	wantAborted(t, m, 12, 14, long, last)
	wantAborted(t, m, 15, 20)
}

// A marker at or above the high watermark may still be lost: what it decides is not stable yet.
func TestLastStableBelowAMarkerThatIsNotReplicated(t *testing.T) {
	m := observed(t, history{
		{kind: data, base: 0, last: 1, id: -1},
		{kind: transactional, base: 2, last: 4, id: 7},
		{kind: commit, base: 5, last: 5, id: 7},
	})
	for end, want := range []int64{0, 1, 2, 2, 2, 2, 6, 7} {
		if got := m.LastStable(int64(end)); got != want {
			t.Errorf("below %d: %d, want %d", end, got, want)
		}
	}
}

func TestLastStableAfterManyTransactionsIsNeverTooHigh(t *testing.T) {
	var l history
	for i := range int64(2000) {
		l = append(l, entry{kind: transactional, base: 2 * i, last: 2 * i, id: i % 3}, entry{kind: commit, base: 2*i + 1, last: 2*i + 1, id: i % 3})
	}
	m := observed(t, l)
	if n := len(m.current.decided.list); n > maxDecided {
		t.Fatalf("%d kept", n)
	}
	exact := 0
	for end := int64(0); end <= m.Next(); end++ {
		want := end &^ 1 // the transaction that end lies in, or end
		got := m.LastStable(end)
		if got > want {
			t.Fatalf("below %d: %d, want at most %d", end, got, want)
		}
		if got == want {
			exact++
		} else if end > m.Next()-maxDecided {
			t.Fatalf("below %d, near the end: %d, want %d", end, got, want)
		}
	}
	if exact < maxDecided {
		t.Errorf("exact for %d ends only", exact)
	}
}

func TestRaiseStartForgetsWhatLiesWhollyBelow(t *testing.T) {
	m := observed(t, history{
		{kind: transactional, base: 0, last: 0, id: 1},
		{kind: abort, base: 1, last: 1, id: 1},
		{kind: data, base: 2, last: 2, id: 2},
		{kind: transactional, base: 3, last: 3, id: 3},
		{kind: transactional, base: 4, last: 4, id: 4},
		{kind: transactional, base: 5, last: 5, id: 5},
		{kind: abort, base: 10, last: 10, id: 4},
		{kind: transactional, base: 11, last: 11, id: 5},
		{kind: data, base: 12, last: 12, id: 6},
	})
	m.RaiseStart(10)
	var ids []int64
	for _, p := range m.Producers() {
		ids = append(ids, p.ID)
	}
	if !slices.Equal(ids, []int64{4, 5, 6}) {
		t.Errorf("producers %v", ids)
	}
	wantInFlight(t, m, Transaction{ProducerID: 5, FirstOffset: 5, LastOffset: 11, CoordinatorEpoch: -1})
	wantAborted(t, m, 0, 100, Aborted{ProducerID: 4, FirstOffset: 4, LastOffset: 10, LastStable: 3})
	if got := m.LastStable(13); got != 10 {
		t.Errorf("last stable offset %d is not the log's start", got)
	}
	if got := m.LastStable(7); got != 7 {
		t.Errorf("last stable offset %d below an end below the start", got)
	}
	m.RaiseStart(4) // not a raise
	if at := m.TruncateTo(12); at != 10 || m.Next() != 10 || len(m.Producers()) != 0 || len(m.InFlight()) != 0 {
		t.Errorf("back at %d with %+v", at, m.Producers())
	}
	if m.HighestProducerID() != 6 {
		t.Error(m.HighestProducerID())
	}
}

// A producer whose open transaction was forgotten is not held to it.
func TestRaiseStartFreesTheProducerOfAForgottenTransaction(t *testing.T) {
	m := observed(t, history{{kind: transactional, base: 0, last: 0, id: 1}, {kind: data, base: 1, last: 1, id: 2}})
	m.RaiseStart(1)
	if err := m.Observe(history{{kind: data, base: 2, last: 2, id: 1}, {kind: abort, base: 3, last: 3, id: 1}}.bytes()); err != nil {
		t.Fatal(err)
	}
	wantAborted(t, m, 0, 4)
	// The same after a reset took the entry away.
	m = observed(t, history{{kind: transactional, base: 0, last: 0, id: 1}, {kind: reset, base: 1, last: 1, id: -1}})
	m.RaiseStart(1)
	if err := m.Observe(entry{kind: transactional, base: 2, last: 2, id: 1}.bytes()); err != nil {
		t.Fatal(err)
	}
	wantInFlight(t, m, Transaction{ProducerID: 1, FirstOffset: 2, LastOffset: 2, CoordinatorEpoch: -1})
}

func TestRaiseStartAboveTheEndEmptiesTheLog(t *testing.T) {
	m := observed(t, history{{kind: transactional, base: 0, last: 4, id: 7}, {kind: reset, base: 5, last: 5, id: -1}})
	m.RaiseStart(20)
	if m.Next() != 20 || len(m.InFlight()) != 0 || m.LastIsReset() || m.LastStable(20) != 20 || m.TruncateTo(25) != 20 {
		t.Errorf("next %d, %+v", m.Next(), m.InFlight())
	}
}

// A restore point from before RaiseStart brings nothing back that lies below the start.
func TestTruncationAfterRaiseStartForgetsTheSame(t *testing.T) {
	m := observed(t, history{
		{kind: transactional, base: 0, last: 0, id: 1},
		{kind: data, base: 1, last: 1, id: 2},
		{kind: transactional, base: 2, last: 2, id: 3},
	})
	m.keepPoint()
	if err := m.Observe(entry{kind: data, base: 3, last: 3, id: 4}.bytes()); err != nil {
		t.Fatal(err)
	}
	m.RaiseStart(2)
	if at := m.TruncateTo(3); at != 3 {
		t.Fatal(at)
	}
	wantProducers(t, m, Producer{ID: 3, LastOffset: 2, LastTimestamp: 1, CoordinatorEpoch: -1, OpenSince: 2})
	wantInFlight(t, m, Transaction{ProducerID: 3, FirstOffset: 2, LastOffset: 2, CoordinatorEpoch: -1})
	if at := m.TruncateTo(1); at != 1 || m.Next() != 1 || m.TruncateTo(0) != 0 {
		t.Errorf("%d: a log cut below its start begins there", at)
	}
}

func TestTruncationNeverGoesBelowTheStart(t *testing.T) {
	m := observed(t, history{{kind: data, base: 0, last: 0, id: 1}})
	m.keepPoint()
	if err := m.Observe(history{{kind: data, base: 1, last: 1, id: 2}, {kind: data, base: 2, last: 2, id: 3}}.bytes()); err != nil {
		t.Fatal(err)
	}
	m.RaiseStart(2)
	if at := m.TruncateTo(2); at != 2 || m.Next() != 2 {
		t.Errorf("at %d, the log starts at 2", at)
	}
}

// A log can start inside a batch (F-07): its first batch begins below the start and is observed all the same.
func TestF07StartInsideABatch(t *testing.T) {
	m := New()
	m.Reset(5)
	if err := m.Observe(entry{kind: transactional, base: 0, last: 9, id: 7}.bytes()); err != nil {
		t.Fatal(err)
	}
	if m.Next() != 10 || len(m.InFlight()) != 1 || m.LastStable(10) != 5 {
		t.Errorf("next %d, stable %d, %+v", m.Next(), m.LastStable(10), m.InFlight())
	}
}

func TestExpire(t *testing.T) {
	m := observed(t, history{
		{kind: data, base: 0, last: 0, id: 1, at: 9},
		{kind: data, base: 1, last: 1, id: 2, at: 19},
		{kind: transactional, base: 2, last: 2, id: 3, at: 9},
	})
	m.Expire(20)
	var ids []int64
	for _, p := range m.Producers() {
		ids = append(ids, p.ID)
	}
	if !slices.Equal(ids, []int64{2, 3}) || len(m.InFlight()) != 1 || m.HighestProducerID() != 3 {
		t.Errorf("%v", ids)
	}
}

func TestObserveRefusesUnreadableBytes(t *testing.T) {
	good := entry{kind: data, base: 0, last: 0, id: 1}.bytes()
	badControl := batch.AppendControl(nil, batch.ControlSpec{BaseOffset: 1, ProducerID: 1, BaseSequence: -1, Transactional: true, Key: []byte{0}})
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"cut":           {entry{kind: data, base: 1, last: 1}.bytes()[:65], batch.ErrCut},
		"control batch": {badControl, batch.ErrCorrupt},
	} {
		m := New()
		if err := m.Observe(append(bytes.Clone(good), c.b...)); !errors.Is(err, c.want) || m.Next() != 1 || len(m.Producers()) != 1 {
			t.Errorf("%s: %v, next %d", name, err, m.Next())
		}
	}
}

func TestRestoreRefusesDamage(t *testing.T) {
	l := history{
		{kind: transactional, base: 0, last: 4, id: 7},
		{kind: abort, base: 5, last: 5, id: 7},
		{kind: transactional, base: 6, last: 6, id: 7},
		{kind: data, base: 7, last: 7, id: 8},
	}
	snapshot := observed(t, l).Snapshot()
	m := observed(t, l[:1])
	before := m.Snapshot()
	refuse := func(what string, damaged []byte) {
		t.Helper()
		var e *SnapshotError
		if err := m.Restore(damaged); !errors.As(err, &e) || !strings.Contains(err.Error(), "observe the log from its start") {
			t.Errorf("%s: %v", what, err)
		}
		if !bytes.Equal(m.Snapshot(), before) {
			t.Fatalf("%s: the manager has changed", what)
		}
	}
	seal := func(b []byte) []byte {
		return binary.BigEndian.AppendUint32(b, checksum(b))
	}
	body := snapshot[:len(snapshot)-4]
	for at := range snapshot {
		for bit := range 8 {
			b := bytes.Clone(snapshot)
			b[at] ^= 1 << bit
			refuse("flipped bit", b)
		}
		refuse("cut", snapshot[:at])
	}
	refuse("bytes behind", append(bytes.Clone(snapshot), 0))
	refuse("longer body", seal(append(bytes.Clone(body), 0)))
	refuse("shorter body", seal(bytes.Clone(body[:len(body)-1])))
	version := bytes.Clone(body)
	version[4] = 2
	refuse("version", seal(version))
	if err := m.Restore(seal(version)); !strings.Contains(err.Error(), "version 2 is unknown") {
		t.Error(err)
	}
	count := bytes.Clone(body)
	binary.BigEndian.PutUint32(count[len(snapshotMagic)+1+3*8+1:], 1<<31-1)
	refuse("count", seal(count))
	binary.BigEndian.PutUint32(count[len(snapshotMagic)+1+3*8+1:], 1<<31)
	refuse("negative count", seal(count))
	loose := observed(t, l)
	loose.current.open.list = nil
	refuse("open transaction missing", loose.Snapshot())
	// States that no log makes, under a right checksum.
	whole := append(slices.Clone(l), entry{kind: transactional, base: 8, last: 9, id: 9}, entry{kind: abort, base: 10, last: 10, id: 9}, entry{kind: transactional, base: 11, last: 11, id: 9})
	for what, change := range map[string]func(m *Manager){
		"start below 0":                 func(m *Manager) { m.start = -1 },
		"next below the start":          func(m *Manager) { m.start = m.current.next + 1 },
		"highest id below -1":           func(m *Manager) { m.highest = -2 },
		"highest id below a producer's": func(m *Manager) { m.highest = 8 },
		"open ones not in order":        func(m *Manager) { slices.Reverse(m.current.open.list) },
		"two open at one offset": func(m *Manager) {
			m.current.open.list[len(m.current.open.list)-1].FirstOffset = m.current.open.list[0].FirstOffset
		},
		"two open of one producer": func(m *Manager) {
			m.current.open.list[len(m.current.open.list)-1].ProducerID = 7
			clear(m.current.producers)
		},
		"open below 0":        func(m *Manager) { m.current.open.list[0].FirstOffset = -1; clear(m.current.producers) },
		"open beyond the end": func(m *Manager) { m.current.open.list[len(m.current.open.list)-1].LastOffset = m.current.next },
		"open that ends before it begins": func(m *Manager) {
			m.current.open.list[len(m.current.open.list)-1].LastOffset = m.current.open.list[len(m.current.open.list)-1].FirstOffset - 1
		},
		"aborted not in order":               func(m *Manager) { slices.Reverse(m.aborted) },
		"one aborted twice":                  func(m *Manager) { m.aborted[1] = m.aborted[0] },
		"aborted beyond the end":             func(m *Manager) { m.aborted[1].LastOffset = m.current.next },
		"decided not in order":               func(m *Manager) { slices.Reverse(m.current.decided.list) },
		"decided, first offsets do not rise": func(m *Manager) { m.current.decided.list[1].first = m.current.decided.list[0].first },
		"decided, markers do not rise":       func(m *Manager) { m.current.decided.list[1].marker = m.current.decided.list[0].marker },
		"decided beyond the end":             func(m *Manager) { m.current.decided.list[1].marker = m.current.next },
		"too many decided":                   func(m *Manager) { m.current.decided.list = slices.Repeat(m.current.decided.list, maxDecided) },
	} {
		other := observed(t, whole)
		change(other)
		refuse(what, other.Snapshot())
	}
	twice := bytes.Clone(body)
	at := len(snapshotMagic) + 1 + 3*8 + 1 + 4
	copy(twice[at+producerSize:at+2*producerSize], twice[at:])
	refuse("one producer twice", seal(twice))
	flag := bytes.Clone(body)
	flag[at-5] = 2
	refuse("a flag that is neither", seal(flag))
	if err := m.Restore(observed(t, whole).Snapshot()); err != nil {
		t.Error("the whole log's is refused:", err)
	}
	if err := m.Restore(snapshot); err != nil || !bytes.Equal(m.Snapshot(), snapshot) {
		t.Error("the undamaged one is refused:", err)
	}
}

// After Restore a truncation goes back to the snapshot's offset, or to the log's start.
func TestTruncateAfterRestore(t *testing.T) {
	l := history{{kind: data, base: 0, last: 4, id: 7}, {kind: data, base: 5, last: 5, id: 8}, {kind: data, base: 6, last: 6, id: 9}}
	old := New()
	old.RaiseStart(3)
	if err := old.Observe(l[:2].bytes()); err != nil {
		t.Fatal(err)
	}
	m := New()
	if err := m.Restore(old.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := m.Observe(l[2:].bytes()); err != nil {
		t.Fatal(err)
	}
	if at := m.TruncateTo(6); at != 6 || len(m.Producers()) != 2 {
		t.Errorf("at %d with %+v", at, m.Producers())
	}
	if at := m.TruncateTo(5); at != 3 || len(m.Producers()) != 0 {
		t.Errorf("at %d with %+v", at, m.Producers())
	}
}

// Points are bounded in number, and going back a little replays little.
func TestRestorePointsThinOut(t *testing.T) {
	const batches = 20000
	for _, back := range []int64{0, 1, 10, 100, 1000, 10000, batches} {
		m := New()
		m.pointEvery = 1
		for i := range int64(batches) {
			if err := m.Observe(entry{kind: data, base: i, last: i, id: 1}.bytes()); err != nil {
				t.Fatal(err)
			}
			if len(m.points) > maxPoints {
				t.Fatalf("%d points", len(m.points))
			}
		}
		at := m.TruncateTo(batches - back)
		if replay := batches - back - at; at < 0 || replay < 0 || replay > 8*back+8 {
			t.Errorf("back %d: at %d, %d to replay", back, at, replay)
		}
	}
}

// stream is n transactions of two producers, as one slice that can be moved to any offset.
func stream(n int) []byte {
	var l history
	for i := range int64(n) {
		id := i % 2
		l = append(l, entry{kind: transactional, base: 3 * i, last: 3*i + 1, id: id, sequence: int32(2 * i)}, entry{kind: commit, base: 3*i + 2, last: 3*i + 2, id: id})
	}
	return l.bytes()
}

// moveTo gives the batches new base offsets from offset on and returns the next one.
func moveTo(b []byte, offset int64) int64 {
	for h, raw := range batch.All(b) {
		batch.SetBaseOffset(raw, offset)
		offset += int64(h.LastOffsetDelta) + 1
	}
	return offset
}

func TestObserveAllocatesNothingPerBatch(t *testing.T) {
	const transactions = 64
	b := stream(transactions)
	m := New()
	m.pointEvery = 16
	var next int64
	observe := func() {
		next = moveTo(b, next)
		if err := m.Observe(b); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 { // points and their memory are made
		observe()
	}
	if n := testing.AllocsPerRun(100, observe); n > 0 {
		t.Fatalf("%v allocations for %d batches", n, 2*transactions)
	}
}

func BenchmarkObserve(b *testing.B) {
	const transactions = 512
	s := stream(transactions)
	m := New()
	var next int64
	b.ReportAllocs()
	for b.Loop() {
		next = moveTo(s, next)
		if err := m.Observe(s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*transactions), "ns/batch")
}

// TestWhoHasSomethingOpenAtTheLogsBeginningIsNotForgotten: offset 0 is an offset. Neither age nor a raised start takes a producer away whose transaction begins there.
func TestWhoHasSomethingOpenAtTheLogsBeginningIsNotForgotten(t *testing.T) {
	m := observed(t, history{{kind: transactional, base: 0, last: 4, id: 7, at: 1}, {kind: data, base: 5, last: 9, id: 8, at: 1}, {kind: transactional, base: 10, last: 14, id: 7, sequence: 5, at: 1}})
	m.Expire(1 << 40)
	m.RaiseStart(3) // inside the first batch
	m.RaiseStart(8)
	if got := m.Producers(); len(got) != 1 || got[0].ID != 7 || got[0].OpenSince != 0 {
		t.Errorf("producers %+v", got)
	}
	if got := m.InFlight(); len(got) != 1 || got[0].FirstOffset != 0 {
		t.Errorf("in flight %+v", got)
	}
}
