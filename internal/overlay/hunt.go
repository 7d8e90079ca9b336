package overlay

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Hunt looks for bugs that patches put into the module, with a command that plays seeds: "-from N -seeds N -stop", a line "seed N step K: RULE (SOURCE): what" for a violation, exit 1 after one.
type Hunt struct {
	Builder
	Command string   // "./internal/simulator/simulate"
	From    []uint64 // the first seed of each range
	Seeds   int      // of each range
}

// Found is what became of one patch, or of the module as it is if Patch is nil.
type Found struct {
	Patch   *Patch
	Answers []Answer // one for each range; none after Err
	Err     error    // the patch does not apply or does not compile, or the command did not do what it should
}

// Answer is the first violation in a range of seeds. Seeds is 0 if there is none. A program that crashed has the rule "panic"; nobody knows then how many seeds it took.
type Answer struct {
	Seeds        int // needed
	Rule, Source string
	Line         string // the command's
}

// All says whether each range has a violation.
func (f Found) All() bool {
	for _, a := range f.Answers {
		if a.Rule == "" {
			return false
		}
	}
	return f.Err == nil && len(f.Answers) > 0
}

// Besides says whether each range has a violation, and base, the module as it is, has none in any of them: a change that does no harm moves the alarms of the module to other seeds, so beside one of them
// nothing can be said to be the bug's.
func (f Found) Besides(base Found) bool {
	return base.None() && len(base.Answers) == len(f.Answers) && f.All()
}

// None says whether all ranges were played and no range has a violation.
func (f Found) None() bool {
	for _, a := range f.Answers {
		if a.Rule != "" {
			return false
		}
	}
	return f.Err == nil && len(f.Answers) > 0
}

// Run tries patches, two at a time, and returns what was found in their order; a nil patch stands for the module as it is. Each is told as soon as it is known, if tell is not nil; never two at once.
// When ctx ends, what is not known by then has its cause as Err and is not told.
func (h Hunt) Run(ctx context.Context, patches []*Patch, tell func(Found)) []Found {
	all := make([]Found, len(patches))
	var wg sync.WaitGroup
	var telling sync.Mutex
	slots := make(chan struct{}, 2)
	for i, p := range patches {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if all[i] = h.one(ctx, p); ctx.Err() != nil {
				all[i] = Found{Patch: p, Err: context.Cause(ctx)}
			} else if tell != nil {
				telling.Lock()
				defer telling.Unlock()
				tell(all[i])
			}
		})
	}
	wg.Wait()
	return all
}

func (h Hunt) one(ctx context.Context, p *Patch) Found {
	f := Found{Patch: p}
	changes := Changes{}
	if p != nil {
		if changes, f.Err = Patched(h.Root, p); f.Err != nil {
			return f
		}
	}
	dir, err := os.MkdirTemp("", "hunt-")
	if err != nil {
		f.Err = err
		return f
	}
	defer os.RemoveAll(dir)
	binary, err := h.Main(ctx, dir, h.Command, changes)
	if err != nil {
		f.Err = err
		return f
	}
	for _, from := range h.From {
		a, err := h.play(ctx, binary, from)
		if err != nil {
			f.Err = err
			return f
		}
		f.Answers = append(f.Answers, a)
	}
	return f
}

var (
	violation = regexp.MustCompile(`(?m)^seed (\d+) step \d+: ([^(\n]+) \(([^\n]*?)\): .*$`)
	crash     = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*$`)
)

func (h Hunt) play(ctx context.Context, binary string, from uint64) (Answer, error) {
	cmd := exec.CommandContext(ctx, binary, "-from", fmt.Sprint(from), "-seeds", fmt.Sprint(h.Seeds), "-stop")
	cmd.Dir = h.Root
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // one seed after the other: the first that is found is the first that there is
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return Answer{}, nil
	}
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	if m := violation.FindStringSubmatch(out.String()); m != nil {
		seed, bad := strconv.ParseUint(m[1], 10, 64)
		if bad != nil || seed < from || seed >= from+uint64(h.Seeds) {
			return Answer{}, fmt.Errorf("%s speaks of a seed that it was not asked for: %s", h.Command, m[0])
		}
		return Answer{Seeds: int(seed-from) + 1, Rule: m[2], Source: m[3], Line: m[0]}, nil
	}
	if line := crash.FindString(out.String()); line != "" {
		return Answer{Rule: "panic", Line: line}, nil
	}
	text := strings.TrimSpace(out.String())
	return Answer{}, fmt.Errorf("%s from seed %d ended without a violation: %w\n%s", h.Command, from, err, cmp.Or(text[max(0, len(text)-2000):], "without output"))
}
