package mirrortest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFromAnotherModule: a service in a module of its own compiles a test with the harness, and it passes.
func TestFromAnotherModule(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const module = "github.com/clustermirror/clustermirror"
	own := strings.Replace(read("go.mod"), "module "+module+"\n", "module example.com/service\n", 1) +
		"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": own,
		"go.sum": read("go.sum"),
		"service_test.go": `package service

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

func TestService(t *testing.T) {
	dr := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"orders": 1}})
	write := func(value string) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(dr.Active().Addresses()...), kgo.DefaultProduceTopic("orders"))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	dr.AwaitCaughtUp()
	dr.KillPrimary()
	dr.Failover()
	write("b")
	dr.Failback()
	write("c")
	if n := dr.Verify(); n < 3 {
		t.Errorf("%d batches", n)
	}
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-count=1", "-v", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestService") {
		t.Errorf("%v\n%s", err, out)
	}
}
