package mirror_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txncut"
)

func (r *running) stopWithCut(most int64, topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Stop(r.t.Context(), topics, mirror.StopOptions{Torn: mirror.TornCut, MaxGiveUp: most, CutReaders: true}); err != nil {
		r.t.Fatal(err)
	}
	r.until("stopped", func(s mirror.Status) bool {
		return each(s, func(p mirror.PartitionStatus) bool {
			return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
		})
	})
}

// TestAConsistentCutLeavesNoTransactionTorn: what was committed in one copy and not in the other is aborted in both, what that gives up is told and kept, and groups and clients go on from there.
func TestAConsistentCutLeavesNoTransactionTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, b := tornWorld(t, half(2))
		m.stopWithCut(0, "orders", "payments")
		expect(t, "LMO of orders", m.one("orders", 0).LME.Offset, 6)
		expect(t, "LMO of payments", m.one("payments", 0).LME.Offset, 3)
		expect(t, "committed in orders", b.offsets("orders", 0, 0, memlog.ReadCommitted), []int64{5})
		expect(t, "committed in payments", b.offsets("payments", 0, 0, memlog.ReadCommitted), []int64{0})
		dropped := eventsOf[mirror.RecordsDropped](m)
		if len(dropped) != 1 || dropped[0].From != 6 || dropped[0].To != 8 {
			t.Errorf("dropped: %v", dropped)
		}
		cuts := eventsOf[mirror.CutMade](m)
		if len(cuts) != 1 || cuts[0].Cut.GivenUp != 2 || cuts[0].Cut.Why != "" {
			t.Errorf("cuts: %v", cuts)
		}
		b.produce("orders", 0, "after")
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{})
		if err != nil || len(report.TornTransactions.Transactions) > 0 {
			t.Errorf("%v\n%s", err, report)
		}
	})
}

// TestAConsistentCutThatGivesUpTooMuchIsNotMade: the stop is as it is without one, and says why.
func TestAConsistentCutThatGivesUpTooMuchIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := tornWorld(t, half(2))
		m.stopWithCut(1, "orders", "payments")
		expect(t, "LMO of orders", m.one("orders", 0).LME.Offset, 8)
		cuts := eventsOf[mirror.CutMade](m)
		if len(cuts) != 1 || cuts[0].Cut.GivenUp != 0 {
			t.Fatalf("cuts: %v", cuts)
		}
		expectWords(t, cuts[0].String(), "consistent cut: none", "more than may be given up", "producer 7 epoch 1 in orders-0 at 6")
	})
}

// TestAConsistentCutIsOfAllTopicsOfItsStop: a partition that is told of the stop first does not find the cut decided without the topics that are told of it after it. Which one is first to stand is the
// scheduler's, so there are several tries.
func TestAConsistentCutIsOfAllTopicsOfItsStop(t *testing.T) {
	for n := range 40 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _, _ := tornWorld(t, half(2))
				m.stopWithCut(0, "orders", "payments")
				cuts := eventsOf[mirror.CutMade](m)
				if len(cuts) != 1 || cuts[0].Cut.GivenUp != 2 || cuts[0].Cut.Why != "" {
					t.Errorf("cuts: %v", cuts)
				}
				expect(t, "LMO of orders", m.one("orders", 0).LME.Offset, 6)
				expect(t, "LMO of payments", m.one("payments", 0).LME.Offset, 3)
			})
		})
	}
}

// TestAConsistentCutWaitsForItsPartitionsForABoundedTime: one that does not get there leaves the others with a stop as it is without a cut.
func TestAConsistentCutWaitsForItsPartitionsForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := half(2)
		topics["stuck"] = [][]byte{data(0, 0, 0, 1, nil)}
		m, _, b := tornWorld(t, topics)
		b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Log.Owner" && c.Partition.Topic == "stuck" {
				return fmt.Errorf("no answer")
			}
			return nil
		}})
		if _, err := m.Admin().Stop(t.Context(), []string{"orders", "payments", "stuck"}, mirror.StopOptions{Torn: mirror.TornCut, CutReaders: true}); err != nil {
			t.Fatal(err)
		}
		m.until("the others are stopped", func(s mirror.Status) bool {
			return one(s, "orders", 0).State == statemachine.Stopped && one(s, "payments", 0).State == statemachine.Stopped
		})
		cuts := eventsOf[mirror.CutMade](m)
		if len(cuts) != 1 {
			t.Fatalf("cuts: %v", cuts)
		}
		expectWords(t, cuts[0].String(), "consistent cut: none", "not every partition has come to where it could be cut: stuck-0")
		expect(t, "LMO of orders", m.one("orders", 0).LME.Offset, 8)
	})
}

