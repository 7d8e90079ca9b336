package nodelife_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
)

// TestNodeRunsWhatVerbsSay: a node before there is any mirror; one that is created, started, stopped and deleted while it runs.
func TestNodeRunsWhatVerbsSay(t *testing.T) {
	kafkatest.Require(t)
	from, to := primary(t), standby(t)
	const topic = "node-orders"
	from.CreateTopic(kafkatest.Topic{Name: topic, Partitions: 2, Replication: 1})
	from.Produce(topic, 0, lives.Values("first", 10)...)
	p := start(t, to, "a")
	p.ready()
	create(t, from, to, "node-dr")
	verb(t, to, 0, "--start", "--mirror", "node-dr", "--topics", topic)
	until(t, to, "node-dr", topic+"-0  MIRRORING  10", topic+"-1  MIRRORING  0")
	if status, body := p.get("/metrics"); status != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`clustermirror_node_ready{destination_cluster_id="%s",node="9999"} 1`, to.ID())) {
		t.Errorf("/metrics: %d\n%s", status, body)
	}
	if status, body := p.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	from.Produce(topic, 0, lives.Values("second", 5)...)
	until(t, to, "node-dr", topic+"-0  MIRRORING  15")
	verb(t, to, 0, "--stop", "--mirror", "node-dr", "--topics", topic, "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
	until(t, to, "node-dr", topic+"-0  STOPPED", topic+"-1  STOPPED")
	to.Produce(topic, 0, "written here")
	verb(t, to, 0, "--delete", "--mirror", "node-dr", "--reason", "a test", "--destination-cluster-id", to.ID(), "--yes")
	if status := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("told to end it ended with status %d", status)
	}
	t.Logf("it printed\n%s", p.out.String())
	for _, line := range inReadme(t, p.out.String(), topic, "node-dr") {
		t.Errorf("README.md shows a line that was not printed: %s", line)
	}
}

// TestPreflightOfANode: it says what it sees and changes nothing, and a mistake is one line that names the key.
func TestPreflightOfANode(t *testing.T) {
	kafkatest.Require(t)
	to := standby(t)
	folder := t.TempDir()
	text, _ := settings(t, to, folder)
	file := filepath.Join(folder, "node.properties")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	try := func(want int, says string) {
		t.Helper()
		out, err := exec.Command(command(t), "run", "--config", file, "--preflight").CombinedOutput()
		var exit *exec.ExitError
		status := 0
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		if status != want || !strings.Contains(string(out), says) {
			t.Errorf("exit status %d, want %d and %q:\n%s", status, want, says, out)
		}
	}
	put(text)
	try(0, to.ID())
	put(strings.Replace(text, "node.id=9999", "node.id=1", 1))
	try(1, "1")
	put(strings.Replace(text, "mirror.node.folder", "mirror.node.foldr", 1))
	try(2, "mirror.node.foldr: is not known; the closest known name is mirror.node.folder")
}

// inReadme says which lines of README.md's transcript of a node were not printed.
func inReadme(t *testing.T, printed, topic, name string) (missing []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "$ kafka-mirror run --config node.properties\n")
	block, _, ok2 := strings.Cut(rest, "\n```\n")
	if !ok || !ok2 {
		t.Fatal("README.md has no transcript of kafka-mirror run")
	}
	masked := func(s string) string {
		s = regexp.MustCompile(`time=\S+`).ReplaceAllString(s, "time=T")
		s = regexp.MustCompile(`version=\S+`).ReplaceAllString(s, "version=V")
		return regexp.MustCompile(`(offset|RESET at) \d+`).ReplaceAllString(s, "$1 #")
	}
	printed = masked(strings.NewReplacer(topic, "orders", name, "dr").Replace(printed))
	for _, line := range strings.Split(block, "\n") {
		if !strings.Contains(printed, masked(line)+"\n") {
			missing = append(missing, line)
		}
	}
	return missing
}
