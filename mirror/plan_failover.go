package mirror

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// FailoverOptions say what a failover is to be planned for.
type FailoverOptions struct {
	// Topics to fail over; none: every member.
	Topics []string
	// Fresh is the age up to which a measured source end counts as what it is now [10 s]. An older one only says what was missing then.
	Fresh time.Duration
	// Partial allows failing over a part of a topic set.
	Partial bool
	// Drain is how long partitions whose source still answers may go on copying before they are stopped, at most (StopOptions.Drain). 0: the source is not touched.
	Drain time.Duration
	// Torn is what to do about transactions that would be torn apart [TornAbort].
	Torn TornPolicy
	// MaxGiveUp is how many offsets TornCut may give up, of all partitions together; 0: no bound. Where it would be more, the failover is as with TornAbort, and plan and report say so.
	MaxGiveUp int64
	// CutReaders: TornCut also gives up what readers of the copies may have seen. Without it the failover is refused (ErrCutExposed) where it would, and the plan names the offsets.
	CutReaders bool
	// ClockSkew is how far a producer's clock may be ahead of the clocks of the source's brokers [txncut.DefaultSkew]. It says which COMMIT a transaction of version 1 may belong to; see txncut.Options.
	ClockSkew time.Duration
	// Reason is why, for the history: one line, at most 1000 characters.
	Reason string
}

// FailoverPlan is what making the copy writable would do. It is plain data: String is for a person, JSON gives back an equal plan.
// The failover itself may differ from it only towards less loss, and reports where it does; it never refuses because ends have moved.
type FailoverPlan struct {
	Mirror               string              `json:"mirror"`
	SourceClusterID      string              `json:"sourceClusterId"`
	DestinationClusterID string              `json:"destinationClusterId"`
	Taken                time.Time           `json:"taken"`
	SourceError          string              `json:"sourceError"`
	Severity             Severity            `json:"severity"`           // the worst of all topics and partitions
	Loss                 Loss                `json:"loss"`               // of all partitions that will be stopped
	LossBytes            Number              `json:"lossBytes,omitzero"` // about how many bytes those are of which the size is known
	Topics               []PlanTopic         `json:"topics"`             // in the order of the request
	Partitions           []FailoverPartition `json:"partitions"`
	Partial              bool                `json:"partial"`                // FailoverOptions.Partial
	Torn                 []string            `json:"torn"`                   // topic sets of which only a part would be stopped, one sentence each; without Partial the failover is refused
	Unwanted             int                 `json:"unwanted"`               // partitions that only the state store knows of (Snapshot.Unwanted): they are not in this plan
	Groups               []PlanGroup         `json:"groups,omitempty"`       // of which a person has to know, by name
	GroupsInStep         int                 `json:"groupsInStep,omitempty"` // other groups with offsets in topics that will be stopped
	GroupsError          string              `json:"groupsError,omitempty"`  // Snapshot.GroupsError
	GroupsSeen           time.Time           `json:"groupsSeen,omitzero"`    // Snapshot.GroupsSeen
	Streams              []PlanStreams       `json:"streams,omitempty"`      // Kafka Streams applications, by name
	Surroundings         Surroundings        `json:"surroundings,omitzero"`  // Snapshot.Surroundings
	// HighestProducerID is the highest in the copies that will be stopped; unknown, and absent in JSON: they hold none.
	HighestProducerID Number           `json:"highestProducerId,omitzero"`
	GroupPlaces       []PlanGroupPlace `json:"groupPlaces,omitempty"` // where groups go on after the stop, by group, topic and partition
	// GroupsUnlooked are partitions (TOPIC-NUMBER) that will be stopped, and whose groups were not looked at since their mirroring began: what the source has of them is not known.
	GroupsUnlooked []string `json:"groupsUnlooked,omitempty"`
	// Drain is FailoverOptions.Drain: what the copies get meanwhile is less loss than the plan says.
	Drain time.Duration `json:"drainNanoseconds,omitempty"`
	// Predicted is what it is expected to take, step by step: the longest failover that was measured; nil: none was.
	Predicted *MeasuredFailover `json:"predicted,omitempty"`
	// TornPolicy is FailoverOptions.Torn, "" for TornAbort. With TornRefuse the failover looks again, and is refused if anything is torn then. With TornCut the cut is in TornTransactions.Cut, what it gives up
	// is counted in Loss, and the failover, which finds the cut anew when its copies stand still, ends no partition below where this plan does: rather it makes no cut, and says so.
	TornPolicy TornPolicy `json:"tornPolicy,omitempty"`
	MaxGiveUp  int64      `json:"maxGiveUp,omitempty"`  // FailoverOptions.MaxGiveUp
	CutReaders bool       `json:"cutReaders,omitempty"` // FailoverOptions.CutReaders
	// TornTransactions would end committed in some partitions and aborted in others (Torn is about topics). What clocks may differ by is in ClockSkew.
	TornTransactions TornTransactions `json:"tornTransactions,omitzero"`
	ClockSkew        time.Duration    `json:"clockSkewNanoseconds,omitempty"` // FailoverOptions.ClockSkew
	Reason           string           `json:"reason,omitempty"`               // FailoverOptions.Reason; the history has "failover of plan HASH" where there is none

	stops  int                          // of a description, which has no Partitions: how many will be stopped
	looked map[TopicPartition]time.Time // of a description: when the process that has a partition looked at groups last; nil in a plan
}

