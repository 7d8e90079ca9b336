package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
)

// Forced is what Force did with one partition, or would do (PlanForce).
type Forced struct {
	Partition mirror.TopicPartition
	TopicID   mirror.TopicID
	Leader    int32 // the stock broker that leads it now
	// Epoch and End are the last mirror epoch and offset: the leader epoch of the last mirrored batch (−1: none), and where the mirror ended.
	Epoch   int32
	End     int64
	Aborted int             // transactions that were open below End and were ended by ABORT markers; of a plan: are open, −1 if that is not known
	Lacking map[int32]int64 // by broker, where a copy ended that was shorter; it copies the rest from the leader
	Unasked []int32         // replicas that could not be asked what they hold
	Again   bool            // an earlier Force has had Leader elected, and has not finished
	Opened  bool            // by this Force or an earlier one, so clients may write; also beside an Err. false in a plan
	Led     bool            // beside an Err: Leader leads it, whoever had it elected, so it is open to clients
	Err     error

	finishes bool // what Force has changed to open it is to be put back
}

// finishBound is how long Force waits until what it opened is in sync and its settings can be put back. It is open meanwhile.
const finishBound = 30 * time.Second

// Force opens partitions whose mirror process is gone and does not come back, without one. Where any process can be started under the node id, start it and stop the topics there:
// that gives every guarantee, this does not. cfg is the gone process's Config; nothing is registered, and Folder and Listen are not used. topics nil: everything that it led.
//
// It refuses while that process is alive, and watches a registration that is there for a session before it takes the process for gone; what that has left to a successor is taken away, so that
// nobody comes by it. For each partition, in this order: the longest living copy is found; the brokers use up the producer ids that they hold; record is called
// with the last mirror epoch and offset, for several partitions at a time, and has to keep them, because a failback needs them; the longest copy is elected; the transactions that the mirror left open in it are aborted;
// the topic's settings are put back, for which the copies have to be in sync: that is waited for 30 s at most, when all partitions are open. Config.Notice is told HandedOver of each partition
// in the moment in which it is open. Before each record and each election it is looked again whether a process came to life under the node id. What was not finished is gone on with by
// another Force with the same Config.Remember: it aborts no transaction that began after the recorded end, those are clients'. A partition that a stock broker leads without a Force is
// refused: it is open, and a process under the node id finishes that. What cannot be kept of what a stop promises:
//
//   - clients may write from the election on, before the transactions that were open are aborted;
//   - no MIRROR_PID_RESET is written: a mirror further down this chain takes this log's producers for the source's;
//   - records that only a copy on a broker which is not alive has are given up (Forced.Unasked);
//   - leader epochs are not raised above the last mirror epoch first; where the election did not do it, Forced.Err says so.
func Force(ctx context.Context, cfg Config, topics []string, record func(context.Context, Forced) error) ([]Forced, error) {
	if record == nil {
		return nil, errors.New("kraft: Force without record: the last mirror epochs would be lost, and with them the failback")
	}
	d, mine, err := abandonedBy(ctx, cfg, topics, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	given := d.producers.next() - 1
	forced := ofEach(mine, 16, func(p clustermetadata.Partition) Forced { return d.force(ctx, p, given, record) })
	// All are open before any is waited for: one whose broker is dead holds up no other.
	finishing, stop := context.WithTimeout(ctx, finishBound)
	defer stop()
	forced = ofEach(forced, len(forced), func(f Forced) Forced {
		if f.finishes {
			f = d.finishForced(finishing, f)
		}
		return d.led(f)
	})
	var all []error
	for _, f := range forced {
		all = append(all, f.Err)
	}
	return forced, errors.Join(all...)
}

// PlanForce says what Force would do now with each partition, and changes nothing: who would be elected, where its copy ends, who lacks what, which replicas do not answer, and how many
// transactions would be aborted. What it would refuse is in Forced.Err. The error is that of everything: the process lives, or has no such partition.
func PlanForce(ctx context.Context, cfg Config, topics []string) ([]Forced, error) {
	d, mine, err := abandonedBy(ctx, cfg, topics, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return ofEach(mine, 16, func(p clustermetadata.Partition) Forced {
		f, _, err := d.judge(ctx, p)
		if f.Err = err; err != nil {
			return d.led(f)
		}
		f.Aborted = -1
		if open, err := d.openTransactions(ctx, f.Partition, f.Leader, f.End); err == nil {
			f.Aborted = len(open)
		}
		return f
	}), nil
}

// abandonedBy are the partitions of these topics, nil: all, that a process has which is gone. toAct: something will be done with them. The caller closes the Destination.
func abandonedBy(ctx context.Context, cfg Config, topics []string, toAct bool) (d *Destination, mine []clustermetadata.Partition, err error) {
	if d, err = observe(ctx, cfg); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(cfg.NodeID) {
			if topics == nil || slices.Contains(topics, p.Topic) {
				mine = append(mine, p)
			}
		}
		d.membership.listener, d.membership.protocol, err = d.brokerListener(im)
	})
	if err == nil {
		err = d.gone(ctx, toAct)
	}
	if err != nil {
		return d, nil, err
	}
	// What an earlier Force has opened, and Kafka has taken this node id out of since, is finished too: its settings are not put back.
	all, err := d.remembered.all(ctx)
	if err != nil {
		return d, nil, err
	}
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		for _, n := range slices.Sorted(maps.Keys(all[topic].Forced)) {
			p, err := d.partitionOf(mirror.TopicPartition{Topic: topic, Partition: n}, all[topic].TopicID)
			if err == nil && !slices.Contains(p.Replicas, cfg.NodeID) && (topics == nil || slices.Contains(topics, topic)) {
				mine = append(mine, p)
			}
		}
	}
	if len(mine) == 0 {
		err = fmt.Errorf("kraft: broker %d has no partition of the topics %v", cfg.NodeID, topics)
	}
	return d, mine, err
}

