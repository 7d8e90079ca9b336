package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Snapshot is what the mirror knows now, as the input of PlanFailover. It asks no source, so it is there when the source is gone. Where a transaction is open in a copy it reads the newest part of the
// copies, at most lookBytes of all of them and for at most lookBound, to see which transactions a stop would tear apart; otherwise it waits for nothing.
func (m *Mirror) Snapshot() Snapshot {
	s := m.snapshot()
	s.Transactions = m.lookAtTransactions(m.ctx, s.Partitions)
	return s
}

// snapshot is Snapshot without the look at transactions.
func (m *Mirror) snapshot() Snapshot {
	st := m.Status()
	s := Snapshot{Mirror: st.Mirror, SourceClusterID: st.SourceClusterID, DestinationClusterID: st.DestinationClusterID, Taken: st.Taken, SourceError: cmp.Or(m.link.troubled(), m.desk.troubled()),
		Groups: st.Metadata.FollowedGroups, GroupsSeen: st.Metadata.Groups.At, GroupsError: st.Metadata.Groups.hindered(), Failovers: st.Failovers, Promotion: st.Promotion, Surroundings: m.surveying.now()}
	s.Surroundings.NotFollowed = st.Metadata.notFollowed()
	for _, t := range st.Topics {
		ts := TopicSnapshot{Topic: t.Topic, MirrorName: t.MirrorName}
		if t.Err != nil {
			ts.Reason = t.Err.Error()
		}
		s.Topics = append(s.Topics, ts)
		s.Partitions = append(s.Partitions, t.Partitions...)
	}
	m.addWished(&s)
	return s
}

// addWished adds the topics that are wanted but not taken up by this process yet, and notes what only the store knows of: neither may look as if it were not mirrored.
func (m *Mirror) addWished(s *Snapshot) {
	ctx, stop := context.WithTimeout(m.ctx, snapshotBound)
	defer stop()
	if state, err := m.cfg.Control.Read(ctx); err == nil {
		for _, w := range state.Topics {
			if name, _, err := w.Wish(); err != nil || name != m.cfg.Name || slices.ContainsFunc(s.Topics, func(t TopicSnapshot) bool { return t.Topic == w.Topic }) {
				continue
			}
			s.Topics = append(s.Topics, TopicSnapshot{Topic: w.Topic, MirrorName: w.MirrorName, Reason: "this process has not taken it up yet; plan again in a moment"})
		}
		if entry, ok := state.Mirror(m.cfg.Name); ok {
			s.Sets = setMembers(entry.Settings, s.Topics)
		}
	}
	known := map[TopicID]bool{}
	for _, p := range s.Partitions {
		known[p.TopicID] = true
	}
	for _, e := range m.atOpen {
		if !known[e.Key.TopicID] && e.State.State != statemachine.Stopped {
			s.Unwanted++
		}
	}
}

// snapshotBound is the longest that a Snapshot waits for the Control.
const snapshotBound = time.Second

// FailoverReport is what a failover did. It is plain data.
type FailoverReport struct {
	Mirror               string
	SourceClusterID      string
	DestinationClusterID string
	Began                time.Time
	Took                 time.Duration
	Topics               []TopicResult // refused topics, and topics without logs
	Partitions           []FailoverResult
	// TornTransactions ended committed in some partitions and aborted in others, by what the copies hold up to their final offsets. With TornCut, Cut is what was cut, or why nothing was; nil where that is not
	// known to this process: after a restart since it was decided, or of a stop that another process carried out. It is not recorded. What is recorded is which copies were cut, and where they end
	// (PartitionStatus.LME); what went is in the Sink, and the CutMade and RecordsDropped events of the process that cut have told it.
	TornTransactions TornTransactions
	// Steps is what Took is made of: until the stop was recorded and this process was told of it (ToldStep), and the steps of the partition that was open last. Empty if none was opened.
	Steps []StepTime
}

