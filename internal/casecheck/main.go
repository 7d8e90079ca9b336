// Command casecheck shows, for each field case that this module must handle, the tests that carry its id, on which level they run, and the mutants that turn them red.
//
//	go run ./internal/casecheck            # list; exit 1 if a case has no test or no mutant
//	go run ./internal/casecheck -mutants   # run the mutants too; each must make its test fail
//
// A test carries case F-05 when its name starts with TestF05. A mutant is a patch under testdata/mutants, with lines in front of the diff that say what it is for:
//
//	case: F05
//	run: go test ./internal/partition -run TestF05
//	why: the first own batch goes to the log's end, into the hole
//
// It is applied to a copy of one file and built with go test -overlay, so shipped code has no switch. A mutant that no longer applies or no longer compiles is a failure.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cases are the ids of the field cases that are this module's.
var cases = strings.Fields(`F01 F02 F04 F05 F07 F10 F11 F12 F14 F15 F17 F19 F20 F21 F23 F24 F26 F28 F30 F31 F33 F34 F35 F36 F38 F40 F41 F42 F46 F47 F48 F50 F52 F54 F55 F56 F57 F58 F59 F62 F63 F64 F65 F66 F68 F70 F71 F72 F73 F74 F75 F77 F79 F81 F82 F83 F84 F86 F88`)

func main() {
	mutants := flag.Bool("mutants", false, "run the mutants")
	only := flag.String("only", "", "run only mutants whose file name contains this")
	flag.Parse()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "casecheck: go list -m:", err)
		os.Exit(1)
	}
	ok, err := run(os.Stdout, strings.TrimSpace(string(out)), cases, *mutants, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "casecheck:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(out io.Writer, root string, ids []string, runMutants bool, only string) (ok bool, err error) {
	tests, err := findTests(root)
	if err != nil {
		return false, err
	}
	mutants, err := readMutants(filepath.Join(root, "testdata", "mutants"))
	if err != nil {
		return false, err
	}
	startKafka(mutants, tests)
	missing := table(out, ids, tests, mutants)
	ok = len(missing) == 0
	if runMutants {
		mutants = slices.DeleteFunc(mutants, func(m *mutant) bool { return !strings.Contains(m.Name, only) })
		for _, r := range runAll(root, mutants) {
			fmt.Fprintf(out, "%-6s %-52s %s\n", map[bool]string{true: "killed", false: "ALIVE"}[r.err == nil], r.mutant.Name, r.say())
			ok = ok && r.err == nil
		}
	}
	for _, m := range missing {
		fmt.Fprintln(out, "missing:", m)
	}
	fmt.Fprintf(out, "%d of %d cases have a test and a mutant; %d mutants\n", len(ids)-countIDs(missing), len(ids), len(mutants))
	return ok, nil
}

func countIDs(missing []string) int {
	seen := map[string]bool{}
	for _, m := range missing {
		id, _, _ := strings.Cut(m, " ")
		seen[id] = true
	}
	return len(seen)
}

// table prints the cases and returns what each lacks, as "F05 has no test".
func table(out io.Writer, ids []string, tests []caseTest, mutants []*mutant) (missing []string) {
	for _, id := range ids {
		n, killers := 0, []string{}
		for _, m := range mutants {
			if m.id == id {
				killers = append(killers, m.Name)
			}
		}
		for _, t := range tests {
			if t.id == id {
				fmt.Fprintf(out, "%-4s %-7s %-24s %s\n", id, t.level, t.pkg, t.name)
				n++
			}
		}
		for _, k := range killers {
			fmt.Fprintf(out, "%-4s mutant  %s\n", id, k)
		}
		if n == 0 {
			missing = append(missing, id+" has no test")
		}
		if len(killers) == 0 {
			missing = append(missing, id+" has no mutant")
		}
	}
	return missing
}
