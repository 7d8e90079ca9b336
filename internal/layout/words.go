package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// Reworded looks at the texts of Go files, which are string literals with a blank in them, as say puts them for somebody else. It counts those that say changes, and finds those in which foreign still
// finds a word after it, and those that say changes a second time. Files of tests are left out, and texts of which skip, if it is not nil, says so.
func Reworded(paths []string, say func(text string) string, foreign *regexp.Regexp, skip func(text string) bool) (changed int, faults []string, err error) {
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return changed, faults, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(l.Value)
			if err != nil || !strings.Contains(text, " ") || skip != nil && skip(text) {
				return true
			}
			own := say(text)
			if own != text {
				changed++
			}
			if name := foreign.FindString(own); name != "" {
				faults = append(faults, fmt.Sprintf("%s: %q is printed with %s", set.Position(l.Pos()), own, name))
			}
			if again := say(own); again != own {
				faults = append(faults, fmt.Sprintf("%s: %q becomes %q when it is said twice", set.Position(l.Pos()), own, again))
			}
			return true
		})
	}
	return changed, faults, nil
}
