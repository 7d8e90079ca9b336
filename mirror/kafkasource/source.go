package kafkasource

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkametadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// Source is a Kafka cluster read from. Safe for concurrent use.
type Source struct {
	cfg     Config
	client  *kgo.Client
	counter counter

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  sync.WaitGroup

	vetted atomic.Bool // a broker answered metadata in a version that does not create topics

	mirrors *mirrorRecords // of which the source is the destination

	epochQuestions epochQuestions

	metadataClient *kafkametadata.Client // groups, topic settings and access rules

	mu        sync.Mutex
	closed    bool
	clusterID string // that Cluster last told of, or the first seen; "" none yet
	brokers   map[int32]mirror.Broker
	leaders   map[mirror.TopicPartition]leader
	fetchers  map[*fetcher]struct{}
	limits    map[int32]int32 // reply limits of brokers whose replies came too late
}

type leader struct{ broker, epoch int32 }

var (
	_ mirror.Source            = (*Source)(nil)
	_ mirror.LocalStartReader  = (*Source)(nil)
	_ mirror.CertificateReader = (*Source)(nil)
	_ mirror.LogEndReader      = (*Source)(nil)
)

// New returns a Source. It connects to nothing: the first call does.
func New(cfg Config) (*Source, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg:      cfg,
		brokers:  make(map[int32]mirror.Broker),
		leaders:  make(map[mirror.TopicPartition]leader),
		fetchers: make(map[*fetcher]struct{}),
		limits:   make(map[int32]int32),
		mirrors:  newMirrorRecords(),
	}
	if s.client, err = kgo.NewClient(cfg.lookupOptions(&s.counter)...); err != nil {
		return nil, fmt.Errorf("kafkasource: options for the source's client: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.metadataClient = kafkametadata.New(sourceCluster{s}, cfg.Bound/3) // as one try of the look-up client
	return s, nil
}

// Close ends every call, fetcher and connection, and waits for the calls to return. It waits for no broker.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	open := make([]*fetcher, 0, len(s.fetchers))
	for f := range s.fetchers {
		open = append(open, f)
	}
	s.mu.Unlock()

	s.cancel()
	for _, f := range open {
		f.Close()
	}
	s.client.Close()
	s.calls.Wait()
	return nil
}

// begin bounds a call. end must be called.
func (s *Source) begin(ctx context.Context, operation string) (bounded context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, failure(operation, mirror.TopicPartition{}, ErrClosed, 0)
	}
	s.calls.Add(1)
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Bound)
	stop := context.AfterFunc(s.ctx, cancel)
	return bounded, func() {
		stop()
		cancel()
		s.calls.Done()
	}, nil
}

// failure names an error of a look-up.
func (s *Source) failure(operation string, tp mirror.TopicPartition, err error) *mirror.SourceError {
	if s.ctx.Err() != nil {
		err = ErrClosed
	}
	e := failure(operation, tp, err, s.cfg.Bound)
	if s.counter.lastFailed.Load() {
		return whileConnecting(e)
	}
	return e
}

// ask sends one request to one broker.
func (s *Source) ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	return ask(ctx, s.client.Broker(int(broker)), req)
}

// ask sends one request. A connection that had died unnoticed costs no more than a second try.
func ask(ctx context.Context, b *kgo.Broker, req kmsg.Request) (kmsg.Response, error) {
	resp, err := b.Request(ctx, req)
	if err != nil && ctx.Err() == nil && kgo.IsRetryableBrokerErr(err) && !isTimeout(err) {
		resp, err = b.Request(ctx, req)
	}
	return resp, err
}

// tryPause is how long a look-up waits before it goes to another broker.
const tryPause = 100 * time.Millisecond

// askAny sends a metadata request to one broker after the other until one answers: not more than there are addresses, and not more than most.
// Whoever refuses us is not asked again: the next one would refuse as well, and accounts are locked after a few tries.
func (s *Source) askAny(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	const most = 5
	s.mu.Lock()
	tries := min(max(len(s.cfg.Seeds)+len(s.brokers), 2), most)
	s.mu.Unlock()
	for {
		resp, err := req.RequestWith(ctx, s.client)
		tries--
		if err == nil || tries == 0 || ctx.Err() != nil {
			return resp, err
		}
		switch e := s.failure("", mirror.TopicPartition{}, err); {
		case e.Code != mirror.SourceUnreachable && e.Code != mirror.SourceTimeout, e.Advice == adviceCutOff, e.Advice == adviceFirstAnswer:
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < tryPause+minRequestTimeout {
			return nil, err // no time for an answer; the error at hand says more than the bound's
		}
		pause := time.NewTimer(tryPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}
