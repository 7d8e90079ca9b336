package deployment

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the documents, by path below root. What the pages of the runbook say is run by a test of its own (internal/runbook).
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"README.md": text(t, root+"/README.md"), "mirror/kraft/SECURITY.md": text(t, root+"/mirror/kraft/SECURITY.md")}
	err := filepath.WalkDir(root+"/docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			all[strings.TrimPrefix(path, root+"/")] = text(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 6 {
		t.Fatalf("only %d pages", len(all))
	}
	return all
}

// anchor is what a heading is called in a link.
func anchor(heading string) string {
	heading = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(heading, " ", "-")
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings := regexp.MustCompile(`(?m)^#+ (.+)$`)
	code := regexp.MustCompile("(?ms)^```.*?^```")
	n := 0
	for page, content := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(content, ""), -1) {
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "" {
				continue
			}
			n++
			file := filepath.Join(root, filepath.Dir(page), u.Path)
			if u.Path == "" {
				file = filepath.Join(root, page)
			}
			b, err := os.ReadFile(file)
			if info, e := os.Stat(file); e == nil && info.IsDir() && u.Fragment == "" {
				continue
			}
			if err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
				continue
			}
			found := u.Fragment == ""
			for _, h := range headings.FindAllStringSubmatch(string(b), -1) {
				found = found || anchor(h[1]) == u.Fragment
			}
			if !found {
				t.Errorf("%s: %s: that page has no such heading", page, m[1])
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d links were seen", n)
	}
}

func TestNamedTestsAreThere(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(text(t, path), -1) {
				there[m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Z0-9]\\w+)`")
	n := 0
	for page, content := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(content, -1) {
			n++
			if !there[m[1]] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d names were seen", n)
	}
}

// Who may do what: each verb of the help, and each subcommand, has a row.
func TestEveryVerbHasItsRow(t *testing.T) {
	_, table, _ := strings.Cut(text(t, root+"/docs/security.md"), "\n## Who may do what\n")
	table, _, _ = strings.Cut(table, "\n## ")
	help := text(t, root+"/examples/kafka-mirror/testdata/help.txt")
	verbs := regexp.MustCompile(`(?m)^  (--[a-z-]+) {2,}[a-z]`).FindAllStringSubmatch(strings.SplitN(help, "\nOptions:", 2)[0], -1)
	verbs = append(verbs, regexp.MustCompile(`(?m)^       kafka-mirror ([a-z-]+) `).FindAllStringSubmatch(help, -1)...)
	if len(verbs) < 15 {
		t.Fatalf("only %d verbs in the help", len(verbs))
	}
	for _, v := range verbs {
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + v[1] + "`").MatchString(table) {
			t.Errorf("docs/security.md has no row of %s", v[1])
		}
	}
}
