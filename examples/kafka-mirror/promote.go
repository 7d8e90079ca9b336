package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/fence"
)

// fences are the words of --fence.
const fences = "acl, quota or none"

// promotedJSON is what came of a promotion.
type promotedJSON struct {
	Mirror, Fence            string
	Outcome                  mirror.PromoteOutcome
	Stopped, Proved, FenceUp bool
	Why, TakeDown            []string
	Report                   string
	Error                    *errorJSON `json:",omitempty"`
}

// sourceClient reaches the mirror's source as the operator: with --fence-config, or as the mirror itself does.
func (p *program) sourceClient(ctx context.Context) (*kgo.Client, error) {
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	state, err := mirror.NewControl(p.place.records).Read(bounded)
	if err != nil {
		return nil, err
	}
	entry, _ := state.Mirror(p.mirror)
	settings := mirror.Settings{}
	for name, value := range entry.Settings {
		settings[name] = value
	}
	if p.fenceConfig != "" {
		own, err := p.readSettings("--fence-config", p.fenceConfig)
		if err != nil {
			return nil, err
		}
		settings = own
		if settings[kafkaconfig.Bootstrap] == "" {
			settings[kafkaconfig.Bootstrap] = entry.Settings[kafkaconfig.Bootstrap]
		}
	}
	connection, err := kafkaconfig.Parse(settings)
	if err != nil {
		return nil, usage("the source of mirror %s cannot be reached for the fence: %v", p.mirror, err)
	}
	return kgo.NewClient(append(connection.Options, kgo.SeedBrokers(connection.Seeds...))...)
}

// fenceOf is the fence that was asked for; nil: none.
func (p *program) fenceOf(client *kgo.Client) mirror.Fence {
	switch p.fence {
	case "acl":
		return fence.ACL(client)
	case "quota":
		return fence.Quota(client)
	}
	return nil
}

// lowerFence takes down what promotions that have ended have left up at the source.
func (p *program) lowerFence(ctx context.Context, a *mirror.Admin, client *kgo.Client) error {
	bounded, stop := context.WithTimeout(ctx, max(p.timeout, time.Minute))
	defer stop()
	lowered, err := a.LowerFence(bounded, p.fenceOf(client))
	for _, f := range lowered {
		say(p.out, fmt.Sprintf("mirror %s: lowered at the source for %s: %s\n", p.mirror, strings.Join(f.Topics, ", "), f.Fence))
	}
	if err != nil {
		return &endedError{1, err}
	}
	if len(lowered) == 0 {
		say(p.out, fmt.Sprintf("mirror %s: no fence of a promotion is recorded as up\n", p.mirror))
	}
	return nil
}

// promote moves topics here without loss: the plan is shown and consented to first, then the fence is raised, and a line says each step.
func (p *program) promote(ctx context.Context, a *mirror.Admin) error {
	client, err := p.sourceClient(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if p.verb == "abort-promotion" {
		bounded, stop := context.WithTimeout(ctx, max(p.timeout, time.Minute))
		defer stop()
		if err := a.AbortPromotion(bounded, p.fenceOf(client)); err != nil {
			return &endedError{1, err}
		}
		say(p.out, fmt.Sprintf("mirror %s: no promotion is under way\n", p.mirror))
		state, err := mirror.NewControl(p.place.records).Read(bounded)
		if err != nil {
			return err
		}
		left, err := state.LeftFences(p.mirror)
		for _, f := range left {
			say(p.out, f.String(), "\n")
		}
		if len(left) == 0 && err == nil {
			say(p.out, "no fence of one is recorded as up\n")
		}
		return err
	}
	if p.verb == "lower-fence" {
		return p.lowerFence(ctx, a, client)
	}
	o := mirror.PromoteOptions{Topics: split(p.topics), Partial: p.partial, Fence: p.fenceOf(client), Unfenced: p.fence == "none", Bound: p.bound,
		Intent: mirror.Intent{Reason: p.reason, Plan: p.plan, SourceClusterID: p.sourceID, DestinationClusterID: p.destinationID}}
	if p.abortTransactions {
		o.AbortTransactions = fence.Transactions(client)
	}
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	plan, err := a.PlanPromotion(bounded, o)
	stop()
	if err != nil || p.dryRun {
		return p.showResult(plan, err, false)
	}
	p.showPlan(ctx, plan)
	if err := p.confirm(ctx, plan); err != nil {
		return err
	}
	o.Intent.Plan = plan.Plan
	began := time.Now()
	o.OnStep = func(x mirror.Promotion) {
		fmt.Fprintf(p.progressTo(), "%6s  %s\n", time.Since(began).Round(time.Second), x.Step)
	}
	r, err := a.Promote(ctx, o)
	if p.json {
		shown := promotedJSON{Mirror: p.mirror, Fence: r.Fence, Outcome: r.Outcome, Stopped: r.Stopped, Proved: r.Proved, FenceUp: r.FenceUp, Why: said(r.Why), TakeDown: said(r.TakeDown), Report: inOwnWords(r.String()), Error: wordsOf(err)}
		if err := p.asJSON(shown); err != nil {
			return err
		}
	} else if r.Outcome != mirror.PromoteRefused {
		say(p.out, "\n", r.String())
	}
	switch {
	case errors.Is(err, mirror.ErrIncomplete):
		return &endedError{4, err}
	case errors.Is(err, mirror.ErrGivenUp), errors.Is(err, mirror.ErrNotProved), errors.Is(err, mirror.ErrOtherPromotion), errors.Is(err, mirror.ErrNoReturn):
		return &endedError{1, err}
	}
	return err
}
