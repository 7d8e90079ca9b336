package kafkasource

import (
	"context"
	"errors"

	"github.com/clustermirror/clustermirror/mirror"
)

var _ mirror.ACLReader = (*Source)(nil)

const aclsOperation = "access rules"

// ACLs lists every access rule, as one broker knows them. The error is a *mirror.SourceError, in which errors.Is finds mirror.ErrNoAuthorizer where it is that. A word for which this version
// has no name stands as UNKNOWN(15), with Kafka's number. The user needs DESCRIBE on the cluster.
func (s *Source) ACLs(ctx context.Context) ([]mirror.ACL, error) {
	ctx, end, err := s.begin(ctx, aclsOperation)
	if err != nil {
		return nil, err
	}
	defer end()
	rules, err := s.metadataClient.ACLs(ctx)
	if err == nil {
		return rules, nil
	}
	e := s.failure(aclsOperation, mirror.TopicPartition{}, err)
	switch {
	case errors.Is(err, mirror.ErrNoAuthorizer):
		e.Code, e.Err = mirror.SourceUnsupported, mirror.ErrNoAuthorizer
	case e.Code == mirror.SourceDenied:
		e.Advice = "grant the mirror's user DESCRIBE on the source's cluster"
	}
	return nil, e
}
