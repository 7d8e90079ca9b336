package kraft_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// syncing is a joined process that does once what metadata sync does, of one mirrored topic.
type syncing struct {
	*joined
	topic string
	times int
}

// rights are those that metadata sync asks for, of the topic and of a group that does not exist.
func (s *syncing) rights() []mirror.Right {
	return []mirror.Right{
		{Operation: "Describe", Resource: "Cluster"}, {Operation: "Alter", Resource: "Cluster"},
		{Operation: "Describe", Resource: "Topic", Name: s.topic}, {Operation: "Read", Resource: "Topic", Name: s.topic},
		{Operation: "DescribeConfigs", Resource: "Topic", Name: "not-there"}, {Operation: "AlterConfigs", Resource: "Topic", Name: "not-there"},
		{Operation: "Describe", Resource: "Group", Name: "nobody"}, {Operation: "Read", Resource: "Group", Name: "nobody"},
	}
}

// missing are the rights that are said to be missing.
func (s *syncing) missing() []string {
	s.t.Helper()
	missing, unknown, err := s.MissingRights(bound(s.t), s.rights())
	if err != nil || len(unknown) > 0 {
		s.t.Fatalf("unknown %v, %v", unknown, err)
	}
	var names []string
	for _, r := range missing {
		names = append(names, r.String())
	}
	return names
}

// offset is where a group goes on, −1 if that is not known.
func (s *syncing) offset(g mirror.Group) int64 {
	s.t.Helper()
	read, err := s.GroupOffsets(bound(s.t), []mirror.Group{g})
	if o, ok := read[g.Name].Offsets[mirror.TopicPartition{Topic: s.topic}]; ok && err == nil && read[g.Name].Err == nil {
		return o.Offset
	}
	s.t.Logf("%s: %v, %v", g.Name, read, err)
	return -1
}

// works is what of metadata sync works: groups, share groups, settings, rules.
func (s *syncing) works() (works []string) {
	s.t.Helper()
	s.times++
	tp := mirror.TopicPartition{Topic: s.topic}
	for _, g := range []mirror.Group{{Name: "readers"}, {Name: "sharers", Kind: mirror.ShareGroup}} {
		at := int64(s.times)
		refused, err := s.WriteGroupOffsets(bound(s.t), g, map[mirror.TopicPartition]mirror.GroupOffset{tp: {Offset: at, LeaderEpoch: mirror.Unknown}})
		if err != nil || len(refused) > 0 {
			s.t.Logf("%s: %v, %v", g.Name, refused, err)
			continue
		}
		if s.offset(g) != at {
			continue
		}
		if groups, err := s.Groups(bound(s.t)); err != nil || !slices.ContainsFunc(groups, func(x mirror.Group) bool { return x.Name == g.Name && x.Kind == g.Kind }) {
			s.t.Logf("%s: %v, %v", g.Name, groups, err)
			continue
		}
		works = append(works, g.Kind.String())
	}

	change := mirror.TopicConfigChange{Set: map[string]string{"retention.ms": "123456", "unclean.leader.election.enable": "true"}}
	if s.times%2 == 0 {
		change = mirror.TopicConfigChange{Delete: []string{"retention.ms", "unclean.leader.election.enable"}}
	}
	failed := s.AlterTopicConfigs(bound(s.t), map[string]mirror.TopicConfigChange{s.topic: change})
	read, err := s.TopicConfigs(bound(s.t), []string{s.topic})
	if len(failed) == 0 && err == nil && len(read[s.topic].Values) == len(change.Set) {
		works = append(works, "settings")
	} else {
		s.t.Log(failed, read, err)
	}

	rule := []mirror.ACL{{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "PREFIXED", Principal: "User:alice", Host: "*", Operation: "READ", Permission: "ALLOW"}}
	rules, err := s.ACLs(bound(s.t))
	if errs := slices.Concat(s.CreateACLs(bound(s.t), rule), s.DeleteACLs(bound(s.t), rule)); errs == nil && err == nil && len(rules) > 0 {
		works = append(works, "rules")
	} else {
		s.t.Log(errs, err)
	}
	return works
}

