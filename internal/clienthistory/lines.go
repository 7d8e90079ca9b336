package clienthistory

import "math"

// lines are the lines of a partition: line 0 is the first one, line k begins with turn k−1.
type lines struct {
	first string
	turns []Turn
}

// current is the last line.
func (l *lines) current() int { return len(l.turns) }

// writer is the cluster that clients write in a line.
func (l *lines) writer(line int) string {
	if line == 0 {
		return l.first
	}
	return l.turns[line-1].To
}

func (l *lines) begin(line int) Moment {
	if line == 0 {
		return math.MinInt64
	}
	return l.turns[line-1].At
}

// at is the line at a moment.
func (l *lines) at(m Moment) int {
	line := 0
	for line < len(l.turns) && l.turns[line].At <= m {
		line++
	}
	return line
}

// of are the first and the last line that a call to a cluster may have been answered in. A cluster that was turned away from still answers in the line that it was turned away from.
func (l *lines) of(cluster string, s Span) (low, high int) {
	low, high = -1, -1
	for line := 0; line <= l.current() && l.begin(line) <= s.End; line++ {
		if l.writer(line) != cluster {
			continue
		}
		if low < 0 || l.begin(line) <= s.Start {
			low = line
		}
		high = line
	}
	if low < 0 { // a cluster that nobody was to write
		return l.at(s.Start), l.at(s.End)
	}
	return low, high
}

// survives says whether what was written at an offset in a line is in a later line too.
func (l *lines) survives(offset int64, from, to int) bool {
	for ; from < to; from++ {
		if l.turns[from].Offset <= offset {
			return false
		}
	}
	return true
}

// killer is the first turn that took away what was written at an offset in a line.
func (l *lines) killer(offset int64, from int) *Turn {
	for ; from < len(l.turns); from++ {
		if l.turns[from].Offset <= offset {
			return &l.turns[from]
		}
	}
	return nil
}

// held is the line that a cluster's log is of at the end. A cluster that was turned away from and has not rejoined stays in its own.
func (l *lines) held(cluster string, rejoins []Rejoin) int {
	own := -1
	for line := 0; line <= l.current(); line++ {
		if l.writer(line) == cluster {
			own = line
		}
	}
	if own < 0 || own == l.current() {
		return l.current()
	}
	for _, r := range rejoins {
		if r.Cluster == cluster && r.At >= l.turns[own].At {
			return l.current()
		}
	}
	return own
}
