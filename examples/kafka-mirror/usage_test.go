package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
)

// TestMistakes: each is one line that names the fix, holds no secret, changes nothing, and has the documented exit status.
func TestMistakes(t *testing.T) {
	source := startSource(t, "orders").ListenAddrs()[0]
	const nobody = "127.0.0.1:1" // a port that was free a moment ago may be somebody's by now
	dir, other, damaged := filepath.Join(t.TempDir(), "states"), filepath.Join(t.TempDir(), "nowhere"), t.TempDir()
	good := writeFile(t, "good.properties", "bootstrap.servers="+source, "source.cluster.id="+sourceID)
	files := map[string]string{
		good:                             "good.properties",
		writeFile(t, "empty.properties"): "empty.properties",
		writeFile(t, "typo.properties", "bootstrap.server="+source, "topics.exclud=x"):                                                "typo.properties",
		writeFile(t, "literal.properties", "bootstrap.servers="+source, "ssl.key.password="+password):                                 "literal.properties",
		writeFile(t, "java.properties", "bootstrap.servers="+source, "security.protocol=SSL", "ssl.truststore.type=JKS"):              "java.properties",
		writeFile(t, "nologin.properties", "bootstrap.servers="+source, "security.protocol=SASL_SSL"):                                 "nologin.properties",
		writeFile(t, "node.properties", "bootstrap.servers="+source, "mirror.state.topic.replication.factor=1"):                       "node.properties",
		writeFile(t, "secret-typo.properties", "bootstrap.servers="+source, "ssl.key.pasword="+password):                              "secret-typo.properties",
		writeFile(t, "nocolon.properties", "=x"):                                                                                      "nocolon.properties",
		writeFile(t, "exclude.properties", "mirror.topics.exclude=ord.*"):                                                             "exclude.properties",
		writeFile(t, "client-typo.properties", "security.protocol=SASL_SSL", "sasl.mechansim=PLAIN", "ssl.keystore.key="+password):    "client-typo.properties",
		writeFile(t, "client-unused.properties", "sasl.jaas.config=x required username=\"u\" password=\""+password+"\";", "acks=all"): "client-unused.properties",
	}
	names := map[string]string{dir: "/var/lib/mirror", other: "/nowhere", damaged: "/damaged", nobody: "standby:9092", source: "primary:9092"}
	byName := map[string]string{}
	for path, name := range files {
		names[path], byName[name] = name, path
	}
	var pairs []string
	// The longest first: nobody's address is how that of a source at port 1… begins.
	for _, path := range slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }) {
		pairs = append(pairs, path, names[path])
	}
	shown := strings.NewReplacer(pairs...)
	store := []string{"--store", dir}
	if status, _, complaints := command(t, append(store, "--create", "--mirror", "dr", "--mirror-config", good)...); status != 0 {
		t.Fatal(complaints)
	}
	if status, _, complaints := command(t, append(store, "--start", "--mirror", "dr", "--topics", "orders")...); status != 0 {
		t.Fatal(complaints)
	}
	records, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "log"), append([]byte("X"), records[1:]...), 0o600); err != nil {
		t.Fatal(err)
	}

	var all strings.Builder
	for _, line := range []string{
		"", "--create --start --store DIR", "--lst --store DIR", "--mirror-conf x", "describe dr", "--list", "--list --store DIR --bootstrap-server standby:9092",
		"--list --store DIR --command-config x", "--start --store DIR", "--create --store DIR --mirror dr", "--alter --store DIR --mirror dr", "--start --store DIR --mirror dr",
		"--start --store DIR --mirror dr --topics a --all-topics", "--start --store DIR --mirror dr --topics a --purge", "--describe --store DIR --mirror dr --yes",
		"--list --mirror dr --store DIR", "--settings --mirror dr", "--list --store DIR --timeout 0s", "--list --store DIR --timeout soon", "--start --store DIR --mirror dr --topics a --wait --dry-run", "--list --store DIR --wait",
		"--failback --store DIR --mirror dr --all-topics", "--failback --store DIR --mirror dr --reason r", "lead --config x", "run", "--list --store OTHER", "--list --store DAMAGED",
		"--create --store DIR --mirror new --mirror-config missing.properties", "--create --store DIR --mirror new --mirror-config empty.properties",
		"--create --store DIR --mirror new --mirror-config typo.properties", "--create --store DIR --mirror new --mirror-config literal.properties",
		"--create --store DIR --mirror new --mirror-config nocolon.properties", "--create --store DIR --mirror new --mirror-config java.properties",
		"--create --store DIR --mirror new --mirror-config nologin.properties", "--alter --store DIR --mirror dr --mirror-config nologin.properties",
		"--create --store DIR --mirror new --mirror-config node.properties", "--create --store DIR --mirror new --mirror-config secret-typo.properties",
		"--create --store DIR --mirror new.stopped --mirror-config good.properties", "--create --store DIR --mirror dr --mirror-config good.properties",
		"--create --store DIR --mirror new --mirror-config good.properties --source-cluster-id WRONG",
		"--alter --store DIR --mirror dr --unset bootstrap.servers", "--alter --store DIR --mirror dr --unset mirror.topic.exclude",
		"--alter --store DIR --mirror dr --mirror-config exclude.properties",
		"--describe --store DIR --mirror rd", "--pause --store DIR --mirror dr --topics-pattern pay.*", "--pause --store DIR --mirror dr --topics-pattern pay(",
		"--start --store DIR --mirror dr --topics-pattern pay(", "--stop --store DIR --mirror rd --all-topics --reason r --plan p",
		"--stop --store DIR --mirror dr --topics orders", "--stop --store DIR --mirror dr --topics orders --reason r",
		"--stop --store DIR --mirror dr --topics orders --reason r --yes", "--stop --store DIR --mirror dr --topics orders --reason r --destination-cluster-id ID",
		"--stop --store DIR --mirror dr --topics orders --reason r --destination-cluster-id ID --yes", "--stop --store DIR --mirror dr --topics orders --reason r --plan 1-2-3",
		"--delete --store DIR --mirror dr --purge --reason r --plan 1-2-3",
		"--list --timeout 500ms --bootstrap-server standby:9092", "--list --bootstrap-server standby", "--list --bootstrap-server standby:9092 --command-config missing.properties",
		"--list --bootstrap-server standby:9092 --command-config client-typo.properties", "--list --bootstrap-server standby:9092 --command-config client-unused.properties",
	} {
		args := strings.Fields(line)
		for i, a := range args {
			switch {
			case a == "DIR":
				args[i] = dir
			case a == "OTHER":
				args[i] = other
			case a == "DAMAGED":
				args[i] = damaged
			case a == "standby:9092":
				args[i] = nobody
			case byName[a] != "":
				args[i] = byName[a]
			}
		}
		status, out, complaints := command(t, args...)
		if n := strings.Count(complaints, "\n"); n != 1 || status == 0 {
			t.Errorf("%s: exit status %d and %d lines of complaint, want 1:\n%s", line, status, n, complaints)
		}
		if strings.Contains(out+complaints, password) {
			t.Errorf("%s printed a secret:\n%s%s", line, out, complaints)
		}
		fmt.Fprintf(&all, "$ kafka-mirror %s\n%s%sexit status %s\n", line, shown.Replace(out), shown.Replace(complaints), []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}[status])
	}
	golden(t, "mistakes.txt", masked(all.String()))
	now, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now, records) {
		t.Error("a mistake has written something")
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("looking into a folder that is not there has made it")
	}
}

