package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// states are those of partitions that a person can meet.
var states = func() []statemachine.State {
	all := []statemachine.State{statemachine.Unknown}
	for s := statemachine.Preparing; s <= statemachine.Failed; s++ {
		all = append(all, s)
	}
	return all
}()

// mirror sends what one mirror says of itself.
func (g gauges) mirror(s *mirror.Status) {
	name := s.Mirror
	g.set(mirrorInfo, 1, name, s.SourceClusterID, g.cluster)
	g.yes(mirrorFenced, s.Fenced != nil, name, g.cluster)
	g.set(mirrorTopics, float64(len(s.Topics)), name, g.cluster)

	var sum summary
	for i := range s.Topics {
		t := &s.Topics[i]
		if t.Err != nil {
			sum.troubled++
		}
		for _, b := range t.SplitBrain {
			sum.splitBrain += b.To - b.From
		}
		if len(t.Partitions) == 0 && t.MirrorName != statemachine.MirrorNameValue(name, statemachine.WantStopped) {
			sum.copies, sum.unknownAge = true, sum.unknownAge+1 // whatever is written there now is in no copy
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Halted {
				sum.halted++ // whoever has it tells of it
				continue
			}
			sum.add(p)
			g.partition(p)
		}
	}
	g.set(mirrorTopicsTrouble, float64(sum.troubled), name, g.cluster)
	for _, state := range states {
		g.set(mirrorPartitions, float64(sum.states[state]), name, state.String(), g.cluster)
	}
	g.set(mirrorHalted, float64(sum.halted), name, g.cluster)
	g.set(mirrorNotRetried, float64(sum.notRetried), name, g.cluster)
	g.set(mirrorNeedConsent, float64(sum.needConsent), name, g.cluster)
	g.set(mirrorUnknownAge, float64(sum.unknownAge), name, g.cluster)
	g.yes(mirrorRPOUnknown, sum.unknownAge > 0, name, g.cluster)
	if sum.copies && sum.unknownAge == 0 {
		g.set(mirrorRPO, sum.oldest.Seconds(), name, g.cluster)
	}
	g.set(mirrorLagUnknown, float64(sum.lagUnknown), name, g.cluster)
	g.yes(mirrorSilenceUnknown, sum.asked && sum.answered.IsZero(), name, g.cluster)
	if !sum.answered.IsZero() {
		g.set(mirrorSilence, max(0, s.Taken.Sub(sum.answered)).Seconds(), name, g.cluster)
	}
	g.set(mirrorOpen, float64(sum.open), name, g.cluster)
	if s.OldSource != nil {
		g.yes(mirrorSourceBack, !s.OldSource.Returned.IsZero(), name, g.cluster)
		g.set(mirrorSplitBrain, float64(sum.splitBrain), name, g.cluster)
	}
	g.atRisk(s)
	g.verification(s)
	if s.FetchRate > 0 {
		g.set(mirrorFetchRate, float64(s.FetchRate), name, g.cluster)
	}
	if s.SharedRate > 0 {
		g.set(mirrorSharedRate, float64(s.SharedRate), name, g.cluster)
	}
	g.to <- constant(mirrorHeldBack, prometheus.CounterValue, s.HeldBack.Seconds(), name, g.cluster)
	g.to <- constant(mirrorThrottled, prometheus.CounterValue, s.Throttled.Seconds(), name, g.cluster)
	g.fetches(name, &s.Fetches)
	g.certificates(s.Certificates, "source", name)
	g.set(mirrorGroups, float64(len(s.Metadata.FollowedGroups)), name, g.cluster)
	follows := sum.copies || len(s.Topics) == 0 // of topics that are all stopped nothing is followed any more: what was, only grows old
	g.sync(name, "groups", s.Taken, &s.Metadata.Groups, follows)
	g.sync(name, "settings", s.Taken, &s.Metadata.Configs, follows)
	g.sync(name, "rules", s.Taken, &s.Metadata.ACLs, follows)
}

