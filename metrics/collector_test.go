package metrics

import (
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/rehearsal"
	"github.com/clustermirror/clustermirror/statemachine"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew instead of comparing with it")

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// looking is a Collector that is shown l, made at a known moment.
func looking(l Look) *Collector {
	c := New(func() Look { return l })
	c.began = now.Add(-time.Hour)
	return c
}

// copied is a partition that is in step.
func copied(topic string, partition int32, end int64) mirror.PartitionStatus {
	return mirror.PartitionStatus{Mirror: "dr", Topic: topic, Partition: partition, State: statemachine.Mirroring, Want: statemachine.WantMirroring, End: end, Replicated: end,
		SourceEnd: end, SourceSeen: now.Add(-time.Second)}
}

func in(s mirror.Status, partitions ...mirror.PartitionStatus) mirror.Status {
	s.Mirror, s.Taken, s.SourceClusterID, s.DestinationClusterID = "dr", now, "A", "B"
	for _, p := range partitions {
		n := len(s.Topics)
		if n == 0 || s.Topics[n-1].Topic != p.Topic {
			s.Topics = append(s.Topics, mirror.TopicStatus{Topic: p.Topic, MirrorName: "dr"})
			n++
		}
		s.Topics[n-1].Partitions = append(s.Topics[n-1].Partitions, p)
	}
	return s
}

func changed(p mirror.PartitionStatus, f func(*mirror.PartitionStatus)) mirror.PartitionStatus {
	f(&p)
	return p
}

func followed() mirror.MetadataStatus {
	at := mirror.SyncStatus{At: now.Add(-20 * time.Second)}
	return mirror.MetadataStatus{Groups: at, Configs: at, ACLs: at, FollowedGroups: make([]mirror.GroupStatus, 3)}
}

// looks are by the name of their golden file.
func looks() map[string]*Collector {
	running := func(s mirror.Status) *Collector {
		return looking(Look{Node: "mirror-1", State: "running", Ready: true, Mirrors: []mirror.Status{s}, Taken: now, Version: "v1.2.3"})
	}
	unlooked := mirror.MetadataStatus{Groups: mirror.SyncStatus{Err: errors.New("connection refused")}, ACLs: mirror.SyncStatus{Off: "the source has no access rules"}}

	failovers := []mirror.MeasuredFailover{
		{Ended: now.Add(-48 * time.Hour), Took: 900 * time.Millisecond, Partitions: 3, Steps: []mirror.StepTime{{Step: mirror.BeginStep, Took: 900 * time.Millisecond}}},
		{Ended: now.Add(-24 * time.Hour), Took: 500 * time.Millisecond, Partitions: 3, Steps: []mirror.StepTime{{Step: mirror.BeginStep, Took: 200 * time.Millisecond}, {Step: "OPEN_LOG", Took: 300 * time.Millisecond}}},
	}
	fetches := mirror.FetchCounts{ReceivedBytes: 5_000_000, CopiedBytes: 4_900_000, CopiedBatches: 4_321,
		Records: mirror.FetchTimes{Count: 100, Total: 1200 * time.Millisecond}, Empty: mirror.FetchTimes{Count: 7, Total: 3500 * time.Millisecond}, Failed: mirror.FetchTimes{Count: 1, Total: time.Second}}
	for i := range fetches.Records.Within {
		fetches.Records.Within[i] = int64(min(100, 40+30*i))
	}
	inStep := running(in(mirror.Status{Metadata: followed(), Certificates: []mirror.Certificate{{Own: true, Of: "ssl.keystore.location", Ends: now.Add(30 * 24 * time.Hour)},
		{Of: "east-1:9093", Ends: now.Add(90 * 24 * time.Hour)}, {Of: "east-2:9093", Ends: now.Add(-time.Hour)}}, Fetches: fetches, FetchRate: 1 << 20, SharedRate: 4 << 20, HeldBack: 2500 * time.Millisecond, Throttled: 1500 * time.Millisecond, Failovers: failovers}, copied("orders", 0, 1000), changed(copied("orders", 1, 500), func(p *mirror.PartitionStatus) {
		p.Replicated, p.LagOffsets, p.LagTime, p.OffsetBytes = 490, 10, 1500*time.Millisecond, 123.4
		p.InFlight = make([]mirror.Transaction, 2)
	}), copied("payments", 0, 7)))
	inStep.ObserveClients(3)
	inStep.ObserveClients(2)
	inStep.ObserveRedirected(1)
	inStep.ObserveRefused("memory")

	sourceGone := running(in(mirror.Status{Metadata: followed()}, changed(copied("orders", 0, 1000), func(p *mirror.PartitionStatus) {
		p.LagOffsets, p.LagTime, p.SourceSeen = mirror.Unknown, 5*time.Minute, now.Add(-5*time.Minute)
		p.LagUnknown = p.SourceSeen
	})))
	sourceGone.Observe(mirror.SourceTrouble{EventMeta: mirror.EventMeta{Mirror: "dr", Partition: -1}, Broker: -1, Err: errors.New("connection refused")})

	neverSeen := running(in(mirror.Status{Metadata: unlooked}, changed(copied("orders", 0, 0), func(p *mirror.PartitionStatus) {
		p.State, p.LagOffsets, p.LagTime, p.SourceEnd, p.SourceSeen, p.LagUnknown = statemachine.Preparing, mirror.Unknown, mirror.Unknown, mirror.Unknown, time.Time{}, now
	})))

	trouble := running(in(mirror.Status{Metadata: mirror.MetadataStatus{Groups: mirror.SyncStatus{At: now.Add(-20 * time.Minute), Err: errors.New("not allowed"), Skipped: []string{"group billing: it is active"}},
		Configs: mirror.SyncStatus{At: now}, ACLs: mirror.SyncStatus{Off: "off"}}},
		changed(copied("audit", 0, 5), func(p *mirror.PartitionStatus) { p.Halted = true }),
		changed(copied("orders", 0, 1000), func(p *mirror.PartitionStatus) {
			p.State, p.RetryAttempt, p.LagOffsets, p.LagTime, p.LagUnknown = statemachine.Failed, 3, mirror.Unknown, time.Minute, now
		}),
		changed(copied("orders", 1, 1000), func(p *mirror.PartitionStatus) {
			p.State, p.RetryAttempt, p.LagOffsets, p.LagTime, p.LagUnknown = statemachine.Failed, statemachine.NonRetryable, mirror.Unknown, mirror.Unknown, now
			p.NeedsConsent = &mirror.Consent{From: 900, To: 1000}
		}),
		changed(copied("orders", 2, 1000), func(p *mirror.PartitionStatus) { p.LostFrom, p.LostTo, p.DroppedFrom, p.DroppedTo = 100, 150, 90, 100 }),
		changed(copied("payments", 0, 1000), func(p *mirror.PartitionStatus) {
			p.State, p.Want, p.LagOffsets, p.LagTime = statemachine.Stopped, statemachine.WantStopped, mirror.Unknown, mirror.Unknown
		})))
	meta := mirror.EventMeta{Mirror: "dr", Topic: "orders", Partition: 2}
	for _, e := range []mirror.Event{
		mirror.RecordsLost{EventMeta: meta, From: 100, To: 150}, mirror.RecordsLost{EventMeta: meta, From: 10, To: 11}, mirror.RecordsDropped{EventMeta: meta, From: 90, To: 100},
		mirror.StoreTrouble{EventMeta: meta, Err: errors.New("refused")}, mirror.Fenced{EventMeta: mirror.EventMeta{Mirror: "of another time"}},
	} {
		trouble.Observe(e)
	}
	trouble.ObserveDestination("joined", "")
	trouble.ObserveDestination("handed over", "payments")
	trouble.counts.destination("unsafe", "orders", now)
	trouble.ObserveDestination("of a later version", "orders")

	fenced := in(mirror.Status{Fenced: errors.New("fenced")})
	fenced.Topics = []mirror.TopicStatus{{Topic: "absent", MirrorName: "dr", Err: errors.New("unknown topic")}, {Topic: "old", MirrorName: "dr.stopped"}}

	return map[string]*Collector{
		"standby":        looking(Look{Node: "mirror-2", State: "standing by", Taken: now, Version: "v1.2.3"}),
		"in-step":        inStep,
		"source-gone":    sourceGone,
		"never-seen":     neverSeen,
		"trouble":        trouble,
		"fenced-no-copy": looking(Look{Node: "mirror-1", Mirrors: []mirror.Status{fenced, fenced}, Taken: now, Version: "v1.2.3"}),
		"rehearsed": looking(Look{Node: "mirror-1", Taken: now, Version: "v1.2.3", Rehearsals: []Rehearsals{{Mirror: "never"}, {
			Mirror: "dr", Last: &rehearsal.Report{Err: errors.New("denied")}, Good: &rehearsal.Report{Began: now.Add(-time.Hour), Writable: 1500 * time.Millisecond,
				Steps: []rehearsal.StepTime{{Step: rehearsal.Failover, Took: time.Second}, {Step: rehearsal.PlanFailback, Took: 2 * time.Second}}},
		}}}),
		"verified": running(in(mirror.Status{Metadata: followed(), Verification: &mirror.VerificationStatus{Rate: 1 << 20, Interval: 24 * time.Hour, Since: now.Add(-50 * time.Hour), Bytes: 123_456_789,
			LastPass: now.Add(-20 * time.Hour), Oldest: now.Add(-30 * time.Hour), Identical: 7, Partly: 2, NotCompared: 1, Hole: 1, Different: 1, Waits: "cannot be compared: the source does not answer"}}, copied("orders", 0, 1000))),
		"split-brain": func() *Collector {
			s := in(mirror.Status{OldSource: &mirror.OldSource{Looked: now, Returned: now.Add(-time.Minute)}, Metadata: followed()}, changed(copied("orders", 0, 9), func(p *mirror.PartitionStatus) {
				p.State, p.LagOffsets, p.LagTime = statemachine.Stopped, mirror.Unknown, mirror.Unknown
			}))
			s.Topics[0].SplitBrain = []mirror.SplitBrain{{Partition: 0, From: 9, To: 12}, {Partition: 1, From: 1, To: 5}}
			return running(s)
		}(),
		"all-are-stopped": running(in(mirror.Status{Metadata: followed()}, changed(copied("orders", 0, 9), func(p *mirror.PartitionStatus) {
			p.State, p.LagOffsets, p.LagTime = statemachine.Stopped, mirror.Unknown, mirror.Unknown
		}))),
	}
}

var (
	zeroKind = regexp.MustCompile(`(?m)^clustermirror_((destination_)?events_total|mirror_fetch_seconds_(bucket|sum|count)|mirror_(received|copied)_(bytes|batches)_total)\{.* 0\n`)
	told     = regexp.MustCompile(`(?m)^# .*\n`)
)

// exposed is what Prometheus reads.
func exposed(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return strings.NewReplacer(`revision="`+revision(t)+`"`, `revision="R"`, `goversion="`+runtime.Version()+`"`, `goversion="G"`).Replace(w.Body.String())
}

func revision(*testing.T) string { _, r := built(); return r }

func TestExposition(t *testing.T) {
	for name, c := range looks() {
		text := exposed(t, c)
		if name != "in-step" { // one has all of the text
			text = told.ReplaceAllString(zeroKind.ReplaceAllString(text, ""), "")
		}
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s: it is now (go test ./metrics -rewrite writes it)\n%s", file, text)
		}
	}
}

