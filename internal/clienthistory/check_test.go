package clienthistory

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var p0, p1 = Partition{"orders", 0}, Partition{"orders", 1}

// book notes a story, one moment after the other.
type book struct {
	h   History
	f   Final
	now Moment
}

func (b *book) span() Span {
	b.now += 2
	return Span{b.now - 1, b.now}
}

func (b *book) at() Moment {
	b.now++
	return b.now
}

func (b *book) wrote(cluster string, p Partition, n uint32, offset int64) {
	b.inTransaction(cluster, p, n, offset, 0)
}

func (b *book) inTransaction(cluster string, p Partition, n uint32, offset int64, t uint32) {
	w := Produce{Span: b.span(), Cluster: cluster, Partition: p, Record: NewRecord(1, n), Offset: offset, Outcome: OK}
	if t != 0 {
		w.Transaction = NewTransaction(1, t)
	}
	b.h.Produces = append(b.h.Produces, w)
}

func (b *book) outcome(o Outcome) { b.h.Produces[len(b.h.Produces)-1].Outcome = o }

func (b *book) ended(t uint32, commit bool, o Outcome) {
	b.h.Ends = append(b.h.Ends, End{Span: b.span(), Transaction: NewTransaction(1, t), Commit: commit, Outcome: o})
}

// seen are pairs of number and offset.
func seen(pairs ...int) (all []Seen) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Seen{Record: NewRecord(1, uint32(pairs[i])), Offset: int64(pairs[i+1])})
	}
	return all
}

func (b *book) polled(consumer, cluster string, p Partition, pairs ...int) {
	b.h.Polls = append(b.h.Polls, Poll{Span: b.span(), Consumer: consumer, Cluster: cluster, Partition: p, Committed: true, Records: seen(pairs...)})
}

func (b *book) sought(consumer, cluster, group string, offset int64) {
	b.h.Seeks = append(b.h.Seeks, Seek{Span: b.span(), Consumer: consumer, Cluster: cluster, Partition: p0, Group: group, Offset: offset})
}

func (b *book) committed(group, cluster string, offset int64) {
	b.h.Commits = append(b.h.Commits, Commit{Span: b.span(), Group: group, Cluster: cluster, Partition: p0, Offset: offset, Outcome: OK})
}

func (b *book) turned(from, to string, offset int64, lost Range, aborted ...Transaction) {
	b.h.Turns = append(b.h.Turns, Turn{At: b.at(), Partition: p0, From: from, To: to, Offset: offset, Lost: lost, Aborted: aborted})
}

func (b *book) rejoined(cluster string, givenUp Range) {
	b.h.Rejoins = append(b.h.Rejoins, Rejoin{At: b.at(), Partition: p0, Cluster: cluster, GivenUp: givenUp})
}

func (b *book) log(cluster string, p Partition, end int64, pairs ...int) {
	b.f.Logs = append(b.f.Logs, Log{Cluster: cluster, Partition: p, End: end, Records: seen(pairs...)})
}

