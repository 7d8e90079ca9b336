package kraft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// stored is what brokers hold of a partition: batches of one record each, by broker.
type stored struct {
	mu    sync.Mutex
	held  map[int32][]byte
	fails map[int32]error // of reads, not of where a copy ends
	away  map[int32]bool
}

func (s *stored) Broker(_ context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away[id] {
		return nil, fmt.Errorf("broker %d does not answer", id)
	}
	var end int64
	for h := range batch.All(s.held[id]) {
		end = h.NextOffset()
	}
	switch req := req.(type) {
	case *kmsg.ListOffsetsRequest:
		resp := kmsg.NewPtrListOffsetsResponse()
		at, ap := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		at.Topic = req.Topics[0].Topic
		if req.Topics[0].Partitions[0].Timestamp == -1 {
			ap.Offset = end
		} else {
			ap.Offset = 0
		}
		at.Partitions = append(at.Partitions, ap)
		resp.Topics = append(resp.Topics, at)
		return resp, nil
	case *kmsg.FetchRequest:
		resp := kmsg.NewPtrFetchResponse()
		at, ap := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		at.Topic, at.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		from := req.Topics[0].Partitions[0].FetchOffset
		if from < end && s.fails[id] != nil {
			return nil, s.fails[id]
		}
		ap.LastStableOffset = end
		for h, whole := range batch.All(s.held[id]) {
			if h.LastOffset() >= from {
				ap.RecordBatches = append(ap.RecordBatches, whole...)
			}
		}
		at.Partitions = append(at.Partitions, ap)
		resp.Topics = append(resp.Topics, at)
		return resp, nil
	}
	return nil, errors.New("not asked of a copy")
}

// upTo are batches below end.
func upTo(end int64) []byte {
	var all []byte
	for at := range end {
		all = append(all, oneBatch(at)...)
	}
	return all
}

func (s *stored) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// register registers a broker anew, or takes it away with epoch -1.
func (f *fake) register(id int32, epoch int64, fenced bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch < 0 {
		f.record(1, 0, append(kbin.AppendInt64(kbin.AppendInt32(nil, id), 7), 0))
		return
	}
	b := append(kbin.AppendInt8(kbin.AppendInt32(nil, id), 0), make([]byte, 16)...)
	b = kbin.AppendCompactArrayLen(kbin.AppendInt64(b, epoch), 0)
	b = append(kbin.AppendCompactArrayLen(b, 0), 0)
	f.record(0, 4, append(kbin.AppendBool(kbin.AppendBool(b, fenced), false), 0))
}

// heard are the events of a process.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) notice(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, e.Text)
}

func (h *heard) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, func(s string) bool { return strings.Contains(s, text) })
}

// copied is a partition that this process leads alone, whose copies hold these many records; its content is not known yet.
func copied(t *testing.T, ends map[int32]int64) (*fake, *stored, *heard, func() *Log) {
	t.Helper()
	f := newFake(t)
	one, no := "1", "false"
	f.setting("orders", minInSync, &one)
	f.setting("orders", uncleanElection, &no)
	f.topic("orders", []int32{us, 1, 2, 3})
	f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{us} })
	s := &stored{held: map[int32][]byte{}, fails: map[int32]error{}, away: map[int32]bool{}}
	for id, end := range ends {
		s.held[id] = upTo(end)
	}
	h, kept := &heard{}, keyedlog.NewMemory()
	return f, s, h, func() *Log { // a new process each time
		d := f.process(func(c *Config) { c.Remember, c.Notice = kept, h.notice })
		d.reader = replicareader.New(s)
		return d.log(orders)
	}
}

func (l *Log) learn(ctx context.Context) error {
	if err := l.work.take(ctx); err != nil {
		return err
	}
	defer l.work.release()
	return l.regain(ctx)
}

func unconfirmed(t *testing.T, l *Log) map[int32]int64 {
	t.Helper()
	l.d.remembered.lookAnew()
	m, err := l.d.remembered.of(t.Context(), "orders", l.id)
	if err != nil {
		t.Fatal(err)
	}
	return m.Unconfirmed[0]
}

