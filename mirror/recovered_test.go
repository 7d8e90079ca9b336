package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
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

// wrapped is a memlog cluster whose logs are something more.
type wrapped struct {
	*memlog.Cluster
	wrap func(mirror.Log) mirror.Log
}

func (w wrapped) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	log, err := w.Cluster.OpenLog(ctx, tp)
	if err != nil {
		return nil, err
	}
	return w.wrap(log), nil
}

// noted is a log that notes which offsets it was read at.
type noted struct {
	mirror.Log
	mu   sync.Mutex
	at   []int64
	one  bool          // a read gives one batch
	slow time.Duration // what a read takes
}

func (n *noted) Read(ctx context.Context, from int64, most int) ([]byte, error) {
	n.mu.Lock()
	n.at = append(n.at, from)
	n.mu.Unlock()
	if n.slow > 0 {
		select {
		case <-time.After(n.slow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if n.one {
		most = 1
	}
	return n.Log.Read(ctx, from, most)
}

func (n *noted) reads() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.at)
}

// knowing is a log that knows of itself what its batches say, or says what it is told to.
type knowing struct {
	*noted
	says func(mirror.Recovered) (mirror.Recovered, error)
}

func (k *knowing) Recovered(ctx context.Context) (mirror.Recovered, error) {
	known := mirror.Recovered{From: k.End(), HighestProducerID: mirror.Unknown}
	undecided := map[int64]int64{}
	b, err := k.Log.Read(ctx, k.Start(), 1<<30)
	for info := range mirror.Batches(b) {
		if n := len(known.Epochs); n == 0 || known.Epochs[n-1].Epoch < info.LeaderEpoch {
			known.Epochs = append(known.Epochs, mirror.EpochStart{Epoch: info.LeaderEpoch, Start: info.Base})
		}
		known.HighestProducerID = max(known.HighestProducerID, info.ProducerID)
		first, open := undecided[info.ProducerID]
		switch {
		case !info.Transactional:
		case !info.Control && !open:
			undecided[info.ProducerID] = info.Base
		case info.Control && open:
			delete(undecided, info.ProducerID)
			if info.Next() > k.Replicated() {
				known.From = min(known.From, first)
			}
		}
	}
	for _, first := range undecided {
		known.From = min(known.From, first)
	}
	known.From = max(known.From, k.Start())
	if k.says != nil {
		return k.says(known)
	}
	return known, err
}

// restarted copies a topic whose producer 7 has a transaction open since 60 and whose producer 70 had one long ago, ends that mirror, and opens another one on logs that are wrapped.
func restarted(t *testing.T, wrap func(mirror.Log) mirror.Log) *pair {
	t.Helper()
	a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	a.local("t", 1)
	a.load("t", 0, 0, 3,
		data(0, 0, 4, 5, &producer{id: 70, open: true}), marker(0, 5, 70, 0, batch.ControlCommit), records(1, 6, 60), data(2, 60, 64, 5, &producer{id: 7, open: true}), records(3, 65, 80))
	p := &pair{a: a, b: b}
	p.running = open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = b.Control() })
	p.start("t")
	p.inStepAndSame()
	p.running.close()
	p.running = open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control, c.Destination = b.Control(), wrapped{b.Cluster, wrap} })
	t.Cleanup(p.running.close)
	return p
}

