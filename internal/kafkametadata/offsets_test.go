package kafkametadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

var oddNames = []string{"", " ", "a b", "ümläut-群", "line\nbreak", "quote\"'`", "%d%s", "tab\t\x00", strings.Repeat("long", 60)}

// TestOffsetsOfGroups: what is committed comes back as it is, whatever the names, and what is not is absent. A group that does not exist has none and no error.
func TestOffsetsOfGroups(t *testing.T) {
	for name, versions := range map[string]map[kmsg.Key]int16{
		"newest": {}, "Kafka 2.8": {kmsg.OffsetFetch: 7, kmsg.FindCoordinator: 3, kmsg.ListGroups: 4}, "Kafka 2.1": {kmsg.OffsetFetch: 5, kmsg.FindCoordinator: 2, kmsg.ListGroups: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGroupCluster(1, 2)
			f.newest = versions
			for i, n := range oddNames {
				f.group(n, int32(i%2+1), at("t", int64(i), 0, -1))
			}
			want := at("t", 3, 0)
			f.group("other topics", 2, at("t", 3, 0)).offsets[tp("u.v", 9)] = mirror.GroupOffset{Offset: 1 << 40, LeaderEpoch: -1}
			want[tp("u.v", 9)] = mirror.GroupOffset{Offset: 1 << 40, LeaderEpoch: -1}
			asked := named(append([]string{"nobody", "other topics", "nobody"}, oddNames...)...)
			got, err := New(f, time.Second).GroupOffsets(t.Context(), asked)
			if err != nil || len(got) != len(oddNames)+2 {
				t.Fatalf("%v, %d groups", err, len(got))
			}
			for i, n := range oddNames {
				if o := got[n]; o.Err != nil || o.Pending != nil || !maps.Equal(o.Offsets, at("t", int64(i), 0)) {
					t.Errorf("%q: %+v", n, o)
				}
			}
			if o := got["other topics"]; o.Err != nil || !maps.Equal(o.Offsets, want) {
				t.Errorf("other topics: %+v", o)
			}
			if o, ok := got["nobody"]; !ok || o.Err != nil || len(o.Offsets) != 0 {
				t.Errorf("nobody: %v %+v", ok, o)
			}
		})
	}
}

// TestF55PendingCommitIsNotRead: partitions with a pending commit are named apart, and neither the group's others nor other groups are harmed.
func TestF55PendingCommitIsNotRead(t *testing.T) {
	f := newGroupCluster(1)
	f.group("g1", 1, at("t", 5, 6, 7)).pending = []mirror.TopicPartition{tp("t", 2), tp("t", 0)}
	f.group("g2", 1, at("t", 8))
	got, err := New(f, time.Second).GroupOffsets(t.Context(), named("g1", "g2"))
	if err != nil || got["g1"].Err != nil || !slices.Equal(got["g1"].Pending, []mirror.TopicPartition{tp("t", 0), tp("t", 2)}) || len(got["g1"].Offsets) != 1 || got["g1"].Offsets[tp("t", 1)].Offset != 6 {
		t.Errorf("%v, g1: %+v", err, got["g1"])
	}
	if got["g2"].Err != nil || got["g2"].Pending != nil || !maps.Equal(got["g2"].Offsets, at("t", 8)) {
		t.Errorf("g2: %+v", got["g2"])
	}
}

