package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// The hand-over makes a stock broker the leader in one step. The reassignment to stock replicas stays pending, because none of them is in sync. Then one AlterPartition names this
// process and all of them as in sync: that completes the reassignment, so the controllers elect one of them and take this process out, all in one record. Until it is there the
// partition is closed and led by this process; with it, it is open.
//
// A reassignment completes only when every replica of its target is in sync, so the target is the live followers that have the whole log, and nobody else: with a dead broker in it a
// failover would hang, and with the others in sync already a death of this process would make one of them the leader too early. Which replicas were left out is remembered before, and
// they are added again afterwards, by an ordinary reassignment that Kafka completes when they come back.

// followerWait is how long a live follower that is behind is waited for before it is left out of a hand-over.
const followerWait = 3 * time.Second

// answerWait is how long a broker is waited for before another one is preferred as the new leader.
const answerWait = time.Second

// Open hands the partition over to the stock brokers that have all of it. It needs one of them.
func (l *Log) Open(ctx context.Context) error {
	d := l.d
	end, err := d.begin()
	if err != nil {
		return err
	}
	defer end()
	if err := l.work.take(ctx); err != nil {
		return d.errorf(l.tp, "hand-over: something else is under way with it: %w", err)
	}
	defer l.work.release()
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	p, err := l.partition()
	if err != nil {
		return err
	}
	if p.Leader == d.cfg.NodeID {
		if err := l.handOver(ctx, p); err != nil {
			return err
		}
		d.notice(Event{Kind: HandedOver, Partition: l.tp, Text: fmt.Sprintf("brokers %v hold all of it, up to %d", l.openTo(), l.End())})
	} else if err := l.stepOut(ctx, p); err != nil {
		return err
	}
	if err := errors.Join(d.addAgain(ctx, l.tp.Topic, l.id, l), d.putBack(ctx, l.tp.Topic)); err != nil {
		// Clients write already; what is left is settings, and tidyUp goes on with them.
		d.notice(Event{Kind: Trouble, Partition: l.tp, Err: err, Text: "settings of the topic are not put back, or replicas not added again yet; it is tried again"})
	}
	return l.refresh(ctx)
}

// openTo are the in-sync replicas of an open partition.
func (l *Log) openTo() []int32 {
	p, _ := l.partition()
	return p.ISR
}

func (l *Log) handOver(ctx context.Context, p clustermetadata.Partition) error {
	d := l.d
	if l.log.Held() { // a take-over was left half way
		if err := l.regain(ctx); err != nil {
			return d.errorf(l.tp, "hand-over: %w", err)
		}
		var err error
		if p, err = l.partition(); err != nil {
			return err
		}
	}
	stock := without(target(p), d.cfg.NodeID)
	if len(stock) == 0 {
		return d.errorf(l.tp, "hand-over: no stock broker has a copy; start brokers and wait until the copy has followers")
	}
	waiting, done := context.WithTimeout(ctx, followerWait)
	_ = l.awaitLive(waiting)
	done()
	ready, late := l.caughtUp(stock)
	if len(ready) == 0 {
		return d.errorf(l.tp, "hand-over: no live broker has everything up to %d; %s", l.log.End(), late)
	}
	l.setOpening(true)
	defer l.setOpening(false)
	for {
		ready = d.answeringFirst(ctx, ready)
		if err := l.rememberLeftOut(ctx, stock, ready); err != nil {
			return err
		}
		if err := d.setReplicasOf(ctx, l.tp, l.id, ready); err != nil {
			return err
		}
		// Somebody who cancels reassignments in this moment must not have the AlterPartition meet the old replicas: it would complete nothing and leave stock brokers in sync. The
		// partition epoch in it sees to that, and the reassignment is asked for again.
		err := d.barrier.sharing(ctx, func() error {
			return d.setISROf(ctx, l.tp, l.id, append([]int32{d.cfg.NodeID}, ready...), func(p clustermetadata.Partition) bool {
				return d.handedOver(p) || !slices.Equal(target(p), ready)
			})
		})
		if err == nil {
			if p, err = l.partition(); err != nil {
				return err
			}
			if d.handedOver(p) {
				l.given()
				return nil
			}
			if err := pause(ctx, 50); err != nil {
				return d.errorf(l.tp, "hand-over: somebody cancels or changes its reassignment again and again (replicas %v): %w", p.Replicas, err)
			}
			continue
		}
		if !errors.Is(err, kerr.IneligibleReplica) || ctx.Err() != nil {
			return err
		}
		// One of them died in between.
		if cerr := d.meta.caughtUp(ctx); cerr != nil {
			return errors.Join(err, cerr)
		}
		still, late := l.caughtUp(stock)
		if len(still) == 0 {
			return d.errorf(l.tp, "hand-over: no live broker has everything up to %d; %s: %w", l.log.End(), late, err)
		}
		ready = still
		if perr := pause(ctx, 50); perr != nil {
			return errors.Join(err, perr)
		}
	}
}