// stories have an anomaly when they go wrong, and none when they do not.
var stories = []struct {
	name string
	kind Kind
	tell func(b *book, wrong bool)
}{
	{"an acknowledged write is not in the log", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		if wrong {
			b.log("A", p0, 2, 2, 1)
		} else {
			b.log("A", p0, 2, 1, 0, 2, 1)
		}
	}},
	{"a write that was not acknowledged may be missing, one that was may not", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		if !wrong {
			b.outcome(Unknown)
		}
		b.wrote("A", p0, 2, 1)
		b.log("A", p0, 2, 2, 1)
	}},
	{"a failover loses what it did not name", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		lost := Above(1)
		if wrong {
			lost = Range{}
		}
		b.turned("A", "B", 1, lost)
		b.wrote("B", p0, 3, 2)
		b.log("B", p0, 3, 1, 0, 3, 2)
	}},
	{"the copy has less than the failover said", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		offset := int64(1)
		if wrong {
			offset = 2
		}
		b.turned("A", "B", offset, Above(offset))
		b.wrote("B", p0, 3, 2)
		b.log("B", p0, 3, 1, 0, 3, 2)
	}},
	{"a failback gives up what clients wrote to the old cluster, outside of what was consented to", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.turned("A", "B", 1, Above(1))
		b.wrote("A", p0, 2, 1) // who ignores the fence
		b.wrote("A", p0, 3, 2)
		b.wrote("B", p0, 4, 2)
		given := Range{1, 3}
		if wrong {
			given = Range{1, 2}
		}
		b.rejoined("A", given)
		b.turned("B", "A", 3, Above(3))
		b.log("A", p0, 3, 1, 0, 4, 2)
	}},
	{"a cluster leads again, and nobody said what it gave up", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.turned("A", "B", 1, Above(1))
		b.wrote("A", p0, 2, 1)
		b.wrote("B", p0, 3, 2)
		if !wrong {
			b.rejoined("A", Range{1, 2})
		}
		b.turned("B", "A", 3, Above(3))
		b.wrote("A", p0, 4, 4)
		b.log("A", p0, 5, 1, 0, 3, 2, 4, 4)
	}},
	{"an unclean election loses what nobody named", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		lost := Range{1, 2}
		if wrong {
			lost = Range{2, 3}
		}
		b.turned("A", "A", 1, lost)
		b.wrote("A", p0, 3, 1)
		b.log("A", p0, 2, 1, 0, 3, 1)
	}},
	{"an unclean election loses what was acknowledged by the cluster before a failover", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		b.turned("A", "B", 2, Above(2))
		lost := Range{1, 2}
		if wrong {
			lost = Range{}
		}
		b.turned("B", "B", 1, lost)
		b.wrote("B", p0, 3, 1)
		b.log("B", p0, 2, 1, 0, 3, 1)
	}},
	{"a reader of uncommitted records is not given one of an aborted transaction", PollSkip, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.inTransaction("A", p0, 2, 1, 7)
		b.ended(7, false, OK)
		b.wrote("A", p0, 3, 3)
		b.polled("c", "A", p0, 1, 0, 3, 3)
		b.h.Polls[0].Committed = !wrong
	}},
	{"retention takes records, and somebody else does", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		if !wrong {
			b.h.Gone = append(b.h.Gone, Gone{At: b.at(), Partition: p0, Range: Range{0, 1}, Why: "retention"})
		}
		b.log("A", p0, 2, 2, 1)
	}},
	{"a cluster that has not rejoined has its own records", LostWrite, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.turned("A", "B", 1, Above(1))
		b.wrote("A", p0, 2, 1)
		b.log("B", p0, 1, 1, 0)
		if wrong {
			b.log("A", p0, 3, 1, 0)
		} else {
			b.log("A", p0, 2, 1, 0, 2, 1)
		}
	}},
	{"nobody reads as far as the last write", Unseen, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		if wrong {
			b.log("A", p0, 1, 1, 0)
		} else {
			b.log("A", p0, 2, 1, 0, 2, 1)
		}
	}},
	{"one write twice", Duplicate, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.outcome(Unknown)
		b.wrote("A", p0, 2, 2)
		if wrong {
			b.log("A", p0, 3, 1, 0, 1, 1, 2, 2)
		} else {
			b.log("A", p0, 3, 1, 0, 2, 2)
		}
	}},
	{"a write elsewhere than acknowledged", InconsistentOffset, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		if wrong {
			b.log("A", p0, 2, 1, 1)
		} else {
			b.log("A", p0, 2, 1, 0)
		}
	}},
	{"two writes at one offset", InconsistentOffset, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		if !wrong {
			b.turned("A", "B", 1, Above(1))
		} else {
			b.h.First = map[Partition]string{p0: "A"}
		}
		b.wrote("B", p0, 3, 1)
		b.polled("c", "B", p0, 3, 1)
	}},
	{"a log out of order", InconsistentOffset, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		if wrong {
			b.log("A", p0, 2, 2, 1, 1, 0)
		} else {
			b.log("A", p0, 2, 1, 0, 2, 1)
		}
	}},
	{"a record of an aborted transaction", AbortedRead, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		b.ended(7, !wrong, OK)
		b.polled("c", "A", p0, 1, 0)
	}},
	{"a record of a transaction that the log shows although it was aborted", AbortedRead, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		b.ended(7, !wrong, Unknown)
		b.log("A", p0, 2, 1, 0)
	}},
	{"a record of a transaction that the failover aborted", AbortedRead, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		b.turned("A", "B", 1, Above(1))
		b.h.Turns[0].AbortedAt = []int64{0}
		b.ended(7, true, OK) // A answers after the copy has ended
		if wrong {
			b.log("B", p0, 3, 1, 0)
		} else {
			b.log("B", p0, 3)
		}
	}},
	{"a record that was refused", AbortedRead, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.outcome(Unknown)
		if wrong {
			b.outcome(Failed)
		}
		b.polled("c", "A", p0, 1, 0)
	}},
	{"a record before its commit", PrecommittedRead, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		if wrong {
			b.polled("c", "A", p0, 1, 0)
		}
		b.ended(7, true, OK)
		b.polled("d", "A", p0, 1, 0)
	}},
	{"a log shows what was never committed", PrecommittedRead, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		if !wrong {
			b.ended(7, true, Unknown)
		}
		b.log("A", p0, 2, 1, 0)
	}},
	{"half of a transaction", TornTransaction, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		b.inTransaction("A", p1, 2, 0, 7)
		b.ended(7, true, Unknown)
		b.log("A", p0, 2, 1, 0)
		if wrong {
			b.log("A", p1, 2)
		} else {
			b.log("A", p1, 2, 2, 0)
		}
	}},
	{"a failover aborts in one partition what it does not name", TornTransaction, func(b *book, wrong bool) {
		b.inTransaction("A", p0, 1, 0, 7)
		b.inTransaction("A", p1, 2, 0, 7)
		b.ended(7, true, OK)
		if wrong {
			b.turned("A", "B", 1, Above(1))
		} else {
			b.turned("A", "B", 1, Above(1), NewTransaction(1, 7))
		}
		b.log("B", p0, 3)
		b.log("B", p1, 2, 2, 0)
		b.h.Turns = append(b.h.Turns, Turn{At: b.at(), Partition: p1, From: "A", To: "B", Offset: 2, Lost: Above(2)})
	}},
	{"a consumer is not given a record", PollSkip, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.inTransaction("A", p0, 2, 1, 7)
		b.ended(7, wrong, OK)
		b.wrote("A", p0, 3, 3)
		b.polled("c", "A", p0, 1, 0)
		b.polled("c", "A", p0, 3, 3)
	}},
	{"what a failover aborts is hidden in the copy before it is open, and nowhere else", PollSkip, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.inTransaction("A", p0, 2, 1, 7)
		b.wrote("A", p0, 3, 2)
		b.ended(7, true, OK)
		cluster := "B"
		if wrong {
			cluster = "A"
		}
		b.polled("c", cluster, p0, 1, 0, 3, 2)
		b.turned("A", "B", 3, Above(3), NewTransaction(1, 7))
	}},
	{"a consumer of the new line goes over what it kept", PollSkip, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		offset := int64(1)
		if wrong {
			offset = 2
		}
		b.turned("A", "B", offset, Above(offset))
		b.wrote("B", p0, 3, 3)
		b.sought("c", "B", "", 0)
		b.polled("c", "B", p0, 1, 0, 3, 3)
	}},
	{"a group resumes beyond what it has committed", PollSkip, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		b.committed("g", "A", 1)
		if wrong {
			b.sought("c", "A", "g", 2)
		} else {
			b.sought("c", "A", "g", 1)
		}
	}},
	{"a group resumes after a failover over records that it never had", PollSkip, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		b.committed("g", "A", 2)
		b.turned("A", "B", 1, Above(1))
		b.wrote("B", p0, 3, 1)
		if wrong {
			b.sought("c", "B", "g", 2)
		} else {
			b.sought("c", "B", "g", 1)
		}
	}},
	{"a consumer goes back", NonMonotonicPoll, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		b.polled("c", "A", p0, 1, 0, 2, 1)
		if !wrong {
			b.sought("c", "A", "", 0)
		}
		b.polled("c", "A", p0, 1, 0)
	}},
	{"a consumer goes back further than a turn takes it", NonMonotonicPoll, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		b.wrote("A", p0, 2, 1)
		b.polled("c", "A", p0, 1, 0, 2, 1)
		b.turned("A", "A", 1, Range{1, 2})
		b.wrote("A", p0, 3, 1)
		if wrong {
			b.polled("c", "A", p0, 1, 0)
		} else {
			b.polled("c", "A", p0, 3, 1)
		}
	}},
	{"a record that nobody wrote", NeverWritten, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		if wrong {
			b.polled("c", "A", p0, 2, 0)
		} else {
			b.polled("c", "A", p0, 1, 0)
		}
	}},
	{"a record of another partition", NeverWritten, func(b *book, wrong bool) {
		b.wrote("A", p0, 1, 0)
		if wrong {
			b.polled("c", "A", p1, 1, 0)
		} else {
			b.polled("c", "A", p0, 1, 0)
		}
	}},
}

