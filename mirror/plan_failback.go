package mirror

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

// FailbackOptions say what a failback is to be planned for.
type FailbackOptions struct {
	// Topics to bring back; none: every member.
	Topics []string
	// Reason is why, for the history: one line, at most 1000 characters.
	Reason string
}

// FailbackPlan is what this cluster, which was the source once and is to become a mirror of the cluster that took over, would have to drop. Mirror.PlanFailback makes
// it and changes nothing; a Start that was refused for want of consent leads to the same plan. A Start with Consents carries exactly this plan out. It is plain data.
type FailbackPlan struct {
	Mirror               string              `json:"mirror"`
	SourceClusterID      string              `json:"sourceClusterId"`      // the cluster that has the truth now
	DestinationClusterID string              `json:"destinationClusterId"` // the cluster that gives records up
	Taken                time.Time           `json:"taken"`
	Severity             Severity            `json:"severity"`
	Dropped              int64               `json:"dropped"`            // offsets given up, all partitions together
	DropBytes            Number              `json:"dropBytes,omitzero"` // of their batches, as a Sink is handed them: what it needs room for. Unknown where one of the partitions was not read for this plan
	Preconditions        []Precondition      `json:"preconditions"`
	Topics               []PlanTopic         `json:"topics"` // outcome drop, go or refused
	Partitions           []FailbackPartition `json:"partitions"`
	Groups               FailbackGroups      `json:"groups,omitzero"`   // what becomes of groups there
	Settings             FailbackSettings    `json:"settings,omitzero"` // of topics, that follow the source back
	Rules                FailbackRules       `json:"rules,omitzero"`    // access rules that do
	Reason               string              `json:"reason,omitempty"`  // why, and whoever carries the plan out may set it; the history has "failback of plan HASH" where there is none
}

// Precondition is something that has to hold before the plan is carried out.
type Precondition struct {
	What   string `json:"what"`
	Holds  bool   `json:"holds"`
	Detail string `json:"detail"` // why it does not hold and what to do
}

// FailbackPartition is what would happen to one partition.
type FailbackPartition struct {
	Topic       string    `json:"topic"`
	Partition   int32     `json:"partition"`
	TopicID     TopicID   `json:"-"` // this cluster's; in JSON "topicId", as Kafka prints it
	Episode     int32     `json:"episode"`
	State       string    `json:"state"`
	Outcome     Outcome   `json:"outcome"` // drop, go or refused
	Severity    Severity  `json:"severity"`
	CommonPoint Number    `json:"commonPoint"` // both logs are equal below it
	From        Number    `json:"from"`        // [From, To) would be dropped; unknown if nothing is
	To          Number    `json:"to"`
	Dropped     Number    `json:"dropped"`            // offsets given up
	DropBytes   Number    `json:"dropBytes,omitzero"` // of their batches, read when this was planned
	Start       int64     `json:"start"`              // of this cluster's log
	End         int64     `json:"end"`
	SourceEnd   Number    `json:"sourceEnd"`
	SourceSeen  time.Time `json:"sourceSeen,omitzero"`
	// What led to the common point: what the source recorded when it stopped mirroring us, then the rounds of questions about leader epochs.
	LME           Number         `json:"lastMirrorEpoch"`
	LMO           Number         `json:"lastMirrorOffset"`
	Rounds        []EpochRound   `json:"rounds"`
	Disagreements []Disagreement `json:"disagreements"`
	Reasons       []string       `json:"reasons"`
}

// Disagreement is a transaction that this cluster committed and the other one aborted when it stopped mirroring (F-47): its COMMIT marker is among what
// would be dropped, its records are not. Whoever reads here afterwards no longer sees them committed.
type Disagreement struct {
	ProducerID    int64 `json:"producerId"`
	ProducerEpoch int16 `json:"producerEpoch"`
	CommitAt      int64 `json:"commitAt"`
	Possible      bool  `json:"possible,omitempty"` // where its transaction began was not found: it may be one that is dropped as a whole
}