// handedOver says whether a stock broker leads a partition and this process has left it.
func (d *Destination) handedOver(p clustermetadata.Partition) bool {
	return p.Leader >= 0 && p.Leader != d.cfg.NodeID && !slices.Contains(p.Replicas, d.cfg.NodeID)
}

// rememberLeftOut remembers which replicas have to be added again: those of stock that are not ready, and those that an earlier try, which a crash ended, has taken out of stock already.
func (l *Log) rememberLeftOut(ctx context.Context, stock, ready []int32) error {
	have, err := l.d.remembered.of(ctx, l.tp.Topic, l.id)
	if err != nil {
		return err
	}
	var left []int32
	for _, id := range slices.Concat(stock, have.LeftOut[l.tp.Partition]) {
		if !slices.Contains(ready, id) && !slices.Contains(left, id) {
			left = append(left, id)
		}
	}
	if slices.Equal(have.LeftOut[l.tp.Partition], left) {
		return nil
	}
	return l.d.remembered.change(ctx, l.tp.Topic, l.id, func(m *memory) {
		if m.LeftOut == nil {
			m.LeftOut = map[int32][]int32{}
		}
		m.LeftOut[l.tp.Partition] = left
		if len(left) == 0 {
			delete(m.LeftOut, l.tp.Partition)
		}
	})
}

// addAgain asks for the replicas that hand-overs of a topic left out, but where a take-over is under way: its reassignment would be replaced. held is the log whose work the caller has, nil:
// none.
func (d *Destination) addAgain(ctx context.Context, topic string, id mirror.TopicID, held *Log) error {
	if err := d.inSession(); err != nil {
		return err
	}
	m, err := d.remembered.of(ctx, topic, id)
	if err != nil || len(m.LeftOut) == 0 {
		return err
	}
	d.remembered.lookAnew()
	if m, err = d.remembered.of(ctx, topic, id); err != nil {
		return err
	}
	if len(d.otherTakers(m)) > 0 {
		return nil // tried again when it has ended
	}
	var all []error
	done := map[int32][]int32{}
	for partition, left := range m.LeftOut {
		tp := mirror.TopicPartition{Topic: topic, Partition: partition}
		l := d.log(tp)
		if l == nil || l.id != id {
			continue
		}
		if l != held {
			if !l.work.tryTake() {
				continue
			}
			defer l.work.release()
		}
		p, err := d.partition(tp)
		if err != nil {
			continue
		}
		if leads, _ := d.whoLeads(p); leads != stockLeads || d.mirrored(p.Replicas) {
			continue // not handed over yet, or nobody could copy to them
		}
		want := target(p)
		for _, id := range left {
			if !slices.Contains(want, id) {
				want = append(want, id)
			}
		}
		if err := d.setReplicas(ctx, tp, want); err != nil {
			all = append(all, err)
			continue
		}
		done[partition] = left
	}
	if len(done) > 0 {
		all = append(all, d.remembered.change(ctx, topic, id, func(m *memory) {
			for p, left := range done {
				if slices.Equal(m.LeftOut[p], left) { // else another hand-over has left others out since
					delete(m.LeftOut, p)
				}
			}
		}))
	}
	return errors.Join(all...)
}

// awaitLive waits until every live follower has the whole log.
func (l *Log) awaitLive(ctx context.Context) error {
	return l.log.AwaitFollowers(ctx, func(end int64, fs []leaderlog.Follower) bool {
		return !slices.ContainsFunc(fs, func(f leaderlog.Follower) bool { return f.Live && !f.Has(end) })
	})
}

// standing says where a follower is, for a person.
func standing(f leaderlog.Follower, now time.Time) string {
	switch {
	case f.Seen.IsZero():
		return fmt.Sprintf("broker %d has not asked for it yet", f.Broker)
	case f.Position < 0:
		return fmt.Sprintf("broker %d has not asked for it since it registered anew", f.Broker)
	}
	return fmt.Sprintf("broker %d is at %d, seen %s ago", f.Broker, f.Position, now.Sub(f.Seen).Round(time.Millisecond))
}

