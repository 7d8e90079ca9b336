package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

var _ mirror.LastMirrorEpochReader = (*Source)(nil)

const adviceUnreadable = "a newer version of this program wrote it: run at least that version here; or find out who else writes to this topic"

// LastMirrorEpochs reads what mirrors into the source cluster recorded in its topic __mirror_state when they stopped. A partition is found by the id that its topic has at the
// source now: what was recorded for an older topic of the same name does not count (spec decision 2). The first call reads the topic, later ones what is new in it.
//
// A cluster without that topic is no mirror's destination: nothing is found, and no right is needed. Where the user may not even see whether the topic is there, nothing can be
// told: a *mirror.SourceError with SourceDenied that errors.Is finds mirror.ErrUnsupported in. A one-way mirror goes on from there, a failback does not (mirror.PlanFailback).
// Where the topic is seen and must not be read it is SourceDenied alone. A record that a newer version wrote is an error, for whoever asks for its partition.
func (s *Source) LastMirrorEpochs(ctx context.Context, sourceClusterID string, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]statemachine.LastMirrorEpoch, error) {
	const operation = "last mirror epochs"
	ctx, end, err := s.begin(ctx, operation)
	if err != nil {
		return nil, err
	}
	defer end()
	found := make(map[mirror.TopicPartition]statemachine.LastMirrorEpoch)
	err = s.withStates(ctx, operation, partitions, func(r *stateRecords, places map[mirror.TopicPartition]place) error {
		for tp, at := range places {
			best, err := r.greatest(at, sourceClusterID)
			if err != nil {
				return unreadableError(operation, tp, err)
			}
			if best != nil {
				found[tp] = *best
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// MirrorsOf reads the states of all mirrors into the source cluster for these partitions, as LastMirrorEpochs does, in order of the partitions asked and of the mirrors' names.
// Where some of them are not STOPPED it also reads the topic __mirror_control: Upstream is told for those. A right that is missing there is SourceDenied.
func (s *Source) MirrorsOf(ctx context.Context, partitions []mirror.TopicPartition) ([]mirror.SourceMirror, error) {
	const operation = "mirrors of the source"
	ctx, end, err := s.begin(ctx, operation)
	if err != nil {
		return nil, err
	}
	defer end()
	var found []mirror.SourceMirror
	var active []int
	err = s.withStates(ctx, operation, partitions, func(r *stateRecords, places map[mirror.TopicPartition]place) error {
		for _, tp := range partitions {
			at, ok := places[tp]
			if !ok {
				continue
			}
			delete(places, tp) // whoever asks twice is told once
			err := r.each(at, func(name string, p *statemachine.PartitionState) {
				if p.State != statemachine.Stopped && p.SourceClusterID != "" {
					active = append(active, len(found))
				}
				found = append(found, mirror.SourceMirror{Mirror: name, SourceClusterID: p.SourceClusterID, Partition: tp, State: p.State})
			})
			if err != nil {
				return unreadableError(operation, tp, err)
			}
		}
		if len(active) == 0 {
			return nil
		}
		return s.withOrigins(ctx, operation, func(r *originRecords) error {
			for _, i := range active {
				m := &found[i]
				o, ok := r.origins[originKey{m.Mirror, m.Partition.Topic}]
				if o.err != nil {
					return unreadableError(operation, m.Partition, o.err)
				}
				if ok && o.SourceClusterID == m.SourceClusterID {
					m.Upstream = slices.Clone(o.Upstream)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// withStates brings what is known of stateTopic up to date and lets use look at it, with the places of the partitions whose topics are there. If the topic is not there use is
// not called.
func (s *Source) withStates(ctx context.Context, operation string, partitions []mirror.TopicPartition, use func(*stateRecords, map[mirror.TopicPartition]place) error) error {
	if len(partitions) == 0 {
		return nil
	}
	names := []string{stateTopic}
	for _, tp := range partitions {
		names = append(names, tp.Topic)
	}
	slices.Sort(names)
	// Asked for within the turn, so that an older answer never comes after a newer one.
	if err := s.mirrors.enter(ctx); err != nil {
		return s.failure(operation, mirror.TopicPartition{}, err)
	}
	defer s.mirrors.leave()
	cluster, topics, err := s.describe(ctx, operation, slices.Compact(names))
	if err != nil {
		return err
	}
	r := &s.mirrors.states
	switch t := topics[stateTopic]; t.err {
	case nil:
		if err := r.read(ctx, s.client, cluster, t.id); err != nil {
			return s.readFailure(operation, stateTopic, err)
		}
	case kerr.UnknownTopicOrPartition:
		r.forget()
		return nil
	case kerr.TopicAuthorizationFailed:
		e := s.denied(operation, stateTopic, t.err)
		e.Err = fmt.Errorf("%w: whether this cluster keeps topic %s cannot be seen: %w", mirror.ErrUnsupported, stateTopic, t.err)
		return e
	default:
		return s.failure(operation, mirror.TopicPartition{Topic: stateTopic}, t.err)
	}
	if err := first(r.unreadable); err != nil {
		return unreadableError(operation, mirror.TopicPartition{}, err)
	}
	places := make(map[mirror.TopicPartition]place, len(partitions))
	for _, tp := range partitions {
		switch t := topics[tp.Topic]; t.err {
		case nil:
			if t.id != (mirror.TopicID{}) {
				places[tp] = place{t.id, tp.Partition}
			}
		case kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, kerr.InvalidTopicException: // its other look-ups say so, to it alone
		default:
			return s.failure(operation, tp, t.err)
		}
	}
	return use(r, places)
}

// withOrigins brings what is known of originTopic up to date and lets use look at it; not called if the topic is not there. It is called within the turn.
func (s *Source) withOrigins(ctx context.Context, operation string, use func(*originRecords) error) error {
	cluster, topics, err := s.describe(ctx, operation, []string{originTopic})
	if err != nil {
		return err
	}
	r := &s.mirrors.origins
	switch t := topics[originTopic]; t.err {
	case nil:
		if err := r.read(ctx, s.client, cluster, t.id); err != nil {
			return s.readFailure(operation, originTopic, err)
		}
	case kerr.UnknownTopicOrPartition:
		r.forget()
		return nil
	case kerr.TopicAuthorizationFailed:
		return s.denied(operation, originTopic, t.err)
	default:
		return s.failure(operation, mirror.TopicPartition{Topic: originTopic}, t.err)
	}
	if err := first(r.unreadable); err != nil {
		return unreadableError(operation, mirror.TopicPartition{}, err)
	}
	return use(r)
}

// described is a topic's id, or why it is not known: an error of Kafka.
type described struct {
	id  mirror.TopicID
	err error
}

// describe looks topics up. A broker may not have heard yet of a topic that was created just now: what the first one does not know a second one is asked for.
func (s *Source) describe(ctx context.Context, operation string, names []string) (cluster string, found map[string]described, err error) {
	found = make(map[string]described, len(names))
	note := func(resp *kmsg.MetadataResponse) {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.Topic != nil {
				found[*t.Topic] = described{t.TopicID, kerr.ErrorForCode(t.ErrorCode)}
			}
		}
	}
	resp, err := s.metadata(ctx, operation, names, false)
	if err != nil {
		return "", nil, err
	}
	note(resp)
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range names {
		if _, answered := found[name]; !answered {
			found[name] = described{err: kerr.UnknownTopicOrPartition}
		}
		if found[name].err == kerr.UnknownTopicOrPartition {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
	}
	// The controller creates topics. Clusters with a quorum of controllers name any broker in its place, which is as good as another.
	if len(req.Topics) > 0 && len(resp.Brokers) > 1 && resp.ControllerID >= 0 {
		second, err := s.ask(ctx, resp.ControllerID, req)
		if ctx.Err() != nil {
			return "", nil, s.failure(operation, mirror.TopicPartition{}, ctx.Err())
		}
		if err == nil && clusterID(second.(*kmsg.MetadataResponse)) == clusterID(resp) {
			note(second.(*kmsg.MetadataResponse))
		}
	}
	return clusterID(resp), found, nil
}

// denied says which right is missing. READ implies DESCRIBE.
func (s *Source) denied(operation, topic string, err error) *mirror.SourceError {
	return &mirror.SourceError{
		Code: mirror.SourceDenied, Operation: operation, Err: fmt.Errorf("topic %s: %w", topic, err),
		Advice: fmt.Sprintf("let the mirror's user read it at the source: kafka-acls.sh --bootstrap-server %s --add --allow-principal User:NAME --operation READ --topic %s", s.cfg.Seeds[0], topic),
	}
}

// readFailure names an error of reading a topic.
func (s *Source) readFailure(operation, topic string, err error) error {
	var access *topicreader.AccessError
	var wait *topicreader.WaitError
	switch {
	case errors.As(err, &access):
		return s.denied(operation, topic, access.Err)
	case s.ctx.Err() != nil || !errors.As(err, &wait) || !errors.Is(wait.Err, context.DeadlineExceeded):
		return s.failure(operation, mirror.TopicPartition{}, err)
	}
	e := &mirror.SourceError{Code: mirror.SourceTimeout, Operation: operation, Err: fmt.Errorf("topic %s could not be read to its end: %w", topic, err)}
	switch {
	case wait.Topic != "":
		e.Code = mirror.SourceOther // the brokers answer; somebody's open transaction hides what follows
	case wait.Last != nil:
		if last := s.failure(operation, mirror.TopicPartition{}, wait.Last); last.Code != mirror.SourceOther {
			return last
		}
	}
	return e
}

func unreadableError(operation string, tp mirror.TopicPartition, err error) *mirror.SourceError {
	return &mirror.SourceError{Code: mirror.SourceOther, Operation: operation, Partition: tp, Err: err, Advice: adviceUnreadable}
}
