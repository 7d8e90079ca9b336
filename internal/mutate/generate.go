package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/layout"
	"github.com/clustermirror/clustermirror/internal/overlay"
)

// mutant is one small change of the code.
type mutant struct {
	number   int // not 0, one for each mutant of a run
	pkg      string
	function string // "Parse", "(*Core).Step"
	file     string // its path inside the module
	line     int
	from, to string // what stood there, what stands there now: each on one line

	before, after []string // the lines of the file that differ
}

// site is a place in a file at which one or several mutants can be switched on. What stands there stays; text is put around it.
type site struct {
	start, end  int // of what stands there
	opens, ends string
	mutants     []*mutant
}

// mutated is a package with all of its mutants in it. Which of them is on is read from an environment variable when the program starts, so that one build serves them all.
type mutated struct {
	pkg     string
	mutants []*mutant
	changes overlay.Changes
}

// switchVariable is the environment variable that holds the number of the mutant that is on, switchName what the code calls it.
const (
	switchVariable = "MUTANT_THAT_IS_ON"
	switchName     = "mutantThatIsOn"
)

const switchFile = `package %s

import (
	"os"
	"strconv"
)

var ` + switchName + ` = func() int { n, _ := strconv.Atoi(os.Getenv("` + switchVariable + `")); return n }()
`

// source is a package's code, checked.
type source struct {
	root, pkg, name string
	set             *token.FileSet
	imports         types.Importer
	paths           []string // inside the module
	texts           map[string]string
	files           map[string]*ast.File
	info            *types.Info
	types           *types.Package
}

func readSource(root, pkg string) (*source, error) {
	listed, err := layout.Load(root, "./"+pkg, "os", "strconv")
	if err != nil {
		return nil, err
	}
	s := &source{root: root, pkg: pkg, set: token.NewFileSet(), texts: map[string]string{}}
	s.imports = importer.ForCompiler(s.set, "gc", func(path string) (io.ReadCloser, error) {
		p := listed[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("no compiled package %s", path)
		}
		return os.Open(p.Export)
	})
	dir := filepath.Join(root, filepath.FromSlash(pkg))
	for _, p := range listed {
		if p.Dir != dir {
			continue
		}
		if p.Error != nil {
			return nil, fmt.Errorf("%s: %s", pkg, p.Error.Err)
		}
		s.name = p.Name
		for _, name := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			path := pkg + "/" + name
			s.paths, s.texts[path] = append(s.paths, path), string(b)
		}
	}
	if s.name == "" {
		return nil, fmt.Errorf("%s is no package of this module", pkg)
	}
	s.files, s.info, s.types, err = s.check(s.texts)
	return s, err
}

