package memlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// fetcher is one connection to one broker with its fetch session. Fetch, Want and Forget come from one goroutine.
type fetcher struct {
	c       *Cluster
	broker  int32
	options mirror.FetchOptions
	wake    chan struct{} // told of changes in watched logs and of the cluster
	done    chan struct{} // closed by Close
	once    sync.Once

	until time.Time     // the end of a pause that the cluster asked for
	pause time.Duration // that it asked for in the last Fetch
	limit int32         // LimitReply's, 0 for none

	session map[mirror.TopicPartition]*wanted
	order   []*wanted // the session in the order in which the next request serves it
}

type wanted struct {
	at            mirror.FetchPosition
	log           *partitionLog // watched
	fresh         bool          // not answered yet
	highWatermark int64         // last answered
	logStart      int64
	served        int // 1: it got records in the last reply
}

// OpenFetcher connects to a live broker.
func (c *Cluster) OpenFetcher(ctx context.Context, broker int32, options mirror.FetchOptions) (mirror.Fetcher, error) {
	options.MaxWait = cmp.Or(options.MaxWait, 500*time.Millisecond)
	options.MinBytes = cmp.Or(options.MinBytes, 1)
	options.MaxBytes = cmp.Or(options.MaxBytes, 10<<20)
	options.PartitionMaxBytes = cmp.Or(options.PartitionMaxBytes, 1<<20)
	f := &fetcher{c: c, broker: broker, options: options, wake: make(chan struct{}, 1), done: make(chan struct{}), session: map[mirror.TopicPartition]*wanted{}}
	err := c.call(ctx, Call{Operation: "Source.OpenFetcher", Broker: broker}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.reach(broker); err != nil {
			return sourceError(mirror.SourceUnreachable, "connect", mirror.TopicPartition{}, err)
		}
		c.fetchers[f] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// reach says why a broker cannot be reached. Under mu.
func (c *Cluster) reach(broker int32) error {
	switch {
	case c.closed:
		return ErrClosed
	case c.unreachable:
		return ErrUnreachable
	case broker < 1 || int(broker) > c.cfg.Brokers:
		return fmt.Errorf("memlog: there is no broker %d", broker)
	case c.stopped[broker]:
		return fmt.Errorf("memlog: broker %d is stopped", broker)
	}
	return nil
}

func (c *Cluster) wakeFetchers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.fetchers {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// Want adds or moves a partition.
func (f *fetcher) Want(position mirror.FetchPosition) {
	w := f.session[position.TopicPartition]
	if w == nil {
		w = &wanted{fresh: true}
		f.session[position.TopicPartition] = w
		f.order = append(f.order, w)
	}
	w.at = position
}

// Forget removes a partition.
func (f *fetcher) Forget(tp mirror.TopicPartition) {
	w := f.session[tp]
	if w == nil {
		return
	}
	w.watch(f, nil)
	delete(f.session, tp)
	f.order = slices.DeleteFunc(f.order, func(o *wanted) bool { return o == w })
}

// watch follows another log; nil: none.
func (w *wanted) watch(f *fetcher, l *partitionLog) {
	if w.log == l {
		return
	}
	if old := w.log; old != nil {
		old.mu.Lock()
		delete(old.watchers, f.wake)
		old.mu.Unlock()
	}
	w.log = l
	if l != nil {
		l.mu.Lock()
		l.watch(f.wake)
		l.mu.Unlock()
	}
}

// Fetch waits until there are MinBytes of records, an error, a diverging epoch, a changed high watermark or log start, or MaxWait is over.
func (f *fetcher) Fetch(ctx context.Context) (reply []mirror.FetchedPartition, err error) {
	err = f.c.call(ctx, Call{Operation: "Fetcher.Fetch", Broker: f.broker}, func() error {
		if err := f.throttle(ctx); err != nil {
			return err
		}
		timer := time.NewTimer(f.options.MaxWait)
		defer timer.Stop()
		for late := false; ; {
			f.c.mu.Lock()
			err := f.c.reach(f.broker)
			f.c.mu.Unlock()
			if err != nil {
				return sourceError(mirror.SourceUnreachable, "fetch", mirror.TopicPartition{}, err)
			}
			var ready bool
			if reply, ready = f.collect(late); ready {
				f.c.quota.charge(reply)
				return nil
			}
			select {
			case <-f.wake:
			case <-timer.C:
				late = true
			case <-ctx.Done():
				return ctx.Err()
			case <-f.done:
				return sourceError(mirror.SourceUnreachable, "fetch", mirror.TopicPartition{}, errors.New("the fetcher is closed"))
			case <-f.c.done:
				return ErrClosed
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if h := f.c.hooks.Load(); h != nil && h.Reply != nil {
		reply = h.Reply(f.broker, reply)
	}
	return reply, nil
}

// collect answers the session as far as there is something to say. ready: send it now; late: send it in any case.
func (f *fetcher) collect(late bool) (reply []mirror.FetchedPartition, ready bool) {
	total, left := 0, int(f.options.MaxBytes)
	if f.limit > 0 {
		left = min(left, int(f.limit))
	}
	var told []*wanted
	for _, w := range f.order {
		l, err := f.c.log(w.at.TopicPartition)
		w.watch(f, l)
		p := mirror.FetchedPartition{
			TopicPartition: w.at.TopicPartition, Offset: w.at.Offset, LeaderEpoch: w.at.LeaderEpoch, HighWatermark: -1, LastStable: -1, LogStart: -1,
		}
		if err != nil {
			p.Err = sourceError(mirror.SourceUnknownTopic, "fetch", p.TopicPartition, err)
		} else {
			f.answer(w, l, &p, left, total == 0)
		}
		w.served = min(len(p.Records), 1)
		total += len(p.Records)
		left -= len(p.Records)
		changed := !w.fresh && (p.HighWatermark != w.highWatermark || p.LogStart != w.logStart)
		if p.Err != nil || p.Diverging != nil || changed {
			ready = true
		}
		if len(p.Records) > 0 || p.Err != nil || p.Diverging != nil || changed || w.fresh {
			reply = append(reply, p)
			told = append(told, w)
		}
	}
	if !late && !ready && total < int(f.options.MinBytes) {
		return nil, false
	}
	for i, w := range told {
		w.fresh, w.highWatermark, w.logStart = false, reply[i].HighWatermark, reply[i].LogStart
	}
	// Who got records goes to the back, so that the next reply's bytes are for others first.
	slices.SortStableFunc(f.order, func(a, b *wanted) int { return cmp.Compare(a.served, b.served) })
	return reply, true
}

// answer fills in what the broker says of one partition; first: nobody had records in this reply yet, so one whole batch goes out whatever its size.
func (f *fetcher) answer(w *wanted, l *partitionLog, p *mirror.FetchedPartition, left int, first bool) {
	const operation = "fetch"
	l.mu.Lock()
	defer l.mu.Unlock()
	hint := func() {
		p.CurrentLeader = &mirror.SourcePartition{Partition: l.tp.Partition, Leader: l.leader, LeaderEpoch: l.leaderEpoch}
		if l.leader > 0 {
			a := address(l.leader)
			p.LeaderEndpoint = &a
		}
	}
	if w.at.TopicID != (mirror.TopicID{}) && w.at.TopicID != l.topic {
		p.Err = sourceError(mirror.SourceTopicIDChanged, operation, l.tp, fmt.Errorf("topic id %s was asked for, the topic's is %s", w.at.TopicID, l.topic))
		return
	}
	if l.leader != f.broker {
		p.Err = sourceError(mirror.SourceNotLeader, operation, l.tp, fmt.Errorf("broker %d does not lead the partition", f.broker))
		hint()
		return
	}
	if err := l.checkEpoch(operation, w.at.LeaderEpoch); err != nil {
		p.Err = err
		hint()
		return
	}
	outside := func() {
		p.Err = sourceError(mirror.SourceOffsetRange, operation, l.tp, fmt.Errorf("offset %d (last epoch %d), the log is [%d, %d]", w.at.Offset, w.at.LastEpoch, l.start, l.end))
	}
	// The order is Kafka's: a diverging epoch is told also for an offset beyond the end.
	if w.at.LastEpoch >= 0 {
		epoch, end := l.epochs.EndOffsetFor(w.at.LastEpoch, l.end)
		if epoch < 0 || end < 0 || w.at.Offset < l.start {
			outside()
			return
		}
		if epoch < w.at.LastEpoch || end < w.at.Offset {
			p.HighWatermark, p.LastStable, p.LogStart = l.highWatermark, l.lastStable(), l.start
			p.Diverging = &mirror.EpochEnd{Epoch: epoch, End: end}
			return
		}
	}
	if w.at.Offset < l.start || w.at.Offset > l.end {
		outside()
		return
	}
	p.HighWatermark, p.LastStable, p.LogStart = l.highWatermark, l.lastStable(), l.start
	limit := int(f.options.PartitionMaxBytes)
	if w.at.MaxBytes > 0 {
		limit = int(w.at.MaxBytes)
	}
	limit = min(limit, left)
	if l.remote.slow(w.at.Offset) {
		return
	}
	b := l.read(w.at.Offset, l.highWatermark, limit, first)
	p.Records = slices.Clone(b)
	if l.c.cfg.CutReplies && len(b) < limit {
		next := w.at.Offset
		for info := range mirror.Batches(b) {
			next = info.Next()
		}
		if i := l.find(next); i < len(l.batches) && l.batches[i].last < l.highWatermark {
			cut := l.batches[i].bytes()
			p.Records = append(p.Records, cut[:min(limit-len(b), len(cut))]...)
		}
	}
}

// lastStable is the last stable offset. Under mu.
func (l *partitionLog) lastStable() int64 {
	if l.c.cfg.Discard {
		return l.highWatermark
	}
	return min(l.producers.LastStable(l.highWatermark), l.highWatermark)
}

// Close ends the connection and a Fetch under way.
func (f *fetcher) Close() error {
	f.once.Do(func() {
		close(f.done)
		f.c.mu.Lock()
		delete(f.c.fetchers, f)
		f.c.mu.Unlock()
		for _, l := range f.c.logs() {
			l.mu.Lock()
			delete(l.watchers, f.wake)
			l.mu.Unlock()
		}
	})
	return nil
}
