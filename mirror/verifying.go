package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// ContinuousVerifier is an optional ability of a Verifier: it compares copies again and again. Config.VerifyRate needs it.
type ContinuousVerifier interface {
	Verifier
	// VerifyContinuously compares until ctx ends. It reads one copy at a time.
	VerifyContinuously(ctx context.Context, source Source, o ContinuousVerification)
}

// ContinuousVerification is what is compared again and again, at what cost, and who is told. None of its functions is called while another one is, and each may wait until its context ends.
type ContinuousVerification struct {
	BytesPerSecond int64         // that are read at most, on both sides together
	Interval       time.Duration // a pass over a copy begins so long after the one before began, at the earliest

	// Copies lists the copies, at the beginning of each round, in which each that is due has a turn. A copy goes on where it was as long as it is listed; From and To are not used.
	Copies func(ctx context.Context) ([]CopyToVerify, error)
	// Await is called before a copy is read, and before each read, and returns when it may be. With an error the turn ends.
	Await func(ctx context.Context, tp TopicPartition) error
	// Settle is called when a difference or a hole was seen for the first time, and returns when the mirror has heard of the source since, so that it follows what is new there. Then the place is
	// compared again, and told if it still is not the same. With an error it is not told.
	Settle func(ctx context.Context, tp TopicPartition) error
	// Looked is told after each turn what the pass over the copy has found so far; ended: the pass is over.
	Looked func(v Verified, ended bool)
}

// VerificationStatus is how the comparison of copies with their source stands that goes on while they are mirrored (Config.VerifyRate). It is plain data.
type VerificationStatus struct {
	Rate     int64         // Config.VerifyRate
	Interval time.Duration // Config.VerifyInterval
	Since    time.Time     // when it began in this process
	Waits    string        `json:",omitempty"` // why nothing is compared now; "": it goes on, or nothing is due
	Bytes    int64         // that were read in this process, on both sides together
	// LastPass is when the last pass over all copies ended, which may have been in an earlier process; zero: none has, as far as is known.
	LastPass time.Time `json:",omitzero"`
	// Oldest is when the comparison began that is the oldest of those which copies had last, and for a copy that had none, when it could have begun. Zero: nothing is mirrored.
	Oldest time.Time `json:",omitzero"`
	// How many copies have each result: the last pass, or a difference or hole that the one under way has found.
	Identical, Partly, Hole, Different int
	NotCompared                        int // no pass has ended, or the last one could compare nothing
	// Wrong are copies with a difference or a hole, at most twenty.
	Wrong []WrongCopy `json:",omitempty"`
}

// WrongCopy is a copy that is not as its source.
type WrongCopy struct {
	Topic     string
	Partition int32
	TopicID   string // the destination's
	Verdict   VerifiedVerdict
	Offset    int64  // the first at which it is not
	Finding   string // in words
	At        time.Time
}

func (w *WrongCopy) words() string {
	return fmt.Sprintf("the copy is not as the source from offset %d on, %s: %s (comparison of %s)", w.Offset, w.Verdict, w.Finding, stamp(w.At))
}

// PartitionVerification is how the comparison of one copy stands.
type PartitionVerification struct {
	// Last is what the last pass found that has ended, or the one under way if that has found a difference or a hole.
	Last  Verified
	Ended time.Time // of that pass; zero: it is under way, or there was none
	// Trouble is why the copy cannot be compared now; "": it can.
	Trouble string
}

const (
	verifyWaits      = time.Second      // between two looks at whether the mirror comes first
	verifyBehind     = 30 * time.Second // a copy that has been behind for so long comes first
	verifySettles    = 30 * time.Second // for what is heard of the source, at most
	verifyMostListed = 20               // wrong copies in a status
)

// verifying compares copies with the source while they are mirrored. It reads only, nothing waits for it, and it waits while the mirror needs the source for itself.
type verifying struct {
	m *Mirror

	looked time.Time // when comesFirst was asked last; only of the goroutine that verifies
	first  string
	policy struct {
		at        time.Time
		compacted map[string]bool
		failed    map[string]error
	}

	mu         sync.Mutex
	since      time.Time // zero: it does not run
	waits      string
	bytes      int64
	read       map[TopicPartition]int64 // Verified.Read of the pass under way
	partitions map[TopicPartition]*verifiedCopy
	earlier    map[TopicPartition]WrongCopy // of an earlier process, until they are compared again
	current    map[TopicPartition]bool      // that were listed last
	lastPass   time.Time
	pass       verificationPass
}

