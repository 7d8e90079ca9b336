package chaos_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The topics, and what faults do to them.
const (
	plain    = "plain"    // nothing is ever lost; grows
	orders   = "orders"   // transactions; nothing is ever lost
	payments = "payments" // transactions that began in orders; DeleteRecords
	frail    = "frail"    // one in-sync replica is enough, and a fault allows unclean elections for a while
	short    = "short"    // keeps records for a few seconds
	reborn   = "reborn"   // is deleted and made again
)

// world is one run.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	folder  string
	program string
	c       *kafkatest.Cluster
	m       *process
	lives   int // of the mirror's process
	disks   int
	load    *load

	generation int // of reborn
	endReborn  func()

	heard     []told // what was read of the file of events
	heardSize int64

	effects  []effect
	deep     int // faults within faults
	deleted  map[clienthistory.Partition]int64
	permits  []permit
	found    []finding
	evidence evidence
}

// effect is what a fault has shown.
type effect struct {
	kind string
	what string
}

func newWorld(t *testing.T, seed uint64) *world {
	kafkatest.Require(t)
	folder, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 8)), folder: folder, deleted: map[clienthistory.Partition]int64{}}
	t.Cleanup(func() {
		if t.Failed() || *keep {
			t.Logf("everything is kept in %s", folder)
			return
		}
		os.RemoveAll(folder)
	})
	w.program = buildProcess(t, folder)
	w.c = kafkatest.Start(t, kafkatest.Options{Brokers: 3, Proxied: true, Folder: filepath.Join(folder, "source"), HeapMB: 384, Config: map[string]string{
		"broker.session.timeout.ms":                                   "3000",
		"broker.heartbeat.interval.ms":                                "700",
		"replica.lag.time.max.ms":                                     "3000",
		"replica.fetch.wait.max.ms":                                   "200",
		"log.retention.check.interval.ms":                             "500",
		"log.segment.delete.delay.ms":                                 "500",
		"log.initial.task.delay.ms":                                   "500",
		"offsets.topic.num.partitions":                                "4",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
	}})
	everywhere := func(n int, configs map[string]string) kafkatest.Topic {
		a := make([][]int32, n)
		for i := range a {
			a[i] = []int32{int32(i%3) + 1, int32((i+1)%3) + 1, int32((i+2)%3) + 1}
		}
		return kafkatest.Topic{Assignment: a, Configs: configs}
	}
	two := map[string]string{"min.insync.replicas": "2"}
	for name, topic := range map[string]kafkatest.Topic{
		plain: everywhere(3, two), orders: everywhere(3, two), payments: everywhere(2, two), reborn: everywhere(1, two),
		short: everywhere(1, map[string]string{"min.insync.replicas": "2", "retention.ms": "2500", "segment.ms": "1000"}),
		frail: {Assignment: [][]int32{{2, 3}}, Configs: map[string]string{"min.insync.replicas": "1"}},
	} {
		topic.Name = name
		w.c.CreateTopic(topic)
	}
	w.startMirror()
	w.m.do(order{Do: "start", Topics: []string{plain, orders, payments, frail, short, reborn}})
	w.startLoad(seed)
	eventually(t, "there is something in every partition of the copy", func() (bool, string) { // that a fault could harm
		for at := range w.mustOffsets(false) {
			if w.one(at.Topic, at.Partition).End == 0 {
				return false, fmt.Sprintf("not in %v; %s", at, w.words())
			}
		}
		return true, ""
	})
	return w
}

func (w *world) startMirror() {
	w.t.Helper()
	w.lives++
	dir := filepath.Join(w.folder, fmt.Sprintf("copy-%d", w.disks))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.m = begin(w.t, w.program, fmt.Sprintf("mirror process %d", w.lives), setup{Dir: dir, States: filepath.Join(w.folder, "states"), Dropped: filepath.Join(w.folder, "dropped"),
		Events: filepath.Join(w.folder, "events"), Seeds: w.c.Bootstrap(), Mirror: "chaos"})
}

