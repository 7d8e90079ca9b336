package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// PreflightConfig is what Preflight looks at. Either Source or OpenSource with Settings should be set; without both the source is not looked at.
type PreflightConfig struct {
	Mirror   string   // its name, for the report
	Settings Settings // of the mirror, as they are or as they would be created
	Topics   []string // that are, or would be, started by name; those that the settings' filter finds are looked at besides

	// Source is open already, and stays the caller's. nil: OpenSource opens one from Settings, and Preflight closes it.
	Source     Source
	OpenSource func(ctx context.Context, settings Settings) (Source, error)
	// Destination is only looked at: its cluster id, its topics, and its abilities (RightsChecker, GroupReader, ACLReader). Whether it could do what metadata sync needs is seen only
	// of one that is a whole Destination. nil: it is not looked at.
	Destination TopicLookup

	// SourceClusterID and DestinationClusterID are what was recorded, or is meant: other clusters block. A setting of the mirror that pins one counts more. "" is any.
	SourceClusterID, DestinationClusterID string
	// SourcePrincipal and DestinationPrincipal are for the kafka-acls.sh lines ["User:MIRROR"].
	SourcePrincipal, DestinationPrincipal string
	Bound                                 time.Duration // longest time of one call of a cluster [10 s]
}

// FindingSeverity is what a Finding means for the mirror.
type FindingSeverity string

// The severities.
const (
	FindingFine   FindingSeverity = "fine"   // looked at, and as it should be
	FindingWarns  FindingSeverity = "warns"  // records are copied; something else is not followed, or a person should know
	FindingBlocks FindingSeverity = "blocks" // the mirror, or some of its topics, cannot work
)

// FindingSide is the cluster that a Finding is about.
type FindingSide string

// The sides. Findings about the settings alone have none.
const (
	AtSource      FindingSide = "source"
	AtDestination FindingSide = "destination"
)

// FindingKind is what a Finding is about.
type FindingKind string

// The kinds.
const (
	AboutSettings      FindingKind = "settings"       // of the mirror
	AboutClusters      FindingKind = "clusters"       // reached, and the ones that are meant
	AboutTopics        FindingKind = "topics"         // there, readable, of the same shape
	AboutRights        FindingKind = "rights"         // see Finding.Right
	AboutGroups        FindingKind = "groups"         // whether their offsets can be followed
	AboutTopicSettings FindingKind = "topic settings" // whether they can be followed, and tiered storage
	AboutACLs          FindingKind = "access rules"   // whether they can be followed
	AboutCautions      FindingKind = "caution"        // see Caution
)

// Finding is one thing that Preflight has looked at. What is so with many topics or groups is one Finding.
type Finding struct {
	Kind     FindingKind     `json:"kind"`
	Severity FindingSeverity `json:"severity"`
	Side     FindingSide     `json:"side"`
	Right    Right           `json:"right,omitzero"` // AboutRights: which one; its Name is "", Names has them
	Names    []string        `json:"names"`          // of all topics, partitions or groups that it is about, sorted
	What     string          `json:"what"`           // what was found, without the names
	Do       string          `json:"do"`             // what to do about it; "" for nothing
}

// Error is the finding as a sentence, with the first few names.
func (f Finding) Error() string {
	if f.Do == "" {
		return f.found()
	}
	return f.found() + "; " + OneLine(f.Do)
}

// found is what was found, where, with the first few names.
func (f Finding) found() string {
	s := string(f.Kind) + ": " + f.What
	if f.Side != "" {
		s = string(f.Side) + ", " + s
	}
	if len(f.Names) > 0 {
		names := slices.Clone(f.Names)
		if names[0] == "" { // a group may be called so
			names[0] = `""`
		}
		s += " (" + few(names) + ")"
	}
	return OneLine(strings.ReplaceAll(s, "\n", "; "))
}

