package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/node"
)

// giveUpBound is the longest that a look for give-up takes; the forced failover itself takes as long as --timeout says.
const giveUpBound = clusterBound

// giveUp is a forced failover of what a node led that is gone for good. It needs the destination cluster only.
func (p *program) giveUp(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("give-up", flag.ContinueOnError)
	f.StringVar(&p.mirror, "mirror", "", "")
	f.StringVar(&p.topics, "topics", "", "")
	f.StringVar(&p.reason, "reason", "", "")
	f.StringVar(&p.plan, "plan", "", "")
	f.StringVar(&p.destinationID, "destination-cluster-id", "", "")
	f.BoolVar(&p.dryRun, "dry-run", false, "")
	f.BoolVar(&p.yes, "yes", false, "")
	f.BoolVar(&p.json, "json", false, "")
	f.DurationVar(&p.timeout, "timeout", waitBound, "")
	file, err := p.nodeFile(f, args)
	switch {
	case err != nil:
		return err
	case p.reason == "" && !p.dryRun:
		return usage("give-up needs --reason TEXT, for the history; with --dry-run it shows the plan without one. Nothing has changed")
	case p.timeout <= 0:
		return usage("--timeout has to be more than 0, as in 10m")
	}
	bounded, stop := context.WithTimeout(ctx, giveUpBound)
	defer stop()
	records, err := file.Records(bounded)
	if err != nil {
		return err
	}
	defer records.Close()
	topics, err := p.topicsToGiveUp(bounded, records)
	if err != nil {
		return err
	}
	cfg := node.GiveUpConfig{Kraft: file.Kraft(), Records: records, Topics: topics, Reason: p.reason, Operator: mirror.Operator{Client: "kafka-mirror"}}
	plan, err := node.PlanGiveUp(bounded, cfg)
	if err != nil {
		return refusedGiveUp(file, err)
	}
	if p.dryRun && p.json {
		return p.asJSON(givenUp(plan))
	}
	to := p.out
	if p.json {
		to = p.complaints
	}
	fmt.Fprint(to, inOwnWords(plan.String()))
	if p.dryRun || !slices.ContainsFunc(plan.Partitions, func(x node.GivenUp) bool { return x.Err == nil }) {
		return p.refusedParts(plan)
	}
	if err := p.consentToGiveUp(ctx, plan); err != nil {
		return err
	}
	var one sync.Mutex
	cfg.Kraft.Notice = func(e kraft.Event) { // what is open is said at once: what is left then may take a while
		if one.Lock(); e.Kind == kraft.HandedOver {
			fmt.Fprintf(p.complaints, "%s-%d is open: %s\n", e.Partition.Topic, e.Partition.Partition, inOwnWords(e.Text))
		}
		one.Unlock()
	}
	doing, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	done, err := node.GiveUp(doing, cfg, plan.Name)
	opened := slices.ContainsFunc(done.Partitions, func(x node.GivenUp) bool { return x.Opened })
	switch {
	case err == nil || opened:
	case len(done.Wanted) == 0:
		return refusedGiveUp(file, err)
	case errors.Is(err, node.ErrNotThePlan):
		return refusal(oneLine(err))
	}
	if p.json {
		if err := p.asJSON(givenUp(done)); err != nil {
			return err
		}
	} else {
		fmt.Fprint(p.out, "\n"+inOwnWords(done.String()))
	}
	if err != nil {
		return fmt.Errorf("%w. What is open stays open; use give-up again for the rest", err)
	}
	return nil
}

// topicsToGiveUp are the topics that are named, or all of the mirror that is; nil: everything that the node led.
func (p *program) topicsToGiveUp(ctx context.Context, records *kafkastore.Store) (topics []string, err error) {
	if p.mirror == "" {
		return append([]string(nil), split(p.topics)...), nil // nil if there are none
	}
	state, err := mirror.NewControl(records).Read(ctx)
	if err != nil {
		return nil, err
	}
	if _, there := state.Mirror(p.mirror); !there {
		return nil, refusal(fmt.Sprintf("there is no mirror %s; kafka-mirror --list shows all. Nothing has changed", p.mirror))
	}
	for _, w := range state.Topics {
		if owner, _, err := w.Wish(); err == nil && owner == p.mirror {
			topics = append(topics, w.Topic)
		}
	}
	for _, name := range split(p.topics) {
		if !slices.Contains(topics, name) {
			return nil, refusal(fmt.Sprintf("topic %s is not in mirror %s; --describe shows those that are. Nothing has changed", name, p.mirror))
		}
	}
	if named := split(p.topics); len(named) > 0 {
		topics = named
	}
	if len(topics) == 0 {
		return nil, refusal(fmt.Sprintf("mirror %s has no topics: there is nothing to give up", p.mirror))
	}
	return topics, nil
}

