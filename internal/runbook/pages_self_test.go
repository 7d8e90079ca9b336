package runbook

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const folder = "../../docs/runbook"

// TestPagesAreWhole: links lead somewhere, each page is one of TestPages and is in the README, and a plan that a page gives is one that it has shown.
func TestPagesAreWhole(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := read("README.md")
	followed := map[string]bool{}
	for _, p := range pages {
		followed[p.name+".md"] = true
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([\w-]+\.md)[)#]`)
	for _, path := range files {
		name := filepath.Base(path)
		text := read(name)
		for _, to := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(folder, to[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if name == "README.md" || name == "alarms.md" {
			continue
		}
		if !followed[name] {
			t.Errorf("%s is followed by no test", name)
		}
		if !strings.Contains(first, "("+name+")") {
			t.Errorf("%s is not in README.md", name)
		}
		for _, at := range givenPlan.FindAllStringIndex(text, -1) {
			plan := strings.TrimPrefix(text[at[0]:at[1]], "--plan ")
			if above := text[:at[0]]; !strings.Contains(above, "\nplan "+plan+"\n") && !hidden(above) {
				t.Errorf("%s gives plan %s, which it has not shown", name, plan)
			}
		}
	}
	for name := range followed {
		read(name)
	}
}

// hidden says whether a text ends inside of a comment.
func hidden(text string) bool {
	return strings.LastIndex(text, "<!--") > strings.LastIndex(text, "-->")
}
