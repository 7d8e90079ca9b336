package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
)

// Forced is what Force did with one partition.
type Forced struct {
	Partition mirror.TopicPartition
	TopicID   mirror.TopicID
	Leader    int32 // the stock broker that leads it now
	// Epoch and End are the last mirror epoch and offset: the leader epoch of the last mirrored batch (−1: none), and where the mirror ended.
	Epoch   int32
	End     int64
	Aborted int             // open transactions that were ended by ABORT markers
	Lacking map[int32]int64 // by broker, where a copy ended that was shorter; it copies the rest from the leader
	Unasked []int32         // replicas that could not be asked what they hold
	Err     error
}

// Force opens partitions whose mirror process is gone and does not come back, without one. Where any process can be started under the node id, start it and stop the topics there:
// that gives every guarantee, this does not. cfg is the gone process's Config; nothing is registered, and Folder and Listen are not used. topics nil: everything that it led.
//
// It refuses while that process is alive. For each partition, in this order: the longest living copy is found; the brokers use up the producer ids that they hold; record is called
// with the last mirror epoch and offset, and has to keep them, because a failback needs them; the longest copy is elected; its open transactions are aborted; the topic's settings are
// put back. What cannot be kept of what a stop promises:
//
//   - clients may write from the election on, before the transactions that were open are aborted;
//   - no MIRROR_PID_RESET is written: a mirror further down this chain takes this log's producers for the source's;
//   - records that only a copy on a broker which is not alive has are given up (Forced.Unasked);
//   - leader epochs are not raised above the last mirror epoch first; where the election did not do it, Forced.Err says so.
func Force(ctx context.Context, cfg Config, topics []string, record func(context.Context, Forced) error) ([]Forced, error) {
	if cfg.Folder == "" {
		cfg.Folder = "unused"
	}
	if cfg.Listen == "" {
		cfg.Listen = "unused"
	}
	if record == nil {
		return nil, errors.New("kraft: Force without record: the last mirror epochs would be lost, and with them the failback")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := newDestination(cfg)
	defer d.Close()
	if err := d.connect(); err != nil {
		return nil, err
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return nil, err
	}
	alive := false
	var mine []clustermetadata.Partition
	d.meta.look(func(im *clustermetadata.Image) {
		b, ok := im.Broker(cfg.NodeID)
		alive = ok && !b.Fenced
		for _, p := range im.PartitionsOf(cfg.NodeID) {
			if topics == nil || slices.Contains(topics, p.Topic) {
				mine = append(mine, p)
			}
		}
		d.membership.listener, d.membership.protocol, err = d.brokerListener(im)
	})
	if err != nil {
		return nil, err
	}
	if alive {
		return nil, fmt.Errorf("kraft: mirror process %d is alive (or was a moment ago: its session ends %s after its last heartbeat); stop the topics through it", cfg.NodeID, cfg.SessionTimeout)
	}
	if len(mine) == 0 {
		return nil, fmt.Errorf("kraft: broker %d has no partition of the topics %v", cfg.NodeID, topics)
	}
	forced := make([]Forced, len(mine))
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i, p := range mine {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			forced[i] = d.force(ctx, p, record)
		})
	}
	wg.Wait()
	var all []error
	for _, f := range forced {
		all = append(all, f.Err)
	}
	return forced, errors.Join(all...)
}

func (d *Destination) force(ctx context.Context, p clustermetadata.Partition, record func(context.Context, Forced) error) (f Forced) {
	tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
	f = Forced{Partition: tp, TopicID: p.TopicID, Leader: p.Leader, Epoch: -1, Lacking: map[int32]int64{}}
	fail := func(err error) Forced {
		f.Err = err
		return f
	}
	stock := without(target(p), d.cfg.NodeID)
	if p.Leader < 0 {
		l := d.log(tp)
		choice, err := l.longest(ctx, stock)
		if err != nil {
			return fail(err)
		}
		f.End = choice.End
		if n := len(choice.Epochs); n > 0 {
			f.Epoch = choice.Epochs[n-1].Epoch
		}
		for _, s := range choice.Standings {
			switch {
			case s.Err != nil:
				f.Unasked = append(f.Unasked, s.Broker)
			case s.End < choice.End:
				f.Lacking[s.Broker] = s.End
			}
		}
		if err := d.producers.burnAll(ctx, d.producers.next()-1); err != nil {
			return fail(d.errorf(tp, "%w", err))
		}
		f.Leader = choice.Broker
		if err := record(ctx, f); err != nil {
			return fail(d.errorf(tp, "keeping the last mirror epoch %d and offset %d: %w; nothing was opened", f.Epoch, f.End, err))
		}
		if err := d.setReplicas(ctx, tp, append([]int32{choice.Broker}, without(stock, choice.Broker)...)); err != nil {
			return fail(err)
		}
		if err := d.electUnclean(ctx, tp); err != nil {
			return fail(err)
		}
		if err := d.meta.wait(ctx, fmt.Sprintf("broker %d to lead %s-%d", choice.Broker, tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
			now, ok := im.Partition(tp.Topic, tp.Partition)
			return !ok || now.Leader >= 0
		}); err != nil {
			return fail(err)
		}
		now, err := d.partition(tp)
		switch {
		case err != nil:
			return fail(err)
		case now.Leader != choice.Broker:
			f.Leader = now.Leader
			f.Err = d.errorf(tp, "broker %d was elected and not %d, which had the longest copy, up to %d: compare the copies before clients write", now.Leader, choice.Broker, choice.End)
		case now.LeaderEpoch <= f.Epoch:
			f.Err = d.errorf(tp, "its leader epoch is %d and the last mirror epoch %d: what clients write looks to a failback like what the source wrote; elect leaders until it is above, before clients write", now.LeaderEpoch, f.Epoch)
		}
	}
	n, err := d.abortOpen(ctx, tp, f.Leader)
	f.Aborted = n
	if err != nil {
		f.Err = errors.Join(f.Err, err)
	}
	// The stock leader completes the reassignment when its followers are in sync; settings are put back when this node is out.
	if err := d.meta.wait(ctx, fmt.Sprintf("broker %d to leave %s-%d", d.cfg.NodeID, tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
		now, ok := im.Partition(tp.Topic, tp.Partition)
		return !ok || !slices.Contains(now.Replicas, d.cfg.NodeID)
	}); err != nil {
		f.Err = errors.Join(f.Err, d.errorf(tp, "it is open, led by %d; its replicas are not in sync yet, and its settings min.insync.replicas and unclean.leader.election.enable are not put back: force it again later: %w", f.Leader, err))
		return f
	}
	if err := d.putBack(ctx, tp.Topic); err != nil {
		f.Err = errors.Join(f.Err, err)
	}
	return f
}

