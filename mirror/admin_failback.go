package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// AskFailbackOptions belong to AskFailback.
type AskFailbackOptions struct {
	// Intent names the clusters that are meant; its Reason is kept with the question. A Plan is refused: nothing is carried out.
	Intent Intent
}

// ConsentOptions belong to Failback.
type ConsentOptions struct {
	DryRun bool
	Intent Intent
}

// answerInterval is how often AskFailback looks for the answer: reports wake nobody.
const answerInterval = time.Second

// NotAnsweredError: no process of the mirror has answered a question for a failback plan. errors.Is finds the context's end.
type NotAnsweredError struct {
	Mirror string
	Asked  time.Time
	// Alive: a process is heard of. It is still at work, or SourceError is what hinders it.
	Alive       bool
	ClockAhead  bool          // the clock of the process is ahead of the one here: it is not known whether it runs
	Node        string        // of the process that was heard of last, its owner's name where it has none; "" if none ever was
	Owner, Host string        // of the same
	Version     string        // of the program that it runs, "" if it did not say
	Heard       time.Time     // when that was, by its clock, or by the one here where its own misleads (Admin.Describe); zero: never
	Ago         time.Duration // how long before this error; 0 where none was heard of or clocks differ
	SourceError string
	Err         error // why nobody waits any longer
}

func (e *NotAnsweredError) Error() string {
	s := fmt.Sprintf("mirror %s: nobody has answered the question for a failback plan: ", e.Mirror)
	switch {
	case e.Alive && e.SourceError != "":
		s += fmt.Sprintf("process %s on host %s runs the mirror, and its source does not answer (%s); mend that, then ask again", e.Node, e.Host, e.SourceError)
	case e.Alive && e.Version != builtVersion():
		s += fmt.Sprintf("process %s on host %s runs the mirror and is not done. It runs %s, this program is %s: an older one may know no such questions, then upgrade it; else wait longer, or plan fewer topics at a time",
			e.Node, e.Host, versionWords(e.Version), versionWords(builtVersion()))
	case e.Alive:
		s += fmt.Sprintf("process %s on host %s runs the mirror and is not done; wait longer, or plan fewer topics at a time", e.Node, e.Host)
	case e.ClockAhead:
		s += fmt.Sprintf("WHETHER A PROCESS RUNS this mirror is not known: the clock of %s is ahead of the one here, so that it may take the question for an old one; set the clocks, then ask again", e.Host)
	case e.Heard.IsZero():
		s += fmt.Sprintf("NO PROCESS runs this mirror (none has ever reported); start one. It answers a question that is not older than %s; later, ask again", QuestionLife)
	default:
		s += fmt.Sprintf("NO PROCESS runs this mirror (last word %s, of process %s on host %s); start it. It answers a question that is not older than %s; later, ask again",
			age(e.Ago), e.Node, e.Host, QuestionLife)
	}
	return s + ": " + e.Err.Error()
}

func (e *NotAnsweredError) Unwrap() error { return e.Err }

func versionWords(version string) string {
	if version == "" {
		return "a version that it does not say"
	}
	return "version " + OneLine(version)
}

// AskFailback has the process that runs the mirror compare the destination's logs with the source, and returns the plan that it makes (Mirror.PlanFailback). For whoever reaches only the
// destination cluster. Topics may be in no mirror yet, as in a first failback; none: every topic of the mirror. The question is recorded in the Control and replaces an earlier one, the answer
// comes as a report, and then the question is taken back; nothing else changes. It waits for the answer until ctx ends, at most QuestionLife. A process that comes within QuestionLife of the
// question answers it too.
// Errors, in this order: InvalidRequest (the intent; a name that is none; nothing named, and the mirror has no topics; clusters that differ), UnknownClusterMirror; the Control's.
// Then: *NotAnsweredError; InvalidRequest (another question has taken this one's place; the plan is too large to be recorded: plan fewer topics at a time); what the process says, such as
// that the source does not answer it (InvalidClusterMirrorState).
func (a *Admin) AskFailback(ctx context.Context, topics []string, o AskFailbackOptions) (FailbackPlan, error) {
	c, err := a.begin(ctx, "ask for a failback plan", false, o.Intent, topics)
	if err != nil {
		return FailbackPlan{}, err
	}
	q, err := c.question(ctx, topics)
	if err != nil {
		return FailbackPlan{}, err
	}
	return c.answer(ctx, q)
}