func TestLint(t *testing.T) {
	for name, c := range looks() {
		problems, err := promlint.New(strings.NewReader(exposed(t, c))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", name, p.Metric, p.Text)
		}
	}
}

// Unknown has no number: neither a series of its own nor −1 anywhere.
func TestUnknownIsNoNumber(t *testing.T) {
	negative := regexp.MustCompile(`(?m)^[^#].* -\d`)
	for name, c := range looks() {
		if found := negative.FindString(exposed(t, c)); found != "" {
			t.Errorf("%s: %s", name, found)
		}
	}
	text := exposed(t, looks()["never-seen"])
	for _, absent := range []string{"mirror_rpo_seconds", "mirror_source_silence_seconds", "partition_source_end_offset", "partition_lag_offsets", "partition_lag_seconds", `mirror_sync_age_seconds{mirror="dr",part="groups"}`} {
		if strings.Contains(text, "\nclustermirror_"+absent) {
			t.Errorf("%s is there, though nobody knows it", absent)
		}
	}
	for _, there := range []string{`mirror_rpo_unknown{mirror="dr"} 1`, `mirror_source_silence_unknown{mirror="dr"} 1`, `mirror_lag_unknown_partitions{mirror="dr"} 1`,
		`partition_lag_unknown{mirror="dr",partition="0",topic="orders"} 1`, `mirror_sync_unknown{mirror="dr",part="groups"} 1`} {
		if !strings.Contains(ofDestination.ReplaceAllString(text, ""), "\nclustermirror_"+there+"\n") {
			t.Errorf("%s is missing", there)
		}
	}
}