// check parses and checks texts in the place of the package's files.
func (s *source) check(texts map[string]string) (map[string]*ast.File, *types.Info, *types.Package, error) {
	files := map[string]*ast.File{}
	var all []*ast.File
	for _, path := range append(slices.Clone(s.paths), s.pkg+"/"+switchName+".go") {
		text, there := texts[path]
		if !there {
			continue
		}
		f, err := parser.ParseFile(s.set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, nil, err
		}
		files[path] = f
		all = append(all, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	t, err := (&types.Config{Importer: s.imports}).Check(s.pkg, s.set, all, info)
	return files, info, t, err
}

// mutate makes the mutants of a package, numbered from first on. Those that do not compile are left out.
func mutate(s *source, first int) (*mutated, error) {
	all := map[string][]*site{}
	for _, path := range s.paths {
		g := &generator{source: s, path: path, text: s.texts[path], next: &first}
		g.imported = map[string]string{}
		for _, i := range s.files[path].Imports {
			full := strings.Trim(i.Path.Value, `"`)
			g.imported[full] = full[strings.LastIndexByte(full, '/')+1:]
			if i.Name != nil {
				g.imported[full] = i.Name.Name
			}
		}
		for _, d := range s.files[path].Decls {
			g.declaration(d)
		}
		kept, err := s.compiling(path, g.sites)
		if err != nil {
			return nil, err
		}
		all[path] = kept
	}
	m := &mutated{pkg: s.pkg, changes: overlay.Changes{s.pkg + "/" + switchName + ".go": fmt.Sprintf(switchFile, s.name)}}
	for _, path := range s.paths {
		if len(all[path]) == 0 {
			continue
		}
		m.changes[path] = insert(s.texts[path], all[path])
		for _, at := range all[path] {
			m.mutants = append(m.mutants, at.mutants...)
		}
	}
	slices.SortFunc(m.mutants, func(a, b *mutant) int { return cmp.Compare(a.number, b.number) })
	return m, nil
}

// compiling returns the sites of a file with which the package compiles, found by halving.
func (s *source) compiling(path string, sites []*site) ([]*site, error) {
	if len(sites) == 0 {
		return nil, nil
	}
	texts := map[string]string{s.pkg + "/" + switchName + ".go": fmt.Sprintf(switchFile, s.name)}
	for _, p := range s.paths {
		texts[p] = s.texts[p]
	}
	texts[path] = insert(s.texts[path], sites)
	_, _, _, err := s.check(texts)
	switch {
	case err == nil:
		return sites, nil
	case len(sites) == 1:
		return nil, nil
	}
	half := len(sites) / 2
	a, err := s.compiling(path, sites[:half])
	if err != nil {
		return nil, err
	}
	b, err := s.compiling(path, sites[half:])
	if err != nil {
		return nil, err
	}
	both := append(slices.Clone(a), b...)
	texts[path] = insert(s.texts[path], both)
	if _, _, _, err := s.check(texts); err != nil {
		return nil, fmt.Errorf("%s: each half of its mutants compiles, both together do not: %w", path, err)
	}
	return both, nil
}

// insert puts the sites' texts into a file's. Of two at one place the earlier in the list is the outer.
func insert(text string, sites []*site) string {
	type piece struct {
		at, order int // order: ends first, the inner ones before; then opens, the outer ones before
		text      string
	}
	outer := slices.Clone(sites)
	slices.SortStableFunc(outer, func(a, b *site) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	var pieces []piece
	for i, s := range outer {
		if s.start == s.end { // between two tokens: one text
			pieces = append(pieces, piece{s.start, i + 1, s.opens + s.ends})
			continue
		}
		pieces = append(pieces, piece{s.start, i + 1, s.opens}, piece{s.end, -i - 1, s.ends})
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) })
	var out strings.Builder
	done := 0
	for _, p := range pieces {
		out.WriteString(text[done:p.at])
		out.WriteString(p.text)
		done = p.at
	}
	out.WriteString(text[done:])
	return out.String()
}

// generator finds the sites of one file.
type generator struct {
	*source
	path, text string
	imported   map[string]string // by path: the name in this file
	next       *int
	function   string
	results    *types.Tuple // of the function that is walked
	sites      []*site
}

func (g *generator) offset(p token.Pos) int { return g.set.Position(p).Offset }
func (g *generator) of(n ast.Node) string   { return g.text[g.offset(n.Pos()):g.offset(n.End())] }

// change is one mutant of a place: the place's new text.
type change struct{ text, says string }

// mutantsOf numbers the changes of the text between start and end.
func (g *generator) mutantsOf(start, end int, changes []change) []*mutant {
	var all []*mutant
	for _, c := range changes {
		to := cmp.Or(c.says, c.text)
		lineStart := strings.LastIndexByte(g.text[:start], '\n') + 1
		lineEnd := end + strings.IndexByte(g.text[end:]+"\n", '\n')
		m := &mutant{number: *g.next, pkg: g.pkg, function: g.function, file: g.path, line: 1 + strings.Count(g.text[:start], "\n"), from: oneLine(g.text[start:end]), to: oneLine(to)}
		m.before = strings.Split(g.text[lineStart:lineEnd], "\n")
		if after := g.text[lineStart:start] + c.text + g.text[end:lineEnd]; strings.TrimSpace(after) != "" {
			m.after = strings.Split(after, "\n")
		}
		*g.next++
		all = append(all, m)
	}
	return all
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// condition makes mutants of a boolean expression: only the one that is on is evaluated.
func (g *generator) condition(e ast.Expr, changes ...change) {
	start, end := g.offset(e.Pos()), g.offset(e.End())
	s := &site{start: start, end: end, mutants: g.mutantsOf(start, end, changes)}
	var opens bytes.Buffer
	opens.WriteString("(")
	for i, m := range s.mutants {
		fmt.Fprintf(&opens, "%s == %d && (%s) || ", switchName, m.number, changes[i].text)
	}
	fmt.Fprintf(&opens, "(%s < %d || %s > %d) && (", switchName, s.mutants[0].number, switchName, s.mutants[len(s.mutants)-1].number)
	s.opens, s.ends = opens.String(), "))"
	g.sites = append(g.sites, s)
}

// value makes mutants of an expression of another type.
func (g *generator) value(e ast.Expr, changes ...change) {
	name, ok := g.spelled(g.info.TypeOf(e))
	if !ok || len(changes) == 0 {
		return
	}
	start, end := g.offset(e.Pos()), g.offset(e.End())
	s := &site{start: start, end: end, mutants: g.mutantsOf(start, end, changes)}
	var opens bytes.Buffer
	fmt.Fprintf(&opens, "(func() %s { ", name)
	for i, m := range s.mutants {
		fmt.Fprintf(&opens, "if %s == %d { return %s }; ", switchName, m.number, changes[i].text)
	}
	opens.WriteString("return ")
	s.opens, s.ends = opens.String(), " }())"
	g.sites = append(g.sites, s)
}

// spelled is a type as this file can name it.
func (g *generator) spelled(t types.Type) (string, bool) {
	ok := t != nil
	if b, basic := t.(*types.Basic); basic && b.Info()&types.IsUntyped != 0 {
		ok = false
	}
	if !ok {
		return "", false
	}
	return types.TypeString(t, func(p *types.Package) string {
		if p == g.types || p.Path() == g.types.Path() {
			return ""
		}
		name, there := g.imported[p.Path()]
		ok = ok && there
		return name
	}), ok
}

// statement makes mutants of a statement: other statements in its place, none for an empty text.
func (g *generator) statement(start, end int, changes ...change) {
	s := &site{start: start, end: end, mutants: g.mutantsOf(start, end, changes)}
	var opens bytes.Buffer
	for i, m := range s.mutants {
		fmt.Fprintf(&opens, "if %s == %d { %s } else ", switchName, m.number, changes[i].text)
	}
	s.opens, s.ends = opens.String()+"{ ", " }"
	g.sites = append(g.sites, s)
}

// jump makes mutants of a return: other returns in front of it.
func (g *generator) jump(n ast.Node, changes ...change) {
	if len(changes) == 0 {
		return
	}
	start, end := g.offset(n.Pos()), g.offset(n.End())
	s := &site{start: start, end: end, mutants: g.mutantsOf(start, end, changes)}
	for i, m := range s.mutants {
		s.opens += fmt.Sprintf("if %s == %d { %s }; ", switchName, m.number, changes[i].text)
	}
	g.sites = append(g.sites, s)
}

func (g *generator) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Body == nil {
			return
		}
		g.function = d.Name.Name
		if d.Recv != nil {
			g.function = "(" + g.of(d.Recv.List[0].Type) + ")." + d.Name.Name
		}
		g.body(d.Body, g.info.Defs[d.Name].(*types.Func).Signature().Results())
	case *ast.GenDecl:
		if d.Tok == token.VAR {
			g.function = "var"
			g.walk(d)
		}
	}
}