// ofEach calls f for all partitions, most at a time, and returns the answers in their order.
func ofEach[P any](ps []P, most int, f func(P) Forced) []Forced {
	forced := make([]Forced, len(ps))
	slots := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			forced[i] = f(p)
		})
	}
	wg.Wait()
	return forced
}

// leaderless returns the partition as it is now, if nobody lives under the node id and nothing changed since what was seen.
func (d *Destination) leaderless(ctx context.Context, seen clustermetadata.Partition) (clustermetadata.Partition, error) {
	tp := mirror.TopicPartition{Topic: seen.Topic, Partition: seen.Partition}
	if err := d.meta.caughtUp(ctx); err != nil {
		return seen, d.errorf(tp, "%w", err)
	}
	if err := d.stillGone(); err != nil {
		return seen, err
	}
	now, err := d.partition(tp)
	if err == nil && (now.TopicID != seen.TopicID || now.Leader >= 0 || now.PartitionEpoch != seen.PartitionEpoch) {
		err = d.errorf(tp, "somebody changed it meanwhile (leader %d, partition epoch %d, before %d): look at it, and force it again", now.Leader, now.PartitionEpoch, seen.PartitionEpoch)
	}
	return now, err
}

// judge finds what Force is to do with a partition: whom it is to have elected, and where the mirror ended. p is the partition as it is then. One that an earlier Force has opened has a leader.
func (d *Destination) judge(ctx context.Context, seen clustermetadata.Partition) (f Forced, p clustermetadata.Partition, err error) {
	p = seen
	tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
	f = Forced{Partition: tp, TopicID: p.TopicID, Leader: p.Leader, Epoch: -1, Lacking: map[int32]int64{}}
	m, err := d.remembered.of(ctx, tp.Topic, p.TopicID)
	if err != nil {
		return f, p, err
	}
	before, again := m.Forced[tp.Partition]
	switch waits := slices.Contains(slices.Concat(p.ISR, p.ELR, p.LastKnownELR), d.cfg.NodeID); {
	case p.Leader >= 0 && !again:
		return f, p, d.errorf(tp, "broker %d leads it, and no Force has elected it: it is open, a take-over was not finished; stop it through a process under node id %d", p.Leader, d.cfg.NodeID)
	case p.Leader < 0 && again && !waits:
		return f, p, d.errorf(tp, "it was forced before, up to %d, and its leader since then has gone: start broker %d", before.End, before.Leader)
	case p.Leader >= 0:
		f.Leader, f.Epoch, f.End, f.Again = before.Leader, before.Epoch, before.End, true
		return f, p, nil
	}
	if p, err = d.leaderless(ctx, p); err != nil {
		return f, p, err
	}
	choice, err := d.log(tp).longest(ctx, without(target(p), d.cfg.NodeID))
	if err != nil {
		return f, p, err
	}
	f.Leader, f.End = choice.Broker, choice.End
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
	return f, p, nil
}

