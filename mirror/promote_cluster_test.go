package mirror_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/clustermirror/clustermirror/mirror"
)

// placed is a fence, or what aborts transactions, that tells on which cluster it works.
type placed struct {
	mirror.Fence
	id  string
	err error
}

func (p placed) ClusterID(context.Context) (string, error) { return p.id, p.err }

// placedEnder is what aborts transactions there.
type placedEnder struct{ ender }

func (*placedEnder) ClusterID(context.Context) (string, error) { return "B", nil }

// TestAFenceOfAnotherClusterIsRefused: raised at the destination it would keep out the standby's clients, and nobody at the source, which may be quiet for long enough by chance.
func TestAFenceOfAnotherClusterIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 11)
		p.apps.end() // the source is quiet
		isRefused := func(err error, r mirror.PromoteReport) {
			t.Helper()
			var elsewhere *mirror.FenceElsewhereError
			if !errors.As(err, &elsewhere) || elsewhere.ClusterID != "B" || elsewhere.SourceClusterID != "A" || r.Stopped {
				t.Fatalf("%v\n%s", err, r)
			}
			expectWords(t, err.Error(), "cluster B", "cluster A", "a client of the source")
		}
		for _, change := range []func(*mirror.PromoteOptions){
			func(o *mirror.PromoteOptions) { o.Fence = placed{Fence: p.now, id: "B"} },
			func(o *mirror.PromoteOptions) { o.AbortTransactions = &placedEnder{} },
		} {
			r, err := p.promote(change)
			isRefused(err, r)
			if s, readErr := p.control.Read(t.Context()); readErr != nil || len(s.Promotions) > 0 || p.a.fenced() > 0 || r.FenceUp || !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) {
				t.Fatalf("%v %+v, %d fenced", err, s.Promotions, p.a.fenced())
			}
		}
		r, err := p.promote(func(o *mirror.PromoteOptions) { o.Fence = placed{p.now, "", errors.New("nobody answers")} })
		if err == nil || r.FenceUp || p.a.fenced() > 0 {
			t.Fatalf("%v\n%s", err, r)
		}
		expectWords(t, err.Error(), "nobody answers", "nothing has changed")

		// One that a crash has left is not gone on with, nor taken back, by a fence of another cluster.
		p.now.dies, p.now.fault = true, func(at string) (bool, bool) { return at == string(mirror.PromotionVerifying), false }
		if _, err := p.promote(); err == nil || p.a.fenced() != 2 {
			t.Fatal(err)
		}
		p.open()
		r, err = p.promote(func(o *mirror.PromoteOptions) { o.Fence = placed{Fence: p.now, id: "B"} })
		if isRefused(err, r); !r.FenceUp || p.a.fenced() != 2 {
			t.Fatalf("%d fenced\n%s", p.a.fenced(), r)
		}
		isRefused(p.now.AbortPromotion(t.Context(), placed{Fence: p.now, id: "B"}), r)
		if s, err := p.control.Read(t.Context()); err != nil || len(s.Promotions) != 1 || p.a.fenced() != 2 {
			t.Fatalf("%v %+v, %d fenced", err, s.Promotions, p.a.fenced())
		}
		if err := p.now.AbortPromotion(t.Context(), placed{Fence: p.now, id: "A"}); err != nil || p.a.fenced() != 0 {
			t.Fatalf("%v, %d fenced", err, p.a.fenced())
		}
		if r, err = p.promote(func(o *mirror.PromoteOptions) { o.Fence = placed{Fence: p.now, id: "A"} }); err != nil || !r.Proved || len(r.Limits) > 0 {
			t.Fatalf("%v\n%s", err, r)
		}
	})
}

// TestAFenceThatDoesNotTellItsClusterIsReportedSo: a hook of the caller's is believed.
func TestAFenceThatDoesNotTellItsClusterIsReportedSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 12)
		r, err := p.promote()
		p.isPromoted(r, err)
		expectWords(t, r.String(), "on which cluster it works is the caller's word")
	})
}

// slowing is a fence that forbids nothing.
type slowing struct{ mirror.Fence }

func (slowing) OnlySlows() bool { return true }

// TestBehindAFenceThatOnlySlowsNothingIsProved: a producer that writes more rarely than Quiet writes behind the last look, and no copy has it.
func TestBehindAFenceThatOnlySlowsNothingIsProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 13)
		r, err := p.promote(func(o *mirror.PromoteOptions) { o.Fence = slowing{p.now} })
		if !errors.Is(err, mirror.ErrNotProved) || r.Proved || !r.OnlySlows || !r.Stopped || len(r.Partitions) != 3 {
			t.Fatalf("%v\n%s", err, r)
		}
		expectWords(t, r.String(), "EQUAL at "+r.LookedLast.UTC().Format("2006-01-02 15:04:05 UTC")+", not proved: this fence does not forbid writes")
		r.Partitions[0].Why = []string{"the source has [5,6), and the copy has not"}
		expectWords(t, r.String(), "NOT PROVED: all is open for clients, and something may be missing")
	})
}
