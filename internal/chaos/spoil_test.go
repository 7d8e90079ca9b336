package chaos_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txnabort"
)

// spoil is one way to spoil evidence, and what has to be said of it then.
type spoil struct {
	name string
	kind string // of one finding at least
	do   func(p *partitionEvidence, e *evidence) bool
}

// spoilt is the text of an event that was made up, and spoiltAt about when: before anything real.
const spoilt = "made up"

var spoiltAt = time.Unix(1000, 0)

// tell adds an event that must be named.
func tell(p *partitionEvidence, e *evidence, kind string, from, to int64, after time.Duration) bool {
	e.events = append(slices.Clone(e.events), told{Time: spoiltAt.Add(after), Kind: kind, Topic: p.at.Topic, Partition: p.at.Partition, From: from, To: to, Text: spoilt})
	return true
}

// trimmedOnce lets the source's log start rise to 5.
func trimmedOnce(p *partitionEvidence, e *evidence, after time.Duration) {
	e.trimmings = append(slices.Clone(e.trimmings), trimming{p.at, 5, spoiltAt.Add(after)})
}

// lostOnce adds a loss that is explained behind trimmedOnce: a drop that ends at 3 comes from it.
func lostOnce(p *partitionEvidence, e *evidence) {
	e.events = append(slices.Clone(e.events), told{Time: spoiltAt.Add(time.Second), Kind: "RecordsLost", Topic: p.at.Topic, Partition: p.at.Partition, From: 3, To: 5, Text: "explained"})
}

// permitOnce lets an election take [20, 30).
func permitOnce(p *partitionEvidence, e *evidence) {
	e.permits = append(slices.Clone(e.permits), permit{p.at, clienthistory.Range{From: 20, To: 30}, spoiltAt})
}

// amid is a batch of a log, the copy's or the source's, among those that are compared: neither the first nor the last one. −1: there is none.
func (p *partitionEvidence) amid(log []piece) int {
	log = before(log, p.report.FinalOffset)
	n := len(since(log, p.compared()))
	if n < 3 {
		return -1
	}
	return len(log) - n + n/3
}

