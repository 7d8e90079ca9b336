package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// hold keeps the copy of a topic from growing until the function that it returns is called.
func (p *promotion) hold(topic string) (release func()) {
	held := make(chan struct{})
	p.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
		if c.Operation == "Log.Append" && c.Partition.Topic == topic {
			select {
			case <-held:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}})
	return func() { close(held) }
}

// wanted is what is wanted of a topic.
func (p *promotion) wanted(topic string) string {
	p.t.Helper()
	s, err := p.control.Read(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	w, _ := s.Topic(topic)
	return w.MirrorName
}

// isWhole checks that a topic was stopped with everything that was acknowledged at the source.
func (p *promotion) isWhole(topic string) {
	p.t.Helper()
	time.Sleep(time.Minute)
	p.apps.end()
	for _, lost := range p.apps.missing(p.b) {
		if strings.HasPrefix(lost, topic+"-") {
			p.t.Fatalf("%s was stopped before it was drained: %s", topic, lost)
		}
	}
	if w := p.wanted(topic); w != "m.stopped" {
		p.t.Errorf("%s is wanted as %s", topic, w)
	}
}

// TestAStopBySomebodyElseStopsNothingElseUndrained: a promotion is of orders and payments, and somebody stops orders. Payments is drained on, and not stopped as it is.
func TestAStopBySomebodyElseStopsNothingElseUndrained(t *testing.T) {
	stops := map[string]func(*promotion) error{
		"the verb": func(p *promotion) error {
			_, err := p.now.Admin().Stop(p.t.Context(), []string{"t"}, mirror.StopOptions{Partial: true})
			return err
		},
		"mirror.topics.exclude": func(p *promotion) error { // as discovery writes it
			return p.control.Update(p.t.Context(), func(s *mirror.ControlState) error {
				w, _ := s.Topic("t")
				w.MirrorName = "m.stopped"
				s.Set(w)
				return nil
			})
		},
	}
	for name, stop := range stops {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/later=%v", name, later), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPromotion(t, 21)
					var release func()
					stopped := false
					r, err := p.promote(func(o *mirror.PromoteOptions) {
						o.Bound = 40 * time.Second
						o.OnStep = func(x mirror.Promotion) {
							if x.Step == mirror.PromotionRaising && release == nil {
								release = p.hold("u") // it is behind from here on
							}
							if x.Step != mirror.PromotionDraining || stopped {
								return
							}
							stopped = true
							if err := stop(p); err != nil {
								t.Error(err)
							}
							if !later {
								time.AfterFunc(10*time.Second, release)
							}
						}
					})
					if !stopped {
						t.Fatalf("nobody has stopped anything: %v\n%s", err, r)
					}
					if later { // it cannot be drained: nothing more is stopped, and the fence stays up, because t is open here
						if !errors.Is(err, mirror.ErrNoReturn) || r.Stopped || !r.FenceUp || p.a.fenced() != 2 || p.wanted("u") != "m" {
							t.Fatalf("%v, %d fenced, u is wanted as %s\n%s", err, p.a.fenced(), p.wanted("u"), r)
						}
						expectWords(t, err.Error(), "somebody else has stopped", "(t)", "not in the copy yet: u-0 ")
						if err := p.now.AbortPromotion(t.Context(), p.now); !errors.Is(err, mirror.ErrNoReturn) || p.a.fenced() != 2 {
							t.Fatalf("%v, %d fenced", err, p.a.fenced())
						}
						release()
						r, err = p.promote()
					}
					if !r.Stopped || err != nil && !errors.Is(err, mirror.ErrNotProved) {
						t.Fatalf("%v\n%s", err, r)
					}
					p.isWhole("u")
				})
			})
		}
	}
}

// TestAPromotionThatACrashHasLeftDrainsWhatSomebodyElseHasNotStopped: the process dies behind the fence, somebody stops orders by hand, and the promotion is used again.
func TestAPromotionThatACrashHasLeftDrainsWhatSomebodyElseHasNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 22)
		p.now.dies = true
		p.now.fault = func(at string) (bool, bool) { return false, at == "raise" }
		if _, err := p.promote(); !p.now.dead.Load() {
			t.Fatal(err)
		}
		p.open()
		p.now.untilInStep()
		if _, err := p.now.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{Partial: true}); err != nil {
			t.Fatal(err)
		}
		p.a.set(func(s *fencedSource) { clear(s.up) }) // somebody has lowered the fence by hand
		release := p.hold("u")
		time.Sleep(5 * time.Second)
		time.AfterFunc(20*time.Second, release)
		r, err := p.promote()
		if !r.Stopped || err != nil && !errors.Is(err, mirror.ErrNotProved) {
			t.Fatalf("%v\n%s", err, r)
		}
		if p.a.fenced() != 2 {
			t.Errorf("%d topics are fenced", p.a.fenced())
		}
		p.isWhole("u")
	})
}
