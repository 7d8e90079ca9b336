package statuspage

import (
	"cmp"
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// rank is how badly a partition needs somebody. The lower, the worse.
type rank int

const (
	needsPerson rank = iota // nothing changes by itself
	failed
	halted
	elsewhere // not in the state that is wanted
	unmeasured
	hindered
	lost
	well
)

func rankOf(p *mirror.PartitionStatus) rank {
	switch {
	case p.NeedsConsent != nil, p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable:
		return needsPerson
	case p.State == statemachine.Failed:
		return failed
	case p.Halted:
		return halted
	case p.State.String() != p.Want.String():
		return elsewhere
	case p.State == statemachine.Mirroring && !p.LagUnknown.IsZero():
		return unmeasured
	case p.Reason != "":
		return hindered
	case p.LostTo > p.LostFrom:
		return lost
	}
	return well
}

func (r rank) level() level {
	switch {
	case r <= halted:
		return bad
	case r < well:
		return warning
	}
	return good
}

// worstFirst orders partitions: by rank, then those whose copy is older, then by name.
func worstFirst(a, b *mirror.PartitionStatus) int {
	oldest := func(p *mirror.PartitionStatus) time.Duration {
		switch {
		case over(p):
			return 0
		case p.LagTime == mirror.Unknown:
			return 1<<63 - 1 // nobody knows a worse one
		}
		return p.LagTime
	}
	return cmp.Or(cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(oldest(b), oldest(a)), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// why is what is wrong with a partition, in words that others may have too; "" if all is well.
func why(p *mirror.PartitionStatus) string {
	s := p.Reason
	add := func(format string, args ...any) {
		if s != "" {
			s += "; "
		}
		s += fmt.Sprintf(format, args...)
	}
	if p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable {
		add("it is not tried again by itself: mend that, then Recover")
	}
	if p.NeedsConsent != nil {
		add("it waits for consent to drop records of the copy")
	}
	switch {
	case p.Halted:
		add("another process has it, this one serves it no more")
	case p.State != statemachine.Failed && p.State.String() != p.Want.String():
		add("it is to be %s", p.Want)
	}
	if p.State == statemachine.Mirroring && !p.LagUnknown.IsZero() {
		if p.SourceSeen.IsZero() {
			add("its source has never said where it ends")
		} else {
			add("its source does not say any more where it ends")
		}
	}
	if p.LostTo > p.LostFrom {
		add("records were gone at the source before they could be copied")
	}
	return s
}

// more is what only this partition has, behind why.
func more(p *mirror.PartitionStatus, now time.Time) string {
	s := ""
	add := func(format string, args ...any) { s += "; " + fmt.Sprintf(format, args...) }
	if c := p.NeedsConsent; c != nil {
		add("these are [%d,%d)", c.From, c.To)
	}
	if p.State == statemachine.Failed && p.RetryAttempt > 0 {
		again := "it is tried again"
		if p.NextRetry.After(now) {
			again = "the next one is in " + span(p.NextRetry.Sub(now))
		}
		add("attempt %d has failed, %s", p.RetryAttempt, again)
	}
	if p.Step != "" {
		add("it is at %s", p.Step)
	}
	if p.LostTo > p.LostFrom {
		add("the last of them are [%d,%d)", p.LostFrom, p.LostTo)
	}
	return s
}

// level is how bad something is, in three steps.
type level string

const (
	bad     level = "bad"
	warning level = "warning"
	good    level = "good"
)

func (l level) worse(than level) bool { return order[l] < order[than] }

var order = map[level]int{bad: 0, warning: 1, good: 2}

func worst(a, b level) level {
	if b.worse(a) {
		return b
	}
	return a
}
