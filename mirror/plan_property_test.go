package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// facts are what a reader of raw logs sees, who knows nothing of mirrors and plans.
type facts struct {
	raw     map[mirror.TopicPartition][]byte
	configs map[string]map[string]string
	groups  map[groupAt]int64 // committed offsets
}

type groupAt struct {
	group string
	tp    mirror.TopicPartition
}

var judgedGroups = []string{"g", "h"}

var judged = []mirror.TopicPartition{{Topic: "t", Partition: 0}, {Topic: "t", Partition: 1}, {Topic: "u", Partition: 0}}

func factsOf(s *side) facts {
	s.t.Helper()
	f := facts{map[mirror.TopicPartition][]byte{}, map[string]map[string]string{}, map[groupAt]int64{}}
	for _, tp := range judged {
		for _, group := range judgedGroups {
			if at, ok := s.GroupOffset(group, tp); ok {
				f.groups[groupAt{group, tp}] = at.Offset
			}
		}
		f.raw[tp] = s.raw(tp.Topic, tp.Partition)
		c, err := s.TopicConfig(tp.Topic)
		if err != nil {
			s.t.Fatal(err)
		}
		f.configs[tp.Topic] = c
	}
	return f
}

func endOf(raw []byte) (end int64) {
	for h := range batch.All(raw) {
		end = h.NextOffset()
	}
	return end
}

// ended is what was appended to a log: ABORTs by producer id and epoch, resets, and how many batches of other kinds.
type ended struct {
	aborts []string
	resets int
	others int
	first  int64
}

func endedBy(tail []byte) (e ended) {
	e.first = -1
	for h, one := range batch.All(tail) {
		if e.first < 0 {
			e.first = h.BaseOffset
		}
		c, err := batch.ReadControl(one, &h)
		switch {
		case !h.Control() || err != nil:
			e.others++
		case c.Type == batch.ControlAbort:
			e.aborts = append(e.aborts, fmt.Sprint(h.ProducerID, ".", h.ProducerEpoch))
		case c.Type == batch.ControlMirrorPIDReset:
			e.resets++
		default:
			e.others++
		}
	}
	slices.Sort(e.aborts)
	return e
}

// judgeFailover compares what was done with the plan, by raw logs alone: their difference has to be what the plan lists and nothing else, and what the source had when the plan says it was seen is either
// in the copy or in the plan's loss. sourceEnd is where the source's log ended at a moment.
func judgeFailover(plan mirror.FailoverPlan, before, after facts, sourceEnd func(mirror.TopicPartition, time.Time) int64) (wrong []string) {
	say := func(tp mirror.TopicPartition, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%v: ", tp)+fmt.Sprintf(format, args...))
	}
	for _, tp := range judged {
		i := slices.IndexFunc(plan.Partitions, func(p mirror.FailoverPartition) bool { return p.Topic == tp.Topic && p.Partition == tp.Partition })
		if i < 0 {
			say(tp, "is not in the plan, and may have been changed")
			continue
		}
		p := plan.Partitions[i]
		had, has := before.raw[tp], after.raw[tp]
		if !bytes.HasPrefix(has, had) {
			say(tp, "lost what was copied")
			continue
		}
		e := endedBy(has[len(had):])
		var aborts []string
		for _, x := range p.Aborts {
			aborts = append(aborts, fmt.Sprint(x.ProducerID, ".", x.ProducerEpoch))
		}
		slices.Sort(aborts)
		if !slices.Equal(e.aborts, aborts) || e.resets != 1 || e.others > 0 {
			say(tp, "the log got %+v, and the plan says aborts of %v", e, aborts)
		}
		if opens, ok := p.OpensAt.Value(); !ok || opens != endOf(has) {
			say(tp, "opens at %d, and the plan says %s", endOf(has), p.OpensAt)
		}
		if end, ok := p.MirrorEnd.Value(); !ok || end > endOf(had) {
			say(tp, "the copy ends at %d, and the plan says %s", endOf(had), p.MirrorEnd)
		}
		loss, known := p.Loss.Offsets.Value()
		if !known && p.SourceSeen.IsZero() {
			continue // it says that it does not know
		}
		if missing := max(0, sourceEnd(tp, p.SourceSeen)-endOf(had)); missing > loss {
			say(tp, "%d offsets that the source had at %s are missing, and the plan says %s", missing, p.SourceSeen.Format(time.TimeOnly), p.Loss)
		}
	}
	for topic, c := range before.configs {
		if !maps.Equal(c, after.configs[topic]) {
			wrong = append(wrong, fmt.Sprintf("settings of %s: %v, before: %v", topic, after.configs[topic], c))
		}
	}
	return wrong
}

