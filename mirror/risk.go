package mirror

import (
	"fmt"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// AtRisk is what would be missing, or aborted, after a failover now, as far as it is known without asking anybody: of many partitions the oldest copy, and sums.
type AtRisk struct {
	Age              time.Duration  // since the oldest copy last held everything then known at the source; Unknown if there is none, or it is not known of any
	Worst            TopicPartition // whose copy that is
	Offsets          int64          // that the source has and copies do not hold
	Bytes            int64          // of those, about: as many as were copied last have an offset on the average
	OpenTransactions int            // of the copies, which a stop aborts
	Partitions       int            // that are copies
	// Partitions of which Age, Offsets or Bytes is not known: the sums are without them.
	UnknownAge, UnknownOffsets, UnknownBytes int
	Seen                                     time.Time // the oldest moment at which a source end was measured that Offsets is counted from; zero: none was
}

// AtRisk is what a failover of all partitions that are copies would lose now.
func (s Status) AtRisk() AtRisk {
	risk := AtRisk{Age: Unknown}
	for _, t := range s.Topics {
		for i := range t.Partitions {
			risk.add(&t.Partitions[i])
		}
	}
	return risk
}

func (a *AtRisk) add(p *PartitionStatus) {
	if p.Halted || p.State == statemachine.Stopped || p.State == statemachine.Stopping {
		return
	}
	a.Partitions++
	a.OpenTransactions += len(p.InFlight)
	if p.LagTime > a.Age {
		a.Age, a.Worst = p.LagTime, TopicPartition{p.Topic, p.Partition}
	}
	if p.LagTime == Unknown {
		a.UnknownAge++
	}
	if p.LagOffsets == Unknown {
		a.UnknownOffsets++
	} else {
		a.Offsets += p.LagOffsets
		if a.Seen.IsZero() || p.SourceSeen.Before(a.Seen) {
			a.Seen = p.SourceSeen
		}
	}
	if n := p.LagBytes(); n == Unknown {
		a.UnknownBytes++
	} else {
		a.Bytes += n
	}
}

// meanSize is how many bytes an offset has on the average, in what was copied last.
type meanSize struct{ bytes, offsets float64 }

// meanWindow is over about how many offsets.
const meanWindow = 10_000

func (m *meanSize) add(bytes, offsets int64) {
	if offsets <= 0 {
		return
	}
	keep := max(0, 1-float64(offsets)/meanWindow)
	m.bytes, m.offsets = m.bytes*keep+float64(bytes), m.offsets*keep+float64(offsets)
}

// mean is bytes an offset, 0 if nothing was copied.
func (m meanSize) mean() float64 {
	if m.offsets == 0 {
		return 0
	}
	return m.bytes / m.offsets
}

// bytesOf is about how many bytes so many offsets have, Unknown if either is not known.
func bytesOf(offsets int64, mean float64) int64 {
	switch {
	case offsets <= 0:
		return offsets // none, or Unknown
	case mean == 0:
		return Unknown
	}
	return int64(mean * float64(offsets))
}

// riskLine is what a description says of all its partitions.
func (d Description) riskLine() string {
	var seen time.Time
	offsets, mean := int64(0), 0.0
	copies, unknown, open := 0, 0, 0
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			if p.State == statemachine.Stopped.String() {
				continue
			}
			copies++
			open += p.OpenTransactions
			n, known := p.Lag.Offsets.Value()
			if !known || p.Lag.AtLeast {
				unknown++
			}
			if !known {
				continue
			}
			offsets += n
			if seen.IsZero() || p.SourceSeen.Before(seen) {
				seen = p.SourceSeen
			}
		}
	}
	if copies == 0 {
		return ""
	}
	for _, n := range d.Nodes {
		mean = max(mean, n.OffsetBytes)
	}
	var words []string
	if unknown > 0 {
		words = append(words, fmt.Sprintf("unknown in %s", plural(unknown, "partition", "partitions")))
	}
	if unknown < copies || offsets > 0 {
		known := plural(int(offsets), "offset", "offsets")
		if size := bytesOf(offsets, mean); size != Unknown {
			known += fmt.Sprintf(", about %s", plural(int(size), "byte", "bytes"))
		}
		if unknown > 0 {
			known = "at least " + known
		}
		words = append(words, known)
	}
	words = append(words, plural(open, "open transaction", "open transactions"))
	line := "AT RISK: " + strings.Join(words, "; ")
	switch {
	case ahead(seen, d.Taken):
		line += "; source ends seen by a clock that is ahead"
	case !seen.IsZero():
		line += "; the oldest source end seen " + age(d.Taken.Sub(seen))
	}
	return line
}

// Prediction is what a failover is expected to take: the longest of those that processes of this mirror have measured; nil: none was.
func (d Description) Prediction() *MeasuredFailover {
	var all []MeasuredFailover
	for _, n := range d.Nodes {
		all = append(all, n.Failovers...)
	}
	return predicted(all)
}

func predicted(measured []MeasuredFailover) *MeasuredFailover {
	if longest, ok := PredictFailover(measured); ok {
		return &longest
	}
	return nil
}

// predictionLine says what a failover is expected to take.
func predictionLine(longest *MeasuredFailover, now time.Time) string {
	if longest == nil {
		return "FAILOVER TIME: unknown, none was measured"
	}
	return fmt.Sprintf("FAILOVER TIME: %s, the longest that was measured (%s, %s): %s", seconds(longest.Took), plural(longest.Partitions, "partition", "partitions"), ageAt(longest.Ended, now), stepsText(longest.Steps))
}

// ageAt is how long before now something was, unless the clock that told it is ahead of this one.
func ageAt(at, now time.Time) string {
	if ahead(at, now) {
		return "by a clock that is ahead"
	}
	return age(now.Sub(at))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
