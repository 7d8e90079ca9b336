package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// fencedSource is a source whose brokers keep clients out while the fence is up, each as soon as it has heard of it, and from requests that came in behind that.
type fencedSource struct {
	*side
	mu     sync.Mutex
	up     map[string]time.Time // topic → from when on it is in force
	lag    time.Duration        // until a broker hears of the fence
	slow   func() time.Duration // how long an accepted write takes until it is in the log
	mirror func(memlog.Call) error
}

var errFenced = errors.New("TOPIC_AUTHORIZATION_FAILED")

func newFencedSource(t *testing.T, cfg memlog.Config) *fencedSource {
	s := &fencedSource{side: newSide(t, cfg), up: map[string]time.Time{}}
	s.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
		if strings.HasPrefix(c.Operation, "Source.") {
			s.mu.Lock()
			f := s.mirror
			s.mu.Unlock()
			if f != nil {
				return f(c)
			}
		}
		if c.Operation != "Client.Produce" {
			return nil
		}
		s.mu.Lock()
		since, fenced := s.up[c.Partition.Topic]
		var slow time.Duration
		if s.slow != nil {
			slow = s.slow()
		}
		s.mu.Unlock()
		if fenced && !time.Now().Before(since) {
			return errFenced
		}
		time.Sleep(slow) // virtual
		return nil
	}})
	return s
}

// set changes how the source behaves, under its clients, which are at work.
func (s *fencedSource) set(f func(*fencedSource)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *fencedSource) fenced() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.up)
}

// heard has every broker hear of the fence now.
func (s *fencedSource) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = 0
	for t := range s.up {
		s.up[t] = time.Now()
	}
}

// gateway is the fence of the test.
type gateway struct{ s *fencedSource }

func (g gateway) Raise(ctx context.Context, topics []string) error {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	for _, t := range topics {
		if _, up := g.s.up[t]; !up {
			g.s.up[t] = time.Now().Add(g.s.lag)
		}
	}
	return ctx.Err()
}

func (g gateway) Lower(ctx context.Context, topics []string) error {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	for _, t := range topics {
		delete(g.s.up, t)
	}
	return ctx.Err()
}

func (g gateway) String() string { return "the gateway of the test" }

// applications write to the source all the time, in every way, and keep what was acknowledged.
type applications struct {
	t     *testing.T
	s     *fencedSource
	mu    sync.Mutex
	acked map[mirror.TopicPartition]map[int64]string
	stop  context.CancelFunc
	done  sync.WaitGroup
}

func write(t *testing.T, s *fencedSource, seed uint64, partitions []mirror.TopicPartition) *applications {
	ctx, stop := context.WithCancel(context.Background())
	a := &applications{t: t, s: s, acked: map[mirror.TopicPartition]map[int64]string{}, stop: stop}
	for i := range 6 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		a.done.Go(func() { a.write(ctx, i, rng, partitions) })
	}
	return a
}

func (a *applications) note(tp mirror.TopicPartition, offset int64, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.acked[tp] == nil {
		a.acked[tp] = map[int64]string{}
	}
	a.acked[tp][offset] = value
}

func (a *applications) write(ctx context.Context, who int, rng *rand.Rand, partitions []mirror.TopicPartition) {
	pick := func() mirror.TopicPartition { return partitions[rng.IntN(len(partitions))] }
	idempotent := a.s.NewProducer(memlog.ProducerOptions{})
	transactional := a.s.NewProducer(memlog.ProducerOptions{Transactions: memlog.TransactionVersion(1 + rng.IntN(2))})
	pause := time.Duration(20+rng.IntN(400)) * time.Millisecond
	for n := 0; ctx.Err() == nil; n++ {
		tp, value := pick(), fmt.Sprintf("writer %d, record %d", who, n)
		record := memlog.Record{Value: []byte(value)}
		switch who % 3 {
		case 0: // acks=1
			if at, err := a.s.Produce(ctx, tp.Topic, tp.Partition, record); err == nil {
				a.note(tp, at, value)
			}
		case 1:
			if at, err := idempotent.Produce(ctx, tp.Topic, tp.Partition, record); err == nil {
				a.note(tp, at, value)
			}
		default:
			written := map[mirror.TopicPartition]map[int64]string{}
			if transactional.Begin() != nil {
				a.t.Error("a transaction is open")
			}
			whole := true
			for range 1 + rng.IntN(3) {
				tp := pick()
				at, err := transactional.Produce(ctx, tp.Topic, tp.Partition, record)
				if whole = whole && err == nil; err != nil {
					break
				}
				if written[tp] == nil {
					written[tp] = map[int64]string{}
				}
				written[tp][at] = value
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			}
			if !whole {
				time.Sleep(time.Duration(rng.IntN(20)) * time.Second) // the coordinator's time-out
				if err := transactional.Abort(context.Background()); err != nil {
					a.t.Error(err)
				}
			} else if err := transactional.Commit(context.Background()); err == nil {
				for tp, records := range written {
					for at, value := range records {
						a.note(tp, at, value)
					}
				}
			}
		}
		time.Sleep(pause)
	}
}

