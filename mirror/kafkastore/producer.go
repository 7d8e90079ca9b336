package kafkastore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/asking"
	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// producer is one initialisation of a transactional id. Its methods are called one at a time. After an error it must not be used again before another init.
//
// It speaks the requests themselves instead of a kgo producer, because what is proved in the package's text hangs on when InitProducerId is sent, and kgo sends it by itself.
type producer struct {
	store    *Store
	id       string
	ready    bool
	open     bool // a transaction may be open
	lost     bool // a request was not answered and may still arrive: the epoch must move before the next transaction (KIP-890)
	producer int64
	epoch    int16
	sequence map[place]int32
}

// pauses between two tries of one request.
const (
	shortPause = 5 * time.Millisecond // also of the wait for the markers of the transaction before
	longPause  = 250 * time.Millisecond
)

// pause waits; the error is the context's.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask sends a request to the id's coordinator until it is answered with something else than "ask again". code says what an answer means. lost tells whether a try before the
// one that was answered may have been carried out.
//
// An error code does not say that nothing was done. A coordinator appends to its log first, and answers NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS
// or UNKNOWN_SERVER_ERROR also when that append was not acknowledged in time, or when it lost its office meanwhile (Kafka: TransactionStateManager). What it appended may
// be found there by the next one. CONCURRENT_TRANSACTIONS comes before any append. So does what fences: as long as a commit is in the log and not done, nobody else gets the id.
func (p *producer) ask(ctx context.Context, req kmsg.Request, code func(kmsg.Response) int16) (resp kmsg.Response, lost bool, err error) {
	what := fmt.Sprintf("%s of %s", kmsg.NameForKey(req.Key()), p.id)
	wait := shortPause
	var last error
	for {
		node, err := p.store.coordinator(ctx, p.id)
		switch {
		case err != nil && last != nil && ctx.Err() != nil: // what was answered before says more
		case err != nil:
			last = err
		default:
			resp, err = p.store.askCoordinator(ctx, p.id, node, req)
			if err != nil {
				last = requestFailed(what, err)
				lost, p.lost = true, true
				break
			}
			switch e := kerr.ErrorForCode(code(resp)); {
			case e == kerr.ConcurrentTransactions:
				last = again("%s: %w", what, e)
			case askAgain(req, e):
				last = again("%s: %w", what, e)
				lost = true
				p.store.forgetCoordinator(p.id)
			default:
				return resp, lost, nil
			}
		}
		if !mayRepeat(last) {
			return nil, lost, last
		}
		if pause(ctx, wait) != nil {
			return nil, lost, last
		}
		wait = min(wait*4/3, longPause)
	}
}

// askAgain says whether an answer settles nothing. Of the end of a transaction nothing else may be left open, whatever the code: a commit that was asked for may still be made.
func askAgain(req kmsg.Request, e error) bool {
	switch e {
	case kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.UnknownTopicOrPartition, kerr.RequestTimedOut:
		return true
	}
	var passes *retryError
	_, ends := req.(*kmsg.EndTxnRequest)
	return ends && errors.As(judge("", "", e), &passes)
}

// init initialises the id: whatever transaction it had is committed or aborted when init returns, and whoever had it is fenced.
func (p *producer) init(ctx context.Context) error {
	p.ready, p.open = false, false
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &p.id
	req.TransactionTimeoutMillis = int32(p.store.cfg.TransactionTimeout.Milliseconds())
	kresp, _, err := p.ask(ctx, req, func(r kmsg.Response) int16 { return r.(*kmsg.InitProducerIDResponse).ErrorCode })
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.InitProducerIDResponse)
	if err := transactionFailed(p.id, "", resp.ErrorCode); err != nil {
		if errors.Is(err, errFenced) { // another one came in between
			err = again("%w", err)
		}
		return err
	}
	p.ready, p.lost = true, false
	p.producer, p.epoch, p.sequence = resp.ProducerID, resp.ProducerEpoch, make(map[place]int32)
	return nil
}

// newUpdate names one update.
func newUpdate() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// write writes records in one transaction and sets their offsets. Errors: errFenced and retryError: nothing was committed. lostError: nobody knows. Others: nothing was
// committed, and trying again does not help.
func (p *producer) write(ctx context.Context, update string, records []*output) error {
	err := p.writeAll(ctx, update, records)
	if err != nil || p.lost {
		p.ready = false
	}
	if err != nil {
		if p.open && !errors.Is(err, errFenced) && !errors.As(err, new(*lostError)) {
			p.abandon()
		}
	}
	p.open = false
	return err
}

func (p *producer) writeAll(ctx context.Context, update string, records []*output) error {
	by := make(map[place][]*output)
	for _, r := range records {
		by[r.place] = append(by[r.place], r)
	}
	if err := p.add(ctx, slices.Collect(maps.Keys(by))); err != nil {
		return err
	}
	if err := p.produce(ctx, update, len(records), by); err != nil {
		return err
	}
	return p.end(ctx, true)
}

// add begins the transaction and names its partitions. Where one topic is refused the cluster adds none.
func (p *producer) add(ctx context.Context, places []place) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, p.producer, p.epoch
	by := make(map[string][]int32)
	for _, at := range places {
		by[at.topic] = append(by[at.topic], at.partition)
	}
	for topic, partitions := range by {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	p.open = true
	kresp, _, err := p.ask(ctx, req, func(r kmsg.Response) int16 {
		_, code := addCode(r.(*kmsg.AddPartitionsToTxnResponse))
		return code
	})
	if err != nil {
		return err
	}
	topic, code := addCode(kresp.(*kmsg.AddPartitionsToTxnResponse))
	return transactionFailed(p.id, topic, code)
}

