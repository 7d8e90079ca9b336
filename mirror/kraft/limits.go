package kraft

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Followers take a batch of any size that is not larger than a segment, so a limit of the topic would be broken in silence, and a batch above segment.bytes would stop every follower.
// Both are looked at before the append (F-12).

// smallestLimit is what every topic takes, whatever its settings say: most batches need no look.
const smallestLimit = 16 << 10

// topicLimits are the largest batches that topics take.
type topicLimits struct {
	mu    sync.Mutex
	known map[string]topicLimit
}

type topicLimit struct{ message, segment int }

// forget is called when a setting changes.
func (t *topicLimits) forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if topic == "" {
		t.known = nil
		return
	}
	delete(t.known, topic)
}

// fits checks the largest batch of an append.
func (l *Log) fits(ctx context.Context, size int, offset int64) error {
	if size <= smallestLimit {
		return nil
	}
	limit, err := l.d.limit(ctx, l.tp.Topic)
	if err != nil {
		return l.d.errorf(l.tp, "%w", err)
	}
	switch {
	case size > limit.message:
		return l.d.errorf(l.tp, "batch at %d is %d bytes, the topic's max.message.bytes is %d; raise it, and the mirror goes on from there: %w", offset, size, limit.message, mirror.ErrBatchTooLarge)
	case size > limit.segment:
		return l.d.errorf(l.tp, "batch at %d is %d bytes, the topic's segment.bytes is %d; raise it, and the mirror goes on from there: %w", offset, size, limit.segment, mirror.ErrBatchTooLarge)
	}
	return nil
}

// limit is what the topic's settings say, its own or the cluster's.
func (d *Destination) limit(ctx context.Context, topic string) (topicLimit, error) {
	d.limits.mu.Lock()
	known, ok := d.limits.known[topic]
	d.limits.mu.Unlock()
	if ok {
		return known, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{"max.message.bytes", "segment.bytes"}
	req.Resources = append(req.Resources, r)
	var last error
	for _, id := range d.liveBrokers() {
		bounded, stop := d.cfg.bounded(ctx)
		resp, err := d.client.Broker(bounded, id, req)
		stop()
		if last = err; err != nil {
			continue
		}
		var limit topicLimit
		for _, a := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
				last = fmt.Errorf("%w%s", err, said(a.ErrorMessage))
				continue
			}
			for _, c := range a.Configs {
				n := 0
				if c.Value != nil {
					n, _ = strconv.Atoi(*c.Value)
				}
				switch c.Name {
				case "max.message.bytes":
					limit.message = n
				case "segment.bytes":
					limit.segment = n
				}
			}
		}
		if limit.message > 0 && limit.segment > 0 {
			d.limits.mu.Lock()
			if d.limits.known == nil {
				d.limits.known = map[string]topicLimit{}
			}
			d.limits.known[topic] = limit
			d.limits.mu.Unlock()
			return limit, nil
		}
	}
	return topicLimit{}, fmt.Errorf("the largest batch that topic %s takes is not known: %w; its principal needs DESCRIBE_CONFIGS on the topic", topic, last)
}
