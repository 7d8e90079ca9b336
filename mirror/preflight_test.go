package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

var rewritePreflight = flag.Bool("rewrite-preflight", false, "write testdata/preflight.txt instead of comparing with it")

// twoSides are clusters A, with topics orders and payments and groups g and h, and B, both with an authorizer.
func twoSides(t *testing.T) (a, b *side) {
	t.Helper()
	a, b = newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
	for _, topic := range []string{"orders", "payments"} {
		a.local(topic, 2)
	}
	for _, group := range []string{"g", "h"} {
		if err := a.CommitOffset(group, mirror.TopicPartition{Topic: "orders"}, mirror.GroupOffset{}); err != nil {
			t.Fatal(err)
		}
	}
	a.SetAuthorizer(true)
	b.SetAuthorizer(true)
	a.AddACL(mirror.ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "READ", Permission: "ALLOW"})
	return a, b
}

var allTopics = mirror.Settings{"bootstrap.servers": "a:9092", "mirror.topics.include": ".*"}

func preflight(t *testing.T, cfg mirror.PreflightConfig) mirror.PreflightReport {
	t.Helper()
	if cfg.Mirror == "" {
		cfg.Mirror = "dr"
	}
	r := mirror.Preflight(t.Context(), cfg)
	b, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back mirror.PreflightReport
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("JSON gives back another report (%v)\n%+v\n%+v", err, back, r)
	}
	if blocks := len(r.Of(mirror.FindingBlocks)) > 0; blocks != (r.Err() != nil) || r.Err() != nil && !errors.Is(r.Err(), mirror.ErrPreflight) {
		t.Errorf("blocks %v, error %v", blocks, r.Err())
	}
	return r
}

// expectFindings checks that exactly these findings are there that are not fine: "severity side kind words".
func expectFindings(t *testing.T, what string, r mirror.PreflightReport, want ...string) {
	t.Helper()
	var got []string
	for _, f := range r.Findings {
		if f.Severity != mirror.FindingFine {
			got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Error()))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d findings, want %d\n%s", what, len(got), len(want), r)
		return
	}
	for i, words := range want {
		for _, w := range strings.Split(words, "…") {
			if !strings.Contains(got[i], w) {
				t.Errorf("%s: finding %d is\n%s\nand lacks %q", what, i, got[i], w)
			}
		}
	}
}

func TestPreflightFindsNothingWrong(t *testing.T) {
	a, b := twoSides(t)
	r := preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster})
	expectFindings(t, "all is well", r)
	if r.Err() != nil || !strings.Contains(r.String(), "\nFINE\n") || !slices.Equal(r.Topics, []string{"orders", "payments"}) || !slices.Equal(r.Groups, []string{"g", "h"}) {
		t.Errorf("%v\n%+v", r, r)
	}
	if r.SourceClusterID != "A" || r.DestinationClusterID != "B" {
		t.Errorf("clusters %q and %q", r.SourceClusterID, r.DestinationClusterID)
	}
	for _, words := range []string{"source, access rules: 1 of 1 access rule would be followed", "source, groups: 2 groups of 2 would be followed (g, h)", "destination, topics: 2 topics will be created (orders, payments)"} {
		if !strings.Contains(r.String(), words) {
			t.Errorf("%q is not in\n%s", words, r)
		}
	}
}

