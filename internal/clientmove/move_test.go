package clientmove

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

func TestMain(m *testing.M) {
	lives.Bound = 45 * time.Second
	code := m.Run()
	lender.End()
	os.Exit(code)
}

var lender lives.Keeper

func lend(t *testing.T, name string) *kafkatest.Cluster {
	t.Helper()
	return lender.Lend(t, name, kafkatest.Options{HeapMB: 384, Config: map[string]string{"replica.fetch.wait.max.ms": "200", "group.initial.rebalance.delay.ms": "0"}})
}

// hand is an address that clients are given, and that is moved from one cluster to another: what a name in DNS, or a proxy, is.
type hand struct {
	t       *testing.T
	address string
	now     *proxy.Proxy
}

func (h *hand) to(c *kafkatest.Cluster) {
	h.t.Helper()
	if h.now != nil {
		h.now.Close()
	}
	var err error
	if h.now, err = proxy.ListenOn(h.address, c.Bootstrap()[0]); err != nil {
		h.t.Fatal(err)
	}
	h.address = h.now.Address()
}

// A client that is given both clusters takes one of them for the other: new clients of one application write to either side. It comes first, while both clusters live.
func TestBothClustersInABootstrapListAreWrong(t *testing.T) {
	primary, standby := lend(t, "primary"), lend(t, "standby")
	const topic = "both"
	ids := map[[16]byte]bool{primary.CreateTopic(kafkatest.Topic{Name: topic}): true, standby.CreateTopic(kafkatest.Topic{Name: topic}): true}
	if len(ids) != 2 {
		t.Fatal("both topics have one id")
	}
	seeds := append(primary.Bootstrap(), standby.Bootstrap()...)
	clients := 0
	var a, b int64
	for ; clients < 60 && (a == 0 || b == 0); clients++ {
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic))
		if err != nil {
			t.Fatal(err)
		}
		err = cl.ProduceSync(lives.Limited(t), kgo.StringRecord("x")).FirstErr()
		cl.Close()
		if err != nil {
			t.Fatal(err)
		}
		a, b = lives.OffsetOf(t, primary, lives.Latest, topic, 0), lives.OffsetOf(t, standby, lives.Latest, topic, 0)
	}
	t.Logf("table: %d clients with both clusters (%s) in their list wrote %d records to the one and %d to the other", clients, strings.Join(seeds, ","), a, b)
	if a == 0 || b == 0 {
		t.Errorf("all of %d clients wrote to one cluster: docs/clients.md says that they do not", clients)
	}
}

