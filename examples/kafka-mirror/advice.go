package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// before is how a mirror was before a verb, as far as that is known: a verb says what is recorded, and this what comes of it.
type before struct {
	known bool
	mirror.Description
}

// adviceBound is how long a verb is held up at most for the sake of advice.
const adviceBound = 5 * time.Second

// standings looks at the mirror for advise. Nothing else depends on it.
func (p *program) standings(ctx context.Context) before {
	if !slices.Contains([]string{"start", "pause", "resume", "recover", "alter", "delete"}, p.verb) {
		return before{}
	}
	bounded, stop := context.WithTimeout(ctx, min(p.timeout, adviceBound))
	defer stop()
	a, err := p.admin(p.mirror)
	if err != nil {
		return before{}
	}
	d, err := a.Describe(bounded)
	return before{err == nil, d}
}

// advise adds what is to be known of a result that is recorded, or is so already, and still not what the operator wants.
func (b before) advise(r *mirror.Result) {
	if !b.known {
		return
	}
	waits := len(r.Settings) > 0
	var stopped, sound []string
	for i := range r.Topics {
		t := &r.Topics[i]
		if t.Err != nil {
			continue
		}
		waits = true
		partitions := b.partitions(t.Topic)
		in := func(state statemachine.State) bool {
			return slices.ContainsFunc(partitions, func(p mirror.DescribedPartition) bool { return p.State == state.String() })
		}
		if !t.Changed && t.Unfinished == "" {
			t.Unfinished = unfinished(r.Verb, partitions)
		}
		if r.Verb == "start" && t.Changed && in(statemachine.Stopped) {
			stopped = append(stopped, t.Topic)
		}
		if r.Verb == "recover" && !in(statemachine.Failed) {
			sound = append(sound, t.Topic)
		}
	}
	if len(stopped) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: clients could write here since the stop; what the source does not have is dropped only after consent, which --failback asks for", names(stopped)))
	}
	if len(sound) > 0 {
		r.Notes = append(r.Notes, names(sound)+": no partition is known to be FAILED, so there is nothing to recover")
	}
	if waits && !b.Alive && !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, " PROCESS RUNS") || strings.HasPrefix(w, "NO PROCESS") }) { // a stop says it by itself
		r.Warnings = append(r.Warnings, b.unattended())
	}
}

func (b before) partitions(topic string) []mirror.DescribedPartition {
	for _, t := range b.Topics {
		if t.Topic == topic {
			return t.Partitions
		}
	}
	return nil
}

// unfinished says why a topic that is wanted so already is not so yet, "" if it is.
func unfinished(verb string, partitions []mirror.DescribedPartition) string {
	want := statemachine.Mirroring.String()
	if verb == "pause" {
		want = statemachine.Paused.String()
	}
	if len(partitions) == 0 {
		return "no process has taken it up yet"
	}
	for _, p := range partitions {
		switch {
		case p.State == want:
		case p.State == statemachine.Failed.String() && p.RetryAttempt == statemachine.NonRetryable:
			return fmt.Sprintf("but partition %d is FAILED (%s): mend that, then --recover", p.Partition, cmp.Or(p.Reason, "it is not known why"))
		case p.State == statemachine.Failed.String():
			return fmt.Sprintf("but partition %d is FAILED (%s) and tried again by itself; --recover tries it now", p.Partition, cmp.Or(p.Reason, "it is not known why"))
		default:
			return fmt.Sprintf("partition %d is %s", p.Partition, p.State)
		}
	}
	return ""
}

// unattended says that nobody carries out what is recorded.
func (b before) unattended() string { return b.nobody() + ": what is recorded is done when one runs" }

// nobody says that no process runs the mirror, as far as is known.
func (b before) nobody() string { return b.Nobody() }

// never says that no process has reported the mirror since it was created, as far as is known.
func (b before) never() bool {
	return !strings.Contains(b.Head, "REPORTS CANNOT BE READ") && !slices.ContainsFunc(b.Nodes, func(n mirror.DescribedNode) bool { return !n.Seen.Before(b.Created) })
}

// names are the first few of several names.
func names(all []string) string {
	const most = 3
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// history shows who did what. A name that nobody ever used is a mistake, and not an empty history.
func (p *program) history(ctx context.Context, a *mirror.Admin) error {
	entries, err := a.History(ctx)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		if _, err := a.Describe(ctx); err != nil {
			return err
		}
		if !p.json {
			_, err := fmt.Fprintf(p.out, "nothing is recorded of mirror %s\n", p.mirror)
			return err
		}
	}
	return p.showHistory(entries)
}