// PreflightReport is what Preflight found, in the order in which it looked. It is plain data: String is for a person, JSON gives back an equal report.
type PreflightReport struct {
	Mirror               string    `json:"mirror"`
	SourceClusterID      string    `json:"sourceClusterId"`      // "" if it did not say
	DestinationClusterID string    `json:"destinationClusterId"` // "" if it did not say
	Topics               []string  `json:"topics"`               // of the source that would be mirrored, sorted
	Groups               []string  `json:"groups"`               // of the source that would be followed, sorted
	Findings             []Finding `json:"findings"`
}

// ErrPreflight is what errors.Is finds in the error of a PreflightReport with findings that block.
var ErrPreflight = errors.New("mirror: as things are this mirror, or a part of it, cannot work; nothing was changed")

// Err joins ErrPreflight and all findings that block (each a Finding for errors.As), nil if none does.
func (r PreflightReport) Err() error {
	all := []error{ErrPreflight}
	for _, f := range r.Of(FindingBlocks) {
		all = append(all, f)
	}
	if len(all) == 1 {
		return nil
	}
	return errors.Join(all...)
}

// Of are the findings of one severity.
func (r PreflightReport) Of(s FindingSeverity) []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != s })
}

// JSON is the report as indented JSON.
func (r PreflightReport) JSON() ([]byte, error) { return indentedJSON(r) }

// String is the report for a person: the verdict first, then each finding, what blocks before what warns, and under it what to do.
func (r PreflightReport) String() string {
	var t planText
	t.line("PREFLIGHT  mirror %s", r.Mirror)
	t.line("source %s → destination %s", orUnknown(r.SourceClusterID), orUnknown(r.DestinationClusterID))
	blocks, warns := len(r.Of(FindingBlocks)), len(r.Of(FindingWarns))
	switch {
	case blocks > 0:
		t.line("BLOCKED by %s; %s", plural(blocks, "finding", "findings"), plural(warns, "warning", "warnings"))
	case warns > 0:
		t.line("NOTHING BLOCKS; %s", plural(warns, "warning", "warnings"))
	default:
		t.line("FINE")
	}
	would := plural(len(r.Topics), "topic", "topics") + " would be mirrored"
	if len(r.Topics) > 0 {
		would += ": " + few(r.Topics)
	}
	t.line("%s", would)
	t.line("")
	rights := false
	for _, s := range []FindingSeverity{FindingBlocks, FindingWarns, FindingFine} {
		for _, f := range r.Of(s) {
			t.line("%-6s  %s", s, f.found())
			if f.Do != "" {
				t.line("        → %s", f.Do)
			}
			rights = rights || s != FindingFine && strings.Contains(f.Do, aclsCommand)
		}
	}
	if rights {
		t.line("")
		t.line("A rule that denies wins over what these lines allow: kafka-acls.sh --list shows it.")
	}
	return t.String()
}

// Preflight looks at both clusters as a mirror with these settings would, and changes nothing: no topic is made, no rule, no offset. Rights are tried by requests that have no effect.
// Each call is bounded. What cannot be seen is a finding that says so; that ctx has ended before the look was over is one that blocks.
func Preflight(ctx context.Context, cfg PreflightConfig) PreflightReport {
	cfg.Bound = cmp.Or(cfg.Bound, 10*time.Second)
	cfg.SourcePrincipal, cfg.DestinationPrincipal = cmp.Or(cfg.SourcePrincipal, "User:MIRROR"), cmp.Or(cfg.DestinationPrincipal, "User:MIRROR")
	p := &preflight{cfg: cfg, source: cfg.Source, report: PreflightReport{Mirror: cfg.Mirror, Topics: []string{}, Groups: []string{}, Findings: []Finding{}}}
	p.look(ctx)
	if err := ctx.Err(); err != nil {
		p.addf(AboutClusters, FindingBlocks, "", nil, "look again, with more time", "the look was not finished: %v", err)
	}
	if p.source != nil && cfg.Source == nil {
		_ = p.source.Close() // what it said stands, however its connections end
	}
	return p.report
}

// preflight is one look.
type preflight struct {
	cfg    PreflightConfig
	source Source // nil: it cannot be asked
	silent bool   // the destination cannot be asked

	topics filterOfTopics
	groups GroupFilter
	rules  ACLFilter

	found      []SourceTopic
	absent     []string         // named topics that the source does not show
	unreadable map[string]error // topics that would be mirrored; nil: the source was not asked, or did not answer
	followed   []Group
	report     PreflightReport
}

