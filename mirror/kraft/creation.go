package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// A mirrored partition stands like this: its replicas are this process and the stock brokers that copy from it, this process alone is in sync, nothing is being reassigned, and its
// topic says min.insync.replicas=1 and unclean.leader.election.enable=false for itself. Then nobody else can be elected, whatever dies, and nothing that an operator may cancel would
// delete a copy.
//
// A topic comes to that shape by four requests. It is created with this process as its only replica, so a stock broker cannot lead it even if this process is fenced in that moment.
// The stock brokers are added by a reassignment. They are taken into the in-sync replicas, which completes it: the log is empty, so they have everything. Then they are taken out again.
// Between the last two a death of this process would make a stock broker the leader of an empty topic; nothing that was mirrored is touched by that, and the next start finds an open
// topic and says so.

// CreateTopic creates a topic that this process leads. spec.SourceID cannot be taken over: Kafka has no field for it (F-34).
func (d *Destination) CreateTopic(ctx context.Context, spec mirror.TopicSpec) (mirror.Topic, error) {
	end, err := d.begin()
	if err != nil {
		return mirror.Topic{}, err
	}
	defer end()
	if have, err := d.Topic(ctx, spec.Name); err == nil {
		return have, fmt.Errorf("kraft: topic %s: %w", spec.Name, mirror.ErrTopicExists)
	} else if !errors.Is(err, mirror.ErrUnknownTopic) {
		return mirror.Topic{}, err
	}
	if spec.Configs[tieredStorage] == "true" {
		return mirror.Topic{}, errTiered(spec.Name)
	}
	if len(d.liveBrokers()) < d.cfg.ReplicationFactor {
		return mirror.Topic{}, fmt.Errorf("kraft: creating topic %s: %d copies are wanted and only brokers %v are alive; start the others, or lower ReplicationFactor", spec.Name, d.cfg.ReplicationFactor, d.liveBrokers())
	}
	d.keepSettings(spec.Name)
	defer d.freeSettings(spec.Name)
	configs := maps.Clone(spec.Configs)
	if configs == nil {
		configs = map[string]string{}
	}
	wanted := map[string]*string{minInSync: nil, uncleanElection: nil}
	for name := range wanted {
		if v, ok := spec.Configs[name]; ok {
			wanted[name] = &v
		}
	}
	configs[minInSync], configs[uncleanElection] = "1", "false"
	alone := make([][]int32, spec.Partitions)
	for i := range alone {
		alone[i] = []int32{d.cfg.NodeID}
	}
	// What the topic is to say for itself is remembered before it exists: a crash, or the loss of the answer, must not leave a topic of which nobody knows whose it is and what to put
	// back. Its id is not known yet.
	if err := d.remembered.change(ctx, spec.Name, mirror.TopicID{}, func(m *memory) { m.Configs, m.Creator = wanted, d.cfg.NodeID }); err != nil {
		return mirror.Topic{}, err
	}
	exists := false
	err = d.barrier.sharing(ctx, func() error { // a fenced broker is given nothing
		return d.membership.uncordoned(ctx, func() error {
			err := d.requests.createTopic(ctx, spec.Name, alone, configs)
			exists = errors.Is(err, kerr.TopicAlreadyExists)
			return err
		})
	})
	if err != nil && !exists {
		return mirror.Topic{}, err
	}
	if err := d.meta.wait(ctx, "topic "+spec.Name+" in the metadata", func(im *clustermetadata.Image) bool {
		_, n, ok := im.Topic(spec.Name)
		return ok && n >= int(spec.Partitions) || ok && exists
	}); err != nil {
		return mirror.Topic{}, err
	}
	t, ok := d.topic(spec.Name)
	if !ok {
		return t, fmt.Errorf("kraft: topic %s: %w at the destination: somebody has deleted it already", spec.Name, mirror.ErrUnknownTopic)
	}
	if exists && !d.justCreated(spec.Name) { // somebody else's, and not made by a request of ours whose answer was lost
		return t, fmt.Errorf("kraft: topic %s: %w", spec.Name, mirror.ErrTopicExists)
	}
	if err := d.remembered.change(ctx, spec.Name, t.ID, func(m *memory) { m.Configs = wanted }); err != nil {
		return t, err
	}
	return t, d.shape(ctx, t.Name, 0, t.Partitions)
}

