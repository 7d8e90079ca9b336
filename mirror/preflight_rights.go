package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// askedAtOnce is how many rights, or topics, one call asks for at most.
const askedAtOnce = 1000

// neededRight is a right that a mirror needs at one side.
type neededRight struct {
	side                FindingSide
	resource, operation string
	severity            FindingSeverity // of its lack
	without             string          // what is lost
}

// neededRights are all of them, those of copying first. Kafka counts Describe to Read, and DescribeConfigs to AlterConfigs.
var neededRights = []neededRight{
	{AtSource, "Topic", "Describe", FindingBlocks, "it cannot be found"},
	{AtSource, "Topic", "Read", FindingBlocks, "its records cannot be copied"},
	{AtSource, "Topic", "DescribeConfigs", FindingBlocks, "its settings are not followed, and where the destination does not have it yet it is not created"},
	{AtSource, "Group", "Describe", FindingWarns, "its offsets are not followed"},
	{AtSource, "Cluster", "Describe", FindingWarns, "only groups are found that may be described one by one, and access rules are not followed"},
	{AtDestination, "Topic", "Read", FindingWarns, "offsets of groups cannot be set in it"},
	{AtDestination, "Topic", "AlterConfigs", FindingWarns, "settings of the source are not followed"},
	{AtDestination, "Group", "Read", FindingWarns, "its offsets are not followed"},
	{AtDestination, "Group", "Describe", FindingWarns, "its offsets are not followed"},
	{AtDestination, "Cluster", "Describe", FindingWarns, "it is not seen which groups have members, and access rules are not followed"},
	{AtDestination, "Cluster", "Alter", FindingWarns, "access rules are not followed"},
}

// rights asks one side for everything that is needed there.
func (p *preflight) rights(ctx context.Context, at FindingSide) {
	var cluster any = p.source
	if at == AtDestination {
		cluster = p.cfg.Destination
	}
	if at == AtSource && p.source == nil || at == AtDestination && p.silent {
		return
	}
	checker, ok := cluster.(RightsChecker)
	if !ok {
		p.addf(AboutRights, FindingWarns, at, nil, "", "what the mirror's user may do was not looked at: there is nobody here who can ask")
		return
	}
	good, asked := true, 0
	topics := slices.Sorted(slices.Values(slices.Concat(p.report.Topics, p.absent)))
	unset := func(name string) bool { return false } // settings that cannot be read are a finding of their own
	if excluded, err := p.cfg.Settings.PropertyExcluded(); err == nil {
		unset = excluded
	}
	for _, n := range neededRights {
		if n.side != at || n.operation == "Alter" && len(p.rules.rules) == 0 || strings.HasSuffix(n.operation, "Configs") && unset(everySetting) {
			continue
		}
		names := []string{""}
		switch n.resource {
		case "Topic":
			names = topics
		case "Group":
			names = p.report.Groups
		}
		var missing, unknown []string
		var trouble error
		for some := range slices.Chunk(names, askedAtOnce) {
			rights := make([]Right, len(some))
			for i, name := range some {
				rights[i] = Right{Operation: n.operation, Resource: n.resource, Name: name}
			}
			if trouble != nil { // a cluster that is silent is waited for once
				unknown = append(unknown, some...)
				continue
			}
			lacks, unseen, err := p.missing(ctx, checker, rights)
			for _, r := range lacks {
				missing = append(missing, r.Name)
			}
			for _, r := range unseen {
				unknown = append(unknown, r.Name)
			}
			trouble = err
		}
		asked += len(names)
		good = p.judge(n, missing, unknown, trouble) && good
	}
	if good {
		p.addf(AboutRights, FindingFine, at, nil, "", "%s there", plural(asked, "right that is needed is", "rights that are needed are"))
	}
}

func (p *preflight) missing(ctx context.Context, checker RightsChecker, rights []Right) (missing, unknown []Right, err error) {
	ctx, stop := context.WithTimeout(ctx, p.cfg.Bound)
	defer stop()
	return checker.MissingRights(ctx, rights)
}