// longest is the longest living copy.
func (l *Log) longest(ctx context.Context, stock []int32) (replicareader.Choice, error) {
	m, err := l.d.remembered.of(ctx, l.tp.Topic, l.id)
	if err != nil {
		return replicareader.Choice{}, err
	}
	copies, _ := l.copies(ctx, stock, m.Unconfirmed[l.tp.Partition])
	return l.compare(ctx, copies)
}

// electUnclean has the first living replica elected.
func (d *Destination) electUnclean(ctx context.Context, tp mirror.TopicPartition) error {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = 1, int32(d.cfg.RequestTimeout.Milliseconds())
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
	req.Topics = append(req.Topics, t)
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	resp, err := d.client.Controller(bounded, req)
	if err != nil {
		return d.errorf(tp, "electing the longest copy: %w", err)
	}
	r := resp.(*kmsg.ElectLeadersResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return d.errorf(tp, "electing the longest copy: %w", err)
	}
	for _, at := range r.Topics {
		for _, ap := range at.Partitions {
			if err := kerr.ErrorForCode(ap.ErrorCode); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
				return d.errorf(tp, "electing the longest copy: %w%s", err, said(ap.ErrorMessage))
			}
		}
	}
	return nil
}

// abortOpen ends the transactions that are open on a stock leader: same producer epoch, the coordinator epoch last seen, by the rules of transactions before KIP-890, which
// is what a broker takes from somebody who is not the coordinator.
func (d *Destination) abortOpen(ctx context.Context, tp mirror.TopicPartition, leader int32) (int, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
	req.Topics = append(req.Topics, t)
	var open []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for {
		bounded, stop := d.cfg.bounded(ctx)
		resp, err := d.client.Broker(bounded, leader, req)
		stop()
		if err != nil {
			return 0, d.errorf(tp, "looking for open transactions: %w", err)
		}
		for _, at := range resp.(*kmsg.DescribeProducersResponse).Topics {
			for _, ap := range at.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(ap.ErrorCode))
				for _, producer := range ap.ActiveProducers {
					if producer.CurrentTxnStartOffset >= 0 {
						open = append(open, producer)
					}
				}
			}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, kerr.NotLeaderForPartition) || pause(ctx, 50) != nil { // it has just been elected
			return 0, d.errorf(tp, "looking for open transactions: %w", err)
		}
	}
	if len(open) == 0 {
		return 0, nil
	}
	abort := kmsg.NewPtrWriteTxnMarkersRequest()
	for _, producer := range open {
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = producer.ProducerID, int16(producer.ProducerEpoch), max(0, producer.CoordinatorEpoch)
		mt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		mt.Topic, mt.Partitions = tp.Topic, []int32{tp.Partition}
		m.Topics = append(m.Topics, mt)
		abort.Markers = append(abort.Markers, m)
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	resp, err := d.client.Broker(bounded, leader, abort)
	if err != nil {
		return 0, d.errorf(tp, "aborting open transactions: %w", err)
	}
	done := 0
	for _, m := range resp.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, at := range m.Topics {
			for _, ap := range at.Partitions {
				if e := kerr.ErrorForCode(ap.ErrorCode); e != nil {
					err = errors.Join(err, d.errorf(tp, "aborting the transaction of producer %d: %w", m.ProducerID, e))
					continue
				}
				done++
			}
		}
	}
	return done, err
}
