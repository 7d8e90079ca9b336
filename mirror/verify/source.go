package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// SourceOptions are a SourceSide's. Zero values are the defaults in brackets.
type SourceOptions struct {
	Fetch    mirror.FetchOptions // [the source's]
	Attempts int                 // how often one read is tried, over changes of leaders and lost connections [8]
	Pause    time.Duration       // before the second one; it doubles, up to 32 times as long [250 ms]
	TopicID  mirror.TopicID      // of the topic that is to be read; another one is an error [as it is first seen]
	MaxBatch int                 // bytes of a batch as it lies there; a length beyond is damage [256 MiB]
	Clock    Clock               // [the machine's]
}

// FetchSide is a Side over a mirror.Source. It keeps a connection to the leader until Close.
type FetchSide struct {
	source    mirror.Source
	partition mirror.TopicPartition
	o         SourceOptions

	fetcher mirror.Fetcher
	epoch   int32
	id      mirror.TopicID // of the topic as it was first seen
	// ahead is what a reply had beyond what Read returned, with the offset that it begins at. Records belong to whoever fetched them.
	ahead   []byte
	aheadAt int64
}

// SourceSide is a side over one partition of a source cluster, read by its fetcher as a consumer reads it: the partition's leader is asked, and nothing at or above the high watermark is seen.
// It is not safe for concurrent use. The source is not closed by it. A topic that was recreated since the first read is an error, a *mirror.SourceError with SourceTopicIDChanged.
func SourceSide(source mirror.Source, partition mirror.TopicPartition, o SourceOptions) *FetchSide {
	o.Attempts = max(0, o.Attempts)
	o.Attempts = cmp.Or(o.Attempts, 8)
	o.Pause = cmp.Or(o.Pause, 250*time.Millisecond)
	o.MaxBatch = cmp.Or(o.MaxBatch, 256<<20)
	if o.Clock == nil {
		o.Clock = wallClock{}
	}
	return &FetchSide{source: source, partition: partition, o: o, id: o.TopicID}
}

// Partition is the one given.
func (s *FetchSide) Partition() mirror.TopicPartition { return s.partition }

// Close ends the connection. The side can be used again.
func (s *FetchSide) Close() error {
	f := s.fetcher
	s.fetcher, s.ahead = nil, nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Bounds asks the leader for log start and high watermark, and, where the source is a mirror.LocalStartReader, for what is in remote storage.
func (s *FetchSide) Bounds(ctx context.Context) (b Bounds, err error) {
	err = s.attempts(ctx, func() error {
		answers, err := s.source.Offsets(ctx, []mirror.TopicPartition{s.partition})
		if err != nil {
			return err
		}
		o, there := answers[s.partition]
		switch {
		case !there:
			return s.failed(mirror.SourceOther, "the answer leaves the partition out")
		case o.Err != nil:
			return o.Err
		case o.LogStart < 0 || o.HighWatermark < o.LogStart:
			return s.failed(mirror.SourceOther, fmt.Sprintf("the answer is log start %d, high watermark %d", o.LogStart, o.HighWatermark))
		}
		b = Bounds{Start: o.LogStart, End: o.HighWatermark, Local: o.LogStart}
		return nil
	})
	if err != nil {
		return Bounds{}, err
	}
	b.Local, err = s.local(ctx, b.Local)
	return b, err
}

// local is the first offset that is not in remote storage alone, start if the source cannot tell.
func (s *FetchSide) local(ctx context.Context, start int64) (int64, error) {
	reader, ok := s.source.(mirror.LocalStartReader)
	if !ok {
		return start, nil
	}
	local := start
	err := s.attempts(ctx, func() error {
		starts, err := reader.LocalStarts(ctx, []mirror.TopicPartition{s.partition})
		if errors.Is(err, mirror.ErrUnsupported) { // a source that is opened anew learns that when it is open
			return nil
		}
		if err == nil {
			if at, there := starts[s.partition]; there {
				local = max(start, at)
			}
		}
		return err
	})
	return local, err
}

func (s *FetchSide) failed(code mirror.SourceCode, what string) error {
	return &mirror.SourceError{Code: code, Operation: "verify", Partition: s.partition, Err: errors.New(what)}
}

// attempts tries again what waiting may mend.
func (s *FetchSide) attempts(ctx context.Context, try func() error) error {
	pause := s.o.Pause
	for i := 1; ; i++ {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var of *mirror.SourceError
		passing := !errors.As(err, &of)
		if of != nil {
			switch of.Code {
			case mirror.SourceOther, mirror.SourceUnreachable, mirror.SourceNotLeader, mirror.SourceFencedEpoch, mirror.SourceUnknownEpoch, mirror.SourceOffsetsNotReady, mirror.SourceSession, mirror.SourceTimeout:
				passing = true
			}
		}
		if errors.Is(err, mirror.ErrOffsetOutOfRange) || errors.Is(err, ErrRemote) {
			passing = false
		}
		if !passing || i >= s.o.Attempts {
			return err
		}
		_ = s.Close() // whoever leads now is looked up again
		if err := s.o.Clock.Sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 32*s.o.Pause)
	}
}

