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
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// mortal is what a process writes to: desired state, state store, destination, sink. Each write is a step, and in front of one of them, or behind it, the process dies: none of its writes has an effect from
// then on.
type mortal struct {
	mirror.Control
	on *side

	mu    sync.Mutex
	steps []string
	at    int // step, from 0, at which it dies; below: it lives
	late  bool
	dead  chan struct{} // closed when it has died
	sunk  map[mirror.TopicPartition]map[int64][]byte
	torn  []string // what the sink was told twice, and otherwise

	slow bool // are fetches
	deaf bool // no group is moved
}

func newMortal(on *side) *mortal {
	k := &mortal{Control: mirror.NewMemoryControl(), on: on, at: -1, dead: make(chan struct{}), sunk: map[mirror.TopicPartition]map[int64][]byte{}}
	on.SetHooks(memlog.Hooks{
		Before: func(_ context.Context, c memlog.Call) error { return k.call(c, false) },
		After:  func(_ context.Context, c memlog.Call) error { return k.call(c, true) },
	})
	return k
}

func (k *mortal) call(c memlog.Call, late bool) error {
	k.mu.Lock()
	refused := !late && c.Operation == "Destination.WriteGroupOffsets" && k.deaf
	k.mu.Unlock()
	if refused {
		return errors.New("no group is moved")
	}
	switch c.Operation {
	case "Log.Append", "Log.TruncateTo", "Log.ResetTo", "Log.RaiseStart", "Log.Open", "Log.CloseForWrites", "Log.SettleProducerIDs", "Destination.RaiseLeaderEpochs", "Destination.CreateTopic",
		"Destination.GrowTopic", "Destination.AlterTopicConfigs", "Destination.WriteGroupOffsets":
		return k.step(fmt.Sprintf("%s %s-%d %s", c.Operation, c.Partition.Topic, c.Partition.Partition, c.Group), late)
	}
	return nil
}

// lags is a source that answers a fetch late.
func (k *mortal) lags(ctx context.Context, c memlog.Call) error {
	k.mu.Lock()
	slow := c.Operation == "Fetcher.Fetch" && k.slow
	k.mu.Unlock()
	if slow {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second): // virtual
		}
	}
	return nil
}

// hinder has fetches be slow, or all groups stay where they are, from here on.
func (k *mortal) hinder(slow, deaf bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow, k.deaf = slow, deaf
}

// dies says when.
func (k *mortal) dies(at int, late bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.steps, k.at, k.late = nil, at, late
}

func (k *mortal) isDead() bool {
	select {
	case <-k.dead:
		return true
	default:
		return false
	}
}

func (k *mortal) step(what string, late bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.isDead() {
		return errDead
	}
	if !late {
		k.steps = append(k.steps, what)
	}
	if k.at >= 0 && len(k.steps) > k.at && late == k.late && k.steps[k.at] == what {
		close(k.dead)
		return errDead
	}
	return nil
}

func (k *mortal) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	if err := k.step("desired state", false); err != nil {
		return err
	}
	if err := k.Control.Update(ctx, change); err != nil {
		return err
	}
	return k.step("desired state", true)
}

// Dropped keeps batches by where they begin: whoever dies behind the sink hands it the same ones again.
func (k *mortal) Dropped(_ context.Context, tp mirror.TopicPartition, _, _ int64, b []byte) error {
	if err := k.step("sink", false); err != nil {
		return err
	}
	k.mu.Lock()
	if k.sunk[tp] == nil {
		k.sunk[tp] = map[int64][]byte{}
	}
	for h, one := range batch.All(b) {
		if was, ok := k.sunk[tp][h.BaseOffset]; ok && !bytes.Equal(was, one) {
			k.torn = append(k.torn, fmt.Sprintf("%v: two batches at %d", tp, h.BaseOffset))
		}
		k.sunk[tp][h.BaseOffset] = bytes.Clone(one)
	}
	k.mu.Unlock()
	return k.step("sink", true)
}

