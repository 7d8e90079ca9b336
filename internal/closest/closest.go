// Package closest finds the name that a mistyped one was probably meant to be.
package closest

// Name is the one of known that the fewest edits (bytes inserted, dropped or replaced) make of name; of several the first. "" if known is empty.
func Name(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		if d := edits(name, k); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// edits is the distance of Levenshtein, one row of its table at a time.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
