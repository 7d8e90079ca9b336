package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/statemachine"
)

// lookEvery is how often it is looked whether copies have caught up.
const lookEvery = time.Second

// catchUp waits until each copy ends where its source ends when this begins, or bounded ends, which ctx is without the bound of the wait: what has just begun to be MIRRORING may not have copied anything yet,
// and comparing it proves nothing. What the source gets meanwhile is not waited for. Errors: an endedError.
func (p *program) catchUp(ctx, bounded context.Context, pairs []verify.Pair) error {
	p.waited.For = statemachine.Mirroring.String() + " up to the source's end"
	var left []*behind
	for _, pair := range pairs {
		left = append(left, &behind{Pair: pair, end: mirror.Unknown, at: mirror.Unknown})
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for told := 0; ; {
		for _, b := range left {
			b.askSource(bounded)
		}
		left = slices.DeleteFunc(left, func(b *behind) bool { return b.reached(bounded) })
		if len(left) == 0 {
			p.waited.ends(true)
			return nil
		}
		if len(left) != told && bounded.Err() == nil {
			told = len(left)
			fmt.Fprintf(p.progressTo(), "%6s  catching up: %d of %s to go\n", time.Since(p.waited.began).Round(time.Second), told, counted(len(pairs), "partition"))
		}
		select {
		case <-bounded.Done():
			return p.notCaughtUp(ctx, bounded, left)
		case <-tick.C:
		}
	}
}

func (p *program) notCaughtUp(ctx, bounded context.Context, left []*behind) error {
	p.waited.ends(false)
	var words []string
	const most = 5
	for i, b := range left {
		tp := b.A.Partition()
		p.waited.Missing = append(p.waited.Missing, missingJSON{Topic: tp.Topic, Partition: &tp.Partition, StateValue: statemachine.Mirroring.String(), Reason: b.String()})
		if i < most {
			words = append(words, mirror.OneLine(fmt.Sprintf("%s-%d: %s", tp.Topic, tp.Partition, b)))
		}
	}
	if more := len(left) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	err := fmt.Errorf("mirror %s: MIRRORING, but not up to the source's end yet: %s: %w", p.mirror, strings.Join(words, "; "), bounded.Err())
	return p.notInTime(ctx, err, "--describe shows how it goes on, and --verify compares it when its LAG is 0")
}

// behind is a copy that is waited for until it ends where its source ended.
type behind struct {
	verify.Pair
	end, at int64 // of the source when it was asked first, and of the copy at last; mirror.Unknown
	err     error // why one of them was not known at last
}

func (b *behind) askSource(ctx context.Context) {
	if b.end == mirror.Unknown {
		b.end = b.ask(ctx, b.A, b.end)
	}
}

// reached says whether the copy has what its source had.
func (b *behind) reached(ctx context.Context) bool {
	if b.end == mirror.Unknown {
		return false
	}
	b.at = b.ask(ctx, b.B, b.at)
	return b.err == nil && b.at >= b.end
}

// ask returns where a side ends, and what was known before if it does not say.
func (b *behind) ask(ctx context.Context, side verify.Side, known int64) int64 {
	bounds, err := side.Bounds(ctx)
	if err == nil {
		known = bounds.End
	}
	if err == nil || ctx.Err() == nil { // that the wait has ended is no reason
		b.err = err
	}
	return known
}

// String is how far it is.
func (b *behind) String() string {
	var words string
	switch {
	case b.end == mirror.Unknown:
		words = "where the source ends is not known"
	case b.at == mirror.Unknown:
		words = fmt.Sprintf("where the copy ends is not known, the source ended at %d", b.end)
	default:
		words = fmt.Sprintf("the copy ends at %d, the source ended at %d", b.at, b.end)
	}
	if b.err != nil {
		words += " (" + oneLine(b.err) + ")"
	}
	return words
}
