package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// unheard drops the events of a mirror: a random run is told by its seed.
func unheard(c *mirror.Config) { c.OnEvent = nil }

// Whatever replies about one partition say, the one beside it is served, and when they are good again the copy becomes the source's byte for byte. Left out are what
// a copy cannot notice: the bytes of a batch that no checksum covers, and a log start that lies within the log.
func TestRandomReplyDamageHealsAndHarmsNoOtherPartition(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		m := newPair(t, 2, unheard)
		var mu sync.Mutex // of rng and damaged
		var on atomic.Bool
		on.Store(true)
		damaged := 0
		odd := func() int64 {
			return []int64{-1, -2, math.MinInt64, 0, 1, 5, 1 << 40, 1 << 62, math.MaxInt64, int64(rng.IntN(60))}[rng.IntN(10)]
		}
		damage := func(p *mirror.FetchedPartition) {
			switch rng.IntN(10) {
			case 0:
				p.HighWatermark = odd()
			case 1:
				p.LastStable = odd()
			case 2:
				p.Diverging = &mirror.EpochEnd{Epoch: int32(odd()), End: odd()}
			case 3:
				// Never an epoch above the leader's: that a broker knows of a newer leader is believed, and an older one is not listened to again until a person says so (decision 15).
				p.CurrentLeader = &mirror.SourcePartition{Leader: int32(odd()), LeaderEpoch: int32(min(odd(), int64(p.LeaderEpoch)))}
			case 4:
				p.Err = &mirror.SourceError{Code: mirror.SourceCode(rng.IntN(20)), Err: errors.New("odd")}
			case 5:
				p.Err = errors.New("plain")
			case 6:
				p.Records = append(bytes.Clone(p.Records), p.Records...)
			case 7:
				p.Records = bytes.Clone(p.Records)
				for _, b := range mirror.Batches(p.Records) { // b is a part of p.Records
					if at := 16 + rng.IntN(len(b)-16); rng.IntN(2) == 0 {
						b[at] ^= byte(1 << rng.IntN(8))
						break
					}
				}
			case 8:
				p.Records = p.Records[:rng.IntN(len(p.Records)+1)]
			case 9:
				p.LeaderEpoch = int32(odd())
			}
		}
		m.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply fetched) fetched {
			mu.Lock()
			defer mu.Unlock()
			if !on.Load() {
				return reply
			}
			var out fetched
			for _, p := range reply {
				if p.Partition == 0 {
					damaged++
					damage(&p)
					if rng.IntN(10) == 0 {
						out = append(out, p) // twice
					}
					if rng.IntN(10) == 0 {
						p.Partition = int32(rng.IntN(5) + 2)
					}
				}
				out = append(out, p)
			}
			rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out
		}})
		m.start("t")
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n)
		}
		for range 40 {
			m.a.fill("t", 0, 1)
			m.a.fill("t", 1, 1)
			if draw(5) == 0 {
				if _, err := m.a.ElectLeader("t", 0); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Duration(draw(3000)) * time.Millisecond) // virtual
		}
		time.Sleep(40 * time.Second) // virtual
		expect(t, "end of the partition beside", m.one("t", 1).End, 40)
		on.Store(false)
		time.Sleep(30 * time.Minute) // virtual
		mu.Lock()
		if damaged == 0 {
			t.Error("no reply was damaged")
		}
		mu.Unlock()
		m.same(0)
		// The source's fetch session knows nothing of the damage, and names a partition again only when it has changed: the lag shown is right from then on.
		m.a.fill("t", 0, 1)
		m.inStepAndSame()
		expect(t, "end", m.one("t", 0).End, 41)
	})
}

