package memlog_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func rule(principal string) mirror.ACL {
	return mirror.ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: principal, Host: "*", Operation: "READ", Permission: "ALLOW"}
}

func TestAccessRules(t *testing.T) {
	ctx := t.Context()
	alice, bob, odd := rule("User:alice"), rule("User:bob"), rule("carol")
	c := memlog.New(memlog.Config{})
	defer c.Close()
	if _, err := c.ACLs(ctx); !errors.Is(err, mirror.ErrNoAuthorizer) {
		t.Errorf("without an authorizer: %v", err)
	}
	if failed := c.CreateACLs(ctx, []mirror.ACL{alice}); len(failed) != 1 || !errors.Is(failed[0], mirror.ErrNoAuthorizer) || len(c.ListACLs()) > 0 {
		t.Errorf("without an authorizer: %v", failed)
	}
	c.SetAuthorizer(true)
	c.AddACL(bob)
	failed := c.CreateACLs(ctx, []mirror.ACL{bob, odd, alice})
	if len(failed) != 3 || failed[0] != nil || failed[1] == nil || failed[2] != nil {
		t.Errorf("created: %v", failed)
	}
	if found, err := c.ACLs(ctx); err != nil || !slices.Equal(found, []mirror.ACL{alice, bob}) {
		t.Errorf("%v, %v", found, err)
	}
	if failed := c.DeleteACLs(ctx, []mirror.ACL{alice, odd}); failed != nil {
		t.Errorf("deleted: %v", failed)
	}
	if left := c.ListACLs(); !slices.Equal(left, []mirror.ACL{bob}) {
		t.Errorf("left: %v", left)
	}
	lost := errors.New("lost")
	c.SetHooks(memlog.Hooks{Before: func(context.Context, memlog.Call) error { return lost }})
	if failed := c.DeleteACLs(ctx, []mirror.ACL{bob, alice}); len(failed) != 2 || !errors.Is(failed[0], lost) || !errors.Is(failed[1], lost) {
		t.Errorf("a lost deletion: %v", failed)
	}
	c.RemoveACL(bob)
	if left := c.ListACLs(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// What MissingRights says is missing, the calls refuse; what it does not, they do not.
func TestMissingRightsAreThoseThatTheCallsLack(t *testing.T) {
	ctx := t.Context()
	isDenied := func(err error) bool {
		var s *mirror.SourceError
		return errors.As(err, &s) && s.Code == mirror.SourceDenied
	}
	for _, call := range []struct {
		right mirror.Right
		do    func(c *memlog.Cluster) error
	}{
		{mirror.Right{Operation: "Describe", Resource: "Group", Name: "billing"}, func(c *memlog.Cluster) error { return groupOffsets(t, c, billing).Err }},
		{mirror.Right{Operation: "Read", Resource: "Group", Name: "*"}, func(c *memlog.Cluster) error { return write(t, c, billing, 1) }},
		{mirror.Right{Operation: "Read", Resource: "Topic", Name: "orders"}, func(c *memlog.Cluster) error {
			refused, err := c.WriteGroupOffsets(ctx, billing, map[mirror.TopicPartition]mirror.GroupOffset{orders: place(1)})
			return errors.Join(err, refused[orders])
		}},
		{mirror.Right{Operation: "DescribeConfigs", Resource: "Topic", Name: "orders"}, func(c *memlog.Cluster) error {
			found, err := c.TopicConfigs(ctx, []string{"orders"})
			return errors.Join(err, found["orders"].Err)
		}},
		{mirror.Right{Operation: "AlterConfigs", Resource: "Topic", Name: "orders"}, func(c *memlog.Cluster) error {
			return c.AlterTopicConfigs(ctx, map[string]mirror.TopicConfigChange{"orders": {Delete: []string{"retention.ms"}}})["orders"]
		}},
		{mirror.Right{Operation: "Describe", Resource: "Cluster"}, func(c *memlog.Cluster) error { _, err := c.ACLs(ctx); return err }},
		{mirror.Right{Operation: "Alter", Resource: "Cluster"}, func(c *memlog.Cluster) error {
			return errors.Join(c.CreateACLs(ctx, []mirror.ACL{rule("User:alice")})...)
		}},
		{mirror.Right{Operation: "Alter", Resource: "Cluster"}, func(c *memlog.Cluster) error {
			return errors.Join(c.DeleteACLs(ctx, []mirror.ACL{rule("User:alice")})...)
		}},
	} {
		c, _ := source(t, memlog.Config{})
		c.SetAuthorizer(true)
		other := mirror.Right{Operation: "Write", Resource: "Topic", Name: "orders"}
		if missing, unknown, err := c.MissingRights(ctx, []mirror.Right{call.right, other}); len(missing)+len(unknown) > 0 || err != nil {
			t.Errorf("%s: missing %v, unknown %v, %v", call.right, missing, unknown, err)
		}
		if err := call.do(c); err != nil {
			t.Errorf("%s is there: %v", call.right, err)
		}
		c.SetDenied(call.right)
		if missing, unknown, err := c.MissingRights(ctx, []mirror.Right{other, call.right}); !slices.Equal(missing, []mirror.Right{call.right}) || len(unknown) > 0 || err != nil {
			t.Errorf("%s: missing %v, unknown %v, %v", call.right, missing, unknown, err)
		}
		if err := call.do(c); !isDenied(err) {
			t.Errorf("%s is denied: %v", call.right, err)
		}
		c.SetAuthorizer(false)
		if missing, _, err := c.MissingRights(ctx, []mirror.Right{call.right}); len(missing) > 0 || err != nil {
			t.Errorf("%s without an authorizer: missing %v, %v", call.right, missing, err)
		}
	}
}

// Kafka's ListGroups leaves out what may not be seen, without a word.
func TestGroupsThatMayNotBeSeenAreLeftOut(t *testing.T) {
	c, _ := source(t, memlog.Config{})
	commit(t, c, "billing", 1)
	commit(t, c, "audit", 1)
	hidden := mirror.Right{Operation: "Describe", Resource: "Group", Name: "billing"}
	c.SetDenied(hidden)
	if groups, err := c.Groups(t.Context()); err != nil || len(groups) != 2 {
		t.Errorf("Describe on the cluster shows all: %v, %v", groups, err)
	}
	c.SetDenied(hidden, mirror.Right{Operation: "Describe", Resource: "Cluster"})
	if groups, err := c.Groups(t.Context()); err != nil || len(groups) != 1 || groups[0].Name != "audit" {
		t.Errorf("%v, %v", groups, err)
	}
	c.SetDenied(mirror.Right{Operation: "Describe", Resource: "Topic", Name: "*"})
	c.PendingCommit("audit", orders, true)
	for _, g := range []string{"billing", "audit"} {
		if found := groupOffsets(t, c, mirror.Group{Name: g}); found.Err != nil || len(found.Offsets)+len(found.Pending) > 0 {
			t.Errorf("offsets of a topic that may not be described: %+v", found)
		}
	}
}