// judge says what came of asking for one right; true: nothing is missing.
func (p *preflight) judge(n neededRight, missing, unknown []string, trouble error) bool {
	right := Right{Operation: n.operation, Resource: n.resource}
	of := func(names []string) string {
		if n.resource == "Cluster" {
			return n.operation + " on the cluster"
		}
		return fmt.Sprintf("%s on %s", n.operation, plural(len(names), strings.ToLower(n.resource), strings.ToLower(n.resource)+"s"))
	}
	if len(missing) > 0 {
		p.add(Finding{Kind: AboutRights, Severity: n.severity, Side: n.side, Right: right, Names: n.named(missing), What: of(missing) + " is not allowed: " + n.without, Do: p.granting(n, missing)})
	}
	if len(unknown) > 0 {
		why := trouble
		if why == nil {
			why = errors.New("the cluster did not say")
		}
		p.add(Finding{Kind: AboutRights, Severity: FindingWarns, Side: n.side, Right: right, Names: n.named(unknown), What: fmt.Sprintf("whether %s is allowed was not seen: %s", of(unknown), told(n.side, why)), Do: "look again"})
	}
	return len(missing)+len(unknown) == 0
}

// named leaves out the cluster's empty name. A group may be called so too.
func (n neededRight) named(names []string) []string {
	if n.resource == "Cluster" {
		return nil
	}
	return names
}

// refused says that an error is the lack of a right, which was told as such.
func (p *preflight) refused(at FindingSide, err error) bool {
	var e *SourceError
	return errors.As(err, &e) && e.Code == SourceDenied && slices.ContainsFunc(p.report.Findings, func(f Finding) bool {
		return f.Kind == AboutRights && f.Side == at && f.Right != Right{} && f.Severity != FindingFine
	})
}

const aclsCommand = "kafka-acls.sh"

// commandNames is how many topics or groups a command names; for more it says "*".
const commandNames = 5

// granting is what gives a right: a command, unless a name cannot be typed into one. Operators narrow a "*" as they see fit.
func (p *preflight) granting(n neededRight, names []string) string {
	principal, where := p.cfg.SourcePrincipal, "SOURCE"
	if n.side == AtDestination {
		principal, where = p.cfg.DestinationPrincipal, "DESTINATION"
	}
	if !typed(principal) {
		return fmt.Sprintf("allow it with a program: the name %q of the mirror's user holds characters that cannot be typed", principal)
	}
	if n.resource == "Cluster" {
		return "run: " + command(n, where, principal, " --cluster")
	}
	odd := slices.DeleteFunc(slices.Clone(names), typed)
	switch {
	case len(names) > commandNames, slices.Contains(names, ""): // no rule names the empty one, and one for all has it too (Kafka: AclControlManager)
		names, odd = []string{"*"}, nil
	case len(odd) > 0:
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !typed(name) })
	}
	var words []string
	if len(names) > 0 {
		resources := ""
		for _, name := range names {
			resources += " --" + strings.ToLower(n.resource) + " " + shellWord(name)
		}
		words = append(words, "run: "+command(n, where, principal, resources))
	}
	for _, name := range odd {
		words = append(words, fmt.Sprintf("the name %q holds characters that cannot be typed: allow %s on it with a program, or by a rule on a prefix of it", name, n.operation))
	}
	return strings.Join(words, "; ")
}

func command(n neededRight, where, principal, resource string) string {
	return fmt.Sprintf("%s --bootstrap-server %s:PORT --command-config ADMIN.properties --add --allow-principal %s --operation %s%s", aclsCommand, where, shellWord(principal), n.operation, resource)
}

// typed says whether a name is the same behind a line that was printed, read and copied. Groups may be called anything.
func typed(name string) bool { return OneLine(name) == name }

// shellWord is a word that a shell takes as it is, of a name that is typed.
func shellWord(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
