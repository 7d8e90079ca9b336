package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/fence"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// writers write to real Kafka all the time: a third with acks=1, a third idempotently, a third in transactions. They keep what was acknowledged, and go on after each refusal.
type writers struct {
	mu    sync.Mutex
	acked map[mirror.TopicPartition]map[int64]string
	tries int
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func startWriters(t *testing.T, options []kgo.Opt, n int, topics ...string) *writers {
	ctx, stop := context.WithCancel(context.Background())
	w := &writers{acked: map[mirror.TopicPartition]map[int64]string{}, stop: stop}
	for i := range n {
		own := append(slices.Clone(options), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.RecordDeliveryTimeout(5*time.Second), kgo.AllowAutoTopicCreation())
		switch i % 3 {
		case 0:
			own = append(own, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
		case 2:
			own = append(own, kgo.TransactionalID(fmt.Sprint("writer-", i)), kgo.TransactionTimeout(10*time.Second))
		}
		client, err := kgo.NewClient(own...)
		if err != nil {
			t.Fatal(err)
		}
		w.done.Go(func() {
			defer client.Close()
			w.write(ctx, client, i, topics)
		})
	}
	t.Cleanup(w.end)
	return w
}

func (w *writers) end() {
	w.stop()
	w.done.Wait()
}

func (w *writers) write(ctx context.Context, client *kgo.Client, who int, topics []string) {
	for n := 0; ctx.Err() == nil; n++ {
		transactional := who%3 == 2
		if transactional && client.BeginTransaction() != nil {
			return
		}
		var records []*kgo.Record
		for range 3 {
			records = append(records, &kgo.Record{Topic: topics[(who+n)%len(topics)], Value: fmt.Appendf(nil, "writer %d, record %d", who, n)})
		}
		bounded, stop := context.WithTimeout(ctx, 10*time.Second)
		results := client.ProduceSync(bounded, records...)
		err := results.FirstErr()
		if transactional {
			if endErr := client.EndTransaction(bounded, kgo.TransactionEndTry(err == nil)); err == nil {
				err = endErr
			}
		}
		stop()
		w.mu.Lock()
		w.tries++
		for _, r := range results {
			if r.Err == nil && (!transactional || err == nil) {
				tp := mirror.TopicPartition{Topic: r.Record.Topic, Partition: r.Record.Partition}
				if w.acked[tp] == nil {
					w.acked[tp] = map[int64]string{}
				}
				w.acked[tp][r.Record.Offset] = string(r.Record.Value)
			}
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Millisecond):
		}
	}
}

func (w *writers) counts() (acked, tries int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, records := range w.acked {
		acked += len(records)
	}
	return acked, w.tries
}

// missing are acknowledged records that a raw log of the standby does not have at their offsets.
func (w *writers) missing(t *testing.T, c *memlog.Cluster) (lost []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for tp, records := range w.acked {
		raw, err := c.RawLog(tp.Topic, tp.Partition)
		if err != nil {
			t.Fatal(err)
		}
		found := map[int64]string{}
		for len(raw) > 0 {
			h, n, err := batch.Next(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !h.Control() {
				read, err := batch.ReadRecords(raw[:n], &h)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range read {
					found[h.BaseOffset+int64(r.OffsetDelta)] = string(r.Value)
				}
			}
			raw = raw[n:]
		}
		for o, value := range records {
			if found[o] != value {
				lost = append(lost, fmt.Sprintf("%v at %d: %q, the copy has %q", tp, o, value, found[o]))
			}
		}
		committed := map[int64]bool{} // transactions too, as a reader sees them
		seen, err := c.Consume(t.Context(), tp.Topic, tp.Partition, 0, memlog.ReadCommitted)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range seen {
			committed[r.Offset] = true
		}
		for o := range records {
			if !committed[o] {
				lost = append(lost, fmt.Sprintf("%v at %d is not committed in the copy", tp, o))
			}
		}
	}
	return lost
}

// TestAcceptance4_1ARealKafkaIsFencedAndPromotedWithoutLoss: twenty producers write all the time, in every way; behind rules of the authorizer nothing acknowledged is missing in the copy. A promotion
// that is given up lets them write on, and leaves the rule alone that was there before. A transaction that is left open is ended by its coordinator.
func TestAcceptance4_1ARealKafkaIsFencedAndPromotedWithoutLoss(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Client: kafkatest.Security{SASL: "PLAIN", Users: map[string]string{"app": "a", "mirror": "m", "admin": "x"}}, Authorizer: true})
	topics := []string{"orders", "payments"}
	for _, name := range topics {
		c.CreateTopic(kafkatest.Topic{Name: name, Partitions: 3, Replication: 3})
	}
	c.CreateTopic(kafkatest.Topic{Name: "archive"})
	c.Allow("User:app", []string{"*"}, kadm.OpRead, kadm.OpWrite)
	c.Allow("User:mirror", []string{"*"}, kadm.OpRead, kadm.OpDescribeConfigs)
	c.CreateACLs(kadm.NewACLs().Allow("User:app").AllowHosts("*").TransactionalIDs("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite, kadm.OpDescribe))
	c.CreateACLs(kadm.NewACLs().Deny("User:*").DenyHosts("*").Topics("archive").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite))
	options := func(user, password string) []kgo.Opt {
		return append(c.ClientOptions(kafkatest.Credentials{User: user, Password: password}), kgo.SeedBrokers(c.Bootstrap()...))
	}
	admin, err := kgo.NewClient(options("admin", "x")...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	source, err := kafkasource.New(kafkasource.Config{Seeds: c.Bootstrap(), ClientOptions: c.ClientOptions(kafkatest.Credentials{User: "mirror", Password: "m"})})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	standby := memlog.New(memlog.Config{ClusterID: "standby"})
	defer standby.Close()
	m, err := mirror.Open(t.Context(), mirror.Config{Name: "dr", Source: source, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	all := append(slices.Clone(topics), "archive")
	if _, err := m.Admin().Start(t.Context(), all, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	inStep := func() {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := m.Await(ctx, func(s mirror.Status) bool {
			n := 0
			for _, topic := range s.Topics {
				for _, p := range topic.Partitions {
					if p.LagOffsets < 0 || p.LagOffsets > 100 {
						return false
					}
					n++
				}
			}
			return n == 7
		}); err != nil {
			t.Fatal(err)
		}
	}
	inStep()
	w := startWriters(t, options("app", "a"), 20, topics...)
	time.Sleep(2 * time.Second) // they write

	rules := func() (there []string) {
		found, err := kadm.NewClient(admin).DescribeACLs(t.Context(), kadm.NewACLs().AnyResource().Deny().DenyHosts().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			for _, d := range f.Described {
				if d.Permission == kmsg.ACLPermissionTypeDeny {
					there = append(there, d.Name)
				}
			}
		}
		slices.Sort(there)
		return there
	}
	f := fence.ACL(admin)

	// A transaction that nobody ends. Without the right to end it the promotion is given up.
	open, err := kgo.NewClient(append(options("app", "a"), kgo.TransactionalID("left-open"), kgo.TransactionTimeout(10*time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := open.ProduceSync(t.Context(), &kgo.Record{Topic: "payments", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r, err := m.Promote(t.Context(), mirror.PromoteOptions{Fence: f, Quiet: 3 * time.Second, TransactionWait: 2 * time.Second})
	if !errors.Is(err, mirror.ErrGivenUp) || r.FenceUp || !strings.Contains(err.Error(), "open at the source") {
		t.Fatalf("%v\n%s", err, r)
	}
	if there := rules(); !slices.Equal(there, []string{"archive"}) {
		t.Fatalf("rules after a promotion that was given up: %v", there)
	}
	before, _ := w.counts()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if now, _ := w.counts(); now > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody can write after a promotion that was given up")
		}
	}
	inStep()

	r, err = m.Promote(t.Context(), mirror.PromoteOptions{Fence: f, Quiet: 3 * time.Second, TransactionWait: 2 * time.Second, AbortTransactions: fence.Transactions(admin)})
	if err != nil || !r.Proved {
		t.Fatalf("%v\n%s", err, r)
	}
	t.Logf("\n%s", r)
	if there := rules(); !slices.Equal(there, []string{"archive", "orders", "payments"}) {
		t.Errorf("rules behind the promotion: %v", there)
	}
	_, tries := w.counts()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // they try on behind the fence
		if _, now := w.counts(); now > tries+40 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the writers have stopped trying")
		}
	}
	w.end()
	if err := open.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the transaction that was aborted has committed")
	}
	acked, _ := w.counts()
	if lost := w.missing(t, standby); len(lost) > 0 || acked == 0 {
		t.Fatalf("%d of %d acknowledged records are missing: %v", len(lost), acked, lost[:min(len(lost), 5)])
	}
	t.Logf("%d acknowledged records, none is missing", acked)
	if !strings.Contains(r.String(), "kafka-acls.sh --bootstrap-server SOURCE:PORT --remove --force --deny-principal 'User:*' --operation Write --topic orders --topic payments") ||
		!strings.Contains(r.String(), "the rule was there before on archive") {
		t.Errorf("how to take the fence down:\n%s", r)
	}
}
