package mirror_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// ruleFence is a gateway that works by rules of the source.
type ruleFence struct {
	gateway
	rule mirror.ACL
}

func (f ruleFence) Rules([]string) []mirror.ACL { return []mirror.ACL{f.rule} }

func (f ruleFence) Raise(ctx context.Context, topics []string) error {
	f.s.AddACL(f.rule)
	return f.gateway.Raise(ctx, topics)
}

func (f ruleFence) Lower(ctx context.Context, topics []string) error {
	f.s.RemoveACL(f.rule)
	return f.gateway.Lower(ctx, topics)
}

// TestTheRuleOfAFenceIsNotCopied: clients are to write at the destination, so what keeps them out at the source stays there, also for the topics that are mirrored on.
func TestTheRuleOfAFenceIsNotCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFencedSource(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.SetAuthorizer(true)
		b.SetAuthorizer(true)
		a.local("t", 1)
		a.local("u", 1)
		rule := mirror.ACL{ResourceType: "TOPIC", ResourceName: "t", PatternType: "LITERAL", Principal: "User:*", Host: "*", Operation: "WRITE", Permission: "DENY"}
		reads := rule
		reads.Principal, reads.Operation, reads.Permission = "User:app", "READ", "ALLOW"
		a.AddACL(reads)
		m := open(t, "m", a.Cluster, b)
		defer m.close()
		m.start("t", "u")
		a.fill("t", 0, 3)
		m.untilInStep()
		fence := ruleFence{gateway{a}, rule}
		r, err := m.Promote(t.Context(), mirror.PromoteOptions{Topics: []string{"t"}, Fence: fence})
		if err != nil || !r.Proved {
			t.Fatalf("%v\n%s", err, r)
		}
		time.Sleep(5 * time.Minute) // many looks at rules, for the topic that is mirrored on
		if there := b.ListACLs(); !slices.Contains(there, reads) || slices.Contains(there, rule) {
			t.Errorf("rules at the destination: %v", there)
		}
		if there := a.ListACLs(); !slices.Contains(there, rule) {
			t.Errorf("the fence is down: %v", there)
		}
		// One that is taken back leaves nothing that keeps a rule of the operator's from being copied.
		other := rule
		other.ResourceName = "u"
		ctx, stop := context.WithCancel(t.Context())
		_, err = m.Promote(ctx, mirror.PromoteOptions{Topics: []string{"u"}, Fence: ruleFence{gateway{a}, other}, OnStep: func(p mirror.Promotion) {
			if p.Step == mirror.PromotionVerifying {
				stop()
			}
		}})
		if !errors.Is(err, mirror.ErrGivenUp) || slices.Contains(a.ListACLs(), other) {
			t.Fatalf("%v, %v", err, a.ListACLs())
		}
		a.AddACL(other)
		time.Sleep(5 * time.Minute)
		if !slices.Contains(b.ListACLs(), other) {
			t.Error("a rule of the operator's is not copied")
		}
	})
}