// Random data and control batches, known and unknown: the partition beside is served, the failover ends, and a restart in front of it makes no difference to what the
// log holds.
func TestRandomControlBatchesEndInTheSameFailoverWithAndWithoutARestart(t *testing.T) {
	outcome := func(t *testing.T, log []byte, end int64, restart bool) string {
		control := mirror.NewMemoryControl()
		m := newPair(t, 2, unheard, func(c *mirror.Config) { c.Control = control })
		m.a.fill("t", 1, 3)
		m.a.load("t", 0, 0, 4, records(4, 0, end))
		m.a.SetHooks(everyReply(func(p *mirror.FetchedPartition) {
			if len(p.Records) == 0 {
				return
			}
			skip := 0
			for info, b := range mirror.Batches(log) {
				if info.Last >= p.Offset {
					break
				}
				skip += len(b)
			}
			p.Records = bytes.Clone(log[skip:])
		}))
		m.start("t")
		time.Sleep(20 * time.Second) // virtual
		expect(t, "end of the partition beside", m.one("t", 1).End, 3)
		r := m.running
		if restart {
			r.close()
			r = open(t, "m", m.a.Cluster, m.b, unheard, func(c *mirror.Config) { c.Control = control })
			defer r.close()
			time.Sleep(20 * time.Second) // virtual
		}
		m.a.SetUnreachable(true)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		if report, err := r.Failover(ctx, mirror.FailoverOptions{}); err != nil {
			t.Errorf("restart %v: %v\n%s%s", restart, err, report, show(r.Status()))
		}
		var shape []string
		for info, b := range mirror.Batches(m.b.raw("t", 0)) {
			shape = append(shape, fmt.Sprintf("%d %s %d.%d", info.Base, mirror.Kind(b), info.ProducerID, info.ProducerEpoch))
		}
		return strings.Join(shape, "\n")
	}
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		keys := [][]byte{nil, {}, {0}, {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 1}, {0, 9, 0, 1}, {0, 0, 0x7f, 0xff}, {0, 0, 0, 5}, {0, 0, 0, 6}, {0, 0, 0, 7}, {0xff, 0xff, 0, 0}, {0, 0, 0, 0, 1, 2, 3}}
		values := [][]byte{nil, {}, make([]byte, 6), {0, 0}, {0xff, 0xff, 1, 2, 3, 4}, make([]byte, 100)}
		var log []byte
		var at int64
		for range 12 {
			id, epoch := int64(rng.IntN(3)), int16(rng.IntN(3))
			if rng.IntN(20) == 0 {
				id = []int64{-1, -2, math.MaxInt64, math.MinInt64}[rng.IntN(4)]
			}
			if rng.IntN(20) == 0 {
				epoch = []int16{-1, -2, math.MaxInt16}[rng.IntN(3)]
			}
			if rng.IntN(2) == 0 {
				n := int64(1 + rng.IntN(3))
				log = append(log, data(4, at, at+n-1, int(n), &producer{id: id, epoch: epoch, sequence: int32(rng.IntN(5)) - 1, open: rng.IntN(3) > 0})...)
				at += n
				continue
			}
			log = batch.AppendControl(log, batch.ControlSpec{
				BaseOffset: at, LeaderEpoch: 4, ProducerID: id, ProducerEpoch: epoch, BaseSequence: -1, Transactional: rng.IntN(4) > 0, Timestamp: 1,
				Key: keys[rng.IntN(len(keys))], Value: values[rng.IntN(len(values))],
			})
			at++
		}
		without, with := outcome(t, log, at, false), outcome(t, log, at, true)
		if without == "" || without != with {
			t.Errorf("without a restart\n%s\nwith one\n%s", without, with)
		}
	})
}

