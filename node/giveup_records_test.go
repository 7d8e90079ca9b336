package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestLastMirrorEpochOfAGivenUpPartition: what a failback is to find, by what is recorded of a partition whose copies end at 100 in epoch 7.
func TestLastMirrorEpochOfAGivenUpPartition(t *testing.T) {
	f := kraft.Forced{Partition: mirror.TopicPartition{Topic: "orders"}, Epoch: 7, End: 100}
	state := func(s statemachine.State, episode int32) statemachine.PartitionState {
		r := statemachine.NewPartitionState()
		r.State, r.Episode, r.SourceClusterID, r.SourceTopicID = s, episode, "east", statemachine.TopicID{15: 1}
		return r
	}
	recorded := func(epoch int32, offset int64, episode int32) *statemachine.LastMirrorEpoch {
		return &statemachine.LastMirrorEpoch{Epoch: epoch, Offset: offset, SourceClusterID: "east", SourceTopicID: statemachine.TopicID{15: 1}, Episode: episode}
	}
	open, failed := state(statemachine.Preparing, 3), statemachine.Fail(state(statemachine.Preparing, 3), "x", false)
	open.FoundOpen = true
	again := state(statemachine.Preparing, 3)
	again.Mirrored = true
	for _, x := range []struct {
		name    string
		state   statemachine.PartitionState
		had     *statemachine.LastMirrorEpoch
		want    *statemachine.LastMirrorEpoch
		clients bool
	}{
		{"mirroring", state(statemachine.Mirroring, 2), nil, recorded(7, 100, 2), false},
		{"mirroring again, after a stop", state(statemachine.Mirroring, 3), recorded(4, 50, 2), recorded(7, 100, 3), false},
		{"paused", state(statemachine.Paused, 1), nil, recorded(7, 100, 1), false},
		{"its own stop had come to the record, and markers follow", state(statemachine.Stopping, 2), recorded(7, 97, 2), recorded(7, 97, 2), false},
		{"stopped before, and led again by nobody's doing", state(statemachine.Stopped, 2), recorded(6, 90, 2), recorded(6, 90, 2), false},
		{"a failback that has cut nothing", open, recorded(4, 50, 2), recorded(4, 50, 3), true},
		{"the first failback, that has cut nothing", open, nil, nil, true},
		{"a new start with clients' records, in the middle of its first step", state(statemachine.Preparing, 3), recorded(4, 50, 2), recorded(4, 50, 3), true},
		{"the same, failed", failed, recorded(4, 50, 2), recorded(4, 50, 3), true},
		{"a new start after the cut", state(statemachine.Preparing, 3), recorded(7, 120, 2), recorded(7, 100, 3), false},
		{"a start anew of a mirror whose source topic was recreated", again, recorded(4, 50, 2), recorded(7, 100, 3), false},
	} {
		g := &giveUp{}
		got, clients := g.lastMirrorEpoch(statemachine.Entry{Key: statemachine.Key{Mirror: "m"}, State: x.state, LME: x.had}, f)
		if clients != x.clients || (got == nil) != (x.want == nil) || got != nil && *got != *x.want {
			t.Errorf("%s: %+v (clients' %v), want %+v", x.name, got, clients, x.want)
		}
	}

	// Nothing is recorded but the origin; or the state was deleted, and what an earlier episode recorded was kept.
	g := &giveUp{wanted: mirror.ControlState{Origins: []mirror.TopicOrigin{{Mirror: "m", Topic: "orders", SourceClusterID: "west"}}}}
	e := statemachine.NewEntry(statemachine.Key{Mirror: "m"})
	if got, _ := g.lastMirrorEpoch(e, f); got == nil || *got != (statemachine.LastMirrorEpoch{Epoch: 7, Offset: 100, SourceClusterID: "west"}) {
		t.Errorf("%+v", got)
	}
	e.LME = recorded(4, 50, 2)
	if got, _ := g.lastMirrorEpoch(e, f); got == nil || got.Episode != 3 || got.Offset != 100 || got.SourceClusterID != "west" {
		t.Errorf("%+v", got)
	}
}

