package kafkametadata

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestFirstGroupOfACluster: until __consumer_offsets is there no group has a coordinator. That is waited for, but not for ever, and not once others are known.
func TestFirstGroupOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupCluster(1, 2)
		f.group("g", 1, nil)
		f.told["g"] = -1
		asked := 0
		f.before = func(_ int32, req kmsg.Request) {
			if req.Key() == int16(kmsg.FindCoordinator) {
				if asked++; asked == 4 {
					delete(f.told, "g")
				}
			}
		}
		refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 0))
		if err != nil || len(refused) != 0 || asked != 4 {
			t.Fatalf("%v, refused %v, %d look-ups", err, refused, asked)
		}
		f.group("none", 1, nil)
		f.told["none"] = -1
		asked = 4
		began := time.Now()
		if got, err := New(f, time.Second).GroupOffsets(t.Context(), named("none")); err != nil || !errors.Is(got["none"].Err, kerr.CoordinatorNotAvailable) || time.Since(began) > 2*time.Second {
			t.Errorf("%v, %+v after %v", err, got, time.Since(began))
		}
		c := New(f, time.Second)
		began = time.Now()
		if got, err := c.GroupOffsets(t.Context(), named("none", "g")); err != nil || !errors.Is(got["none"].Err, kerr.CoordinatorNotAvailable) || got["g"].Err != nil || time.Since(began) > 0 {
			t.Errorf("%v, %+v after %v", err, got, time.Since(began))
		}
	})
}

// TestNobodyTellsTheCoordinators: an error of the whole call, which names the brokers, and every group has it. A broker that is silent is passed over, and not asked first the next time.
func TestNobodyTellsTheCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupCluster(1, 2)
		f.group("g", 2, at("t", 3))
		f.dead[1], f.silent[2] = true, true
		got, err := New(f, time.Second).GroupOffsets(t.Context(), named("g", "h"))
		var of BrokersError
		if !errors.As(err, &of) || len(of) != 2 || of[0].Broker != 1 || of[1].Broker != 2 || len(got) != 2 || got["g"].Err == nil || got["h"].Err == nil {
			t.Fatalf("%v, %+v", err, got)
		}
		f.dead[1], f.silent[1], f.silent[2] = false, true, false
		c := New(f, time.Second)
		for i := range 3 {
			f.group(fmt.Sprint("h", i), 2, nil)
			began := time.Now()
			got, err = c.GroupOffsets(t.Context(), named("g", fmt.Sprint("h", i)))
			if took := time.Since(began); err != nil || got["g"].Err != nil || got["g"].Offsets[tp("t", 0)].Offset != 3 || i > 0 && took > 0 {
				t.Fatalf("round %d: %v, %+v after %v", i, err, got, took)
			}
		}
	})
}

// TestMuteBrokersAreAskedLast: who coordinates the groups of a broker that has fallen silent is asked of the others, even if it was the one to tell before.
func TestMuteBrokersAreAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupCluster(1, 2, 3)
		f.group("g", 1, at("t", 3))
		c := New(f, time.Second)
		if got, err := c.GroupOffsets(t.Context(), named("g")); err != nil || got["g"].Err != nil || f.asked[1][kmsg.FindCoordinator] != 1 {
			t.Fatalf("%v, %+v, asked %v", err, got, f.asked)
		}
		f.silent[1], f.groups["g"].at = true, 2
		began := time.Now()
		got, err := c.GroupOffsets(t.Context(), named("g"))
		if err != nil || got["g"].Err != nil || !maps.Equal(got["g"].Offsets, at("t", 3)) || time.Since(began) != time.Second {
			t.Fatalf("%v, %+v after %v", err, got, time.Since(began))
		}
		// One that answers again is as good as the others.
		f.silent[1], f.silent[2], f.silent[3], f.groups["g"].at = false, true, true, 1
		if got, err := c.GroupOffsets(t.Context(), named("g")); err != nil || got["g"].Err != nil {
			t.Fatalf("%v, %+v", err, got)
		}
		f.brokers = []int32{3, 2, 1}
		f.group("h", 1, nil)
		began = time.Now()
		if got, err := c.GroupOffsets(t.Context(), named("h")); err != nil || got["h"].Err != nil || time.Since(began) > 0 {
			t.Fatalf("%v, %+v after %v", err, got, time.Since(began))
		}
	})
}

// TestGroupsThatAreGoneAreNotRemembered: a cluster has many that live for an hour.
func TestGroupsThatAreGoneAreNotRemembered(t *testing.T) {
	f := newGroupCluster(1, 2)
	c := New(f, time.Second)
	for i := range 10 {
		name := fmt.Sprint("console-consumer-", i)
		f.group(name, 1, nil)
		if _, err := c.Groups(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.GroupOffsets(t.Context(), named(name)); err != nil {
			t.Fatal(err)
		}
		if n := len(c.coordinators.of); n != 1 {
			t.Fatalf("%d are remembered", n)
		}
		delete(f.groups, name)
	}
	// While a broker is silent its groups are not gone.
	f.group("g", 1, nil)
	if _, err := c.GroupOffsets(t.Context(), named("g")); err != nil {
		t.Fatal(err)
	}
	f.dead[1] = true
	if _, err := c.Groups(t.Context()); err == nil || c.coordinators.of["g"] != 1 {
		t.Fatalf("%v, remembered %v", err, c.coordinators.of)
	}
}
