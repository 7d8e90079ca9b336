package chaos_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/statemachine"
)

// evidence is all that is left when everybody has ended.
type evidence struct {
	partitions []partitionEvidence
	events     []told
	history    clienthistory.History
	trimmings  []trimming
	permits    []permit
}

// partitionEvidence is one partition.
type partitionEvidence struct {
	at          clienthistory.Partition
	source      []piece           // on the leader's disk
	replicas    map[int32][]piece // on the disks of the others in sync
	sourceStart int64             // where the source's log starts, at least
	trimmed     bool              // records were deleted at the source
	copy        []piece
	rest        int // bytes behind the last whole batch of the copy
	disk        onDisk
	had         int64 // where the copy ended when the source was killed
	report      result
	clients     []clienthistory.Produce // to the copy, once it was open
}

// finding is one violation.
type finding struct {
	kind string // start, order, missing, extra, bytes, markers, open, epoch, gate, report, replica, unexplained; or an anomaly's name
	at   string
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s: %s: %s", f.kind, f.at, f.what) }

// judge says everything that is wrong.
func judge(e evidence) (found []finding) {
	final := clienthistory.Final{}
	history := clienthistory.Merge(e.history)
	for i := range e.partitions {
		p := &e.partitions[i]
		bad := func(kind, format string, args ...any) {
			found = append(found, finding{kind, p.at.String(), fmt.Sprintf(format, args...)})
		}
		p.judgeReport(bad)
		p.judgeOrder(bad)
		p.judgeBytes(bad)
		p.judgeMarkers(bad)
		seen, open, err := committed(since(p.copy, p.disk.Start), p.disk.Start)
		if err != nil {
			bad("bytes", "the copy cannot be read: %v", err)
		}
		for _, producer := range slices.Sorted(maps.Keys(open)) {
			bad("open", "the transaction of producer %d from offset %d on has no end in the copy", producer, open[producer])
		}
		final.Logs = append(final.Logs, clienthistory.Log{Cluster: copied, Partition: p.at, Records: seen, End: endOf(p.copy, p.disk.Start)})
		turn := clienthistory.Turn{At: clienthistory.Moment(1 << 62), Partition: p.at, From: source, To: copied, Offset: p.report.FinalOffset, Lost: clienthistory.Above(p.report.FinalOffset)}
		for _, c := range p.clients {
			turn.At = min(turn.At, c.Start)
		}
		for _, a := range p.report.Aborts {
			turn.AbortedAt = append(turn.AbortedAt, a.FirstOffset)
		}
		history.First[p.at] = source
		history.Turns = append(history.Turns, turn)
		history.Produces = append(history.Produces, p.clients...)
		if p.trimmed {
			history.Gone = append(history.Gone, clienthistory.Gone{At: turn.At, Partition: p.at, Range: clienthistory.Range{From: 0, To: p.disk.Start}, Why: "retention or DeleteRecords"})
		}
	}
	for _, x := range e.unexplained() {
		found = append(found, finding{"unexplained", where(x).String(), x.Text})
	}
	for _, a := range clienthistory.Check(history, final) {
		found = append(found, finding{string(a.Kind), a.Partition.String(), a.String()})
	}
	return found
}

type verdict = func(kind, format string, args ...any)

func (p *partitionEvidence) judgeReport(bad verdict) {
	r := &p.report
	switch {
	case r.Err != "" || r.State != statemachine.Stopped:
		bad("report", "it is %v: %s", r.State, r.Err)
	case r.FinalOffset < 0 || r.ResetAt < r.FinalOffset || r.OpensAt != r.ResetAt+1:
		bad("report", "final offset %d, reset at %d, opens at %d", r.FinalOffset, r.ResetAt, r.OpensAt)
	case r.FinalOffset < p.had:
		bad("missing", "the copy ended at %d when the source was killed, and its final offset is %d", p.had, r.FinalOffset)
	case !p.disk.Open:
		bad("gate", "the failover is done and the log on disk is closed")
	}
	for _, c := range p.clients {
		if c.Offset < r.OpensAt {
			bad("gate", "a client wrote to offset %d; the copy opened at %d", c.Offset, r.OpensAt)
		}
	}
}

// judgeOrder: whole batches in rising order, under epochs that do not fall.
func (p *partitionEvidence) judgeOrder(bad verdict) {
	if p.rest > 0 {
		bad("order", "%d bytes behind the last whole batch", p.rest)
	}
	next, epoch := int64(-1), int32(-1)
	for _, b := range p.copy {
		if b.base < next {
			bad("order", "the batch at %d comes behind the one that ends at %d", b.base, next-1)
		}
		if b.epoch < epoch {
			bad("epoch", "the batch at %d has leader epoch %d, the one before it %d", b.base, b.epoch, epoch)
		}
		if b.epoch > p.disk.LeaderEpoch {
			bad("epoch", "the batch at %d has leader epoch %d, the log's is %d", b.base, b.epoch, p.disk.LeaderEpoch)
		}
		next, epoch = b.next, b.epoch
	}
}

// compared is where the offsets begin that both the copy and the source's files have. They end at the final offset.
func (p *partitionEvidence) compared() int64 {
	switch {
	case len(p.source) > 0:
		return max(p.disk.Start, p.source[0].base)
	case p.trimmed:
		return p.report.FinalOffset
	}
	return p.disk.Start
}

// judgeBytes holds the copy below its final offset against the disks of the source.
func (p *partitionEvidence) judgeBytes(bad verdict) {
	if p.disk.Start > p.sourceStart {
		bad("start", "the copy begins at %d, the source at %d", p.disk.Start, p.sourceStart)
	}
	if len(p.source) > 0 && p.source[0].base > p.disk.Start && !p.trimmed {
		bad("start", "the source's files begin at %d, the copy at %d, and nobody deleted anything", p.source[0].base, p.disk.Start)
	}
	start := p.compared()
	mine := before(since(p.copy, start), p.report.FinalOffset)
	p.compare(mine, before(since(p.source, start), p.report.FinalOffset), func(kind, format string, args ...any) { bad(kind, "leader's disk: "+format, args...) })
	for _, id := range slices.Sorted(maps.Keys(p.replicas)) {
		theirs := p.replicas[id]
		from := start
		switch {
		case len(theirs) > 0:
			from = max(from, theirs[0].base)
		case p.trimmed:
			continue
		}
		p.compare(since(mine, from), before(since(theirs, from), p.report.FinalOffset), func(kind, format string, args ...any) {
			bad(kind, "disk of broker %d, which was in sync: "+format, append([]any{id}, args...)...)
		})
	}
}

func (p *partitionEvidence) compare(mine, theirs []piece, bad verdict) {
	for i := range max(len(mine), len(theirs)) {
		switch {
		case i == len(mine), i < len(theirs) && theirs[i].base < mine[i].base:
			bad("missing", "the batch [%d,%d) of the source is not in the copy, whose final offset is %d", theirs[i].base, theirs[i].next, p.report.FinalOffset)
			return
		case i == len(theirs), mine[i].base < theirs[i].base:
			bad("extra", "the copy's batch [%d,%d) is not at the source", mine[i].base, mine[i].next)
			return
		case !bytes.Equal(mine[i].raw, theirs[i].raw):
			at := 0
			for at < min(len(mine[i].raw), len(theirs[i].raw)) && mine[i].raw[at] == theirs[i].raw[at] {
				at++
			}
			bad("bytes", "the batch [%d,%d) differs in byte %d: %d bytes, at the source %d", mine[i].base, mine[i].next, at, len(mine[i].raw), len(theirs[i].raw))
			return
		}
	}
}

// before are the batches that begin below end.
func before(all []piece, end int64) []piece {
	i := slices.IndexFunc(all, func(p piece) bool { return p.base >= end })
	if i < 0 {
		return all
	}
	return all[:i]
}

// judgeMarkers: behind the final offset come one ABORT for each transaction that was open there, then one reset, then clients' batches.
func (p *partitionEvidence) judgeMarkers(bad verdict) {
	final := p.report.FinalOffset
	below := before(p.copy, final)
	if n := len(below); n > 0 && below[n-1].next > final {
		bad("markers", "the batch [%d,%d) lies on both sides of the final offset %d", below[n-1].base, below[n-1].next, final)
	}
	_, open, err := committed(below, p.disk.Start)
	if err != nil {
		bad("bytes", "the copy cannot be read: %v", err)
		return
	}
	reported := map[int64]int64{}
	for _, a := range p.report.Aborts {
		reported[a.ProducerID] = a.FirstOffset
	}
	reset := false
	for _, b := range p.copy[len(below):] {
		if b.epoch <= p.report.LME {
			bad("epoch", "the batch at %d, behind the final offset, has leader epoch %d; the last mirror epoch is %d", b.base, b.epoch, p.report.LME)
		}
		switch {
		case reset && b.control >= 0:
			bad("markers", "a control batch of type %d at %d, behind the reset", b.control, b.base)
		case reset:
		case b.control == markerReset:
			reset = true
			if b.base != p.report.ResetAt {
				bad("markers", "the reset is at %d, reported at %d", b.base, p.report.ResetAt)
			}
		case b.control != markerAbort:
			bad("markers", "a batch of type %d at %d, in front of the reset", b.control, b.base)
		default:
			first, was := open[b.producer]
			if !was && (p.disk.Start == 0 || reported[b.producer] >= p.disk.Start) {
				bad("markers", "ABORT of producer %d at %d, which had no open transaction", b.producer, b.base)
			}
			if at, said := reported[b.producer]; !said || was && first != at && first > p.disk.Start {
				bad("markers", "ABORT of producer %d, open from %d on; the report says %d (%t)", b.producer, first, at, said)
			}
			delete(open, b.producer)
			delete(reported, b.producer)
		}
	}
	if !reset {
		bad("markers", "no MIRROR_PID_RESET behind the final offset %d", final)
	}
	for _, producer := range slices.Sorted(maps.Keys(open)) {
		bad("markers", "no ABORT for producer %d, whose transaction is open from offset %d on", producer, open[producer])
	}
	for _, producer := range slices.Sorted(maps.Keys(reported)) {
		bad("markers", "an ABORT for producer %d was reported and is not in the log", producer)
	}
}
