package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Fence keeps clients from writing to topics at the source, for a promotion: without one a record may be acknowledged there between the last look and the stop, and nobody would know. Package
// mirror/fence has some. Every call ends with its context, may be repeated, also by another process after a crash, and then changes nothing more.
type Fence interface {
	// Raise keeps clients from writing to these topics, and returns when that is in force as far as can be seen. A promotion does not believe it: it watches the source's ends.
	Raise(ctx context.Context, topics []string) error
	// Lower takes back what Raise has done, whole or in part, and nothing else.
	Lower(ctx context.Context, topics []string) error
	// String is one line for the report, the history and the record of the promotion: what keeps whom from writing. It is the same in each process, never empty, and has no secrets.
	String() string
}

// FenceMemory is an optional ability of a Fence that has to know what there was before it: a rule that was there, the quota that it replaces.
type FenceMemory interface {
	// Look says what is at the source before Raise, and changes nothing. The text is recorded before Raise is called.
	Look(ctx context.Context, topics []string) (memory string, err error)
	// With returns the fence with what Look has said, in this process or in an earlier one. Raise and Lower are called on that one.
	With(memory string) (Fence, error)
}

// FenceRules is an optional ability of a Fence, as With returns it: it works by access rules of the source. Those are not copied to the destination.
type FenceRules interface {
	Rules(topics []string) []ACL
}

// FenceAdvice is an optional ability of a Fence, as With returns it.
type FenceAdvice interface {
	// Limits says whom the fence does not stop, one sentence each.
	Limits() []string
	// TakeDown says how a person takes the fence down, one line each.
	TakeDown(topics []string) []string
}

// FenceSlows is an optional ability of a Fence that forbids no write and only makes writes rare, and says so by true. That the source has stood still behind it tells nothing of the next moment, so
// nothing is proved by it; a fence without the ability keeps out every write of those whom it is about.
type FenceSlows interface {
	OnlySlows() bool
}

// LogEndReader is an optional ability of a Source: it can tell where logs end at their leaders. Beyond the high watermark lies what was acknowledged with acks=1 and has not reached every replica
// in sync yet.
type LogEndReader interface {
	// LogEnds is Offsets, with the end of the leader's log as HighWatermark.
	LogEnds(ctx context.Context, partitions []TopicPartition) (map[TopicPartition]SourceOffsets, error)
}

// TransactionEnder ends transactions at the source that their producers leave open.
type TransactionEnder interface {
	// AbortTransactions has the source abort what is open of these. One that has ended, or that its coordinator is about to commit, is left alone. It returns when the source has taken it on.
	AbortTransactions(ctx context.Context, open []OpenTransaction) error
}

// OpenTransaction is a transaction that is open in one partition of the source. ProducerID is Unknown where only a report says that some are open there.
type OpenTransaction struct {
	TopicPartition
	ProducerID    int64
	ProducerEpoch int16
	FirstOffset   int64
}

// PromoteOptions say what is promoted and how. Zero values are the defaults in brackets.
type PromoteOptions struct {
	// Topics to promote; none: every topic of the mirror that is not stopped.
	Topics []string
	// Partial allows promoting a part of a topic set.
	Partial bool
	// Fence keeps clients from writing at the source. Exactly one of Fence and Unfenced has to be given.
	Fence    Fence
	Unfenced bool // without one; nothing is proved then
	// Quiet is how far apart the two looks at the source's ends are that have to agree [5 s].
	Quiet time.Duration
	// Bound is how long the promotion may take until the stop [2 min], and again from there to its end. What is not there by then is given up, and the mirror goes on.
	Bound time.Duration
	// Transactions are waited for this long after everything else is ready [half of Bound]; then they are aborted at the source by AbortTransactions, or without it the promotion is given up.
	TransactionWait   time.Duration
	AbortTransactions TransactionEnder
	// LowerBound is how long giving up may take: lowering the fence and taking the record out [30 s]. It does not end with the caller's context.
	LowerBound time.Duration
	// Intent is for the stop, and for the history.
	Intent Intent
	// OnStep is called at each step, on the caller's goroutine [nothing].
	OnStep func(Promotion)
}

// complete fills the defaults.
func (o PromoteOptions) complete() PromoteOptions {
	o.Quiet = cmp.Or(o.Quiet, 5*time.Second)
	o.Bound = cmp.Or(o.Bound, 2*time.Minute)
	o.TransactionWait = cmp.Or(o.TransactionWait, o.Bound/2)
	o.LowerBound = cmp.Or(o.LowerBound, 30*time.Second)
	return o
}

