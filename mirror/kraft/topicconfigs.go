package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kafkametadata"
	"github.com/clustermirror/clustermirror/mirror"
)

var (
	_ mirror.TopicConfigWriter     = (*Destination)(nil)
	_ mirror.EffectiveConfigReader = (*Destination)(nil)
)

// EffectiveConfigs asks the stock brokers for settings of topics as they count now, their own defaults included: these are in no metadata. The principal needs DESCRIBE_CONFIGS on the topics.
func (d *Destination) EffectiveConfigs(ctx context.Context, topics []string, names ...string) (map[string]mirror.TopicConfigs, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	ctx, stop := d.cfg.bounded(ctx)
	defer stop()
	found, err := d.metadataClient.EffectiveConfigs(ctx, topics, names...)
	if err != nil {
		return nil, fmt.Errorf("kraft: reading settings of topics: %w", err)
	}
	return found, nil
}

// TopicConfigs reads the settings of topics from the metadata that this process follows: no request is made, and no right is needed. Of min.insync.replicas and
// unclean.leader.election.enable a mirrored topic shows what it will have when it is stopped.
func (d *Destination) TopicConfigs(ctx context.Context, topics []string) (map[string]mirror.TopicConfigs, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	ctx, stop := d.cfg.bounded(ctx)
	defer stop()
	if err := d.meta.caughtUp(ctx); err != nil {
		return nil, err
	}
	found := make(map[string]mirror.TopicConfigs, len(topics))
	before, err := d.remembered.all(ctx)
	for err == nil {
		ids := map[string]mirror.TopicID{}
		d.meta.look(func(im *clustermetadata.Image) {
			for _, topic := range topics {
				delete(found, topic)
				id, _, ok := im.Topic(topic)
				if !ok {
					continue
				}
				values := im.Configs(clustermetadata.TopicResource, topic)
				if values == nil {
					values = map[string]string{}
				}
				ids[topic], found[topic] = id, mirror.TopicConfigs{Values: values}
			}
		})
		// What a topic says may be from before a take-over or a hand-over that what is remembered of it is from after, or the other way round: so what is remembered is read twice.
		d.remembered.lookAnew()
		var after map[string]memory
		if after, err = d.remembered.all(ctx); err != nil {
			break
		}
		var moving []string
		for topic, id := range ids {
			own, held := d.heldSettings(after, topic, id)
			if _, was := d.heldSettings(before, topic, id); was != held {
				moving = append(moving, topic)
				continue
			}
			overlay(found[topic].Values, own)
		}
		if len(moving) == 0 {
			return found, nil
		}
		topics, before = moving, after
		err = d.meta.caughtUp(ctx)
	}
	return nil, fmt.Errorf("kraft: reading settings of topics: %w", err)
}

// overlay puts own settings over those that a topic has now.
func overlay(values map[string]string, own map[string]*string) {
	for name, value := range own {
		delete(values, name)
		if value != nil {
			values[name] = *value
		}
	}
}

// heldSettings are a topic's own settings from before a mirror process set its own, and whether one has.
func (d *Destination) heldSettings(all map[string]memory, topic string, id mirror.TopicID) (own map[string]*string, held bool) {
	m, ok := all[topic]
	if ok && m.creating() && d.hasMirror(topic) { // its creator will remember it under its id
		return m.Configs, true
	}
	if !ok || m.TopicID != id {
		return nil, false
	}
	return m.Configs, m.Configs != nil
}

// hasMirror says whether a mirror process is a replica of any partition of a topic.
func (d *Destination) hasMirror(topic string) bool {
	t, _ := d.topic(topic)
	for n := range t.Partitions {
		if p, err := d.partition(mirror.TopicPartition{Topic: topic, Partition: n}); err == nil && d.mirrored(p.Replicas) {
			return true
		}
	}
	return false
}

// mostTopicsChanged are under way at a time.
const mostTopicsChanged = 2 * mostTopics

// AlterTopicConfigs changes settings of topics by the controllers. Of min.insync.replicas and unclean.leader.election.enable of a mirrored topic what it will have when it is stopped is
// changed: the controllers are asked whether they would take it, and it is remembered. A topic that cannot be mirrored with its new settings (tiered storage) is refused, as CreateTopic
// does.
func (d *Destination) AlterTopicConfigs(ctx context.Context, changes map[string]mirror.TopicConfigChange) map[string]error {
	failed := map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, mostTopicsChanged)
	for topic, change := range changes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := d.alterTopicConfigs(ctx, topic, change); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[topic] = err
			}
		})
	}
	all.Wait()
	return failed
}

func (d *Destination) alterTopicConfigs(ctx context.Context, topic string, change mirror.TopicConfigChange) error {
	if strings.EqualFold(strings.TrimSpace(change.Set[tieredStorage]), "true") {
		return &mirror.RefusedError{Setting: true, Err: errTiered(topic)}
	}
	live, own := map[string]*string{}, map[string]*string{}
	put := func(name string, value *string) {
		if name == minInSync || name == uncleanElection {
			own[name] = value
			return
		}
		live[name] = value
	}
	for name, value := range change.Set {
		put(name, &value)
	}
	for _, name := range change.Delete {
		if _, twice := change.Set[name]; twice {
			return fmt.Errorf("kraft: settings of topic %s: %s is set and deleted in one change", topic, name)
		}
		put(name, nil)
	}
	if len(own)+len(live) == 0 {
		return nil
	}
	if err := d.usable(); err != nil {
		return err
	}
	// Nothing else in this process sets or puts back the topic's settings meanwhile. Controllers refuse two changes of a topic in one request, too.
	lock := d.settingsLock(topic)
	if err := lock.take(ctx); err != nil {
		return fmt.Errorf("kraft: settings of topic %s: something else is under way with them: %w", topic, err)
	}
	defer lock.release()
	if len(own) == 0 {
		return notDone(d.setConfigs(ctx, topic, live))
	}
	return d.alterOwn(ctx, topic, own, live)
}