// judgeGroups does the same for where groups are at the destination: those that the plan moves are where it says, and all others where they were. What somebody has moved there behind the look that the
// plan rests on stays his. moved is when that was.
func judgeGroups(plan mirror.FailoverPlan, before, after facts, moved map[groupAt]time.Time, doubtful map[groupAt]bool) (wrong []string) {
	for _, group := range judgedGroups {
		for _, tp := range judged {
			key := groupAt{group, tp}
			had, known := before.groups[key]
			has, there := after.groups[key]
			want := fmt.Sprint(had, known)
			for _, p := range plan.GroupPlaces {
				if p.Group == group && p.Topic == tp.Topic && p.Partition == tp.Partition && !p.Stays && !moved[key].After(p.Seen) {
					at, ok := p.Place.Value()
					want = fmt.Sprint(max(at, 0), ok)
				}
			}
			if got := fmt.Sprint(has, there); got != want && !(doubtful[key] && got == fmt.Sprint(had, known)) {
				wrong = append(wrong, fmt.Sprintf("group %s in %v: %s (before: %d %v), and the plan says %s", group, tp, got, had, known, want))
			}
		}
	}
	return wrong
}

// judgeFailback does the same for a failback: what is gone of the old source's logs is exactly what the plan lists, and is in the sink.
func judgeFailback(plan mirror.FailbackPlan, before, after facts, sunk map[mirror.TopicPartition][]byte) (wrong []string) {
	var all int64
	for _, tp := range judged {
		had, has := before.raw[tp], after.raw[tp]
		kept := 0
		var from int64
		for h, one := range batch.All(had) {
			if !bytes.HasPrefix(has[min(kept, len(has)):], one) {
				break
			}
			kept, from = kept+len(one), h.NextOffset()
		}
		i := slices.IndexFunc(plan.Partitions, func(p mirror.FailbackPartition) bool { return p.Topic == tp.Topic && p.Partition == tp.Partition })
		planned, to := endOf(had), endOf(had)
		if i >= 0 && plan.Partitions[i].Outcome == mirror.OutcomeDrop {
			planned, _ = plan.Partitions[i].From.Value()
			to, _ = plan.Partitions[i].To.Value()
		}
		if from != planned || to != endOf(had) {
			wrong = append(wrong, fmt.Sprintf("%v: [%d,%d) is gone, and the plan says [%d,%d)", tp, from, endOf(had), planned, to))
		}
		if !bytes.Equal(sunk[tp], had[kept:]) {
			wrong = append(wrong, fmt.Sprintf("%v: %d bytes are gone, and %d are in the sink", tp, len(had)-kept, len(sunk[tp])))
		}
		all += int64(len(sunk[tp]))
		if i >= 0 && plan.Partitions[i].DropBytes != mirror.KnownNumber(int64(len(sunk[tp]))) {
			wrong = append(wrong, fmt.Sprintf("%v: %d bytes are in the sink, and the plan says %s", tp, len(sunk[tp]), plan.Partitions[i].DropBytes))
		}
	}
	if plan.DropBytes != mirror.KnownNumber(all) {
		wrong = append(wrong, fmt.Sprintf("%d bytes are in the sink, and the plan says %s", all, plan.DropBytes))
	}
	return wrong
}

// partsSink keeps what is dropped of each partition.
type partsSink struct {
	mu   sync.Mutex
	sunk map[mirror.TopicPartition][]byte
}

func (s *partsSink) Dropped(_ context.Context, tp mirror.TopicPartition, _, _ int64, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sunk[tp] = append(s.sunk[tp], b...)
	return nil
}