func (a *applications) end() {
	a.stop()
	a.done.Wait()
}

// missing are acknowledged records that a raw log does not have where they were acknowledged, or has in a transaction that did not commit.
func (a *applications) missing(at *side) (lost []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for tp, records := range a.acked {
		raw := at.raw(tp.Topic, tp.Partition)
		found := map[int64]string{}
		open := map[int64][]int64{} // producer → offsets
		for rest := raw; len(rest) > 0; {
			h, n, err := batch.Next(rest)
			if err != nil {
				a.t.Fatal(err)
			}
			b := rest[:n]
			rest = rest[n:]
			if h.Control() {
				c, err := batch.ReadControl(b, &h)
				if err != nil {
					a.t.Fatal(err)
				}
				if c.Type == batch.ControlAbort {
					for _, o := range open[h.ProducerID] {
						delete(found, o)
					}
				}
				delete(open, h.ProducerID)
				continue
			}
			read, err := batch.ReadRecords(b, &h)
			if err != nil {
				a.t.Fatal(err)
			}
			for _, r := range read {
				o := h.BaseOffset + int64(r.OffsetDelta)
				found[o] = string(r.Value)
				if h.Transactional() {
					open[h.ProducerID] = append(open[h.ProducerID], o)
				}
			}
		}
		for _, offsets := range open {
			for _, o := range offsets {
				delete(found, o)
			}
		}
		for o, value := range records {
			if found[o] != value {
				lost = append(lost, fmt.Sprintf("%s-%d at %d: %q", tp.Topic, tp.Partition, o, value))
			}
		}
	}
	return lost
}

func (a *applications) acknowledged() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, records := range a.acked {
		n += len(records)
	}
	return n
}

// promoter is one process with its mirror, which may die: nothing of it reaches anybody from then on.
type promoter struct {
	*running
	mirror.Control
	fence mirror.Fence
	dead  atomic.Bool
	kill  context.CancelFunc
	ctx   context.Context

	mu    sync.Mutex
	fault func(point string) (before, after bool) // where it fails, or dies
	dies  bool
	hit   map[string]int
}

var errDead = errors.New("the process is dead")

// at is called in front of an effect, or behind it.
func (p *promoter) at(point string, after bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead.Load() {
		return errDead
	}
	if !after {
		p.hit[point]++
	}
	if p.fault == nil {
		return nil
	}
	if b, a := p.fault(point); b && !after || a && after {
		if p.dies {
			p.dead.Store(true)
			p.kill()
			return errDead
		}
		p.fault = nil // once
		return fmt.Errorf("%s: a fault", point)
	}
	return nil
}

func (p *promoter) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	point := ""
	err := p.Control.Update(ctx, func(s *mirror.ControlState) error {
		before, had := s.Promotion("m")
		if err := change(s); err != nil {
			return err
		}
		after, has := s.Promotion("m")
		switch {
		case !has && had:
			point = "clear"
		case has && (!had || after.Attempt != before.Attempt && after.Step != mirror.PromotionLowering):
			point = "record"
		case has && after.Step != before.Step:
			point = string(after.Step)
		default:
			point = "other"
		}
		if p.dead.Load() {
			return errDead
		}
		if point == "other" {
			return nil
		}
		return p.at(point, false)
	})
	if err == nil && point != "other" {
		err = p.at(point, true)
	}
	return err
}