// FailoverResult is what happened to one partition.
type FailoverResult struct {
	Topic       string
	Partition   int32
	State       statemachine.State
	Err         error // why it is not open for clients; nil: it is
	AlreadyDone bool  // it was stopped and open before
	FinalOffset int64 // last mirror offset: records below it are the source's; Unknown
	LME         int32 // last mirror epoch, Unknown
	OpensAt     int64 // first offset for clients
	Aborts      []AbortMarker
	ResetAt     int64 // of the MIRROR_PID_RESET, Unknown
	// Missing is how many offsets the source was known to have beyond FinalOffset when it was last heard of. At least: a forced failover does not ask it again. Unknown where the source was never seen, and
	// where the copy was not compared with it (PartitionStatus.Unproved).
	Missing    Loss
	SourceEnd  int64     // what Missing was computed with, Unknown
	SourceSeen time.Time // when that was measured
	// Differences say where the execution differs from the plan.
	Differences []string
}

// ErrIncomplete: a failover or failback ended with partitions that are not where they should be. The report names each with its reason; run the same again.
var ErrIncomplete = errors.New("mirror: not complete")

// ExecuteFailover carries a plan out: it wants the plan's topics stopped, and waits until every partition is open for clients or cannot be. It makes no call to the source.
// It never refuses because ends have moved since the plan was made; the report names the differences. A plan that tears a topic set is refused, unless it was made to
// (FailoverOptions.Partial). Repeating it is harmless. The history has the plan's Reason and Hash. The context bounds the wait; give it a deadline. The error is nil only if there
// was something to fail over and every topic of the plan was; otherwise errors.Is finds ErrIncomplete, and the context's end where that cut the wait short, and the report says
// which partitions are not open, and why. A plan of another mirror, or of other clusters than those that are here as far as both know them, is refused with InvalidRequest
// before anything is written. With TornRefuse nothing is stopped where a look at the copies shows now that a transaction would be torn apart, or cannot show it: errors.Is finds
// ErrTornTransactions. What arrives between that look and the stop may tear one all the same; the report says so. With TornCut a plan whose cut gives up what readers may have seen is refused unless it was made
// to (CutReaders; errors.Is finds ErrCutExposed). The cut itself is found when all copies stand still, and ends no partition below where the plan does: where it would have to, or would give up more than
// MaxGiveUp, none is made, and the report says so (TornTransactions.Cut). A failover that is forced (kraft.Force) looks at no policy.
func (m *Mirror) ExecuteFailover(ctx context.Context, plan FailoverPlan) (FailoverReport, error) {
	return m.executeFailover(ctx, plan, StopOptions{Partial: plan.Partial, Drain: plan.Drain, Intent: intentOf("failover", plan.Hash(), plan.Reason)})
}

// executeFailover is ExecuteFailover, with the stop as it is to be recorded.
func (m *Mirror) executeFailover(ctx context.Context, plan FailoverPlan, o StopOptions) (FailoverReport, error) {
	r := FailoverReport{Mirror: m.cfg.Name, SourceClusterID: plan.SourceClusterID, DestinationClusterID: plan.DestinationClusterID, Began: time.Now()}
	if err := m.fits(plan.Mirror, plan.SourceClusterID, plan.DestinationClusterID); err != nil {
		here := m.Status()
		r.SourceClusterID, r.DestinationClusterID = here.SourceClusterID, here.DestinationClusterID
		return r, err
	}
	var topics []string
	for _, t := range plan.Topics {
		topics = append(topics, t.Topic)
	}
	if len(topics) == 0 {
		return r, fmt.Errorf("%w: no topic is in mirror %s here, so nothing was failed over; start its topics (what the store holds of them is kept), then fail over", ErrIncomplete, m.cfg.Name)
	}
	if !plan.TornPolicy.known() {
		return r, &Error{Code: InvalidRequest, Mirror: m.cfg.Name, Partition: -1, Message: fmt.Sprintf("there is no policy %q for torn transactions; it is %s, %s or %s. Nothing has changed", plan.TornPolicy, TornAbort, TornRefuse, TornCut)}
	}
	switch plan.TornPolicy {
	case TornRefuse:
		r.TornTransactions = m.tornNow(ctx, topics, plan.ClockSkew)
		if err := r.TornTransactions.refusal(m.cfg.Name); err != nil {
			return r, err
		}
	case TornCut:
		if err := plan.TornTransactions.Cut.refusal(m.cfg.Name, plan.CutReaders); err != nil {
			r.TornTransactions = plan.TornTransactions
			return r, err
		}
		o.Torn, o.MaxGiveUp, o.CutReaders, o.plan = TornCut, plan.MaxGiveUp, plan.CutReaders, &cutBounds{skew: plan.ClockSkew, floors: plan.ends()}
	}
	result, err := m.admin.Stop(ctx, topics, o)
	if len(result.Topics) == 0 && err != nil {
		return r, err
	}
	members := map[string]bool{}
	for _, t := range result.Topics {
		if t.Err != nil {
			r.Topics = append(r.Topics, t)
			continue
		}
		members[t.Topic] = true
	}

	waitErr := m.awaitTopics(ctx, members, func(t *TopicStatus) bool {
		return (len(t.Partitions) > 0 || t.Err != nil) && !slices.ContainsFunc(t.Partitions, func(p PartitionStatus) bool { return !stopSettled(&p) })
	})
	st := m.Status()
	r.Topics = append(r.Topics, m.withoutLogs(&st, members)...)
	unfinished := topicNames(r.Topics)
	for _, t := range st.Topics {
		if !members[t.Topic] {
			continue
		}
		for i := range t.Partitions {
			res := m.failoverResult(plan, &t.Partitions[i], waitErr)
			if res.Err != nil {
				unfinished = append(unfinished, fmt.Sprintf("%s-%d", res.Topic, res.Partition))
			}
			r.Partitions = append(r.Partitions, res)
		}
	}
	r.Took = time.Since(r.Began)
	r.TornTransactions = m.tornNow(ctx, slices.Collect(maps.Keys(members)), plan.ClockSkew)
	if plan.TornPolicy == TornCut {
		r.TornTransactions.Cut = m.cutOf(members)
	}
	r.Steps = stepsOf(&st, members, r.Began, r.Took)
	if len(unfinished) == 0 {
		return r, nil
	}
	return r, incomplete(unfinished, waitErr)
}

