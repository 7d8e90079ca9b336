package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

const dashboardFile = "../docs/dashboard.json"

// dashboard is what Grafana reads of docs/dashboard.json, as far as a test needs it.
type dashboard struct {
	Title, UID    string
	SchemaVersion int `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
			Datasource *source
		}
	}
	Panels []panel
}

type source struct{ Type, UID string }

type panel struct {
	ID          int
	Type, Title string
	Datasource  *source
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		RefID              string
		Expr, LegendFormat string
		Datasource         *source
	}
}

var (
	descText   = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	selector   = regexp.MustCompile(`\b(clustermirror_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`([a-z_]+) *(?:=~|!~|!=|=) *"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|group_left|group_right) *\(([^)]*)\)`)
	inLegend   = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	labelsFrom = regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`)
	variable   = regexp.MustCompile(`\$\{?([a-z_]+)\}?`)
)

// wrongs is what is wrong with a dashboard: names and labels that a Collector does not export, kinds and states that there are not, places and ids that two panels share.
func (d *dashboard) wrongs() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	labels := map[string][]string{}
	for _, desc := range described {
		m := descText.FindStringSubmatch(desc.String())
		labels[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	const histogram = "clustermirror_mirror_fetch_seconds" // what Prometheus makes of it
	for _, part := range []string{"_sum", "_count", "_bucket"} {
		labels[histogram+part] = labels[histogram]
	}
	labels[histogram+"_bucket"] = append(slices.Clone(labels[histogram]), "le")
	delete(labels, histogram)
	known := slices.Concat(eventKinds, kraftKinds())
	variables := []string{"__rate_interval"}
	asks := func(where, expr string) {
		found := selector.FindAllStringSubmatch(expr, -1)
		if len(found) == 0 {
			say("%s asks for nothing of ours: %s", where, expr)
		}
		for _, m := range found {
			has, ok := labels[m[1]]
			if !ok {
				say("%s: %s is not exported", where, m[1])
				continue
			}
			for _, x := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(has, x[1]) {
					say("%s: %s has no label %s", where, m[1], x[1])
				}
				for _, value := range strings.Split(x[2], "|") {
					if x[1] == "kind" && !slices.Contains(known, value) {
						say("%s: nothing is of kind %q", where, value)
					}
				}
			}
		}
		for _, v := range variable.FindAllStringSubmatch(expr, -1) {
			if !slices.Contains(variables, v[1]) {
				say("%s: there is no variable %s", where, v[1])
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			query, _ := v.Query.(map[string]any)
			if m := labelsFrom.FindStringSubmatch(fmt.Sprint(query["query"])); m == nil {
				say("variable %s asks for %v", v.Name, v.Query)
			} else {
				asks("variable "+v.Name, m[1])
				if name := selector.FindStringSubmatch(m[1]); name != nil && !slices.Contains(labels[name[1]], m[2]) {
					say("variable %s: there is no label %s", v.Name, m[2])
				}
			}
			if v.Datasource == nil || v.Datasource.UID != "${datasource}" {
				say("variable %s is bound to a data source", v.Name)
			}
		}
		variables = append(variables, v.Name)
	}
	if !slices.Contains(variables, "datasource") {
		say("the data source cannot be chosen")
	}
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			say("%q: id %d is another panel's, or none", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Title == "" || p.GridPos.W <= 0 || p.GridPos.H <= 0 || p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 {
			say("%q has no title or no place: %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < min(24, p.GridPos.X+p.GridPos.W); x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := places[[2]int{x, y}]; taken {
					say("%q lies over %q", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource == nil || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			say("%q is bound to a data source, or asks for nothing", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.Datasource == nil || target.Datasource.UID != "${datasource}" {
				say("%q: target %q comes twice, or is bound to a data source", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			asks(fmt.Sprintf("%q", p.Title), target.Expr)
			has := func(label string) bool {
				return slices.ContainsFunc(selector.FindAllStringSubmatch(target.Expr, -1), func(x []string) bool { return slices.Contains(labels[x[1]], label) })
			}
			for _, m := range grouping.FindAllStringSubmatch(target.Expr, -1) {
				for _, label := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
					if !has(label) {
						say("%q groups by %s, which nothing of it has", p.Title, label)
					}
				}
			}
			for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !has(m[1]) {
					say("%q shows label %s, which nothing of it has", p.Title, m[1])
				}
			}
		}
	}
	return all
}

func loadDashboard(t *testing.T, text string) *dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

func TestDashboardAsksForWhatIsExported(t *testing.T) {
	d := loadDashboard(t, read(t, dashboardFile))
	for _, w := range d.wrongs() {
		t.Error(w)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 30 || len(d.Panels) < 25 {
		t.Errorf("%q %q, schema %d, %d panels", d.Title, d.UID, d.SchemaVersion, len(d.Panels))
	}
	// What an alarm speaks of can be looked at: RPO as time and bytes, lag, states, retries, losses, truncations, throughput, throttling, metadata sync.
	text := read(t, dashboardFile)
	for _, name := range []string{"mirror_rpo_seconds", "mirror_rpo_bytes", "mirror_rpo_offsets", "partition_lag_seconds", "partition_lag_bytes", "mirror_partitions", `kind=\"RetryScheduled\"`, "mirror_lost_offsets_total",
		"mirror_dropped_offsets_total", "partition_destination_end_offset", "mirror_source_throttle_seconds_total", "mirror_sync_age_seconds", "mirror_failover_predicted_seconds", "mirror_open_transactions", "mirror_copies_of_unknown_age"} {
		if !strings.Contains(text, name) {
			t.Errorf("nothing shows %s", name)
		}
	}
}

