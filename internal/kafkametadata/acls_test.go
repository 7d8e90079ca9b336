package kafkametadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// theyAgree goes through every value that a byte may have: a word that a rule may have leads back to its value, and to no other; one that stands for several, or is not known, leads nowhere.
func theyAgree[T aclWord](t *testing.T, what string, want map[T]string) {
	t.Helper()
	seen := map[string]T{}
	for n := range 256 {
		v := T(int8(n - 128))
		w := word(v)
		if other, twice := seen[w]; twice {
			t.Errorf("%s: %v and %v are both %s", what, int8(other), int8(v), w)
		}
		seen[w] = v
		back, err := value[T](what, w)
		if name, real := want[v]; real {
			if w != name || err != nil || back != v {
				t.Errorf("%s %d: word %s, value %v, %v; want %s", what, int8(v), w, int8(back), err, name)
			}
		} else if err == nil {
			t.Errorf("%s %d: %s is taken for a value of a rule", what, int8(v), w)
		}
	}
	for _, w := range []string{"", "UNKNOWN", "ANY", "MATCH", "read", "Topic", "UNKNOWN(2)"} {
		if v, err := value[T](what, w); err == nil {
			t.Errorf("%s %q is taken for %d", what, w, int8(v))
		}
	}
}

// TestACLWords: the words are those of kafka-acls.sh (Kafka: ResourceType, PatternType, AclOperation, AclPermissionType of 4.4), both ways.
func TestACLWords(t *testing.T) {
	theyAgree(t, "resource type", map[kmsg.ACLResourceType]string{2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"})
	theyAgree(t, "pattern type", map[kmsg.ACLResourcePatternType]string{3: "LITERAL", 4: "PREFIXED"})
	theyAgree(t, "permission", map[kmsg.ACLPermissionType]string{2: "DENY", 3: "ALLOW"})
	theyAgree(t, "operation", map[kmsg.ACLOperation]string{
		2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION", 10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS",
		12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT",
	})
}

var readOrders = mirror.ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "READ", Permission: "ALLOW"}

// with is a rule with something else in it.
func with(change func(*mirror.ACL)) mirror.ACL {
	r := readOrders
	change(&r)
	return r
}

// TestACLs: all rules are asked for, and one of a newer Kafka is listed with its number.
func TestACLs(t *testing.T) {
	f := &fakeBrokers{answer: func(broker int32, req kmsg.Request) (kmsg.Response, error) {
		if broker == 1 {
			return nil, errSilent
		}
		q := req.(*kmsg.DescribeACLsRequest)
		if q.ResourceType != 1 || q.ResourcePatternType != 1 || q.Operation != 1 || q.PermissionType != 1 || q.ResourceName != nil || q.Principal != nil || q.Host != nil {
			t.Errorf("not every rule is asked for: %+v", q)
		}
		resp := kmsg.NewPtrDescribeACLsResponse()
		for _, n := range []int8{2, 99} {
			r := kmsg.NewDescribeACLsResponseResource()
			r.ResourceType, r.ResourceName, r.ResourcePatternType = kmsg.ACLResourceType(n), "orders", 3
			for _, op := range []kmsg.ACLOperation{3, 4} {
				a := kmsg.NewDescribeACLsResponseResourceACL()
				a.Principal, a.Host, a.Operation, a.PermissionType = "User:alice", "*", op, 3
				r.ACLs = append(r.ACLs, a)
			}
			resp.Resources = append(resp.Resources, r)
		}
		return resp, nil
	}}
	got, err := f.client().ACLs(t.Context())
	newer := with(func(r *mirror.ACL) { r.ResourceType = "UNKNOWN(99)" })
	write := func(r mirror.ACL) mirror.ACL { r.Operation = "WRITE"; return r }
	if want := []mirror.ACL{readOrders, write(readOrders), newer, write(newer)}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	f.wantAsked(t, 1, 2)

	for code, want := range map[int16]error{kerr.SecurityDisabled.Code: mirror.ErrNoAuthorizer, kerr.ClusterAuthorizationFailed.Code: kerr.ClusterAuthorizationFailed} {
		f.answer = func(int32, kmsg.Request) (kmsg.Response, error) {
			resp := kmsg.NewPtrDescribeACLsResponse()
			resp.ErrorCode = code
			return resp, nil
		}
		if rules, err := f.client().ACLs(t.Context()); !errors.Is(err, want) || rules != nil {
			t.Errorf("%v, %v; want %v", rules, err, want)
		}
	}
}

// hopeless cannot be given to Kafka: as a filter each would find rules that are not meant, or it has no number.
func hopeless() []mirror.ACL {
	return []mirror.ACL{
		with(func(r *mirror.ACL) { r.ResourceType = "ANY" }), with(func(r *mirror.ACL) { r.PatternType = "ANY" }), with(func(r *mirror.ACL) { r.PatternType = "MATCH" }),
		with(func(r *mirror.ACL) { r.Operation = "ANY" }), with(func(r *mirror.ACL) { r.Permission = "ANY" }), with(func(r *mirror.ACL) { r.ResourceName = "" }),
		with(func(r *mirror.ACL) { r.Principal = "" }), with(func(r *mirror.ACL) { r.Host = "" }), with(func(r *mirror.ACL) { r.Operation = "UNKNOWN(77)" }),
	}
}

// TestF66DeletesNothingElse: a filter is exact in each of its parts, and a rule that cannot be expressed exactly leads to no request.
func TestF66DeletesNothingElse(t *testing.T) {
	var filters []kmsg.DeleteACLsRequestFilter
	f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrDeleteACLsResponse()
		for _, filter := range req.(*kmsg.DeleteACLsRequest).Filters {
			filters = append(filters, filter)
			resp.Results = append(resp.Results, kmsg.NewDeleteACLsResponseResult())
		}
		return resp, nil
	}}
	rules := slices.Concat([]mirror.ACL{readOrders}, hopeless(), []mirror.ACL{with(func(r *mirror.ACL) { r.ResourceName, r.Operation = "*", "TWO_PHASE_COMMIT" })})
	errs := f.client().DeleteACLs(t.Context(), rules)
	for i, err := range errs {
		if (err != nil) != (i > 0 && i < len(rules)-1) {
			t.Errorf("%v: %v", rules[i], err)
		}
	}
	if len(filters) != 2 || len(errs) != len(rules) {
		t.Fatalf("%d filters, %d errors", len(filters), len(errs))
	}
	for i, name := range []string{"orders", "*"} {
		q := filters[i]
		if q.ResourceType != 2 || q.ResourceName == nil || *q.ResourceName != name || q.ResourcePatternType != 3 || q.Principal == nil || *q.Principal != "User:alice" ||
			q.Host == nil || *q.Host != "*" || q.Operation != []kmsg.ACLOperation{3, 15}[i] || q.PermissionType != 3 {
			t.Errorf("filter %d is %+v", i, q)
		}
	}
	f.asked = nil
	if errs := f.client().DeleteACLs(t.Context(), hopeless()); slices.Contains(errs, nil) || len(f.asked) != 0 {
		t.Errorf("%v, asked %v", errs, f.asked)
	}
}

