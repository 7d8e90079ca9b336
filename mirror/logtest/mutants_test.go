package logtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// recorder is a testing.TB that notes a failure where another would fail.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

func (r *recorder) Helper() {}
func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
func (r *recorder) say(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, s)
}
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Log(args ...any)              { r.say(fmt.Sprint(args...)) }
func (r *recorder) Logf(f string, args ...any)   { r.say(fmt.Sprintf(f, args...)) }
func (r *recorder) Error(args ...any)            { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(f string, args ...any) { r.Logf(f, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)            { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(f string, args ...any) { r.Logf(f, args...); r.FailNow() }

// record runs checks and returns what they noted.
func record(t testing.TB, run func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(r)
	}()
	<-done
	return r
}

// found expects the checks to fail.
func found(t *testing.T, run func(testing.TB)) {
	t.Helper()
	r := record(t, run)
	if !r.Failed() {
		t.Error("nothing was found")
	}
	t.Log(strings.Join(r.said, "\n"))
}

// mutant is a memlog log with a mistake in some methods.
type mutant struct {
	mirror.Log
	cluster  *memlog.Cluster
	append   func(m *mutant, ctx context.Context, epoch int32, b []byte) error
	read     func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error)
	cut      func(m *mutant, ctx context.Context, to int64) (int64, error)
	raise    func(m *mutant, ctx context.Context, to int64) error
	reset    func(m *mutant, ctx context.Context, to int64) error
	await    func(m *mutant, ctx context.Context, to int64) error
	awaitCut func(m *mutant, ctx context.Context) error
	open     func(m *mutant, ctx context.Context) error
	shut     func(m *mutant, ctx context.Context) error
	owner    func(m *mutant, ctx context.Context) (mirror.Ownership, int32, error)
	replica  func(m *mutant) int64
	end      func(m *mutant) int64
	lowest   func(m *mutant) int64
}

func (m *mutant) Append(ctx context.Context, epoch int32, b []byte) error {
	if m.append != nil {
		return m.append(m, ctx, epoch, b)
	}
	return m.Log.Append(ctx, epoch, b)
}
func (m *mutant) Read(ctx context.Context, from int64, max int) ([]byte, error) {
	if m.read != nil {
		return m.read(m, ctx, from, max)
	}
	return m.Log.Read(ctx, from, max)
}
func (m *mutant) TruncateTo(ctx context.Context, to int64) (int64, error) {
	if m.cut != nil {
		return m.cut(m, ctx, to)
	}
	return m.Log.TruncateTo(ctx, to)
}
func (m *mutant) RaiseStart(ctx context.Context, to int64) error {
	if m.raise != nil {
		return m.raise(m, ctx, to)
	}
	return m.Log.RaiseStart(ctx, to)
}
func (m *mutant) ResetTo(ctx context.Context, to int64) error {
	if m.reset != nil {
		return m.reset(m, ctx, to)
	}
	return m.Log.ResetTo(ctx, to)
}
func (m *mutant) AwaitReplicated(ctx context.Context, to int64) error {
	if m.await != nil {
		return m.await(m, ctx, to)
	}
	return m.Log.AwaitReplicated(ctx, to)
}
func (m *mutant) AwaitTruncated(ctx context.Context) error {
	if m.awaitCut != nil {
		return m.awaitCut(m, ctx)
	}
	return m.Log.AwaitTruncated(ctx)
}
func (m *mutant) Open(ctx context.Context) error {
	if m.open != nil {
		return m.open(m, ctx)
	}
	return m.Log.Open(ctx)
}
func (m *mutant) CloseForWrites(ctx context.Context) error {
	if m.shut != nil {
		return m.shut(m, ctx)
	}
	return m.Log.CloseForWrites(ctx)
}
func (m *mutant) Owner(ctx context.Context) (mirror.Ownership, int32, error) {
	if m.owner != nil {
		return m.owner(m, ctx)
	}
	return m.Log.Owner(ctx)
}
func (m *mutant) Replicated() int64 {
	if m.replica != nil {
		return m.replica(m)
	}
	return m.Log.Replicated()
}
func (m *mutant) End() int64 {
	if m.end != nil {
		return m.end(m)
	}
	return m.Log.End()
}

func (m *mutant) LowestCut() int64 {
	if m.lowest != nil {
		return m.lowest(m)
	}
	return m.Log.(mirror.CutBounder).LowestCut()
}

// as does something as if the log were ours when it has that owner, and says whether it had.
func (m *mutant) as(is mirror.Ownership, do func()) bool {
	ctx := context.Background()
	owner, _, err := m.Log.Owner(ctx)
	if err != nil || owner != is {
		do()
		return false
	}
	err = m.cluster.SetForeign("orders", 0, false) // ours, closed
	do()
	if is == mirror.OwnerOpen {
		err = errors.Join(err, m.Log.Open(ctx))
	} else {
		err = errors.Join(err, m.cluster.SetForeign("orders", 0, true))
	}
	if err != nil {
		panic(err)
	}
	return true
}

// raw replaces the log's content behind its back.
func (m *mutant) raw(change func([]byte) []byte) {
	b, err := m.cluster.RawLog("orders", 0)
	if err == nil {
		err = m.cluster.ImportLog("orders", 0, change(b), m.Log.Start(), m.Log.LeaderEpoch())
	}
	if err != nil {
		panic(err)
	}
}

var mutants = map[string]mutant{
	"does not say that it cannot be cut": {lowest: func(m *mutant) int64 { return 0 }},
	"says nothing when it is not cut in remote storage": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		end, err := m.Log.TruncateTo(ctx, to)
		if err != nil && to < m.LowestCut() {
			return m.Log.End(), nil
		}
		return end, err
	}},
	"is emptied, remote storage and all": {reset: func(m *mutant, ctx context.Context, to int64) error {
		if err := m.cluster.SetRemote("orders", 0, 0, 0); err != nil {
			return err
		}
		return m.Log.ResetTo(ctx, to)
	}},
	"takes batches below its end": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		err := m.Log.Append(ctx, epoch, b)
		if errors.Is(err, mirror.ErrOutOfOrder) {
			return nil
		}
		return err
	}},
	"appends the good part and says nothing": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		for _, whole := range mirror.Batches(b) {
			if err := m.Log.Append(ctx, epoch, whole); err != nil && !errors.Is(err, mirror.ErrOutOfOrder) {
				return err
			}
		}
		return nil
	}},
	"appends batches in another order": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		var some [][]byte
		for _, whole := range mirror.Batches(b) {
			some = append(some, whole)
		}
		slices.Reverse(some)
		if len(some) == 2 {
			b = slices.Concat(some...)
		}
		return m.Log.Append(ctx, epoch, b)
	}},
	"refuses gaps": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		for info := range mirror.Batches(b) {
			if info.Base > m.Log.End() {
				return mirror.ErrOutOfOrder
			}
			break
		}
		return m.Log.Append(ctx, epoch, b)
	}},
	"counts records": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		return m.Log.Append(ctx, epoch, b)
	}, end: func(m *mutant) int64 {
		end := m.Log.Start()
		b, _ := m.cluster.RawLog("orders", 0)
		for info := range mirror.Batches(b) {
			end = info.Base + int64(info.Records)
		}
		return end
	}},
	"stamps its leader epoch into batches": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		b = bytes.Clone(b)
		if len(b) > 16 {
			b[15]++
		}
		return m.Log.Append(ctx, epoch+0, b)
	}},
	"uses the caller's bytes as a buffer": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		err := m.Log.Append(ctx, epoch, bytes.Clone(b))
		clear(b)
		return err
	}},
	"drops the last batch of a chunk": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		n, count := 0, 0
		for _, whole := range mirror.Batches(b) {
			n = len(whole)
			count++
		}
		if count < 2 {
			n = 0
		}
		return m.Log.Append(ctx, epoch, b[:len(b)-n])
	}},
	"knows no exception for an empty log": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		for info := range mirror.Batches(b) {
			if info.Base < m.Log.End() {
				return mirror.ErrOutOfOrder
			}
			break
		}
		return m.Log.Append(ctx, epoch, b)
	}},
	"takes any leader epoch": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		return m.Log.Append(ctx, m.Log.LeaderEpoch(), b)
	}},
	"takes the mirror's batches while it is open": {append: func(m *mutant, ctx context.Context, epoch int32, b []byte) error {
		if owner, _, _ := m.Log.Owner(ctx); owner == mirror.OwnerOpen {
			m.Log.CloseForWrites(ctx)
			defer m.Log.Open(ctx)
		}
		return m.Log.Append(ctx, epoch, b)
	}},
	"is open from the beginning": {owner: func(m *mutant, ctx context.Context) (mirror.Ownership, int32, error) {
		if m.Log.End() == 0 {
			return mirror.OwnerOpen, m.Log.LeaderEpoch(), nil
		}
		return m.Log.Owner(ctx)
	}},
	"names another leader epoch as owner": {owner: func(m *mutant, ctx context.Context) (mirror.Ownership, int32, error) {
		owner, epoch, err := m.Log.Owner(ctx)
		return owner, epoch + 1, err
	}},
	"toggles the gate": {open: func(m *mutant, ctx context.Context) error {
		if owner, _, _ := m.Log.Owner(ctx); owner == mirror.OwnerOpen {
			return m.Log.CloseForWrites(ctx)
		}
		return m.Log.Open(ctx)
	}},
	"does not close": {shut: func(m *mutant, ctx context.Context) error { return nil }},
	"forgets its start when it closes": {shut: func(m *mutant, ctx context.Context) error {
		err := m.Log.CloseForWrites(ctx)
		if err == nil && m.Log.Start() > 0 {
			err = m.Log.ResetTo(ctx, m.Log.End())
		}
		return err
	}},
	"reads from the next batch on": {read: func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error) {
		b, err := m.Log.Read(ctx, from, max)
		for info, whole := range mirror.Batches(b) {
			if info.Base < from && info.Next() < m.Log.End() {
				return m.Log.Read(ctx, info.Next(), max)
			}
			_ = whole
			break
		}
		return b, err
	}},
	"cuts the last batch it reads": {read: func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error) {
		b, err := m.Log.Read(ctx, from, 1<<30)
		return b[:min(len(b), max)], err
	}},
	"returns nothing rather than too much": {read: func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error) {
		b, err := m.Log.Read(ctx, from, max)
		if len(b) > max {
			b = nil
		}
		return b, err
	}},
	"returns more than max": {read: func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error) {
		return m.Log.Read(ctx, from, max+200)
	}},
	"reads below its start": {read: func(m *mutant, ctx context.Context, from int64, most int) ([]byte, error) {
		return m.Log.Read(ctx, max(from, m.Log.Start()), most)
	}},
	"reads nothing beyond its end": {read: func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error) {
		return m.Log.Read(ctx, min(from, m.Log.End()), max)
	}},
	"fails to read at its end": {read: func(m *mutant, ctx context.Context, from int64, max int) ([]byte, error) {
		if from == m.Log.End() {
			return nil, mirror.ErrOffsetOutOfRange
		}
		return m.Log.Read(ctx, from, max)
	}},
	"cuts a batch in half": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		if to <= m.Log.Start() || to >= m.Log.End() {
			return m.Log.TruncateTo(ctx, to)
		}
		end, err := m.Log.TruncateTo(ctx, to)
		if err == nil && end < to { // the batch that partly lies above: its records below are kept
			m.raw(func(b []byte) []byte { return append(b, data(end, int32(to-end)).bytes...) })
			end = m.Log.End()
		}
		return end, err
	}},
	"keeps the batch that partly lies above": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		b, err := m.Log.Read(ctx, min(max(to, m.Log.Start()), m.Log.End()), 1)
		if err == nil {
			for info := range mirror.Batches(b) {
				if info.Base < to {
					to = info.Next()
				}
			}
		}
		return m.Log.TruncateTo(ctx, to)
	}},
	"returns the offset asked for as its end": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		_, err := m.Log.TruncateTo(ctx, to)
		return to, err
	}},
	"keeps its start when it is emptied": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		return m.Log.TruncateTo(ctx, max(to, m.Log.Start()))
	}},
	"loses one batch too many": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		if to < m.Log.End() {
			to = max(to-1, 0)
		}
		return m.Log.TruncateTo(ctx, to)
	}},
	"keeps its end at a reset": {reset: func(m *mutant, ctx context.Context, to int64) error {
		return m.Log.ResetTo(ctx, max(to, m.Log.End()))
	}},
	"drops the batch that contains the new start": {raise: func(m *mutant, ctx context.Context, to int64) error {
		err := m.Log.RaiseStart(ctx, to)
		start := m.Log.Start()
		m.raw(func(b []byte) []byte {
			for info, whole := range mirror.Batches(b) {
				if info.Base < start && len(whole) < len(b) {
					return b[len(whole):]
				}
				break
			}
			return b
		})
		return err
	}},
	"lowers its start": {raise: func(m *mutant, ctx context.Context, to int64) error {
		if to < m.Log.Start() && to >= 0 {
			b, _ := m.cluster.RawLog("orders", 0)
			return m.cluster.ImportLog("orders", 0, b, to, m.Log.LeaderEpoch())
		}
		return m.Log.RaiseStart(ctx, to)
	}},
	"raises its start above what is replicated": {raise: func(m *mutant, ctx context.Context, to int64) error {
		if to > m.Log.Replicated() && to < m.Log.End() {
			return m.Log.ResetTo(ctx, to)
		}
		return m.Log.RaiseStart(ctx, to)
	}},
	"claims more than is replicated": {replica: func(m *mutant) int64 { return m.Log.End() }},
	"claims more than there is":      {replica: func(m *mutant) int64 { return m.Log.Replicated() + 1 }},
	"does not wait for replicas":     {await: func(m *mutant, ctx context.Context, to int64) error { return nil }},
	"says that all is replicated when its context ends": {await: func(m *mutant, ctx context.Context, to int64) error {
		m.Log.AwaitReplicated(ctx, to)
		return nil
	}},
	"hides that its deadline passed": {await: func(m *mutant, ctx context.Context, to int64) error {
		if err := m.Log.AwaitReplicated(ctx, to); err != nil {
			return context.Canceled
		}
		return nil
	}},
	"hides why it stopped waiting": {await: func(m *mutant, ctx context.Context, to int64) error {
		if m.Log.AwaitReplicated(ctx, to) != nil {
			return errors.New("not replicated")
		}
		return nil
	}},
	"hides why it stopped waiting for truncated replicas": {awaitCut: func(m *mutant, ctx context.Context) error {
		if m.Log.AwaitTruncated(ctx) != nil {
			return errors.New("not truncated")
		}
		return nil
	}},
	"truncates an open log": {cut: func(m *mutant, ctx context.Context, to int64) (end int64, err error) {
		m.as(mirror.OwnerOpen, func() { end, err = m.Log.TruncateTo(ctx, to) })
		return end, err
	}},
	"resets an open log": {reset: func(m *mutant, ctx context.Context, to int64) (err error) {
		m.as(mirror.OwnerOpen, func() { err = m.Log.ResetTo(ctx, to) })
		return err
	}},
	"raises the start of an open log": {raise: func(m *mutant, ctx context.Context, to int64) (err error) {
		m.as(mirror.OwnerOpen, func() { err = m.Log.RaiseStart(ctx, to) })
		return err
	}},
	"truncates a foreign log": {cut: func(m *mutant, ctx context.Context, to int64) (end int64, err error) {
		m.as(mirror.OwnerForeign, func() { end, err = m.Log.TruncateTo(ctx, to) })
		return end, err
	}},
	"resets a foreign log": {reset: func(m *mutant, ctx context.Context, to int64) (err error) {
		m.as(mirror.OwnerForeign, func() { err = m.Log.ResetTo(ctx, to) })
		return err
	}},
	"raises the start of a foreign log": {raise: func(m *mutant, ctx context.Context, to int64) (err error) {
		m.as(mirror.OwnerForeign, func() { err = m.Log.RaiseStart(ctx, to) })
		return err
	}},
	"refuses to truncate an open log and does it": {cut: func(m *mutant, ctx context.Context, to int64) (end int64, err error) {
		if m.as(mirror.OwnerOpen, func() { end, err = m.Log.TruncateTo(ctx, to) }) {
			return 0, mirror.ErrFenced
		}
		return end, err
	}},
	"refuses to reset an open log and does it": {reset: func(m *mutant, ctx context.Context, to int64) (err error) {
		if m.as(mirror.OwnerOpen, func() { err = m.Log.ResetTo(ctx, to) }) {
			return mirror.ErrFenced
		}
		return err
	}},
	"refuses to raise the start of an open log and does it": {raise: func(m *mutant, ctx context.Context, to int64) (err error) {
		if m.as(mirror.OwnerOpen, func() { err = m.Log.RaiseStart(ctx, to) }) {
			return mirror.ErrFenced
		}
		return err
	}},
	"says nothing when it does not truncate an open log": {cut: func(m *mutant, ctx context.Context, to int64) (int64, error) {
		end, err := m.Log.TruncateTo(ctx, to)
		if errors.Is(err, mirror.ErrFenced) {
			return m.Log.End(), nil
		}
		return end, err
	}},
	"says nothing when it does not reset an open log": {reset: func(m *mutant, ctx context.Context, to int64) error {
		if err := m.Log.ResetTo(ctx, to); !errors.Is(err, mirror.ErrFenced) {
			return err
		}
		return nil
	}},
	"says nothing when it does not raise the start of an open log": {raise: func(m *mutant, ctx context.Context, to int64) error {
		if err := m.Log.RaiseStart(ctx, to); !errors.Is(err, mirror.ErrFenced) {
			return err
		}
		return nil
	}},
	"does not wait for truncated replicas": {awaitCut: func(m *mutant, ctx context.Context) error { return nil }},
}

