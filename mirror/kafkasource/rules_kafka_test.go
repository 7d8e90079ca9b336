package kafkasource

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// patiently polls.
func patiently(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// toKafka is open where others' clients run too.
func toKafka(t *testing.T, cfg Config) *Source {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestF66RealKafkaSourceWithAuthorizer: a source's settings and rules are read with exactly the rights that its user has, what it lacks is named, and each error says what to grant.
func TestF66RealKafkaSourceWithAuthorizer(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Client: kafkatest.Security{SASL: "PLAIN", Users: map[string]string{"mirror": "m"}}, Authorizer: true})
	c.CreateTopic(kafkatest.Topic{Name: "orders", Configs: map[string]string{"cleanup.policy": "compact"}})
	c.CreateTopic(kafkatest.Topic{Name: "hidden"})
	s := toKafka(t, Config{Seeds: c.Bootstrap(), ClientOptions: c.ClientOptions(kafkatest.Credentials{User: "mirror", Password: "m"})})
	rights := []mirror.Right{{Operation: "Describe", Resource: "Cluster"}, {Operation: "DescribeConfigs", Resource: "Topic", Name: "orders"}, {Operation: "Describe", Resource: "Group", Name: "g"}}

	missing, unknown, err := s.MissingRights(t.Context(), rights)
	if !slices.Equal(missing, rights) || unknown != nil || err != nil {
		t.Errorf("missing %v, unknown %v, %v", missing, unknown, err)
	}
	_, err = s.ACLs(t.Context())
	if e := (*mirror.SourceError)(nil); !errors.As(err, &e) || e.Code != mirror.SourceDenied || !strings.Contains(e.Advice, "DESCRIBE on the source's cluster") {
		t.Errorf("%v", err)
	}
	if got, err := s.TopicConfigs(t.Context(), []string{"orders"}); err != nil || got["orders"].Err == nil {
		t.Errorf("%v, %v", got, err)
	}

	c.CreateACLs(kadm.NewACLs().Allow("User:mirror").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe).Clusters().Groups("g"))
	c.CreateACLs(kadm.NewACLs().Allow("User:mirror").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribeConfigs).Topics("orders"))
	patiently(t, "the rights", func() bool {
		missing, unknown, err := s.MissingRights(t.Context(), rights)
		return missing == nil && unknown == nil && err == nil
	})
	rules, err := s.ACLs(t.Context())
	want := mirror.ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: "User:mirror", Host: "*", Operation: "DESCRIBE_CONFIGS", Permission: "ALLOW"}
	if err != nil || len(rules) != 3 || !slices.Contains(rules, want) {
		t.Errorf("%v, %v", rules, err)
	}
	got, err := s.TopicConfigs(t.Context(), []string{"orders", "hidden", "absent"})
	if err != nil || got["orders"].Err != nil || !maps.Equal(got["orders"].Values, map[string]string{"cleanup.policy": "compact"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, topic := range []string{"hidden", "absent"} { // without a right nobody is told whether a topic exists
		if e := (*mirror.SourceError)(nil); !errors.As(got[topic].Err, &e) || e.Code != mirror.SourceDenied || !strings.Contains(e.Advice, "DESCRIBE_CONFIGS on topic "+topic) {
			t.Errorf("%s: %v", topic, got[topic])
		}
	}
}

// TestF66RealKafkaSourceWithoutAuthorizer: such a source is told apart from one that refuses.
func TestF66RealKafkaSourceWithoutAuthorizer(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{})
	const topic = "orders"
	c.CreateTopic(kafkatest.Topic{Name: topic, Configs: map[string]string{"retention.ms": "1234567"}})
	s := toKafka(t, Config{Seeds: c.Bootstrap()})
	rules, err := s.ACLs(t.Context())
	if e := (*mirror.SourceError)(nil); !errors.Is(err, mirror.ErrNoAuthorizer) || !errors.As(err, &e) || e.Code != mirror.SourceUnsupported || rules != nil {
		t.Errorf("%v, %v", rules, err)
	}
	got, err := s.TopicConfigs(t.Context(), []string{topic, "absent"})
	if err != nil || len(got) != 1 || !maps.Equal(got[topic].Values, map[string]string{"retention.ms": "1234567"}) {
		t.Errorf("%v, %v", got, err)
	}
	var rights []mirror.Right
	for i := range 250 {
		rights = append(rights, mirror.Right{Operation: "Read", Resource: "Group", Name: fmt.Sprint("g", i)})
	}
	if missing, unknown, err := s.MissingRights(t.Context(), rights); missing != nil || unknown != nil || err != nil {
		t.Errorf("missing %v, unknown %v, %v", missing, unknown, err)
	}
}

// TestRulesAndSettingsAreBounded: a source that answers nothing but metadata does not hold a call, one that is another cluster now is not read, and after Close nothing is asked.
func TestRulesAndSettingsAreBounded(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	for _, key := range []kmsg.Key{kmsg.DescribeConfigs, kmsg.DescribeACLs} {
		c.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { <-t.Context().Done() })
			return nil, nil, false
		})
	}
	s := open(t, Config{Seeds: c.ListenAddrs(), Bound: 500 * time.Millisecond})
	calls := map[string]func() error{
		"settings": func() error { _, err := s.TopicConfigs(t.Context(), []string{"t"}); return err },
		"rules":    func() error { _, err := s.ACLs(t.Context()); return err },
		"rights": func() error {
			_, _, err := s.MissingRights(t.Context(), []mirror.Right{{Operation: "DescribeConfigs", Resource: "Topic", Name: "t"}})
			return err
		},
	}
	for what, call := range calls {
		if e := (*mirror.SourceError)(nil); !errors.As(call(), &e) || e.Code != mirror.SourceTimeout {
			t.Errorf("%s: %v", what, e)
		}
	}
	s.mu.Lock()
	s.clusterID = "another"
	s.mu.Unlock()
	for what, call := range calls {
		if err := call(); !errors.Is(err, ErrClusterChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Close()
	for what, call := range calls {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