// ToldStep is the first step of a FailoverReport: recording the stop, until the partition was told of it, and seeing that all are open.
const ToldStep = "RECORD_AND_SEE"

// stepsOf are the steps of the partition that was open last.
func stepsOf(st *Status, members map[string]bool, began time.Time, took time.Duration) []StepTime {
	var last *PartitionStatus
	for _, t := range st.Topics {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; members[t.Topic] && p.StopEnded.After(began) && (last == nil || p.StopEnded.After(last.StopEnded)) {
				last = p
			}
		}
	}
	if last == nil {
		return nil
	}
	steps := slices.Clone(last.StopSteps)
	for _, s := range steps {
		took -= s.Took
	}
	return append([]StepTime{{ToldStep, took}}, steps...)
}

func topicNames(results []TopicResult) (names []string) {
	for _, t := range results {
		names = append(names, t.Topic)
	}
	return names
}

// incomplete names what is not where it should be, the first few of it.
func incomplete(names []string, cause error) error {
	words := few(names)
	if cause != nil {
		return fmt.Errorf("%w: %s: %w", ErrIncomplete, words, cause)
	}
	return fmt.Errorf("%w: %s; see the report for the reasons", ErrIncomplete, words)
}

// settledInterval is how often a wait looks, at most, besides at every change of a state.
const settledInterval = 5 * time.Millisecond

// awaitTopics waits until ok says true of each of these topics. It is asked only when the partitions have taken in all that is wanted now: a status from before
// that says nothing, least of all that a topic has failed or is done.
func (m *Mirror) awaitTopics(ctx context.Context, topics map[string]bool, ok func(*TopicStatus) bool) error {
	wanted, err := m.cfg.Control.Read(ctx)
	if err != nil {
		return fmt.Errorf("reading the desired state: %w", err)
	}
	return m.await(ctx, settledInterval, func(s Status) bool {
		if s.Fenced != nil {
			return true
		}
		for name := range topics {
			if !m.decided(name, wanted.Version) {
				return false
			}
		}
		s = m.Status() // the one that await took may be older than what decided saw
		return !slices.ContainsFunc(s.Topics, func(t TopicStatus) bool { return topics[t.Topic] && !ok(&t) })
	})
}

