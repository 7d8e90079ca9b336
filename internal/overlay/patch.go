// Package overlay builds the module with some of its files changed, without a switch in shipped code: a patch or a generated text stands in for a file while the go command compiles (-overlay).
//
// A patch is a file NAME.patch: lines "name: value" that say what it is for, then a unified diff of one file. Its lines are found by their content, so that a patch lives on when code above them moves.
// The go command's cache is the one of every other build: only what is changed, and what imports it, is compiled.
package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Patch is one patch file.
type Patch struct {
	Name   string            // of its file, without the folder
	Header map[string]string // the lines in front of the diff
	File   string            // what it changes: a path inside the module, with slashes

	hunks []hunk
}

type hunk struct {
	line     int // of its first old line, a hint
	old, new []string
}

// Read reads every *.patch of a folder, in the order of their names. A folder that is not there has none.
func Read(dir string) ([]*Patch, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []*Patch
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p, err := Parse(filepath.Base(path), string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, p)
	}
	return all, nil
}

var (
	hunkLine   = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@`)
	headerLine = regexp.MustCompile(`^([a-z]+): (.*)$`)
)

// Parse reads the lines in front and the diff of one patch.
func Parse(name, text string) (*Patch, error) {
	p := &Patch{Name: name, Header: map[string]string{}}
	var cur *hunk
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(l, "+++ ") && (cur == nil || strings.HasPrefix(l, "+++ b/")):
			if p.File != "" {
				return nil, errors.New("a patch changes one file")
			}
			path, _, _ := strings.Cut(strings.TrimPrefix(l, "+++ "), "\t")
			p.File = strings.TrimPrefix(path, "b/")
		case hunkLine.MatchString(l):
			line, err := strconv.Atoi(hunkLine.FindStringSubmatch(l)[1])
			if err != nil {
				return nil, err
			}
			p.hunks = append(p.hunks, hunk{line: line})
			cur = &p.hunks[len(p.hunks)-1]
		case cur == nil:
			if m := headerLine.FindStringSubmatch(l); m != nil && p.File == "" {
				p.Header[m[1]] = m[2]
			}
		case l == "" || l[0] == ' ':
			rest := strings.TrimPrefix(l, " ")
			cur.old, cur.new = append(cur.old, rest), append(cur.new, rest)
		case l[0] == '-':
			cur.old = append(cur.old, l[1:])
		case l[0] == '+':
			cur.new = append(cur.new, l[1:])
		case l[0] == '\\': // no newline at the end of the file
		default:
			return nil, fmt.Errorf("line %q is no part of a diff", l)
		}
	}
	switch {
	case p.File == "" || len(p.hunks) == 0:
		return nil, errors.New("no diff")
	case !filepath.IsLocal(filepath.FromSlash(p.File)):
		return nil, fmt.Errorf("%q is no path inside the module", p.File)
	}
	return p, nil
}

// Apply returns a file's text as the patch changes it. Lines are found by their content; a hunk's line number decides where the content stands more than once.
// It is an error if a hunk's lines are not there, or if nothing changes.
func (p *Patch) Apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for _, h := range p.hunks {
		best := -1
		for i := 0; i+len(h.old) <= len(lines); i++ {
			if !equal(lines[i:i+len(h.old)], h.old) {
				continue
			}
			if best < 0 || abs(i+1-h.line) < abs(best+1-h.line) {
				best = i
			}
		}
		if best < 0 {
			return "", fmt.Errorf("the hunk at line %d no longer applies to %s", h.line, p.File)
		}
		lines = append(append(append([]string{}, lines[:best]...), h.new...), lines[best+len(h.old):]...)
	}
	changed := strings.Join(lines, "\n")
	if changed == text {
		return "", errors.New("the patch changes nothing")
	}
	return changed, nil
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func abs(n int) int { return max(n, -n) }
