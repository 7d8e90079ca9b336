package runbook

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	page := strings.Split("# A page\n\n<!-- test: topic primary orders 1 -->\n<!-- test: file dr.properties\na=b\nc=d\n-->\ntext\n```console\n$ one \\\n  more\nprints\n…\n$ two\n```\n```properties\n$ not\n```\n", "\n")
	steps, err := parse(page)
	if err != nil || len(steps) != 4 {
		t.Fatalf("%v %+v", err, steps)
	}
	if s := steps[1]; s.directive != "file dr.properties" || !slices.Equal(s.body, []string{"a=b", "c=d"}) {
		t.Errorf("%+v", s)
	}
	if s := steps[2]; s.command != "one more" || !slices.Equal(s.want, []string{"prints", "…"}) || !slices.Equal(page[s.from:s.to], s.want) {
		t.Errorf("%+v", s)
	}
	if s := steps[3]; s.command != "two" || len(s.want) != 0 {
		t.Errorf("%+v", s)
	}
	now := rewritten(page, steps, map[int]string{steps[2].line: "prints\nmore\n", steps[3].line: "said\n"})
	if got := strings.Join(now, "\n"); !strings.Contains(got, "  more\nprints\nmore\n$ two\nsaid\n```\n") {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{"```console\n$ a", "<!-- test: file x\n", "```console\nno command\n```"} {
		if _, err := parse(strings.Split(bad, "\n")); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A page that does not say what is printed is found out.
func TestShowsSaysNo(t *testing.T) {
	const printed = "source " + pagePrimaryID + " → destination " + pageStandbyID + "\nplan 01234567-89abcdef-01234567\norders-0  MIRRORING  12, seen <1s ago   0  2026-11-30 04:00:00 UTC\nlast 7\nexit status 4\n"
	for want, ok := range map[string]bool{
		"source " + pagePrimaryID + " → destination " + pageStandbyID + "\nplan abcdef01-01234567-89abcdef\norders-0 MIRRORING 9, seen 12s ago 0 2026-01-01 14:10:00 UTC\nlast 1234\nexit status 4": true,
		"source " + pagePrimaryID + " → destination " + pageStandbyID + "\n…\nexit status 4":                                                                                                        true,
		"…\nlast 1\nexit status 4": true,
		"…":                        false,
		"…\nexit status 4":         true,
		"source " + pageStandbyID + " → destination " + pagePrimaryID + "\n…\nexit status 4": false, // the wrong way round
		"…\nexit status 1": false,
		"…\nlast 1":        false,
		"…\norders-0 MIRRORING 9, seen 12s ago 3 2026-01-01 14:10:00 UTC\n…\nexit status 4":       false, // not in step
		"…\norders-0 STOPPED 9, seen 12s ago 0 2026-01-01 14:10:00 UTC\n…\nexit status 4":         false,
		"source " + pagePrimaryID + " → destination " + pageStandbyID + "\nlast 1\nexit status 4": false, // lines are missing
		"…\nlast 1\n…\nplan abcdef01-01234567-89abcdef\n…\nexit status 4":                         false, // not in order
		"": false,
	} {
		if shows(strings.Split(want, "\n"), printed, false) != ok {
			t.Errorf("%q: %v", want, !ok)
		}
	}
	if shows([]string{"a", elision}, "a\nb\nexit status 1\n", false) || !shows([]string{"a", elision, "exit status 1"}, "a\nb\nexit status 1\n", false) {
		t.Error("an exit status is elided")
	}
	if !shows([]string{"time=… level=INFO msg=joined… x"}, "time=12 level=INFO msg=joined at 3 x\n", false) || shows([]string{"time=… level=INFO msg=joined"}, "time=12 level=INFO msg=joined at 3\n", false) ||
		shows([]string{"a … b … c"}, "a c b\n", false) {
		t.Error("an elision in a line")
	}
	if !shows(nil, "", false) || shows(nil, "x\n", false) || !shows([]string{"plan #", "…"}, "plan 7\n", false) {
		t.Error("a command that prints nothing")
	}
	if !shows([]string{"a", "…", "c"}, "a\nb\nc\nd\n", true) || shows([]string{"a", "…", "e"}, "a\nb\nc\n", true) {
		t.Error("a command that goes on")
	}
}

func TestNames(t *testing.T) {
	n := &names{}
	n.set("dr", "dr-x")
	n.set("orders", "orders-x")
	n.set("standby:9092", "127.0.0.1:4001,127.0.0.1:4002")
	n.set("standby:9092", "127.0.0.1:4001")
	const page = "kafka-mirror --bootstrap-server standby:9092 --mirror dr --mirror-config dr.properties --topics orders,payments # dr/orders-0 reorders orders2"
	const run = "kafka-mirror --bootstrap-server 127.0.0.1:4001,127.0.0.1:4002 --mirror dr-x --mirror-config dr.properties --topics orders-x,payments # dr-x/orders-x-0 reorders orders2"
	if got := n.inRun(page); got != run {
		t.Errorf("%s\n%s", got, run)
	}
	if got := n.onPage(run); got != page {
		t.Errorf("%s\n%s", got, page)
	}
	if got := n.onPage("by 127.0.0.1:4001."); got != "by standby:9092." {
		t.Error(got)
	}
}

// TestAWrongPageIsFound: what bash really prints is compared with a page, and with that page after any one of its lines was changed or taken out.
func TestAWrongPageIsFound(t *testing.T) {
	f := &follower{t: t, dir: t.TempDir()}
	f.names.set("orders", "order9")
	page := strings.Split("```console\n$ echo 'orders: 7 of 0'; echo; echo last\norders: 12 of 0\n\nlast\n$ printf 'one\\ntwo\\nthree' | grep -v two\none\n…\n$ echo refused >&2; exit 4\nrefused\nexit status 4\n```", "\n")
	agrees := func(lines []string) bool {
		t.Helper()
		steps, err := parse(lines)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if !shows(s.want, f.run(s.command), false) {
				return false
			}
		}
		return len(steps) == 3
	}
	if !agrees(page) {
		t.Fatal("the right page is refused")
	}
	for i, line := range page {
		if strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "```") || line == elision {
			continue
		}
		wrong := slices.Clone(page)
		wrong[i] = line + " more"
		if agrees(wrong) {
			t.Errorf("line %d is %q, and nobody notices", i+1, wrong[i])
		}
		if i > 0 && page[i-1] == elision || i+1 < len(page) && page[i+1] == elision {
			continue // the elision stands for it
		}
		if agrees(slices.Delete(slices.Clone(page), i, i+1)) {
			t.Errorf("line %d, %q, is missing, and nobody notices", i+1, line)
		}
	}
}
