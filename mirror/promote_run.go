package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// promoting is one attempt at a promotion.
//
// What it rests on: a look at the source says where each log ends at its leader (LogEndReader), and how far replicas have followed. Two looks that agree, the second begun at least Quiet after the
// first was over, and everything replicated, say that nobody's write was accepted in between; with a fence up that forbids writes none is accepted later (behind one that only slows clients down nothing is proved, FenceSlows). The copies hold everything below these ends, replicated,
// and have no transaction open, so that no marker is under way either (a commit may be acknowledged before its markers are written, and a marker passes every fence). Then the source is looked at
// once more, and only if it still ends there the topics are stopped. Behind the stop it is looked at again: a write that got through is reported, not hidden.
type promoting struct {
	*Admin
	o      PromoteOptions
	copies promotionCopies
	source Source
	fence  Fence // with its memory; nil: there is none
	record Promotion
	r      PromoteReport

	sourceID string                      // whom the mirror reads from, "" if nobody has said it yet
	raising  chan struct{}               // closed when the last Raise has returned; nil: none was called
	verified *sourceLook                 // the last look before the stop; nil: this process has none
	latest   *sourceLook                 // behind the stop; nil: the source has not answered
	unraised error                       // why the fence could not be raised again behind the stop, where nothing waits for it
	waits    string                      // what it waits for now, for people
	empty    map[TopicPartition][2]int64 // [from, to): the source has nothing to read there
	whole    map[TopicPartition]int64    // where each copy ended when it had everything, with no transaction open: a stop at that offset aborts none
}

// promotionCopies are the copies of one mirror, as the process sees them that promotes.
type promotionCopies interface {
	// look says how far they are. What is known through reports only is heard where one was made since that moment: what a dead process has left may be whole, and nobody would open it.
	look(ctx context.Context, topics []string, since time.Time) (map[TopicPartition]promotionCopy, error)
	// stop has the topics stopped, with the record of the promotion moved on in the same write, and waits until all of them are open for clients. Repeating it is harmless.
	stop(ctx context.Context, p *promoting) (map[TopicPartition]promotedCopy, error)
}

// promotionCopy is one copy before the stop.
type promotionCopy struct {
	mirroring  bool
	heard      bool   // who copies it lives
	stopped    bool   // or wanted so: somebody else has done that, and nothing is to be waited for
	state      string // with its reason, for people
	replicated int64
	emptyTo    int64 // the source has proved that it has nothing to read in [replicated, emptyTo); 0: it has not
	open       []OpenTransaction
}

// has says that everything below an end of the source is there.
func (c promotionCopy) has(end int64) bool { return c.replicated >= end || c.emptyTo >= end }

// promotedCopy is one copy behind the stop.
type promotedCopy struct {
	final, lme int64 // Unknown
	aborts     int64 // transactions that the stop has aborted; Unknown
	err        error
}

// promotes tells Stop that it is the stop of a promotion.
type promotes struct {
	record  *Promotion // has to be recorded still, as this attempt's; nil: it is only planned
	confirm bool       // a dry run that refuses what the stop would refuse for want of an intent
}

const (
	verbPromote        = "promote"
	verbAbortPromotion = "abort promotion"
)

// PlanPromotion is the dry run of the stop that Promote does: what is refused, what it means for groups, and the plan for Intent.Plan. It asks no source and raises nothing.
func (a *Admin) PlanPromotion(ctx context.Context, o PromoteOptions) (Result, error) {
	o = o.complete()
	if fault := o.fault(); fault != "" {
		return Result{Verb: verbPromote, Mirror: a.cfg.Mirror, DryRun: true}, a.refuse(InvalidRequest, "", "%s", fault)
	}
	return a.Stop(ctx, o.Topics, StopOptions{AllTopics: len(o.Topics) == 0, Partial: o.Partial, DryRun: true, Intent: o.Intent, promotes: &promotes{}})
}