// withoutLogs are the topics that have no partitions in a status.
func (m *Mirror) withoutLogs(s *Status, topics map[string]bool) []TopicResult {
	var results []TopicResult
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		i := slices.IndexFunc(s.Topics, func(t TopicStatus) bool { return t.Topic == name })
		if i >= 0 && len(s.Topics[i].Partitions) > 0 {
			continue
		}
		err := &Error{Code: UnknownTopicOrPartition, Mirror: m.cfg.Name, Topic: name, Partition: -1, Message: "its logs are not open here yet; run the same again"}
		if i >= 0 && s.Topics[i].Err != nil {
			err.Message, err.Err = "its logs are not open here", s.Topics[i].Err
		}
		results = append(results, TopicResult{Topic: name, Err: err})
	}
	return results
}

// stopSettled says that a stop has ended, or that only a person can end it.
func stopSettled(p *PartitionStatus) bool {
	if p.Halted {
		return true
	}
	if p.Want != statemachine.WantStopped {
		return false
	}
	return p.State == statemachine.Stopped && p.Owner == OwnerOpen || p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable
}

func (m *Mirror) failoverResult(plan FailoverPlan, p *PartitionStatus, waitErr error) FailoverResult {
	res := FailoverResult{Topic: p.Topic, Partition: p.Partition, State: p.State, FinalOffset: Unknown, LME: Unknown, OpensAt: p.End, Aborts: p.Aborts, ResetAt: p.ResetAt,
		SourceEnd: p.SourceEnd, SourceSeen: p.SourceSeen}
	if p.LME != nil {
		res.LME, res.FinalOffset = p.LME.Epoch, p.LME.Offset
	}
	if p.State != statemachine.Stopped || p.Owner != OwnerOpen {
		reason := p.Reason
		if reason == "" {
			reason = "still " + p.State.String()
			if p.Step != "" {
				reason += " at " + p.Step
			}
		}
		if p.Halted {
			reason += "; the stop is recorded, and the process that has the partition now carries it out: look there"
		}
		res.Err = &Error{Code: InvalidClusterMirrorState, Mirror: m.cfg.Name, Topic: p.Topic, Partition: p.Partition, Message: reason, Err: waitErr}
		return res
	}
	if !p.Unproved && !p.SourceSeen.IsZero() && p.SourceEnd >= 0 && res.FinalOffset >= 0 {
		res.Missing = Loss{Offsets: KnownNumber(max(0, p.SourceEnd-res.FinalOffset)), AtLeast: true}
		if p.NothingLeft {
			res.Missing.Offsets = KnownNumber(0)
		}
	}
	i := slices.IndexFunc(plan.Partitions, func(x FailoverPartition) bool { return x.Topic == p.Topic && x.Partition == p.Partition })
	if i < 0 {
		res.Differences = append(res.Differences, "the plan did not know this partition")
		return res
	}
	was := plan.Partitions[i]
	if was.Outcome == OutcomeDone {
		res.AlreadyDone = true
		return res
	}
	if end, ok := plan.endOf(&was).Value(); ok && res.FinalOffset >= 0 && end != res.FinalOffset {
		res.Differences = append(res.Differences, fmt.Sprintf("the plan saw the mirror end at %d, the final offset is %d", end, res.FinalOffset))
	}
	if len(was.Aborts) != len(res.Aborts) {
		res.Differences = append(res.Differences, fmt.Sprintf("the plan saw %d open transactions, %d were aborted", len(was.Aborts), len(res.Aborts)))
	}
	var others []string // as many may have been aborted, and not the same
	for _, x := range res.Aborts {
		if !slices.ContainsFunc(was.Aborts, func(y PlannedTransaction) bool {
			return y.ProducerID == x.ProducerID && y.ProducerEpoch == x.ProducerEpoch
		}) {
			others = append(others, fmt.Sprintf("producer %d epoch %d", x.ProducerID, x.ProducerEpoch))
		}
	}
	if len(others) > 0 {
		res.Differences = append(res.Differences, "aborted, and not open when the plan was made: "+few(others))
	}
	return res
}

// Failover plans from what is known now and carries the plan out at once.
func (m *Mirror) Failover(ctx context.Context, o FailoverOptions) (FailoverReport, error) {
	m.settle(ctx)
	return m.ExecuteFailover(ctx, PlanFailover(m.Snapshot(), o))
}