// PlanTopic is what a plan intends for one topic.
type PlanTopic struct {
	Topic   string  `json:"topic"`
	Outcome Outcome `json:"outcome"` // failover: stop, done or refused; failback: drop, go or refused
	Code    Code    `json:"code"`    // of a refusal of the whole topic; 0 otherwise
	Reason  string  `json:"reason"`
}

// FailoverPartition is what is intended for one partition, and what is known of it.
type FailoverPartition struct {
	Topic      string               `json:"topic"`
	Partition  int32                `json:"partition"`
	Outcome    Outcome              `json:"outcome"` // stop, done or refused
	Severity   Severity             `json:"severity"`
	State      string               `json:"state"`               // KIP-1279's name
	MirrorEnd  Number               `json:"mirrorEnd"`           // replicated end of the copy; of one that is done: the last mirror offset
	SourceEnd  Number               `json:"sourceEnd"`           // the source's high watermark as last measured
	SourceSeen time.Time            `json:"sourceSeen,omitzero"` // when that was; zero, and absent in JSON: never
	Loss       Loss                 `json:"loss"`
	LossBytes  Number               `json:"lossBytes,omitzero"` // about how many bytes Loss.Offsets are, by what was copied last; unknown, and absent in JSON: nothing was
	InStep     time.Time            `json:"inStep,omitzero"`    // the last moment at which the copy held everything then known at the source; zero, and absent in JSON: never
	OpensAt    Number               `json:"opensAt"`            // first offset for clients, if nothing more is copied before the stop
	Aborts     []PlannedTransaction `json:"aborts"`             // open transactions that the stop ends
	Reasons    []string             `json:"reasons"`            // why refused, why failed, and what else a person has to know
}

// PlannedTransaction is one open transaction that gets an ABORT marker: what it wrote in [FirstOffset, LastOffset] stays hidden from read_committed readers.
type PlannedTransaction struct {
	ProducerID    int64 `json:"producerId"`
	ProducerEpoch int16 `json:"producerEpoch"`
	FirstOffset   int64 `json:"firstOffset"`
	LastOffset    int64 `json:"lastOffset"`
	// TransactionalID is whose the producer id was at the source when that was seen last (Surroundings.TransactionalIDs), "" if that is not known.
	TransactionalID string `json:"transactionalId,omitempty"`
}

