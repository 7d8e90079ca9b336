package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// cutSink keeps what it was handed, by partition.
type cutSink struct {
	mu   sync.Mutex
	kept map[mirror.TopicPartition][]keptRange
}

type keptRange struct {
	from, to int64
	bytes    []byte
}

func (s *cutSink) Dropped(_ context.Context, tp mirror.TopicPartition, from, to int64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[mirror.TopicPartition][]keptRange{}
	}
	s.kept[tp] = append(s.kept[tp], keptRange{from, to, bytes.Clone(b)})
	return nil
}

// above are the batches of a raw log from an offset on.
func above(t *testing.T, log []byte, offset int64) []byte {
	t.Helper()
	var out []byte
	for h, whole := range batch.All(log) {
		if h.BaseOffset >= offset {
			out = append(out, whole...)
		}
	}
	return out
}

// below are the batches of a raw log up to an offset.
func below(t *testing.T, log []byte, offset int64) []byte {
	t.Helper()
	return log[:len(log)-len(above(t, log, offset))]
}

func startTorn(t *testing.T, change ...func(*mirror.Config)) (m *running, a, b *side) {
	t.Helper()
	a, b = newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	for name, batches := range half(2) {
		a.local(name, 1)
		a.load(name, 0, 0, 0, batches...)
	}
	m = open(t, "m", a.Cluster, b, change...)
	m.start("orders", "payments")
	m.untilInStep()
	return m, a, b
}

// untilCut waits for the stop, and checks that it has ended in the only vector there is.
func (r *running) untilCut(b *side) {
	r.t.Helper()
	r.until("stopped", func(s mirror.Status) bool {
		return each(s, func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
		})
	})
	expect(r.t, "LMO of orders", r.one("orders", 0).LME.Offset, 6)
	expect(r.t, "LMO of payments", r.one("payments", 0).LME.Offset, 3)
	expect(r.t, "orders is cut", r.one("orders", 0).LME.Cut, true)
	expect(r.t, "payments is cut", r.one("payments", 0).LME.Cut, false)
	expect(r.t, "committed in orders", b.offsets("orders", 0, 0, memlog.ReadCommitted), []int64{5})
	expect(r.t, "committed in payments", b.offsets("payments", 0, 0, memlog.ReadCommitted), []int64{0})
}

// TestTheSinkGetsTheBytesThatAConsistentCutDrops: exactly what the raw log loses, and of a copy that keeps all of it nothing.
func TestTheSinkGetsTheBytesThatAConsistentCutDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &cutSink{}
		m, a, b := startTorn(t, func(c *mirror.Config) { c.Sink = sink })
		defer m.close()
		a.SetUnreachable(true)
		orders, payments := b.raw("orders", 0), b.raw("payments", 0)
		m.stopWithCut(0, "orders", "payments")
		m.untilCut(b)
		tp := mirror.TopicPartition{Topic: "orders"}
		if len(sink.kept) != 1 || len(sink.kept[tp]) != 1 {
			t.Fatalf("kept: %v", sink.kept)
		}
		got := sink.kept[tp][0]
		if got.from != 6 || got.to != 8 || !bytes.Equal(got.bytes, above(t, orders, 6)) {
			t.Errorf("[%d,%d) %x, and not %x", got.from, got.to, got.bytes, above(t, orders, 6))
		}
		if after := b.raw("orders", 0); !bytes.Equal(below(t, after, 6), below(t, orders, 6)) {
			t.Error("below the cut orders is not what it was")
		}
		if after := b.raw("payments", 0); !bytes.HasPrefix(after, payments) {
			t.Error("payments has lost something")
		}
	})
}

// TestAConsistentCutWhoseSinkFailsCutsNothing: and is made when the sink takes what goes.
func TestAConsistentCutWhoseSinkFailsCutsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &failingSink{}
		m, a, b := startTorn(t, func(c *mirror.Config) { c.Sink = sink })
		defer m.close()
		a.SetUnreachable(true)
		orders := b.raw("orders", 0)
		sink.fail(errors.New("no room"))
		if _, err := m.Admin().Stop(t.Context(), []string{"orders", "payments"}, mirror.StopOptions{Torn: mirror.TornCut, CutReaders: true}); err != nil {
			t.Fatal(err)
		}
		m.untilFailed("orders", 0, "no room")
		if !bytes.Equal(b.raw("orders", 0), orders) {
			t.Error("orders was cut although the sink did not take it")
		}
		sink.fail(nil)
		m.untilCut(b)
		expect(t, "what the sink has", sink.kept[mirror.TopicPartition{Topic: "orders"}][0].bytes, above(t, orders, 6))
	})
}

type failingSink struct {
	cutSink
	why error
}

func (s *failingSink) fail(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = why
}

func (s *failingSink) Dropped(ctx context.Context, tp mirror.TopicPartition, from, to int64, b []byte) error {
	s.mu.Lock()
	why := s.why
	s.mu.Unlock()
	if why != nil {
		return why
	}
	return s.cutSink.Dropped(ctx, tp, from, to, b)
}

// TestGroupsGoOnAtAConsistentCut: one that is behind it is put there, one that is before it stays.
func TestGroupsGoOnAtAConsistentCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a, b := startTorn(t)
		defer m.close()
		orders := mirror.TopicPartition{Topic: "orders"}
		a.commit("behind", orders, 8)
		a.commit("before", orders, 5)
		refreshes(2)
		b.at("behind", orders, 8)
		b.at("before", orders, 5)
		a.SetUnreachable(true)
		m.stopWithCut(0, "orders", "payments")
		m.untilCut(b)
		b.at("behind", orders, 6)
		b.at("before", orders, 5)
	})
}