func (p *promoter) Raise(ctx context.Context, topics []string) error {
	if err := p.at("raise", false); err != nil {
		return err
	}
	if err := p.fence.Raise(ctx, topics); err != nil {
		return err
	}
	return p.at("raise", true)
}

func (p *promoter) Lower(ctx context.Context, topics []string) error {
	if err := p.at("lower", false); err != nil {
		return err
	}
	if err := p.fence.Lower(ctx, topics); err != nil {
		return err
	}
	return p.at("lower", true)
}

func (p *promoter) String() string { return p.fence.String() }

// promotion is a source with applications, a destination, and processes that promote one after the other.
type promotion struct {
	t       *testing.T
	a       *fencedSource
	b       *side
	control mirror.Control
	now     *promoter
	apps    *applications
}

var promoted = []mirror.TopicPartition{{Topic: "t", Partition: 0}, {Topic: "t", Partition: 1}, {Topic: "u", Partition: 0}}

func newPromotion(t *testing.T, seed uint64) *promotion {
	p := &promotion{t: t, a: newFencedSource(t, memlog.Config{ClusterID: "A", Replicas: 2}), b: newSide(t, memlog.Config{ClusterID: "B"}), control: mirror.NewMemoryControl()}
	p.a.local("t", 2)
	p.a.local("u", 1)
	p.open()
	p.now.start("t", "u")
	p.now.untilInStep()
	p.apps = write(t, p.a, seed, promoted)
	t.Cleanup(func() {
		p.apps.end()
		p.now.close()
	})
	time.Sleep(3 * time.Second)
	return p
}

// open begins a process, in place of the one before.
func (p *promotion) open() {
	if p.now != nil {
		p.now.close()
	}
	x := &promoter{Control: p.control, fence: gateway{p.a}, hit: map[string]int{}}
	x.ctx, x.kill = context.WithCancel(context.Background())
	x.running = open(p.t, "m", p.a.Cluster, p.b, func(c *mirror.Config) { c.Control, c.OnEvent = x, nil })
	p.now = x
}

func (p *promotion) promote(change ...func(*mirror.PromoteOptions)) (mirror.PromoteReport, error) {
	o := mirror.PromoteOptions{Fence: p.now, Bound: 3 * time.Minute}
	for _, f := range change {
		f(&o)
	}
	r, err := p.now.Promote(p.now.ctx, o)
	outcome := map[mirror.PromoteOutcome]bool{
		mirror.PromoteProved:      err == nil,
		mirror.PromoteNotProved:   errors.Is(err, mirror.ErrNotProved),
		mirror.PromoteEqual:       errors.Is(err, mirror.ErrNotProved) && r.OnlySlows,
		mirror.PromoteIncomplete:  errors.Is(err, mirror.ErrIncomplete),
		mirror.PromoteGivenUp:     errors.Is(err, mirror.ErrGivenUp) && !r.Stopped,
		mirror.PromoteTakenOver:   errors.Is(err, mirror.ErrOtherPromotion) && !r.Stopped,
		mirror.PromotePartStopped: errors.Is(err, mirror.ErrNoReturn) && !r.Stopped,
		mirror.PromoteUnknown:     err != nil && !r.Stopped && r.FenceUp && !errors.Is(err, mirror.ErrGivenUp) && !errors.Is(err, mirror.ErrOtherPromotion),
		mirror.PromoteRefused:     err != nil && !r.Stopped && len(r.Partitions) == 0,
	}
	dead := err != nil && p.now.dead.Load()
	if !outcome[r.Outcome] && !dead {
		p.t.Errorf("the outcome is %q, and the error %v", r.Outcome, err)
	}
	return r, err
}

