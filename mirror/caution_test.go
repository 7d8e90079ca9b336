package mirror

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestCautionOf: names that programs choose by themselves are known, and an application's own are left in peace.
func TestCautionOf(t *testing.T) {
	for about, names := range map[string][]string{
		"a schema registry": {"_schemas", "_schemas-prod", "_schemas_dr", "_schema_encoders", "_dek_registry_keys"},
		"Kafka Connect": {"connect-configs", "connect-offsets", "connect-status", "_connect-configs", "connect-cluster-configs", "connect.prod.offsets", "connect_statuses", "connect-config-storage",
			"docker-connect-configs", "my_connect_offsets", "my_connect_statuses"},
		"state of a Kafka Streams application": {"app-store-changelog", "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"},
		"steps between parts of a Kafka Streams application": {"app-by-user-repartition", "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
			"app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"},
		"MirrorMaker":          {"mm2-configs.A.internal", "mm2-offsets.A.internal", "mm2-status.A.internal", "mm2-offset-syncs.B.internal", "mm2-offset-syncs-B-internal", "A.checkpoints.internal", "heartbeats"},
		"ksqlDB":               {"_confluent-ksql-default__command_topic", "_confluent-ksql-default_query_CTAS_X_1-Aggregate-GroupBy-repartition", "_confluent-ksql-default_query_CTAS_X_1-S-changelog"},
		"Confluent's services": {"_confluent-metrics", "_confluent-command", "_confluent_balancer_api_state", "_confluent-metadata-auth", "_confluent-telemetry-metrics"},
		"transactions":         {"__transaction_state"}, "committed offsets": {"__consumer_offsets"}, "share-group state": {"__share_group_state"}, "cluster metadata": {"__cluster_metadata"},
		"an internal topic": {"__remote_log_metadata", "__mirror_control", "__consumer_offsets2", "__"},
		"":                  {"", "orders", "schemas", "my_schemas", "changelog", "-changelog", "changelog-2026", "orders-changelogs", "connections-status", "connect", "connect-orders", "connectconfigs", "user-connect-status", "reconnect-offsets-x", "disconnect-offsets", "configs", "order-configs", "order-offsets", "order-status", "iot.heartbeats", "heartbeat", "heartbeats2", "mm2", "mm2-internal", "checkpoints", "confluent-metrics", "_orders", "_confluents", "repartition", "app-topic"},
	} {
		for _, name := range names {
			c, ok := CautionOf(name)
			if c.About != about || ok != (about != "") {
				t.Errorf("%q is about %q, want %q", name, c.About, about)
			}
			if ok && c.Never != strings.HasPrefix(name, "__") {
				t.Errorf("%q is mirrored: %v", name, !c.Never)
			}
		}
	}
}

// TestAcceptance2_13ReadmeHasTheCautions: the table for people and the sentences of the verbs do not part. What is never mirrored is what no pattern finds.
func TestAcceptance2_13ReadmeHasTheCautions(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## What is mirrored and what is not\n")
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	everything := mustFilter(t, Settings{topicsIncludeSetting: ".*", topicsExcludeSetting: ""})
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[0], -1) {
			if name[1] == "__" {
				continue // of all others
			}
			c, ok := CautionOf(name[1])
			if why, do := strings.TrimSpace(cells[2]), strings.TrimSpace(strings.ReplaceAll(cells[3], "`", "")); !ok || why != c.Reason || do != c.Do {
				t.Errorf("README.md says of %s\n%s | %s\nand CautionOf\n%s | %s", name[1], why, do, c.Reason, c.Do)
			}
			if never := strings.TrimSpace(cells[1]) == "never"; never != c.Never || never == everything.Matches(name[1]) || !never && !strings.HasPrefix(strings.TrimSpace(cells[1]), "yes") {
				t.Errorf("README.md says that %s is mirrored: %q; Never is %v, and the pattern .* finds it: %v", name[1], cells[1], c.Never, everything.Matches(name[1]))
			}
			rows[c.About] = true
		}
	}
	for _, c := range cautions {
		if !rows[c.About] {
			t.Errorf("README.md has no line of %s: | %s | %s |", c.About, c.Reason, c.Do)
		}
	}
	for _, what := range []string{"committed offsets", "share groups", "streams groups", "ACLs", "quotas", "SCRAM", "delegation tokens", "client-metrics", "topic ids", "topic settings", "settings of brokers"} {
		if !strings.Contains(section, what) {
			t.Errorf("README.md does not say whether %s are mirrored", what)
		}
	}
}

