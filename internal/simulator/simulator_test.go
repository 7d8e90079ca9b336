package simulator

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/simulator/model"
)

// keptSeeds are the seeds of testdata/seeds.txt: a first seed and how many, one line for each range.
func keptSeeds(t *testing.T) (ranges []Options) {
	t.Helper()
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var o Options
		if strings.HasPrefix(lines.Text(), "#") || lines.Text() == "" {
			continue
		}
		if _, err := fmt.Sscan(lines.Text(), &o.From, &o.Seeds); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		ranges = append(ranges, o)
	}
	return ranges
}

// TestSeeds plays the kept seeds and some fresh ones. It fails on a violation, and when too little happened: faults, failovers, failbacks, or cells of the coverage tables.
// With -short it is a tenth.
func TestSeeds(t *testing.T) {
	part := 1
	if testing.Short() {
		part = 10
	}
	ranges := append(keptSeeds(t), Options{From: uint64(time.Now().UnixNano()) >> 10, Seeds: 50})
	var all Result
	for _, o := range ranges {
		o.Seeds = max(1, o.Seeds/part)
		t.Logf("seed: %d to %d", o.From, o.From+uint64(o.Seeds)-1)
		res := Run(o, func(f Failure) {
			t.Errorf("%v\nreplay: go run ./internal/simulator/simulate -seed %d -v; shortest script: go run ./internal/simulator/simulate -seed %d -shrink", f, f.Seed, f.Seed)
		})
		all.Seeds += res.Seeds
		all.Violations += res.Violations
		all.Wrong += res.Wrong
		all.Stats.Add(&res.Stats)
	}
	s := &all.Stats
	if s.Faults < 100_000/part || s.Failovers < 20_000/part || s.Failbacks < 5_000/part {
		t.Errorf("too little happened: %d faults, %d failovers, %d failbacks", s.Faults, s.Failovers, s.Failbacks)
	}
	if part == 1 {
		for _, cell := range s.Uncovered() {
			t.Error(cell)
		}
	}
	for line := range strings.Lines(s.Table() + all.Summary()) {
		t.Log("table: " + strings.TrimRight(line, "\n"))
	}
}

// TestAScriptIsItsSeed: the ops that were chosen replay to the byte without the adversary.
func TestAScriptIsItsSeed(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a := Seed(seed, true)
		s, err := ParseScript(a.Script.String())
		if err != nil {
			t.Fatal(err)
		}
		if b := Play(s, true); a.Transcript != b.Transcript {
			t.Fatalf("seed %d: its script plays another run", seed)
		}
	}
}

// TestTranscriptsAreTheSameInEveryProcess plays 20 seeds in two processes with one and with two processors, and compares the transcripts.
func TestTranscriptsAreTheSameInEveryProcess(t *testing.T) {
	const child = "CLUSTERMIRROR_SIMULATOR_CHILD"
	if os.Getenv(child) != "" {
		sum := sha256.New()
		for seed := uint64(1); seed <= 20; seed++ {
			fmt.Fprint(sum, Seed(seed, true).Transcript)
		}
		fmt.Printf("transcripts %x\n", sum.Sum(nil))
		return
	}
	var sums []string
	for _, n := range []int{1, 2} {
		c := exec.Command(os.Args[0], "-test.run=^TestTranscriptsAreTheSameInEveryProcess$", "-test.v")
		c.Env = append(os.Environ(), child+"=1", "GOMAXPROCS="+strconv.Itoa(n))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		_, sum, ok := strings.Cut(string(out), "transcripts ")
		if !ok {
			t.Fatalf("no sum:\n%s", out)
		}
		sums = append(sums, sum[:64])
	}
	if sums[0] != sums[1] {
		t.Fatalf("GOMAXPROCS 1 gives %s, 2 gives %s", sums[0], sums[1])
	}
}

// TestShrink: a model that objects to the second stop that follows a crash. What is left of a long script is what it takes.
func TestShrink(t *testing.T) {
	objects := func() func(op string) *model.Violation {
		crashed, stops := false, 0
		return func(op string) *model.Violation {
			crashed = crashed || strings.HasPrefix(op, "crash")
			if crashed && strings.HasPrefix(op, "stop") {
				stops++
			}
			if stops == 2 {
				return &model.Violation{Rule: "no second stop", Source: "a test", What: op}
			}
			return nil
		}
	}
	for seed := uint64(1); ; seed++ {
		s := Seed(seed, false).Script
		if o := play(s, false, objects()); o.Violation == nil {
			continue
		}
		small := shrinkWith(s, "no second stop", objects)
		if len(small.Ops) != 3 || !strings.HasPrefix(small.Ops[0], "crash") {
			t.Fatalf("seed %d: of %d ops %d are left:\n%v", seed, len(s.Ops), len(small.Ops), small)
		}
		if again := shrinkWith(s, "no second stop", objects); again.String() != small.String() {
			t.Fatal("it is not shrunk in the same way twice")
		}
		if again := shrinkWith(small, "no second stop", objects); again.String() != small.String() {
			t.Fatalf("what was shrunk can be shrunk again:\n%v\n%v", small, again)
		}
		return
	}
}

// TestKeptScripts plays the scripts that once broke a rule; they stand in testdata with what they were about.
func TestKeptScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, file := range files {
		if filepath.Base(file) == "seeds.txt" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseScript(string(text))
		if err != nil {
			t.Fatal(file, err)
		}
		if o := Play(s, false); o.Violation != nil || o.Err != nil {
			t.Errorf("%s: %v", file, Failure{Outcome: o})
		}
		played++
	}
	if played == 0 {
		t.Error("there are no scripts")
	}
}
