package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// judge compares where the source ended with where the copies did. It goes by what was looked at, not by what was meant.
func (p *promoting) judge(copies map[TopicPartition]promotedCopy) {
	look := p.latest
	if look == nil {
		look = p.verified
	}
	names := map[TopicPartition]bool{}
	for tp := range copies {
		names[tp] = true
	}
	if look != nil {
		for tp := range look.ends {
			names[tp] = true
		}
	}
	all := make([]TopicPartition, 0, len(names))
	for tp := range names {
		all = append(all, tp)
	}
	slices.SortFunc(all, compareTopicPartitions)
	finals := map[TopicPartition]int64{}
	for tp, c := range copies {
		finals[tp] = c.final
	}
	if p.record.Whole != "" && p.record.Whole == sumOf(finals) {
		p.whole = finals // as an earlier attempt saw it
	}
	p.r.Partitions = nil
	for _, tp := range all {
		p.r.Partitions = append(p.r.Partitions, p.judgeOne(tp, copies, look))
	}
	p.r.Why = nil
	because := func(is bool, why string) {
		if is {
			p.r.Why = append(p.r.Why, why)
		}
	}
	because(p.record.Fence == "", "there was no fence: what was acknowledged at the source around the stop is not known, and clients may write there now")
	because(p.record.Fence != "" && p.verified == nil, fmt.Sprintf("the fence was not verified by this process: the source has not ended at the same offsets for %s", p.o.Quiet))
	because(p.record.Fence != "" && p.verified != nil && p.latest != nil && !p.latest.agrees(p.verified), "something was written to the source behind the fence, or taken from it, after it was verified")
	because(p.r.OnlySlows, "this fence does not forbid writes: what the source has taken since it was looked at, or takes yet, no copy has")
	because(p.unraised != nil, fmt.Sprintf("the fence could not be raised again behind the stop: %v", p.unraised))
	because(p.r.NoLogEnds, "the source does not say where its leaders' logs end: what was acknowledged there with acks=1 and is on no other replica is not seen")
	because(len(all) == 0, "no partition is known")
	p.r.Proved = len(p.r.Why) == 0 && !slices.ContainsFunc(p.r.Partitions, func(x PromoteResult) bool { return x.Err != nil || len(x.Why) > 0 })
}

func (p *promoting) judgeOne(tp TopicPartition, copies map[TopicPartition]promotedCopy, look *sourceLook) PromoteResult {
	x := PromoteResult{Topic: tp.Topic, Partition: tp.Partition}
	c, there := copies[tp]
	if !there {
		c = promotedCopy{final: Unknown, lme: Unknown, aborts: Unknown}
		x.Why = append(x.Why, "it has no copy")
	}
	x.Err = c.err
	if c.final >= 0 {
		x.FinalOffset = KnownNumber(c.final)
	}
	if c.lme >= 0 {
		x.LME = KnownNumber(c.lme)
	}
	whole, drained := p.whole[tp]
	switch {
	case c.aborts > 0:
		x.Why = append(x.Why, fmt.Sprintf("the stop has aborted %s in the copy", plural(int(c.aborts), "transaction that was open", "transactions that were open")))
	case c.aborts < 0 && there && !(drained && whole == c.final):
		x.Why = append(x.Why, "whether the stop has aborted transactions is not known")
	}
	var end sourceLogEnd
	known := false
	if look != nil {
		end, known = look.ends[tp]
	}
	if !known {
		x.Why = append(x.Why, "where the source ends is not known")
		return x
	}
	x.SourceEnd, x.SourceSeen = KnownNumber(end.end), look.done
	empty := p.empty[tp]
	switch {
	case c.final == end.end:
	case c.final < 0:
		x.Why = append(x.Why, "its last mirror offset is not known")
	case c.final < end.end && c.final == empty[0] && end.end <= empty[1]: // the source has proved that there is nothing in between
	case c.final < end.end:
		x.Why = append(x.Why, fmt.Sprintf("the source has [%d,%d), and the copy has not", c.final, end.end))
	default:
		x.Why = append(x.Why, fmt.Sprintf("the copy has [%d,%d), and the source has not", end.end, c.final))
	}
	return x
}

// reasons are why it is not proved.
func (r *PromoteReport) reasons() []string {
	all := slices.Clone(r.Why)
	for _, x := range r.Partitions {
		name := fmt.Sprintf("%s-%d: ", x.Topic, x.Partition)
		if x.Err != nil {
			all = append(all, name+x.Err.Error())
		}
		for _, why := range x.Why {
			all = append(all, name+why)
		}
	}
	return all
}

// lookedLast is when the source was looked at last; zero: it was not.
func (r *PromoteReport) lookedLast() time.Time {
	if r.LookedLast.IsZero() {
		return r.Verified
	}
	return r.LookedLast
}

