package runbook

import (
	"regexp"
	"slices"
	"strings"
)

// names are what a page says and what it stands for in a run.
type names struct {
	pairs [][2]string // page, run; longest page name first when a command is read, longest run name first when something is shown
}

// set says what a name stands for. Of several names for one thing, or things for one name, the one that was set first counts.
func (n *names) set(page, run string) { n.pairs = append(n.pairs, [2]string{page, run}) }

// move lets a name stand for something else from now on.
func (n *names) move(page, run string) {
	n.pairs = slices.DeleteFunc(n.pairs, func(p [2]string) bool { return p[0] == page })
	n.set(page, run)
}

// inRun is a command, or a file, as it is run.
func (n *names) inRun(text string) string {
	return replaced(text, n.pairs, 0, 1)
}

// onPage is what was printed, as the page shows it.
func (n *names) onPage(text string) string {
	return replaced(text, n.pairs, 1, 0)
}

// replaced replaces whole words in one pass, so that nothing is replaced twice. dr in dr.properties is no mirror's name, and a hyphen ends a word: orders-0 is of orders.
func replaced(text string, pairs [][2]string, from, to int) string {
	pairs = slices.Clone(pairs)
	slices.SortStableFunc(pairs, func(a, b [2]string) int { return len(b[from]) - len(a[from]) })
	var alternatives []string
	stands := map[string]string{}
	for _, p := range pairs {
		if _, ok := stands[p[from]]; ok {
			continue // the first one that was set
		}
		stands[p[from]] = p[to]
		alternatives = append(alternatives, regexp.QuoteMeta(p[from]))
	}
	if len(alternatives) == 0 {
		return text
	}
	word := regexp.MustCompile(`(^|[^\w.])(` + strings.Join(alternatives, "|") + `)`)
	var b strings.Builder
	for {
		at := word.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(text)
			return b.String()
		}
		name, rest := text[at[4]:at[5]], text[at[5]:]
		b.WriteString(text[:at[4]])
		if ends(name, rest) {
			b.WriteString(stands[name])
		} else {
			b.WriteString(name)
		}
		text = rest
		if text == "" {
			return b.String()
		}
	}
}

var (
	continues = regexp.MustCompile(`^[\w]`)
	file      = regexp.MustCompile(`^\.(properties|txt|json)\b`)
)

func ends(name, rest string) bool { return !continues.MatchString(rest) && !file.MatchString(rest) }
