package layout

import (
	"errors"
	"go/ast"
	"go/doc/comment"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// Block is a piece of Go code found in prose.
type Block struct {
	Line int // of its first line of code; 0 if unknown
	Code string
}

// MarkdownBlocks finds the blocks that are fenced as go.
func MarkdownBlocks(text string) []Block {
	var blocks []Block
	var cur *Block
	for i, l := range strings.Split(text, "\n") {
		fence := strings.TrimSpace(l)
		switch {
		case cur == nil && fence == "```go":
			cur = &Block{Line: i + 2}
		case cur != nil && fence == "```":
			blocks = append(blocks, *cur)
			cur = nil
		case cur != nil:
			cur.Code += l + "\n"
		}
	}
	return blocks
}

// DocBlocks finds the code blocks of doc comments that look like Go: they have a short declaration, a function, or a package clause. Others are drawings and tables, and one with an ellipsis (…) is a sketch.
func DocBlocks(files []*ast.File) []Block {
	var blocks []Block
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			g, ok := n.(*ast.CommentGroup)
			if !ok {
				return true
			}
			var p comment.Parser
			for _, b := range p.Parse(g.Text()).Content {
				if c, ok := b.(*comment.Code); ok && looksLikeGo.MatchString(c.Text) && !strings.Contains(c.Text, "…") {
					blocks = append(blocks, Block{Code: c.Text})
				}
			}
			return true
		})
	}
	return blocks
}

var (
	looksLikeGo = regexp.MustCompile(`(?m) := |^func |^package `)
	declaration = regexp.MustCompile(`(?m)\A(?:\s*//[^\n]*\n)*\s*(?:func|type|var|const) `)
	qualifier   = regexp.MustCompile(`\b([a-z][a-zA-Z0-9]*)\.[A-Z]`)
	importLine  = regexp.MustCompile(`(?m)^import\b`)
)

// standardNames are packages that prose may use without an import line, besides the module's own.
var standardNames = map[string]string{
	"bytes": "bytes", "context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "os": "os", "slices": "slices", "slog": "log/slog", "strings": "strings",
	"testing": "testing", "time": "time", "http": "net/http", "signal": "os/signal", "syscall": "syscall", "iter": "iter", "io": "io", "sync": "sync",
	"kgo": "github.com/twmb/franz-go/pkg/kgo", "kadm": "github.com/twmb/franz-go/pkg/kadm", "prometheus": "github.com/prometheus/client_golang/prometheus",
}

// given are names that prose uses without saying where they come from, with their types.
var given = [][2]string{
	{"ctx", "context.Context"}, {"m", "*mirror.Mirror"}, {"back", "*mirror.Mirror"}, {"src", "mirror.Source"}, {"dst", "mirror.Destination"}, {"store", "statemachine.StateStore"},
	{"plan", "*mirror.FailoverPlan"}, {"t", "*testing.T"}, {"err", "error"}, {"admin", "*mirror.Admin"}, {"look", "func() metrics.Look"}, {"registry", "*prometheus.Registry"},
}

// Compile checks a block after Complete. Packages whose names begin with "my" are the reader's own: that they are unknown is no error.
func Compile(name, code string, ownPackages map[string]string, packages map[string]*Package) error {
	_, err := ParseText(name, Complete(code, ownPackages), packages)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var left []error
	for _, e := range joined.Unwrap() {
		if te, ok := e.(types.Error); !ok || !strings.HasPrefix(te.Msg, "undefined: my") {
			left = append(left, e)
		}
	}
	return errors.Join(left...)
}

// Complete makes a file of a block: a program stays as it is, declarations get a package clause and imports, statements a function around them as well.
// The function's parameters are names that every reader of a manual guesses (ctx, m, src, dst, store, t). ownPackages maps names to import paths.
func Complete(code string, ownPackages map[string]string) string {
	if strings.HasPrefix(strings.TrimSpace(code), "package ") {
		return code
	}
	body := code
	if !importLine.MatchString(code) && !declaration.MatchString(code) {
		// The parameters are an outer scope: the text may declare the same names again.
		params := make([]string, 0, len(given))
		for _, g := range given {
			if name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(g[1], "*"), "func() "), "."); name == "error" || standardNames[name] != "" || ownPackages[name] != "" {
				params = append(params, g[0]+" "+g[1])
			}
		}
		body = "func prose(" + strings.Join(params, ", ") + ") error {\n{\n" + code + "\n}\nreturn nil\n}\n"
	}
	var names []string
	for _, m := range qualifier.FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("package prose\n\n")
	for _, n := range slices.Compact(names) {
		path := ownPackages[n]
		if path == "" {
			path = standardNames[n]
		}
		if path != "" && !strings.Contains(code, `"`+path+`"`) {
			b.WriteString("import " + n + " \"" + path + "\"\n")
		}
	}
	return b.String() + body
}
