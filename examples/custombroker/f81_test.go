package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
)

// What the parent tells a child: where the source is, where the copy is, and, in the last life, at which ends it is complete.
const (
	f81Source = "CUSTOMBROKER_TEST_F81_SOURCE"
	f81Folder = "CUSTOMBROKER_TEST_F81_FOLDER"
	f81Ends   = "CUSTOMBROKER_TEST_F81_ENDS"

	f81Topic      = "orders"
	f81Partitions = 2
	f81Kills      = 200
	f81Phases     = 4   // the source is written to before the first life and three times between kills, under another leader each time
	f81Phase      = 160 // batches of data in a phase and partition
)

// TestF81KillNineTimesTwoHundred kills a mirror with kill -9 two hundred times in the middle of its copy, at requests to the source picked at random and a random moment later.
// The copy has to be a prefix of the source's bytes after each kill, and equal at the end. Where a life begins comes from the log alone.
func TestF81KillNineTimesTwoHundred(t *testing.T) {
	if source := os.Getenv(f81Source); source != "" {
		if err := f81Child(t.Context(), source); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CUSTOMBROKER_TEST_SEED"); s != "" {
		fixed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = fixed
	}
	t.Logf("seed %d (CUSTOMBROKER_TEST_SEED)", seed)
	r := rand.New(rand.NewPCG(seed, 81))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	src := startF81Source(t)
	dir := t.TempDir()
	want := src.write(ctx, t, 0)
	inside := 0 // kills that left something to copy
	for kill := range f81Kills {
		if phase := kill * f81Phases / f81Kills; phase > src.phase {
			want = src.write(ctx, t, phase)
		}
		have := f81Files(t, dir)
		if err := prefixes(have, want); err != nil {
			t.Fatalf("before life %d: %v", kill, err)
		}
		// As many fetches as it takes to spread this phase's kills over what it has left to copy; a fetch brings one batch of each partition.
		phaseKills := (src.phase+1)*f81Kills/f81Phases - kill
		left := (countBatches(want) - countBatches(have)) / f81Partitions
		plan := f81Plan{fetches: 1 + r.IntN(2*left/phaseKills+2), after: time.Duration(r.IntN(2000)) * time.Microsecond}
		if r.IntN(5) == 0 {
			plan = f81Plan{requests: 1 + r.IntN(12), after: plan.after} // somewhere in the look-ups
		}
		src.life(ctx, t, dir, plan, nil)
		if countBatches(f81Files(t, dir)) < countBatches(want) {
			inside++
		}
	}
	have := f81Files(t, dir)
	if err := prefixes(have, want); err != nil {
		t.Fatalf("after the last kill: %v", err)
	}
	killedAt := countBatches(have)
	src.life(ctx, t, dir, f81Plan{}, src.ends)

	d, err := OpenDestination(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	total := 0
	for p := range want {
		l, err := d.OpenLog(ctx, mirror.TopicPartition{Topic: f81Topic, Partition: int32(p)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		if err := equalLogs(got, want[p]); err != nil {
			t.Errorf("partition %d: %v", p, err)
		}
		total += countBatches([][]byte{got})
	}
	kinds := countKinds(want)
	t.Logf("%d kills, %d of them before the copy was complete, the last one at batch %d of %d (%+v)", f81Kills, inside, killedAt, total, kinds)
	if total < 1000 || kinds.plain == 0 || kinds.transactional == 0 || kinds.markers == 0 || kinds.epochs < 2 {
		t.Errorf("the source had %d batches, %+v: too few of a kind to show anything", total, kinds)
	}
	if inside < f81Kills*8/10 {
		t.Errorf("only %d of %d kills came before the copy was complete", inside, f81Kills)
	}
	if killedAt < total*3/4 {
		t.Errorf("only %d of %d batches were copied under kills", killedAt, total)
	}
}

// f81Child is one life: what main does, with small fetches, short pauses and no status lines.
func f81Child(ctx context.Context, source string) error {
	r, err := start(ctx, os.Stderr, os.Getenv(f81Folder), "files", inFolder(os.Getenv(f81Folder)), []string{source}, []string{f81Topic}, func(c *mirror.Config) {
		c.Fetch = mirror.FetchOptions{PartitionMaxBytes: 1, MaxWait: 20 * time.Millisecond}
		c.Retry = mirror.RetryPolicy{Initial: 5 * time.Millisecond, Max: 20 * time.Millisecond}
		c.FetchBackoff = 5 * time.Millisecond
	})
	if err != nil {
		return err
	}
	ends := strings.Fields(os.Getenv(f81Ends))
	if len(ends) == 0 {
		<-ctx.Done() // until it is killed
	}
	for p, s := range ends {
		end, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return err
		}
		var l mirror.Log
		for {
			if l, err = r.destination.OpenLog(ctx, mirror.TopicPartition{Topic: f81Topic, Partition: int32(p)}); err == nil {
				break
			}
			if err := r.mirror.Await(ctx, func(s mirror.Status) bool { return len(s.Topics) > 0 && len(s.Topics[0].Partitions) > p }); err != nil {
				return err
			}
		}
		if err := l.AwaitReplicated(ctx, end); err != nil {
			return err
		}
	}
	return r.close()
}

// f81Plan says when a child is killed: at its n-th Fetch, or its n-th request of any kind, and then so long after. Both 0: not at all.
type f81Plan struct {
	fetches, requests int
	after             time.Duration
}

// f81Cluster is the source, in the parent, so that it survives its mirrors.
type f81Cluster struct {
	fake  *kfake.Cluster
	phase int
	ends  []int64

	mu   sync.Mutex
	plan f81Plan
	kill func()
}

func startF81Source(t *testing.T) *f81Cluster {
	fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.ClusterID("f81-source"), kfake.SeedTopics(f81Partitions, f81Topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	c := &f81Cluster{fake: fake, phase: -1}
	fake.Control(func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		c.seen(request.Key())
		return nil, nil, false
	})
	return c
}

// seen counts a request and kills the child when its time has come.
func (c *f81Cluster) seen(key int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kill == nil {
		return
	}
	const fetch = 1
	switch {
	case c.plan.requests > 0:
		c.plan.requests--
		if c.plan.requests > 0 {
			return
		}
	case c.plan.fetches > 0 && key == fetch:
		c.plan.fetches--
		if c.plan.fetches > 0 {
			return
		}
	default:
		return
	}
	time.AfterFunc(c.plan.after, c.kill)
	c.kill = nil
}

// life runs one child. It is killed as planned, or, when it is told the ends, has to end by itself.
func (c *f81Cluster) life(ctx context.Context, t *testing.T, dir string, plan f81Plan, ends []int64) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), f81Source+"="+c.fake.ListenAddrs()[0], f81Folder+"="+dir, f81Ends+"="+strings.Trim(fmt.Sprint(ends), "[]"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if ends == nil {
		c.mu.Lock()
		c.plan, c.kill = plan, func() { cmd.Process.Kill() }
		c.mu.Unlock()
	}
	err := cmd.Wait()
	c.mu.Lock()
	c.kill = nil
	c.mu.Unlock()
	if killed := err != nil && cmd.ProcessState.ExitCode() == -1; killed != (ends == nil) || ctx.Err() != nil {
		t.Fatalf("a child with plan %+v and ends %v ended with %v, %v; it said:\n%s", plan, ends, err, ctx.Err(), said.Bytes())
	}
}

// write gives the source another phase: every partition another leader, plain and transactional batches, commits and aborts. It returns all that the source now holds.
func (c *f81Cluster) write(ctx context.Context, t *testing.T, phase int) [][]byte {
	t.Helper()
	c.phase = phase
	for p := range int32(f81Partitions) {
		if err := c.fake.MoveTopicPartition(f81Topic, p, (int32(phase)+p)%2); err != nil {
			t.Fatal(err)
		}
	}
	opts := []kgo.Opt{kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1000)}
	plain, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	inTransactions, err := kgo.NewClient(append(opts, kgo.TransactionalID("f81"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer inTransactions.Close()
	batchOf := func(cl *kgo.Client, i, n int) {
		var records []*kgo.Record
		for p := range int32(f81Partitions) {
			for k := range n {
				records = append(records, &kgo.Record{Topic: f81Topic, Partition: p, Value: bytes.Repeat(fmt.Appendf(nil, "%d.%d.%d ", phase, i, k), 20)})
			}
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < f81Phase; {
		for range 5 {
			batchOf(plain, i, 1+i%3)
			i++
		}
		if err := inTransactions.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			batchOf(inTransactions, i, 2)
			i++
		}
		if err := inTransactions.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	return c.everything(ctx, t)
}

// everything fetches all that the source holds, raw.
func (c *f81Cluster) everything(ctx context.Context, t *testing.T) [][]byte {
	t.Helper()
	src, err := kafkasource.New(kafkasource.Config{Seeds: c.fake.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	topics, err := src.Topics(ctx, f81Topic)
	if err != nil || len(topics) != 1 {
		t.Fatalf("looking up %s: %v, %v", f81Topic, topics, err)
	}
	all := make([][]byte, f81Partitions)
	c.ends = make([]int64, f81Partitions)
	for _, p := range topics[0].Leaders {
		tp := mirror.TopicPartition{Topic: f81Topic, Partition: p.Partition}
		offsets, err := src.Offsets(ctx, []mirror.TopicPartition{tp})
		if err != nil {
			t.Fatal(err)
		}
		f, err := src.OpenFetcher(ctx, p.Leader, mirror.FetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for next := int64(0); next < offsets[tp].HighWatermark; {
			f.Want(mirror.FetchPosition{TopicPartition: tp, TopicID: topics[0].ID, Offset: next, LeaderEpoch: p.LeaderEpoch, LastEpoch: mirror.Unknown})
			reply, err := f.Fetch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range reply {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				for info, raw := range mirror.Batches(r.Records) {
					all[p.Partition], next = append(all[p.Partition], raw...), info.Next()
				}
			}
		}
		c.ends[p.Partition] = offsets[tp].HighWatermark
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// f81Files reads the data files as the killed process left them, without opening the logs, which would mend them.
func f81Files(t *testing.T, dir string) [][]byte {
	t.Helper()
	have := make([][]byte, f81Partitions)
	for p := range have {
		b, err := os.ReadFile(filepath.Join(dir, "topics", f81Topic, strconv.Itoa(p), "data-0"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		have[p] = b
	}
	return have
}

// prefixes demands that each file holds the first bytes of its partition, whatever batch they end in.
func prefixes(have, want [][]byte) error {
	for p := range want {
		if !bytes.HasPrefix(want[p], have[p]) {
			return fmt.Errorf("partition %d: the file's %d bytes are not the source's first ones of %d", p, len(have[p]), len(want[p]))
		}
	}
	return nil
}

// equalLogs demands the same bytes, and every offset once, in order.
func equalLogs(got, want []byte) error {
	if !bytes.Equal(got, want) {
		n := 0
		for n < len(got) && n < len(want) && got[n] == want[n] {
			n++
		}
		return fmt.Errorf("the copy has %d bytes, the source %d; they differ at byte %d", len(got), len(want), n)
	}
	next, size := int64(0), 0
	for info, raw := range mirror.Batches(got) {
		if info.Base != next {
			return fmt.Errorf("a batch begins at offset %d, where %d is next", info.Base, next)
		}
		if err := mirror.CheckBatch(raw); err != nil {
			return err
		}
		next, size = info.Next(), size+len(raw)
	}
	if size != len(got) {
		return fmt.Errorf("%d of %d bytes are whole batches", size, len(got))
	}
	return nil
}

// TestF81ComparerSaysNo: what F-81 rests on has to notice a changed, missing, repeated and torn batch.
func TestF81ComparerSaysNo(t *testing.T) {
	log := append(append(records(0, 3), records(3, 2)...), records(5, 4)...)
	first := len(records(0, 3))
	if err := equalLogs(log, log); err != nil {
		t.Errorf("a log is not equal to itself: %v", err)
	}
	changed := bytes.Clone(log)
	changed[len(changed)-1]++
	for what, other := range map[string][]byte{
		"changed": changed, "shorter": log[:len(log)-len(records(5, 4))], "without the first": log[first:], "torn": log[:len(log)-1], "longer": append(bytes.Clone(log), 0),
	} {
		if equalLogs(other, log) == nil {
			t.Errorf("a log that is %s is equal", what)
		}
		if equalLogs(log, other) == nil {
			t.Errorf("a log is equal to one that is %s", what)
		}
	}
	for what, both := range map[string][]byte{"repeats offsets": append(bytes.Clone(log), log...), "is changed": changed, "is torn": log[:len(log)-1], "begins late": log[first:]} {
		if equalLogs(both, both) == nil {
			t.Errorf("a log that %s is right", what)
		}
	}
	if prefixes([][]byte{log[:first+5]}, [][]byte{log}) != nil {
		t.Error("a torn beginning is no prefix")
	}
	if prefixes([][]byte{changed}, [][]byte{log}) == nil || prefixes([][]byte{append(bytes.Clone(log), 1)}, [][]byte{log}) == nil || prefixes([][]byte{log[first:]}, [][]byte{log}) == nil {
		t.Error("other bytes are a prefix")
	}
}

func readAll(ctx context.Context, l mirror.Log) ([]byte, error) {
	var all []byte
	for from := l.Start(); from < l.End(); {
		b, err := l.Read(ctx, from, 1<<20)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			return nil, fmt.Errorf("nothing at %d of [%d, %d]: %w", from, l.Start(), l.End(), io.ErrUnexpectedEOF)
		}
		all = append(all, b...)
		for info := range mirror.Batches(b) {
			from = info.Next()
		}
	}
	return all, nil
}

func countBatches(logs [][]byte) (n int) {
	for _, log := range logs {
		for range mirror.Batches(log) {
			n++
		}
	}
	return n
}

type batchKinds struct{ plain, transactional, markers, epochs int }

func countKinds(logs [][]byte) (k batchKinds) {
	epochs := map[int32]bool{}
	for _, log := range logs {
		for h := range batch.All(log) {
			epochs[h.LeaderEpoch] = true
			switch {
			case h.Control():
				k.markers++
			case h.Transactional():
				k.transactional++
			default:
				k.plain++
			}
		}
	}
	k.epochs = len(epochs)
	return k
}
