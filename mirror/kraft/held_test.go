package kraft

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// notices are the events of a process, by kind.
type notices struct {
	mu  sync.Mutex
	all []Event
}

func (h *notices) hear(cfg *Config) {
	cfg.Notice = func(e Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, e)
	}
}

// of are the texts of one kind.
func (h *notices) of(kind EventKind) (texts []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		if e.Kind == kind {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// awaitHeld waits until a topic says what a mirrored one says, and something of it is remembered.
func (d *Destination) awaitHeld(t *testing.T, topic string, remembered map[string]*string) {
	t.Helper()
	ctx := within(t, 5*time.Second)
	for {
		d.remembered.lookAnew()
		at, _ := d.topic(topic)
		m, err := d.remembered.of(ctx, topic, at.ID)
		says := d.says(t, topic)
		if err == nil && sameSettings(m.Configs, remembered) && maps.Equal(says, safeSettings) {
			return
		}
		if pause(ctx, 1) != nil {
			t.Fatalf("the topic says %v; %v is remembered (%v)", says, m.Configs, err)
		}
	}
}

// opened makes brokers 1, 2, 3 have the topic, and puts its settings back.
func (f *fake) opened(t *testing.T, d *Destination, topic string) map[string]string {
	t.Helper()
	f.change(topic, func(p *clustermetadata.Partition) {
		p.Replicas, p.ISR, p.Leader = []int32{1, 2, 3}, []int32{1, 2, 3}, 1
	})
	d.says(t, topic)
	if err := d.putBack(within(t, 5*time.Second), topic); err != nil {
		t.Fatal(err)
	}
	return d.says(t, topic)
}

// TestWhatAnOperatorSetsIsKeptForTheStop: the held settings of a mirrored topic, changed by somebody else, are what the topic has when it is stopped; until then the safe values hold, and it is told once.
func TestWhatAnOperatorSetsIsKeptForTheStop(t *testing.T) {
	for name, is := range map[string]struct {
		set  map[string]string
		kept map[string]*string
		then map[string]string
		says []string
	}{
		"raised":  {map[string]string{minInSync: "2"}, map[string]*string{minInSync: text("2"), uncleanElection: nil}, map[string]string{minInSync: "2"}, []string{"min.insync.replicas=2 was set on topic orders"}},
		"deleted": {map[string]string{minInSync: ""}, map[string]*string{minInSync: nil, uncleanElection: nil}, nil, []string{"min.insync.replicas was deleted from topic orders"}},
		"both": {map[string]string{minInSync: "3", uncleanElection: "true"}, map[string]*string{minInSync: text("3"), uncleanElection: text("true")}, map[string]string{minInSync: "3", uncleanElection: "true"},
			[]string{"min.insync.replicas=3", "unclean.leader.election.enable=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			var h notices
			f, d := startFake(t, h.hear)
			if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1, Configs: map[string]string{minInSync: "1"}}); err != nil {
				t.Fatal(err)
			}
			for key, value := range is.set {
				f.set("orders", key, value)
			}
			d.awaitHeld(t, "orders", is.kept)
			l := d.known(orders)
			if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err != nil {
				t.Error(err)
			}
			if got := f.opened(t, d, "orders"); !maps.Equal(got, is.then) {
				t.Errorf("after the stop the topic says %v, not %v", got, is.then)
			}
			texts := h.of(SettingKept)
			slices.Sort(texts)
			if len(texts) != len(is.says) || len(h.of(Unsafe)) > 0 {
				t.Fatalf("told: %q, unsafe: %q", texts, h.of(Unsafe))
			}
			for i, want := range is.says {
				if !strings.Contains(texts[i], want) || !strings.Contains(texts[i], "until then "+map[bool]string{true: "1", false: "false"}[strings.HasPrefix(want, "min")]+" holds") {
					t.Errorf("told: %q, not %q", texts[i], want)
				}
			}
		})
	}
}