// TestPreflightNamesEachMissingRight: at its side, with what is lost, and the line that grants it. What copying needs blocks; what a part of metadata sync needs does not.
func TestPreflightNamesEachMissingRight(t *testing.T) {
	for _, c := range []struct {
		side                string
		right               mirror.Right
		severity            mirror.FindingSeverity
		without, operations string
	}{
		{"source", mirror.Right{Operation: "Describe", Resource: "Topic", Name: "orders"}, mirror.FindingBlocks, "it cannot be found", "--operation Describe --topic 'orders'"},
		{"source", mirror.Right{Operation: "Read", Resource: "Topic", Name: "orders"}, mirror.FindingBlocks, "its records cannot be copied", "--operation Read --topic 'orders'"},
		{"source", mirror.Right{Operation: "DescribeConfigs", Resource: "Topic", Name: "orders"}, mirror.FindingBlocks, "its settings are not followed", "--operation DescribeConfigs --topic 'orders'"},
		{"source", mirror.Right{Operation: "Describe", Resource: "Group", Name: "g"}, mirror.FindingWarns, "offsets are not followed", "--operation Describe --group 'g'"},
		{"source", mirror.Right{Operation: "Describe", Resource: "Cluster"}, mirror.FindingWarns, "access rules are not followed", "--operation Describe --cluster"},
		{"destination", mirror.Right{Operation: "Read", Resource: "Topic", Name: "orders"}, mirror.FindingWarns, "offsets of groups cannot be set in it", "--operation Read --topic 'orders'"},
		{"destination", mirror.Right{Operation: "AlterConfigs", Resource: "Topic", Name: "orders"}, mirror.FindingWarns, "settings of the source are not followed", "--operation AlterConfigs --topic 'orders'"},
		{"destination", mirror.Right{Operation: "Read", Resource: "Group", Name: "g"}, mirror.FindingWarns, "its offsets are not followed", "--operation Read --group 'g'"},
		{"destination", mirror.Right{Operation: "Describe", Resource: "Group", Name: "g"}, mirror.FindingWarns, "its offsets are not followed", "--operation Describe --group 'g'"},
		{"destination", mirror.Right{Operation: "Describe", Resource: "Cluster"}, mirror.FindingWarns, "access rules are not followed", "--operation Describe --cluster"},
		{"destination", mirror.Right{Operation: "Alter", Resource: "Cluster"}, mirror.FindingWarns, "access rules are not followed", "--operation Alter --cluster"},
	} {
		a, b := twoSides(t)
		map[string]*side{"source": a, "destination": b}[c.side].SetDenied(c.right)
		r := preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster, SourcePrincipal: "User:m at A", DestinationPrincipal: "User:m at B"})
		what := c.side + " " + c.right.String()
		at := slices.IndexFunc(r.Findings, func(f mirror.Finding) bool { return f.Right != mirror.Right{} })
		if at < 0 {
			t.Errorf("%s: no finding\n%s", what, r)
			continue
		}
		f := r.Findings[at]
		if string(f.Side) != c.side || f.Kind != mirror.AboutRights || f.Severity != c.severity || f.Right.Operation != c.right.Operation || f.Right.Resource != c.right.Resource || f.Right.Name != "" ||
			!slices.Equal(f.Names, slices.DeleteFunc([]string{c.right.Name}, func(s string) bool { return s == "" })) {
			t.Errorf("%s: %+v", what, f)
		}
		where, principal := "SOURCE", "User:m at A"
		if c.side == "destination" {
			where, principal = "DESTINATION", "User:m at B"
		}
		line := "run: kafka-acls.sh --bootstrap-server " + where + ":PORT --command-config ADMIN.properties --add --allow-principal '" + principal + "' " + c.operations
		if f.Do != line || !strings.Contains(f.What, c.without) {
			t.Errorf("%s: %s\n%s\nwant %s", what, f.What, f.Do, line)
		}
		for i, other := range r.Findings { // what follows from it is not told twice; a group that cannot be described is not listed either
			if i != at && other.Severity != mirror.FindingFine {
				t.Errorf("%s: %s besides", what, other.Error())
			}
		}
		if (r.Err() != nil) != (c.severity == mirror.FindingBlocks) {
			t.Errorf("%s: %v", what, r.Err())
		}
	}
}

