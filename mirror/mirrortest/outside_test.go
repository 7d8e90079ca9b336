package mirrortest_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// TestRun: what f reports is the error, FailNow ends it, and cleanups run in any case, the last one first.
func TestRun(t *testing.T) {
	t.Parallel()
	var order []string
	note := func(s string) { order = append(order, s) }
	var dir string
	err := mirrortest.Run("trial", func(t testing.TB) {
		dir = t.TempDir()
		t.Cleanup(func() { note("first") })
		t.Cleanup(func() { note("second"); t.Errorf("also %d", 2) })
		ctx := t.Context()
		t.Cleanup(func() {
			if ctx.Err() == nil {
				note("the context lives")
			}
		})
		t.Log("said")
		t.Fatalf("failed as %s", t.Name())
		note("went on")
	})
	if err == nil || err.Error() != "trial: said\nfailed as trial\nalso 2" {
		t.Errorf("error %q", err)
	}
	if !slices.Equal(order, []string{"second", "first"}) {
		t.Errorf("order %v", order)
	}
	if _, err := os.Stat(dir); dir == "" || !os.IsNotExist(err) {
		t.Errorf("folder %q: %v", dir, err)
	}
	if err := mirrortest.Run("fine", func(t testing.TB) { t.Log("nothing"); t.Skip("enough"); t.Error("went on") }); err != nil {
		t.Errorf("%v", err)
	}
}

// TestWhatFailsIsSaid: a step out of turn, or one that does not come true, ends the test with words that say what to do or what is missing, and with the seed.
func TestWhatFailsIsSaid(t *testing.T) {
	t.Parallel()
	for want, do := range map[string]func(testing.TB, *mirrortest.Pair){
		"call Failback first":                                   func(_ testing.TB, pair *mirrortest.Pair) { pair.Failover(); pair.Failover() },
		"Return comes after Failover":                           func(_ testing.TB, pair *mirrortest.Pair) { pair.Failback() },
		"Home comes after Return":                               func(_ testing.TB, pair *mirrortest.Pair) { pair.Failover(); pair.Home() },
		"nothing is mirrored between":                           func(_ testing.TB, pair *mirrortest.Pair) { pair.Failover(); pair.AwaitCaughtUp() },
		"the primary is the copy now":                           func(_ testing.TB, pair *mirrortest.Pair) { pair.Failover(); pair.Return(); pair.KillPrimary() },
		"orders-0: MIRRORING, end 0 of 1":                       func(t testing.TB, pair *mirrortest.Pair) { pair.Link().Cut(); write(t, pair); pair.AwaitCaughtUp() },
		"mirrortest: return: ":                                  func(_ testing.TB, pair *mirrortest.Pair) { pair.Failover(); pair.Link().Cut(); pair.Return() },
		"Failover: the standby is killed; Revive it first":      func(_ testing.TB, pair *mirrortest.Pair) { pair.Standby().Kill(); pair.Failover() },
		"Verify: the standby is killed; Revive it first":        func(_ testing.TB, pair *mirrortest.Pair) { pair.Standby().Kill(); pair.Verify() },
		"AwaitCaughtUp: the standby is killed; Revive it first": func(_ testing.TB, pair *mirrortest.Pair) { pair.Standby().Kill(); pair.AwaitCaughtUp() },
		"Mirror: the standby is killed; Revive it first":        func(_ testing.TB, pair *mirrortest.Pair) { pair.Standby().Kill(); pair.Mirror("orders") },
		"Return: the standby is killed; Revive it first":        func(_ testing.TB, pair *mirrortest.Pair) { pair.Failover(); pair.Standby().Kill(); pair.Failback() },
		"Home: the standby is killed; Revive it first": func(_ testing.TB, pair *mirrortest.Pair) {
			pair.Failover()
			pair.Return()
			pair.Standby().Kill()
			pair.Home()
		},
		"Home: the primary is killed; Revive it first": func(_ testing.TB, pair *mirrortest.Pair) {
			pair.Failover()
			pair.Return()
			pair.Primary().Kill()
			pair.Home()
		},
		"AwaitCaughtUp: the primary is killed; Revive it first": func(_ testing.TB, pair *mirrortest.Pair) {
			pair.Failover()
			pair.Return()
			pair.Primary().Kill()
			pair.Verify()
		},
		"the cluster is killed: primary": func(t testing.TB, pair *mirrortest.Pair) {
			pair.Link().Cut()
			write(t, pair)
			pair.KillPrimary()
			pair.AwaitCaughtUp()
		},
		"TOPIC_ALREADY_EXISTS":                  func(t testing.TB, pair *mirrortest.Pair) { fail(t, pair.Primary().CreateTopic("orders", 1, nil)) },
		"no-such-topic":                         func(_ testing.TB, pair *mirrortest.Pair) { pair.Mirror("no-such-topic") },
		"CLUSTERMIRROR_SEED=42\nlast events of": func(t testing.TB, pair *mirrortest.Pair) { t.Error("whatever") },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			err := mirrortest.Run("trial", func(o testing.TB) {
				do(o, mirrortest.Start(o, mirrortest.Config{Topics: map[string]int32{"orders": 1}, Seed: 42, Bound: 3 * time.Second}))
			})
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "CLUSTERMIRROR_SEED=42") {
				t.Errorf("%v", err)
			}
			if err != nil && strings.Contains(err.Error(), "0001-01-01") {
				t.Errorf("a plan or a report that was never made is printed: %v", err)
			}
		})
	}
}