func (a *Admin) promote(ctx context.Context, o PromoteOptions, copies promotionCopies, open func(context.Context) (Source, func(), error)) (PromoteReport, error) {
	o = o.complete()
	p := &promoting{Admin: a, o: o, copies: copies, r: PromoteReport{Mirror: a.cfg.Mirror, Outcome: PromoteRefused, Fence: fenceName(o.Fence), Began: a.now(), Quiet: o.Quiet}}
	defer func() { p.r.Took = a.now().Sub(p.r.Began) }()
	if fault := o.fault(); fault != "" {
		return p.r, a.refuse(InvalidRequest, "", "%s; nothing has changed", fault)
	}
	bounded, stop := context.WithTimeout(ctx, o.Bound)
	defer stop()
	source, closeSource, err := open(bounded)
	if err != nil {
		return p.r, err
	}
	defer closeSource()
	p.source = source
	back, err := p.begin(bounded)
	if err != nil {
		return p.r, err
	}
	if back {
		if err := p.ready(bounded); err != nil {
			err = p.giveUp(ctx, p.words(bounded, err))
			if !errors.Is(err, ErrNoReturn) || errors.Is(err, errPartStopped) {
				return p.report(err)
			}
		}
	} else if p.fence != nil { // an earlier attempt has raised it, or not come to that where others have stopped everything; and somebody may have lowered it since
		p.unraised = p.raiseAgain(bounded)
	}
	err = p.end(ctx)
	return p.report(err)
}

// report is what the caller gets.
func (p *promoting) report(err error) (PromoteReport, error) {
	p.r.Took, p.r.Outcome = p.now().Sub(p.r.Began), p.outcome(err)
	if p.fence != nil {
		if a, ok := p.fence.(FenceAdvice); ok {
			p.r.Limits = a.Limits()
			if p.r.FenceUp {
				p.r.TakeDown = a.TakeDown(p.record.Topics)
			}
		}
		if _, tells := p.fence.(FenceCluster); !tells {
			p.r.Limits = append(p.r.Limits, "on which cluster it works is the caller's word: it does not tell, so it was not compared with the source's")
		}
	}
	return p.r, err
}

// outcome is what came of a promotion that was begun or taken up.
func (p *promoting) outcome(err error) PromoteOutcome {
	switch {
	case p.r.Stopped:
		return p.r.ended()
	case errors.Is(err, ErrGivenUp):
		return PromoteGivenUp
	case errors.Is(err, errPartStopped):
		return PromotePartStopped
	case errors.Is(err, ErrOtherPromotion):
		return PromoteTakenOver
	}
	return PromoteUnknown
}

// words say what was waited for, where that is why it ended.
func (p *promoting) words(ctx context.Context, err error) error {
	if p.waits == "" || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%s: %s: %w", p.record.Step, p.waits, err)
}

