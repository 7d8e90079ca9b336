package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "example.org/m"

// canned runs events, given as short lines "action package test output", through a run.
func canned(t *testing.T, pol policy, lines ...string) (green bool, out string) {
	t.Helper()
	var b strings.Builder
	r := newRun(&b, module)
	if err := r.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	green = r.finish(pol)
	return green, b.String()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func all(ids ...string) policy { return policy{ids: ids, allPackages: true} }

var onePass = []string{
	`{"Action":"start","Package":"example.org/m/a"}`,
	`{"Action":"run","Package":"example.org/m/a","Test":"TestOne"}`,
	`{"Action":"output","Package":"example.org/m/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}`,
	`{"Action":"output","Package":"example.org/m/a","Test":"TestOne","Output":"    a_test.go:7: seed: 42\n"}`,
	`{"Action":"output","Package":"example.org/m/a","Test":"TestOne","Output":"chatter\n"}`,
	`{"Action":"pass","Package":"example.org/m/a","Test":"TestOne","Elapsed":0.1}`,
	`{"Action":"pass","Package":"example.org/m/a","Elapsed":0.2}`,
}

func TestGreen(t *testing.T) {
	green, out := canned(t, all("a TestOne"), onePass...)
	if !green || lastLine(out) != "1 passed, 0 failed, 0 skipped" {
		t.Errorf("green %v:\n%s", green, out)
	}
	if !strings.Contains(out, "TestOne: seed: 42\n") || strings.Contains(out, "chatter") {
		t.Errorf("marked lines are wrong:\n%s", out)
	}
}

func TestRed(t *testing.T) {
	for _, c := range []struct {
		name  string
		pol   policy
		lines []string
		says  string
		last  string
	}{
		{"failing test", all(), []string{
			`{"Action":"run","Package":"example.org/m/a","Test":"TestBad"}`,
			`{"Action":"output","Package":"example.org/m/a","Test":"TestBad","Output":"    a_test.go:9: got 1, want 2\n"}`,
			`{"Action":"fail","Package":"example.org/m/a","Test":"TestBad","Elapsed":0.1}`,
			`{"Action":"fail","Package":"example.org/m/a","Elapsed":0.2}`,
		}, "got 1, want 2", "0 passed, 1 failed, 0 skipped"},
		{"failing sub-test counts once", all(), []string{
			`{"Action":"run","Package":"example.org/m/a","Test":"TestBad"}`,
			`{"Action":"run","Package":"example.org/m/a","Test":"TestBad/x"}`,
			`{"Action":"run","Package":"example.org/m/a","Test":"TestBad/y"}`,
			`{"Action":"fail","Package":"example.org/m/a","Test":"TestBad/x"}`,
			`{"Action":"pass","Package":"example.org/m/a","Test":"TestBad/y"}`,
			`{"Action":"fail","Package":"example.org/m/a","Test":"TestBad"}`,
			`{"Action":"fail","Package":"example.org/m/a"}`,
		}, "package a failed", "1 passed, 1 failed, 0 skipped"},
		{"parent fails after its sub-tests passed", all(), []string{
			`{"Action":"run","Package":"example.org/m/a","Test":"TestBad"}`,
			`{"Action":"run","Package":"example.org/m/a","Test":"TestBad/x"}`,
			`{"Action":"pass","Package":"example.org/m/a","Test":"TestBad/x"}`,
			`{"Action":"fail","Package":"example.org/m/a","Test":"TestBad"}`,
			`{"Action":"fail","Package":"example.org/m/a"}`,
		}, "package a failed", "1 passed, 1 failed, 0 skipped"},
		{"skip under required", policy{allPackages: true, noSkips: true}, append([]string{
			`{"Action":"run","Package":"example.org/m/b","Test":"TestKafka"}`,
			`{"Action":"output","Package":"example.org/m/b","Test":"TestKafka","Output":"    b_test.go:9: kafka: absent\n"}`,
			`{"Action":"skip","Package":"example.org/m/b","Test":"TestKafka"}`,
			`{"Action":"pass","Package":"example.org/m/b"}`,
		}, onePass...), "skipped: b TestKafka: kafka: absent", "1 passed, 0 failed, 1 skipped"},
		{"skip without Kafka", policy{allPackages: true}, append([]string{
			`{"Action":"run","Package":"example.org/m/b","Test":"FuzzB/seed#1"}`,
			`{"Action":"output","Package":"example.org/m/b","Test":"FuzzB/seed#1","Output":"    fuzz.go:9: too few bytes\n"}`,
			`{"Action":"skip","Package":"example.org/m/b","Test":"FuzzB/seed#1"}`,
			`{"Action":"pass","Package":"example.org/m/b"}`,
		}, onePass...), "b FuzzB/seed#1 skipped itself", "1 passed, 0 failed, 1 skipped"},
		{"test vanished", all("a TestOne", "a TestTwo"), onePass, "test a TestTwo is gone", "1 passed, 0 failed, 0 skipped"},
		{"package vanished", all("a TestOne", "b TestTwo"), onePass, "test b TestTwo is gone", "1 passed, 0 failed, 0 skipped"},
		{"no test ran", all(), []string{
			`{"Action":"output","Package":"example.org/m/a","Output":"?   \texample.org/m/a\t[no test files]\n"}`,
			`{"Action":"skip","Package":"example.org/m/a"}`,
		}, "no test ran", "0 passed, 0 failed, 0 skipped"},
		{"nothing at all", all(), nil, "no test ran", "0 passed, 0 failed, 0 skipped"},
		{"build failure", all("c TestThree"), append([]string{
			`{"ImportPath":"example.org/m/c [example.org/m/c.test]","Action":"build-output","Output":"c/c.go:3:1: undefined: x\n"}`,
			`{"ImportPath":"example.org/m/c [example.org/m/c.test]","Action":"build-fail"}`,
			`{"Action":"start","Package":"example.org/m/c"}`,
			`{"Action":"output","Package":"example.org/m/c","Output":"FAIL\texample.org/m/c [build failed]\n"}`,
			`{"Action":"fail","Package":"example.org/m/c","FailedBuild":"example.org/m/c [example.org/m/c.test]"}`,
		}, onePass...), "undefined: x", "1 passed, 1 failed, 0 skipped"},
		{"panic", all(), []string{
			`{"Action":"run","Package":"example.org/m/a","Test":"TestFine"}`,
			`{"Action":"pass","Package":"example.org/m/a","Test":"TestFine"}`,
			`{"Action":"run","Package":"example.org/m/a","Test":"TestPanics"}`,
			`{"Action":"output","Package":"example.org/m/a","Test":"TestPanics","Output":"panic: boom\n"}`,
			`{"Action":"output","Package":"example.org/m/a","Output":"FAIL\texample.org/m/a\t0.01s\n"}`,
			`{"Action":"fail","Package":"example.org/m/a"}`,
		}, "panic: boom", "1 passed, 1 failed, 0 skipped"},
		{"timeout in a sub-test", all(), []string{
			`{"Action":"run","Package":"example.org/m/a","Test":"TestHangs"}`,
			`{"Action":"run","Package":"example.org/m/a","Test":"TestHangs/x"}`,
			`{"Action":"output","Package":"example.org/m/a","Test":"TestHangs/x","Output":"panic: test timed out after 1s\n"}`,
			`{"Action":"fail","Package":"example.org/m/a"}`,
		}, "TestHangs/x did not end", "0 passed, 1 failed, 0 skipped"},
		{"exit in TestMain", all(), []string{
			`{"Action":"output","Package":"example.org/m/a","Output":"cannot set up\n"}`,
			`{"Action":"fail","Package":"example.org/m/a"}`,
		}, "cannot set up", "0 passed, 1 failed, 0 skipped"},
		{"events end early", all(), []string{
			`{"Action":"run","Package":"example.org/m/a","Test":"TestOne"}`,
			`{"Action":"pass","Package":"example.org/m/a","Test":"TestOne"}`,
		}, "package a did not end", "1 passed, 1 failed, 0 skipped"},
		{"go test itself failed", policy{allPackages: true, status: errors.New("exit status 1")}, append([]string{"go: go.mod is broken"}, onePass...), "go: go.mod is broken", "1 passed, 0 failed, 0 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			green, out := canned(t, c.pol, c.lines...)
			if green || !strings.Contains(out, c.says) || lastLine(out) != c.last || !strings.Contains(out, "RED: ") {
				t.Errorf("green %v, want red, %q and at the end %q:\n%s", green, c.says, c.last, out)
			}
		})
	}
}