// TestACopyThatCannotBeComparedIsNotCounted: where it ends is known, what it holds cannot be read. It may be the only one with a record that counted.
func TestACopyThatCannotBeComparedIsNotCounted(t *testing.T) {
	f, s, _, process := copied(t, map[int32]int64{1: 10, 2: 11, 3: 11})
	f.register(3, -1, false)
	s.fails[2] = errors.New("a slow disk")
	l := process()
	if err := l.learn(within(t, time.Second)); err == nil || !strings.Contains(err.Error(), "a slow disk") {
		t.Fatalf("its log is [%d, %d): %v", l.log.Start(), l.log.End(), err)
	}
	if !l.log.Held() {
		t.Fatal("followers are answered")
	}
	go func() {
		_ = pause(t.Context(), 300)
		s.set(func() { clear(s.fails) })
	}()
	if err := l.learn(within(t, 10*time.Second)); err != nil || l.log.End() != 11 {
		t.Errorf("up to %d, %v", l.log.End(), err)
	}
}

// TestARecoverysCutIsRemembered: a copy that was not asked comes back after the next crash, and holds more than the log that went on without it.
func TestARecoverysCutIsRemembered(t *testing.T) {
	f, s, h, process := copied(t, map[int32]int64{1: 10, 2: 10, 3: 11})
	f.register(3, -1, false)
	s.away[3] = true
	l := process()
	if err := l.learn(within(t, 10*time.Second)); err != nil || l.log.End() != 10 {
		t.Fatal(l.log.End(), err)
	}
	if !h.has("brokers [3] could not be asked") {
		t.Errorf("nothing was said of the missing copy: %q", h.all)
	}
	if got := unconfirmed(t, l); !maps.Equal(got, map[int32]int64{3: 10}) {
		t.Fatalf("remembered: %v", got)
	}
	// The process dies before the copies have what it appended, and broker 3 comes back.
	s.set(func() { s.away[3] = false })
	f.register(3, 9, false)
	l = process()
	if err := l.learn(within(t, 10*time.Second)); err != nil || l.log.End() != 10 {
		t.Errorf("up to %d, %v: what was given up is the log again", l.log.End(), err)
	}
}

// TestCopiesThatAgreeAreNotRemembered: the usual restart writes nothing.
func TestCopiesThatAgreeAreNotRemembered(t *testing.T) {
	_, _, h, process := copied(t, map[int32]int64{1: 10, 2: 9, 3: 10})
	l := process()
	if err := l.learn(within(t, 10*time.Second)); err != nil || l.log.End() != 10 || unconfirmed(t, l) != nil || h.has("could not be asked") {
		t.Errorf("up to %d, %v, %v, %q", l.log.End(), err, unconfirmed(t, l), h.all)
	}
}

// TestARegisteredBrokerIsWaitedForALittle: after a power loss they come back one by one.
func TestARegisteredBrokerIsWaitedForALittle(t *testing.T) {
	_, s, h, process := copied(t, map[int32]int64{1: 10, 2: 10, 3: 11})
	s.away[3] = true
	l := process()
	go func() {
		_ = pause(t.Context(), 300)
		s.set(func() { s.away[3] = false })
	}()
	if err := l.learn(within(t, 10*time.Second)); err != nil || l.log.End() != 11 || h.has("could not be asked") {
		t.Errorf("up to %d, %v, %q", l.log.End(), err, h.all)
	}
}

// TestAnAliveBrokerIsWaitedFor: while the others were dead one copy was enough for a record to count as replicated, so others that could be asked are not enough while that broker lives.
func TestAnAliveBrokerIsWaitedFor(t *testing.T) {
	f, s, _, process := copied(t, map[int32]int64{1: 10, 2: 10, 3: 11})
	s.away[3] = true
	l := process()
	copies := []replicareader.Copy{{Broker: 1}, {Broker: 2}, {Broker: 3, Err: errors.New("connection refused")}}
	for _, c := range []struct {
		state  string
		waited time.Duration
		is     bool
	}{{"alive", copyPatience + time.Second, false}, {"alive", copyWait + time.Second, true}, {"fenced", 0, false}, {"fenced", copyPatience + time.Second, true}, {"gone", 0, true}} {
		switch c.state {
		case "fenced":
			f.register(3, 8, true)
		case "gone":
			f.register(3, -1, false)
		}
		if err := l.d.meta.caughtUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.suffice(copies, nil, time.Now().Add(-c.waited)) != c.is {
			t.Errorf("%s, after %s: %v", c.state, c.waited, !c.is)
		}
	}
}

// TestWaitingForCopiesIsCountedOverCalls: calls end long before copyWait.
func TestWaitingForCopiesIsCountedOverCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log{}
		began := l.missingSince(true)
		for range 5 {
			time.Sleep(10 * time.Second)
			if got := l.missingSince(true); got != began {
				t.Errorf("it began anew at %v, was %v", got, began)
			}
		}
		l.missingSince(false) // nobody answers: a copy that comes first is not to be the only one
		time.Sleep(time.Second)
		if got := l.missingSince(true); time.Since(got) > time.Second {
			t.Errorf("%v", got)
		}
		time.Sleep(time.Hour) // nobody looked
		if got := l.missingSince(true); time.Since(got) > 0 {
			t.Errorf("%v", got)
		}
	})
}

