package kafkametadata

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// describeShareOffsets asks one coordinator where its share groups start in all their partitions.
func (c *Client) describeShareOffsets(ctx context.Context, broker int32, groups []string) map[string]answer {
	const api = "DescribeShareGroupOffsets"
	got := make(map[string]answer, len(groups))
	for len(groups) > 0 {
		some := min(len(groups), mostGroups)
		req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		for _, g := range groups[:some] {
			of := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
			of.GroupID = g
			req.Groups = append(req.Groups, of)
		}
		resp, err := ask[*kmsg.DescribeShareGroupOffsetsResponse](ctx, c, broker, req)
		if err != nil {
			err = c.unsupported(ctx, broker, kmsg.DescribeShareGroupOffsets, shareGroupsSince, err)
			unanswered(got, groups, broker, api, err, !errors.Is(err, mirror.ErrUnsupported))
			return got
		}
		for i := range resp.Groups {
			got[resp.Groups[i].GroupID] = shareOffsetsOf(broker, &resp.Groups[i])
		}
		groups = groups[some:]
	}
	return got
}

// shareOffsetsOf reads one share group's answer. A start of −1 is none: nobody has consumed there.
func shareOffsetsOf(broker int32, g *kmsg.DescribeShareGroupOffsetsResponseGroup) answer {
	const api = "DescribeShareGroupOffsets"
	switch g.ErrorCode {
	case 0:
	case kerr.GroupIDNotFound.Code: // it does not exist, or is another kind of group here
		return answer{}
	default:
		err := shareError(g.ErrorCode, g.ErrorMessage)
		return answer{GroupOffsets: mirror.GroupOffsets{Err: &BrokerError{Broker: broker, API: api, Err: err}}, again: isAgain(g.ErrorCode)}
	}
	a := answer{GroupOffsets: mirror.GroupOffsets{Offsets: map[mirror.TopicPartition]mirror.GroupOffset{}}}
	var refused BrokersError
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if err := shareError(p.ErrorCode, p.ErrorMessage); err != nil {
				a.Unread = append(a.Unread, tp)
				refused = append(refused, &BrokerError{Broker: broker, API: api, Err: fmt.Errorf("%s-%d: %w", tp.Topic, tp.Partition, err)})
			} else if p.StartOffset >= 0 {
				a.Offsets[tp] = mirror.GroupOffset{Offset: p.StartOffset, LeaderEpoch: mirror.Unknown}
			}
		}
	}
	slices.SortFunc(a.Unread, byPartition)
	a.Err = refused.orNil()
	return a
}

// alterShareOffsets writes to one coordinator, as commitOffsets does.
func (c *Client) alterShareOffsets(ctx context.Context, broker int32, group string, part []mirror.TopicPartition, offsets map[mirror.TopicPartition]mirror.GroupOffset) (map[mirror.TopicPartition]error, error) {
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	for _, tp := range part {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
		p.Partition, p.StartOffset = tp.Partition, offsets[tp].Offset
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := askWithin[*kmsg.AlterShareGroupOffsetsResponse](ctx, c, commitBounds*c.bound, broker, req)
	if err != nil {
		return nil, c.unsupported(ctx, broker, kmsg.AlterShareGroupOffsets, shareGroupsSince, err)
	}
	if err := shareError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	answers := make(map[mirror.TopicPartition]error, len(part))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answers[mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = shareError(p.ErrorCode, p.ErrorMessage)
		}
	}
	return answers, nil
}

// shareError is refusal, with UNSUPPORTED_VERSION for a cluster whose share groups are turned off (share.version 0).
func shareError(code int16, message *string) error {
	err := refusal(code, message)
	if code == kerr.UnsupportedVersion.Code && (message == nil || !strings.Contains(strings.ToLower(*message), "coordinator")) { // a broker says it too when it has asked a node that is none for its own coordinator
		err = fmt.Errorf("%w: share groups are not enabled (share.version): %w", mirror.ErrUnsupported, err)
	}
	return err
}

// shareGroupsSince is the Kafka that first serves what is asked about offsets of share groups.
const shareGroupsSince = "4.1"

// unsupported is err, or mirror.ErrUnsupported if the request could not be sent because the broker, older than since, does not serve it. The client says that in words only, so the broker is asked, but not one
// that did not answer in time. One that does not tell is taken to serve it.
func (c *Client) unsupported(ctx context.Context, broker int32, api kmsg.Key, since string, err error) error {
	var timeout net.Error
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "clustermirror", "metadata"
	resp, failed := ask[*kmsg.ApiVersionsResponse](ctx, c, broker, req)
	if failed != nil || resp.ErrorCode != 0 || len(resp.ApiKeys) == 0 {
		return err
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == int16(api) {
			return err
		}
	}
	return fmt.Errorf("%w: Kafka %s or later serves %s, broker %d does not", mirror.ErrUnsupported, since, api.Name(), broker)
}