// mutated makes mutants on a memlog with replicas that can be held.
func mutated(m mutant) Factory {
	return func(t testing.TB) Subject {
		m := m
		m.cluster = memlog.New(memlog.Config{Replicas: 2})
		tp := mirror.TopicPartition{Topic: "orders"}
		ctx := context.Background()
		if _, err := m.cluster.CreateTopic(ctx, mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		var err error
		if m.Log, err = m.cluster.OpenLog(ctx, tp); err != nil {
			t.Fatal(err)
		}
		return Subject{
			Log:                &m,
			HoldReplication:    func() { m.cluster.HoldReplica("orders", 0, 1) },
			ReleaseReplication: func() { m.cluster.ReleaseReplica("orders", 0, 1) },
			RaiseLeaderEpoch: func(ctx context.Context, epoch int32) error {
				_, err := m.cluster.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{tp: epoch})
				return err
			},
			SetForeign: func(foreign bool) error { return m.cluster.SetForeign("orders", 0, foreign) },
			SetRemote:  func(below int64) error { return m.cluster.SetRemote("orders", 0, below, 0) },
			Close:      m.cluster.Close,
		}
	}
}

// sentences runs every sentence and returns those that found something.
func sentences(t testing.TB, f Factory) (failed []string) {
	for _, c := range contract {
		r := record(t, func(t testing.TB) {
			s := f(t)
			defer closeSubject(t, s)
			c.run(t, s)
		})
		if r.Failed() {
			failed = append(failed, c.name)
		}
	}
	return failed
}

