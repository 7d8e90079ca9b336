package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Control holds the desired state of a destination cluster, and what its mirrors report: which mirrors there are, which topics they mirror, what the operator consented
// to, who did what, and how each partition was when it was last seen. Admin writes the desired state, a Mirror reads it and follows. NewControl is one for several processes.
// Safe for concurrent use. Every call ends with its context.
type Control interface {
	// Read returns a copy of the state; it is the caller's.
	Read(ctx context.Context) (ControlState, error)
	// Update reads the newest state, lets change alter a copy, and writes the result in one atomic step. An error from change is returned as it is and changes
	// nothing. change may be called more than once (when somebody else wrote in between), must depend on its argument only, and must not call the Control.
	// A state that change leaves equal is not written.
	Update(ctx context.Context, change func(*ControlState) error) error
	// Changed returns a channel that is closed at the next change of the state, whoever makes it, within a second. Take it before Read, so that no change is missed.
	Changed() <-chan struct{}
	// History returns what verbs did, oldest first. At most HistoryLimit entries are kept: the oldest go, but not the newest half of that number of other verbs than pause, resume,
	// recover and the following of patterns.
	History(ctx context.Context) ([]HistoryEntry, error)
	// Reports returns what the processes reported last, sorted, also when they are dead since.
	Reports(ctx context.Context) (Reports, error)
	// OpenReporter lets one process report; an earlier reporter of that owner is fenced (its calls return an error that is statemachine.ErrFenced).
	OpenReporter(ctx context.Context, owner string) (Reporter, error)
}

// HistoryLimit is how many entries of history are kept.
const HistoryLimit = 1000

// ControlState is the desired state as plain data.
type ControlState struct {
	// Version grows with each change that this Control has seen; another process's Control may give the same state another number.
	Version int64
	// Mirrors is sorted by name; each name is there once.
	Mirrors []MirrorEntry
	// Deleted are mirrors whose state records still need their tombstones, and names that were deleted and not created again. Sorted by name.
	Deleted []DeletedMirror
	// Topics is sorted by topic name; each name is there once.
	Topics []TopicWish
	// Origins say where mirrored topics come from, sorted by mirror and topic. Mirrors write them.
	Origins []TopicOrigin
	// Provenance is what metadata sync wrote at the destination, sorted by mirror, kind and name (spec decision 17).
	Provenance []Provenance
	// Questions are those for a failback plan that the processes of mirrors are to answer, sorted by mirror, one each.
	Questions []FailbackQuestion
	// Promotions are those that are under way, sorted by mirror, one each.
	Promotions []Promotion
	// Failbacks are those that are under way, or were until their topics were stopped, sorted by mirror and plan.
	Failbacks []Failback
	// Note is an entry that this change adds to the history; nil in what Read returns. The Control numbers it.
	Note *HistoryEntry
}

// MirrorEntry is one mirror: it exists because this is recorded (spec §1.1).
type MirrorEntry struct {
	Name     string
	Settings Settings // what was set, not the defaults; may be empty for a mirror whose Source is given in Go
	// SourceClusterID is whom the mirror reads from, "" until the source has said it or somebody pinned it. Another id is refused (F-33).
	SourceClusterID string
	Created         time.Time
}

// DeletedMirror is a mirror that was deleted. Whoever has its state records writes their tombstones, as often as it takes (spec §1.4, decision 8).
type DeletedMirror struct {
	Name  string
	Purge bool // the last mirror epochs too: a later failback copies everything again
	At    time.Time
}

// TopicOrigin is where a mirrored topic comes from, so that a loop of any length is seen (spec decision 14).
type TopicOrigin struct {
	Mirror          string
	Topic           string
	SourceClusterID string
	Upstream        []string // cluster ids that the source itself mirrors the topic from, nearest first, as far as it says
}

// Provenance is one thing that metadata sync wrote. Kind and Name are its own; Value is opaque.
type Provenance struct {
	Mirror string
	Kind   string // "config", "group", "share-group", "group-episodes", "acl"; "fence": a rule of the source that a fence made there, and that is not copied; "left-fence": see LeftFence
	Name   string
	Value  string

	raw    string // the record's value, of one that cannot be read: it stays as it is
	unread string // why it cannot be read, "" if it can
}

