package kraft

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

const retention = "retention.ms"

// hold remembers own settings of a topic, as a take-over does before it sets its own.
func (d *Destination) hold(t *testing.T, topic string, own map[string]*string) {
	t.Helper()
	at, _ := d.topic(topic)
	if err := d.remembered.change(t.Context(), topic, at.ID, func(m *memory) { m.Configs = own }); err != nil {
		t.Fatal(err)
	}
}

// says is what a topic says for itself now, by the metadata.
func (d *Destination) says(t *testing.T, topic string) (configs map[string]string) {
	t.Helper()
	if err := d.meta.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.meta.look(func(im *clustermetadata.Image) { configs = im.Configs(clustermetadata.TopicResource, topic) })
	return configs
}

// kept is what is remembered of a topic's min.insync.replicas, "" for nothing.
func (d *Destination) kept(t *testing.T, topic string) string {
	t.Helper()
	at, _ := d.topic(topic)
	d.remembered.lookAnew()
	m, err := d.remembered.of(t.Context(), topic, at.ID)
	if err != nil {
		t.Fatal(err)
	}
	if v := m.Configs[minInSync]; v != nil {
		return *v
	}
	return ""
}

func text(s string) *string { return &s }

// read is one topic's settings.
func read(t *testing.T, d *Destination, topic string) map[string]string {
	t.Helper()
	got, err := d.TopicConfigs(within(t, 5*time.Second), []string{topic})
	if err != nil || got[topic].Err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	return got[topic].Values
}