// TestAConsistentCutIsTakenUpAgainAfterACrash: the process ends at any call on a log or store of the stop, and the next one ends in the same vector.
func TestAConsistentCutIsTakenUpAgainAfterACrash(t *testing.T) {
	for n := range 40 {
		ended := false
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
				for name, batches := range half(2) {
					a.local(name, 1)
					a.load(name, 0, 0, 0, batches...)
				}
				control := mirror.NewMemoryControl()
				m := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
				m.start("orders", "payments")
				m.untilInStep()
				a.SetUnreachable(true)
				var mu sync.Mutex
				calls := 0
				dead := make(chan struct{})
				b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
					mu.Lock()
					calls++
					dies := calls > n
					if calls == n+1 {
						close(dead)
					}
					mu.Unlock()
					if dies { // nothing comes back before the process ends
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}})
				if _, err := m.Admin().Stop(t.Context(), []string{"orders", "payments"}, mirror.StopOptions{Torn: mirror.TornCut, CutReaders: true}); err != nil {
					t.Fatal(err)
				}
				select {
				case <-dead:
				case <-time.After(5 * time.Second):
					ended = true
				}
				m.close()
				b.SetHooks(memlog.Hooks{})
				next := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
				defer next.close()
				next.until("stopped", func(s mirror.Status) bool {
					return each(s, func(p mirror.PartitionStatus) bool {
						return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
					})
				})
				expect(t, "LMO of orders", next.one("orders", 0).LME.Offset, 6)
				expect(t, "LMO of payments", next.one("payments", 0).LME.Offset, 3)
				expect(t, "committed in orders", b.offsets("orders", 0, 0, memlog.ReadCommitted), []int64{5})
				expect(t, "committed in payments", b.offsets("payments", 0, 0, memlog.ReadCommitted), []int64{0})
			})
		})
		if ended {
			break
		}
	}
}

// TestAConsistentCutOfRandomInterleavings: transactions of both versions over several partitions, each copy cut off somewhere. Judged by the bytes of the copies: where a transaction is committed in one copy it
// is aborted in none, and what is given up is what a search over the same copies finds.
func TestAConsistentCutOfRandomInterleavings(t *testing.T) {
	topics := []string{"a", "b", "c"}
	type world map[string][][]byte
	draw := rapid.Custom(func(r *rapid.T) world {
		w := world{}
		ends := map[string]int64{}
		epochs := map[int64]int16{}
		add := func(topic string, b []byte) {
			w[topic] = append(w[topic], b)
			ends[topic]++
		}
		for range rapid.IntRange(1, 12).Draw(r, "transactions") {
			id := rapid.Int64Range(1, 3).Draw(r, "producer")
			wrote := map[string]bool{}
			for range rapid.IntRange(1, 4).Draw(r, "batches") {
				topic := rapid.SampledFrom(topics).Draw(r, "topic")
				add(topic, data(0, ends[topic], ends[topic], 1, &producer{id: id, epoch: epochs[id], open: true}))
				wrote[topic] = true
				if other := rapid.SampledFrom(topics).Draw(r, "beside"); rapid.Bool().Draw(r, "plain") {
					add(other, data(0, ends[other], ends[other], 1, nil))
				}
			}
			kind := rapid.SampledFrom([]batch.ControlType{batch.ControlCommit, batch.ControlCommit, batch.ControlAbort}).Draw(r, "end")
			marked := epochs[id] + rapid.SampledFrom([]int16{0, 1}).Draw(r, "version")
			for _, topic := range topics {
				if wrote[topic] {
					add(topic, marker(0, ends[topic], id, marked, kind))
				}
			}
			epochs[id] = marked
		}
		for _, topic := range topics {
			w[topic] = w[topic][:rapid.IntRange(0, len(w[topic])).Draw(r, "arrived in "+topic)]
		}
		return w
	})
	for seed := range 60 {
		w := draw.Example(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _, b := tornWorld(t, w)
				pieces := func() []txncut.Partition {
					var all []txncut.Partition
					for _, topic := range topics {
						p := m.one(topic, 0)
						end := p.Replicated
						if p.LME != nil {
							end = p.LME.Offset
						}
						reader := txncut.NewReader(0)
						if err := reader.Observe(b.raw(topic, 0)); err != nil {
							t.Fatal(err)
						}
						all = append(all, txncut.Partition{Topic: topic, End: end, Pieces: reader.Pieces(), Complete: true})
					}
					return all
				}
				before := txncut.Cut(pieces(), txncut.Options{})
				m.stopWithCut(0, topics...)
				after := pieces()
				if torn := txncut.Find(after, txncut.Options{}).Torn; len(torn) > 0 {
					t.Errorf("torn: %v", torn)
				}
				for i, p := range after {
					if p.End != before.Partitions[i].Offset {
						t.Errorf("%s ends at %d, not %d", p.Topic, p.End, before.Partitions[i].Offset)
					}
				}
			})
		})
	}
}