// sinkNow is what the sink has now: a process that is dying may still be at it.
func (k *mortal) sinkNow() (sunk map[mirror.TopicPartition]map[int64][]byte, torn []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sunk = map[mirror.TopicPartition]map[int64][]byte{}
	for tp, at := range k.sunk {
		sunk[tp] = maps.Clone(at)
	}
	return sunk, slices.Clone(k.torn)
}

func whole(sunk map[mirror.TopicPartition]map[int64][]byte) map[mirror.TopicPartition][]byte {
	all := map[mirror.TopicPartition][]byte{}
	for tp, at := range sunk {
		for _, base := range slices.Sorted(maps.Keys(at)) {
			all[tp] = append(all[tp], at[base]...)
		}
	}
	return all
}

// process opens the mirror that writes there.
func (k *mortal) process(name string, source mirror.Source) *running {
	store := &oddStore{StateStore: k.on.StateStore(), write: func(ctx context.Context, s statemachine.Session, writes []statemachine.Write) ([]statemachine.WriteResult, error) {
		what := "state"
		for _, w := range writes {
			what += " " + w.State.State.String()
		}
		if err := k.step(what, false); err != nil {
			return nil, err
		}
		results, err := s.Write(ctx, writes)
		if err != nil {
			return nil, err
		}
		return results, k.step(what, true)
	}}
	return open(k.on.t, name, source, k.on, unheard, oneBatch, func(c *mirror.Config) { c.Control, c.Store, c.Sink = k, store, k })
}

// lives brings a process back that died.
func (k *mortal) lives(dead *running, name string, source mirror.Source) *running {
	dead.close()
	k.mu.Lock()
	k.at, k.dead = -1, make(chan struct{})
	k.mu.Unlock()
	return k.process(name, source)
}

// carried runs what is to be carried out until it has ended or the process dies.
func (k *mortal) carried(t *testing.T, carry func(context.Context) error) (died bool, err error) {
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- carry(ctx) }()
	select {
	case <-k.dead:
		stop()
		<-ended
		return true, nil
	case err = <-ended:
		return k.isDead(), err
	}
}

// bystander is at both clusters, with a group in it, and no mirror's.
const bystander = "own"

// rest is what a reader who knows nothing of plans sees beside facts: everything that neither a failover nor a failback is about, and the allocator.
type rest struct {
	next   int64 // producer id
	topics map[string]int32
	raw    []byte // of the bystander
	config map[string]string
	groups map[groupAt]int64 // of all groups in all partitions that are not judged
}