// One partition of which nothing is known makes what is known of the mirror unknown.
func TestOneUnknownPartitionMakesTheMirrorUnknown(t *testing.T) {
	unknown := changed(copied("orders", 1, 5), func(p *mirror.PartitionStatus) { p.LagTime = mirror.Unknown })
	text := exposed(t, looking(Look{Node: "n", Mirrors: []mirror.Status{in(mirror.Status{}, copied("orders", 0, 5), unknown)}}))
	if strings.Contains(text, "\nclustermirror_mirror_rpo_seconds") || !strings.Contains(text, "\nclustermirror_mirror_rpo_unknown{destination_cluster_id=\"B\",mirror=\"dr\"} 1\n") {
		t.Errorf("of two copies one is of unknown age:\n%s", text)
	}
}

// A node that stands by serves no mirror, and says all the same which cluster it belongs to: what it asked counts, whatever mirrors say.
func TestTheDestinationIsKnownBeforeMirrorsRun(t *testing.T) {
	text := exposed(t, looking(Look{Node: "9999", State: "standing by", DestinationClusterID: "B"}))
	if !strings.Contains(text, `clustermirror_node_state{destination_cluster_id="B",node="9999",state="standing by"} 1`) {
		t.Error(text)
	}
}

// Of a mirror whose topics are all stopped nothing is followed: that the last look grows old is no news after a failover.
func TestNothingIsFollowedOnceAllIsStopped(t *testing.T) {
	stopped := func(p *mirror.PartitionStatus) { p.State = statemachine.Stopped }
	for all, want := range map[bool]int{true: 0, false: 3} {
		partitions := []mirror.PartitionStatus{changed(copied("orders", 0, 5), stopped), copied("orders", 1, 5)}
		if all {
			partitions[1] = changed(partitions[1], stopped)
		}
		for _, m := range []mirror.MetadataStatus{followed(), {}} { // followed once, and never
			text := exposed(t, looking(Look{Node: "n", Mirrors: []mirror.Status{in(mirror.Status{Metadata: m}, partitions...)}}))
			got := 0
			for _, line := range strings.Split(text, "\n") {
				if strings.HasPrefix(line, "clustermirror_mirror_sync_age_seconds{") || strings.HasPrefix(line, "clustermirror_mirror_sync_unknown{") && strings.HasSuffix(line, " 1") {
					got++
				}
			}
			if got != want {
				t.Errorf("all are stopped: %t; %d parts are followed or unknown, not %d\n%s", all, got, want, text)
			}
		}
	}
}

