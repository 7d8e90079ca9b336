package kafkametadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
)

// clientOf reaches a real cluster by its CLIENT listener.
type clientOf struct{ cl *kgo.Client }

func (c clientOf) Brokers(ctx context.Context) ([]int32, error) {
	brokers, err := kadm.NewClient(c.cl).ListBrokers(ctx)
	return brokers.NodeIDs(), err
}

func (c clientOf) Ask(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
	return c.cl.Broker(int(broker)).RetriableRequest(ctx, req)
}

func as(t *testing.T, c *kafkatest.Cluster, who kafkatest.Credentials) *Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ClientOptions(who), kgo.SeedBrokers(c.Bootstrap()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return New(clientOf{cl}, 10*time.Second)
}

func bounded(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	return ctx
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// metadataRecords counts what stands in the cluster's metadata log beside what controllers write to show that they live.
func metadataRecords(t *testing.T, c *kafkatest.Cluster) (n int) {
	t.Helper()
	for h, b := range batch.All(c.MetadataLogBytes(1)) {
		if h.Control() {
			continue
		}
		records, err := batch.ReadRecords(b, &h)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if len(r.Value) > 1 && r.Value[1] != 20 { // NoOpRecord
				n++
			}
		}
	}
	return n
}

// TestRealKafkaRightsAndRules: on a cluster with the StandardAuthorizer every single right is found to be there or missing, for what exists and for what does not, those that follow from
// others included, and nothing is written by that. Access rules of every kind are made, listed and removed exactly (F-66).
func TestRealKafkaRightsAndRules(t *testing.T) {
	users := kafkatest.Security{SASL: "PLAIN", Users: map[string]string{"mirror": "m"}}
	c := kafkatest.Start(t, kafkatest.Options{Client: users, Authorizer: true})
	c.CreateTopic(kafkatest.Topic{Name: "orders"})
	admin := as(t, c, kafkatest.Credentials{User: "admin", Password: kafkatest.AdminPassword})
	us := as(t, c, kafkatest.Credentials{User: "mirror", Password: "m"})

	// A group that exists.
	member := c.Client(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"))
	until(t, "a group", func() bool {
		g, err := c.Admin().DescribeGroups(bounded(t), "readers")
		return err == nil && g["readers"].State == "Stable"
	})
	member.Close()

	rights := slices.Concat(every("orders", "readers"), every("not-there", "nor-this"), every("orders", "")[6:]) // the last two: of the group without a name, which may have offsets
	before := metadataRecords(t, c)
	missing, unknown, err := us.MissingRights(bounded(t), rights)
	if err != nil || unknown != nil || !slices.Equal(missing, rights) {
		t.Errorf("without a rule: missing %v, unknown %v, %v", missing, unknown, err)
	}
	if missing, unknown, err := admin.MissingRights(bounded(t), rights); err != nil || unknown != nil || missing != nil {
		t.Errorf("a super user: missing %v, unknown %v, %v", missing, unknown, err)
	}
	if after := metadataRecords(t, c); after != before {
		t.Errorf("%d records were written", after-before)
	}
	if topics, err := c.Admin().ListTopics(bounded(t)); err != nil || topics.Has("not-there") {
		t.Errorf("a topic was made: %v, %v", topics.Names(), err)
	}
	if groups, err := c.Admin().ListGroups(bounded(t)); err != nil || !slices.Equal(groups.Groups(), []string{"readers"}) {
		t.Errorf("groups are %v, %v", groups.Groups(), err)
	}

	unnamed := rights[len(rights)-2:]
	rule := func(resource, name, operation string) mirror.ACL {
		return mirror.ACL{ResourceType: resource, ResourceName: name, PatternType: "LITERAL", Principal: "User:mirror", Host: "*", Operation: operation, Permission: "ALLOW"}
	}
	// What follows from each rule (Kafka: StandardAuthorizerData.authorize).
	for _, given := range []struct {
		rule mirror.ACL
		has  []string
	}{
		{rule("CLUSTER", "kafka-cluster", "DESCRIBE"), []string{"Describe on Cluster"}},
		{rule("CLUSTER", "kafka-cluster", "ALTER"), []string{"Describe on Cluster", "Alter on Cluster"}},
		{rule("CLUSTER", "kafka-cluster", "ALL"), []string{"Describe on Cluster", "Alter on Cluster"}},
		{rule("TOPIC", "orders", "DESCRIBE"), []string{"Describe on Topic orders"}},
		{rule("TOPIC", "not-there", "READ"), []string{"Describe on Topic not-there", "Read on Topic not-there"}},
		{rule("TOPIC", "orders", "READ"), []string{"Describe on Topic orders", "Read on Topic orders"}},
		{rule("TOPIC", "orders", "WRITE"), []string{"Describe on Topic orders"}},
		{rule("TOPIC", "orders", "DESCRIBE_CONFIGS"), []string{"DescribeConfigs on Topic orders"}},
		{rule("TOPIC", "orders", "ALTER_CONFIGS"), []string{"DescribeConfigs on Topic orders", "AlterConfigs on Topic orders"}},
		{rule("TOPIC", "not-there", "ALTER_CONFIGS"), []string{"DescribeConfigs on Topic not-there", "AlterConfigs on Topic not-there"}},
		{rule("TOPIC", "not-there", "ALL"), []string{"Describe on Topic not-there", "Read on Topic not-there", "DescribeConfigs on Topic not-there", "AlterConfigs on Topic not-there"}},
		{rule("GROUP", "readers", "DESCRIBE"), []string{"Describe on Group readers"}},
		{rule("GROUP", "readers", "READ"), []string{"Describe on Group readers", "Read on Group readers"}},
		{rule("GROUP", "nor-this", "READ"), []string{"Describe on Group nor-this", "Read on Group nor-this"}},
		{rule("GROUP", "nor-this", "DELETE"), []string{"Describe on Group nor-this"}},
		{rule("GROUP", "*", "READ"), []string{"Describe on Group readers", "Read on Group readers", "Describe on Group nor-this", "Read on Group nor-this", unnamed[0].String(), unnamed[1].String()}},
	} {
		if errs := admin.CreateACLs(bounded(t), []mirror.ACL{given.rule}); errs != nil {
			t.Fatal(errs)
		}
		var want []mirror.Right
		for _, r := range rights {
			if !slices.Contains(given.has, r.String()) {
				want = append(want, r)
			}
		}
		until(t, fmt.Sprintf("missing %d rights with %v", len(want), given.rule), func() bool {
			missing, unknown, err = us.MissingRights(bounded(t), rights)
			return len(missing) <= len(want)
		})
		if err != nil || unknown != nil || !slices.Equal(missing, want) {
			t.Errorf("with %v: missing %v, unknown %v, %v", given.rule, missing, unknown, err)
		}
		if errs := admin.DeleteACLs(bounded(t), []mirror.ACL{given.rule}); errs != nil {
			t.Fatal(errs)
		}
		until(t, "all rights missing again", func() bool { missing, _, _ = us.MissingRights(bounded(t), rights); return len(missing) == len(rights) })
	}

	if _, err := us.ACLs(bounded(t)); err == nil || errors.Is(err, mirror.ErrNoAuthorizer) {
		t.Errorf("rules listed without a right: %v", err)
	}
	if errs := us.CreateACLs(bounded(t), []mirror.ACL{rule("TOPIC", "orders", "ALL")}); len(errs) != 1 || errs[0] == nil {
		t.Errorf("a rule made without a right: %v", errs)
	}
	if errs := admin.CreateACLs(bounded(t), []mirror.ACL{rule("GROUP", "", "READ")}); len(errs) != 1 || errs[0] == nil {
		t.Errorf("a rule that names the group without a name: %v", errs)
	}
	rulesOf(t, admin)
}

// rulesOf makes a rule of every kind, one of them refused, and removes each without its neighbours.
func rulesOf(t *testing.T, admin *Client) {
	listed := func() map[mirror.ACL]bool {
		t.Helper()
		rules, err := admin.ACLs(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		set := map[mirror.ACL]bool{}
		for _, r := range rules {
			set[r] = true
		}
		return set
	}
	// Neighbours of one rule, each different in one part.
	one := mirror.ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: "User:alice", Host: "10.0.0.1", Operation: "READ", Permission: "ALLOW"}
	other := func(change func(*mirror.ACL)) mirror.ACL { r := one; change(&r); return r }
	rules := []mirror.ACL{
		one,
		other(func(r *mirror.ACL) { r.ResourceName = "*" }), other(func(r *mirror.ACL) { r.ResourceName = "ord" }), other(func(r *mirror.ACL) { r.PatternType = "PREFIXED" }),
		other(func(r *mirror.ACL) { r.Principal = "User:*" }), other(func(r *mirror.ACL) { r.Host = "*" }), other(func(r *mirror.ACL) { r.Operation = "ALL" }),
		other(func(r *mirror.ACL) { r.Permission = "DENY" }), other(func(r *mirror.ACL) { r.ResourceType = "GROUP" }),
		{ResourceType: "CLUSTER", ResourceName: "kafka-cluster", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "IDEMPOTENT_WRITE", Permission: "ALLOW"},
		{ResourceType: "TRANSACTIONAL_ID", ResourceName: "tx", PatternType: "PREFIXED", Principal: "User:alice", Host: "*", Operation: "TWO_PHASE_COMMIT", Permission: "ALLOW"},
		{ResourceType: "DELEGATION_TOKEN", ResourceName: "tok", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "DESCRIBE", Permission: "ALLOW"},
		{ResourceType: "USER", ResourceName: "User:bob", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "CREATE_TOKENS", Permission: "ALLOW"},
	}
	refused := mirror.ACL{ResourceType: "CLUSTER", ResourceName: "no-such-cluster", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "ALTER", Permission: "ALLOW"}
	errs := admin.CreateACLs(bounded(t), slices.Concat(rules[:3], []mirror.ACL{refused}, rules[3:]))
	for i, err := range errs {
		if (err != nil) != (i == 3) {
			t.Errorf("rule %d: %v", i, err)
		}
	}
	until(t, "the rules", func() bool { return len(listed()) == len(rules) })
	for _, r := range rules {
		if !listed()[r] {
			t.Errorf("%v is not listed", r)
		}
	}
	if errs := admin.CreateACLs(bounded(t), rules); errs != nil {
		t.Errorf("rules that are there: %v", errs)
	}
	left := listed()
	for _, r := range rules {
		if errs := admin.DeleteACLs(bounded(t), []mirror.ACL{r, r}); errs != nil {
			t.Errorf("deleting %v, and again: %v", r, errs)
		}
		delete(left, r)
		var have map[mirror.ACL]bool
		until(t, "a rule to go", func() bool { have = listed(); return len(have) <= len(left) })
		if !maps.Equal(have, left) {
			t.Errorf("after %v was deleted there are %v", r, have)
		}
	}
}

// TestRealKafkaSettingsWithoutAuthorizer: settings of topics are read and changed one by one (F-65), a cluster without an authorizer says so once and lacks no right (F-66).
func TestRealKafkaSettingsWithoutAuthorizer(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Config: map[string]string{"log.retention.ms": "123456"}})
	us := as(t, c, kafkatest.Credentials{})
	c.CreateTopic(kafkatest.Topic{Name: "orders", Configs: map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760"}})
	c.CreateTopic(kafkatest.Topic{Name: "plain"})
	read := func() map[string]mirror.TopicConfigs {
		t.Helper()
		got, err := us.TopicConfigs(bounded(t), []string{"orders", "plain", "not-there"})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := got["not-there"]; ok {
			t.Error("a topic that does not exist is there")
		}
		return got
	}
	got := read()
	if want := map[string]string{"cleanup.policy": "compact", "max.message.bytes": "10485760"}; !maps.Equal(got["orders"].Values, want) || got["orders"].Err != nil {
		t.Errorf("%v", got["orders"])
	}
	if len(got["plain"].Values) != 0 || got["plain"].Err != nil {
		t.Errorf("defaults are shown: %v", got["plain"])
	}
	failed := us.AlterTopicConfigs(bounded(t), map[string]mirror.TopicConfigChange{
		"orders":    {Set: map[string]string{"retention.ms": "1000"}, Delete: []string{"cleanup.policy", "segment.bytes"}},
		"plain":     {Set: map[string]string{"retention.ms": "2000", "vendor.setting": "x"}},
		"not-there": {Set: map[string]string{"retention.ms": "1"}},
	})
	if len(failed) != 2 || failed["plain"] == nil || failed["not-there"] == nil {
		t.Errorf("failed: %v", failed)
	}
	until(t, "the change", func() bool { return read()["orders"].Values["retention.ms"] == "1000" })
	got = read()
	if want := map[string]string{"retention.ms": "1000", "max.message.bytes": "10485760"}; !maps.Equal(got["orders"].Values, want) {
		t.Errorf("%v", got["orders"])
	}
	if len(got["plain"].Values) != 0 {
		t.Errorf("a refused topic was changed by half: %v", got["plain"])
	}

	if rules, err := us.ACLs(bounded(t)); !errors.Is(err, mirror.ErrNoAuthorizer) {
		t.Errorf("%v, %v", rules, err)
	}
	for _, errs := range [][]error{us.CreateACLs(bounded(t), []mirror.ACL{readOrders}), us.DeleteACLs(bounded(t), []mirror.ACL{readOrders})} {
		if len(errs) != 1 || !errors.Is(errs[0], mirror.ErrNoAuthorizer) {
			t.Errorf("%v", errs)
		}
	}
	rights := append(every("orders", "g"), every("not-there", "h")...)
	if missing, unknown, err := us.MissingRights(bounded(t), rights); missing != nil || unknown != nil || err != nil {
		t.Errorf("missing %v, unknown %v, %v", missing, unknown, err)
	}
}