// force does one partition. given is the highest producer id that brokers may hold.
func (d *Destination) force(ctx context.Context, p clustermetadata.Partition, given int64, record func(context.Context, Forced) error) Forced {
	f, p, err := d.judge(ctx, p)
	tp, elected := f.Partition, f.Leader
	fail := func(err error) Forced {
		f.Err = err
		return f
	}
	switch {
	case err != nil:
		return fail(err)
	case p.Leader >= 0:
		f.Opened = true
		if f.Leader = p.Leader; p.Leader != elected {
			f.Err = d.errorf(tp, "broker %d leads it, Force elected %d", p.Leader, elected)
		}
	default:
		if err := d.producers.burnAll(ctx, given); err != nil {
			return fail(d.errorf(tp, "%w", err))
		}
		recorded := false
		err := d.open(ctx, p, without(target(p), d.cfg.NodeID), f, func(ctx context.Context, f Forced) error {
			err := record(ctx, f)
			recorded = err == nil
			return err
		})
		now, gone := d.partitionOf(tp, p.TopicID) // it may have been deleted meanwhile
		f.Opened = recorded && gone == nil && now.Leader >= 0 && now.Leader != d.cfg.NodeID
		switch {
		case err != nil:
			return fail(err)
		case gone != nil:
			return fail(gone)
		}
		d.notice(Event{Kind: HandedOver, Partition: tp, Text: fmt.Sprintf("broker %d leads it, the mirror ended at %d in epoch %d", now.Leader, f.End, f.Epoch)})
		switch {
		case now.Leader != elected:
			f.Leader = now.Leader
			f.Err = d.errorf(tp, "broker %d was elected and not %d, which had the longest copy, up to %d: compare the copies before clients write", now.Leader, elected, f.End)
		case now.LeaderEpoch <= f.Epoch:
			f.Err = d.errorf(tp, "its leader epoch is %d and the last mirror epoch %d: what clients write looks to a failback like what the source wrote; elect leaders until it is above, before clients write", now.LeaderEpoch, f.Epoch)
		}
	}
	if f.Leader == elected {
		n, err := d.abortOpen(ctx, tp, f.Leader, f.End)
		f.Aborted = n
		f.Err = errors.Join(f.Err, err)
	} else { // its copy may have been shorter, and then clients' transactions begin below the end
		f.Err = errors.Join(f.Err, d.errorf(tp, "transactions that the mirror left open are not aborted: look for them (kafka-transactions.sh find-hanging)"))
	}
	f.finishes = true
	return f
}

// led says of a partition that has an error whether it is open all the same.
func (d *Destination) led(f Forced) Forced {
	if now, err := d.partitionOf(f.Partition, f.TopicID); f.Err != nil && err == nil && now.Leader >= 0 && now.Leader != d.cfg.NodeID {
		f.Led, f.Leader = true, now.Leader
	}
	return f
}