// consentToGiveUp compares what the operator means with what was shown.
func (p *program) consentToGiveUp(ctx context.Context, plan node.GiveUpPlan) error {
	switch {
	case p.plan != "" && p.plan != plan.Name:
		return refusal(fmt.Sprintf("plan %s does not fit any more, it is %s now, as shown: consent to that. Nothing has changed", p.plan, plan.Name))
	case p.plan != "":
		return nil
	case p.destinationID == "" && p.terminal != nil && !p.yes: // the plan that was shown names the cluster
		return p.agree(ctx, fmt.Sprintf("Open these partitions of cluster %s by force, as shown", plan.ClusterID))
	case p.destinationID == "":
		return usage("add --plan %s, or --destination-cluster-id ID and --yes; nothing has changed", plan.Name)
	case plan.ClusterID == "":
		return usage("the destination's cluster id is not known here, so %s cannot be compared with it; add --plan %s instead. Nothing has changed", p.destinationID, plan.Name)
	case p.destinationID != plan.ClusterID:
		return usage("the destination is %s, and --destination-cluster-id names %s; correct the one that is wrong. Nothing has changed", plan.ClusterID, p.destinationID)
	}
	return p.agree(ctx, "Open these partitions by force, as shown")
}

// refusedParts is an error if the plan has parts that would not be opened; they were shown.
func (p *program) refusedParts(plan node.GiveUpPlan) error {
	for _, x := range plan.Partitions {
		if x.Err != nil {
			return refusal("some partitions would not be opened, as shown: mend what they say. Nothing has changed")
		}
	}
	return nil
}

// refusedGiveUp tells what was refused from what could not be found out.
func refusedGiveUp(file *node.File, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w; see that the controllers and brokers of %s run and can be reached from here", err, file.Bootstrap())
	}
	return refusal(oneLine(err) + ". Nothing has changed")
}

// givenUpJSON is a plan, or what was done, whose errors are words.
type givenUpJSON struct {
	NodeID     int32
	ClusterID  string
	Plan       string
	Partitions []givenUpPartitionJSON
}

type givenUpPartitionJSON struct {
	TopicName             string
	PartitionIndex        int32
	MirrorName            string
	StateValue            string
	Leader                int32
	LastMirrorEpoch       int32
	LastMirrorOffset      int64
	Aborted               *int // null: not known
	Lacking               map[int32]int64
	Unasked               []int32
	Opened, WasForClients bool
	Notes                 []string
	Error                 *errorJSON `json:",omitempty"`
}

// givenUp is what the plan's String tells people.
func givenUp(plan node.GiveUpPlan) givenUpJSON {
	j := givenUpJSON{NodeID: plan.NodeID, ClusterID: plan.ClusterID, Plan: plan.Name, Partitions: []givenUpPartitionJSON{}}
	for _, x := range plan.Partitions {
		p := givenUpPartitionJSON{
			TopicName: x.Partition.Topic, PartitionIndex: x.Partition.Partition, MirrorName: x.Mirror, StateValue: x.State.String(), Leader: x.Leader, LastMirrorEpoch: x.Epoch, LastMirrorOffset: x.End,
			Lacking: x.Lacking, Unasked: append([]int32{}, x.Unasked...), Opened: x.Opened, WasForClients: x.Clients, Notes: append([]string{}, x.Notes...), Error: wordsOf(x.Err),
		}
		if x.Aborted >= 0 {
			p.Aborted = &x.Aborted
		}
		j.Partitions = append(j.Partitions, p)
	}
	return j
}
