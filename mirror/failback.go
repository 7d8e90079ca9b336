package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// PlanFailback looks at topics of this mirror's destination, which was the source once, and at the cluster that took over, and plans what has to be given up here before
// the topics can be mirrored from there, and what follows the source back then: groups, topic settings, access rules. It changes nothing: no state, no gate, no byte, no group. It needs the source, and
// reads the headers of the local logs. What it cannot ask of groups, settings and rules is unknown in the plan, with the reason; that takes at most a few CallBounds.
// Topics that cannot be planned are in the plan with the reason; the error is for what concerns all of them.
func (m *Mirror) PlanFailback(ctx context.Context, topics ...string) (FailbackPlan, error) {
	s := m.snapshot()
	s.SourceError = ""
	if len(topics) == 0 {
		for _, t := range s.Topics {
			topics = append(topics, t.Topic)
		}
	}
	cluster, own, _, err := m.desk.clusters(ctx)
	if err != nil {
		return FailbackPlan{}, fmt.Errorf("mirror %s: planning a failback: %w", m.cfg.Name, err)
	}
	s.SourceClusterID, s.DestinationClusterID = cluster, own
	found, err := m.cfg.Source.Topics(ctx, topics...)
	if err != nil {
		return FailbackPlan{}, fmt.Errorf("mirror %s: planning a failback: %w", m.cfg.Name, err)
	}
	records := map[statemachine.Key]statemachine.Entry{}
	if err := m.session.Load(ctx, func(e statemachine.Entry) error {
		records[e.Key] = e
		return nil
	}); err != nil {
		return FailbackPlan{}, fmt.Errorf("mirror %s: planning a failback: reading states: %w", m.cfg.Name, err)
	}
	s.Partitions = slices.DeleteFunc(s.Partitions, func(p PartitionStatus) bool { return slices.Contains(topics, p.Topic) })
	s.Topics = slices.DeleteFunc(s.Topics, func(t TopicSnapshot) bool { return slices.Contains(topics, t.Topic) })
	for _, name := range topics {
		ts := TopicSnapshot{Topic: name, MirrorName: m.cfg.Name}
		i := slices.IndexFunc(found, func(t SourceTopic) bool { return t.Name == name })
		switch {
		case i < 0:
			ts.Reason = "the cluster that took over does not have this topic"
		case found[i].Err != nil:
			ts.Reason = found[i].Err.Error()
		default:
			err = m.examine(ctx, &s, &found[i], own, records)
			if errors.Is(err, ErrUnknownTopic) {
				ts.Missing, ts.Reason = true, "the topic does not exist here: nothing is given up, a start copies it"
			} else if err != nil {
				ts.Reason = err.Error()
			}
		}
		s.Topics = append(s.Topics, ts)
	}
	m.lookAtFollowers(ctx, &s, topics, found)
	if rights, looked := m.surveying.missingRights(ctx, topics); looked {
		seen := seenNames(rights, time.Now())
		s.MissingRights = &seen
	}
	s.Taken = time.Now()
	return PlanFailback(s, FailbackOptions{Topics: topics}), nil
}