// TestTerminalIsAsked: without --yes the answer at a terminal decides, and everything but "yes" is no.
func TestTerminalIsAsked(t *testing.T) {
	source := startSource(t, "orders").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	store := func(args ...string) []string { return append([]string{"--store", dir, "--mirror", "dr"}, args...) }
	if status, _, complaints := command(t, store("--create", "--mirror-config", writeFile(t, "dr.properties", "bootstrap.servers="+source))...); status != 0 {
		t.Fatal(complaints)
	}
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	startMirror(t, records, standbyID)
	if status, _, complaints := command(t, store("--start", "--topics", "orders")...); status != 0 {
		t.Fatal(complaints)
	}
	(&session{t: t}).await(store("--describe"), "destination "+standbyID) // it was heard of
	for _, c := range []struct {
		answer string
		status int
	}{{"no\n", 1}, {"", 1}, {"y\n", 1}, {"yes\n", 0}} {
		var out, complaints bytes.Buffer
		p := &program{out: &out, complaints: &complaints, terminal: bufio.NewReader(strings.NewReader(c.answer))}
		if status := p.run(t.Context(), store("--stop", "--topics", "orders", "--reason", "drill", "--destination-cluster-id", standbyID)); status != c.status {
			t.Errorf("answer %q: exit status %d, want %d\n%s%s", c.answer, status, c.status, &out, &complaints)
		}
		if !strings.Contains(out.String(), "orders: would be opened for clients\n") || !strings.Contains(complaints.String(), "--stop as shown? Type yes: ") {
			t.Errorf("answer %q: the plan was not shown before the question:\n%s%s", c.answer, &out, &complaints)
		}
	}
}

