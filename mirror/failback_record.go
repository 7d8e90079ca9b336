package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// FailbackStep is how far a failback is.
type FailbackStep string

// The steps, in their order.
const (
	// FailbackClosing: consent is recorded, and logs here are compared and closed for clients. No byte of them has changed. AbortFailback gives them back as they were found.
	FailbackClosing FailbackStep = "closing"
	// FailbackCopying: the point of no return. It is recorded before the first log here is cut or written, whichever process does it. AbortFailback leaves closed copies.
	FailbackCopying FailbackStep = "copying"
)

// Failback is a failback that is under way, as it is recorded: with the consent to it, so that whoever comes after a crash can go on or take it back. One plan is one failback: its topics pass the point of
// no return together. It is over when its topics are stopped here, or are in no mirror or another one.
type Failback struct {
	Mirror string
	Plan   string   // FailbackPlan.Hash, "" for consents that were given to a Start
	Topics []string // by name
	Step   FailbackStep
	Since  time.Time // of Step
	Began  time.Time
	// Dropped is what may be given up here, at most: what is cut of it is in Config.Sink of the process that cut it. Only the first thousand ranges are kept, MoreDropped counts the others.
	Dropped     []FailbackRange
	MoreDropped int
}

// failbackRanges is how many ranges the record of a failback names: it is one record, and storage bounds those.
const failbackRanges = 1000

// FailbackRange is what one partition may give up: [From, To).
type FailbackRange struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

type failbackValue struct {
	Version int             `json:"version"`
	Topics  []string        `json:"topics"`
	Step    FailbackStep    `json:"step"`
	Since   time.Time       `json:"since,omitzero"`
	Began   time.Time       `json:"began,omitzero"`
	Dropped []FailbackRange `json:"dropped,omitempty"`
	More    int             `json:"moreDropped,omitempty"`
}

func (f *Failback) value() failbackValue {
	return failbackValue{controlVersion, f.Topics, f.Step, f.Since, f.Began, f.Dropped, f.MoreDropped}
}

func (v failbackValue) failback(mirror, plan string) Failback {
	return Failback{mirror, plan, v.Topics, v.Step, v.Since, v.Began, v.Dropped, v.More}
}

// store makes it what comes back from its record.
func (f *Failback) store() {
	f.Since, f.Began, f.Step = storedTime(f.Since), storedTime(f.Began), FailbackStep(validText(string(f.Step)))
	slices.Sort(f.Topics)
	f.Topics = slices.Compact(f.Topics)
	slices.SortFunc(f.Dropped, func(a, b FailbackRange) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.From, b.From))
	})
	f.Dropped = slices.Compact(f.Dropped)
	if more := len(f.Dropped) - failbackRanges; more > 0 {
		f.Dropped, f.MoreDropped = f.Dropped[:failbackRanges:failbackRanges], f.MoreDropped+more
	}
	if len(f.Dropped) == 0 {
		f.Dropped = nil
	}
}

func compareFailbacks(a, b Failback) int {
	return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Plan, b.Plan))
}

// String is one range for a person: orders-0 5..7.
func (r FailbackRange) String() string {
	return fmt.Sprintf("%s-%d %d..%d", r.Topic, r.Partition, r.From, r.To-1)
}

func (f *Failback) has(topic string) bool { return slices.Contains(f.Topics, topic) }

// failbackOf returns the failback that a topic of a mirror is in, whether or not it is over.
func (s *ControlState) failbackOf(mirror, topic string) (f Failback, ok bool) {
	i := slices.IndexFunc(s.Failbacks, func(f Failback) bool { return f.Mirror == mirror && f.has(topic) })
	if i < 0 {
		return Failback{}, false
	}
	return s.Failbacks[i], true
}

// underWay are the failbacks of a mirror that are not over. Topics of them that are stopped are left out, but for those of which opening says that they are not open yet; nil: all are.
func (s *ControlState) underWay(mirror string, opening func(topic string) bool) (all []Failback) {
	for _, f := range s.Failbacks {
		if f.Mirror != mirror {
			continue
		}
		f.Topics = slices.DeleteFunc(slices.Clone(f.Topics), func(topic string) bool {
			w, ok := s.Topic(topic)
			owner, _, err := w.Wish()
			return !ok || err != nil || owner != mirror || stopped(w.MirrorName) && (opening == nil || !opening(topic))
		})
		if len(f.Topics) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// passNoReturn notes that the failback which a topic of a mirror is in is behind the point of no return, from now on if it was not.
func (s *ControlState) passNoReturn(mirror, topic string, now time.Time) {
	for i := range s.Failbacks {
		if f := &s.Failbacks[i]; f.Mirror == mirror && f.Step == FailbackClosing && f.has(topic) {
			f.Step, f.Since = FailbackCopying, storedTime(now)
		}
	}
}

// leaveFailback takes a topic out of whatever failback it is in: it is begun anew, or by another mirror.
func (s *ControlState) leaveFailback(topic string) {
	for i := range s.Failbacks {
		f := &s.Failbacks[i]
		f.Topics = slices.DeleteFunc(slices.Clone(f.Topics), func(t string) bool { return t == topic })
		f.Dropped = slices.DeleteFunc(slices.Clone(f.Dropped), func(r FailbackRange) bool { return r.Topic == topic })
	}
	s.Failbacks = slices.DeleteFunc(s.Failbacks, func(f Failback) bool { return len(f.Topics) == 0 })
}

// beginFailback records a failback. What is recorded of the same plan, and of topics that are in an earlier one and not stopped since, is gone on with: their logs may have been cut.
func (s *ControlState) beginFailback(f Failback) {
	for _, topic := range f.Topics {
		if earlier, ok := s.failbackOf(f.Mirror, topic); ok {
			if earlier.Step == FailbackCopying {
				f.Step = FailbackCopying
			}
			if earlier.Plan == f.Plan {
				f.Since, f.Began = earlier.Since, earlier.Began
			}
			for _, r := range earlier.Dropped {
				if r.Topic == topic && !slices.ContainsFunc(f.Dropped, func(x FailbackRange) bool { return x.Topic == r.Topic && x.Partition == r.Partition }) {
					f.Dropped = append(f.Dropped, r)
				}
			}
		}
		s.leaveFailback(topic)
	}
	if i := slices.IndexFunc(s.Failbacks, func(x Failback) bool { return compareFailbacks(x, f) == 0 }); i >= 0 { // of other topics, by the same plan or by none
		rest := s.Failbacks[i]
		f.Topics, f.Dropped = append(f.Topics, rest.Topics...), append(f.Dropped, rest.Dropped...)
		if rest.Step == FailbackCopying {
			f.Step = FailbackCopying
		}
		s.Failbacks = slices.Delete(slices.Clone(s.Failbacks), i, i+1)
	}
	f.store()
	s.Failbacks = append(s.Failbacks, f)
	slices.SortFunc(s.Failbacks, compareFailbacks)
}