// verifiedCopy is what is known of one copy.
type verifiedCopy struct {
	id      TopicID
	episode int32 // in which it is compared now
	listed  time.Time
	PartitionVerification
}

// verificationPass is a pass over all copies: each has had one of its own since it began.
type verificationPass struct {
	began   time.Time
	bytes   int64
	waiting map[TopicPartition]bool // nil: it has not begun
	results map[VerifiedVerdict]int
}

func (v *verifying) run() {
	verifier, able := v.m.cfg.Verifier.(ContinuousVerifier)
	if v.m.cfg.VerifyRate == 0 || !able {
		return
	}
	v.mu.Lock()
	v.policy.compacted, v.policy.failed = map[string]bool{}, map[string]error{}
	v.since, v.partitions, v.read = time.Now(), map[TopicPartition]*verifiedCopy{}, map[TopicPartition]int64{}
	v.mu.Unlock()
	ctx, stop := context.WithCancel(v.m.ctx)
	defer stop()
	verifier.VerifyContinuously(ctx, v.m.cfg.Source, ContinuousVerification{
		BytesPerSecond: v.m.cfg.VerifyRate, Interval: v.m.cfg.VerifyInterval, Copies: v.copies, Settle: v.settle, Looked: v.found,
		Await: func(ctx context.Context, tp TopicPartition) error {
			if err := v.m.lease.over(); err != nil {
				stop() // another process compares them now
				return err
			}
			return v.await(ctx, tp)
		},
	})
}

