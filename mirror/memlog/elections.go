package memlog

import (
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
)

// setLeaderEpoch begins a leader epoch. A leader whose log clients write to notes where it begins, as Kafka's does; a mirror's copy has the source's epochs only. Under mu.
func (l *partitionLog) setLeaderEpoch(epoch int32) {
	l.leaderEpoch = epoch
	if l.owner == mirror.OwnerOpen {
		l.epochs.Assign(epoch, l.end)
	}
	l.notify()
}

// ElectLeader moves a partition to the next live broker under the next leader epoch; nothing is lost. It returns the new leader and epoch.
func (c *Cluster) ElectLeader(topic string, partition int32) (mirror.SourcePartition, error) {
	return c.elect(topic, partition, func(*partitionLog) error { return nil })
}

// ElectUnclean elects a leader whose log ends at offset at (or at the batch boundary below it): the tail is lost, and the next leader epoch begins there.
func (c *Cluster) ElectUnclean(topic string, partition int32, at int64) (mirror.SourcePartition, error) {
	return c.elect(topic, partition, func(l *partitionLog) error { return l.cut(max(at, l.start)) })
}

func (c *Cluster) elect(topic string, partition int32, lose func(*partitionLog) error) (mirror.SourcePartition, error) {
	l, err := c.log(mirror.TopicPartition{Topic: topic, Partition: partition})
	if err != nil {
		return mirror.SourcePartition{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := lose(l); err != nil {
		return mirror.SourcePartition{}, err
	}
	c.mu.Lock()
	l.leader = c.broker(max(l.leader, 0)) // brokers count from 1, places from 0: this is the place after the leader's
	c.mu.Unlock()
	l.setLeaderEpoch(l.leaderEpoch + 1)
	return mirror.SourcePartition{Partition: partition, Leader: l.leader, LeaderEpoch: l.leaderEpoch}, nil
}

// StopBroker stops a broker: its connections break, and what it leads has no leader until ElectLeader or StartBroker.
func (c *Cluster) StopBroker(id int32) error {
	if err := c.setBroker(id, true); err != nil {
		return err
	}
	for _, l := range c.logs() {
		l.mu.Lock()
		if l.leader == id {
			l.leader = -1
			l.notify()
		}
		l.mu.Unlock()
	}
	c.wakeFetchers()
	return nil
}

// StartBroker starts a stopped broker. Partitions without a leader are led by it, under their next leader epochs.
func (c *Cluster) StartBroker(id int32) error {
	if err := c.setBroker(id, false); err != nil {
		return err
	}
	for _, l := range c.logs() {
		l.mu.Lock()
		if l.leader < 0 {
			l.leader = id
			l.setLeaderEpoch(l.leaderEpoch + 1)
		}
		l.mu.Unlock()
	}
	return nil
}

func (c *Cluster) setBroker(id int32, stopped bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < 1 || int(id) > c.cfg.Brokers {
		return fmt.Errorf("memlog: broker %d: the brokers are 1 to %d", id, c.cfg.Brokers)
	}
	c.stopped[id] = stopped
	return nil
}

func (c *Cluster) logs() []*partitionLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*partitionLog
	for _, t := range c.topics {
		all = append(all, t.logs...)
	}
	return all
}