// addCode is the first error code that is a reason; OPERATION_NOT_ATTEMPTED only says that another partition has one.
func addCode(resp *kmsg.AddPartitionsToTxnResponse) (topic string, code int16) {
	for _, t := range resp.Topics {
		for _, tp := range t.Partitions {
			if tp.ErrorCode != 0 && (code == 0 || code == kerr.OperationNotAttempted.Code) {
				topic, code = t.Topic, tp.ErrorCode
			}
		}
	}
	return topic, code
}

// produce sends the batches to all leaders at once.
func (p *producer) produce(ctx context.Context, update string, of int, by map[place][]*output) error {
	type work struct {
		at      place
		records []*output
		raw     []byte
	}
	rounds := [][]work{} // a partition's second batch follows its first
	now := time.Now()
	for at, records := range by {
		encoded, sizes := batches(records, update, of, p.producer, p.epoch, p.sequence[at], now)
		p.sequence[at] += int32(len(records))
		for i, raw := range encoded {
			if len(rounds) == i {
				rounds = append(rounds, nil)
			}
			rounds[i] = append(rounds[i], work{at, records[:sizes[i]], raw})
			records = records[sizes[i]:]
		}
	}
	for _, round := range rounds {
		requests := make(map[int32]*kmsg.ProduceRequest)
		leads := make(map[int32][]topicreader.Lead)
		sent := make(map[place][]*output)
		for _, w := range round {
			lead := p.store.lead(w.at)
			leader := lead.Leader
			if leader < 0 {
				return again("%s-%d has no leader now", w.at.topic, w.at.partition)
			}
			req := requests[leader]
			if req == nil {
				req = kmsg.NewPtrProduceRequest()
				req.TransactionID, req.Acks, req.TimeoutMillis = &p.id, -1, int32(p.store.cfg.TransactionTimeout.Milliseconds())
				requests[leader] = req
			}
			t := kmsg.NewProduceRequestTopic()
			t.Topic = w.at.topic
			tp := kmsg.NewProduceRequestTopicPartition()
			tp.Partition, tp.Records = w.at.partition, w.raw
			i := slices.IndexFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == w.at.topic })
			if i < 0 {
				i = len(req.Topics)
				req.Topics = append(req.Topics, t)
			}
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, tp)
			leads[leader] = append(leads[leader], lead)
			sent[w.at] = w.records
		}
		type answer struct {
			resp kmsg.Response
			err  error
		}
		answers := make(chan answer, len(requests))
		for leader, req := range requests {
			go func() {
				moved := func(ctx context.Context) bool { return topicreader.Moved(ctx, p.store.client, leads[leader]) }
				resp, err := asking.Holder(ctx, p.store.client, leader, req, 0, moved)
				answers <- answer{resp, err}
			}()
		}
		var failed error
		for range requests {
			a := <-answers
			err := a.err
			if err != nil {
				err = requestFailed("Produce of "+p.id, err)
			} else {
				err = p.produced(a.resp.(*kmsg.ProduceResponse), sent)
			}
			if failed == nil || err != nil && !mayRepeat(err) {
				failed = err
			}
		}
		if failed != nil {
			p.store.forgetLeaders()
			return failed
		}
	}
	return nil
}

// produced sets the offsets that an answer tells.
func (p *producer) produced(resp *kmsg.ProduceResponse, sent map[place][]*output) error {
	for _, t := range resp.Topics {
		for _, tp := range t.Partitions {
			if tp.ErrorCode == kerr.MessageTooLarge.Code || tp.ErrorCode == kerr.RecordListTooLarge.Code {
				return tooLarge(sent[place{t.Topic, tp.Partition}], kerr.ErrorForCode(tp.ErrorCode))
			}
			if err := transactionFailed(p.id, t.Topic, tp.ErrorCode); err != nil {
				return err
			}
			for i, r := range sent[place{t.Topic, tp.Partition}] {
				r.offset = tp.BaseOffset + int64(i)
			}
		}
	}
	return nil
}

// tooLarge names the largest record of a batch. Batches of several records are small, so it is the only one, or the topic's limit is below what any process needs.
func tooLarge(batch []*output, err error) error {
	r := slices.MaxFunc(batch, func(a, b *output) int { return a.size() - b.size() })
	return &SizeError{Topic: r.topic, Key: r.key, Bytes: r.size(), Err: err}
}

// end commits or aborts. A commit that is asked for twice is answered as the first one was, because the epoch moves with InitProducerId only.
func (p *producer) end(ctx context.Context, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.producer, p.epoch, commit
	kresp, lost, err := p.ask(ctx, req, func(r kmsg.Response) int16 { return r.(*kmsg.EndTxnResponse).ErrorCode })
	if err == nil {
		err = transactionFailed(p.id, "", kresp.(*kmsg.EndTxnResponse).ErrorCode)
	} else if lost {
		return &lostError{err}
	}
	if err != nil && lost {
		// The try that was lost may have committed; then whoever came after it fenced this one.
		return &lostError{err}
	}
	return err
}

// abandon aborts an open transaction in the background, so that it does not hide what follows until its timeout. Whether it works matters to nobody's records.
func (p *producer) abandon() {
	gone := *p
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.store.closed {
		return
	}
	p.store.background.Go(func() {
		ctx, cancel := context.WithTimeout(p.store.ctx, 2*time.Second)
		defer cancel()
		// Nothing waits for the answer; an error means that the id was initialised again or that the timeout does it.
		_ = gone.end(ctx, false)
	})
}
