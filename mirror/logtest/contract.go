package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Subject is one log to check, and what the kit may do to it from outside. Only Log must be set; what depends on the others is checked where they are.
type Subject struct {
	Log mirror.Log
	// RaiseLeaderEpoch raises the log's leader epoch to at least epoch: Destination.RaiseLeaderEpochs.
	RaiseLeaderEpoch func(ctx context.Context, epoch int32) error
	// HoldReplication keeps Replicated where it is, and what waits for replicas waiting, until ReleaseReplication. Set both or neither.
	HoldReplication, ReleaseReplication func()
	// SetForeign gives the log to another process, or back to this one, closed.
	SetForeign func(foreign bool) error
	// SetRemote moves what lies below an offset into remote storage, for a log that has one (mirror.CutBounder).
	SetRemote func(below int64) error
	// Close frees what the log holds, when the kit is done with it.
	Close func() error
}

// Factory makes a new log: empty at offset 0, as after its creation. It fails t when it cannot.
type Factory func(t testing.TB) Subject

// patience is how long something may take that should be quick.
const patience = 30 * time.Second

// check is one sentence of the contract.
type check struct {
	name  string
	needs func(Subject) bool // nil: always
	run   func(t testing.TB, s Subject)
}

// Run checks a Log against its contract: one sub-test per sentence of the documentation of mirror.Log, and random operations beside a model (pgregory.net/rapid;
// its -rapid.checks and -rapid.seed apply). What a mirror.Recoverer says is compared with its batches in the same way. Run it with -race.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	probe := factory(t)
	closeSubject(t, probe)
	for _, c := range contract {
		if c.needs != nil && !c.needs(probe) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s := factory(t)
			defer closeSubject(t, s)
			c.run(t, s)
		})
	}
	t.Run("Model", func(t *testing.T) { checkModel(t, factory) })
	if _, ok := probe.Log.(mirror.Recoverer); ok {
		t.Run("Recovered", func(t *testing.T) { checkRecovered(t, factory) })
	}
}

func closeSubject(t testing.TB, s Subject) {
	if s.Close == nil {
		return
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing the log: %v", err)
	}
}

func canRaise(s Subject) bool  { return s.RaiseLeaderEpoch != nil }
func canLose(s Subject) bool   { return s.SetForeign != nil }
func hasRemote(s Subject) bool { return s.SetRemote != nil }
func canHold(s Subject) bool   { return s.HoldReplication != nil && s.ReleaseReplication != nil }