// TestPreflightOfAGroupWithAnOddName: groups may be called anything, and a line is to be pasted into a shell. For a name that would be another one behind that no line is shown, and none but
// the rule for all groups names the group without a name.
func TestPreflightOfAGroupWithAnOddName(t *testing.T) {
	const line = "run: kafka-acls.sh --bootstrap-server DESTINATION:PORT --command-config ADMIN.properties --add --allow-principal 'User:MIRROR' --operation Read"
	const how = " holds characters that cannot be typed: allow Read on it with a program, or by a rule on a prefix of it"
	for _, c := range []struct {
		names     []string
		shown, do string
		principal string
	}{
		{names: []string{"it's $(rm x)"}, shown: "it's $(rm x)", do: line + ` --group 'it'\''s $(rm x)'`},
		{names: []string{"two\nlines"}, shown: `two; lines`, do: `the name "two\nlines"` + how},
		{names: []string{"a\u202eb", "bill", "c\x1b[2J"}, shown: `a\u202eb, bill, c\x1b[2J`, do: line + ` --group 'bill'; the name "a\u202eb"` + how + `; the name "c\x1b[2J"` + how},
		{names: []string{"", "bill"}, shown: `"", bill`, do: line + ` --group '*'`},
		{names: []string{"1", "2", "3", "4", "5", "6\n"}, shown: `1, 2, 3, 4, 5 and 1 more`, do: line + ` --group '*'`},
		{names: []string{"bill"}, shown: "bill", do: `allow it with a program: the name "User:a\nb" of the mirror's user holds characters that cannot be typed`, principal: "User:a\nb"},
	} {
		a, b := twoSides(t)
		var denied []mirror.Right
		for _, name := range c.names {
			if err := a.CommitOffset(name, mirror.TopicPartition{Topic: "orders"}, mirror.GroupOffset{}); err != nil {
				t.Fatal(err)
			}
			denied = append(denied, mirror.Right{Operation: "Read", Resource: "Group", Name: name})
		}
		b.SetDenied(denied...)
		r := preflight(t, mirror.PreflightConfig{Settings: mirror.Settings{"mirror.topics.include": "o.*"}, Source: a.Cluster, Destination: b.Cluster, DestinationPrincipal: c.principal})
		warnings := r.Of(mirror.FindingWarns)
		if len(warnings) != 1 || !slices.Equal(warnings[0].Names, c.names) || warnings[0].Do != c.do || !strings.HasSuffix(strings.TrimSuffix(warnings[0].Error(), "; "+mirror.OneLine(c.do)), " ("+c.shown+")") {
			t.Errorf("%q: %q\nwant %q, shown as %q", c.names, warnings, c.do, c.shown)
		}
		for _, line := range strings.Split(r.String(), "\n") {
			if mirror.OneLine(line) != line {
				t.Errorf("%q: %q", c.names, line)
			}
		}
	}
}

// lookedAt is a destination that is looked at with a Source, as examples/kafka-mirror does it.
type lookedAt struct {
	*memlog.Cluster
	failed error
}

func (l lookedAt) Groups(context.Context) ([]mirror.Group, error) { return nil, l.failed }

func (l lookedAt) MissingRights(_ context.Context, rights []mirror.Right) (missing, unknown []mirror.Right, err error) {
	return nil, rights, errors.Join(l.failed, errors.New("and the source of the river"))
}

// TestPreflightNamesTheRightSide: errors of a Source say "source"; a finding says where it was found, and speaks of no other cluster.
func TestPreflightNamesTheRightSide(t *testing.T) {
	a, b := twoSides(t)
	failed := &mirror.SourceError{Operation: "list groups", Err: errors.New("no answer"), Advice: "grant DESCRIBE on the source's groups, a resource of the source"}
	r := preflight(t, mirror.PreflightConfig{Settings: mirror.Settings{"mirror.topics.include": "o.*", "mirror.acl.include": ""}, Source: a.Cluster, Destination: lookedAt{b.Cluster, fmt.Errorf("asking: %w", failed)}})
	for _, f := range r.Findings {
		if s := f.Error(); f.Side == mirror.AtDestination && (strings.Contains(s, "source: ") || strings.Contains(s, "the source's groups")) {
			t.Error(s)
		}
	}
	expectFindings(t, "a destination that is looked at with a source", r,
		"warns destination, rights: whether Read on 1 topic …", "warns destination, rights: whether AlterConfigs on 1 topic …", "warns destination, rights: whether Read on 2 groups …",
		"warns destination, rights: whether Describe on 2 groups …", "warns destination, rights: whether Describe on the cluster is allowed was not seen: asking: list groups: no answer "+
			"(grant DESCRIBE on the destination's groups, a resource of the destination); and the source of the river",
		"warns destination, groups: not all of its groups were seen: asking: list groups: no answer (grant DESCRIBE on the destination's groups")
	a.SetUnreachable(true)
	r = preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster})
	if s := r.Of(mirror.FindingBlocks)[0].Error(); strings.Contains(s, "source: ") || !strings.HasPrefix(s, "source, clusters: it cannot be reached: ") {
		t.Error(s)
	}
}