// finishForced puts back what is to be put back of an open partition, when this node is out of its replicas.
func (d *Destination) finishForced(ctx context.Context, f Forced) Forced {
	tp := f.Partition
	if err := d.leaveForced(ctx, tp, f.TopicID); err != nil {
		f.Err = errors.Join(f.Err, err)
		_, gone := d.partitionOf(tp, f.TopicID) // deleted meanwhile
		f.Opened = gone == nil
		return f
	}
	err := d.putBack(ctx, tp.Topic)
	if err == nil {
		err = d.remembered.change(ctx, tp.Topic, f.TopicID, func(m *memory) { delete(m.Forced, tp.Partition) })
	}
	if err != nil {
		err = d.errorf(tp, "it is open; its settings min.insync.replicas and unclean.leader.election.enable may not be put back: force it again: %w", err)
	}
	f.Err = errors.Join(f.Err, err)
	return f
}

// leaveForced returns when this node is out of the replicas of a partition that a stock broker leads.
//
// The reassignment that takes it out was asked for while nobody led the partition. The controllers complete one only together with another change of the partition that leaves all of its target in sync. The
// follower that comes in sync as the last one makes that change; where there is none, as the leader has the only copy, nobody ever does. So once all of the target is in sync the reassignment is
// cancelled and asked for again, and completes in the request itself (Kafka: PartitionChangeBuilder.completeReassignmentIfNeeded). The cancel deletes nothing: nobody is being added.
func (d *Destination) leaveForced(ctx context.Context, tp mirror.TopicPartition, id mirror.TopicID) error {
	tried := int32(-1)
	for {
		var now clustermetadata.Partition
		waiting := func(im *clustermetadata.Image) bool {
			p, ok := im.Partition(tp.Topic, tp.Partition)
			now = p
			stock := without(target(p), d.cfg.NodeID)
			asked := len(stock) < len(target(p)) || p.Leader >= 0 && len(p.Adding) == 0 && beyond(stock, p.ISR) == 0 // to be asked for, or again
			return !ok || p.TopicID != id || !slices.Contains(p.Replicas, d.cfg.NodeID) || asked && p.PartitionEpoch != tried
		}
		err := d.meta.wait(ctx, fmt.Sprintf("broker %d to leave %s-%d", d.cfg.NodeID, tp.Topic, tp.Partition), waiting)
		stock := without(target(now), d.cfg.NodeID)
		if err == nil {
			if now, err = d.partitionOf(tp, id); err != nil || !slices.Contains(now.Replicas, d.cfg.NodeID) {
				return err
			}
			if err = d.askAgain(ctx, tp, id, now); err == nil {
				if now, err = d.partitionOf(tp, id); err != nil {
					return err
				}
				tried = now.PartitionEpoch
				continue
			}
		}
		if now.Leader < 0 {
			return d.errorf(tp, "it was opened, and nobody leads it now: start the brokers %v, and force it again: %w", now.ISR, err)
		}
		why := fmt.Sprintf("broker %d is still among its replicas", d.cfg.NodeID)
		if late := slices.DeleteFunc(slices.Clone(stock), func(id int32) bool { return slices.Contains(now.ISR, id) }); len(late) > 0 {
			why = fmt.Sprintf("brokers %v are not in sync yet", late)
		}
		return d.errorf(tp, "it is open, led by %d; %s, and so its settings min.insync.replicas and unclean.leader.election.enable are not put back: force it again later: %w", now.Leader, why, err)
	}
}

// askAgain asks for the reassignment that takes this node out of a partition, also where it is pending already.
func (d *Destination) askAgain(ctx context.Context, tp mirror.TopicPartition, id mirror.TopicID, p clustermetadata.Partition) error {
	stock := without(target(p), d.cfg.NodeID)
	if len(stock) == 0 {
		return errors.New("no stock broker is among its replicas")
	}
	if slices.Contains(p.Removing, d.cfg.NodeID) {
		err := carryOut(ctx, &d.requests.reassign, reassignment{tp, nil})
		if err != nil && !errors.Is(err, kerr.NoReassignmentInProgress) { // it has ended meanwhile
			return err
		}
		if err := d.meta.caughtUp(ctx); err != nil {
			return err
		}
		if now, err := d.partitionOf(tp, id); err != nil || !slices.Contains(now.Replicas, d.cfg.NodeID) {
			return err
		}
	}
	return d.setReplicasOf(ctx, tp, id, stock)
}