// caughtUp are the live stock replicas that have the whole log, in the order in which they are to lead, and a text about the others.
func (l *Log) caughtUp(stock []int32) (ready []int32, others string) {
	end, now := l.log.End(), time.Now()
	positions := map[int32]string{}
	full := map[int32]bool{}
	for _, f := range l.log.Followers() {
		positions[f.Broker] = standing(f, now)
		full[f.Broker] = f.Has(end)
	}
	live := l.d.liveBrokers()
	for _, id := range stock {
		switch {
		case slices.Contains(live, id) && full[id]:
			ready = append(ready, id)
		case !slices.Contains(live, id):
			others += fmt.Sprintf("broker %d is not alive; ", id)
		case positions[id] != "":
			others += positions[id] + "; "
		default:
			others += fmt.Sprintf("broker %d has not asked for it; ", id)
		}
	}
	return ready, others
}

// answeringFirst puts brokers that answer before those that do not. The controllers take a broker that has just died, or stands still, for alive until its session ends; it has the
// whole log and is handed over to as well, but as the first in order it would be the leader, and nobody could write until then.
func (d *Destination) answeringFirst(ctx context.Context, ids []int32) []int32 {
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			errs[i] = carryOut(ctx, &d.alive, id)
		})
	}
	wg.Wait()
	var first, last []int32
	for i, id := range ids {
		if errs[i] == nil {
			first = append(first, id)
		} else {
			last = append(last, id)
		}
	}
	return append(first, last...)
}

// askAlive asks brokers for anything.
func (d *Destination) askAlive(ctx context.Context, ids []int32) ([]error, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	said := map[int32]error{}
	for _, id := range slices.Compact(sorted(ids)) {
		wg.Go(func() {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{}
			_, err := d.client.Broker(ctx, id, req)
			mu.Lock()
			defer mu.Unlock()
			said[id] = err
		})
	}
	wg.Wait()
	out := make([]error, len(ids))
	for i, id := range ids {
		out[i] = said[id]
	}
	return out, nil
}

// stepOut takes this process out of the replicas of a partition that a stock broker leads: after a take-over that was not finished.
func (l *Log) stepOut(ctx context.Context, p clustermetadata.Partition) error {
	d := l.d
	switch leads, err := d.whoLeads(p); {
	case err != nil:
		return err
	case leads == peerLeads:
		return d.errorf(l.tp, "hand-over: mirror process %d leads it: %w", p.Leader, mirror.ErrFenced)
	case leads == stockLeads && !slices.Contains(p.Replicas, d.cfg.NodeID):
		return nil
	}
	stock := without(target(p), d.cfg.NodeID)
	if len(stock) == 0 {
		return d.errorf(l.tp, "hand-over: no stock broker is among its replicas")
	}
	// Those that are not in sync would keep the reassignment from its end, and this process, which follows nobody, in the in-sync replicas. They are added again.
	ready := slices.DeleteFunc(slices.Clone(stock), func(id int32) bool { return !slices.Contains(p.ISR, id) })
	if len(ready) == 0 {
		return d.errorf(l.tp, "hand-over: no stock broker is in sync; start the brokers %v", stock)
	}
	if err := l.rememberLeftOut(ctx, stock, ready); err != nil {
		return err
	}
	if err := d.setReplicasOf(ctx, l.tp, l.id, ready); err != nil {
		return err
	}
	if err := d.meta.wait(ctx, fmt.Sprintf("this process to leave %s-%d", l.tp.Topic, l.tp.Partition), func(im *clustermetadata.Image) bool {
		now, ok := im.Partition(l.tp.Topic, l.tp.Partition)
		return !ok || !slices.Contains(now.Replicas, d.cfg.NodeID)
	}); err != nil {
		return err
	}
	if p, err := l.partition(); err != nil {
		return err
	} else if _, err := d.whoLeads(p); err != nil {
		return err
	}
	return nil
}

func without(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(x int32) bool { return x == id })
}

