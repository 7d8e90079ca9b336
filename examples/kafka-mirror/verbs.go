package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/statemachine"
)

// act is a verb that records something, or with dryRun says what it would record.
type act func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error)

func (p *program) admin(name string) (*mirror.Admin, error) { return p.adminOf(name, p.place.topics) }

func (p *program) adminOf(name string, destination mirror.TopicLookup) (*mirror.Admin, error) {
	return mirror.NewAdmin(mirror.AdminConfig{
		Mirror: name, Control: mirror.NewControl(p.place.records), States: keyedlog.NewStateStore(p.place.records), Destination: destination, DestinationAssumed: true, OpenSource: kafkasource.Open,
		Operator: mirror.Operator{Client: "kafka-mirror"}, Strict: true, DestinationBootstrap: p.place.name,
	})
}

// do opens the desired state and does what the verb says.
func (p *program) do(ctx context.Context) (err error) {
	if p.verb == "settings" {
		return p.showSettings(mirror.SettingDefinitions())
	}
	if p.verb == "dropped" {
		return p.dropped(ctx)
	}
	if p.wait {
		p.waits = waitBound
		if p.timeoutGiven {
			p.waits = p.timeout
		}
		p.timeout = min(p.timeout, stepBound)
	}
	var settings mirror.Settings
	if p.mirrorConfig != "" {
		if settings, err = p.readSettings("--mirror-config", p.mirrorConfig); err != nil {
			return err
		}
	}
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	defer func() {
		if p.store != "" && errors.Is(err, fs.ErrPermission) && !errors.As(err, new(usageError)) {
			err = fmt.Errorf("%w; this user has to read and write the folder and the files in it, for a verb that only looks too: it is locked for that", err)
		}
	}()
	if p.place, err = p.openPlace(bounded); err != nil {
		return err
	}
	defer p.place.close()
	if p.verb == "preflight" {
		return p.preflight(ctx, settings)
	}
	a, err := p.admin(cmp.Or(p.mirror, "all")) // --list and --describe of all need no name
	if err != nil {
		return err
	}
	switch p.verb {
	case "list":
		list, err := a.List(bounded, mirror.ListOptions{TopicNames: p.json})
		if err != nil {
			return err
		}
		return p.showList(list)
	case "history":
		return p.history(bounded, a)
	case "describe":
		return p.describe(bounded, a)
	case "groups":
		return p.groups(bounded, a)
	case "reconcile":
		return p.reconcile(ctx, a)
	case "verify":
		return p.verify(ctx, a)
	case "create":
		return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
			return a.Create(ctx, settings, mirror.CreateOptions{DryRun: dryRun, Intent: intent})
		}, false)
	case "alter":
		_, named := settings["mirror.topics.exclude"]
		_, alias := settings["topics.exclude"]
		return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
			return a.AlterConfig(ctx, settings, split(p.unset), mirror.AlterConfigOptions{DryRun: dryRun, Intent: intent})
		}, named || alias)
	case "delete":
		return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
			return a.Delete(ctx, mirror.DeleteOptions{Purge: p.purge, Abandon: p.abandon, DryRun: dryRun, Intent: intent})
		}, true)
	}
	return p.aboutTopics(ctx, a)
}

// aboutTopics is a verb about topics.
func (p *program) aboutTopics(ctx context.Context, a *mirror.Admin) error {
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	state, err := mirror.NewControl(p.place.records).Read(bounded)
	if err != nil {
		return err
	}
	switch p.verb {
	case "failback":
		return p.failback(ctx, a)
	case "promote", "abort-promotion", "lower-fence":
		p.about = a.Describe
		return p.promote(ctx, a)
	}
	topics, all := split(p.topics), p.allTopics
	var patterns []string
	if p.pattern != "" {
		patterns = []string{p.pattern}
	}
	switch p.verb {
	case "start":
		return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
			return a.Start(ctx, topics, mirror.StartOptions{Include: patterns, AllTopics: all, DryRun: dryRun, Intent: intent})
		}, p.mayAdopt(state, topics))
	case "stop":
		p.about = a.Describe
		return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
			return a.Stop(ctx, topics, mirror.StopOptions{Patterns: patterns, AllTopics: all, Partial: p.partial, Drain: p.drain, Torn: mirror.TornPolicy(p.torn), MaxGiveUp: p.maxGiveUp, CutReaders: p.cutReaders, DryRun: dryRun, Intent: intent})
		}, true)
	}
	if p.pattern != "" { // the others have no patterns in the library: they are about topics that are in the mirror now
		found, err := p.matching(bounded, a, false)
		if err != nil {
			return err
		}
		topics = split(found)
	}
	if p.verb == "abort-failback" {
		return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
			return a.AbortFailback(ctx, topics, mirror.AbortFailbackOptions{AllTopics: all, DryRun: dryRun, Intent: intent})
		}, true)
	}
	return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
		switch p.verb {
		case "pause":
			return a.Pause(ctx, topics, mirror.PauseOptions{AllTopics: all, DryRun: dryRun, Intent: intent})
		case "resume":
			return a.Resume(ctx, topics, mirror.ResumeOptions{AllTopics: all, DryRun: dryRun, Intent: intent})
		}
		return a.Recover(ctx, topics, mirror.RecoverOptions{AllTopics: all, DryRun: dryRun, Intent: intent})
	}, false)
}