// PlanFailover says what a failover would do. It is a pure function: it asks nobody, and its only time is s.Taken.
func PlanFailover(s Snapshot, o FailoverOptions) FailoverPlan {
	fresh := cmp.Or(o.Fresh, 10*time.Second)
	plan := FailoverPlan{
		Mirror: s.Mirror, SourceClusterID: s.SourceClusterID, DestinationClusterID: s.DestinationClusterID, Taken: s.Taken.Round(0).UTC(), SourceError: s.SourceError,
		Severity: SeveritySafe, Topics: []PlanTopic{}, Partitions: []FailoverPartition{}, Partial: o.Partial, Torn: []string{},
		Unwanted: s.Unwanted, Reason: o.Reason, Drain: o.Drain, Predicted: predicted(s.Failovers), TornPolicy: o.Torn.stored(), ClockSkew: o.ClockSkew, Surroundings: s.Surroundings.clone(),
		MaxGiveUp: o.MaxGiveUp, CutReaders: o.CutReaders,
	}
	var known int64
	never := false
	index := indexed(&s)
	for _, name := range planTopics(&s, o.Topics) {
		topic := PlanTopic{Topic: name, Outcome: OutcomeDone}
		member, ok := index.topic(name)
		partitions := index.partitions[name]
		switch {
		case !ok:
			topic.Outcome, topic.Code, topic.Reason = OutcomeRefused, TopicNotInClusterMirror, "not mirrored: the topic is not in this mirror; nothing is done"
			plan.Severity = SeverityRefused
		case len(partitions) == 0:
			topic.Outcome = OutcomeRefused
			topic.Reason = "its logs are not open here: " + cmp.Or(member.Reason, "it is not known why")
			plan.Severity = SeverityRefused
		default:
			topic.Reason = member.Reason
		}
		for _, p := range partitions {
			f := planFailoverPartition(&s, &p, fresh)
			plan.Partitions = append(plan.Partitions, f)
			plan.Severity = worse(plan.Severity, f.Severity)
			if f.Outcome != OutcomeDone && topic.Outcome == OutcomeDone {
				topic.Outcome = f.Outcome
			}
			if f.Outcome == OutcomeStop {
				topic.Outcome = OutcomeStop
				n, ok := f.Loss.Offsets.Value()
				known += n
				plan.HighestProducerID = KnownNumber(max(plan.HighestProducerID.orUnknown(), p.HighestProducerID))
				if size, ok := f.LossBytes.Value(); ok {
					plan.LossBytes = KnownNumber(max(0, plan.LossBytes.orUnknown()) + size)
				}
				never = never || !ok
				plan.Loss.AtLeast = plan.Loss.AtLeast || !ok || f.Loss.AtLeast
			}
		}
		if topic.Outcome == OutcomeStop {
			topic.Reason = cautioned(topic.Reason, name)
		}
		plan.Topics = append(plan.Topics, topic)
	}
	plan.Torn = append(plan.Torn, tornSets(&s, &index, plan.Topics)...)
	if len(plan.Torn) > 0 && !plan.Partial {
		plan.Severity = SeverityRefused
	}
	known += plan.planTorn(&s)
	plan.addGroups(&s, fresh)
	plan.Loss.Offsets = KnownNumber(known)
	if never && known == 0 {
		plan.Loss = Loss{}
	}
	return plan
}

