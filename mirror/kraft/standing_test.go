package kraft

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// TestStanding: what health checks are told of a process that leads two partitions: one whose followers come, or have been waited for too long, and one of which nothing is known yet.
func TestStanding(t *testing.T) {
	f, d := startFake(t)
	d.keepSettings("orders") // as while it is being created: nobody else finds out what it holds
	defer d.freeSettings("orders")
	if s := d.Standing(); s.Leads != 0 || s.Err() != nil {
		t.Errorf("it leads nothing: %+v, %v", s, s.Err())
	}
	f.topic("orders", []int32{us, 1, 2}, []int32{us, 1, 2})
	f.change("orders", func(p *clustermetadata.Partition) { p.ISR = []int32{us} })
	if err := d.meta.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l := d.log(mirror.TopicPartition{Topic: "orders"})
	since := func(ago time.Duration) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ours = true
		l.log = leaderlog.New(leaderlog.Options{Topic: "orders", Memory: d.memory, Now: func() time.Time { return began.Add(-ago) }})
		l.log.Begin(leaderlog.Found{})
		l.log.SetFollowers([]int32{1, 2}, []int32{2}, map[int32]int64{1: 7, 2: 7}, 1)
		l.log.Lead(0)
		l.log.Release()
	}
	since(0)
	s := d.Standing()
	if s.Leads != 2 || s.Unknown != 1 || len(s.Absent) != 0 || s.Err() == nil || !strings.Contains(s.Err().Error(), "of 1 of the 2 partitions") {
		t.Errorf("%+v, %v", s, s.Err())
	}
	since(2 * FollowerSilence)
	if s = d.Standing(); !slices.Equal(s.Absent, []int32{2}) { // 1 is not alive
		t.Errorf("%+v", s)
	}
	s.Unknown = 0
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "brokers [2] are alive and have not come") {
		t.Error(err)
	}

	d.membership.mu.Lock()
	d.membership.setFenced(true)
	d.membership.mu.Unlock()
	if s = d.Standing(); s.Fenced.Before(began) || s.Err() == nil || !strings.Contains(s.Err().Error(), "is fenced since") {
		t.Errorf("%+v, %v", s, s.Err())
	}
	first := s.Fenced
	d.membership.mu.Lock()
	d.membership.setFenced(true)
	d.membership.mu.Unlock()
	if s = d.Standing(); !s.Fenced.Equal(first) {
		t.Errorf("fenced since %s, and then since %s", first, s.Fenced)
	}
	d.membership.mu.Lock()
	d.membership.setFenced(false)
	d.membership.mu.Unlock()
	if s = d.Standing(); !s.Fenced.IsZero() {
		t.Errorf("%+v", s)
	}
	lost := errors.New("somebody")
	d.membership.lose(Unregistered, lost)
	if s = d.Standing(); s.Registered || !errors.Is(s.Err(), lost) {
		t.Errorf("%+v, %v", s, s.Err())
	}
}