// cutBatch is one batch, of one offset, of a history: what it is of the transaction it belongs to.
type cutBatch struct {
	bytes       []byte
	transaction int  // −1: none
	end         byte // 'c' COMMIT, 'a' ABORT, 0 data
}

// cutHistory is what a source had, and which transaction each batch is of: what no copy tells.
type cutHistory struct {
	topics  []string
	logs    map[string][]cutBatch
	v1      bool // some producer is
	arrived [2]map[string]int64
}

// drawCutHistory draws transactions over three topics, and how much has arrived when a plan is made and when it is carried out.
func drawCutHistory(seed uint64) *cutHistory {
	r := rand.New(rand.NewPCG(seed, 7))
	h := &cutHistory{topics: []string{"a", "b", "c"}, logs: map[string][]cutBatch{}}
	epochs := map[int64]int16{}
	open := map[int64]map[string]bool{} // producers' transactions under way, and where they wrote
	named := map[int64]int{}
	count := 0
	add := func(topic string, b []byte, transaction int, end byte) {
		h.logs[topic] = append(h.logs[topic], cutBatch{b, transaction, end})
	}
	versions := []int16{1, 1, 1}
	if r.IntN(4) == 0 {
		versions[r.IntN(3)], h.v1 = 0, true
	}
	for range 24 + r.IntN(16) {
		id := 1 + r.Int64N(3)
		topic := h.topics[r.IntN(3)]
		switch roll := r.IntN(10); {
		case roll < 1:
			at := int64(len(h.logs[topic]))
			add(topic, data(0, at, at, 1, nil), -1, 0)
		case roll < 5 || open[id] == nil:
			if open[id] == nil {
				open[id], named[id] = map[string]bool{}, count
				count++
			}
			wrote := []string{topic}
			if r.IntN(4) > 0 {
				wrote = append(wrote, h.topics[r.IntN(3)])
			}
			for _, topic := range wrote {
				at := int64(len(h.logs[topic]))
				open[id][topic] = true
				add(topic, data(0, at, at, 1, &producer{id: id, epoch: epochs[id], open: true}), named[id], 0)
			}
		default:
			kind, end := batch.ControlCommit, byte('c')
			if r.IntN(4) == 0 {
				kind, end = batch.ControlAbort, 'a'
			}
			marked := epochs[id] + versions[id-1]
			for _, topic := range h.topics {
				if open[id][topic] {
					at := int64(len(h.logs[topic]))
					add(topic, marker(0, at, id, marked, kind), named[id], end)
				}
			}
			epochs[id] = marked
			delete(open, id)
		}
	}
	h.arrived = [2]map[string]int64{{}, {}}
	for _, topic := range h.topics {
		n := len(h.logs[topic])
		first := r.IntN(n + 1)
		if r.IntN(2) == 0 {
			first = n - r.IntN(1+n/4) // it lags little
		}
		h.arrived[0][topic], h.arrived[1][topic] = int64(first), int64(first)
		if seed%3 == 0 {
			h.arrived[1][topic] = int64(first + r.IntN(n+1-first))
		}
	}
	return h
}