func restOf(s *side) rest {
	s.t.Helper()
	r := rest{topics: map[string]int32{}, raw: s.raw(bystander, 0), groups: map[groupAt]int64{}}
	var err error
	if r.next, err = s.NextProducerID(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if r.config, err = s.TopicConfig(bystander); err != nil {
		s.t.Fatal(err)
	}
	topics, err := s.Topics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, topic := range topics {
		r.topics[topic.Name] = topic.Partitions
	}
	groups, err := s.Groups(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	offsets, err := s.GroupOffsets(s.t.Context(), groups)
	if err != nil {
		s.t.Fatal(err)
	}
	for group, o := range offsets {
		for tp, at := range o.Offsets {
			if !slices.Contains(judged, tp) || !slices.Contains(judgedGroups, group) {
				r.groups[groupAt{group, tp}] = at.Offset
			}
		}
	}
	return r
}

// judgeRest wants the allocator where it has to be, and all else as it was.
func judgeRest(next int64, before, after rest) (wrong []string) {
	if after.next != next {
		wrong = append(wrong, fmt.Sprintf("the next producer id is %d (before: %d), and has to be %d", after.next, before.next, next))
	}
	if !maps.Equal(before.topics, after.topics) {
		wrong = append(wrong, fmt.Sprintf("topics %v, before: %v", after.topics, before.topics))
	}
	if !bytes.Equal(before.raw, after.raw) || !maps.Equal(before.config, after.config) {
		wrong = append(wrong, "a topic that is not mirrored has changed")
	}
	if !maps.Equal(before.groups, after.groups) {
		wrong = append(wrong, fmt.Sprintf("other groups are at %v, before: %v", after.groups, before.groups))
	}
	return wrong
}

// nextBy is where the allocator has to be behind a failover, by the plan.
func nextBy(plan mirror.FailoverPlan, before rest) int64 {
	if highest, ok := plan.HighestProducerID.Value(); ok {
		return max(before.next, highest+1)
	}
	return before.next
}

// judgeFollowed is for a failback, whose plan lists no group and no setting: those of the destination may change in one way only, which is that the mirroring that has begun follows the source.
func judgeFollowed(before, after, source facts) (wrong []string) {
	for _, group := range judgedGroups {
		for _, tp := range judged {
			key := groupAt{group, tp}
			want, known := source.groups[key]
			if !known {
				want, known = before.groups[key]
			}
			if has, there := after.groups[key]; has != want || there != known {
				had, was := before.groups[key]
				wrong = append(wrong, fmt.Sprintf("group %s in %v: %d %v (before: %d %v), and has to be %d %v", group, tp, has, there, had, was, want, known))
			}
		}
	}
	for topic, c := range after.configs {
		want := map[string]string{}
		maps.Copy(want, before.configs[topic])
		maps.Copy(want, source.configs[topic])
		if !maps.Equal(c, want) {
			wrong = append(wrong, fmt.Sprintf("settings of %s: %v, and have to be %v", topic, c, want))
		}
	}
	return wrong
}

// midFailover is what holds at every step of a failover: nothing of the copy is gone, and what it got is among what the plan lists.
func midFailover(plan mirror.FailoverPlan, before, now facts) (wrong []string) {
	for _, p := range plan.Partitions {
		tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		had, has := before.raw[tp], now.raw[tp]
		if !bytes.HasPrefix(has, had) {
			wrong = append(wrong, fmt.Sprintf("%v: lost what was copied", tp))
			continue
		}
		var aborts []string
		for _, x := range p.Aborts {
			aborts = append(aborts, fmt.Sprint(x.ProducerID, ".", x.ProducerEpoch))
		}
		e := endedBy(has[len(had):])
		for _, x := range e.aborts {
			i := slices.Index(aborts, x)
			if i < 0 {
				wrong = append(wrong, fmt.Sprintf("%v: an ABORT of %s, and the plan says %v", tp, x, p.Aborts))
				continue
			}
			aborts = slices.Delete(aborts, i, i+1)
		}
		if e.resets > 1 || e.others > 0 || e.resets == 1 && len(aborts) > 0 {
			wrong = append(wrong, fmt.Sprintf("%v: the log got %+v, and the plan says aborts of %v", tp, e, p.Aborts))
		}
	}
	return wrong
}

// midFailback is what holds at every step of a failback: what was to be kept is there, and what is gone is in the sink.
func midFailback(plan mirror.FailbackPlan, before, now facts, sunk map[mirror.TopicPartition]map[int64][]byte) (wrong []string) {
	for _, tp := range judged {
		keep := endOf(before.raw[tp])
		for _, p := range plan.Partitions {
			if from, ok := p.From.Value(); ok && p.Outcome == mirror.OutcomeDrop && p.Topic == tp.Topic && p.Partition == tp.Partition {
				keep = from
			}
		}
		rest, whole := now.raw[tp], true
		for h, one := range batch.All(before.raw[tp]) {
			if whole = whole && bytes.HasPrefix(rest, one); whole {
				rest = rest[len(one):]
				continue
			}
			if h.BaseOffset < keep || !bytes.Equal(sunk[tp][h.BaseOffset], one) {
				wrong = append(wrong, fmt.Sprintf("%v: the batch at %d is gone, %d is where the plan begins, and the sink has %d bytes of it", tp, h.BaseOffset, keep, len(sunk[tp][h.BaseOffset])))
			}
		}
	}
	return wrong
}

// deathStory is a random history with a dead source at its end, and everything that was seen on the way.
type deathStory struct {
	t        *testing.T
	a, b     *side
	k        *mortal
	m        *running
	ends     map[mirror.TopicPartition]map[time.Time]int64 // of the source
	moved    map[groupAt]time.Time
	doubtful map[groupAt]bool
}

func (s *deathStory) sourceEnd(tp mirror.TopicPartition, at time.Time) (end int64) {
	for when, x := range s.ends[tp] { // an end only grows
		if when.Before(at) {
			end = max(end, x)
		}
	}
	return end
}

func newDeathStory(t *testing.T, rng *rand.Rand) *deathStory {
	s := &deathStory{t: t, a: newSide(t, memlog.Config{ClusterID: "A"}), b: newSide(t, memlog.Config{ClusterID: "B"}), ends: map[mirror.TopicPartition]map[time.Time]int64{}, moved: map[groupAt]time.Time{},
		doubtful: map[groupAt]bool{}}
	for _, x := range []*side{s.a, s.b} {
		x.local(bystander, 1)
		x.fill(bystander, 0, 3)
		for _, group := range append([]string{"alone"}, judgedGroups...) {
			s.must(x.CommitOffset(group, mirror.TopicPartition{Topic: bystander}, mirror.GroupOffset{Offset: 1, LeaderEpoch: mirror.Unknown}))
		}
	}
	for range rng.IntN(6) { // ids of the two clusters overlap, and either may be ahead
		s.b.NewProducerID()
	}
	s.a.local("t", 2)
	s.a.local("u", 1)
	for _, tp := range judged {
		s.ends[tp] = map[time.Time]int64{}
	}
	s.k = newMortal(s.b)
	s.a.SetHooks(memlog.Hooks{Before: s.k.lags})
	s.m = s.k.process("m", s.a.Cluster)
	s.m.start("t", "u")
	s.m.untilInStep()
	s.history(rng, 20+rng.IntN(40))
	return s
}

func (s *deathStory) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// history is transactions, groups on both sides, and pauses; its end comes at any moment, with the copy behind.
func (s *deathStory) history(rng *rand.Rand, n int) {
	producers := make([]*memlog.Producer, 3)
	inside := make([]bool, len(producers))
	for i := range producers {
		producers[i] = s.a.NewProducer(memlog.ProducerOptions{})
	}
	been := map[groupAt]map[int64]bool{}
	look := func() {
		for _, tp := range judged {
			s.ends[tp][time.Now()] = s.a.log(tp.Topic, tp.Partition).End()
		}
		for key, at := range factsOf(s.b).groups {
			if been[key] == nil {
				been[key] = map[int64]bool{}
			}
			been[key][at] = true
		}
	}
	for range n {
		i, tp, group := rng.IntN(len(producers)), judged[rng.IntN(len(judged))], judgedGroups[rng.IntN(len(judgedGroups))]
		p := producers[i]
		switch x := rng.IntN(20); {
		case x < 3:
			s.a.fill(tp.Topic, tp.Partition, 1+rng.IntN(3))
		case x < 7 && !inside[i]:
			s.must(p.Begin())
			inside[i] = true
		case x < 11 && inside[i]:
			_, err := p.Produce(s.t.Context(), tp.Topic, tp.Partition, memlog.Record{Value: []byte("in a transaction")})
			s.must(err)
		case x == 11 && inside[i]:
			s.must(p.Commit(s.t.Context()))
			inside[i] = false
		case x == 12 && inside[i]:
			s.must(p.Abort(s.t.Context()))
			inside[i] = false
		case x < 16:
			s.must(s.a.CommitOffset(group, tp, mirror.GroupOffset{Offset: rng.Int64N(s.a.log(tp.Topic, tp.Partition).End() + 1), LeaderEpoch: mirror.Unknown}))
		case x == 16:
			key, to := groupAt{group, tp}, rng.Int64N(s.b.log(tp.Topic, tp.Partition).End()+1)
			s.moved[key] = time.Now()
			if been[key][to] { // decision 12: that cannot be told from what the mirror has written
				delete(s.moved, key)
				s.doubtful[key] = true
			}
			s.must(s.b.CommitOffset(group, tp, mirror.GroupOffset{Offset: to, LeaderEpoch: mirror.Unknown}))
		case x == 17:
			_, err := s.a.ElectLeader(tp.Topic, tp.Partition)
			s.must(err)
		default:
			time.Sleep(time.Duration(rng.IntN(6000)) * time.Millisecond) // virtual
		}
		look()
		time.Sleep(time.Millisecond)
	}
	// The last moments before the source dies: copies lag, and groups were seen beyond where these end. Some of them catch up behind the last look at groups, and then only the stop can bring these forward;
	// others never do, and their groups must not go on beyond what there is.
	s.k.hinder(rng.IntN(4) > 0, rng.IntN(3) == 0)
	for _, tp := range judged {
		s.a.fill(tp.Topic, tp.Partition, 2+rng.IntN(9))
		for _, group := range judgedGroups {
			if end := s.a.log(tp.Topic, tp.Partition).End(); rng.IntN(2) == 0 {
				s.must(s.a.CommitOffset(group, tp, mirror.GroupOffset{Offset: end - rng.Int64N(min(end, 3)), LeaderEpoch: mirror.Unknown}))
			}
		}
	}
	for range 31 + rng.IntN(30) {
		look()
		time.Sleep(time.Second)
	}
	if rng.IntN(2) == 0 {
		s.k.hinder(false, rng.IntN(2) == 0)
		time.Sleep(time.Duration(10+rng.IntN(8)) * time.Second)
	}
	s.a.SetUnreachable(true)
	time.Sleep(time.Second)
	s.k.hinder(false, false)
	for _, tp := range judged { // nobody copies these
		s.a.fill(tp.Topic, tp.Partition, rng.IntN(3))
	}
	look()
	time.Sleep(time.Minute)
}

// finish has a new process end what a dead one began; it may die as well, and the next one lives.
func (k *mortal) finish(t *testing.T, rng *rand.Rand, m *running, name string, source mirror.Source, carry func(*running, context.Context) error, midway func() []string) *running {
	t.Helper()
	again := rng.IntN(2) == 0
	for {
		if wrong := midway(); len(wrong) > 0 {
			t.Fatalf("where it died: %q", wrong)
		}
		m = k.lives(m, name, source)
		if again {
			k.dies(rng.IntN(8), rng.IntN(2) == 0)
			again = false
		}
		died, err := k.carried(t, func(ctx context.Context) error { return carry(m, ctx) })
		if died {
			continue
		}
		if err != nil {
			m.close()
			t.Fatal(err)
		}
		k.dies(-1, false)
		return m
	}
}

// slips are what a wrong execution may have done besides, each where another part of the judgement looks.
func slips(t *testing.T, s *side) map[string]func() {
	own := mirror.TopicPartition{Topic: bystander}
	commit := func(group string, tp mirror.TopicPartition) {
		at, _ := s.GroupOffset(group, tp)
		at.Offset++
		if err := s.CommitOffset(group, tp, at); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(){
		"another group is moved":         func() { commit("alone", own) },
		"a group is moved elsewhere":     func() { commit("g", own) },
		"a group is made":                func() { commit("new", judged[0]) },
		"another topic is written to":    func() { s.fill(bystander, 0, 1) },
		"a topic is made":                func() { s.local("new", 1) },
		"a producer id is given out":     func() { s.NewProducerID() },
		"another topic's setting is set": func() { s.set(bystander) },
		"a setting is set":               func() { s.set("u") },
	}
}

func (s *side) set(topic string) {
	s.t.Helper()
	if err := s.SetTopicConfig(topic, "retention.ms", "7"); err != nil {
		s.t.Fatal(err)
	}
}

// killed is how often which was met.
type killed struct{ deaths, unfinished, aborts, places, moved, dropped int }

// runKilled is one history whose failover dies at a step. It returns false where the failover had ended before that step came.
func runKilled(t *testing.T, seed uint64, at int, late bool, met *killed) (reached bool) {
	rng := rand.New(rand.NewPCG(seed, 4_5))
	s := newDeathStory(t, rng)
	defer func() { s.m.close() }()
	// Which step it dies at must not decide what happens otherwise, or a seed would be another history at each.
	rng = rand.New(rand.NewPCG(seed, uint64(at)))
	before, others := factsOf(s.b), restOf(s.b)
	plan := mirror.PlanFailover(s.m.Snapshot(), mirror.FailoverOptions{})
	judge := func(plan mirror.FailoverPlan) []string {
		after := factsOf(s.b)
		return slices.Concat(judgeFailover(plan, before, after, s.sourceEnd), judgeGroups(plan, before, after, s.moved, s.doubtful), judgeRest(nextBy(plan, others), others, restOf(s.b)))
	}
	carry := func(m *running, ctx context.Context) error {
		report, err := m.ExecuteFailover(ctx, plan)
		if err != nil {
			err = fmt.Errorf("%w\n%s\n%s", err, plan, report)
		}
		return err
	}
	s.k.dies(at, late)
	died, err := s.k.carried(t, func(ctx context.Context) error { return carry(s.m, ctx) })
	s.k.mu.Lock()
	steps := slices.Clone(s.k.steps)
	s.k.mu.Unlock()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d dies at step %d of %q, late %v\n%s", seed, at, steps, late, plan)
		}
	}()
	if !died {
		s.must(err)
		s.k.dies(-1, false)
	} else {
		met.deaths++
		if len(judge(plan)) > 0 {
			met.unfinished++ // what nobody finishes is found out
		}
		s.m = s.k.finish(t, rng, s.m, "m", s.a.Cluster, carry, func() []string { return midFailover(plan, before, factsOf(s.b)) })
	}
	if wrong := judge(plan); len(wrong) > 0 {
		t.Fatalf("%q", wrong)
	}
	for i, p := range plan.Partitions {
		met.aborts += len(p.Aborts)
		if len(p.Aborts) > 0 {
			wrong := plan
			wrong.Partitions = slices.Clone(plan.Partitions)
			wrong.Partitions[i].Aborts = p.Aborts[1:]
			if len(judge(wrong)) == 0 {
				t.Error("a plan that leaves an abort out passes")
			}
		}
	}
	for i, p := range plan.GroupPlaces {
		key := groupAt{p.Group, mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}}
		place, known := p.Place.Value()
		if p.Stays || !known || s.doubtful[key] || s.moved[key].After(p.Seen) {
			continue
		}
		met.places++
		if before.groups[key] != place {
			met.moved++
			wrong := plan
			wrong.GroupPlaces = slices.Delete(slices.Clone(plan.GroupPlaces), i, i+1)
			if len(judge(wrong)) == 0 {
				t.Error("a plan that leaves out a group which is moved passes")
			}
		}
		wrong := plan
		wrong.GroupPlaces = slices.Clone(plan.GroupPlaces)
		wrong.GroupPlaces[i].Place = mirror.KnownNumber(place + 1)
		if len(judge(wrong)) == 0 {
			t.Error("a plan that has a group go on elsewhere passes")
		}
	}
	if highest, ok := plan.HighestProducerID.Value(); ok && highest >= others.next {
		wrong := plan
		wrong.HighestProducerID = mirror.KnownNumber(highest - 1)
		if len(judge(wrong)) == 0 {
			t.Error("a plan that names too low a producer id passes")
		}
	}
	all := slips(t, s.b)
	names := slices.Sorted(maps.Keys(all))
	name := names[rng.IntN(len(names))]
	all[name]()
	if len(judge(plan)) == 0 {
		t.Errorf("an execution where %s passes", name)
	}
	return died
}

