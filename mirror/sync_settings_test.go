package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func (s *side) configure(topic string, settings map[string]string) {
	s.t.Helper()
	for name, value := range settings {
		if err := s.SetTopicConfig(topic, name, value); err != nil {
			s.t.Fatal(err)
		}
	}
}

// configured checks a topic's own settings.
func (s *side) configured(topic string, want map[string]string) {
	s.t.Helper()
	got, err := s.TopicConfig(topic)
	if err != nil || !maps.Equal(got, want) {
		s.t.Fatalf("settings of %s: %v, %v; want %v", topic, got, err, want)
	}
}

func TestF63SettingsOfTheDestinationStay(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		set(tt, m.b, "mirror.topic.properties.exclude", "retention.ms,min.insync.replicas")
		m.a.configure("t", map[string]string{"retention.ms": "3600000", "min.insync.replicas": "1", "segment.bytes": "1048576", "compression.type": "zstd"})
		m.b.configure("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "compression.type": "lz4"})
		refreshes(2)
		m.b.configured("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "segment.bytes": "1048576", "compression.type": "zstd"})
		// What the mirror had set goes back when the source drops it, to what it was; what it had not set stays.
		for _, name := range []string{"segment.bytes", "compression.type"} {
			if err := m.a.DeleteTopicConfig("t", name); err != nil {
				tt.Fatal(err)
			}
		}
		m.again(tt)
		refreshes(2)
		m.b.configured("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "compression.type": "lz4"})
		// Whoever changes a followed setting here is overruled, and what he has set behind a dropped one is his.
		m.a.configure("t", map[string]string{"segment.bytes": "2097152"})
		refreshes(2)
		m.b.configure("t", map[string]string{"segment.bytes": "7000000"})
		refreshes(2)
		m.b.configured("t", map[string]string{"min.insync.replicas": "2", "retention.ms": "604800000", "flush.ms": "5", "compression.type": "lz4", "segment.bytes": "2097152"})
		writes := m.b.count("Destination.AlterTopicConfigs")
		refreshes(10)
		expect(tt, "changes while nothing changes", writes.Load(), 0)
	})
}

func TestF64TopicIsCreatedWithItsSettings(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 3)
		a.configure("t", map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760", "retention.ms": "1000", "remote.storage.enable": "true"})
		m := follow(tt, "m", a, b)
		defer m.close()
		set(tt, b, "mirror.topic.properties.exclude", "retention.ms")
		want := map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760"}
		created := false
		b.SetHooks(memlog.Hooks{After: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Destination.CreateTopic" {
				created = true
				b.configured("t", want) // from its first moment
			}
			if c.Operation == "Destination.AlterTopicConfigs" {
				tt.Error("changed afterwards")
			}
			return nil
		}})
		m.start("t")
		m.untilInStep()
		refreshes(3)
		expect(tt, "created", created, true)
		b.configured("t", want)
		// They are the mirror's own: what the source drops goes.
		if err := a.DeleteTopicConfig("t", "cleanup.policy"); err != nil {
			tt.Fatal(err)
		}
		b.SetHooks(memlog.Hooks{})
		refreshes(2)
		b.configured("t", map[string]string{"max.message.bytes": "10485760"})
	})
}

func TestF64ATopicWhoseSettingsCannotBeReadIsNotCreated(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 3)
		a.SetDenied(mirror.Right{Operation: "DescribeConfigs", Resource: "Topic", Name: "t"})
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t")
		refreshes(2)
		s := m.Status()
		if len(s.Topics) != 1 || s.Topics[0].Err == nil {
			tt.Fatalf("%+v", s.Topics)
		}
		expectWords(tt, s.Topics[0].Err.Error(), "without which it is not created", "allow DescribeConfigs", "mirror.topic.properties.exclude=.*")
		set(tt, b, "mirror.topic.properties.exclude", ".*")
		m.untilInStep()
	})
}