// PlanFailback says what a failback would drop. It is a pure function: it asks nobody, and its only time is s.Taken.
func PlanFailback(s Snapshot, o FailbackOptions) FailbackPlan {
	plan := FailbackPlan{
		Mirror: s.Mirror, SourceClusterID: s.SourceClusterID, DestinationClusterID: s.DestinationClusterID, Taken: s.Taken.Round(0).UTC(),
		Severity: SeveritySafe, Topics: []PlanTopic{}, Partitions: []FailbackPartition{}, Reason: o.Reason,
		Groups: s.FailbackGroups, Settings: s.FailbackSettings, Rules: s.FailbackRules,
	}
	compared, still := true, true
	var bytes, unread int64
	index := indexed(&s)
	for _, name := range planTopics(&s, o.Topics) {
		topic := PlanTopic{Topic: name, Outcome: OutcomeGo}
		member, ok := index.topic(name)
		partitions := index.partitions[name]
		switch {
		case !ok:
			topic.Outcome, topic.Code = OutcomeRefused, TopicNotInClusterMirror
			topic.Reason = "the topic is not in this mirror and was not compared; Mirror.PlanFailback compares it, or a start without consents, which then changes nothing"
		case member.Missing:
			topic.Reason = member.Reason
		case len(partitions) == 0:
			topic.Outcome, topic.Reason = OutcomeRefused, cmp.Or(member.Reason, "its logs are not open here, and it is not known why")
		default:
			topic.Reason = member.Reason
		}
		compared = compared && topic.Outcome != OutcomeRefused
		for _, p := range partitions {
			f := planFailbackPartition(&s, &p)
			if f.Outcome == OutcomeRefused {
				compared = compared && p.NeedsConsent != nil
				still = still && p.NeedsConsent == nil
				topic.Outcome = OutcomeRefused
			} else if f.Outcome == OutcomeDrop && topic.Outcome == OutcomeGo {
				topic.Outcome = OutcomeDrop
			}
			if n, ok := f.Dropped.Value(); ok && f.Outcome == OutcomeDrop {
				plan.Dropped += n
				if size, read := f.DropBytes.Value(); read {
					bytes += size
				} else {
					unread++
				}
			}
			plan.Severity = worse(plan.Severity, f.Severity)
			plan.Partitions = append(plan.Partitions, f)
		}
		if topic.Outcome == OutcomeRefused {
			plan.Severity = SeverityRefused
		}
		plan.Topics = append(plan.Topics, topic)
	}
	if unread == 0 {
		plan.DropBytes = KnownNumber(bytes)
	}
	hold := func(what string, holds bool, detail string) {
		if holds {
			detail = ""
		}
		plan.Preconditions = append(plan.Preconditions, Precondition{what, holds, detail})
	}
	hold("the source answers", s.SourceError == "", s.SourceError)
	hold("every log was compared with the source", compared, "the refused ones say why; mend that, then plan again")
	hold("no log here has grown since it was compared", still, "somebody writes; end the writers, then plan again")
	if r := s.MissingRights; r != nil {
		hold("no right is missing at the destination", r.Count == 0, strings.Join(r.Names, "; ")+"; preflight has the commands, then plan again")
	}
	return plan
}

