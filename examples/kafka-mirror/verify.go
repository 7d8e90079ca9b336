package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

// verify compares source and copy while the mirror runs. It needs no process of the mirror.
func (p *program) verify(ctx context.Context, a *mirror.Admin) error {
	v, err := p.verification(ctx, a)
	if err != nil {
		return err
	}
	if p.json {
		err = p.asJSON(v)
	} else {
		say(p.out, v.String())
	}
	return errors.Join(err, unverified(v))
}

// unverified is the exit status of a verification.
func unverified(v mirror.Verification) error {
	switch verdict := v.Verdict(); {
	case verdict.Wrong():
		return &endedError{status: 8}
	case verdict != mirror.VerifiedIdentical:
		return &endedError{status: 9}
	}
	return nil
}

// verification compares the topics that are asked for, or all of the mirror.
func (p *program) verification(ctx context.Context, a *mirror.Admin) (mirror.Verification, error) {
	c, err := p.comparison(ctx, a)
	if err != nil {
		return mirror.Verification{}, err
	}
	defer c.close()
	return p.compared(ctx, c), nil
}

// comparison is what is to be compared, once.
type comparison struct {
	*bothClusters
	pairs    []verify.Pair
	mirrored []verify.Pair     // those of pairs that are MIRRORING: their copies come to the source's end by themselves
	not      []mirror.Verified // what cannot be compared
}

// compared does it.
func (p *program) compared(ctx context.Context, c *comparison) mirror.Verification {
	v := mirror.Verification{Mirror: p.mirror, Began: time.Now()}
	v.Ranges = append(verify.Pairs(ctx, c.pairs, verify.Options{BytesPerSecond: p.throttle}), c.not...)
	v.Took = time.Since(v.Began)
	return v
}

// comparison connects to both clusters, and finds what of the topics that are asked for, or of all, can be compared.
func (p *program) comparison(ctx context.Context, a *mirror.Admin) (_ *comparison, err error) {
	both, err := p.openBoth(ctx, a, "the source, which has to answer for this")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			both.close()
		}
	}()
	topics, err := p.chosen(&both.described)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range topics {
		names = append(names, t.Topic)
	}
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	compacted, unread := mirror.CompactedTopics(bounded, names, policiesOf(both.source), policiesOf(both.here))
	copies, err := p.copies(bounded, names)
	if err != nil {
		return nil, err
	}
	c := &comparison{bothClusters: both}
	for _, t := range topics {
		if len(t.Partitions) == 0 {
			c.not = append(c.not, mirror.NotCompared(mirror.TopicPartition{Topic: t.Topic}, "no process has reported it"))
		}
		for _, q := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Topic, Partition: q.Partition}
			to, why := upTo(&both.described, q)
			if err := unread[t.Topic]; why == "" && err != nil {
				why = err.Error()
			}
			here := copies[tp]
			if why == "" && here == nil {
				why = "the cluster at --bootstrap-server does not have it"
			}
			if why != "" {
				c.not = append(c.not, mirror.NotCompared(tp, why))
				continue
			}
			pair := verify.Pair{A: verify.SourceSide(both.source, tp, verify.SourceOptions{}), B: here, To: to, Compacted: compacted[t.Topic]}
			if c.pairs = append(c.pairs, pair); q.State == statemachine.Mirroring.String() {
				c.mirrored = append(c.mirrored, pair)
			}
		}
	}
	return c, nil
}

// upTo says up to where the copy has to be the source's, or why that is not known. mirror.Unknown: as far as both go.
func upTo(d *mirror.Description, q mirror.DescribedPartition) (to int64, why string) {
	switch q.State {
	case statemachine.Mirroring.String(), statemachine.EpochFencing.String(), statemachine.Pausing.String(), statemachine.Paused.String():
		return mirror.Unknown, ""
	case statemachine.Stopped.String():
		if lmo, known := q.LMO.Value(); known {
			return lmo, ""
		}
		if d.StatesError != "" {
			return 0, "it is STOPPED, and up to where it is a copy is not known, because the state store does not answer: " + d.StatesError
		}
		return 0, "it is STOPPED, and no last mirror offset is recorded: up to where it is a copy is not known"
	}
	return 0, fmt.Sprintf("it is %s: its log may not be the source's yet, or no more", q.State)
}

func policiesOf(s mirror.Source) mirror.TopicConfigReader { return s.(mirror.TopicConfigReader) } // kafkasource's always are

// brokerSide is one partition's copy as the brokers hold it. A dark one is led by the mirror's node, which has no records; the brokers that follow it have them.
type brokerSide struct {
	partition mirror.TopicPartition
	target    replicareader.Target
	reader    *replicareader.Reader
	brokers   []int32 // in sync; then those that answered
	others    []int32 // that hold a copy too
}