func TestF65OneRefusedTopicOrSettingBlocksNoOther(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		var topics []string
		for i := range 300 {
			name := fmt.Sprintf("t%d", i)
			topics = append(topics, name)
			a.local(name, 1)
		}
		a.configure("t17", map[string]string{"vendor.magic": "on"})
		b.SetRefusedConfig("vendor.magic", "Unknown topic config name: vendor.magic")
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start(topics...)
		m.until("299 mirrored", func(s mirror.Status) bool {
			n := 0
			for _, t := range s.Topics {
				for _, p := range t.Partitions {
					if inStep(p) {
						n++
					}
				}
			}
			return n == 299
		})
		for _, t := range m.Status().Topics {
			if (t.Topic == "t17") != (t.Err != nil) {
				tt.Errorf("%s: %v", t.Topic, t.Err)
			}
			if t.Err != nil {
				expectWords(tt, t.Err.Error(), "Unknown topic config name: vendor.magic")
			}
		}
		// On a topic that is there it holds up no other setting, and no other topic.
		a.configure("t18", map[string]string{"vendor.magic": "on", "flush.ms": "5"})
		a.configure("t19", map[string]string{"flush.ms": "6"})
		refreshes(2)
		b.configured("t18", map[string]string{"flush.ms": "5"})
		b.configured("t19", map[string]string{"flush.ms": "6"})
		if s := m.Status().Metadata.Configs.Skipped; len(s) != 1 {
			tt.Errorf("%q", s)
		} else {
			expectWords(tt, s[0], "topic t18", "vendor.magic")
		}
		// It is tried again at each refresh.
		b.SetRefusedConfig("vendor.magic", "")
		refreshes(2)
		b.configured("t18", map[string]string{"flush.ms": "5", "vendor.magic": "on"})
		m.until("all mirrored", func(s mirror.Status) bool { return len(s.Topics) == 300 && each(s, inStep) && s.Topics[9].Err == nil })
	})
}

func TestF68NewPartitionsBeginAtTheirFirstRecord(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 3, 10)
		if _, err := m.a.GrowTopic(tt.Context(), "t", 5); err != nil {
			tt.Fatal(err)
		}
		m.a.fill("t", 3, 100)
		m.a.fill("t", 4, 100)
		m.a.commit("g", t(4), 60)
		refreshes(3)
		m.inStepAndSame()
		expect(tt, "partitions", len(m.Status().Topics[0].Partitions), 5)
		refreshes(2)
		m.b.at("g", t(4), 60)
	})
}

func TestF68MorePartitionsThanTheSourceHasAreNotIgnored(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 5)
		a.fill("t", 4, 10)
		if _, err := b.CreateTopic(tt.Context(), mirror.TopicSpec{Name: "t", Partitions: 7}); err != nil {
			tt.Fatal(err)
		}
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t")
		for p := range int32(2) {
			m.untilFailed("t", 5+p, "partition counts differ")
		}
		refreshes(2)
		expectWords(tt, m.Status().Topics[0].Err.Error(), "partition counts differ: 5 at the source, 7 at the destination")
		m.untilOne("in step", "t", 4, inStep)
	})
}

func TestF63ASettingThatSomebodySetsHereAgainIsHis(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.configure("t", map[string]string{"retention.ms": "5"})
		refreshes(3)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
		altered := m.b.after("Destination.AlterTopicConfigs", func() {})
		if err := m.a.DeleteTopicConfig("t", "retention.ms"); err != nil {
			tt.Fatal(err)
		}
		for !altered.Load() {
			time.Sleep(time.Second) // virtual
		}
		synctest.Wait()
		m.b.configured("t", nil)
		m.b.configure("t", map[string]string{"retention.ms": "5"})
		refreshes(4)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
	})
}

