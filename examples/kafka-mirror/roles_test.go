package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
)

// TestEveryVerbForEveryRole: who may use which verb where the desired state is in a Kafka cluster, with the lines that acls prints for each role, and what everybody else is
// told. What is not permitted changes nothing.
func TestEveryVerbForEveryRole(t *testing.T) {
	t.Parallel() // it waits most of the time
	known := []struct {
		name   string
		grants []grant
	}{{"nobody", nil}}
	for _, r := range roles {
		known = append(known, struct {
			name   string
			grants []grant
		}{r.name, ofRole(r.name)})
	}
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID(standbyID), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", password)}
	for _, r := range known {
		var rules []kfake.ACL
		for _, g := range r.grants {
			rules = append(rules, ruleOf(t, g.command("HOST:PORT", "User:"+r.name)))
		}
		options = append(options, kfake.User("PLAIN", r.name, password, rules...))
	}
	source := startSource(t, "orders").ListenAddrs()[0]
	config, change := writeFile(t, "new.properties", "bootstrap.servers="+source), writeFile(t, "change.properties", "mirror.groups.exclude=console-.*")
	logins := map[string]string{}
	for _, r := range known {
		logins[r.name] = writeFile(t, r.name+".properties", "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "mirror.state.topic.replication.factor=1", "mirror.state.topic.num.partitions=2",
			`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="`+r.name+`" password="`+password+`";`)
	}
	var table strings.Builder
	table.WriteString("verb | role | exit | first line\n")
	for _, v := range tableVerbs(config, change) {
		state := "MIRRORING" // in which the verb would change something
		switch v.name {
		case "delete":
			state = "STOPPED"
		case "resume":
			state = "PAUSED"
		case "start":
			state = inNoMirror
		}
		fake, err := kfake.NewCluster(options...)
		if err != nil {
			t.Fatal(err)
		}
		defer fake.Close()
		at := fake.ListenAddrs()[0]
		records, err := kafkastore.Open(t.Context(), kafkastore.Config{
			Seeds: fake.ListenAddrs(), ReplicationFactor: 1, StatePartitions: 2, ClientOptions: []kgo.Opt{kgo.SASL(plain.Auth{User: "root", Pass: password}.AsMechanism())},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer records.Close()
		for _, s := range standings {
			if s.name == state {
				fill(t, records, source, s, standbyID, time.Now())
			}
		}
		control := mirror.NewControl(records)
		desired := func() mirror.ControlState {
			t.Helper()
			s, err := control.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		before := desired()
		for _, r := range known { // those that may do it come last
			name := v.mirror
			if name == "" {
				name = "dr"
			}
			args := append(v.args("", name, "orders", false), "--bootstrap-server", at, "--command-config", logins[r.name])
			status, out, complaints := command(t, withoutStore(args)...)
			if strings.Contains(out+complaints, password) {
				t.Errorf("%v prints a password", args)
			}
			first := strings.NewReplacer(source, "primary:9092", at, "standby:9092").Replace(line(out, complaints))
			fmt.Fprintf(&table, "%s | %s | %d | %s\n", v.name, r.name, status, anyTopic.ReplaceAllString(masked(byWhom.ReplaceAllString(first, " by root at host-1 ")), "${1}__mirror_…"))
			if now := desired(); status != 0 && fmt.Sprint(now.Mirrors, now.Topics) != fmt.Sprint(before.Mirrors, before.Topics) {
				t.Errorf("--%s is not permitted to %s, and has changed the desired state", v.name, r.name)
			}
			if err := control.Update(t.Context(), func(c *mirror.ControlState) error {
				again := before.Clone()
				c.Mirrors, c.Topics, c.Deleted = again.Mirrors, again.Topics, again.Deleted
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	golden(t, "rights.txt", table.String())
}

// aclsLine is a line that acls prints.
var aclsLine = regexp.MustCompile(`--operation (\w+) --(topic|group|transactional-id|cluster)(?: '([^']*)')?( --resource-pattern-type prefixed)?$`)

// ruleOf is what kafka-acls.sh makes of a line.
func ruleOf(t *testing.T, line string) kfake.ACL {
	t.Helper()
	m := aclsLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("%q is no line of kafka-acls.sh", line)
	}
	operations := map[string]kmsg.ACLOperation{
		"All": kmsg.ACLOperationAll, "Read": kmsg.ACLOperationRead, "Write": kmsg.ACLOperationWrite, "Describe": kmsg.ACLOperationDescribe, "DescribeConfigs": kmsg.ACLOperationDescribeConfigs,
	}
	resources := map[string]kmsg.ACLResourceType{
		"topic": kmsg.ACLResourceTypeTopic, "group": kmsg.ACLResourceTypeGroup, "transactional-id": kmsg.ACLResourceTypeTransactionalId, "cluster": kmsg.ACLResourceTypeCluster,
	}
	rule := kfake.ACL{Resource: resources[m[2]], Name: m[3], Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operations[m[1]], Allow: true}
	if m[4] != "" {
		rule.Pattern = kmsg.ACLResourcePatternTypePrefixed
	}
	if rule.Operation == 0 {
		t.Fatalf("%q: operation %s", line, m[1])
	}
	return rule
}

// anyTopic finds the topic that a right is missing for: the cluster in this process refuses all topics of a transaction for the sake of one, so which it names is chance.
var anyTopic = regexp.MustCompile(`(Write (?:--)?topic )__mirror_\w+`)

// byWhom finds who is in the history.
var byWhom = regexp.MustCompile(` by \S+ at \S+ `)

// withoutStore are the arguments without --store and what follows it.
func withoutStore(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--store" {
			i++
			continue
		}
		rest = append(rest, args[i])
	}
	return rest
}
