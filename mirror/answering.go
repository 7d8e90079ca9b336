package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// answering looks for the answers to questions for a failback plan that others record in the Control. The desired state is followed meanwhile: a plan reads whole logs. Only the newest question
// counts; what is looked for an older one ends. The reports carry the answer out. A question that anybody has answered is not answered again, also not after a restart: the answer is there.
type answering struct {
	m    *Mirror
	turn semaphore // of one: logs are read for one question at a time

	mu       sync.Mutex
	question FailbackQuestion // that was taken up last
	end      context.CancelFunc
	answer   *FailbackAnswer // that is not recorded yet
}

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
	a.question, a.end, a.answer = q, nil, nil
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
	if time.Since(q.Asked) > QuestionLife || a.done(ctx, q) {
		return
	}
	plan, err := a.plan(ctx, q)
	if ctx.Err() != nil && (a.m.ctx.Err() != nil || errors.Is(ctx.Err(), context.Canceled)) {
		return // the mirror ends, or somebody asks something else
	}
	answer := q.answer(a.m.cfg.Owner, plan, err)
	a.mu.Lock()
	if a.question.same(q) {
		a.answer = &answer
	}
	a.mu.Unlock()
	a.m.stateChanged() // the reports go out
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

// untold is the answer that is to be recorded, nil if there is none.
func (a *answering) untold() *FailbackAnswer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answer
}

// told notes that an answer was recorded.
func (a *answering) told(answer *FailbackAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answer == answer {
		a.answer = nil
	}
}