var spoilers = []spoil{
	{"one byte of the copy", "bytes", func(p *partitionEvidence, _ *evidence) bool {
		i := p.amid(p.copy)
		if i < 0 {
			return false
		}
		raw := slices.Clone(p.copy[i].raw)
		raw[len(raw)-3] ^= 1
		p.copy[i].raw = raw
		return true
	}},
	{"one batch of the copy is missing", "missing", func(p *partitionEvidence, _ *evidence) bool {
		i := p.amid(p.copy)
		if i < 0 {
			return false
		}
		p.copy = slices.Delete(p.copy, i, i+1)
		return true
	}},
	{"the last batch in front of the markers is missing", "missing", func(p *partitionEvidence, _ *evidence) bool {
		n := len(before(p.copy, p.report.FinalOffset))
		if n == 0 || p.copy[n-1].base < p.compared() {
			return false
		}
		p.copy = slices.Delete(p.copy, n-1, n)
		return true
	}},
	{"a failover that takes back what the copy had", "missing", func(p *partitionEvidence, _ *evidence) bool {
		p.had = p.report.FinalOffset + 1
		return true
	}},
	{"a batch twice", "order", func(p *partitionEvidence, _ *evidence) bool {
		p.copy = slices.Insert(p.copy, len(p.copy)/3, p.copy[len(p.copy)/3])
		return true
	}},
	{"a batch of another log", "extra", func(p *partitionEvidence, _ *evidence) bool {
		i := p.amid(p.source)
		if i < 0 {
			return false
		}
		p.source = slices.Delete(p.source, i, i+1)
		return true
	}},
	{"no reset", "markers", func(p *partitionEvidence, _ *evidence) bool {
		i := slices.IndexFunc(p.copy, func(b piece) bool { return b.control == markerReset })
		p.copy = slices.Delete(p.copy, i, i+1)
		return true
	}},
	{"a transaction without its ABORT", "open", func(p *partitionEvidence, _ *evidence) bool {
		n := len(before(p.copy, p.report.FinalOffset))
		if p.copy[n].control != markerAbort {
			return false
		}
		p.copy = slices.Delete(p.copy, n, n+1)
		return true
	}},
	{"a loss that nothing explains", "unexplained", func(_ *partitionEvidence, e *evidence) bool {
		e.events = append(slices.Clone(e.events), told{Kind: "RecordsLost", Topic: plain, From: 3, To: 5, Text: spoilt})
		return true
	}},
	{"a loss in another partition than records were deleted in", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		other := partitionEvidence{at: clienthistory.Partition{Topic: p.at.Topic, Partition: 99}}
		return tell(&other, e, "RecordsLost", 3, 5, 2*time.Second)
	}},
	{"what an election took is dropped in another partition", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		permitOnce(p, e)
		other := partitionEvidence{at: clienthistory.Partition{Topic: p.at.Topic, Partition: 99}}
		return tell(&other, e, "RecordsDropped", 20, 30, time.Second)
	}},
	{"a loss of what the source still had", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		return tell(p, e, "RecordsLost", 3, 6, 2*time.Second)
	}},
	{"a loss told before the source deleted it", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 10*time.Second)
		return tell(p, e, "RecordsLost", 3, 5, 2*time.Second)
	}},
	{"a loss of nothing, that a drop could lean on", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		return tell(p, e, "RecordsLost", 5, 5, 2*time.Second)
	}},
	{"a drop below the log start, without a loss", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		return tell(p, e, "RecordsDropped", 0, 3, 2*time.Second)
	}},
	{"a drop that ends in front of where the loss begins", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		lostOnce(p, e)
		return tell(p, e, "RecordsDropped", 0, 2, 2*time.Second)
	}},
	{"a drop told before its loss", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		tell(p, e, "RecordsDropped", 0, 3, 2*time.Second)
		lostOnce(p, e)
		return true
	}},
	{"two drops, one loss", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		trimmedOnce(p, e, 0)
		lostOnce(p, e)
		e.events = append(e.events, told{Time: spoiltAt.Add(time.Second), Kind: "RecordsDropped", Topic: p.at.Topic, Partition: p.at.Partition, From: 0, To: 3, Text: "the first"})
		return tell(p, e, "RecordsDropped", 0, 3, 2*time.Second)
	}},
	{"what an election took, dropped in front of it", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		permitOnce(p, e)
		return tell(p, e, "RecordsDropped", 20, 30, -time.Second)
	}},
	{"more is dropped than an election took", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		permitOnce(p, e)
		return tell(p, e, "RecordsDropped", 19, 30, time.Second)
	}},
	{"what an election took, dropped twice", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		permitOnce(p, e)
		e.events = append(slices.Clone(e.events), told{Time: spoiltAt.Add(time.Second), Kind: "RecordsDropped", Topic: p.at.Topic, Partition: p.at.Partition, From: 20, To: 30, Text: "the first"})
		return tell(p, e, "RecordsDropped", 20, 30, 2*time.Second)
	}},
	{"a later life of a topic is dropped with the consent for an earlier one", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		e.permits = append(slices.Clone(e.permits), permit{p.at, clienthistory.Range{From: 0, To: 30}, spoiltAt})
		e.events = append(slices.Clone(e.events), told{Time: spoiltAt.Add(time.Second), Kind: "RecordsDropped", Topic: p.at.Topic, Partition: p.at.Partition, From: 0, To: 30, Text: "the first"})
		return tell(p, e, "RecordsDropped", 0, 10, 2*time.Second)
	}},
	{"a life that went on behind the consent is dropped", "unexplained", func(p *partitionEvidence, e *evidence) bool {
		e.permits = append(slices.Clone(e.permits), permit{p.at, clienthistory.Range{From: 0, To: 30}, spoiltAt})
		return tell(p, e, "RecordsDropped", 0, 31, time.Second)
	}},
	{"the gate is closed", "gate", func(p *partitionEvidence, _ *evidence) bool {
		p.disk.Open = false
		return true
	}},
	{"an acknowledged record that is nowhere", string(clienthistory.LostWrite), func(p *partitionEvidence, e *evidence) bool {
		if p.report.FinalOffset <= p.disk.Start {
			return false
		}
		e.history.Produces = append(slices.Clone(e.history.Produces), clienthistory.Produce{Span: clienthistory.Span{Start: 1, End: 2}, Cluster: source, Partition: p.at,
			Record: clienthistory.NewRecord(8888, 1), Offset: p.report.FinalOffset - 1, Outcome: clienthistory.OK})
		return true
	}},
	{"a record at another offset than it was acknowledged with", string(clienthistory.InconsistentOffset), func(p *partitionEvidence, e *evidence) bool {
		e.history.Produces = slices.Clone(e.history.Produces)
		for i := range e.history.Produces {
			if x := &e.history.Produces[i]; x.Partition == p.at && x.Outcome == clienthistory.OK && x.Transaction == 0 && x.Offset+1 < p.report.FinalOffset && x.Offset >= p.disk.Start {
				x.Offset++
				return true
			}
		}
		return false
	}},
	{"a record twice, behind all others", string(clienthistory.Duplicate), func(p *partitionEvidence, _ *evidence) bool {
		i := slices.IndexFunc(p.copy, func(b piece) bool { return b.control < 0 && !b.transactional && b.base >= p.disk.Start })
		if i < 0 {
			return false
		}
		last, raw := p.copy[len(p.copy)-1], slices.Clone(p.copy[i].raw)
		binary.BigEndian.PutUint64(raw, uint64(last.next)) // neither is covered by the checksum
		binary.BigEndian.PutUint32(raw[12:], uint32(last.epoch))
		again, _, err := cut(raw)
		p.copy = append(p.copy, again...)
		return err == nil
	}},
	{"a part of a committed transaction is missing", string(clienthistory.TornTransaction), func(p *partitionEvidence, e *evidence) bool {
		for _, end := range e.history.Ends {
			if !end.Commit || end.Outcome != clienthistory.OK {
				continue
			}
			var offsets []int64
			for _, x := range e.history.Produces {
				if x.Transaction == end.Transaction && x.Partition == p.at && x.Outcome == clienthistory.OK && x.Offset >= p.disk.Start && x.Offset < p.report.FinalOffset {
					offsets = append(offsets, x.Offset)
				}
			}
			if len(offsets) < 2 {
				continue
			}
			with := func(offset int64) func(piece) bool {
				return func(b piece) bool { return b.base <= offset && offset < b.next }
			}
			first, last := slices.IndexFunc(p.copy, with(slices.Min(offsets))), slices.IndexFunc(p.copy, with(slices.Max(offsets)))
			marker := slices.IndexFunc(p.copy[max(last, 0):], func(b piece) bool { return b.control == markerCommit && b.producer == p.copy[max(last, 0)].producer })
			if first < 0 || first == last || marker < 0 || p.copy[last+marker].next > p.report.FinalOffset {
				continue
			}
			p.copy = slices.Delete(p.copy, first, first+1)
			return true
		}
		return false
	}},
	{"a reader is not given a record", string(clienthistory.PollSkip), func(p *partitionEvidence, e *evidence) bool {
		for i, x := range e.history.Polls {
			if x.Partition == p.at && len(x.Records) > 2 {
				x.Records = slices.Delete(slices.Clone(x.Records), 1, 2)
				e.history.Polls = slices.Clone(e.history.Polls)
				e.history.Polls[i] = x
				return true
			}
		}
		return false
	}},
	{"a reader goes back", string(clienthistory.NonMonotonicPoll), func(p *partitionEvidence, e *evidence) bool {
		for _, x := range e.history.Polls {
			if x.Partition == p.at && len(x.Records) > 0 {
				at := slices.IndexFunc(e.history.Polls, func(y clienthistory.Poll) bool { return y.Consumer == x.Consumer && y.Partition == x.Partition })
				again := e.history.Polls[at]
				e.history.Polls = slices.Insert(slices.Clone(e.history.Polls), at+1, again)
				return true
			}
		}
		return false
	}},
	{"an aborted record is read", string(clienthistory.AbortedRead), func(p *partitionEvidence, e *evidence) bool {
		for _, end := range e.history.Ends {
			if end.Commit || end.Outcome != clienthistory.OK {
				continue
			}
			for _, x := range e.history.Produces {
				if x.Transaction == end.Transaction && x.Partition == p.at && x.Outcome == clienthistory.OK {
					e.history.Polls = append(slices.Clone(e.history.Polls), clienthistory.Poll{Span: clienthistory.Span{Start: end.Span.End, End: end.Span.End + 1}, Consumer: "spoiler", Cluster: source,
						Partition: p.at, Committed: true, Records: []clienthistory.Seen{{Offset: x.Offset, Record: x.Record}}})
					return true
				}
			}
		}
		return false
	}},
}

