package model

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	a  = At{"A", "orders", 0}
	b  = At{"B", "orders", 0}
	ab = Of{"a-to-b", b}
	ba = Of{"b-to-a", a}
)

// tale is a world with a source A, which clients write, and a copy of it in B.
type tale struct {
	*World
	epochs map[Of]Record
}

func begin() *tale {
	t := &tale{New(), map[Of]Record{}}
	t.Created(a, 0, 1, true)
	t.Created(b, 0, 1, false)
	t.Follows(ab, a)
	t.Runs(ab, "one")
	t.Wished(ab, WantMirroring)
	return t
}

// data is a batch of n records.
func data(base int64, n int64, epoch int32) Batch {
	return Batch{Base: base, Last: base + n - 1, LeaderEpoch: epoch, ProducerID: -1, Bytes: uint64(base)<<20 | uint64(n)<<8 | uint64(epoch)<<40}
}

func inTransaction(base, n int64, epoch int32, producer int64) Batch {
	d := data(base, n, epoch)
	d.Transactional, d.ProducerID, d.ProducerEpoch, d.Bytes = true, producer, 3, d.Bytes|1
	return d
}

func marker(base int64, epoch int32, kind Kind, producer int64) Batch {
	d := data(base, 1, epoch)
	d.Kind, d.ProducerID, d.ProducerEpoch, d.Transactional, d.Bytes = kind, producer, 3, kind != Reset, d.Bytes|uint64(kind)<<1
	if kind == Reset {
		d.ProducerEpoch = -1
	}
	return d
}

// goes stores a state, with everything beside it as it has to be.
func (t *tale) goes(of Of, state int8, change ...func(*Record)) {
	r, old := t.epochs[of], t.epochs[of]
	if old.StateEpoch == 0 {
		old.State = unknown
	}
	r.State, r.StateEpoch = state, old.StateEpoch+1
	switch {
	case state == failed && old.State != failed:
		r.Attempt, r.Message, r.Previous = 1, "broken", old.State
	case state == preparing && (old.State == unknown || old.State == stopped):
		r.Episode++
	case state != failed:
		r.Attempt, r.Message = 0, ""
	}
	for _, c := range change {
		c(&r)
	}
	t.epochs[of] = r
	t.Stored(of, r)
}

// wrote appends to the source as a client does.
func (t *tale) wrote(at At, batches ...Batch) {
	t.Appended(at, Clients, "c", batches, true)
	t.Replicated(at, batches[len(batches)-1].Last+1)
}

// copied appends to a copy as its mirror does.
func (t *tale) copied(at At, batches ...Batch) {
	t.Appended(at, Mirror, "one", batches, true)
	t.Replicated(at, batches[len(batches)-1].Last+1)
}

// mirrors brings the copy to MIRRORING with three batches of the source.
func (t *tale) mirrors() {
	t.wrote(a, data(0, 2, 1), data(2, 2, 1), data(4, 2, 1))
	t.goes(ab, preparing)
	t.goes(ab, mirroring)
	t.copied(b, data(0, 2, 1), data(2, 2, 1), data(4, 2, 1))
}

// stops brings it to the moment before the markers.
func (t *tale) stops() {
	t.Wished(ab, WantStopped)
	t.goes(ab, stopping)
	t.StoredEnd(ab, End{LME: t.log(b).latest(), LMO: t.log(b).end, Episode: t.epochs[ab].Episode, SourceCluster: "A"})
	t.EpochRaised(b, Mirror, "one", t.log(b).epoch+1)
}

func (t *tale) resets() { t.copied(b, marker(t.log(b).end, t.log(b).epoch, Reset, -1)) }

// fails over: the copy in B is STOPPED and open, with one record of its own.
func (t *tale) failsOver() {
	t.mirrors()
	t.stops()
	t.resets()
	t.Settled("B", 1000)
	t.Gate(b, Mirror, "one", true)
	t.goes(ab, stopped)
	t.wrote(b, data(7, 1, 2))
}

// returns makes A, which has two records more than it had given, a mirror of B.
func (t *tale) returns() {
	t.failsOver()
	t.wrote(a, data(6, 2, 1))
	t.Follows(ba, b)
	t.Runs(ba, "one")
	t.Wished(ba, WantMirroring)
}

// Runs is World's, with a source that named a leader epoch above all.
func (t *tale) Runs(of Of, process string) {
	t.World.Runs(of, process)
	t.Named(of, 99)
}

// Appended is World's, of what was served.
func (t *tale) Appended(at At, who Who, by string, batches []Batch, accepted bool) {
	if m := t.acting(at); who == Mirror && m != nil {
		t.Served(m.of, batches)
	}
	t.World.Appended(at, who, by, batches, accepted)
}

// Cut is World's, on the proof that it takes, and every replica follows.
func (t *tale) Cut(at At, who Who, by string, end int64) {
	t.cuts(at, who, by, end)
	t.Followed(at)
}

// cuts is Cut before every replica has followed.
func (t *tale) cuts(at At, who Who, by string, end int64) {
	if m := t.acting(at); who == Mirror && m != nil {
		for range 2 {
			t.Looked(m.of, 99, 0)
			t.Answered(m.of, t.log(at).latest(), end)
		}
	}
	t.World.Cut(at, who, by, end)
}

// Restarted is World's, after two looks at the source.
func (t *tale) Restarted(at At, who Who, by string, start int64) {
	if m := t.acting(at); who == Mirror && m != nil {
		t.Looked(m.of, 99, start)
		t.Looked(m.of, 99, start)
	}
	t.World.Restarted(at, who, by, start)
	t.Followed(at)
}

func person(r *Record) { r.Attempt = -1 }