// begin looks whether anything stands in the way while nothing has changed, and records the promotion, or takes up the one that is recorded. back: something is left to make ready, before it is stopped.
func (p *promoting) begin(ctx context.Context) (back bool, err error) {
	state, err := p.cfg.Control.Read(ctx)
	if err != nil {
		return false, p.controlFailed("reading the desired state", err)
	}
	entry, _ := state.Mirror(p.cfg.Mirror)
	p.sourceID = cmp.Or(entry.SourceClusterID, p.cfg.SourceClusterID, p.o.Intent.SourceClusterID)
	record, under := state.Promotion(p.cfg.Mirror)
	checked, memory := !under, ""
	topics := slices.Compact(slices.Sorted(slices.Values(p.o.Topics)))
	if under && !state.noReturn(record) {
		if err := p.fitFence(ctx); err != nil {
			p.r.FenceUp = record.Fence != ""
			return false, err
		}
	}
	if !under {
		plan, err := p.Stop(ctx, topics, StopOptions{AllTopics: len(topics) == 0, Partial: p.o.Partial, DryRun: true, Intent: p.o.Intent, promotes: &promotes{confirm: true}})
		if err != nil {
			return false, err
		}
		p.r.SourceClusterID, p.r.DestinationClusterID = plan.Clusters.SourceID, plan.Clusters.DestinationID
		topics = nil
		for _, t := range plan.Topics {
			if t.Changed {
				topics = append(topics, t.Topic)
			}
		}
		slices.Sort(topics)
		if topics = slices.Compact(topics); len(topics) == 0 {
			return false, p.refuse(InvalidRequest, "", "no topic of the mirror is to be promoted: each is stopped already; nothing has changed")
		}
		p.record.Topics = topics
		if err := p.fit(ctx); err != nil {
			return false, err
		}
		if looks, ok := p.o.Fence.(FenceMemory); ok {
			_, err = atTheFence(ctx, "looking what is at the source before it", func(ctx context.Context) (err error) {
				memory, err = looks.Look(ctx, topics)
				return err
			})
			if err != nil {
				return false, fmt.Errorf("mirror %s: the fence cannot be raised, nothing has changed: %w", p.cfg.Mirror, err)
			}
		}
	}
	err = p.cfg.Control.Update(ctx, func(s *ControlState) error {
		record, under = s.Promotion(p.cfg.Mirror)
		switch {
		case !under && !checked:
			return fmt.Errorf("mirror %s: %w: it has ended meanwhile; use the verb again", p.cfg.Mirror, ErrOtherPromotion)
		case !under && p.o.Fence != nil && s.lowersFence(p.cfg.Mirror):
			return fmt.Errorf("mirror %s: %w: the fence of an earlier one is being lowered at the source, and this one's would be lowered with it; LowerFence ends that, after a crash too, then promote", p.cfg.Mirror, ErrOtherPromotion)
		case !under:
			now := p.now()
			record = Promotion{Mirror: p.cfg.Mirror, Topics: topics, Fence: p.r.Fence, Memory: memory, Step: PromotionRaising, Since: now, Began: now, Who: p.cfg.Operator, Reason: p.o.Intent.Reason}
		case record.Fence != p.r.Fence:
			return fmt.Errorf("mirror %s: %w: its fence is %q, and the one given is %q; go on with that one, or abort it", p.cfg.Mirror, ErrOtherPromotion, record.Fence, p.r.Fence)
		case len(p.o.Topics) > 0 && !slices.Equal(topics, record.Topics):
			return fmt.Errorf("mirror %s: %w: it is of %s; go on with those, or abort it", p.cfg.Mirror, ErrOtherPromotion, few(record.Topics))
		case record.Step == PromotionLowering:
			return fmt.Errorf("mirror %s: %w: it is being given up; abort it, which ends that, and use the verb again", p.cfg.Mirror, ErrOtherPromotion)
		}
		p.r.Resumed = under
		record.Attempt++
		if p.fence = nil; p.o.Fence != nil {
			fence, err := withMemory(p.o.Fence, record.Memory)
			if err != nil {
				return fmt.Errorf("mirror %s: the fence cannot be raised, nothing has changed: %w", p.cfg.Mirror, err)
			}
			p.fence = fence
			s.noteFence(p.cfg.Mirror, rulesOf(fence, record.Topics), true)
		}
		back = !s.noReturn(record)
		s.setPromotion(record)
		if !under {
			s.Note = &HistoryEntry{Time: p.now(), Verb: verbPromote, Mirror: p.cfg.Mirror, Topics: historyNames(topics), Who: p.cfg.Operator, Reason: record.Reason,
				Detail: "begun; " + cmp.Or(prefixed("fence: ", record.Fence), "without a fence")}
		}
		return nil
	})
	if err != nil {
		if errors.Is(err, ErrOtherPromotion) {
			return false, err
		}
		return false, fmt.Errorf("mirror %s: recording the promotion, nothing has changed at the source: %w", p.cfg.Mirror, err)
	}
	p.record, p.r.Topics, p.r.FenceUp = record, record.Topics, p.fence != nil
	if slows, ok := p.fence.(FenceSlows); ok {
		p.r.OnlySlows = slows.OnlySlows()
	}
	p.tellStep()
	return back, nil
}

func (p *promoting) tellStep() {
	if p.o.OnStep != nil {
		p.o.OnStep(p.record)
	}
}