// justCreated says whether a topic looks as CreateTopic's request leaves one: led by this process, which is its only replica, under the safe settings.
func (d *Destination) justCreated(topic string) (is bool) {
	d.meta.look(func(im *clustermetadata.Image) {
		_, n, _ := im.Topic(topic)
		is = n > 0 && unsafeConfig(im, topic) == ""
		for i := range int32(n) {
			p, _ := im.Partition(topic, i)
			is = is && len(target(p)) == 1 && target(p)[0] == d.cfg.NodeID
		}
	})
	return is
}

// adopt remembers of a topic that this process leads what is to be put back, if a crash came between its creation and that.
func (d *Destination) adopt(ctx context.Context, topic string, id mirror.TopicID) error {
	all, err := d.remembered.all(ctx)
	if err != nil {
		return err
	}
	m, ok := all[topic]
	if ok && m.TopicID == id && m.Configs != nil {
		return nil
	}
	// What the topic says for itself is its own where it is not what this process sets.
	configs := map[string]*string{minInSync: nil, uncleanElection: nil}
	d.meta.look(func(im *clustermetadata.Image) {
		for name, safe := range map[string]string{minInSync: "1", uncleanElection: "false"} {
			if v, set := im.Config(clustermetadata.TopicResource, topic, name); set && v != safe {
				configs[name] = &v
			}
		}
	})
	if ok && m.creating() {
		configs = m.Configs
	}
	return d.remembered.change(ctx, topic, id, func(m *memory) {
		if m.Configs == nil {
			m.Configs = configs
		}
	})
}

// GrowTopic adds partitions. Those of a topic that this process leads are led by it from the start; they must have as many replicas as the others, so for them there is a moment
// between creation and the shrinking of the in-sync replicas, as there is in CreateTopic.
func (d *Destination) GrowTopic(ctx context.Context, name string, partitions int32) (mirror.Topic, error) {
	end, err := d.begin()
	if err != nil {
		return mirror.Topic{}, err
	}
	defer end()
	t, err := d.Topic(ctx, name)
	switch {
	case err != nil:
		return t, err
	case partitions < t.Partitions:
		return t, fmt.Errorf("kraft: topic %s has %d partitions and cannot have %d", name, t.Partitions, partitions)
	case partitions == t.Partitions:
		return t, nil
	}
	d.keepSettings(name)
	defer d.freeSettings(name)
	first, err := d.partition(mirror.TopicPartition{Topic: name})
	if err != nil {
		return t, err
	}
	before := t.Partitions
	var assignment [][]int32
	ours := slices.Contains(first.Replicas, d.cfg.NodeID)
	if ours {
		for p := before; p < partitions; p++ {
			replicas, err := d.placement(int(p), len(target(first))-1)
			if err != nil {
				return t, fmt.Errorf("kraft: adding partitions to topic %s: %w", name, err)
			}
			assignment = append(assignment, replicas)
		}
	}
	// The new partitions' replicas are in sync from the start: no fence before they are taken out.
	if err := d.barrier.sharing(ctx, func() error {
		if err := d.membership.uncordoned(ctx, func() error { return d.requests.createPartitions(ctx, name, partitions, assignment) }); err != nil {
			return err
		}
		if err := d.meta.wait(ctx, fmt.Sprintf("%d partitions of topic %s", partitions, name), func(im *clustermetadata.Image) bool {
			_, n, ok := im.Topic(name)
			return !ok || n >= int(partitions)
		}); err != nil || !ours {
			return err
		}
		return d.each(ctx, name, before, partitions, func(ctx context.Context, tp mirror.TopicPartition) error {
			if err := d.awaitLeading(ctx, tp); err != nil {
				return err
			}
			return d.alone(ctx, tp)
		})
	}); err != nil {
		return t, err
	}
	if t, ok := d.topic(name); ok && ours {
		return t, d.shape(ctx, name, before, partitions)
	}
	return d.Topic(ctx, name)
}

// placement is this process and n live stock brokers, another first one for each partition.
func (d *Destination) placement(partition, n int) ([]int32, error) {
	live := d.liveBrokers()
	if len(live) < n {
		return nil, fmt.Errorf("%d copies are wanted and only brokers %v are alive; start the others, or lower ReplicationFactor", n, live)
	}
	replicas := []int32{d.cfg.NodeID}
	for i := range n {
		replicas = append(replicas, live[(partition+i)%len(live)])
	}
	return replicas, nil
}