func TestDashboardSaysNo(t *testing.T) {
	text := read(t, dashboardFile)
	for what, tc := range map[string]struct{ old, new, says string }{
		"a metric that is not exported":   {"clustermirror_mirror_rpo_bytes", "clustermirror_mirror_rpo_octets", "clustermirror_mirror_rpo_octets is not exported"},
		"a label of others":               {`clustermirror_mirror_rpo_seconds{destination_cluster_id`, `clustermirror_mirror_rpo_seconds{topic`, "has no label topic"},
		"a group that nothing has":        {"sum by (state)", "sum by (stat)", "groups by stat, which nothing of it has"},
		"a kind that never happens":       {"RetryScheduled", "RetryPlanned", `nothing is of kind "RetryPlanned"`},
		"an id twice":                     {`"id": 2,`, `"id": 1,`, "id 1 is another panel's, or none"},
		"one panel over the other":        {`"x": 4,`, `"x": 3,`, "lies over"},
		"a variable that there is not":    {`mirror=~\"$mirror\"`, `mirror=~\"$mirrors\"`, "there is no variable mirrors"},
		"a legend that stays empty":       {"{{state}}", "{{status}}", "shows label status"},
		"somebody's own data source":      {"${datasource}", "P1809F7CD0C75ACF3", "is bound to a data source"},
		"a variable of what is not there": {", destination_cluster_id)", ", cluster_id)", "there is no label cluster_id"},
	} {
		changed := strings.Replace(text, tc.old, tc.new, 1)
		if changed == text {
			t.Errorf("%s: %s is not in the dashboard", what, tc.old)
			continue
		}
		all := loadDashboard(t, changed).wrongs()
		if !slices.ContainsFunc(all, func(w string) bool { return strings.Contains(w, tc.says) }) {
			t.Errorf("%s is not seen: %q", what, all)
		}
	}
}

// Prometheus reads each expression.
func TestDashboardWithPromtool(t *testing.T) {
	promtool := kafkatest.Promtool(t)
	var b strings.Builder
	b.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	concrete := strings.NewReplacer("$__rate_interval", "5m", "$cluster", ".*", "$mirror", ".*")
	for _, p := range loadDashboard(t, read(t, dashboardFile)).Panels {
		for _, target := range p.Targets {
			fmt.Fprintf(&b, "      - record: panel:%d_%s\n        expr: %q\n", p.ID, target.RefID, concrete.Replace(target.Expr))
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}
