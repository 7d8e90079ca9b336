package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
)

const password = "hunter2-do-not-print"

// TestRealKafka has one cluster, with a listener for anybody, which the four lines of the README use, and one that asks who it is.
func TestRealKafka(t *testing.T) {
	kafka := kafkatest.Start(t, kafkatest.Options{
		Brokers: 3, Authorizer: true, Listeners: map[string]kafkatest.Security{"LOGIN": {SASL: "PLAIN", Users: map[string]string{"viewer": password}}},
	})
	t.Run("ReadmeShowsARealRun", func(t *testing.T) { readmeShowsARealRun(t, kafka) })
	t.Run("CommandConfig", func(t *testing.T) { commandConfig(t, kafka) })
	t.Run("Preflight", func(t *testing.T) { preflightWithoutRights(t, kafka) })
}

// preflightWithoutRights: a user that may do nothing is told each right that a mirror needs, and with the lines that it prints nothing of them is missing any more.
func preflightWithoutRights(t *testing.T, kafka *kafkatest.Cluster) {
	kafka.CreateTopic(kafkatest.Topic{Name: "bills", Replication: 3})
	secrets := writeFile(t, "secrets.properties", "password="+password)
	login := []string{"security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN",
		`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="viewer" password="${file:` + secrets + `:password}";`}
	viewer := writeFile(t, "viewer.properties", login...)
	from := writeFile(t, "from.properties", append(login, "bootstrap.servers="+kafka.Listener("LOGIN")[0])...)
	into := writeFile(t, "into.properties", "bootstrap.servers="+startSource(t, "bills").ListenAddrs()[0])
	asSource := []string{"--preflight", "--store", filepath.Join(t.TempDir(), "none"), "--mirror", "x", "--topics", "bills", "--mirror-config", from}
	asDestination := []string{"--preflight", "--bootstrap-server", kafka.Listener("LOGIN")[0], "--command-config", viewer, "--mirror", "x", "--topics", "bills", "--mirror-config", into}
	look := func(args []string, status int, missing ...string) {
		t.Helper()
		got, out, complaints := command(t, args...)
		var lines []string
		for line := range strings.Lines(out) {
			if strings.Contains(line, "rights: ") && !strings.HasPrefix(line, "fine") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if got != status || len(lines) != len(missing) {
			t.Errorf("exit status %d, want %d, with %q\n%s%s", got, status, missing, out, complaints)
			return
		}
		for i, words := range missing {
			if !strings.HasPrefix(lines[i], words) {
				t.Errorf("%s\nlacks %q", lines[i], words)
			}
		}
		if strings.Contains(out+complaints, password) {
			t.Errorf("a password was printed\n%s%s", out, complaints)
		}
	}
	look(asSource, 1, "blocks  source, rights: Describe on 1 topic is not allowed", "blocks  source, rights: Read on 1 topic is not allowed", "blocks  source, rights: DescribeConfigs on 1 topic is not allowed",
		"warns   source, rights: Describe on the cluster is not allowed")
	kafka.Allow("User:viewer", []string{"bills"}, kadm.OpRead) // and so Describe
	look(asSource, 1, "blocks  source, rights: DescribeConfigs on 1 topic is not allowed", "warns   source, rights: Describe on the cluster is not allowed")
	kafka.CreateACLs(kadm.NewACLs().Allow("User:viewer").AllowHosts("*").Topics("__mirror_").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead))
	look(asDestination, 0, "warns   destination, rights: AlterConfigs on 1 topic is not allowed", "warns   destination, rights: Describe on the cluster is not allowed",
		"warns   destination, rights: Alter on the cluster is not allowed")
	kafka.Allow("User:viewer", []string{"bills"}, kadm.OpAlterConfigs)
	kafka.CreateACLs(kadm.NewACLs().Allow("User:viewer").AllowHosts("*").Clusters().Operations(kadm.OpDescribe, kadm.OpAlter))
	look(asSource, 0)
	look(asDestination, 0)
}

// readmeShowsARealRun: the four lines of the README, with the desired state in a real Kafka cluster and a mirror that follows it, print what the README shows.
// The source is a Kafka-protocol cluster in this process; what is copied goes to memory, which says that it is the cluster of the desired state.
func readmeShowsARealRun(t *testing.T, kafka *kafkatest.Cluster) {
	source, standby := startSource(t, "orders").ListenAddrs()[0], kafka.Bootstrap()[0]
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{
		t: t, common: []string{"--bootstrap-server", standby}, shown: strings.NewReplacer(source, "primary:9092", standby, "standby:9092", config, "dr.properties", host, "host-1"),
	}
	s.run("--create", "--mirror", "dr", "--mirror-config", config)
	records, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: kafka.Bootstrap()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	startMirror(t, records, kafka.ID())
	s.await([]string{"--describe", "--mirror", "dr"}, "mirror-1") // it was heard of
	s.run("--start", "--mirror", "dr", "--topics", "orders")
	s.await([]string{"--describe", "--mirror", "dr"}, "orders-0   MIRRORING  3, seen", "ago  0 ")
	s.await([]string{"--groups", "--mirror", "dr"}, "groups: 0 followed, looked at ")                  // a second after the beginning: a stop before says that nobody has
	s.await([]string{"--stop", "--mirror", "dr", "--topics", "orders", "--dry-run"}, "NOT MIRRORED: ") // a plan is kept: a stop before shows none
	s.run("--describe", "--mirror", "dr")
	s.run("--stop", "--mirror", "dr", "--topics", "orders", "--reason", "primary is down", "--destination-cluster-id", kafka.ID(), "--yes")
	s.await([]string{"--describe", "--mirror", "dr"}, "orders-0   STOPPED")

	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--stop", "--topics", "nosuch", "--dry-run"}, 1, "nosuch: REFUSED: dr/nosuch: UNKNOWN_TOPIC_OR_PARTITION"}, // the cluster was asked
		{[]string{"--pause", "--topics", "orders", "--destination-cluster-id", "another"}, 2, "the destination itself has " + kafka.ID()},
		{[]string{"--delete", "--reason", "drill", "--destination-cluster-id", "another", "--yes"}, 2, "the caller names another"},
	} {
		status, out, complaints := command(t, append(append(c.args, s.common...), "--mirror", "dr")...)
		if status != c.status || !strings.Contains(out+complaints, c.says) {
			t.Errorf("%v: exit status %d, want %d, with %q\n%s%s", c.args, status, c.status, c.says, out, complaints)
		}
	}

	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block, ok := transcriptOf(string(readme))
	if !ok {
		t.Fatalf("README.md has no transcript of kafka-mirror; a run gives\n%s", s.text.String())
	}
	if !transcriptIn(block, s.text.String()) {
		t.Errorf("README.md shows\n%s\nand a run gave\n%s", block, s.text.String())
	}
}

