package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermirror/clustermirror/internal/layout"
)

// leastCoverage is how many percent of the statements of a pure package its own tests run.
const leastCoverage = 95

// covered are the packages that -cover looks at: those that layout holds to be pure, without the judges of simulated disasters, and the one that calls itself pure.
var covered = append(slices.DeleteFunc(slices.Clone(layout.Pure), func(pkg string) bool {
	return strings.HasPrefix(pkg, "internal/simulator/") || pkg == "internal/clienthistory"
}), "internal/metadatasync")

var coverageLine = regexp.MustCompile(`(?m)^(ok|FAIL|---)?\s*(\S+)\s.*coverage: ([0-9.]+)% of statements`)

// cover runs the tests of packages, short ones and without Kafka, and prints which share of each package's statements they run. It is not green if one is below least, or red.
func cover(out io.Writer, root, module string, packages []string, least float64) (green bool, err error) {
	args := []string{"test", "-count=1", "-short", "-cover"}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CLUSTERMIRROR_KAFKA=off")
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Run(); err != nil {
		return false, fmt.Errorf("go test: %w\n%s", err, text.Bytes())
	}
	green = true
	fmt.Fprintf(out, "%-28s %s\n", "package", "statements that its tests run")
	for _, p := range packages {
		percent := -1.0
		for _, m := range coverageLine.FindAllStringSubmatch(text.String(), -1) {
			if m[2] == module+"/"+p {
				if percent, err = strconv.ParseFloat(m[3], 64); err != nil {
					return false, err
				}
			}
		}
		say := ""
		switch {
		case percent < 0:
			green, say = false, "  has no test"
		case percent < least:
			green, say = false, fmt.Sprintf("  below %v %%", least)
		}
		fmt.Fprintf(out, "%-28s %5.1f %%%s\n", p, max(percent, 0), say)
	}
	return green, nil
}
