package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// Table is what was covered: events by state, and faults by state, and what followed of them.
func (s *Stats) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s", "")
	for i := range nStates {
		fmt.Fprintf(&b, "%14v", stateAt(i))
	}
	b.WriteByte('\n')
	for k := partition.Loaded; int(k) < nEvents; k++ {
		fmt.Fprintf(&b, "%-34v", k)
		for i := range nStates {
			fmt.Fprintf(&b, "%14d", s.StateEvents[i][k])
		}
		b.WriteByte('\n')
	}
	for _, table := range []map[string]*[nStates]int{s.StateFaults, s.StateAnswers} {
		b.WriteByte('\n')
		for _, name := range slices.Sorted(maps.Keys(table)) {
			fmt.Fprintf(&b, "%-34s", name)
			for _, n := range table[name] {
				fmt.Fprintf(&b, "%14d", n)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