func TestLabelsThatAreNoText(t *testing.T) {
	c := looking(Look{Node: "\xff", State: "\xfe", Mirrors: []mirror.Status{{Mirror: "m\xff"}}})
	c.Observe(mirror.NothingLeft{EventMeta: mirror.EventMeta{Mirror: "m\xff"}})
	c.ObserveDestination("unsafe", "t\xff")
	if text := exposed(t, c); !strings.Contains(text, `mirror="m�"`) {
		t.Errorf("%s", text)
	}
}

// many is a mirror of topics of ten partitions each.
func many(partitions int) Look {
	var all []mirror.PartitionStatus
	for n := range partitions {
		all = append(all, copied(fmt.Sprintf("topic-%04d", n/10), int32(n%10), int64(n)))
	}
	return Look{Node: "mirror-1", State: "running", Ready: true, Mirrors: []mirror.Status{in(mirror.Status{Metadata: followed()}, all...)}, Taken: now}
}

// What the package says of series.
func TestSeriesOfManyPartitions(t *testing.T) {
	count := func(partitions int) int {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(looking(many(partitions)))
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				n++
				if h := m.GetHistogram(); h != nil {
					n += len(h.GetBucket()) + 2 // with that of all, sum and count
				}
			}
		}
		return n
	}
	none, all := count(0), count(5000)
	t.Logf("table: %d series with 5,000 partitions that are mirrored, %d without any", all, none)
	if per := all - none; per < 5000*seriesPerPartition || per > 5000*seriesPerPartition+10 {
		t.Errorf("5,000 partitions are %d series, not %d each", per, seriesPerPartition)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d series for each partition", seriesPerPartition); !strings.Contains(string(doc), want) || !strings.Contains(string(doc), "about 35,100 with 5,000") || (all+50)/100 != 351 {
		t.Errorf("doc.go does not say %q, or the %d of 5,000 partitions", want, all)
	}
}

