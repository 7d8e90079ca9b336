package chaos_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/clienthistory"
)

// trimming is a source's log start that rose: by retention or by DeleteRecords.
type trimming struct {
	at    clienthistory.Partition
	start int64 // what is below it is gone
	time  time.Time
}

// permit is what a fault allows to be dropped from the copy, once.
type permit struct {
	at    clienthistory.Partition
	taken clienthistory.Range
	since time.Time
}

// clocks is how much later than the mirror hears of it a broker may say that it has raised a log's start: it writes its log behind the deed, and may have to wait for a processor in between.
const clocks = 5 * time.Second

func where(x told) clienthistory.Partition {
	return clienthistory.Partition{Topic: x.Topic, Partition: x.Partition}
}

// unexplained are the drops and losses that the mirror has told and that no fault explains. One of them explains no second one.
//
// A loss is explained where the source's log had begun at its end, or beyond it, before it was told. A drop is explained by a permit, or as the start anew behind a loss
// (decision 16): the loss is explained, was told before, and begins where the drop ends.
func (e *evidence) unexplained() (none []told) {
	permits := slices.Clone(e.permits)
	losses := map[clienthistory.Partition][]told{} // explained, and no drop has used them
	for _, x := range e.events {
		at := where(x)
		switch x.Kind {
		case "RecordsLost":
			if !slices.ContainsFunc(e.trimmings, func(t trimming) bool {
				return t.at == at && x.From < x.To && x.To <= t.start && t.time.Before(x.Time.Add(clocks))
			}) {
				none = append(none, x)
				continue
			}
			losses[at] = append(losses[at], x)
		case "RecordsDropped":
			if i := slices.IndexFunc(permits, func(p permit) bool {
				return p.at == at && p.taken.From <= x.From && x.To <= p.taken.To && p.since.Before(x.Time)
			}); i >= 0 {
				permits = slices.Delete(permits, i, i+1)
				continue
			}
			i := slices.IndexFunc(losses[at], func(l told) bool { return l.From == x.To })
			if i < 0 {
				none = append(none, x)
				continue
			}
			losses[at] = slices.Delete(losses[at], i, i+1)
		}
	}
	return none
}

var trimmed = regexp.MustCompile(`(?m)^(\d\d:\d\d:\d\d\.\d{3}) .*\[UnifiedLog partition=(\S+)-(\d+), .*Incremented log start offset to (\d+) due to `)

// readTrimmings reads what a broker says that it has deleted. Its log tells no days; it begins about when the run began.
func readTrimmings(log string, began time.Time) (all []trimming) {
	began = began.Local()
	midnight := time.Date(began.Year(), began.Month(), began.Day(), 0, 0, 0, 0, time.Local)
	last := began
	for _, m := range trimmed.FindAllStringSubmatch(log, -1) {
		clock, err := time.Parse("15:04:05.000", m[1])
		if err != nil {
			continue
		}
		at := midnight.Add(clock.Sub(clock.Truncate(24 * time.Hour)))
		for at.Before(last.Add(-12 * time.Hour)) {
			at = at.Add(24 * time.Hour)
		}
		last = at
		partition, _ := strconv.ParseInt(m[3], 10, 32)
		start, _ := strconv.ParseInt(m[4], 10, 64)
		all = append(all, trimming{clienthistory.Partition{Topic: m[2], Partition: int32(partition)}, start, at})
	}
	return all
}

// TestABrokersTrimmingsAreRead: the lines as Apache Kafka 4.3.1 writes them, over midnight too.
func TestABrokersTrimmingsAreRead(t *testing.T) {
	const log = `23:59:59.950 INFO  UnifiedLog [UnifiedLog partition=short-0, dir=/x/broker-3/data] Incremented log start offset to 4 due to segment deletion
23:59:59.960 INFO  UnifiedLog [UnifiedLog partition=short-0, dir=/x/broker-3/data] Deleting segments due to log start offset 4 breach: LogSegment(baseOffset=0, size=54)
00:00:01.651 INFO  UnifiedLog [UnifiedLog partition=pay-ments-1, dir=/x/broker-3/data] Incremented log start offset to 12 due to client delete records request
`
	began := time.Date(2026, 11, 30, 23, 58, 0, 0, time.Local)
	want := []trimming{
		{clienthistory.Partition{Topic: "short"}, 4, began.Add(2*time.Minute - 50*time.Millisecond)},
		{clienthistory.Partition{Topic: "pay-ments", Partition: 1}, 12, began.Add(2*time.Minute + 1651*time.Millisecond)},
	}
	got := readTrimmings(log, began)
	if !slices.EqualFunc(got, want, func(a, b trimming) bool { return a.at == b.at && a.start == b.start && a.time.Equal(b.time) }) {
		t.Errorf("it reads %v of\n%s", got, strings.TrimSpace(log))
	}
}