// Clients that are told one address go on at the other cluster when that address is moved; what they read again, and what is lost, is counted.
func TestClientsGoOnBehindAnAddressThatIsMoved(t *testing.T) {
	primary, standby := lend(t, "primary"), lend(t, "standby")
	joined := lives.Join(t, standby)
	const topic = "moved"
	primary.CreateTopic(kafkatest.Topic{Name: topic})
	r := lives.Open(t, "dr", primary, joined)
	r.Start(topic)

	address := &hand{t: t, address: "127.0.0.1:0"}
	address.to(primary)
	t.Cleanup(func() { address.now.Close() })
	senders := []*sender{javaProducer(t, "4.3.1", address.address, topic), goProducer(t, address.address, topic)}
	readers := []*reader{
		javaConsumer(t, "4.3.1", address.address, topic, "java-4"),
		javaConsumer(t, "3.9.1", address.address, topic, "java-3", "metadata.recovery.strategy=rebootstrap"),
		goConsumer(t, address.address, topic, "go", true),
	}
	stuck := []*reader{
		javaConsumer(t, "3.9.1", address.address, topic, "java-3-none"),
		goConsumer(t, address.address, topic, "go-kept", false),
	}
	for i, x := range append(readers, stuck...) {
		group := []string{"java-4", "java-3", "go", "java-3-none", "go-kept"}[i]
		lives.Eventually(t, x.name+" reads, and its group is followed", func() (bool, string) {
			n, at := len(x.all()), lives.CommittedAt(t, standby, group, topic, 0)
			return n > 20 && at > 10, fmt.Sprintf("%d records, at the destination at %d", n, at)
		})
	}

	primary.Kill(1)
	dead := time.Now()
	r.Failover()
	last := lives.One(r.Status(), topic, 0).LME
	if last == nil {
		t.Fatal("no last mirror offset")
	}
	opened := time.Now()
	address.to(standby)
	moved := time.Now()
	t.Logf("table: primary killed; failover took %s; address moved %s after the kill", opened.Sub(dead).Round(time.Millisecond), moved.Sub(dead).Round(time.Millisecond))

	// The first record of each producer that was sent after the address had moved.
	seen := map[string]time.Time{}
	values := map[string]int{}
	watch := standby.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	lives.Eventually(t, "both producers write to the standby", func() (bool, string) {
		watch.PollFetches(lives.Limited(t)).EachRecord(func(x *kgo.Record) {
			values[string(x.Value)]++
			for _, s := range senders {
				if at, ok := s.sentAt(string(x.Value)); ok && at.After(moved) && seen[s.name].IsZero() {
					seen[s.name] = time.Now()
				}
			}
		})
		return len(seen) == len(senders), fmt.Sprintf("%v of %d values", seen, len(values))
	})
	for _, s := range senders {
		t.Logf("table: producer %s: first record of its own at the standby %s after the address moved, new clients %d", s.name, seen[s.name].Sub(moved).Round(time.Millisecond), renewals(&s.mu, &s.renewed))
	}
	end := lives.OffsetOf(t, standby, lives.Latest, topic, 0)
	for _, x := range readers {
		lives.Eventually(t, x.name+" goes on", func() (bool, string) {
			all := x.all()
			return all[len(all)-1].offset >= end-1 && all[len(all)-1].at.After(moved), fmt.Sprintf("at %d of %d", all[len(all)-1].offset, end)
		})
		first, again := goneOn(t, x, moved, last.Offset)
		t.Logf("table: consumer %s: first record %s after the address moved, %d records again%s", x.name, first.Sub(moved).Round(time.Millisecond), again, renewed(x, moved))
	}
	missing, twice := 0, 0
	for _, s := range senders {
		s.mu.Lock()
		sent := s.sent
		s.mu.Unlock()
		for n, at := range sent {
			switch value := fmt.Sprintf("%s-%d", s.name, n); {
			case at.After(moved):
			case values[value] == 0:
				missing++
			case values[value] > 1:
				twice++
			}
		}
	}
	t.Logf("table: of records sent before the address moved %d are not at the standby (acknowledged by the primary and not copied yet, or given up by their producer), %d are there twice", missing, twice)

	// What does not go on: franz-go keeps the topic's old id and says so; a client of 3.9 as it comes asks the dead brokers for ever.
	lives.Eventually(t, "the franz-go client that was kept says that the topic has another id", func() (bool, string) {
		return renewals(&stuck[1].mu, &stuck[1].renewed) > 0, ""
	})
	for _, x := range stuck {
		for _, had := range x.all() {
			for _, s := range senders {
				if at, ok := s.sentAt(had.value); ok && at.After(moved) {
					t.Fatalf("%s went on with %s at %d: docs/clients.md says that it does not", x.name, had.value, had.offset)
				}
			}
		}
	}
}

// renewed says when an application took new clients.
func renewed(r *reader, moment time.Time) (words string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.renewed {
		words += fmt.Sprintf(", a new client after %s", at.Sub(moment).Round(time.Millisecond))
	}
	return words
}

// goneOn is when a consumer had its first record after a moment, and how many it had again. It must not have left one out: behind end, where the copy ended, there are the markers of the failover.
func goneOn(t *testing.T, r *reader, moment time.Time, end int64) (first time.Time, again int) {
	t.Helper()
	next := int64(0) // behind the highest so far
	for _, x := range r.all() {
		if x.offset > next && next < end {
			t.Errorf("%s had %d, and then %d", r.name, next-1, x.offset)
		}
		if x.at.After(moment) {
			if first.IsZero() {
				first = x.at
			}
			if x.offset < next {
				again++
			}
		}
		next = max(next, x.offset+1)
	}
	return first, again
}