// copies lists the partitions that are copies of their source now, and whose settings are known.
func (v *verifying) copies(ctx context.Context) (list []CopyToVerify, err error) {
	now := time.Now()
	v.m.mu.Lock()
	all := v.m.everyRunner()
	v.m.mu.Unlock()
	var topics []string
	found := map[TopicPartition]PartitionStatus{}
	for _, r := range all {
		if p := r.status(now); isCopy(&p) {
			found[r.tp] = p
			topics = append(topics, r.tp.Topic)
			list = append(list, CopyToVerify{TopicPartition: r.tp, Log: r.log, To: Unknown, SourceTopicID: p.SourceTopicID})
		}
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	slices.SortFunc(list, func(a, b CopyToVerify) int { return compareTopicPartitions(a.TopicPartition, b.TopicPartition) })
	v.look()
	v.learnPolicies(ctx, topics, now)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	there := map[TopicPartition]bool{}
	for _, r := range all {
		there[r.tp] = true
	}
	maps.DeleteFunc(v.partitions, func(tp TopicPartition, _ *verifiedCopy) bool { return !there[tp] })
	v.current = map[TopicPartition]bool{}
	for tp := range found {
		v.current[tp] = true
	}
	list = slices.DeleteFunc(list, func(c CopyToVerify) bool { return !v.list(found[c.TopicPartition], now) })
	for i := range list {
		list[i].Compacted = v.policy.compacted[list[i].Topic]
	}
	maps.DeleteFunc(v.pass.waiting, func(tp TopicPartition, _ bool) bool { return !v.current[tp] })
	return list, nil
}

// learnPolicies asks for cleanup.policy, now and then and where it is not known yet. What was known goes on to count while it cannot be asked for.
func (v *verifying) learnPolicies(ctx context.Context, topics []string, now time.Time) {
	all := now.Sub(v.policy.at) >= v.m.cfg.RefreshInterval
	topics = slices.DeleteFunc(slices.Clone(topics), func(t string) bool {
		_, known := v.policy.compacted[t]
		return (known || v.policy.failed[t] != nil) && !all
	})
	if len(topics) == 0 {
		return
	}
	compacted, failed := v.m.compactedTopics(ctx, topics)
	if all {
		v.policy.at, v.policy.failed = now, map[string]error{}
	}
	for _, t := range topics {
		if err := failed[t]; err != nil {
			v.policy.failed[t] = err
			continue
		}
		v.policy.compacted[t] = compacted[t]
	}
}

// isCopy says that a partition's copy is to have what the source has.
func isCopy(p *PartitionStatus) bool {
	return !p.Halted && p.State == statemachine.Mirroring && p.Want == statemachine.WantMirroring
}

// list notes that a copy is to be compared, and says whether it can be. Under mu.
func (v *verifying) list(p PartitionStatus, now time.Time) bool {
	tp := TopicPartition{p.Topic, p.Partition}
	c := v.partitions[tp]
	if c == nil || c.id != p.TopicID {
		c = &verifiedCopy{id: p.TopicID, listed: now, PartitionVerification: PartitionVerification{Last: NotCompared(tp, "no pass has ended")}}
		v.partitions[tp] = c
		c.recall(v.earlier[tp])
	}
	if c.episode != p.Episode {
		c.episode, c.listed = p.Episode, now
	}
	if _, known := v.policy.compacted[p.Topic]; known {
		return true
	}
	if c.Trouble = v.first; v.policy.failed[p.Topic] != nil {
		c.Trouble = v.policy.failed[p.Topic].Error()
	}
	return false
}

// errNotMirrored: the partition is no copy any more, or one of another episode.
var errNotMirrored = errors.New("it is not mirrored now, or mirrored anew since")

// still is an error if a partition is not the copy that was listed.
func (v *verifying) still(tp TopicPartition) (PartitionStatus, error) {
	v.m.mu.Lock()
	var r *runner
	if t := v.m.topics[tp.Topic]; t != nil && int(tp.Partition) < len(t.partitions) {
		r = t.partitions[tp.Partition]
	}
	v.m.mu.Unlock()
	if r == nil {
		return PartitionStatus{}, errNotMirrored
	}
	p := r.status(time.Now())
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.partitions[tp]; !isCopy(&p) || c == nil || c.id != p.TopicID || c.episode != p.Episode {
		return p, errNotMirrored
	}
	return p, nil
}

// await waits while the mirror comes first.
func (v *verifying) await(ctx context.Context, tp TopicPartition) error {
	for {
		if _, err := v.still(tp); err != nil {
			return err
		}
		if v.look(); v.first == "" {
			return ctx.Err()
		}
		if !v.m.pause(ctx, verifyWaits) {
			return ctx.Err()
		}
	}
}

// look notes whether the mirror comes first.
func (v *verifying) look() {
	if time.Since(v.looked) < verifyWaits {
		return
	}
	v.first, v.looked = v.comesFirst(), time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waits = v.first
}

// comesFirst says why the source is left to the mirror now, "" if it need not be.
func (v *verifying) comesFirst() string {
	if why := v.m.link.troubled(); why != "" {
		return "cannot be compared: the source does not answer: " + OneLine(why)
	}
	if v.m.link.throttling() {
		return "the source holds the mirror back because of a quota there, and copying comes first"
	}
	now := time.Now()
	for _, r := range v.m.memberRunners() {
		if p := r.status(now); isCopy(&p) && p.LagUnknown.IsZero() && p.LagOffsets > 0 && p.LagTime > verifyBehind {
			return fmt.Sprintf("%s-%d is %s behind its source, and copying comes first", p.Topic, p.Partition, p.LagTime.Round(time.Second))
		}
	}
	return ""
}

// settle waits until the source has answered the mirror about a partition since, and looks whether it still is compared in the right way: a source that has elected uncleanly is not as the copy until
// that has followed, and what a cleaner took is a hole only where none should be at work.
func (v *verifying) settle(ctx context.Context, tp TopicPartition) error {
	ctx, stop := context.WithTimeout(ctx, verifySettles)
	defer stop()
	for since := time.Now(); ; {
		p, err := v.still(tp)
		if err != nil {
			return err
		}
		if p.SourceSeen.After(since) && p.LagUnknown.IsZero() {
			break
		}
		if !v.m.pause(ctx, verifyWaits) {
			return errors.New("the source has not answered the mirror since")
		}
	}
	compacted, failed := v.m.compactedTopics(ctx, []string{tp.Topic})
	if err := failed[tp.Topic]; err != nil {
		return err
	}
	if compacted[tp.Topic] != v.policy.compacted[tp.Topic] {
		v.policy.at = time.Time{}
		return errors.New("cleanup.policy was changed meanwhile")
	}
	return nil
}

// found notes what a turn found, and tells of it.
func (v *verifying) found(x Verified, ended bool) {
	tp := TopicPartition{x.Topic, x.Partition}
	now := time.Now()
	v.mu.Lock()
	c := v.partitions[tp]
	if c == nil {
		v.mu.Unlock()
		return
	}
	read := x.Read - v.read[tp]
	if read < 0 { // the pass was begun anew
		read = x.Read
	}
	if v.read[tp] = x.Read; ended {
		delete(v.read, tp)
	}
	v.bytes += read
	v.beginPass(now)
	v.pass.bytes += read
	c.Trouble = ""
	if !ended {
		c.Trouble = x.Reason
	}
	was := c.Last
	if ended || x.Verdict.Wrong() {
		c.Last, c.Ended = x, time.Time{}
	}
	if ended {
		c.Ended = now
	}
	var events []Event
	if x.Verdict.Wrong() && (x.Verdict != was.Verdict || x.FirstWrong != was.FirstWrong) || ended && was.Verdict.Wrong() && !x.Verdict.Wrong() {
		events = append(events, CopyDiffers{v.m.meta(tp), x})
	}
	if ended {
		if e, over := v.endPass(tp, x.Verdict, now); over {
			events = append(events, e)
		}
	}
	v.mu.Unlock()
	for _, e := range events {
		v.m.emit(e)
	}
	if len(events) > 0 {
		v.m.stateChanged() // who reports the status has news
	}
}

// beginPass begins a pass over all copies, if none is under way. Under mu.
func (v *verifying) beginPass(now time.Time) {
	if v.pass.waiting != nil {
		return
	}
	v.pass = verificationPass{began: now, waiting: map[TopicPartition]bool{}, results: map[VerifiedVerdict]int{}}
	maps.Copy(v.pass.waiting, v.current)
}

// endPass notes that the pass over one copy is over, and says whether that of all of them is. Under mu.
func (v *verifying) endPass(tp TopicPartition, verdict VerifiedVerdict, now time.Time) (e VerificationPassEnded, over bool) {
	if v.pass.waiting[tp] {
		delete(v.pass.waiting, tp)
		v.pass.results[verdict]++
	}
	if len(v.pass.waiting) > 0 {
		return e, false
	}
	r := v.pass.results
	e = VerificationPassEnded{EventMeta: v.m.meta(TopicPartition{Partition: Unknown}), Took: now.Sub(v.pass.began), Bytes: v.pass.bytes, Identical: r[VerifiedIdentical], Partly: r[VerifiedPartly],
		NotCompared: r[VerifiedNothing], Hole: r[VerifiedHole], Different: r[VerifiedDifferent]}
	v.lastPass, v.pass = now, verificationPass{}
	return e, true
}

// recall takes in what an earlier process has found of this copy.
func (c *verifiedCopy) recall(w WrongCopy) {
	if w.TopicID == c.id.String() && w.Verdict.Wrong() && c.Last.Began.IsZero() {
		c.Last = Verified{Topic: w.Topic, Partition: w.Partition, Verdict: w.Verdict, FirstWrong: w.Offset, Findings: []string{w.Finding}, Began: w.At, SourceEnd: Unknown, CopyEnd: Unknown}
		c.Ended = w.At
	}
}

// remember takes in how an earlier process of this mirror reported its comparison: a difference does not go away with the process that has seen it.
func (v *verifying) remember(was *VerificationStatus) {
	if was == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lastPass.IsZero() {
		v.lastPass = was.LastPass
	}
	v.earlier = map[TopicPartition]WrongCopy{}
	for _, w := range was.Wrong {
		tp := TopicPartition{w.Topic, w.Partition}
		v.earlier[tp] = w
		if c := v.partitions[tp]; c != nil {
			c.recall(w)
		}
	}
}

// of is what is known of one partition, nil if nothing is.
func (v *verifying) of(p *PartitionStatus) *PartitionVerification {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.partitions[TopicPartition{p.Topic, p.Partition}]
	if c == nil || c.id != p.TopicID {
		return nil
	}
	known := c.PartitionVerification
	return &known
}

// status is how it stands over these topics; nil: nothing is compared continuously. A stopped copy is none any more, and what another process has is that one's.
func (v *verifying) status(topics []TopicStatus) *VerificationStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.since.IsZero() {
		return nil
	}
	s := &VerificationStatus{Rate: v.m.cfg.VerifyRate, Interval: v.m.cfg.VerifyInterval, Since: v.since, Waits: v.waits, Bytes: v.bytes, LastPass: v.lastPass}
	for _, t := range topics {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; !p.Halted && p.State != statemachine.Stopped {
				v.count(s, p)
			}
		}
	}
	return s
}