// TestWhatNeedsConsent: a stop, a start that takes a topic over from another mirror, and an alteration that excludes topics are shown first; others are not.
func TestWhatNeedsConsent(t *testing.T) {
	source := startSource(t, "orders").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	config := writeFile(t, "m.properties", "bootstrap.servers="+source, "mirror.destination.cluster.id="+standbyID)
	exclude := writeFile(t, "exclude.properties", "mirror.topics.exclude=ord.*")
	consent := " --reason r --yes --destination-cluster-id " + standbyID
	for _, c := range []struct {
		args   string
		status int
		shown  bool
	}{
		{"--create --mirror a --mirror-config " + config, 0, false},
		{"--create --mirror b --mirror-config " + config, 0, false},
		{"--start --mirror a --topics orders", 0, false},
		{"--stop --mirror a --topics orders" + consent, 0, true},
		{"--start --mirror b --topics orders", 2, true},
		{"--start --mirror b --topics orders --reason r --destination-cluster-id " + standbyID, 2, true},
		{"--start --mirror b --topics orders" + consent, 0, true},
		{"--start --mirror b --topics orders", 0, false}, // it is its own now
		{"--alter --mirror b --mirror-config " + config, 0, false},
		{"--alter --mirror b --mirror-config " + exclude, 2, true},
		{"--alter --mirror b --mirror-config " + exclude + consent, 0, true},
	} {
		status, out, complaints := command(t, append([]string{"--store", dir}, strings.Fields(c.args)...)...)
		if status != c.status {
			t.Errorf("%s: exit status %d, want %d\n%s%s", c.args, status, c.status, out, complaints)
		}
		if shown := strings.Contains(out, "what will be done: "); shown != c.shown {
			t.Errorf("%s: shown first: %v\n%s", c.args, shown, out)
		}
	}
}

