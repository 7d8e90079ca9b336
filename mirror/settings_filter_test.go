package mirror

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func mustFilter(t *testing.T, s Settings) Filter {
	t.Helper()
	f, err := s.TopicFilter()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTopicFilterMatchesWholeNamesAndExcludeWins(t *testing.T) {
	f := mustFilter(t, Settings{"mirror.topics.include": `orders, pay.*|bill`, "topics.exclude": `.*-tmp,payroll`})
	for topic, want := range map[string]bool{
		"orders": true, "orders2": false, "xorders": false, "pay": true, "payment": true, "bill": true, "bills": false, "pay-tmp": false, "payroll": false, "payrolls": true, "": false, "x\norders": false,
	} {
		if f.Matches(topic) != want {
			t.Errorf("%q: %v", topic, !want)
		}
	}
	if !f.Excludes("orders-tmp") || f.Excludes("orders") || !f.Includes("pay-tmp") || f.FindsNothing() {
		t.Error("Includes, Excludes and FindsNothing disagree with the lists")
	}
	none := mustFilter(t, nil)
	if !none.FindsNothing() || none.Matches("a") || none.Includes("a") || !none.Excludes("__a") || none.Excludes("a_") {
		t.Error("an empty include list finds topics, or the default exclude is not there")
	}
	var zero Filter
	if zero.Matches("a") || zero.Excludes("a") || !zero.FindsNothing() {
		t.Error("the zero filter matches")
	}
}

func TestTopicFilterRefusesWhatIsNoPattern(t *testing.T) {
	for _, value := range []string{"(", "a,[", `(?=x)`, `(a)\1`, "a,", "a)|(b"} {
		for _, name := range []string{"mirror.topics.include", "topics.exclude"} {
			_, err := Settings{name: value}.TopicFilter()
			var fault *SettingError
			if !errors.Is(err, ErrPattern) || !errors.As(err, &fault) || fault.Value != value {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
		if _, err := NewFilter(settingList(value), nil); !errors.Is(err, ErrPattern) {
			t.Errorf("NewFilter: %v", err)
		}
	}
	if _, err := NewFilter(nil, []string{"["}); !errors.Is(err, ErrPattern) {
		t.Errorf("NewFilter: %v", err)
	}
}

// TestF71InternalTopicsAreNeverFound: whatever the lists say.
func TestF71InternalTopicsAreNeverFound(t *testing.T) {
	f := mustFilter(t, Settings{"mirror.topics.include": ".*", "mirror.topics.exclude": ""})
	for _, topic := range []string{"__consumer_offsets", "__transaction_state", "__mirror_state", "__mirror_control", "__"} {
		if f.Matches(topic) {
			t.Errorf("%s is found", topic)
		}
	}
	if !f.Matches("_schemas") || !f.Matches("a__b") {
		t.Error("other topics are not found")
	}
}

// TestDecision13FirstMergeKeepsTheDefaultExclude: stored filters start from the effective value.
func TestDecision13FirstMergeKeepsTheDefaultExclude(t *testing.T) {
	for _, c := range []struct {
		what             string
		stored           Settings
		include, exclude []string
		want             Settings
	}{
		{"an include pattern alone stores no exclude", Settings{}, []string{".*"}, nil, Settings{"mirror.topics.include": ".*"}},
		{"the first exclude pattern joins the default", Settings{}, nil, []string{"tmp.*"}, Settings{"mirror.topics.exclude": "__.*,tmp.*"}},
		{"an alias is the stored value", Settings{"topics.exclude": "x"}, nil, []string{"y"}, Settings{"mirror.topics.exclude": "x,y"}},
		{"patterns move from one list to the other", Settings{"mirror.topics.include": "a,b", "mirror.topics.exclude": "c"}, []string{"c"}, []string{"a"},
			Settings{"mirror.topics.include": "b,c", "mirror.topics.exclude": "a"}},
		{"the default may be taken out by name", Settings{}, []string{"__.*"}, nil, Settings{"mirror.topics.include": "__.*", "mirror.topics.exclude": ""}},
		{"what is there stays as it is", Settings{"mirror.topics.include": " a, b "}, []string{"b", "a"}, []string{"__.*"}, Settings{"mirror.topics.include": " a, b "}},
		{"an exclude list that was emptied stays empty", Settings{"mirror.topics.exclude": ""}, []string{"a"}, nil, Settings{"mirror.topics.include": "a", "mirror.topics.exclude": ""}},
		{"nothing", nil, nil, nil, Settings{}},
	} {
		before := c.stored.String()
		got, err := c.stored.MergeTopicPatterns(c.include, c.exclude)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v; %v", c.what, got, c.want, err)
		}
		if c.stored.String() != before {
			t.Errorf("%s: the settings themselves were changed", c.what)
		}
	}
	merged, err := Settings{}.MergeTopicPatterns([]string{".*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := mustFilter(t, merged); f.Matches("__consumer_offsets") || !f.Excludes("__consumer_offsets") || !f.Matches("orders") {
		t.Error("after the first merge internal topics are included")
	}
}

func TestMergeTopicPatternsRefuses(t *testing.T) {
	for _, c := range []struct {
		include, exclude []string
		pattern          bool
	}{
		{[]string{"("}, nil, true}, {nil, []string{"["}, true}, {[]string{""}, nil, true}, {[]string{"a"}, []string{"a"}, false}, {[]string{"a{1,2}"}, nil, false}, {nil, []string{" a"}, false},
	} {
		_, err := Settings{}.MergeTopicPatterns(c.include, c.exclude)
		var fault *SettingError
		if !errors.As(err, &fault) || errors.Is(err, ErrPattern) != c.pattern {
			t.Errorf("%q %q: %v", c.include, c.exclude, err)
		}
	}
	if _, err := (Settings{"topics.include": "a", "mirror.topics.include": "b"}).MergeTopicPatterns(nil, nil); err == nil {
		t.Error("settings that contradict themselves are merged")
	}
}

func TestTopicSets(t *testing.T) {
	sets, err := Settings{"mirror.topic.set.core": `orders\..*,pay`, "mirror.topic.set.a.b-C_1": "x", "mirror.topic.set.none": "", "mirror.topics.include": "y"}.TopicSets()
	if err != nil || len(sets) != 3 {
		t.Fatalf("%v, %v", sets, err)
	}
	if core := sets["core"]; !core.Matches("orders.eu") || !core.Matches("pay") || core.Matches("payment") || core.Matches("x") {
		t.Error("the set core matches other topics")
	}
	if !sets["a.b-C_1"].Matches("x") || sets["none"].Matches("x") {
		t.Error("a set matches other topics")
	}
	if sets, err := Settings(nil).TopicSets(); err != nil || len(sets) != 0 {
		t.Errorf("%v, %v", sets, err)
	}
	for name, value := range map[string]string{"mirror.topic.set.": "a", "mirror.topic.set.a b": "a", "mirror.topic.set.a": "(", "mirror.topic.set.<name>": "a", "mirror.topic.set." + strings.Repeat("x", 250): "a"} {
		if _, err := (Settings{name: value}).TopicSets(); err == nil {
			t.Errorf("%s=%s is a set", name, value)
		}
		if err := (Settings{name: value}).Check(); err == nil {
			t.Errorf("%s=%s passes Check", name, value)
		}
	}
}

// TestPatternsOfAListDoNotReachIntoEachOther: a flag, an alternative or a quotation of one pattern means nothing to the next one, whoever reads the list.
func TestPatternsOfAListDoNotReachIntoEachOther(t *testing.T) {
	lists := Settings{topicsIncludeSetting: `(?i)new-.*,Orders-.*,\Qa.b,(?s-i)x|y,(?U)z.*`, topicsExcludeSetting: `__.*,(?i)tmp-.*,Audit-.*`, topicSetPrefix + "s": `(?i)tmp-.*,Audit-.*`}
	f := mustFilter(t, lists)
	for name, want := range map[string]bool{"NEW-1": true, "Orders-1": true, "orders-1": false, "a.b": true, "acb": false, "x": true, "y": true, "xy": false, "zz": true, "X": false} {
		if f.Includes(name) != want {
			t.Errorf("%s is included: %v", name, !want)
		}
	}
	sets, err := lists.TopicSets()
	if err != nil {
		t.Fatal(err)
	}
	alone := &topicFilters{settings: lists, filter: f}
	for name, want := range map[string]bool{"TMP-1": true, "tmp-": true, "Audit-log": true, "audit-log": false, "AUDIT-LOG": false} {
		if f.Excludes(name) != want || sets["s"].Includes(name) != want || (alone.excludes(name, false) != "") != want {
			t.Errorf("%s is excluded: %v by the filter, %v by a set, by pattern %q; want %v", name, f.Excludes(name), sets["s"].Includes(name), alone.excludes(name, false), want)
		}
	}
}

// TestGroupFilter: unlike topics, no list is every group, and a name may begin as an internal topic's does.
func TestGroupFilter(t *testing.T) {
	for _, c := range []struct {
		s          Settings
		yes, never []string
	}{
		{nil, []string{"g", "__g", "connect-sink"}, nil},
		{Settings{"mirror.groups.include": ""}, []string{"g", "__g"}, nil},
		{Settings{"groups.include": "pay.*, bill", "mirror.groups.exclude": "payroll"}, []string{"pay", "payment", "bill"}, []string{"payroll", "bills", "g", ""}},
		{Settings{"mirror.groups.include": "", "groups.exclude": "x.*"}, []string{"g"}, []string{"x", "xy"}},
	} {
		f, err := c.s.GroupFilter()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range c.yes {
			if !f.Matches(g) {
				t.Errorf("%v does not match group %q", c.s, g)
			}
		}
		for _, g := range c.never {
			if f.Matches(g) {
				t.Errorf("%v matches group %q", c.s, g)
			}
		}
	}
	for _, name := range []string{"mirror.groups.include", "mirror.groups.exclude"} {
		if _, err := (Settings{name: "["}).GroupFilter(); !errors.Is(err, ErrPattern) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestADotOfAPatternIsAnyCharacter: groups may be called anything, and all of them are followed unless a pattern says otherwise.
func TestADotOfAPatternIsAnyCharacter(t *testing.T) {
	const odd = "two\nlines\r\u2028end"
	for value, want := range map[string]bool{
		"": true, ".*": true, "two.lines.*": true, "(?-s).*": false, "(?-s:two.)lines.*": false, `x|two.*`: true, `(?i)TWO.LINES..end`: true, "\\Qtwo\nlines\r\u2028end": true, "two": false, "[^\n]*": false,
	} {
		f, err := Settings{"mirror.groups.include": value}.GroupFilter()
		if err != nil || f.Matches(odd) != want {
			t.Errorf("%q matches a name of two lines: %v, want %v; %v", value, !want, want, err)
		}
	}
	if f, err := (Settings{"mirror.groups.exclude": "two.*"}).GroupFilter(); err != nil || f.Matches(odd) {
		t.Errorf("a group that is excluded is followed: %v", err)
	}
	f, err := Settings{}.GroupFilter()
	if err != nil || !f.Matches(odd) {
		t.Errorf("by default not every group is followed: %v", err)
	}
	rules, err := Settings{"mirror.acl.include": "GROUP;two.*"}.ACLRules()
	if err != nil || !rules.Matches(ACL{ResourceType: "GROUP", ResourceName: odd, PatternType: "LITERAL", Principal: "User:a", Host: "*", Operation: "READ", Permission: "ALLOW"}) {
		t.Errorf("a rule on such a group is not followed: %v", err)
	}
}

// TestPropertyExcluded: a value replaces the whole default, and tiered storage is never followed.
func TestPropertyExcluded(t *testing.T) {
	for _, c := range []struct {
		s          Settings
		yes, never []string
	}{
		{nil, []string{"min.insync.replicas", "message.timestamp.type", "unclean.leader.election.enable", "remote.storage.enable", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
			"message.timestamp.difference.max.ms", "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms"}, []string{"retention.ms", "min.insync.replicas.x", "cleanup.policy"}},
		{Settings{"mirror.topic.properties.exclude": "retention.*"}, []string{"retention.ms", "remote.storage.enable", "local.retention.ms"}, []string{"min.insync.replicas", "delete.retention.ms"}},
		{Settings{"topic.properties.exclude": ""}, []string{"remote.copy.disable"}, []string{"min.insync.replicas"}},
	} {
		excluded, err := c.s.PropertyExcluded()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range c.yes {
			if !excluded(name) {
				t.Errorf("%v: %s is followed", c.s, name)
			}
		}
		for _, name := range c.never {
			if excluded(name) {
				t.Errorf("%v: %s is not followed", c.s, name)
			}
		}
	}
	if _, err := (Settings{"mirror.topic.properties.exclude": "["}).PropertyExcluded(); !errors.Is(err, ErrPattern) {
		t.Error(err)
	}
}

// TestACLRules: which access rules are followed, and that nothing but its name follows one on the cluster (spec §6).
func TestACLRules(t *testing.T) {
	read := ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "READ", Permission: "ALLOW"}
	with := func(change func(*ACL)) ACL {
		a := read
		change(&a)
		return a
	}
	deny := with(func(a *ACL) { a.Permission = "DENY" })
	group := with(func(a *ACL) { a.ResourceType = "GROUP" })
	other := with(func(a *ACL) { a.ResourceName, a.PatternType = "orders2", "PREFIXED" })
	describe := with(func(a *ACL) { a.Operation = "DESCRIBE_CONFIGS" })
	bob := with(func(a *ACL) { a.Principal = "User:bob" })
	cluster := with(func(a *ACL) {
		a.ResourceType, a.ResourceName, a.Operation = "CLUSTER", "kafka-cluster", "CLUSTER_ACTION"
	})
	all := []ACL{read, deny, group, other, describe, bob, cluster}
	for value, want := range map[string][]ACL{
		"*":                             {read, deny, group, other, describe, bob},
		"*;*;*;*;*":                     {read, deny, group, other, describe, bob},
		"*;kafka-cluster":               {},
		"CLUSTER":                       {cluster},
		"*,cluster;*;cluster_action":    all,
		"":                              {},
		"topic;orders":                  {read, deny, describe, bob},
		"TOPIC;orders.*;Read; deny":     {deny},
		"group , *;*;describe_configs":  {group, describe},
		"*;*;*;*;User:(bob|carol)":      {bob},
		"*;*;*;*;bob":                   {},
		"TOPIC;*;ALL":                   {},
		"CLUSTER;*;ALTER,TOPIC;orders2": {other},
	} {
		f, err := Settings{"mirror.acl.include": value}.ACLRules()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if f.Matches(a) != slices.Contains(want, a) {
				t.Errorf("%q: %v is followed: %v", value, a, f.Matches(a))
			}
		}
	}
	if f, err := (Settings{}).ACLRules(); err != nil || !f.Matches(read) || f.Matches(cluster) {
		t.Errorf("the default follows a rule on the cluster, or none: %v", err)
	}
	for _, value := range []string{"TOPIC;[", "TOPIC;", "EAT", "*;*;*;*;*;*"} {
		var fault *SettingError
		if _, err := (Settings{"acls.include": value}).ACLRules(); !errors.As(err, &fault) || fault.Value != value {
			t.Errorf("%q: %v", value, err)
		}
	}
}