// TestAcceptance4_5AFailoverThatDiesAtEveryStepIsThePlan: whichever write of an execution is the last of its process, before it or behind it, once or twice over: what a new process leaves is what the plan
// of the first one lists, and nothing else.
func TestAcceptance4_5AFailoverThatDiesAtEveryStepIsThePlan(t *testing.T) {
	var met killed
	everyStep(t, 1, func(t *testing.T, seed uint64, at int, late bool) bool { return runKilled(t, seed, at, late, &met) })
	t.Logf("%+v", met)
	if n := int(*seeds); *seed < 0 && n >= 10 && !testing.Short() && (met.deaths < 10*n || met.unfinished < 5*n || met.aborts == 0 || met.moved < 5*n) {
		t.Errorf("that was hardly met: %+v", met)
	}
}

// everyStep runs each seed with a death at every step, until no more steps come; with a stride, at those that are the seed's, so that as many seeds together have every step.
func everyStep(t *testing.T, stride uint64, run func(t *testing.T, seed uint64, at int, late bool) bool) {
	first, n := uint64(0), *seeds
	if testing.Short() { // under the race detector
		n = min(n, 1)
	}
	if *seed >= 0 {
		first, n = uint64(*seed), 1
	}
	for x := first; x < first+n; x++ {
		t.Run(fmt.Sprint("seed ", x), func(t *testing.T) {
			t.Logf("seed: %d", x)
			for _, late := range []bool{false, true} {
				for at, reached := int(x%stride), true; reached && !t.Failed(); at += int(stride) {
					synctest.Test(t, func(t *testing.T) { reached = run(t, x, at, late) })
				}
			}
		})
	}
}

