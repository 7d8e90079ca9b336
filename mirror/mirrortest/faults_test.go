package mirrortest_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// seeds is how many seeds TestFaults plays.
const seeds = 50

// TestFaults: a link on which connections break, requests get lost and others arrive late, while clients write; a failover and a failback over it. Whatever happens, no acknowledged record is lost without
// being named, nothing is there twice, and both clusters end with the same bytes.
func TestFaults(t *testing.T) {
	n := seeds
	if testing.Short() {
		n = 5
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			pair := mirrortest.Start(t, mirrortest.Config{
				Topics: map[string]int32{"orders": 2}, Seed: uint64(seed + 1),
				Faults: mirrortest.Faults{Break: 0.05, Hole: 0.02, Delay: 0.3, MaxDelay: 3 * time.Millisecond, HoleTime: 10 * time.Millisecond},
			})
			ctx := bounded(t)
			var acknowledged []string
			write := func(n int) {
				t.Helper()
				cl := client(t, pair.Active(), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
				for range n {
					v := fmt.Sprint("record ", len(acknowledged))
					produce(ctx, t, cl, v)
					acknowledged = append(acknowledged, v)
				}
			}
			write(20)
			pair.AwaitCaughtUp()
			write(20)
			if seed%2 == 0 {
				pair.KillPrimary()
			}
			over := pair.Failover()
			pair.Verify()
			write(10)
			back := pair.Failback()
			write(10)
			pair.Verify()
			if got, want := valuesOf(back.Return.GivenUp), valuesOf(over.NotCopied); !slices.Equal(got, want) {
				t.Errorf("given up: %v, not copied: %v", got, want)
			}
			got := append(valuesOf(back.Return.GivenUp), consume(ctx, t, pair.Active(), "orders", len(acknowledged)-len(over.NotCopied))...)
			slices.Sort(got)
			if slices.Sort(acknowledged); !slices.Equal(got, acknowledged) {
				t.Errorf("%d records read or given up, %d were acknowledged", len(got), len(acknowledged))
			}
		})
	}
}

// TestLinkCutAndHealed: the mirror goes on by itself after every kind of break, and while there is one nothing is copied.
func TestLinkCutAndHealed(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	cl := client(t, pair.Primary(), kgo.DefaultProduceTopic("orders"))
	for _, broken := range []struct {
		name string
		by   func()
	}{
		{"cut", pair.Link().Cut},
		{"black hole", pair.Link().BlackHole},
	} {
		broken.by()
		before, err := pair.Standby().Memory().RawLog("orders", 0)
		if err != nil {
			t.Fatal(err)
		}
		produce(ctx, t, cl, "during the "+broken.name)
		if after, err := pair.Standby().Memory().RawLog("orders", 0); err != nil || len(after) != len(before) {
			t.Errorf("%s: something was copied (%v)", broken.name, err)
		}
		pair.Link().Heal()
		pair.Verify()
	}
	pair.Link().Delay(20 * time.Millisecond)
	began := time.Now()
	produce(ctx, t, cl, "late")
	pair.AwaitCaughtUp()
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Errorf("a record came over a link with 20 ms of delay in %s", took)
	}
	pair.Link().Heal()
	pair.Verify()
}

// TestAKilledStandbyIsNoCopy: while the cluster that has the copy is killed nothing gets there, of records, states or topics, and nobody is told that it does; when it is revived the mirror goes on by
// itself, and a failover has all of it.
func TestAKilledStandbyIsNoCopy(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	cl := client(t, pair.Primary(), kgo.DefaultProduceTopic("orders"))
	produce(ctx, t, cl, "before")
	pair.AwaitCaughtUp()
	for _, how := range []string{"once", "twice"} {
		pair.Standby().Kill()
		before, err := pair.Standby().Memory().RawLog("orders", 0)
		if err != nil {
			t.Fatal(err)
		}
		produce(ctx, t, cl, "killed "+how)
		for ok := false; !ok; { // until the mirror has tried
			status := mirrortest.Status(pair)
			ok = slices.ContainsFunc(status.Topics, func(topic mirror.TopicStatus) bool { return strings.Contains(topic.Partitions[0].Reason, "killed") })
			if ctx.Err() != nil {
				t.Fatalf("killed %s: the mirror does not see it: %+v", how, status.Topics)
			}
			runtime.Gosched()
		}
		if after, err := pair.Standby().Memory().RawLog("orders", 0); err != nil || len(after) != len(before) {
			t.Errorf("killed %s: something was copied (%v)", how, err)
		}
		pair.Standby().Revive()
		pair.AwaitCaughtUp()
	}
	pair.Standby().Kill()
	pair.Standby().Revive()
	if over := pair.Failover(); len(over.NotCopied) > 0 {
		t.Errorf("not copied: %v", over.NotCopied)
	}
	produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders")), "after")
	pair.Failback()
	pair.Verify()
	if got := consume(ctx, t, pair.Active(), "orders", 4); !slices.Equal(got, []string{"before", "killed once", "killed twice", "after"}) {
		t.Errorf("%v", got)
	}
}

// TestFaultsMidway: the link is lost in the middle of a failback, which then goes on where it was.
func TestFaultsMidway(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders")), "a")
	pair.AwaitCaughtUp()
	pair.KillPrimary()
	pair.Failover()
	produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("orders")), "b")
	pair.Link().BlackHole()
	healed := time.AfterFunc(50*time.Millisecond, pair.Link().Heal)
	defer healed.Stop()
	pair.Return()
	pair.Link().Cut()
	healed.Reset(50 * time.Millisecond)
	pair.Home()
	pair.Verify()
}
