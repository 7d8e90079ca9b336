// Package layout holds the house of design.md in order: who may import whom, what a pure package may do, that names are documented and that code in prose compiles.
// The rules are in its tests; the checkers are here, and each has a test in which it must say no.
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Package is what go list says of one package.
type Package struct {
	ImportPath string
	Name       string
	Dir        string
	Export     string // file with the compiled types
	Standard   bool
	GoFiles    []string
	Imports    []string
	Module     *struct{ Path, Dir string }
	Error      *struct{ Err string }
}

// Load lists the packages that match the patterns and everything they need, compiled, by import path.
func Load(dir string, patterns ...string) (map[string]*Package, error) {
	args := append([]string{"list", "-e", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,Standard,GoFiles,Imports,Module,Error"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	packages := map[string]*Package{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &Package{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages[p.ImportPath] = p
	}
}

// Source is a package's parsed and checked non-test files.
type Source struct {
	Fset  *token.FileSet
	Files []*ast.File
	Info  *types.Info
	Types *types.Package
}

// Parse reads and checks p's files; types of what it imports come from packages.
func Parse(p *Package, packages map[string]*Package) (*Source, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	var first error
	s := check(fset, p.ImportPath, files, packages, func(err error) {
		if first == nil {
			first = err
		}
	})
	return s, first
}

// ParseText is Parse for one file that is not on disk. Errors that a compiler reports for unused names are not errors here.
func ParseText(name, text string, packages map[string]*Package) (*Source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []error
	s := check(fset, "text", []*ast.File{f}, packages, func(err error) {
		var te types.Error
		if errors.As(err, &te) && te.Soft {
			return
		}
		all = append(all, err)
	})
	return s, errors.Join(all...)
}

func check(fset *token.FileSet, path string, files []*ast.File, packages map[string]*Package, report func(error)) *Source {
	lookup := func(path string) (io.ReadCloser, error) {
		p := packages[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("no compiled package %s", path)
		}
		return os.Open(p.Export)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup), Error: report}
	tp, _ := conf.Check(path, fset, files, info)
	return &Source{Fset: fset, Files: files, Info: info, Types: tp}
}

// Finding is a place that breaks a rule.
type Finding struct {
	Place string // file:line, the file's base name only
	What  string
	Func  string // "file.go Func" around a range over a map, empty for others
}

func (f Finding) String() string { return f.Place + ": " + f.What }

func (s *Source) place(n ast.Node) string {
	p := s.Fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line)
}

// clocks are the functions of package time that look at a clock or wait.
var clocks = map[string]bool{"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true, "NewTicker": true, "NewTimer": true}

// Impure lists what a pure package must not have: goroutines, channels, clocks, global randomness, writes to package variables, and ranges over maps.
// A range over a map that collects into a slice which the same function sorts is fine.
func (s *Source) Impure() []Finding {
	var found []Finding
	add := func(n ast.Node, format string, args ...any) {
		found = append(found, Finding{Place: s.place(n), What: fmt.Sprintf(format, args...)})
	}
	for _, file := range s.Files {
		for _, d := range file.Decls {
			in := filepath.Base(s.Fset.Position(file.Pos()).Filename)
			var sorts bool
			if fd, ok := d.(*ast.FuncDecl); ok {
				in += " " + fd.Name.Name
				sorts = s.sorts(fd)
			}
			sorted := map[ast.Node]bool{} // calls of maps.Keys and the like whose result is sorted at once
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					add(n, "goroutine")
				case *ast.ChanType:
					add(n, "channel type")
				case *ast.SelectStmt:
					add(n, "select")
				case *ast.SendStmt:
					add(n, "send")
				case *ast.RangeStmt:
					if t := s.Info.TypeOf(n.X); t != nil {
						if _, ok := t.Underlying().(*types.Map); ok && !sorts && !s.erases(n) {
							found = append(found, Finding{Place: s.place(n), What: "range over a map", Func: in})
						}
					}
				case *ast.CallExpr:
					if path, name := s.callee(n); path == "slices" && strings.HasPrefix(name, "Sorted") && len(n.Args) > 0 {
						if inner, ok := n.Args[0].(*ast.CallExpr); ok {
							sorted[inner] = true
						}
					} else if path == "maps" && (name == "Keys" || name == "Values" || name == "All") && !sorted[n] && !sorts {
						found = append(found, Finding{Place: s.place(n), What: "maps." + name + " that is not sorted", Func: in})
					}
				case *ast.SelectorExpr:
					if o := s.Info.Uses[n.Sel]; o != nil && o.Pkg() != nil {
						if f, ok := o.(*types.Func); ok && f.Signature().Recv() == nil {
							switch {
							case o.Pkg().Path() == "time" && clocks[o.Name()]:
								add(n, "time.%s", o.Name())
							case strings.HasPrefix(o.Pkg().Path(), "math/rand") && !strings.HasPrefix(o.Name(), "New"):
								add(n, "the process's random source: rand.%s", o.Name())
							}
						}
					}
				case *ast.AssignStmt:
					for _, l := range n.Lhs {
						if v := s.packageVar(l); v != "" {
							add(n, "package variable %s is written", v)
						}
					}
				case *ast.IncDecStmt:
					if v := s.packageVar(n.X); v != "" {
						add(n, "package variable %s is written", v)
					}
				case *ast.UnaryExpr:
					if n.Op == token.AND {
						if v := s.packageVar(n.X); v != "" {
							add(n, "the address of package variable %s is taken", v)
						}
					}
				}
				return true
			})
		}
	}
	return found
}