// certificates sends the end of the own certificate, and of that of the other side which ends first.
func (g gauges) certificates(all []mirror.Certificate, side, name string) {
	ends := map[bool]time.Time{}
	for _, c := range all {
		if first, told := ends[c.Own]; !told || c.Ends.Before(first) {
			ends[c.Own] = c.Ends
		}
	}
	for own, end := range ends {
		whose := "broker"
		if own {
			whose = "own"
		}
		g.set(certificateEnds, float64(end.Unix()), side, name, whose, g.cluster)
	}
}

func (g gauges) fetches(name string, f *mirror.FetchCounts) {
	for _, x := range []struct {
		result string
		times  *mirror.FetchTimes
	}{{"records", &f.Records}, {"empty", &f.Empty}, {"failed", &f.Failed}} {
		within := map[float64]uint64{}
		for i, bound := range mirror.FetchBounds() {
			within[bound.Seconds()] = uint64(x.times.Within[i])
		}
		g.to <- prometheus.MustNewConstHistogram(fetchSeconds, uint64(x.times.Count), x.times.Total.Seconds(), within, valid(name, x.result, g.cluster)...)
	}
	g.to <- constant(receivedBytes, prometheus.CounterValue, float64(f.ReceivedBytes), name, g.cluster)
	g.to <- constant(copiedBytes, prometheus.CounterValue, float64(f.CopiedBytes), name, g.cluster)
	g.to <- constant(copiedBatches, prometheus.CounterValue, float64(f.CopiedBatches), name, g.cluster)
}

// atRisk sends what a failover now would lose, as far as it is known of every copy, and how long it would take.
func (g gauges) atRisk(s *mirror.Status) {
	risk, name := s.AtRisk(), s.Mirror
	if risk.Partitions > 0 && risk.UnknownOffsets == 0 {
		g.set(mirrorRPOOffsets, float64(risk.Offsets), name, g.cluster)
	}
	if risk.Partitions > 0 && risk.UnknownBytes == 0 {
		g.set(mirrorRPOBytes, float64(risk.Bytes), name, g.cluster)
	}
	if !risk.Seen.IsZero() {
		g.set(mirrorRPOMeasured, max(0, s.Taken.Sub(risk.Seen)).Seconds(), name, g.cluster)
	}
	longest, measured := mirror.PredictFailover(s.Failovers)
	if !measured {
		return
	}
	last := s.Failovers[len(s.Failovers)-1]
	g.set(mirrorPredicted, longest.Took.Seconds(), name, g.cluster)
	g.set(mirrorFailover, last.Took.Seconds(), name, g.cluster)
	for _, step := range last.Steps {
		g.set(mirrorStep, step.Took.Seconds(), name, step.Step, g.cluster)
	}
}

func (g gauges) sync(name, part string, now time.Time, s *mirror.SyncStatus, follows bool) {
	off := s.Off != "" || !follows
	g.yes(syncOff, off, name, part, g.cluster)
	g.yes(syncTrouble, !off && s.Err != nil, name, part, g.cluster)
	g.yes(syncUnknown, !off && s.At.IsZero(), name, part, g.cluster)
	g.set(syncSkipped, float64(len(s.Skipped)), name, part, g.cluster)
	if !off && !s.At.IsZero() {
		g.set(syncAge, max(0, now.Sub(s.At)).Seconds(), name, part, g.cluster)
	}
}

// summary is what a mirror's partitions come to, without those that another process has.
type summary struct {
	states                       map[statemachine.State]int
	troubled, halted             int
	notRetried, needConsent      int
	unknownAge, lagUnknown, open int
	copies, asked                bool // something is to be copied; the source is to be asked
	splitBrain                   int64
	oldest                       time.Duration
	answered                     time.Time // when the source last was
}

func (s *summary) add(p *mirror.PartitionStatus) {
	if s.states == nil {
		s.states = map[statemachine.State]int{}
	}
	s.states[p.State]++
	if notRetried(p) {
		s.notRetried++
	}
	if p.NeedsConsent != nil {
		s.needConsent++
	}
	s.open += len(p.InFlight)
	if over(p) {
		return
	}
	s.copies = true
	if p.LagTime == mirror.Unknown {
		s.unknownAge++
	} else {
		s.oldest = max(s.oldest, p.LagTime)
	}
	if p.LagOffsets == mirror.Unknown {
		s.lagUnknown++
	}
	if p.Want == statemachine.WantMirroring {
		s.asked = true
		if p.SourceSeen.After(s.answered) {
			s.answered = p.SourceSeen
		}
	}
}