// spoilAll spoils the evidence in each way, in some partition where that can be done, and demands that it is named.
func spoilAll(t *testing.T, all evidence) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	named := 0
	for _, s := range spoilers {
		done := false
		for _, i := range rng.Perm(len(all.partitions)) {
			e := all
			e.partitions = slices.Clone(e.partitions)
			p := &e.partitions[i]
			p.copy, p.source = slices.Clone(p.copy), slices.Clone(p.source)
			if len(p.copy) < 10 || !s.do(p, &e) {
				continue
			}
			done = true
			found := judge(e)
			right := func(f finding) bool { return f.kind == s.kind && (s.kind != "unexplained" || f.what == spoilt) }
			if !slices.ContainsFunc(found, right) || s.kind == "unexplained" && len(found) > 1 {
				t.Errorf("spoilt: %s in %v: not named as %q; found %v", s.name, p.at, s.kind, found)
			} else {
				named++
			}
			break
		}
		if !done {
			t.Errorf("spoilt: %s: no partition where that can be done", s.name)
		}
	}
	t.Logf("%d ways to spoil the evidence are named", named)
}

// made is evidence of a run that never was: one partition with plain records, a committed, an aborted and an open transaction. Of the first batches that are asked for the records are
// deleted at the source, whose files still have them.
func made(t *testing.T, deleted int) evidence {
	t.Helper()
	at := clienthistory.Partition{Topic: plain}
	var log []byte
	var h clienthistory.History
	end, n := int64(0), uint32(0)
	var given []clienthistory.Seen // by the transaction that is under way
	poll := func(seen []clienthistory.Seen) {
		now := clienthistory.Moment(10*end + 6)
		h.Polls = append(h.Polls, clienthistory.Poll{Span: clienthistory.Span{Start: now, End: now + 1}, Consumer: "reader", Cluster: source, Partition: at, Committed: true, Records: seen})
	}
	add := func(producer int64, txn clienthistory.Transaction, records int) {
		spec := batch.DataSpec{BaseOffset: end, LeaderEpoch: 1, ProducerID: producer, Transactional: txn != 0, BaseTimestamp: 1000}
		span := clienthistory.Span{Start: clienthistory.Moment(10 * end), End: clienthistory.Moment(10*end + 5)}
		var seen []clienthistory.Seen
		for i := range records {
			n++
			r := clienthistory.NewRecord(1, n)
			spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), Value: fmt.Appendf(nil, "1.%d|", n)})
			h.Produces = append(h.Produces, clienthistory.Produce{Span: span, Cluster: source, Partition: at, Record: r, Offset: end + int64(i), Transaction: txn, Outcome: clienthistory.OK})
			seen = append(seen, clienthistory.Seen{Offset: end + int64(i), Record: r})
		}
		if txn == 0 {
			poll(seen)
		} else {
			given = append(given, seen...)
		}
		log = batch.AppendData(log, spec)
		end += int64(records)
	}
	finish := func(producer int64, txn clienthistory.Transaction, commit bool) {
		how := batch.ControlAbort
		if commit {
			how = batch.ControlCommit
		}
		log = batch.AppendControl(log, batch.ControlSpec{BaseOffset: end, LeaderEpoch: 1, ProducerID: producer, Transactional: true, Timestamp: 1000, Key: []byte{0, 0, 0, byte(how)}, Value: []byte{0, 0, 0, 0, 0, 0}})
		h.Ends = append(h.Ends, clienthistory.End{Span: clienthistory.Span{Start: clienthistory.Moment(10 * end), End: clienthistory.Moment(10*end + 5)}, Transaction: txn, Commit: commit, Outcome: clienthistory.OK})
		if commit {
			poll(given)
		}
		given = nil
		end++
	}
	for range deleted {
		add(-1, 0, 2)
	}
	start := end
	for range 4 {
		add(-1, 0, 2)
	}
	add(500, 1, 3)
	add(500, 1, 3)
	finish(500, 1, true)
	add(501, 2, 2)
	finish(501, 2, false)
	for range 4 {
		add(-1, 0, 1)
	}
	open := end
	add(502, 3, 2)
	add(-1, 0, 1)
	whole := func(log []byte) []piece {
		all, rest, err := cut(log)
		if err != nil || len(rest) > 0 {
			t.Fatal(err, len(rest))
		}
		return all
	}
	original := whole(slices.Clone(log))
	final := end
	log = append(log, txnabort.Abort(end, 2, producerstate.Transaction{ProducerID: 502, FirstOffset: open, LastOffset: open + 1}, 2000)...)
	log = append(log, txnabort.PIDReset(end+1, 2, 2000)...)
	client := clienthistory.NewRecord(9000, 1)
	log = batch.AppendData(log, batch.DataSpec{BaseOffset: end + 2, LeaderEpoch: 2, ProducerID: -1, BaseTimestamp: 3000, Records: []batch.Record{{Value: []byte("9000.1|")}}})
	p := partitionEvidence{at: at, source: original, sourceStart: start, trimmed: deleted > 0, replicas: map[int32][]piece{2: original}, copy: since(whole(log), start), had: final,
		disk: onDisk{Start: start, LeaderEpoch: 2, Open: true},
		report: result{FailoverResult: mirror.FailoverResult{State: statemachine.Stopped, FinalOffset: final, LME: 1, ResetAt: final + 1, OpensAt: final + 2,
			Aborts: []mirror.AbortMarker{{ProducerID: 502, FirstOffset: open, Offset: final}}}},
		clients: []clienthistory.Produce{{Span: clienthistory.Span{Start: 10_000, End: 10_001}, Cluster: copied, Partition: at, Record: client, Offset: final + 2, Outcome: clienthistory.OK}}}
	return evidence{partitions: []partitionEvidence{p}, history: h}
}

// TestTheVerdictCanBeNo spoils evidence that is well in each way, also where much was deleted at the source.
func TestTheVerdictCanBeNo(t *testing.T) {
	for _, deleted := range []int{0, 40} {
		e := made(t, deleted)
		if found := judge(e); len(found) > 0 {
			t.Fatalf("what is well is found wrong: %v", found)
		}
		spoilAll(t, e)
	}

	e := made(t, 0)
	p := &e.partitions[0]
	trimmedOnce(p, &e, time.Second)
	lostOnce(p, &e)
	permitOnce(p, &e)
	for _, r := range []clienthistory.Range{{From: 0, To: 3}, {From: 20, To: 29}} {
		e.events = append(e.events, told{Time: spoiltAt.Add(2 * time.Second), Kind: "RecordsDropped", Topic: plain, From: r.From, To: r.To, Text: "explained"})
	}
	if found := judge(e); len(found) > 0 {
		t.Errorf("what has its reasons is found wrong: %v", found)
	}
}