// count adds one copy. Under mu.
func (v *verifying) count(s *VerificationStatus, p *PartitionStatus) {
	tp := TopicPartition{p.Topic, p.Partition}
	c := v.partitions[tp]
	if c == nil || c.id != p.TopicID {
		s.NotCompared++
		return
	}
	switch last := &c.Last; last.Verdict {
	case VerifiedIdentical:
		s.Identical++
	case VerifiedPartly:
		s.Partly++
	case VerifiedHole:
		s.Hole++
	case VerifiedDifferent:
		s.Different++
	default:
		s.NotCompared++
	}
	if c.Last.Verdict.Wrong() && len(s.Wrong) < verifyMostListed {
		s.Wrong = append(s.Wrong, WrongCopy{Topic: p.Topic, Partition: p.Partition, TopicID: c.id.String(), Verdict: c.Last.Verdict, Offset: c.Last.FirstWrong, Finding: c.Last.finding(), At: c.Last.Began})
	}
	if !v.current[tp] {
		return
	}
	at := c.listed
	if c.Last.Began.After(at) && !c.Ended.IsZero() {
		at = c.Last.Began
	}
	if s.Oldest.IsZero() || at.Before(s.Oldest) {
		s.Oldest = at
	}
}

// finding is the first thing that was found, in one line.
func (v *Verified) finding() string {
	if len(v.Findings) == 0 {
		return v.Reason
	}
	return OneLine(v.Findings[0])
}