// fault is what is wrong with the options, "" if nothing is.
func (o *PromoteOptions) fault() string {
	switch {
	case o.Fence == nil && !o.Unfenced:
		return "a promotion needs a Fence, or Unfenced, with which nothing is proved"
	case o.Fence != nil && o.Unfenced:
		return "a promotion has a Fence or is Unfenced: it is one or the other"
	case o.Fence != nil && fenceName(o.Fence) == "":
		return "the fence's String is empty, and by that name it is recorded and lowered again after a crash: give it a name"
	case o.Quiet < 0 || o.Bound < 0 || o.TransactionWait < 0 || o.LowerBound < 0:
		return "no time of a promotion is below 0"
	case o.Quiet >= o.Bound:
		return fmt.Sprintf("the source has to be quiet for %s, and all of it may take %s only: make Bound longer", o.Quiet, o.Bound)
	}
	return ""
}

// fenceName is what is recorded of the fence.
func fenceName(f Fence) string {
	if f == nil {
		return ""
	}
	return validText(OneLine(f.String()))
}

// ErrGivenUp: a promotion was given up before anything was stopped, and the mirror goes on as it was. The error says why, and the report whether the fence is down.
var ErrGivenUp = errors.New("mirror: the promotion was given up, and nothing has changed at the destination")

// ErrNotProved: everything is stopped and open for clients, and it is not proved that the copy has all that was acknowledged at the source. The report says why, and where. As long as the source has
// not answered behind the stop the promotion stays recorded: Promote again compares when it does.
var ErrNotProved = errors.New("mirror: promoted, and not proved")

// ErrNoReturn: a promotion cannot be taken back, because the stop is recorded, or because somebody else has stopped some of its topics, which clients may write to at the destination since. Promote again
// ends it: what nobody has stopped yet is drained first.
var ErrNoReturn = errors.New("mirror: the stop is recorded, so the promotion cannot be taken back")

// ErrOtherPromotion: another promotion of the mirror is under way, or somebody else has taken this one up.
var ErrOtherPromotion = errors.New("mirror: another promotion is under way")

// PromoteOutcome is what came of one call of Promote.
type PromoteOutcome string

const (
	// PromoteRefused: this call has changed nothing, at neither side. A promotion that is under way is as it was.
	PromoteRefused PromoteOutcome = "refused"
	// PromoteGivenUp: nothing has changed at the destination and the mirror goes on (ErrGivenUp). FenceUp says whether the fence could be lowered.
	PromoteGivenUp PromoteOutcome = "given up"
	// PromoteTakenOver: somebody else goes on with this promotion, takes it back, or has ended it (ErrOtherPromotion). The fence is theirs.
	PromoteTakenOver PromoteOutcome = "taken over"
	// PromotePartStopped: somebody else has stopped some of the topics; this has stopped none, and the fence stays up for theirs.
	PromotePartStopped PromoteOutcome = "part stopped by somebody else"
	// PromoteUnknown: it is not known whether the stop was recorded, and the fence may be up.
	PromoteUnknown PromoteOutcome = "unknown"
	// PromoteIncomplete: the stop is recorded, and not all is open for clients yet (ErrIncomplete).
	PromoteIncomplete PromoteOutcome = "incomplete"
	// PromoteNotProved: all is open for clients, and something may be missing (ErrNotProved).
	PromoteNotProved PromoteOutcome = "not proved"
	// PromoteEqual: all is open for clients, both sides were equal when they were looked at last, and the fence forbids no write (ErrNotProved).
	PromoteEqual PromoteOutcome = "equal"
	// PromoteProved: all is open for clients, and nothing that was acknowledged at the source is missing.
	PromoteProved PromoteOutcome = "proved"
)

// PromoteReport is what a promotion did. It is plain data.
type PromoteReport struct {
	Mirror               string
	SourceClusterID      string
	DestinationClusterID string
	Topics               []string
	Fence                string // "": there was none
	Began                time.Time
	Took                 time.Duration
	Resumed              bool // an earlier attempt began it
	// Outcome is what came of it, in one word; String begins with it.
	Outcome PromoteOutcome
	// Stopped: the stop is recorded, and the topics are opened for clients. False: it was given up.
	Stopped bool
	// Proved: nothing that was acknowledged at the source is missing in the copy. Why has the reasons if it is false and Stopped is true; they are about the whole.
	Proved bool
	Why    []string
	// FenceUp: the fence stands at the source when this ends, or may stand.
	FenceUp    bool
	OnlySlows  bool      // the fence forbids no write (FenceSlows), so nothing is proved: all was equal when it was looked at, at most
	Limits     []string  // whom the fence does not stop
	TakeDown   []string  // how it is taken down
	LastWrite  time.Time // up to when writes were seen at the source behind the fence; zero: none was
	Quiet      time.Duration
	Verified   time.Time // when the second of the two looks that agreed was over; zero: none were
	LookedLast time.Time // when the source was looked at behind the stop; zero: it has not answered
	// NoLogEnds: the source does not say where its leaders' logs end, so what lies beyond the high watermark is not seen.
	NoLogEnds  bool
	Partitions []PromoteResult
}