// TestRefusedPartitionLeavesTheOthers: what could not be read is the group's error, what could be holds.
func TestRefusedPartitionLeavesTheOthers(t *testing.T) {
	f := newGroupCluster(1)
	f.group("g1", 1, at("t", 5, 6)).refuses = map[mirror.TopicPartition]int16{tp("t", 1): kerr.UnknownTopicOrPartition.Code}
	f.group("g2", 1, nil).code = kerr.GroupAuthorizationFailed.Code
	f.group("g3", 1, at("t", 1))
	got, err := New(f, time.Second).GroupOffsets(t.Context(), named("g1", "g2", "g3"))
	if o := got["g1"]; err != nil || !errors.Is(o.Err, kerr.UnknownTopicOrPartition) || !strings.Contains(o.Err.Error(), "broker 1: OffsetFetch: t-1") || !maps.Equal(o.Offsets, at("t", 5)) ||
		!slices.Equal(o.Unread, []mirror.TopicPartition{tp("t", 1)}) {
		t.Errorf("%v, g1: %+v", err, o)
	}
	if o := got["g2"]; o.Unread != nil || !errors.Is(o.Err, kerr.GroupAuthorizationFailed) {
		t.Errorf("g2: %+v", o)
	}
	if o := got["g3"]; o.Err != nil || len(o.Offsets) != 1 {
		t.Errorf("g3: %+v", o)
	}
	// An answer without the group is no answer.
	f.replies[kmsg.OffsetFetch] = func(r kmsg.Response) { r.(*kmsg.OffsetFetchResponse).Groups = nil }
	if got, _ := New(f, time.Second).GroupOffsets(t.Context(), named("g3")); !errors.Is(got["g3"].Err, errLeftOut) {
		t.Errorf("left out: %+v", got["g3"])
	}
}

// TestWriteAGroup: offsets are written as they are, 0 too, and come back; a partition that is refused is so alone.
func TestF59RefusedPartitionIsRefusedAlone(t *testing.T) {
	for _, name := range oddNames {
		f := newGroupCluster(1, 2)
		f.group(name, 2, nil).refuses = map[mirror.TopicPartition]int16{tp("t", 1): kerr.UnknownTopicOrPartition.Code}
		c := New(f, time.Second)
		refused, err := c.WriteGroupOffsets(t.Context(), mirror.Group{Name: name}, at("t", 0, 1, 2))
		if err != nil || len(refused) != 1 || !errors.Is(refused[tp("t", 1)], kerr.UnknownTopicOrPartition) {
			t.Fatalf("%q: %v, refused %v", name, err, refused)
		}
		got, err := c.GroupOffsets(t.Context(), named(name))
		want := at("t", 0, 1, 2)
		delete(want, tp("t", 1))
		if err != nil || got[name].Err != nil || !maps.Equal(got[name].Offsets, want) {
			t.Fatalf("%q: %v, %+v", name, err, got[name])
		}
	}
	// All partitions are refused: that is no error of the call.
	f := newGroupCluster(1)
	f.group("g", 1, nil).refuses = map[mirror.TopicPartition]int16{tp("t", 0): kerr.TopicAuthorizationFailed.Code}
	if refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4)); err != nil || !errors.Is(refused[tp("t", 0)], kerr.TopicAuthorizationFailed) {
		t.Fatalf("%v, refused %v", err, refused)
	}
	// The broker leaves a partition out of its answer.
	f.replies[kmsg.OffsetCommit] = func(r kmsg.Response) { r.(*kmsg.OffsetCommitResponse).Topics = nil }
	if refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4)); err != nil || !errors.Is(refused[tp("t", 0)], errLeftOut) {
		t.Fatalf("%v, refused %v", err, refused)
	}
	// Nothing to write is no request.
	before := f.count(kmsg.OffsetCommit)
	if refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, nil); err != nil || len(refused) != 0 || f.count(kmsg.OffsetCommit) != before {
		t.Fatalf("nothing: %v, refused %v", err, refused)
	}
}