// open has f's leader elected, after what f says was recorded.
func (d *Destination) open(ctx context.Context, p clustermetadata.Partition, stock []int32, f Forced, record func(context.Context, Forced) error) error {
	tp := f.Partition
	p, err := d.leaderless(ctx, p)
	if err != nil {
		return err
	}
	if err := d.remembered.change(ctx, tp.Topic, p.TopicID, func(m *memory) {
		if m.Forced == nil {
			m.Forced = map[int32]forcedEnd{}
		}
		m.Forced[tp.Partition] = forcedEnd{Leader: f.Leader, Epoch: f.Epoch, End: f.End}
	}); err != nil {
		return err
	}
	if err := record(ctx, f); err != nil {
		return d.errorf(tp, "keeping the last mirror epoch %d and offset %d: %w; nothing was opened", f.Epoch, f.End, err)
	}
	if p, err = d.leaderless(ctx, p); err != nil {
		return err
	}
	if err := d.setReplicas(ctx, tp, append([]int32{f.Leader}, without(stock, f.Leader)...)); err != nil {
		return err
	}
	if p, err = d.partition(tp); err != nil {
		return err
	}
	if _, err := d.leaderless(ctx, p); err != nil {
		return err
	}
	if err := d.electUnclean(ctx, tp); err != nil {
		return err
	}
	return d.meta.wait(ctx, fmt.Sprintf("broker %d to lead %s-%d", f.Leader, tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
		now, ok := im.Partition(tp.Topic, tp.Partition)
		return !ok || now.Leader >= 0
	})
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
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	answers, err := d.requests.sendElect(bounded, uncleanElect, []mirror.TopicPartition{tp})
	if err == nil {
		err = answers[0]
	}
	if err != nil {
		return d.errorf(tp, "%w", err)
	}
	return nil
}

// openTransactions are those that a broker's copy has open, and that began below an offset. A follower answers too (KIP-664).
func (d *Destination) openTransactions(ctx context.Context, tp mirror.TopicPartition, broker int32, below int64) (open []kmsg.DescribeProducersResponseTopicPartitionActiveProducer, err error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = tp.Topic, []int32{tp.Partition}
	req.Topics = append(req.Topics, t)
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	resp, err := d.client.Broker(bounded, broker, req)
	if err != nil {
		return nil, d.errorf(tp, "looking for open transactions: %w", err)
	}
	for _, at := range resp.(*kmsg.DescribeProducersResponse).Topics {
		for _, ap := range at.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(ap.ErrorCode))
			for _, producer := range ap.ActiveProducers {
				if at := producer.CurrentTxnStartOffset; at >= 0 && at < below {
					open = append(open, producer)
				}
			}
		}
	}
	if err != nil {
		return nil, d.errorf(tp, "looking for open transactions: %w", err)
	}
	return open, nil
}

// abortOpen ends the transactions that are open on a stock leader and began below an offset: same producer epoch, the coordinator epoch last seen, by the rules of transactions before KIP-890, which
// is what a broker takes from somebody who is not the coordinator.
func (d *Destination) abortOpen(ctx context.Context, tp mirror.TopicPartition, leader int32, below int64) (int, error) {
	open, err := d.openTransactions(ctx, tp, leader, below)
	for errors.Is(err, kerr.NotLeaderForPartition) && pause(ctx, 50) == nil { // it has just been elected
		open, err = d.openTransactions(ctx, tp, leader, below)
	}
	if err != nil {
		return 0, err
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
	for {
		bounded, stop := d.cfg.bounded(ctx)
		resp, err := d.client.Broker(bounded, leader, abort)
		stop()
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
		// It has just been elected, and may not know it in this moment.
		if done > 0 || !errors.Is(err, kerr.NotLeaderForPartition) || pause(ctx, 50) != nil {
			return done, err
		}
	}
}