// TestPreflightThousandsAreOneFinding: with all names in the data, a few in the text, and a line that fits on a screen.
func TestPreflightThousandsAreOneFinding(t *testing.T) {
	a, b := twoSides(t)
	for i := range 5000 {
		a.local(fmt.Sprintf("app-%04d-changelog", i), 1)
	}
	a.SetDenied(mirror.Right{Operation: "Read", Resource: "Topic", Name: "*"})
	r := preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster})
	expectFindings(t, "thousands", r,
		"blocks source, rights: Read on 5002 topics is not allowed: its records cannot be copied (app-0000-changelog, …app-0004-changelog and 4997 more); run: kafka-acls.sh …--operation Read --topic '*'",
		"warns source, caution: state of a Kafka Streams application: …(app-0000-changelog, …and 4995 more)")
	if f := r.Of(mirror.FindingBlocks)[0]; len(f.Names) != 5002 || !slices.IsSorted(f.Names) {
		t.Errorf("%d names", len(f.Names))
	}
	if n := len(r.String()); n > 10_000 {
		t.Errorf("the text has %d bytes", n)
	}
}

// TestPreflightText: what a person sees of a mirror with many faults.
func TestPreflightText(t *testing.T) {
	a, b := twoSides(t)
	for topic, partitions := range map[string]int32{"_schemas": 1, "grown": 4, "shrunk": 1, "app-s-changelog": 1, "__consumer_offsets": 1, "secret": 1, "kept": 1} {
		a.local(topic, partitions)
	}
	if err := a.SetTopicConfig("orders", "remote.storage.enable", "true"); err != nil {
		t.Fatal(err)
	}
	b.local("grown", 2)
	b.local("shrunk", 3)
	b.local("orders", 2)
	if err := b.CommitOffset("g", mirror.TopicPartition{Topic: "orders"}, mirror.GroupOffset{}); err != nil {
		t.Fatal(err)
	}
	b.JoinGroup("g")
	if err := b.SetShareOffset("h", mirror.TopicPartition{Topic: "orders"}, 0); err != nil {
		t.Fatal(err)
	}
	a.SetDenied(mirror.Right{Operation: "Describe", Resource: "Topic", Name: "secret"}, mirror.Right{Operation: "Read", Resource: "Topic", Name: "secret"}, mirror.Right{Operation: "Describe", Resource: "Topic", Name: "hidden"})
	b.SetDenied(mirror.Right{Operation: "Alter", Resource: "Cluster"}, mirror.Right{Operation: "AlterConfigs", Resource: "Topic", Name: "*"}, mirror.Right{Operation: "Read", Resource: "Group", Name: "g"})
	settings := mirror.Settings{"bootstrap.servers": "a:9092", "mirror.topics.include": ".*", "mirror.topics.exclude": "__.*,kept", "source.cluster.id": "A", "mirror.destination.cluster.id": "C"}
	r := preflight(t, mirror.PreflightConfig{Settings: settings, Topics: []string{"orders", "ordres", "hidden", "__consumer_offsets", "a b", "kept-too"}, Source: a.Cluster, Destination: b.Cluster})
	const path = "testdata/preflight.txt"
	if *rewritePreflight {
		if err := os.WriteFile(path, []byte(r.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r.String() != string(want) {
		t.Errorf("%s (go test -run %s -rewrite-preflight, and read the diff)\n--- want\n%s\n--- got\n%s", path, t.Name(), want, r)
	}
	var finding mirror.Finding
	if !errors.As(r.Err(), &finding) || finding.Severity != mirror.FindingBlocks {
		t.Errorf("%v has no finding in it", r.Err())
	}
}

// TestPreflightChangesNothing: it only reads, at both sides, and leaves a source open that is the caller's.
func TestPreflightChangesNothing(t *testing.T) {
	a, b := twoSides(t)
	b.local("orders", 1)
	reads := []string{"Source.Cluster", "Source.Topics", "Destination.ClusterID", "Destination.Topic", "Metadata.Groups", "Metadata.TopicConfigs", "Metadata.ACLs", "Metadata.MissingRights"}
	var mu sync.Mutex
	seen := map[string]bool{}
	for _, s := range []*side{a, b} {
		s.SetHooks(memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
			mu.Lock()
			defer mu.Unlock()
			seen[c.Operation] = true
			return nil
		}})
	}
	preflight(t, mirror.PreflightConfig{Settings: allTopics, Topics: []string{"new"}, Source: a.Cluster, Destination: b.Cluster})
	for call := range seen {
		if !slices.Contains(reads, call) {
			t.Errorf("it calls %s", call)
		}
	}
	for _, call := range reads {
		if !seen[call] {
			t.Errorf("it does not call %s", call)
		}
	}
	if _, err := a.Cluster.Cluster(t.Context()); err != nil {
		t.Errorf("it has closed the caller's source: %v", err)
	}
}

// countedSource counts how often it was closed.
type countedSource struct {
	mirror.Source
	closed int
}

func (s *countedSource) Close() error {
	s.closed++
	return nil
}

// TestPreflightSaysWhatWasNotLookedAt: a side that cannot be asked, or cannot be asked for something, is never silently fine.
func TestPreflightSaysWhatWasNotLookedAt(t *testing.T) {
	a, b := twoSides(t)
	bare := &countedSource{Source: a.Cluster} // without any ability
	opening := func(s mirror.Source, err error) func(context.Context, mirror.Settings) (mirror.Source, error) {
		return func(context.Context, mirror.Settings) (mirror.Source, error) { return s, err }
	}
	dead := &countedSource{Source: newSide(t, memlog.Config{ClusterID: "A"}).Cluster}
	dead.Source.(*memlog.Cluster).SetUnreachable(true)
	for _, c := range []struct {
		what string
		cfg  mirror.PreflightConfig
		want []string
	}{
		{"a source without abilities", mirror.PreflightConfig{Settings: allTopics, OpenSource: opening(bare, nil), Destination: b.Cluster}, []string{
			"warns source, groups: this source cannot list groups", "warns source, rights: what the mirror's user may do was not looked at", "warns source, topic settings: this source cannot tell topic settings",
			"warns source, access rules: this source cannot list access rules"}},
		{"a destination without abilities", mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: struct{ mirror.Destination }{b.Cluster}}, []string{
			"warns destination, rights: what the mirror's user may do was not looked at", "warns destination, groups: this destination cannot move groups", "warns destination, topic settings: this destination cannot set",
			"warns destination, access rules: this destination cannot make access rules"}},
		{"a destination that is only looked up", mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: struct{ mirror.TopicLookup }{b.Cluster}}, []string{
			"warns destination, rights: what the mirror's user may do was not looked at"}},
		{"no destination", mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster}, []string{"warns destination, clusters: it was not looked at"}},
		{"no source", mirror.PreflightConfig{Settings: allTopics, Topics: []string{"orders"}, Destination: b.Cluster}, []string{"warns source, clusters: it was not looked at"}},
		{"a source that is dead", mirror.PreflightConfig{Settings: allTopics, Topics: []string{"orders"}, OpenSource: opening(dead, nil), Destination: b.Cluster}, []string{
			"blocks source, clusters: it cannot be reached: …memlog: cluster is unreachable; see that it runs"}},
		{"a source that cannot be opened", mirror.PreflightConfig{Settings: allTopics, OpenSource: opening(nil, errors.New("no such\nthing")), Destination: b.Cluster}, []string{
			"blocks source, clusters: it cannot be opened: no such; thing; see that bootstrap.servers"}},
		{"nothing to mirror", mirror.PreflightConfig{Settings: mirror.Settings{}, Source: a.Cluster, Destination: b.Cluster}, []string{
			"warns source, topics: no topic is named, and mirror.topics.include finds none"}},
		{"itself", mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: a.Cluster}, []string{"blocks source, clusters: it is the destination itself: cluster id A on both sides"}},
		{"another source than the pinned one", mirror.PreflightConfig{Settings: mirror.Settings{"source.cluster.id": "Z", "mirror.topics.include": "o.*"}, Source: a.Cluster, Destination: b.Cluster}, []string{
			"blocks source, clusters: its id is A, and setting source.cluster.id names Z"}},
		{"another source than the recorded one", mirror.PreflightConfig{Settings: mirror.Settings{"mirror.topics.include": "o.*"}, SourceClusterID: "Z", Source: a.Cluster, Destination: b.Cluster}, []string{
			"blocks source, clusters: its id is A, and the mirror is of Z"}},
		{"a pin that corrects what was recorded", mirror.PreflightConfig{Settings: mirror.Settings{"mirror.topics.include": "o.*", "source.cluster.id": "A"}, SourceClusterID: "Z", DestinationClusterID: "B",
			Source: a.Cluster, Destination: b.Cluster}, nil},
		{"a secret in the settings", mirror.PreflightConfig{Settings: mirror.Settings{"bootstrap.servers": "a:1", "ssl.key.password": "hunter2", "mirror.topics.include": "o.*"}, OpenSource: opening(bare, nil)}, []string{
			"blocks settings: setting ssl.key.password = \"[hidden]\": holds a secret itself"}},
		{"faulty settings", mirror.PreflightConfig{Settings: mirror.Settings{"mirror.topics.include": "(", "mirror.acl.include": "EAT"}, OpenSource: opening(bare, nil), Destination: b.Cluster}, []string{
			"blocks settings: …mirror.acl.include", "blocks settings: …mirror.topics.include", "blocks settings: setting bootstrap.servers is missing"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			expectFindings(t, c.what, preflight(t, c.cfg), c.want...)
		})
	}
	if bare.closed != 1 || dead.closed != 1 {
		t.Errorf("sources that were opened were closed %d and %d times", bare.closed, dead.closed)
	}

	a, b = twoSides(t)
	b.SetAuthorizer(false)
	expectFindings(t, "no authorizer at the destination", preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster}),
		"warns destination, access rules: it has no authorizer: …; give its brokers an authorizer")
	a.SetAuthorizer(false)
	r := preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster})
	if expectFindings(t, "no authorizer at all", r); !strings.Contains(r.String(), "source, access rules: it has no authorizer, so there are no access rules to follow") {
		t.Errorf("\n%s", r)
	}
	b.SetDenied(mirror.Right{Operation: "Alter", Resource: "Cluster"})
	none := mirror.Settings{"mirror.topics.include": ".*", "mirror.acl.include": ""}
	expectFindings(t, "no access rules wanted", preflight(t, mirror.PreflightConfig{Settings: none, Source: a.Cluster, Destination: b.Cluster}))
}

