package kafkasource

import (
	"context"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.RightsChecker = (*Source)(nil)

const rightsOperation = "rights"

// MissingRights tries rights with requests that come to nothing: Describe and Alter on the cluster, Describe, Read, DescribeConfigs and AlterConfigs on topics, Describe and Read on groups.
// Others are unknown; so is Read on topics at brokers before Kafka 2.8. The error is a *mirror.SourceError. What is missing is no failure, and brokers' authorizers may log it.
func (s *Source) MissingRights(ctx context.Context, rights []mirror.Right) (missing, unknown []mirror.Right, err error) {
	ctx, end, err := s.begin(ctx, rightsOperation)
	if err != nil {
		return nil, rights, err
	}
	defer end()
	missing, unknown, err = s.metadataClient.MissingRights(ctx, rights)
	if err != nil {
		err = s.failure(rightsOperation, mirror.TopicPartition{}, err)
	}
	return missing, unknown, err
}
