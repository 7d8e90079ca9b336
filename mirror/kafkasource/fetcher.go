package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

const (
	fetchOperation = "fetch"
	// byNamesVersion is the last Fetch version that names topics; later ones carry topic ids (KIP-516).
	byNamesVersion = 12
	// leastFetchBytes is how far a reply's limit is lowered when replies do not arrive in time.
	leastFetchBytes = 64 << 10
)

// fetcher fetches from one broker. Its own lock makes Want, Forget and Close safe while a Fetch is under way.
type fetcher struct {
	source    *Source
	broker    mirror.Broker
	clusterID string
	options   mirror.FetchOptions
	client    *kgo.Client
	seed      *kgo.Broker
	dials     *dialCounter
	closed    chan struct{} // closed by Close
	wake      chan struct{} // a partition is wanted

	// Used by Fetch only.
	verified  int64 // dials that the cluster id was checked for
	maxBytes  int32 // of the next reply
	noRack    bool
	throttled time.Time     // the broker wants no request before
	pause     time.Duration // that it asked for in the reply of the last Fetch
	limit     int32         // LimitReply's, 0 for none

	mu      sync.Mutex
	ended   bool
	session *session
	ahead   ahead
}

var (
	_ mirror.Fetcher        = (*fetcher)(nil)
	_ mirror.ThrottleTeller = (*fetcher)(nil)
	_ mirror.ReplyLimiter   = (*fetcher)(nil)
)

// OpenFetcher returns a fetcher for one broker. It connects with the first Fetch; here the broker's address is looked up if it is not known.
//
// Want and Forget may be called while a Fetch is under way. A partition that answers with records or an error, and is neither moved by Want nor
// forgotten, answers the same again at once.
func (s *Source) OpenFetcher(ctx context.Context, broker int32, options mirror.FetchOptions) (mirror.Fetcher, error) {
	const operation = "open fetcher"
	ctx, end, err := s.begin(ctx, operation)
	if err != nil {
		return nil, err
	}
	defer end()
	b, id, known := s.knownBroker(broker)
	if !known {
		if _, err := s.metadata(ctx, operation, []string{}, false); err != nil {
			return nil, err
		}
		if b, id, known = s.knownBroker(broker); !known {
			return nil, &mirror.SourceError{
				Code: mirror.SourceUnreachable, Operation: operation,
				Err: fmt.Errorf("broker %d is not in the source cluster now", broker),
			}
		}
	}
	options = withFetchDefaults(options)
	f := &fetcher{
		source:    s,
		broker:    b,
		clusterID: id,
		options:   options,
		dials:     &dialCounter{counter: &s.counter},
		closed:    make(chan struct{}),
		wake:      make(chan struct{}, 1),
		maxBytes:  s.replyLimit(broker, options.MaxBytes),
		session:   newSession(),
		ahead:     ahead{chunk: aheadChunk, worth: aheadWorth, news: make(chan struct{}, 1)},
	}
	address := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	if f.client, err = kgo.NewClient(s.cfg.fetchOptions(f.dials, address, options)...); err != nil {
		return nil, &mirror.SourceError{Operation: operation, Err: fmt.Errorf("options for the fetcher's client: %w", err)}
	}
	f.seed = f.client.SeedBrokers()[0]

	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.fetchers[f] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		f.Close()
		return nil, failure(operation, mirror.TopicPartition{}, ErrClosed, 0)
	}
	return f, nil
}