func planFailbackPartition(s *Snapshot, p *PartitionStatus) FailbackPartition {
	f := FailbackPartition{
		Topic: p.Topic, Partition: p.Partition, TopicID: p.TopicID, Episode: p.Episode, State: p.State.String(), Severity: SeveritySafe,
		Start: p.Start, End: p.End, SourceEnd: KnownNumber(p.SourceEnd), Rounds: []EpochRound{}, Disagreements: []Disagreement{}, Reasons: []string{},
	}
	if p.SourceSeen.IsZero() {
		f.SourceEnd = Number{}
	} else {
		f.SourceSeen = p.SourceSeen.Round(0).UTC()
	}
	say := func(format string, args ...any) { f.Reasons = append(f.Reasons, fmt.Sprintf(format, args...)) }
	compared := false
	if i := slices.IndexFunc(s.Evidence, func(e Evidence) bool { return e.TopicPartition == TopicPartition{p.Topic, p.Partition} }); i >= 0 {
		e := &s.Evidence[i]
		f.LME, f.LMO = KnownNumber(int64(e.LME)), KnownNumber(e.LMO)
		f.Rounds = append(f.Rounds, e.Rounds...)
		f.Disagreements = append(f.Disagreements, e.Disagreements...)
		f.DropBytes = e.DropBytes
		if compared = e.Compared; compared {
			f.CommonPoint = KnownNumber(e.CommonPoint)
		}
	}
	refuse := func(format string, args ...any) {
		f.Outcome, f.Severity = OutcomeRefused, SeverityRefused
		say(format, args...)
	}
	if need := p.NeedsConsent; need != nil {
		f.Outcome, f.Severity = OutcomeDrop, SeverityLoses
		f.TopicID, f.Episode = need.TopicID, need.Episode
		f.From, f.To, f.Dropped = KnownNumber(need.From), KnownNumber(need.To), KnownNumber(need.To-need.From)
		if _, recorded := f.LME.Value(); recorded {
			f.CommonPoint = KnownNumber(need.From)
		} else {
			f.CommonPoint = Number{} // nothing was compared: all of it is given up
		}
		if p.Reason != "" {
			say("%s", p.Reason)
		}
		if _, recorded := f.LME.Value(); compared && !recorded {
			say("the source recorded no last mirror epoch for this cluster: what it has of these records cannot be told, so all of them are given up")
		}
		if p.NoEpochChecks {
			say("no divergence checks: the source cannot answer for leader epochs, the common point is only what it recorded")
		}
		switch {
		case p.Owner == OwnerForeign:
			refuse("another process has this log under leader epoch %d", p.LeaderEpoch)
		case need.To != p.End:
			refuse("the log ends at %d, but it was compared when it ended at %d: somebody writes to it", p.End, need.To)
		}
		return f
	}
	retried := p.State == statemachine.Failed && p.RetryAttempt > 0
	if compared && (p.State == statemachine.Stopped || p.State == statemachine.Unknown || retried) {
		f.Outcome, f.Dropped, f.DropBytes = OutcomeGo, KnownNumber(0), KnownNumber(0)
		say("nothing has to be dropped")
		if retried {
			say("FAILED: %s; it is tried again by itself (so far %s), and a failback waits for that", orUnknown(p.Reason), plural(int(p.RetryAttempt), "time", "times"))
		}
		return f
	}
	switch p.State {
	case statemachine.Mirroring, statemachine.EpochFencing, statemachine.Pausing, statemachine.Paused:
		f.Outcome, f.CommonPoint, f.Dropped, f.DropBytes = OutcomeGo, KnownNumber(p.End), KnownNumber(0), KnownNumber(0)
		say("nothing had to be dropped")
	case statemachine.Failed:
		refuse("FAILED: %s", orUnknown(p.Reason))
	case statemachine.Stopped, statemachine.Unknown:
		refuse("not compared: Mirror.PlanFailback compares the logs, or a start without consents, which then changes nothing")
	case statemachine.Stopping:
		refuse("a stop is under way%s", because(p.Step))
	default:
		refuse("not compared yet%s%s", because(p.Step), because(p.Reason))
	}
	return f
}

// Consents are exactly what has to be consented to: a Start with them carries the plan out. Refused partitions have none. The slice is the caller's.
func (p FailbackPlan) Consents() []Consent {
	var consents []Consent
	for _, x := range p.Partitions {
		from, known := x.From.Value()
		if to, ok := x.To.Value(); known && ok && x.Outcome == OutcomeDrop {
			consents = append(consents, Consent{TopicID: x.TopicID, Partition: x.Partition, From: from, To: to, Episode: x.Episode})
		}
	}
	slices.SortFunc(consents, compareConsents)
	return consents
}

// TopicNames lists the topics that a Start with Consents has to name.
func (p FailbackPlan) TopicNames() []string {
	var names []string
	for _, x := range p.Partitions {
		if x.Outcome == OutcomeDrop && !slices.Contains(names, x.Topic) {
			names = append(names, x.Topic)
		}
	}
	return names
}