// cutOnce is where each copy ends that is cut at the first COMMIT of what is torn at these ends, and at nothing that this tears in its turn.
func (h *cutHistory) cutOnce(arrived map[string]int64) map[string]int64 {
	ends := maps.Clone(arrived)
	torn := h.tornAt(arrived, arrived)
	for _, topic := range h.topics {
		for offset, b := range h.logs[topic][:arrived[topic]] {
			if b.end == 'c' && torn[b.transaction] {
				ends[topic] = min(ends[topic], int64(offset))
			}
		}
	}
	return ends
}

// torn says that at these ends some transaction is committed in one copy and not in another that has received data of it, whether or not they lie below its end.
func (h *cutHistory) torn(ends, arrived map[string]int64) bool {
	return len(h.tornAt(ends, arrived)) > 0
}

// tornAt are the transactions that are torn.
func (h *cutHistory) tornAt(ends, arrived map[string]int64) map[int]bool {
	committed, halves := map[int]bool{}, map[int]bool{}
	for _, topic := range h.topics {
		has, ended := map[int]bool{}, map[int]bool{}
		for offset, b := range h.logs[topic][:arrived[topic]] {
			switch keeps := int64(offset) < ends[topic]; {
			case b.end == 0 && b.transaction >= 0:
				has[b.transaction] = true
			case b.end == 'c' && keeps:
				committed[b.transaction], ended[b.transaction] = true, true
			case b.end == 'a' && keeps:
				ended[b.transaction] = true
			}
		}
		for transaction := range has {
			if !ended[transaction] {
				halves[transaction] = true
			}
		}
	}
	maps.DeleteFunc(halves, func(transaction int, _ bool) bool { return !committed[transaction] })
	return halves
}

// newest is the newest vector at or below ends at which nothing is torn, by trying all of them that differ: between two markers nothing does.
func (h *cutHistory) newest(ends map[string]int64) map[string]int64 {
	candidates := map[string][]int64{}
	for _, topic := range h.topics {
		candidates[topic] = []int64{ends[topic]}
		for offset, b := range h.logs[topic][:ends[topic]] {
			if b.end != 0 {
				candidates[topic] = append(candidates[topic], int64(offset))
			}
		}
	}
	best := map[string]int64{}
	try := map[string]int64{}
	for _, x := range candidates["a"] {
		for _, y := range candidates["b"] {
			for _, z := range candidates["c"] {
				try["a"], try["b"], try["c"] = x, y, z
				if h.torn(try, ends) {
					continue
				}
				for topic, end := range try {
					best[topic] = max(best[topic], end) // of two good vectors the newer end in each is good
				}
			}
		}
	}
	return best
}

func (h *cutHistory) load(a *side, arrived map[string]int64) {
	for _, topic := range h.topics {
		var all [][]byte
		for _, b := range h.logs[topic][:arrived[topic]] {
			all = append(all, b.bytes)
		}
		a.load(topic, 0, 0, 0, all...)
	}
}

// planned plans a failover when what had arrived at first is copied, copies what has come since, and takes the source away.
func (h *cutHistory) planned(t *testing.T, options mirror.FailoverOptions, change ...func(*mirror.Config)) (a, b *side, m *running, plan mirror.FailoverPlan) {
	a, b = newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	for _, topic := range h.topics {
		a.local(topic, 1)
	}
	h.load(a, h.arrived[0])
	m = open(t, "m", a.Cluster, b, change...)
	m.start(h.topics...)
	m.untilInStep()
	plan = mirror.PlanFailover(m.Snapshot(), options)
	h.load(a, h.arrived[1])
	m.until("what has come is copied", func(s mirror.Status) bool {
		return each(s, func(p mirror.PartitionStatus) bool { return p.Replicated == h.arrived[1][p.Topic] })
	})
	a.SetUnreachable(true)
	return a, b, m, plan
}