func (s *Source) callee(c *ast.CallExpr) (path, name string) {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	if o := s.Info.Uses[sel.Sel]; o != nil && o.Pkg() != nil {
		return o.Pkg().Path(), o.Name()
	}
	return "", ""
}

// sorts says whether a function sorts something.
func (s *Source) sorts(fd *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fd, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			path, name := s.callee(c)
			if path == "slices" && strings.HasPrefix(name, "Sort") && !strings.HasPrefix(name, "Sorted") || path == "sort" {
				found = true
			}
		}
		return true
	})
	return found
}

// erases says whether the body of a range over a map does nothing but delete from that map, which any order does alike.
func (s *Source) erases(r *ast.RangeStmt) bool {
	if len(r.Body.List) == 0 || r.Tok == token.ASSIGN {
		return false
	}
	for _, st := range r.Body.List {
		if i, ok := st.(*ast.IfStmt); ok && i.Else == nil && i.Init == nil && len(i.Body.List) == 1 {
			st = i.Body.List[0]
		}
		e, ok := st.(*ast.ExprStmt)
		if !ok {
			return false
		}
		c, ok := e.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		if id, ok := c.Fun.(*ast.Ident); !ok || id.Name != "delete" {
			return false
		}
	}
	return true
}

// packageVar is the name of the package-level variable that an expression is, or is a part of; "" if none.
func (s *Source) packageVar(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if v := s.isPackageVar(x.Sel); v != "" {
				return v
			}
			e = x.X
		case *ast.Ident:
			return s.isPackageVar(x)
		default:
			return ""
		}
	}
}

func (s *Source) isPackageVar(id *ast.Ident) string {
	v, ok := s.Info.Uses[id].(*types.Var)
	if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
		return v.Name()
	}
	return ""
}

// Undocumented lists exported names without a doc comment: functions, types, methods of exported types and of interfaces with more than three, constants and variables (a group's comment counts), and the package.
func (s *Source) Undocumented() []Finding {
	var found []Finding
	add := func(n ast.Node, name string) {
		found = append(found, Finding{Place: s.place(n), What: name + " has no doc comment"})
	}
	packageDoc := false
	for _, f := range s.Files {
		packageDoc = packageDoc || f.Doc != nil
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || ast.IsExported(receiver(d))) && !wellKnown(d) {
					add(d, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, sp := range d.Specs {
					switch sp := sp.(type) {
					case *ast.TypeSpec:
						if !sp.Name.IsExported() {
							continue
						}
						if d.Doc == nil && sp.Doc == nil {
							add(sp, sp.Name.Name)
						}
						if it, ok := sp.Type.(*ast.InterfaceType); ok && it.Methods.NumFields() > 3 {
							for _, m := range it.Methods.List {
								if len(m.Names) == 1 && m.Names[0].IsExported() && m.Names[0].Name != "Close" && m.Doc == nil && m.Comment == nil {
									add(m, sp.Name.Name+"."+m.Names[0].Name)
								}
							}
						}
					case *ast.ValueSpec:
						for _, n := range sp.Names {
							if n.IsExported() && d.Doc == nil && sp.Doc == nil && sp.Comment == nil {
								add(sp, n.Name)
							}
						}
					}
				}
			}
		}
	}
	if !packageDoc && len(s.Files) > 0 {
		add(s.Files[0], "package "+s.Files[0].Name.Name)
	}
	return found
}

// wellKnown are methods whose meaning a standard interface fixes.
func wellKnown(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	switch d.Name.Name {
	case "Error", "Unwrap", "Is", "As", "String":
		return true
	}
	return false
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