// TestAfterATakeOverOneCopyThatWasInSyncSuffices: so a half-taken partition can be taken, and given back, while the others are dead.
func TestAfterATakeOverOneCopyThatWasInSyncSuffices(t *testing.T) {
	for _, inSync := range []bool{true, false} {
		f, s, _, process := copied(t, map[int32]int64{1: 10, 2: 10, 3: 8})
		f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{us, 1, 2} })
		for _, id := range []int32{1, 2, 3} {
			if alive := map[bool]int32{true: 2, false: 3}[inSync]; id != alive {
				f.register(id, -1, false)
				s.away[id] = true
			}
		}
		l := process()
		err := l.learn(within(t, 2*time.Second))
		if inSync && (err != nil || l.log.End() != 10) {
			t.Errorf("up to %d, %v", l.log.End(), err)
		}
		if !inSync && err == nil {
			t.Errorf("the copy that was not in sync became the log, up to %d", l.log.End())
		}
		if p, err := l.d.partition(orders); err != nil || !slices.Equal(p.ISR, []int32{us}) {
			t.Errorf("%+v, %v", p, err)
		}
		if got := unconfirmed(t, l); inSync && !maps.Equal(got, map[int32]int64{1: 10, 3: 10}) {
			t.Errorf("remembered: %v", got)
		}
	}
}

// TestAHalfTakenPartitionIsGivenBack: a take-over ended after the election, and of the brokers that were in sync one is left.
func TestAHalfTakenPartitionIsGivenBack(t *testing.T) {
	f, s, _, process := copied(t, map[int32]int64{1: 10, 2: 10, 3: 8})
	f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{us, 1, 2} })
	for _, id := range []int32{1, 3} {
		f.register(id, -1, false)
		s.away[id] = true
	}
	l := process()
	ctx := within(t, 20*time.Second)
	follows := make(chan struct{})
	go func() { // as a follower does once it is answered
		defer close(follows)
		for pause(ctx, 10) == nil {
			if a := fetches(l, 2, 7, 10); a.Code == 0 && !a.Diverging {
				return
			}
		}
	}()
	if err := l.Open(ctx); err != nil {
		t.Fatal(err)
	}
	<-follows
	if p := f.of("orders"); p.Leader != 2 || slices.Contains(p.ISR, us) {
		t.Errorf("%+v", p)
	}
}

// TestATakeOverWithoutEnoughCopiesIsRefusedWhileTheTopicIsOpen, and says who is missing.
func TestATakeOverWithoutEnoughCopiesIsRefusedWhileTheTopicIsOpen(t *testing.T) {
	f := newFake(t)
	f.topic("orders", []int32{1, 2, 3})
	f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{1} })
	d := f.process()
	s := &stored{held: map[int32][]byte{}, fails: map[int32]error{}, away: map[int32]bool{1: true, 2: true}}
	d.reader = replicareader.New(s)
	before := f.of("orders")
	err := d.log(orders).CloseForWrites(within(t, 5*time.Second))
	if err == nil || !strings.Contains(err.Error(), "only 1 of 3 copies") || !strings.Contains(err.Error(), "broker 1 does not answer") {
		t.Error(err)
	}
	if p := f.of("orders"); p.PartitionEpoch != before.PartitionEpoch || f.count(kmsg.IncrementalAlterConfigs) > 0 {
		t.Errorf("something was changed: %+v", p)
	}
}

// fetches has a follower fetch at offset under a broker epoch.
func fetches(l *Log, id int32, epoch, offset int64) replicaserver.FetchAnswer {
	q := replicaserver.FetchQuery{Broker: id, BrokerEpoch: epoch, LeaderEpoch: l.log.LeaderEpoch(), Offset: offset, LastFetchedEpoch: 0, MaxBytes: 1 << 20}
	if offset == 0 {
		q.LastFetchedEpoch = -1
	}
	return l.log.Fetch(q)
}