// question checks and records it.
func (c *call) question(ctx context.Context, topics []string) (q FailbackQuestion, err error) {
	if c.intent.Plan != "" {
		return q, c.refuse(InvalidRequest, "", "a question carries nothing out, so it has no plan; nothing has changed")
	}
	for _, topic := range topics {
		if err := checkTopicName(topic); err != nil {
			return q, c.refuse(InvalidRequest, topic, "%v; nothing has changed", err)
		}
	}
	check := func(s *ControlState) error {
		if _, err := c.exists(s); err != nil {
			return err
		}
		if len(topics) == 0 && len(c.members(s, nil)) == 0 {
			return c.refuse(InvalidRequest, "", "no topic is in this mirror yet: name those that are to be brought back; nothing has changed")
		}
		_, err := c.find(s)
		return err
	}
	if err := c.askDestination(ctx); err != nil {
		return q, err
	}
	if err := check(&c.known); err != nil {
		return q, err
	}
	var refusal error
	err = c.cfg.Control.Update(ctx, func(s *ControlState) error {
		if refusal = check(s); refusal != nil {
			return refusal
		}
		before, _ := s.Question(c.cfg.Mirror)
		q = FailbackQuestion{Mirror: c.cfg.Mirror, Number: before.Number + 1, Asked: storedTime(c.begun), Topics: topics, Who: c.cfg.Operator, Reason: c.intent.Reason}
		for _, old := range c.reports.Answers {
			if old.Mirror == q.Mirror {
				q.Number = max(q.Number, old.Number+1) // of a mirror of that name that was deleted
			}
		}
		s.SetQuestion(q)
		return nil
	})
	if refusal != nil {
		return q, refusal
	}
	if err != nil {
		return q, c.controlFailed("recording the question", err)
	}
	return q, nil
}

// answer waits for it.
func (c *call) answer(ctx context.Context, q FailbackQuestion) (FailbackPlan, error) {
	ctx, stop := context.WithTimeout(ctx, QuestionLife)
	defer stop()
	tick := time.NewTicker(answerInterval)
	defer tick.Stop()
	for {
		changed := c.cfg.Control.Changed()
		s, err := c.cfg.Control.Read(ctx)
		reports := Reports{}
		if err == nil {
			reports, _, err = c.hear(ctx)
			for _, u := range reports.Unread {
				if err == nil && u.Mirror == q.Mirror && u.Answer && errors.Is(u.Err, ErrNewerRecord) {
					err = u.Err
				}
			}
		}
		if errors.Is(err, ErrNewerRecord) || errors.Is(err, keyedlog.ErrDenied) {
			return FailbackPlan{}, fmt.Errorf("mirror %s: the question is recorded, and its answer cannot be read: %w", q.Mirror, err)
		}
		if err == nil {
			c.reports = reports
			for _, answer := range reports.Answers {
				if q.answeredBy(answer) {
					c.takeBack(ctx, &s, q)
					return c.unpack(answer)
				}
			}
			if now, _ := s.Question(q.Mirror); !now.same(q) {
				return FailbackPlan{}, c.replaced(&s, now)
			}
		}
		select {
		case <-ctx.Done():
			return FailbackPlan{}, c.unanswered(q, cmp.Or(err, ctx.Err()), ctx.Err())
		case <-changed:
		case <-tick.C:
		}
	}
}

// takeBack takes out a question that was answered, if who answered has not done that: he may run a version that does not, or be dead. Nothing depends on it here.
func (c *call) takeBack(ctx context.Context, s *ControlState, q FailbackQuestion) {
	if now, _ := s.Question(q.Mirror); !now.same(q) {
		return
	}
	bounded, stop := context.WithTimeout(ctx, askBound)
	defer stop()
	_ = c.cfg.Control.Update(bounded, func(s *ControlState) error {
		s.TakeBack(q)
		return nil
	})
}

func (c *call) unpack(answer FailbackAnswer) (FailbackPlan, error) {
	if len(answer.Packed) == 0 {
		code := answer.Code
		if code == OK {
			code = InvalidClusterMirrorState
		}
		return FailbackPlan{}, c.refuse(code, "", "process %s cannot plan a failback: %s", answer.Owner, answer.Trouble)
	}
	plan, err := answer.Plan()
	if err != nil {
		return FailbackPlan{}, fmt.Errorf("mirror %s: %w; ask again", c.cfg.Mirror, err)
	}
	return plan, nil
}

func (c *call) replaced(s *ControlState, by FailbackQuestion) error {
	if _, err := c.exists(s); err != nil {
		return c.refuse(UnknownClusterMirror, "", "the mirror was deleted meanwhile, and the question with it")
	}
	if by.Number == 0 {
		return c.refuse(InvalidRequest, "", "another question has taken this one's place, and is answered; ask again")
	}
	return c.refuse(InvalidRequest, "", "another question has taken this one's place: %s on host %s asked at %s; ask again when that one is answered", OneLine(by.Who.User), OneLine(by.Who.Host), stamp(by.Asked))
}

func (c *call) unanswered(q FailbackQuestion, trouble, end error) error {
	now := c.now()
	e := &NotAnsweredError{Mirror: q.Mirror, Asked: q.Asked, Err: trouble}
	if !errors.Is(trouble, end) {
		e.Err = fmt.Errorf("%w: %w", end, trouble)
	}
	if p := c.presence(&c.reports, nil, now); p.last != nil {
		n := p.last
		e.Node, e.Owner, e.Host, e.Heard, e.Ago, e.Alive, e.SourceError = n.name(), n.Owner, n.Host, n.Seen, max(0, now.Sub(n.Seen)), p.kind == runs, OneLine(n.SourceError)
		e.Version, e.ClockAhead = n.Version, p.kind == clockOff
	}
	return e
}