// TestF57AnswersThatMeanActive: each of them is ErrGroupActive, with the cluster's words, and nothing was written.
func TestF57AnswersThatMeanActive(t *testing.T) {
	for _, code := range []*kerr.Error{
		kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch, kerr.FencedInstanceID, kerr.NonEmptyGroup,
		kerr.GroupSubscribedToTopic, kerr.InconsistentGroupProtocol, kerr.GroupIDNotFound,
	} {
		f := newGroupCluster(1)
		g := f.group("g", 1, at("t", 5))
		g.code = code.Code
		refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4, 4))
		if !errors.Is(err, mirror.ErrGroupActive) || !errors.Is(err, code) || !strings.Contains(err.Error(), `group "g": `) || len(refused) != 0 || !maps.Equal(g.offsets, at("t", 5)) {
			t.Errorf("%s: %v, refused %v, %v", code.Message, err, refused, g.offsets)
		}
		if n := f.count(kmsg.OffsetCommit); n != 1 {
			t.Errorf("%s: asked %d times", code.Message, n)
		}
	}
	for _, code := range []*kerr.Error{kerr.GroupAuthorizationFailed, kerr.CoordinatorLoadInProgress, kerr.InvalidGroupID, kerr.RequestTimedOut} {
		synctest.Test(t, func(t *testing.T) {
			f := newGroupCluster(1)
			f.group("g", 1, nil).code = code.Code
			refused, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4))
			if errors.Is(err, mirror.ErrGroupActive) || !errors.Is(err, code) || len(refused) != 0 {
				t.Errorf("%s: %v, refused %v", code.Message, err, refused)
			}
		})
	}
}

// TestManyOffsetsAreWrittenInParts: one commit is one batch of __consumer_offsets, which takes 1 MiB.
func TestManyOffsetsAreWrittenInParts(t *testing.T) {
	f := newGroupCluster(1)
	g := f.group("g", 1, nil)
	offsets := map[mirror.TopicPartition]mirror.GroupOffset{}
	for p := range int32(10_000) {
		offsets[tp(fmt.Sprint("topic-", p%7), p)] = mirror.GroupOffset{Offset: int64(p), Metadata: strings.Repeat("m", int(p%200))}
	}
	c := New(f, time.Second)
	refused, err := c.WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, offsets)
	if err != nil || len(refused) != 0 || !maps.Equal(g.offsets, offsets) {
		t.Fatalf("%v, %d refused, %d written", err, len(refused), len(g.offsets))
	}
	if n := f.count(kmsg.OffsetCommit); n < 5 || n > 10 {
		t.Errorf("%d commits of %v partitions", n, f.sizes)
	}
	// A member joins between two of them: it is not said that nothing was written.
	f.sizes, g.offsets = nil, map[mirror.TopicPartition]mirror.GroupOffset{}
	f.before = func(_ int32, req kmsg.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.sizes) == 2 {
			g.state = "Stable"
		}
	}
	_, err = c.WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, offsets)
	if err == nil || errors.Is(err, mirror.ErrGroupActive) || !errors.Is(err, kerr.UnknownMemberID) || len(g.offsets) == 0 {
		t.Errorf("%v, %d written", err, len(g.offsets))
	}
	// A single offset that is too large for a part goes alone.
	for part := range inParts("g", map[mirror.TopicPartition]mirror.GroupOffset{tp("t", 0): {}, tp("t", 1): {Metadata: strings.Repeat("m", mostCommitted)}, tp("t", 2): {}}) {
		if len(part) != 1 {
			t.Errorf("part %v", part)
		}
	}
}