// settle waits until this process has taken up every topic that is wanted, as far as it can without a source: a failover right after Open has to know what there is.
func (m *Mirror) settle(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, m.cfg.CallBound)
	defer stop()
	wanted, err := m.cfg.Control.Read(ctx)
	if err != nil {
		return // the failover will say so
	}
	members := map[string]bool{}
	for _, w := range wanted.Topics {
		if name, _, err := w.Wish(); err == nil && name == m.cfg.Name {
			members[w.Topic] = true
		}
	}
	_ = m.awaitTopics(ctx, members, func(t *TopicStatus) bool { return len(t.Partitions) > 0 || t.Err != nil })
}

// String is the report for a person: the verdict first, then a line for each partition.
func (r FailoverReport) String() string {
	var t planText
	open := 0
	for _, p := range r.Partitions {
		if p.Err == nil {
			open++
		}
	}
	t.line("FAILOVER REPORT  mirror %s  %s  took %s", r.Mirror, stamp(r.Began), r.Took.Round(10*time.Microsecond))
	t.line("source %s → destination %s", orUnknown(r.SourceClusterID), orUnknown(r.DestinationClusterID))
	verdict := fmt.Sprintf("%d of %s open for clients", open, plural(len(r.Partitions), "partition", "partitions"))
	if len(r.Topics) > 0 {
		verdict += fmt.Sprintf("; %s refused", plural(len(r.Topics), "topic", "topics"))
	}
	var missing Loss
	known, seen, unknown := int64(0), 0, 0
	for _, p := range r.Partitions {
		n, ok := p.Missing.Offsets.Value()
		switch {
		case p.AlreadyDone || p.Err != nil:
		case ok:
			known, seen = known+n, seen+1
		default:
			unknown++
		}
	}
	if known > 0 || seen > 0 && unknown == 0 {
		missing = Loss{Offsets: KnownNumber(known), AtLeast: true}
	}
	if open > 0 {
		verdict += "; not mirrored: " + missing.String()
	}
	t.line("%s", verdict)
	if line := r.TornTransactions.line(TornAbort); line != "" {
		t.line("%s", line)
	}
	if cut := r.TornTransactions.Cut; cut != nil {
		t.line("CONSISTENT CUT: %s", cut.words())
	}
	var rows, notes [][]string
	for _, x := range r.Topics {
		notes = append(notes, []string{x.Topic, x.Err.Error()})
	}
	if cut := r.TornTransactions.Cut; cut != nil {
		for _, line := range cut.lines(mostTorn) {
			notes = append(notes, []string{"consistent cut", line})
		}
	}
	for _, p := range r.Partitions {
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		result := "open"
		switch {
		case p.Err != nil:
			result = "NOT OPEN"
		case p.AlreadyDone:
			result = "was open"
		}
		missing := p.Missing.String()
		if _, known := p.Missing.Offsets.Value(); known {
			missing += fmt.Sprintf(" (source end %d seen %s)", p.SourceEnd, age(r.Began.Add(r.Took).Sub(p.SourceSeen)))
		}
		rows = append(rows, []string{name, p.State.String(), KnownNumber(p.FinalOffset).String(), KnownNumber(int64(p.LME)).String(), fmt.Sprint(p.OpensAt), missing, fmt.Sprint(len(p.Aborts)), result})
		for _, a := range p.Aborts {
			notes = append(notes, []string{name, fmt.Sprintf("ABORT at %d for producer %d epoch %d, open since %s", a.Offset, a.ProducerID, a.ProducerEpoch, KnownNumber(a.FirstOffset))})
		}
		for _, d := range p.Differences {
			notes = append(notes, []string{name, d})
		}
		if p.Err != nil {
			notes = append(notes, []string{name, p.Err.Error()})
		}
	}
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"PARTITION", "STATE", "FINAL OFFSET", "LME", "OPENS AT", "NOT MIRRORED", "ABORTS", "RESULT"}, rows)
		t.line("")
		t.line("NOT MIRRORED counts offsets below the source's end as last seen; what the source took after that moment is not known here.")
	}
	if len(r.Steps) > 0 {
		t.line("")
		t.line("STEPS of the partition that was open last: %s", stepsText(r.Steps))
	}
	if len(notes) > 0 {
		t.line("")
		for _, n := range notes {
			t.line("%s: %s", n[0], n[1])
		}
	}
	r.TornTransactions.text(&t, TornAbort)
	return t.String()
}
