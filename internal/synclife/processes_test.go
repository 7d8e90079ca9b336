package synclife_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// from has a mirror read from a source that the test holds.
func from(source mirror.Source) func(*mirror.Config) {
	return func(c *mirror.Config) { c.Source = source }
}

// places are where groups are in partition 0.
func places(t *testing.T, c *kafkatest.Cluster, groups []string, topic string) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	for group, o := range c.Admin().FetchManyOffsets(lives.Limited(t), groups...) {
		if at, ok := o.Fetched.Lookup(topic, 0); ok && o.Err == nil && at.Err == nil {
			got[group] = at.At
		}
	}
	return got
}

func commitAll(t *testing.T, c *kafkatest.Cluster, groups []string, topic string, offset int64) {
	t.Helper()
	for _, group := range groups {
		lives.Commit(t, c, group, topic, 0, offset, 0)
	}
}

// allAt waits until all groups are there, and notes every move back on the way in last, which is where they were seen last. Those in rewound have to go to another place, where the source
// has set them back to.
func allAt(t *testing.T, c *kafkatest.Cluster, groups []string, topic string, offset int64, last map[string]int64, rewound ...map[string]int64) {
	t.Helper()
	want := map[string]int64{}
	for _, group := range groups {
		want[group] = offset
	}
	for _, some := range rewound {
		maps.Copy(want, some)
	}
	lives.Eventually(t, fmt.Sprintf("all groups are at %d, but for %v", offset, rewound), func() (bool, string) {
		now := places(t, c, groups, topic)
		for group, at := range now {
			if at < last[group] && want[group] != at {
				t.Errorf("group %s went from %d back to %d", group, last[group], at)
			}
		}
		maps.Copy(last, now)
		return maps.Equal(now, want), fmt.Sprint(now)
	})
}

// nothingIsTakenForSomebodyElses checks that the mirror thinks of no group that it was moved by others.
func nothingIsTakenForSomebodyElses(t *testing.T, r *lives.Running) {
	t.Helper()
	refreshes(t, r, 2)
	if all := r.Status().Metadata.Groups.Skipped; slices.ContainsFunc(all, func(line string) bool {
		return strings.Contains(line, "d17") && strings.Contains(line, "moved at the destination")
	}) {
		t.Errorf("%q", all)
	}
}

// A process dies between two groups that it moves. Another one takes its place, and goes on: no group goes back but where the
// source has set it back, and none is taken for somebody else's.
func TestDecision17AnotherProcessGoesOnInTheMiddle(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "d17"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	fill(t, a, topic, 1000)
	var groups []string
	for i := range 40 {
		groups = append(groups, fmt.Sprintf("d17-%02d", i))
	}
	commitAll(t, a, groups, topic, 100)
	first := lives.Join(t, b)
	var armed atomic.Bool
	var writes atomic.Int32
	dead := make(chan struct{})
	dying := &watched{Destination: first.Destination, before: func(mirror.Group) {
		if armed.Load() && writes.Add(1) == 15 {
			first.Die()
			close(dead)
		}
	}}
	r := lives.Open(t, topic, a, first, func(c *mirror.Config) { c.Destination = dying })
	r.Start(topic)
	last := map[string]int64{}
	allAt(t, b, groups, topic, 100, last)
	armed.Store(true)
	commitAll(t, a, groups, topic, 200)
	<-dead
	var moved []string
	for group, at := range places(t, b, groups, topic) {
		if at == 200 {
			moved = append(moved, group)
		}
	}
	t.Logf("%d of %d groups were moved when the process died", len(moved), len(groups))
	if len(moved) == 0 || len(moved) == len(groups) {
		t.Error("the process has not died in the middle of its work")
	}
	// The source sets those back to behind what the process wrote last, and goes on with the others.
	rewound := map[string]int64{}
	for _, group := range groups {
		at := int64(300)
		if slices.Contains(moved, group) {
			at = 150
			rewound[group] = at
		}
		lives.Commit(t, a, group, topic, 0, at, 0)
	}
	second := lives.Join(t, b)
	next := lives.Open(t, topic, a, second)
	allAt(t, b, groups, topic, 300, last, rewound)
	nothingIsTakenForSomebodyElses(t, next)
	commitAll(t, a, groups, topic, 400)
	allAt(t, b, groups, topic, 400, last)
	r.End()
	next.Failover()
	resumes(t, "a group", lives.Resumes(t, b, groups[0], topic, []int32{0}), one(400))
}

