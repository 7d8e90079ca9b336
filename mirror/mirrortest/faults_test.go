package mirrortest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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
			dr := mirrortest.Start(t, mirrortest.Config{
				Topics: map[string]int32{"orders": 2}, Seed: uint64(seed + 1),
				Faults: mirrortest.Faults{Break: 0.05, Hole: 0.02, Delay: 0.3, MaxDelay: 3 * time.Millisecond, HoleTime: 10 * time.Millisecond},
			})
			ctx := bounded(t)
			var acknowledged []string
			write := func(n int) {
				t.Helper()
				cl := client(t, dr.Active(), kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
				for range n {
					v := fmt.Sprint("record ", len(acknowledged))
					produce(ctx, t, cl, v)
					acknowledged = append(acknowledged, v)
				}
			}
			write(20)
			dr.AwaitCaughtUp()
			write(20)
			if seed%2 == 0 {
				dr.KillPrimary()
			}
			over := dr.Failover()
			dr.Verify()
			write(10)
			back := dr.Failback()
			write(10)
			dr.Verify()
			if got, want := valuesOf(back.Return.GivenUp), valuesOf(over.NotCopied); !slices.Equal(got, want) {
				t.Errorf("given up: %v, not copied: %v", got, want)
			}
			got := append(valuesOf(back.Return.GivenUp), consume(ctx, t, dr.Active(), "orders", len(acknowledged)-len(over.NotCopied))...)
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
	dr := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	cl := client(t, dr.Primary(), kgo.DefaultProduceTopic("orders"))
	for _, broken := range []struct {
		name string
		by   func()
	}{
		{"cut", dr.Link().Cut},
		{"black hole", dr.Link().BlackHole},
	} {
		broken.by()
		before, err := dr.Standby().Memory().RawLog("orders", 0)
		if err != nil {
			t.Fatal(err)
		}
		produce(ctx, t, cl, "during the "+broken.name)
		if after, err := dr.Standby().Memory().RawLog("orders", 0); err != nil || len(after) != len(before) {
			t.Errorf("%s: something was copied (%v)", broken.name, err)
		}
		dr.Link().Heal()
		dr.Verify()
	}
	dr.Link().Delay(20 * time.Millisecond)
	began := time.Now()
	produce(ctx, t, cl, "late")
	dr.AwaitCaughtUp()
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Errorf("a record came over a link with 20 ms of delay in %s", took)
	}
	dr.Link().Heal()
	dr.Verify()
}

// TestFaultsMidway: the link is lost in the middle of a failback, which then goes on where it was.
func TestFaultsMidway(t *testing.T) {
	t.Parallel()
	dr := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	ctx := bounded(t)
	produce(ctx, t, client(t, dr.Active(), kgo.DefaultProduceTopic("orders")), "a")
	dr.AwaitCaughtUp()
	dr.KillPrimary()
	dr.Failover()
	produce(ctx, t, client(t, dr.Active(), kgo.DefaultProduceTopic("orders")), "b")
	dr.Link().BlackHole()
	healed := time.AfterFunc(50*time.Millisecond, dr.Link().Heal)
	defer healed.Stop()
	dr.Return()
	dr.Link().Cut()
	healed.Reset(50 * time.Millisecond)
	dr.Home()
	dr.Verify()
}