// isPromoted checks what a promotion that says PROVED has to be, by raw logs.
func (p *promotion) isPromoted(r mirror.PromoteReport, err error) {
	p.t.Helper()
	if err != nil || !r.Proved || !r.Stopped || !r.FenceUp || p.a.fenced() != 2 {
		p.t.Fatalf("%v\n%s", err, r)
	}
	expectWords(p.t, r.String(), "PROVED: nothing acknowledged at the source is missing")
	time.Sleep(time.Minute) // clients try on
	p.apps.end()
	if lost := p.apps.missing(p.b); len(lost) > 0 {
		p.t.Fatalf("%d acknowledged records are not in the copy: %v\n%s", len(lost), lost[0], r)
	}
	if lost := p.apps.missing(p.a.side); len(lost) > 0 || p.apps.acknowledged() == 0 {
		p.t.Fatalf("%d of %d acknowledged records are not at the source: %v", len(lost), p.apps.acknowledged(), lost)
	}
	for _, tp := range promoted {
		if a, b := p.a.raw(tp.Topic, tp.Partition), p.b.raw(tp.Topic, tp.Partition); !bytes.HasPrefix(b, a) {
			p.t.Fatalf("%v: what the source has is not what the copy begins with", tp)
		}
		p.b.produce(tp.Topic, tp.Partition, "a client of the standby")
	}
	s, err := p.control.Read(p.t.Context())
	if err != nil || len(s.Promotions) > 0 {
		p.t.Fatalf("%v %+v", err, s.Promotions)
	}
	if left, err := s.LeftFences("m"); err != nil || len(left) != 1 || strings.Join(left[0].Topics, " ") != strings.Join(r.Topics, " ") || left[0].Fence != r.Fence {
		p.t.Fatalf("%v: the fence that is up is recorded as %+v", err, left)
	}
}

// goesOn checks that a promotion which was taken back has changed nothing.
func (p *promotion) goesOn() {
	p.t.Helper()
	if n := p.a.fenced(); n > 0 {
		p.t.Fatalf("%d topics are fenced", n)
	}
	s, err := p.control.Read(p.t.Context())
	if err != nil || len(s.Promotions) > 0 {
		p.t.Fatalf("%v %+v", err, s.Promotions)
	}
	before := p.apps.acknowledged()
	time.Sleep(10 * time.Second)
	if p.apps.acknowledged() == before {
		p.t.Fatal("nobody can write to the source")
	}
	p.apps.end()
	for _, tp := range promoted {
		if err := p.a.ReleaseReplica(tp.Topic, tp.Partition, 1); err != nil {
			p.t.Fatal(err)
		}
	}
	p.now.untilInStep()
	for _, tp := range promoted {
		if a, b := p.a.raw(tp.Topic, tp.Partition), p.b.raw(tp.Topic, tp.Partition); !bytes.Equal(a, b) {
			p.t.Fatalf("%v: %d bytes at the source, %d in the copy", tp, len(a), len(b))
		}
		if _, err := p.b.Produce(p.t.Context(), tp.Topic, tp.Partition, memlog.Record{Value: []byte("x")}); !errors.Is(err, &mirror.Error{Code: mirror.ReadOnlyTopic}) {
			p.t.Fatalf("%v is open: %v", tp, err)
		}
	}
}

func TestAcceptance4_1APromotionIsProvedWithWritersAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 1)
		p.a.set(func(s *fencedSource) { s.lag = 2 * time.Second })
		var steps []mirror.PromotionStep
		r, err := p.promote(func(o *mirror.PromoteOptions) {
			o.OnStep = func(x mirror.Promotion) {
				steps = append(steps, x.Step)
				d, err := p.now.Admin().Describe(t.Context())
				if err != nil || !strings.HasPrefix(d.Head, "PROMOTION UNDER WAY: "+string(x.Step)+" of 2 topics since ") || d.Promotion == nil {
					t.Errorf("%v %q", err, d.Head)
				}
				expectWords(t, d.Head, "fence: the gateway of the test", "MIRRORING: 2 topics")
			}
		})
		p.isPromoted(r, err)
		if len(steps) < 2 || steps[0] != mirror.PromotionRaising || steps[1] != mirror.PromotionVerifying {
			t.Errorf("steps %v", steps)
		}
		if r.LastWrite.IsZero() || r.Verified.Before(r.LastWrite.Add(5*time.Second)) {
			t.Errorf("verified %s, and the last write was seen %s", r.Verified, r.LastWrite)
		}
		// Each number of the report has its age.
		for _, x := range r.Partitions {
			if x.SourceSeen.IsZero() || x.SourceEnd != x.FinalOffset {
				t.Errorf("%+v", x)
			}
		}
		h, err := p.now.Admin().History(t.Context())
		if err != nil || len(h) < 3 {
			t.Fatal(h, err)
		}
		expectWords(t, h[len(h)-1].Detail, "proved")
		t.Log(r)
	})
}

