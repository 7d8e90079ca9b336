package mirrortest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFromAnotherModule: the test that the package's manual shows is a whole file, and passes in a module of its own.
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
		"go.mod":          own,
		"go.sum":          read("go.sum"),
		"service_test.go": manual(t, read("mirror/mirrortest/doc.go")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-count=1", "-v", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestServiceSurvivesAFailover") {
		t.Errorf("%v\n%s", err, out)
	}
}

// manual is the code that the package's comment shows.
func manual(t *testing.T, comment string) string {
	t.Helper()
	_, code, found := strings.Cut(comment, "//\tpackage ")
	code, _, ended := strings.Cut(code, "\n//\n// ")
	if !found || !ended {
		t.Fatal("the manual has no test")
	}
	code = strings.ReplaceAll("package "+code, "\n//\t", "\n")
	return strings.ReplaceAll(code, "\n//\n", "\n\n")
}