// valid is the status as a record can hold it.
func (s *VerificationStatus) valid() *VerificationStatus {
	if s == nil {
		return nil
	}
	v := *s
	v.Since, v.LastPass, v.Oldest, v.Waits, v.Wrong = storedTime(s.Since), storedTime(s.LastPass), storedTime(s.Oldest), validText(shorten(s.Waits)), slices.Clone(s.Wrong)
	for i := range v.Wrong {
		v.Wrong[i].Finding, v.Wrong[i].At = validText(shorten(v.Wrong[i].Finding)), storedTime(v.Wrong[i].At)
	}
	return &v
}

// words is how it stands, for a person.
func (s *VerificationStatus) words(now time.Time) string {
	copies := s.Identical + s.Partly + s.Hole + s.Different + s.NotCompared
	var words []string
	for _, r := range []struct {
		n    int
		what string
	}{{s.Different, string(VerifiedDifferent)}, {s.Hole, "with a " + string(VerifiedHole)}, {s.Identical, string(VerifiedIdentical)}, {s.Partly, "without a difference where they could be compared"}, {s.NotCompared, "not compared yet"}} {
		if r.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", r.n, r.what))
		}
	}
	text := plural(copies, "copy", "copies")
	if len(words) > 0 {
		text += ": " + strings.Join(words, ", ")
	}
	if !s.Oldest.IsZero() {
		text += "; the oldest comparison began " + age(now.Sub(s.Oldest))
	}
	if s.LastPass.IsZero() {
		text += "; no pass over all of them has ended"
	} else {
		text += "; the last pass over all of them ended " + age(now.Sub(s.LastPass))
	}
	if s.Waits != "" {
		text += "; it waits: " + s.Waits
	}
	return OneLine(text)
}