// As for rules: what could not be remembered after it was done is known as long as the process lives.
func TestF63ASettingThatSomebodySetsHereAgainIsHisAlsoWhenItCouldNotBeRemembered(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		var deaf atomic.Bool
		m := copying(tt, 1, 10)
		m.running.close()
		m.running = open(tt, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control = deafUpdates{m.b.Control(), &deaf} })
		m.untilInStep()
		m.a.configure("t", map[string]string{"retention.ms": "5"})
		refreshes(3)
		altered := m.b.after("Destination.AlterTopicConfigs", func() { deaf.Store(true) })
		if err := m.a.DeleteTopicConfig("t", "retention.ms"); err != nil {
			tt.Fatal(err)
		}
		refreshes(3)
		expect(tt, "altered", altered.Load(), true)
		m.b.configured("t", nil)
		m.b.configure("t", map[string]string{"retention.ms": "5"})
		deaf.Store(false)
		refreshes(4)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
		m.again(tt)
		refreshes(4)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
	})
}

func TestF63ASettingThatWasRefusedAndIsSetByHandStays(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.b.SetDenied(mirror.Right{Operation: "AlterConfigs", Resource: "Topic", Name: "t"})
		m.a.configure("t", map[string]string{"retention.ms": "5"})
		refreshes(3)
		m.b.configured("t", nil)
		if s := m.Status().Metadata.Configs.Skipped; len(s) != 1 || strings.Count(s[0], "AUTHORIZATION_FAILED") != 1 || strings.Contains(s[0], "source") {
			tt.Errorf("%q", s)
		}
		m.b.configure("t", map[string]string{"retention.ms": "5"}) // by hand, since the mirror may not
		refreshes(2)
		m.b.SetDenied()
		refreshes(2)
		if err := m.a.DeleteTopicConfig("t", "retention.ms"); err != nil {
			tt.Fatal(err)
		}
		refreshes(3)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
	})
}

// A record that cannot be read leaves its topic alone, and no other.
func TestF65AnUnreadableRecordIsOneTopics(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.local("u", 1)
		m.start("u")
		m.untilInStep()
		m.a.configure("u", map[string]string{"retention.ms": "5"})
		refreshes(3)
		kept := []mirror.Provenance{{Mirror: "m", Kind: "config", Name: "u", Value: `{"v":2}`}, {Mirror: "m", Kind: "config", Name: "zz", Value: `{"v":2}`}}
		want(tt, m.b, func(s *mirror.ControlState) {
			s.Provenance = slices.DeleteFunc(s.Provenance, func(p mirror.Provenance) bool { return p.Kind == "config" })
			s.Provenance = append(s.Provenance, kept...)
		})
		m.a.configure("t", map[string]string{"retention.ms": "5"})
		m.a.configure("u", map[string]string{"flush.ms": "9"})
		if err := m.a.DeleteTopicConfig("u", "retention.ms"); err != nil {
			tt.Fatal(err)
		}
		refreshes(4)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
		m.b.configured("u", map[string]string{"retention.ms": "5"})
		if s := m.Status().Metadata.Configs.Skipped; len(s) != 2 {
			tt.Errorf("%q", s)
		} else {
			expectWords(tt, s[0], "topic u", "cannot be read")
			expectWords(tt, s[1], "topic zz", "cannot be read")
		}
		for _, p := range kept {
			if !slices.Contains(wanted(tt, m.b).Provenance, p) {
				tt.Errorf("not there any more: %+v", p)
			}
		}
	})
}

// remembersSettings says of which topics settings are remembered.
func (s *side) remembersSettings() (topics []string) {
	for _, p := range wanted(s.t, s).Provenance {
		if p.Kind == "config" {
			topics = append(topics, p.Name)
		}
	}
	return topics
}