// HistoryEntry is one verb that changed something: who, when, why (spec §1; it is data beside the desired state, written with it in one step).
type HistoryEntry struct {
	Number int64 // given by the Control, from 1
	Time   time.Time
	Verb   string // "create", "start" …
	Mirror string
	Topics []string // that it changed
	Who    Operator
	Reason string
	Plan   string // Result.Plan
	Detail string // what else there is to know, "" if nothing
}

// Operator is who uses the verbs. Zero fields are filled from the process: host name, user of the operating system, program name.
type Operator struct {
	Host   string
	User   string
	Client string
}

// TopicWish is what is wanted of one topic.
type TopicWish struct {
	Topic string
	// MirrorName is the value that KIP-1279 keeps in the topic's mirror.name: "m", "m.paused" or "m.stopped" (statemachine.MirrorNameValue).
	MirrorName string
	// AdoptedFrom is the mirror in which the topic was stopped before this one took it over, "" if none. Its state records get their tombstones in the write that
	// makes this mirror's first ones, or soon after from the process of their owner, where that is another one; what it recorded as last mirror epochs stays (spec decision 21).
	AdoptedFrom string
	// Consents are what may be dropped when mirroring begins, sorted by topic id, partition, offset. They are used up when MIRRORING is reached (spec decision 7), mean nothing
	// while the topic is stopped, and are replaced by the next Start.
	Consents []Consent
	// Recover counts how often Recover was asked for: a Mirror that sees it grow tries the topic's failed partitions again.
	Recover int64
	// DrainUntil is until when the stop of a partition waits for what its source still has, at most (StopOptions.Drain); zero: it does not. It means nothing where no stop is wanted.
	DrainUntil time.Time
	// Cut is how the stop cuts the copies to where no transaction is torn (TornCut); the zero CutWish: it does not. It means nothing where no stop is wanted.
	Cut CutWish

	// begins: it is paused in a failback behind the point of no return, so what is not a copy yet becomes one. Of a running mirror, not recorded.
	begins bool
}

// CutWish is a consistent cut as a stop asks for it. Topics that were asked to be stopped at the same moment are cut together.
type CutWish struct {
	Asked     time.Time     // zero: no cut is asked for
	MaxGiveUp int64         // how many offsets may be given up, of all partitions together; 0: no bound
	Readers   bool          // also what readers of the copies may have seen
	ClockSkew time.Duration // FailoverOptions.ClockSkew
	// Floors are the lowest offsets that the topic's partitions may end at, by number: what a plan has said. A partition without one has no such bound.
	Floors []int64
}

func (w CutWish) equal(o CutWish) bool {
	return w.Asked.Equal(o.Asked) && w.MaxGiveUp == o.MaxGiveUp && w.Readers == o.Readers && w.ClockSkew == o.ClockSkew && slices.Equal(w.Floors, o.Floors)
}

// Reports is what processes said of themselves and of their partitions.
type Reports struct {
	Nodes      []NodeReport      // by owner and mirror
	Partitions []PartitionReport // by mirror, topic, partition
	Answers    []FailbackAnswer  // by owner and mirror; the last one of each
	Unread     []UnreadReport    // what is not among them
}

// UnreadReport is a report that cannot be read, as one of a newer version. It says nothing of other mirrors, and of the others' partitions.
type UnreadReport struct {
	Mirror string // "" if not even that can be read
	Node   bool   // it is a NodeReport, so it is not known whether a process runs
	Answer bool   // it is a FailbackAnswer
	Err    error  // names the record
}

