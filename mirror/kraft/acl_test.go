package kraft_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

const mirrorUser = "User:mirror"

var mirrorLogin = kafkatest.Credentials{User: "mirror", Password: "mirror-secret", Certificate: "mirror"}

// plainCluster has PLAIN on the listeners that a joining process meets, and an authorizer.
func plainCluster(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	plain := kafkatest.Security{SASL: "PLAIN", Users: map[string]string{"mirror": mirrorLogin.Password, "stranger": "stranger-secret"}}
	return kafkatest.Start(t, kafkatest.Options{Internal: plain, Controller: plain, Authorizer: true})
}

// secured is how a process joins a cluster whose INTERNAL and CONTROLLER listeners have security.
func secured(c *kafkatest.Cluster, protocol string, more ...kgo.Opt) func(*kraft.Config) {
	return func(cfg *kraft.Config) {
		cfg.ControllerOptions = append(c.ListenerOptions("CONTROLLER", mirrorLogin, nil), more...)
		cfg.BrokerOptions = append(c.ListenerOptions("INTERNAL", mirrorLogin, nil), more...)
		cfg.Security = kraft.ListenerSecurity{Protocol: protocol, PlainPassword: func(user, password string) bool {
			return user == "admin" && password == kafkatest.AdminPassword || user == "stranger" && password == "stranger-secret"
		}}
		for _, id := range c.Brokers() {
			if p := c.BrokerPrincipal("INTERNAL", id); !slices.Contains(cfg.Security.Brokers, p) {
				cfg.Security.Brokers = append(cfg.Security.Brokers, p)
			}
		}
	}
}

// rule is the ACL of a right, for all topics or groups.
func rule(r kraft.Right, principal string) *kadm.ACLBuilder {
	operation, err := kmsg.ParseACLOperation(r.Operation)
	if err != nil {
		panic(err)
	}
	b := kadm.NewACLs().Allow(principal).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(operation)
	switch r.Resource {
	case "Topic":
		return b.Topics("*")
	case "Group":
		return b.Groups("*")
	}
	return b.Clusters()
}

func grant(c *kafkatest.Cluster, principal string, rights ...kraft.Right) {
	for _, r := range rights {
		c.CreateACLs(rule(r, principal))
	}
}

func revoke(t *testing.T, c *kafkatest.Cluster, principal string, r kraft.Right) {
	t.Helper()
	results, err := c.Admin().DeleteACLs(bound(t), rule(r, principal))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || len(r.Deleted) != 1 {
			t.Fatalf("deleting a rule: %v, %d deleted", r.Err, len(r.Deleted))
		}
	}
}

func preflight(t *testing.T, cfg kraft.Config) kraft.Report {
	t.Helper()
	r, err := kraft.Preflight(bound(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// missing are the rights that a report says are missing.
func missing(r kraft.Report) []kraft.Right {
	var rs []kraft.Right
	for _, f := range r.Findings {
		if f.Kind == kraft.AboutRights && f.Severity != kraft.Fine && !slices.Contains(rs, f.Right) {
			rs = append(rs, f.Right)
		}
	}
	return rs
}

// metadataRecords counts the records of a node's metadata log by type (Kafka: MetadataRecordType), without those that controllers write to show that they live (NoOpRecord).
func metadataRecords(t *testing.T, c *kafkatest.Cluster) map[uint64]int {
	t.Helper()
	types := map[uint64]int{}
	for h, b := range batch.All(c.MetadataLogBytes(1)) {
		if h.Control() {
			continue
		}
		records, err := batch.ReadRecords(b, &h)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			_, n := binary.Uvarint(r.Value)
			if kind, _ := binary.Uvarint(r.Value[n:]); kind != 20 {
				types[kind]++
			}
		}
	}
	return types
}

// kinds records every kind of request that is written to a connection, those for logging in included.
type kinds struct {
	mu   sync.Mutex
	sent map[string]int
}

func (k *kinds) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sent == nil {
		k.sent = map[string]int{}
	}
	k.sent[kafkaName(key)]++
}

// kafkaName is a request's name as Kafka writes it; kmsg has others for some.
func kafkaName(key int16) string {
	name := kmsg.NameForKey(key)
	return cmp.Or(map[string]string{
		"SASLHandshake": "SaslHandshake", "SASLAuthenticate": "SaslAuthenticate", "InitProducerID": "InitProducerId", "AllocateProducerIDs": "AllocateProducerIds",
		"AlterPartitionAssignments": "AlterPartitionReassignments", "DescribeACLs": "DescribeAcls", "CreateACLs": "CreateAcls", "DeleteACLs": "DeleteAcls",
	}[name], name)
}

func (k *kinds) all() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.sent)
}

func securityPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// documentedKinds are the request kinds that SECURITY.md's table lists.
func documentedKinds(t *testing.T) []string {
	t.Helper()
	return kindsOf(t, "request kinds")
}

// kindsOf are the request kinds of the table behind a mark.
func kindsOf(t *testing.T, mark string) []string {
	t.Helper()
	page := securityPage(t)
	_, table, ok := strings.Cut(page, "<!-- "+mark+" -->")
	table, _, ok2 := strings.Cut(table, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatal("SECURITY.md has no table of request kinds")
	}
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` ").FindAllStringSubmatch(table, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// TestSecurityPageListsEveryRequest compares SECURITY.md with the requests that the sources make: a new kind of request has to be told to who guards the cluster.
func TestSecurityPageListsEveryRequest(t *testing.T) {
	made := madeBy(t, "*.go", "../../internal/kraftclient/*.go", "../../internal/replicareader/*.go")
	made["SaslHandshake"], made["SaslAuthenticate"] = true, true // by kgo, when it connects
	if want, got := slices.Sorted(maps.Keys(made)), documentedKinds(t); !slices.Equal(want, got) {
		t.Errorf("SECURITY.md lists\n%v, the sources make\n%v", got, want)
	}
	listed := slices.Sorted(slices.Values(slices.Concat(kindsOf(t, "request kinds of metadata sync"), kindsOf(t, "request kinds of the source alone"))))
	if want := slices.Sorted(maps.Keys(madeBy(t, "../../internal/kafkametadata/*.go"))); !slices.Equal(want, listed) {
		t.Errorf("SECURITY.md lists for metadata sync, here and at the source,\n%v, the sources make\n%v", listed, want)
	}
	page := securityPage(t)
	for _, r := range slices.Concat(kraft.Rights(), kraft.SyncRights()) {
		if !strings.Contains(page, r.Command("User:mirror", "*")) {
			t.Errorf("SECURITY.md lacks the line %s", r.Command("User:mirror", "*"))
		}
	}
}

// madeBy are the kinds of requests that sources make.
func madeBy(t *testing.T, patterns ...string) map[string]bool {
	t.Helper()
	made := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`kmsg\.New(?:Ptr)?([A-Za-z]+)Request\(\)|kmsg\.([A-Z][A-Za-z]+)Request\{`).FindAllStringSubmatch(string(b), -1) {
				made[kafkaName(keyOf(t, cmp.Or(m[1], m[2])))] = true
			}
		}
	}
	return made
}

// keyOf is the key of a request by kmsg's type name.
func keyOf(t *testing.T, name string) int16 {
	t.Helper()
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if r := kmsg.RequestForKey(key); r != nil && strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", r), "*kmsg."), "Request") == name {
			return key
		}
	}
	t.Fatalf("no request is called %s", name)
	return -1
}

// TestRealKafkaExactRights: with each single right left out the preflight names exactly that one, Join refuses, and nothing is written; with all of them a whole life works, and sends
// nothing but what SECURITY.md lists.
func TestRealKafkaExactRights(t *testing.T) {
	c := plainCluster(t)
	sent := new(kinds)
	cfg := config(t, c)
	secured(c, "SASL_PLAINTEXT", kgo.WithHooks(sent))(&cfg)

	if got := missing(preflight(t, cfg)); !slices.Equal(got, []kraft.Right{kraft.ClusterAction, kraft.Alter, kraft.Create, kraft.AlterTopic, kraft.AlterConfigs}) {
		t.Fatalf("without any rule %v are said to be missing: all that controllers answer for should be\n%s", got, preflight(t, cfg))
	}
	grant(c, mirrorUser, kraft.Rights()...)
	allowed := func() {
		t.Helper()
		eventually(t, "all rights to be seen", func() bool { return len(missing(preflight(t, cfg))) == 0 })
	}
	allowed()
	for _, r := range kraft.Rights() {
		revoke(t, c, mirrorUser, r)
		var report kraft.Report
		eventually(t, "the loss of "+r.String()+" to be seen", func() bool { report = preflight(t, cfg); return len(missing(report)) > 0 })
		report = preflight(t, cfg) // controllers and brokers have it now
		before := metadataRecords(t, c)
		if got := missing(report); !slices.Equal(got, []kraft.Right{r}) {
			t.Errorf("without %s the preflight says that %v are missing:\n%s", r, got, report)
		}
		blocked := report.Err() != nil
		if blocked == (r == kraft.DescribeCluster) {
			t.Errorf("without %s: blocked %v\n%s", r, blocked, report)
		}
		if blocked {
			_, err := kraft.Join(bound(t), cfg)
			var f kraft.Finding
			if !errors.Is(err, kraft.ErrPreflight) || !errors.As(err, &f) || f.Right != r || !strings.Contains(err.Error(), r.Command("User:THIS-PROCESS", "clustermirror.preflight")) && r.Resource == "Topic" {
				t.Errorf("without %s Join says: %v", r, err)
			}
			if strings.Contains(err.Error(), mirrorLogin.Password) {
				t.Error("the error holds the password")
			}
		}
		if after := metadataRecords(t, c); !maps.Equal(before, after) {
			t.Errorf("without %s records were written: by type %v before, %v after", r, before, after)
		}
		grant(c, mirrorUser, r)
		allowed()
	}

	life(t, joinWith(t, c, cfg))
	for name := range sent.all() {
		if !slices.Contains(documentedKinds(t), name) {
			t.Errorf("%s was sent, and SECURITY.md does not list it", name)
		}
	}
	seldom := []string{"FetchSnapshot", "WriteTxnMarkers", "DescribeCluster"} // where the metadata log was cut; by Force; by the kill switch
	for _, name := range documentedKinds(t) {
		if sent.all()[name] == 0 && !slices.Contains(seldom, name) {
			t.Errorf("SECURITY.md lists %s, and a whole life does not send it", name)
		}
	}
	t.Log(sent.all())
}

// life does once what a process does in its life: create, mirror, grow, raise an epoch, hand over, take over, truncate, hand over, leave.
func life(t *testing.T, j *joined) {
	t.Helper()
	topic := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "."))
	l := j.create(topic, 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 5, "first"))
	big := slices.Repeat([]string{strings.Repeat("x", 1000)}, 40)
	appendTo(t, l, data(5, l.LeaderEpoch(), 40, big[0]))
	await(t, l)
	if _, err := j.GrowTopic(bound(t), topic, 2); err != nil {
		t.Fatalf("grow: %v", err)
	}
	tp := mirror.TopicPartition{Topic: topic}
	if _, err := j.RaiseLeaderEpochs(bound(t), map[mirror.TopicPartition]int32{tp: l.LeaderEpoch() + 1}); err != nil {
		t.Fatalf("raise an epoch: %v", err)
	}
	if err := l.(mirror.ProducerIDSettler).SettleProducerIDs(bound(t), 5000); err != nil {
		t.Fatalf("settle producer ids: %v", err)
	}
	other := j.open(topic, 1)
	for _, l := range []mirror.Log{l, other} {
		if err := l.Open(bound(t)); err != nil {
			t.Fatalf("hand over: %v", err)
		}
	}
	produce(t, j.c, topic, 0, "local")
	for _, l := range []mirror.Log{l, other} {
		if err := l.CloseForWrites(bound(t)); err != nil {
			t.Fatalf("take over: %v", err)
		}
	}
	if _, err := l.TruncateTo(bound(t), 45); err != nil {
		t.Fatalf("truncate: %v", err)
	}
	if err := l.AwaitTruncated(bound(t)); err != nil {
		t.Fatalf("truncate: %v", err)
	}
	if _, err := l.Read(bound(t), 0, 1<<20); err != nil {
		t.Fatalf("read: %v", err)
	}
	appendTo(t, l, data(45, l.LeaderEpoch(), 5, "again"))
	await(t, l)
	for _, l := range []mirror.Log{l, other} {
		if err := l.Open(bound(t)); err != nil {
			t.Fatalf("hand over again: %v", err)
		}
	}
	if err := j.Leave(bound(t)); err != nil {
		t.Fatalf("leave: %v", err)
	}
	w := watchOf(t, j.c)
	eventually(t, "no trace of the process", func() bool {
		im := w.image()
		_, there := im.Broker(nodeID)
		return !there && len(im.PartitionsOf(nodeID)) == 0
	})
}