// filterOfTopics says which topics are meant, and which pattern forbids one.
type filterOfTopics struct {
	Filter
	forbids *topicFilters
}

func (p *preflight) add(f Finding) {
	f.Names = slices.Compact(slices.Sorted(slices.Values(f.Names)))
	if f.Names == nil {
		f.Names = []string{}
	}
	p.report.Findings = append(p.report.Findings, f)
}

func (p *preflight) addf(kind FindingKind, s FindingSeverity, at FindingSide, names []string, do, format string, args ...any) {
	for i, a := range args {
		if err, ok := a.(error); ok {
			args[i] = told(at, err)
		}
	}
	p.add(Finding{Kind: kind, Severity: s, Side: at, Names: names, What: fmt.Sprintf(format, args...), Do: do})
}

// sourceWord is what the errors of a Source call their cluster.
var sourceWord = regexp.MustCompile(`\bsource\b`)

// told is an error of one side in words. A Source may be what a destination is looked at with, and its errors say "source": the finding names the side already, and advice is to speak of the
// right one. What is in e.Err is not touched: a name may be in it.
func told(at FindingSide, err error) string {
	text := err.Error()
	if at == "" {
		return text
	}
	var each func(error)
	each = func(err error) {
		switch e := err.(type) {
		case *SourceError:
			own := *e
			if at == AtDestination {
				own.Advice = sourceWord.ReplaceAllString(own.Advice, string(at))
			}
			text = strings.ReplaceAll(text, e.Error(), strings.TrimPrefix(own.Error(), "source: "))
		case interface{ Unwrap() error }:
			each(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				each(err)
			}
		}
	}
	each(err)
	return text
}

// answered asks one question of a cluster, within the bound.
func answered[T any](ctx context.Context, p *preflight, question func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeout(ctx, p.cfg.Bound)
	defer stop()
	return question(ctx)
}

// look looks at everything that can be looked at; what depends on something that is missing is left out, and said.
func (p *preflight) look(ctx context.Context) {
	if !p.settings() {
		return
	}
	p.open(ctx)
	p.clusters(ctx)
	p.sourceTopics(ctx)
	p.sourceGroups(ctx)
	p.rights(ctx, AtSource)
	p.sourceShape()
	p.destinationTopics(ctx)
	p.rights(ctx, AtDestination)
	p.destinationGroups(ctx)
	p.topicSettings(ctx)
	p.accessRules(ctx)
	for _, g := range cautionsOf(slices.Concat(p.report.Topics, p.absent)) {
		p.addf(AboutCautions, FindingWarns, AtSource, g.topics, g.Do, "%s: %s", g.About, g.Reason)
	}
}

// settings reads the filters; false: they say nothing.
func (p *preflight) settings() bool {
	s, good := p.cfg.Settings, true
	faults := s.mirrorFaults()
	slices.SortFunc(faults, func(a, b *SettingError) int {
		return cmp.Or(cmp.Compare(a.Setting, b.Setting), cmp.Compare(a.Problem, b.Problem))
	})
	for _, f := range slices.CompactFunc(faults, func(a, b *SettingError) bool { return *a == *b }) {
		good = false
		p.addf(AboutSettings, FindingBlocks, "", nil, "correct it", "%v", f)
	}
	if s[bootstrapSetting] == "" && p.source == nil && p.cfg.OpenSource != nil {
		p.addf(AboutSettings, FindingBlocks, "", nil, "set it to the addresses of the source's brokers", "setting %s is missing", bootstrapSetting)
		good = false
	}
	if !good {
		return false
	}
	canonical, err := s.Canonical()
	if err != nil {
		return false // a fault that was told
	}
	filter, err1 := s.TopicFilter()
	p.topics = filterOfTopics{filter, &topicFilters{settings: canonical, filter: filter}}
	var err2, err3 error
	p.groups, err2 = s.GroupFilter()
	p.rules, err3 = s.ACLRules()
	return errors.Join(err1, err2, err3) == nil
}