// examine adds one topic's partitions to the snapshot, with the evidence for where both logs part.
func (m *Mirror) examine(ctx context.Context, s *Snapshot, t *SourceTopic, own string, records map[statemachine.Key]statemachine.Entry) error {
	here, err := m.cfg.Destination.Topic(ctx, t.Name)
	if err != nil {
		return err
	}
	var tps []TopicPartition
	for p := range here.Partitions {
		tps = append(tps, TopicPartition{t.Name, p})
	}
	offsets, err := m.cfg.Source.Offsets(ctx, tps)
	if err != nil {
		return err
	}
	recorded, refused, _, err := m.desk.recorded(ctx, own, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		log, err := m.cfg.Destination.OpenLog(ctx, tp)
		if err != nil {
			return fmt.Errorf("opening the log of %s-%d: %w", tp.Topic, tp.Partition, err)
		}
		owner, epoch, err := log.Owner(ctx)
		if err != nil {
			return fmt.Errorf("asking for the owner of %s-%d: %w", tp.Topic, tp.Partition, err)
		}
		p := PartitionStatus{
			Mirror: m.cfg.Name, Topic: tp.Topic, Partition: tp.Partition, TopicID: here.ID, State: statemachine.Unknown, Start: log.Start(), End: log.End(),
			Replicated: log.Replicated(), LeaderEpoch: epoch, Owner: owner, SourceClusterID: s.SourceClusterID, SourceTopicID: t.ID, SourceEnd: Unknown, LagOffsets: Unknown,
			LagTime: Unknown, ResetAt: Unknown, LastEpoch: Unknown,
		}
		if e, ok := records[statemachine.Key{Mirror: m.cfg.Name, TopicID: here.ID, Partition: tp.Partition}]; ok {
			p.State, p.Episode, p.Reason, p.RetryAttempt, p.LME = e.State.State, e.State.Episode, e.State.ErrorMessage, e.State.RetryAttempt, e.LME
		}
		if p.State == statemachine.Unknown || p.State == statemachine.Stopped {
			if p.LME != nil {
				p.Episode = max(p.Episode, p.LME.Episode)
			}
			p.Episode++ // the one that is to begin
		}
		v, err := view(tp, s.SourceClusterID, t, offsets)
		if err == nil && refused[tp] != "" {
			err = errors.New(refused[tp])
		}
		ev := Evidence{TopicPartition: tp, LME: Unknown, LMO: Unknown}
		if e, ok := recorded[tp]; ok && partition.IsAbout(e, here.ID) {
			ev.LME, ev.LMO = e.Epoch, e.Offset
		}
		if err == nil {
			p.SourceLeader, p.SourceLeaderEpoch, p.SourceStart, p.SourceEnd, p.SourceSeen = v.LeaderID, v.LeaderEpoch, v.LogStart, v.HighWatermark, time.Now()
			switch e := records[statemachine.Key{Mirror: m.cfg.Name, TopicID: here.ID, Partition: tp.Partition}]; {
			case !copies(&p, e, s.SourceClusterID):
				err = m.compareEpochs(ctx, log, &p, &ev)
			case p.State == statemachine.Failed: // how much of it is the source's now is found out when it goes on
				ev.Compared, ev.CommonPoint = true, Unknown
			}
		}
		if err != nil {
			p.State, p.Reason, p.RetryAttempt, p.NeedsConsent = statemachine.Failed, err.Error(), 0, nil
		}
		s.Partitions = append(s.Partitions, p)
		s.Evidence = append(s.Evidence, ev)
	}
	return nil
}

// copies says that this mirror copies the partition from that source already, or would if what has failed did not hinder it: what it has copied lies above where an earlier mirror in the other direction
// ended, and is the source's all the same.
func copies(p *PartitionStatus, e statemachine.Entry, source string) bool {
	switch {
	case p.Owner != OwnerOurs || e.State.SourceClusterID != source || e.State.SourceTopicID != p.SourceTopicID:
		return false
	case p.State == statemachine.Failed:
		return e.State.Mirrored && e.State.RetryAttempt > 0
	}
	return p.beingCopied()
}