// TestAcceptance4_7AnExecutionGivesUpNoMoreThanItsPlanSaid: no partition ends below where the plan has it, nor is more given up than may be; no transaction is torn behind a cut, and where none is made the report says why.
// Judged by what the source did, which the copies do not tell, and by trying every vector of ends.
func TestAcceptance4_7AnExecutionGivesUpNoMoreThanItsPlanSaid(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 60
	}
	var tornAtAll, chains, cut, fell, moved, v1 int
	for seed := range seeds {
		h := drawCutHistory(seed)
		options := mirror.FailoverOptions{Torn: mirror.TornCut, CutReaders: true, MaxGiveUp: []int64{0, 0, 0, 2, 5}[seed%5]}
		synctest.Test(t, func(t *testing.T) {
			_, _, m, plan := h.planned(t, options)
			defer m.close()
			report, err := m.ExecuteFailover(t.Context(), plan)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, report)
			}
			planned, was := plan.TornTransactions.Cut, h.torn(h.arrived[0], h.arrived[0])
			ends, lowest, givenUp := map[string]int64{}, map[string]int64{}, int64(0)
			for _, p := range plan.Partitions {
				lowest[p.Topic], _ = p.MirrorEnd.Value()
			}
			for _, c := range planned.Copies {
				lowest[c.Topic] = c.Offset
			}
			for _, p := range report.Partitions {
				ends[p.Topic] = p.FinalOffset
				givenUp += h.arrived[1][p.Topic] - p.FinalOffset
				if p.FinalOffset < lowest[p.Topic] {
					t.Errorf("seed %d: %s ends at %d, and the plan says %d", seed, p.Topic, p.FinalOffset, lowest[p.Topic])
				}
			}
			if planned.Why == "" && !h.v1 {
				for topic, end := range h.newest(h.arrived[0]) {
					if lowest[topic] != end {
						t.Errorf("seed %d: the plan cuts %s at %d, the newest is %d", seed, topic, lowest[topic], end)
					}
				}
			}
			made := report.TornTransactions.Cut
			switch {
			case made == nil:
				t.Errorf("seed %d: the report does not say what was cut\n%s", seed, report)
			case made.Why != "":
				fell++
				expectWords(t, report.String(), "CONSISTENT CUT: none, the copies are stopped as they are: ")
				if givenUp > 0 || made.GivenUp > 0 {
					t.Errorf("seed %d: %d offsets are given up all the same: %s", seed, givenUp, made.Why)
				}
			default:
				if h.torn(ends, h.arrived[1]) || len(report.TornTransactions.Transactions) > 0 {
					t.Errorf("seed %d: torn at %v: %v", seed, ends, report.TornTransactions.Transactions)
				}
				if made.GivenUp != givenUp || options.MaxGiveUp > 0 && givenUp > options.MaxGiveUp {
					t.Errorf("seed %d: %d offsets are given up, %d by the report, at most %d may be", seed, givenUp, made.GivenUp, options.MaxGiveUp)
				}
				if newest := h.newest(h.arrived[1]); !h.v1 && !maps.Equal(newest, ends) {
					t.Errorf("seed %d: cut at %v, the newest is %v", seed, ends, newest)
				}
				if givenUp > 0 {
					cut++
				}
			}
			if was {
				tornAtAll++
			}
			if h.torn(h.cutOnce(h.arrived[0]), h.arrived[0]) {
				chains++
			}
			if h.v1 {
				v1++
			}
			if !maps.Equal(h.arrived[0], h.arrived[1]) {
				moved++
			}
		})
	}
	t.Logf("of %d histories: torn when planned %d, of them chains, where what a cut takes away tears others, %d; with a v1 producer %d; cut %d, without a cut although asked for %d, moved meanwhile %d",
		seeds, tornAtAll, chains, v1, cut, fell, moved)
	if n := int(seeds); tornAtAll < n/5 || chains < n/20 || v1 < n/10 || cut < n/6 || fell < n/20 || moved < n/6 {
		t.Error("too few of something")
	}
}

