package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// deafFence is a fence that does not end with its context.
type deafFence struct {
	mirror.Fence
	raise, lower time.Duration
}

func (d deafFence) Raise(ctx context.Context, topics []string) error {
	time.Sleep(d.raise)
	return d.Fence.Raise(ctx, topics)
}

func (d deafFence) Lower(ctx context.Context, topics []string) error {
	time.Sleep(d.lower)
	return d.Fence.Lower(ctx, topics)
}

// TestAcceptance4_1AFenceThatDoesNotReturnHoldsNobody: a promotion ends in its time, says that the fence may be up, and lowers it only behind the raising.
func TestAcceptance4_1AFenceThatDoesNotReturnHoldsNobody(t *testing.T) {
	for name, d := range map[string]deafFence{"raise": {raise: time.Hour}, "lower": {lower: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPromotion(t, 6)
				began := time.Now()
				r, err := p.promote(func(o *mirror.PromoteOptions) {
					d.Fence, o.Fence = o.Fence, nil
					o.Fence = d
					if d.lower > 0 {
						o.OnStep = func(x mirror.Promotion) {
							if x.Step == mirror.PromotionVerifying {
								p.a.SetUnreachable(true) // so that it is given up
							}
						}
					}
				})
				p.a.SetUnreachable(false)
				if took := time.Since(began); took > 4*time.Minute || !errors.Is(err, mirror.ErrGivenUp) || !r.FenceUp || r.Stopped {
					t.Fatalf("took %s: %v\n%s", took, err, r)
				}
				expectWords(t, r.String(), "THE FENCE MAY STILL BE UP: abort the promotion")
				expectWords(t, err.Error(), "the fence does not return, and its time is over", "abort the promotion, which tries that again")
				time.Sleep(2 * time.Hour)
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Hour)
				defer stop()
				if err := p.now.AbortPromotion(ctx, d); err != nil || p.a.fenced() != 0 {
					t.Fatalf("%v, %d fenced", err, p.a.fenced())
				}
				p.goesOn()
			})
		})
	}
}