// points are where a promotion may fail or die, by name.
var promotionPoints = []string{"record", "raise", string(mirror.PromotionVerifying), string(mirror.PromotionTransactions), string(mirror.PromotionStopping), "clear", "lower", string(mirror.PromotionLowering)}

func TestAcceptance4_1AFaultOrACrashAtEachStepOfAPromotion(t *testing.T) {
	for _, point := range promotionPoints {
		for _, after := range []bool{false, true} {
			for _, dies := range []bool{false, true} {
				for _, abort := range []bool{false, true} {
					name := fmt.Sprintf("%s/after=%v/dies=%v/abort=%v", point, after, dies, abort)
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							p := newPromotion(t, 2)
							p.now.fault = func(at string) (bool, bool) { return at == point && !after, at == point && after }
							p.now.dies = dies
							bound := 3 * time.Minute
							if point == "lower" || point == string(mirror.PromotionLowering) {
								bound = 7 * time.Second // it gives up
								p.a.set(func(s *fencedSource) { s.lag = time.Hour })
							}
							r, err := p.promote(func(o *mirror.PromoteOptions) { o.Bound = bound })
							p.a.heard()
							p.continues(r, err, abort)
						})
					})
				}
			}
		}
	}
}

// continues goes on behind a first attempt, with a new process if that one is dead.
func (p *promotion) continues(r mirror.PromoteReport, err error, abort bool) {
	p.t.Helper()
	p.now.mu.Lock()
	p.now.fault = nil
	p.now.mu.Unlock()
	if p.now.dead.Load() {
		if err == nil {
			p.t.Fatal("a dead process has succeeded")
		}
		p.open()
		// A process that has just begun does not know its partitions yet. It refuses then and changes nothing.
		p.now.until("the partitions are known", func(s mirror.Status) bool {
			return len(s.Topics) > 0 && each(s, func(x mirror.PartitionStatus) bool { return x.State != statemachine.Unknown })
		})
	} else if err == nil {
		p.isPromoted(r, nil)
		return
	} else if errors.Is(err, mirror.ErrGivenUp) && !r.FenceUp {
		if s, err := p.control.Read(p.t.Context()); err != nil || len(s.Promotions) > 0 || p.a.fenced() > 0 {
			p.t.Fatalf("given up, and %v, %d fenced, %v", s.Promotions, p.a.fenced(), err)
		}
	}
	if abort {
		err := p.now.AbortPromotion(p.t.Context(), p.now)
		if err == nil {
			s, readErr := p.control.Read(p.t.Context())
			if w, _ := s.Topic("t"); readErr == nil && strings.HasSuffix(w.MirrorName, ".stopped") { // it had ended before
				p.apps.end()
				if lost := p.apps.missing(p.b); len(lost) > 0 {
					p.t.Fatal(lost)
				}
				return
			}
			p.goesOn()
			return
		}
		if !errors.Is(err, mirror.ErrNoReturn) {
			p.t.Fatal(err)
		}
	}
	r, err = p.promote()
	if errors.Is(err, mirror.ErrOtherPromotion) && strings.Contains(err.Error(), "being given up") {
		if err := p.now.AbortPromotion(p.t.Context(), p.now); err != nil {
			p.t.Fatal(err)
		}
		r, err = p.promote()
	}
	if errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) && strings.Contains(err.Error(), "stopped already") { // it had ended before
		p.apps.end()
		if lost := p.apps.missing(p.b); len(lost) > 0 {
			p.t.Fatal(lost)
		}
		return
	}
	p.isPromoted(r, err)
}