func TestEachAnomalyIsFoundAndItsTwinHasNone(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			var wrong, right book
			s.tell(&wrong, true)
			s.tell(&right, false)
			found := Check(wrong.h, wrong.f)
			if len(found) == 0 || found[0].Kind != s.kind {
				t.Errorf("wanted %s, found %v", s.kind, found)
			}
			for _, a := range found {
				if len(a.Records) == 0 || len(a.Records) != len(a.Offsets) || a.Partition.Topic == "" || !strings.Contains(a.String(), string(a.Kind)) {
					t.Errorf("does not name partition, records and offsets: %v", a)
				}
			}
			if found := Check(right.h, right.f); len(found) > 0 {
				t.Errorf("the twin has %v", found)
			}
		})
	}
}

func TestEveryKindHasAStory(t *testing.T) {
	for _, k := range []Kind{LostWrite, Unseen, Duplicate, InconsistentOffset, AbortedRead, PrecommittedRead, PollSkip, NonMonotonicPoll, TornTransaction, NeverWritten} {
		if !slices.ContainsFunc(stories, func(s struct {
			name string
			kind Kind
			tell func(b *book, wrong bool)
		}) bool {
			return s.kind == k
		}) {
			t.Errorf("no story of %s", k)
		}
	}
}

func TestHistoriesOfClientsAreMerged(t *testing.T) {
	var a, b book
	a.wrote("A", p0, 1, 0)
	a.turned("A", "B", 1, Above(1))
	a.polled("c", "A", p0, 1, 0)
	a.committed("g", "A", 1)
	b.now = 10
	b.rejoined("A", Range{1, 1})
	b.sought("d", "B", "", 1)
	b.polled("d", "B", p0, 2, 1)
	b.committed("g", "B", 2)
	b.inTransaction("B", p0, 3, 2, 7)
	b.ended(7, false, OK)
	b.h.Gone = append(b.h.Gone, Gone{At: b.at(), Partition: p0, Range: Range{0, 1}})
	b.wrote("B", p0, 2, 1)
	b.turned("B", "A", 4, Above(4))
	b.log("A", p0, 2, 1, 0, 2, 1)
	h := Merge(b.h, a.h)
	if h.Turns[0].To != "B" || len(h.Produces) != 3 || len(h.Turns) != 2 || len(h.Polls) != 2 || len(h.Commits) != 2 || len(h.Rejoins) != 1 || len(h.Gone) != 1 || len(h.Seeks) != 1 || len(h.Ends) != 1 {
		t.Fatalf("%+v", h)
	}
	if found := Check(h, b.f); len(found) > 0 {
		t.Error(found)
	}
}

