package mirror_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// elsewhere is an Admin in another process.
func (p *promotion) elsewhere() *mirror.Admin {
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: p.control, States: p.b.StateStore(), Destination: p.b.Cluster, SourceClusterID: "A",
		OpenSource: func(context.Context, mirror.Settings) (mirror.Source, error) {
			return &oddSourceWithEnds{oddSource{at: p.a.Cluster}}, nil
		}})
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// TestAnAdminStopsNothingThatNobodyWouldOpen: what the process of a mirror reported last is whole, and it is dead since.
func TestAnAdminStopsNothingThatNobodyWouldOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 32)
		p.apps.end()
		p.now.untilInStep()
		time.Sleep(time.Minute) // it is reported
		p.now.dead.Store(true)
		p.now.close()
		r, err := p.elsewhere().Promote(t.Context(), mirror.PromoteOptions{Fence: gateway{p.a}})
		if !errors.Is(err, mirror.ErrGivenUp) || r.Stopped || r.FenceUp || p.a.fenced() > 0 || p.wanted("t") != "m" {
			t.Fatalf("%v, %d fenced, t is wanted as %s\n%s", err, p.a.fenced(), p.wanted("t"), r)
		}
		expectWords(t, err.Error(), "t-0", "nobody who copies it has reported")
	})
}

// openTransaction leaves a transaction open at the end of u, with nobody else writing.
func (p *promotion) openTransaction() *memlog.Producer {
	p.t.Helper()
	p.apps.end()
	producer := p.a.NewProducer(memlog.ProducerOptions{})
	if err := producer.Begin(); err != nil {
		p.t.Fatal(err)
	}
	if _, err := producer.Produce(p.t.Context(), "u", 0, memlog.Record{Value: []byte("open")}); err != nil {
		p.t.Fatal(err)
	}
	p.now.untilInStep()
	time.Sleep(30 * time.Second) // it is reported
	return producer
}

// TestNothingIsProvedOfATransactionThatAStopHasAborted: somebody else stops the topics while the promotion waits for an open transaction, and the source ends where the copies do.
func TestNothingIsProvedOfATransactionThatAStopHasAborted(t *testing.T) {
	for name, admin := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPromotion(t, 33)
				producer := p.openTransaction()
				o := mirror.PromoteOptions{Fence: gateway{p.a}, OnStep: func(x mirror.Promotion) {
					if x.Step != mirror.PromotionTransactions {
						return
					}
					if _, err := p.now.Admin().Stop(t.Context(), nil, mirror.StopOptions{AllTopics: true}); err != nil {
						t.Error(err)
					}
				}}
				promote := p.now.Promote
				if admin {
					promote = p.elsewhere().Promote
				}
				r, err := promote(t.Context(), o)
				if err := producer.Commit(t.Context()); err != nil { // no fence keeps it from that
					t.Fatal(err)
				}
				if !errors.Is(err, mirror.ErrNotProved) || r.Proved || !r.Stopped {
					t.Fatalf("%v\n%s", err, r)
				}
				expectWords(t, r.String(), "NOT PROVED", "u-0: ", "abort")
			})
		})
	}
}

// TestAProcessThatHasNotSeenTheStopDoesNotProveWhatItAborted: the same, and the process that promotes has begun behind the stop.
func TestAProcessThatHasNotSeenTheStopDoesNotProveWhatItAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 34)
		p.openTransaction()
		p.now.dies = true
		p.now.fault = func(at string) (bool, bool) { return false, at == "raise" }
		if _, err := p.promote(); !p.now.dead.Load() {
			t.Fatal(err)
		}
		p.open()
		p.now.untilInStep()
		if _, err := p.now.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		p.open()
		time.Sleep(10 * time.Second)
		r, err := p.promote()
		if !errors.Is(err, mirror.ErrNotProved) || r.Proved || !r.Stopped {
			t.Fatalf("%v\n%s", err, r)
		}
		expectWords(t, r.String(), "NOT PROVED", "whether the stop has aborted transactions is not known")
	})
}

// TestAPromotionWhoseSourceWasSilentBehindTheStopIsProvedLater: the process dies behind the stop, the source does not answer for as long as the next one waits, and answers later. The fence, which
// somebody has lowered meanwhile, is raised again.
func TestAPromotionWhoseSourceWasSilentBehindTheStopIsProvedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 35)
		p.now.dies = true
		p.now.fault = func(at string) (bool, bool) { return false, at == string(mirror.PromotionStopping) }
		if _, err := p.promote(); !p.now.dead.Load() {
			t.Fatal(err)
		}
		p.open()
		p.apps.end()
		p.a.SetUnreachable(true)
		p.a.set(func(s *fencedSource) { clear(s.up) })
		r, err := p.promote()
		if !errors.Is(err, mirror.ErrNotProved) || r.Proved || !r.Stopped || !r.FenceUp || p.a.fenced() != 2 {
			t.Fatalf("%v, %d fenced\n%s", err, p.a.fenced(), r)
		}
		expectWords(t, err.Error(), "promote again")
		if s, err := p.control.Read(t.Context()); err != nil || !slices.ContainsFunc(s.Promotions, func(x mirror.Promotion) bool { return x.Step == mirror.PromotionStopping }) {
			t.Fatalf("%v %+v", err, s.Promotions)
		}
		p.a.SetUnreachable(false)
		// One of another cluster is not raised there, and the promotion is not ended by it.
		p.a.set(func(s *fencedSource) { clear(s.up) })
		r, err = p.promote(func(o *mirror.PromoteOptions) { o.Fence = placed{Fence: p.now, id: "B"} })
		if !errors.Is(err, mirror.ErrNotProved) || r.Proved || p.a.fenced() > 0 {
			t.Fatalf("%v, %d fenced\n%s", err, p.a.fenced(), r)
		}
		expectWords(t, r.String(), "the fence could not be raised again behind the stop", "cluster B")
		r, err = p.promote()
		p.isPromoted(r, err)
	})
}
