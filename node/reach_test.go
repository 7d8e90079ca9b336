package node

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// fileOf is a file of a node in a folder of its own, with these lines.
func fileOf(t *testing.T, bootstrap string, lines ...string) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.properties")
	lines = append([]string{"node.id=9999", "bootstrap.servers=" + bootstrap, "controller.quorum.bootstrap.servers=127.0.0.1:1", "listeners=INTERNAL://127.0.0.1:0",
		"mirror.node.folder=" + filepath.Dir(path)}, lines...)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMissingFilesAreSaidAtOnce: before anybody is connected to, with the setting; all of them.
func TestMissingFilesAreSaidAtOnce(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, []byte("password=secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := fileOf(t, "127.0.0.1:1", "security.protocol=SASL_SSL", "ssl.truststore.location=/nowhere/ca.pem", "sasl.mechanism=PLAIN", "mirror.broker.principals=User:b",
		"listener.name.internal.ssl.keystore.location=${file:"+there+":password}", "listener.name.internal.ssl.client.auth=none",
		`listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_b="${directory:/nowhere:b}";`,
		`sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${file:`+there+`:password}";`)
	_, err := f.Records(t.Context())
	var file *FileError
	if !errors.As(err, &file) || len(file.Errs) != 2 || !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, says := range []string{"ssl.truststore.location: the file cannot be read: stat /nowhere/ca.pem", "listener.name.internal.plain.sasl.jaas.config: the file cannot be read: stat /nowhere/b"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v\ndoes not say %s", err, says)
		}
	}
}

// TestSilenceIsSaidOnce: after some seconds, unless somebody has answered.
func TestSilenceIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for answered, want := range map[bool]int{false: 1, true: 0} {
			var said bytes.Buffer
			stop := tellSilence(slog.New(slog.NewTextHandler(&said, nil)), []string{"standby-1:9092"})
			if answered {
				stop()
			}
			<-time.After(3 * silence) // of the bubble's clock
			synctest.Wait()
			if got := strings.Count(said.String(), "no broker has answered yet"); got != want {
				t.Errorf("answered: %t, said %d times:\n%s", answered, got, said.String())
			}
		}
	})
}

// TestPreflightCountsBrokersForTheTopicsOfStates: what the first start would be refused for is found before it.
func TestPreflightCountsBrokersForTheTopicsOfStates(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	at := fake.ListenAddrs()[0]
	for _, c := range []struct {
		lines []string
		want  kraft.Severity
		do    string
	}{
		{nil, kraft.Blocks, "mirror.state.topic.replication.factor=1"},
		{[]string{"mirror.state.topic.replication.factor=1"}, kraft.Fine, ""},
	} {
		found := fileOf(t, at, c.lines...).enoughBrokers(t.Context())
		if len(found) != 1 || found[0].Severity != c.want || !strings.Contains(found[0].Do, c.do) {
			t.Errorf("%q: %v", c.lines, found)
		}
	}
	with, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, recordTopics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(with.Close)
	if found := fileOf(t, with.ListenAddrs()[0]).enoughBrokers(t.Context()); len(found) != 0 {
		t.Errorf("the topics are there: %v", found)
	}
}