// String is the plan for a person.
func (p FailbackPlan) String() string {
	var t planText
	t.line("FAILBACK PLAN  mirror %s  %s", p.Mirror, stamp(p.Taken))
	t.line("source %s → destination %s, which gives records up", orUnknown(p.SourceClusterID), orUnknown(p.DestinationClusterID))
	var drop, ready, refused int
	for _, x := range p.Partitions {
		switch x.Outcome {
		case OutcomeDrop:
			drop++
		case OutcomeGo:
			ready++
		default:
			refused++
		}
	}
	verdict := "NOTHING TO DROP"
	if drop > 0 {
		verdict = fmt.Sprintf("DROPS %s in %s, after consent", plural(int(p.Dropped), "OFFSET", "OFFSETS"), plural(drop, "partition", "partitions"))
	}
	if ready > 0 {
		verdict += fmt.Sprintf("; %s ready without consent", plural(ready, "partition", "partitions"))
	}
	if refused > 0 {
		verdict += fmt.Sprintf("; %s NOT READY", plural(refused, "partition", "partitions"))
	}
	for _, x := range p.Topics {
		if x.Outcome == OutcomeRefused && x.Code != OK {
			verdict += fmt.Sprintf("; topic %s REFUSED", x.Topic)
		}
	}
	t.line("%s", verdict)
	if size, read := p.DropBytes.Value(); drop > 0 && read {
		t.line("they are %s of batches, read for this plan: the sink needs room for them", plural(int(size), "byte", "bytes"))
	} else if drop > 0 {
		t.line("how many bytes the sink needs room for is unknown: not all of it was read for this plan")
	}
	p.followsLines(&t)
	t.line("")
	for _, c := range p.Preconditions {
		mark := "yes"
		if !c.Holds {
			mark = "NO "
		}
		if c.Detail == "" {
			t.line("%s  %s", mark, c.What)
		} else {
			t.line("%s  %s: %s", mark, c.What, c.Detail)
		}
	}
	var rows, notes [][]string
	for _, x := range p.Topics {
		if x.Reason != "" {
			code := ""
			if x.Code != OK {
				code = x.Code.String() + ": "
			}
			notes = append(notes, []string{x.Topic, code + x.Reason})
		}
	}
	for _, x := range p.Partitions {
		name := fmt.Sprintf("%s-%d", x.Topic, x.Partition)
		cut := "-"
		if from, ok := x.From.Value(); ok {
			cut = fmt.Sprintf("[%d,%s)", from, x.To)
		}
		source := "unknown"
		if end, ok := x.SourceEnd.Value(); ok {
			source = fmt.Sprintf("%d, seen %s", end, age(p.Taken.Sub(x.SourceSeen)))
		}
		rows = append(rows, []string{name, x.State, fmt.Sprint(x.End), source, x.CommonPoint.String(), cut, x.Dropped.String(), string(x.Outcome)})
		if from, ok := x.From.Value(); ok && x.Outcome == OutcomeDrop {
			point := "common point " + x.CommonPoint.String()
			notes = append(notes, []string{name, fmt.Sprintf("%s; this cluster gives up %d..%d", point, from, x.lastDropped())})
		}
		if e, ok := x.LME.Value(); ok {
			notes = append(notes, []string{name, fmt.Sprintf("the source recorded: mirrored from here up to leader epoch %d, offset %s", e, x.LMO)})
		}
		for i, r := range x.Rounds {
			answer := "undefined"
			if r.Epoch >= 0 && r.End >= 0 {
				answer = fmt.Sprintf("its epoch %d ends at %d", r.Epoch, r.End)
			}
			notes = append(notes, []string{name, fmt.Sprintf("round %d: where does leader epoch %d end at the source? %s; common point at most %d", i+1, r.Ask, answer, r.Boundary)})
		}
		for _, d := range x.Disagreements {
			words := "committed here at %d, aborted at the source; its records below the common point end as aborted"
			if d.Possible {
				words = "committed here at %d; it may have records below the common point, which end as aborted then (where it began was not found)"
			}
			notes = append(notes, []string{name, fmt.Sprintf("producer %d epoch %d: "+words, d.ProducerID, d.ProducerEpoch, d.CommitAt)})
		}
		for _, r := range x.Reasons {
			notes = append(notes, []string{name, r})
		}
	}
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"PARTITION", "STATE", "END HERE", "SOURCE END", "COMMON POINT", "DROPS", "OFFSETS", "PLAN"}, rows)
	}
	if len(notes) > 0 {
		t.line("")
		for _, n := range notes {
			t.line("%s: %s", n[0], n[1])
		}
	}
	p.followsText(&t)
	return t.String()
}

func (x *FailbackPartition) lastDropped() int64 {
	to, _ := x.To.Value()
	return to - 1
}

// JSON is the plan with stable field names, indented. What is unknown is null; encoding/json reads an equal plan from it.
func (p FailbackPlan) JSON() ([]byte, error) { return indentedJSON(p) }

