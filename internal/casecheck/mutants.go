package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mutant is one patch file.
type mutant struct {
	name  string // of the file
	id    string // F05
	run   []string
	why   string
	file  string // path in the module
	hunks []hunk

	kafka bool // a test of its case in a package that it runs starts Kafka
}

type hunk struct {
	line     int // of its first old line, a hint
	old, new []string
}

func readMutants(dir string) ([]*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		m, err := parseMutant(filepath.Base(p), string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		all = append(all, m)
	}
	return all, nil
}

var (
	hunkLine = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@`)
	idForm   = regexp.MustCompile(`^F\d\d$`)
)

// parseMutant reads the lines in front and a unified diff of one file.
func parseMutant(name, text string) (*mutant, error) {
	m := &mutant{name: name}
	var cur *hunk
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if cur == nil && m.file == "" {
			switch key, value, _ := strings.Cut(l, ": "); key {
			case "case":
				m.id = value
			case "run":
				m.run = strings.Fields(value)
			case "why":
				m.why = value
			}
		}
		switch {
		case cur == nil && strings.HasPrefix(l, "+++ "):
			if m.file != "" {
				return nil, errors.New("a mutant changes one file")
			}
			path, _, _ := strings.Cut(strings.TrimPrefix(l, "+++ "), "\t")
			m.file = strings.TrimPrefix(path, "b/")
		case hunkLine.MatchString(l):
			line, err := strconv.Atoi(hunkLine.FindStringSubmatch(l)[1])
			if err != nil {
				return nil, err
			}
			m.hunks = append(m.hunks, hunk{line: line})
			cur = &m.hunks[len(m.hunks)-1]
		case cur == nil:
		case l == "" || l[0] == ' ':
			rest := strings.TrimPrefix(l, " ")
			cur.old, cur.new = append(cur.old, rest), append(cur.new, rest)
		case l[0] == '-':
			cur.old = append(cur.old, l[1:])
		case l[0] == '+':
			cur.new = append(cur.new, l[1:])
		case l[0] == '\\': // no newline at the end of the file
		default:
			return nil, fmt.Errorf("line %q is no part of a diff", l)
		}
	}
	switch {
	case !idForm.MatchString(m.id):
		return nil, fmt.Errorf("no line like \"case: F05\", but %q", m.id)
	case len(m.run) < 3 || m.run[0] != "go" || m.run[1] != "test":
		return nil, errors.New(`no line like "run: go test ./internal/partition -run TestF05"`)
	case m.why == "":
		return nil, errors.New("no line \"why: …\" that says what the mutant breaks")
	case m.file == "" || len(m.hunks) == 0:
		return nil, errors.New("no diff")
	case strings.HasSuffix(m.file, "_test.go"):
		return nil, errors.New("a mutant changes the code, not its test")
	}
	return m, nil
}

// apply changes a file's text. Lines are found by their content; the hunk's line number decides where the content stands more than once.
func (m *mutant) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for _, h := range m.hunks {
		best := -1
		for i := 0; i+len(h.old) <= len(lines); i++ {
			if !equal(lines[i:i+len(h.old)], h.old) {
				continue
			}
			if best < 0 || abs(i+1-h.line) < abs(best+1-h.line) {
				best = i
			}
		}
		if best < 0 {
			return "", fmt.Errorf("the hunk at line %d no longer applies to %s", h.line, m.file)
		}
		lines = append(append(append([]string{}, lines[:best]...), h.new...), lines[best+len(h.old):]...)
	}
	changed := strings.Join(lines, "\n")
	if changed == text {
		return "", errors.New("the patch changes nothing")
	}
	return changed, nil
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func abs(n int) int { return max(n, -n) }

// result is a mutant's end: err is nil when its test turned red.
type result struct {
	mutant *mutant
	red    string // the tests that failed
	err    error
}

func (r result) say() string {
	if r.err != nil {
		return r.err.Error()
	}
	return "by " + r.red
}

// startKafka finds out which mutants start Kafka.
func startKafka(mutants []*mutant, tests []caseTest) {
	for _, m := range mutants {
		m.kafka = slices.ContainsFunc(tests, func(t caseTest) bool {
			return t.id == m.id && t.level == "Kafka" && slices.Contains(m.run, "./"+t.pkg)
		})
	}
}

func runAll(root string, mutants []*mutant) []result {
	results := make([]result, len(mutants))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, m := range mutants {
		wg.Go(func() {
			slots <- struct{}{}
			red, err := m.try(root)
			results[i] = result{m, red, err}
			<-slots
		})
	}
	wg.Wait()
	return results
}

// try builds the mutant and runs its test.
func (m *mutant) try(root string) (red string, err error) {
	path := filepath.Join(root, filepath.FromSlash(m.file))
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(b))
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, filepath.Base(path))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: copied}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(copied, []byte(changed), 0o644), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)); err != nil {
		return "", err
	}
	limit := 2 * time.Minute
	if m.kafka {
		limit = 15 * time.Minute // it may have to wait until others on this machine are through with their clusters
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+8*time.Minute)
	defer cancel()
	args := append([]string{"test", "-overlay=" + filepath.Join(dir, "overlay.json"), "-count=1", fmt.Sprintf("-timeout=%s", limit)}, m.run[2:]...)
	cmd := exec.CommandContext(ctx, m.run[0], args...)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return m.judge(cmd.Run(), out.String())
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (Test\S+)`)
	hungTest   = regexp.MustCompile(`(?m)^\s*running tests:\n\s+(Test\S+)`)
)

// judge reads go test's end: only a red test of the mutant's own case counts. One that came to no end counts too, unless it starts Kafka: then nobody knows what it waited for.
func (m *mutant) judge(status error, out string) (red string, err error) {
	if status == nil && strings.Contains(out, "[no tests to run]") {
		return "", fmt.Errorf("its test does not exist: %s", strings.Join(m.run, " "))
	}
	if status == nil {
		return "", fmt.Errorf("its test stays green: %s (%s)", strings.Join(m.run, " "), m.why)
	}
	var names []string
	signs := []*regexp.Regexp{failedTest, hungTest}
	if m.kafka {
		signs = signs[:1]
	}
	for _, re := range signs {
		for _, f := range re.FindAllStringSubmatch(out, -1) {
			if strings.HasPrefix(f[1], "Test"+m.id) {
				names = append(names, f[1])
			}
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no test of %s turned red, but the command failed: %w\n%s", m.id, status, cmp.Or(strings.TrimSpace(out), "without output"))
	}
	return strings.Join(names, ", "), nil
}