func (w *world) startLoad(seed uint64) {
	w.load = newLoad(seed, w.c.Bootstrap(), map[string]int{plain: 3, orders: 3, payments: 2, frail: 1, short: 1, reborn: 1})
	l := w.load
	l.produce(l.ctx, 15*time.Millisecond, []string{plain, short}, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	l.produce(l.ctx, 15*time.Millisecond, []string{plain, payments}, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	l.produce(l.ctx, 15*time.Millisecond, []string{plain, orders, short}, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	l.produce(l.ctx, 20*time.Millisecond, []string{frail}, kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	l.produce(l.ctx, 20*time.Millisecond, []string{frail}, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	l.transact(l.ctx, "new", 30*time.Millisecond, []string{orders, payments}, false)
	l.transact(l.ctx, "old", 30*time.Millisecond, []string{orders, payments}, true)
	for i := range 2 {
		l.consume(l.ctx, "readers", fmt.Sprintf("reader %d", i), plain, orders)
	}
	w.bear()
	w.t.Cleanup(func() {
		l.stop()
		within(w.t, "the clients end", l.running.Wait)
	})
}

// bear starts the load of reborn's next life.
func (w *world) bear() {
	w.generation++
	ctx, stop := context.WithCancel(w.load.ctx)
	ended := make(chan struct{})
	w.endReborn = func() {
		stop()
		within(w.t, "the clients of "+reborn+" end", func() { <-ended })
	}
	one := &load{began: w.load.began, seeds: w.load.seeds, seed: w.load.seed + uint64(w.generation), ctx: ctx, partitions: w.load.partitions, writers: 1000 + uint32(w.generation)*10}
	one.produce(ctx, 20*time.Millisecond, []string{reborn}, kgo.ProducerBatchCompression(kgo.NoCompression()))
	w.load.running.Go(func() {
		one.running.Wait()
		w.load.acked.Add(one.acked.Load())
		w.load.bytes.Add(one.bytes.Load())
		w.load.note(func(h *clienthistory.History) {
			h.Produces = slices.DeleteFunc(h.Produces, func(p clienthistory.Produce) bool { return p.Partition.Topic == reborn }) // of a topic that is gone
			h.Produces = append(h.Produces, one.history.Produces...)
		})
		close(ended)
	})
}

// show notes a fault's effect. A fault without one fails the run.
func (w *world) show(kind, format string, args ...any) {
	e := effect{kind, fmt.Sprintf(format, args...)}
	w.effects = append(w.effects, e)
	w.t.Logf("%6.1f s  %s: %s", time.Since(w.load.began).Seconds(), e.kind, e.what)
}

// events are all that the mirror's processes have told.
func (w *world) events() []told {
	w.t.Helper()
	more, size, err := readEvents(filepath.Join(w.folder, "events"), w.heardSize)
	if err != nil {
		w.t.Fatal(err)
	}
	w.heard, w.heardSize = append(w.heard, more...), w.heardSize+size
	return w.heard
}

// told waits for an event behind the first n.
func (w *world) told(n int, what string, is func(told) bool) told {
	w.t.Helper()
	var found told
	eventually(w.t, "the mirror tells "+what, func() (bool, string) {
		all := w.events()
		for _, e := range all[n:] {
			if is(e) {
				found = e
				return true, ""
			}
		}
		return false, w.words()
	})
	return found
}

func (w *world) status() map[clienthistory.Partition]mirror.PartitionStatus {
	w.t.Helper()
	all := map[clienthistory.Partition]mirror.PartitionStatus{}
	for _, p := range w.m.do(order{Do: "status"}).Partitions {
		all[clienthistory.Partition{Topic: p.Topic, Partition: p.Partition}] = p
	}
	return all
}

func (w *world) one(topic string, partition int32) mirror.PartitionStatus {
	w.t.Helper()
	return w.status()[clienthistory.Partition{Topic: topic, Partition: partition}]
}

// words is the status for a person.
func (w *world) words() string {
	a := w.m.Ask(order{Do: "status"})
	var b strings.Builder
	fmt.Fprintf(&b, "fenced %q, troubles %v", a.Fenced, a.Troubles)
	for _, p := range a.Partitions {
		fmt.Fprintf(&b, "\n  %s-%d %s %s [%d,%d) epoch=%d source=[%d,%d) leader=%d epoch=%d reason=%q attempt=%d", p.Topic, p.Partition, p.State, p.Step, p.Start, p.End, p.LeaderEpoch, p.SourceStart,
			p.SourceEnd, p.SourceLeader, p.SourceLeaderEpoch, p.Reason, p.RetryAttempt)
	}
	return b.String()
}

// offsets are the high watermarks of all partitions that are mirrored, or their log starts.
func (w *world) offsets(start bool) (map[clienthistory.Partition]int64, error) {
	ctx, stop := context.WithTimeout(w.t.Context(), askBound)
	defer stop()
	ask := w.c.Admin().ListEndOffsets
	if start {
		ask = w.c.Admin().ListStartOffsets
	}
	listed, err := ask(ctx, plain, orders, payments, frail, short, reborn)
	if err != nil {
		return nil, err
	}
	all := map[clienthistory.Partition]int64{}
	for topic, ps := range listed {
		for p, o := range ps {
			if o.Err != nil {
				return nil, fmt.Errorf("%s-%d: %w", topic, p, o.Err)
			}
			all[clienthistory.Partition{Topic: topic, Partition: p}] = o.Offset
		}
	}
	return all, nil
}

// mustOffsets asks until every partition is known.
func (w *world) mustOffsets(start bool) (all map[clienthistory.Partition]int64) {
	w.t.Helper()
	eventually(w.t, "the source tells its offsets", func() (bool, string) {
		var err error
		all, err = w.offsets(start)
		return err == nil, fmt.Sprint(err)
	})
	return all
}

// inStep waits until the copy has all that the source has now, in every partition.
func (w *world) inStep() {
	w.t.Helper()
	ends := w.mustOffsets(false)
	eventually(w.t, "the mirror has what the source had when it was asked", func() (bool, string) {
		s := w.status()
		for at, end := range ends {
			if p := s[at]; p.State != statemachine.Mirroring || p.End < end || strings.Contains(p.Reason, "does not answer") { // or the next trouble would be no news
				return false, fmt.Sprintf("%v ends at %d at the source; %s", at, end, w.words())
			}
		}
		return true, ""
	})
}

// whole waits until every replica of every topic is in sync: a fault takes one broker, never two by accident.
func (w *world) whole() {
	w.t.Helper()
	w.c.WaitReady()
	eventually(w.t, "all replicas are in sync", func() (bool, string) {
		ctx, stop := context.WithTimeout(w.t.Context(), askBound)
		defer stop()
		topics, err := w.c.Admin().ListTopicsWithInternal(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, t := range topics {
			for _, p := range t.Partitions {
				if p.Err != nil || len(p.ISR) != len(p.Replicas) {
					return false, fmt.Sprintf("%s-%d: leader %d, replicas %v, in sync %v, %v", t.Topic, p.Partition, p.Leader, p.Replicas, p.ISR, p.Err)
				}
			}
		}
		return true, ""
	})
}

// end kills the source under load, fails the copy over, and gathers what is left.
func (w *world) end() {
	w.t.Helper()
	l := w.load
	l.orphansStay.Store(true)
	w.inStep()
	w.whole()
	type transaction struct {
		at            clienthistory.Partition
		producer, had int64
	}
	since := map[transaction]time.Time{} // a client that is at work ends its transaction soon; one that was killed does not
	eventually(w.t, "transactions of killed clients are open in the copy", func() (bool, string) {
		left := 0
		for at, p := range w.status() {
			for _, x := range p.InFlight {
				key := transaction{at, x.ProducerID, x.FirstOffset}
				if since[key].IsZero() {
					since[key] = time.Now()
				}
				if time.Since(since[key]) > 3*time.Second {
					left++
				}
			}
		}
		return left >= 3, fmt.Sprintf("%d are", left)
	})
	starts := w.mustOffsets(true)
	leaders := map[clienthistory.Partition]kafkatest.Partition{}
	for at := range starts {
		leaders[at] = w.c.Describe(at.Topic, at.Partition)
	}
	had := w.status()
	for _, id := range w.c.Brokers() {
		w.c.Kill(id)
	}
	w.show("source killed", "kill -9 of all brokers under load, %d records acknowledged", l.acked.Load())
	if a := w.m.Ask(order{Do: "produce", Topic: plain, Batch: clientBatch(9_999_999)}); !strings.Contains(a.Err, "read-only") {
		w.found = append(w.found, finding{"gate", plain + "-0", fmt.Sprintf("a client's write before the failover was answered with %q", a.Err)})
	}
	plan := w.m.do(order{Do: "plan"})
	w.t.Logf("the plan:\n%s", plan.Text)
	failed := w.m.Ask(order{Do: "failover", Plan: plan.Plan})
	w.t.Logf("the report:\n%s", failed.Text)
	if failed.Err != "" {
		w.found = append(w.found, finding{"report", "failover", failed.Err})
	}
	l.stop()
	within(w.t, "the clients end", l.running.Wait)
	reports := map[clienthistory.Partition]result{}
	for _, r := range failed.Results {
		reports[clienthistory.Partition{Topic: r.Topic, Partition: r.Partition}] = r
	}
	n := uint32(0)
	clients := map[clienthistory.Partition][]clienthistory.Produce{}
	sorted := slices.SortedFunc(maps.Keys(starts), func(a, b clienthistory.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, at := range sorted {
		for range 2 {
			n++
			p := clienthistory.Produce{Span: clienthistory.Span{Start: l.now()}, Cluster: copied, Partition: at, Record: clienthistory.NewRecord(9000, n)}
			a := w.m.Ask(order{Do: "produce", Topic: at.Topic, Partition: at.Partition, Batch: clientBatch(n)})
			if a.Err != "" {
				w.found = append(w.found, finding{"gate", at.String(), "a client's write behind the failover: " + a.Err})
				continue
			}
			p.End, p.Outcome, p.Offset = l.now(), clienthistory.OK, a.Offset
			clients[at] = append(clients[at], p)
		}
	}
	if err := w.m.Kill(); err != nil { // what was acknowledged is on disk
		w.t.Fatal(err)
	}

	e := evidence{events: w.events(), history: l.history, permits: w.permits}
	for _, id := range w.c.Brokers() {
		e.trimmings = append(e.trimmings, readTrimmings(w.c.Log(id), l.began)...)
	}
	for _, at := range sorted {
		p, err := w.gather(at, leaders[at], starts[at])
		if err != nil {
			w.found = append(w.found, finding{"bytes", at.String(), err.Error()})
			continue
		}
		p.report, p.clients, p.had = reports[at], clients[at], had[at].End
		e.partitions = append(e.partitions, p)
	}
	w.evidence = e
}

// clientBatch is what a client of the copy writes.
func clientBatch(n uint32) []byte {
	return batch.AppendData(nil, batch.DataSpec{LeaderEpoch: -1, ProducerID: -1, BaseTimestamp: time.Now().UnixMilli(), Records: []batch.Record{{Value: fmt.Appendf(nil, "9000.%d|after the failover", n)}}})
}

// gather reads one partition from all disks.
func (w *world) gather(at clienthistory.Partition, was kafkatest.Partition, start int64) (p partitionEvidence, err error) {
	p = partitionEvidence{at: at, sourceStart: start, trimmed: at.Topic == short || w.deleted[at] > 0, replicas: map[int32][]piece{}}
	if p.disk, err = readCopy(w.m.Dir, at.Topic, at.Partition); err != nil {
		return p, err
	}
	var rest []byte
	var errs []error
	p.copy, rest, err = cut(p.disk.log)
	errs = append(errs, err)
	p.rest = len(rest)
	led := false
	for _, id := range was.ISR {
		log, _, err := cut(w.c.SegmentBytes(at.Topic, at.Partition, id))
		errs = append(errs, err)
		if id == was.Leader {
			p.source, led = log, true
			switch {
			case !p.trimmed:
			case len(log) > 0:
				p.sourceStart = max(p.sourceStart, log[0].base)
			default:
				p.sourceStart = math.MaxInt64 // retention has taken everything
			}
		} else {
			p.replicas[id] = log
		}
	}
	if !led {
		errs = append(errs, fmt.Errorf("the leader, broker %d, was not in sync", was.Leader))
	}
	return p, errors.Join(errs...)
}

// keepEvidence writes what was noted beside the brokers' and the mirror's folders.
func (w *world) keepEvidence() {
	var text bytes.Buffer
	err := gob.NewEncoder(&text).Encode(w.evidence.history)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.folder, "history.gob"), text.Bytes(), 0o644)
	}
	if err != nil {
		w.t.Error(err)
	}
}
