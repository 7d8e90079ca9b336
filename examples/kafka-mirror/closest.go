package main

// closest is the known name that the fewest edits make of name; of several the first.
func closest(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		if d := edits(name, k); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// edits is the number of bytes to insert, delete or replace to make b of a (Levenshtein).
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