// TestPreflightOfASilentClusterEnds: each call is bounded, a side that never answers is waited for a few times at most, and rights that could not be found out are unknown.
func TestPreflightOfASilentClusterEnds(t *testing.T) {
	for _, operation := range []string{"", "Metadata.MissingRights", "Metadata.Groups", "Destination.Topic"} {
		synctest.Test(t, func(t *testing.T) {
			a, b := twoSides(t)
			for i := range 3000 {
				a.local(fmt.Sprint("t", i), 1)
			}
			for _, s := range []*side{a, b} {
				s.SetHooks(memlog.Hooks{Before: func(ctx context.Context, c memlog.Call) error {
					if operation != "" && c.Operation != operation {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}})
			}
			began := time.Now()
			r := preflight(t, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster, Bound: 2 * time.Second})
			if took := time.Since(began); took > time.Minute || took == 0 {
				t.Errorf("%q: it took %s", operation, took)
			}
			if operation == "" && len(r.Of(mirror.FindingBlocks)) != 2 || operation != "" && len(r.Of(mirror.FindingWarns)) == 0 {
				t.Errorf("%q:\n%s", operation, r)
			}
			if operation == "Metadata.MissingRights" {
				i := slices.IndexFunc(r.Findings, func(f mirror.Finding) bool { return f.Side == mirror.AtSource && f.Right.Operation == "Read" })
				if f := r.Findings[i]; f.Severity != mirror.FindingWarns || len(f.Names) != 3002 || !strings.HasPrefix(f.What, "whether Read on 3002 topics is allowed was not seen: ") {
					t.Errorf("%+v", f)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if r := mirror.Preflight(ctx, mirror.PreflightConfig{Settings: allTopics, Source: a.Cluster, Destination: b.Cluster}); r.Err() == nil || !strings.Contains(r.String(), "the look was not finished: context canceled") {
				t.Errorf("of a context that has ended:\n%s", r)
			}
		})
	}
}
