package synclife_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
)

// rulesFor are the access rules for these users, as a cluster's brokers tell them, sorted.
func rulesFor(t *testing.T, c *kafkatest.Cluster, users ...string) ([]string, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(lives.Limited(t), c.AdminClient())
	if err != nil {
		return nil, err
	}
	if resp.ErrorCode != 0 {
		return nil, fmt.Errorf("error %d", resp.ErrorCode)
	}
	var all []string
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			if slices.Contains(users, strings.TrimPrefix(a.Principal, "User:")) {
				all = append(all, fmt.Sprintf("%s %s %s %s %s %s", a.PermissionType, strings.TrimPrefix(a.Principal, "User:"), a.Operation, r.ResourcePatternType, r.ResourceType, r.ResourceName))
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

func ruled(t *testing.T, c *kafkatest.Cluster, users []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	lives.Eventually(t, fmt.Sprintf("the rules for %v are %q", users, want), func() (bool, string) {
		got, err := rulesFor(t, c, users...)
		return err == nil && slices.Equal(got, want), fmt.Sprintf("%q %v", got, err)
	})
}

// allowed is a rule that lets a user do something with a topic, or with all whose names begin so.
func allowed(user, topic string, pattern kadm.ACLPattern, operations ...kadm.ACLOperation) *kadm.ACLBuilder {
	return kadm.NewACLs().Allow("User:" + user).AllowHosts("*").Topics(topic).ResourcePatternType(pattern).Operations(operations...)
}

func removeRule(t *testing.T, c *kafkatest.Cluster, rule *kadm.ACLBuilder) {
	t.Helper()
	results, err := c.Admin().DeleteACLs(lives.Limited(t), rule)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || len(r.Deleted) != 1 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestF66RulesComeAndOnlyTheMirrorsOwnGo(t *testing.T) {
	a, b := primary(t), standby(t)
	topic, users := "f66", []string{"alice", "bob", "carol", "dave"}
	a.CreateTopic(kafkatest.Topic{Name: topic})
	aliceReads, bobWrites := allowed("alice", topic, kadm.ACLPatternLiteral, kadm.OpRead), allowed("bob", "f6", kadm.ACLPatternPrefixed, kadm.OpWrite)
	daveReads := allowed("dave", topic, kadm.ACLPatternLiteral, kadm.OpRead)
	carolDenied := kadm.NewACLs().Deny("User:carol").DenyHosts("*").Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead)
	for _, rule := range []*kadm.ACLBuilder{aliceReads, bobWrites, daveReads} {
		a.CreateACLs(rule)
	}
	for _, rule := range []*kadm.ACLBuilder{carolDenied, daveReads} { // of the destination
		b.CreateACLs(rule)
	}
	const alice, bob, carol, dave = "ALLOW alice READ LITERAL TOPIC f66", "ALLOW bob WRITE PREFIXED TOPIC f6", "DENY carol READ LITERAL TOPIC f66", "ALLOW dave READ LITERAL TOPIC f66"
	process := lives.Join(t, b)
	r := lives.Open(t, topic, a, process)
	r.Start(topic)
	ruled(t, b, users, alice, bob, carol, dave)

	// alice's is changed, bob's and dave's are removed; dave's was the destination's own too.
	removeRule(t, a, aliceReads)
	a.CreateACLs(allowed("alice", topic, kadm.ACLPatternLiteral, kadm.OpDescribe))
	removeRule(t, a, bobWrites)
	removeRule(t, a, daveReads)
	r.End()
	r = lives.Open(t, topic, a, process)
	const changed = "ALLOW alice DESCRIBE LITERAL TOPIC f66"
	ruled(t, b, users, changed, carol, dave)

	// After the cut-over rules stay.
	r.Failover()
	removeRule(t, a, allowed("alice", topic, kadm.ACLPatternLiteral, kadm.OpDescribe))
	ruled(t, b, users, changed, carol, dave)
	if s := r.Status().Metadata.ACLs; len(s.Skipped) != 0 || s.Err != nil || s.Off != "" {
		t.Errorf("%+v", s)
	}
}

func TestF66ASourceWithoutAnAuthorizerIsSaidOnce(t *testing.T) {
	a, b := older(t), standby(t)
	topic := "f66-open"
	a.CreateTopic(kafkatest.Topic{Name: topic})
	fill(t, a, topic, 10)
	b.CreateACLs(allowed("erin", topic, kadm.ACLPatternLiteral, kadm.OpRead))
	r := lives.Open(t, topic, a, lives.Join(t, b))
	r.Start(topic)
	r.Same(topic, 0, 10)
	lives.Eventually(t, "the status says that rules are not followed", func() (bool, string) {
		s := r.Status().Metadata.ACLs
		return strings.Contains(s.Off, "no authorizer"), fmt.Sprintf("%+v", s)
	})
	lives.Commit(t, a, topic, topic, 0, 5, 0)
	at(t, b, topic, topic, one(5))
	refreshes(t, r, 12)
	told := 0
	for _, e := range r.Told() {
		if s, ok := e.(mirror.SyncSkipped); ok && s.Part == "access rules" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	ruled(t, b, []string{"erin"}, "ALLOW erin READ LITERAL TOPIC f66-open")
}
