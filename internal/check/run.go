package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json` (go doc test2json, go help buildjson).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build event
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// run is what has been seen of one go test.
type run struct {
	out      io.Writer
	module   string
	packages map[string]*pkg
	builds   map[string]*strings.Builder // output of builds, by import path
	stray    int                         // lines that are no event
}

type pkg struct {
	tests   map[string]*test
	output  strings.Builder // of the package itself
	result  string          // "", pass, fail, skip
	elapsed float64
	build   string // import path of the build that failed
}

type test struct {
	result string // "" while it runs
	output strings.Builder
	parent bool // has sub-tests
}

func newRun(out io.Writer, module string) *run {
	return &run{out: out, module: module, packages: map[string]*pkg{}, builds: map[string]*strings.Builder{}}
}

// read takes the events until their end, and shows each package when it is done.
func (r *run) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *run) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		r.stray++
		fmt.Fprintf(r.out, "%s\n", bytes.TrimRight(line, "\n"))
		return
	}
	switch e.Action {
	case "build-output":
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = &strings.Builder{}
		}
		r.builds[e.ImportPath].WriteString(e.Output)
		return
	case "build-fail":
		return // the package's own failure names it
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			p.output.WriteString(e.Output)
		case "pass", "fail", "skip":
			p.result, p.elapsed, p.build = e.Action, e.Elapsed, e.FailedBuild
			r.show(e.Package, p)
		}
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{}
		p.tests[e.Test] = t
		for name := e.Test; ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			if up := p.tests[name]; up != nil {
				up.parent = true
			}
		}
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.result = e.Action
	}
}

func (r *run) short(path string) string {
	if path == r.module {
		return "."
	}
	return strings.TrimPrefix(path, r.module+"/")
}

var (
	logPlace = regexp.MustCompile(`^\s*(\S+\.go:\d+: )?`)
	shown    = []string{"seed:", "table:", "kafka:"}
)

// marked is the line without the place where t.Log was called, if it carries one of the prefixes.
func marked(line string) (string, bool) {
	rest := strings.TrimRight(line[len(logPlace.FindString(line)):], "\n")
	for _, prefix := range shown {
		if strings.HasPrefix(rest, prefix) {
			return rest, true
		}
	}
	return "", false
}

// failed says whether a test is red: by its own word, or because its process ended under it.
func (t *test) failed() bool { return t.result != "pass" && t.result != "skip" }

func (r *run) show(path string, p *pkg) {
	name := r.short(path)
	if p.result == "skip" && len(p.tests) == 0 {
		return // no test files
	}
	c := p.count()
	verdict := map[string]string{"pass": "ok  ", "fail": "FAIL", "skip": "skip"}[p.result]
	fmt.Fprintf(r.out, "%s %-28s %7.1fs  %d tests\n", verdict, name, p.elapsed, c.passed+c.failed+c.skipped)
	for _, n := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[n]
		switch {
		case t.failed():
			fmt.Fprintf(r.out, "--- output of %s %s\n%s", name, n, t.output.String())
			if t.result == "" {
				fmt.Fprintf(r.out, "--- %s %s did not end: a panic, an exit or the time limit ended its process\n", name, n)
			}
		case t.result == "skip":
			fmt.Fprintf(r.out, "     skipped: %s %s: %s\n", name, n, reason(t.output.String()))
		default:
			r.showMarked(n, t.output.String())
		}
	}
	if p.result == "fail" {
		if p.build != "" && r.builds[p.build] != nil {
			fmt.Fprintf(r.out, "--- build of %s\n%s", p.build, r.builds[p.build].String())
		}
		fmt.Fprintf(r.out, "--- output of package %s\n%s", name, p.output.String())
	} else {
		r.showMarked("", p.output.String())
	}
}

func (r *run) showMarked(test, output string) {
	for line := range strings.Lines(output) {
		if m, ok := marked(line); ok {
			fmt.Fprintf(r.out, "     %s: %s\n", test, m)
		}
	}
}

// reason is what a skipped test said, in one line.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		if rest := strings.TrimSpace(line[len(logPlace.FindString(line)):]); rest != "" && !strings.HasPrefix(rest, "=== ") && !strings.HasPrefix(rest, "--- ") {
			said = append(said, rest)
		}
	}
	if said == nil {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// count counts tests that have no sub-tests. One that has some counts only when it is red and none of its sub-tests is, or when it was skipped itself.
// A package that is red without a red test counts as one failure.
func (p *pkg) count() counts {
	var c counts
	for name, t := range p.tests {
		switch {
		case t.failed() && !(t.parent && p.failedBelow(name)):
			c.failed++
		case t.result == "skip":
			c.skipped++
		case !t.parent && t.result == "pass":
			c.passed++
		}
	}
	if p.result != "pass" && p.result != "skip" && c.failed == 0 {
		c.failed = 1
	}
	return c
}

func (p *pkg) failedBelow(name string) bool {
	for n, t := range p.tests {
		if strings.HasPrefix(n, name+"/") && t.failed() {
			return true
		}
	}
	return false
}

// kafkaReason is what the reason of a skip for want of Kafka has in it: see internal/kafkatest.
const kafkaReason = "kafka: "

// unexplained lists, as "package name", the skipped tests that Kafka is not the reason of. A seed of a fuzz target that ends before its property has drawn enough is one:
// nothing was looked at, and it looks green.
func (r *run) unexplained() []string {
	var ids []string
	for path, p := range r.packages {
		for name, t := range p.tests {
			if t.result == "skip" && !t.parent && !strings.Contains(reason(t.output.String()), kafkaReason) {
				ids = append(ids, r.short(path)+" "+name)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// ids lists the top-level tests as "package name".
func (r *run) ids() []string {
	var ids []string
	for path, p := range r.packages {
		for name := range p.tests {
			if !strings.Contains(name, "/") {
				ids = append(ids, r.short(path)+" "+name)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *run) formatIDs() []byte {
	var b bytes.Buffer
	b.WriteString("# Every top-level test, by package. A name that is here and does not run makes the test command red.\n# Rewritten by: go run ./internal/check -update\n")
	for _, id := range r.ids() {
		b.WriteString(id + "\n")
	}
	return b.Bytes()
}

// policy is what finish judges by.
type policy struct {
	ids         []string // that must have run
	allPackages bool     // if not, only those of packages that ran
	noSkips     bool
	status      error // of go test
}

// finish prints the verdict, its reasons first, and says whether it is green.
func (r *run) finish(pol policy) bool {
	var total counts
	var red []string
	for _, path := range slices.Sorted(maps.Keys(r.packages)) {
		p := r.packages[path]
		c := p.count()
		total.passed += c.passed
		total.failed += c.failed
		total.skipped += c.skipped
		if p.result == "" {
			red = append(red, fmt.Sprintf("package %s did not end", r.short(path)))
			r.show(path, p)
		} else if c.failed > 0 {
			red = append(red, fmt.Sprintf("package %s failed", r.short(path)))
		}
	}
	if total.passed+total.failed+total.skipped == 0 {
		red = append(red, "no test ran")
	}
	for _, id := range r.unexplained() {
		red = append(red, fmt.Sprintf("%s skipped itself, and not for want of Kafka", id))
	}
	if total.skipped > 0 && pol.noSkips {
		red = append(red, fmt.Sprintf("%d skipped under CLUSTERMIRROR_KAFKA=required", total.skipped))
	}
	if pol.status != nil && len(red) == 0 {
		red = append(red, fmt.Sprintf("go test ended with %v, for a reason above", pol.status))
	}
	now := r.ids()
	for _, id := range pol.ids {
		short, _, _ := strings.Cut(id, " ")
		p := r.packages[r.long(short)]
		if p == nil && !pol.allPackages || p != nil && p.result != "pass" && p.result != "skip" {
			continue // not asked for, or red already
		}
		if _, there := slices.BinarySearch(now, id); !there {
			red = append(red, fmt.Sprintf("test %s is gone: bring it back, or run with -update and say why in the commit", id))
		}
	}
	if pol.allPackages && pol.ids != nil {
		known := map[string]bool{}
		for _, id := range pol.ids {
			known[id] = true
		}
		fresh := 0
		for _, id := range now {
			if !known[id] {
				fresh++
			}
		}
		if fresh > 0 {
			fmt.Fprintf(r.out, "%d tests are not yet in testdata/tests.txt: go run ./internal/check -update\n", fresh)
		}
	}
	for _, why := range red {
		fmt.Fprintln(r.out, "RED:", why)
	}
	fmt.Fprintln(r.out, total)
	return len(red) == 0
}

func (r *run) long(short string) string {
	if short == "." {
		return r.module
	}
	return r.module + "/" + short
}