// PromoteResult is one partition.
type PromoteResult struct {
	Topic       string
	Partition   int32
	SourceEnd   Number    // where the source's log ended when it was looked at last
	SourceSeen  time.Time // when that was
	FinalOffset Number    // last mirror offset: records below it are the source's
	LME         Number
	Err         error    // why it is not open for clients; nil: it is, or the promotion was given up
	Why         []string // why it is not proved; none: it is
}

// Promote moves topics to the destination without loss, and proves it by offsets: it raises the fence at the source, sees that nobody writes there any more, waits until the copies have everything and
// no transaction is open, stops the topics, and compares once more. What stands in the way before the stop makes it give up: the fence is lowered, the mirror goes on, and nothing has changed at
// the destination. Bound is the longest that it takes; nothing waits for the source beyond it.
//
// It is recorded before the source is changed. After a crash at any step Promote with the same topics and the same fence goes on (what an earlier process saw of the source is not believed), and
// AbortPromotion takes it back. When the stop is recorded there is no way back, and Promote ends what is left. Where somebody else has stopped some of the topics meanwhile, the fence is not lowered any
// more; the others are stopped when they are ready, and not before.
//
// When it succeeds the fence stays up, because clients that still write to the source would write what no copy has; the report says how it is taken down,
// it is recorded (Description.LeftFences), and LowerFence lowers it.
//
// Errors: InvalidRequest (with FenceElsewhereError) and those of Stop, before anything has changed; ErrOtherPromotion; ErrGivenUp; ErrIncomplete, when partitions are not open yet (the same again waits for them); ErrNotProved,
// when they are and something may be missing.
func (m *Mirror) Promote(ctx context.Context, o PromoteOptions) (PromoteReport, error) {
	m.settle(ctx)
	return m.admin.promote(ctx, o, mirrorCopies{m}, func(context.Context) (Source, func(), error) { return m.cfg.Source, func() {}, nil })
}

// AbortPromotion takes a promotion back that is under way, as one that a crash has left: it lowers the fence, which has to be the one that was raised (nil: there was none), and takes the record out.
// The mirror goes on as it was. Nothing under way is fine. Errors: ErrNoReturn; ErrOtherPromotion, of another fence;
// FenceElsewhereError; the fence's and the Control's, with which the record stays and the same may be tried again.
func (m *Mirror) AbortPromotion(ctx context.Context, fence Fence) error {
	return m.admin.AbortPromotion(ctx, fence)
}

// Promote is Mirror.Promote from any process that reaches the destination's desired state and, with the mirror's settings, the source. The process that runs the mirror has to be alive: it copies, and
// says in its reports how far it is, every eight seconds or so.
func (a *Admin) Promote(ctx context.Context, o PromoteOptions) (PromoteReport, error) {
	return a.promote(ctx, o, reportedCopies{a}, func(ctx context.Context) (Source, func(), error) {
		if a.borrowed != nil {
			return a.borrowed, func() {}, nil
		}
		if a.cfg.OpenSource == nil {
			return nil, nil, a.refuse(InvalidRequest, "", "no source can be opened here, so nothing can be proved; promote where the mirror runs")
		}
		state, err := a.cfg.Control.Read(ctx)
		if err != nil {
			return nil, nil, a.controlFailed("reading the desired state", err)
		}
		entry, _ := state.Mirror(a.cfg.Mirror)
		source, err := a.cfg.OpenSource(ctx, entry.Settings)
		if err != nil {
			return nil, nil, fmt.Errorf("mirror %s: opening the source, nothing has changed: %w", a.cfg.Mirror, err)
		}
		return source, func() { _ = source.Close() }, nil // what it said stands, however its connections end
	})
}

// AbortPromotion is Mirror.AbortPromotion from any process.
func (a *Admin) AbortPromotion(ctx context.Context, fence Fence) error {
	record, sourceID, err := a.giveUpPromotion(ctx, func(s *ControlState) (Promotion, bool, error) {
		p, ok := s.Promotion(a.cfg.Mirror)
		if ok && p.Fence != fenceName(fence) {
			return p, ok, fmt.Errorf("%w: the fence that was raised is %q, and the one given is %q", ErrOtherPromotion, p.Fence, fenceName(fence))
		}
		return p, ok, nil
	})
	if err != nil || record.Mirror == "" {
		return err
	}
	return a.lowerFence(ctx, record, fence, sourceID)
}

