package mirror

import (
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Verdict is what a mirror is good for at a moment, for scripts.
type Verdict string

// The verdicts.
const (
	Protected           Verdict = "protected"             // how far every copy is behind its source is known
	NotProtected        Verdict = "not protected"         // of some copy that cannot be known, or there is none
	PartiallyFailedOver Verdict = "partially failed over" // protected, as far as it is not open, or to be opened, for clients
	FailedOver          Verdict = "failed over"           // every topic is open for clients here: there is no copy left to protect
)

// Protection is a verdict and the reasons for it, one sentence each; none for Protected and FailedOver.
type Protection struct {
	Verdict Verdict
	Reasons []string
}

// sourceSilentAfter is how long the end of a partition may not have been seen at the source before nobody can say what would be lost. An election takes less.
const sourceSilentAfter = time.Minute

// Protection says whether what would be lost now is known. How much that is plays no part: a copy that is far behind, and known to be, is protected; Lag says how far.
//
// NotProtected, whatever else there is, if one of these is so:
//   - No topic is in the mirror.
//   - Reports cannot be read.
//   - No process runs the mirror, or whether one does is not known, unless every topic is open already.
//   - A topic that is not to be stopped was taken up by no process.
//   - A partition of such a topic is not MIRRORING: it is FAILED, PREPARING, PAUSED …
//   - The end of a partition that is MIRRORING was not seen at the source for a minute, or never.
//
// Otherwise FailedOver if every topic is STOPPED; PartiallyFailedOver if some topics, or some of a topic set, are stopped or to be stopped and the others are not, or a stop is not done;
// Protected else. Topic sets that are stopped as a whole beside others leave those protected.
func (d Description) Protection() Protection {
	var reasons []string
	if len(d.Topics) == 0 {
		reasons = append(reasons, "no topic is in the mirror")
	}
	var closed, unseen, unopened []string
	wrong, order := map[string][]string{}, []string{}
	var silent []string
	for _, t := range d.Topics {
		if t.want == statemachine.WantStopped {
			if !t.done() {
				unopened = append(unopened, t.Topic)
			}
			continue
		}
		closed = append(closed, t.Topic)
		if len(t.Partitions) == 0 {
			unseen = append(unseen, t.Topic)
		}
		for _, p := range t.Partitions {
			name := fmt.Sprintf("%s-%d", t.Topic, p.Partition)
			switch {
			case p.State != statemachine.Mirroring.String():
				if wrong[p.State] == nil {
					order = append(order, p.State)
				}
				wrong[p.State] = append(wrong[p.State], name)
			case p.SourceSeen.IsZero() || ahead(p.SourceSeen, d.Taken) || d.Taken.Sub(p.SourceSeen) > sourceSilentAfter:
				silent = append(silent, name)
			}
		}
	}
	if unrun := d.unrun(); unrun != "" && (d.deaf || len(closed)+len(unopened) > 0) {
		reasons = append(reasons, unrun)
	}
	if len(unseen) > 0 {
		reasons = append(reasons, "no process has taken up "+few(unseen))
	}
	for _, state := range order {
		reasons = append(reasons, fmt.Sprintf("%s: %s", state, few(wrong[state])))
	}
	if len(silent) > 0 {
		reasons = append(reasons, fmt.Sprintf("not seen at the source for %s: %s", sourceSilentAfter, few(silent)))
	}
	verdict := Protected
	switch {
	case len(reasons) > 0:
		verdict = NotProtected
	case d.Partial || len(unopened) > 0:
		verdict = PartiallyFailedOver
	case len(closed) == 0:
		verdict = FailedOver
	}
	if d.Partial {
		reasons = append(reasons, "some of its topics are stopped and the others are not")
	}
	if len(unopened) > 0 {
		reasons = append(reasons, "to be opened: "+few(unopened))
	}
	return Protection{verdict, reasons}
}

// done says that every partition of a topic is known and in the state that is wanted.
func (t *DescribedTopic) done() bool {
	for _, p := range t.Partitions {
		if p.State != t.want.String() {
			return false
		}
	}
	return len(t.Partitions) > 0
}