// TestF59DeadCoordinator: its groups alone have an error, at once or after one bound, and come back by themselves when another broker coordinates them.
func TestF59DeadCoordinator(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent ", silent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newGroupCluster(1, 2, 3)
				f.group("g2", 2, at("t", 2))
				f.group("g3", 3, at("t", 3))
				c := New(f, 3*time.Second)
				if got, err := c.GroupOffsets(t.Context(), named("g2", "g3")); err != nil || got["g2"].Err != nil || got["g3"].Err != nil {
					t.Fatalf("%v, %+v", err, got)
				}
				if silent {
					f.silent[2] = true
				} else {
					f.dead[2] = true
				}
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				got, err := c.GroupOffsets(ctx, named("g2", "g3"))
				var by *BrokerError
				if err != nil || !errors.As(got["g2"].Err, &by) || by.Broker != 2 || got["g3"].Err != nil || !maps.Equal(got["g3"].Offsets, at("t", 3)) {
					t.Fatalf("%v, %+v", err, got)
				}
				if n := f.asked[2][kmsg.OffsetFetch]; n != 2 {
					t.Errorf("it was asked %d times, once more is enough", n)
				}
				if _, err := c.WriteGroupOffsets(ctx, mirror.Group{Name: "g2"}, at("t", 9)); !errors.As(err, &by) || by.Broker != 2 || errors.Is(err, mirror.ErrGroupActive) {
					t.Errorf("write to g2: %v", err)
				}
				if refused, err := c.WriteGroupOffsets(ctx, mirror.Group{Name: "g3"}, at("t", 4)); err != nil || len(refused) != 0 {
					t.Errorf("write to g3: %v, refused %v", err, refused)
				}
				// The brokers have noticed, and nobody follows it yet. Until then the one that is dead is the reason.
				f.told["g2"] = -1
				c.coordinators.remember("g2", 2)
				if got, err = c.GroupOffsets(ctx, named("g2", "g3")); err != nil || !errors.As(got["g2"].Err, &by) || by.API != "OffsetFetch" || got["g3"].Err != nil {
					t.Errorf("%v, %+v", err, got)
				}
				if got, err = c.GroupOffsets(ctx, named("g2", "g3")); err != nil || !errors.Is(got["g2"].Err, kerr.CoordinatorNotAvailable) || got["g3"].Err != nil {
					t.Errorf("%v, %+v", err, got)
				}
				delete(f.told, "g2")
				f.groups["g2"].at = 1
				got, err = c.GroupOffsets(t.Context(), named("g2", "g3"))
				if err != nil || got["g2"].Err != nil || !maps.Equal(got["g2"].Offsets, at("t", 2)) || !maps.Equal(got["g3"].Offsets, at("t", 4)) {
					t.Fatalf("%v, %+v", err, got)
				}
			})
		})
	}
}

// TestCoordinatorThatMoved: reads and writes find the new one within the same call, one that is silent too if the others say who follows it.
func TestCoordinatorThatMoved(t *testing.T) {
	for name, old := range map[string]func(f *groupCluster){"says so": func(*groupCluster) {}, "dead": func(f *groupCluster) { f.dead[2] = true }} {
		t.Run(name, func(t *testing.T) {
			f := newGroupCluster(1, 2, 3)
			f.group("g2", 2, at("t", 2))
			f.group("g3", 3, at("t", 3))
			c := New(f, time.Second)
			if _, err := c.GroupOffsets(t.Context(), named("g2", "g3")); err != nil {
				t.Fatal(err)
			}
			f.groups["g2"].at = 1
			old(f)
			got, err := c.GroupOffsets(t.Context(), named("g2", "g3"))
			if err != nil || got["g2"].Err != nil || !maps.Equal(got["g2"].Offsets, at("t", 2)) || got["g3"].Err != nil {
				t.Fatalf("read: %v, %+v", err, got)
			}
			f.groups["g3"].at = 1
			f.dead[3] = f.dead[2]
			if refused, err := c.WriteGroupOffsets(t.Context(), mirror.Group{Name: "g3"}, at("t", 9)); err != nil || len(refused) != 0 || !maps.Equal(f.groups["g3"].offsets, at("t", 9)) {
				t.Fatalf("write: %v, refused %v, %v", err, refused, f.groups["g3"].offsets)
			}
			before := f.count(kmsg.FindCoordinator)
			if got, err = c.GroupOffsets(t.Context(), named("g2", "g3")); err != nil || got["g2"].Err != nil || got["g3"].Err != nil || f.count(kmsg.FindCoordinator) != before {
				t.Errorf("the new ones are not remembered: %v, %+v", err, got)
			}
		})
	}
}

