package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// results is all that one command measured, as it is written with -json.
type results struct {
	Machine  machine      `json:"machine"`
	Versions versions     `json:"versions"`
	Command  string       `json:"command"`
	Cells    []cellResult `json:"cells"`
	Goals    []goal       `json:"goals"`
}

type machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	MemoryMiB int64  `json:"memory_mib"`
	System    string `json:"system"`
}

type versions struct {
	Go          string `json:"go"`
	Kafka       string `json:"kafka"`
	Java        string `json:"java"`
	MirrorMaker string `json:"mirror_maker"`
	FranzGo     string `json:"franz_go"`
}

type cellResult struct {
	Cell       string    `json:"cell"`
	Started    time.Time `json:"started"`
	Seconds    float64   `json:"seconds"`
	LoadBefore string    `json:"load_before"`
	LoadAfter  string    `json:"load_after"`
	Runs       []run     `json:"runs,omitempty"`
	Lags       []lagPair `json:"lags,omitempty"`
}

// lag is how late batches were, from the moment in which the producer sent them, in milliseconds.
type lag struct {
	System  string  `json:"system"`
	Batches int     `json:"batches"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
}

// lagPair is a system and a bare fetcher that followed the same topic at the same time.
type lagPair struct {
	Round      int     `json:"round"`
	Saturation float64 `json:"saturation_mb_per_second"` // what producer, bare fetcher and system can do together
	Rate       float64 `json:"rate_mb_per_second"`       // what the producer did in the measured time: half of that
	Raw        lag     `json:"raw"`
	System     lag     `json:"system"`
	Load       string  `json:"load"`
}

func lagOf(ms []float64) lag {
	if len(ms) == 0 {
		return lag{}
	}
	slices.Sort(ms)
	return lag{Batches: len(ms), P50: percentile(ms, 50), P99: percentile(ms, 99), Max: ms[len(ms)-1]}
}

// percentile of sorted values: the smallest one that is not below p of a hundred of them.
func percentile(sorted []float64, p int) float64 {
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

func spread(v []float64) string {
	if len(v) == 0 {
		return "—"
	}
	return fmt.Sprintf("%.2f (%.2f … %.2f)", median(v), slices.Min(v), slices.Max(v))
}

// each is a figure of every run of a system with records of one size, by round.
func (c cellResult) each(record int, system string, figure func(run) float64) map[int]float64 {
	v := map[int]float64{}
	for _, r := range c.Runs {
		if r.RecordBytes == record && r.System == system {
			v[r.Round] = figure(r)
		}
	}
	return v
}

func (c cellResult) median(record int, system string, figure func(run) float64) float64 {
	return median(values(c.each(record, system, figure)))
}

func values(v map[int]float64) (out []float64) {
	for _, f := range v {
		out = append(out, f)
	}
	return out
}

// ratios divides by round: what stands in a ratio was measured in the same minute.
func ratios(above, below map[int]float64) (out []float64) {
	for round, a := range above {
		if b, ok := below[round]; ok && b > 0 {
			out = append(out, a/b)
		}
	}
	return out
}

func (c cellResult) ratios(record int, system, beside string, figure func(run) float64) []float64 {
	return ratios(c.each(record, system, figure), c.each(record, beside, figure))
}

// table prints a cell.
func (c cellResult) table(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %.0f s, load average before %s, after %s\n\n", c.Cell, c.Seconds, c.LoadBefore, c.LoadAfter)
	if len(c.Lags) > 0 {
		c.lagTable(w)
		return
	}
	fmt.Fprintln(w, "| records | system | MB/s | of raw (min … max) | CPU s/GB | of raw (min … max) | source broker CPU s/GB | destination broker CPU s/GB | peak MiB | allocations per batch |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	type row struct {
		record int
		system string
	}
	var rows []row
	for _, r := range c.Runs {
		if at := (row{r.RecordBytes, r.System}); !slices.Contains(rows, at) {
			rows = append(rows, at)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.record - b.record })
	for _, r := range rows {
		figure := func(format string, of func(run) float64) string {
			return fmt.Sprintf(format, c.median(r.record, r.system, of))
		}
		destination, allocations := figure("%.2f", run.brokerPerGB), figure("%.2f", run.allocsPerBatch)
		if r.system == raw || r.system == memlogged || r.system == memlogKept {
			destination = "—"
		}
		if r.system == mirrorMaker {
			allocations = "—"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", sizeName(r.record), r.system, figure("%.0f", run.rate), spread(c.ratios(r.record, r.system, raw, run.rate)),
			figure("%.2f", run.cpuPerGB), spread(c.ratios(r.record, r.system, raw, run.cpuPerGB)), figure("%.2f", run.sourcePerGB), destination, figure("%.0f", run.peakMiB), allocations)
	}
	fmt.Fprintln(w)
	for _, r := range c.Runs {
		if r.Warnings > 0 {
			fmt.Fprintf(w, "%s, round %d: %d warnings, the first: %s\n", r.System, r.Round, r.Warnings, r.FirstWarning)
		}
	}
}

func (c cellResult) lagTable(w io.Writer) {
	fmt.Fprintln(w, "| system | saturation MB/s | rate MB/s | raw p50 ms | raw p99 ms | raw max ms | system p50 ms | system p99 ms | system max ms | p99 above raw ms (min … max) |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	var systems []string
	for _, p := range c.Lags {
		if !slices.Contains(systems, p.System.System) {
			systems = append(systems, p.System.System)
		}
	}
	for _, s := range systems {
		of := func(figure func(lagPair) float64) string { return fmt.Sprintf("%.1f", median(c.lags(s, figure))) }
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", s, of(func(p lagPair) float64 { return p.Saturation }), of(func(p lagPair) float64 { return p.Rate }),
			of(func(p lagPair) float64 { return p.Raw.P50 }), of(func(p lagPair) float64 { return p.Raw.P99 }), of(func(p lagPair) float64 { return p.Raw.Max }),
			of(func(p lagPair) float64 { return p.System.P50 }), of(func(p lagPair) float64 { return p.System.P99 }), of(func(p lagPair) float64 { return p.System.Max }), spread(c.lags(s, lagPair.above)))
	}
}

func (p lagPair) above() float64 { return p.System.P99 - p.Raw.P99 }

func (c cellResult) lags(system string, figure func(lagPair) float64) (out []float64) {
	for _, p := range c.Lags {
		if p.System.System == system {
			out = append(out, figure(p))
		}
	}
	return out
}

// goal is a line that a run is held against.
type goal struct {
	Text    string   `json:"text"`
	Value   *float64 `json:"value"` // null: not measured in this run
	Bound   string   `json:"bound"`
	Verdict string   `json:"verdict"` // PASS, FAIL, NOT MEASURED
}

func atLeast(text string, limit float64, measured []float64) goal {
	return judge(text, fmt.Sprintf("≥ %g", limit), measured, func(v float64) bool { return v >= limit })
}

func atMost(text string, limit float64, measured []float64) goal {
	return judge(text, fmt.Sprintf("≤ %g", limit), measured, func(v float64) bool { return v <= limit })
}

// judge takes the median of what was measured.
func judge(text, bound string, measured []float64, met func(float64) bool) goal {
	g := goal{Text: text, Bound: bound, Verdict: "NOT MEASURED"}
	if len(measured) == 0 {
		return g
	}
	v := median(measured)
	g.Value, g.Verdict = &v, "FAIL"
	if met(v) {
		g.Verdict = "PASS"
	}
	return g
}

func (g goal) String() string {
	if g.Value == nil {
		return fmt.Sprintf("%s: %s (%s)", g.Verdict, g.Text, g.Bound)
	}
	return fmt.Sprintf("%s: %s: %.2f (%s)", g.Verdict, g.Text, *g.Value, g.Bound)
}

// goals holds the first three cells against what is promised.
func goals(measured []cellResult) []goal {
	find := func(c cell) cellResult {
		if i := slices.IndexFunc(measured, func(r cellResult) bool { return r.Cell == c.name() }); i >= 0 {
			return measured[i]
		}
		return cellResult{}
	}
	all, sizes, late := find(cells[0]), find(cells[1]), find(cells[2])
	out := []goal{
		atLeast("1 KiB, a mirror into memlog: rate, of a bare fetcher's", 0.9, all.ratios(1024, memlogged, raw, run.rate)),
		atMost("1 KiB, a mirror into memlog: CPU per GB, of a bare fetcher's", 1.2, all.ratios(1024, memlogged, raw, run.cpuPerGB)),
		atLeast("1 KiB, MirrorMaker 2: CPU per GB, of a mirror's into memlog", 20, all.ratios(1024, mirrorMaker, memlogged, run.cpuPerGB)),
		atLeast("1 KiB, MirrorMaker 2: CPU per GB, of a mirror's into Kafka", 20, all.ratios(1024, mirrorMaker, kafka, run.cpuPerGB)),
		atLeast("a mirror into memlog: rate with records of 100 B, of that with 10 KiB", 0.8, ratios(sizes.each(100, memlogged, run.rate), sizes.each(10240, memlogged, run.rate))),
		atMost("a mirror into memlog: CPU per GB with records of 100 B, of that with 10 KiB", 1.2, ratios(sizes.each(100, memlogged, run.cpuPerGB), sizes.each(10240, memlogged, run.cpuPerGB))),
	}
	for _, s := range []string{memlogged, kafka} {
		text := map[string]string{memlogged: "memlog", kafka: "Kafka"}[s]
		p99 := func(of func(lagPair) lag) string {
			if v := late.lags(s, func(p lagPair) float64 { return of(p).P99 }); len(v) > 0 {
				return fmt.Sprintf("%.1f", median(v))
			}
			return "—"
		}
		out = append(out, atMost(fmt.Sprintf("half of saturation, a mirror into %s: ms of p99 lag (%s) above a bare fetcher's (%s)", text, p99(func(p lagPair) lag { return p.System }), p99(func(p lagPair) lag { return p.Raw })),
			5, late.lags(s, lagPair.above)))
	}
	return out
}

func printGoals(w io.Writer, goals []goal) {
	fmt.Fprintln(w)
	for _, g := range goals {
		fmt.Fprintln(w, g)
	}
}

func (r results) head(w io.Writer) {
	fmt.Fprintf(w, "machine: %s, %d cores, %d MiB, %s\n", r.Machine.Processor, r.Machine.Cores, r.Machine.MemoryMiB, r.Machine.System)
	fmt.Fprintf(w, "versions: %s, Apache Kafka %s, MirrorMaker %s, franz-go %s, %s\n", r.Versions.Go, r.Versions.Kafka, r.Versions.MirrorMaker, r.Versions.FranzGo, r.Versions.Java)
	fmt.Fprintf(w, "command: %s\n", r.Command)
}

// commandLine names the program as it is run, not where it was built.
func commandLine(args []string) string {
	return strings.Join(append([]string{"go run ./internal/bench"}, args...), " ")
}