// putBack gives a topic its own settings back when no mirror process has any of its partitions any more.
func (d *Destination) putBack(ctx context.Context, topic string) error {
	lock := d.settingsLock(topic)
	if err := lock.take(ctx); err != nil {
		return err
	}
	defer lock.release()
	if err := d.inSession(); err != nil {
		return err
	}
	t, ok := d.topic(topic)
	if !ok || d.settingsInUse(topic) {
		return nil
	}
	for p := range t.Partitions {
		now, err := d.partition(mirror.TopicPartition{Topic: topic, Partition: p})
		if err == nil && d.mirrored(now.Replicas) {
			return nil
		}
	}
	m, err := d.remembered.of(ctx, topic, t.ID)
	if err != nil || m.Configs == nil {
		return err
	}
	d.remembered.lookAnew()
	if m, err = d.remembered.of(ctx, topic, t.ID); err != nil || m.Configs == nil {
		return err
	}
	if len(d.otherTakers(m)) > 0 { // it would take away what their take-over stands on
		return nil
	}
	// What somebody has set meanwhile is what it is to have. What is put back is noted before: who finds it, after a crash, does not take it for somebody else's change.
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	var back map[string]*string
	if err := d.remembered.change(ctx, topic, t.ID, func(m *memory) {
		back = nil
		if m.Configs != nil {
			m.keep(d.unheld(topic))
			m.say(m.Configs)
			back = m.Configs
		}
	}); err != nil || back == nil {
		return err
	}
	if err := carryOut(ctx, &d.requests.configs, configChange{topic, back}); err != nil {
		return err
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	return d.remembered.change(ctx, topic, t.ID, func(m *memory) {
		if !sameSettings(m.Configs, back) { // a peer has changed what the topic is to have: it is put back the next time
			return
		}
		if m.Takers = d.otherTakers(*m); len(m.Takers) == 0 { // a take-over that has begun meanwhile needs it again
			m.Configs, m.Said, m.Unconfirmed = nil, nil, nil
		}
	})
}

// tidyUp finishes what a crash left behind: settings that were not put back, partitions whose content was not known.
func (d *Destination) tidyUp(ctx context.Context) {
	for {
		if pause(ctx, 5000) != nil {
			return
		}
		end, err := d.begin()
		if err != nil {
			continue
		}
		bounded, stop := d.cfg.bounded(ctx)
		d.tidyOnce(bounded)
		stop()
		end()
	}
}

// among says whether this process is a replica of any partition of a topic.
func (d *Destination) among(topic string) (is bool) {
	d.meta.look(func(im *clustermetadata.Image) {
		is = slices.ContainsFunc(im.PartitionsOf(d.cfg.NodeID), func(p clustermetadata.Partition) bool { return p.Topic == topic })
	})
	return is
}

func (d *Destination) tidyOnce(ctx context.Context) {
	if d.inSession() != nil { // another process may stand in this one's place already
		return
	}
	all, err := d.remembered.all(ctx)
	if err != nil {
		d.notice(Event{Kind: Trouble, Err: err, Text: "what is to be put back cannot be read; it is tried again"})
		return
	}
	// A peer may have remembered something of a topic that this process's image does not show yet.
	if err := d.meta.caughtUp(ctx); err != nil {
		return
	}
	// Many at a time: a process that died in a stop of a thousand topics leaves as many, and what they ask for is gathered.
	places := make(chan struct{}, 64)
	var under sync.WaitGroup
	for topic, m := range all {
		under.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			d.tidyTopic(ctx, topic, m)
		})
	}
	under.Wait()
	for _, l := range d.all() {
		l.confirmTruncation(ctx)
	}
	d.reshape(ctx, all)
}

// tidyTopic finishes what is remembered of one topic.
func (d *Destination) tidyTopic(ctx context.Context, topic string, m memory) {
	t, ok := d.topic(topic)
	var err error
	switch {
	case m.creating():
		// Its creator alone knows whether it goes on; what it leads it adopts.
		if m.Creator == d.cfg.NodeID && !d.settingsInUse(topic) && (!ok || !d.among(topic)) {
			err = d.remembered.forget(ctx, topic, m.TopicID)
		}
	case !ok || t.ID != m.TopicID: // deleted: nothing is left to put back
		err = d.remembered.forget(ctx, topic, m.TopicID)
	default:
		d.holdSoon(topic)
		err = errors.Join(d.addAgain(ctx, topic, t.ID, nil), d.putBack(ctx, topic))
		if !d.settingsInUse(topic) && !d.halfTaken(topic) {
			err = errors.Join(err, d.endTaking(ctx, topic, t.ID, 0))
		}
	}
	if err != nil && ctx.Err() == nil {
		d.notice(Event{Kind: Trouble, Err: err, Text: "settings of topic " + topic + " are not put back yet; it is tried again"})
	}
}

// halfTaken says whether this process is a replica of partitions of a topic that it does not lead: a take-over is under way, or was left.
func (d *Destination) halfTaken(topic string) (is bool) {
	d.meta.look(func(im *clustermetadata.Image) {
		is = slices.ContainsFunc(im.PartitionsOf(d.cfg.NodeID), func(p clustermetadata.Partition) bool { return p.Topic == topic && p.Leader != d.cfg.NodeID })
	})
	return is
}
