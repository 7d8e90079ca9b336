package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var (
	spaces = regexp.MustCompile(` +`)
	// At least the 30 orders behind the break are given up.
	verdict = regexp.MustCompile(`^OK: [1-9]\d* batches compared, failover in [\d.]+(µs|ms|s), ([3-9]\d|\d{3,}) records given up$`)
)

// tablesOf are the tables of a run, with 4001 and 4002 for the two producer ids, as in KIP-1279's example.
func tablesOf(t *testing.T, out string) (tables, one, two string) {
	t.Helper()
	rows := regexp.MustCompile(`(?m)^  [01] +0 +data +(\d+)\.0 `).FindAllStringSubmatch(out, 2)
	if len(rows) < 2 {
		t.Fatalf("no rows of a table:\n%s", out)
	}
	one, two = rows[0][1], rows[1][1]
	inside := false
	var kept []string
	lines := strings.Split(out, "\n")
	for i, l := range lines {
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  offset ") {
			inside = true
		}
		if inside {
			kept = append(kept, spaces.ReplaceAllString(strings.NewReplacer(one, "4001", two, "4002").Replace(l), " "))
		}
		inside = inside && l != ""
	}
	return strings.Join(kept, "\n"), one, two
}

func TestStory(t *testing.T) {
	out, complaints, code := run(t)
	if code != 0 || complaints != "" {
		t.Fatalf("exit %d\n%s%s", code, out, complaints)
	}
	tables, one, two := tablesOf(t, out)
	golden(t, "tables.txt", tables)

	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if last := lines[len(lines)-1]; !verdict.MatchString(last) {
		t.Errorf("the last line is %q", last)
	}
	if strings.ContainsAny(out, "\x1b\r\b") {
		t.Error("there is cursor control in the output")
	}
	explained := 0
	for n := 1; n <= 6; n++ {
		_, why, found := strings.Cut(out, fmt.Sprintf("── %d/6 ", n))
		if !found {
			t.Errorf("there is no act %d", n)
			continue
		}
		why = strings.Split(why, "\n")[1]
		if !strings.HasSuffix(why, ".") {
			t.Errorf("act %d does not begin with its reason: %q", n, why)
		}
		if strings.Contains(why, one) {
			explained++
		}
	}
	if explained != 4 {
		t.Errorf("%d acts name this run's producer ids, want 4", explained)
	}
	if strings.Contains(out, "  NO   ") || strings.Count(out, "\n  yes  ") != 8 {
		t.Errorf("not eight checks that held:\n%s", out)
	}
	if !strings.Contains(out, "Producer "+one+" committed at the source and is aborted here; producer "+two+" is aborted on both sides") {
		t.Error("what became of the transactions is not said")
	}
}

func TestD6EachSpoiledCopyIsFound(t *testing.T) {
	for spoil, check := range map[string]string{
		"byte":    "the copy has the source's bytes at the source's offsets",
		"missing": "the copy has the source's bytes at the source's offsets",
		"offset":  "the copy has the source's bytes at the source's offsets",
		"marker":  "one ABORT for each open transaction, then one MIRROR_PID_RESET",
		"loss":    "no record is lost: each one of the old source is in the copy or in the sink",
	} {
		t.Run(spoil, func(t *testing.T) {
			t.Parallel()
			out, complaints, code := run(t, "-break="+spoil)
			if code != 1 || !strings.HasPrefix(complaints, "FAILED: ") || !strings.Contains(complaints, `"`+check+`"`) {
				t.Errorf("exit %d, want 1 and the check %q:\n%s", code, check, complaints)
			}
			if !strings.Contains(out, "  NO   "+check+": ") {
				t.Errorf("what did not hold is not said:\n%s", out)
			}
			if strings.Contains(out, "\nOK:") {
				t.Errorf("it says OK:\n%s", out)
			}
		})
	}
	if len(spoilers) != 5 {
		t.Errorf("-break knows %v", spoilers)
	}
}

// The check about lost records is not the comparison of bytes under another name: a changed byte is no lost record.
func TestD6LossIsNotMismatch(t *testing.T) {
	out, _, _ := run(t, "-break=byte")
	if !strings.Contains(out, "  yes  no record is lost") {
		t.Error("a flipped byte counts as a lost record")
	}
}