// compareEpochs finds the point up to which the local log is the source's, as PREPARING will.
func (m *Mirror) compareEpochs(ctx context.Context, log Log, p *PartitionStatus, ev *Evidence) error {
	tp := ev.TopicPartition
	epochs, err := readEpochs(ctx, log)
	if err != nil {
		return err
	}
	p.LastEpoch = epochs.Latest()
	point := logtrunc.LMEPoint(epochs, ev.LME, ev.LMO, p.Start, p.End)
	if ev.LME != Unknown && point > p.Start {
		below := logtrunc.NewCache(epochs.Entries()...)
		below.TruncateTo(point)
		search := logtrunc.NewSearch(below, p.Start, point)
		for {
			epoch, more := search.Ask()
			if !more {
				break
			}
			answer, err := m.cfg.Source.EndOffsetForEpoch(ctx, tp, p.SourceLeaderEpoch, epoch)
			if errors.Is(err, ErrUnsupported) {
				p.NoEpochChecks = true
				break
			}
			if err != nil {
				return err
			}
			search.Answer(answer.Epoch, answer.End)
		}
		for _, r := range search.Rounds() {
			ev.Rounds = append(ev.Rounds, EpochRound(r))
		}
		common, proved := search.Result()
		switch {
		case proved:
			point = min(point, common)
		case !p.NoEpochChecks:
			return fmt.Errorf("cannot prove common history below %d: the source's answers name no leader epoch of this log", point)
		}
	}
	if point < p.End {
		// A cut through a batch drops the whole batch.
		b, err := log.Read(ctx, point, 1)
		if err != nil {
			return fmt.Errorf("reading the log at %d: %w", point, err)
		}
		for info := range Batches(b) {
			point = max(p.Start, min(point, info.Base))
			break
		}
		p.NeedsConsent = &Consent{TopicID: p.TopicID, Partition: tp.Partition, From: point, To: p.End, Episode: p.Episode}
		size := int64(0)
		if ev.Disagreements, size, err = findDisagreements(ctx, log, point, p.End); err != nil {
			return err
		}
		ev.DropBytes = KnownNumber(size)
	}
	ev.Compared, ev.CommonPoint = true, point
	return nil
}

// readEpochs reads the leader-epoch cache of a log from the headers of its batches.
// A Log that knows its epochs is read from where that ends.
func readEpochs(ctx context.Context, log LogReader) (*logtrunc.Cache, error) {
	epochs, start := logtrunc.NewCache(), log.Start()
	from := start
	if r, ok := log.(Recoverer); ok {
		if known, err := r.Recovered(ctx); err == nil && known.From > start && known.From <= log.End() {
			for _, e := range known.Epochs {
				if e.Start < known.From {
					epochs.Assign(e.Epoch, max(e.Start, start))
				}
			}
			from = known.From
		}
	}
	err := readLog(ctx, log, from, log.End(), func(b []byte) error {
		for info := range Batches(b) {
			epochs.Assign(info.LeaderEpoch, max(min(info.Base, from), start)) // what compaction took may have been of this epoch
			from = info.Next()
		}
		return nil
	})
	return epochs, err
}

// FailbackReport is what a failback did. It is plain data.
type FailbackReport struct {
	Mirror     string
	Began      time.Time
	Took       time.Duration
	Topics     []TopicResult // refused topics, and topics without logs
	Partitions []FailbackResult
	// Verification is what comparing both logs found when all of the above was done, or why nothing was compared (Config.Verifier). It is no part of Took, and changes nothing.
	Verification Verification
}

// FailbackResult is what happened to one partition.
type FailbackResult struct {
	Topic       string
	Partition   int32
	State       statemachine.State
	Err         error // why it is not mirroring and caught up; nil: it is
	DroppedFrom int64 // [DroppedFrom, DroppedTo) was cut, and handed to the sink before; both 0: nothing was
	DroppedTo   int64
	End         int64 // of the copy now
	SourceEnd   int64 // as last measured, Unknown
}

// ErrPlanRefused: a plan that cannot be carried out as a whole. Its String says why; plan again after mending that, or plan for other topics.
var ErrPlanRefused = errors.New("mirror: the plan has refused parts")

