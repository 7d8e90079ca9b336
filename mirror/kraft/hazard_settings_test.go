package kraft_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// setTogether is one kafka-configs.sh with several settings; "" deletes one.
func setTogether(t *testing.T, c *kafkatest.Cluster, topic string, settings map[string]string) {
	t.Helper()
	var changes []kadm.AlterConfig
	for name, value := range settings {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
		if value == "" {
			change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name}
		}
		changes = append(changes, change)
	}
	rs, err := c.Admin().AlterTopicConfigs(bound(t), changes, topic)
	if err == nil {
		_, err = rs.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatalf("%v of %s: %v", settings, topic, err)
	}
}

// heldOf are those of the two settings that a topic has for itself, as the brokers tell them.
func heldOf(t *testing.T, c *kafkatest.Cluster, topic string) map[string]string {
	t.Helper()
	all, err := c.Admin().DescribeTopicConfigs(bound(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for _, x := range all[0].Configs {
		if x.Source == kmsg.ConfigSourceDynamicTopicConfig && (x.Key == minISR || x.Key == unclean) {
			own[x.Key] = x.MaybeValue()
		}
	}
	return own
}

// TestRealKafkaHeldSettingsChanged: somebody changes min.insync.replicas and unclean.leader.election.enable of mirrored topics by kafka-configs.sh: while the process mirrors, while it is
// away, and in the middle of the hand-over. It is told, the safe values hold again at once, leader epochs rise, and after the hand-over each topic has exactly what was set.
func TestRealKafkaHeldSettingsChanged(t *testing.T) {
	c := short(t, 1, nil)
	var once sync.Once
	s := play(t, c, []string{"raised"}, quick, func(cfg *kraft.Config) {
		cfg.Intercept(func(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
			resp, err := send()
			if r, ok := req.(*kmsg.AlterPartitionAssignmentsRequest); ok && len(r.Topics) == 1 && r.Topics[0].Topic == "meanwhile" && len(r.Topics[0].Partitions[0].Replicas) == 3 {
				once.Do(func() { setTogether(t, c, "meanwhile", map[string]string{minISR: "2", unclean: "true"}) })
			}
			return resp, err
		})
	})
	safe := map[string]string{minISR: "1", unclean: "false"}
	sets := map[string]map[string]string{
		"raised": {minISR: "2"}, "deleted": {minISR: ""}, "both": {minISR: "3", unclean: "true"}, "away": {unclean: ""}, "cleared": {minISR: "2"}, "meanwhile": {},
	}
	held := func(topic string) {
		t.Helper()
		eventually(t, topic+" to say what a mirrored topic says", func() bool { return maps.Equal(heldOf(t, c, topic), safe) })
	}
	for topic := range sets {
		if topic != "raised" {
			l := s.create(topic, 1)
			appendTo(t, l, data(0, l.LeaderEpoch(), 3, topic))
			await(t, l)
		}
	}
	for topic, set := range sets {
		if topic == "away" || topic == "cleared" || topic == "meanwhile" {
			continue
		}
		setTogether(t, c, topic, set)
		if e := s.saw(kraft.SettingKept); !strings.Contains(e.Text, "while it is mirrored") {
			t.Errorf("told: %s", e.Text)
		}
		held(topic)
	}
	eventually(t, "leader epochs to rise", func() bool { return s.raise("raised") == nil })
	s.more("raised", 1)
	await(t, s.open("raised", 0))
	s.dies()
	setTogether(t, c, "away", sets["away"])
	setTogether(t, c, "cleared", sets["cleared"])
	s.returns()
	held("away")
	// The controllers do not know any more who may lead it: it is said what to do, and that does it.
	if _, _, err := s.open("cleared", 0).Owner(bound(t)); err == nil || !strings.Contains(err.Error(), "--election-type unclean") {
		t.Errorf("a partition whose eligible leaders were cleared: %v", err)
	}
	if err := electUnclean(t, c, "cleared"); err != nil {
		t.Error(err)
	}
	held("cleared")
	for topic, set := range sets {
		s.w.mayLead(topic)
		await(t, s.open(topic, 0))
		if err := s.open(topic, 0).Open(bound(t)); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for name, value := range set {
			if value != "" {
				want[name] = value
			}
		}
		if topic == "meanwhile" {
			want = map[string]string{minISR: "2", unclean: "true"}
		}
		eventually(t, fmt.Sprintf("%s to have %v after the stop", topic, want), func() bool { return maps.Equal(heldOf(t, c, topic), want) }) // a broker may hear of it later than another one
	}
	for _, e := range s.seen() {
		if e.Kind == kraft.Unsafe || e.Kind == kraft.Violation {
			t.Errorf("%v: %s", e.Kind, e.Text)
		}
	}
}
