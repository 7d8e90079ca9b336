package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/recordreader"
)

// made is a run of a gigabyte in so many seconds and with so much CPU.
func made(record int, system string, round int, seconds, cpu float64) run {
	return run{RecordBytes: record, System: system, Round: round, Bytes: 1e9, Batches: 1000, Records: 1e6, Seconds: seconds, ClientCPU: cpu, SourceCPU: 0.5, DestinationCPU: 2, PeakBytes: 64 << 20, Allocations: 1500}
}

func madeLag(system string, raw, p99 float64) lagPair {
	return lagPair{Round: 1, Saturation: 100, Rate: 50, Raw: lag{System: "raw", Batches: 10, P50: 1, P99: raw, Max: 20}, System: lag{System: system, Batches: 10, P50: 2, P99: p99, Max: 30}}
}

// madeCells are the three cells of the goals, in which all of them are just reached.
func madeCells() []cellResult {
	return []cellResult{
		{Cell: "1KiB-none-8-all", Seconds: 61, LoadBefore: "0.10", LoadAfter: "2.00", Runs: []run{
			made(1024, raw, 1, 1, 1), made(1024, memlogged, 1, 1/0.9, 1.2), made(1024, kafka, 1, 4, 1.2), made(1024, mirrorMaker, 1, 10, 24),
			made(1024, raw, 2, 2, 2), made(1024, memlogged, 2, 2/0.9, 2.4), made(1024, kafka, 2, 8, 2.4),
		}},
		{Cell: "100B+10KiB-none-8-memlog", Runs: []run{
			made(100, memlogged, 1, 1.25, 1.2), made(10240, memlogged, 1, 1, 1), made(100, memlogged, 2, 12.5, 12), made(10240, memlogged, 2, 10, 10),
		}},
		{Cell: "1KiB-none-8-lag", Lags: []lagPair{madeLag(memlogged, 10, 15), madeLag(kafka, 10, 15)}},
	}
}

func verdicts(goals []goal) (out []string) {
	for _, g := range goals {
		out = append(out, g.Verdict)
	}
	return out
}

func TestGoalsAreJudgedByMediansOfRatiosOfOneRound(t *testing.T) {
	if got := verdicts(goals(madeCells())); !slices.Equal(got, slices.Repeat([]string{"PASS"}, 8)) {
		t.Errorf("all just reached: %v", got)
	}
	for i, spoil := range []func(c []cellResult){
		func(c []cellResult) { c[0].Runs[1].Seconds *= 1.01; c[0].Runs[5].Seconds *= 1.01 },
		func(c []cellResult) {
			c[0].Runs[1].ClientCPU = 1.21
			c[0].Runs[5].ClientCPU = 2.42
			c[0].Runs[3].ClientCPU = 25
		},
		func(c []cellResult) {
			c[0].Runs[1].ClientCPU = 1.2
			c[0].Runs[3].ClientCPU = 23.9
			c[0].Runs[2].ClientCPU = 1.1
		},
		func(c []cellResult) { c[0].Runs[2].ClientCPU = 1.21 },
		func(c []cellResult) { c[1].Runs[0].Seconds = 1.26; c[1].Runs[2].Seconds = 12.6 },
		func(c []cellResult) { c[1].Runs[0].ClientCPU = 1.21; c[1].Runs[2].ClientCPU = 12.1 },
		func(c []cellResult) { c[2].Lags[0].System.P99 = 15.1 },
		func(c []cellResult) { c[2].Lags[1].System.P99 = 15.1 },
	} {
		c := madeCells()
		spoil(c)
		got := goals(c)
		for j, g := range got {
			if want := map[bool]string{true: "FAIL", false: "PASS"}[i == j]; g.Verdict != want {
				t.Errorf("goal %d spoiled: goal %d is %s: %v", i, j, g.Verdict, g)
			}
		}
	}
}

func TestAGoalWithoutItsRunsIsNotMeasured(t *testing.T) {
	c := madeCells()
	if got, want := verdicts(goals(c[2:])), append(slices.Repeat([]string{"NOT MEASURED"}, 6), "PASS", "PASS"); !slices.Equal(got, want) {
		t.Errorf("the lag cell alone: %v", got)
	}
	c[0].Runs = slices.DeleteFunc(c[0].Runs, func(r run) bool { return r.System == mirrorMaker })
	if got := goals(c)[2].String(); got != "NOT MEASURED: 1 KiB, MirrorMaker 2: CPU per GB, of a mirror's into memlog (≥ 20)" {
		t.Errorf("without MirrorMaker 2: %s", got)
	}
}

// A round in which one of two systems did not run has no ratio: MirrorMaker 2 runs in fewer.
func TestRatiosAreOfOneRound(t *testing.T) {
	got := ratios(map[int]float64{1: 2, 2: 9, 3: 30}, map[int]float64{1: 1, 3: 10, 4: 1})
	slices.Sort(got)
	if !slices.Equal(got, []float64{2, 3}) {
		t.Errorf("ratios: %v", got)
	}
}

