package mirror

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// KeptPlan is what is kept of the failover plan that a process made last while its source answered: there is a plan from before the disaster when the source is gone, and when the process is too. How
// far each copy was is in the reports of partitions, and where groups were in what is recorded of them. It is plain data, of a few thousand bytes at most whatever the mirror's size.
type KeptPlan struct {
	Taken             time.Time    `json:"taken"`
	Partitions        int          `json:"partitions"` // that would have been stopped
	Severity          Severity     `json:"severity"`
	Loss              Loss         `json:"loss"`
	LossBytes         Number       `json:"lossBytes,omitzero"`
	Aborts            int          `json:"aborts"`                     // open transactions that the stop would have ended
	HighestProducerID Number       `json:"highestProducerId,omitzero"` // in the copies
	Surroundings      Surroundings `json:"surroundings,omitzero"`
}

// kept is what is kept of a plan.
func (p *FailoverPlan) kept() *KeptPlan {
	k := &KeptPlan{Taken: p.Taken, Partitions: p.stopping(), Severity: p.Severity, Loss: p.Loss, LossBytes: p.LossBytes, HighestProducerID: p.HighestProducerID, Surroundings: p.Surroundings}
	for i := range p.Partitions {
		if p.Partitions[i].Outcome == OutcomeStop {
			k.Aborts += len(p.Partitions[i].Aborts)
		}
	}
	return k
}

// line is the plan in one line, for whoever reads it at now.
func (k *KeptPlan) line(now time.Time) string {
	loss := "loss " + k.Loss.String()
	if n, known := k.Loss.Offsets.Value(); known && n > 0 {
		loss += " " + strings.TrimPrefix(plural(int(n), "offset", "offsets"), fmt.Sprintf("%d ", n))
		if size, known := k.LossBytes.Value(); known && size > 0 {
			loss += ", about " + plural(int(size), "byte", "bytes")
		}
	}
	return fmt.Sprintf("LAST PLAN while the source answered, made %s (%s): %s to stop, %s then, %s to abort", ageAt(k.Taken, now), stamp(k.Taken), plural(k.Partitions, "partition", "partitions"), loss,
		plural(k.Aborts, "open transaction", "open transactions"))
}

// keep has a plan made at every refresh while the source answers, and after a look at what is around the records, and returns the last one; nil: there is none. The first look is not put off to the
// first refresh: the source may die before.
func (g *reporting) keep(node *NodeReport, partitions []PartitionReport) *KeptPlan {
	looks := g.m.surveying.looked()
	fresh := g.kept != nil && looks == g.keptLooks && node.Seen.Sub(g.kept.Taken) < g.m.cfg.RefreshInterval && !g.kept.Taken.After(node.Seen)
	if fresh || node.SourceError != "" || !slices.ContainsFunc(partitions, func(p PartitionReport) bool { return p.Live }) {
		return g.kept
	}
	if looks == 0 {
		g.m.surveying.refreshed(true)
	}
	if plan := PlanFailover(g.m.snapshot(), FailoverOptions{}); plan.SourceError == "" {
		g.kept, g.keptLooks = plan.kept(), looks
	}
	return g.kept
}

// remember takes in what an earlier process kept.
func (g *reporting) remember(k *KeptPlan) {
	if k != nil && (g.kept == nil || k.Taken.After(g.kept.Taken)) {
		g.kept = k
		g.m.surveying.remember(k.Surroundings)
	}
}

// KeptPlan is the newest plan that a process of the mirror has kept; nil: none has, or what it kept is of a moment that has not come yet here.
func (d Description) KeptPlan() (newest *KeptPlan) {
	for i := range d.Nodes {
		if k := d.Nodes[i].Kept; k != nil && !ahead(k.Taken, d.Taken) && (newest == nil || k.Taken.After(newest.Taken)) {
			newest = k
		}
	}
	return newest
}

// keptLine is the plan that was kept, where nothing newer can be known of the source; "" otherwise.
func (d *Description) keptLine() string {
	open := slices.ContainsFunc(d.Topics, func(t DescribedTopic) bool {
		return slices.ContainsFunc(t.Partitions, func(p DescribedPartition) bool { return p.State != statemachine.Stopped.String() })
	})
	k := d.KeptPlan()
	if k == nil || !open || d.Alive && !d.sourceless() {
		return ""
	}
	return k.line(d.Taken)
}

// BeforeStop is what a person has to know before these topics are stopped besides how far they are and where their groups go on, one line each: the last plan from while the source answered, where it
// does not any more, and what was gathered around the records then. "": nothing is known of it, or nothing of the topics is left to stop.
func (d Description) BeforeStop(topics ...string) string {
	k := d.KeptPlan()
	if k == nil || !slices.ContainsFunc(d.Topics, func(t DescribedTopic) bool {
		return slices.Contains(topics, t.Topic) && t.want != statemachine.WantStopped
	}) {
		return ""
	}
	var t planText
	if line := d.keptLine(); line != "" {
		t.line("%s", line)
	}
	for _, line := range k.Surroundings.lines(k.HighestProducerID, d.Taken) {
		t.line("%s", line)
	}
	return t.String()
}
