package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

const (
	alarmsFile = "../docs/alarms.yml"
	alarmsTest = "../docs/alarms_test.yml"
	alarmsPage = "../docs/runbook/alarms.md"
	pageInURL  = "https://github.com/clustermirror/clustermirror/blob/main/docs/runbook/alarms.md#"
)

// alarm is one rule of docs/alarms.yml.
type alarm struct{ name, expr, severity, summary, url string }

var (
	alarmLine = regexp.MustCompile(`(?m)^ +- alert: (\S+)\n`)
	exported  = regexp.MustCompile(`\bclustermirror_[a-z0-9_]+\b`)
	heading   = regexp.MustCompile(`(?m)^## (.+)$`)
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alarms are the rules, which the file writes in one form.
func alarms(t *testing.T) (all []alarm) {
	t.Helper()
	text := read(t, alarmsFile)
	at := alarmLine.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		body := text[m[1]:end]
		one := func(pattern string) string {
			found := regexp.MustCompile(`(?m)^ +`+pattern+`$`).FindAllStringSubmatch(body, -1)
			if len(found) != 1 {
				t.Fatalf("%s: %d times %s", text[m[2]:m[3]], len(found), pattern)
			}
			return found[0][1]
		}
		all = append(all, alarm{text[m[2]:m[3]], one(`expr: (.+)`), one(`labels: \{severity: (critical|warning)\}`), one(`summary: '(.+)'`), one(`runbook_url: (\S+)`)})
	}
	if len(all) < 20 {
		t.Fatalf("%d alarms", len(all))
	}
	return all
}

func TestEachAlarmHasItsPlaceOnThePage(t *testing.T) {
	var anchors, reached []string
	for _, h := range heading.FindAllStringSubmatch(read(t, alarmsPage), -1) {
		if strings.HasPrefix(h[1], "ClusterMirror") {
			anchors = append(anchors, strings.ToLower(h[1]))
		}
	}
	for _, a := range alarms(t) {
		anchor, ok := strings.CutPrefix(a.url, pageInURL)
		if !ok || anchor != strings.ToLower(a.name) || !slices.Contains(anchors, anchor) {
			t.Errorf("%s: %s is no place of docs/runbook/alarms.md that has its name", a.name, a.url)
		}
		if slices.Contains(reached, anchor) {
			t.Errorf("%s is there twice", a.name)
		}
		reached = append(reached, anchor)
	}
	for _, anchor := range anchors {
		if !slices.Contains(reached, anchor) {
			t.Errorf("no alarm leads to %s", anchor)
		}
	}
}

func TestAlarmsAskForWhatIsExported(t *testing.T) {
	var names []string
	for _, d := range described {
		names = append(names, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	for _, file := range []string{alarmsFile, alarmsTest, alarmsPage} {
		found := exported.FindAllString(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s names nothing that is exported", file)
		}
		for _, name := range found {
			if !slices.Contains(names, strings.TrimSuffix(name, "_")) && name != "clustermirror_partition_" {
				t.Errorf("%s: %s is not exported", file, name)
			}
		}
	}
	for _, a := range alarms(t) {
		if !exported.MatchString(a.expr) {
			t.Errorf("%s asks for nothing of ours: %s", a.name, a.expr)
		}
		if strings.Contains(a.expr, "clustermirror_partition_") {
			t.Errorf("%s needs a series for each partition, which docs/alarms.yml says that no alarm does", a.name)
		}
	}
}

// Kinds of events that alarms ask for have to be known kinds: another one never happens, and the alarm stays silent.
func TestAlarmsAskForKindsThatThereAre(t *testing.T) {
	known := slices.Concat(eventKinds, kraftKinds())
	kinds := regexp.MustCompile(`kind=~?"([^"]+)"`)
	for _, a := range alarms(t) {
		for _, m := range kinds.FindAllStringSubmatch(a.expr, -1) {
			for _, kind := range strings.Split(m[1], "|") {
				if !slices.Contains(known, kind) {
					t.Errorf("%s: nothing is of kind %q", a.name, kind)
				}
			}
		}
	}
}

// Series in, alarm out: each alarm is tried where it speaks and where it has to be silent.
func TestAlarmsWithPromtool(t *testing.T) {
	text := read(t, alarmsTest)
	for _, a := range alarms(t) {
		uses := regexp.MustCompile(`(?m)^ +alertname: `+a.name+`\n +exp_alerts:( \[\])?`).FindAllStringSubmatch(text, -1)
		speaks := slices.ContainsFunc(uses, func(m []string) bool { return m[1] == "" })
		silent := slices.ContainsFunc(uses, func(m []string) bool { return m[1] != "" })
		if !speaks || !silent {
			t.Errorf("%s: tried where it speaks: %t, where it is silent: %t", a.name, speaks, silent)
		}
	}
	promtool := kafkatest.Promtool(t)
	for _, args := range [][]string{{"check", "rules", filepath.Base(alarmsFile)}, {"test", "rules", filepath.Base(alarmsTest)}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Dir(alarmsFile)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("%s", out)
	}
}