// TestRealKafkaSyncRights: with exactly Rights and SyncRights all of metadata sync works, and nothing is sent but what SECURITY.md lists for this cluster; each right that it uses is the only one that
// MissingRights names when it is taken away, and then exactly what it is for does not work.
func TestRealKafkaSyncRights(t *testing.T) {
	c := plainCluster(t)
	grant(c, mirrorUser, kraft.Rights()...)
	grant(c, mirrorUser, kraft.SyncRights()...)
	sent := new(kinds)
	j := join(t, c, secured(c, "SASL_PLAINTEXT"), func(cfg *kraft.Config) { cfg.BrokerOptions = append(cfg.BrokerOptions, kgo.WithHooks(sent)) })
	const topic = "mirrored"
	l := j.create(topic, 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 5, "first"))
	await(t, l)
	s := &syncing{joined: j, topic: topic}
	all := []string{"group", "share group", "settings", "rules"}
	eventually(t, "all rights to be seen", func() bool { return s.missing() == nil })
	// Until the cluster has __share_group_state a broker looks for its coordinator at any registered node, this process among them, which knows none: that write is refused, the next one tries anew
	// (Kafka: PersisterStateManager, MetadataCache.getAliveBrokerNodes).
	eventually(t, "all of it to work", func() bool { return slices.Equal(s.works(), all) })
	before := metadataRecords(t, c)
	if got := s.missing(); got != nil {
		t.Errorf("missing: %v", got)
	}
	if after := metadataRecords(t, c); !maps.Equal(before, after) {
		t.Errorf("a look at rights has written: %v, then %v", before, after)
	}
	for _, taken := range []struct {
		right   kraft.Right
		missing []string
		fails   []string
	}{
		{kraft.ReadGroup, []string{"Describe on Group nobody", "Read on Group nobody"}, []string{"group", "share group"}},
		{kraft.ReadTopic, []string{"Describe on Topic mirrored", "Read on Topic mirrored"}, []string{"group", "share group"}},
		{kraft.AlterConfigs, []string{"DescribeConfigs on Topic not-there", "AlterConfigs on Topic not-there"}, []string{"settings"}},
		{kraft.Alter, []string{"Describe on Cluster", "Alter on Cluster"}, []string{"rules"}},
	} {
		want := taken.missing
		if taken.right == kraft.ReadTopic { // what follows from Alter on topics, which it has for another reason
			want = want[1:]
		}
		revoke(t, c, mirrorUser, taken.right)
		eventually(t, "the loss of "+taken.right.String()+" to be seen", func() bool { return s.missing() != nil })
		if got := s.missing(); !slices.Equal(got, want) {
			t.Errorf("without %s %v are said to be missing, not %v", taken.right, got, want)
		}
		works := slices.DeleteFunc(slices.Clone(all), func(what string) bool { return slices.Contains(taken.fails, what) })
		eventually(t, "what remains without "+taken.right.String()+" to work", func() bool {
			got := s.works()
			for _, what := range taken.fails {
				if slices.Contains(got, what) {
					t.Errorf("without %s works %v", taken.right, got)
				}
			}
			return slices.Equal(got, works) || t.Failed()
		})
		grant(c, mirrorUser, taken.right)
		eventually(t, "it to be seen again", func() bool { return s.missing() == nil })
	}

	// What the topic is to have when it is stopped is judged by the controllers now, not at the hand-over.
	wrong := map[string]mirror.TopicConfigChange{topic: {Set: map[string]string{"min.insync.replicas": "none", "retention.ms": "7"}}, "not-there": {Set: map[string]string{"retention.ms": "7"}}}
	if failed := j.AlterTopicConfigs(bound(t), wrong); len(failed) != 2 || !errors.Is(failed[topic], kerr.InvalidConfig) || !errors.Is(failed["not-there"], kerr.UnknownTopicOrPartition) {
		t.Errorf("%v", failed)
	}
	own := mirror.TopicConfigChange{Set: map[string]string{"unclean.leader.election.enable": "true", "min.insync.replicas": "3", "retention.ms": "99999"}}
	if failed := j.AlterTopicConfigs(bound(t), map[string]mirror.TopicConfigChange{topic: own}); len(failed) > 0 {
		t.Fatal(failed)
	}
	settings := func() map[string]string {
		t.Helper()
		described, err := c.Admin().DescribeTopicConfigs(bound(t), topic)
		if err != nil || described[0].Err != nil {
			t.Fatal(err, described[0].Err)
		}
		set := map[string]string{}
		for _, x := range described[0].Configs {
			if x.Source == kmsg.ConfigSourceDynamicTopicConfig {
				set[x.Key] = x.MaybeValue()
			}
		}
		return set
	}
	eventually(t, "the mirrored topic's settings", func() bool {
		return maps.Equal(settings(), map[string]string{"unclean.leader.election.enable": "false", "min.insync.replicas": "1", "retention.ms": "99999"})
	})
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stopped topic's settings", func() bool { return maps.Equal(settings(), own.Set) })
	if read, err := j.TopicConfigs(bound(t), []string{topic}); err != nil || !maps.Equal(read[topic].Values, own.Set) {
		t.Errorf("%v, %v", read, err)
	}
	eventually(t, "the share group's offset", func() bool { return s.offset(mirror.Group{Name: "sharers", Kind: mirror.ShareGroup}) == int64(s.times) })
	for name := range sent.all() {
		if !slices.Contains(documentedKinds(t), name) && !slices.Contains(kindsOf(t, "request kinds of metadata sync"), name) {
			t.Errorf("%s was sent, and SECURITY.md does not list it", name)
		}
	}
	for _, name := range kindsOf(t, "request kinds of metadata sync") {
		if sent.all()[name] == 0 && name != "ApiVersions" {
			t.Errorf("SECURITY.md lists %s for metadata sync, and it is not sent", name)
		}
	}
}