// cutStore makes the write of a cut's vector, and then has its answer lost.
type cutStore struct {
	statemachine.StateStore
	mu     sync.Mutex
	lose   func(context.Context) error // in place of the answer, once; nil: all come back
	writes int                         // of a vector
	sizes  []int                       // how many LMEs were in each
}

type cutSession struct {
	statemachine.Session
	s *cutStore
}

func (s *cutStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return &cutSession{session, s}, err
}

func (s *cutSession) Write(ctx context.Context, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
	results, err := s.Session.Write(ctx, writes)
	ends, cut := 0, false
	for _, w := range writes {
		if w.LME != nil {
			ends++
			cut = cut || w.LME.Cut
		}
	}
	if !cut || err != nil {
		return results, err
	}
	s.s.mu.Lock()
	lose := s.s.lose
	s.s.lose = nil
	s.s.writes++
	s.s.sizes = append(s.s.sizes, ends)
	s.s.mu.Unlock()
	if lose != nil {
		if err := lose(ctx); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// TestALostAnswerToTheVectorOfACutEndsAtTheSame: the vector is written, and the process does not know, or ends before it knows. It is one write, and no other vector comes in its place.
func TestALostAnswerToTheVectorOfACutEndsAtTheSame(t *testing.T) {
	stop := mirror.StopOptions{Torn: mirror.TornCut, CutReaders: true}
	t.Run("and the process goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &cutStore{lose: func(context.Context) error { return errors.New("the answer was lost") }}
			m, a, b := startTorn(t, func(c *mirror.Config) { store.StateStore = c.Store; c.Store = store })
			defer m.close()
			a.SetUnreachable(true)
			if _, err := m.Admin().Stop(t.Context(), []string{"orders", "payments"}, stop); err != nil {
				t.Fatal(err)
			}
			m.untilCut(b)
			expect(t, "LMEs in each write", store.sizes, []int{2, 2})
		})
	})
	for name, without := range map[string]bool{"and the process ends": false, "and the process ends, and so does the wish": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := make(chan struct{})
				store := &cutStore{lose: func(ctx context.Context) error { close(written); <-ctx.Done(); return ctx.Err() }}
				control := mirror.NewMemoryControl()
				m, a, b := startTorn(t, func(c *mirror.Config) { store.StateStore = c.Store; c.Store, c.Control = store, control })
				a.SetUnreachable(true)
				if _, err := m.Admin().Stop(t.Context(), []string{"orders", "payments"}, stop); err != nil {
					t.Fatal(err)
				}
				<-written
				m.close()
				if without { // and what asks for it now does not ask for a cut
					if err := control.Update(t.Context(), func(s *mirror.ControlState) error {
						for i := range s.Topics {
							s.Topics[i].Cut = mirror.CutWish{}
						}
						return nil
					}); err != nil {
						t.Fatal(err)
					}
				}
				next := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
				defer next.close()
				next.untilCut(b)
				expect(t, "LMEs in each write", store.sizes, []int{2})
				report, err := next.Failover(t.Context(), mirror.FailoverOptions{})
				if err != nil || len(report.TornTransactions.Transactions) > 0 {
					t.Errorf("%v\n%s", err, report)
				}
			})
		})
	}
}

// TestADrainComesBeforeAConsistentCut: what the source still gives is copied first, and only what is torn then is cut; copies that are drained already wait, and a drain that ends in between does not hold up the cut.
func TestADrainComesBeforeAConsistentCut(t *testing.T) {
	for name, c := range map[string]struct {
		plain int64 // batches in front of the COMMIT, each of which takes a second
		drain time.Duration
		lmo   int64 // of orders
	}{"that takes all": {plain: 5, drain: time.Minute, lmo: 8}, "that ends": {plain: 40, drain: 5 * time.Second, lmo: 6}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, a, b := startTorn(t, oneBatch)
				defer m.close()
				b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
					if c.Operation == "Log.Append" && c.Partition.Topic == "payments" {
						time.Sleep(time.Second)
					}
					return nil
				}})
				payments := half(2)["payments"]
				for i := range c.plain {
					payments = append(payments, data(0, 3+i, 3+i, 1, nil))
				}
				payments = append(payments, marker(0, 3+c.plain, 7, 2, batch.ControlCommit))
				a.load("payments", 0, 0, 0, payments...)
				m.until("behind", func(s mirror.Status) bool { return one(s, "payments", 0).LagOffsets > 2 })
				began := time.Now()
				if _, err := m.Admin().Stop(t.Context(), []string{"orders", "payments"}, mirror.StopOptions{Torn: mirror.TornCut, CutReaders: true, Drain: c.drain}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(1500 * time.Millisecond)
				if p := m.one("payments", 0); p.State != statemachine.Mirroring {
					t.Fatalf("payments is %s, and not drained", p.State)
				}
				if p := m.one("orders", 0); p.LME != nil {
					t.Fatalf("orders ends at %d before payments is drained", p.LME.Offset)
				}
				m.until("stopped", func(s mirror.Status) bool {
					return each(s, func(p mirror.PartitionStatus) bool {
						return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
					})
				})
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("took %v", took)
				}
				expect(t, "LMO of orders", m.one("orders", 0).LME.Offset, c.lmo)
				switch end := m.one("payments", 0).LME.Offset; {
				case c.lmo == 8 && end != 4+c.plain:
					t.Errorf("payments ends at %d although all of it was drained", end)
				case c.lmo == 6 && (end < 5 || end > 12):
					t.Errorf("payments ends at %d, and not where the drain did", end)
				}
				report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
				if err != nil || len(report.TornTransactions.Transactions) > 0 {
					t.Errorf("%v\n%s", err, report)
				}
			})
		})
	}
}
