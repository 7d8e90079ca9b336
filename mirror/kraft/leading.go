package kraft

import (
	"slices"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// leading says who leads a partition.
type leading int

const (
	weLead      leading = iota
	peerLeads           // another mirror process
	stockLeads          // clients may write
	weReturn            // nobody in this moment; the controllers elect this process when they let it in
	nobodyLeads         // and a stock broker is to be started
)

// whoLeads says who leads a partition. The error is why nobody does.
func (d *Destination) whoLeads(p clustermetadata.Partition) (leading, error) {
	tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
	us := func(ids []int32) bool { return slices.Contains(ids, d.cfg.NodeID) }
	switch {
	case p.Leader == d.cfg.NodeID:
		return weLead, nil
	case p.Leader >= 0 && d.isMirror(p.Leader):
		return peerLeads, nil
	case p.Leader >= 0:
		return stockLeads, nil
	case us(p.ISR) || us(p.ELR) || us(p.LastKnownELR):
		return weReturn, d.errorf(tp, "it has no leader in this moment; this process is being let in by the controllers")
	}
	if target := target(p); len(p.ISR)+len(p.ELR)+len(p.LastKnownELR) == 0 && len(target) > 0 && target[0] == d.cfg.NodeID { // Kafka: ReplicationControlManager, ClearElrRecord
		return nobodyLeads, d.errorf(tp, "it has no leader, and the controllers do not know any more who may be: min.insync.replicas was changed while this process was away (KIP-966). Its copies are there. While this process is alive, "+
			"kafka-leader-election.sh --election-type unclean makes it the leader again: the first living replica is elected, which is this process")
	}
	return nobodyLeads, d.errorf(tp, "it has no leader; start the brokers %v", without(p.Replicas, d.cfg.NodeID))
}

// mirrored says that a mirror process is among these replicas.
func (d *Destination) mirrored(replicas []int32) bool {
	return slices.ContainsFunc(replicas, func(id int32) bool { return id == d.cfg.NodeID || d.isMirror(id) })
}