// notDone makes of the controllers' refusal of a topic's whole change a *mirror.RefusedError.
func notDone(err error) error {
	var refusal *kerr.Error
	if !errors.As(err, &refusal) {
		return err // nobody has answered
	}
	return kafkametadata.Refused(refusal.Code, err)
}

// setConfigs changes what a topic says now.
func (d *Destination) setConfigs(ctx context.Context, topic string, values map[string]*string) error {
	if err := d.inSession(); err != nil {
		return err
	}
	return carryOut(ctx, &d.requests.configs, configChange{topic, values})
}

// alterOwn changes settings among which are those that a mirror process sets for itself while it has the topic. Under the lock of the topic's settings. What another mirror process does in
// between is seen afterwards. What it will have is remembered first: of the two changes it is the one that can be taken back.
func (d *Destination) alterOwn(ctx context.Context, topic string, own, live map[string]*string) error {
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	t, ok := d.topic(topic)
	if !ok {
		return fmt.Errorf("kraft: settings of topic %s: %w at the destination", topic, mirror.ErrUnknownTopic)
	}
	d.remembered.lookAnew()
	all, err := d.remembered.all(ctx)
	if err != nil {
		return err
	}
	if m := all[topic]; m.creating() && d.hasMirror(topic) {
		return fmt.Errorf("kraft: settings of topic %s: it is being created; they can be changed when that has ended", topic)
	}
	whole := maps.Clone(live)
	maps.Copy(whole, own)
	if _, held := d.heldSettings(all, topic, t.ID); held {
		// What is remembered is put back at the hand-over, and must not be refused then.
		if err := d.inSession(); err != nil {
			return err
		}
		if err := carryOut(ctx, &d.requests.configsTried, configChange{topic, whole}); err != nil {
			return notDone(err)
		}
		before := all[topic].Configs
		held, err := d.rememberOwn(ctx, topic, t.ID, own)
		if err != nil {
			return err
		}
		if held {
			if len(live) == 0 {
				return nil
			}
			err := d.setConfigs(ctx, topic, live)
			if err == nil {
				return nil
			}
			if stays := d.rememberAgain(ctx, topic, t.ID, own, before); stays != nil {
				return errors.Join(err, stays)
			}
			return notDone(err)
		} // else a peer has put the topic's settings back meanwhile
	}
	one, no := "1", "false"
	for first := true; ; first = false {
		if err := d.setConfigs(ctx, topic, whole); err != nil {
			if first {
				return notDone(err)
			}
			return err
		}
		// A take-over that begins when the lock is free finds them.
		if err := d.meta.caughtUp(ctx); err != nil {
			return err
		}
		if held, err := d.rememberOwn(ctx, topic, t.ID, own); !held || err != nil {
			return err
		}
		// A peer has taken the topic over in between: as it is, stock brokers could be elected.
		if err := d.setConfigs(ctx, topic, map[string]*string{minInSync: &one, uncleanElection: &no}); err != nil {
			return err
		}
		if held, err := d.rememberOwn(ctx, topic, t.ID, own); held || err != nil {
			return err
		}
	}
}

// rememberAgain puts back what a topic will have when it is stopped: the rest of a change was not made. What was changed again since is left.
func (d *Destination) rememberAgain(ctx context.Context, topic string, id mirror.TopicID, own, before map[string]*string) error {
	ctx, stop := d.cfg.bounded(context.WithoutCancel(ctx))
	defer stop()
	err := d.remembered.do(ctx, rememberedChange{topic: topic, id: id, old: true, f: func(m *memory) {
		m.Configs = maps.Clone(m.Configs)
		for name, value := range own {
			if now, ok := m.Configs[name]; !ok || !sameText(now, value) {
				continue
			}
			if was, ok := before[name]; ok {
				m.Configs[name] = was
			} else {
				delete(m.Configs, name)
			}
		}
	}})
	if err != nil {
		return fmt.Errorf("kraft: settings of topic %s: %s and %s are changed all the same, in what it will have when it is stopped: %w", topic, minInSync, uncleanElection, err)
	}
	return nil
}

func sameText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// rememberOwn changes what a topic will have when it is stopped, if a mirror process has it, and says whether one has.
func (d *Destination) rememberOwn(ctx context.Context, topic string, id mirror.TopicID, own map[string]*string) (held bool, err error) {
	err = d.remembered.do(ctx, rememberedChange{topic: topic, id: id, old: true, f: func(m *memory) {
		if held = m.Configs != nil; held {
			m.Configs = maps.Clone(m.Configs)
			maps.Copy(m.Configs, own)
		}
	}})
	return held, err
}