// plainFailbackPartition has the fields of FailbackPartition and no methods.
type plainFailbackPartition FailbackPartition

type failbackPartitionJSON struct {
	TopicID string `json:"topicId"`
	plainFailbackPartition
}

// MarshalJSON writes the topic id as Kafka prints it.
func (x FailbackPartition) MarshalJSON() ([]byte, error) {
	return json.Marshal(failbackPartitionJSON{x.TopicID.String(), plainFailbackPartition(x)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (x *FailbackPartition) UnmarshalJSON(b []byte) error {
	var in failbackPartitionJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*x = FailbackPartition(in.plainFailbackPartition)
	id, err := base64.RawURLEncoding.DecodeString(in.TopicID)
	if err != nil || len(id) != len(x.TopicID) {
		return fmt.Errorf("mirror: %q is not a topic id", in.TopicID)
	}
	x.TopicID = TopicID(id)
	return nil
}

// disagreementBytes is how far below the range findDisagreements looks for where transactions began.
const disagreementBytes = 64 << 20

// findDisagreements reads what would be dropped of a log, [from, to), and lists the COMMIT markers in it whose transactions began below from: the other cluster
// ended those with an ABORT when it stopped mirroring. A marker of a transaction that wrote nothing to this partition is listed too; no log tells them apart.
// A transaction that has records in the range may have others below it: that is looked for downwards, in 64 MiB at most, and what is not found by then is listed as possible.
// It reads in pieces of at most 4 MiB or one batch. size is how many bytes it has read of the range. Errors are the log's, or a batch that cannot be read.
func findDisagreements(ctx context.Context, log LogReader, from, to int64) (disagreements []Disagreement, size int64, err error) {
	var found []Disagreement
	wrote, ended := map[int64]bool{}, map[int64]bool{} // producers that wrote in the range before a marker of theirs; whose first transaction there has ended
	asked := map[int64]bool{}                          // producers of which it has to be known whether they had a transaction open at from
	err = readLog(ctx, log, from, to, func(batches []byte) error {
		for h, one := range batch.All(batches) {
			size += int64(len(one))
			switch {
			case h.Control():
				c, err := batch.ReadControl(one, &h)
				if err != nil {
					return err
				}
				if c.Type == batch.ControlCommit && !ended[h.ProducerID] {
					found = append(found, Disagreement{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, CommitAt: h.BaseOffset})
					if wrote[h.ProducerID] {
						asked[h.ProducerID] = true
					}
				}
				if c.Type == batch.ControlCommit || c.Type == batch.ControlAbort {
					ended[h.ProducerID] = true
				}
			case h.Transactional():
				wrote[h.ProducerID] = true
			}
		}
		return nil
	})
	var open map[int64]bool
	if err == nil {
		open, err = openAt(ctx, log, from, asked)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("mirror: looking for transactions in [%d,%d): %w", from, to, err)
	}
	kept := found[:0]
	for _, d := range found {
		was, known := open[d.ProducerID]
		d.Possible = asked[d.ProducerID] && !known
		if was || d.Possible || !asked[d.ProducerID] {
			kept = append(kept, d)
		}
	}
	if len(kept) == 0 {
		return nil, size, nil
	}
	return kept, size, nil
}

// openAt says which of these producers had a transaction open at an offset, by the last that they wrote below it. It looks downwards, and says nothing of one of which it found nothing in
// disagreementBytes.
func openAt(ctx context.Context, log LogReader, at int64, producers map[int64]bool) (open map[int64]bool, err error) {
	open = map[int64]bool{}
	read := 0
	for to, width := at, int64(1000); len(open) < len(producers) && read < disagreementBytes; width *= 4 {
		from := max(log.Start(), to-width)
		last := map[int64]bool{}
		if err := readLog(ctx, log, from, to, func(batches []byte) error {
			read += len(batches)
			for h := range batch.All(batches) {
				if _, known := open[h.ProducerID]; producers[h.ProducerID] && !known && h.BaseOffset < to {
					last[h.ProducerID] = h.Transactional() && !h.Control()
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
		maps.Copy(open, last)
		if to = from; to <= log.Start() {
			for id := range producers {
				if _, known := open[id]; !known {
					open[id] = false // nothing of it lies below
				}
			}
		}
	}
	return open, nil
}
