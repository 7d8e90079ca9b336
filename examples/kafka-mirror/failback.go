package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// failback gives up what this cluster has and the cluster that took over does not, and makes this cluster the copy. Only a process that runs the mirror can compare the two, so it is asked
// for the plan; what it answers is shown, consented to, and recorded.
func (p *program) failback(ctx context.Context, a *mirror.Admin) error {
	if p.reason == "" && !p.dryRun {
		return usage("--failback needs --reason TEXT, for the history; with --dry-run it shows the plan without one. Nothing has changed")
	}
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	d, err := a.Describe(bounded)
	if err == nil && p.pattern != "" {
		p.topics, err = p.matching(bounded, a, true)
	}
	stop()
	if err != nil {
		return err
	}
	plan, err := p.failbackPlan(ctx, a, d)
	if err != nil {
		return err
	}
	p.toGiveUp, p.keeper = &plan, keeper(d)
	if plan.Severity == mirror.SeverityRefused {
		err := &mirror.Error{
			Code: mirror.InvalidClusterMirrorState, Mirror: p.mirror, Partition: -1,
			Message: "the plan has refused parts, which say why: mend that and plan again, or plan for the other topics. Nothing has changed",
		}
		if p.json {
			return p.showResult(mirror.Result{Verb: p.verb, Mirror: p.mirror, DryRun: p.dryRun, Clusters: d.Clusters}, err, false)
		}
		p.showFailback(p.out)
		return err
	}
	if p.place.topics == nil {
		if a, err = p.adminOf(p.mirror, plannedTopics{&plan}); err != nil {
			return err
		}
	}
	return p.record(ctx, func(ctx context.Context, dryRun bool, intent mirror.Intent) (mirror.Result, error) {
		return a.Failback(ctx, plan, mirror.ConsentOptions{DryRun: dryRun, Intent: intent})
	}, true)
}

// plannedTopics are the destination's topics as the process saw them that made the plan: with the desired state in a folder nobody else can be asked.
type plannedTopics struct{ plan *mirror.FailbackPlan }

func (plannedTopics) ClusterID(context.Context) (string, error) { return "", nil }

func (l plannedTopics) Topic(_ context.Context, name string) (mirror.Topic, error) {
	t := mirror.Topic{Name: name}
	for _, p := range l.plan.Partitions {
		if p.Topic == name {
			t.ID, t.Partitions = p.TopicID, max(t.Partitions, p.Partition+1)
		}
	}
	if t.Partitions == 0 {
		return t, fmt.Errorf("%w %q", mirror.ErrUnknownTopic, name)
	}
	return t, nil
}

// failbackPlan is the plan of an earlier dry run, which the mirror's process has kept, or a new one.
func (p *program) failbackPlan(ctx context.Context, a *mirror.Admin, d mirror.Description) (mirror.FailbackPlan, error) {
	if p.plan != "" {
		bounded, stop := context.WithTimeout(ctx, p.timeout)
		defer stop()
		return a.KeptFailback(bounded, p.plan, split(p.topics))
	}
	bound := mirror.QuestionLife // logs are read
	if p.timeoutGiven {
		bound = max(p.timeout, p.waits)
	}
	d, err := p.runs(ctx, a, d, bound)
	if err != nil {
		return mirror.FailbackPlan{}, err
	}
	if !d.Alive {
		return mirror.FailbackPlan{}, &unansweredError{before{true, d}.nobody()}
	}
	fmt.Fprintln(p.complaints, "the process that runs the mirror compares both clusters …")
	bounded, stop := context.WithTimeout(ctx, bound)
	defer stop()
	return a.AskFailback(bounded, split(p.topics), mirror.AskFailbackOptions{Intent: mirror.Intent{Reason: p.reason, SourceClusterID: p.sourceID, DestinationClusterID: p.destinationID}})
}

// firstReport is how long a mirror that was created just now may be without a report: a process takes it up within seconds.
const firstReport = time.Minute

// runs says whether a process runs the mirror. A new one that none has reported yet is waited for.
func (p *program) runs(ctx context.Context, a *mirror.Admin, d mirror.Description, bound time.Duration) (mirror.Description, error) {
	left := time.Until(d.Created.Add(firstReport))
	if d.Alive || left <= 0 || !(before{true, d}).never() {
		return d, nil
	}
	bounded, stop := context.WithTimeout(ctx, min(bound, left, firstReport))
	defer stop()
	now, err := a.AwaitRun(bounded, nil)
	if err != nil && bounded.Err() == nil || ctx.Err() != nil {
		return d, err
	}
	if now.Alive {
		return now, nil
	}
	return d, nil
}

// keeper is who keeps what is dropped.
func keeper(d mirror.Description) string {
	for _, n := range d.Nodes {
		if !n.Silent && !n.ClockAhead {
			return "the node on host " + mirror.OneLine(n.Host)
		}
	}
	return "the node"
}

// showFailback says what becomes of this cluster before the plan says what of each partition.
func (p *program) showFailback(to io.Writer) {
	plan := p.toGiveUp
	fmt.Fprintf(to, "THIS CLUSTER BECOMES THE COPY: it is mirrored from %s, and clients cannot write the topics here any more\n", unknownIfEmpty(plan.SourceClusterID))
	if partitions := len(plan.Consents()); partitions == 0 {
		fmt.Fprintln(to, "nothing is given up here")
	} else {
		fmt.Fprintf(to, "GIVEN UP HERE: %s in %s. Before they are cut, %s writes them to its folder (dropped, in mirror.node.folder), unless its file has mirror.dropped.records=discard\n",
			counted(int(plan.Dropped), "offset"), counted(partitions, "partition"), p.keeper)
	}
	say(to, "\n", plan.String())
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func unknownIfEmpty(id string) string {
	if id == "" {
		return "an unknown cluster"
	}
	return "cluster " + id
}

// planJSON is the plan of a failback for the document, nil for other verbs.
func (p *program) planJSON() json.RawMessage {
	if p.toGiveUp == nil {
		return nil
	}
	b, err := p.toGiveUp.JSON()
	if err != nil {
		return nil
	}
	return b
}

// unansweredError: no process runs the mirror that could be asked.
type unansweredError struct{ why string }

func (e *unansweredError) Error() string {
	return e.why + ": nobody can compare the two clusters; start one (kafka-mirror run --config node.properties) and use the verb again. Nothing has changed"
}
