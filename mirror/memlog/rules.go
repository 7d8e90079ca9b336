package memlog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/mirror"
)

// SetAuthorizer gives the cluster an authorizer, or takes it away [none]: without one the calls about access rules return mirror.ErrNoAuthorizer, and nothing is denied.
// The rules themselves stay.
func (c *Cluster) SetAuthorizer(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorizer = on
}

// SetDenied says which rights the mirror's user lacks at this cluster, instead of those that it lacked before; Name "*" is every topic or group. None: it may do everything.
// They are what MissingRights answers and what the calls about groups, settings and access rules ask for; nothing else does. It needs an authorizer: with rights, there is one from here on.
func (c *Cluster) SetDenied(rights ...mirror.Right) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = map[mirror.Right]struct{}{}
	for _, r := range rights {
		c.denied[r] = struct{}{}
		c.authorizer = true
	}
}

// lacks says that the mirror's user lacks a right. Under mu.
func (c *Cluster) lacks(operation, resource, name string) bool {
	_, this := c.denied[mirror.Right{Operation: operation, Resource: resource, Name: name}]
	_, every := c.denied[mirror.Right{Operation: operation, Resource: resource, Name: "*"}]
	return c.authorizer && (this || every)
}

// denied is a refusal in Kafka's words, of a read and of a change: nothing was done. To a mirror that reads it as a source it is a *mirror.SourceError; its words do not say as what it was asked,
// since the cluster cannot tell.
func denied(operation, resource, name string) error {
	r := mirror.Right{Operation: operation, Resource: resource, Name: name}
	err := fmt.Errorf("memlog: %s_AUTHORIZATION_FAILED: %s", strings.ToUpper(resource), r)
	advice := "grant the mirror's user " + r.String()
	return &mirror.RefusedError{Err: &sideless{fmt.Sprintf("%v (%s)", err, advice), &mirror.SourceError{Code: mirror.SourceDenied, Operation: operation, Err: err, Advice: advice}}}
}

// sideless is a *mirror.SourceError of a cluster that may be a destination here.
type sideless struct {
	words string
	err   *mirror.SourceError
}

func (e *sideless) Error() string { return e.words }
func (e *sideless) Unwrap() error { return e.err }

// metadata runs one read of groups, settings or access rules under mu. A mirror reads them at both sides, in the same way: the cluster cannot tell as what it is asked.
func (c *Cluster) metadata(ctx context.Context, call Call, operation string, f func() error) error {
	return c.call(ctx, call, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.unreachable {
			err := sourceError(mirror.SourceUnreachable, operation, mirror.TopicPartition{}, ErrUnreachable)
			return &sideless{fmt.Sprintf("%s: %v", operation, ErrUnreachable), err}
		}
		return f()
	})
}

// AddACL adds access rules, as an operator of the cluster does. They are kept also where there is no authorizer yet.
func (c *Cluster) AddACL(rules ...mirror.ACL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rules {
		c.rules[r] = struct{}{}
	}
}

// RemoveACL removes access rules; one that is not there is fine.
func (c *Cluster) RemoveACL(rules ...mirror.ACL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rules {
		delete(c.rules, r)
	}
}

// ListACLs lists every access rule, in order of resource, principal, operation, permission and host. It passes no hook and needs no authorizer.
func (c *Cluster) ListACLs() []mirror.ACL {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed()
}

// listed lists the access rules. Under mu.
func (c *Cluster) listed() []mirror.ACL {
	all := make([]mirror.ACL, 0, len(c.rules))
	for r := range c.rules {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b mirror.ACL) int {
		return cmp.Or(
			cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.ResourceName, b.ResourceName), cmp.Compare(a.PatternType, b.PatternType),
			cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission), cmp.Compare(a.Host, b.Host),
		)
	})
	return all
}

// ACLs lists every access rule, in ListACLs' order.
func (c *Cluster) ACLs(ctx context.Context) (found []mirror.ACL, err error) {
	err = c.metadata(ctx, Call{Operation: "Metadata.ACLs"}, "describe access rules", func() error {
		if err := c.mayACLs("Describe"); err != nil {
			return err
		}
		found = c.listed()
		return nil
	})
	return found, err
}

// mayACLs is why access rules cannot be had at all. Under mu.
func (c *Cluster) mayACLs(operation string) error {
	switch {
	case !c.authorizer:
		return &mirror.RefusedError{Err: fmt.Errorf("memlog: SECURITY_DISABLED: %w", mirror.ErrNoAuthorizer)}
	case c.lacks(operation, "Cluster", ""):
		return denied(operation, "Cluster", "")
	}
	return nil
}

// CreateACLs adds access rules. One without a resource name, or whose principal is not TYPE:NAME, is refused alone, as Kafka does. An error of a hook is that of every rule.
func (c *Cluster) CreateACLs(ctx context.Context, rules []mirror.ACL) []error {
	return c.changeACLs(ctx, "CreateACLs", rules, func(r mirror.ACL) error {
		if kind, name, _ := strings.Cut(r.Principal, ":"); r.ResourceName == "" || kind == "" || name == "" {
			err := fmt.Errorf("memlog: INVALID_REQUEST: an access rule needs a resource and a principal like User:alice, not %q and %q", r.ResourceName, r.Principal)
			return &mirror.RefusedError{Err: err}
		}
		c.rules[r] = struct{}{}
		return nil
	})
}

// DeleteACLs removes access rules. An error of a hook is that of every rule.
func (c *Cluster) DeleteACLs(ctx context.Context, rules []mirror.ACL) []error {
	return c.changeACLs(ctx, "DeleteACLs", rules, func(r mirror.ACL) error {
		delete(c.rules, r)
		return nil
	})
}

func (c *Cluster) changeACLs(ctx context.Context, method string, rules []mirror.ACL, change func(mirror.ACL) error) []error {
	failed, some := make([]error, len(rules)), false
	err := c.call(ctx, Call{Operation: "Destination." + method}, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.mayACLs("Alter"); err != nil {
			return err
		}
		for i, r := range rules {
			failed[i] = change(r)
			some = some || failed[i] != nil
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(rules))
	}
	if !some {
		return nil
	}
	return failed
}

// MissingRights answers from SetDenied.
func (c *Cluster) MissingRights(ctx context.Context, rights []mirror.Right) (missing, unknown []mirror.Right, err error) {
	err = c.metadata(ctx, Call{Operation: "Metadata.MissingRights"}, "look rights up", func() error {
		for _, r := range rights {
			if c.lacks(r.Operation, r.Resource, r.Name) {
				missing = append(missing, r)
			}
		}
		return nil
	})
	if err != nil {
		return nil, slices.Clone(rights), err
	}
	return missing, nil, nil
}