// TestAcceptance4_1AHundredPromotions: writers all the time, replicas that lag, brokers that hear late of the fence, sources that fail, faults and crashes anywhere; twice over, and then to the end
// or taken back.
func TestAcceptance4_1AHundredPromotions(t *testing.T) {
	proved, back := 0, 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				p := newPromotion(t, seed)
				p.a.set(func(s *fencedSource) { s.lag = time.Duration(rng.IntN(4000)) * time.Millisecond })
				if rng.IntN(2) == 0 {
					pauses := rand.New(rand.NewPCG(seed, 9)) // of the clients, under the source's lock
					p.a.set(func(s *fencedSource) {
						s.slow = func() time.Duration { return time.Duration(pauses.IntN(800)) * time.Millisecond }
					})
				}
				if rng.IntN(2) == 0 { // one replica is behind for a while: acks=1 is acknowledged above the high watermark
					tp := promoted[rng.IntN(len(promoted))]
					if err := p.a.HoldReplica(tp.Topic, tp.Partition, 1); err != nil {
						t.Fatal(err)
					}
					release := time.AfterFunc(time.Duration(rng.IntN(30))*time.Second, func() { p.a.ReleaseReplica(tp.Topic, tp.Partition, 1) })
					defer release.Stop()
				}
				if rng.IntN(3) == 0 {
					fails := rand.New(rand.NewPCG(seed, 8))
					sometimes := func(memlog.Call) error {
						p.a.mu.Lock()
						defer p.a.mu.Unlock()
						if fails.IntN(5) == 0 {
							return errors.New("a broker does not answer")
						}
						return nil
					}
					p.a.set(func(s *fencedSource) { s.mirror = sometimes })
				}
				point, after, dies, abort := promotionPoints[rng.IntN(len(promotionPoints))], rng.IntN(2) == 0, rng.IntN(3) > 0, rng.IntN(3) == 0
				if rng.IntN(3) > 0 {
					p.now.fault = func(at string) (bool, bool) { return at == point && !after, at == point && after }
					p.now.dies = dies
				}
				r, err := p.promote(func(o *mirror.PromoteOptions) {
					if rng.IntN(4) == 0 {
						o.Bound = time.Duration(6+rng.IntN(20)) * time.Second
					}
				})
				if abort {
					back++
				}
				if err == nil {
					proved++
				}
				p.a.set(func(s *fencedSource) { s.mirror = nil })
				p.continues(r, err, abort)
			})
		})
	}
	if proved < 20 || back < 20 {
		t.Errorf("%d were proved at once, %d were taken back: too few to say anything", proved, back)
	}
}

// TestAcceptance4_1WithoutAFenceAcknowledgedRecordsAreLost: the same, with nobody kept from writing. It says so each time, and something is lost in some of them.
func TestAcceptance4_1WithoutAFenceAcknowledgedRecordsAreLost(t *testing.T) {
	lost := 0
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			p := newPromotion(t, seed)
			r, err := p.promote(func(o *mirror.PromoteOptions) { o.Fence, o.Unfenced = nil, true })
			if !errors.Is(err, mirror.ErrNotProved) || r.Proved || !r.Stopped || r.FenceUp {
				t.Fatalf("%v\n%s", err, r)
			}
			expectWords(t, r.String(), "NOT PROVED", "there was no fence")
			time.Sleep(time.Second)
			p.apps.end()
			if len(p.apps.missing(p.b)) > 0 {
				lost++
			}
		})
	}
	if lost == 0 {
		t.Error("nothing was lost in any of them: the writers do not write around the stop")
	}
	t.Logf("acknowledged records were lost in %d of 10", lost)
}

// lying is a fence that keeps nobody out.
type lying struct{ mirror.Fence }

func (lying) Raise(context.Context, []string) error { return nil }

func TestAcceptance4_1AFenceThatKeepsNobodyOutIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 3)
		r, err := p.promote(func(o *mirror.PromoteOptions) { o.Fence = lying{p.now} })
		if !errors.Is(err, mirror.ErrGivenUp) || !errors.Is(err, context.DeadlineExceeded) || r.FenceUp || r.Stopped {
			t.Fatalf("%v\n%s", err, r)
		}
		expectWords(t, err.Error(), "the source has not ended at the same offsets")
		if r.Took > 3*time.Minute+time.Second {
			t.Errorf("took %s", r.Took)
		}
		expectWords(t, r.String(), "GIVEN UP: nothing has changed at the destination")
		p.goesOn()
	})
}

