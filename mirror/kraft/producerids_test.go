package kraft

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

// givers are brokers that give out producer ids from the blocks that they hold.
type givers struct {
	f *pretended

	mu      sync.Mutex
	next    int64 // the controllers' counter
	held    map[int32][]int64
	asked   int
	before  func(ctx context.Context, broker int32) error // nil: nothing
	notices []string
}

// giving is a pretended cluster of brokers that each hold the ids from 1000 on, two blocks, while the counter is at 5000.
func giving(t *testing.T, brokers ...int32) *givers {
	g := &givers{f: pretend(t), next: 5000, held: map[int32][]int64{}}
	g.f.d.cfg.Notice = func(e Event) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.notices = append(g.notices, e.Text)
	}
	g.f.d.producers.ask = g.take
	for _, id := range brokers {
		for i := range int64(2000) {
			g.held[id] = append(g.held[id], 1000+i)
		}
		g.f.broker(id, 10*int64(id), false)
	}
	g.f.producerIDs(g.next)
	g.f.seen()
	return g
}

func (g *givers) take(ctx context.Context, broker int32) (int64, error) {
	g.mu.Lock()
	before := g.before
	g.mu.Unlock()
	if before != nil {
		if err := before(ctx, broker); err != nil {
			return -1, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if len(g.held[broker]) == 0 {
		for i := range int64(1000) {
			g.held[broker] = append(g.held[broker], g.next+i)
		}
		g.next += 1000
		g.f.producerIDs(g.next)
	}
	id := g.held[broker][0]
	g.held[broker] = g.held[broker][1:]
	return id, nil
}

// lowest is what a client would be given next.
func (g *givers) lowest(broker int32) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held[broker]) == 0 {
		return g.next
	}
	return g.held[broker][0]
}

func (g *givers) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// round is what keepSettled does for news.
func (g *givers) round(t *testing.T) {
	t.Helper()
	select {
	case <-g.f.d.producers.news:
		g.f.d.producers.background(t.Context())
	default:
		t.Fatal("nobody is to look at the brokers")
	}
}

// TestBrokersUseUpIDsWhileMirroring: with the first mirrored id the brokers use up what they hold, although the counter is above it already, and once only; a stop then has nothing to do.
func TestBrokersUseUpIDsWhileMirroring(t *testing.T) {
	g := giving(t, 1, 2)
	p := g.f.d.producers
	if err := p.raise(t.Context(), 1500); err != nil {
		t.Fatal(err)
	}
	g.round(t)
	for _, id := range []int32{1, 2} {
		if lowest := g.lowest(id); lowest <= 4999 {
			t.Errorf("broker %d still gives out %d", id, lowest)
		}
	}
	before := g.count()
	if err := p.raise(t.Context(), 1600); err != nil {
		t.Fatal(err)
	}
	if len(p.news) != 0 {
		t.Error("the brokers are looked at again although nothing is new")
	}
	if err := p.settle(t.Context(), 1600); err != nil {
		t.Fatal(err)
	}
	if now := g.count(); now != before {
		t.Errorf("%d ids were asked for although no broker holds a mirrored one", now-before)
	}
}

// TestBrokerThatWasAwayUsesUpItsIDs: a broker that was fenced at the stop keeps its blocks; it is told of, and settled when it is back. One that began a new life is asked again.
func TestBrokerThatWasAwayUsesUpItsIDs(t *testing.T) {
	g := giving(t, 1, 2)
	p := g.f.d.producers
	g.f.fence(2, 20, true)
	g.f.seen()
	for range 2 {
		if err := p.settle(t.Context(), 1500); err != nil {
			t.Fatal(err)
		}
	}
	if one, two := g.lowest(1), g.lowest(2); one <= 1500 || two != 1000 {
		t.Fatalf("broker 1 gives out %d and broker 2, which is fenced, %d", one, two)
	}
	if len(g.notices) != 1 || !strings.Contains(g.notices[0], "broker 2 ") {
		t.Errorf("told: %q", g.notices)
	}
	<-p.news
	g.f.fence(2, 20, false)
	g.f.seen()
	g.round(t)
	if two := g.lowest(2); two <= 1500 {
		t.Errorf("broker 2 came back and gives out %d", two)
	}
	before := g.count()
	g.held[2] = nil
	g.f.broker(2, 30, false)
	g.f.seen()
	g.round(t)
	if now := g.count(); now != before+1 {
		t.Errorf("a broker that began anew was asked %d times, want once: its blocks are above", now-before)
	}
}

// TestBrokerThatDiesMeanwhileIsNotSettled: a broker that goes away while it uses up its ids is not taken for one that has none when it comes back under the same registration.
func TestBrokerThatDiesMeanwhileIsNotSettled(t *testing.T) {
	g := giving(t, 1)
	p := g.f.d.producers
	var once sync.Once
	g.before = func(context.Context, int32) error {
		once.Do(func() {
			g.f.fence(1, 10, true)
			g.f.seen()
		})
		return errors.New("cut off")
	}
	if err := p.settle(t.Context(), 1500); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.before = nil
	g.mu.Unlock()
	g.f.fence(1, 10, false)
	g.f.seen()
	if err := p.settle(t.Context(), 1500); err != nil {
		t.Fatal(err)
	}
	if lowest := g.lowest(1); lowest <= 1500 {
		t.Errorf("the broker came back and gives out %d", lowest)
	}
}

// TestStopGoesBeforeTheBackground: a stop does not wait for a broker that the background waits for and the stop need not.
func TestStopGoesBeforeTheBackground(t *testing.T) {
	g := giving(t, 1)
	p := g.f.d.producers
	asked := make(chan struct{})
	var once sync.Once
	g.before = func(ctx context.Context, _ int32) (err error) {
		once.Do(func() {
			close(asked)
			<-ctx.Done()
			err = ctx.Err()
		})
		return err
	}
	if err := p.raise(t.Context(), 1500); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.background(t.Context())
	}()
	<-asked
	if err := p.settle(t.Context(), 1500); err != nil || g.lowest(1) <= 1500 {
		t.Errorf("settle: %v, and the broker gives out %d", err, g.lowest(1))
	}
	<-done
	if len(p.news) != 1 {
		t.Error("what the background had begun is not gone on with")
	}
}
