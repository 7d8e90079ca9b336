package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

const reportedFor = 10 * time.Minute

// reportLife feeds ten minutes of reports, one every five seconds, of many partitions to the rule, and counts what it has written. At each report it checks what others would read.
func reportLife(t *testing.T, partitions int, step func(p *PartitionReport, now time.Time)) (written int) {
	t.Helper()
	told, shown := toldReports{}, toldReports{}
	all := make([]PartitionReport, partitions)
	for i := range all {
		all[i] = PartitionReport{Mirror: "m", Topic: "t", Partition: int32(i), State: statemachine.Mirroring, Live: true, SourceEnd: 100, DestinationEnd: 100}
	}
	for now := firstTime; now.Before(firstTime.Add(reportedFor)); now = now.Add(reportInterval) {
		node := NodeReport{Seen: now}
		for i := range all {
			all[i].At, all[i].SourceSeen, all[i].InStep = now, now, now
			step(&all[i], now)
		}
		fresh := told.due(&node, all)
		told.note(fresh)
		shown.note(fresh)
		written += len(fresh)
		for i, p := range all {
			s := shown[TopicPartition{p.Topic, p.Partition}]
			seen := s.SourceSeen
			if s.Live && node.Measured.After(seen) {
				seen = node.Measured
				if s.SourceEnd != p.SourceEnd && !seen.Before(now) {
					t.Fatalf("at %s partition %d is said to end at %d as of now, and ends at %d", now, i, s.SourceEnd, p.SourceEnd)
				}
			}
			if s.State != p.State || s.Reason != p.Reason || s.Live != p.Live {
				t.Fatalf("at %s partition %d is shown as %+v, and is %+v", now, i, s, p)
			}
			if age := now.Sub(seen); p.Live && age > 10*time.Second {
				t.Fatalf("at %s what is shown of partition %d is %s old", now, i, age)
			}
		}
	}
	return written
}

func TestReportsOfManyPartitionsAreFew(t *testing.T) {
	const many, steps = 5000, int(reportedFor / reportInterval)
	for what, tc := range map[string]struct {
		step func(p *PartitionReport, now time.Time)
		most int
	}{
		"idle": {func(*PartitionReport, time.Time) {}, many},
		"a tenth is busy": {func(p *PartitionReport, now time.Time) {
			if p.Partition%10 == 0 {
				p.SourceEnd++
				p.DestinationEnd++
			}
		}, many + many/10*steps/2},
		"one fails and recovers each minute": {func(p *PartitionReport, now time.Time) {
			p.State, p.Live = statemachine.Mirroring, true
			if p.Partition == 7 && now.Second() < 9 {
				p.State, p.Live = statemachine.Failed, false
			}
		}, many + 2*10},
		"paused, and looked at again and again": {func(p *PartitionReport, now time.Time) { p.State, p.Live = statemachine.Paused, false }, many * 2},
		"open for clients, who write": {func(p *PartitionReport, now time.Time) {
			p.State, p.Live, p.SourceSeen = statemachine.Stopped, false, firstTime
			p.DestinationEnd++
		}, many},
		"transactions come and go": {func(p *PartitionReport, now time.Time) {
			if p.Partition == 3 {
				p.OpenTransactions = 1 - p.OpenTransactions
			}
		}, many + steps/2},
	} {
		if got := reportLife(t, many, tc.step); got < many || got > tc.most {
			t.Errorf("%s: %d records of partitions in ten minutes, want %d at most", what, got, tc.most)
		}
	}
}

// What holds of all live partitions is said once, and is never newer than the oldest of them.
func TestMeasuredIsTheOldestOfWhatIsLive(t *testing.T) {
	at := func(partition int32, seconds int, live bool, end int64) PartitionReport {
		return PartitionReport{Topic: "t", Partition: partition, State: statemachine.Mirroring, Live: live, SourceEnd: end, At: firstTime.Add(time.Minute), SourceSeen: firstTime.Add(time.Duration(seconds) * time.Second)}
	}
	told := toldReports{}
	node := NodeReport{}
	all := []PartitionReport{at(0, 50, true, 1), at(1, 40, true, 1), at(2, 10, false, 1)}
	told.note(told.due(&node, all))
	if want := firstTime.Add(40 * time.Second); !node.Measured.Equal(want) {
		t.Errorf("%s, want %s", node.Measured, want)
	}
	all = []PartitionReport{at(0, 58, true, 1), at(1, 59, true, 2), at(2, 11, false, 1)}
	if fresh := told.due(&node, all); len(fresh) > 0 || !node.Measured.Equal(firstTime.Add(40*time.Second)) {
		t.Errorf("%d due, and the end that has moved is said to be right as of %s", len(fresh), node.Measured)
	}
	if fresh := told.due(&node, []PartitionReport{at(2, 11, false, 1)}); len(fresh) > 0 || !node.Measured.IsZero() {
		t.Errorf("nothing is live, and it is measured at %s", node.Measured)
	}
}

func TestReportIntervalIsTheShorterOne(t *testing.T) {
	for refresh, want := range map[time.Duration]time.Duration{time.Second: time.Second, 5 * time.Second: 5 * time.Second, 10 * time.Minute: 5 * time.Second} {
		if got := (&Mirror{cfg: Config{RefreshInterval: refresh}}).reportInterval(); got != want {
			t.Errorf("%s: %s", fmt.Sprint(refresh), got)
		}
	}
	if got := (&NodeReport{Interval: reportInterval}).patience(); got != 15*time.Second {
		t.Errorf("a process is believed dead after %s", got)
	}
}

// A partition that the process serves no more is not said to be live for ever: that is said once, and not in place of what another process says of it.
func TestAPartitionThatWasLeftIsNotLive(t *testing.T) {
	live := PartitionReport{Mirror: "m", Topic: "t", Owner: "a", State: statemachine.Mirroring, Live: true, At: firstTime}
	left := live
	left.Live, left.left, left.Reason, left.At = false, true, "not served by this process any more", firstTime.Add(time.Second)
	told := toldReports{}
	if fresh := told.due(&NodeReport{}, []PartitionReport{left}); len(fresh) > 0 {
		t.Errorf("told of one that was never reported: %+v", fresh)
	}
	told.note(told.due(&NodeReport{}, []PartitionReport{live}))
	fresh := told.due(&NodeReport{}, []PartitionReport{left})
	told.note(fresh)
	if left.At = left.At.Add(time.Hour); len(fresh) != 1 || len(told.due(&NodeReport{}, []PartitionReport{left})) > 0 {
		t.Errorf("told %d times", len(fresh))
	}

	for _, first := range []string{"nobody else", "another one before", "another one since"} {
		log := keyedlog.NewMemory()
		c := NewControl(log)
		a, b := mustOpenReporter(t, c, "a"), mustOpenReporter(t, NewControl(log.Again()), "b")
		other := live
		other.Owner, other.Reason = "b", "it is here"
		if first == "another one before" {
			mustReport(t, b, NodeReport{Owner: "b", Mirror: "m"}, other)
		}
		mustReport(t, a, NodeReport{Owner: "a", Mirror: "m"}, live)
		if first == "another one since" {
			mustReport(t, b, NodeReport{Owner: "b", Mirror: "m"}, other)
		}
		mustReport(t, a, NodeReport{Owner: "a", Mirror: "m"}, left)
		got := mustReports(t, c).Partitions
		if want := first != "another one since"; len(got) != 1 || (got[0].Owner == "a") != want || want && (got[0].Live || got[0].Reason != left.Reason) {
			t.Errorf("%s: %+v", first, got)
		}
	}
}
