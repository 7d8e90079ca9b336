package kafkasource

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// epochQuestions are the questions for ends of leader epochs that wait for a broker. After a broker was restarted thousands of partitions are led in new epochs, and each of them asks: what comes in
// while one request is under way travels together in the next, so that each broker has one request at a time.
type epochQuestions struct {
	mu      sync.Mutex
	waiting map[int32][]*epochQuestion // by broker; there as long as somebody sends
}

type epochQuestion struct {
	ctx                context.Context // of whoever asks: what nobody waits for is not sent
	tp                 mirror.TopicPartition
	leaderEpoch, epoch int32
	answer             chan epochAnswer // of one: nobody may be waiting any more
}

type epochAnswer struct {
	version int16 // that the broker answered in
	code    int16 // that it gave this partition
	end     mirror.EpochEnd
	err     error // of the request as a whole, or errLeftOut
}

var errLeftOut = errors.New("the broker left this partition out of its answer")

// mostEpochQuestions bounds one request.
const mostEpochQuestions = 1000

// askEpochEnd asks a broker within ctx. The caller holds begin.
func (s *Source) askEpochEnd(ctx context.Context, broker int32, tp mirror.TopicPartition, leaderEpoch, epoch int32) epochAnswer {
	q := &epochQuestion{ctx, tp, leaderEpoch, epoch, make(chan epochAnswer, 1)}
	if s.epochQuestions.add(broker, q) {
		s.calls.Add(1)
		go func() {
			defer s.calls.Done()
			for some := s.epochQuestions.take(broker); len(some) > 0; some = s.epochQuestions.take(broker) {
				s.sendEpochQuestions(broker, some)
			}
		}()
	}
	select {
	case a := <-q.answer:
		return a
	case <-ctx.Done():
		return epochAnswer{err: ctx.Err()}
	}
}

// add says whether somebody has to send: nobody does yet.
func (e *epochQuestions) add(broker int32, q *epochQuestion) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == nil {
		e.waiting = make(map[int32][]*epochQuestion)
	}
	queue, sending := e.waiting[broker]
	e.waiting[broker] = append(queue, q)
	return !sending
}

// take takes what goes into one request: one question of each partition at most. None: whoever sends is done.
func (e *epochQuestions) take(broker int32) (some []*epochQuestion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := make(map[mirror.TopicPartition]bool)
	var later []*epochQuestion
	for _, q := range e.waiting[broker] {
		switch {
		case q.ctx.Err() != nil:
		case in[q.tp] || len(some) == mostEpochQuestions:
			later = append(later, q)
		default:
			in[q.tp] = true
			some = append(some, q)
		}
	}
	if len(some) == 0 {
		delete(e.waiting, broker)
		return nil
	}
	e.waiting[broker] = later
	return some
}

func (s *Source) sendEpochQuestions(broker int32, some []*epochQuestion) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topics := make(map[string]int)
	for _, q := range some {
		i, known := topics[q.tp.Topic]
		if !known {
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = q.tp.Topic
			i, topics[q.tp.Topic] = len(req.Topics), len(req.Topics)
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = q.tp.Partition, q.leaderEpoch, q.epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	ctx, stop := context.WithTimeout(s.ctx, s.cfg.Bound)
	defer stop()
	resp, err := s.ask(ctx, broker, req)
	answers := make(map[mirror.TopicPartition]epochAnswer, len(some))
	missing := epochAnswer{err: err}
	if err == nil {
		missing = epochAnswer{version: resp.GetVersion(), err: errLeftOut}
		for _, t := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, p := range t.Partitions {
				answers[mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = epochAnswer{resp.GetVersion(), p.ErrorCode, mirror.EpochEnd{Epoch: p.LeaderEpoch, End: p.EndOffset}, nil}
			}
		}
	}
	for _, q := range some {
		a, told := answers[q.tp]
		if !told {
			a = missing
		}
		q.answer <- a
	}
}
