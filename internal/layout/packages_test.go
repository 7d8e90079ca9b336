package layout

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([a-z][a-z/0-9-]*)`")

// listedInReadme are the packages in the first column of the README's table of packages.
func listedInReadme(text string) []string {
	_, section, _ := strings.Cut(text, "\n## Packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, l := range strings.Split(section, "\n") {
		if cells := strings.Split(l, "|"); len(cells) > 2 {
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return names
}

// listedInManual are the packages in the manual's list.
func listedInManual(text string) []string {
	_, section, _ := strings.Cut(text, "\n# Packages\n")
	var names []string
	for _, l := range strings.Split(section, "\n") {
		if rest, ok := strings.CutPrefix(l, "\t"); ok {
			names = append(names, strings.Fields(rest)[0])
		}
	}
	slices.Sort(names)
	return names
}

func TestListsOfPackagesAreTrueToTheTree(t *testing.T) {
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(own(t))), func(pkg string) bool { return pkg == "." })
	for name, listed := range map[string]func(string) []string{"README.md": listedInReadme, "doc.go": listedInManual} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		got := listed(string(text))
		for _, pkg := range got {
			if !slices.Contains(want, pkg) {
				t.Errorf("%s lists %s, which is not there", name, pkg)
			}
		}
		for _, pkg := range want {
			if !slices.Contains(got, pkg) {
				t.Errorf("%s does not list %s", name, pkg)
			}
		}
	}
}

func TestListsOfPackagesAreRead(t *testing.T) {
	if got := listedInReadme("x\n## Packages\n\n| package | what |\n| --- | --- |\n| `b`, `a/c` | not `d` |\n\n## Next\n\n| `e` | |\n"); !slices.Equal(got, []string{"a/c", "b"}) {
		t.Errorf("README: %q", got)
	}
	if got := listedInManual("x\n# Packages\n\n\tb  pure  text\n\ta/c    text\n\nwords\n*/\n"); !slices.Equal(got, []string{"a/c", "b"}) {
		t.Errorf("manual: %q", got)
	}
}