// TestTopicConfigsAreThoseAfterTheStop: what this process sets while it has a topic is not shown; what the topic had, or was created to have, is. A topic of others is shown as it is.
func TestTopicConfigsAreThoseAfterTheStop(t *testing.T) {
	f, d := startFake(t)
	for topic, replicas := range map[string][]int32{"mirrored": {us, 1}, "plain": {1, 2}, "new": {other}, "theirs": {1}, "bare": {1}} {
		f.topic(topic, replicas)
		if topic != "bare" {
			f.set(topic, minInSync, "1")
			f.set(topic, uncleanElection, "false")
		}
	}
	f.set("mirrored", retention, "5")
	d.says(t, "mirrored")
	d.hold(t, "mirrored", map[string]*string{minInSync: text("2"), uncleanElection: nil})
	for _, topic := range []string{"new", "theirs"} { // a creation under way, and one that met somebody else's topic
		if err := d.remembered.change(t.Context(), topic, mirror.TopicID{}, func(m *memory) {
			m.Configs, m.Creator = map[string]*string{minInSync: nil, uncleanElection: text("true")}, other
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.TopicConfigs(t.Context(), []string{"mirrored", "plain", "new", "theirs", "bare", "absent"})
	if err != nil {
		t.Fatal(err)
	}
	safe := map[string]string{minInSync: "1", uncleanElection: "false"}
	for topic, want := range map[string]map[string]string{
		"mirrored": {minInSync: "2", retention: "5"}, "plain": safe, "new": {uncleanElection: "true"}, "theirs": safe, "bare": {},
	} {
		if c, ok := got[topic]; !ok || c.Err != nil || !maps.Equal(c.Values, want) {
			t.Errorf("%s: %v, not %v", topic, c, want)
		}
	}
	if _, ok := got["absent"]; ok || len(got) != 5 {
		t.Errorf("%d topics", len(got))
	}
}

// TestTopicConfigsOfAMirroredTopicAreChanged: what the mirror has set is left alone, and what the topic will have is changed, after the controllers were asked; everything else is changed
// now. Each topic stands for itself (F-65).
func TestTopicConfigsOfAMirroredTopicAreChanged(t *testing.T) {
	f, d := startFake(t)
	for topic, replicas := range map[string][]int32{"mirrored": {us, 1}, "refused": {us, 1}, "plain": {1, 2}} {
		f.topic(topic, replicas)
		f.set(topic, minInSync, "1")
		f.set(topic, uncleanElection, "false")
	}
	d.says(t, "plain")
	for _, topic := range []string{"mirrored", "refused"} {
		d.hold(t, topic, map[string]*string{minInSync: text("2"), uncleanElection: text("true")})
	}
	f.hook(func() {
		f.instead = func(req kmsg.Request) kmsg.Response { // under f.mu
			alter, ok := req.(*kmsg.IncrementalAlterConfigsRequest)
			if !ok {
				return nil
			}
			for i, r := range alter.Resources {
				if r.ResourceName != "refused" {
					continue
				}
				alter.Resources = append(alter.Resources[:i], alter.Resources[i+1:]...)
				f.effect(alter)
				resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
				no := kmsg.NewIncrementalAlterConfigsResponseResource()
				no.ResourceName, no.ErrorCode, no.ErrorMessage = "refused", kerr.InvalidConfig.Code, kmsg.StringPtr("must be at least 1")
				resp.Resources = append(resp.Resources, no)
				return resp
			}
			return nil
		}
	})
	change := mirror.TopicConfigChange{Set: map[string]string{minInSync: "3", retention: "7"}, Delete: []string{uncleanElection}}
	failed := d.AlterTopicConfigs(within(t, 5*time.Second), map[string]mirror.TopicConfigChange{
		"mirrored": change, "plain": change, "refused": {Set: map[string]string{minInSync: "-1", retention: "7"}}, "absent": change, "same": {},
		"tiered": {Set: map[string]string{tieredStorage: "TRUE", retention: "7"}}, "twice": {Set: map[string]string{retention: "7"}, Delete: []string{retention}},
	})
	for topic, want := range map[string]string{"refused": "must be at least 1", "absent": "does not exist", "tiered": tieredStorage, "twice": "set and deleted"} {
		err := failed[topic]
		if topic == "absent" {
			if !errors.Is(err, mirror.ErrUnknownTopic) {
				t.Errorf("%s: %v", topic, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), topic) {
			t.Errorf("%s: %v", topic, err)
		}
	}
	for _, topic := range []string{"refused", "tiered"} { // the topic's other settings may be taken
		var no *mirror.RefusedError
		if !errors.As(failed[topic], &no) || !no.Setting {
			t.Errorf("%s: %#v", topic, failed[topic])
		}
	}
	if len(failed) != 4 || !errors.Is(failed["refused"], kerr.InvalidConfig) {
		t.Errorf("%v", failed)
	}
	for topic, want := range map[string]map[string]string{
		"mirrored": {minInSync: "1", uncleanElection: "false", retention: "7"}, "refused": {minInSync: "1", uncleanElection: "false"}, "plain": {minInSync: "3", retention: "7"},
	} {
		if got := d.says(t, topic); !maps.Equal(got, want) {
			t.Errorf("%s says %v, not %v", topic, got, want)
		}
	}
	for topic, want := range map[string]map[string]string{
		"mirrored": {minInSync: "3", retention: "7"}, "refused": {minInSync: "2", uncleanElection: "true"}, "plain": {minInSync: "3", retention: "7"},
	} {
		if got := read(t, d, topic); !maps.Equal(got, want) {
			t.Errorf("%s will have %v, not %v", topic, got, want)
		}
	}
	if got := d.kept(t, "plain"); got != "" {
		t.Errorf("%s is remembered of a topic that nobody mirrors", got)
	}

	f.change("mirrored", func(p *clustermetadata.Partition) { p.Replicas, p.ISR, p.Leader = []int32{1}, []int32{1}, 1 })
	d.says(t, "mirrored")
	if err := d.putBack(within(t, 5*time.Second), "mirrored"); err != nil {
		t.Fatal(err)
	}
	if got, want := d.says(t, "mirrored"), (map[string]string{minInSync: "3", retention: "7"}); !maps.Equal(got, want) {
		t.Errorf("after the stop it says %v, not %v", got, want)
	}
}

// failingLog takes no change while it fails.
type failingLog struct {
	keyedlog.Log
	fails atomic.Bool
}

func (l *failingLog) Update(ctx context.Context, f func(keyedlog.View) ([]keyedlog.Change, error)) error {
	if l.fails.Load() {
		return errors.New("no disk")
	}
	return l.Log.Update(ctx, f)
}

// TestSettingsOfAMirroredTopicAreChangedWholeOrNotAtAll: of a change one part is made now and one is remembered; where one of them fails the other is not made either.
func TestSettingsOfAMirroredTopicAreChangedWholeOrNotAtAll(t *testing.T) {
	log := &failingLog{Log: keyedlog.NewMemory()}
	f, d := startFake(t, func(cfg *Config) { cfg.Remember = log })
	f.topic("t", []int32{us, 1})
	f.set("t", minInSync, "1")
	f.set("t", uncleanElection, "false")
	d.says(t, "t")
	d.hold(t, "t", map[string]*string{minInSync: text("2"), uncleanElection: nil})
	change := map[string]mirror.TopicConfigChange{"t": {Set: map[string]string{minInSync: "3", uncleanElection: "true", retention: "7"}}}
	unchanged := func(what string, failed map[string]error) {
		t.Helper()
		if got := read(t, d, "t"); len(failed) != 1 || !maps.Equal(got, map[string]string{minInSync: "2"}) {
			t.Errorf("%s: it will have %v, %v", what, got, failed)
		}
	}
	log.fails.Store(true)
	unchanged("what it will have cannot be remembered", d.AlterTopicConfigs(within(t, 5*time.Second), change))
	log.fails.Store(false)
	f.hook(func() {
		f.before = func(_ context.Context, req kmsg.Request) error {
			if alter, ok := req.(*kmsg.IncrementalAlterConfigsRequest); ok && !alter.ValidateOnly {
				return errors.New("no controller")
			}
			return nil
		}
	})
	unchanged("the controllers fail", d.AlterTopicConfigs(within(t, 5*time.Second), change))
	f.hook(func() { f.before = nil })
	if failed := d.AlterTopicConfigs(within(t, 5*time.Second), change); len(failed) > 0 {
		t.Error(failed)
	}
	if got, want := read(t, d, "t"), change["t"].Set; !maps.Equal(got, want) {
		t.Errorf("it will have %v, not %v", got, want)
	}
}

// TestSettingsAreNotChangedDuringACreation, a peer's: whose the settings are is not known yet.
func TestSettingsAreNotChangedDuringACreation(t *testing.T) {
	f, d := startFake(t)
	f.topic("new", []int32{other})
	d.says(t, "new")
	if err := d.remembered.change(t.Context(), "new", mirror.TopicID{}, func(m *memory) {
		m.Configs, m.Creator = map[string]*string{minInSync: text("2"), uncleanElection: nil}, other
	}); err != nil {
		t.Fatal(err)
	}
	failed := d.AlterTopicConfigs(within(t, 5*time.Second), map[string]mirror.TopicConfigChange{"new": {Set: map[string]string{minInSync: "3"}}})
	if len(failed) != 1 || f.count(kmsg.IncrementalAlterConfigs) != 0 {
		t.Errorf("%v", failed)
	}
	if all, err := d.remembered.all(t.Context()); err != nil || all["new"].Creator != other || *all["new"].Configs[minInSync] != "2" {
		t.Errorf("%v, %v", all, err)
	}
}

// oneOfATopic fails for a request that changes a topic twice: controllers refuse that (Kafka: ControllerApis, "each resource must appear at most once").
func (f *fake) oneOfATopic() {
	f.hook(func() {
		f.before = func(_ context.Context, req kmsg.Request) error {
			if alter, ok := req.(*kmsg.IncrementalAlterConfigsRequest); ok && len(alter.Resources) > 1 {
				f.t.Error("one request changes a topic twice")
			}
			return nil
		}
	})
}

// TestSettingsChangedDuringAHandOver: a change that comes while the settings are put back, before it or after it, is what the topic has in the end, and nothing is remembered.
func TestSettingsChangedDuringAHandOver(t *testing.T) {
	f, d := startFake(t)
	f.oneOfATopic()
	f.topic("t", []int32{1, 2}) // handed over
	ctx := within(t, 20*time.Second)
	for round := range 40 {
		f.set("t", minInSync, "1")
		f.set("t", uncleanElection, "false")
		d.says(t, "t")
		d.hold(t, "t", map[string]*string{minInSync: text("2"), uncleanElection: nil})
		var both sync.WaitGroup
		both.Go(func() {
			if err := d.putBack(ctx, "t"); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			for range round % 5 { // another moment each time
				_ = pause(ctx, 1)
			}
			if failed := d.AlterTopicConfigs(ctx, map[string]mirror.TopicConfigChange{"t": {Set: map[string]string{minInSync: "3"}}}); len(failed) > 0 {
				t.Error(failed)
			}
		})
		both.Wait()
		if err := d.putBack(ctx, "t"); err != nil { // as tidyUp does
			t.Fatal(err)
		}
		if got := d.says(t, "t"); !maps.Equal(got, map[string]string{minInSync: "3"}) || d.kept(t, "t") != "" {
			t.Fatalf("round %d: the topic says %v, %q is remembered", round, got, d.kept(t, "t"))
		}
		f.set("t", minInSync, "")
	}
}

// TestSettingsChangedDuringATakeOver: whichever comes first, the topic is safe, and will have what was set; who reads meanwhile sees the old or the new value and never what this process sets.
func TestSettingsChangedDuringATakeOver(t *testing.T) {
	f, d := startFake(t)
	f.oneOfATopic()
	f.topic("t", []int32{1, 2})
	f.set("t", minInSync, "2")
	at := func() mirror.TopicID { d.says(t, "t"); x, _ := d.topic("t"); return x.ID }()
	ctx := within(t, 20*time.Second)
	for round := range 40 {
		want := "2"
		if round%2 == 0 {
			want = "3"
		}
		var three sync.WaitGroup
		done := make(chan struct{})
		three.Go(func() {
			for {
				got, err := d.TopicConfigs(ctx, []string{"t"})
				if v := got["t"].Values[minInSync]; err != nil || v != "2" && v != "3" {
					t.Errorf("round %d: it is said to have %q, %v", round, v, err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		var both sync.WaitGroup
		both.Go(func() {
			if err := d.guard(ctx, "t", at); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if failed := d.AlterTopicConfigs(ctx, map[string]mirror.TopicConfigChange{"t": {Set: map[string]string{minInSync: want}}}); len(failed) > 0 {
				t.Error(failed)
			}
		})
		both.Wait()
		if got := d.says(t, "t"); !maps.Equal(got, map[string]string{minInSync: "1", uncleanElection: "false"}) || d.kept(t, "t") != want {
			t.Fatalf("round %d: the topic says %v, %q is remembered", round, got, d.kept(t, "t"))
		}
		if err := d.putBack(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		close(done)
		three.Wait()
		if got := d.says(t, "t"); !maps.Equal(got, map[string]string{minInSync: want}) {
			t.Fatalf("round %d: after the stop the topic says %v", round, got)
		}
	}
}

// hookedLog calls a function before it is read.
type hookedLog struct {
	keyedlog.Log
	before func()
}

func (l *hookedLog) Read(ctx context.Context, f func(keyedlog.View) error) error {
	l.before()
	return l.Log.Read(ctx, f)
}

// TestTopicConfigsWhileAPeerPutsThemBack: what a topic says was read before that, what is remembered of it after that.
func TestTopicConfigsWhileAPeerPutsThemBack(t *testing.T) {
	log := &hookedLog{Log: keyedlog.NewMemory(), before: func() {}}
	f, d := startFake(t, func(cfg *Config) { cfg.Remember = log })
	peer := f.process(func(cfg *Config) { cfg.NodeID, cfg.Remember = other, log.Log.(*keyedlog.Memory).Again() })
	f.topic("t", []int32{1, 2})
	f.set("t", minInSync, "1")
	d.says(t, "t")
	peer.says(t, "t")
	d.hold(t, "t", map[string]*string{minInSync: text("2"), uncleanElection: nil})
	if got := read(t, d, "t"); got[minInSync] != "2" { // what is remembered need not be read again
		t.Fatalf("%v", got)
	}
	var met atomic.Bool
	log.before = func() {
		if !met.Swap(true) {
			if err := peer.putBack(within(t, 5*time.Second), "t"); err != nil {
				t.Error(err)
			}
		}
	}
	if got := read(t, d, "t"); got[minInSync] != "2" || !met.Load() {
		t.Errorf("it is said to have %v", got)
	}
}

// onceAltered calls f once, when the first real change of settings has been made.
func (f *fake) onceAltered(then func()) {
	var met atomic.Bool
	f.hook(func() {
		f.after = func(_ context.Context, req kmsg.Request) error {
			if alter, ok := req.(*kmsg.IncrementalAlterConfigsRequest); ok && !alter.ValidateOnly && !met.Swap(true) {
				then()
			}
			return nil
		}
	})
}

// TestSettingsChangedWhileAPeerPutsThemBack: another mirror process puts the settings back in that moment; it goes on until the topic has what was set.
func TestSettingsChangedWhileAPeerPutsThemBack(t *testing.T) {
	log := keyedlog.NewMemory()
	f, d := startFake(t, func(cfg *Config) { cfg.Remember = log })
	peer := f.process(func(cfg *Config) { cfg.NodeID, cfg.Remember = other, log.Again() })
	f.topic("t", []int32{1, 2})
	f.set("t", minInSync, "1")
	d.says(t, "t")
	peer.says(t, "t")
	d.hold(t, "t", map[string]*string{minInSync: text("2"), uncleanElection: nil})
	ctx := within(t, 10*time.Second)
	f.onceAltered(func() {
		if failed := d.AlterTopicConfigs(ctx, map[string]mirror.TopicConfigChange{"t": {Set: map[string]string{minInSync: "3"}}}); len(failed) > 0 {
			t.Error(failed)
		}
	})
	for range 2 {
		if err := peer.putBack(ctx, "t"); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.says(t, "t"); !maps.Equal(got, map[string]string{minInSync: "3"}) || d.kept(t, "t") != "" {
		t.Errorf("the topic says %v, %q is remembered", got, d.kept(t, "t"))
	}
}

// TestSettingsChangedWhileAPeerTakesOver: another mirror process takes the topic over in that moment: it stays safe.
func TestSettingsChangedWhileAPeerTakesOver(t *testing.T) {
	log := keyedlog.NewMemory()
	f, d := startFake(t, func(cfg *Config) { cfg.Remember = log })
	peer := f.process(func(cfg *Config) { cfg.NodeID, cfg.Remember = other, log.Again() })
	f.topic("t", []int32{1, 2})
	f.set("t", minInSync, "2")
	d.says(t, "t")
	peer.says(t, "t")
	at, _ := d.topic("t")
	ctx := within(t, 10*time.Second)
	f.hook(func() {
		var met atomic.Bool
		f.before = func(_ context.Context, req kmsg.Request) error { // the peer's change comes first, ours undoes it
			if _, ok := req.(*kmsg.IncrementalAlterConfigsRequest); ok && !met.Swap(true) {
				if err := peer.guard(ctx, "t", at.ID); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
	})
	if failed := d.AlterTopicConfigs(ctx, map[string]mirror.TopicConfigChange{"t": {Set: map[string]string{minInSync: "3"}}}); len(failed) > 0 {
		t.Fatal(failed)
	}
	if got := d.says(t, "t"); !maps.Equal(got, map[string]string{minInSync: "1", uncleanElection: "false"}) || d.kept(t, "t") != "3" {
		t.Errorf("the topic says %v, %q is remembered", got, d.kept(t, "t"))
	}
}

// TestSettingsOutsideTheSession: another process may stand in this one's place: nothing is changed.
func TestSettingsOutsideTheSession(t *testing.T) {
	f, d := startFake(t)
	f.topic("t", []int32{1, 2})
	d.says(t, "t")
	long := time.Now().Add(-time.Hour)
	d.membership.lease.Store(&long)
	failed := d.AlterTopicConfigs(within(t, 5*time.Second), map[string]mirror.TopicConfigChange{"t": {Set: map[string]string{minInSync: "3"}}})
	if len(failed) != 1 || f.count(kmsg.IncrementalAlterConfigs) != 0 {
		t.Errorf("%v", failed)
	}
	rule := []mirror.ACL{{ResourceType: "TOPIC", ResourceName: "t", PatternType: "LITERAL", Principal: "User:a", Host: "*", Operation: "READ", Permission: "ALLOW"}}
	for _, errs := range [][]error{d.CreateACLs(t.Context(), rule), d.DeleteACLs(t.Context(), rule)} {
		if len(errs) != 1 || errs[0] == nil {
			t.Errorf("%v", errs)
		}
	}
	if f.count(kmsg.CreateACLs)+f.count(kmsg.DeleteACLs) != 0 {
		t.Error("rules were changed")
	}
}