// shape brings empty partitions [from, to) of a topic that this process leads to their shape, and opens their logs.
func (d *Destination) shape(ctx context.Context, topic string, from, to int32) error {
	return d.each(ctx, topic, from, to, func(ctx context.Context, tp mirror.TopicPartition) error {
		if err := d.awaitLeading(ctx, tp); err != nil {
			return err
		}
		l := d.log(tp)
		if l == nil { // somebody has deleted it already
			return d.errorf(tp, "%w at the destination", mirror.ErrUnknownTopic)
		}
		if err := l.work.take(ctx); err != nil {
			return d.errorf(tp, "something else is under way with it: %w", err)
		}
		defer l.work.release()
		p, err := d.partition(tp)
		if err != nil {
			return err
		}
		if l.mine("") != nil || l.log.Held() { // else somebody was faster, and it may hold something already
			if err := l.begin(p, leaderlog.Found{}); err != nil {
				return err
			}
		}
		if l.log.Start() != l.log.End() {
			return nil // what is appended to is in its shape
		}
		return d.complete(ctx, l)
	})
}

func (d *Destination) awaitLeading(ctx context.Context, tp mirror.TopicPartition) error {
	return d.meta.wait(ctx, fmt.Sprintf("this process to lead %s-%d", tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
		p, ok := im.Partition(tp.Topic, tp.Partition)
		return !ok || p.Leader == d.cfg.NodeID
	})
}

// complete brings a partition that this process leads alone, or that a crash left on the way there, to its shape. Its log is empty, or every replica that is to be added has all of it.
func (d *Destination) complete(ctx context.Context, l *Log) error {
	p, err := l.partition()
	if err != nil {
		return err
	}
	for {
		replicas := target(p)
		if len(without(replicas, d.cfg.NodeID)) == 0 {
			if replicas, err = d.placement(int(l.tp.Partition), d.cfg.ReplicationFactor); err != nil {
				return d.errorf(l.tp, "%w", err)
			}
			if err := d.membership.uncordoned(ctx, func() error { return d.setReplicasOf(ctx, l.tp, l.id, replicas) }); err != nil {
				return err
			}
			if p, err = l.partition(); err != nil {
				return err
			}
		}
		if len(p.Adding) > 0 {
			if err := d.barrier.sharing(ctx, func() error {
				if err := d.setISROf(ctx, l.tp, l.id, replicas, func(p clustermetadata.Partition) bool { return len(p.Adding) == 0 }); err != nil {
					return err
				}
				return d.alone(ctx, l.tp)
			}); err != nil {
				return err
			}
			if p, err = l.partition(); err != nil {
				return err
			}
		}
		if len(without(target(p), d.cfg.NodeID)) > 0 {
			break
		}
		// Somebody has cancelled the addition: the copies, which are empty, are deleted and made anew.
		if err := pause(ctx, 50); err != nil {
			return d.errorf(l.tp, "somebody cancels the addition of its copies again and again: %w", err)
		}
	}
	return d.barrier.sharing(ctx, func() error { return d.alone(ctx, l.tp) })
}

// alone makes this process the only in-sync replica, and makes sure that nobody else may be elected.
func (d *Destination) alone(ctx context.Context, tp mirror.TopicPartition) error {
	if p, err := d.partition(tp); err == nil {
		if l := d.known(tp); l != nil {
			l.noteWhole(p)
		}
	}
	if err := d.setISR(ctx, tp, []int32{d.cfg.NodeID}, func(p clustermetadata.Partition) bool {
		return p.Leader == d.cfg.NodeID && len(p.ISR) == 1 && p.ISR[0] == d.cfg.NodeID
	}); err != nil {
		return err
	}
	p, err := d.partition(tp)
	if err != nil {
		return err
	}
	if len(p.ELR) > 0 {
		return d.errorf(tp, "brokers %v may be elected although they are not in sync (ELR): the topic's min.insync.replicas is not 1", p.ELR)
	}
	return nil
}

// each calls f for partitions [from, to) of a topic, some hundreds at a time, so that their requests go together.
func (d *Destination) each(ctx context.Context, topic string, from, to int32, f func(context.Context, mirror.TopicPartition) error) error {
	errs := make(chan error, to-from)
	slots := make(chan struct{}, mostPartitions)
	for p := from; p < to; p++ {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			errs <- f(ctx, mirror.TopicPartition{Topic: topic, Partition: p})
		}()
	}
	var all []error
	for p := from; p < to; p++ {
		if err := <-errs; err != nil && len(all) < 3 {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
