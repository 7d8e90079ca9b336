package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
)

// load is the clients of the source, and all that they were told.
type load struct {
	began   time.Time
	seeds   []string
	seed    uint64
	running sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context

	partitions map[string]*atomic.Int32 // of topics that clients write

	mu      sync.Mutex
	history clienthistory.History
	writers uint32

	acked, bytes, transactions, aborted, left, polls atomic.Int64
	orphansStay                                      atomic.Bool // a killed client's transaction is not ended by the brokers any more
}

func newLoad(seed uint64, seeds []string, topics map[string]int) *load {
	l := &load{began: time.Now(), seeds: seeds, seed: seed, partitions: map[string]*atomic.Int32{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	for topic, n := range topics {
		l.partitions[topic] = &atomic.Int32{}
		l.partitions[topic].Store(int32(n))
	}
	return l
}

func (l *load) now() clienthistory.Moment { return clienthistory.Moment(time.Since(l.began)) }

func (l *load) note(add func(h *clienthistory.History)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.history)
}

// writer is one client that writes, over all its lives.
type writer struct {
	*load
	id   uint32
	n    uint32 // records so far
	txns uint32
	rng  *rand.Rand
}

func (l *load) writer() *writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writers++
	return &writer{load: l, id: l.writers, rng: rand.New(rand.NewPCG(l.seed, uint64(l.writers)))}
}

// source names the cluster in the history.
const source, copied = "source", "copy"

// record makes the next record, of some size. Its value begins with its number.
func (w *writer) record(topic string) *kgo.Record {
	w.n++
	value := fmt.Sprintf("%d.%d|", w.id, w.n)
	value += strings.Repeat(string(rune('a'+w.rng.IntN(26))), 20+w.rng.IntN(600))
	return &kgo.Record{Topic: topic, Partition: w.rng.Int32N(w.partitions[topic].Load()), Value: []byte(value)}
}

// numberOf reads a record's number back.
func numberOf(value []byte) clienthistory.Record {
	var writer, n uint32
	if _, err := fmt.Sscanf(string(value[:min(30, len(value))]), "%d.%d|", &writer, &n); err != nil {
		return 0
	}
	return clienthistory.NewRecord(writer, n)
}

// send produces records at once, waits for all answers and notes them. It says whether all were acknowledged.
func (w *writer) send(ctx context.Context, cl *kgo.Client, txn clienthistory.Transaction, records ...*kgo.Record) error {
	started := w.now()
	results := make(chan clienthistory.Produce, len(records))
	errs := make(chan error, len(records))
	for _, r := range records {
		number := numberOf(r.Value)
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			p := clienthistory.Produce{Span: clienthistory.Span{Start: started, End: w.now()}, Cluster: source, Partition: clienthistory.Partition{Topic: r.Topic, Partition: r.Partition},
				Record: number, Transaction: txn, Outcome: clienthistory.Unknown}
			if err == nil {
				p.Outcome, p.Offset = clienthistory.OK, r.Offset
				w.acked.Add(1)
				w.bytes.Add(int64(len(r.Value)))
			}
			results <- p
			errs <- err
		})
	}
	var all []clienthistory.Produce
	var failed error
	for range records {
		all = append(all, <-results)
		if err := <-errs; err != nil {
			failed = err
		}
	}
	w.note(func(h *clienthistory.History) { h.Produces = append(h.Produces, all...) })
	return failed
}

func (l *load) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(l.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second),
		kgo.RequestTimeoutOverhead(3 * time.Second), kgo.ProducerLinger(2 * time.Millisecond), kgo.RecordDeliveryTimeout(20 * time.Second), kgo.DialTimeout(2 * time.Second)}, more...)
}

// pause waits between two steps of a client; false: the load ends.
func (l *load) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// produce writes batches to topics until ctx ends. Each batch goes to one partition.
func (l *load) produce(ctx context.Context, every time.Duration, topics []string, opts ...kgo.Opt) {
	w := l.writer()
	l.running.Go(func() {
		var cl *kgo.Client
		defer func() {
			if cl != nil {
				cl.Close()
			}
		}()
		for l.pause(ctx, every) {
			if cl == nil {
				var err error
				if cl, err = kgo.NewClient(l.options(opts...)...); err != nil {
					panic(err) // the options are constants
				}
				context.AfterFunc(ctx, cl.Close) // what is under way to brokers that are dead would be waited for without end
			}
			topic := topics[w.rng.IntN(len(topics))]
			first := w.record(topic)
			records := []*kgo.Record{first}
			for range w.rng.IntN(4) {
				r := w.record(topic)
				r.Partition = first.Partition
				records = append(records, r)
			}
			if err := w.send(ctx, cl, 0, records...); err != nil && w.rng.IntN(3) == 0 {
				cl.Close() // some applications begin anew after an error
				cl = nil
			}
		}
	})
}