// TestAcceptance2_13VerbsSayTheCautions: of topics that they are about, and of no others; thousands of one kind are one note.
func TestAcceptance2_13VerbsSayTheCautions(t *testing.T) {
	w, c, source := &adminWorld{}, NewMemoryControl(), &fakeSource{id: "there", topics: []string{"_schemas", "orders", "connect-configs", "__consumer_offsets"}}
	for i := range 50 {
		source.topics = append(source.topics, "app-"+string(rune('a'+i%26))+string(rune('a'+i/26))+"-changelog")
	}
	a := w.adminOver(t, c, source)
	cautioned := func(r Result, err error, want ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		notes := slices.DeleteFunc(slices.Clone(r.Notes), func(n string) bool { return !strings.HasPrefix(n, "caution: ") })
		if len(notes) != len(want) {
			t.Fatalf("%q, want one for each of %q", notes, want)
		}
		for i, words := range want {
			if !strings.HasPrefix(notes[i], "caution: "+words) || strings.Count(notes[i], "; ") < 1 {
				t.Errorf("%q, want %q", notes[i], words)
			}
		}
	}
	r, err := a.Create(bg, Settings{bootstrapSetting: "a:9092"}, CreateOptions{DryRun: true})
	cautioned(r, err) // nothing is found
	r, err = a.Create(bg, Settings{bootstrapSetting: "a:9092", topicsIncludeSetting: ".*", topicsExcludeSetting: "__.*,connect-.*"}, CreateOptions{})
	cautioned(r, err, "_schemas: a schema registry: ", "app-aa-changelog, app-ab-changelog, app-ba-changelog, app-bb-changelog, app-ca-changelog and 45 more: state of a Kafka Streams application: ")
	r, err = a.AlterConfig(bg, Settings{topicsExcludeSetting: "__.*"}, nil, AlterConfigOptions{DryRun: true})
	cautioned(r, err, "connect-configs: Kafka Connect: ") // the others were matched before
	r, err = a.AlterConfig(bg, Settings{startFloorSetting: "7"}, nil, AlterConfigOptions{})
	cautioned(r, err)
	source.err = errDown
	r, err = a.AlterConfig(bg, Settings{topicsExcludeSetting: "__.*"}, nil, AlterConfigOptions{DryRun: true})
	cautioned(r, err) // a dead source hinders nobody
	source.err, source.id = nil, "another"
	r, err = a.AlterConfig(bg, Settings{topicsExcludeSetting: "__.*"}, nil, AlterConfigOptions{DryRun: true})
	cautioned(r, err, "connect-configs: Kafka Connect: ") // and neither does another cluster
	source.id = "there"
	r, err = a.Start(bg, []string{"orders", "_schemas"}, StartOptions{})
	cautioned(r, err, "_schemas: a schema registry: ")
	r, err = a.Start(bg, nil, StartOptions{AllTopics: true, DryRun: true})
	cautioned(r, err, "_schemas: ", "app-aa-changelog, ")
	r, err = a.Start(bg, []string{"__consumer_offsets"}, StartOptions{})
	wantCode(t, "an internal topic", err, InvalidRequest)
	cautioned(r, nil, "__consumer_offsets: committed offsets: each cluster keeps groups in partitions of its own; nothing: groups are followed by themselves")
}

// TestAcceptance2_13FailoverPlanSaysTheCautions: with what is to be done, for topics that will be opened.
func TestAcceptance2_13FailoverPlanSaysTheCautions(t *testing.T) {
	done := mirrored("app-s-changelog", 0, 10, 10, 0)
	done.State, done.Want, done.Owner = statemachine.Stopped, statemachine.WantStopped, OwnerOpen
	plan := PlanFailover(eastSnapshot(mirrored("_schemas", 0, 10, 10, 0), mirrored("orders", 0, 10, 10, 0), done), FailoverOptions{})
	golden(t, "failover-cautions.txt", []byte(plan.String()))
	for _, topic := range plan.Topics {
		if want := topic.Topic == "_schemas"; strings.Contains(topic.Reason, "caution: a schema registry: ") != want || (topic.Reason != "") != want {
			t.Errorf("%s: %q", topic.Topic, topic.Reason)
		}
	}
}