// seriesPerPartition is how many series a partition has that is mirrored.
const seriesPerPartition = 7

// A collection costs so much for each series, whatever the number of partitions.
func TestCostOfACollection(t *testing.T) {
	cost := func(partitions int) (allocs float64, series int) {
		c := looking(many(partitions))
		to, counted := make(chan prometheus.Metric), make(chan int)
		go func() {
			n := 0
			for range to {
				n++
			}
			counted <- n
		}()
		const runs = 3
		allocs = testing.AllocsPerRun(runs, func() { c.Collect(to) })
		close(to)
		return allocs, <-counted / (runs + 1)
	}
	for _, partitions := range []int{50, 5000} {
		allocs, series := cost(partitions)
		t.Logf("table: %d partitions: %.0f allocations for %d series", partitions, allocs, series)
		if most := 16 * float64(series); allocs > most {
			t.Errorf("%d partitions: %.0f allocations, more than %.0f", partitions, allocs, most)
		}
	}
}

func TestObservedFromManySides(t *testing.T) {
	c := looking(many(100))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				c.Observe(mirror.RecordsLost{EventMeta: mirror.EventMeta{Mirror: "dr"}, From: 1, To: 2})
				c.ObserveDestination("unsafe", "orders")
			}
		})
		all.Go(func() {
			for range 5 {
				exposed(t, c)
			}
		})
	}
	all.Wait()
	if text := exposed(t, c); !strings.Contains(text, "\nclustermirror_mirror_lost_offsets_total{destination_cluster_id=\"B\",mirror=\"dr\"} 800\n") || !strings.Contains(text, `{destination_cluster_id="B",kind="unsafe"} 800`) {
		t.Errorf("not 800 of each:\n%s", text)
	}
}
