package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestRewordedSaysNo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "texts.go")
	for name, text := range map[string]string{
		path:                               "package p\n\nvar texts = []string{\"use Stop now\", \"use Start now\", \"Start\", \"skipped Start here\", \"again and more\"}\n",
		filepath.Join(dir, "more_test.go"): "package p\n\nvar text = \"use Start here\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	say := strings.NewReplacer("Stop", "--stop", "again", "again and again").Replace
	changed, faults, err := Reworded([]string{path, filepath.Join(dir, "more_test.go")}, say, regexp.MustCompile(`\bStart\b`), func(text string) bool { return strings.HasPrefix(text, "skipped") })
	if err != nil || changed != 2 || len(faults) != 2 || !strings.Contains(faults[0], `"use Start now" is printed with Start`) || !strings.Contains(faults[1], "when it is said twice") {
		t.Errorf("%d changed, %q, %v", changed, faults, err)
	}
	if _, _, err := Reworded([]string{filepath.Join(dir, "none.go")}, say, regexp.MustCompile(`x`), nil); err == nil {
		t.Error("a file that is not there is no error")
	}
}