// fit refuses, before anything has changed, what could only end in giving up.
func (p *promoting) fit(ctx context.Context) error {
	look, err := p.lookAtSource(ctx)
	if err != nil {
		return fmt.Errorf("mirror %s: a promotion needs the source, which does not answer (a failover needs none); nothing has changed: %w", p.cfg.Mirror, err)
	}
	copies, err := p.copies.look(ctx, p.record.Topics, p.now())
	if err != nil {
		return fmt.Errorf("mirror %s: how far the copies are is not known, nothing has changed: %w", p.cfg.Mirror, err)
	}
	for _, tp := range look.partitions() {
		c, there := copies[tp]
		switch {
		case !there:
			return p.refuse(InvalidClusterMirrorState, tp.Topic, "partition %d is not copied yet, so nothing can be promoted without loss; nothing has changed", tp.Partition)
		case !c.mirroring:
			return p.refuse(InvalidClusterMirrorState, tp.Topic, "partition %d is %s, and only what is MIRRORING can be promoted without loss; mend that first. Nothing has changed", tp.Partition, c.state)
		}
	}
	return p.fitFence(ctx)
}

// fitFence refuses a fence, and what aborts transactions, of another cluster than the source, before this attempt has changed anything.
func (p *promoting) fitFence(ctx context.Context) error {
	if p.sourceID == "" {
		info, err := p.source.Cluster(ctx)
		if err != nil {
			return fmt.Errorf("mirror %s: which cluster the source is is not known; nothing has changed: %w", p.cfg.Mirror, err)
		}
		p.sourceID = info.ID
	}
	err := cmp.Or(atSource(ctx, theFence, p.o.Fence, p.sourceID), atSource(ctx, theEnder, p.o.AbortTransactions, p.sourceID))
	switch {
	case errors.As(err, new(*FenceElsewhereError)):
		return p.failed(InvalidRequest, "", err, "nothing has changed")
	case err != nil:
		return fmt.Errorf("mirror %s: nothing has changed: %w", p.cfg.Mirror, err)
	}
	return nil
}

// raiseAgain raises the fence behind the stop. One that can tell its cluster is not raised where the source is not known to be that one.
func (p *promoting) raiseAgain(ctx context.Context) error {
	if _, tells := p.o.Fence.(FenceCluster); tells && p.sourceID == "" {
		info, err := p.source.Cluster(ctx)
		if err != nil {
			return fmt.Errorf("which cluster the source is is not known: %w", err)
		}
		p.sourceID = info.ID
	}
	if err := atSource(ctx, theFence, p.o.Fence, p.sourceID); err != nil {
		return err
	}
	return p.raise(ctx)
}

// raise raises the fence.
func (p *promoting) raise(ctx context.Context) (err error) {
	p.raising, err = atTheFence(ctx, "raising it", func(ctx context.Context) error { return p.fence.Raise(ctx, p.record.Topics) })
	return err
}

// raised waits until the fence is raised no more, so that it is not lowered before that.
func (p *promoting) raised(ctx context.Context) error {
	if p.raising == nil {
		return nil
	}
	select {
	case <-p.raising:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the fence is still being raised: %w", ctx.Err())
	}
}

// mine says that a record is still this attempt's.
func (p *promoting) mine(record Promotion) error {
	if !record.sameAttempt(p.record) || record.Step == PromotionLowering {
		return fmt.Errorf("mirror %s: %w: somebody else has taken this one up, it is now %s", p.cfg.Mirror, ErrOtherPromotion, record.Step)
	}
	return nil
}

// step records which step it is at. That somebody else has the promotion now ends this attempt; that it cannot be recorded does not.
func (p *promoting) step(ctx context.Context, step PromotionStep) error {
	if p.record.Step == step {
		return nil
	}
	var taken error
	next := p.record
	next.Step, next.Since = step, p.now()
	bounded, stop := context.WithTimeout(ctx, askBound)
	defer stop()
	err := p.cfg.Control.Update(bounded, func(s *ControlState) error {
		record, ok := s.Promotion(p.cfg.Mirror)
		taken = nil
		if !ok {
			taken = fmt.Errorf("mirror %s: %w: somebody else has ended this one", p.cfg.Mirror, ErrOtherPromotion)
		} else {
			taken = p.mine(record)
		}
		if taken == nil {
			s.setPromotion(next)
		}
		return taken
	})
	if taken != nil {
		return taken
	}
	if err == nil {
		p.record = next
		p.tellStep()
	}
	return nil
}

