package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// order is the order of the parts.
var order = []string{"sim", "chaos", "fuzz", "mutants", "bugs"}

// timed says whether a part takes the time that it is given: it has a share of it. The others are done when they are done, and have a bound of their own.
func timed(part string) bool { return part != "bugs" }

// bugsBound is how long the known bugs may take, many times what they take on two cores.
const bugsBound = time.Hour

// parts are what runs. Each returns when its time is over, when it is done, or when ctx ends.
var parts = map[string]func(ctx context.Context, r *run) error{
	"sim": func(ctx context.Context, r *run) error {
		err := r.command(ctx, "go", "run", "./internal/simulator/simulate", fmt.Sprintf("-from=%d", r.seed), "-seeds=0", fmt.Sprintf("-for=%v", r.long))
		for _, mark := range []string{"seeds:", "failovers:", "violations:"} {
			err = errors.Join(err, r.sum(mark))
		}
		return err
	},
	"chaos": func(ctx context.Context, r *run) error {
		err := r.command(ctx, "go", "test", "./internal/chaos", "-count=1", "-v", "-run=^TestChaos$", fmt.Sprintf("-timeout=%v", r.long+30*time.Minute), fmt.Sprintf("-chaos.for=%v", r.long),
			fmt.Sprintf("-chaos.seed=%d", r.seed))
		return errors.Join(err, r.sum("violations:"))
	},
	"fuzz": func(ctx context.Context, r *run) error {
		err := r.command(ctx, "go", "run", "./internal/fuzzrun", fmt.Sprintf("-for=%v", r.long))
		return errors.Join(err, r.last())
	},
	"mutants": func(ctx context.Context, r *run) error {
		err := r.command(ctx, "go", "run", "./internal/mutate", fmt.Sprintf("-for=%v", r.long), fmt.Sprintf("-seed=%d", r.seed))
		return errors.Join(err, r.last())
	},
	"bugs": func(ctx context.Context, r *run) error {
		r.long = bugsBound
		err := r.bounded(ctx, "go", "run", "./internal/simulator/seeded")
		return errors.Join(err, r.last())
	},
}

// bounded runs a command that ends by itself, for as long as there is time.
func (r *run) bounded(ctx context.Context, name string, args ...string) error {
	ctx, stop := context.WithDeadlineCause(ctx, r.began.Add(r.long), errors.New("the time was over before it was done"))
	defer stop()
	err := r.command(ctx, name, args...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// isCommand says whether a folder of this module is there, so that a part that is missing says so in one line.
func isCommand(args []string) error {
	for _, a := range args {
		if !strings.HasPrefix(a, "./") {
			continue
		}
		if _, err := os.Stat(a); err != nil {
			return fmt.Errorf("%s is not in this module, or this is not its root folder: %w", a, err)
		}
	}
	return nil
}

// start prepares a command that is ended as a whole, with what it has started itself.
func start(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	endAsGroup(cmd)
	return cmd
}
