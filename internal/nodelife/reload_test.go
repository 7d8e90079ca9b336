package nodelife_test

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// setPassword changes a SCRAM user's password in the cluster.
func setPassword(t *testing.T, c *kafkatest.Cluster, user, password string) {
	t.Helper()
	salt := make([]byte, 16)
	rand.Read(salt)
	const iterations = 4096
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Admin().AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha256, Iterations: iterations, Salt: salt, SaltedPassword: salted}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHangUpTakesNewCredentialsUp: the password of the node's user changes in the cluster and then in the file; SIGHUP, and what connects from then on uses it. A file with a mistake changes
// nothing, and says so.
func TestHangUpTakesNewCredentialsUp(t *testing.T) {
	kafkatest.Require(t)
	from := primary(t)
	to := kafkatest.Start(t, kafkatest.Options{
		Brokers: 1, HeapMB: 384, Proxied: true, Client: kafkatest.Security{SASL: "SCRAM-SHA-256", Users: map[string]string{"mirror": "before"}},
	})
	const login = "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"mirror\" password=\"%s\";\n"
	client := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n" + login
	text := client + "listener.security.protocol.map=INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\nmirror.state.topic.replication.factor=1\ndefault.replication.factor=1\n"
	p := start(t, to, "a", fmt.Sprintf(text, "before"))
	p.ready()
	from.CreateTopic(kafkatest.Topic{Name: "reload-before", Partitions: 1, Replication: 1})
	from.CreateTopic(kafkatest.Topic{Name: "reload-after", Partitions: 1, Replication: 1})
	folder := t.TempDir()
	mirrorFile, commandFile := filepath.Join(folder, "mirror.properties"), filepath.Join(folder, "command.properties")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(mirrorFile, "bootstrap.servers="+strings.Join(from.Bootstrap(), ",")+"\n")
	put(commandFile, fmt.Sprintf(client, "before")+"mirror.state.topic.replication.factor=1\n")
	say := func(args ...string) string {
		t.Helper()
		return verb(t, to, 0, append(args, "--mirror", "reload-dr", "--command-config", commandFile)...)
	}
	say("--create", "--mirror-config", mirrorFile)
	say("--start", "--topics", "reload-before")
	mirroring := func(topic string) {
		t.Helper()
		lives.Eventually(t, topic+" is mirrored", func() (bool, string) {
			out, _ := tried(t, to, "--describe", "--mirror", "reload-dr", "--command-config", commandFile) // its exit status says how the mirror is
			return strings.Contains(out, topic+"-0") && strings.Contains(out[strings.Index(out, topic+"-0"):], "MIRRORING"), out
		})
	}
	mirroring("reload-before")

	setPassword(t, to, "mirror", "after")
	file := filepath.Join(p.folder, "node.properties")
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	printed := func(words string) {
		t.Helper()
		lives.Eventually(t, "the node to say "+words, func() (bool, string) { return strings.Contains(p.out.String(), words), p.out.String() })
	}
	hangUp := func(text string) {
		t.Helper()
		put(file, text)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hangUp(strings.Replace(string(was), "node.id", "node.idd", 1))
	printed("has mistakes: nothing has changed")
	printed("the closest known name is node.id")
	hangUp(strings.Replace(string(was), `"before"`, `"after"`, 1))
	printed("new connections use its credentials")
	if strings.Contains(p.out.String(), "before\"") || strings.Contains(p.out.String(), "after\"") {
		t.Error("it printed a password")
	}
	to.Proxy(1).Reset() // every connection is made anew
	put(commandFile, fmt.Sprintf(client, "after")+"mirror.state.topic.replication.factor=1\n")
	say("--start", "--topics", "reload-after")
	mirroring("reload-after")
	if status := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
}