// TestAcceptance4_5ExecutionIsThePlanForRandomHistories: transactions over several partitions, elections, copies that lag, processes that end at any moment; then the source dies, and a plan is carried out, and
// a failback behind it. Judged by raw logs, settings, where groups are and the allocator of producer ids, before and after. A plan that names too little, or too much, is found out.
func TestAcceptance4_5ExecutionIsThePlanForRandomHistories(t *testing.T) {
	seeded(t, func(t *testing.T, rng *rand.Rand) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 2)
		a.local("u", 1)
		type moment struct {
			at  time.Time
			end int64
		}
		ends := map[mirror.TopicPartition][]moment{}
		note := func() {
			for _, tp := range judged {
				ends[tp] = append(ends[tp], moment{time.Now(), a.log(tp.Topic, tp.Partition).End()})
			}
		}
		sourceEnd := func(tp mirror.TopicPartition, at time.Time) (end int64) {
			for _, m := range ends[tp] {
				if m.at.Before(at) { // what came in the same moment may not have been seen
					end = m.end
				}
			}
			return end
		}
		// A partition that is held back takes no batches: its copy lags, and how far is known.
		var mu sync.Mutex
		held := map[mirror.TopicPartition]bool{}
		b.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if c.Operation == "Log.Append" && held[c.Partition] {
				return errors.New("the disk is slow")
			}
			return nil
		}})
		control := mirror.NewMemoryControl()
		process := func() *running {
			return open(t, "m", a.Cluster, b, unheard, func(c *mirror.Config) { c.Control = control })
		}
		m := process()
		defer func() { m.close() }()
		m.start("t", "u")
		m.untilInStep()
		producers := make([]*memlog.Producer, 3)
		inside := make([]bool, len(producers))
		begin := func(i int) {
			producers[i], inside[i] = a.NewProducer(memlog.ProducerOptions{}), false
		}
		for i := range producers {
			begin(i)
		}
		gone := false
		moved := map[groupAt]time.Time{}
		doubtful := map[groupAt]bool{}
		been := map[groupAt]map[int64]bool{} // where groups were seen at the destination
		history := func(n int) {
			for range n {
				i, tp := rng.IntN(len(producers)), judged[rng.IntN(len(judged))]
				p := producers[i]
				var err error
				switch x := rng.IntN(26); {
				case x >= 20 && x < 24 && !gone:
					err = a.CommitOffset(judgedGroups[rng.IntN(len(judgedGroups))], tp, mirror.GroupOffset{Offset: rng.Int64N(a.log(tp.Topic, tp.Partition).End() + 1), LeaderEpoch: mirror.Unknown})
				case x == 24:
					key := groupAt{judgedGroups[rng.IntN(len(judgedGroups))], tp}
					to := rng.Int64N(b.log(tp.Topic, tp.Partition).End() + 1)
					moved[key] = time.Now()
					if been[key][to] { // who commits just what the mirror has written, or was about to, cannot be told from it (decision 12): it stays, or is moved as the plan says
						delete(moved, key)
						doubtful[key] = true
					}
					err = b.CommitOffset(key.group, tp, mirror.GroupOffset{Offset: to, LeaderEpoch: mirror.Unknown})
				case x < 3:
					a.fill(tp.Topic, tp.Partition, 1+rng.IntN(3))
				case x < 7 && !inside[i]:
					err = p.Begin()
					inside[i] = err == nil
				case x < 13 && inside[i]:
					_, err = p.Produce(t.Context(), tp.Topic, tp.Partition, memlog.Record{Value: []byte("in a transaction")})
				case x < 15 && inside[i]:
					if rng.IntN(3) == 0 {
						err = p.Abort(t.Context())
					} else {
						err = p.Commit(t.Context())
					}
					inside[i] = false
				case x == 15:
					_, err = a.ElectLeader(tp.Topic, tp.Partition)
				case x == 16:
					mu.Lock()
					held[tp] = !held[tp]
					mu.Unlock()
				case x == 17 && !gone:
					m.close()
					m = process()
				default:
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
				if err != nil {
					t.Fatal(err)
				}
				note()
				for key, at := range factsOf(b).groups {
					if been[key] == nil {
						been[key] = map[int64]bool{}
					}
					been[key][at] = true
				}
				time.Sleep(time.Millisecond)
			}
		}
		history(60 + rng.IntN(60))
		a.SetUnreachable(true)
		gone = rng.IntN(4) > 0 // a process that begins now has never seen it
		history(rng.IntN(10))  // nobody copies that
		mu.Lock()
		clear(held) // a stop writes its marks
		mu.Unlock()
		time.Sleep(time.Minute)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		before := factsOf(b)
		plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
		report, err := m.ExecuteFailover(ctx, plan)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, plan, report)
		}
		after := factsOf(b)
		if wrong := judgeFailover(plan, before, after, sourceEnd); len(wrong) > 0 {
			t.Fatalf("%q\n%s\n%s", wrong, plan, report)
		}
		if wrong := judgeGroups(plan, before, after, moved, doubtful); len(wrong) > 0 {
			t.Fatalf("%q\n%s\n%s", wrong, plan, report)
		}
		// Producer ids that are given out behind the stop were not the source's.
		id := b.NewProducerID()
		for tp, raw := range before.raw {
			for h := range batch.All(raw) {
				if h.ProducerID >= id.ID {
					t.Errorf("%v has records of producer %d, and the next id is %d", tp, h.ProducerID, id.ID)
				}
			}
		}
		t.Logf("loss %s, aborts %d", plan.Loss, slices.IndexFunc(plan.Partitions, func(p mirror.FailoverPartition) bool { return len(p.Aborts) > 0 })+1)
		for i, p := range plan.GroupPlaces {
			at, known := p.Place.Value()
			if p.Stays || !known || doubtful[groupAt{p.Group, mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}}] || moved[groupAt{p.Group, mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}}].After(p.Seen) {
				continue
			}
			wrong := plan
			wrong.GroupPlaces = slices.Clone(plan.GroupPlaces)
			wrong.GroupPlaces[i].Place = mirror.KnownNumber(at + 1)
			if len(judgeGroups(wrong, before, after, moved, doubtful)) == 0 {
				t.Error("a plan that has a group go on elsewhere passes")
			}
			wrong.GroupPlaces = slices.Delete(slices.Clone(plan.GroupPlaces), i, i+1)
			if before.groups[groupAt{p.Group, mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}}] != at && len(judgeGroups(wrong, before, after, moved, doubtful)) == 0 {
				t.Error("a plan that leaves out a group which is moved passes")
			}
			t.Logf("group %s in %s-%d was to go on at %d", p.Group, p.Topic, p.Partition, at)
		}
		// A plan that says less, or more, is none.
		for i := range plan.Partitions {
			small := plan
			small.Partitions = slices.Clone(plan.Partitions)
			p := &small.Partitions[i]
			if len(p.Aborts) > 0 {
				p.Aborts = p.Aborts[1:]
				if len(judgeFailover(small, before, after, sourceEnd)) == 0 {
					t.Error("a plan that leaves an abort out passes")
				}
				p.Aborts = plan.Partitions[i].Aborts
			}
			tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			if missing := sourceEnd(tp, p.SourceSeen) - endOf(before.raw[tp]); missing > 0 {
				p.Loss.Offsets = mirror.KnownNumber(missing - 1)
				if len(judgeFailover(small, before, after, sourceEnd)) == 0 {
					t.Error("a plan that names too small a loss passes")
				}
			}
			small.Partitions = slices.Delete(slices.Clone(plan.Partitions), i, i+1)
			if len(judgeFailover(small, before, after, sourceEnd)) == 0 {
				t.Error("a plan that leaves a partition out passes")
			}
		}

		// Home again.
		m.close()
		for _, tp := range judged {
			b.fill(tp.Topic, tp.Partition, rng.IntN(4))
		}
		a.SetUnreachable(false)
		sink := &partsSink{sunk: map[mirror.TopicPartition][]byte{}}
		m = open(t, "back", b.Cluster, a, unheard, func(c *mirror.Config) { c.Sink = sink })
		back, err := m.PlanFailback(t.Context(), "t", "u")
		if err != nil {
			t.Fatal(err)
		}
		before = factsOf(a)
		if done, err := m.ExecuteFailback(ctx, back); err != nil {
			t.Fatalf("%v\n%s\n%s", err, back, done)
		}
		after = factsOf(a)
		if wrong := judgeFailback(back, before, after, sink.sunk); len(wrong) > 0 {
			t.Fatalf("%q\n%s", wrong, back)
		}
		for i, p := range back.Partitions {
			if from, ok := p.From.Value(); ok && p.Outcome == mirror.OutcomeDrop {
				small := back
				small.Partitions = slices.Clone(back.Partitions)
				small.Partitions[i].From = mirror.KnownNumber(from + 1)
				if len(judgeFailback(small, before, after, sink.sunk)) == 0 {
					t.Error("a plan that names too small a range passes")
				}
				small.Partitions[i].From = p.From
				small.Partitions[i].DropBytes = mirror.Number{}
				if len(judgeFailback(small, before, after, sink.sunk)) == 0 {
					t.Error("a plan that does not know how much the sink takes passes")
				}
			}
		}
		for _, tp := range judged {
			if !bytes.Equal(after.raw[tp], b.raw(tp.Topic, tp.Partition)) {
				t.Errorf("%v differs", tp)
			}
		}
	})
}
