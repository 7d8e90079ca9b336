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

// Hunt looks for bugs that patches put into the module, with a command that plays seeds: "-from N -seeds N", with "-stop" no further than the first that goes wrong; a line "seed N step K: RULE (SOURCE): what"
// for a violation, "seed N step K: the simulator is wrong: what" where it contradicted itself; exit 1 after either.
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

// Answer is what a range of seeds showed. The zero Answer: all of its seeds were played, and nothing was wrong.
type Answer struct {
	Seeds        int      // needed until a rule was broken; 0: none was
	Rule, Source string   // the rule. Without Seeds: what ended the range without one, a program that crashed or a command that contradicted itself, which proves nothing
	Line         string   // the command's
	Lines        []string // of all seeds that went wrong, if the range was played to its end
}

// Besides says whether a rule is broken in range i, and none of bases, the module as it is and changes that do no harm, shows anything in that range: a change that does no harm moves the alarms of the
// module to other seeds, so beside one of them nothing can be said to be the bug's.
func (f Found) Besides(i int, bases ...Found) bool {
	for _, b := range bases {
		if !b.clean(i) {
			return false
		}
	}
	return len(bases) > 0 && f.Err == nil && i < len(f.Answers) && f.Answers[i].Seeds > 0
}

// None says whether all ranges were played, and nothing was wrong in any.
func (f Found) None() bool {
	for i := range f.Answers {
		if !f.clean(i) {
			return false
		}
	}
	return f.Err == nil && len(f.Answers) > 0
}

func (f Found) clean(i int) bool {
	return f.Err == nil && i < len(f.Answers) && f.Answers[i].Rule == ""
}

// Run tries patches, two at a time, and returns what was found in their order; a nil patch stands for the module as it is. Each is told as soon as it is known, if tell is not nil; never two at once.
// When ctx ends, what is not known by then has its cause as Err and is not told.
// With whole each range is played to its end, whatever is wrong on the way.
func (h Hunt) Run(ctx context.Context, whole bool, patches []*Patch, tell func(Found)) []Found {
	all := make([]Found, len(patches))
	var wg sync.WaitGroup
	var telling sync.Mutex
	slots := make(chan struct{}, 2)
	for i, p := range patches {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if all[i] = h.one(ctx, whole, p); ctx.Err() != nil {
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

func (h Hunt) one(ctx context.Context, whole bool, p *Patch) Found {
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
		a, err := h.play(ctx, binary, from, whole)
		if err != nil {
			f.Err = err
			return f
		}
		f.Answers = append(f.Answers, a)
	}
	return f
}

var (
	violation = regexp.MustCompile(`(?m)^seed (\d+) step -?\d+: (?:(` + wrong + `): |([^(\n]+) \(([^\n]*?)\): ).*$`)
	crash     = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*$`)
)

// wrong is what the command says of itself, in the place of a rule.
const wrong = "the simulator is wrong"

func (h Hunt) play(ctx context.Context, binary string, from uint64, whole bool) (Answer, error) {
	cmd := exec.CommandContext(ctx, binary, "-from", fmt.Sprint(from), "-seeds", fmt.Sprint(h.Seeds), fmt.Sprintf("-stop=%v", !whole))
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
	if line := crash.FindString(out.String()); line != "" {
		return Answer{Rule: "panic", Line: line}, nil
	}
	all := violation.FindAllStringSubmatch(out.String(), -1)
	if len(all) == 0 {
		text := strings.TrimSpace(out.String())
		return Answer{}, fmt.Errorf("%s from seed %d ended without a violation: %w\n%s", h.Command, from, err, cmp.Or(text[max(0, len(text)-2000):], "without output"))
	}
	first := all[0]
	seed, bad := strconv.ParseUint(first[1], 10, 64)
	if bad != nil || seed < from || seed >= from+uint64(h.Seeds) {
		return Answer{}, fmt.Errorf("%s speaks of a seed that it was not asked for: %s", h.Command, first[0])
	}
	a := Answer{Seeds: int(seed-from) + 1, Rule: first[3], Source: first[4], Line: first[0]}
	if first[2] != "" {
		a = Answer{Rule: wrong, Line: first[0]}
	}
	for _, m := range all {
		a.Lines = append(a.Lines, m[0])
	}
	return a, nil
}
