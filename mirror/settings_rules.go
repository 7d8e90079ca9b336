package mirror

import (
	"fmt"
	"slices"
	"strings"
)

// The words of access rules (org.apache.kafka.common.resource.ResourceType, org.apache.kafka.common.acl.AclOperation and AclPermissionType).
var aclWords = [][]string{
	{"TOPIC", "GROUP", clusterResource, "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER", "CLUSTER_MIRROR"},
	nil,
	{"ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS",
		"DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"},
	{"ALLOW", "DENY"},
	nil,
}

// clusterResource is the one type of resource that * does not mean.
const clusterResource = "CLUSTER"

// ACLFilter is which access rules of a source are followed. Its zero value matches none. Safe for concurrent use.
type ACLFilter struct {
	rules []aclRule
}

// aclRule is one rule of mirror.acl.include (spec §6): what a field has to be, by aclWords; "" and nil are any.
type aclRule struct {
	words    [5]string
	patterns [5]patternList
}

// Matches says whether an access rule is followed. One on the cluster is only if a rule names CLUSTER: with it a broker of the source would be one of the destination's (ClusterAction).
func (f ACLFilter) Matches(a ACL) bool {
	return slices.ContainsFunc(f.rules, func(r aclRule) bool {
		if r.words[0] == "" && strings.EqualFold(a.ResourceType, clusterResource) {
			return false
		}
		for i, value := range []string{a.ResourceType, a.ResourceName, a.Operation, a.Permission, a.Principal} {
			if r.words[i] != "" && !strings.EqualFold(r.words[i], value) || r.patterns[i] != nil && !r.patterns[i].matches(value) {
				return false
			}
		}
		return true
	})
}

// ACLRules is the effective filter of access rules, mirror.acl.include. Errors: a *SettingError, which is ErrPattern where a pattern is none.
func (s Settings) ACLRules() (ACLFilter, error) {
	value := s.Effective(aclIncludeSetting)
	rules, err := parseACLRules(value)
	if err != nil {
		return ACLFilter{}, &SettingError{Setting: aclIncludeSetting, Value: value, Problem: err.Error(), Err: err}
	}
	return ACLFilter{rules}, nil
}

// parseACLRules reads rules of the form type;name;operation;permission;principal, of which fields at the end may be left out.
func parseACLRules(value string) ([]aclRule, error) {
	var rules []aclRule
	for _, rule := range settingList(value) {
		fields := strings.Split(rule, ";")
		if len(fields) > len(aclWords) {
			return nil, fmt.Errorf("rule %q has more than %d fields", rule, len(aclWords))
		}
		var r aclRule
		for i, field := range fields {
			field = strings.TrimSpace(field)
			if field == "*" {
				continue
			}
			if aclWords[i] == nil {
				compiled, err := compilePatterns([]string{field})
				if err != nil {
					return nil, fmt.Errorf("rule %q: %w", rule, err)
				}
				r.patterns[i] = compiled
				continue
			}
			r.words[i] = strings.ToUpper(field)
			if !slices.Contains(aclWords[i], r.words[i]) {
				return nil, fmt.Errorf("rule %q: %q is none of *, %s", rule, field, strings.Join(aclWords[i], ", "))
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func aclRulesFault(value string) error {
	_, err := parseACLRules(value)
	return err
}