// TestJSON: every verb prints one document, refused ones too; a description has the names of KIP-1279's response.
func TestJSON(t *testing.T) {
	source := startSource(t, "orders").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	var document map[string]any
	run := func(want int, args ...string) map[string]any {
		t.Helper()
		status, out, complaints := command(t, append([]string{"--json", "--store", dir}, args...)...)
		document = nil
		if err := json.Unmarshal([]byte(out), &document); err != nil || status != want {
			t.Fatalf("%v: exit status %d, want %d, error %v\n%s%s", args, status, want, err, out, complaints)
		}
		return document
	}
	run(0, "--create", "--mirror", "dr", "--mirror-config", config)
	run(1, "--create", "--mirror", "dr", "--mirror-config", config)
	if refused, ok := document["Error"].(map[string]any); !ok || refused["Code"] != "CLUSTER_MIRROR_ALREADY_EXISTS" {
		t.Errorf("a refused request is %v", document)
	}
	run(0, "--start", "--mirror", "dr", "--topics", "orders")
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	startMirror(t, records, standbyID)
	s := &session{t: t, common: []string{"--store", dir}}
	s.await([]string{"--describe", "--mirror", "dr"}, "orders-0   MIRRORING  3, seen")
	run(1, "--stop", "--mirror", "dr", "--topics", "orders,nosuch", "--reason", "r", "--destination-cluster-id", standbyID, "--yes")
	topics := document["Topics"].([]any)
	if first, second := topics[0].(map[string]any), topics[1].(map[string]any); first["Error"] != nil || first["Changed"] != true ||
		second["Error"].(map[string]any)["Code"] != "TOPIC_NOT_IN_CLUSTER_MIRROR" {
		t.Errorf("the topics are %v", topics)
	}
	s.await([]string{"--describe", "--mirror", "dr"}, "orders-0   STOPPED")
	for _, args := range [][]string{{"--describe", "--mirror", "dr"}, {"--describe"}} {
		described := run(0, args...)["Mirrors"].([]any)[0].(map[string]any)
		topic := described["Topics"].([]any)[0].(map[string]any)
		partition := topic["Partitions"].([]any)[0].(map[string]any)
		for _, x := range []struct {
			of    map[string]any
			names []string
		}{
			{described, []string{"ErrorCode", "ErrorMessage", "MirrorName", "SourceBootstrap", "SourceClusterId", "AuthorizedOperations", "Topics"}}, {topic, []string{"TopicName", "Partitions"}},
			{partition, []string{"PartitionIndex", "StateValue", "ErrorMessage", "RetryAttempt", "SourceOffset", "DestinationOffset", "LastMirrorEpoch", "LastMirrorOffset"}},
		} {
			for _, name := range x.names {
				if _, there := x.of[name]; !there {
					t.Errorf("%v: %s is not in %v", args, name, x.of)
				}
			}
		}
		if partition["StateValue"] != "STOPPED" || partition["LastMirrorOffset"] != 3.0 {
			t.Errorf("%v: the partition is %v", args, partition)
		}
	}
	if list := run(0, "--list")["Mirrors"].([]any); len(list) != 1 {
		t.Errorf("the list is %v", list)
	} else {
		for _, name := range []string{"MirrorName", "SourceBootstrap", "SourceClusterId", "TopicCount", "TopicNames"} {
			if _, there := list[0].(map[string]any)[name]; !there {
				t.Errorf("%s is not in %v", name, list[0])
			}
		}
	}
	if unknown := run(1, "--describe", "--mirror", "rd")["Mirrors"].([]any)[0].(map[string]any); unknown["ErrorCode"] != 137.0 || unknown["MirrorName"] != "rd" {
		t.Errorf("an unknown mirror is %v", unknown)
	}
	if entries := run(0, "--history", "--mirror", "dr")["History"].([]any); len(entries) != 3 || entries[2].(map[string]any)["Reason"] != "r" {
		t.Errorf("the history is %v", entries)
	}
}

// TestDescribeInJSON: the whole document, as a script reads it.
func TestDescribeInJSON(t *testing.T) {
	source := startSource(t).ListenAddrs()[0]
	for _, s := range standings {
		if s.name == "FAILED" {
			_, out, _ := command(t, "--json", "--describe", "--store", made(t, source, s, time.Now()), "--mirror", "dr")
			golden(t, "describe.json", strings.ReplaceAll(number.ReplaceAllString(strings.ReplaceAll(out, source, "primary:9092"), "#"), ".#Z", "Z")) // fractions of seconds are not always there
		}
	}
}

// TestSettings: each setting is listed, with no cluster; and with --json all that is known of it.
func TestSettings(t *testing.T) {
	status, out, complaints := command(t, "--settings")
	if status != 0 || complaints != "" {
		t.Fatalf("exit status %d\n%s", status, complaints)
	}
	golden(t, "settings.txt", out)
	_, document, _ := command(t, "--settings", "--json")
	var all struct{ Settings []mirror.SettingDefinition }
	if err := json.Unmarshal([]byte(document), &all); err != nil || len(all.Settings) != len(mirror.SettingDefinitions()) {
		t.Errorf("%d settings, %v", len(all.Settings), err)
	}
	for _, s := range mirror.SettingDefinitions() {
		if !strings.Contains(out, "\n"+s.Name+" ") {
			t.Errorf("%s is not listed", s.Name)
		}
	}
}

// TestHelp: every verb, every option and every exit status is there.
func TestHelp(t *testing.T) {
	status, out, complaints := command(t, "-help")
	if status != 0 || complaints != "" {
		t.Fatalf("exit status %d\n%s", status, complaints)
	}
	golden(t, "help.txt", out)
	if _, doc, _ := strings.Cut(help(), "Exit status:\n"); doc != "" {
		text, err := os.ReadFile("main.go")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(doc) {
			if meaning := strings.TrimSpace(line); !slices.ContainsFunc(strings.Split(string(text), "\n"), func(l string) bool {
				return strings.HasPrefix(l, "//\t") && strings.Join(strings.Fields(strings.TrimPrefix(l, "//")), " ") == strings.Join(strings.Fields(meaning), " ")
			}) {
				t.Errorf("main.go does not document %q", meaning)
			}
		}
	}
}