// transact writes transactions over several partitions of topics until ctx ends: most are committed, some aborted, some left open by a client that is gone.
func (l *load) transact(ctx context.Context, name string, every time.Duration, topics []string, old bool) {
	w := l.writer()
	l.running.Go(func() {
		var cl *kgo.Client
		lives := 0
		for l.pause(ctx, every) {
			if cl == nil {
				lives++
				timeout := 6 * time.Second
				if l.orphansStay.Load() {
					timeout = 10 * time.Minute
				}
				opts := []kgo.Opt{kgo.TransactionalID(fmt.Sprintf("%s-%d", name, lives)), kgo.TransactionTimeout(timeout)}
				if old {
					opts = append(opts, kgo.MaxVersions(kversion.V3_7_0())) // transactions as they were before KIP-890
				}
				var err error
				if cl, err = kgo.NewClient(l.options(opts...)...); err != nil {
					panic(err)
				}
				context.AfterFunc(ctx, cl.Close)
			}
			if !w.transaction(ctx, cl, topics) {
				cl.Close()
				cl = nil
			}
		}
		if cl != nil {
			cl.Close()
		}
	})
}

// transaction runs one transaction; false: this client is not used any more.
func (w *writer) transaction(ctx context.Context, cl *kgo.Client, topics []string) bool {
	if err := cl.BeginTransaction(); err != nil {
		return false
	}
	w.txns++
	txn := clienthistory.NewTransaction(w.id, w.txns)
	var failed error
	for range 1 + w.rng.IntN(2) {
		var records []*kgo.Record
		for range 1 + w.rng.IntN(5) {
			records = append(records, w.record(topics[w.rng.IntN(len(topics))]))
		}
		if failed = w.send(ctx, cl, txn, records...); failed != nil {
			break
		}
	}
	fate := w.rng.IntN(20)
	if w.orphansStay.Load() && fate > 12 || failed == nil && fate == 0 {
		w.left.Add(1)
		return false // killed: nobody ends it
	}
	commit := failed == nil && fate > 3
	started := w.now()
	ending, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	how := kgo.TryCommit
	if !commit {
		how = kgo.TryAbort
	}
	err := cl.EndTransaction(ending, how)
	end := clienthistory.End{Span: clienthistory.Span{Start: started, End: w.now()}, Transaction: txn, Commit: commit}
	if err == nil {
		end.Outcome = clienthistory.OK
		w.transactions.Add(1)
		if !commit {
			w.aborted.Add(1)
		}
	}
	w.note(func(h *clienthistory.History) { h.Ends = append(h.Ends, end) })
	return err == nil && failed == nil
}

// consume is a member of a group that reads what is committed, and commits what it was given.
func (l *load) consume(ctx context.Context, group, name string, topics ...string) {
	l.running.Go(func() {
		cl, err := kgo.NewClient(kgo.SeedBrokers(l.seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit(),
			kgo.BlockRebalanceOnPoll(), kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second),
			kgo.FetchMaxWait(300*time.Millisecond), kgo.RequestTimeoutOverhead(3*time.Second), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(5*time.Second), kgo.DialTimeout(2*time.Second), kgo.RetryTimeout(5*time.Second),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
				at := l.now()
				l.note(func(h *clienthistory.History) {
					for topic, ps := range assigned {
						for _, p := range ps {
							h.Seeks = append(h.Seeks, clienthistory.Seek{Span: clienthistory.Span{Start: at, End: at}, Consumer: name, Cluster: source,
								Partition: clienthistory.Partition{Topic: topic, Partition: p}, Group: group, Offset: -1})
						}
					}
				})
			}))
		if err != nil {
			panic(err)
		}
		defer cl.CloseAllowingRebalance()
		for ctx.Err() == nil {
			started := l.now()
			fetches := cl.PollRecords(ctx, 300)
			span := clienthistory.Span{Start: started, End: l.now()}
			var polls []clienthistory.Poll
			var commits []clienthistory.Commit
			var last []*kgo.Record
			fetches.EachPartition(func(p kgo.FetchTopicPartition) {
				if len(p.Records) == 0 {
					return
				}
				at := clienthistory.Partition{Topic: p.Topic, Partition: p.Partition}
				poll := clienthistory.Poll{Span: span, Consumer: name, Cluster: source, Partition: at, Committed: true}
				for _, r := range p.Records {
					poll.Records = append(poll.Records, clienthistory.Seen{Offset: r.Offset, Record: numberOf(r.Value)})
				}
				polls = append(polls, poll)
				newest := p.Records[len(p.Records)-1]
				last = append(last, newest)
				commits = append(commits, clienthistory.Commit{Group: group, Cluster: source, Partition: at, Offset: newest.Offset + 1})
			})
			if len(polls) > 0 {
				l.polls.Add(int64(len(polls)))
				l.note(func(h *clienthistory.History) { h.Polls = append(h.Polls, polls...) })
				committing, stop := context.WithTimeout(ctx, 5*time.Second)
				started := l.now()
				err := cl.CommitRecords(committing, last...)
				stop()
				for i := range commits {
					commits[i].Span = clienthistory.Span{Start: started, End: l.now()}
					if err == nil {
						commits[i].Outcome = clienthistory.OK
					}
				}
				l.note(func(h *clienthistory.History) { h.Commits = append(h.Commits, commits...) })
			}
			cl.AllowRebalance()
		}
	})
}