func TestAPromotionWaitsForNoSourceBeyondItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 4)
		steps := 0
		r, err := p.promote(func(o *mirror.PromoteOptions) {
			o.Bound = 20 * time.Second
			o.OnStep = func(x mirror.Promotion) {
				if steps++; x.Step == mirror.PromotionVerifying {
					p.a.SetUnreachable(true)
				}
			}
		})
		if !errors.Is(err, mirror.ErrGivenUp) || r.Took > 21*time.Second || steps == 0 {
			t.Fatalf("%v\n%s", err, r)
		}
		p.a.SetUnreachable(false)
		p.goesOn()
	})
}

// ender aborts a transaction of the test's.
type ender struct {
	producer *memlog.Producer
	asked    []mirror.OpenTransaction
}

func (e *ender) AbortTransactions(ctx context.Context, open []mirror.OpenTransaction) error {
	e.asked = append(e.asked, open...)
	return e.producer.Abort(ctx)
}

func TestAcceptance4_1OpenTransactionsAreWaitedForOrAbortedAtTheSource(t *testing.T) {
	for _, aborts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPromotion(t, 5)
			hanging := p.a.NewProducer(memlog.ProducerOptions{})
			if err := hanging.Begin(); err != nil {
				t.Fatal(err)
			}
			at, err := hanging.Produce(t.Context(), "u", 0, memlog.Record{Value: []byte("open")})
			if err != nil {
				t.Fatal(err)
			}
			e := &ender{producer: hanging}
			r, err := p.promote(func(o *mirror.PromoteOptions) {
				if aborts {
					o.AbortTransactions = e
				}
				o.TransactionWait = 30 * time.Second
			})
			if aborts {
				p.isPromoted(r, err)
				if len(e.asked) != 1 || e.asked[0].FirstOffset != at || e.asked[0].ProducerID != hanging.ID().ID || e.asked[0].Topic != "u" {
					t.Errorf("asked to abort %+v", e.asked)
				}
				return
			}
			if !errors.Is(err, mirror.ErrGivenUp) {
				t.Fatalf("%v\n%s", err, r)
			}
			expectWords(t, err.Error(), fmt.Sprintf("u-0 since offset %d of producer %d", at, hanging.ID().ID))
			if err := hanging.Abort(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.goesOn()
		})
	}
}

// nameless is a fence whose name was forgotten: recorded as none, it would stay up unseen after a crash.
type nameless struct{ mirror.Fence }

func (nameless) String() string { return "" }

func TestAPromotionIsRefusedBeforeAnythingHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 6)
		for name, change := range map[string]func(*mirror.PromoteOptions){
			"a promotion needs a Fence":  func(o *mirror.PromoteOptions) { o.Fence = nil },
			"it is one or the other":     func(o *mirror.PromoteOptions) { o.Unfenced = true },
			"give it a name":             func(o *mirror.PromoteOptions) { o.Fence = nameless{o.Fence} },
			"make Bound longer":          func(o *mirror.PromoteOptions) { o.Bound = time.Second },
			"none in this mirror":        func(o *mirror.PromoteOptions) { o.Topics = []string{"t", "other"} },
			"does not fit":               func(o *mirror.PromoteOptions) { o.Intent.Plan = "promote-1-2-3" },
			"needs the source":           func(o *mirror.PromoteOptions) { p.a.SetUnreachable(true) },
			"only what is MIRRORING can": func(o *mirror.PromoteOptions) { p.now.pause("t", "u") },
		} {
			r, err := p.promote(change)
			p.a.SetUnreachable(false)
			if err == nil || !strings.Contains(err.Error(), name) || r.Stopped || r.FenceUp {
				t.Errorf("%s: %v\n%s", name, err, r)
			}
			if s, err := p.control.Read(t.Context()); err != nil || len(s.Promotions) > 0 || p.a.fenced() > 0 {
				t.Fatalf("%s: %v %+v, %d fenced", name, err, s.Promotions, p.a.fenced())
			}
			if st := p.now.Status(); len(st.Topics) == 2 && st.Topics[1].MirrorName == "m.paused" {
				p.now.resume("t", "u")
				p.now.untilInStep()
			}
		}
	})
}

func TestOfTwoPromotionsTheNewerOneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 8)
		p.a.set(func(s *fencedSource) { s.lag = 10 * time.Second })
		first := make(chan error, 1)
		go func() {
			_, err := p.promote()
			first <- err
		}()
		time.Sleep(3 * time.Second)
		r, err := p.promote()
		if err := <-first; !errors.Is(err, mirror.ErrOtherPromotion) || errors.Is(err, mirror.ErrGivenUp) {
			t.Errorf("the first: %v", err)
		}
		if !r.Resumed {
			t.Error("the second has not taken up the first")
		}
		p.isPromoted(r, err)
		if err := p.now.AbortPromotion(t.Context(), p.now); err != nil {
			t.Errorf("nothing is under way: %v", err)
		}
	})
}

func TestAFailoverDuringAPromotionLeavesTheFenceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 9)
		p.a.set(func(s *fencedSource) { s.lag = 10 * time.Second })
		promoted := make(chan error, 1)
		go func() {
			_, err := p.promote()
			promoted <- err
		}()
		time.Sleep(3 * time.Second)
		if _, err := p.now.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatal(err)
		}
		err := <-promoted
		if err == nil || errors.Is(err, mirror.ErrGivenUp) {
			t.Fatalf("%v", err) // what clients wrote between the failover and the fence is at the source only
		}
		if p.a.fenced() != 2 {
			t.Error("the fence is down, and the standby is open")
		}
	})
}

func TestAnAdminElsewherePromotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPromotion(t, 10)
		a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: p.control, States: p.b.StateStore(), Destination: p.b.Cluster, Strict: true,
			OpenSource: func(context.Context, mirror.Settings) (mirror.Source, error) {
				return &oddSourceWithEnds{oddSource{at: p.a.Cluster}}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		o := mirror.PromoteOptions{Fence: p.now}
		if _, err := a.Promote(t.Context(), o); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) || p.a.fenced() > 0 {
			t.Fatalf("without a reason: %v", err)
		}
		plan, err := a.PlanPromotion(t.Context(), o)
		if err != nil || plan.Verb != "promote" || len(plan.Topics) != 2 {
			t.Fatalf("%v %+v", err, plan)
		}
		o.Intent = mirror.Intent{Reason: "planned move", Plan: plan.Plan}
		r, err := a.Promote(t.Context(), o)
		p.isPromoted(r, err)
	})
}

// oddSourceWithEnds also tells where logs end.
type oddSourceWithEnds struct{ oddSource }

func (s *oddSourceWithEnds) LogEnds(ctx context.Context, tps []mirror.TopicPartition) (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
	return s.now().LogEnds(ctx, tps)
}

func TestWithoutLogEndsNothingIsProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFencedSource(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		m := open(t, "m", &oddSource{at: a.Cluster}, b)
		defer m.close()
		m.start("t")
		a.fill("t", 0, 5)
		m.untilInStep()
		r, err := m.Promote(t.Context(), mirror.PromoteOptions{Fence: gateway{a}})
		if !errors.Is(err, mirror.ErrNotProved) || !r.NoLogEnds {
			t.Fatalf("%v\n%s", err, r)
		}
		expectWords(t, r.String(), "NOT PROVED", "acks=1")
	})
}

func TestAPromotionIsStoredAndReadAgain(t *testing.T) {
	control := mirror.NewMemoryControl()
	want := mirror.Promotion{Mirror: "m", Topics: []string{"a", "b"}, Fence: "f", Memory: `{"x":"y"}`, Step: mirror.PromotionDraining, Since: time.Unix(5, 0).UTC(), Began: time.Unix(4, 0).UTC(), Attempt: 3,
		Who: mirror.Operator{Host: "h", User: "u", Client: "c"}, Reason: "why"}
	if err := control.Update(t.Context(), func(s *mirror.ControlState) error {
		s.SetPromotion(mirror.Promotion{Mirror: "m", Step: "old"})
		s.SetPromotion(want)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s, err := control.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Promotion("m"); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	expectWords(t, want.String(), "PROMOTION UNDER WAY: draining of 2 topics since 00:00:05 UTC", "fence: f")
}