// What is remembered of a topic goes when the topic leaves the mirror, at the next look: also when it was the last one; and when nothing is followed any more.
func TestSettingsOfTopicsThatHaveLeftAreForgotten(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		for i := range 3 {
			name := fmt.Sprintf("day-%d", i)
			m.a.local(name, 1)
			m.a.configure(name, map[string]string{"retention.ms": "5"})
			m.start(name)
			refreshes(3)
			if got := m.b.remembersSettings(); !slices.Equal(got, []string{name}) {
				tt.Fatalf("remembered: %v", got)
			}
			if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{name}}); err != nil {
				tt.Fatal(err)
			}
			if i == 1 { // beside something else that is to be remembered
				m.a.configure("t", map[string]string{"retention.ms": "6"})
				refreshes(2)
				if got := m.b.remembersSettings(); !slices.Equal(got, []string{"t"}) {
					tt.Fatalf("remembered: %v", got)
				}
				if err := m.a.DeleteTopicConfig("t", "retention.ms"); err != nil {
					tt.Fatal(err)
				}
			}
			refreshes(2)
			if got := m.b.remembersSettings(); len(got) > 0 {
				tt.Errorf("remembered after the stop: %v", got)
			}
		}
		m.a.configure("t", map[string]string{"retention.ms": "7"})
		refreshes(2)
		if _, err := m.Admin().Pause(tt.Context(), []string{"t"}, mirror.PauseOptions{}); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		expect(tt, "remembered of a paused topic", len(m.b.remembersSettings()), 1)
		m.resume("t")
		refreshes(1)
		set(tt, m.b, "mirror.topic.properties.exclude", ".*")
		refreshes(12)
		expect(tt, "remembered when all are excluded", len(m.b.remembersSettings()), 0)
		set(tt, m.b, "mirror.topic.properties.exclude", "")
		m.a.configure("t", map[string]string{"flush.ms": "7"})
		refreshes(12)
		expect(tt, "remembered", len(m.b.remembersSettings()), 1)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		refreshes(2)
		m.a.local("u", 1)
		m.start("u")
		refreshes(3)
		expect(tt, "remembered when another one is mirrored", len(m.b.remembersSettings()), 0)
	})
}

// alterations counts the calls that change settings.
func (s *side) alterations() *atomic.Int64 {
	var calls atomic.Int64
	s.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
		if c.Operation == "Destination.AlterTopicConfigs" {
			calls.Add(1)
		}
		return nil
	}})
	return &calls
}

// What is refused is no reason for many calls: of a right that is missing one tells enough, and settings are tried one by one of all topics together, and not at each refresh.
func TestF65RefusedSettingsAreAFewCalls(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprintf("t%02d", i))
			a.local(names[i], 1)
		}
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start(names...)
		m.untilInStep()
		b.SetDenied(mirror.Right{Operation: "AlterConfigs", Resource: "Topic", Name: "*"})
		for _, name := range names {
			a.configure(name, map[string]string{"retention.ms": "5", "vendor.one": "7000", "vendor.two": "9000000", "flush.ms": "10"})
		}
		calls := b.alterations()
		refreshes(10)
		if n := calls.Load(); n < 9 || n > 11 {
			tt.Errorf("%d calls in ten refreshes without the right", n)
		}
		b.SetRefusedConfig("vendor.one", "Unknown topic config name: vendor.one")
		b.SetRefusedConfig("vendor.two", "Unknown topic config name: vendor.two")
		b.SetDenied()
		calls = b.alterations()
		refreshes(8)
		if n := calls.Load(); n < 11 || n > 13 { // one at each, and four apart
			tt.Errorf("%d calls in eight refreshes with two settings that are refused", n)
		}
		for _, name := range names {
			b.configured(name, map[string]string{"retention.ms": "5", "flush.ms": "10"})
		}
		s := m.Status().Metadata.Configs.Skipped
		expect(tt, "topics left alone", len(s), len(names))
		expectWords(tt, s[0], "topic t00: its settings cannot be changed at the destination", "vendor.one", "vendor.two")
		// One of the two is taken now; the other one's refusal does not hide that for long.
		b.SetRefusedConfig("vendor.two", "")
		refreshes(12)
		b.configured("t07", map[string]string{"retention.ms": "5", "flush.ms": "10", "vendor.two": "9000000"})
	})
}