func TestTheTableShowsMediansAndWhatBelongsToNobody(t *testing.T) {
	var b strings.Builder
	for _, c := range []int{0, 2} {
		madeCells()[c].table(&b)
	}
	for _, want := range []string{
		"1KiB-none-8-all: 61 s, load average before 0.10, after 2.00\n",
		"| 1KiB | raw | 750 | 1.00 (1.00 … 1.00) | 1.50 | 1.00 (1.00 … 1.00) | 0.50 | — | 64 | 1.50 |\n",
		"| 1KiB | memlog | 675 | 0.90 (0.90 … 0.90) | 1.80 | 1.20 (1.20 … 1.20) | 0.50 | — | 64 | 1.50 |\n",
		"| 1KiB | kafka | 188 | 0.25 (0.25 … 0.25) | 1.80 | 1.20 (1.20 … 1.20) | 0.50 | 2.00 | 64 | 1.50 |\n",
		"| 1KiB | mm2 | 100 | 0.10 (0.10 … 0.10) | 24.00 | 24.00 (24.00 … 24.00) | 0.50 | 2.00 | 64 | — |\n",
		"| memlog | 100.0 | 50.0 | 1.0 | 10.0 | 20.0 | 2.0 | 15.0 | 30.0 | 5.00 (5.00 … 5.00) |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("missing: %sin:\n%s", want, b.String())
		}
	}
}

func TestWarningsOfARunStandUnderItsTable(t *testing.T) {
	c := madeCells()[0]
	c.Runs[2].Warnings, c.Runs[2].FirstWarning = 3, "bench/t-0: MIRRORING → FAILED"
	var b strings.Builder
	c.table(&b)
	if want := "\nkafka, round 1: 3 warnings, the first: bench/t-0: MIRRORING → FAILED\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("%s", b.String())
	}
}

func TestBothP99ArePrinted(t *testing.T) {
	want := "PASS: half of saturation, a mirror into Kafka: ms of p99 lag (15.0) above a bare fetcher's (10.0): 5.00 (≤ 5)"
	if got := goals(madeCells())[7].String(); got != want {
		t.Errorf("%s", got)
	}
}

func TestEveryRunIsInTheJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	in := results{Command: commandLine([]string{"-quick"}), Cells: madeCells(), Goals: goals(madeCells()[1:])}
	if err := writeJSON(file, in); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out results
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if out.Command != "go run ./internal/bench -quick" || len(out.Cells) != 3 || !slices.Equal(out.Cells[0].Runs, in.Cells[0].Runs) || !slices.Equal(out.Cells[2].Lags, in.Cells[2].Lags) {
		t.Errorf("read back: %+v", out)
	}
	if out.Goals[0].Value != nil || *out.Goals[7].Value != 5 || !strings.Contains(string(b), `"client_cpu_seconds": 1.2,`) {
		t.Errorf("goals: %v\n%s", out.Goals, b)
	}
}

func TestPercentilesMediansAndNothing(t *testing.T) {
	var ms []float64
	for i := range 200 {
		ms = append(ms, float64(200-i))
	}
	if l := lagOf(ms); l.Batches != 200 || l.P50 != 100 || l.P99 != 198 || l.Max != 200 {
		t.Errorf("lag: %+v", l)
	}
	if l := lagOf([]float64{7}); l.P50 != 7 || l.P99 != 7 || l.Max != 7 {
		t.Errorf("lag of one: %+v", l)
	}
	if l := lagOf(nil); l != (lag{}) {
		t.Errorf("lag of none: %+v", l)
	}
	if median([]float64{4, 1, 3, 2}) != 2.5 || median([]float64{3, 1, 2}) != 2 || !math.IsNaN(median(nil)) || spread(nil) != "—" {
		t.Error("medians")
	}
}

func TestTwelveCellsWithEveryValueOfEveryDimension(t *testing.T) {
	seen := map[any]bool{}
	quick := 0
	for _, c := range cells {
		if seen[c.name()] || groups[c.group] == nil {
			t.Errorf("cell %s", c.name())
		}
		seen[c.name()], seen[c.codec], seen[c.partitions] = true, true, true
		for _, n := range c.records {
			seen[n] = true
		}
		for _, s := range c.systems() {
			seen["system "+s] = true
		}
		if c.quick {
			quick++
		}
	}
	for _, v := range []any{100, 1024, 10240, "none", "lz4", "zstd", int32(1), int32(8), int32(64), int32(1000), "system raw", "system memlog", "system kafka", "system mm2", "system copier"} {
		if !seen[v] {
			t.Errorf("no cell has %v", v)
		}
	}
	if len(cells) != 12 || quick != 3 || cells[0].name() != "1KiB-none-8-all" || cells[1].name() != "100B+10KiB-none-8-memlog" {
		t.Errorf("%d cells, %d of them quick", len(cells), quick)
	}
}

