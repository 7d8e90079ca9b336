package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The topics in which a Kafka cluster that is a mirror's destination keeps the mirror's records (spec §8).
const (
	stateTopic  = "__mirror_state"
	originTopic = "__mirror_control" // origins are all that is read of it
)

// mirrorRecords is what was read of the source's own mirrors so far. Whoever is in turn uses it; nobody waits for the turn longer than its context.
type mirrorRecords struct {
	turn    chan struct{}
	states  stateRecords
	origins originRecords
}

func newMirrorRecords() *mirrorRecords { return &mirrorRecords{turn: make(chan struct{}, 1)} }

// enter waits for the turn. leave must be called if it is nil.
func (r *mirrorRecords) enter(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *mirrorRecords) leave() { <-r.turn }

// logPosition is which topic of which cluster is read, and how far. A topic that was created again, or that another cluster has, is another one.
type logPosition struct {
	cluster string
	id      mirror.TopicID
	reader  *topicreader.Reader // nil: nothing is read
	readAt  time.Time           // when the last reading that reached the end was begun; before any did, when the first one was
}

// newPosition is the start of a topic's log.
func newPosition(client *kgo.Client, topic, cluster string, id mirror.TopicID) logPosition {
	return logPosition{cluster: cluster, id: id, reader: topicreader.New(client, topic), readAt: time.Now()}
}

// readAnewAfter is how long after the last reading everything is read anew: a tombstone that is a day old may be gone unseen. That is
// delete.retention.ms of these topics, unless somebody has lowered it; package kafkastore refuses to use one that keeps them for less.
const readAnewAfter = 12 * time.Hour

// goesOn says whether what was read of that topic still holds. By the wall clock, which goes on while a machine sleeps.
func (p *logPosition) goesOn(cluster string, id mirror.TopicID) bool {
	return p.reader != nil && p.cluster == cluster && p.id == id && time.Since(p.readAt.Round(0)) < readAnewAfter
}

// readOn reads what is new. begin drops what was read before and starts at the log's start; it is asked for once more when the log turns out to be another one meanwhile.
func (p *logPosition) readOn(ctx context.Context, apply func(topicreader.Record), begin func()) error {
	begun := time.Now()
	err := p.reader.ReadToEnd(ctx, apply)
	var replaced *topicreader.ReplacedError
	var grown *topicreader.PartitionsError
	if errors.As(err, &replaced) || errors.As(err, &grown) {
		begin()
		err = p.reader.ReadToEnd(ctx, apply)
	}
	var denied *topicreader.AccessError
	var wait *topicreader.WaitError
	switch {
	case err == nil:
		p.readAt = begun
	case !errors.As(err, &denied) && !errors.As(err, &wait):
		p.reader = nil // the next call begins anew
	}
	return err
}

// place is a partition by its topic's id at the source.
type place struct {
	id        mirror.TopicID
	partition int32
}

// mirrored is what one mirror recorded of one partition.
type mirrored struct {
	state            *statemachine.PartitionState // nil: none
	lme              *statemachine.LastMirrorEpoch
	stateErr, lmeErr error // of a record that cannot be read
}

// stateRecords are the records of stateTopic.
type stateRecords struct {
	logPosition
	places     map[place]map[string]*mirrored // by mirror
	unreadable map[string]error               // records whose key does not say what they are about, by key

	// unjudged is what was read since the end was reached last: only then is it known in which partitions keys lie.
	unjudged []topicreader.Record
	layout   topicreader.StateLayout
	spread   int32 // over how many partitions keys were looked for; 0: none was
}

// read brings the records up to date.
func (r *stateRecords) read(ctx context.Context, client *kgo.Client, cluster string, id mirror.TopicID) error {
	begin := func() {
		*r = stateRecords{logPosition: newPosition(client, stateTopic, cluster, id), places: make(map[place]map[string]*mirrored), unreadable: make(map[string]error)}
	}
	if !r.goesOn(cluster, id) {
		begin()
	}
	for {
		if err := r.readOn(ctx, func(k topicreader.Record) { r.unjudged = append(r.unjudged, k) }, begin); err != nil {
			return err
		}
		if again, err := r.judge(); !again || err != nil {
			return err
		}
		begin()
	}
}

// judge takes in what counts of what was read: a record in the partition that its key has, because whoever may write elsewhere says nothing about it. again: what was taken in
// before was judged by another layout.
func (r *stateRecords) judge() (again bool, err error) {
	layout := r.layout
	for _, k := range r.unjudged {
		layout.Take(k)
	}
	spread, err := layout.Partitions(r.reader.Partitions(stateTopic))
	if err != nil {
		return false, fmt.Errorf("topic %s: %w", stateTopic, err)
	}
	if r.spread > 0 && r.spread != spread {
		return true, nil
	}
	for _, k := range r.unjudged {
		if topicreader.CountsInState(k, spread) {
			r.apply(k)
		}
	}
	r.layout, r.spread, r.unjudged = layout, spread, nil
	return false, nil
}