// ExecuteFailback carries a plan out: it starts the plan's topics with consent to exactly the ranges that the plan names, and waits until every partition is mirroring and
// has caught up. If a range has grown since, that partition is refused and keeps everything; a smaller one is cut. Dropped records go to Config.Sink first.
// The history has the plan's Reason and Hash.
// A plan of another mirror, or of other clusters than those that are here as far as both know them, is refused with InvalidRequest before anything is written.
// The context bounds the wait; what is not caught up by then goes on in the background. errors.Is finds ErrPlanRefused, ErrIncomplete or the context's end.
// Last of all, with Config.Verifier, what is caught up is compared with the source for Config.VerifyBound at most. The report has what that found; it is no error, and undoes nothing.
func (m *Mirror) ExecuteFailback(ctx context.Context, plan FailbackPlan) (FailbackReport, error) {
	r := FailbackReport{Mirror: m.cfg.Name, Began: time.Now()}
	if err := m.fits(plan.Mirror, plan.SourceClusterID, plan.DestinationClusterID); err != nil {
		return r, err
	}
	if plan.Severity == SeverityRefused {
		return r, ErrPlanRefused
	}
	if len(plan.Topics) == 0 {
		return r, nil
	}
	result, err := m.admin.Failback(ctx, plan, ConsentOptions{})
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
		return len(t.Partitions) > 0 && !slices.ContainsFunc(t.Partitions, func(p PartitionStatus) bool {
			return !p.Halted && !caughtUp(&p) && !(p.State == statemachine.Failed && p.RetryAttempt == statemachine.NonRetryable)
		})
	})
	st := m.Status()
	r.Topics = append(r.Topics, m.withoutLogs(&st, members)...)
	unfinished := topicNames(r.Topics)
	for _, t := range st.Topics {
		if !members[t.Topic] {
			continue
		}
		for i := range t.Partitions {
			p := &t.Partitions[i]
			res := FailbackResult{Topic: p.Topic, Partition: p.Partition, State: p.State, DroppedFrom: p.DroppedFrom, DroppedTo: p.DroppedTo, End: p.End, SourceEnd: p.SourceEnd}
			if !caughtUp(p) {
				reason := p.Reason
				if reason == "" {
					reason = fmt.Sprintf("%s, not caught up: source end %s, end here %d", p.State, KnownNumber(p.SourceEnd), p.End)
				}
				res.Err = &Error{Code: InvalidClusterMirrorState, Mirror: m.cfg.Name, Topic: p.Topic, Partition: p.Partition, Message: reason, Err: waitErr}
				unfinished = append(unfinished, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
			}
			r.Partitions = append(r.Partitions, res)
		}
	}
	r.Took = time.Since(r.Began)
	r.Verification = m.verifyFailback(ctx, &plan, r.Partitions)
	if len(unfinished) == 0 {
		return r, nil
	}
	return r, incomplete(unfinished, waitErr)
}

func caughtUp(p *PartitionStatus) bool {
	return !p.Halted && p.State == statemachine.Mirroring && p.LagOffsets == 0
}

// String is the report for a person.
func (r FailbackReport) String() string {
	var t planText
	t.line("FAILBACK REPORT  mirror %s  %s  took %s", r.Mirror, stamp(r.Began), r.Took.Round(time.Millisecond))
	var rows, notes [][]string
	for _, x := range r.Topics {
		notes = append(notes, []string{x.Topic, x.Err.Error()})
	}
	for _, p := range r.Partitions {
		name := fmt.Sprintf("%s-%d", p.Topic, p.Partition)
		dropped, result := "-", "in step"
		if p.DroppedTo > p.DroppedFrom {
			dropped = fmt.Sprintf("[%d,%d)", p.DroppedFrom, p.DroppedTo)
		}
		if p.Err != nil {
			result = "NOT IN STEP"
			notes = append(notes, []string{name, p.Err.Error()})
		}
		rows = append(rows, []string{name, p.State.String(), dropped, fmt.Sprint(p.End), KnownNumber(p.SourceEnd).String(), result})
	}
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"PARTITION", "STATE", "DROPPED", "END HERE", "SOURCE END", "RESULT"}, rows)
	}
	for i, n := range notes {
		if i == 0 {
			t.line("")
		}
		t.line("%s: %s", n[0], n[1])
	}
	if v := r.Verification; !v.Began.IsZero() || v.NotDone != "" {
		t.line("")
		t.WriteString(v.String())
	}
	return t.String()
}