// A million records take three times as long.
func TestABigHistoryIsCheckedInSeconds(t *testing.T) {
	const writers, each = 8, 40_000
	var h History
	var f Final
	for p := range int32(writers) {
		at := Partition{"orders", p}
		all := make([]Seen, 0, each)
		for i := range each {
			now := Moment(i) * 10
			r := NewRecord(uint32(p), uint32(i)+1)
			w := Produce{Span: Span{now, now + 5}, Cluster: "A", Partition: at, Record: r, Offset: int64(i), Outcome: OK}
			if i >= each/2 {
				w.Cluster, w.Offset = "B", int64(i)+1
			}
			h.Produces, all = append(h.Produces, w), append(all, Seen{w.Offset, r})
		}
		h.Turns = append(h.Turns, Turn{At: Moment(each/2)*10 - 1, Partition: at, From: "A", To: "B", Offset: each / 2, Lost: Above(each / 2)})
		for _, consumer := range []string{"x", "y", "z"} {
			for i := 0; i < each; i += 500 {
				h.Polls = append(h.Polls, Poll{Span: Span{Moment(i) * 10, Moment(i+500) * 10}, Consumer: consumer, Cluster: "B", Partition: at, Committed: true, Records: all[i : i+500]})
			}
		}
		f.Logs = append(f.Logs, Log{Cluster: "B", Partition: at, Records: all, End: each + 1})
	}
	begun := time.Now()
	if found := Check(h, f); len(found) > 0 {
		t.Fatal(found[0])
	}
	t.Logf("%d records in %v", len(h.Produces), time.Since(begun))
}