// commandConfig: the file's user is who asks, its rights are the cluster's, and no password is printed.
func commandConfig(t *testing.T, kafka *kafkatest.Cluster) {
	source := startSource(t, "orders").ListenAddrs()[0]
	login := func(user, password string) string {
		return writeFile(t, user+".properties", "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "mirror.state.topic.replication.factor=3",
			`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="`+user+`" password="`+password+`";`)
	}
	admin, viewer, wrong := login("admin", kafkatest.AdminPassword), login("viewer", password), login("viewer", password+"?")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	for _, c := range []struct {
		who, args string
		status    int
		says      string
	}{
		{admin, "--create --mirror other --mirror-config " + config, 0, "create, mirror other"},
		{admin, "--list --timeout 20s", 0, "other"},
		{viewer, "--list", 2, "kafka-acls.sh"},
		{wrong, "--list", 2, "check user, password and sasl.mechanism in --command-config"},
	} {
		status, out, complaints := command(t, append([]string{"--bootstrap-server", kafka.Listener("LOGIN")[0], "--command-config", c.who}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(out+complaints, c.says) || status != 0 && strings.Count(complaints, "\n") != 1 {
			t.Errorf("%s: exit status %d, want %d, with %q in one line\n%s%s", c.args, status, c.status, c.says, out, complaints)
		}
		if strings.Contains(out+complaints, password) || strings.Contains(out+complaints, kafkatest.AdminPassword) {
			t.Errorf("%s: a password was printed\n%s%s", c.args, out, complaints)
		}
	}
}

// transcriptOf is the first block of README.md that begins with a command of this program.
func transcriptOf(readme string) (string, bool) {
	const fence, prompt = "\n```\n", "$ kafka-mirror "
	_, rest, ok := strings.Cut(readme, fence+prompt)
	if !ok {
		return "", false
	}
	block, _, ok := strings.Cut(rest, fence)
	return prompt + block + "\n", ok
}

// transcriptIn says whether a transcript is what was printed, masked: its parts, between lines with an ellipsis, are there as they stand, in order, and the first one is the
// beginning and the last one the end. A command that is continued on the next line is one line.
func transcriptIn(transcript, printed string) bool {
	rest := "\n" + masked(strings.TrimSpace(printed)) + "\n"
	parts := strings.Split(strings.ReplaceAll(strings.TrimSpace(transcript), "\\\n", ""), "\n…\n")
	for i, part := range parts {
		part = "\n" + masked(part) + "\n"
		at := strings.Index(rest, part)
		if at < 0 || i == 0 && at > 0 || i == len(parts)-1 && !strings.HasSuffix(rest, part) {
			return false
		}
		rest = rest[at+len(part)-1:]
	}
	return true
}

func TestTranscriptSaysNo(t *testing.T) {
	const printed = "$ kafka-mirror --a x\nsource StdZqbTwueFxgHciKmNwyv (p:1)\nplan 01234567-89abcdef-01234567\nseen <1s ago    b\nend 7\n"
	for transcript, want := range map[string]bool{
		"$ kafka-mirror \\\n  --a x\nsource PqwYhCxRbmzsVvnJykLxAa (p:2)\n…\nend 8\n":      true,
		"$ kafka-mirror --a x\nsource PqwYhCxRbmzsVvnJykLxAa (p:2)\n…\nend 8\n":            true,
		"$ kafka-mirror --a x\n…\nplan abcdefab-abcdefab-abcdefab\nseen 12s ago  b\nend 1": true,
		"$ kafka-mirror --a x\n…\nplan abcdefab-abcdefab-abcdefab\nend 1":                  false,
		"$ kafka-mirror --b x\n…\nend 1":                                                   false,
		"$ kafka-mirror --a x\n…\nseen 1s ago b":                                           false,
		"source StdZqbTwueFxgHciKmNwyv (p:1)\n…\nend 1":                                    false,
		"$ kafka-mirror --a x\nsource unknown (p:2)\n…\nend 8":                             false,
	} {
		if transcriptIn(transcript, printed) != want {
			t.Errorf("%q: %v", transcript, !want)
		}
	}
}