// NodeReport is one process that runs, or ran, one mirror.
type NodeReport struct {
	Owner    string
	Mirror   string
	Host     string
	PID      int
	Opened   time.Time
	Seen     time.Time     // when it reported last, by the clock of its host
	Interval time.Duration // how often it reports at least, whole milliseconds; 0: it did not say
	Refresh  time.Duration // how often it looks at the source's metadata and at groups (Config.RefreshInterval), whole milliseconds; 0: it did not say
	Node     string        // the machine or service that it is a part of (Config.Node), "" if that has no name
	Version  string        // of the program (Config.Version), "" if it did not say
	// Measured is the moment at which the ends of all partitions whose report says Live were as those reports say, at the latest; zero: none is live.
	Measured      time.Time
	SourceError   string    // why its source does not answer, "" if it does
	DestinationID string    // cluster id
	Trouble       []string  // of whole topics, one line each
	GroupsSeen    time.Time // when it last looked at groups on both sides; zero: never
	OffsetBytes   float64   `json:",omitempty"` // bytes that an offset has on the average, in what it copied last; 0: it has copied nothing
	// Failovers are those that were measured, the oldest first (Status.Failovers).
	Failovers []MeasuredFailover `json:",omitempty"`
	// How the parts of metadata sync stand; nil: it did not say.
	Groups, Settings, AccessRules *SyncReport
	// Torn are the transactions that a stop would tear apart, as far as this process knows its copies: it looks while its source does not answer and a transaction is open. Nil: it has not looked.
	Torn *TornTransactions `json:",omitempty"`
	// Verification is how the continuous comparison of copies with their source stands (Status.Verification). Nil: there is none.
	Verification *VerificationStatus `json:",omitempty"`
	// Kept is the failover plan that it made last while its source answered, at a refresh; nil: it has made none.
	Kept *KeptPlan `json:",omitempty"`
}

// SyncReport is how one part of metadata sync stands in a process, as in SyncStatus.
type SyncReport struct {
	Off     string    // why it is not done, "" if it is
	At      time.Time // when a look last came to its end; zero: never
	Error   string    // why the last look did not
	Skipped []string  // what it left alone, and why: at most twenty lines
}

// PartitionReport is how one partition was when its process reported last. Offsets that nobody knows are Unknown.
type PartitionReport struct {
	Mirror           string
	Topic            string
	Partition        int32
	TopicID          TopicID // the destination's
	Owner            string
	State            statemachine.State
	Reason           string
	RetryAttempt     int16
	SourceEnd        int64     // high watermark at the source
	SourceSeen       time.Time // when that was measured; zero: never
	DestinationStart int64
	DestinationEnd   int64     // replicated end of the copy
	InStep           time.Time // the last moment at which the copy held everything then known at the source; zero: never
	LostFrom, LostTo int64     // the last range lost at the source, both 0: none
	OpenTransactions int       // how many transactions of the copy have not ended
	OpenFrom         int64     // the first offset of the oldest of them; 0 where there is none
	// Live: the source is fetched from, and as long as the process is heard of and this report is not replaced, its ends stand as of NodeReport.Measured.
	Live bool
	// left: the process serves the partition no more, and says so in place of what it said before, unless another one has reported it since. It is not stored.
	left bool
	At   time.Time // when this was so
}

// Reporter writes the reports of one process. Safe for concurrent use.
type Reporter interface {
	// Report replaces the node's report and those of the partitions that are given, in one step.
	Report(ctx context.Context, node NodeReport, partitions []PartitionReport) error
	// Answer replaces the owner's answer for that mirror. One that is too large for a record is refused with an error that says so, and nothing is written.
	Answer(ctx context.Context, answer FailbackAnswer) error
	// Forget removes the reports and answers of a whole mirror by this or any fenced owner.
	Forget(ctx context.Context, mirror string) error
	Close() error
}

// Wish splits MirrorName into the mirror and what is wanted. Errors: a value that nobody could have written.
func (w TopicWish) Wish() (mirror string, want statemachine.Desired, err error) {
	mirror, want, err = statemachine.ParseMirrorNameValue(w.MirrorName)
	if err != nil {
		err = fmt.Errorf("mirror: topic %q has mirror.name %q: %w", w.Topic, w.MirrorName, err)
	}
	return mirror, want, err
}