// TestCoordinatorThatIsNone: it is asked a few times, not for ever, and a write that may have happened is not called refused for members.
func TestCoordinatorThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupCluster(1, 2)
		f.group("g", 1, at("t", 1))
		f.told["g"] = 2
		c := New(f, time.Second)
		began := time.Now()
		if got, err := c.GroupOffsets(t.Context(), named("g")); err != nil || !errors.Is(got["g"].Err, kerr.NotCoordinator) || f.count(kmsg.OffsetFetch) != 5 {
			t.Errorf("%v, %+v, asked %d times", err, got, f.count(kmsg.OffsetFetch))
		}
		if _, err := c.WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4)); !errors.Is(err, kerr.NotCoordinator) || f.count(kmsg.OffsetCommit) != 5 {
			t.Errorf("%v, asked %d times", err, f.count(kmsg.OffsetCommit))
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		if got, err := c.GroupOffsets(ctx, named("g")); err != nil || got["g"].Err == nil {
			t.Errorf("%v, %+v", err, got)
		}
		delete(f.told, "g")
		tries := 0
		f.replies[kmsg.OffsetCommit] = func(r kmsg.Response) {
			if tries++; tries == 1 {
				r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode = kerr.CoordinatorNotAvailable.Code
				f.groups["g"].state = "Stable"
			}
		}
		_, err := New(f, time.Second).WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4))
		if err == nil || errors.Is(err, mirror.ErrGroupActive) || !errors.Is(err, kerr.UnknownMemberID) || f.groups["g"].offsets[tp("t", 0)].Offset != 4 {
			t.Errorf("written, and then active: %v", err)
		}
	})
}

// TestCoordinatorThatIsNoneYet: the brokers tell of a new coordinator before it knows that itself, and then it loads its groups.
func TestCoordinatorThatIsNoneYet(t *testing.T) {
	for _, kind := range []string{"classic", "share"} {
		synctest.Test(t, func(t *testing.T) {
			f := newGroupCluster(1, 2)
			g := f.group("g", 2, starts("t", 1))
			g.kind = kind
			group := mirror.Group{Name: "g"}
			if kind == "share" {
				group.Kind = mirror.ShareGroup
			}
			asked := 0
			f.before = func(_ int32, req kmsg.Request) {
				switch kmsg.Key(req.Key()) {
				case kmsg.OffsetFetch, kmsg.OffsetCommit, kmsg.DescribeShareGroupOffsets, kmsg.AlterShareGroupOffsets:
					asked++
					g.code = []int16{0, kerr.NotCoordinator.Code, kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, 0}[asked]
				}
			}
			c := New(f, time.Second)
			if got, err := c.GroupOffsets(t.Context(), []mirror.Group{group}); err != nil || got["g"].Err != nil || got["g"].Offsets[tp("t", 0)].Offset != 1 || asked != 4 {
				t.Errorf("%s: read: %v, %+v, asked %d times", kind, err, got, asked)
			}
			asked = 0
			if refused, err := c.WriteGroupOffsets(t.Context(), group, starts("t", 4)); err != nil || len(refused) != 0 || g.offsets[tp("t", 0)].Offset != 4 || asked != 4 {
				t.Errorf("%s: write: %v, refused %v, asked %d times", kind, err, refused, asked)
			}
		})
	}
}

// TestSlowCommit: a coordinator that waits for a dead replica is given longer than one that is read from.
func TestSlowCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupCluster(1)
		f.group("g", 1, nil)
		f.slow = 5 * time.Second
		c := New(f, 3*time.Second)
		c.coordinators.remember("g", 1)
		if refused, err := c.WriteGroupOffsets(t.Context(), mirror.Group{Name: "g"}, at("t", 4)); err != nil || len(refused) != 0 {
			t.Errorf("%v, refused %v", err, refused)
		}
	})
}
