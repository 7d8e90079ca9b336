package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the module's folder: tests run in their package's.
const root = "../.."

// loaded is the module and what prose may use, loaded once.
var loaded = sync.OnceValues(func() (map[string]*Package, error) {
	return Load(root, append([]string{"./..."}, slices.Sorted(maps.Values(standardNames))...)...)
})

func packages(t *testing.T) map[string]*Package {
	t.Helper()
	ps, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// own lists the module's packages by their path inside it.
func own(t *testing.T) map[string]*Package {
	t.Helper()
	m := map[string]*Package{}
	for path, p := range packages(t) {
		if path == Module {
			m["."] = p
		} else if in, ok := strings.CutPrefix(path, Module+"/"); ok {
			m[in] = p
		}
	}
	if len(m) < len(Pure) {
		t.Fatalf("go list names only %d packages of the module", len(m))
	}
	return m
}

func parse(t *testing.T, p *Package) *Source {
	t.Helper()
	s, err := Parse(p, packages(t))
	if err != nil {
		t.Fatalf("%s: %v", p.ImportPath, err)
	}
	return s
}

func TestImportGraph(t *testing.T) {
	for pkg, p := range own(t) {
		for _, path := range p.Imports {
			if rule, ok := MayImport(pkg, path); !ok {
				t.Errorf("%s imports %s: %s", pkg, path, rule)
			}
		}
	}
}

func TestImportGraphSaysNo(t *testing.T) {
	client := "github.com/twmb/franz-go/pkg/kgo"
	for _, c := range [][2]string{
		{"internal/batch", "net"}, {"internal/batch", "net/http"}, {"producerstate", "os"}, {"logtrunc", client}, {"txnabort", Module + "/logtrunc"},
		{"statemachine", "log/slog"}, {"internal/batch", Module + "/producerstate"}, {"internal/partition", Module + "/mirror"}, {"internal/partition", "crypto/rand"},
		{"mirror", client}, {"mirror", Module + "/mirror/memlog"}, {"mirror", "golang.org/x/sync/errgroup"}, {"mirror", Module + "/internal/kafkatest"}, {"mirror", "testing"},
		{"mirror/kafkasource", Module + "/mirror/memlog"}, {"mirror/memlog", Module + "/internal/partition"}, {"mirror/memlog", Module + "/mirror/logtest"},
		{"mirror/logtest", Module + "/mirror/kafkasource"}, {"examples/quickstart", Module + "/internal/batch"}, {"mirror", Module + "/examples/quickstart"},
		{".", "fmt"}, {"mirror/memlog", Module + "/internal/kafkatest"}, {"statemachine/storetest", Module + "/mirror"},
		{"internal/kafkaconfig", Module + "/mirror"}, {"internal/kafkaconfig", "golang.org/x/sync/errgroup"}, {"mirror/memlog", Module + "/internal/kafkaconfig"},
		{"internal/kafkatest", "testing"}, {"internal/kafkatest/proxy", "testing"},
	} {
		if _, ok := MayImport(c[0], c[1]); ok {
			t.Errorf("%s may import %s", c[0], c[1])
		}
	}
	for _, c := range [][2]string{
		{"internal/batch", "hash/crc32"}, {"txnabort", Module + "/producerstate"}, {"mirror", Module + "/internal/partition"}, {"mirror", "os"},
		{"mirror/kafkasource", client}, {"mirror/logtest", Module + "/mirror/memlog"}, {"mirror/mirrortest", Module + "/mirror/memlog"}, {"mirror/memlog", Module + "/mirror"},
		{"examples/quickstart", Module + "/mirror/memlog"}, {"internal/bench", Module + "/internal/kafkatest"}, {"mirror/logtest", "testing"}, {"internal/kafkatest/lives", "testing"},
		{"internal/kafkaconfig", client}, {"mirror/kafkasource", Module + "/internal/kafkaconfig"}, {"internal/kafkaconfig", "github.com/magiconair/properties"},
	} {
		if rule, ok := MayImport(c[0], c[1]); !ok {
			t.Errorf("%s may not import %s: %s", c[0], c[1], rule)
		}
	}
}

// anyOrder are ranges over maps in pure packages whose order cannot reach an output, each with the reason. Key: package, file, function.
var anyOrder = map[string]string{
	"producerstate snapshot.go relink": "each producer adopts its own transaction, and every refusal has the same text",
}

func TestPurePackagesArePure(t *testing.T) {
	used := map[string]bool{}
	all := own(t)
	for _, pkg := range Pure {
		if all[pkg] == nil {
			t.Errorf("there is no package %s", pkg)
			continue
		}
		for _, f := range parse(t, all[pkg]).Impure() {
			key := pkg + " " + f.Func
			if f.Func != "" && anyOrder[key] != "" {
				used[key] = true
				continue
			}
			t.Errorf("%s: %v (function %q)", pkg, f, f.Func)
		}
	}
	for key := range anyOrder {
		if !used[key] {
			t.Errorf("the exception for %q is no longer needed", key)
		}
	}
}

func TestPuritySaysNo(t *testing.T) {
	const head = "package p\nimport (\"time\"; \"math/rand/v2\"; \"maps\"; \"slices\")\nvar v int; var m = map[string]int{}; var s struct{ f int }\n" +
		"var _ = time.Second; var _ = rand.New; var _ = maps.Keys[map[int]int]; var _ = slices.Sort[[]int]\n"
	for text, want := range map[string]string{
		"func f() { go f() }":                                       "goroutine",
		"func f(c chan int) {}":                                     "channel type",
		"func f() { select {} }":                                    "select",
		"func f() time.Time { return time.Now() }":                  "time.Now",
		"var clock = time.Now":                                      "time.Now",
		"func f() { <-time.After(1) }":                              "time.After",
		"func f() { time.Sleep(1) }":                                "time.Sleep",
		"func f() { time.NewTimer(1) }":                             "time.NewTimer",
		"func f() int { return rand.IntN(3) }":                      "random",
		"func f() { v = 1 }":                                        "variable v is written",
		"func f() { v++ }":                                          "variable v is written",
		"func f() { m[`a`] = 1 }":                                   "variable m is written",
		"func f() { s.f = 1 }":                                      "variable s is written",
		"func f() *int { return &v }":                               "address of package variable v",
		"func f() (k string) { for k = range m {}; return }":        "range over a map",
		"func f() { for k := range maps.Keys(m) { println(k) } }":   "maps.Keys",
		"func f() []string { return slices.Collect(maps.Keys(m)) }": "maps.Keys",
	} {
		s, err := ParseText("bad.go", head+text, packages(t))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if found := s.Impure(); len(found) == 0 || !strings.Contains(fmt.Sprint(found), want) {
			t.Errorf("%s: found %v, want %q", text, found, want)
		}
	}
	for _, text := range []string{
		"func f(d time.Duration) time.Duration { return d * time.Second }",
		"func f() []string { return slices.Sorted(maps.Keys(m)) }",
		"func f() (ks []string) { for k := range m { ks = append(ks, k) }; slices.Sort(ks); return }",
		"func f(m map[int]int) { for k := range m { if k > 3 { delete(m, k) } } }",
		"func f(r *rand.Rand) int { return r.IntN(3) }",
		"func f() { v := 1; v++; _ = v }",
	} {
		s, err := ParseText("good.go", head+text, packages(t))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if found := s.Impure(); len(found) != 0 {
			t.Errorf("%s: found %v", text, found)
		}
	}
}

func public(pkg string, p *Package) bool {
	return !within(pkg, "internal") && p.Name != "main"
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for pkg, p := range own(t) {
		if !public(pkg, p) {
			continue
		}
		for _, f := range parse(t, p).Undocumented() {
			t.Errorf("%s: %v", pkg, f)
		}
	}
}

func TestDocumentationSaysNo(t *testing.T) {
	const text = `package p
func F() {}
type T struct{}
func (T) M() {}
// I is documented, its first method is not.
type I interface{
	N()
	// O is.
	O()
	P() // is too
	Close()
}
// Small says all that there is to say.
type Small interface{ Q() }
const C = 1
// G is a group.
const ( D = 1; E = 2 )
var V int
func (T) String() string { return "" }
func hidden() {}
type low struct{}
func (low) M() {}
`
	s, err := ParseText("bad.go", text, packages(t))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(s.Undocumented())
	for _, want := range []string{"F has", "T has", "M has", "I.N has", "C has", "V has", "package p has"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if n := len(s.Undocumented()); n != 7 {
		t.Errorf("%d findings, want 7: %s", n, got)
	}
}

// outside copies the module under testdata/outside, points it at this one, and vets it. add is put into one more file.
func outside(t *testing.T, add string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/outside")); err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"go.mod": strings.ReplaceAll(string(mod), "../../../..", abs), "go.sum": string(sums), "added.go": "package outside\n" + add} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "vet", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestOutsiderCompiles(t *testing.T) {
	if out, err := outside(t, ""); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOutsiderSaysNo(t *testing.T) {
	for add, want := range map[string]string{
		"import _ \"" + Module + "/internal/batch\"":                                        "internal",
		"import \"" + Module + "/mirror\"\ntype half struct{}\nvar _ mirror.Log = half{}\n": "missing method",
	} {
		if out, err := outside(t, add); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %q not in\n%s", add, err, want, out)
		}
	}
}

func ownNames(t *testing.T) map[string]string {
	names := map[string]string{}
	for pkg, p := range own(t) {
		if public(pkg, p) {
			names[p.Name] = p.ImportPath
		}
	}
	return names
}

func compile(t *testing.T, name string, b Block) {
	t.Helper()
	if err := Compile(name, b.Code, ownNames(t), packages(t)); err != nil {
		t.Errorf("%s: the code block at line %d does not compile: %v\n%s", name, b.Line, err, b.Code)
	}
}

func TestCodeInMarkdownCompiles(t *testing.T) {
	for _, name := range []string{"README.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range MarkdownBlocks(string(text)) {
			compile(t, name, b)
		}
	}
}

func TestCodeInDocCommentsCompiles(t *testing.T) {
	for pkg, p := range own(t) {
		if !public(pkg, p) {
			continue
		}
		for _, b := range DocBlocks(parse(t, p).Files) {
			compile(t, pkg, b)
		}
	}
}

func TestCodeInProseSaysNo(t *testing.T) {
	blocks := MarkdownBlocks("text\n```go\nx := 1\n```\n```\nnot go\n```\n```go\ny := z\n```\n")
	if len(blocks) != 2 || blocks[0] != (Block{Line: 3, Code: "x := 1\n"}) || blocks[1].Line != 9 {
		t.Fatalf("blocks: %+v", blocks)
	}
	for text, good := range map[string]bool{
		"x := 1": true, "y := z": false, "fmt.Println(1)": true, "fmt.Printn(1)": false, "package main\nfunc main() {}": true, "package main\nfunc main() { x }": false,
		"func f() error { return nil }": true, "func f() error { return 1 }": false, "if err := m.Close(); err != nil {\n\treturn err\n}": true, "m.NoSuchMethod()": false,
		"m, err := mirror.Open(ctx, mirror.Config{})": true, "var c mirror.NoSuchType": false,
		"x := mystore.Open()\ny := 1 + \"\"": false, "x := mystore.Open()": true, "back.Close()": true,
	} {
		err := Compile("text", text, ownNames(t), packages(t))
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
	s, err := ParseText("doc.go", "// Package p:\n//\n//\ta, b := f()\n//\n// and\n//\n//\t┌───┐\n//\t└───┘\npackage p\n", packages(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := DocBlocks(s.Files); len(got) != 1 || !strings.Contains(got[0].Code, "a, b := f()") {
		t.Errorf("doc blocks: %+v", got)
	}
}
