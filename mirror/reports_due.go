package mirror

import (
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Thousands of partitions are not reported each time that one of their moments has moved. A partition is reported
//
//   - at once when anything of it is new but offsets, open transactions and moments: its state, why, whether it is fetched, what was lost …;
//   - when its offsets or open transactions are, endsAfter after its last report; those of a STOPPED one are its clients', and no news;
//   - when only a moment is new at which it was seen, refreshedAfter after its last report, and not at all while it is live: for those the one report of the node says up to when the reports
//     of all of them hold (NodeReport.Measured).
//
// So the ends that others see are endsAfter old at most, and a little; five thousand partitions in which nothing happens are one record every five seconds, and five thousand busy ones five hundred a second.
const (
	endsAfter      = 8 * time.Second // with reports every five seconds: each second one
	refreshedAfter = 5 * time.Minute
)

// toldReports are the newest reports of partitions that were written.
type toldReports map[TopicPartition]PartitionReport

// due are those that are to be written now, and what the node can say of the others.
func (t toldReports) due(node *NodeReport, partitions []PartitionReport) (fresh []PartitionReport) {
	node.Measured = time.Time{}
	for _, p := range partitions {
		was, told := t[TopicPartition{p.Topic, p.Partition}]
		if p.left && (!told || was.left) {
			continue // somebody else has it, and reports it
		}
		holds := p.SourceSeen // up to when what others read of it is right
		switch age := p.At.Sub(was.At); {
		case !told, !sameButEnds(was, p), endsMoved(was, p) && age >= endsAfter, seenAgain(was, p) && age >= refreshedAfter:
			fresh = append(fresh, p)
		case endsMoved(was, p):
			holds = was.SourceSeen
		}
		if p.Live && (node.Measured.IsZero() || holds.Before(node.Measured)) {
			node.Measured = holds
		}
	}
	return fresh
}

// note takes in what was written.
func (t toldReports) note(fresh []PartitionReport) {
	for _, p := range fresh {
		t[TopicPartition{p.Topic, p.Partition}] = p
	}
}

// sameButEnds says that only moments and what moves with the records differ.
func sameButEnds(a, b PartitionReport) bool {
	b.At, b.SourceSeen, b.InStep = a.At, a.SourceSeen, a.InStep
	b.SourceEnd, b.DestinationStart, b.DestinationEnd, b.OpenTransactions, b.OpenFrom = a.SourceEnd, a.DestinationStart, a.DestinationEnd, a.OpenTransactions, a.OpenFrom
	return a == b
}

func endsMoved(a, b PartitionReport) bool {
	return b.State != statemachine.Stopped && (a.SourceEnd != b.SourceEnd || a.DestinationStart != b.DestinationStart || a.DestinationEnd != b.DestinationEnd ||
		a.OpenTransactions != b.OpenTransactions || a.OpenFrom != b.OpenFrom)
}

func seenAgain(a, b PartitionReport) bool { return !b.Live && !a.SourceSeen.Equal(b.SourceSeen) }