// givesUp is a node that is given up, with these topics in mirror dr, all of them MIRRORING.
func givesUp(t *testing.T, topics ...string) (*giveUp, GiveUpPlan) {
	t.Helper()
	log := keyedlog.NewMemory()
	g := &giveUp{cfg: GiveUpConfig{Reason: "it burnt", Operator: mirror.Operator{User: "anna"}}, control: mirror.NewControl(log), store: keyedlog.NewStateStore(log), sessions: map[string]statemachine.Session{}}
	t.Cleanup(g.close)
	plan := GiveUpPlan{NodeID: 9999, Name: "0123"}
	if err := g.control.Update(t.Context(), func(s *mirror.ControlState) error {
		s.Mirrors = []mirror.MirrorEntry{{Name: "dr"}}
		for _, topic := range topics {
			s.Topics = append(s.Topics, mirror.TopicWish{Topic: topic, MirrorName: "dr"})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.wanted, err = g.control.Read(t.Context()); err == nil {
		err = g.load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, topic := range topics {
		x := GivenUp{Mirror: "dr", Forced: kraft.Forced{Partition: mirror.TopicPartition{Topic: topic}, TopicID: mirror.TopicID{15: byte(i + 1)}, Leader: 1, Epoch: 7, End: 100}}
		for _, to := range []statemachine.State{statemachine.Preparing, statemachine.Mirroring} {
			e, _ := g.entry(x.Forced)
			next, err := statemachine.Move(e.State, to)
			if err == nil {
				err = g.write(t.Context(), e, next, nil)
			}
			if err == nil {
				err = g.load(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		plan.Partitions = append(plan.Partitions, x)
	}
	return g, plan
}

// TestGiveUpRecordsWhatItHasOpened: a partition that it refused, as a broker leads it without any Force, and one whose topic was deleted meanwhile are left as they are recorded, with no last mirror
// epoch. Where it ended in a forced partition is kept.
func TestGiveUpRecordsWhatItHasOpened(t *testing.T) {
	g, plan := givesUp(t, "opened", "refused", "deleted")
	plan.Partitions[0].Opened = true
	plan.Partitions[1].Err, plan.Partitions[1].Epoch, plan.Partitions[1].End = errors.New("broker 2 leads it, and no Force has elected it"), -1, 0
	plan.Partitions[2].Err = mirror.ErrUnknownTopic
	if err := g.stopping(t.Context(), plan.Partitions[0].Forced); err != nil { // before it was opened
		t.Fatal(err)
	}
	if err := g.finish(t.Context(), &plan); err != nil {
		t.Fatal(err)
	}
	if err := g.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []statemachine.State{statemachine.Stopped, statemachine.Mirroring, statemachine.Mirroring} {
		e, _ := g.entry(plan.Partitions[i].Forced)
		if e.State.State != want || (e.LME != nil) != (want == statemachine.Stopped) || e.LME != nil && (e.LME.Epoch != 7 || e.LME.Offset != 100) {
			t.Errorf("%v: %s, %+v", plan.Partitions[i].Partition, e.State.State, e.LME)
		}
	}
	history, err := g.control.History(t.Context())
	if err != nil || len(history) != 1 || !slices.Equal(history[0].Topics, []string{"opened"}) || history[0].Who.User != "anna" || history[0].Who.Host == "" || !strings.Contains(history[0].Detail, "1 partitions") {
		t.Errorf("%+v, %v", history, err)
	}
}

// TestGiveUpOfADeletedMirror: what it led is given up all the same. Nothing is wanted of its topics, so there is nothing to record.
func TestGiveUpOfADeletedMirror(t *testing.T) {
	g, _ := givesUp(t)
	if err := g.stop(t.Context(), "gone", []string{"orders"}); err != nil {
		t.Error(err)
	}
	if err := g.stop(ended(t), "gone", []string{"orders"}); err == nil {
		t.Error("nothing is said of wishes that cannot be read")
	}
}

// TestPlanIsNamedByWhatItDoes: another outcome is another name; what stands in the way of a partition with which nothing is done may be said in other words.
func TestPlanIsNamedByWhatItDoes(t *testing.T) {
	base := func() GivenUp {
		return GivenUp{Mirror: "dr", State: statemachine.Mirroring, Recorded: &statemachine.LastMirrorEpoch{Epoch: 7, Offset: 100},
			Forced: kraft.Forced{Partition: mirror.TopicPartition{Topic: "orders"}, Leader: 1, Epoch: 7, End: 100, Aborted: 2, Unasked: []int32{3, 4}, Lacking: map[int32]int64{2: 90}}}
	}
	named := func(change func(*GivenUp)) string {
		x := base()
		change(&x)
		var b strings.Builder
		x.sum(&b)
		return b.String()
	}
	same := named(func(*GivenUp) {})
	if got := named(func(x *GivenUp) { x.Unasked = []int32{4, 3} }); got != same {
		t.Errorf("in another order: %q, %q", got, same)
	}
	for name, change := range map[string]func(*GivenUp){
		"transactions":          func(x *GivenUp) { x.Aborted = -1 },
		"who is not asked":      func(x *GivenUp) { x.Unasked = nil },
		"whose log it is":       func(x *GivenUp) { x.Clients = true },
		"what is recorded":      func(x *GivenUp) { x.Recorded.Offset = 99 },
		"that none is recorded": func(x *GivenUp) { x.Recorded = nil },
		"who lacks what":        func(x *GivenUp) { x.Lacking[2] = 91 },
		"the leader":            func(x *GivenUp) { x.Leader = 2 },
		"a refusal":             func(x *GivenUp) { x.Err = errors.New("dial tcp 127.0.0.1:1 from :40001") },
	} {
		if named(change) == same {
			t.Errorf("%s: the plan has the same name", name)
		}
	}
	refused := func(words string) string {
		return named(func(x *GivenUp) { x.Err, x.Unasked = errors.New(words), []int32{int32(len(words))} })
	}
	if refused("dial tcp 127.0.0.1:1 from :40001") != refused("dial tcp 127.0.0.1:1 from :4") {
		t.Error("the words of a refusal are in the name")
	}
}

// TestGiveUpSaysWhatIsRecorded: where the wishes are recorded and not everything is open, a node that comes back stops the rest.
func TestGiveUpSaysWhatIsRecorded(t *testing.T) {
	_, plan := givesUp(t, "orders", "payments")
	if err := plan.notOpened(); err != nil {
		t.Errorf("nothing is recorded: %v", err)
	}
	plan.Wanted = map[string][]string{"dr": {"orders", "payments"}}
	plan.Partitions[0].Opened = true
	err := plan.notOpened()
	if err == nil || !strings.Contains(err.Error(), "not all of their partitions are open: payments.") || !strings.Contains(err.Error(), "kafka-mirror --start --mirror dr --topics payments") || strings.Contains(err.Error(), "orders") {
		t.Error(err)
	}
	plan.Partitions[1].Opened = true
	if err := plan.notOpened(); err != nil {
		t.Errorf("all is open: %v", err)
	}
}

// TestGiveUpSaysWhatIsOpen: what is open is never said to be not opened, whoever opened it.
func TestGiveUpSaysWhatIsOpen(t *testing.T) {
	_, plan := givesUp(t, "orders", "payments", "refunds")
	for i := range plan.Partitions {
		plan.Partitions[i].Err = errors.New("trouble")
	}
	plan.Wanted = map[string][]string{"dr": {"orders", "payments", "refunds"}}
	plan.Partitions[0].Opened, plan.Partitions[1].Led = true, true
	for _, want := range []string{
		"orders-0 (mirror dr, PREPARING): broker 1 leads it, the mirror ended at 100 in epoch 7; 0 transactions were aborted\n    NOT FINISHED: trouble\n",
		"payments-0 (mirror dr, PREPARING): OPEN, broker 1 leads it; nothing was done with it: trouble\n",
		"refunds-0 (mirror dr, PREPARING): NOT OPENED: trouble\n",
	} {
		if !strings.Contains(plan.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, plan)
		}
	}
	if err := plan.notOpened(); err == nil || !strings.Contains(err.Error(), "are open: refunds.") {
		t.Error(err)
	}
}

// TestGiveUpRecordsNothingBeforeItLooked: where nothing can be opened, as the cluster cannot be looked at or the node lives, nothing is wanted stopped.
func TestGiveUpRecordsNothingBeforeItLooked(t *testing.T) {
	g, plan := givesUp(t, "orders")
	g.cfg.Kraft = kraft.Config{NodeID: 9999, Controllers: []string{"127.0.0.1:1"}, Remember: keyedlog.NewMemory()}
	ctx, stop := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer stop()
	done, err := g.do(ctx, plan)
	if err == nil || done.Wanted != nil || strings.Contains(err.Error(), "wanted stopped") {
		t.Errorf("%+v, %v", done.Wanted, err)
	}
	state, err := g.control.Read(t.Context())
	if w, _ := state.Topic("orders"); err != nil || w.MirrorName != "dr" {
		t.Errorf("%+v is wanted, %v", w, err)
	}
	if history, err := g.control.History(t.Context()); err != nil || len(history) != 0 {
		t.Errorf("%+v, %v", history, err)
	}
}

// TestWhoIsKnownWhereNobodySays: the history has user, host and program also of who says none of them.
func TestWhoIsKnownWhereNobodySays(t *testing.T) {
	if who := completed(mirror.Operator{}); who.User == "" || who.Host == "" || who.Client == "" {
		t.Errorf("%+v", who)
	}
	if said := (mirror.Operator{User: "anna", Host: "desk", Client: "kafka-mirror"}); completed(said) != said {
		t.Errorf("%+v", completed(said))
	}
}
