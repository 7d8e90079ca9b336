package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// typesOfEvents are the types of a file that have EventMeta.
func typesOfEvents(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				if id, ok := field.Type.(*ast.Ident); ok && len(field.Names) == 0 && id.Name == "EventMeta" {
					names = append(names, spec.Name.Name)
				}
			}
		}
		return true
	})
	slices.Sort(names)
	return names
}

func TestEveryKindOfEventIsThereBeforeItHappens(t *testing.T) {
	if want := typesOfEvents(t, "../mirror/event.go"); !slices.Equal(eventKinds, want) {
		t.Errorf("the kinds are %q, package mirror has %q", eventKinds, want)
	}
}

// kraftKinds are the words of kraft.EventKind.
func kraftKinds() (words []string) {
	defer func() { _ = recover() }() // behind the last one
	for k := kraft.EventKind(0); ; k++ {
		words = append(words, k.String())
	}
}

func TestReasonsOfRefusedClientsAreKraftsOwn(t *testing.T) {
	if want := kraft.RefusalReasons(); !slices.Equal(refusalReasons, want) {
		t.Errorf("the reasons are %q, kraft tells %q", refusalReasons, want)
	}
}

func TestKindsOfTheDestinationAreKraftsOwn(t *testing.T) {
	words := kraftKinds()
	if len(words) < 11 {
		t.Fatalf("kraft has only %q", words)
	}
	for _, w := range words {
		if !slices.Contains(destinationKinds, w) {
			t.Errorf("kraft tells of %q, which is not there before it happens", w)
		}
	}
	for _, w := range needsPerson {
		if !slices.Contains(words, w) {
			t.Errorf("kraft never tells of %q", w)
		}
	}
}
