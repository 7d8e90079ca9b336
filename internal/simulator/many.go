package simulator

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Options say what Run plays.
type Options struct {
	From  uint64        // first seed
	Seeds int           // how many, one after the other; 0: until For has passed
	For   time.Duration // no seed is begun after it; 0: all seeds are played
	Stop  bool          // at the first violation
}

// Result is what Run has seen.
type Result struct {
	Seeds      int
	Stats      Stats
	Violations int
	Wrong      int // runs in which the simulator contradicted itself
	First      *Failure
}

// Failure is a seed that went wrong.
type Failure struct {
	Seed    uint64
	Outcome Outcome
}

// String is one line: seed N step K: RULE (SOURCE): what.
func (f Failure) String() string {
	if f.Outcome.Err != nil {
		return fmt.Sprintf("seed %d step %d: the simulator is wrong: %v", f.Seed, f.Outcome.Step, f.Outcome.Err)
	}
	if f.Outcome.Violation == nil {
		return fmt.Sprintf("seed %d: nothing is wrong", f.Seed)
	}
	return fmt.Sprintf("seed %d step %d: %v", f.Seed, f.Outcome.Step, f.Outcome.Violation)
}

// Run plays seeds, so many at a time as there are processors; each run is single-threaded. What a seed does depends on nothing but the seed.
func Run(o Options, tell func(Failure)) Result {
	var mu sync.Mutex
	var res Result
	next, stop := 0, false
	began := time.Now()
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if stop || o.Seeds > 0 && next >= o.Seeds || o.For > 0 && time.Since(began) > o.For || o.Seeds == 0 && o.For == 0 {
			return 0, false
		}
		next++
		return o.From + uint64(next-1), true
	}
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				seed, ok := take()
				if !ok {
					return
				}
				out := Seed(seed, false)
				mu.Lock()
				res.Seeds++
				res.Stats.Add(&out.Stats)
				if out.Violation != nil || out.Err != nil {
					if out.Violation != nil {
						res.Violations++
					} else {
						res.Wrong++
					}
					f := Failure{seed, out}
					if res.First == nil || seed < res.First.Seed {
						res.First = &f
					}
					stop = stop || o.Stop
					if tell != nil {
						tell(f)
					}
				}
				mu.Unlock()
			}
		}()
	}
	all.Wait()
	return res
}

// Summary is the lines that end a report: counts, and last hours, faults and violations.
func (r Result) Summary() string {
	s := &r.Stats
	var b strings.Builder
	fmt.Fprintf(&b, "seeds: %d, ops: %d, events: %d\n", r.Seeds, s.Ops, s.Events)
	fmt.Fprintf(&b, "stopping episodes: %d, preparing episodes: %d, failovers: %d, failbacks: %d\n", s.Stoppings, s.Preparings, s.Failovers, s.Failbacks)
	fmt.Fprintf(&b, "clients' histories judged: %d, given up: %d, records read: %d\n", s.Judged, s.Unjudged, s.Reads)
	if r.Wrong > 0 {
		fmt.Fprintf(&b, "runs in which the simulator contradicted itself: %d\n", r.Wrong)
	}
	fmt.Fprintf(&b, "answers and other consequences of faults: %d\n", s.Answers)
	fmt.Fprintf(&b, "simulated hours: %.0f, faults: %d, violations: %d\n", s.Simulated, s.Faults, r.Violations)
	return b.String()
}
