package lives

import (
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// One is the status of one partition.
func One(s mirror.Status, topic string, partition int32) mirror.PartitionStatus {
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p
			}
		}
	}
	return mirror.PartitionStatus{State: statemachine.Unknown}
}

// Show is a status for a person.
func Show(s mirror.Status) string {
	var b strings.Builder
	for _, t := range s.Topics {
		fmt.Fprintf(&b, "\n%s %s err=%v", t.Topic, t.MirrorName, t.Err)
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, "\n  %d %s %s [%d,%d) replicated=%d epoch=%d source=[%d,%d) leader=%d epoch=%d lag=%d reason=%q attempt=%d owner=%s", p.Partition, p.State, p.Step,
				p.Start, p.End, p.Replicated, p.LeaderEpoch, p.SourceStart, p.SourceEnd, p.SourceLeader, p.SourceLeaderEpoch, p.LagOffsets, p.Reason, p.RetryAttempt, p.Owner)
		}
	}
	return b.String()
}
