package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clustermirror/clustermirror/internal/overlay"
)

// fate is what became of a mutant.
type fate struct {
	mutant    *mutant
	red       bool // its package's tests
	hung      bool // they came to no end
	simulator bool // the simulator found a violation
}

func (f fate) killed() bool { return f.red || f.hung || f.simulator }

// program is a binary with mutants in it, and how it is run.
type program struct {
	binary, dir, temporary string
	args                   []string
	limit                  time.Duration
	cpu                    int // seconds that it may compute: one that goes round for ever ends sooner by this, on a busy machine too
}

// simulatorProgram is the command that runs the simulator.
const simulatorProgram = "./internal/simulator/simulate"

// try runs mutants, two at a time, until time is over, and tells each one's fate, never two at once.
func try(ctx context.Context, work string, o options, all []*mutated, chosen []*mutant, tell func(fate)) ([]fate, error) {
	programs := map[string]*program{}
	for _, m := range all {
		if !slices.ContainsFunc(chosen, func(c *mutant) bool { return c.pkg == m.pkg }) {
			continue
		}
		p, err := testProgram(ctx, work, o.root, m)
		if err != nil {
			return nil, err
		}
		programs[m.pkg] = p
	}
	var sim *program
	covered := map[string]bool{}
	if o.simulator > 0 {
		var err error
		if sim, covered, err = simulate(ctx, work, o, all); err != nil {
			return nil, err
		}
	}
	fates := make([]*fate, len(chosen))
	errs := make([]error, len(chosen))
	var wg sync.WaitGroup
	var telling sync.Mutex
	slots := make(chan struct{}, 2)
	for i, m := range chosen {
		slots <- struct{}{}
		if ctx.Err() != nil || !o.until.IsZero() && time.Now().After(o.until) {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			f := &fate{mutant: m}
			e, err := programs[m.pkg].run(ctx, m.number)
			f.red, f.hung = e.red, e.hung
			if err == nil && !f.killed() && covered[m.pkg] {
				e, err = sim.run(ctx, m.number)
				f.simulator = e.red || e.hung
			}
			if errs[i] = err; err != nil {
				return
			}
			fates[i] = f
			telling.Lock()
			defer telling.Unlock()
			tell(*f)
		})
	}
	wg.Wait()
	var tried []fate
	for _, f := range fates {
		if f != nil {
			tried = append(tried, *f)
		}
	}
	if ctx.Err() != nil {
		return tried, nil // what was tried is worth printing
	}
	return tried, errors.Join(errs...)
}

// testProgram builds a package's tests with its mutants and sees that they pass with none of them on.
func testProgram(ctx context.Context, work, root string, m *mutated) (*program, error) {
	p, err := newProgram(work, filepath.Join(root, filepath.FromSlash(m.pkg)))
	if err != nil {
		return nil, err
	}
	if p.binary, err = (overlay.Builder{Root: root}).Test(ctx, p.temporary, "./"+m.pkg, m.changes); err != nil {
		return nil, err
	}
	p.args = []string{"-test.failfast", "-test.skip=Allocat"} // what the switches allocate is not the code's
	list, err := exec.CommandContext(ctx, p.binary, "-test.list", "^$", "-rapid.seed=1").CombinedOutput()
	if err == nil { // the tests draw with rapid: always the same, and what fails is not made smaller
		p.args = append(p.args, "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s")
	} else if !bytes.Contains(list, []byte("flag provided but not defined")) {
		return nil, fmt.Errorf("the tests of %s cannot be listed: %w\n%s", m.pkg, err, list)
	}
	return p, p.measure(ctx, m.pkg)
}

// simulate builds the simulator with the mutants of all packages that it uses.
func simulate(ctx context.Context, work string, o options, all []*mutated) (p *program, covered map[string]bool, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{if .Module}}{{.Module.Path}} {{.ImportPath}}{{end}}", simulatorProgram)
	cmd.Dir = o.root
	list, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list -deps %s: %w", simulatorProgram, err)
	}
	covered, changes := map[string]bool{}, overlay.Changes{}
	for _, l := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		module, path, _ := strings.Cut(l, " ")
		pkg := strings.TrimPrefix(path, module+"/")
		for _, m := range all {
			if m.pkg == pkg {
				covered[pkg] = true
				maps.Copy(changes, m.changes)
			}
		}
	}
	if p, err = newProgram(work, o.root); err != nil {
		return nil, nil, err
	}
	if p.binary, err = (overlay.Builder{Root: o.root}).Main(ctx, p.temporary, simulatorProgram, changes); err != nil {
		return nil, nil, err
	}
	p.args = []string{"-from", "1", "-seeds", fmt.Sprint(o.simulator), "-stop"}
	return p, covered, p.measure(ctx, "the simulator")
}

func newProgram(work, dir string) (*program, error) {
	temporary, err := os.MkdirTemp(work, "")
	return &program{dir: dir, temporary: temporary, limit: 10 * time.Minute, cpu: 600}, err
}

// measure runs the program without a mutant: it must be green, and one that takes much longer than this hangs.
func (p *program) measure(ctx context.Context, what string) error {
	began := time.Now()
	e, err := p.run(ctx, 0)
	if err == nil && (e.red || e.hung) {
		err = fmt.Errorf("%s: without a mutant it is red already\n%s", what, e.output)
	}
	p.limit = 10*time.Second + 10*time.Since(began)
	p.cpu = int(math.Ceil((time.Second + 3*e.cpu).Seconds()))
	return err
}

// end is how a program ended.
type end struct {
	red, hung bool
	output    string
	cpu       time.Duration
}

// killed says that a signal ended the program, as the kernel does when its processor time is used up. The time that it is told to have taken may be a little less.
func killed(state *os.ProcessState) bool {
	if state == nil {
		return false
	}
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// run runs the program with a mutant on. A mutant that asks for more and more memory ends as red.
func (p *program) run(ctx context.Context, number int) (end, error) {
	const most = 8_000_000 // KiB of address space
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	limits := fmt.Sprintf("ulimit -v %d; ulimit -t %d; exec \"$@\"", most, p.cpu)
	cmd := exec.CommandContext(limited, "sh", append([]string{"-c", limits, "sh", p.binary}, p.args...)...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", switchVariable, number), "CLUSTERMIRROR_KAFKA=off", "TMPDIR="+p.temporary, "GOTRACEBACK=none")
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	e := end{output: out.String()}
	if cmd.ProcessState != nil {
		e.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return end{}, context.Cause(ctx)
	case limited.Err() != nil || killed(cmd.ProcessState):
		e.hung = true
	case errors.As(err, &exit):
		e.red = true
	case err != nil:
		return end{}, fmt.Errorf("%s cannot be run: %w", p.binary, err)
	}
	return e, nil
}
