package kafkametadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// mostRules go in one request.
const mostRules = 1000

// ACLs is mirror.ACLReader: every rule, as one broker knows them. A word that this version has no name for is written UNKNOWN(16), with Kafka's number for it: the rule is listed, so that
// nobody takes it for gone, two of them are never taken for one, and CreateACLs and DeleteACLs refuse it by itself. The user needs Describe on the cluster.
func (c *Client) ACLs(ctx context.Context) ([]mirror.ACL, error) {
	brokers, err := c.anyBroker(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := askAny[*kmsg.DescribeACLsResponse](ctx, brokers, func() kmsg.Request {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
		req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		return req
	})
	if err != nil {
		return nil, err
	}
	if err := aclRefusal(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, fmt.Errorf("listing access rules: %w", err)
	}
	var rules []mirror.ACL
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			rules = append(rules, mirror.ACL{
				ResourceType: word(r.ResourceType), ResourceName: r.ResourceName, PatternType: word(r.ResourcePatternType),
				Principal: a.Principal, Host: a.Host, Operation: word(a.Operation), Permission: word(a.PermissionType),
			})
		}
	}
	return rules, nil
}

// CreateACLs is mirror.ACLWriter. The user needs Alter on the cluster.
func (c *Client) CreateACLs(ctx context.Context, rules []mirror.ACL) []error {
	return c.changeACLs(ctx, rules, func(ctx context.Context, brokers *anyBroker, some []encodedACL) ([]error, error) {
		resp, err := askAny[*kmsg.CreateACLsResponse](ctx, brokers, func() kmsg.Request {
			req := kmsg.NewPtrCreateACLsRequest()
			for _, r := range some {
				rule := kmsg.NewCreateACLsRequestCreation()
				rule.ResourceType, rule.ResourceName, rule.ResourcePatternType = r.resource, r.rule.ResourceName, r.pattern
				rule.Principal, rule.Host, rule.Operation, rule.PermissionType = r.rule.Principal, r.rule.Host, r.operation, r.permission
				req.Creations = append(req.Creations, rule)
			}
			return req
		})
		if err != nil {
			return nil, err
		}
		var errs []error
		for _, r := range resp.Results {
			errs = append(errs, brokers.refused(r.ErrorCode, aclRefusal(r.ErrorCode, r.ErrorMessage)))
		}
		return errs, nil
	})
}

// DeleteACLs is mirror.ACLWriter. Every part of a rule is given to Kafka as a filter that matches nothing but itself. The user needs Alter on the cluster.
func (c *Client) DeleteACLs(ctx context.Context, rules []mirror.ACL) []error {
	return c.changeACLs(ctx, rules, func(ctx context.Context, brokers *anyBroker, some []encodedACL) ([]error, error) {
		resp, err := askAny[*kmsg.DeleteACLsResponse](ctx, brokers, func() kmsg.Request {
			req := kmsg.NewPtrDeleteACLsRequest()
			for _, r := range some {
				filter := kmsg.NewDeleteACLsRequestFilter()
				filter.ResourceType, filter.ResourceName, filter.ResourcePatternType = r.resource, kmsg.StringPtr(r.rule.ResourceName), r.pattern
				filter.Principal, filter.Host = kmsg.StringPtr(r.rule.Principal), kmsg.StringPtr(r.rule.Host)
				filter.Operation, filter.PermissionType = r.operation, r.permission
				req.Filters = append(req.Filters, filter)
			}
			return req
		})
		if err != nil {
			return nil, err
		}
		var errs []error
		for _, r := range resp.Results {
			err := aclRefusal(r.ErrorCode, r.ErrorMessage)
			for _, m := range r.MatchingACLs {
				err = errors.Join(err, aclRefusal(m.ErrorCode, m.ErrorMessage))
			}
			errs = append(errs, err)
		}
		return errs, nil
	})
}

// encodedACL is a rule with Kafka's numbers for its words.
type encodedACL struct {
	at         int // its place in the caller's list
	rule       mirror.ACL
	resource   kmsg.ACLResourceType
	pattern    kmsg.ACLResourcePatternType
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

// changeACLs sends the rules that can be expressed, some at a time, and puts each answer at its rule's place.
func (c *Client) changeACLs(ctx context.Context, rules []mirror.ACL, send func(context.Context, *anyBroker, []encodedACL) ([]error, error)) []error {
	errs := make([]error, len(rules))
	var good []encodedACL
	for i, r := range rules {
		e, err := encode(r)
		if err != nil {
			errs[i] = &mirror.RefusedError{Err: fmt.Errorf("access rule %v: %w", r, err)}
			continue
		}
		e.at = i
		good = append(good, e)
	}
	var brokers *anyBroker
	var err error
	for some := range slices.Chunk(good, mostRules) {
		if brokers == nil && err == nil {
			brokers, err = c.anyBroker(ctx)
		}
		var answers []error
		serr := err
		if serr == nil {
			answers, serr = send(ctx, brokers, some)
		}
		if serr == nil && len(answers) != len(some) {
			serr = fmt.Errorf("the broker answered for %d of %d rules", len(answers), len(some))
		}
		for i, e := range some {
			err := serr
			if err == nil {
				err = answers[i]
			}
			if err != nil {
				errs[e.at] = fmt.Errorf("access rule %v: %w", e.rule, err)
			}
		}
	}
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	return errs
}

// aclRefusal is refusal, and mirror.ErrNoAuthorizer of a cluster that has none.
func aclRefusal(code int16, message *string) error {
	if code == kerr.SecurityDisabled.Code {
		return mirror.ErrNoAuthorizer
	}
	return refusal(code, message)
}

// aclWord is one of Kafka's enumerations in a rule.
type aclWord interface {
	~int8
	String() string
}

// twoPhaseCommit is an operation of Kafka 4.1 and later (KIP-939, Kafka: AclOperation).
const twoPhaseCommit kmsg.ACLOperation = 15

// word is what kafka-acls.sh prints for a value.
func word[T aclWord](v T) string {
	if any(v) == any(twoPhaseCommit) {
		return "TWO_PHASE_COMMIT"
	}
	if s := v.String(); s != "UNKNOWN" {
		return s
	}
	return fmt.Sprintf("UNKNOWN(%d)", int8(v))
}

// value is the value of a word, never one that stands for several: as a filter it would find rules that are not meant.
func value[T aclWord](what, text string) (T, error) {
	for n := range int8(127) {
		if v := T(n); word(v) == text && text != "ANY" && text != "MATCH" && !strings.HasPrefix(text, "UNKNOWN") {
			return v, nil
		}
	}
	return 0, fmt.Errorf("this version does not know the %s %q: nothing was done for it; make or remove the rule by hand", what, text)
}

func encode(r mirror.ACL) (e encodedACL, err error) {
	e.rule = r
	var errs [4]error
	e.resource, errs[0] = value[kmsg.ACLResourceType]("resource type", r.ResourceType)
	e.pattern, errs[1] = value[kmsg.ACLResourcePatternType]("pattern type", r.PatternType)
	e.operation, errs[2] = value[kmsg.ACLOperation]("operation", r.Operation)
	e.permission, errs[3] = value[kmsg.ACLPermissionType]("permission", r.Permission)
	if err := errors.Join(errs[:]...); err != nil {
		return e, err
	}
	if r.ResourceName == "" || r.Principal == "" || r.Host == "" {
		return e, errors.New("it names no resource, principal or host: nothing was done for it")
	}
	return e, nil
}
