package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrReverseDrops: the topics are promoted, and their old source is not the standby, because it has what the new primary has not: that would be given up. The plan names it; ExecuteFailback of it is the
// consent.
var ErrReverseDrops = errors.New("mirror: the old source has what the new primary has not")

// ReverseReport is what ReverseAndStart did. It is plain data.
type ReverseReport struct {
	Promotion PromoteReport // of this call; zero where an earlier one has ended it
	Plan      FailbackPlan
	Failback  FailbackReport
}

// ReverseAndStart promotes topics to this mirror's destination, and makes their old source its standby: back, which is a mirror in the other direction, copies them from then on. o.Topics have to be
// named. Nothing is given up: a plan that would give something up is not carried out, and the topics stay promoted (ErrReverseDrops). That something is not proved, as without a fence, stops nothing
// more: the plan says what that comes to.
//
// After a crash at any step, and after any error, the same again goes on where it was; when all is done it changes nothing. Before the stop AbortPromotion takes it back, behind it
// Admin.AbortFailback of back leaves the old source as it was found, or as a closed copy. The fence stays up: nobody needs it any more when back has closed the logs.
// A failback that an earlier call has begun is waited for up to o.Bound while its plan is refused; what is refused then is the plan that is returned, with the error of ExecuteFailback.
// Errors: InvalidRequest; Promote's, PlanFailback's and ExecuteFailback's; ErrReverseDrops.
func (m *Mirror) ReverseAndStart(ctx context.Context, back *Mirror, o PromoteOptions) (r ReverseReport, err error) {
	if len(o.Topics) == 0 {
		return r, m.admin.refuse(InvalidRequest, "", "a reversal names its topics; nothing has changed")
	}
	if o = o.complete(); o.fault() != "" {
		return r, m.admin.refuse(InvalidRequest, "", "%s; nothing has changed", o.fault())
	}
	state, err := m.cfg.Control.Read(ctx)
	if err != nil {
		return r, m.admin.controlFailed("reading the desired state", err)
	}
	_, under := state.Promotion(m.cfg.Name)
	if under || slices.ContainsFunc(o.Topics, func(topic string) bool {
		w, ok := state.Topic(topic)
		return !ok || !stopped(w.MirrorName)
	}) {
		if r.Promotion, err = m.Promote(ctx, o); err != nil && !errors.Is(err, ErrNotProved) {
			return r, err
		}
	}
	bounded, stop := context.WithTimeout(ctx, o.Bound)
	defer stop()
	for { // what an earlier call has begun, and a crash has left in the middle, is retried by itself
		if r.Plan, err = back.PlanFailback(ctx, o.Topics...); err != nil {
			return r, err
		}
		if r.Plan.Severity != SeverityRefused || !back.begun(ctx, o.Topics) || !waitFor(bounded, time.Second) {
			break
		}
	}
	if r.Plan.Dropped > 0 {
		return r, fmt.Errorf("mirror %s: %w: %s; look at the plan", back.cfg.Name, ErrReverseDrops, plural(int(r.Plan.Dropped), "offset", "offsets"))
	}
	r.Failback, err = back.ExecuteFailback(ctx, r.Plan)
	return r, err
}

// begun says that a failback of these topics is under way here.
func (m *Mirror) begun(ctx context.Context, topics []string) bool {
	state, err := m.cfg.Control.Read(ctx)
	return err == nil && slices.ContainsFunc(state.underWay(m.cfg.Name, nil), func(f Failback) bool {
		return slices.ContainsFunc(topics, f.has)
	})
}