// Clone returns a deep copy.
func (s ControlState) Clone() ControlState {
	s.Mirrors = slices.Clone(s.Mirrors)
	for i := range s.Mirrors {
		s.Mirrors[i].Settings = maps.Clone(s.Mirrors[i].Settings)
	}
	s.Deleted = slices.Clone(s.Deleted)
	s.Topics = slices.Clone(s.Topics)
	for i := range s.Topics {
		s.Topics[i].Consents = slices.Clone(s.Topics[i].Consents)
	}
	s.Origins = slices.Clone(s.Origins)
	for i := range s.Origins {
		s.Origins[i].Upstream = slices.Clone(s.Origins[i].Upstream)
	}
	s.Provenance = slices.Clone(s.Provenance)
	s.Questions = slices.Clone(s.Questions)
	for i := range s.Questions {
		s.Questions[i].Topics = slices.Clone(s.Questions[i].Topics)
	}
	s.Promotions = slices.Clone(s.Promotions)
	for i := range s.Promotions {
		s.Promotions[i].Topics = slices.Clone(s.Promotions[i].Topics)
	}
	s.Failbacks = slices.Clone(s.Failbacks)
	for i := range s.Failbacks {
		s.Failbacks[i].Topics, s.Failbacks[i].Dropped = slices.Clone(s.Failbacks[i].Topics), slices.Clone(s.Failbacks[i].Dropped)
	}
	if s.Note != nil {
		note := *s.Note
		note.Topics = slices.Clone(note.Topics)
		s.Note = &note
	}
	return s
}

// Topic returns what is wanted of a topic; ok is false when it is in no mirror. The consents are shared with s.
func (s *ControlState) Topic(name string) (wish TopicWish, ok bool) {
	i, ok := s.find(name)
	if !ok {
		return TopicWish{}, false
	}
	return s.Topics[i], true
}

// Set adds a topic's wish or replaces it, and keeps both orders.
func (s *ControlState) Set(w TopicWish) {
	slices.SortFunc(w.Consents, compareConsents)
	i, ok := s.find(w.Topic)
	if ok {
		s.Topics[i] = w
		return
	}
	s.Topics = slices.Insert(s.Topics, i, w)
}

// Remove takes a topic out; one that is not there is fine.
func (s *ControlState) Remove(name string) {
	if i, ok := s.find(name); ok {
		s.Topics = slices.Delete(s.Topics, i, i+1)
	}
}

// UseConsents takes out the consents of one partition: they are used up. It reports whether there were any.
func (s *ControlState) UseConsents(tp TopicPartition) bool {
	i, ok := s.find(tp.Topic)
	if !ok {
		return false
	}
	w := &s.Topics[i]
	n := len(w.Consents)
	w.Consents = slices.DeleteFunc(w.Consents, func(c Consent) bool { return c.Partition == tp.Partition })
	return len(w.Consents) < n
}

func (s *ControlState) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.Topics, name, func(w TopicWish, name string) int { return cmp.Compare(w.Topic, name) })
}

func compareConsents(a, b Consent) int {
	return cmp.Or(slices.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To),
		cmp.Compare(a.Episode, b.Episode))
}

// NewMemoryControl is a Control in memory: it ends with the process.
func NewMemoryControl() Control { return NewControl(keyedlog.NewMemory()) }