// rule stories: with wrong the rule must be the first to speak, without it no rule may.
var ruleStories = []struct {
	rule string
	tell func(t *tale, wrong bool)
}{
	{"cut proof", func(t *tale, wrong bool) { // F-26: one look is not enough
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		for range pick(wrong, 1, 2) {
			t.Looked(ab, 7, 0)
			t.Answered(ab, 1, 4)
		}
		t.World.Cut(b, Mirror, "one", 4)
		t.Told(ab, "dropped", 4, 6)
	}},
	{"cut proof", func(t *tale, wrong bool) { // F-40: no answer proves nothing
		t.mirrors()
		t.Cut(a, Cluster, "", 0)
		for range 2 {
			t.Looked(ab, 7, 0)
			t.Answered(ab, pick[int32](wrong, -1, 0), pick[int64](wrong, -1, 0))
		}
		t.World.Cut(b, Mirror, "one", 0)
		t.Told(ab, "dropped", 0, 6)
	}},
	{"cut proof", func(t *tale, wrong bool) { // F-41: the end of the epoch that is being written only grows
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		t.World.Runs(ab, "one")
		t.Named(ab, pick[int32](wrong, 1, 2))
		for range 2 {
			t.Looked(ab, 1, 0)
			t.Answered(ab, 1, 4)
		}
		t.cuts(b, Mirror, "one", 4)
		t.Told(ab, "dropped", 4, 6)
	}},
	{"cut proof", func(t *tale, wrong bool) { // F-36: of an epoch that the copy lacks one more question is to be asked
		t.wrote(a, data(0, 2, 1))
		t.EpochRaised(a, Cluster, "", 4)
		t.wrote(a, data(2, 2, 4))
		t.EpochRaised(b, Cluster, "", 4)
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.copied(b, data(0, 2, 1), data(2, 2, 4))
		t.Cut(a, Cluster, "", 2)
		for range 2 {
			t.Looked(ab, 5, 0)
			t.Answered(ab, pick[int32](wrong, 3, 1), 2)
		}
		t.World.Cut(b, Mirror, "one", 2)
		t.Told(ab, "dropped", 2, 4)
	}},
	{"cut proof", func(t *tale, wrong bool) { // what the copy's start has passed is compared no more
		t.wrote(a, data(0, 2, 1))
		t.EpochRaised(a, Cluster, "", 4)
		t.wrote(a, data(2, 2, 4))
		t.EpochRaised(b, Cluster, "", 4)
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.copied(b, data(0, 2, 1), data(2, 2, 4))
		t.StartRaised(a, Cluster, "", 2)
		if !wrong {
			t.StartRaised(b, Mirror, "one", 2)
		}
		t.Cut(a, Cluster, "", 2)
		for range 2 {
			t.Looked(ab, 5, 2)
			t.Answered(ab, 3, 2)
		}
		t.World.Cut(b, Mirror, "one", 2)
		t.Told(ab, "dropped", 2, 4)
	}},
	{"cut proof", func(t *tale, wrong bool) { // nothing below the common point goes
		t.mirrors()
		t.Cut(a, Cluster, "", 2)
		for range 2 {
			t.Looked(ab, 5, 0)
			t.Answered(ab, 1, pick[int64](wrong, 4, 2))
		}
		t.World.Cut(b, Mirror, "one", 2)
		t.Told(ab, "dropped", 2, 6)
	}},
	{"seen twice", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 2, 1))
		t.StartRaised(a, Cluster, "", 7)
		t.Looked(ab, 5, 7)
		t.Looked(ab, 4, 0) // at a leader that was deposed
		if !wrong {
			t.Looked(ab, 5, 7)
		}
		t.Told(ab, "lost", 6, 7)
		t.World.Restarted(b, Mirror, "one", 7)
	}},
	{"newer epoch", func(t *tale, wrong bool) {
		t.mirrors()
		t.EpochRaised(a, Cluster, "", 3)
		t.EpochRaised(b, Cluster, "", 9)
		t.wrote(a, data(6, 1, 3))
		t.World.Runs(ab, "one")
		t.Named(ab, pick[int32](wrong, 2, 3))
		t.copied(b, data(6, 1, 3))
	}},
	{"newer epoch", func(t *tale, wrong bool) { // a source that names none
		t.mirrors()
		t.World.Runs(ab, "one")
		if !wrong {
			t.Named(ab, -1)
		}
		t.wrote(a, data(6, 1, 1))
		t.copied(b, data(6, 1, 1))
	}},
	{"stale reply", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Asked(ab, "fetch")
		t.Served(ab, []Batch{data(6, 1, 1)})
		if wrong {
			t.Asked(ab, "fetch")
		}
		t.World.Appended(b, Mirror, "one", []Batch{data(6, 1, 1)}, true)
	}},
	{"recreated", func(t *tale, wrong bool) { // a copy of ours in a topic of the old one's name is another topic all the same
		t.mirrors()
		late := data(6, 1, 1)
		t.wrote(a, late)
		t.Deleted(a)
		t.Created(a, 0, 1, true)
		t.copied(b, late) // was on its way
		t.wrote(a, data(0, 2, 1), data(2, 2, 1), data(4, 2, 1), late, data(7, 1, 1))
		if !wrong {
			t.Consented(ab, 0, 7, 1)
			t.Restarted(b, Mirror, "one", 0)
			t.Told(ab, "dropped", 0, 7)
			t.copied(b, data(0, 2, 1), data(2, 2, 1), data(4, 2, 1), late)
		}
		t.copied(b, data(7, 1, 1))
	}},
	{"recreated", func(t *tale, wrong bool) { // what was lost of the old topic's copy binds nobody
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.wrote(a, data(0, 2, 1))
		t.Appended(b, Mirror, "one", []Batch{data(0, 2, 1)}, true)
		t.Deleted(a)
		t.Created(a, 2, 1, true)
		if !wrong {
			t.World.Cut(b, Cluster, "", 0)
			t.Appended(b, Cluster, "", []Batch{data(0, 2, 1)}, true)
		}
		t.wrote(a, data(2, 2, 1))
		t.copied(b, data(2, 2, 1))
	}},
	{"order", func(t *tale, wrong bool) {
		t.wrote(a, data(0, 2, 1))
		t.wrote(a, data(pick(wrong, int64(1), 2), 2, 1))
	}},
	{"epoch fence", func(t *tale, wrong bool) {
		t.mirrors()
		t.EpochRaised(a, Cluster, "", 3)
		t.wrote(a, data(6, 1, 3))
		if !wrong {
			t.EpochRaised(b, Mirror, "one", 4)
		}
		t.copied(b, data(6, 1, 3))
	}},
	{"epoch fence", func(t *tale, wrong bool) { t.EpochRaised(a, Cluster, "", int32(pick(wrong, 0, 2))) }},
	{"closed gate", func(t *tale, wrong bool) {
		if wrong {
			t.wrote(b, data(0, 1, 1))
		} else {
			t.wrote(a, data(0, 1, 1))
		}
	}},
	{"above the end", func(t *tale, wrong bool) {
		t.EpochRaised(b, Cluster, "", 5)
		t.EpochRaised(a, Cluster, "", 5)
		t.wrote(a, data(0, 1, 5))
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.copied(b, data(0, 1, 5))
		t.stops()
		t.resets()
		t.Settled("B", 1)
		t.Gate(b, Mirror, "one", true)
		t.goes(ab, stopped)
		if wrong { // the epoch of a record that came after a copy cannot be that of LME
			t.World.log(b).batches[1].LeaderEpoch, t.World.log(b).epoch = 5, 5
			t.World.log(b).alive[1].LeaderEpoch = 5
		}
		t.wrote(b, data(2, 1, int32(pick(wrong, 5, 6))))
	}},
	{"log matching", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		t.copied(b, data(6, pick(wrong, int64(2), 1), 1))
	}},
	{"log matching", func(t *tale, wrong bool) { // the source lost the log's end, and the copy goes on without looking
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		t.EpochRaised(a, Cluster, "", 2)
		t.wrote(a, data(4, 1, 2), data(5, 1, 2), data(6, 1, 2))
		t.EpochRaised(b, Mirror, "one", 3)
		if wrong {
			t.copied(b, data(6, 1, 2))
		} else {
			t.Cut(b, Mirror, "one", 4)
			t.copied(b, data(4, 1, 2), data(5, 1, 2), data(6, 1, 2))
		}
	}},
	{"log matching", func(t *tale, wrong bool) { // a topic that was made again is another one
		t.mirrors()
		if wrong {
			t.Deleted(a)
			t.Created(a, 0, 1, true)
			t.wrote(a, data(0, 6, 1))
		}
		t.wrote(a, data(6, 1, 1))
		t.copied(b, data(6, 1, 1))
	}},
	{"log matching", func(t *tale, wrong bool) { // a leader that comes back has what compaction had taken, and no more than it had
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		t.copied(b, data(6, 1, 1))
		if !wrong {
			t.Compacted(a, 6, 7, nil)
		}
		t.Cut(a, Cluster, "", pick(wrong, int64(7), 6))
		if wrong {
			t.Cut(a, Cluster, "", 6)
		}
		t.Restored(a, []Batch{data(7, 1, 1)})
		t.copied(b, data(7, 1, 1))
	}},
	{"skipped", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		if !wrong {
			t.Compacted(a, 6, 7, nil)
		}
		t.copied(b, data(7, 1, 1))
	}},
	{"skipped", func(t *tale, wrong bool) { // the batch that holds an empty log's start (F-07)
		t.mirrors()
		t.wrote(a, data(6, 3, 1), data(9, 1, 1))
		t.StartRaised(a, Cluster, "", 7)
		t.Restarted(b, Mirror, "one", 7)
		if !wrong {
			t.copied(b, data(6, 3, 1))
		}
		t.copied(b, data(9, 1, 1))
	}},
	{"copies", func(t *tale, wrong bool) {
		t.wrote(a, data(0, 1, 1))
		t.goes(ab, preparing)
		if !wrong {
			t.goes(ab, mirroring)
		}
		t.copied(b, data(0, 1, 1))
	}},
	{"copies", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		if wrong {
			t.stops()
		}
		t.copied(b, data(6, 1, 1))
	}},
	{"copies", func(t *tale, wrong bool) { // what was begun before may land late
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Began(ab, "append", 6)
		t.goes(ab, pausing)
		if wrong {
			t.Began(ab, "append", 6)
		}
		t.copied(b, data(6, 1, 1))
	}},
	{"one process", func(t *tale, wrong bool) {
		t.wrote(a, data(0, 1, 1))
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.Runs(ab, "two")
		t.Appended(b, Mirror, pick(wrong, "one", "two"), []Batch{data(0, 1, 1)}, true)
	}},
	{"opposite", func(t *tale, wrong bool) {
		if wrong {
			t.mirrors()
		} else {
			t.failsOver()
		}
		t.Follows(ba, b)
		t.Runs(ba, "one")
		t.goes(ba, preparing)
		t.Gate(a, Mirror, "one", false)
		t.goes(ba, mirroring)
	}},
	{"early marker", func(t *tale, wrong bool) {
		t.mirrors()
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		if !wrong {
			t.StoredEnd(ab, End{1, 6, 1, "A"})
		}
		t.EpochRaised(b, Cluster, "", 2)
		t.resets()
	}},
	{"abort", func(t *tale, wrong bool) { // what retention took of a transaction counts for the order
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		eight := []Batch{inTransaction(0, 1, 1, 8), inTransaction(2, 1, 1, 8)}
		if wrong {
			eight[0] = data(0, 1, 1)
		}
		t.wrote(a, eight[0], inTransaction(1, 1, 1, 9), eight[1])
		t.copied(b, eight[0], inTransaction(1, 1, 1, 9), eight[1])
		t.StartRaised(a, Cluster, "", 1)
		t.StartRaised(b, Mirror, "one", 1)
		t.stops()
		t.copied(b, marker(3, 2, Abort, 8))
		t.copied(b, marker(4, 2, Abort, 9))
	}},
	{"abort", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.wrote(a, inTransaction(0, 1, 1, 9), inTransaction(1, 1, 1, 8))
		t.copied(b, inTransaction(0, 1, 1, 9), inTransaction(1, 1, 1, 8))
		t.stops()
		t.copied(b, marker(2, 2, Abort, pick(wrong, int64(8), 9)))
		t.copied(b, marker(3, 2, Abort, pick(wrong, int64(9), 8)))
	}},
	{"reset", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.resets()
		if wrong {
			t.resets()
		}
	}},
	{"reset", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.wrote(a, inTransaction(0, 1, 1, 9))
		t.copied(b, inTransaction(0, 1, 1, 9))
		t.stops()
		if !wrong {
			t.copied(b, marker(1, 2, Abort, 9))
		}
		t.resets()
	}},
	{"used offset", func(t *tale, wrong bool) {
		t.wrote(a, data(6, 2, 1))
		t.Compacted(a, 6, 8, nil)
		t.Created(a, 0, 1, true)
		t.mirrors()
		t.Fetched(ab, 6, 8, -1)
		t.goes(ab, mirroring, func(r *Record) { r.Hole = map[int64]int64{6: 8} })
		t.stops()
		t.copied(b, marker(pick(wrong, int64(6), 8), 2, Reset, -1))
	}},
	{"used offset", func(t *tale, wrong bool) { // a process that has not seen the source goes by what is recorded
		t.mirrors()
		t.Fetched(ab, 6, 8, -1)
		t.goes(ab, mirroring, func(r *Record) { r.Hole = map[int64]int64{6: 8} })
		t.stops()
		t.Runs(ab, "two")
		t.Appended(b, Mirror, "two", []Batch{marker(pick(wrong, int64(6), 8), 2, Reset, -1)}, true)
	}},
	{"used offset", func(t *tale, wrong bool) { // and nothing is recorded that no reply has proved
		t.mirrors()
		t.Fetched(ab, 6, pick(wrong, int64(7), 8), -1)
		t.goes(ab, mirroring, func(r *Record) { r.Hole = map[int64]int64{6: 8} })
	}},
	{"used offset", func(t *tale, wrong bool) { // so it is recorded before the end is
		t.mirrors()
		t.Fetched(ab, 6, 8, -1)
		if !wrong {
			t.goes(ab, mirroring, func(r *Record) { r.Hole = map[int64]int64{6: 8} })
		}
		t.stops()
	}},
	{"used offset", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.copied(b, marker(pick(wrong, int64(7), 6), 2, Reset, -1))
	}},
	{"used offset", func(t *tale, wrong bool) { // a batch behind the hole leaves it a hole, one within it does not
		t.mirrors()
		t.Fetched(ab, 6, 8, -1)
		t.Fetched(ab, 6, 0, pick(wrong, int64(7), 8))
		if !wrong {
			t.goes(ab, mirroring, func(r *Record) { r.Hole = map[int64]int64{6: 8} })
		}
		t.stops()
		t.copied(b, marker(8, 2, Reset, -1))
	}},
	{"used offset", func(t *tale, wrong bool) { // as it does where nobody knows yet whether there is one
		t.mirrors()
		t.Fetched(ab, 6, 8, -2)
		t.Fetched(ab, 6, 0, pick(wrong, int64(7), 8))
		t.stops()
		t.copied(b, marker(8, 2, Reset, -1))
	}},
	{"replicated", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Appended(b, Mirror, "one", []Batch{data(6, 1, 1)}, true)
		t.Cut(b, Cluster, "", pick(wrong, int64(4), 6))
	}},
	{"raised epoch", func(t *tale, wrong bool) {
		t.failsOver()
		t.EpochRaised(b, pick(wrong, Mirror, Cluster), "one", t.log(b).epoch+1)
	}},
	{"raised epoch", func(t *tale, wrong bool) {
		t.mirrors()
		t.Began(ab, "epoch", 2)
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		if !wrong {
			t.StoredEnd(ab, End{1, 6, 1, "A"})
			t.Began(ab, "epoch", 2)
		}
		t.EpochRaised(b, Mirror, "one", 2) // it was asked for before
		if wrong {
			t.Began(ab, "epoch", 2)
		}
	}},
	{"settled id", func(t *tale, wrong bool) {
		t.Settled("B", 1000)
		t.GivenID("B", pick(wrong, int64(1000), 1001))
		t.GivenID("A", 5)
	}},
	{"cut common", func(t *tale, wrong bool) {
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		t.Cut(b, Mirror, "one", pick(wrong, int64(2), 4))
		t.Told(ab, "dropped", 2, 6)
	}},
	{"cut common", func(t *tale, wrong bool) { // a failback leaves what both have
		t.returns()
		t.Consented(ba, 4, 8, 1)
		t.goes(ba, preparing)
		t.Gate(a, Mirror, "one", false)
		t.Cut(a, Mirror, "one", pick(wrong, int64(4), 6))
	}},
	{"cut common", func(t *tale, wrong bool) { // what was copied since the source recorded its end is not known to it
		t.returns()
		t.Consented(ba, 6, 8, 1)
		t.goes(ba, preparing)
		t.Gate(a, Mirror, "one", false)
		t.Cut(a, Mirror, "one", 6)
		t.Told(ba, "dropped", 6, 8)
		t.EpochRaised(a, Mirror, "one", 2)
		t.goes(ba, mirroring)
		t.copied(a, marker(6, 2, Reset, -1), data(7, 1, 2))
		t.Consented(ba, 4, 8, 1)
		t.Cut(a, Mirror, "one", pick(wrong, int64(4), 7))
	}},
	{"cut state", func(t *tale, wrong bool) {
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		if wrong {
			t.goes(ab, pausing)
			t.goes(ab, paused)
		}
		t.Cut(b, Mirror, "one", 4)
	}},
	{"consent", func(t *tale, wrong bool) {
		t.returns()
		t.Consented(ba, 6, 8, int32(pick(wrong, 2, 1)))
		t.goes(ba, preparing)
		if !wrong {
			t.Gate(a, Mirror, "one", false)
		}
		t.Cut(a, Mirror, "one", 6)
	}},
	{"consent", func(t *tale, wrong bool) { // one is used up when MIRRORING is reached
		t.returns()
		t.Consented(ba, 6, 8, 1)
		t.goes(ba, preparing)
		t.Gate(a, Mirror, "one", false)
		t.Cut(a, Mirror, "one", 6)
		t.EpochRaised(a, Mirror, "one", 4)
		t.goes(ba, mirroring)
		t.log(a).stopped = true // once before
		t.copied(a, marker(6, 2, Reset, -1), data(7, 1, 2))
		if wrong {
			t.Cut(b, Cluster, "", 7)
			t.Cut(a, Mirror, "one", 7)
		}
	}},
	{"consent", func(t *tale, wrong bool) { // what the source never had, in a log that never was open
		t.Appended(b, Cluster, "", []Batch{data(0, 1, 1)}, true)
		if !wrong {
			t.Consented(ab, 0, 1, 1)
		}
		t.goes(ab, preparing)
		t.Cut(b, Mirror, "one", 0)
	}},
	{"stop cut", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Appended(b, Mirror, "one", []Batch{data(6, 1, 1)}, true)
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		t.Cut(b, Mirror, "one", pick(wrong, int64(4), 6))
	}},
	{"restart", func(t *tale, wrong bool) {
		t.Policy(ab, pick(wrong, "fail", "restart"), 0)
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		t.StartRaised(a, Cluster, "", 7)
		t.Restarted(b, Mirror, "one", 7)
	}},
	{"restart", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		if !wrong {
			t.StartRaised(a, Cluster, "", 7)
		}
		t.Restarted(b, Mirror, "one", 7)
	}},
	{"start", func(t *tale, wrong bool) {
		t.mirrors()
		t.StartRaised(a, Cluster, "", 2)
		t.StartRaised(b, Mirror, "one", pick(wrong, int64(4), 2))
	}},
	{"start", func(t *tale, wrong bool) {
		t.Policy(ab, "restart", pick(wrong, int64(3), 4))
		t.mirrors()
		t.StartRaised(a, Cluster, "", 4)
		t.StartRaised(b, Mirror, "one", 4)
	}},
	{"untouched gate", func(t *tale, wrong bool) {
		t.returns()
		if !wrong {
			t.Consented(ba, 6, 8, 1)
		}
		t.goes(ba, preparing)
		t.Gate(a, Mirror, "one", false)
	}},
	{"gate state", func(t *tale, wrong bool) {
		t.mirrors()
		if !wrong {
			t.stops()
			t.resets()
			t.Settled("B", 1)
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"gate state", func(t *tale, wrong bool) {
		t.failsOver()
		if !wrong {
			t.Wished(ab, WantMirroring)
			t.Consented(ab, 7, 8, 2)
			t.goes(ab, preparing)
		}
		t.Gate(b, Mirror, "one", false)
	}},
	{"gate state", func(t *tale, wrong bool) { // a call that was under way when a failure was recorded; none that comes after the end was
		t.failsOver()
		t.Wished(ab, WantMirroring)
		t.Consented(ab, 7, 8, 2)
		t.goes(ab, preparing)
		t.Began(ab, "close", 0)
		if wrong {
			t.Wished(ab, WantStopped)
			t.goes(ab, stopping)
			t.StoredEnd(ab, End{LME: 1, LMO: 6, Episode: 2, SourceCluster: "A"})
		} else {
			t.goes(ab, failed, person)
		}
		t.Gate(b, Mirror, "one", false)
	}},
	{"untouched gate", func(t *tale, wrong bool) { // what came after a closing had begun is for the cut to judge, though PREPARING was entered again
		t.failsOver()
		t.Wished(ab, WantMirroring)
		t.Consented(ab, 7, 8, 2)
		t.goes(ab, preparing)
		if !wrong {
			t.Began(ab, "close", 0)
		}
		t.wrote(b, data(8, 1, 2))
		t.goes(ab, failed)
		t.goes(ab, preparing)
		if wrong {
			t.Began(ab, "close", 0)
		}
		t.Gate(b, Mirror, "one", false)
	}},
	{"gate state", func(t *tale, wrong bool) { // nothing is copied into an open log
		t.wrote(a, data(0, 1, 1))
		t.failsOverEmpty()
		t.Wished(ab, WantMirroring)
		t.goes(ab, preparing)
		if !wrong {
			t.Gate(b, Mirror, "one", false)
		}
		t.goes(ab, mirroring)
	}},
	{"end once", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.resets()
		t.StoredEnd(ab, End{1, pick(wrong, int64(7), 6), 1, "A"})
	}},
	{"end once", func(t *tale, wrong bool) {
		t.mirrors()
		t.Wished(ab, WantStopped)
		if !wrong {
			t.goes(ab, stopping)
		}
		t.StoredEnd(ab, End{1, 6, 1, "A"})
	}},
	{"end value", func(t *tale, wrong bool) {
		t.mirrors()
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		t.StoredEnd(ab, End{int32(pick(wrong, 2, 1)), 6, 1, "A"})
	}},
	{"end value", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Appended(b, Mirror, "one", []Batch{data(6, 1, 1)}, true)
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		if !wrong {
			t.Replicated(b, 7)
		}
		t.StoredEnd(ab, End{1, 7, 1, "A"})
	}},
	{"end value", func(t *tale, wrong bool) {
		t.mirrors()
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		t.StoredEnd(ab, End{1, 6, 1, pick(wrong, "B", "A")})
	}},
	{"early open", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.Settled("B", 1)
		if !wrong {
			t.resets()
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"early open", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.Settled("B", 1)
		t.Appended(b, Mirror, "one", []Batch{marker(6, 2, Reset, -1)}, true)
		if !wrong {
			t.Replicated(b, 7)
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"open transaction", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.wrote(a, inTransaction(0, 1, 1, 9))
		t.copied(b, inTransaction(0, 1, 1, 9))
		t.stops()
		t.copied(b, marker(1, 2, Abort, 9))
		t.resets()
		t.Settled("B", 9)
		if wrong { // the markers are in, and the ABORT is not
			l := t.World.log(b)
			l.batches = slices.Delete(l.batches, 1, 2)
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"settled", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		d := data(0, 1, 1)
		d.ProducerID = 9
		t.wrote(a, d)
		t.copied(b, d)
		t.stops()
		t.resets()
		t.Settled("B", pick(wrong, int64(8), 9))
		t.Gate(b, Mirror, "one", true)
	}},
	{"closed STOPPED", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.resets()
		t.Settled("B", 1)
		if !wrong {
			t.Gate(b, Mirror, "one", true)
		}
		t.goes(ab, stopped)
	}},
	{"lost log", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		t.resets()
		t.Settled("B", 1)
		t.Gate(b, Mirror, "one", true)
		t.goes(ab, stopped)
		if wrong {
			t.Gate(b, Cluster, "", false)
			t.Cut(b, Cluster, "", 4)
			t.log(b).theirs = false
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"asks", func(t *tale, wrong bool) {
		t.mirrors()
		t.Asked(ab, "fetch")
		if wrong {
			t.stops()
		}
		t.Asked(ab, "ends")
	}},
	{"fetches", func(t *tale, wrong bool) { // one that a failing stop has not ended yet
		t.mirrors()
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		if wrong {
			t.StoredEnd(ab, End{LME: 1, LMO: 6, Episode: 1, SourceCluster: "A"})
		}
		t.goes(ab, failed)
		t.Asked(ab, "fetch")
	}},
	{"fetches", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.Asked(ab, "ends")
		if !wrong {
			t.goes(ab, mirroring)
		}
		t.Asked(ab, "fetch")
	}},
	{"wish", func(t *tale, wrong bool) {
		t.mirrors()
		if !wrong {
			t.Wished(ab, WantStopped)
		}
		t.goes(ab, stopping)
	}},
	{"wish", func(t *tale, wrong bool) { // a write that began before a stop was wished is no answer to that
		t.mirrors()
		t.goes(ab, failed)
		if wrong {
			t.Wished(ab, WantStopped)
		}
		t.Began(ab, "record", 0)
		if !wrong {
			t.Wished(ab, WantStopped)
		}
		t.Wished(ab, WantMirroring)
		t.goes(ab, mirroring)
		t.Began(ab, "record", 0)
		t.goes(ab, stopping)
	}},
	{"move", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		if !wrong {
			t.goes(ab, mirroring)
		}
		t.goes(ab, fencing)
	}},
	{"state epoch", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, mirroring, func(r *Record) { r.StateEpoch += int32(pick(wrong, 1, 0)) })
	}},
	{"episode", func(t *tale, wrong bool) {
		t.failsOver()
		t.Wished(ab, WantMirroring)
		t.goes(ab, preparing, func(r *Record) { r.Episode -= int32(pick(wrong, 1, 0)) })
	}},
	{"episode", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, mirroring, func(r *Record) { r.Episode += int32(pick(wrong, 1, 0)) })
	}},
	{"episode", func(t *tale, wrong bool) { // a record that was removed does not bring an old end to life
		t.failsOver()
		t.Removed(ab)
		t.epochs[ab] = Record{Episode: int32(pick(wrong, 0, 1))}
		t.Wished(ab, WantMirroring)
		t.goes(ab, preparing)
	}},
	{"failure", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, failed, func(r *Record) { r.Message = pick(wrong, "", "the source does not answer") })
	}},
	{"failure", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, failed, person)
		t.goes(ab, preparing) // it was started while the failure was being written
		t.goes(ab, failed, person)
		if !wrong {
			t.Wished(ab, WantMirroring)
		}
		t.goes(ab, preparing)
	}},
	{"failure", func(t *tale, wrong bool) {
		t.goes(ab, preparing)
		t.goes(ab, failed, func(r *Record) { r.Previous = pick(wrong, mirroring, preparing) })
	}},
	{"group bounds", func(t *tale, wrong bool) {
		t.mirrors()
		t.Committed(a, Clients, "g", 6, 1)
		t.Committed(b, Mirror, "g", pick(wrong, int64(7), 6), 1)
	}},
	{"group bounds", func(t *tale, wrong bool) {
		t.mirrors()
		t.StartRaised(a, Cluster, "", 2)
		t.StartRaised(b, Mirror, "one", 2)
		t.Committed(b, Mirror, "g", pick(wrong, int64(1), 2), 1)
	}},
	{"group bounds", func(t *tale, wrong bool) { // at a stop LMO counts, and not the markers
		t.mirrors()
		t.stops()
		t.resets()
		t.Committed(b, Mirror, "g", pick(wrong, int64(7), 6), 1)
	}},
	{"group bounds", func(t *tale, wrong bool) { // clients had the log, and have raised its start above LMO
		t.mirrors()
		t.stops()
		t.resets()
		t.StartRaised(b, Cluster, "", 7)
		t.Committed(b, Mirror, "g", pick(wrong, int64(6), 7), 1)
	}},
	{"group epoch", func(t *tale, wrong bool) {
		t.mirrors()
		t.Committed(b, Mirror, "g", 6, int32(pick(wrong, 2, 1)))
	}},
	{"group owner", func(t *tale, wrong bool) {
		t.mirrors()
		t.Saw(ab, "g", "", 1, 1)
		t.Committed(b, Mirror, "g", 1, 1)
		t.Committed(b, pick(wrong, Clients, Mirror), "g", 6, 1)
		t.Committed(b, Mirror, "g", 3, 1)
	}},
	{"group owner", func(t *tale, wrong bool) { // what was read at the copy stays until the source's group moves
		t.mirrors()
		t.Saw(ab, "g", "", 5, 1)
		t.Committed(b, Mirror, "g", 5, 1)
		t.Committed(b, Clients, "g", 3, 1)
		t.Saw(ab, "g", "", pick(wrong, int64(5), 6), 1)
		t.Committed(b, Mirror, "g", pick(wrong, int64(5), 6), 1)
	}},
	{"group owner", func(t *tale, wrong bool) { // a move that was not done, to where somebody commits
		t.mirrors()
		t.Saw(ab, "g", "", 5, 1)
		t.Aims(ab, "g", int64(pick(wrong, 4, 3)))
		t.Committed(b, Clients, "g", 3, 1)
		t.Committed(b, Mirror, "g", 5, 1)
	}},
	{"group owner", func(t *tale, wrong bool) { // moved away and back while the mirror looked, or while it did not
		t.mirrors()
		t.Committed(b, Mirror, "g", 1, 1)
		t.Saw(ab, "g", "", 3, 1)
		t.Committed(b, Mirror, "g", 3, 1)
		t.Saw(ab, "g", "", 6, 1)
		t.Committed(b, Clients, "g", 2, 1)
		if wrong {
			t.Saw(ab, "g", "", 6, 1)
		}
		t.Committed(b, Clients, "g", 3, 1)
		t.Committed(b, Mirror, "g", 6, 1)
	}},
	{"group owner", func(t *tale, wrong bool) { // what is from before the episode is taken over, and a commit of what the mirror put there changes nothing
		t.mirrors()
		t.Committed(b, Clients, "g", 6, 1)
		t.Active("B", "g", wrong)
		t.Saw(ab, "g", "", 3, 1)
		t.Active("B", "g", false)
		t.Committed(b, Mirror, "g", 3, 1)
		t.Committed(b, Clients, "g", 3, 1)
		t.Committed(b, Mirror, "g", 1, 1)
	}},
	{"group owner", func(t *tale, wrong bool) { // what was found where the mirror puts it is the mirror's in the next episode too, whoever came and committed nothing
		t.mirrors()
		t.Committed(b, Clients, "g", 6, 1)
		t.Saw(ab, "g", "", 6, 1)
		t.stops()
		t.resets()
		t.Settled("B", 1)
		t.Gate(b, Mirror, "one", true)
		t.goes(ab, stopped)
		t.Active("B", "g", true)
		if wrong {
			t.Committed(b, Clients, "g", 5, 1)
		}
		t.Wished(ab, WantMirroring)
		t.goes(ab, preparing)
		t.Gate(b, Mirror, "one", false)
		t.Saw(ab, "g", "", 6, 1)
		t.Active("B", "g", false)
		t.Saw(ab, "g", "", 3, 1)
		t.Committed(b, Mirror, "g", 3, 1)
	}},
	{"group owner", func(t *tale, wrong bool) {
		t.mirrors()
		t.Active("B", "g", true)
		t.Active("B", "g", wrong)
		t.Committed(b, Mirror, "g", 6, 1)
	}},
	{"group late", func(t *tale, wrong bool) { // clients have written behind the marks; the gate was closed by a restart, and a start was refused
		t.failsOver()
		t.Gate(b, Cluster, "", false)
		t.Wished(ab, WantMirroring)
		t.goes(ab, preparing)
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		t.StoredEnd(ab, End{LME: 1, LMO: 6, Episode: 2, SourceCluster: "A"})
		t.Committed(b, pick(wrong, Mirror, Clients), "g", 6, 1)
	}},
	{"group late", func(t *tale, wrong bool) {
		t.mirrors()
		if wrong {
			t.stops()
			t.resets()
			t.Settled("B", 1)
			t.Gate(b, Mirror, "one", true)
		}
		t.Committed(b, Mirror, "g", 6, 1)
	}},
	{"last place", func(t *tale, wrong bool) { // the topic was made again since: it has read nothing of this one
		t.mirrors()
		t.Saw(ab, "g", "before", 4, 1)
		t.Committed(b, Mirror, "g", 4, 1)
		t.stops()
		t.resets()
		t.Settled("B", 1)
		if !wrong {
			t.Committed(b, Mirror, "g", 0, 1)
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"last place", func(t *tale, wrong bool) { // what it has read of an earlier leader epoch ends where that of the copy ends
		t.mirrors()
		t.Saw(ab, "g", "", 5, 0)
		t.Committed(b, Mirror, "g", int64(pick(wrong, 5, 0)), 1)
		t.stops()
		t.resets()
		t.Settled("B", 1)
		t.Gate(b, Mirror, "one", true)
	}},
	{"last place", func(t *tale, wrong bool) {
		t.mirrors()
		t.Committed(a, Clients, "g", 9, 1)
		t.Saw(ab, "g", "", 9, 1)
		t.Committed(b, Mirror, "g", 4, 1)
		t.stops()
		t.resets()
		t.Settled("B", 1)
		if !wrong {
			t.Committed(b, Mirror, "g", 6, 1)
		}
		t.Gate(b, Mirror, "one", true)
	}},
	{"told", func(t *tale, wrong bool) {
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		t.Cut(b, Mirror, "one", 4)
		t.Told(ab, "dropped", pick(wrong, int64(5), 4), 5)
		t.Told(ab, "dropped", 5, 6)
		t.Rest(ab)
	}},
	{"told", func(t *tale, wrong bool) { // a second drop of the same offsets is to be told again
		t.mirrors()
		for again := range 2 {
			t.Cut(a, Cluster, "", 4)
			t.Cut(b, Mirror, "one", 4)
			if !wrong || again == 0 {
				t.Told(ab, "dropped", 0, 6)
			}
			next := data(4, 2, 1)
			next.Bytes += uint64(again + 1)
			t.wrote(a, next)
			t.copied(b, next)
		}
		t.Rest(ab)
	}},
	{"told", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		t.StartRaised(a, Cluster, "", 7)
		t.Restarted(b, Mirror, "one", 7)
		t.copied(b, data(7, 1, 1))
		t.Told(ab, "dropped", 0, 6)
		if !wrong {
			t.Told(ab, "lost", 6, 7)
		}
		t.Rest(ab)
	}},
	{"told", func(t *tale, wrong bool) { // the older records stay
		t.Policy(ab, "keep", 0)
		t.mirrors()
		t.wrote(a, data(6, 1, 1), data(7, 1, 1))
		t.StartRaised(a, Cluster, "", 7)
		t.copied(b, data(7, 1, 1))
		if !wrong {
			t.Told(ab, "hole", 6, 7)
		}
		t.Rest(ab)
	}},
	{"rest state", func(t *tale, wrong bool) {
		t.mirrors()
		if wrong {
			t.goes(ab, failed)
		}
		t.Rest(ab)
	}},
	{"rest state", func(t *tale, wrong bool) {
		t.mirrors()
		t.goes(ab, failed, person, func(r *Record) { r.Attempt = pick(wrong, int16(4), -1) })
		t.Rest(ab)
	}},
	{"rest state", func(t *tale, wrong bool) { // the source's log starts inside a batch, and the copy ends there
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		t.EpochRaised(a, Cluster, "", 2)
		t.wrote(a, data(4, 4, 2))
		t.StartRaised(a, Cluster, "", pick(wrong, int64(4), 6))
		t.goes(ab, failed)
		t.Rest(ab)
	}},
	{"rest bytes", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		if !wrong {
			t.copied(b, data(6, 1, 1))
		}
		t.Rest(ab)
	}},
	{"rest bytes", func(t *tale, wrong bool) {
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		if !wrong {
			t.Cut(b, Mirror, "one", 4)
			t.Told(ab, "dropped", 4, 6)
		}
		t.Rest(ab)
	}},
	{"rest bytes", func(t *tale, wrong bool) { // a source that has lost all that it had answers nothing as long as it is closed
		t.mirrors()
		t.Follows(ba, b)
		t.Cut(a, Cluster, "", 0)
		if !wrong {
			t.Gate(a, Cluster, "", false)
		}
		t.Rest(ab)
	}},
	{"rest start", func(t *tale, wrong bool) {
		t.mirrors()
		t.StartRaised(a, Cluster, "", 2)
		if !wrong {
			t.StartRaised(b, Mirror, "one", 2)
		}
		t.Rest(ab)
	}},
	{"rest groups", func(t *tale, wrong bool) {
		t.mirrors()
		t.Committed(a, Clients, "g", 3, 1)
		t.Committed(b, Mirror, "g", 3, 1)
		if wrong { // a deliberate rewind is followed
			t.Committed(a, Clients, "g", 1, 1)
		}
		t.Rest(ab)
	}},
	{"rest groups", func(t *tale, wrong bool) { // one that the destination has forgotten is written again
		t.mirrors()
		t.Committed(a, Clients, "g", 3, 1)
		t.Committed(b, Mirror, "g", 3, 1)
		t.Forgotten(b, "g")
		if !wrong {
			t.Committed(b, Mirror, "g", 3, 1)
		}
		t.Rest(ab)
	}},
	{"rest groups", func(t *tale, wrong bool) { // a sync that does nothing; a group with members is left alone
		t.mirrors()
		t.Committed(a, Clients, "g", 3, 1)
		t.Active("B", "g", !wrong)
		t.Rest(ab)
	}},
	{"rest groups", func(t *tale, wrong bool) { // what is from before the episode is not left, what was read here since is
		t.mirrors()
		t.Committed(a, Clients, "g", 3, 1)
		if wrong {
			t.Committed(b, Clients, "g", 5, 1)
			t.Saw(ab, "g", "", 3, 1)
		} else {
			t.Saw(ab, "g", "", 3, 1)
			t.Committed(b, Clients, "g", 5, 1)
		}
		t.Rest(ab)
	}},
	{"rest groups", func(t *tale, wrong bool) { // what the mirror put there itself is theirs when somebody commits it anew behind the mirror's back, but only if it saw where they were in between
		t.mirrors()
		t.Committed(a, Clients, "g", 5, 1)
		t.Saw(ab, "g", "", 5, 1)
		t.Aims(ab, "g", 4)
		t.Committed(b, Mirror, "g", 4, 1)
		t.Committed(b, Clients, "g", 3, 1)
		if !wrong {
			t.Saw(ab, "g", "", 5, 1)
		}
		t.Committed(b, Clients, "g", 4, 1)
		t.Rest(ab)
	}},
	{"stop ends", func(t *tale, wrong bool) {
		t.mirrors()
		t.stops()
		if !wrong {
			t.resets()
			t.Settled("B", 1)
			t.Gate(b, Mirror, "one", true)
			t.goes(ab, stopped)
		}
		t.Stopped(ab)
	}},
	{"order", func(t *tale, wrong bool) { // what is there already is offered once more
		t.mirrors()
		t.Began(ab, "append", pick(wrong, int64(4), 6))
	}},
	{"start", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Appended(b, Mirror, "one", []Batch{data(6, 1, 1)}, true)
		t.Began(ab, "start", pick(wrong, int64(7), 6))
	}},
	{"start", func(t *tale, wrong bool) { // what is to be kept is not followed
		t.mirrors()
		t.Policy(ab, pick(wrong, "keep", "restart"), 0)
		t.Began(ab, "start", 2)
	}},
	{"replica wait", func(t *tale, wrong bool) {
		t.mirrors()
		t.Cut(a, Cluster, "", 4)
		t.EpochRaised(a, Cluster, "", 2)
		t.wrote(a, data(4, 1, 2))
		t.EpochRaised(b, Mirror, "one", 2)
		t.cuts(b, Mirror, "one", 4)
		if !wrong {
			t.Followed(b)
		}
		t.copied(b, data(4, 1, 2))
	}},
	{"replica wait", func(t *tale, wrong bool) {
		t.returns()
		t.goes(ba, preparing)
		t.Consented(ba, 6, 8, 1)
		t.Gate(a, Mirror, "one", false)
		t.cuts(a, Mirror, "one", 6)
		if !wrong {
			t.Followed(a)
		}
		t.goes(ba, mirroring)
	}},
	{"cut common", func(t *tale, wrong bool) { // the source's record says that it has all of it below 6
		t.returns()
		t.goes(ba, preparing)
		t.Consented(ba, 0, 8, 1)
		t.Gate(a, Mirror, "one", false)
		if wrong {
			t.Restarted(a, Mirror, "one", 0)
		} else {
			t.Cut(a, Mirror, "one", 6)
		}
	}},
	{"used offset", func(t *tale, wrong bool) { // what remote storage has not delivered yet may be passed over
		t.mirrors()
		t.Fetched(ab, 6, 8, pick[int64](wrong, 5, -2))
		t.stops()
		t.copied(b, marker(8, t.log(b).epoch, Reset, -1))
	}},
	{"early open", func(t *tale, wrong bool) { // a log that comes back under an old leader epoch
		t.failsOver()
		t.Gate(b, Cluster, "", false)
		t.EpochRaised(b, Cluster, "", pick[int32](wrong, 1, 2))
		t.Gate(b, Mirror, "one", true)
	}},
	{"halt", func(t *tale, wrong bool) {
		t.mirrors()
		if !wrong {
			t.Runs(ab, "two")
		}
		t.Halted(ab, "one")
	}},
	{"halt", func(t *tale, wrong bool) { // the log came back under an old leader epoch, so the store takes the process for one that was overtaken
		t.failsOver()
		t.Gate(b, Cluster, "", false)
		if !wrong {
			t.EpochRaised(b, Cluster, "", 1)
		}
		t.Halted(ab, "one")
	}},
	{"failure", func(t *tale, wrong bool) {
		keep := func(r *Record) { r.Attempt, r.Message = 1, "broken" }
		t.mirrors()
		t.goes(ab, failed)
		t.goes(ab, mirroring, keep)
		if !wrong {
			t.Fetched(ab, 6, 0, -1)
		}
		t.goes(ab, mirroring)
	}},
	{"failure", func(t *tale, wrong bool) {
		t.mirrors()
		t.Policy(ab, "fail", 0)
		t.Told(ab, "lost", 6, 8)
		t.goes(ab, failed, func(r *Record) { r.Attempt = pick[int16](wrong, 1, -1) })
	}},
	{"failure", func(t *tale, wrong bool) { // a process that begins has not seen what an earlier one was about to fail over
		t.mirrors()
		t.Policy(ab, "fail", 0)
		t.Told(ab, "lost", 6, 8)
		if !wrong {
			t.Runs(ab, "two")
		}
		t.goes(ab, failed)
	}},
	{"stop ends", func(t *tale, wrong bool) {
		t.mirrors()
		t.Wished(ab, WantStopped)
		t.goes(ab, stopping)
		t.goes(ab, failed, func(r *Record) { r.Attempt = pick[int16](wrong, -1, 1) })
	}},
	{"closed STOPPED", func(t *tale, wrong bool) { // somebody took the log
		t.taken()
		if !wrong {
			t.StoredEnd(ab, End{1, 6, 1, "A"})
		}
		t.goes(ab, stopped)
	}},
	{"end value", func(t *tale, wrong bool) {
		t.taken()
		t.StoredEnd(ab, End{pick[int32](wrong, 2, 1), 6, 1, "A"})
	}},
	{"end value", func(t *tale, wrong bool) {
		t.taken()
		t.StoredEnd(ab, pick(wrong, End{2, 7, 1, "A"}, End{1, 6, 1, "A"}))
	}},
	{"lost log", func(t *tale, wrong bool) {
		t.failsOver()
		t.Gate(b, Cluster, "", false)
		t.Lost(b, pick(wrong, int64(5), 6))
		t.Gate(b, Mirror, "one", true)
	}},
	{"episode", func(t *tale, wrong bool) { // the mirror was deleted and made again
		t.failsOver()
		t.Removed(ab)
		delete(t.epochs, ab)
		t.Wished(ab, WantMirroring)
		t.goes(ab, preparing, func(r *Record) { r.Episode = pick[int32](wrong, 1, 2) })
	}},
	{"producers", func(t *tale, wrong bool) {
		t.wrote(a, inTransaction(0, 1, 1, 77), marker(1, 1, Commit, 77))
		t.goes(ab, preparing)
		t.goes(ab, mirroring)
		t.copied(b, inTransaction(0, 1, 1, 77), marker(1, 1, Commit, 77))
		t.stops()
		t.resets()
		t.Settled("B", 1000)
		t.Gate(b, Mirror, "one", true)
		t.Knows(b, pick(wrong, []int64{77}, nil))
	}},
	{"stable", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, inTransaction(6, 1, 1, 77), inTransaction(7, 1, 1, 78), marker(8, 1, Commit, 77))
		t.copied(b, inTransaction(6, 1, 1, 77), inTransaction(7, 1, 1, 78), marker(8, 1, Commit, 77))
		t.Shows(ab, pick(wrong, int64(6), 7), 9, -1)
	}},
	{"caught up", func(t *tale, wrong bool) {
		t.mirrors()
		t.wrote(a, data(6, 1, 1))
		t.Appended(b, Mirror, "one", []Batch{data(6, 1, 1)}, true)
		t.Shows(ab, 6, 6, pick(wrong, int64(7), 6))
	}},
	{"given back", func(t *tale, wrong bool) {
		t.returns()
		t.goes(ba, preparing, func(r *Record) { r.FoundOpen = true })
		t.Consented(ba, 6, 8, 1)
		if wrong {
			t.Gate(a, Mirror, "one", false)
		}
		t.goes(ba, failed, person)
		t.Rest(ba)
	}},
}

