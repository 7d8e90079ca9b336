package node

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// goNames are names that only somebody who writes Go knows: fields of kraft.Config and what is like them.
var goNames = regexp.MustCompile(`\b(Config|Security|Clients|BrokerOptions|ControllerOptions|NodeID|ListenerName|ReplicationFactor|MinInSyncReplicas|UntestedVersion|SessionTimeout|PlainPassword|Advertised)\b`)

// TestPreflightSpeaksOfProperties: no text of kraft's preflight names a field of Go once it is printed here, and what was said in these words already stays as it is.
func TestPreflightSpeaksOfProperties(t *testing.T) {
	files, err := filepath.Glob("../mirror/kraft/*preflight*.go")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	changed := 0
	for _, path := range append(files, "../mirror/kafkastore/topics.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(l.Value)
			if err != nil || !strings.Contains(text, " ") {
				return true
			}
			own := InProperties(text)
			if own != text {
				changed++
			}
			if name := goNames.FindString(own); name != "" {
				t.Errorf("%s: %q is printed with %s", set.Position(l.Pos()), own, name)
			}
			if again := InProperties(own); again != own {
				t.Errorf("%s: %q becomes %q when it is said twice", set.Position(l.Pos()), own, again)
			}
			return true
		})
	}
	if changed < 20 {
		t.Errorf("only %d texts are said in other words: are these kraft's files?", changed)
	}
	if text := InProperties(kraft.ErrFolderInUse.Error()); !strings.Contains(text, "mirror.node.folder") {
		t.Error(text)
	}
}

func TestWhatIsAboutTheFile(t *testing.T) {
	blocks := func(inConfig bool) error {
		r := kraft.Report{Findings: []kraft.Finding{{Kind: kraft.AboutBrokers, Severity: kraft.Blocks, What: "none was reached"}, {Kind: kraft.AboutNodeID, Severity: kraft.Blocks, What: "7 is taken",
			InConfig: inConfig}}}
		return fmt.Errorf("kraft: %w", r.Err())
	}
	if !misfits(blocks(true)) || misfits(blocks(false)) || misfits(errors.New("something else")) {
		t.Error(misfits(blocks(true)), misfits(blocks(false)))
	}
	err := inWords(fmt.Errorf("%w: or set UntestedVersion after", kraft.ErrPreflight))
	if !errors.Is(err, kraft.ErrPreflight) || !strings.Contains(err.Error(), "mirror.untested.version=true") || inWords(nil) != nil {
		t.Error(err)
	}
}