// runHome is one history that is failed over, and whose failback dies at a step.
func runHome(t *testing.T, seed uint64, at int, late bool, met *killed) (reached bool) {
	rng := rand.New(rand.NewPCG(seed, 4_5))
	s := newDeathStory(t, rng)
	defer func() { s.m.close() }()
	plan := mirror.PlanFailover(s.m.Snapshot(), mirror.FailoverOptions{})
	if report, err := s.m.ExecuteFailover(t.Context(), plan); err != nil {
		t.Fatalf("%v\n%s\n%s", err, plan, report)
	}
	s.m.close()
	s.a.SetHooks(memlog.Hooks{})
	s.b.SetHooks(memlog.Hooks{})
	for _, tp := range judged {
		s.b.fill(tp.Topic, tp.Partition, rng.IntN(4))
		if group := judgedGroups[rng.IntN(len(judgedGroups))]; rng.IntN(2) == 0 {
			s.must(s.b.CommitOffset(group, tp, mirror.GroupOffset{Offset: rng.Int64N(s.b.log(tp.Topic, tp.Partition).End() + 1), LeaderEpoch: mirror.Unknown}))
		}
	}
	if rng.IntN(2) == 0 {
		s.must(s.b.SetTopicConfig("t", "retention.ms", "123456"))
	}
	s.a.SetUnreachable(false)
	rng = rand.New(rand.NewPCG(seed, uint64(at)))
	k := newMortal(s.a)
	s.m = k.process("back", s.b.Cluster)
	s.m.until("recorded", func(mirror.Status) bool {
		state, err := k.Read(t.Context())
		return err == nil && len(state.Mirrors) > 0
	})
	back, err := s.m.PlanFailback(t.Context(), "t", "u")
	s.must(err)
	before, others := factsOf(s.a), restOf(s.a)
	judge := func(back mirror.FailbackPlan) []string {
		after := factsOf(s.a)
		sunk, torn := k.sinkNow()
		return slices.Concat(judgeFailback(back, before, after, whole(sunk)), judgeFollowed(before, after, factsOf(s.b)), judgeRest(others.next, others, restOf(s.a)), torn)
	}
	carry := func(m *running, ctx context.Context) error {
		if state, err := k.Read(ctx); err != nil || len(state.Topics) == 0 { // otherwise a new process goes on by itself
			if report, err := m.ExecuteFailback(ctx, back); err != nil {
				return fmt.Errorf("%w\n%s\n%s", err, back, report)
			}
		}
		return m.followed(ctx)
	}
	k.dies(at, late)
	died, err := k.carried(t, func(ctx context.Context) error { return carry(s.m, ctx) })
	k.mu.Lock()
	steps := slices.Clone(k.steps)
	k.mu.Unlock()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d dies at step %d of %q, late %v\n%s", seed, at, steps, late, back)
		}
	}()
	if !died {
		s.must(err)
		k.dies(-1, false)
	} else {
		met.deaths++
		if len(judge(back)) > 0 {
			met.unfinished++
		}
		s.m = k.finish(t, rng, s.m, "back", s.b.Cluster, carry, func() []string {
			now := factsOf(s.a) // first: what is gone by now is in the sink
			sunk, _ := k.sinkNow()
			return midFailback(back, before, now, sunk)
		})
	}
	s.m.untilInStep()
	if wrong := judge(back); len(wrong) > 0 {
		t.Fatalf("%q", wrong)
	}
	for _, tp := range judged {
		if !bytes.Equal(s.a.raw(tp.Topic, tp.Partition), s.b.raw(tp.Topic, tp.Partition)) {
			t.Errorf("%v differs", tp)
		}
	}
	for i, p := range back.Partitions {
		if from, ok := p.From.Value(); ok && p.Outcome == mirror.OutcomeDrop {
			met.dropped++
			wrong := back
			wrong.Partitions = slices.Clone(back.Partitions)
			wrong.Partitions[i].From = mirror.KnownNumber(from + 1)
			if len(judge(wrong)) == 0 {
				t.Error("a plan that names too small a range passes")
			}
		}
	}
	all := slips(t, s.a)
	names := slices.Sorted(maps.Keys(all))
	name := names[rng.IntN(len(names))]
	all[name]()
	if len(judge(back)) == 0 {
		t.Errorf("an execution where %s passes", name)
	}
	return died
}

// followed waits until all is mirrored, and groups and settings, which are followed at intervals, have been too.
func (r *running) followed(ctx context.Context) error {
	rest := 2 * time.Minute
	for {
		s := r.Status()
		if len(s.Topics) == 0 || !each(s, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Mirroring }) {
			rest = 2 * time.Minute
		}
		if rest <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("never mirrored: " + show(s))
		case <-time.After(time.Second): // virtual
			rest -= time.Second
		}
	}
}

// TestAcceptance4_5AFailbackThatDiesAtEveryStepIsThePlan: the same of the way home: the old source has lost what the plan lists, the sink has it, and nothing else has changed but by following the source.
func TestAcceptance4_5AFailbackThatDiesAtEveryStepIsThePlan(t *testing.T) {
	var met killed
	everyStep(t, 5, func(t *testing.T, seed uint64, at int, late bool) bool { return runHome(t, seed, at, late, &met) })
	t.Logf("%+v", met)
	if n := int(*seeds); *seed < 0 && n >= 10 && !testing.Short() && (met.deaths < 10*n || met.unfinished < 5*n || met.dropped == 0) {
		t.Errorf("that was hardly met: %+v", met)
	}
}