// TestAcceptance4_7ACutIsTheNewestWhereverTheProcessEnds: it ends at some call on its logs while a plan is carried out, and the next one goes on. The copies end at the newest vector where that keeps within what the
// plan said, else where they ended, and nothing between the two. Judged as TestAcceptance4_7AnExecutionGivesUpNoMoreThanItsPlanSaid, of producers whose copies tell all that there is.
func TestAcceptance4_7ACutIsTheNewestWhereverTheProcessEnds(t *testing.T) {
	const seeds = 80
	var cut, fell, ended int
	for seed := range uint64(seeds) {
		h := drawCutHistory(seed + 1000)
		if h.v1 {
			continue
		}
		options := mirror.FailoverOptions{Torn: mirror.TornCut, CutReaders: true, MaxGiveUp: []int64{0, 0, 0, 2, 5}[seed%5]}
		synctest.Test(t, func(t *testing.T) {
			control := mirror.NewMemoryControl()
			a, b, m, plan := h.planned(t, options, func(c *mirror.Config) { c.Control = control })
			newest, expected, givenUp := h.newest(h.arrived[1]), h.arrived[1], int64(0)
			within := true
			for _, p := range plan.Partitions {
				lowest, _ := p.MirrorEnd.Value()
				for _, c := range plan.TornTransactions.Cut.Copies {
					if c.Topic == p.Topic {
						lowest = c.Offset
					}
				}
				givenUp += h.arrived[1][p.Topic] - newest[p.Topic]
				within = within && newest[p.Topic] >= min(lowest, h.arrived[1][p.Topic])
			}
			if within && (options.MaxGiveUp == 0 || givenUp <= options.MaxGiveUp) {
				expected = newest
			}
			ctx, stop := context.WithCancel(t.Context())
			var mu sync.Mutex
			calls, last := 0, 1+int(seed*7%40)
			b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, _ memlog.Call) error {
				mu.Lock()
				calls++
				dies := calls > last
				if calls == last+1 {
					stop()
				}
				mu.Unlock()
				if dies { // nothing comes back before the process ends
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}})
			if _, err := m.ExecuteFailover(ctx, plan); err != nil {
				ended++
			}
			stop()
			m.close()
			b.SetHooks(memlog.Hooks{})
			next := open(t, "m", a.Cluster, b, func(c *mirror.Config) { c.Control = control })
			defer next.close()
			if wanted, err := control.Read(t.Context()); err != nil || len(wanted.Topics) == 0 || wanted.Topics[0].Cut.Asked.IsZero() { // it has ended before the stop was recorded
				if _, err := next.ExecuteFailover(t.Context(), plan); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
			next.until("stopped", func(s mirror.Status) bool {
				return each(s, func(p mirror.PartitionStatus) bool {
					return p.State == statemachine.Stopped && p.Owner == mirror.OwnerOpen
				})
			})
			ends := map[string]int64{}
			for _, topic := range h.topics {
				lme := next.one(topic, 0).LME
				ends[topic] = lme.Offset
				for header := range batch.All(above(t, b.raw(topic, 0), lme.Offset)) {
					if header.LeaderEpoch <= lme.Epoch {
						t.Errorf("seed %d: %s ends at %d, and has a batch of the source at %d", seed, topic, lme.Offset, header.BaseOffset)
					}
				}
			}
			if !maps.Equal(ends, expected) {
				t.Errorf("seed %d: the copies end at %v, not at %v", seed, ends, expected)
			}
			if maps.Equal(ends, newest) && h.torn(ends, h.arrived[1]) {
				t.Errorf("seed %d: torn at %v", seed, ends)
			}
			switch {
			case !maps.Equal(expected, newest):
				fell++
			case givenUp > 0:
				cut++
			}
		})
	}
	t.Logf("the process ended before the stop did %d times, cut %d, without a cut although asked for %d", ended, cut, fell)
	if ended < seeds/3 || cut < seeds/6 || fell < seeds/20 {
		t.Error("too few of something")
	}
}

// TestACutThatBeginsNothingSaysSo: a stop that is recorded ends as it was asked for, and whoever asks for a cut then is told that it makes none; where no topic is stopped at all nobody says that copies were.
func TestACutThatBeginsNothingSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := tornWorld(t, half(2))
		topics, cut := []string{"orders", "payments"}, mirror.StopOptions{Torn: mirror.TornCut} // no CutReaders: nothing is cut, so nothing is refused
		if _, err := m.Admin().Stop(t.Context(), topics[:1], mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		m.stopWithCut(0, "payments")
		again, err := m.Admin().Stop(t.Context(), topics, cut)
		if err != nil || again.Cut != nil {
			t.Errorf("%v: %+v", err, again.Cut)
		}
		expectWords(t, again.String(), "CONSISTENT CUT: none by this", "1 with a cut, 1 without")
		report, err := m.Failover(t.Context(), mirror.FailoverOptions{Topics: []string{"nowhere"}, Torn: mirror.TornCut})
		if err == nil || report.TornTransactions.Cut != nil {
			t.Errorf("%v\n%s", err, report)
		}
	})
}