// A process hangs in the middle of a write, and does not know that another one has its place. When it wakes up it moves nothing.
func TestDecision17ProcessThatHangsMovesNothingWhenItWakesUp(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "d17-hangs"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	fill(t, a, topic, 1000)
	groups := []string{"d17-hangs-a", "d17-hangs-b"}
	commitAll(t, a, groups, topic, 100)
	controllers := lives.NewLink()
	first := lives.Join(t, b, func(c *kraft.Config) { c.ControllerOptions = []kgo.Opt{kgo.Dialer(controllers.Dial)} })
	var armed atomic.Bool
	hanging, wake := make(chan struct{}, 2), make(chan struct{})
	hangs := &watched{Destination: first.Destination, before: func(mirror.Group) {
		if armed.Load() {
			hanging <- struct{}{}
			<-wake
		}
	}}
	r := lives.Open(t, topic, a, first, func(c *mirror.Config) { c.Destination, c.CallBound = hangs, time.Minute }) // its call must still be under way
	r.Start(topic)
	last := map[string]int64{}
	allAt(t, b, groups, topic, 100, last)
	armed.Store(true)
	commitAll(t, a, groups, topic, 200)
	<-hanging
	controllers.Cut()
	second := lives.Join(t, b)
	next := lives.Open(t, topic, a, second)
	commitAll(t, a, groups, topic, 300)
	allAt(t, b, groups, topic, 300, last)
	close(wake)
	commitAll(t, a, groups, topic, 350)
	allAt(t, b, groups, topic, 350, last)
	nothingIsTakenForSomebodyElses(t, next)
	allAt(t, b, groups, topic, 350, last)
	r.End()
	first.Die()
}

// Home again: groups are where they were at the other side when it was given up, also one that was set back there, and one that only the other side had.
func TestGroupsFollowBack(t *testing.T) {
	a, b := primary(t), standby(t)
	topic := "back"
	a.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
	fill(t, a, topic, 100)
	for group, offset := range map[string]int64{"back-goes-on": 60, "back-rewound": 60, "back-rests": 60, "back-end": 100} {
		lives.Commit(t, a, group, topic, 0, offset, 0)
	}
	process := lives.Join(t, b)
	there := lives.Open(t, "there", a, process)
	there.Start(topic)
	for group, offset := range map[string]int64{"back-goes-on": 60, "back-rewound": 60, "back-rests": 60, "back-end": 100} {
		at(t, b, group, topic, one(offset))
	}
	opens := there.Failover().Partitions[0].OpensAt
	there.End()
	process.Leave()
	lives.Produce(t, lives.Client(b), topic, 0, lives.Values("of the standby", 50)...)
	fill(t, a, topic, 20) // what nobody copied, and a group that has read it
	lives.Commit(t, a, "back-end", topic, 0, 120, 0)
	worker := working(t, b, "back-goes-on", topic)
	commitAsMember(t, worker, topic, opens+30)
	leave(t, b, worker, "back-goes-on")
	lives.Commit(t, b, "back-rewound", topic, 0, 10, 0)
	lives.Commit(t, b, "back-new", topic, 0, opens+40, -1)

	home := lives.Join(t, a)
	back := lives.Open(t, "back", b, home)
	back.Failback(topic)
	want := map[string]int64{"back-goes-on": opens + 30, "back-rewound": 10, "back-rests": 60, "back-end": 100, "back-new": opens + 40}
	for group, offset := range want {
		at(t, a, group, topic, one(offset))
		known(t, a, group, topic, 0)
	}
	got := back.Failover().Partitions[0]
	if got.FinalOffset != opens+50 {
		t.Errorf("%+v", got)
	}
	lives.Produce(t, lives.Client(a), topic, 0, "home again")
	want["back-end"] = opens // the reset is at 100
	for group, offset := range want {
		resumes(t, group, lives.Resumes(t, a, group, topic, []int32{0}), one(offset))
	}
	java := lives.JavaResumes(t, a, int(opens-1)-60+50+1, "back-rests", topic)
	resumes(t, "back-rests with Kafka's own consumer", java, one(60))
}
