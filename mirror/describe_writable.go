package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// gate is what the state store says of who may write a log here.
type gate uint8

const (
	gateAsFound gate = iota // as the failback found it, and that was open for clients; it may be closed by now
	gateClosed
	gateOpen
)

func gateOf(s *statemachine.PartitionState) gate {
	switch s.State {
	case statemachine.Stopped:
		return gateOpen
	case statemachine.Unknown:
		return gateAsFound
	case statemachine.Preparing, statemachine.Stopping, statemachine.Failed:
		if s.FoundOpen || !s.Mirrored && !s.WasOpen { // neither: it was not asked yet
			return gateAsFound
		}
	}
	return gateClosed
}

// writable says who may write the topics of the failbacks that are under way: exactly one side, or neither, from the moment at which the logs here are closed. It names them where the mirror has others: of
// those nothing is said here, and one that is STOPPED is open.
func (d *Description) writable() string {
	var here, found, all int
	var answered time.Time
	var topics []string
	for _, t := range d.Topics {
		if !d.failingBack(t.Topic) {
			continue
		}
		topics = append(topics, t.Topic)
		if len(t.Partitions) == 0 {
			found, all = found+1, all+1
		}
		for _, p := range t.Partitions {
			all++
			switch p.gate {
			case gateOpen:
				here++
			case gateAsFound:
				found++
			}
			if p.SourceSeen.After(answered) && !ahead(p.SourceSeen, d.Taken) {
				answered = p.SourceSeen
			}
		}
	}
	head := "WRITABLE: "
	if len(topics) < len(d.Topics) {
		head = fmt.Sprintf("WRITABLE (%s): ", OneLine(few(topics)))
	}
	seen := "which has not answered here yet"
	if !answered.IsZero() {
		seen = "which answered " + age(d.Taken.Sub(answered))
	}
	source := fmt.Sprintf("the source %s, %s", cmp.Or(d.Clusters.SourceID, "of this mirror"), seen)
	open := fmt.Sprintf("here, %d of %s so far", here, plural(all, "partition", "partitions"))
	if found > 0 {
		open += fmt.Sprintf(", %d not known", found)
	}
	fenced := d.Promotion != nil && d.Promotion.fenced() && !slices.ContainsFunc(topics, func(topic string) bool { return !slices.Contains(d.Promotion.Topics, topic) })
	switch {
	case here+found == 0 && fenced:
		return fmt.Sprintf("%sneither side; closed here, and fenced at %s", head, source)
	case here+found == 0:
		return fmt.Sprintf("%sonly %s; closed here", head, source)
	case fenced:
		return fmt.Sprintf("%s%s; fenced at %s", head, open, source)
	case here > 0 && d.opening():
		return fmt.Sprintf("%s%s; this mirror has not fenced %s", head, open, source)
	}
	return fmt.Sprintf("%s%s, and here as before the failback: %d of %s not known to be closed yet", head, source, here+found, plural(all, "partition", "partitions"))
}

func (d *Description) failingBack(topic string) bool {
	return slices.ContainsFunc(d.Failbacks, func(f Failback) bool { return f.has(topic) })
}

// opening says that topics of a failback are wanted stopped.
func (d *Description) opening() bool {
	return slices.ContainsFunc(d.Topics, func(t DescribedTopic) bool { return d.failingBack(t.Topic) && t.want == statemachine.WantStopped })
}

// fenced says that the source was seen to be quiet behind a fence that stands.
func (p *Promotion) fenced() bool {
	return p.Fence != "" && (p.Step == PromotionDraining || p.Step == PromotionTransactions || p.Step == PromotionStopping)
}
