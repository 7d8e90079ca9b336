package simulator

import (
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/simulator/model"
)

// shrinkBudget is how many scripts Shrink plays at most.
const shrinkBudget = 2000

// Shrink makes a script shorter as long as it still breaks the rule: it takes ops out (delta debugging), then makes their words simpler. The same script gives the same
// result. It plays at most 2,000 scripts.
func Shrink(s Script, rule string) Script {
	return shrinkWith(s, rule, func() func(op string) *model.Violation { return nil })
}

// shrinkWith shrinks under a model that has an objector of its own for each run.
func shrinkWith(s Script, rule string, objector func() func(op string) *model.Violation) Script {
	left := shrinkBudget
	breaks := func(t Script) bool {
		if left <= 0 {
			return false
		}
		left--
		o := play(t, false, objector())
		return o.Violation != nil && o.Violation.Rule == rule
	}
	if o := play(s, false, objector()); o.Violation != nil && o.Step >= 0 && o.Step < len(s.Ops) {
		s.Ops = s.Ops[:o.Step+1]
	}
	for again := true; again && left > 0; {
		again = false
		for n := max(1, len(s.Ops)/2); ; n /= 2 {
			for at := 0; at < len(s.Ops); {
				t := s
				t.Ops = slices.Concat(s.Ops[:at], s.Ops[min(at+n, len(s.Ops)):])
				if breaks(t) {
					s, again = t, true
				} else {
					at += n
				}
			}
			if n <= 1 {
				break
			}
		}
		for i := range s.Ops {
			for _, simpler := range simplify(s.Ops[i]) {
				t := s
				t.Ops = slices.Clone(s.Ops)
				t.Ops[i] = simpler
				if breaks(t) {
					s, again = t, true
					break
				}
			}
		}
	}
	for _, simpler := range []func(*Config){
		func(c *Config) { c.Partitions = 1 }, func(c *Config) { c.Recovers = "no" }, func(c *Config) { c.Piece = 0 }, func(c *Config) { c.Bumps = 0 }, func(c *Config) { c.Closes = false },
		func(c *Config) { c.Floor = 0 }, func(c *Config) { c.Loss = 0 }, func(c *Config) { c.Reply = 4 }, func(c *Config) { c.Blind = false }, func(c *Config) { c.Seed = 1 },
	} {
		t := s
		simpler(&t.Config)
		if t.Config != s.Config && breaks(t) {
			s = t
		}
	}
	return s
}

// simplify proposes simpler ops, the simplest first.
func simplify(op string) []string {
	var list []string
	f := strings.Fields(op)
	for i := len(f) - 1; i >= 1; i-- {
		if strings.Contains(f[i], "=") || i == len(f)-1 && i >= 3 {
			list = append(list, strings.Join(slices.Concat(f[:i], f[i+1:]), " "))
		}
	}
	switch f[0] {
	case "run":
		for _, d := range []string{"1ms", "10ms", "100ms", "1s"} {
			if len(f) == 2 && f[1] != d {
				list = append(list, "run "+d)
			}
		}
	case "step":
		if len(f) == 2 && f[1] != "1" {
			list = append(list, "step 1")
		}
	}
	return list
}