// ready raises the fence and waits until everything is there to stop.
func (p *promoting) ready(ctx context.Context) error {
	if p.fence != nil {
		if err := p.raise(ctx); err != nil {
			return fmt.Errorf("raising the fence (%s): %w", p.record.Fence, err)
		}
	}
	if err := p.step(ctx, PromotionVerifying); err != nil {
		return err
	}
	var first *sourceLook // of those that agree
	var waiting time.Time // since when only transactions are waited for
	var drained bool      // the copies have all that first says
	for {
		look, err := p.lookAtSource(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err() // what was waited for before is why
		case errors.Is(err, errOtherSource):
			return err
		case err != nil:
			p.waits = "the source does not say where it ends: " + err.Error()
		case p.fence == nil && first != nil: // clients go on writing, so no two looks need agree
		case first == nil || !look.agrees(first) || !first.settled():
			if first != nil && !look.agrees(first) {
				p.r.LastWrite = look.done
			}
			first, drained, waiting = look, false, time.Time{}
		}
		quiet := err == nil && (p.fence == nil || look.began.Sub(first.done) >= p.o.Quiet && first.settled())
		if quiet && drained {
			p.verified = look
			if p.fence != nil {
				p.r.Verified = look.done
			}
			return nil
		}
		if err == nil {
			was := p.waits
			if p.waits = first.unsettled(); p.waits == "" {
				p.waits = fmt.Sprintf("the source has not ended at the same offsets for %s yet; it last took something before %s", p.o.Quiet, stamp(first.done))
			}
			step := PromotionVerifying
			copies, copyErr := p.copies.look(ctx, p.record.Topics, first.done)
			lack, open := first.lacking(copies)
			switch {
			case copyErr != nil && ctx.Err() != nil && was != "":
				p.waits = was // the bound passed in the middle of a look: what was waited for is still the reason
			case copyErr != nil:
				if p.waits = "how far the copies are is not known: " + copyErr.Error(); errors.Is(copyErr, ErrFenced) || errors.Is(copyErr, ErrClosed) {
					return copyErr
				}
			case len(lack) > 0 && quiet:
				step, p.waits = PromotionDraining, "not in the copy yet: "+few(lack)
			case len(open) > 0 && quiet:
				step, p.waits = PromotionTransactions, "open at the source: "+few(open.names())
				if waiting.IsZero() {
					waiting = p.now()
				}
			}
			drained = copyErr == nil && len(lack) == 0 && len(open) == 0
			p.empty, p.whole, p.record.Whole = map[TopicPartition][2]int64{}, map[TopicPartition]int64{}, ""
			for tp, c := range copies {
				p.empty[tp] = [2]int64{c.replicated, c.emptyTo}
				if drained && !c.stopped {
					p.whole[tp] = c.replicated
				}
			}
			if len(p.whole) == len(copies) {
				p.record.Whole = sumOf(p.whole)
			}
			if err := p.step(ctx, step); err != nil {
				return err
			}
			if step == PromotionTransactions && p.now().Sub(waiting) >= p.o.TransactionWait {
				switch {
				case p.o.AbortTransactions != nil:
					if err := p.o.AbortTransactions.AbortTransactions(ctx, open); err != nil {
						return fmt.Errorf("aborting transactions at the source (%s): %w", few(open.names()), err)
					}
					waiting = p.now()
				case p.fence == nil:
					drained = true // the stop aborts them in the copy, and nothing is proved anyway
				default:
					return fmt.Errorf("%s still open at the source after %s: %s", plural(len(open), "transaction is", "transactions are"), p.o.TransactionWait, few(open.names()))
				}
			}
		}
		if !waitFor(ctx, p.interval()) {
			return ctx.Err()
		}
	}
}

