package kafkasource

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// EndOffsetForEpoch asks the partition's leader where an epoch ends in its log (KIP-320). mirror.ErrUnsupported: the service does not offer it (F-41).
// A leader that was found earlier is asked without another look-up if leaderEpoch is sent, because it then answers only if it still leads in that epoch. Calls
// that come in while a broker is asked travel together in the next request to it.
func (s *Source) EndOffsetForEpoch(ctx context.Context, tp mirror.TopicPartition, leaderEpoch, epoch int32) (mirror.EpochEnd, error) {
	const operation = "end offset for epoch"
	undefined := mirror.EpochEnd{Epoch: -1, End: -1}
	ctx, end, err := s.begin(ctx, operation)
	if err != nil {
		return undefined, err
	}
	defer end()

	s.mu.Lock()
	l, known := s.leaders[tp]
	s.mu.Unlock()
	if !known || leaderEpoch < 0 || l.epoch < leaderEpoch {
		targets, result, err := s.targets(ctx, operation, []mirror.TopicPartition{tp})
		if err != nil {
			return undefined, err
		}
		if len(targets) == 0 {
			return undefined, result[tp].Err
		}
		l = targets[0].leader
	}

	a := s.askEpochEnd(ctx, l.broker, tp, leaderEpoch, epoch)
	switch {
	case a.err != nil && a.err != errLeftOut:
		s.forgetLeader(tp)
		e := s.failure(operation, tp, a.err)
		if e.Code == mirror.SourceOther && s.ctx.Err() == nil && ctx.Err() == nil && !s.offersEpochEnd(ctx, l.broker) {
			return undefined, unsupportedEpochEnd(operation, tp)
		}
		return undefined, e
	case a.version < leastEpochEnd:
		return undefined, unsupportedEpochEnd(operation, tp)
	case a.err != nil:
		return undefined, s.failure(operation, tp, a.err)
	}
	if err := failed(operation, tp, a.code); err != nil {
		s.forgetLeader(tp)
		var e *mirror.SourceError
		if errors.As(err, &e) && e.Code == mirror.SourceUnsupported {
			return undefined, unsupportedEpochEnd(operation, tp)
		}
		return undefined, err
	}
	return a.end, nil
}

func unsupportedEpochEnd(operation string, tp mirror.TopicPartition) *mirror.SourceError {
	return &mirror.SourceError{
		Code: mirror.SourceUnsupported, Operation: operation, Partition: tp,
		Err: fmt.Errorf("%w: OffsetForLeaderEpoch version %d or later", mirror.ErrUnsupported, leastEpochEnd),
	}
}

// offersEpochEnd asks a broker for the APIs it serves. If it does not tell, it is taken to offer it: one bad answer must not turn checks off.
func (s *Source) offersEpochEnd(ctx context.Context, broker int32) bool {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "clustermirror", "source"
	kresp, err := s.ask(ctx, broker, req)
	if err != nil {
		return true
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if resp.ErrorCode != 0 || len(resp.ApiKeys) == 0 {
		return true
	}
	for _, k := range resp.ApiKeys {
		if kmsg.Key(k.ApiKey) == kmsg.OffsetForLeaderEpoch {
			return k.MaxVersion >= leastEpochEnd && k.MinVersion <= k.MaxVersion
		}
	}
	return false
}
