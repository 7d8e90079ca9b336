package mirror_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		asked := m.a.count("Metadata.ACLs")
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
		if asked.Load() > 12 {
			tt.Errorf("asked %d times in 100 refreshes", asked.Load())
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

// ruledSides is a mirror whose sides both have access rules, and alice's and keep's have come.
func ruledSides(tt *testing.T, change ...func(*mirror.Config)) (m *pair, alice, keep mirror.ACL) {
	tt.Helper()
	m = copying(tt, 1, 10, change...)
	m.a.SetAuthorizer(true)
	m.b.SetAuthorizer(true)
	alice, keep = rule("alice", "READ", "t"), rule("keep", "READ", "t")
	m.a.AddACL(alice, keep)
	refreshes(12)
	m.b.ruled(alice, keep)
	return m, alice, keep
}

// after calls f after the next call of an operation, in it.
func (s *side) after(operation string, f func()) (called *atomic.Bool) {
	called = &atomic.Bool{}
	s.SetHooks(memlog.Hooks{After: func(_ context.Context, c memlog.Call) error {
		if c.Operation == operation && called.CompareAndSwap(false, true) {
			f()
		}
		return nil
	}})
	return called
}

func TestF66ARuleThatSomebodyMakesHereAgainIsHis(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m, alice, keep := ruledSides(tt)
		removed := m.b.after("Destination.DeleteACLs", func() {})
		m.a.RemoveACL(alice)
		for !removed.Load() {
			time.Sleep(time.Second) // virtual
		}
		synctest.Wait()
		m.b.ruled(keep)
		m.b.AddACL(alice) // before the next look
		refreshes(4)
		m.b.ruled(alice, keep)
	})
}

// deafUpdates is a Control that takes no update while it is deaf.
type deafUpdates struct {
	mirror.Control
	deaf *atomic.Bool
}

func (c deafUpdates) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	if c.deaf.Load() {
		return errors.New("no answer")
	}
	return c.Control.Update(ctx, change)
}

// What could not be remembered after it was done is known as long as the process lives, and remembered when it can be.
func TestF66ARuleThatSomebodyMakesHereAgainIsHisAlsoWhenItCouldNotBeRemembered(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		var deaf atomic.Bool
		m, alice, keep := ruledSides(tt)
		m.running.close()
		m.running = open(tt, "m", m.a.Cluster, m.b, func(c *mirror.Config) { c.Control = deafUpdates{m.b.Control(), &deaf} })
		m.untilInStep()
		removed := m.b.after("Destination.DeleteACLs", func() { deaf.Store(true) })
		m.a.RemoveACL(alice)
		refreshes(5)
		expect(tt, "removed", removed.Load(), true)
		if err := m.Status().Metadata.ACLs.Err; err == nil {
			tt.Error("the status does not say that nothing is remembered")
		}
		m.b.AddACL(alice)
		deaf.Store(false)
		refreshes(4)
		m.b.ruled(alice, keep)
		m.again(tt)
		refreshes(4)
		m.b.ruled(alice, keep)
	})
}

func TestF66ARuleThatWasRefusedAndIsMadeByHandStays(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.SetAuthorizer(true)
		alice, keep := rule("alice", "READ", "t"), rule("keep", "READ", "t")
		m.b.SetDenied(mirror.Right{Operation: "Alter", Resource: "Cluster"})
		m.a.AddACL(alice, keep)
		refreshes(12)
		m.b.ruled()
		for _, p := range wanted(tt, m.b).Provenance {
			if p.Kind == "acl" {
				tt.Errorf("remembered as the mirror's: %+v", p)
			}
		}
		m.b.AddACL(alice) // by hand, since the mirror may not
		refreshes(4)
		m.b.SetDenied()
		refreshes(2)
		m.a.RemoveACL(alice, keep)
		refreshes(4)
		m.b.ruled(alice)
	})
}

// A record that cannot be read is of no rule that is removed, and keeps no other rule from being followed.
func TestF66AnUnreadableRecordIsOneRules(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m, alice, keep := ruledSides(tt)
		stranger := rule("stranger", "READ", "t")
		m.b.AddACL(stranger)
		var kept []mirror.Provenance
		want(tt, m.b, func(s *mirror.ControlState) {
			for i, p := range s.Provenance {
				if p.Kind == "acl" && strings.Contains(p.Name, "alice") {
					s.Provenance[i].Value = `{"v":2}` // a newer version's
					kept = append(kept, s.Provenance[i])
				}
			}
			for _, name := range []string{
				"?", `["TOPIC","t","LITERAL","User:stranger","*","READ"]`, `["TOPIC","t","LITERAL","User:stranger","*","READ","ALLOW","more"]`, `[ "TOPIC","t","LITERAL","User:stranger","*","READ","ALLOW"]`,
			} {
				p := mirror.Provenance{Mirror: "m", Kind: "acl", Name: name}
				s.Provenance, kept = append(s.Provenance, p), append(kept, p)
			}
		})
		m.a.RemoveACL(alice, keep)
		bob := rule("bob", "READ", "t")
		m.a.AddACL(bob)
		refreshes(5)
		m.b.ruled(alice, bob, stranger)
		if s := m.Status().Metadata.ACLs.Skipped; len(s) != len(kept) {
			tt.Errorf("%q", s)
		} else {
			expectWords(tt, strings.Join(s, "\n"), "cannot be read", "?", "alice")
		}
		for _, p := range kept {
			if !slices.Contains(wanted(tt, m.b).Provenance, p) {
				tt.Errorf("not there any more: %+v", p)
			}
		}
	})
}

