package mirror_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
)

// left is what is recorded of fences that are up.
func (p *promotion) left() []mirror.LeftFence {
	p.t.Helper()
	s, err := p.control.Read(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	left, err := s.LeftFences("m")
	if err != nil {
		p.t.Fatal(err)
	}
	return left
}

// TestAcceptance4_1AFenceIsRememberedUntilItIsLowered: a promotion that ends leaves its fence up, and says so as long as it is; the same fence lowers it, from any process, and another one does not.
func TestAcceptance4_1AFenceIsRememberedUntilItIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 1)
		if lowered, err := p.now.LowerFence(t.Context(), p.now); err != nil || len(lowered) > 0 {
			t.Fatalf("%v %v", lowered, err)
		}
		r, err := p.promote()
		p.isPromoted(r, err)
		d, err := p.elsewhere().Describe(t.Context())
		if err != nil || len(d.LeftFences) != 1 {
			t.Fatalf("%v %+v", err, d.LeftFences)
		}
		expectWords(t, strings.Join(d.Notes, "\n"), "was left up at the source for t, u", "lower it (LowerFence) when the source is a copy or is given up")

		if _, err := p.elsewhere().LowerFence(t.Context(), placed{Fence: p.now, id: "B"}); !errors.As(err, new(*mirror.FenceElsewhereError)) || p.a.fenced() != 2 {
			t.Fatalf("%v, %d fenced", err, p.a.fenced())
		}
		if lowered, err := p.elsewhere().LowerFence(t.Context(), anotherFence{p.now}); !errors.Is(err, mirror.ErrOtherFence) || len(lowered) > 0 || p.a.fenced() != 2 || len(p.left()) != 1 {
			t.Fatalf("%v, %d fenced", err, p.a.fenced())
		}
		if err := p.now.AbortPromotion(t.Context(), p.now); err != nil || p.a.fenced() != 2 || len(p.left()) != 1 {
			t.Fatalf("nothing is under way, and aborting it: %v, %d fenced", err, p.a.fenced())
		}
		if lowered, err := p.elsewhere().LowerFence(t.Context(), p.now); err != nil || len(lowered) != 1 || p.a.fenced() != 0 || len(p.left()) > 0 {
			t.Fatalf("%v %v, %d fenced, %v", lowered, err, p.a.fenced(), p.left())
		}
		if h, err := p.elsewhere().History(t.Context()); err != nil || len(h) == 0 || h[len(h)-1].Verb != "lower fence" {
			t.Errorf("%v %+v", err, h)
		}
	})
}

// anotherFence is one with another name.
type anotherFence struct{ mirror.Fence }

func (anotherFence) String() string { return "a wall" }

// TestAcceptance4_1AFenceThatIsUpIsNotForgotten: not by a process that dies in the middle of lowering it, not by a source that refuses, and not in silence by the deletion of the mirror.
func TestAcceptance4_1AFenceThatIsUpIsNotForgotten(t *testing.T) {
	for _, written := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPromotion(t, 2)
			r, err := p.promote()
			p.isPromoted(r, err)
			p.now.dies, p.now.fault = true, func(at string) (bool, bool) { return at == "lower", written }
			if _, err := p.now.LowerFence(p.now.ctx, p.now); err == nil {
				t.Fatal("a dead process has succeeded")
			}
			if len(p.left()) != 1 {
				t.Fatal("forgotten")
			}
			if d, err := p.elsewhere().Describe(t.Context()); err != nil || len(d.LeftFences) != 1 || d.LeftFences[0].Lowering.IsZero() {
				t.Fatalf("%v %+v", err, d.LeftFences)
			} else {
				expectWords(t, strings.Join(d.Notes, "\n"), "is being lowered at the source for t, u", "may still be up: LowerFence ends that")
			}
			p.open()
			if r, err := p.now.Admin().Delete(t.Context(), mirror.DeleteOptions{DryRun: true}); err != nil {
				t.Fatal(err)
			} else {
				expectWords(t, strings.Join(r.Notes, "\n"), "nobody will remember it any more: the fence of the promotion")
			}
			if lowered, err := p.now.LowerFence(t.Context(), p.now); err != nil || len(lowered) != 1 || p.a.fenced() != 0 || len(p.left()) > 0 {
				t.Fatalf("%v %v, %d fenced", lowered, err, p.a.fenced())
			}
		})
	}
}