func (g *generator) body(b *ast.BlockStmt, results *types.Tuple) {
	outer := g.results
	g.results = results
	g.walk(b)
	g.results = outer
}

// walk looks at everything below n; what must stay a constant is left out.
func (g *generator) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			g.body(n.Body, g.info.TypeOf(n).(*types.Signature).Results())
			return false
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.ArrayType, *ast.FuncType, *ast.StructType, *ast.InterfaceType, *ast.MapType:
			return false
		case *ast.CompositeLit:
			_, isMap := under(g.info.TypeOf(n)).(*types.Map)
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && !isMap {
					e = kv.Value // keys of structs are names, those of arrays constants
				}
				g.walk(e)
			}
			return false
		case *ast.BlockStmt:
			g.list(n.List, n)
		case *ast.SwitchStmt:
			g.cases(n.Body)
		case *ast.TypeSwitchStmt:
			g.cases(n.Body)
		case *ast.CaseClause:
			g.list(n.Body, n)
		case *ast.IfStmt:
			g.ifCondition(n.Cond)
		case ast.Expr:
			return g.expression(n)
		}
		return true
	})
}

func under(t types.Type) types.Type {
	if t == nil {
		return nil
	}
	return t.Underlying()
}

var (
	comparisons = map[token.Token][]token.Token{
		token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
		token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
		token.LAND: {token.LOR}, token.LOR: {token.LAND},
	}
	arithmetic = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.AND: token.OR, token.OR: token.AND}
	assigning  = map[token.Token]token.Token{token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN}
)