func fail(t testing.TB, err error) {
	if err != nil {
		t.Error(err)
	}
}

func write(t testing.TB, pair *mirrortest.Pair) {
	t.Helper()
	produce(bounded(t), t, client(t, pair.Primary(), kgo.DefaultProduceTopic("orders")), "x")
}

// TestSeedFromTheEnvironment plays what a failed run has printed.
func TestSeedFromTheEnvironment(t *testing.T) {
	t.Setenv("CLUSTERMIRROR_SEED", "4711")
	if pair := mirrortest.Start(t, mirrortest.Config{}); pair.Seed() != 4711 {
		t.Errorf("seed %d", pair.Seed())
	}
	t.Setenv("CLUSTERMIRROR_SEED", "x")
	if err := mirrortest.Run("trial", func(o testing.TB) { mirrortest.Start(o, mirrortest.Config{}) }); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("%v", err)
	}
}

// TestMoreTopics: a topic that a client makes at the primary is mirrored when it is asked for, with its settings, and grows with it.
func TestMoreTopics(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{})
	ctx := bounded(t)
	admin := kadm.NewClient(client(t, pair.Primary()))
	compact := "compact"
	if _, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &compact}, "more"); err != nil {
		t.Fatal(err)
	}
	pair.Mirror("more")
	if r, err := admin.UpdatePartitions(ctx, 3, "more"); err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	cl := client(t, pair.Primary(), kgo.DefaultProduceTopic("more"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(ctx, &kgo.Record{Partition: 2, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if n := pair.Verify(); n != 1 {
		t.Errorf("%d batches", n)
	}
	configs, err := kadm.NewClient(client(t, pair.Standby())).DescribeTopicConfigs(ctx, "more")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "cleanup.policy" && c.MaybeValue() != compact {
			t.Errorf("cleanup.policy is %s at the standby", c.MaybeValue())
		}
	}
}

// TestGarbage: a client that sends none of Kafka's requests loses its connection; others go on.
func TestGarbage(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)
	ctx := bounded(t)
	for i, garbage := range []string{
		"GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x00", "\x00\x00\x00\x04abcd", "\xff\xff\xff\xff", "\x00\x00\x00\x0c\x00\x01\x00\x0b\x00\x00\x00\x01\xff\xff\x00\x00", "\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff",
		"\x00\x00\x00\x0a\x00\x0b\x00\x05\x00\x00\x00\x01\xff\xff", // JoinGroup, cut: kfake's to refuse
	} {
		conn, err := net.Dial("tcp", c.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, garbage); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("garbage %d: %d bytes, %v", i, n, err)
		}
		conn.Close()
	}
	if err := client(t, c).Ping(ctx); err != nil {
		t.Error(err)
	}
}
