package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// answering looks for the answers to questions for a failback plan that others record in the Control. The desired state is followed meanwhile: a plan reads whole logs. Only the newest question
// counts; what is looked for an older one ends. The reports carry the answer out, and then the question is taken back. One that anybody has answered and that is still there is not answered again,
// also not after a restart: the answer is there.
type answering struct {
	m    *Mirror
	turn semaphore // of one: logs are read for one question at a time

	mu       sync.Mutex
	question FailbackQuestion // that was taken up last
	end      context.CancelFunc
	answer   *FailbackAnswer // that is not recorded yet
	refused  int             // how often the Control did not take it, though it took reports
	answered bool            // the question is answered, and is to be taken back
}

// answerTries is how often an answer is tried to be recorded before it is taken for one that never can be.
const answerTries = 3

// hear takes a question up if it is another one than before.
func (a *answering) hear(s *ControlState) {
	q, ok := s.Question(a.m.cfg.Name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.question.same(q) {
		return
	}
	if a.end != nil {
		a.end()
	}
	a.question, a.end, a.answer, a.refused, a.answered = q, nil, nil, 0, false
	if !ok {
		return
	}
	ctx, end := context.WithTimeout(a.m.ctx, QuestionLife)
	a.end = end
	a.m.spawn(func() {
		defer end()
		a.look(ctx, q)
	})
}

func (a *answering) look(ctx context.Context, q FailbackQuestion) {
	if a.turn.acquire(ctx) != nil {
		return
	}
	defer a.turn.release()
	if a.done(ctx, q) {
		a.note(q, nil)
		return
	}
	var plan FailbackPlan
	err := q.tooOld(time.Now())
	if err == nil {
		plan, err = a.plan(ctx, q)
	}
	if ctx.Err() != nil && (a.m.ctx.Err() != nil || errors.Is(ctx.Err(), context.Canceled)) {
		return // the mirror ends, or somebody asks something else
	}
	answer := q.answer(a.m.cfg.Owner, plan, err)
	a.note(q, &answer)
}

// note keeps an answer until it is recorded; nil: the question has one.
func (a *answering) note(q FailbackQuestion, answer *FailbackAnswer) {
	a.mu.Lock()
	if a.question.same(q) {
		a.answer, a.answered = answer, answer == nil
	}
	a.mu.Unlock()
	a.m.stateChanged() // the reports go out
}

// tooOld is why a question is not looked into any more, nil if it is: whoever still waits for the answer has another clock.
func (q FailbackQuestion) tooOld(now time.Time) error {
	if now.Sub(q.Asked) <= QuestionLife {
		return nil
	}
	return &Error{Code: InvalidClusterMirrorState, Mirror: q.Mirror, Partition: -1, Message: fmt.Sprintf(
		"the question is too old by its clock: it was asked at %s, and there it is %s; a question is answered for %s. Set the clocks of both hosts, then ask again", stamp(q.Asked), stamp(now), span(QuestionLife))}
}

// answer is a plan, or why there is none, as it can be recorded.
func (q FailbackQuestion) answer(owner string, plan FailbackPlan, err error) FailbackAnswer {
	a := FailbackAnswer{Owner: owner, Mirror: q.Mirror, Number: q.Number, Asked: q.Asked, At: time.Now()}
	if err == nil {
		a.Packed, err = plan.pack()
	}
	if err == nil {
		if tooLarge := a.fits(); tooLarge != nil {
			err = &Error{Code: InvalidRequest, Message: fmt.Sprintf("the plan of %s is too large for a record; plan fewer topics at a time", plural(len(plan.Topics), "topic", "topics"))}
		}
	}
	if err == nil {
		return a
	}
	a.Packed, a.Code, a.Trouble = nil, errorCode(err), shorten(err.Error())
	var known *Error
	if errors.As(err, &known) {
		a.Trouble = shorten(known.Message)
	}
	return a
}

// plan asks the source who it is before it reads logs: one that is dead is to be said at once.
func (a *answering) plan(ctx context.Context, q FailbackQuestion) (FailbackPlan, error) {
	bounded, stop := context.WithTimeout(ctx, a.m.cfg.CallBound)
	_, _, _, err := a.m.desk.clusters(bounded)
	stop()
	if err != nil {
		return FailbackPlan{}, fmt.Errorf("asking both clusters who they are: %w", err)
	}
	a.m.poke() // who the source is gets recorded: a plan for another one is refused
	return a.m.PlanFailback(ctx, q.Topics...)
}

// done says that somebody has answered. Where that cannot be read, the question is answered once more than needed.
func (a *answering) done(ctx context.Context, q FailbackQuestion) bool {
	bounded, stop := context.WithTimeout(ctx, a.m.cfg.CallBound)
	defer stop()
	reports, err := a.m.cfg.Control.Reports(bounded)
	if err != nil {
		return false
	}
	for _, answer := range reports.Answers {
		if q.answeredBy(answer) {
			return true
		}
	}
	return false
}

// record writes the answer that is not recorded yet, and takes the question back when it has one. Only one call at a time. Errors: the reporter is fenced; nothing else is the reports' trouble.
func (a *answering) record(ctx context.Context, to Reporter) error {
	a.mu.Lock()
	q, answer, answered := a.question, a.answer, a.answered
	a.mu.Unlock()
	if answer != nil {
		switch err := to.Answer(ctx, *answer); {
		case errors.Is(err, statemachine.ErrFenced):
			return err
		case err != nil:
			a.notRecorded(q, answer, err)
			return nil
		}
		answered = true
		a.mu.Lock()
		if a.question.same(q) {
			a.answer, a.answered = nil, true
		}
		a.mu.Unlock()
	}
	if !answered {
		return nil
	}
	err := a.m.cfg.Control.Update(ctx, func(s *ControlState) error {
		s.TakeBack(q)
		return nil
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && a.question.same(q) {
		a.answered = false // else the next report tries again; who has asked does too
	}
	return nil
}

// notRecorded decides what becomes of an answer that the Control did not take. A plan that cannot be recorded is replaced by words that say so; when they cannot either nobody is told, and the
// question stays.
func (a *answering) notRecorded(q FailbackQuestion, answer *FailbackAnswer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused++; a.answer != answer || a.refused < answerTries {
		return
	}
	a.answer, a.refused = nil, 0
	a.m.emit(TopicTrouble{EventMeta: a.m.meta(TopicPartition{Partition: Unknown}), Err: fmt.Errorf("the answer to a question for a failback plan cannot be recorded: %w", err)})
	if len(answer.Packed) > 0 {
		words := q.answer(answer.Owner, FailbackPlan{}, fmt.Errorf("the plan cannot be recorded: %w; mend that, or plan fewer topics at a time", err))
		a.answer = &words
	}
}