// Read fetches until the answer has a whole batch, or says that there is none below the high watermark. While a quota of the source holds replies back, it waits as long as ctx lets it.
func (s *FetchSide) Read(ctx context.Context, from int64, most int) (b []byte, err error) {
	if len(s.ahead) > 0 && s.aheadAt == from {
		return s.some(s.ahead, from, most), nil
	}
	s.ahead = nil
	err = s.attempts(ctx, func() error {
		b, err = s.fetch(ctx, from, most)
		return err
	})
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return s.some(b, from, most), nil
}

// some returns about max bytes of what was fetched for from, and keeps the rest.
func (s *FetchSide) some(b []byte, from int64, most int) []byte {
	n, next := 0, from
	for info, whole := range mirror.Batches(b) {
		if n > 0 && n+len(whole) > most || info.Next() <= next && n > 0 {
			break
		}
		n, next = n+len(whole), info.Next()
	}
	s.ahead, s.aheadAt = nil, next
	if n == 0 || next <= from {
		return b // what is no batch is returned as it is
	}
	s.ahead = b[n:]
	return b[:n:n]
}

// empties is how often in a row a leader has to answer without records before that is believed.
const empties = 3

// fetch sends requests for one offset until something is known. Nothing: there is no batch below the high watermark.
func (s *FetchSide) fetch(ctx context.Context, from int64, most int) ([]byte, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	size := int32(min(max(most, 1), 1<<30))
	for empty := 0; ; {
		position := mirror.FetchPosition{TopicPartition: s.partition, TopicID: s.id, Offset: from, LeaderEpoch: s.epoch, LastEpoch: mirror.Unknown, LogStart: mirror.Unknown, MaxBytes: size}
		s.fetcher.Want(position)
		reply, err := s.fetcher.Fetch(ctx)
		if errors.Is(err, mirror.ErrNoAnswer) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue // the fetcher has waited
		}
		if err != nil {
			return nil, err
		}
		var answer *mirror.FetchedPartition
		for i := range reply {
			if reply[i].TopicPartition == s.partition && reply[i].Offset == from && reply[i].LeaderEpoch == s.epoch {
				answer = &reply[i]
			}
		}
		var of *mirror.SourceError
		switch {
		case answer != nil && errors.As(answer.Err, &of) && of.Code == mirror.SourceOffsetRange:
			return nil, errors.Join(mirror.ErrOffsetOutOfRange, answer.Err)
		case answer != nil && answer.Err != nil:
			return nil, answer.Err
		case answer != nil && len(answer.Records) > 0:
			whole, need := wholeBatches(answer.Records)
			// Where the first batch is cut, more is asked for. A length that no reply fills is damage, and is shown as it came.
			if whole > 0 || need > s.o.MaxBatch || int(size) >= need {
				return answer.Records[:cmp.Or(whole, len(answer.Records))], nil
			}
			size = int32(need)
			continue
		}
		// Nothing. An incremental session leaves out what has nothing new, which says the same.
		if empty++; empty < empties {
			continue
		}
		bounds, err := s.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case from < bounds.Start || from > bounds.End:
			return nil, fmt.Errorf("offset %d, the log is [%d, %d]: %w", from, bounds.Start, bounds.End, mirror.ErrOffsetOutOfRange)
		case bounds.Local > from:
			return nil, fmt.Errorf("[%d, %d) is in remote storage alone, and the source does not bring it: %w", from, bounds.Local, ErrRemote)
		}
		return nil, nil
	}
}

// wholeBatches says how many of the bytes are whole batches, all of them if one cannot be read: damage is shown as it came. None: the first one has need bytes, as far as can be seen.
func wholeBatches(b []byte) (whole, need int) {
	for whole < len(b) {
		_, n, err := batch.Next(b[whole:])
		switch {
		case err == batch.ErrCut:
			return whole, max(n, batch.HeaderSize)
		case err != nil:
			return len(b), 0
		}
		whole += n
	}
	return whole, 0
}

// connect opens a fetcher to the leader, if there is none.
func (s *FetchSide) connect(ctx context.Context) error {
	if s.fetcher != nil {
		return nil
	}
	topics, err := s.source.Topics(ctx, s.partition.Topic)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if t.Name != s.partition.Topic {
			continue
		}
		if t.Err != nil {
			return t.Err
		}
		if s.id != (mirror.TopicID{}) && t.ID != s.id {
			return s.failed(mirror.SourceTopicIDChanged, fmt.Sprintf("the topic was created anew: its id was %s and is %s", s.id, t.ID))
		}
		for _, p := range t.Leaders {
			if p.Partition != s.partition.Partition {
				continue
			}
			if p.Err != nil {
				return p.Err
			}
			if p.Leader < 0 {
				return s.failed(mirror.SourceNotLeader, "the partition has no leader now")
			}
			if s.fetcher, err = s.source.OpenFetcher(ctx, p.Leader, s.o.Fetch); err != nil {
				s.fetcher = nil
				return err
			}
			s.id, s.epoch = t.ID, p.LeaderEpoch
			return nil
		}
	}
	return s.failed(mirror.SourceUnknownTopic, "the partition does not exist")
}