// over says that the partition is no copy any more, or is becoming none: there is nothing that it could lag behind.
func over(p *mirror.PartitionStatus) bool {
	return p.State == statemachine.Stopped || p.State == statemachine.Stopping
}

func notRetried(p *mirror.PartitionStatus) bool {
	return p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable
}

// partition sends what a person or an alarm needs of one partition.
func (g gauges) partition(p *mirror.PartitionStatus) {
	name, topic, number := p.Mirror, p.Topic, strconv.Itoa(int(p.Partition))
	g.set(partitionState, 1, name, topic, number, p.State.String())
	if p.SourceEnd != mirror.Unknown {
		g.set(partitionSource, float64(p.SourceEnd), name, topic, number)
	}
	g.set(partitionEnd, float64(p.End), name, topic, number)
	g.set(partitionReplicated, float64(p.Replicated), name, topic, number)
	if !over(p) {
		g.yes(partitionLagUnknown, p.LagOffsets == mirror.Unknown, name, topic, number)
		if p.LagOffsets != mirror.Unknown {
			g.set(partitionLag, float64(p.LagOffsets), name, topic, number)
		}
		if n := p.LagBytes(); n > 0 {
			g.set(partitionLagBytes, float64(n), name, topic, number)
		}
		if n := len(p.InFlight); n > 0 {
			g.set(partitionOpen, float64(n), name, topic, number)
		}
		if p.LagTime != mirror.Unknown {
			g.set(partitionLagSeconds, p.LagTime.Seconds(), name, topic, number)
		}
	}
	switch {
	case notRetried(p):
		g.set(partitionNotRetried, 1, name, topic, number)
	case p.State == statemachine.Failed:
		g.set(partitionAttempts, float64(p.RetryAttempt), name, topic, number)
	}
	if p.LostTo > p.LostFrom {
		g.set(partitionLost, float64(p.LostTo-p.LostFrom), name, topic, number)
	}
	if p.DroppedTo > p.DroppedFrom {
		g.set(partitionDropped, float64(p.DroppedTo-p.DroppedFrom), name, topic, number)
	}
	if c := p.NeedsConsent; c != nil {
		g.set(partitionNeedConsent, float64(max(0, c.To-c.From)), name, topic, number)
	}
}

// rehearsals sends how the last rehearsals of a mirror went.
func (g gauges) rehearsals(r *Rehearsals) {
	if r.Last != nil {
		g.yes(rehearsalFailed, !r.Last.Good(), r.Mirror, g.cluster)
	}
	if r.Good == nil {
		return
	}
	g.set(rehearsalGood, float64(r.Good.Ended().UnixMilli())/1000, r.Mirror, g.cluster)
	g.set(rehearsalWritable, r.Good.Writable.Seconds(), r.Mirror, g.cluster)
	for _, s := range r.Good.Steps {
		g.set(rehearsalStep, s.Took.Seconds(), r.Mirror, string(s.Step), g.cluster)
	}
}

// verification sends how the comparison of copies stands.
func (g gauges) verification(s *mirror.Status) {
	v := s.Verification
	if v == nil {
		return
	}
	for result, n := range map[string]int{"identical": v.Identical, "partly": v.Partly, "not_compared": v.NotCompared, "hole": v.Hole, "different": v.Different} {
		g.set(verifyCopies, float64(n), s.Mirror, result, g.cluster)
	}
	if !v.Oldest.IsZero() {
		g.set(verifyOldest, max(0, s.Taken.Sub(v.Oldest)).Seconds(), s.Mirror, g.cluster)
	}
	if !v.LastPass.IsZero() {
		g.set(verifyPassAge, max(0, s.Taken.Sub(v.LastPass)).Seconds(), s.Mirror, g.cluster)
	}
	g.set(verifyInterval, v.Interval.Seconds(), s.Mirror, g.cluster)
	g.to <- constant(verifyBytes, prometheus.CounterValue, float64(v.Bytes), s.Mirror, g.cluster)
	g.yes(verifyWaits, v.Waits != "", s.Mirror, g.cluster)
}
