package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/overlay"
)

// mutant is one patch, with what casecheck needs of its header.
type mutant struct {
	*overlay.Patch
	id  string // F05
	run []string
	why string

	kafka bool // a test of its case in a package that it runs starts Kafka
}

func readMutants(dir string) ([]*mutant, error) {
	patches, err := overlay.Read(dir)
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, p := range patches {
		m, err := newMutant(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, p.Name), err)
		}
		all = append(all, m)
	}
	return all, nil
}

var idForm = regexp.MustCompile(`^F\d\d$`)

func newMutant(p *overlay.Patch) (*mutant, error) {
	m := &mutant{Patch: p, id: p.Header["case"], run: strings.Fields(p.Header["run"]), why: p.Header["why"]}
	switch {
	case !idForm.MatchString(m.id):
		return nil, fmt.Errorf("no line like \"case: F05\", but %q", m.id)
	case len(m.run) < 3 || m.run[0] != "go" || m.run[1] != "test":
		return nil, errors.New(`no line like "run: go test ./internal/partition -run TestF05"`)
	case m.why == "":
		return nil, errors.New("no line \"why: …\" that says what the mutant breaks")
	case strings.HasSuffix(m.File, "_test.go"):
		return nil, errors.New("a mutant changes the code, not its test")
	}
	return m, nil
}

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
	changes, err := overlay.Patched(root, m.Patch)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	flag, err := overlay.Builder{Root: root}.Flag(dir, changes)
	if err != nil {
		return "", err
	}
	limit := 2 * time.Minute
	if m.kafka {
		limit = 15 * time.Minute // it may have to wait until others on this machine are through with their clusters
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+8*time.Minute)
	defer cancel()
	args := append([]string{"test", flag, "-count=1", fmt.Sprintf("-timeout=%s", limit)}, m.run[2:]...)
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