func pick[T any](wrong bool, bad, good T) T {
	if wrong {
		return bad
	}
	return good
}

// taken: somebody has opened the copy, which ends at 6, clients have written it, and it is being stopped.
func (t *tale) taken() {
	t.mirrors()
	t.EpochRaised(b, Cluster, "", 2)
	t.Gate(b, Cluster, "", true)
	t.wrote(b, data(6, 1, 2))
	t.Wished(ab, WantStopped)
	t.goes(ab, stopping)
}

// failsOverEmpty stops a mirror that has copied nothing.
func (t *tale) failsOverEmpty() {
	t.goes(ab, preparing)
	t.Wished(ab, WantStopped)
	t.goes(ab, stopping)
	t.StoredEnd(ab, End{-1, 0, 1, "A"})
	t.resets()
	t.Settled("B", 1)
	t.Gate(b, Mirror, "one", true)
	t.goes(ab, stopped)
}

func TestEachRuleSpeaksAndItsTwinIsSilent(t *testing.T) {
	for _, s := range ruleStories {
		t.Run(s.rule, func(t *testing.T) {
			wrong, right := begin(), begin()
			s.tell(wrong, true)
			s.tell(right, false)
			if v := wrong.Violations(); len(v) == 0 || v[0].Rule != s.rule || v[0].Source == "" || v[0].What == "" {
				t.Errorf("wanted %q, got %v", s.rule, v)
			}
			if v := right.Violations(); len(v) > 0 {
				t.Errorf("the twin broke %v", v)
			}
		})
	}
}