// TestKitFindsMutants: each wrong log breaks a sentence, and the unchanged one none.
func TestKitFindsMutants(t *testing.T) {
	if failed := sentences(t, mutated(mutant{})); len(failed) > 0 {
		t.Fatalf("the unchanged log breaks %q", failed)
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			failed := sentences(t, mutated(m))
			if len(failed) == 0 {
				t.Error("no sentence finds it")
			}
			t.Logf("found by %q", failed)
		})
	}
}

// TestModelFindsMutants: the model alone finds what has to do with offsets and bytes.
func TestModelFindsMutants(t *testing.T) {
	// One seed, and enough checks also with -short: that each is found must not hang on luck.
	for _, set := range [][2]string{{"rapid.nofailfile", "true"}, {"rapid.shrinktime", "0s"}, {"rapid.checks", "5000"}, {"rapid.seed", "1"}} {
		before := flag.Lookup(set[0]).Value.String()
		if err := flag.Set(set[0], set[1]); err != nil {
			t.Fatal(err)
		}
		defer flag.Set(set[0], before)
	}
	for _, name := range []string{
		"takes batches below its end", "appends the good part and says nothing", "appends batches in another order", "refuses gaps", "counts records",
		"drops the last batch of a chunk", "takes any leader epoch", "takes the mirror's batches while it is open", "is open from the beginning", "toggles the gate", "does not close",
		"reads from the next batch on", "cuts the last batch it reads", "returns nothing rather than too much", "returns more than max", "reads below its start",
		"reads nothing beyond its end", "fails to read at its end", "cuts a batch in half", "keeps the batch that partly lies above", "returns the offset asked for as its end",
		"keeps its start when it is emptied", "loses one batch too many", "keeps its end at a reset", "drops the batch that contains the new start", "claims more than there is",
		"truncates an open log", "resets an open log", "raises the start of an open log", "refuses to truncate an open log and does it", "refuses to reset an open log and does it",
		"refuses to raise the start of an open log and does it", "says nothing when it does not truncate an open log", "says nothing when it does not reset an open log",
		"says nothing when it does not raise the start of an open log",
	} {
		m, ok := mutants[name]
		if !ok {
			t.Errorf("there is no mutant that %s", name)
		}
		t.Run(name, func(t *testing.T) {
			found(t, func(t testing.TB) { checkModel(t, mutated(m)) })
		})
	}
}