// ifCondition makes the mutants of an if: without its body, and the other way round where no operator of its own does that.
func (g *generator) ifCondition(e ast.Expr) {
	changes := []change{{"false", "false (the body never runs)"}}
	switch x := e.(type) {
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			changes = append(changes, change{text: "!(" + g.of(e) + ")"})
		}
	case *ast.UnaryExpr:
	default:
		changes = append(changes, change{text: "!(" + g.of(e) + ")"})
	}
	g.condition(e, changes...)
}

func (g *generator) expression(e ast.Expr) (deeper bool) {
	known := g.info.Types[e]
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if known.Value != nil {
			return true
		}
		with := func(op token.Token) change {
			at := g.offset(e.OpPos)
			return change{text: g.text[g.offset(e.Pos()):at] + op.String() + g.text[at+len(e.Op.String()):g.offset(e.End())]}
		}
		if others, ok := comparisons[e.Op]; ok {
			var changes []change
			for _, op := range others {
				changes = append(changes, with(op))
			}
			g.condition(e, changes...)
		} else if other, ok := arithmetic[e.Op]; ok && is(known.Type, types.IsNumeric) {
			g.value(e, with(other))
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			g.condition(e, change{text: g.of(e.X)})
		}
	case *ast.BasicLit:
		if is(known.Type, types.IsInteger) && (e.Kind == token.INT || e.Kind == token.CHAR) {
			changes := []change{{text: "(" + g.of(e) + " + 1)"}}
			if v, exact := constant.Int64Val(known.Value); !exact || v != 0 {
				changes = append(changes, change{text: "(" + g.of(e) + " - 1)"})
			}
			g.value(e, changes...)
		}
	case *ast.Ident:
		if c, ok := g.info.Uses[e].(*types.Const); ok && c.Pkg() == g.types && is(known.Type, types.IsInteger) {
			if _, basic := known.Type.(*types.Basic); basic { // the names of an enumeration are no counts
				g.value(e, change{text: "(" + e.Name + " + 1)"})
			}
		}
	case *ast.CallExpr:
		if f, ok := e.Fun.(*ast.Ident); ok {
			if _, builtin := g.info.Uses[f].(*types.Builtin); builtin && known.Value == nil {
				switch f.Name {
				case "min":
					g.value(e, change{text: "max" + g.of(e)[len("min"):]})
				case "max":
					g.value(e, change{text: "min" + g.of(e)[len("max"):]})
				case "make": // a capacity is nothing that anybody sees
					for _, a := range e.Args[1:min(2, len(e.Args))] {
						g.walk(a)
					}
					return false
				}
			}
		}
	}
	return true
}

func is(t types.Type, info types.BasicInfo) bool {
	b, ok := under(t).(*types.Basic)
	return ok && b.Info()&info != 0
}

// list makes the mutants of the statements of a block or of a case.
func (g *generator) list(all []ast.Stmt, of ast.Node) {
	for i, st := range all {
		start, end := g.offset(st.Pos()), g.offset(st.End())
		removed := change{"", "(removed)"}
		switch st := st.(type) {
		case *ast.AssignStmt:
			if st.Tok == token.DEFINE || blank(st) {
				continue
			}
			changes := []change{removed}
			if other, ok := assigning[st.Tok]; ok && is(g.info.TypeOf(st.Lhs[0]), types.IsNumeric) {
				changes = append(changes, change{text: g.of(st.Lhs[0]) + " " + other.String() + " " + g.of(st.Rhs[0])})
			}
			g.statement(start, end, changes...)
		case *ast.IncDecStmt:
			other := map[token.Token]string{token.INC: "--", token.DEC: "++"}[st.Tok]
			g.statement(start, end, removed, change{text: g.of(st.X) + other})
		case *ast.ExprStmt:
			if c, ok := st.X.(*ast.CallExpr); ok && g.of(c.Fun) != "panic" {
				g.statement(start, end, removed)
			}
		case *ast.BranchStmt:
			if st.Tok == token.CONTINUE || st.Tok == token.BREAK {
				g.statement(start, end, removed)
			}
		case *ast.ReturnStmt:
			if len(st.Results) == 0 && i == len(all)-1 && g.results.Len() == 0 {
				g.statement(start, end, removed)
			}
			g.jump(st, g.returns(st)...)
		}
	}
}