// TestOwnChangesOfHeldSettingsAreNobodysElse: a creation, a take-over, a change by AlterTopicConfigs and a hand-over are told as no operator's, and leave the topic as it was, or is to be.
func TestOwnChangesOfHeldSettingsAreNobodysElse(t *testing.T) {
	var h notices
	log := keyedlog.NewMemory()
	f, d := startFake(t, h.hear, func(cfg *Config) { cfg.Remember = log })
	peer := f.process(h.hear, func(cfg *Config) { cfg.NodeID, cfg.Remember = other, log.Again() })
	f.oneOfATopic()
	f.topic("orders", []int32{1, 2, 3})
	f.set("orders", minInSync, "2")
	for _, want := range []string{"2", "3", "4"} {
		d.says(t, "orders")
		l := d.log(orders)
		if err := l.CloseForWrites(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		d.awaitHeld(t, "orders", map[string]*string{minInSync: text(want), uncleanElection: nil})
		next := string('1' + want[0] - '0')
		if failed := peer.AlterTopicConfigs(within(t, 5*time.Second), map[string]mirror.TopicConfigChange{"orders": {Set: map[string]string{minInSync: next}}}); len(failed) > 0 {
			t.Fatal(failed)
		}
		if got := f.opened(t, d, "orders"); !maps.Equal(got, map[string]string{minInSync: next}) {
			t.Errorf("after the stop the topic says %v, not %s", got, next)
		}
	}
	if texts := h.of(SettingKept); len(texts) > 0 {
		t.Errorf("told: %q", texts)
	}
}

// refusing makes the controllers refuse changes of settings while is() says so.
func refusing(is func() bool) func(kmsg.Request) kmsg.Response {
	return func(req kmsg.Request) kmsg.Response {
		alter, ok := req.(*kmsg.IncrementalAlterConfigsRequest)
		if !ok || alter.ValidateOnly || !is() {
			return nil
		}
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, r := range alter.Resources {
			a := kmsg.NewIncrementalAlterConfigsResponseResource()
			a.ResourceName, a.ErrorCode = r.ResourceName, kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, a)
		}
		return resp
	}
}

// TestAnOperatorsSettingIsKeptThroughACrash: a process that dies between remembering it and setting the safe value again, or that was away when it was set, does and tells the rest when it is back.
func TestAnOperatorsSettingIsKeptThroughACrash(t *testing.T) {
	for _, away := range []bool{false, true} {
		var first, second notices
		log := keyedlog.NewMemory()
		f := newFake(t)
		d := f.process(first.hear, func(cfg *Config) { cfg.Remember = log })
		if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		refuses := true
		f.hook(func() { f.instead = refusing(func() bool { return refuses }) })
		if away {
			d.Close()
		}
		f.set("orders", minInSync, "2")
		if !away {
			ctx := within(t, 5*time.Second)
			for len(first.of(Unsafe)) == 0 && pause(ctx, 1) == nil {
			}
			if err := d.known(orders).Append(ctx, 0, oneBatch(0)); err == nil || len(first.of(Unsafe)) != 1 || len(first.of(SettingKept)) != 1 {
				t.Errorf("appended: %v; told: %q, %q", err, first.of(Unsafe), first.of(SettingKept))
			}
			d.Close()
		}
		f.hook(func() { refuses = false })
		d = f.process(second.hear, func(cfg *Config) { cfg.Remember = log.Again() })
		if _, err := d.OpenLog(within(t, 5*time.Second), orders); err != nil {
			t.Fatal(err)
		}
		d.awaitHeld(t, "orders", map[string]*string{minInSync: text("2"), uncleanElection: nil})
		if texts := second.of(SettingKept); len(texts) != 1 {
			t.Errorf("away %v: told: %q", away, texts)
		}
		if got := f.opened(t, d, "orders"); !maps.Equal(got, map[string]string{minInSync: "2"}) {
			t.Errorf("away %v: after the stop the topic says %v", away, got)
		}
	}
}

// TestAPutBackThatWasCutShortIsNoOperators: what it left on the topic does not replace what the topic was changed to have since; what somebody sets on the topic after it does.
func TestAPutBackThatWasCutShortIsNoOperators(t *testing.T) {
	for _, operator := range []bool{false, true} {
		f, d := startFake(t)
		f.topic("orders", []int32{1, 2, 3})
		f.set("orders", minInSync, "1")
		f.set("orders", uncleanElection, "false")
		d.says(t, "orders")
		d.hold(t, "orders", map[string]*string{minInSync: text("2"), uncleanElection: nil})
		f.hook(func() {
			f.after = func(_ context.Context, req kmsg.Request) error {
				if _, ok := req.(*kmsg.IncrementalAlterConfigsRequest); ok {
					return errLost
				}
				return nil
			}
		})
		if err := d.putBack(within(t, 5*time.Second), "orders"); !errors.Is(err, errLost) || d.says(t, "orders")[minInSync] != "2" {
			t.Fatalf("put back: %v, %v", err, d.says(t, "orders"))
		}
		f.hook(func() { f.after = nil })
		want := "3"
		if failed := d.AlterTopicConfigs(within(t, 5*time.Second), map[string]mirror.TopicConfigChange{"orders": {Set: map[string]string{minInSync: want}}}); len(failed) > 0 {
			t.Fatal(failed)
		}
		if operator {
			want = "4"
			f.set("orders", minInSync, want)
		}
		d.tidyOnce(within(t, 5*time.Second))
		if got := d.says(t, "orders"); !maps.Equal(got, map[string]string{minInSync: want}) || d.kept(t, "orders") != "" {
			t.Errorf("operator %v: the topic says %v, %q is remembered", operator, got, d.kept(t, "orders"))
		}
	}
}

