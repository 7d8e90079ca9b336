package mirror

import (
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/statemachine"
)

// A DENY rule of the source, such as a fence that keeps its producers out before a failover, is followed like any other access rule (F-66), and stays here after a stop: whoever is refused then has to
// hear of it. Nothing takes it out by itself, because a DENY may as well be meant for both clusters.

// denials are the DENY rules about one of these topics that a mirror has made, as far as its records can be read. They are in order.
func (s *ControlState) denials(mirror string, topics []string) (rules []ACL) {
	for _, p := range s.provenanceOfKind(mirror, ruleProvenance) {
		a, err := aclStored(p.Name)
		if err != nil || p.unreadable() != nil || a.Permission != "DENY" || a.ResourceType != "TOPIC" {
			continue
		}
		for _, topic := range topics {
			if a.about(topic) {
				rules = append(rules, a)
				break
			}
		}
	}
	return rules
}

// about says whether a rule on topics is about this one.
func (a ACL) about(topic string) bool {
	if a.PatternType == "PREFIXED" {
		return strings.HasPrefix(topic, a.ResourceName)
	}
	return a.ResourceName == topic || a.ResourceName == "*"
}

// denialNotes say that clients are refused by rules that the mirror has made, and how to take them out.
func denialNotes(rules []ACL) (notes []string) {
	const most = 10
	for i, a := range rules {
		if i == most {
			notes = append(notes, fmt.Sprintf("and %d more rules with DENY that the mirror made", len(rules)-i))
			break
		}
		notes = append(notes, fmt.Sprintf("the mirror made this rule as the source has it, and a stop leaves it here, so clients are refused: %s. Unless that is meant: %s", OneLine(a.String()), a.removal()))
	}
	return notes
}

// removal is the line for a shell that takes the rule out.
func (a ACL) removal() string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(OneLine(s), "'", `'\''`) + "'" }
	var operation strings.Builder // DESCRIBE_CONFIGS is DescribeConfigs
	for _, word := range strings.Split(a.Operation, "_") {
		if word != "" {
			operation.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return fmt.Sprintf("%s --bootstrap-server HOST:PORT --command-config ADMIN.properties --remove --deny-principal %s --deny-host %s --operation %s --topic %s --resource-pattern-type %s", aclsCommand,
		quote(a.Principal), quote(a.Host), operation.String(), quote(a.ResourceName), strings.ToLower(a.PatternType))
}

// stoppedNames are the topics of a mirror that are wanted stopped.
func (s *ControlState) stoppedNames(mirror string) (names []string) {
	for _, w := range s.Topics {
		if of, want, err := w.Wish(); err == nil && of == mirror && want == statemachine.WantStopped {
			names = append(names, w.Topic)
		}
	}
	return names
}
