package nodelife_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// newer builds kafka-mirror as a later version will be that writes records of another form.
func newer(t *testing.T) string {
	t.Helper()
	const file = "../../mirror/controlrecord.go"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "const controlVersion = 1\n", "const controlVersion = 2\n", 1)
	if changed == string(text) {
		t.Fatal("the version of control records is not where it was: this test has to follow it")
	}
	dir := t.TempDir()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "controlrecord.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: other}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{other: changed, filepath.Join(dir, "overlay.json"): string(overlay)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "kafka-mirror")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "github.com/clustermirror/clustermirror/examples/kafka-mirror").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// TestOlderVersionRefusesNewerRecords: what a newer version recorded is refused by name, by verbs and by a node, which then mirrors nothing rather than something else than what was said.
func TestOlderVersionRefusesNewerRecords(t *testing.T) {
	kafkatest.Require(t)
	from := primary(t)
	to := kafkatest.Start(t, kafkatest.Options{Brokers: 1, HeapMB: 384})
	one := []string{"mirror.state.topic.replication.factor=1", "default.replication.factor=1"}
	p := start(t, to, "older", one...)
	p.ready()
	folder := t.TempDir()
	config := filepath.Join(folder, "command.properties")
	file := filepath.Join(folder, "mirror.properties")
	for name, text := range map[string]string{config: "mirror.state.topic.replication.factor=1\n", file: "bootstrap.servers=" + strings.Join(from.Bootstrap(), ",") + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(newer(t), "--bootstrap-server", to.Bootstrap()[0], "--command-config", config, "--create", "--mirror", "from-the-future", "--mirror-config", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const says = "a newer version wrote it; run at least that version"
	if out := verb(t, to, 3, "--describe", "--mirror", "from-the-future"); !strings.Contains(out, says) || !strings.Contains(out, "from-the-future") {
		t.Errorf("describe says %s", out)
	}
	untilPage(p, "/readyz", says)
	if status := p.end(syscall.SIGTERM); status != 0 {
		t.Errorf("it ended with status %d", status)
	}
}