// blank says whether an assignment only says that a value is not used.
func blank(a *ast.AssignStmt) bool {
	return !slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return !ok || id.Name != "_" })
}

// returns are a return with one of its results replaced by nothing, or by its opposite.
func (g *generator) returns(st *ast.ReturnStmt) []change {
	if g.results == nil || len(st.Results) != g.results.Len() {
		return nil
	}
	var changes []change
	for i, e := range st.Results {
		with, ok := g.nothing(g.results.At(i).Type(), e)
		if !ok {
			continue
		}
		texts := make([]string, len(st.Results))
		for j, other := range st.Results {
			texts[j] = g.of(other)
		}
		texts[i] = with
		changes = append(changes, change{text: "return " + strings.Join(texts, ", ")})
	}
	return changes
}

func (g *generator) nothing(t types.Type, e ast.Expr) (string, bool) {
	known := g.info.Types[e]
	switch u := under(t).(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsBoolean != 0 && known.Value != nil:
			return fmt.Sprint(!constant.BoolVal(known.Value)), true
		case u.Info()&types.IsBoolean != 0:
			if b, ok := e.(*ast.BinaryExpr); ok && len(comparisons[b.Op]) > 0 && b.Op != token.LAND && b.Op != token.LOR {
				return "", false // its operator is turned round already
			}
			if _, ok := e.(*ast.UnaryExpr); ok {
				return "", false
			}
			return "!(" + g.of(e) + ")", true
		case u.Info()&types.IsNumeric != 0:
			return "0", known.Value == nil || constant.Sign(known.Value) != 0
		case u.Info()&types.IsString != 0:
			return `""`, known.Value == nil || constant.StringVal(known.Value) != ""
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Interface, *types.Signature:
		return "nil", !known.IsNil()
	case *types.Struct:
		c, ok := e.(*ast.CompositeLit)
		name, spelled := g.spelled(t)
		return name + "{}", spelled && !(ok && len(c.Elts) == 0)
	}
	return "", false
}

// cases makes the mutants of a switch without one of its cases: the default's statements run instead, or none.
func (g *generator) cases(body *ast.BlockStmt) {
	var other *ast.CaseClause
	for _, st := range body.List {
		if c := st.(*ast.CaseClause); c.List == nil {
			other = c
		}
	}
	instead := ""
	if other != nil && len(other.Body) > 0 {
		instead = g.text[g.offset(other.Body[0].Pos()):g.offset(other.Body[len(other.Body)-1].End())]
	}
	for _, st := range body.List {
		c := st.(*ast.CaseClause)
		if c.List == nil || len(c.Body) == 0 && instead == "" {
			continue
		}
		if len(c.Body) > 0 {
			if b, ok := c.Body[len(c.Body)-1].(*ast.BranchStmt); ok && b.Tok == token.FALLTHROUGH {
				continue
			}
		}
		head := g.text[g.offset(c.Pos()):g.offset(c.Colon)]
		start, end := g.offset(c.Colon)+1, g.offset(c.Colon)+1
		if len(c.Body) > 0 {
			start, end = g.offset(c.Body[0].Pos()), g.offset(c.Body[len(c.Body)-1].End())
		}
		s := &site{start: start, end: end, mutants: g.mutantsOf(start, end, []change{{instead, "(case removed)"}})}
		m := s.mutants[0]
		m.from, m.line = oneLine(head), g.set.Position(c.Pos()).Line
		m.before, m.after = []string{head + ":"}, nil
		s.opens, s.ends = fmt.Sprintf("if %s == %d { %s } else { ", switchName, m.number, instead), " }"
		g.sites = append(g.sites, s)
	}
}
