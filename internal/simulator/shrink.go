package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/simulator/model"
)

const (
	shrinkBudget = 5000 // scripts that Shrink plays at most
	pairsUpTo    = 40   // ops of a script from which two at once are taken out: that takes the square of it
)

// Shrink makes a script shorter as long as it still breaks the rule: it takes ops out (delta debugging, then any two), joins runs, makes the words of ops simpler and sets words of the header back, again and
// again until nothing of that can be done. The same script gives the same result, and the result gives itself. It plays at most 5,000 scripts.
func Shrink(s Script, rule string) Script {
	return shrinkWith(s, rule, func() func(op string) *model.Violation { return nil })
}

// shrinkWith shrinks under a model that has an objector of its own for each run.
func shrinkWith(s Script, rule string, objector func() func(op string) *model.Violation) Script {
	k := shrinker{rule: rule, objector: objector, left: shrinkBudget}
	if o := play(s, false, objector()); o.Violation != nil && o.Step >= 0 && o.Step < len(s.Ops) {
		s.Ops = s.Ops[:o.Step+1]
	}
	for {
		before := s.String()
		s = k.header(k.simpler(k.joined(k.fewer(s))))
		if s.String() == before {
			s = k.pairs(s)
		}
		if s.String() == before || k.left <= 0 {
			return s
		}
	}
}

// shrinker tries scripts.
type shrinker struct {
	rule     string
	objector func() func(op string) *model.Violation
	left     int // scripts that may still be played
}

func (k *shrinker) breaks(t Script) bool {
	if k.left <= 0 {
		return false
	}
	k.left--
	o := play(t, false, k.objector())
	return o.Violation != nil && o.Violation.Rule == k.rule
}

// fewer takes out ops that stand together, many first.
func (k *shrinker) fewer(s Script) Script {
	for n := max(1, len(s.Ops)/2); ; n /= 2 {
		for at := 0; at < len(s.Ops); {
			t := s
			t.Ops = slices.Concat(s.Ops[:at], s.Ops[min(at+n, len(s.Ops)):])
			if k.breaks(t) {
				s = t
			} else {
				at += n
			}
		}
		if n <= 1 {
			return s
		}
	}
}

// pairs takes out two ops at once, of which one undoes the other.
func (k *shrinker) pairs(s Script) Script {
	if len(s.Ops) > pairsUpTo {
		return s
	}
	for i := 0; i < len(s.Ops); i++ {
		for j := i + 1; j < len(s.Ops); j++ {
			t := s
			t.Ops = slices.Concat(s.Ops[:i], s.Ops[i+1:j], s.Ops[j+1:])
			if k.breaks(t) {
				s, j = t, i
			}
		}
	}
	return s
}

// joined makes one run of two that stand together.
func (k *shrinker) joined(s Script) Script {
	for i := 0; i+1 < len(s.Ops); {
		first, one := runs(s.Ops[i])
		second, other := runs(s.Ops[i+1])
		t := s
		if one && other {
			t.Ops = slices.Concat(s.Ops[:i], []string{fmt.Sprintf("run %v", first+second)}, s.Ops[i+2:])
		}
		if one && other && k.breaks(t) {
			s = t
		} else {
			i++
		}
	}
	return s
}

// simpler makes the words of ops simpler, one op after the other.
func (k *shrinker) simpler(s Script) Script {
	for i := range s.Ops {
		for _, op := range simplify(s.Ops[i]) {
			t := s
			t.Ops = slices.Clone(s.Ops)
			t.Ops[i] = op
			if k.breaks(t) {
				s = t
				break
			}
		}
	}
	return s
}

// header leaves one partition, and sets each word of the header to what it is if nobody names it.
func (k *shrinker) header(s Script) Script {
	if s.Config.Partitions > 1 {
		for _, only := range []string{"0", "1"} {
			t := Script{Config: s.Config}
			t.Config.Partitions = 1
			for _, op := range s.Ops {
				if f := strings.Fields(op); len(f) > 2 && f[2] == only {
					f[2] = "0"
					op = strings.Join(f, " ")
				}
				t.Ops = append(t.Ops, strings.ReplaceAll(op, "orders-"+only, "orders-0"))
			}
			if k.breaks(t) {
				s = t
				break
			}
		}
	}
	plain, err := parseConfig("")
	if err != nil {
		return s
	}
	words := strings.Fields(plain.String())
	for i := range words {
		if strings.HasPrefix(words[i], "seed=") {
			continue
		}
		has := strings.Fields(s.Config.String())
		if has[i] == words[i] {
			continue
		}
		has[i] = words[i]
		t := s
		if t.Config, err = parseConfig(strings.Join(has, " ")); err == nil && k.breaks(t) {
			s = t
		}
	}
	for seed := uint64(1); seed <= 5 && seed < s.Config.Seed; seed++ {
		t := s
		t.Config.Seed = seed
		if k.breaks(t) {
			return t
		}
	}
	return s
}

// runs reads an op that lets time pass.
func runs(op string) (time.Duration, bool) {
	f := strings.Fields(op)
	if len(f) != 2 || f[0] != "run" {
		return 0, false
	}
	d, err := time.ParseDuration(f[1])
	return d, err == nil
}

// plainly are lengths of runs, the simplest first.
var plainly = []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}

// simplify proposes simpler ops, the simplest first.
func simplify(op string) []string {
	var list []string
	f := strings.Fields(op)
	for i := len(f) - 1; i >= 1; i-- {
		if strings.Contains(f[i], "=") || i == len(f)-1 && i >= 3 {
			list = append(list, strings.Join(slices.Concat(f[:i], f[i+1:]), " "))
		}
	}
	if d, ok := runs(op); ok {
		for _, plain := range plainly {
			if plain == d {
				break
			}
			list = append(list, fmt.Sprintf("run %v", plain))
		}
	}
	if f[0] == "step" && len(f) == 2 && f[1] != "1" {
		list = append(list, "step 1")
	}
	return list
}
