package runbook

import (
	"fmt"
	"strings"
)

// step is a command of a page with what it prints, or a directive.
type step struct {
	line      int    // of the page, from 1: where it begins
	command   string // "" for a directive
	directive string
	body      []string // of a directive of several lines
	want      []string // what the page says that the command prints
	from, to  int      // lines [from,to) of the page are want
}

// elision stands for any lines.
const elision = "…"

// parse finds the steps of a page.
func parse(lines []string) (steps []step, err error) {
	const begins, ends = "<!-- test:", "-->"
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		switch {
		case strings.HasPrefix(line, begins):
			s := step{line: i + 1}
			rest := strings.TrimPrefix(line, begins)
			for !strings.HasSuffix(strings.TrimSpace(rest), ends) {
				if s.directive == "" {
					s.directive = strings.TrimSpace(rest)
				} else {
					s.body = append(s.body, rest)
				}
				if i++; i == len(lines) {
					return nil, fmt.Errorf("line %d: the comment does not end", s.line)
				}
				rest = lines[i]
			}
			if last := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), ends)); s.directive == "" {
				s.directive = last
			} else if last != "" {
				s.body = append(s.body, last)
			}
			steps = append(steps, s)
		case line == "```console":
			begun := i + 1
			for i++; ; i++ {
				if i == len(lines) {
					return nil, fmt.Errorf("line %d: the block does not end", begun)
				}
				if lines[i] == "```" {
					break
				}
				command, is := strings.CutPrefix(lines[i], "$ ")
				if !is {
					if len(steps) == 0 || steps[len(steps)-1].line < begun {
						return nil, fmt.Errorf("line %d: a console block begins with a command", i+1)
					}
					s := &steps[len(steps)-1]
					s.want, s.to = append(s.want, lines[i]), i+1
					continue
				}
				s := step{line: i + 1}
				for strings.HasSuffix(command, `\`) && i+1 < len(lines) {
					i++
					command = strings.TrimSuffix(command, `\`) + strings.TrimSpace(lines[i])
				}
				s.command, s.from, s.to = command, i+1, i+1
				steps = append(steps, s)
			}
		case strings.HasPrefix(line, "```"):
			for i++; i < len(lines) && lines[i] != "```"; i++ {
			}
		}
	}
	return steps, nil
}

// shows says whether a printed text is what a page wants, both masked: the parts between elisions are there as they stand, in order, the first one at the beginning and the last one at the end.
// An exit status is never elided. With open more may follow: the command goes on.
func shows(want []string, printed string, open bool) bool {
	var got []string
	if text := strings.TrimRight(printed, "\n"); text != "" {
		got = strings.Split(text, "\n")
	}
	var wanted, was string
	wanted, want = exitOf(want)
	if was, got = exitOf(got); wanted != was {
		return false
	}
	var parts [][]string
	part := []string{}
	for _, line := range want {
		if strings.TrimSpace(line) == elision {
			parts, part = append(parts, part), []string{}
			continue
		}
		part = append(part, line)
	}
	parts = append(parts, part)
	for i, part := range parts {
		last := i == len(parts)-1
		if last && !open {
			if i == 0 {
				return len(part) == len(got) && begins(got, part)
			}
			return len(got) >= len(part) && begins(got[len(got)-len(part):], part)
		}
		at := indexOf(got, part)
		if at < 0 || i == 0 && at > 0 && len(part) > 0 {
			return false
		}
		got = got[at+len(part):]
	}
	return true
}

// exitOf takes the exit status off the end of lines, "" if there is none.
func exitOf(lines []string) (string, []string) {
	if n := len(lines); n > 0 && status.MatchString(lines[n-1]) {
		return lines[n-1], lines[:n-1]
	}
	return "", lines
}

// indexOf is where part begins in all, −1 if nowhere.
func indexOf(all, part []string) int {
	for i := 0; i+len(part) <= len(all); i++ {
		if begins(all[i:], part) {
			return i
		}
	}
	return -1
}

// begins says whether the first lines are those of a part.
func begins(lines, part []string) bool {
	for i, want := range part {
		if !same(want, lines[i]) {
			return false
		}
	}
	return true
}

// same compares two lines. An elision inside of a page's line stands for any words.
func same(want, got string) bool {
	want, got = strings.TrimSpace(masked(want)), strings.TrimSpace(masked(got))
	parts := strings.Split(want, elision)
	if len(parts) == 1 || want == elision {
		return want == got
	}
	rest, ok := strings.CutPrefix(got, parts[0])
	if !ok || !strings.HasSuffix(rest, parts[len(parts)-1]) {
		return false
	}
	for _, part := range parts[1:] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// rewritten is a page whose steps print something else now. Lines that are only masked differently stay as they are.
func rewritten(lines []string, steps []step, printed map[int]string) []string {
	var out []string
	at := 0
	for _, s := range steps {
		text, changed := printed[s.line]
		if !changed {
			continue
		}
		out = append(out, lines[at:s.from]...)
		for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
			if line == "" && text == "" {
				continue
			}
			if i < len(s.want) && same(s.want[i], line) {
				line = s.want[i]
			}
			out = append(out, strings.TrimRight(line, " "))
		}
		at = s.to
	}
	return append(out, lines[at:]...)
}