// copies finds the copies of topics at the cluster of --bootstrap-server. What the cluster does not have is absent.
func (p *program) copies(ctx context.Context, topics []string) (map[mirror.TopicPartition]*brokerSide, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	found, err := p.place.admin.ListTopics(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-server %s: %w", p.bootstrap, err)
	}
	reader, all := replicareader.New(brokers{p.place.client}), map[mirror.TopicPartition]*brokerSide{}
	for _, t := range found {
		for _, q := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Topic, Partition: q.Partition}
			side := &brokerSide{partition: tp, target: replicareader.Target{Topic: t.Topic, ID: mirror.TopicID(t.ID), Partition: q.Partition}, reader: reader}
			if q.Leader >= 0 { // first, as what readers read
				side.brokers = append(side.brokers, q.Leader)
			}
			for _, id := range slices.Concat(q.ISR, q.Replicas) {
				switch {
				case slices.Contains(side.brokers, id), slices.Contains(side.others, id):
				case slices.Contains(q.ISR, id):
					side.brokers = append(side.brokers, id)
				default:
					side.others = append(side.others, id)
				}
			}
			all[tp] = side
		}
	}
	return all, nil
}

// brokers sends requests to brokers by their ids.
type brokers struct{ client *kgo.Client }

func (b brokers) Broker(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	return b.client.Broker(int(id)).RetriableRequest(ctx, req)
}

func (s *brokerSide) Partition() mirror.TopicPartition { return s.partition }

// perBroker is how long one broker is waited for: the node of a dark copy is among them, and clients do not reach it.
const perBroker = 10 * time.Second

// Bounds are what all brokers in sync hold that answer. Of a dark copy clients are told that the mirror's node alone is in sync, which they do not reach: then it is what the other brokers hold.
func (s *brokerSide) Bounds(ctx context.Context) (verify.Bounds, error) {
	b, err := s.bounds(ctx)
	if err != nil && ctx.Err() == nil && len(s.others) > 0 {
		s.brokers, s.others = s.others, nil
		return s.bounds(ctx)
	}
	return b, err
}

func (s *brokerSide) bounds(ctx context.Context) (verify.Bounds, error) {
	var b verify.Bounds
	var answered []int32
	var failed []error
	for _, id := range s.brokers {
		bounded, stop := context.WithTimeout(ctx, perBroker)
		ends, err := s.reader.Ends(bounded, id, []replicareader.Target{s.target})
		stop()
		e := ends[s.target]
		if err = errors.Join(err, e.Err); err != nil {
			failed = append(failed, err)
			continue
		}
		if len(answered) == 0 {
			b = verify.Bounds{Start: e.Start, End: e.End, Shown: e.End}
		}
		b.Start, b.End = max(b.Start, e.Start), min(b.End, e.End)
		answered = append(answered, id)
	}
	if err := ctx.Err(); err != nil {
		return b, err
	}
	if len(answered) == 0 {
		return b, fmt.Errorf("no broker tells what it has of %s: %w", s.target, errors.Join(failed...))
	}
	s.brokers, b.Local = answered, b.Start
	b.End = max(b.Start, b.End)
	return b, nil
}

// Read reads from the first broker that answered.
func (s *brokerSide) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	var failed []error
	for _, id := range s.brokers {
		b, err := s.reader.ReadAsItLies(ctx, id, s.target, from, most)
		if err == nil {
			return b, nil
		}
		if beyond := (*replicareader.RangeError)(nil); errors.As(err, &beyond) {
			return nil, errors.Join(mirror.ErrOffsetOutOfRange, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failed = append(failed, err)
	}
	return nil, fmt.Errorf("no broker shows %s at %d: %w", s.target, from, errors.Join(failed...))
}

// verifyFailback is the last step of a failback that was waited for: once the copy has what the source had when it was in step with it, or waits ends, which is late, both are compared. Whatever that finds,
// the failback is done.
func (p *program) verifyFailback(ctx, waits context.Context, a *mirror.Admin) (v mirror.Verification, late error) {
	if p.place.topics == nil {
		return mirror.Verification{Mirror: p.mirror, NotDone: "with the desired state in a folder the copy is not reached from here; use --verify with --bootstrap-server"}, nil
	}
	bounded, stop := context.WithTimeout(ctx, failbackVerifies)
	defer stop()
	c, err := p.comparison(bounded, a)
	if err != nil {
		return mirror.Verification{Mirror: p.mirror, NotDone: strings.TrimSpace(oneLine(err))}, nil
	}
	defer c.close()
	late = p.catchUp(ctx, waits, c.mirrored)
	bounded, stop = context.WithTimeout(ctx, failbackVerifies)
	defer stop()
	return p.compared(bounded, c), late
}

// failbackVerifies is how long a failback compares both clusters at its end, at most, and how long it takes at most to find what there is to compare.
const failbackVerifies = time.Minute