// TestACLErrorsByPlace: each error stands at its rule's place, across requests; what a cluster without an authorizer answers is said as such; nil if all were taken.
func TestACLErrorsByPlace(t *testing.T) {
	for _, kind := range []string{"create", "delete"} {
		refuse := map[string]int16{}
		f := &fakeBrokers{answer: func(_ int32, req kmsg.Request) (kmsg.Response, error) {
			switch req := req.(type) {
			case *kmsg.CreateACLsRequest:
				resp := kmsg.NewPtrCreateACLsResponse()
				for _, c := range req.Creations {
					r := kmsg.NewCreateACLsResponseResult()
					r.ErrorCode, r.ErrorMessage = refuse[c.ResourceName], kmsg.StringPtr("in words")
					resp.Results = append(resp.Results, r)
				}
				return resp, nil
			case *kmsg.DeleteACLsRequest:
				resp := kmsg.NewPtrDeleteACLsResponse()
				for _, c := range req.Filters {
					r, m := kmsg.NewDeleteACLsResponseResult(), kmsg.NewDeleteACLsResponseResultMatchingACL()
					m.ErrorCode, m.ErrorMessage = refuse[*c.ResourceName], kmsg.StringPtr("in words")
					r.MatchingACLs = append(r.MatchingACLs, m)
					resp.Results = append(resp.Results, r)
				}
				return resp, nil
			}
			return nil, errSilent
		}}
		do := f.client().CreateACLs
		if kind == "delete" {
			do = f.client().DeleteACLs
		}
		var rules []mirror.ACL
		for i := range mostRules + 5 {
			rules = append(rules, with(func(r *mirror.ACL) { r.ResourceName = fmt.Sprint("t", i) }))
		}
		if errs := do(t.Context(), rules); errs != nil {
			t.Errorf("%s: %v", kind, errs)
		}
		f.wantAsked(t, 1, 2)
		refuse["t3"], refuse[fmt.Sprint("t", mostRules+2)] = kerr.InvalidRequest.Code, kerr.SecurityDisabled.Code
		errs := do(t.Context(), rules)
		for i, err := range errs {
			switch i {
			case 3:
				if !errors.Is(err, kerr.InvalidRequest) || !strings.Contains(err.Error(), "in words") {
					t.Errorf("%s: %v", kind, err)
				}
			case mostRules + 2:
				if !errors.Is(err, mirror.ErrNoAuthorizer) {
					t.Errorf("%s: %v", kind, err)
				}
			default:
				if err != nil {
					t.Errorf("%s %d: %v", kind, i, err)
				}
			}
		}
		f.none = errSilent
		if errs := do(t.Context(), rules[:2]); len(errs) != 2 || !errors.Is(errs[0], errSilent) || !errors.Is(errs[1], errSilent) {
			t.Errorf("%s: %v", kind, errs)
		}
	}
}

// TestTheFilterOfRulesKnowsEveryWord: package mirror has Kafka's words for its setting mirror.acl.include, and may not know this package. Every word that a rule can be listed with can be named there.
func TestTheFilterOfRulesKnowsEveryWord(t *testing.T) {
	accepts := func(rule string) {
		if _, err := (mirror.Settings{"mirror.acl.include": rule}).ACLRules(); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
	}
	for n := range int8(127) {
		for form, text := range map[string]string{"%s": word(kmsg.ACLResourceType(n)), "*;*;%s": word(kmsg.ACLOperation(n)), "*;*;*;%s": word(kmsg.ACLPermissionType(n))} {
			if text != "ANY" && text != "MATCH" && !strings.HasPrefix(text, "UNKNOWN") {
				accepts(fmt.Sprintf(form, text))
			}
		}
	}
}