// Close comes at any moment, twice at once, while verbs run. It is quick, leaves no goroutine (the bubble checks that), and what is asked of the closed mirror ends.
func TestCloseAtAnyMoment(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B", Replicas: 2})
		a.local("t", 4)
		a.local("u", 1)
		a.fill("t", 0, 10)
		if rng.IntN(3) == 0 {
			a.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
				select {
				case <-time.After(37 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m, err := mirror.Open(ctx, config("m", a.Cluster, b))
		if err != nil {
			t.Fatal(err)
		}
		if rng.IntN(2) == 0 {
			cancel() // it bounds Open only
		}
		if _, err := m.Admin().Start(t.Context(), []string{"t", "u"}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for range 3 {
			wait, verb := time.Duration(rng.IntN(1500))*time.Millisecond, rng.IntN(4)
			running.Go(func() {
				time.Sleep(wait) // virtual
				ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
				defer stop()
				switch verb { // what they answer depends on the moment
				case 0:
					_, _ = m.Failover(ctx, mirror.FailoverOptions{})
				case 1:
					_, _ = m.PlanFailback(ctx, "t")
				case 2:
					_, _ = m.Admin().Pause(ctx, []string{"t"}, mirror.PauseOptions{})
				case 3:
					a.SetUnreachable(true)
				}
			})
		}
		for range 2 {
			wait := time.Duration(rng.IntN(1500)) * time.Millisecond
			running.Go(func() {
				time.Sleep(wait) // virtual
				began := time.Now()
				if err := m.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("close took %s", took)
				}
			})
		}
		running.Wait()
		before := m.Status()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		began := time.Now()
		report, err := m.Failover(ctx, mirror.FailoverOptions{})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a failover of a closed mirror took %s", took)
		}
		open := each(before, func(p mirror.PartitionStatus) bool { return p.Owner == mirror.OwnerOpen })
		if err == nil && !open && len(before.Topics) > 0 {
			t.Errorf("a closed mirror reports a failover that it did not make\n%s%s", report, show(m.Status()))
		}
	})
}

// A failback with elections and records between plan and execution: it makes both logs equal, or refuses and changes nothing. It does not drop a record that the plan
// does not name.
func TestF84RandomFailbackMakesTheLogsEqualOrChangesNothing(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		m := newPair(t, 1, unheard)
		m.a.fill("t", 0, 20)
		m.start("t")
		m.inStepAndSame()
		m.a.SetUnreachable(true)
		m.a.fill("t", 0, rng.IntN(10))
		if report, err := m.Failover(t.Context(), mirror.FailoverOptions{}); err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		m.b.fill("t", 0, rng.IntN(20))
		m.running.close()
		m.a.SetUnreachable(false)
		back := open(t, "back", m.b.Cluster, m.a, unheard, func(c *mirror.Config) { c.Sink = &memorySink{} })
		defer back.close()
		elect := func(s *side) {
			if _, err := s.ElectLeader("t", 0); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) == 0 {
			elect(m.b)
		}
		plan, err := back.PlanFailback(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		grew := 0
		for range rng.IntN(4) {
			switch rng.IntN(4) {
			case 0:
				elect(m.b)
			case 1:
				elect(m.a)
			case 2:
				m.a.fill("t", 0, 1)
				grew++
			case 3:
				m.b.fill("t", 0, 2)
			}
		}
		before := m.a.raw("t", 0)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		report, err := back.ExecuteFailback(ctx, plan)
		after := m.a.raw("t", 0)
		switch {
		case err == nil && grew > 0:
			t.Errorf("%d records came after the plan, and it was carried out\n%s%s", grew, plan, report)
		case err == nil && !bytes.Equal(after, m.b.raw("t", 0)):
			t.Errorf("carried out, and the logs differ\n%s%s", plan, report)
		case err != nil && grew == 0:
			t.Errorf("%v\n%s%s", err, plan, report)
		case err != nil && !bytes.Equal(before, after):
			t.Errorf("refused, but the log has changed: %v\n%s", err, report)
		}
	})
}

