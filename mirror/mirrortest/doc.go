// Package mirrortest runs a failover and a failback in a service's own go test, in tenths of a second: two clusters that speak the Kafka protocol on ports of this machine, and a real mirror
// between them. The service under test knows nothing of it. It gets addresses for its bootstrap.servers, and uses the client that it has: any Kafka client.
//
// # Words
//
//	primary, standby   the cluster that clients begin at, and the one that has the copy
//	link               the network between them, which the mirror uses and clients do not
//	failover           the standby is made writable from what it has; clients are to be moved there
//	return             the old primary becomes a copy of the standby; what only it had is given up
//	home               the primary is opened again without loss, and the standby is its copy as in the beginning
//	failback           return and home
//	not copied         what the primary took and the standby never got; known here, because the harness sees both sides
//	given up           what was cut at a return, after consent to exactly that
//
// # A service's test
//
// This is the whole file, and it passes; a real test has the service elsewhere.
//
//	package orders
//
//	import (
//		"context"
//		"fmt"
//		"testing"
//
//		"github.com/twmb/franz-go/pkg/kgo"
//
//		"github.com/clustermirror/clustermirror/mirror/mirrortest"
//	)
//
//	// Service takes orders and ships them: a producer and a consumer group in one client. It knows brokers' addresses, and nothing of mirrors.
//	type Service struct{ client *kgo.Client }
//
//	func NewService(brokers []string) (*Service, error) {
//		client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic("orders"), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"),
//			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
//		return &Service{client}, err
//	}
//
//	func (s *Service) Take(ctx context.Context, order string) error {
//		return s.client.ProduceSync(ctx, kgo.KeyStringRecord(order, order)).FirstErr()
//	}
//
//	// Ship returns the next n orders, and commits that they are shipped.
//	func (s *Service) Ship(ctx context.Context, n int) (shipped []string, err error) {
//		for len(shipped) < n {
//			fetches := s.client.PollRecords(ctx, n-len(shipped))
//			if err := fetches.Err(); err != nil {
//				return shipped, err
//			}
//			fetches.EachRecord(func(r *kgo.Record) { shipped = append(shipped, string(r.Value)) })
//		}
//		return shipped, s.client.CommitUncommittedOffsets(ctx)
//	}
//
//	func (s *Service) Close() { s.client.Close() }
//
//	func TestServiceSurvivesAFailover(t *testing.T) {
//		pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 3}})
//		ctx := t.Context()
//		// work is the service's life at one cluster: it takes orders and ships them.
//		work := func(at *mirrortest.Cluster, orders ...string) {
//			t.Helper()
//			svc, err := NewService(at.Addresses())
//			if err != nil {
//				t.Fatal(err)
//			}
//			defer svc.Close() // before its cluster is killed
//			for _, order := range orders {
//				if err := svc.Take(ctx, order); err != nil {
//					t.Fatal(err)
//				}
//			}
//			shipped, err := svc.Ship(ctx, len(orders))
//			if err != nil {
//				t.Fatal(err)
//			}
//			if got, want := fmt.Sprint(shipped), fmt.Sprint(orders); got != want {
//				t.Errorf("shipped %s, not %s: an order is lost, or shipped twice", got, want)
//			}
//		}
//		work(pair.Primary(), "order 1")
//		pair.AwaitCaughtUp() // leave it out, and the tail is lost, or shipped again
//		pair.Link().Cut()
//		work(pair.Primary(), "order 2") // acknowledged, shipped, and never copied
//		pair.KillPrimary()              // leave it out, and the old primary lives on, with whoever still writes there
//		over := pair.Failover()
//		for _, r := range over.NotCopied {
//			t.Logf("the standby never got %s", r.Value) // order 2
//		}
//		work(pair.Standby(), "order 3")
//		pair.Link().Heal()
//		back := pair.Failback()
//		for _, r := range back.Return.GivenUp {
//			t.Logf("the old primary gave up %s", r.Value) // order 2
//		}
//		work(pair.Primary(), "order 4")
//		pair.Verify() // both clusters have the same bytes
//	}
//
// Start, the other methods of Pair, and Verify fail the test when something does not come true within Config.Bound. Failover, Return and Home have a plan, the mirror's own report, and
// the records in question as data. Any number of failovers and failbacks follow each other; any number of pairs run beside each other (t.Parallel). Nothing is left behind: no
// goroutine, no port, no file.
//
// Topics that the service makes itself are mirrored from Pair.Mirror on; one that nobody named is not at the standby. The client does not move by itself: nothing of its addresses changes, so the
// test makes it anew, as a deployment does.
//
// What goes wrong: KillPrimary; Link.Cut, BlackHole, Delay and Heal; Config.Faults for what goes wrong by itself; Kill and Revive of either Cluster, also of the standby; and everything that
// Cluster.Memory offers: elections, unclean ones, retention, recreated topics, stopped brokers. Run gives the pair to an Example or a program. Idle, a pair takes 6 to 7 % of a core.
//
// # What is as in Kafka
//
//   - Produce (plain, idempotent, in transactions of both versions, every codec), Fetch (both isolation levels), ListOffsets, OffsetForLeaderEpoch, DeleteRecords and what is asked about
//     producers and transactions are answered from mirror/memlog, which keeps batches byte for byte, with offsets, leader epochs and markers.
//   - Groups, classic ones and those of KIP-848, their offsets, settings of topics and access rules are kfake's (github.com/twmb/franz-go/pkg/kfake). Offsets of transactions (KIP-447) become
//     the group's with the COMMIT.
//   - The mirror is the real one, package mirror with mirror/kafkasource, over sockets. Groups, settings and rules follow as they do between real clusters; a group that has members at the
//     standby is left where it is there.
//   - A topic has another id at the other cluster, so a client that holds to ids (franz-go) has to be made anew for the other cluster (docs/clients.md).
//   - While a topic is a copy its producers get POLICY_VIOLATION at once. Consumers may read the copy, as where the node has a listener for clients.
//   - A COMMIT at a cluster whose topics have become copies meanwhile is taken, and marks nothing; the transaction was aborted at the other cluster.
//   - After a failover an open transaction of the source is aborted, and producer ids of the source are none that the standby gives out.
//
// # What is not
//
//   - A killed cluster turns clients away instead of refusing the connection, its members are gone from their groups at once, and it keeps its ports and all that was acknowledged.
//     The mirror lives on when the cluster that it writes to is killed: it fails, tries again, and goes on when the cluster is revived. What was wanted of it is kept elsewhere.
//   - One replica, no quotas, no TLS, no SASL, no access rules that refuse; retention and compaction happen only when Memory is told to; settings of topics change nothing.
//   - No share groups (KIP-932): their requests are not offered. __consumer_offsets and the mirror's own topics are not topics here: what a mirror recorded is read in memory.
//   - A fetch waits 50 ms at most, and not at all where the one before it asked for other partitions or offsets. The mirror looks at groups and topics every 30 ms.
//   - A client that is closed while its cluster is dead may wait for it (franz-go in a group: 40 s), as with Kafka. Close it before KillPrimary, or do not wait for it.
//
// # Seeds
//
// The seed decides what Faults do to the n-th request of the k-th connection, and the mirror's jitter. A test that fails prints it; CLUSTERMIRROR_SEED=N plays the same faults again. It does
// not decide how goroutines and clients take turns: the same seed brings the same faults, not the same run. Where the order of everything has to be played again, this module has a
// simulator for itself (internal/simulator), without sockets.
package mirrortest
