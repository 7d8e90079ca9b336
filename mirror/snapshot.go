package mirror

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Snapshot is what is known of a mirror at one moment: the only input of a plan besides its options. It is plain data and keeps nothing alive.
type Snapshot struct {
	Mirror               string
	SourceClusterID      string // "" if it was never seen
	DestinationClusterID string
	Taken                time.Time
	SourceError          string // why the source does not answer; "" if it does, or if that is not known
	Topics               []TopicSnapshot
	Partitions           []PartitionStatus   // in any order
	Sets                 map[string][]string // topic sets: members of this mirror by the set's name, sorted
	Unwanted             int                 // partitions that the store has in this mirror, not stopped, whose topic is not wanted by anybody here
	Groups               []GroupStatus       // that are followed, in any order
	GroupsError          string              // why groups are not followed, or not now; "" if they are
	GroupsSeen           time.Time           // when groups were last looked at on both sides; zero: never, or that is not known
	Transactions         *TransactionLook    // for PlanFailover: what the copies hold of transactions; nil: nobody has looked
	Surroundings         Surroundings        // what was gathered around the records while the source answered
	MissingRights        *SeenNames          // for PlanFailback: rights that the mirror lacks at the destination; nil: nobody can say
	Evidence             []Evidence          // for PlanFailback, at most one for a partition
	FailbackGroups       FailbackGroups      // for PlanFailback: what follows the source back (Mirror.PlanFailback looks); zero: nobody has looked
	FailbackSettings     FailbackSettings
	FailbackRules        FailbackRules
	Failovers            []MeasuredFailover // that were measured (Status.Failovers): what the next one is expected to take is the longest of them
	Promotion            *Promotion         // one that is under way (Status.Promotion), for Head; nil: none is
}

// Head is how the mirror is, in one line: the words of Description.Head, as far as the process that took the snapshot knows. It asks nobody.
func (s Snapshot) Head() string {
	d := Description{Mirror: s.Mirror, Taken: s.Taken, Alive: true, Promotion: s.Promotion, Nodes: []DescribedNode{{NodeReport: NodeReport{Mirror: s.Mirror, Seen: s.Taken, SourceError: s.SourceError}}}}
	at := make(map[string]int, len(s.Topics))
	for _, t := range s.Topics {
		_, want, err := TopicWish{Topic: t.Topic, MirrorName: t.MirrorName}.Wish()
		if err != nil {
			continue // as in a description
		}
		at[t.Topic] = len(d.Topics)
		d.Topics = append(d.Topics, DescribedTopic{Topic: t.Topic, MirrorName: t.MirrorName, want: want})
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if t, ok := at[p.Topic]; ok {
			d.Topics[t].Partitions = append(d.Topics[t].Partitions, DescribedPartition{Partition: p.Partition, State: p.State.String(), Reason: p.Reason, Lag: Lag{KnownNumber(p.LagOffsets), p.LagOffsets == Unknown && !p.SourceSeen.IsZero()}})
		}
	}
	slices.SortFunc(d.Topics, func(a, b DescribedTopic) int { return strings.Compare(a.Topic, b.Topic) })
	sets := make(map[string]func(topic string) bool, len(s.Sets))
	for name, topics := range s.Sets {
		sets[name] = func(topic string) bool { return slices.Contains(topics, topic) }
	}
	d.verdictOf(sets)
	return d.Head
}

// TopicSnapshot is one member of the mirror. It has no partitions in the Snapshot when its logs cannot be opened; Reason says why.
type TopicSnapshot struct {
	Topic      string
	MirrorName string // of the desired state: "m", "m.paused", "m.stopped"
	Reason     string // what is wrong with the topic as a whole, "" if nothing
	Missing    bool   // for PlanFailback: the destination does not have the topic, so a start copies all of it
}

// Evidence is what a comparison with the source showed for one partition.
type Evidence struct {
	TopicPartition
	Compared      bool           // the comparison came to an end
	CommonPoint   int64          // both logs are equal below it; only with Compared. Unknown: the mirror copies it already, and finds that out when it goes on
	LME           int32          // last mirror epoch that the source recorded for this cluster, Unknown if none
	LMO           int64          // last mirror offset, Unknown if none
	Rounds        []EpochRound   // questions about epochs, in their order
	Disagreements []Disagreement // transactions that ended differently on both sides
	DropBytes     Number         // of the batches that would be dropped, as a Sink is handed them
}

// EpochRound is one question to the source (end offset for a leader epoch) and its answer.
type EpochRound struct {
	Ask      int32 `json:"ask"`
	Epoch    int32 `json:"epoch"`    // in the answer, Unknown: undefined
	End      int64 `json:"end"`      // in the answer, Unknown: undefined
	Boundary int64 `json:"boundary"` // the common point is at most here
}

// Severity is how bad what a plan would do is. In order of badness: safe, loses, unknown, refused.
type Severity string

// The severities.
const (
	SeveritySafe    Severity = "safe"    // nothing is missing
	SeverityLoses   Severity = "loses"   // a known number of offsets is given up
	SeverityUnknown Severity = "unknown" // it cannot be known what is given up
	SeverityRefused Severity = "refused" // this part of the plan will not be carried out
)

