package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// equivalents are mutants that nobody could tell from the code as it is.
type equivalents struct{ lines []*equivalent }

type equivalent struct {
	pkg, function, change, reason string // change: "a < b → a <= b", as a survivor is printed

	fits int // mutants
}

// readEquivalents reads lines of four parts with tabs between: package, function, change, reason. Lines with # are comments. No file is an empty list.
func readEquivalents(path string) (*equivalents, error) {
	e := &equivalents{}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	for i, l := range strings.Split(string(b), "\n") {
		if l == "" || l[0] == '#' {
			continue
		}
		parts := strings.Split(l, "\t")
		if len(parts) != 4 || slices.Contains(parts, "") {
			return nil, fmt.Errorf("%s:%d: four parts with tabs between are needed: package, function, change, reason", path, i+1)
		}
		e.lines = append(e.lines, &equivalent{pkg: parts[0], function: parts[1], change: parts[2], reason: parts[3]})
	}
	return e, nil
}

// without returns the mutants that no line fits.
func (e *equivalents) without(all []*mutant) []*mutant {
	return slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool {
		for _, l := range e.lines {
			if l.pkg == m.pkg && l.function == m.function && l.change == m.from+" → "+m.to {
				l.fits++
				return true
			}
		}
		return false
	})
}

// unused is an error if a line of one of the packages fits nothing: the code has changed, and the line must go.
func (e *equivalents) unused(packages []string) error {
	for _, l := range e.lines {
		if l.fits == 0 && slices.Contains(packages, l.pkg) {
			return fmt.Errorf("equivalent.txt: no mutant of %s %s is %q: take the line out, or mend it", l.pkg, l.function, l.change)
		}
	}
	return nil
}

// of counts the equivalent mutants of a package, "" for all.
func (e *equivalents) of(pkg string) int {
	n := 0
	for _, l := range e.lines {
		if pkg == "" || l.pkg == pkg {
			n += l.fits
		}
	}
	return n
}