// A rule is a call of must with its name and where it stands, as texts.
func TestEachRuleHasAStoryAndASource(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, s := range ruleStories {
		told[s.rule] = false
	}
	rule, cites, lines, all := regexp.MustCompile(`"([^"]*)", "([^"]*)", "%v`), regexp.MustCompile(`spec §\d|decision|invariant|F-\d\d|design\.md`), 0, 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.Split(string(text), "\n") {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "//") {
				if all++; name != "facts.go" && name != "world.go" {
					lines++
				}
			}
			if !strings.Contains(l, "must(") || strings.HasPrefix(l, "func") {
				continue
			}
			m := rule.FindStringSubmatch(l)
			if m == nil {
				t.Fatalf("%s: a rule that is not read: %s", name, l)
			}
			if _, ok := told[m[1]]; !ok {
				t.Errorf("rule %q has no story", m[1])
			}
			if told[m[1]] = true; !cites.MatchString(m[2]) {
				t.Errorf("rule %q stands nowhere: %q", m[1], m[2])
			}
		}
	}
	for name, there := range told {
		if !there {
			t.Errorf("there is no rule %q", name)
		}
	}
	t.Logf("lines of the model: %d that judge, %d with those that remember what was told (facts.go, world.go)", lines, all)
	if lines > 580 || all > 920 {
		t.Errorf("the rules have %d lines, with what they remember %d; they are to be read in one go, and 580 and 920 are enough", lines, all)
	}
}