// normalise puts every list in its order, drops what is there twice, and refuses what contradicts itself or cannot be stored.
func (s *ControlState) normalise() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("mirror: desired state: "+format, args...))
	}
	text := func(what string, values ...string) {
		for _, v := range values {
			if !utf8.ValidString(v) {
				refuse("%s holds %q, which is not UTF-8", what, v)
			}
		}
	}
	twice := func(what string) { refuse("%s is there twice, with different contents", what) }

	for i := range s.Mirrors {
		m := &s.Mirrors[i]
		if err := statemachine.CheckMirrorName(m.Name); err != nil {
			refuse("%w", err)
		}
		if m.Settings == nil {
			m.Settings = Settings{}
		}
		for name, value := range m.Settings {
			if !utf8.ValidString(name) || !utf8.ValidString(value) { // the value may be secret
				refuse("setting %q of mirror %q is not UTF-8", name, m.Name)
			}
		}
		text("the source cluster id of mirror "+m.Name, m.SourceClusterID)
		m.Created = storedTime(m.Created)
	}
	s.Mirrors = inOrder(s.Mirrors, func(a, b MirrorEntry) int { return cmp.Compare(a.Name, b.Name) }, func(a MirrorEntry) { twice("mirror " + a.Name) })
	for i := range s.Deleted {
		s.Deleted[i].At = storedTime(s.Deleted[i].At)
		if err := statemachine.CheckMirrorName(s.Deleted[i].Name); err != nil {
			refuse("%w", err)
		}
	}
	s.Deleted = inOrder(s.Deleted, func(a, b DeletedMirror) int { return cmp.Compare(a.Name, b.Name) }, func(a DeletedMirror) { twice("deleted mirror " + a.Name) })
	for i := range s.Topics {
		w := &s.Topics[i]
		if _, _, err := w.Wish(); err != nil {
			refuse("%w", err)
		}
		if w.Topic == "" {
			refuse("a topic has no name")
		}
		text("the adopted mirror of topic "+w.Topic, w.AdoptedFrom)
		slices.SortFunc(w.Consents, compareConsents)
		w.Consents = slices.Compact(w.Consents)
		if len(w.Consents) == 0 {
			w.Consents = nil
		}
	}
	s.Topics = inOrder(s.Topics, func(a, b TopicWish) int { return cmp.Compare(a.Topic, b.Topic) }, func(a TopicWish) { twice("topic " + a.Topic) })
	for i := range s.Origins {
		o := &s.Origins[i]
		if o.SourceClusterID == "" {
			refuse("the origin of topic %q in mirror %q names no cluster id", o.Topic, o.Mirror)
		}
		text("the origin of topic "+o.Topic, append([]string{o.SourceClusterID}, o.Upstream...)...)
		if len(o.Upstream) == 0 {
			o.Upstream = nil
		}
	}
	s.Origins = inOrder(s.Origins, func(a, b TopicOrigin) int {
		return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Topic, b.Topic))
	},
		func(a TopicOrigin) { twice("the origin of topic " + a.Topic + " in mirror " + a.Mirror) })
	for _, p := range s.Provenance {
		text("the provenance of "+p.Kind+" "+p.Name, p.Value)
	}
	s.Provenance = inOrder(s.Provenance, compareProvenance, func(a Provenance) { twice("the provenance of " + a.Kind + " " + a.Name + " in mirror " + a.Mirror) })
	for i := range s.Questions {
		q := &s.Questions[i]
		q.Asked = storedTime(q.Asked)
		text("the question of mirror "+q.Mirror, q.Topics...)
		q.Who = Operator{validText(q.Who.Host), validText(q.Who.User), validText(q.Who.Client)}
		q.Reason = validText(q.Reason)
		if len(q.Topics) == 0 {
			q.Topics = nil
		}
	}
	s.Questions = inOrder(s.Questions, func(a, b FailbackQuestion) int { return cmp.Compare(a.Mirror, b.Mirror) }, func(a FailbackQuestion) { twice("the question of mirror " + a.Mirror) })
	for i := range s.Promotions {
		s.Promotions[i].store()
		text("the promotion of mirror "+s.Promotions[i].Mirror, s.Promotions[i].Topics...)
		text("the memory of the fence of mirror "+s.Promotions[i].Mirror, s.Promotions[i].Memory)
	}
	s.Promotions = inOrder(s.Promotions, func(a, b Promotion) int { return cmp.Compare(a.Mirror, b.Mirror) }, func(a Promotion) { twice("the promotion of mirror " + a.Mirror) })
	for i := range s.Failbacks {
		s.Failbacks[i].store()
		text("the failback of mirror "+s.Failbacks[i].Mirror, append([]string{s.Failbacks[i].Plan}, s.Failbacks[i].Topics...)...)
	}
	s.Failbacks = inOrder(s.Failbacks, compareFailbacks, func(a Failback) { twice("failback " + a.Plan + " of mirror " + a.Mirror) })
	return errors.Join(errs...)
}

// storedTime is a time as it comes back from a record.
func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// inOrder sorts and drops equal neighbours; twice is called for neighbours of the same order that differ. Nothing left is nil.
func inOrder[T any](list []T, compare func(a, b T) int, twice func(T)) []T {
	slices.SortStableFunc(list, compare)
	list = slices.CompactFunc(list, func(a, b T) bool {
		if compare(a, b) != 0 {
			return false
		}
		if !reflect.DeepEqual(a, b) {
			twice(a)
		}
		return true
	})
	if len(list) == 0 {
		return nil
	}
	return list
}