// forget drops everything: the topic is not there.
func (r *stateRecords) forget() { *r = stateRecords{} }

func (r *stateRecords) apply(k topicreader.Record) {
	t, key, err := statemachine.DecodeKey(k.Key)
	switch {
	case errors.Is(err, statemachine.ErrUnknownRecord):
		return // says nothing about states or last mirror epochs
	case err != nil && k.Value == nil:
		delete(r.unreadable, string(k.Key))
		return
	case err != nil:
		r.unreadable[string(k.Key)] = unreadable(k, "", err)
		return
	}
	at := place{key.TopicID, key.Partition}
	m := r.places[at][key.Mirror]
	if m == nil {
		m = &mirrored{}
		if r.places[at] == nil {
			r.places[at] = make(map[string]*mirrored)
		}
		r.places[at][key.Mirror] = m
	}
	if t == statemachine.PartitionStateType {
		m.state, m.stateErr = nil, nil
		if k.Value != nil {
			if s, err := statemachine.DecodePartitionState(k.Value); err != nil {
				m.stateErr = unreadable(k, fmt.Sprintf("state of %v", key), err)
			} else {
				m.state = &s
			}
		}
	} else {
		m.lme, m.lmeErr = nil, nil
		if k.Value != nil {
			if e, err := statemachine.DecodeLastMirrorEpoch(k.Value); err != nil {
				m.lmeErr = unreadable(k, fmt.Sprintf("last mirror epoch of %v", key), err)
			} else {
				m.lme = &e
			}
		}
	}
	if *m == (mirrored{}) {
		delete(r.places[at], key.Mirror)
		if len(r.places[at]) == 0 {
			delete(r.places, at)
		}
	}
}

// greatest is the greatest last mirror epoch, then offset, of a partition among the mirrors whose source was that cluster; nil: none.
func (r *stateRecords) greatest(at place, sourceClusterID string) (best *statemachine.LastMirrorEpoch, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.places[at])) {
		m := r.places[at][name]
		if m.lmeErr != nil {
			return nil, m.lmeErr
		}
		e := m.lme
		if e == nil || e.SourceClusterID != sourceClusterID || sourceClusterID == "" {
			continue
		}
		if best == nil || e.Epoch > best.Epoch || e.Epoch == best.Epoch && e.Offset > best.Offset {
			best = e
		}
	}
	return best, nil
}

// each calls f for each mirror that has a state of a partition, in order of name.
func (r *stateRecords) each(at place, f func(name string, s *statemachine.PartitionState)) error {
	for _, name := range slices.Sorted(maps.Keys(r.places[at])) {
		m := r.places[at][name]
		if m.stateErr != nil {
			return m.stateErr
		}
		if m.state != nil {
			f(name, m.state)
		}
	}
	return nil
}

// originRecords are the topic origins in originTopic.
type originRecords struct {
	logPosition
	origins    map[originKey]origin
	unreadable map[string]error
}

type originKey struct{ mirror, topic string }

type origin struct {
	mirror.TopicOrigin
	err error
}

// read brings the records up to date.
func (r *originRecords) read(ctx context.Context, client *kgo.Client, cluster string, id mirror.TopicID) error {
	begin := func() {
		*r = originRecords{logPosition: newPosition(client, originTopic, cluster, id), origins: make(map[originKey]origin), unreadable: make(map[string]error)}
	}
	if !r.goesOn(cluster, id) {
		begin()
	}
	return r.readOn(ctx, func(k topicreader.Record) {
		if k.Partition == 0 { // where the topic has more, only this one is used
			r.apply(k)
		}
	}, begin)
}

func (r *originRecords) forget() { *r = originRecords{} }

func (r *originRecords) apply(k topicreader.Record) {
	about, ok, err := mirror.DecodeTopicOrigin(k.Key, nil)
	if err != nil {
		delete(r.unreadable, string(k.Key))
		if k.Value != nil {
			r.unreadable[string(k.Key)] = unreadable(k, "", err)
		}
		return
	}
	if !ok {
		return
	}
	key := originKey{about.Mirror, about.Topic}
	if k.Value == nil {
		delete(r.origins, key)
		return
	}
	o, _, err := mirror.DecodeTopicOrigin(k.Key, k.Value)
	if err != nil {
		err = unreadable(k, "", err)
	}
	r.origins[key] = origin{o, err}
}

// unreadable names a record. what is "" where err says it already.
func unreadable(k topicreader.Record, what string, err error) error {
	if what != "" {
		what = " (" + what + ")"
	}
	return fmt.Errorf("record at offset %d of %s-%d%s: %w", k.Offset, k.Topic, k.Partition, what, err)
}

// first is one of several errors, always the same one.
func first(errs map[string]error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[slices.Min(slices.Collect(maps.Keys(errs)))]
}