func planFailoverPartition(s *Snapshot, p *PartitionStatus, fresh time.Duration) FailoverPartition {
	f := FailoverPartition{
		Topic: p.Topic, Partition: p.Partition, Outcome: OutcomeStop, State: p.State.String(),
		MirrorEnd: KnownNumber(p.Replicated), SourceEnd: KnownNumber(p.SourceEnd), Aborts: []PlannedTransaction{}, Reasons: []string{},
	}
	if p.SourceSeen.IsZero() {
		f.SourceEnd = Number{}
	} else {
		f.SourceSeen = p.SourceSeen.Round(0).UTC()
	}
	say := func(format string, args ...any) { f.Reasons = append(f.Reasons, fmt.Sprintf(format, args...)) }

	switch {
	case p.Owner == OwnerForeign && p.State != statemachine.Stopped:
		f.Outcome, f.Severity = OutcomeRefused, SeverityRefused
		say("another process has this log under leader epoch %d; run the failover there, or end that process first", p.LeaderEpoch)
	case p.LME != nil && p.LME.Episode == p.Episode && p.State != statemachine.Stopped && p.LME.Offset > p.End:
		f.Outcome, f.Severity = OutcomeRefused, SeverityRefused
		say("destination log lost: it ends at %d, below the last mirror offset %d that was recorded; restore the log first", p.End, p.LME.Offset)
	case p.State == statemachine.Stopped:
		f.Outcome, f.Severity, f.Loss = OutcomeDone, SeveritySafe, Loss{Offsets: KnownNumber(0)}
		f.MirrorEnd = Number{}
		if p.LME != nil {
			f.MirrorEnd = KnownNumber(p.LME.Offset)
		}
		if p.Owner != OwnerOpen {
			f.Outcome = OutcomeStop
			say("stopped, but its log is not open for clients; it will be opened, nothing else is done")
		} else {
			say("already done: stopped and open for clients")
		}
		return f
	}

	if p.Reason != "" {
		say("%s: %s", p.State, p.Reason)
	}
	if p.State == statemachine.Stopping {
		say("a stop is under way%s", because(p.Step))
	}
	if p.State == statemachine.Unknown || p.State == statemachine.Preparing {
		say("not mirroring yet; the copy is opened as it is")
	}
	if p.NeedsConsent != nil {
		say("it was waiting for consent to drop [%d,%d); a failover drops nothing of it", p.NeedsConsent.From, p.NeedsConsent.To)
	}
	if p.LostTo > p.LostFrom {
		say("[%d,%d) was gone at the source before it could be copied", p.LostFrom, p.LostTo)
	}
	if p.NoEpochChecks {
		say("no divergence checks: the source cannot answer for leader epochs")
	}
	if p.End > p.Replicated {
		say("[%d,%d) is copied but not replicated; what replicas do not confirm during the stop is cut", p.Replicated, p.End)
	}
	if f.Outcome == OutcomeRefused {
		return f
	}
	for _, t := range p.InFlight {
		f.Aborts = append(f.Aborts, PlannedTransaction{t.ProducerID, t.ProducerEpoch, t.FirstOffset, t.LastOffset, s.Surroundings.transactionalID(t.ProducerID)})
	}
	if len(p.InFlight) > 0 && p.LastStable >= p.Start && p.LastStable < p.End {
		holder := slices.MinFunc(p.InFlight, func(a, b Transaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
		say("read_committed readers stand at %d, held by producer %d; the stop ends that", p.LastStable, holder.ProducerID)
	}
	opens := max(p.End, p.UsedTo)
	if p.NothingLeft {
		opens = max(opens, p.SourceEnd)
	}
	f.OpensAt = KnownNumber(opens + int64(len(f.Aborts)) + 1)
	old := s.SourceError != "" || !p.LagUnknown.IsZero() || s.Taken.Sub(p.SourceSeen) > fresh
	if p.Unproved {
		f.MirrorEnd, f.OpensAt, f.Loss.AtLeast = Number{}, Number{}, old
		say("nothing of the source is known to be here: its log was never compared to the end, so what is missing cannot be known")
		f.Severity = f.Loss.severity()
		return f
	}

	if p.LagTime != Unknown && !p.SourceSeen.IsZero() {
		f.InStep = s.Taken.Add(-p.LagTime).Round(0).UTC()
	}
	if end, ok := f.SourceEnd.Value(); ok {
		missing := max(0, end-p.Replicated)
		if p.NothingLeft {
			missing = max(0, p.End-p.Replicated)
			say("nothing is left to read up to %d, though the copy ends at %d", end, p.End)
		}
		f.Loss = Loss{Offsets: KnownNumber(missing), AtLeast: old}
		f.LossBytes = KnownNumber(bytesOf(missing, p.OffsetBytes))
	}
	f.Severity = f.Loss.severity()
	return f
}

// Text columns of a plan's table.
var failoverColumns = []string{"PARTITION", "STATE", "MIRROR END", "SOURCE END", "LOSS", "OPENS AT", "ABORTS", "PLAN"}

// String is the plan for a person: the verdict first, then a line for each partition, then what has to be known of single ones.
func (p FailoverPlan) String() string {
	var t planText
	t.line("FAILOVER PLAN  mirror %s  %s", p.Mirror, stamp(p.Taken))
	t.line("source %s → destination %s", orUnknown(p.SourceClusterID), orUnknown(p.DestinationClusterID))
	if p.SourceError != "" {
		t.line("the source does not answer: %s", p.SourceError)
	}
	t.line("%s", p.verdict())
	if line := p.lossLine(); line != "" {
		t.line("%s", line)
	}
	for _, torn := range p.Torn {
		if p.Partial {
			t.line("PARTIAL: %s", torn)
		} else {
			t.line("REFUSED: %s; plan for the whole set, or say that a part is meant (Partial)", torn)
		}
	}
	if p.Unwanted > 0 {
		t.line("NOT IN THIS PLAN: %s that the state store has in this mirror, of topics that nobody wants here; start those topics, then plan again", plural(p.Unwanted, "partition", "partitions"))
	}
	if line := p.TornTransactions.line(p.TornPolicy); line != "" {
		t.line("%s", line)
	}
	if line := p.cutLine(); line != "" {
		t.line("%s", line)
	}
	if line := p.groupsLine(); line != "" {
		t.line("%s", line)
	}
	p.streamsLines(&t)
	if p.stopping() > 0 {
		for _, line := range p.Surroundings.lines(p.HighestProducerID, p.Taken) {
			t.line("%s", line)
		}
	}
	t.line("%s", predictionLine(p.Predicted, p.Taken))
	if p.Drain > 0 {
		t.line("DRAIN, at most %v: partitions whose source answers are mirrored on until they have all that it has, each by itself; the others are stopped at once.", p.Drain)
	}
	if p.SourceError == "" && slices.ContainsFunc(p.Partitions, func(x FailoverPartition) bool {
		return x.Outcome == OutcomeStop && !x.SourceSeen.IsZero() && !x.Loss.AtLeast
	}) {
		t.line("The source still answers: end its producers first. What they write from now on is missing in the copy, and in no number here.")
	}
	var rows, notes [][]string
	for _, x := range p.Topics {
		if x.Outcome == OutcomeRefused && x.Reason != "" {
			code := ""
			if x.Code != OK {
				code = x.Code.String() + ": "
			}
			notes = append(notes, []string{x.Topic, code + x.Reason})
		} else if x.Reason != "" {
			notes = append(notes, []string{x.Topic, x.Reason})
		}
	}
	for _, x := range p.Partitions {
		name := fmt.Sprintf("%s-%d", x.Topic, x.Partition)
		loss, opens := x.Loss.String(), x.OpensAt.String()
		if x.Outcome == OutcomeDone {
			loss, opens = "-", "-"
		}
		if x.Outcome == OutcomeRefused {
			loss, opens = "-", "-"
		}
		rows = append(rows, []string{name, x.State, x.MirrorEnd.String(), x.seen(p.Taken), loss, opens, fmt.Sprint(len(x.Aborts)), string(x.Outcome)})
		for _, a := range x.Aborts {
			whose := ""
			if a.TransactionalID != "" {
				whose = fmt.Sprintf(" (transactional id %s)", a.TransactionalID)
			}
			notes = append(notes, []string{name, fmt.Sprintf("ABORT for producer %d epoch %d%s, open since %d: %d..%d stay hidden from read_committed readers, also if the source committed them",
				a.ProducerID, a.ProducerEpoch, whose, a.FirstOffset, a.FirstOffset, a.LastOffset)})
		}
		for _, r := range x.Reasons {
			notes = append(notes, []string{name, r})
		}
	}
	if len(rows) > 0 {
		t.line("")
		t.table(failoverColumns, rows)
		t.line("")
		t.line("MIRROR END: what replicas hold at the destination at the time above. SOURCE END: what the mirror last heard of the source, with its age. Loss counts offsets:")
		t.line("records and transaction markers. OPENS AT: the first offset for clients, behind one ABORT for each open transaction and one MIRROR_PID_RESET, if nothing more is copied.")
	}
	if len(notes) > 0 {
		t.line("")
		for _, n := range notes {
			t.line("%s: %s", n[0], n[1])
		}
	}
	p.TornTransactions.text(&t, p.TornPolicy)
	p.groupsText(&t)
	return t.String()
}

// seen is the source end with its age.
func (x *FailoverPartition) seen(taken time.Time) string {
	if _, known := x.SourceEnd.Value(); !known {
		return "unknown"
	}
	how := "measured"
	if x.Loss.AtLeast || x.Outcome != OutcomeStop || x.State == statemachine.Stopped.String() {
		how = "last seen"
	}
	return fmt.Sprintf("%s, %s %s", x.SourceEnd, how, age(taken.Sub(x.SourceSeen)))
}

func (p FailoverPlan) verdict() string {
	var stop, done, refused, loses, unknown, never, uncompared int
	var oldest time.Time
	for _, x := range p.Partitions {
		switch x.Outcome {
		case OutcomeDone:
			done++
		case OutcomeRefused:
			refused++
		default:
			stop++
		}
		switch x.Severity {
		case SeverityLoses:
			loses++
		case SeverityUnknown:
			if _, compared := x.MirrorEnd.Value(); !compared {
				uncompared++
				continue
			}
			unknown++
			if x.SourceSeen.IsZero() {
				never++
			} else if oldest.IsZero() || x.SourceSeen.Before(oldest) {
				oldest = x.SourceSeen
			}
		}
	}
	topics := 0
	for _, x := range p.Topics {
		if x.Outcome == OutcomeRefused {
			topics++
		}
	}
	var s string
	stopping := plural(stop, "partition", "partitions") + " to stop"
	n, known := p.Loss.Offsets.Value()
	switch {
	case stop == 0:
		s = "NOTHING TO STOP"
	case unknown+uncompared > 0:
		s = "LOSS UNKNOWN"
		switch {
		case n > 0:
			s += ", AT LEAST " + plural(int(n), "OFFSET", "OFFSETS")
		case known:
			s += ", nothing was missing when last seen"
		}
		s += "; " + stopping
		if unknown > 0 {
			s += fmt.Sprintf(", source ends of %d not measurable now (", unknown)
			if !oldest.IsZero() {
				s += fmt.Sprintf("%d last seen, the oldest %s", unknown-never, age(p.Taken.Sub(oldest)))
			}
			if never > 0 && !oldest.IsZero() {
				s += ", "
			}
			if never > 0 {
				s += fmt.Sprintf("%d never seen", never)
			}
			s += ")"
		}
		if uncompared > 0 {
			s += fmt.Sprintf(", %s not compared with the source", plural(uncompared, "copy", "copies"))
		}
	case loses > 0:
		s = fmt.Sprintf("LOSES %s in %s; %s", plural(int(n), "OFFSET", "OFFSETS"), plural(loses, "partition", "partitions"), stopping)
	default:
		s = "SAFE as of the times below: nothing that the source was known to have then is missing; " + stopping
	}
	if done > 0 {
		s += fmt.Sprintf("; %s already done", plural(done, "partition", "partitions"))
	}
	if refused > 0 {
		s += fmt.Sprintf("; %s REFUSED", plural(refused, "partition", "partitions"))
	}
	if topics > 0 {
		s += fmt.Sprintf("; %s REFUSED", plural(topics, "topic", "topics"))
	}
	return s
}

// lossLine is the loss in bytes and time, "" if there is none, or nothing is known of it that the verdict does not say.
func (p *FailoverPlan) lossLine() string {
	var oldest *FailoverPartition
	never, measured := 0, time.Time{}
	for i := range p.Partitions {
		x := &p.Partitions[i]
		if x.Outcome != OutcomeStop || x.Severity == SeveritySafe {
			continue
		}
		if !x.SourceSeen.IsZero() && (measured.IsZero() || x.SourceSeen.Before(measured)) {
			measured = x.SourceSeen
		}
		switch {
		case x.InStep.IsZero():
			never++
		case oldest == nil || x.InStep.Before(oldest.InStep):
			oldest = x
		}
	}
	var words []string
	if n, known := p.LossBytes.Value(); known && n > 0 {
		size := fmt.Sprintf("about %s that the source was seen to have %s at the longest", plural(int(n), "byte", "bytes"), age(p.Taken.Sub(measured)))
		if p.Loss.AtLeast {
			size = "at least " + size
		}
		words = append(words, size)
	}
	if oldest != nil {
		words = append(words, fmt.Sprintf("what was written since %s-%d had everything, %s", oldest.Topic, oldest.Partition, age(p.Taken.Sub(oldest.InStep))))
	}
	if never > 0 && len(words) > 0 {
		words = append(words, fmt.Sprintf("%s never known to have had everything", plural(never, "copy is", "copies are")))
	}
	if len(words) == 0 {
		return ""
	}
	return "LOSS IN BYTES AND TIME: " + strings.Join(words, "; ")
}

// JSON is the plan with stable field names, indented. What is unknown is null; encoding/json reads an equal plan from it.
func (p FailoverPlan) JSON() ([]byte, error) { return indentedJSON(p) }