// Six people use all verbs at once, with elections and a source that comes and goes. Whatever they did, a failover ends, and the copies' batches follow one another.
func TestF83HammeredVerbsLeaveAMirrorThatFailsOver(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		const partitions = 3
		m := newPair(t, partitions, unheard)
		for p := range int32(partitions) {
			m.a.fill("t", p, 20)
		}
		m.start("t")
		m.inStepAndSame() // a topic that is stopped before it was made has nothing to open
		var people sync.WaitGroup
		for range 6 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), 2))
			people.Go(func() {
				for range 30 {
					ctx, stop := context.WithTimeout(t.Context(), time.Duration(rng.IntN(2000))*time.Millisecond)
					switch rng.IntN(8) { // what they answer depends on the others
					case 0:
						_, _ = m.Admin().Start(ctx, []string{"t"}, mirror.StartOptions{})
					case 1:
						_, _ = m.Admin().Stop(ctx, []string{"t"}, mirror.StopOptions{})
					case 2:
						_, _ = m.Admin().Pause(ctx, []string{"t"}, mirror.PauseOptions{})
					case 3:
						_, _ = m.Admin().Resume(ctx, []string{"t"}, mirror.ResumeOptions{})
					case 4:
						_, _ = m.Failover(ctx, mirror.FailoverOptions{})
					case 5:
						_, _ = m.a.ElectLeader("t", int32(rng.IntN(partitions)))
					case 6:
						m.a.SetUnreachable(rng.IntN(2) == 0)
					case 7:
						m.a.fill("t", int32(rng.IntN(partitions)), 2)
					}
					stop()
					time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond) // virtual
				}
			})
		}
		people.Wait()
		m.a.SetUnreachable(true)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		if report, err := m.Failover(ctx, mirror.FailoverOptions{}); err != nil {
			t.Fatalf("%v\n%s%s", err, report, show(m.Status()))
		}
		for p := range int32(partitions) {
			var next int64
			for info := range mirror.Batches(m.b.raw("t", p)) {
				if info.Base < next {
					t.Errorf("partition %d: the batch at %d begins below %d", p, info.Base, next)
				}
				next = info.Next()
			}
			expect(t, "end", m.b.log("t", p).End(), next)
			m.b.produce("t", p, "a client's")
		}
		synctest.Wait()
	})
}

// A source whose answers to every question are random for a while: nothing of the copy is lost, and mirroring goes on by itself afterwards.
func TestRandomSourceAnswersLoseNothingAndHeal(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 10)
		var mu sync.Mutex
		var on bool
		answered := 0
		oddly := func(change func(pick func(n int) int)) {
			mu.Lock()
			defer mu.Unlock()
			if on && rng.IntN(2) == 0 {
				answered++
				change(rng.IntN)
			}
		}
		src := &oddSource{at: a.Cluster}
		src.topics = func(ctx context.Context, names ...string) ([]mirror.SourceTopic, error) {
			found, err := a.Topics(ctx, names...)
			oddly(func(pick func(int) int) {
				switch pick(3) { // a topic that is not there is no odd answer: said twice, it is deleted (F-31)
				case 0:
					for i := range found {
						found[i].Leaders = nil
					}
				case 1:
					for i := range found {
						found[i].Leaders = []mirror.SourcePartition{{Partition: 0, Leader: int32(pick(5)) - 3, LeaderEpoch: int32(pick(5)) - 3}}
					}
				case 2:
					found, err = nil, errors.New("odd")
				}
			})
			return found, err
		}
		src.offsets = func(ctx context.Context, tps []mirror.TopicPartition) (offsetsOf, error) {
			answer, err := a.Offsets(ctx, tps)
			oddly(func(pick func(int) int) {
				for tp, o := range answer {
					switch pick(4) {
					case 0:
						o.LogStart = []int64{-5, math.MinInt64, 100, 1 << 60}[pick(4)]
					case 1:
						o.HighWatermark = []int64{-1, math.MinInt64, math.MaxInt64, 3}[pick(4)]
					case 2:
						o.LeaderEpoch = []int32{-8, math.MaxInt32, 7}[pick(3)]
					case 3:
						delete(answer, tp)
						continue
					}
					answer[tp] = o
				}
			})
			return answer, err
		}
		m := &pair{running: open(t, "m", src, b, unheard), a: a, b: b}
		defer m.close()
		m.start("t")
		m.inStepAndSame()
		mu.Lock()
		on = true
		mu.Unlock()
		for range 20 {
			if _, err := a.ElectLeader("t", 0); err != nil {
				t.Fatal(err)
			}
			a.fill("t", 0, 1)
			time.Sleep(10 * time.Second) // virtual
			if p := m.one("t", 0); p.Start != 0 || p.End < 10 {
				t.Fatalf("the copy is [%d,%d)%s", p.Start, p.End, show(m.Status()))
			}
		}
		mu.Lock()
		on = false
		if answered == 0 {
			t.Error("no answer was odd")
		}
		mu.Unlock()
		m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 30 })
		m.inStepAndSame()
	})
}