// Settings that are tried one by one, and not answered for, do not keep a look for ever.
func TestF65ALookAtSettingsHasABound(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		settings := map[string]string{"vendor.magic": "on"}
		for i := range 20 {
			settings[fmt.Sprintf("a%02d", i)] = "1"
		}
		m.b.SetRefusedConfig("vendor.magic", "Unknown topic config name: vendor.magic")
		var calls atomic.Int64
		m.b.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
			if c.Operation != "Destination.AlterTopicConfigs" || calls.Add(1) == 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		m.a.configure("t", settings)
		m.until("changing", func(mirror.Status) bool { return calls.Load() > 0 })
		begin := time.Now()
		m.until("left alone", func(s mirror.Status) bool { return len(s.Metadata.Configs.Skipped) > 0 })
		if took := time.Since(begin); calls.Load() < 3 || took > 45*time.Second {
			tt.Errorf("%d calls in %s", calls.Load(), took)
		}
		m.b.SetHooks(memlog.Hooks{})
		refreshes(3)
		delete(settings, "vendor.magic")
		m.b.configured("t", settings)
	})
}

// What was decided before a stop is not carried out after it.
func TestF63SettingsStayAsTheyWereAtTheStop(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t1", 1)
		a.local("t2", 1)
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t1", "t2")
		m.untilInStep()
		refreshes(2)
		b.SetRefusedConfig("vendor.magic", "Unknown topic config name: vendor.magic")
		var calls atomic.Int64
		b.SetHooks(memlog.Hooks{After: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Destination.AlterTopicConfigs" && calls.Add(1) == 1 { // the settings are to be tried one by one
				if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"t2"}}); err != nil {
					tt.Error(err)
				}
				b.configure("t2", map[string]string{"retention.ms": "777"}) // the operator's
			}
			return nil
		}})
		for _, name := range []string{"t1", "t2"} {
			a.configure(name, map[string]string{"retention.ms": "5", "vendor.magic": "on"})
		}
		refreshes(5)
		b.configured("t1", map[string]string{"retention.ms": "5"})
		b.configured("t2", map[string]string{"retention.ms": "777"})
		if s := m.Status().Metadata.Configs.Skipped; len(s) != 1 {
			tt.Errorf("%q", s)
		}
	})
}

// The settings of a topic that was made again under its name are not the copy's (F-28).
func TestF28SettingsOfARecreatedTopicAreNotTheCopys(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.configure("t", map[string]string{"retention.ms": "5"})
		refreshes(3)
		var once atomic.Bool
		m.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error { // inside the look, behind the refresh
			if c.Operation == "Metadata.TopicConfigs" && once.CompareAndSwap(false, true) {
				if err := m.a.DeleteTopic("t"); err != nil {
					tt.Error(err)
				}
				m.a.local("t", 1)
				m.a.configure("t", map[string]string{"cleanup.policy": "compact"})
			}
			return nil
		}})
		refreshes(1)
		expect(tt, "made again", once.Load(), true)
		m.b.configured("t", map[string]string{"retention.ms": "5"})
	})
}

// A topic that the source has no more when its settings are read is not created: it would have the destination's own.
func TestF64ATopicThatIsGoneWhenItsSettingsAreReadIsNotCreated(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		a, b := newSide(tt, memlog.Config{ClusterID: "A"}), newSide(tt, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		var once atomic.Bool
		a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Metadata.TopicConfigs" && once.CompareAndSwap(false, true) {
				return a.DeleteTopic("t")
			}
			return nil
		}})
		m := follow(tt, "m", a, b)
		defer m.close()
		m.start("t")
		refreshes(2)
		expect(tt, "gone", once.Load(), true)
		if _, err := b.TopicConfig("t"); !errors.Is(err, mirror.ErrUnknownTopic) {
			tt.Errorf("the topic is there: %v", err)
		}
	})
}