func (s Severity) rank() int {
	return slices.Index([]Severity{SeveritySafe, SeverityLoses, SeverityUnknown, SeverityRefused}, s)
}

func worse(a, b Severity) Severity {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// Outcome is what a plan intends for one topic or partition.
type Outcome string

// The outcomes.
const (
	OutcomeStop    Outcome = "stop"    // failover: it will be stopped and opened
	OutcomeDone    Outcome = "done"    // nothing is left to do
	OutcomeDrop    Outcome = "drop"    // failback: a range has to be dropped, with consent
	OutcomeGo      Outcome = "go"      // failback: nothing has to be dropped
	OutcomeRefused Outcome = "refused" // not possible; a reason stands beside it
)

// Number is a count or an offset that may be unknown. The zero value is unknown. In JSON: a number, or null.
type Number struct {
	value int64
	known bool
}

// KnownNumber returns a known number; Unknown (any negative value) gives an unknown one.
func KnownNumber(v int64) Number { return Number{max(v, 0), v >= 0} }

// Value returns the number; ok is false when nobody knows it.
func (n Number) Value() (v int64, ok bool) { return n.value, n.known }

// orUnknown is the number, or Unknown.
func (n Number) orUnknown() int64 {
	if !n.known {
		return Unknown
	}
	return n.value
}

// String is the number in digits, or "unknown".
func (n Number) String() string {
	if !n.known {
		return "unknown"
	}
	return strconv.FormatInt(n.value, 10)
}

// MarshalJSON writes a number or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.known {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, n.value, 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes. Negative numbers are an error.
func (n *Number) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*n = Number{}
		return nil
	}
	v, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return err
	}
	if v < 0 {
		return errors.New("mirror: a number that is unknown is null, not negative")
	}
	*n = KnownNumber(v)
	return nil
}

// Loss is how many offsets are given up. An offset is a record or a transaction marker, so it is an upper bound of records.
type Loss struct {
	// Offsets are known to be missing. Unknown: the source was never seen.
	Offsets Number `json:"offsets"`
	// AtLeast: more may be missing, because the source's end cannot be measured now.
	AtLeast bool `json:"atLeast"`
}

// String never shows a bare number for something that is not known.
func (l Loss) String() string {
	n, known := l.Offsets.Value()
	switch {
	case !known:
		return "unknown"
	case l.AtLeast && n == 0:
		return "unknown, none missing when last seen"
	case l.AtLeast:
		return fmt.Sprintf("unknown, at least %d", n)
	case n == 0:
		return "none"
	}
	return strconv.FormatInt(n, 10)
}

func (l Loss) severity() Severity {
	n, known := l.Offsets.Value()
	switch {
	case !known || l.AtLeast:
		return SeverityUnknown
	case n > 0:
		return SeverityLoses
	}
	return SeveritySafe
}

// age is how long ago something was, in one unit.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "<1s ago"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%dd ago", d/(24*time.Hour))
}

// planTopics is what a plan is about: the topics asked for in their order without repetitions, or all members by name.
func planTopics(s *Snapshot, asked []string) []string {
	if len(asked) > 0 {
		var topics []string
		seen := make(map[string]bool, len(asked))
		for _, t := range asked {
			if !seen[t] {
				seen[t] = true
				topics = append(topics, t)
			}
		}
		return topics
	}
	var topics []string
	for _, t := range s.Topics {
		topics = append(topics, t.Topic)
	}
	for _, p := range s.Partitions {
		topics = append(topics, p.Topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// topicIndex is a snapshot by topic: a plan looks at each topic once, of which there may be as many as partitions.
type topicIndex struct {
	topics     map[string]TopicSnapshot
	partitions map[string][]PartitionStatus // by number
}

func indexed(s *Snapshot) topicIndex {
	x := topicIndex{topics: make(map[string]TopicSnapshot, len(s.Topics)), partitions: make(map[string][]PartitionStatus, len(s.Topics))}
	for _, t := range s.Topics {
		x.topics[t.Topic] = t
	}
	for _, p := range s.Partitions {
		x.partitions[p.Topic] = append(x.partitions[p.Topic], p)
	}
	for _, ps := range x.partitions {
		slices.SortFunc(ps, func(a, b PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	}
	return x
}

// topic says also whether the snapshot has the topic at all.
func (x *topicIndex) topic(name string) (TopicSnapshot, bool) {
	t, ok := x.topics[name]
	return t, ok || len(x.partitions[name]) > 0
}

// planText writes the text form of a plan: lines, and tables with aligned columns.
type planText struct{ strings.Builder }

func (t *planText) line(format string, args ...any) {
	t.WriteString(OneLine(fmt.Sprintf(format, args...))) // texts of operators, processes and brokers are among them
	t.WriteByte('\n')
}

func (t *planText) table(header []string, rows [][]string) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = OneLine(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
	for line := range strings.Lines(aligned.String()) {
		t.line("%s", strings.TrimRight(line, " \n"))
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func indentedJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