// KeptFailback returns the plan that AskFailback returned last, whoever has asked, if hash is its FailbackPlan.Hash: to be shown to a person, and carried out later. topics are what it has to be about, no
// more and no fewer; none: every topic of the mirror is in it. Errors: InvalidRequest (it is another plan's hash, or one that is kept no more; it is about other topics), UnknownClusterMirror; the
// Control's, that reports cannot be read among them.
func (a *Admin) KeptFailback(ctx context.Context, hash string, topics []string) (FailbackPlan, error) {
	c, err := a.begin(ctx, "look for a failback plan", false, Intent{}, topics)
	if err == nil {
		_, err = c.exists(&c.known)
	}
	if err != nil {
		return FailbackPlan{}, err
	}
	if c.deaf != nil {
		return FailbackPlan{}, a.controlFailed("reading the plan", c.deaf)
	}
	for _, answer := range c.reports.Answers {
		if answer.Mirror != a.cfg.Mirror {
			continue
		}
		if plan, err := answer.Plan(); err == nil && plan.Hash() == hash {
			return plan, c.aboutThese(plan, topics)
		}
	}
	return FailbackPlan{}, a.refuse(InvalidRequest, "", "plan %s is not kept: it is another one's, or somebody has planned since; make a dry run again. Nothing has changed", OneLine(hash))
}

// aboutThese refuses a plan for other topics than those that are named beside it.
func (c *call) aboutThese(plan FailbackPlan, topics []string) error {
	var planned []string // also those of which nothing is given up
	for _, t := range plan.Topics {
		planned = append(planned, t.Topic)
	}
	meant := topics
	if len(topics) == 0 {
		if meant = c.members(&c.known, nil); len(meant) == 0 {
			return c.refuse(InvalidRequest, "", "no topic is in this mirror yet: name those that are to be brought back; nothing has changed")
		}
	}
	for _, topic := range meant {
		if !slices.Contains(planned, topic) {
			return c.refuse(InvalidRequest, "", "plan %s is not about topic %s; make a dry run for it. Nothing has changed", plan.Hash(), topic)
		}
	}
	for _, topic := range planned {
		if len(topics) > 0 && !slices.Contains(topics, topic) {
			return c.refuse(InvalidRequest, "", "plan %s is about topic %s too, which is not named; make a dry run without it, or name it. Nothing has changed", plan.Hash(), topic)
		}
	}
	return nil
}

// Failback consents to a plan: it starts the plan's topics with consent to exactly the ranges that the plan names (Mirror.ExecuteFailback without the wait; Await waits). What has grown since is
// refused by the mirror and keeps everything; records are handed to the sink before they are dropped. The history has "failback of plan HASH", unless a reason is given here or in the plan.
// A strict Admin needs a reason, and the plan of a dry run of this verb or the destination's cluster id.
// For the whole request, in this order: InvalidRequest (the plan is another mirror's, names no topic, or has refused parts: errors.Is finds ErrPlanRefused), then what Start refuses, a plan for
// other clusters than those that are found among it. Per topic: as Start.
func (a *Admin) Failback(ctx context.Context, plan FailbackPlan, o ConsentOptions) (Result, error) {
	hash := plan.Hash()
	intent := o.Intent
	intent.Reason = cmp.Or(intent.Reason, plan.Reason)
	if !a.cfg.Strict || o.DryRun {
		intent.Reason = cmp.Or(intent.Reason, "failback of plan "+hash)
	}
	intent.detail = "failback plan " + hash
	consents := plan.Consents()
	c, err := a.begin(ctx, verbFailback, o.DryRun, intent, hash)
	if err != nil {
		return c.nothing(err)
	}
	var topics []string
	for _, t := range plan.Topics {
		topics = append(topics, t.Topic)
	}
	switch {
	case plan.Mirror != a.cfg.Mirror:
		return c.nothing(c.refuse(InvalidRequest, "", "the plan is for mirror %q; carry it out there, or plan again here. Nothing has changed", plan.Mirror))
	case plan.Severity == SeverityRefused:
		return c.nothing(c.failed(InvalidRequest, "", ErrPlanRefused, "what is refused says why; mend that and plan again, or plan for the other topics. Nothing has changed"))
	case len(topics) == 0:
		return c.nothing(c.refuse(InvalidRequest, "", "the plan names no topic; nothing has changed"))
	}
	c.failback = c.newFailback(hash)
	c.planned = Clusters{SourceID: plan.SourceClusterID, DestinationID: plan.DestinationClusterID}
	return c.startTopics(ctx, topics, StartOptions{Consents: consents})
}
