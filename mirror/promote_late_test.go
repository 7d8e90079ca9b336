package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// late is a fence whose first raising hangs until it is let go, and then takes effect whatever has become of its context.
type late struct {
	*promoter
	began, free chan struct{}
	fails       bool // it says that its context has ended
}

func raisesLate(p *promoter) *late {
	return &late{promoter: p, began: make(chan struct{}), free: make(chan struct{})}
}

func (f *late) Raise(ctx context.Context, topics []string) error {
	close(f.began)
	<-f.free
	if err := f.promoter.Raise(context.WithoutCancel(ctx), topics); err != nil {
		return err
	}
	if f.fails {
		return context.DeadlineExceeded
	}
	return nil
}

// TestAFenceThatIsRaisedLateIsLoweredAgainUnlessAPromotionRestsOnIt: a process hangs before it raises the fence, and others take its promotion back, or end it, or begin another one.
func TestAFenceThatIsRaisedLateIsLoweredAgainUnlessAPromotionRestsOnIt(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for _, then := range []string{"nothing", "ended", "another"} {
			t.Run(then, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPromotion(t, 31)
					fence := raisesLate(p.now)
					fence.fails = fails
					type outcome struct {
						r   mirror.PromoteReport
						err error
					}
					first := make(chan outcome, 1)
					go func() {
						r, err := p.promote(func(o *mirror.PromoteOptions) { o.Fence = fence })
						first <- outcome{r, err}
					}()
					<-fence.began
					time.Sleep(time.Second)
					if then == "nothing" || then == "another" {
						if err := p.now.AbortPromotion(t.Context(), p.now); err != nil {
							t.Fatal(err)
						}
					}
					second := make(chan outcome, 1)
					switch then {
					case "ended":
						r, err := p.promote()
						second <- outcome{r, err}
					case "another":
						p.a.set(func(s *fencedSource) { s.lag = 10 * time.Second })
						go func() {
							r, err := p.promote()
							second <- outcome{r, err}
						}()
						time.Sleep(3 * time.Second) // it is raised, and not in force yet
					}
					close(fence.free)
					x := <-first
					if x.r.Stopped || x.err == nil {
						t.Fatalf("%v\n%s", x.err, x.r)
					}
					if then == "nothing" {
						if !errors.Is(x.err, mirror.ErrGivenUp) || x.r.FenceUp {
							t.Errorf("%v\n%s", x.err, x.r)
						}
						p.goesOn()
						return
					}
					if !errors.Is(x.err, mirror.ErrOtherPromotion) || errors.Is(x.err, mirror.ErrGivenUp) || !x.r.FenceUp {
						t.Errorf("%v\n%s", x.err, x.r)
					}
					y := <-second
					p.isPromoted(y.r, y.err)
				})
			})
		}
	}
}