// interval is how often it looks.
func (p *promoting) interval() time.Duration {
	return min(max(p.o.Quiet/5, 50*time.Millisecond), time.Second)
}

// waitFor waits; false: ctx ended first.
func waitFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// leaves says which record this attempt gives up: its own, or what somebody else has left of it who gave it up while the fence was being raised here. He may have lowered it before it was up, so that is
// done again behind the raising, and recorded again where he has taken the record out: nobody raises a fence meanwhile that would be lowered with this one. Errors: ErrOtherPromotion, for one that goes
// on; and for one that has ended with topics open for clients. The fence is theirs then.
func (p *promoting) leaves(s *ControlState) (record Promotion, ok bool, err error) {
	record, ok = s.Promotion(p.cfg.Mirror)
	switch {
	case ok && record.Step != PromotionLowering:
		return record, ok, p.mine(record)
	case ok && record.Fence != p.record.Fence:
		return record, ok, fmt.Errorf("mirror %s: %w: another one is being given up, and the fence (%s) may be up; abort that one, and use the verb again", p.cfg.Mirror, ErrOtherPromotion, p.record.Fence)
	case ok || p.fence == nil:
		return record, ok, nil
	case len(s.stoppedAmong(p.record)) > 0:
		return record, ok, fmt.Errorf("mirror %s: %w: somebody else has ended this one", p.cfg.Mirror, ErrOtherPromotion)
	}
	s.noteFence(p.cfg.Mirror, rulesOf(p.fence, p.record.Topics), true)
	return p.record, true, nil
}

// giveUp takes everything back. It does not end with the caller's context, which may be why. Errors: ErrGivenUp with the cause, and with what could not be taken back; ErrNoReturn if the stop is recorded;
// ErrOtherPromotion if it is somebody else's now, and so is the fence.
func (p *promoting) giveUp(ctx context.Context, cause error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), p.o.LowerBound)
	defer stop()
	var record Promotion
	var sourceID string
	err := p.insist(ctx, func() (err error) {
		record, sourceID, err = p.giveUpPromotion(ctx, p.leaves)
		return err
	})
	switch {
	case errors.Is(err, ErrNoReturn):
		return errors.Join(err, cause)
	case errors.Is(err, ErrOtherPromotion) && errors.Is(cause, ErrOtherPromotion):
		return err
	case errors.Is(err, ErrOtherPromotion):
		return errors.Join(err, cause)
	case err != nil:
		return fmt.Errorf("mirror %s: %w; it is not known whether the stop was recorded, and the fence is still up: promote again, or abort the promotion: %w", p.cfg.Mirror, cause, err)
	}
	p.record = record
	if record.Mirror == "" {
		return fmt.Errorf("%w: somebody else has taken it back: %w", ErrGivenUp, cause) // there was no fence
	}
	p.tellStep()
	err = p.raised(ctx)
	if err == nil {
		err = p.insist(ctx, func() error { return p.lowerFence(ctx, record, p.o.Fence, sourceID) })
	}
	if err != nil {
		return fmt.Errorf("%w, but the source: abort the promotion, which tries that again: %w: %w", ErrGivenUp, cause, err)
	}
	p.r.FenceUp = false
	return fmt.Errorf("%w: %w", ErrGivenUp, cause)
}

// insist does something again as long as it may help.
func (p *promoting) insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || errors.Is(err, ErrNoReturn) || errors.Is(err, ErrOtherPromotion) || !waitFor(ctx, time.Second/2) {
			return err
		}
	}
}

