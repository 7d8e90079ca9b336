package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const code = `package p

// Least is the smaller of two numbers, below a limit.
func Least(a, b int) int {
	return min(a, b, limit)
}

const limit = 5

// Name is a number's name.
func Name(n int) string {
	switch n {
	case 1:
		return "one"
	case 2:
		return "two"
	default:
		return "many"
	}
}
`

const goodTest = `package p

import "testing"

func Test(t *testing.T) {
	for _, c := range [][3]int{{1, 2, 1}, {2, 1, 1}, {9, 9, 5}, {7, 5, 5}, {-3, 9, -3}} {
		if got := Least(c[0], c[1]); got != c[2] {
			t.Errorf("got %d for %v", got, c)
		}
	}
	for n, want := range map[int]string{1: "one", 2: "two", 3: "many", 0: "many"} {
		if got := Name(n); got != want {
			t.Errorf("got %s for %d", got, n)
		}
	}
}
`

// module writes a module with one package.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{"go.mod": "module example.org/m\n\ngo 1.26.0\n", "p/p.go": code, "p/p_test.go": goodTest}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func mutantsOf(t *testing.T, text string) *mutated {
	t.Helper()
	s, err := readSource(module(t, map[string]string{"p/p.go": text}), "p")
	if err != nil {
		t.Fatal(err)
	}
	m, err := mutate(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMutantsAreMade(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"comparisons", "func f(a int) bool { return a < 3 }", []string{"a < 3 → a <= 3", "a < 3 → a >= 3", "3 → (3 + 1)", "3 → (3 - 1)"}},
		{"logic", "func f(a, b bool) bool { return a && !b }", []string{"return a && !b → return !(a && !b)", "a && !b → a || !b", "!b → b"}},
		{"sums", "func f(a, b int) int { return a + b }", []string{"return a + b → return 0", "a + b → a - b"}},
		{"strings are not subtracted", "func f(a, b string) string { return a + b }", []string{`return a + b → return ""`}},
		{"statements", "func f(m map[int]int) { m[0]++; delete(m, 1); m[2] -= 3 }", []string{"m[0]++ → (removed)", "m[0]++ → m[0]--", "delete(m, 1) → (removed)", "m[2] -= 3 → (removed)", "m[2] -= 3 → m[2] += 3",
			"0 → (0 + 1)", "1 → (1 + 1)", "1 → (1 - 1)", "2 → (2 + 1)", "2 → (2 - 1)", "3 → (3 + 1)", "3 → (3 - 1)"}},
		{"conditions", "func f(a bool) int { if a { return 7 }; return 0 }", []string{"a → false (the body never runs)", "a → !(a)", "return 7 → return 0", "7 → (7 + 1)", "7 → (7 - 1)", "0 → (0 + 1)"}},
		{"min and max", "func f(a, b int) int { return max(a, b) }", []string{"return max(a, b) → return 0", "max(a, b) → min(a, b)"}},
		{"cases", "func f(a any) error { switch a.(type) { case int: return nil; default: panic(a) } }", []string{"case int → (case removed)"}},
		{"errors", "func f(e error) (int, error) { return 0, e }", []string{"return 0, e → return 0, nil", "0 → (0 + 1)"}},
		{"constants, also by name", "const size = 4\n\nfunc f(b []byte) []byte { return b[size:] }", []string{"return b[size:] → return nil", "size → (size + 1)"}},
		{"jumps", "func f(a []int) (n int) { for range a { if n > 2 { break }; n = 9 }; return n }", []string{"n > 2 → false (the body never runs)", "n > 2 → n >= 2", "n > 2 → n <= 2", "2 → (2 + 1)", "2 → (2 - 1)", "break → (removed)",
			"n = 9 → (removed)", "9 → (9 + 1)", "9 → (9 - 1)", "return n → return 0"}},
		{"what must stay a constant, and capacities", "func f() ([3]int, []int) { return [3]int{0: 0}, make([]int, 0, 8) }", []string{"return [3]int{0: 0}, make([]int, 0, 8) → return [3]int{0: 0}, nil", "0 → (0 + 1)", "0 → (0 + 1)"}},
		{"what does not compile", "func f() uint8 { return 255 }", []string{"return 255 → return 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, m := range mutantsOf(t, "package p\n\n"+c.text+"\n").mutants {
				got = append(got, m.from+" → "+m.to)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// A mutant stands instead of the code, not beside it: where several are at one condition, none of them may leave the code's own condition on.
func TestMutantsOfAConditionReplaceIt(t *testing.T) {
	for _, text := range mutantsOf(t, "package p\n\nfunc f(a, b bool) int { if a && b { return 1 }; return 2 }\n").changes {
		site := regexp.MustCompile(`if \(` + switchName + ` == (\d+) && \(false\) \|\| ` + switchName + ` == (\d+) && \(!\(a && b\)\) \|\| \(` + switchName + ` < (\d+) \|\| ` + switchName + ` > (\d+)\)`).FindStringSubmatch(text)
		if !strings.Contains(text, "func f(") {
			continue // the file that holds the switch
		}
		if site == nil || site[1] != site[3] || site[2] != site[4] {
			t.Errorf("%q:\n%s", site, text)
		}
	}
}

func TestEveryMutantOfATestedPackageIsKilled(t *testing.T) {
	var out strings.Builder
	root := module(t, nil)
	ok, err := run(t.Context(), &out, options{root: root, packages: []string{"p"}, least: 100})
	if err != nil || !ok {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
	if left, err := filepath.Glob(filepath.Join(root, "p", "*")); err != nil || len(left) != 2 {
		t.Errorf("files beside the code: %v, %v", left, err)
	}
}

func TestSurvivorsAreReported(t *testing.T) {
	var out strings.Builder
	weak := strings.Replace(goodTest, "{9, 9, 5}, {7, 5, 5}, ", "", 1)
	ok, err := run(t.Context(), &out, options{root: module(t, map[string]string{"p/p_test.go": weak}), packages: []string{"p"}, least: 100})
	if err != nil || ok {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
	for _, says := range []string{"ALIVE p/p.go:5: Least: limit → (limit + 1)\n  - return min(a, b, limit)\n  + return min(a, b, (limit + 1))\n", "below 100 %"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("want %q in\n%s", says, out.String())
		}
	}
}

func TestEquivalentMutantsAreNotCounted(t *testing.T) {
	weak := strings.Replace(goodTest, "{9, 9, 5}, {7, 5, 5}, ", "", 1)
	files := map[string]string{"p/p_test.go": weak, "internal/mutate/equivalent.txt": "# why\np\tLeast\tlimit → (limit + 1)\tnobody has a number above it\n"}
	var out strings.Builder
	ok, err := run(t.Context(), &out, options{root: module(t, files), packages: []string{"p"}, least: 80})
	if err != nil || !ok || strings.Contains(out.String(), "ALIVE p/p.go:5: Least: limit") {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
	for _, line := range []string{"p\tLeast\tlimit → (limit + 2)\tno such mutant\n", "p\tLeast\tlimit → (limit + 1)\n"} {
		files["internal/mutate/equivalent.txt"] = line
		if _, err := run(t.Context(), &out, options{root: module(t, files), packages: []string{"p"}}); err == nil || !strings.Contains(err.Error(), "equivalent.txt") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestRedTestsAreNoMeasure(t *testing.T) {
	red := strings.Replace(goodTest, "1: \"one\"", "1: \"two\"", 1)
	if _, err := run(t.Context(), &strings.Builder{}, options{root: module(t, map[string]string{"p/p_test.go": red}), packages: []string{"p"}}); err == nil || !strings.Contains(err.Error(), "red already") {
		t.Errorf("got %v", err)
	}
}

func TestMutantsThatHangAreKilled(t *testing.T) {
	const counts = "package p\n\nfunc Count(n int) (sum int) {\n\tfor sum != n {\n\t\tsum++\n\t}\n\treturn sum\n}\n"
	const test = "package p\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {\n\tif Count(3) != 3 {\n\t\tt.Error()\n\t}\n}\n"
	var out strings.Builder
	ok, err := run(t.Context(), &out, options{root: module(t, map[string]string{"p/p.go": counts, "p/p_test.go": test}), packages: []string{"p"}, least: 100})
	if err != nil || !ok || !strings.Contains(strings.Join(strings.Fields(out.String()), " "), "p 4 2 2 0 0 0 100 %") {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
}

func TestSampleAndTime(t *testing.T) {
	root := module(t, nil)
	var first, second, late strings.Builder
	for _, out := range []*strings.Builder{&first, &second} {
		if _, err := run(t.Context(), out, options{root: root, packages: []string{"p"}, sample: 4, seed: 3}); err != nil || !strings.Contains(out.String(), "4 mutants tried, 0 not tried") || !strings.Contains(out.String(), "seed: 3") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	if ok, err := run(t.Context(), &late, options{root: root, packages: []string{"p"}, seed: 3, until: time.Unix(1, 0)}); err != nil || ok || !strings.Contains(late.String(), "0 mutants tried") {
		t.Errorf("ok %v, %v\n%s", ok, err, late.String())
	}
}

func TestMutantsThatOnlyTheSimulatorNotices(t *testing.T) {
	weak := strings.Replace(goodTest, "{9, 9, 5}, {7, 5, 5}, ", "", 1)
	const simulator = `package main

import (
	"flag"
	"os"

	"example.org/m/p"
)

func main() {
	flag.Int("from", 1, "")
	seeds := flag.Int("seeds", 1, "")
	flag.Bool("stop", false, "")
	flag.Parse()
	if p.Least(*seeds, *seeds) > 5 {
		os.Exit(1)
	}
}
`
	var out strings.Builder
	ok, err := run(t.Context(), &out, options{root: module(t, map[string]string{"p/p_test.go": weak, "internal/simulator/simulate/main.go": simulator}), packages: []string{"p"}, simulator: 9, least: 100})
	if err != nil || !ok {
		t.Errorf("ok %v, %v\n%s", ok, err, out.String())
	}
}