// elsewhere is a source that says it is another cluster from some moment on.
type elsewhere struct {
	source
	at    *memlog.Cluster
	moved *atomic.Bool
}

// source is what metadata sync and the copying use of a source.
type source interface {
	mirror.Source
	mirror.ACLReader
}

func (e elsewhere) Cluster(ctx context.Context) (mirror.ClusterInfo, error) {
	info, err := e.at.Cluster(ctx)
	if e.moved.Load() {
		info.ID = "elsewhere"
	}
	return info, err
}

func TestF33RulesOfAnotherClusterAreNotFollowed(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		var moved atomic.Bool
		m, alice, keep := ruledSides(tt, func(c *mirror.Config) {
			at := c.Source.(*memlog.Cluster)
			c.Source = elsewhere{at, at, &moved}
		})
		m.a.AddACL(rule("bob", "READ", "t"))
		read := m.a.after("Metadata.ACLs", func() { moved.Store(true) }) // behind the refresh
		refreshes(5)
		expect(tt, "read", read.Load(), true)
		m.b.ruled(alice, keep)
	})
}

// A process that wakes up and finds another one in its place writes no rule, in the middle of a look either.
func TestAProcessThatWakesUpWritesNoRules(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m, alice, keep := ruledSides(tt)
		bob := rule("bob", "READ", "t")
		made := m.b.after("Destination.CreateACLs", func() {
			if _, err := m.b.StateStore().Open(tt.Context(), "m"); err != nil {
				tt.Error(err)
			}
			m.WakeUp()
		})
		m.a.RemoveACL(alice)
		refreshes(1) // once
		m.b.ruled(alice, keep)
		m.a.AddACL(bob)
		refreshes(3)
		expect(tt, "made", made.Load(), true)
		m.b.ruled(alice, keep, bob)
	})
}

// What was decided before a stop is not carried out after it.
func TestDecision12RulesStayAsTheyWereAtTheStop(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m, alice, keep := ruledSides(tt)
		bob := rule("bob", "READ", "t")
		made := m.b.after("Destination.CreateACLs", func() {
			if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{}); err != nil {
				tt.Error(err)
			}
		})
		m.a.RemoveACL(alice)
		refreshes(1)
		m.a.AddACL(bob)
		refreshes(3)
		expect(tt, "made", made.Load(), true)
		m.b.ruled(alice, keep, bob)
	})
}

// shortAnswers is a destination that answers for the first rule only.
type shortAnswers struct{ *memlog.Cluster }

func (d shortAnswers) CreateACLs(ctx context.Context, rules []mirror.ACL) []error {
	d.Cluster.CreateACLs(ctx, rules[:1])
	return []error{nil}
}

func TestAShortAnswerIsNoSuccessOfTheOtherRules(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10, func(c *mirror.Config) { c.Destination = shortAnswers{c.Destination.(*memlog.Cluster)} })
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		rules := []mirror.ACL{rule("alice", "READ", "t"), rule("bob", "READ", "t"), rule("carol", "READ", "t")}
		told := func() (n int) {
			for _, e := range eventsOf[mirror.RulesFollowed](m.running) {
				n += len(e.Made)
			}
			return n
		}
		answered := m.b.after("Destination.CreateACLs", func() {})
		m.a.AddACL(rules...)
		for !answered.Load() {
			time.Sleep(time.Second) // virtual
		}
		synctest.Wait()
		expect(tt, "told", told(), 1)
		if s := m.Status().Metadata.ACLs.Skipped; len(s) != 2 {
			tt.Errorf("%q", s)
		} else {
			expectWords(tt, s[0], "bob", "answered for 1 of 3 rules")
		}
		refreshes(3)
		m.b.ruled(rules...)
		expect(tt, "told", told(), 3)
	})
}

func TestDecision12RulesStayAfterAFailoverOfAPart(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		m.a.local("u", 1)
		m.start("u")
		m.untilInStep()
		alice, bob := rule("alice", "READ", "t"), rule("bob", "READ", "u")
		m.a.AddACL(alice, bob)
		refreshes(2)
		if _, err := m.Failover(tt.Context(), mirror.FailoverOptions{Topics: []string{"t"}}); err != nil {
			tt.Fatal(err)
		}
		m.a.RemoveACL(alice, bob)
		m.a.AddACL(rule("carol", "READ", "u"))
		refreshes(5)
		m.b.ruled(alice, bob, rule("carol", "READ", "u"))
		expectWords(tt, strings.Join(m.Status().Metadata.ACLs.Skipped, " "), "2 are kept, because 1 topics of the mirror are stopped")
	})
}

func TestF66ANarrowerFilterTakesNoRuleAway(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10)
		m.a.SetAuthorizer(true)
		m.b.SetAuthorizer(true)
		alice := rule("alice", "READ", "t")
		m.a.AddACL(alice)
		refreshes(2)
		for _, filter := range []string{"GROUP", ""} {
			set(tt, m.b, "mirror.acl.include", filter)
			refreshes(5)
			m.b.ruled(alice)
		}
		m.a.RemoveACL(alice)
		refreshes(5)
		m.b.ruled(alice)
		set(tt, m.b, "mirror.acl.include", "*") // it still is the mirror's
		refreshes(5)
		m.b.ruled()
	})
}