// ended is the outcome behind the stop.
func (r *PromoteReport) ended() PromoteOutcome {
	switch {
	case r.Proved:
		return PromoteProved
	case len(r.Partitions) == 0 || slices.ContainsFunc(r.Partitions, func(x PromoteResult) bool { return x.Err != nil }):
		return PromoteIncomplete
	case r.OnlySlows && len(r.reasons()) == 1 && !r.lookedLast().IsZero():
		return PromoteEqual
	}
	return PromoteNotProved
}

// String is the report for a person: the verdict first, then a line for each partition. Each offset has its source and its age.
func (r PromoteReport) String() string {
	var t planText
	ended := r.Began.Add(r.Took)
	t.line("PROMOTE REPORT  mirror %s  %s  took %s", r.Mirror, stamp(r.Began), r.Took.Round(10*time.Microsecond))
	t.line("source %s → destination %s", orUnknown(r.SourceClusterID), orUnknown(r.DestinationClusterID))
	outcome := r.Outcome
	if r.Stopped {
		outcome = r.ended() // what stands in the table below
	}
	behind := func(words string) string { // words about a fence, where there is one
		if r.Fence == "" {
			return ""
		}
		return words
	}
	switch outcome {
	case PromoteRefused:
		t.line("REFUSED: this has changed nothing, at neither side")
	case PromoteGivenUp:
		if r.FenceUp {
			t.line("GIVEN UP: nothing has changed at the destination, and the mirror goes on. THE FENCE MAY STILL BE UP: abort the promotion, which lowers it")
		} else {
			t.line("GIVEN UP: nothing has changed at the destination, and the mirror goes on%s", behind("; the fence is down"))
		}
	case PromoteTakenOver:
		t.line("TAKEN OVER: somebody else goes on with this promotion, or has ended it; describe the mirror to see how far it is. This has stopped nothing%s", behind(", and the fence is theirs"))
	case PromotePartStopped:
		t.line("PART STOPPED BY SOMEBODY ELSE: this has stopped nothing%s. Promote again, which goes on with the others", behind("; the fence stays up, because clients may write at the destination"))
	case PromoteUnknown:
		t.line("NOT KNOWN whether the stop was recorded%s. Promote again, which ends it, or abort the promotion, which takes it back if it was not", behind("; the fence may be up"))
	case PromoteIncomplete:
		t.line("NOT COMPLETE: the stop is recorded, and not all is open for clients yet; promote again, which waits for it and compares")
	case PromoteNotProved:
		t.line("NOT PROVED: all is open for clients, and something may be missing")
	case PromoteEqual:
		t.line("EQUAL at %s, not proved: this fence does not forbid writes", stamp(r.lookedLast()))
	case PromoteProved:
		t.line("PROVED: nothing acknowledged at the source is missing")
	}
	for _, why := range r.Why {
		t.line("  %s", why)
	}
	t.line("fence: %s", cmp.Or(r.Fence, "none"))
	for _, limit := range r.Limits {
		t.line("  %s", limit)
	}
	switch {
	case r.Fence == "":
	case r.Verified.IsZero():
		t.line("  not verified")
	default:
		t.line("  verified %s: two looks at the source's ends, %s apart, agreed", age(ended.Sub(r.Verified)), r.Quiet)
	}
	if !r.LastWrite.IsZero() {
		t.line("  the source took something behind it until %s before the end of this", span(ended.Sub(r.LastWrite)))
	}
	if r.Stopped && r.Fence != "" {
		if r.LookedLast.IsZero() {
			t.line("  the source has not answered since the stop")
		} else {
			t.line("  looked at once more behind the stop, %s", age(ended.Sub(r.LookedLast)))
		}
	}
	if len(r.Partitions) > 0 {
		var rows, notes [][]string
		for _, x := range r.Partitions {
			name, verdict, end := fmt.Sprintf("%s-%d", x.Topic, x.Partition), "equal", x.SourceEnd.String()
			switch {
			case x.Err != nil:
				verdict = "NOT OPEN"
				notes = append(notes, []string{name, x.Err.Error()})
			case len(x.Why) > 0:
				verdict = "NOT PROVED"
			case x.FinalOffset != x.SourceEnd:
				verdict = "nothing in between"
			}
			if _, known := x.SourceEnd.Value(); known {
				end += ", seen " + age(ended.Sub(x.SourceSeen))
			}
			for _, why := range x.Why {
				notes = append(notes, []string{name, why})
			}
			rows = append(rows, []string{name, end, x.FinalOffset.String(), x.LME.String(), verdict})
		}
		t.line("")
		t.table([]string{"PARTITION", "SOURCE END", "FINAL OFFSET", "LME", "RESULT"}, rows)
		for i, n := range notes {
			if i == 0 {
				t.line("")
			}
			t.line("%s: %s", n[0], n[1])
		}
	}
	if r.Stopped && r.FenceUp {
		t.line("")
		t.line("The fence stays up at the source, so that no client writes what no copy has. When the promotion has ended, and the source is a copy or is given up, LowerFence takes it down and out of the record.")
		if len(r.TakeDown) > 0 {
			t.line("By hand, and then it stays recorded until LowerFence:")
		}
		for _, line := range r.TakeDown {
			t.line("  %s", line)
		}
	}
	return t.String()
}
