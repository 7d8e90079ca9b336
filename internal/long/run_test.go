package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFiguresAreSummed: figures of several commands are one row.
func TestFiguresAreSummed(t *testing.T) {
	var out bytes.Buffer
	r := &run{name: "sim", long: time.Minute, out: &out, began: time.Now()}
	for _, line := range []string{"simulated hours: 1.5, faults: 7, violations: 0", "simulated hours: 2, faults: 3, violations: 1"} {
		if err := r.command(t.Context(), "sh", "-c", "echo first; echo '"+line+"'; echo last"); err != nil {
			t.Fatal(err)
		}
		if err := r.sum("violations:"); err != nil {
			t.Error(err)
		}
	}
	if row := r.row(nil); !strings.Contains(row, "| simulated hours: 3.5, faults: 10, violations: 1 |") || !strings.HasPrefix(row, "| sim |") {
		t.Errorf("the row is %s", row)
	}
	if strings.Count(out.String(), "first\n") != 2 {
		t.Errorf("output was not shown: %s", &out)
	}
}

// TestAFailedPartSaysSo: the row of a part that failed, or that is not there, names it.
func TestAFailedPartSaysSo(t *testing.T) {
	r := &run{name: "bugs", out: new(bytes.Buffer), began: time.Now()}
	err := r.command(t.Context(), "sh", "-c", "exit 3")
	if row := r.row(err); err == nil || !strings.Contains(row, "FAILED: exit status 3") {
		t.Errorf("the row is %s", row)
	}
	if err := r.command(t.Context(), "go", "run", "./nowhere"); err == nil || !strings.Contains(err.Error(), "./nowhere is not in this module") {
		t.Errorf("a part that is not there: %v", err)
	}
}

// TestAPartThatShowedNothingFailed: a run whose test was skipped ends well, and there are no figures.
func TestAPartThatShowedNothingFailed(t *testing.T) {
	r := &run{name: "chaos", out: new(bytes.Buffer), began: time.Now()}
	if err := r.command(t.Context(), "sh", "-c", "echo '--- SKIP: TestChaos'; echo ok"); err != nil {
		t.Fatal(err)
	}
	if err := r.sum("violations:"); err == nil || !strings.Contains(r.row(err), `FAILED: it printed no "violations:"`) {
		t.Errorf("the row is %s", r.row(err))
	}
	if err := r.command(t.Context(), "true"); err != nil {
		t.Fatal(err)
	}
	if err := r.last(); err == nil {
		t.Error("a command that printed nothing has figures")
	}
}

// TestInterruptEndsWhatWasStarted: a command's own child is gone when the command returns.
func TestInterruptEndsWhatWasStarted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := filepath.Join(t.TempDir(), "began")
	r := &run{name: "chaos", out: new(bytes.Buffer), began: time.Now()}
	ended := make(chan error, 1)
	go func() {
		ended <- r.command(ctx, "sh", "-c", "sh -c 'trap \"echo child ends; exit\" INT; echo > "+began+"; while :; do sleep 0.05; done'")
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		if _, err := os.Stat(began); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the command did not begin")
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the command ended with %v", err)
	}
	if !strings.Contains(r.out.(*bytes.Buffer).String(), "child ends") {
		t.Errorf("the child was not told: %s", r.out)
	}
}

// TestTimeBoundsAPart: a command that does not end is ended.
func TestTimeBoundsAPart(t *testing.T) {
	r := &run{name: "mutants", long: 50 * time.Millisecond, out: new(bytes.Buffer), began: time.Now()}
	if err := r.bounded(t.Context(), "sleep", "600"); err == nil || !strings.Contains(err.Error(), "the time was over") {
		t.Errorf("it ended with %v", err)
	}
}

// TestEveryPartRuns: the parts and their order are the same set.
func TestEveryPartRuns(t *testing.T) {
	if len(order) != len(parts) {
		t.Errorf("%d parts in order, %d that run", len(order), len(parts))
	}
	for _, name := range order {
		if parts[name] == nil {
			t.Errorf("%s does not run", name)
		}
	}
}

// TestAShareIsForThoseThatTakeTime: the known bugs take no share, and no share bounds them.
func TestAShareIsForThoseThatTakeTime(t *testing.T) {
	if got := each(40 * time.Minute); got != 10*time.Minute {
		t.Errorf("each of the four that share has %v", got)
	}
}