// Want adds a partition or changes where it is to be fetched.
func (f *fetcher) Want(position mirror.FetchPosition) {
	f.mu.Lock()
	if !f.wantAhead(position) {
		f.session.want(position)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Forget removes a partition.
func (f *fetcher) Forget(tp mirror.TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.ahead.lanes[tp]; l != nil {
		l.wanted = false // it may come back to where it left
	}
	f.session.forget(tp)
}

// Close ends the connection and a Fetch that is under way.
func (f *fetcher) Close() error {
	f.mu.Lock()
	ended := f.ended
	f.ended = true
	f.mu.Unlock()
	if ended {
		return nil
	}
	close(f.closed)
	f.client.Close()
	f.source.mu.Lock()
	delete(f.source.fetchers, f)
	f.source.mu.Unlock()
	return nil
}

// Throttled is the pause that the broker asked for in the reply that the last Fetch received (KIP-219: it is the client that waits), 0 for none.
func (f *fetcher) Throttled() time.Duration { return f.pause }

// LimitReply bounds the bytes of later replies; 0 lifts that.
func (f *fetcher) LimitReply(bytes int32) { f.limit = max(bytes, 0) }

// Fetch sends one request and waits for its reply. A fetch session that the broker lost is begun anew inside.
func (f *fetcher) Fetch(ctx context.Context) ([]mirror.FetchedPartition, error) {
	bound := f.options.MaxWait + f.source.cfg.Bound
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	f.pause = 0
	if f.readsAhead() {
		if reply, over, err := f.fetchAhead(ctx, bound); !over {
			return reply, err
		}
	}
	for mended := false; ; mended = true {
		ready, err := f.ready(ctx)
		if err != nil {
			return nil, err
		}
		if !ready {
			return nil, mirror.ErrNoAnswer
		}
		f.mu.Lock()
		if f.session.idle() { // forgotten since
			f.mu.Unlock()
			return nil, mirror.ErrNoAnswer
		}
		req := fetchRequest{f.session.build(f.options.PartitionMaxBytes), (*kmsg.FetchRequest)(nil).MaxVersion()}
		if f.session.byNames() {
			req.most = byNamesVersion
		}
		lost := f.session.lost
		f.mu.Unlock()

		f.fillIn(req.FetchRequest)

		sent := time.Now()
		kresp, err := f.seed.Request(ctx, &req)
		if err == nil && kresp.GetVersion() < leastFetch {
			err = tooOld(fetchOperation, "Fetch", kresp.GetVersion(), leastFetch)
		}
		if err == nil && kresp.GetVersion() <= byNamesVersion {
			err = f.verify(ctx)
		}
		if err != nil {
			return nil, f.failed(err, bound)
		}
		resp := kresp.(*kmsg.FetchResponse)
		reply, e := f.receive(resp, lost)
		if e != nil && e.Code == mirror.SourceSession && !mended {
			continue
		}
		if e != nil {
			return nil, e
		}
		if len(reply) == 0 && resp.ThrottleMillis > 0 {
			return nil, mirror.ErrNoAnswer // a quota leaves replies empty: that says nothing about the logs
		}
		f.look(reply, time.Since(sent))
		reply, f.ahead.kept = append(f.ahead.kept, reply...), nil
		return reply, nil
	}
}

// fillIn fills in what is the same for every partition.
func (f *fetcher) fillIn(r *kmsg.FetchRequest) {
	r.MaxWaitMillis = int32(min(f.options.MaxWait.Milliseconds(), 1<<30))
	r.MinBytes, r.MaxBytes = f.options.MinBytes, f.maxBytes
	if f.limit > 0 {
		r.MinBytes, r.MaxBytes = min(r.MinBytes, f.limit), min(r.MaxBytes, f.limit)
	}
	r.IsolationLevel = 0 // READ_UNCOMMITTED
	r.Rack = f.options.Rack
	if f.noRack {
		r.Rack = ""
	}
}

// receive takes note of a reply and returns its partitions. lost is what session.lost was when the request was built. Fetch only.
func (f *fetcher) receive(resp *kmsg.FetchResponse, lost uint64) ([]mirror.FetchedPartition, *mirror.SourceError) {
	f.arrived()
	if resp.ThrottleMillis > 0 {
		f.pause = time.Duration(resp.ThrottleMillis) * time.Millisecond
		f.throttled = time.Now().Add(f.pause)
	}
	if resp.ErrorCode != 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.session.reset()
		if resp.ErrorCode == kerr.FetchSessionIDNotFound.Code {
			f.session.id = 0
		}
		return nil, failure(fetchOperation, mirror.TopicPartition{}, kerr.ErrorForCode(resp.ErrorCode), 0)
	}
	return f.take(resp, lost), nil
}

// ready waits until there is something to ask and the broker may be asked. Not ready and no error: a wait is over and there is nothing new.
func (f *fetcher) ready(ctx context.Context) (bool, error) {
	f.mu.Lock()
	idle := f.session.idle()
	f.mu.Unlock()
	wait := time.Until(f.throttled)
	if idle {
		wait = max(wait, f.options.MaxWait)
	}
	if wait > 0 {
		wait = min(wait, f.options.MaxWait+f.source.cfg.Bound/2) // so that the wait ends before the call's bound does
		timer := time.NewTimer(wait)
		defer timer.Stop()
		wake := f.wake
		if !idle {
			wake = nil
		}
		select {
		case <-timer.C:
		case <-wake:
		case <-f.closed:
		case <-ctx.Done():
		}
	}
	select {
	case <-f.closed:
		return false, failure(fetchOperation, mirror.TopicPartition{}, ErrClosed, 0)
	default:
	}
	if err := ctx.Err(); err != nil {
		return false, failure(fetchOperation, mirror.TopicPartition{}, err, f.options.MaxWait+f.source.cfg.Bound)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.session.idle() && time.Until(f.throttled) <= 0, nil
}

// verify checks that a new connection leads to the cluster that the source was opened for (F-33). Topic ids make it unnecessary: another
// cluster's topics have other ids.
func (f *fetcher) verify(ctx context.Context) error {
	if f.verified == f.dials.dials.Load() || f.clusterID == "" {
		return nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	req.AllowAutoTopicCreation = false
	kresp, err := ask(ctx, f.seed, req)
	if err != nil {
		return err
	}
	if id := clusterID(kresp.(*kmsg.MetadataResponse)); id != f.clusterID {
		return clusterChanged(fetchOperation, f.clusterID, id)
	}
	f.verified = f.dials.dials.Load()
	return nil
}

// failed takes note that a request came to nothing.
func (f *fetcher) failed(err error, bound time.Duration) *mirror.SourceError {
	f.mu.Lock()
	f.endLanes()
	f.session.reset()
	ended := f.ended
	f.mu.Unlock()
	if ended {
		err = ErrClosed
	}
	e := failure(fetchOperation, mirror.TopicPartition{}, err, bound)
	if f.dials.lastFailed.Load() {
		e = whileConnecting(e)
	}
	switch {
	case e.Code == mirror.SourceTimeout:
		f.late()
	case e.Code == mirror.SourceUnreachable, errors.Is(err, ErrClusterChanged):
		f.source.forgetBroker(f.broker)
	}
	return e
}

// late halves the limit of replies, so that a line too slow for the limit in the time of a call still makes progress. The source remembers it for
// the broker's next fetcher.
func (f *fetcher) late() {
	f.maxBytes = max(f.maxBytes/2, min(leastFetchBytes, f.options.MaxBytes))
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.source.limits[f.broker.ID] = f.maxBytes
}

// arrived doubles a limit that was halved.
func (f *fetcher) arrived() {
	if f.maxBytes == f.options.MaxBytes {
		return
	}
	f.maxBytes = int32(min(2*int64(f.maxBytes), int64(f.options.MaxBytes)))
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	if f.maxBytes == f.options.MaxBytes {
		delete(f.source.limits, f.broker.ID)
	} else {
		f.source.limits[f.broker.ID] = f.maxBytes
	}
}

// replyLimit is how large a reply may be that arrives from a broker in time, as far as is known.
func (s *Source) replyLimit(broker, most int32) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit, known := s.limits[broker]; known {
		return min(limit, most)
	}
	return most
}

// take turns a good reply into the caller's terms.
func (f *fetcher) take(resp *kmsg.FetchResponse, lost uint64) []mirror.FetchedPartition {
	if len(resp.Brokers) > 0 {
		f.source.learnBrokers(resp.Brokers)
	}
	n := 0
	for i := range resp.Topics {
		n += len(resp.Topics[i].Partitions)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.answered(resp.SessionID, lost)
	if n == 0 {
		return nil
	}
	out := make([]mirror.FetchedPartition, 0, n)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			p := f.session.find(t.Topic, t.TopicID, rp.Partition)
			if p == nil {
				continue
			}
			if rp.PreferredReadReplica >= 0 && rp.ErrorCode == 0 {
				// KIP-392: the leader sends us to a follower and no records. A mirror reads from leaders, so ask without the rack from now on.
				f.noRack = true
			}
			out = append(out, f.fetchedPartition(p, rp, resp.Brokers))
		}
	}
	return out
}

func (f *fetcher) fetchedPartition(p *fetched, rp *kmsg.FetchResponseTopicPartition, endpoints []kmsg.FetchResponseBroker) mirror.FetchedPartition {
	out := mirror.FetchedPartition{
		TopicPartition: p.sent.TopicPartition,
		Offset:         p.sent.Offset,
		LeaderEpoch:    p.sent.LeaderEpoch,
		HighWatermark:  rp.HighWatermark,
		LastStable:     rp.LastStableOffset,
		LogStart:       rp.LogStartOffset,
		Records:        rp.RecordBatches,
	}
	if rp.ErrorCode != 0 {
		out.Err = failed(fetchOperation, p.sent.TopicPartition, rp.ErrorCode)
		out.HighWatermark, out.LastStable, out.LogStart, out.Records = -1, -1, -1, nil
	}
	if rp.DivergingEpoch.EndOffset >= 0 || rp.DivergingEpoch.Epoch >= 0 {
		out.Diverging = &mirror.EpochEnd{Epoch: rp.DivergingEpoch.Epoch, End: rp.DivergingEpoch.EndOffset}
	}
	if hint := rp.CurrentLeader; hint.LeaderID >= 0 || hint.LeaderEpoch >= 0 {
		out.CurrentLeader = &mirror.SourcePartition{Partition: rp.Partition, Leader: hint.LeaderID, LeaderEpoch: hint.LeaderEpoch}
		for i := range endpoints {
			if b := &endpoints[i]; b.NodeID == hint.LeaderID {
				out.LeaderEndpoint = &mirror.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port}
			}
		}
	}
	return out
}

// fetchRequest is a Fetch request with a version of our choice.
type fetchRequest struct {
	*kmsg.FetchRequest
	most int16
}

// MaxVersion is the highest version that may be sent.
func (r *fetchRequest) MaxVersion() int16 { return r.most }
