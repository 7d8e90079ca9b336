package kafkasource

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.GroupReader = (*Source)(nil)

const (
	listGroupsOperation   = "list groups"
	groupOffsetsOperation = "group offsets"
)

// Groups asks each broker for the groups that it coordinates. Without DESCRIBE on the cluster a broker names those only that the user may describe.
func (s *Source) Groups(ctx context.Context) ([]mirror.Group, error) {
	ctx, end, err := s.begin(ctx, listGroupsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	groups, err := s.metadataClient.Groups(ctx)
	return groups, s.groupFailure(listGroupsOperation, err)
}

// GroupOffsets asks the coordinators for the stable committed offsets of groups (KIP-447), and for the start offsets of share groups (KIP-932).
func (s *Source) GroupOffsets(ctx context.Context, groups []mirror.Group) (map[string]mirror.GroupOffsets, error) {
	ctx, end, err := s.begin(ctx, groupOffsetsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	offsets, err := s.metadataClient.GroupOffsets(ctx, groups)
	for name, o := range offsets {
		if o.Err != nil {
			o.Err = s.groupFailure(groupOffsetsOperation, o.Err)
			offsets[name] = o
		}
	}
	return offsets, s.groupFailure(groupOffsetsOperation, err)
}

// groupFailure is failure for what brokers say of groups. It keeps the names of the brokers; the code and the advice are the first one's.
func (s *Source) groupFailure(operation string, err error) error {
	var several kafkametadata.BrokersError
	var one *kafkametadata.BrokerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &several) && len(several) > 0:
		first := *s.brokerFailure(operation, several[0])
		for _, b := range several[1:] {
			first.Err = fmt.Errorf("%w; %w", first.Err, s.brokerFailure(operation, b).Err)
		}
		return &first
	case errors.As(err, &one):
		return s.brokerFailure(operation, one)
	}
	return s.failure(operation, mirror.TopicPartition{}, err)
}

func (s *Source) brokerFailure(operation string, b *kafkametadata.BrokerError) *mirror.SourceError {
	e := *s.failure(operation, mirror.TopicPartition{}, b.Err)
	switch {
	case errors.Is(b.Err, mirror.ErrUnsupported):
		e.Code, e.Advice, e.Err = mirror.SourceUnsupported, "", b.Err
	case errors.Is(b.Err, kerr.GroupAuthorizationFailed):
		e.Advice = "grant the mirror's user DESCRIBE on the source's groups"
	case errors.Is(b.Err, kerr.NotCoordinator), errors.Is(b.Err, kerr.CoordinatorNotAvailable), errors.Is(b.Err, kerr.CoordinatorLoadInProgress):
		e.Code = mirror.SourceNotLeader
	}
	e.Err = &kafkametadata.BrokerError{Broker: b.Broker, API: b.API, Err: e.Err}
	return &e
}
