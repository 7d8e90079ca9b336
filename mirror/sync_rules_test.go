package mirror_test

import (
	"context"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

func rule(principal, operation, topic string) mirror.ACL {
	return mirror.ACL{ResourceType: "TOPIC", ResourceName: topic, PatternType: "LITERAL", Principal: "User:" + principal, Host: "*", Operation: operation, Permission: "ALLOW"}
}

// ruled checks the access rules of a cluster.
func (s *side) ruled(want ...mirror.ACL) {
	s.t.Helper()
	got := s.ListACLs()
	for _, r := range want {
		if !slices.Contains(got, r) {
			s.t.Fatalf("missing: %v\nin %v", r, got)
		}
	}
	if len(got) != len(want) {
		s.t.Fatalf("%v\nwant %v", got, want)
	}
}

func TestF66RulesComeAndOnlyTheMirrorsOwnGo(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		alice, bob, own, both := rule("alice", "READ", "t"), rule("bob", "WRITE", "t"), rule("carol", "READ", "t"), rule("dave", "READ", "t")
		broker := mirror.ACL{ResourceType: "CLUSTER", ResourceName: "kafka-cluster", PatternType: "LITERAL", Principal: "User:broker", Host: "*", Operation: "CLUSTER_ACTION", Permission: "ALLOW"}
		m.a.AddACL(alice, bob, both, broker)
		m.b.AddACL(own, both)
		refreshes(12)
		m.b.ruled(alice, bob, own, both) // a source's broker does not become one of the destination's
		// One is changed, one removed, one that the destination had itself is removed at the source too.
		changed := rule("alice", "DESCRIBE", "t")
		m.a.RemoveACL(alice, bob, both)
		m.a.AddACL(changed)
		refreshes(1)
		m.b.ruled(alice, bob, own, both, changed) // once may be a mistake
		m.again(tt)
		refreshes(3)
		m.b.ruled(own, both, changed)
		expect(tt, "skipped", len(m.Status().Metadata.ACLs.Skipped), 0)
	})
}

func TestF66ASourceWithoutAnAuthorizerIsSaidOnce(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		alice := rule("alice", "READ", "t")
		m.a.AddACL(alice)
		refreshes(2)
		m.b.ruled(alice)
		m.a.SetAuthorizer(false)
		asked := 0
		m.a.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			if c.Operation == "Metadata.ACLs" {
				asked++
			}
			return nil
		}})
		m.a.commit("g", t(0), 5)
		refreshes(100)
		m.b.ruled(alice)
		m.b.at("g", t(0), 5)
		n := 0
		for _, e := range eventsOf[mirror.SyncSkipped](m.running) {
			if e.Part == "access rules" {
				n++
				expectWords(tt, e.String(), "no authorizer")
			}
		}
		expect(tt, "times told", n, 1)
		if asked > 12 {
			tt.Errorf("asked %d times in 100 refreshes", asked)
		}
		if off := m.Status().Metadata.ACLs.Off; off == "" {
			tt.Error("the status does not say that rules are not followed")
		}
	})
}

func TestDecision12RulesStayAfterAFailover(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		alice := rule("alice", "READ", "t")
		m.a.AddACL(alice)
		refreshes(2)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
			tt.Fatal(err)
		}
		m.a.RemoveACL(alice)
		refreshes(5)
		m.b.ruled(alice)
	})
}