var contract = []check{
	{name: "Start == End: empty", run: func(t testing.TB, s Subject) {
		positions(t, s.Log, 0, 0)
		if s.Log.Replicated() != 0 {
			t.Errorf("Replicated of an empty log at 0 is %d", s.Log.Replicated())
		}
	}},
	{name: "The gate is closed by default", run: func(t testing.TB, s Subject) { owner(t, s.Log, mirror.OwnerOurs) }},
	{name: "End is where the next batch goes", run: func(t testing.TB, s Subject) {
		for i, b := range []made{data(0, 3), data(3, 1), hole(4, 2, 9), emptied(14, 4), control(19), compressed(20, 5)} {
			add(t, s.Log, b)
			if s.Log.End() != b.next {
				t.Fatalf("End after batch %d, %s, is %d: the header says that the next one goes to %d", i, b, s.Log.End(), b.next)
			}
		}
		positions(t, s.Log, 0, 25)
	}},
	{name: "Append adds one or more batches, bytes verbatim", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 3), data(3, 1), hole(4, 2, 9), emptied(14, 4), control(19), compressed(20, 5), transactional(25, 2)}
		add(t, s.Log, log[0])
		add(t, s.Log, log[1:4]...)
		add(t, s.Log, log[4:]...)
		content(t, s.Log, log)
	}},
	{name: "Nobody changes the bytes that were appended", run: func(t testing.TB, s Subject) {
		chunk := join(data(0, 2), data(2, 2))
		before := bytes.Clone(chunk)
		if err := s.Log.Append(bounded(t), s.Log.LeaderEpoch(), chunk); err != nil {
			t.Fatal(err)
		}
		read(t, s.Log, 1)
		if _, err := s.Log.TruncateTo(bounded(t), 2); err != nil {
			t.Fatal(err)
		}
		add(t, s.Log, other(2, 2))
		if !bytes.Equal(chunk, before) {
			t.Error("the log changed the bytes that it was given")
		}
	}},
	{name: "A base offset above End leaves a gap, which is legal", run: func(t testing.TB, s Subject) {
		log := []made{data(5, 2), data(10, 1), data(11, 1)}
		add(t, s.Log, log[0])
		add(t, s.Log, log[1:]...)
		positions(t, s.Log, 0, 12)
		content(t, s.Log, log)
	}},
	{name: "A base below End is ErrOutOfOrder", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5), data(5, 5)}
		add(t, s.Log, log...)
		for _, b := range []made{other(0, 5), other(9, 1), other(7, 9), other(3, 20)} {
			refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrOutOfOrder, b)
		}
		content(t, s.Log, log)
	}},
	{name: "After an error a prefix of whole batches is there", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5)}
		add(t, s.Log, log...)
		err := s.Log.Append(bounded(t), s.Log.LeaderEpoch(), join(data(5, 5), other(8, 4)))
		if !errors.Is(err, mirror.ErrOutOfOrder) {
			t.Errorf("a chunk whose second batch begins inside its first: error %v, not ErrOutOfOrder", err)
		}
		if s.Log.End() > 5 {
			log = append(log, data(5, 5))
		}
		content(t, s.Log, log)
		add(t, s.Log, data(s.Log.End(), 2))
	}},
	{name: "An empty log takes as its first batch the one that contains Start", run: func(t testing.TB, s Subject) {
		if err := s.Log.ResetTo(bounded(t), 5); err != nil {
			t.Fatal(err)
		}
		refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrOutOfOrder, data(0, 5))
		positions(t, s.Log, 5, 5)
		log := []made{data(0, 10), data(10, 10)}
		add(t, s.Log, log[0])
		positions(t, s.Log, 5, 10)
		refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrOutOfOrder, other(5, 10))
		add(t, s.Log, log[1])
		content(t, s.Log, log)

		if err := s.Log.ResetTo(bounded(t), 5); err != nil {
			t.Fatal(err)
		}
		log = []made{data(5, 1), data(6, 1)}
		add(t, s.Log, log...)
		content(t, s.Log, log)
	}},
	{name: "The exception is for the first batch of an empty log only", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 10), data(10, 10))
		replicated(t, s.Log, 20)
		if err := s.Log.RaiseStart(bounded(t), 15); err != nil {
			t.Fatal(err)
		}
		refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrOutOfOrder, other(10, 10))
		refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrOutOfOrder, other(14, 10))
		content(t, s.Log, []made{data(10, 10)})
	}},
	{name: "A leaderEpoch other than LeaderEpoch is ErrFenced", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 1))
		refuse(t, s.Log, s.Log.LeaderEpoch()+1, mirror.ErrFenced, data(1, 1))
		refuse(t, s.Log, s.Log.LeaderEpoch()-1, mirror.ErrFenced, data(1, 1))
		content(t, s.Log, []made{data(0, 1)})
	}},
	{name: "LeaderEpoch only grows, and the old one is ErrFenced", needs: canRaise, run: func(t testing.TB, s Subject) {
		old := s.Log.LeaderEpoch()
		if err := s.RaiseLeaderEpoch(bounded(t), old+7); err != nil {
			t.Fatal(err)
		}
		now := s.Log.LeaderEpoch()
		if now < old+7 {
			t.Fatalf("leader epoch is %d after it was raised to %d", now, old+7)
		}
		refuse(t, s.Log, old, mirror.ErrFenced, data(0, 1))
		if err := s.RaiseLeaderEpoch(bounded(t), old); err != nil {
			t.Fatal(err)
		}
		if s.Log.LeaderEpoch() < now {
			t.Fatalf("leader epoch fell from %d to %d", now, s.Log.LeaderEpoch())
		}
		add(t, s.Log, data(0, 1))
		owner(t, s.Log, mirror.OwnerOurs)
	}},
	{name: "An open log is ErrFenced for the mirror", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 1))
		openLog(t, s.Log)
		refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrFenced, data(1, 1))
		content(t, s.Log, []made{data(0, 1)})
	}},
	{name: "A foreign log is ErrFenced for the mirror", needs: canLose, run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 1))
		foreign(t, s, true)
		owner(t, s.Log, mirror.OwnerForeign)
		refuse(t, s.Log, s.Log.LeaderEpoch(), mirror.ErrFenced, data(1, 1))
		foreign(t, s, false)
		owner(t, s.Log, mirror.OwnerOurs)
		content(t, s.Log, []made{data(0, 1)})
	}},
	{name: "TruncateTo on an open log is ErrFenced, and nothing changes", run: func(t testing.TB, s Subject) { leaves(t, s, false, truncations) }},
	{name: "ResetTo on an open log is ErrFenced, and nothing changes", run: func(t testing.TB, s Subject) { leaves(t, s, false, resets) }},
	{name: "RaiseStart on an open log is ErrFenced, and nothing changes", run: func(t testing.TB, s Subject) { leaves(t, s, false, raises) }},
	{name: "TruncateTo on a foreign log is ErrFenced, and nothing changes", needs: canLose, run: func(t testing.TB, s Subject) { leaves(t, s, true, truncations) }},
	{name: "ResetTo on a foreign log is ErrFenced, and nothing changes", needs: canLose, run: func(t testing.TB, s Subject) { leaves(t, s, true, resets) }},
	{name: "RaiseStart on a foreign log is ErrFenced, and nothing changes", needs: canLose, run: func(t testing.TB, s Subject) { leaves(t, s, true, raises) }},
	{name: "Open lets clients write, idempotent", run: func(t testing.TB, s Subject) {
		openLog(t, s.Log)
		owner(t, s.Log, mirror.OwnerOpen)
		openLog(t, s.Log)
		owner(t, s.Log, mirror.OwnerOpen)
	}},
	{name: "CloseForWrites shuts the gate, idempotent", run: func(t testing.TB, s Subject) {
		closeLog(t, s.Log)
		owner(t, s.Log, mirror.OwnerOurs)
		openLog(t, s.Log)
		closeLog(t, s.Log)
		owner(t, s.Log, mirror.OwnerOurs)
		closeLog(t, s.Log)
		owner(t, s.Log, mirror.OwnerOurs)
		add(t, s.Log, data(0, 1))
		content(t, s.Log, []made{data(0, 1)})
	}},
	{name: "Opening and closing change nothing else", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 10), data(10, 10)}
		add(t, s.Log, log...)
		replicated(t, s.Log, 20)
		if err := s.Log.RaiseStart(bounded(t), 5); err != nil {
			t.Fatal(err)
		}
		openLog(t, s.Log)
		positions(t, s.Log, 5, 20)
		closeLog(t, s.Log)
		positions(t, s.Log, 5, 20)
		content(t, s.Log, log)
	}},
	{name: "Read begins with the batch that contains from", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 3), data(3, 4), data(7, 1)}
		add(t, s.Log, log...)
		for from, first := range []int{0, 0, 0, 1, 1, 1, 1, 2} {
			same(t, fmt.Sprintf("read at %d", from), read(t, s.Log, int64(from)), join(log[first:]...))
		}
	}},
	{name: "Read in a gap begins with the first batch after it", run: func(t testing.TB, s Subject) {
		log := []made{data(2, 2), data(8, 2)}
		add(t, s.Log, log...)
		for from, first := range []int{0, 0, 0, 0, 1, 1, 1, 1, 1, 1} {
			same(t, fmt.Sprintf("read at %d", from), read(t, s.Log, int64(from)), join(log[first:]...))
		}
	}},
	{name: "Read returns at most max bytes but at least one batch", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 2), data(2, 2), data(4, 2), data(6, 2)}
		add(t, s.Log, log[:2]...)
		add(t, s.Log, log[2:]...)
		size := func(n int) int { return len(join(log[:n]...)) }
		for _, c := range []struct{ max, batches int }{
			{1, 1}, {size(1) - 1, 1}, {size(1), 1}, {size(2) - 1, 1}, {size(2), 2}, {size(3) - 1, 2}, {size(3), 3}, {size(4) - 1, 3}, {size(4), 4}, {1 << 20, 4},
		} {
			b, err := s.Log.Read(bounded(t), 0, c.max)
			if err != nil {
				t.Fatal(err)
			}
			same(t, fmt.Sprintf("read of at most %d bytes", c.max), b, join(log[:c.batches]...))
		}
	}},
	{name: "Read at End is nothing", run: func(t testing.TB, s Subject) {
		same(t, "read of an empty log", read(t, s.Log, 0), nil)
		add(t, s.Log, data(0, 3))
		same(t, "read at End", read(t, s.Log, 3), nil)
	}},
	{name: "Read outside Start to End is ErrOffsetOutOfRange", run: func(t testing.TB, s Subject) {
		if err := s.Log.ResetTo(bounded(t), 10); err != nil {
			t.Fatal(err)
		}
		outside(t, s.Log, 9, 11, 0)
		add(t, s.Log, data(8, 5))
		outside(t, s.Log, 8, 9, 14, -1, 0)
		same(t, "read at Start", read(t, s.Log, 10), data(8, 5).bytes)
	}},
	{name: "What was read stays valid", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 3), data(3, 3)}
		add(t, s.Log, log...)
		got := read(t, s.Log, 0)
		if _, err := s.Log.TruncateTo(bounded(t), 3); err != nil {
			t.Fatal(err)
		}
		add(t, s.Log, other(3, 3), other(6, 3))
		same(t, "what was read before the cut", got, join(log...))
		if err := s.Log.ResetTo(bounded(t), 0); err != nil {
			t.Fatal(err)
		}
		add(t, s.Log, other(0, 3))
		same(t, "what was read before the reset", got, join(log...))
	}},
	{name: "TruncateTo drops every batch that holds an offset at or above offset", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5), data(5, 5), data(10, 5)}
		add(t, s.Log, log...)
		truncate(t, s.Log, 10, 10, 10)
		content(t, s.Log, log[:2])
		add(t, s.Log, other(10, 2))
		content(t, s.Log, []made{log[0], log[1], other(10, 2)})
		truncate(t, s.Log, 5, 5, 5)
		content(t, s.Log, log[:1])
	}},
	{name: "TruncateTo inside a batch drops it whole", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5), data(5, 5), data(10, 5)}
		add(t, s.Log, log...)
		truncate(t, s.Log, 14, 10, 10)
		content(t, s.Log, log[:2])
		truncate(t, s.Log, 6, 5, 5)
		content(t, s.Log, log[:1])
		add(t, s.Log, other(5, 5))
		content(t, s.Log, []made{log[0], other(5, 5)})
	}},
	{name: "TruncateTo counts the last offset of the header, not records", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 2), hole(2, 2, 9), data(12, 1))
		truncate(t, s.Log, 11, 2, 2) // the second batch holds 2 to 11, though only two records
		content(t, s.Log, []made{data(0, 2)})
	}},
	{name: "TruncateTo in a gap", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 2), data(8, 2))
		truncate(t, s.Log, 5, 2, 5)
		content(t, s.Log, []made{data(0, 2)})
		add(t, s.Log, other(s.Log.End(), 1))
	}},
	{name: "TruncateTo at or above End changes nothing", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5), data(5, 5)}
		add(t, s.Log, log...)
		truncate(t, s.Log, 10, 10, 10)
		truncate(t, s.Log, 1000, 10, 10)
		content(t, s.Log, log)
	}},
	{name: "TruncateTo at or below Start empties the log", run: func(t testing.TB, s Subject) {
		for _, to := range []int64{12, 7, 0} {
			if err := s.Log.ResetTo(bounded(t), 12); err != nil {
				t.Fatal(err)
			}
			add(t, s.Log, data(10, 5), data(15, 5))
			truncate(t, s.Log, to, to, to)
			positions(t, s.Log, to, to)
			same(t, "read of the emptied log", read(t, s.Log, to), nil)
			add(t, s.Log, other(to, 3))
			content(t, s.Log, []made{other(to, 3)})
		}
	}},
	{name: "TruncateTo above Start, inside the first batch", run: func(t testing.TB, s Subject) {
		if err := s.Log.ResetTo(bounded(t), 5); err != nil {
			t.Fatal(err)
		}
		add(t, s.Log, data(0, 10))
		end, err := s.Log.TruncateTo(bounded(t), 7)
		if err != nil {
			t.Fatal(err)
		}
		if end != s.Log.End() || end > 5 || s.Log.Start() != end {
			t.Fatalf("the only batch, 0–9, was cut at 7 with Start 5: the log is [%d, %d], TruncateTo said %d; it should be empty at 5 or below", s.Log.Start(), s.Log.End(), end)
		}
		add(t, s.Log, other(0, 10))
		content(t, s.Log, []made{other(0, 10)})
	}},
	{name: "Replicated falls with a cut", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5), data(5, 5))
		replicated(t, s.Log, 10)
		truncate(t, s.Log, 5, 5, 5)
		if s.Log.Replicated() > 5 {
			t.Errorf("Replicated is %d in a log that was cut at 5", s.Log.Replicated())
		}
		add(t, s.Log, other(5, 5))
		replicated(t, s.Log, 10)
	}},
	{name: "ResetTo drops everything", run: func(t testing.TB, s Subject) {
		for _, to := range []int64{100, 3, 3, 0, 1 << 40} {
			add(t, s.Log, other(s.Log.End(), 4))
			if err := s.Log.ResetTo(bounded(t), to); err != nil {
				t.Fatal(err)
			}
			positions(t, s.Log, to, to)
			if s.Log.Replicated() != to {
				t.Errorf("Replicated is %d after a reset to %d", s.Log.Replicated(), to)
			}
			add(t, s.Log, data(to, 2))
			content(t, s.Log, []made{data(to, 2)})
		}
	}},
	{name: "RaiseStart moves Start up and keeps the batch that contains it", run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5), data(5, 5), data(10, 5)}
		add(t, s.Log, log...)
		replicated(t, s.Log, 15)
		for _, to := range []int64{2, 5, 9, 10, 14} {
			if err := s.Log.RaiseStart(bounded(t), to); err != nil {
				t.Fatal(err)
			}
			positions(t, s.Log, to, 15)
			outside(t, s.Log, to-1)
			content(t, s.Log, log[to/5:])
		}
		if err := s.Log.RaiseStart(bounded(t), 15); err != nil {
			t.Fatal(err)
		}
		positions(t, s.Log, 15, 15)
		add(t, s.Log, data(15, 1))
		content(t, s.Log, []made{data(15, 1)})
	}},
	{name: "RaiseStart lower than Start does nothing", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5), data(5, 5))
		replicated(t, s.Log, 10)
		for _, to := range []int64{7, 7, 6, 0, -1} {
			if err := s.Log.RaiseStart(bounded(t), to); err != nil {
				t.Fatal(err)
			}
			positions(t, s.Log, 7, 10)
		}
		content(t, s.Log, []made{data(5, 5)})
	}},
	{name: "RaiseStart never goes above Replicated", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5), data(5, 5))
		replicated(t, s.Log, 10)
		if err := s.Log.RaiseStart(bounded(t), 1000); err != nil {
			t.Fatal(err)
		}
		positions(t, s.Log, s.Log.Start(), 10)
	}},
	{name: "RaiseStart never goes above Replicated that is held back", needs: canHold, run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5))
		replicated(t, s.Log, 5)
		s.HoldReplication()
		defer s.ReleaseReplication()
		add(t, s.Log, data(5, 5))
		if err := s.Log.RaiseStart(bounded(t), 8); err != nil {
			t.Fatal(err)
		}
		positions(t, s.Log, s.Log.Start(), 10)
		if s.Log.Start() > 5 {
			t.Errorf("Start is %d, above what is replicated, 5", s.Log.Start())
		}
	}},
	{name: "AwaitReplicated waits until Replicated ≥ offset", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5), data(5, 5))
		replicated(t, s.Log, 0)
		replicated(t, s.Log, 7)
		replicated(t, s.Log, 10)
	}},
	{name: "AwaitReplicated waits while replication is held", needs: canHold, run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5))
		replicated(t, s.Log, 5)
		s.HoldReplication()
		add(t, s.Log, data(5, 5))
		if s.Log.Replicated() > 5 {
			t.Errorf("Replicated is %d while replication is held at 5", s.Log.Replicated())
		}
		done := make(chan error, 1)
		ctx := bounded(t)
		go func() { done <- s.Log.AwaitReplicated(ctx, 10) }()
		replicated(t, s.Log, 5)
		select {
		case err := <-done:
			t.Errorf("AwaitReplicated(10) returned %v with Replicated %d", err, s.Log.Replicated())
		default:
		}
		s.ReleaseReplication()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("AwaitReplicated does not return after replication went on")
		}
		if s.Log.Replicated() < 10 {
			t.Errorf("AwaitReplicated(10) returned with Replicated %d", s.Log.Replicated())
		}
	}},
	{name: "AwaitReplicated returns when its context ends", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5))
		ends(t, func(ctx context.Context) error { return s.Log.AwaitReplicated(ctx, 6) })
	}},
	{name: "AwaitReplicated says that its context's deadline passed", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5))
		ctx, cancel := context.WithTimeout(bounded(t), 10*time.Millisecond)
		defer cancel()
		if err := s.Log.AwaitReplicated(ctx, 6); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AwaitReplicated returned %v when its context's deadline passed, not context.DeadlineExceeded", err)
		}
	}},
	{name: "AwaitTruncated waits until every replica has followed", needs: canHold, run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5), data(5, 5))
		replicated(t, s.Log, 10)
		s.HoldReplication()
		truncate(t, s.Log, 5, 5, 5)
		ends(t, s.Log.AwaitTruncated)
		s.ReleaseReplication()
		if err := s.Log.AwaitTruncated(bounded(t)); err != nil {
			t.Error(err)
		}
		s.HoldReplication()
		if err := s.Log.ResetTo(bounded(t), 0); err != nil {
			t.Fatal(err)
		}
		ends(t, s.Log.AwaitTruncated)
		s.ReleaseReplication()
		if err := s.Log.AwaitTruncated(bounded(t)); err != nil {
			t.Error(err)
		}
	}},
	{name: "Nothing is cut in remote storage, and LowestCut says where that ends", needs: hasRemote, run: func(t testing.TB, s Subject) {
		log := []made{data(0, 5), data(5, 5), data(10, 5)}
		add(t, s.Log, log...)
		replicated(t, s.Log, 15)
		b, ok := s.Log.(mirror.CutBounder)
		if !ok {
			t.Fatal("the log has remote storage and is no mirror.CutBounder")
		}
		if at := b.LowestCut(); at > s.Log.Start() {
			t.Errorf("nothing is in remote storage, and LowestCut is %d in a log that starts at %d", at, s.Log.Start())
		}
		if err := s.SetRemote(10); err != nil {
			t.Fatal(err)
		}
		if at := b.LowestCut(); at != 10 {
			t.Errorf("what lies below 10 is in remote storage, and LowestCut is %d", at)
		}
		for _, to := range []int64{9, 5, 0} {
			if end, err := s.Log.TruncateTo(bounded(t), to); err == nil {
				t.Errorf("truncation to %d gave %d and no error", to, end)
			}
		}
		if err := s.Log.ResetTo(bounded(t), 20); err == nil {
			t.Error("a reset gave no error")
		}
		positions(t, s.Log, 0, 15)
		content(t, s.Log, log)
		truncate(t, s.Log, 10, 10, 10)
		content(t, s.Log, log[:2])
		if err := s.Log.RaiseStart(bounded(t), 10); err != nil { // this is how it leaves the log
			t.Fatal(err)
		}
		if err := s.Log.ResetTo(bounded(t), 0); err != nil {
			t.Errorf("a reset when nothing is left in remote storage: %v", err)
		}
	}},
	{name: "AwaitTruncated returns when there is nothing to wait for", run: func(t testing.TB, s Subject) {
		if err := s.Log.AwaitTruncated(bounded(t)); err != nil {
			t.Error(err)
		}
		add(t, s.Log, data(0, 5))
		truncate(t, s.Log, 0, 0, 0)
		if err := s.Log.AwaitTruncated(bounded(t)); err != nil {
			t.Error(err)
		}
	}},
	{name: "Every method with a context returns when it ends", run: func(t testing.TB, s Subject) {
		add(t, s.Log, data(0, 5))
		ctx, cancel := context.WithCancel(bounded(t))
		cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Log.AwaitReplicated(ctx, 100)
			s.Log.AwaitTruncated(ctx)
			s.Log.Read(ctx, 0, 100)
			s.Log.Owner(ctx)
			s.Log.Append(ctx, s.Log.LeaderEpoch(), data(5, 1).bytes)
			s.Log.RaiseStart(ctx, 1)
			s.Log.CloseForWrites(ctx)
			s.Log.TruncateTo(ctx, 3)
			s.Log.ResetTo(ctx, 3)
			s.Log.Open(ctx)
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("a method does not return though its context has ended")
		}
	}},
	{name: "Methods may be called concurrently", run: checkConcurrency},
}