// TestAnOperatorsSettingDuringAHandOver: what is set when brokers lead already, and the topic's settings are not put back yet, is what the topic has.
func TestAnOperatorsSettingDuringAHandOver(t *testing.T) {
	f, d := startFake(t)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1, Configs: map[string]string{minInSync: "4"}}); err != nil {
		t.Fatal(err)
	}
	f.change("orders", func(p *clustermetadata.Partition) {
		p.Replicas, p.ISR, p.Leader = []int32{1, 2, 3}, []int32{1, 2, 3}, 1
	})
	f.set("orders", uncleanElection, "true")
	f.set("orders", minInSync, "2")
	if err := d.known(orders).Open(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := d.says(t, "orders"); !maps.Equal(got, map[string]string{minInSync: "2", uncleanElection: "true"}) {
		t.Errorf("after the stop the topic says %v", got)
	}
}

// TestTwoProcessesKeepAnOperatorsSetting of a topic of which each leads a partition: once it is set back nobody changes it any more.
func TestTwoProcessesKeepAnOperatorsSetting(t *testing.T) {
	log := keyedlog.NewMemory()
	f := newFake(t)
	f.topic("orders", []int32{us, 1}, []int32{other, 1})
	f.set("orders", minInSync, "1")
	f.set("orders", uncleanElection, "false")
	f.hook(func() {
		for _, p := range f.parts {
			f.alter(p, func(p *clustermetadata.Partition) { p.ISR = p.ISR[:1] })
		}
	})
	d := f.process(func(cfg *Config) { cfg.Remember = log })
	peer := f.process(func(cfg *Config) { cfg.NodeID, cfg.Remember = other, log.Again() })
	d.hold(t, "orders", map[string]*string{minInSync: nil, uncleanElection: nil})
	for _, value := range []string{"2", "3"} {
		f.set("orders", minInSync, value)
		d.awaitHeld(t, "orders", map[string]*string{minInSync: text(value), uncleanElection: nil})
		for _, p := range []*Destination{d, peer} {
			for busy := true; busy; _ = pause(t.Context(), 1) { // both have looked
				p.holding("orders", func(h *holding) { busy = h.busy })
			}
		}
	}
	if n := f.count(kmsg.IncrementalAlterConfigs); n < 2 || n > 4 {
		t.Errorf("%d requests for two changes", n)
	}
}

// TestAToolThatSetsItAgainAndAgain is answered ever more seldom, and told of; a stop's markers and leader epochs wait for no pause.
func TestAToolThatSetsItAgainAndAgain(t *testing.T) {
	var h notices
	f, d := startFake(t, h.hear)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	d.holding("orders", func(r *holding) { r.tries, r.last = toolTries-1, time.Now().Add(-4*time.Second) }) // it has been at it for a while
	f.set("orders", minInSync, "2")
	d.awaitHeld(t, "orders", map[string]*string{minInSync: text("2"), uncleanElection: nil})
	if texts := h.of(Trouble); len(texts) != 1 || !strings.Contains(texts[0], "again and again") {
		t.Errorf("told: %q", texts)
	}
	f.set("orders", minInSync, "2")
	d.says(t, "orders")
	l, n := d.known(orders), f.count(kmsg.IncrementalAlterConfigs)
	if err := l.Append(within(t, 5*time.Second), 0, oneBatch(0)); err == nil {
		t.Error("appended while it is unsafe")
	}
	if got := f.count(kmsg.IncrementalAlterConfigs); got != n {
		t.Errorf("%d requests without a pause", got-n)
	}
	marker := batch.AppendControl(nil, batch.ControlSpec{ProducerID: -1, BaseSequence: -1})
	if err := l.Append(within(t, 5*time.Second), 0, marker); err != nil {
		t.Errorf("a marker: %v", err)
	}
	f.set("orders", uncleanElection, "true")
	d.says(t, "orders")
	if err := d.holdLed(within(t, 5*time.Second)); err != nil {
		t.Error(err)
	}
	if err := d.unsafeToFence(); err != nil {
		t.Error(err)
	}
	if texts := h.of(SettingKept); len(texts) != 2 {
		t.Errorf("told: %q", texts)
	}
}

// TestPausesBetweenSettingsGrow up to a minute, and begin anew when it has been quiet.
func TestPausesBetweenSettingsGrow(t *testing.T) {
	var h holding
	now := time.Now()
	var rests []time.Duration
	for range 9 {
		rest := h.rest(now)
		rests = append(rests, rest)
		now = now.Add(rest)
		h.tries, h.last = h.tries+1, now
	}
	s := time.Second
	if want := []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}; !slices.Equal(rests, want) {
		t.Errorf("pauses %v", rests)
	}
	if rest := h.rest(now.Add(heldQuiet + 1)); rest != 0 || h.tries != 0 {
		t.Errorf("a pause of %v", rest)
	}
}
