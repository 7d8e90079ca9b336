package kraft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// Followers take a batch of any size that is not larger than a segment, so a limit of the topic would be broken in silence, and a batch above segment.bytes would stop every follower.
// Both are looked at before the append (F-12).

// smallestLimit is what every topic takes, whatever its settings say: most batches need no look.
const smallestLimit = 16 << 10

// topicLimits are the largest batches that topics take. What a topic itself is set to stands in the metadata; what it has from its brokers is asked for, and kept until a setting changes.
type topicLimits struct {
	asks gather[string, limitAnswer]

	mu      sync.Mutex
	known   map[string]topicLimit
	changes int // of settings: an answer to a question from before one is not kept
}

// topicLimit is in bytes.
type topicLimit struct{ message, segment int }

type limitAnswer struct {
	limit topicLimit
	err   error
}

const (
	maxMessage   = "max.message.bytes"
	segmentBytes = "segment.bytes"
)

// forget is called when a setting changes.
func (t *topicLimits) forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes++
	if topic == "" {
		t.known = nil
		return
	}
	delete(t.known, topic)
}

// fits checks the largest batch of an append. A limit that does not let it through is asked for again: brokers apply a changed setting later than this process hears of it, so what one of
// them said may be old.
func (l *Log) fits(ctx context.Context, size int, offset int64) error {
	if size <= smallestLimit {
		return nil
	}
	for {
		limit, asked, err := l.d.limit(ctx, l.tp.Topic)
		if err != nil {
			return l.d.errorf(l.tp, "%w", err)
		}
		name, most := maxMessage, limit.message
		if size <= most {
			name, most = segmentBytes, limit.segment
		}
		if size <= most {
			return nil
		}
		l.d.limits.mu.Lock()
		delete(l.d.limits.known, l.tp.Topic)
		l.d.limits.mu.Unlock()
		if asked {
			return l.d.errorf(l.tp, "batch at %d is %d bytes, the topic's %s is %d; raise it, and the mirror goes on from there: %w", offset, size, name, most, mirror.ErrBatchTooLarge)
		}
	}
}

// limit is what the topic's settings say, its own or the cluster's, and whether that is from now and not from an earlier answer.
func (d *Destination) limit(ctx context.Context, topic string) (limit topicLimit, asked bool, err error) {
	own := d.ownLimit(topic)
	if own.message > 0 && own.segment > 0 {
		return own, true, nil
	}
	d.limits.mu.Lock()
	limit, ok := d.limits.known[topic]
	changes := d.limits.changes
	d.limits.mu.Unlock()
	if !ok {
		answer, err := d.limits.asks.do(ctx, topic)
		if err = errors.Join(err, answer.err); err != nil {
			return topicLimit{}, true, fmt.Errorf("the largest batch that topic %s takes is not known: %w", topic, err)
		}
		limit = answer.limit
		d.limits.mu.Lock()
		if d.limits.changes == changes {
			if d.limits.known == nil {
				d.limits.known = map[string]topicLimit{}
			}
			d.limits.known[topic] = limit
		}
		d.limits.mu.Unlock()
	}
	own = d.ownLimit(topic) // it may have been set meanwhile
	return topicLimit{cmp.Or(own.message, limit.message), cmp.Or(own.segment, limit.segment)}, !ok, nil
}

// ownLimit is what the topic itself is set to, 0 for what it is not.
func (d *Destination) ownLimit(topic string) (own topicLimit) {
	d.meta.look(func(im *clustermetadata.Image) {
		for name, to := range map[string]*int{maxMessage: &own.message, segmentBytes: &own.segment} {
			if v, ok := im.Config(clustermetadata.TopicResource, topic, name); ok {
				*to, _ = strconv.Atoi(v)
			}
		}
	})
	return own
}

// askLimits asks the live brokers, one after the other, until each topic is answered.
func (d *Destination) askLimits(ctx context.Context, topics []string) ([]limitAnswer, error) {
	found, last := map[string]topicLimit{}, map[string]error{}
	none := errors.New("no stock broker is alive that could be asked; start one")
	for _, id := range d.liveBrokers() {
		none = nil
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, topic := range slices.Compact(slices.Sorted(slices.Values(topics))) {
			if _, ok := found[topic]; ok {
				continue
			}
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{maxMessage, segmentBytes}
			req.Resources = append(req.Resources, r)
			last[topic] = fmt.Errorf("broker %d does not tell it", id)
		}
		if len(req.Resources) == 0 {
			break
		}
		bounded, stop := d.cfg.bounded(ctx)
		resp, err := d.client.Broker(bounded, id, req)
		stop()
		if err != nil {
			for _, r := range req.Resources {
				last[r.ResourceName] = err
			}
			continue
		}
		for _, a := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
				last[a.ResourceName] = fmt.Errorf("%w%s; its principal needs DESCRIBE_CONFIGS on the topic", err, said(a.ErrorMessage))
				continue
			}
			var limit topicLimit
			for _, c := range a.Configs {
				n := 0
				if c.Value != nil {
					n, _ = strconv.Atoi(*c.Value)
				}
				switch c.Name {
				case maxMessage:
					limit.message = n
				case segmentBytes:
					limit.segment = n
				}
			}
			if limit.message > 0 && limit.segment > 0 {
				found[a.ResourceName] = limit
			}
		}
	}
	answers := make([]limitAnswer, len(topics))
	for i, topic := range topics {
		limit, ok := found[topic]
		answers[i] = limitAnswer{limit: limit}
		if !ok {
			answers[i].err = errors.Join(none, last[topic])
		}
	}
	return answers, nil
}