// mayAdopt says whether a start may take a topic over from another mirror, which has stopped it and so opened it. No names: it may be any.
func (p *program) mayAdopt(s mirror.ControlState, topics []string) bool {
	return slices.ContainsFunc(s.Topics, func(w mirror.TopicWish) bool {
		owner, want, err := w.Wish()
		return (len(topics) == 0 || slices.Contains(topics, w.Topic)) && err == nil && owner != p.mirror && want == statemachine.WantStopped
	})
}

// matching are the topics that the pattern finds: those of the mirror, and with unmirrored also those of the cluster itself, which no mirror has yet in a first failback. A list with commas.
func (p *program) matching(ctx context.Context, a *mirror.Admin, unmirrored bool) (string, error) {
	topics, err := a.MatchTopics(ctx, p.pattern, unmirrored)
	switch {
	case errors.Is(err, &mirror.Error{Code: mirror.InvalidRegularExpression}):
		return "", usage("--topics-pattern: %v", errors.Unwrap(err))
	case err == nil && len(topics) == 0 && unmirrored:
		return "", usage("--topics-pattern %s finds no topic; name them with --topics", p.pattern)
	case err == nil && len(topics) == 0:
		return "", usage("--topics-pattern %s finds no topic of mirror %s; --describe shows them", p.pattern, p.mirror)
	}
	return strings.Join(topics, ","), err
}

// record does a verb. One that opens, discards or deletes is shown first, and needs consent to what was shown.
func (p *program) record(ctx context.Context, verb act, opens bool) error {
	intent := mirror.Intent{Reason: p.reason, Plan: p.plan, SourceClusterID: p.sourceID, DestinationClusterID: p.destinationID}
	if p.toGiveUp != nil {
		intent.Plan = "" // it was compared when the plan was found
	}
	do := func(dryRun bool, intent mirror.Intent) (mirror.Result, error) {
		bounded, stop := context.WithTimeout(ctx, p.timeout)
		defer stop()
		return verb(bounded, dryRun, intent)
	}
	now := p.standings(ctx)
	if opens && !p.dryRun {
		r, err := do(true, intent)
		if err != nil && !slices.ContainsFunc(r.Topics, func(t mirror.TopicResult) bool { return t.Err == nil }) { // nothing would be done, so nobody has to consent to it
			r.DryRun = false
			return p.showResult(r, err, false)
		}
		now.advise(&r)
		p.showPlan(ctx, r)
		if err := p.confirm(ctx, r); err != nil {
			return err
		}
		intent.Plan = r.Plan
	}
	r, err := do(p.dryRun, intent)
	now.advise(&r)
	if p.dryRun && p.json {
		if d, topics, err := p.described(ctx, r); err == nil && len(topics) > 0 { // nothing else depends on it
			p.groupPlaces = d.GroupPlaces(topics...)
		}
	}
	if p.wait && (err == nil || len(r.Topics) > 0) {
		return p.showAndWait(ctx, r, err, opens)
	}
	shown := p.showResult(r, err, opens && !p.dryRun)
	if p.dryRun && !p.json {
		p.showPartitions(ctx, p.out, r)
	}
	return shown
}

func (p *program) describe(ctx context.Context, a *mirror.Admin) error {
	names := []string{p.mirror}
	if p.mirror == "" {
		list, err := a.List(ctx, mirror.ListOptions{})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return p.showList(list)
		}
		names = nil
		for _, m := range list {
			names = append(names, m.Name)
		}
	}
	all := make([]mirror.Description, 0, len(names))
	for _, name := range names {
		a, err := p.admin(name)
		if err != nil {
			return err
		}
		d, err := a.Describe(ctx)
		if p.json && p.mirror != "" && errors.Is(err, &mirror.Error{Code: mirror.UnknownClusterMirror}) {
			unknown := described{ErrorCode: mirror.UnknownClusterMirror, ErrorMessage: words(oneLine(err)), MirrorName: name, AuthorizedOperations: notAsked, Topics: []describedTopic{}}
			return errors.Join(err, p.asJSON(map[string]any{"Mirrors": []described{unknown}}))
		}
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	return p.showDescriptions(all)
}

// showAndWait shows what a verb did, and waits until it has come about. A document comes last, because what came of the wait is in it.
func (p *program) showAndWait(ctx context.Context, r mirror.Result, err error, planned bool) error {
	a, failed := p.admin(p.mirror)
	if failed != nil {
		return failed
	}
	var refused, late error
	if !p.json {
		refused = p.showResult(r, err, planned)
	}
	waits, stop := context.WithTimeout(ctx, p.waits)
	defer stop()
	late = p.await(ctx, waits, a, r)
	if p.verb == "failback" {
		v := mirror.Verification{Mirror: p.mirror, NotDone: "not everything is in step yet; --verify compares it when it is"}
		if late == nil {
			v, late = p.verifyFailback(ctx, waits, a)
		}
		if p.verified = &v; v.Verdict().Wrong() {
			late = unverified(v)
		}
	}
	if p.json {
		refused = p.showResult(r, err, planned)
	} else if p.verified != nil {
		say(p.out, "\n", p.verified.String())
	}
	if refused != nil { // which decides, because it was refused first
		p.complain(late)
		return refused
	}
	return late
}