// end stops the topics, waits until they are open, and compares.
func (p *promoting) end(ctx context.Context) error {
	bounded, stop := context.WithTimeout(ctx, p.o.Bound)
	defer stop()
	copies, err := p.copies.stop(bounded, p)
	if err != nil {
		back := p.giveUp(ctx, err)
		if !errors.Is(back, ErrNoReturn) || errors.Is(back, errPartStopped) {
			return back
		}
		p.r.Stopped = true
		if copies == nil {
			return fmt.Errorf("%w: the stop is recorded; promote again, which waits until all is open and compares: %w", ErrIncomplete, err)
		}
	}
	p.r.Stopped = true
	p.lookBehind(bounded)
	p.judge(copies)
	if err != nil {
		return err // the record stays: the same again waits for what is missing
	}
	if p.fence != nil && !p.r.Proved && (p.r.LookedLast.IsZero() || p.unraised != nil) {
		return fmt.Errorf("mirror %s: %w: %s; promote again when the source answers: that raises the fence and compares", p.cfg.Mirror, ErrNotProved, few(p.r.reasons()))
	}
	clearing, stop := context.WithTimeout(context.WithoutCancel(ctx), p.o.LowerBound)
	defer stop()
	if err := p.insist(clearing, func() error { return p.done(clearing) }); err != nil && !errors.Is(err, ErrOtherPromotion) {
		return fmt.Errorf("mirror %s: all is done, and the promotion is still recorded: promote again, which ends that: %w", p.cfg.Mirror, err)
	}
	if !p.r.Proved {
		return fmt.Errorf("mirror %s: %w: %s", p.cfg.Mirror, ErrNotProved, few(p.r.reasons()))
	}
	return nil
}

// done takes the record out; the fence stays, its rules stay what they are, and what lowers it is remembered in the same write.
func (p *promoting) done(ctx context.Context) error {
	return p.cfg.Control.Update(ctx, func(s *ControlState) error {
		record, ok := s.Promotion(p.cfg.Mirror)
		if !ok {
			return nil
		}
		if err := p.mine(record); err != nil {
			return err
		}
		s.removePromotion(p.cfg.Mirror)
		verdict := "proved: nothing that was acknowledged at the source is missing"
		if !p.r.Proved {
			verdict = "not proved: " + few(p.r.reasons())
		}
		if record.Fence != "" {
			if err := s.leaveFence(record, p.now()); err != nil { // the promotion has ended all the same
				verdict += "; the fence stays up, and is not recorded: " + OneLine(err.Error())
			}
		}
		s.Note = &HistoryEntry{Time: p.now(), Verb: verbPromote, Mirror: p.cfg.Mirror, Topics: historyNames(record.Topics), Who: p.cfg.Operator, Reason: record.Reason, Detail: "ended; " + verdict}
		return nil
	})
}

// lookBehind looks at the source behind the stop. Where this process has verified the fence one answer is enough; else it takes two that agree, because what an earlier process saw is not believed.
func (p *promoting) lookBehind(ctx context.Context) {
	if p.verified != nil { // the proof stands without an answer, so it is not waited for longer than a call
		bounded, stop := context.WithTimeout(ctx, askBound)
		defer stop()
		ctx = bounded
	}
	var first *sourceLook
	for {
		look, err := p.lookAtSource(ctx)
		switch {
		case err != nil:
			if errors.Is(err, errOtherSource) {
				return
			}
		case first == nil || !look.agrees(first) || !first.settled():
			first, p.latest = look, look
		default:
			p.latest = look
		}
		if p.latest != nil {
			p.r.LookedLast = p.latest.done
			if p.verified != nil || p.fence == nil {
				return
			}
			if err == nil && p.latest.began.Sub(first.done) >= p.o.Quiet && first.settled() {
				p.verified, p.r.Verified = look, look.done
				return
			}
		}
		if !waitFor(ctx, p.interval()) {
			return
		}
	}
}

// stopPromoted moves the record on to the stop, in the write that records it. Whoever has given the promotion up, or has taken it over, has done so before, and then nothing is stopped.
func (s *ControlState) stopPromoted(record Promotion, now time.Time) error {
	p, ok := s.Promotion(record.Mirror)
	if !ok || !p.sameAttempt(record) || p.Step == PromotionLowering {
		return fmt.Errorf("mirror %s: %w: somebody else has taken this one up, or ended it", record.Mirror, ErrOtherPromotion)
	}
	if p.Step != PromotionStopping {
		p.Step, p.Since, p.Whole = PromotionStopping, now, record.Whole
		s.setPromotion(p)
	}
	return nil
}