// giveUpPromotion records that the promotion which is given up is, so that nobody stops anything for it any more. A record without a Mirror: there is none.
// sourceID is "" if nobody has said it yet.
func (a *Admin) giveUpPromotion(ctx context.Context, which func(*ControlState) (p Promotion, ok bool, err error)) (record Promotion, sourceID string, err error) {
	err = a.cfg.Control.Update(ctx, func(s *ControlState) error {
		entry, _ := s.Mirror(a.cfg.Mirror)
		sourceID = cmp.Or(entry.SourceClusterID, a.cfg.SourceClusterID)
		p, ok, err := which(s)
		if record = p; !ok || err != nil {
			return err
		}
		switch at := s.stoppedAmong(p); {
		case s.noReturn(p):
			return fmt.Errorf("%w (%s); promote again, which waits until all is open", ErrNoReturn, few(at))
		case len(at) > 0:
			return fmt.Errorf("%w: %w (%s), so the fence stays up; promote again, which goes on with the others", ErrNoReturn, errPartStopped, few(at))
		}
		if p.Step != PromotionLowering {
			p.Step, p.Since = PromotionLowering, a.now()
		}
		p.Attempt++
		s.setPromotion(p)
		record = p
		return nil
	})
	return record, sourceID, err
}

// errPartStopped: the topics that nobody has stopped are mirrored on, so a promotion may still stop them when they are ready, and has stopped none itself.
var errPartStopped = errors.New("somebody else has stopped some of the topics")

// noReturn says that nothing is left of a promotion but to end it: its own stop is recorded, in one write with the step, or others have stopped all that it is about.
func (s *ControlState) noReturn(p Promotion) bool {
	return p.Step == PromotionStopping || len(s.stoppedAmong(p)) == len(p.Topics)
}

// stoppedAmong are the topics of a promotion that are wanted stopped, whoever wants it. With one of them the fence is not lowered any more.
func (s *ControlState) stoppedAmong(p Promotion) []string {
	return slices.DeleteFunc(slices.Clone(p.Topics), func(topic string) bool {
		w, ok := s.Topic(topic)
		return !ok || !stopped(w.MirrorName)
	})
}

// lowerFence lowers the fence of a promotion that is given up, and takes its record out.
func (a *Admin) lowerFence(ctx context.Context, record Promotion, fence Fence, sourceID string) error {
	var rules []ACL
	if fence != nil {
		fence, err := withMemory(fence, record.Memory)
		if err == nil {
			err = atSource(ctx, theFence, fence, sourceID)
		}
		if err == nil {
			rules = rulesOf(fence, record.Topics)
			_, err = atTheFence(ctx, "lowering it", func(ctx context.Context) error { return fence.Lower(ctx, record.Topics) })
		}
		if err != nil {
			return fmt.Errorf("mirror %s: the fence could not be lowered and may still be up (%s): %w", a.cfg.Mirror, record.Fence, err)
		}
	}
	err := a.cfg.Control.Update(ctx, func(s *ControlState) error {
		p, ok := s.Promotion(a.cfg.Mirror)
		if !ok || !p.sameAttempt(record) {
			return nil // somebody else has ended it
		}
		s.removePromotion(a.cfg.Mirror)
		s.noteFence(a.cfg.Mirror, rules, false)
		s.Note = &HistoryEntry{Time: a.now(), Verb: verbAbortPromotion, Mirror: a.cfg.Mirror, Topics: historyNames(p.Topics), Who: a.cfg.Operator, Detail: cmp.Or(prefixed("lowered: ", p.Fence), "there was no fence")}
		return nil
	})
	if err != nil {
		return fmt.Errorf("mirror %s: the fence is down, and the promotion is still recorded: %w", a.cfg.Mirror, err)
	}
	return nil
}

// fenceGrace is how long a fence's call may take to return when its context has ended.
const fenceGrace = time.Second

// atTheFence is a call of somebody's fence. It returns in its time, whatever the fence does; one that does not return is let go of. returned is closed when it has.
func atTheFence(ctx context.Context, doing string, do func(context.Context) error) (returned chan struct{}, err error) {
	returned = make(chan struct{})
	var answer error // once it has returned
	go func() {
		defer close(returned)
		answer = do(ctx)
	}()
	select {
	case <-returned:
		return returned, answer
	case <-ctx.Done():
	}
	grace := time.NewTimer(fenceGrace)
	defer grace.Stop()
	select {
	case <-returned:
		return returned, answer
	case <-grace.C:
		return returned, fmt.Errorf("%s: the fence does not return, and its time is over; what it does later nobody undoes, so look at the source then: %w", doing, ctx.Err())
	}
}

// withMemory is the fence with what it said before it was raised.
func withMemory(f Fence, memory string) (Fence, error) {
	if m, ok := f.(FenceMemory); ok {
		return m.With(memory)
	}
	return f, nil
}

func rulesOf(f Fence, topics []string) []ACL {
	if r, ok := f.(FenceRules); ok {
		return r.Rules(topics)
	}
	return nil
}

// historyNames are the first names of a list, as many as an entry of the history has.
func historyNames(topics []string) []string { return topics[:min(len(topics), historyTopics)] }