// TestABrokerThatHasRestartedIsNotNamedInSync: it may have lost what it had, until it has fetched again; then its new epoch is named, so that the controllers refuse it if it restarts once more.
func TestABrokerThatHasRestartedIsNotNamedInSync(t *testing.T) {
	f, _, _, process := copied(t, map[int32]int64{1: 3, 2: 3, 3: 3})
	l := process()
	if err := l.learn(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	d, stock := l.d, []int32{1, 2, 3}
	for _, id := range stock {
		fetches(l, id, 7, 3)
	}
	if ready, others := l.caughtUp(stock); len(ready) != 3 {
		t.Fatal(ready, others)
	}
	f.register(1, 9, false)
	if err := d.meta.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.log.AwaitFollowers(within(t, 5*time.Second), func(_ int64, fs []leaderlog.Follower) bool { return fs[0].Position < 0 }); err != nil {
		t.Fatal(err)
	}
	if ready, others := l.caughtUp(stock); !slices.Equal(ready, []int32{2, 3}) {
		t.Errorf("%v; %s", ready, others)
	}
	named := map[int32]int64{}
	f.before = func(_ context.Context, req kmsg.Request) error {
		if alter, ok := req.(*kmsg.AlterPartitionRequest); ok {
			for _, m := range alter.Topics[0].Partitions[0].NewEpochISR {
				named[m.BrokerID] = m.BrokerEpoch
			}
		}
		return nil
	}
	never := func(clustermetadata.Partition) bool { return false }
	if err := d.setISR(within(t, 5*time.Second), orders, []int32{us, 1, 2}, never); !errors.Is(err, kerr.IneligibleReplica) || len(named) > 0 {
		t.Errorf("%v, named %v", err, named)
	}
	fetches(l, 1, 9, 3)
	_ = d.setISR(within(t, 5*time.Second), orders, []int32{us, 1, 2}, never)
	if !maps.Equal(named, map[int32]int64{us: 7, 1: 9, 2: 7}) {
		t.Errorf("named in sync: %v", named)
	}
}

// TestACutInsideABatchIsRememberedWhereItGoes: lower than was asked for, and what lies between is cut too.
func TestACutInsideABatchIsRememberedWhereItGoes(t *testing.T) {
	_, _, _, process := copied(t, map[int32]int64{1: 3, 2: 3, 3: 3})
	l := process()
	if err := l.learn(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	ten := make([]batch.Record, 10)
	for i := range ten {
		ten[i].OffsetDelta = int32(i)
	}
	b := batch.AppendData(nil, batch.DataSpec{BaseOffset: 3, LeaderEpoch: 0, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Records: ten})
	if err := l.log.Append(t.Context(), l.log.LeaderEpoch(), bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
	end, err := l.TruncateTo(t.Context(), 8)
	if got := unconfirmed(t, l); err != nil || end != 3 || !maps.Equal(got, map[int32]int64{1: 3, 2: 3, 3: 3}) {
		t.Errorf("end %d, remembered %v, %v", end, got, err)
	}
}

// blocked is a Log whose next updates wait.
type blocked struct {
	keyedlog.Log
	wait chan struct{}
}

func (b *blocked) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	select {
	case <-b.wait:
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.Log.Update(ctx, decide)
}

// TestANewerCutIsNotForgottenForOneThatWasFollowed: while a cut is being remembered, followers still stand as they did after the one before.
func TestANewerCutIsNotForgottenForOneThatWasFollowed(t *testing.T) {
	_, _, _, process := copied(t, map[int32]int64{1: 5, 2: 5, 3: 5})
	l := process()
	if err := l.learn(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TruncateTo(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	fetches(l, 1, 7, 4) // it has followed that, and nobody has looked yet
	b := &blocked{l.d.remembered.log, make(chan struct{})}
	l.d.remembered.log = b
	first := make(chan error)
	go func() { first <- l.d.remembered.change(t.Context(), "another", l.id, func(*memory) {}) }()
	queued := func(n int) {
		for ctx := within(t, 5*time.Second); ctx.Err() == nil && pause(ctx, 1) == nil; {
			g := &l.d.remembered.changes
			g.mu.Lock()
			is := len(g.queue) >= n && g.sent > 0
			g.mu.Unlock()
			if is {
				return
			}
		}
	}
	queued(0)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := l.TruncateTo(within(t, 20*time.Second), 2); err != nil {
			t.Error(err)
		}
	})
	queued(1)
	looked := make(chan struct{})
	all.Go(func() {
		l.confirmTruncation(within(t, 20*time.Second))
		close(looked)
	})
	select { // time for a look that does not wait for the cut
	case <-looked:
	case <-within(t, 200*time.Millisecond).Done():
	}
	close(b.wait)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if got := unconfirmed(t, l); !maps.Equal(got, map[int32]int64{1: 2, 2: 2, 3: 2}) {
		t.Errorf("remembered: %v", got)
	}
}