// failedOver stops the restarted mirror with a source that is dead and checks what is in the log.
func (p *pair) failedOver() {
	p.t.Helper()
	p.a.SetUnreachable(true)
	report, err := p.Failover(p.t.Context(), mirror.FailoverOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	r := report.Partitions[0]
	expect(p.t, "aborts", r.Aborts, []mirror.AbortMarker{{ProducerID: 7, ProducerEpoch: 0, FirstOffset: 60, Offset: 80}})
	expect(p.t, "final offset, reset, first offset", []int64{r.FinalOffset, r.ResetAt, r.OpensAt}, []int64{80, 81, 82})
	s := p.one("t", 0)
	expect(p.t, "highest producer id", s.HighestProducerID, int64(70))
	expect(p.t, "last epoch of the mirror", s.LME.Epoch, int32(3))
	p.b.produce("t", 0, "written by a client")
	committed := p.b.offsets("t", 0, 65, memlog.ReadCommitted)
	expect(p.t, "last record", committed[len(committed)-1], int64(82))
}

// TestARestartReadsOnlyWhatTheLogDoesNotKnow: the first batch, and from the oldest open transaction on. The stop that follows is that of a log that was read whole.
func TestARestartReadsOnlyWhatTheLogDoesNotKnow(t *testing.T) {
	for name, few := range map[string]bool{"a log that knows": true, "a log that does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log *noted
				m := restarted(t, func(l mirror.Log) mirror.Log {
					log = &noted{Log: l, one: true}
					if few {
						return &knowing{noted: log}
					}
					return log
				})
				m.untilInStep()
				var want []int64
				for info := range mirror.Batches(m.b.raw("t", 0)) {
					if info.Base == 0 || info.Base >= 60 || !few {
						want = append(want, info.Base)
					}
				}
				expect(t, "reads", log.reads(), want)
				p := m.one("t", 0)
				expect(t, "last stable offset, end", []int64{p.LastStable, p.End}, []int64{60, 80})
				m.a.produce("t", 0, "more")
				m.until("copied on", func(mirror.Status) bool { return m.b.log("t", 0).End() == 81 })
				m.same(0)
				// The source loses all from 40 on. Our log parts from it in an epoch of which nothing was read.
				m.a.load("t", 0, 0, 6,
					data(0, 0, 4, 5, &producer{id: 70, open: true}), marker(0, 5, 70, 0, batch.ControlCommit), records(1, 6, 40), records(6, 40, 50))
				m.until("cut and copied on", func(mirror.Status) bool { return bytes.Equal(m.a.raw("t", 0), m.b.raw("t", 0)) })
				expect(t, "nothing open, last epoch", []int64{m.one("t", 0).LastStable, int64(m.one("t", 0).LastEpoch)}, []int64{50, 6})
			})
			synctest.Test(t, func(t *testing.T) {
				m := restarted(t, func(l mirror.Log) mirror.Log {
					if few {
						return &knowing{noted: &noted{Log: l}}
					}
					return l
				})
				m.failedOver()
			})
		})
	}
}

// TestWhatALogSaysOfItselfIsChecked: an answer that cannot be true is told, no answer is waited for; the log is then read as any other.
func TestWhatALogSaysOfItselfIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := restarted(t, func(l mirror.Log) mirror.Log {
			return &knowing{noted: &noted{Log: l}, says: func(k mirror.Recovered) (mirror.Recovered, error) {
				k.From = 81
				return k, nil
			}}
		})
		m.untilInStep()
		told := eventsOf[mirror.LogDoubted](m.running)
		expect(t, "events", len(told), 1)
		expectWords(t, told[0].String(), "t-0", "read from 81 on", "from 0 to 80", "read whole")
		m.failedOver()
	})
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		m := restarted(t, func(l mirror.Log) mirror.Log {
			return &knowing{noted: &noted{Log: l}, says: func(k mirror.Recovered) (mirror.Recovered, error) {
				if !mended.Load() {
					return mirror.Recovered{}, errors.New("no follower answers")
				}
				return k, nil
			}}
		})
		m.untilFailed("t", 0, "cannot be read back", "no follower answers")
		mended.Store(true)
		m.untilInStep()
		m.failedOver()
	})
}

// TestAStopIsSeenWhileALongLogIsRead: a read of 57 batches of a second each is no reason for a stop to wait until it is over, nor for Close.
func TestAStopIsSeenWhileALongLogIsRead(t *testing.T) {
	slow := func(l mirror.Log) mirror.Log { return &noted{Log: l, one: true, slow: time.Second} }
	synctest.Test(t, func(t *testing.T) {
		m := restarted(t, slow)
		time.Sleep(5 * time.Second) // virtual
		asked := time.Now()
		if _, err := m.Admin().Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		m.untilOne("stopping", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopping })
		if waited := time.Since(asked); waited > 15*time.Second {
			t.Errorf("the stop began after %v", waited)
		}
		m.untilOne("stopped", "t", 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Stopped })
		if waited := time.Since(asked); waited > 80*time.Second {
			t.Errorf("the stop ended after %v: what was read was read again", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := restarted(t, slow)
		time.Sleep(5 * time.Second) // virtual
		asked := time.Now()
		m.running.close()
		if waited := time.Since(asked); waited > 2*time.Second {
			t.Errorf("Close took %v", waited)
		}
	})
}
