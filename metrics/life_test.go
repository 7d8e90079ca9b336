package metrics

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// ofDestination is the label that everything has here.
var ofDestination = regexp.MustCompile(`destination_cluster_id="[^"]*",`)

// value is what one series has now.
func value(t *testing.T, c *Collector, series string) (v float64, there bool) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^clustermirror_` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(ofDestination.ReplaceAllString(exposed(t, c), ""))
	if m == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v, true
}

// A mirror's life, as Prometheus sees it: nothing is known, in step, the source gone, failed over.
func TestLifeOfAMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, standby := memlog.New(memlog.Config{ClusterID: "A"}), memlog.New(memlog.Config{ClusterID: "B"})
		if _, err := source.CreateLocalTopic(memlog.LocalTopic{Name: "orders", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		produce := func() {
			t.Helper()
			if _, err := source.Produce(t.Context(), "orders", 0, memlog.Record{Value: []byte("1 apple")}); err != nil {
				t.Fatal(err)
			}
		}
		produce()
		var m *mirror.Mirror
		c := New(func() Look {
			l := Look{Node: "n", State: "running", Ready: true, Taken: time.Now()}
			if m != nil {
				l.Mirrors = append(l.Mirrors, m.Status())
			}
			return l
		})
		opened, err := mirror.Open(t.Context(), mirror.Config{Name: "dr", Source: source, Destination: standby, Store: standby.StateStore(), Sink: mirror.Discard, OnEvent: c.Observe})
		if err != nil {
			t.Fatal(err)
		}
		m = opened
		defer m.Close()
		const (
			rpo, rpoUnknown   = `mirror_rpo_seconds{mirror="dr"}`, `mirror_rpo_unknown{mirror="dr"}`
			silence           = `mirror_source_silence_seconds{mirror="dr"}`
			lag, lagUnknown   = `partition_lag_offsets{mirror="dr",partition="0",topic="orders"}`, `partition_lag_unknown{mirror="dr",partition="0",topic="orders"}`
			mirroring, failed = `mirror_partitions{mirror="dr",state="MIRRORING"}`, `mirror_partitions{mirror="dr",state="STOPPED"}`
			sourceEnd, end    = `partition_source_end_offset{mirror="dr",partition="0",topic="orders"}`, `partition_destination_end_offset{mirror="dr",partition="0",topic="orders"}`
			changes           = `events_total{kind="StateChanged",mirror="dr"}`
		)
		is := func(when, series string, low, high float64) {
			t.Helper()
			if v, there := value(t, c, series); !there || v < low || v > high {
				t.Errorf("%s: %s is %v (there: %t), not from %v to %v", when, series, v, there, low, high)
			}
		}
		absent := func(when string, all ...string) {
			t.Helper()
			for _, series := range all {
				if v, there := value(t, c, series); there {
					t.Errorf("%s: %s is %v, and nobody can know it", when, series, v)
				}
			}
		}
		is("before anything is started", rpoUnknown, 0, 0)
		absent("before anything is started", rpo, silence)
		is("before anything is started", changes, 0, 0)

		source.SetUnreachable(true)
		if _, err := m.Admin().Start(t.Context(), []string{"orders"}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		is("the source was never there", rpoUnknown, 1, 1)
		is("the source was never there", `mirror_copies_of_unknown_age{mirror="dr"}`, 1, 1)
		absent("the source was never there", rpo, lag, sourceEnd)

		source.SetUnreachable(false)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		if err := m.Await(ctx, func(s mirror.Status) bool {
			return len(s.Topics) == 1 && len(s.Topics[0].Partitions) == 1 && s.Topics[0].Partitions[0].LagTime == 0 && s.Topics[0].Partitions[0].LagOffsets == 0 && s.Topics[0].Partitions[0].End == 1
		}); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			series    string
			low, high float64
		}{{rpo, 0, 0}, {rpoUnknown, 0, 0}, {silence, 0, 3}, {lag, 0, 0}, {lagUnknown, 0, 0}, {mirroring, 1, 1}, {sourceEnd, 1, 1}, {end, 1, 1}, {changes, 2, 9}} {
			is("in step", x.series, x.low, x.high)
		}

		source.SetUnreachable(true)
		time.Sleep(5 * time.Minute)
		is("the source is gone", rpo, 290, 310)
		is("the source is gone", silence, 290, 310)
		is("the source is gone", rpoUnknown, 0, 0)
		is("the source is gone", lagUnknown, 1, 1)
		is("the source is gone", sourceEnd, 1, 1)
		absent("the source is gone", lag)

		if _, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		is("failed over", failed, 1, 1)
		is("failed over", rpoUnknown, 0, 0)
		absent("failed over", rpo, silence, lag, lagUnknown)
	})
}
