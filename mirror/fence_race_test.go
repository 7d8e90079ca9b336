package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
)

// meets is a fence that calls somebody before it is lowered.
type meets struct {
	mirror.Fence
	before func()
}

func (f meets) Lower(ctx context.Context, topics []string) error {
	f.before()
	return f.Fence.Lower(ctx, topics)
}

// TestNoPromotionBeginsWhileALeftFenceIsLowered: what one process lowers at the source may be what another one has just raised there, and a proof would rest on it.
func TestNoPromotionBeginsWhileALeftFenceIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 5)
		only := func(topic string) func(*mirror.PromoteOptions) {
			return func(o *mirror.PromoteOptions) { o.Topics, o.Partial = []string{topic}, true }
		}
		if r, err := p.promote(only("t")); err != nil || !r.Proved || len(p.left()) != 1 {
			t.Fatalf("%v\n%s", err, r)
		}
		met := false
		lowered, err := p.elsewhere().LowerFence(t.Context(), meets{p.now, func() {
			met = true
			r, err := p.promote(only("u"))
			if !errors.Is(err, mirror.ErrOtherPromotion) || r.Outcome != mirror.PromoteRefused || r.Stopped {
				t.Errorf("a promotion has begun: %v\n%s", err, r)
			}
		}})
		if !met || err != nil || len(lowered) != 1 || len(p.left()) > 0 || p.a.fenced() != 0 {
			t.Fatalf("%v %v, %d fenced, %v", lowered, err, p.a.fenced(), p.left())
		}
		if r, err := p.promote(only("u")); err != nil || !r.Proved {
			t.Fatalf("nothing is lowered any more: %v\n%s", err, r)
		}
	})
}

// asked is a fence that calls somebody when it is asked on which cluster it works: before anything is recorded.
type asked struct {
	mirror.Fence
	before func()
}

func (f asked) ClusterID(context.Context) (string, error) {
	f.before()
	return "A", nil
}

// TestTwoProcessesLowerALeftFence: one in the middle of the other, and one before the other comes to it. Both may say that it is done, it is recorded once, and who finds it lowered asks the source for nothing.
func TestTwoProcessesLowerALeftFence(t *testing.T) {
	for name, early := range map[string]bool{"in the middle": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPromotion(t, 6)
				r, err := p.promote()
				p.isPromoted(r, err)
				met := 0
				other := func() {
					met++
					if lowered, err := p.elsewhere().LowerFence(t.Context(), gateway{p.a}); err != nil || len(lowered) != 1 {
						t.Errorf("%v %v", lowered, err)
					}
				}
				mine := 1
				var fence mirror.Fence = meets{p.now, other}
				if early {
					mine, fence = 0, asked{p.now, other}
				}
				lowered, err := p.elsewhere().LowerFence(t.Context(), fence)
				if met != 1 || err != nil || len(lowered) != mine || len(p.left()) > 0 || p.a.fenced() != 0 || p.now.hit["lower"] != mine {
					t.Fatalf("%v %v, %d fenced, %v, the source was asked %d times", lowered, err, p.a.fenced(), p.left(), p.now.hit["lower"])
				}
				h, err := p.elsewhere().History(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				recorded := 0
				for _, x := range h {
					if x.Verb == "lower fence" {
						recorded++
					}
				}
				if recorded != 1 {
					t.Errorf("recorded %d times", recorded)
				}
			})
		})
	}
}