func TestTheCellsOfTheGoalsHaveMoreRounds(t *testing.T) {
	e := extent{rounds: 5, lagRounds: 3}
	for i, want := range []int{5, 5, 3, 3, 3, 2} {
		if got := e.of(cells[i]); got != want {
			t.Errorf("%s: %d rounds", cells[i].name(), got)
		}
	}
	if got := e.of(cells[11]); got != 1 || !cells[11].lag() {
		t.Errorf("%s: %d rounds", cells[11].name(), got)
	}
	if got := (extent{rounds: 1, lagRounds: 1}).of(cells[5]); got != 1 {
		t.Errorf("-pairs 1: %d rounds", got)
	}
}

func TestCellsAreChosenByName(t *testing.T) {
	some, err := chosen("1KiB-zstd-8-all,1KiB-none-8-lag", true)
	if err != nil || len(some) != 2 || some[0].codec != "zstd" || !some[1].lag() {
		t.Errorf("%v %v", some, err)
	}
	if some, err := chosen("", true); err != nil || len(some) != 3 {
		t.Errorf("quick: %v %v", some, err)
	}
	if some, err := chosen("", false); err != nil || len(some) != 12 {
		t.Errorf("all: %v %v", some, err)
	}
	if _, err := chosen("1KiB", false); err == nil || !strings.Contains(err.Error(), `"1KiB"`) {
		t.Errorf("no such cell: %v", err)
	}
}

func TestBatchesAreWholeWhateverTheirCodecAndStamp(t *testing.T) {
	for _, codec := range []string{"none", "lz4", "zstd"} {
		for _, size := range []int{100, 1024, 10240, 1 << 20} {
			b, records, err := makeBatch(size, batchBytes, codec)
			if err != nil {
				t.Fatal(err)
			}
			setTimestamps(b, stamp(12345))
			h, n, err := batch.Next(b)
			if err != nil || n != len(b) {
				t.Fatalf("%s, %d: %v, %d of %d bytes", codec, size, err, n, len(b))
			}
			if err := batch.Check(b, &h); err != nil || h.BaseTimestamp != stamp(12345) || int(h.RecordCount) != records {
				t.Errorf("%s, %d: %v %+v", codec, size, err, h)
			}
			got, err := recordreader.New(1<<24).Records(b, &h)
			if err != nil || len(got) != records || len(got[0].Value) != size || records*size > max(size, batchBytes) {
				t.Errorf("%s, %d: %d records of %d bytes, %v", codec, size, len(got), len(got[0].Value), err)
			}
			if codec != "none" && len(b) > records*size*3/4 {
				t.Errorf("%s, %d: %d bytes in %d", codec, size, records*size, len(b))
			}
		}
	}
	if _, err := compressed(nil, "gzip"); err == nil {
		t.Error("a codec that no cell has")
	}
}

func TestStampsTellHowLateABatchIs(t *testing.T) {
	for _, now := range []time.Time{time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.UnixMicro(5<<stampBits + 3)} {
		sent := now.Add(-7 * time.Microsecond).UnixMicro()
		if got := sinceStamp(now.UnixMicro(), stamp(sent)); got != 7 {
			t.Errorf("%v: %d", now, got)
		}
		if ms := stamp(sent); ms < time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() || ms > math.MaxInt64/1_000_000 {
			t.Errorf("%v: the stamp %d is no time that clients can keep", now, ms)
		}
	}
	l := &lateness{}
	from := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	l.came(from, stamp(from-2_000_000))
	l.came(from+4001, stamp(from), stamp(from+1))
	if got := l.between(from, from+2); got.Batches != 2 || got.P50 < 4 || got.Max > 4.001 {
		t.Errorf("%+v", got)
	}
}

func TestWhatTheKernelTellsOfAProcess(t *testing.T) {
	stat := "4242 (java (x) y) S 1 4242 4242 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 90 0 1 2 3"
	if got, err := parseStat([]byte(stat)); err != nil || got != 2*time.Second {
		t.Errorf("%v %v", got, err)
	}
	if _, err := parseStat([]byte("1 (x) S 1")); err == nil {
		t.Error("a line that is too short")
	}
	status := "Name:\tVmHWM\nVmHWM:\t   2048 kB\nVmRSS:\t     1024 kB\n"
	if got, err := parseStatus([]byte(status), "VmHWM"); err != nil || got != 2<<20 {
		t.Errorf("%v %v", got, err)
	}
	if _, err := parseStatus([]byte(status), "VmSwap"); err == nil {
		t.Error("a line that is not there")
	}
}