func TestSkipsAreGreenWhereKafkaIsNotRequired(t *testing.T) {
	green, out := canned(t, all(), append([]string{
		`{"Action":"run","Package":"example.org/m/b","Test":"TestKafka"}`,
		`{"Action":"output","Package":"example.org/m/b","Test":"TestKafka","Output":"    b_test.go:9: kafka: CLUSTERMIRROR_KAFKA=off\n"}`,
		`{"Action":"skip","Package":"example.org/m/b","Test":"TestKafka"}`,
		`{"Action":"pass","Package":"example.org/m/b"}`,
	}, onePass...)...)
	if !green || lastLine(out) != "1 passed, 0 failed, 1 skipped" || !strings.Contains(out, "skipped: b TestKafka: kafka: CLUSTERMIRROR_KAFKA=off") {
		t.Errorf("green %v:\n%s", green, out)
	}
}

func TestPartOfThePackagesComparesOnlyTheirIDs(t *testing.T) {
	green, out := canned(t, policy{ids: []string{"a TestOne", "b TestTwo"}}, onePass...)
	if !green {
		t.Errorf("red:\n%s", out)
	}
	if green, out = canned(t, policy{ids: []string{"a TestOne", "a TestTwo"}}, onePass...); green {
		t.Errorf("green although a TestTwo is gone:\n%s", out)
	}
}

func TestIDsSurviveTheirFile(t *testing.T) {
	r := newRun(&strings.Builder{}, module)
	lines := append([]string{
		`{"Action":"run","Package":"example.org/m","Test":"ExampleRoot"}`,
		`{"Action":"run","Package":"example.org/m","Test":"TestSub/x"}`,
	}, onePass...)
	if err := r.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tests.txt")
	if err := os.WriteFile(path, r.formatIDs(), 0o644); err != nil {
		t.Fatal(err)
	}
	ids, err := readIDs(path)
	if want := []string{". ExampleRoot", "a TestOne"}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("ids %q, %v; want %q", ids, err, want)
	}
	if ids, err := readIDs(filepath.Join(t.TempDir(), "absent")); err != nil || ids != nil {
		t.Errorf("absent file: %q, %v", ids, err)
	}
}

func TestMarked(t *testing.T) {
	for line, want := range map[string]string{
		"seed: 7\n":                      "seed: 7",
		"    x_test.go:12: table: a|b\n": "table: a|b",
		"        kafka: 4.3.1\n":         "kafka: 4.3.1",
		"    x_test.go:12: other\n":      "",
		"no seed: 7\n":                   "",
	} {
		if got, ok := marked(line); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", line, got, ok, want)
		}
	}
}
