package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// extent is how much of everything a command does.
type extent struct {
	megabytes   int // of records in a topic, before compression
	rounds      int
	mirrorMaker int           // rounds in which MirrorMaker 2 runs: it needs half a minute
	atMost      time.Duration // the longest measured time of a copier of records
	lagRounds   int
	saturate    time.Duration // as fast as it goes, to find the saturation
	steady      time.Duration // at half of it
	profiles    string        // folder for profiles of measured processes; empty: none
}

// of is how many rounds a cell has: those of the goals as many as asked for, the others fewer, so that all twelve end in time.
func (e extent) of(c cell) int {
	switch {
	case c.lag() && c.quick:
		return e.lagRounds
	case c.lag():
		return 1
	case c.quick:
		return e.rounds
	case c.partitions >= 1000: // creating and deleting them takes most of the time
		return min(e.rounds, 2)
	}
	return min(e.rounds, 3)
}

// suite runs cells on two clusters of one broker each.
type suite struct {
	ctx      context.Context
	t        *program
	extent   extent
	src, dst *kafkatest.Cluster
	from, to place
	topics   int // so far, for names
	profiled int
}

// brokerConfig: deleted topics are gone soon; timestamps may be any number, because those of a lag cell are stamps.
var brokerConfig = map[string]string{"log.segment.delete.delay.ms": "1000", "log.message.timestamp.after.max.ms": "9223372036854775807"}

func measureCells(ctx context.Context, t *program, cells []cell, e extent, jsonFile string, check bool) {
	s := &suite{ctx: ctx, t: t, extent: e}
	s.src = kafkatest.Start(t, kafkatest.Options{HeapMB: 1024, Config: brokerConfig})
	s.dst = kafkatest.Start(t, kafkatest.Options{HeapMB: 1024, Config: brokerConfig})
	s.from, s.to = placeOf(t, s.src), placeOf(t, s.dst)
	res := results{Machine: thisMachine(), Versions: theseVersions(s.src.Version()), Command: commandLine(os.Args[1:])}
	res.head(os.Stdout)
	fmt.Printf("clusters: a source and a destination, each one broker on loopback, heap 1 GiB, -XX:+UseSerialGC -XX:TieredStopAtLevel=1; every figure is a median, ratios are of runs of one round; %d MB a topic before compression\n",
		e.megabytes)
	fmt.Printf("MirrorMaker 2: one process, -Xmx1g, %s\n", strings.Join(mirrorMakerOf("as the topic's"), ", "))
	for _, c := range cells {
		r := cellResult{Cell: c.name(), Started: time.Now().UTC(), LoadBefore: load()}
		if c.lag() {
			r.Lags = s.lags(c)
		} else {
			r.Runs = s.runs(c)
		}
		r.Seconds, r.LoadAfter = time.Since(r.Started).Seconds(), load()
		r.table(os.Stdout)
		res.Cells = append(res.Cells, r)
		res.Goals = goals(res.Cells)
		if jsonFile != "-" { // what was measured is kept when the command is broken off
			s.write(jsonFile, res)
		}
	}
	printGoals(os.Stdout, res.Goals)
	if jsonFile == "-" {
		s.write(jsonFile, res)
	}
	if missed := slices.ContainsFunc(res.Goals, func(g goal) bool { return g.Verdict == "FAIL" }); check && missed {
		t.Fatalf("a goal was missed")
	}
}

func (s *suite) write(file string, res results) {
	if err := writeJSON(file, res); err != nil {
		s.t.Fatalf("%v", err)
	}
}

// writeJSON writes to a file, to standard output ("-"), or nowhere ("").
func writeJSON(file string, res results) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(res, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if file == "-" {
		_, err = os.Stdout.Write(b)
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func mirrorMakerOf(codec string) []string {
	return mirrorMakerSettings(codec, 256<<10, 20*time.Millisecond)
}

// runs measures the systems of a cell in rounds.
func (s *suite) runs(c cell) (out []run) {
	orders := map[int]order{}
	for _, size := range c.records {
		orders[size] = s.fill(c, size)
		s.once(orders[size], raw) // the page cache and the broker are warm now
	}
	for round := range s.extent.of(c) {
		for _, size := range c.records {
			for _, system := range c.systems() {
				if system == mirrorMaker && round >= s.extent.mirrorMaker {
					continue
				}
				r := s.once(orders[size], system)
				r.Round, r.RecordBytes, r.Load = round+1, size, load()
				out = append(out, r)
			}
		}
	}
	for _, o := range orders {
		s.remove(s.src, o.Topic)
	}
	return out
}

// once has one system copy a topic.
func (s *suite) once(o order, system string) run {
	o.System = system
	if s.extent.profiles != "" {
		s.profiled++
		o.Profile = filepath.Join(s.extent.profiles, fmt.Sprintf("%s-%s-%d-%03d", system, o.Codec, o.Partitions, s.profiled))
	}
	if system == copier || system == mirrorMaker {
		s.create(s.dst, o.Topic, o.Partitions)
		defer s.remove(s.dst, o.Topic)
		o.AtMost = s.extent.atMost
	}
	if system == mirrorMaker {
		return s.mirrorMaker(o)
	}
	cmd, err := child(s.ctx, o)
	if err != nil {
		s.t.Fatalf("%s: %v", system, err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err = kafkatest.StartProcess(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		s.t.Fatalf("%s: %v", system, err)
	}
	var r run
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		s.t.Fatalf("%s: %v: %s", system, err, out.Bytes())
	}
	return r
}

// mirrorMakerWarm is how much CPU MirrorMaker 2 uses before it is measured, its start included, unless half of the topic is copied earlier: the JVM compiles meanwhile. A time would be no
// measure of that on a busy machine.
const mirrorMakerWarm = 20 * time.Second

func (s *suite) mirrorMaker(o order) run {
	cmd, log := startMirrorMaker(s.ctx, s.t, s.src, s.dst, o.Topic, mirrorMakerOf(o.Codec))
	pid := cmd.Process.Pid
	m := &meter{o: &o, client: func() (time.Duration, error) { return processTime(pid) }}
	r, err := m.measure(s.ctx, 10*time.Millisecond, func() (int64, error) { return recordsIn(s.ctx, s.dst, o.Topic) }, func(have int64) bool {
		used, err := processTime(pid)
		return err == nil && used > mirrorMakerWarm || have > o.Records/2
	})
	if err == nil {
		r.PeakBytes, err = processMemory(fmt.Sprint(pid), "VmHWM")
	}
	if err != nil {
		s.t.Fatalf("MirrorMaker 2, see %s: %v", log, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		s.t.Fatalf("MirrorMaker 2: %v", err)
	}
	_ = cmd.Wait() // it was killed
	for _, topic := range mirrorMakerTopics {
		s.remove(s.dst, topic)
	}
	return r
}

func (s *suite) create(c *kafkatest.Cluster, topic string, partitions int32) {
	c.CreateTopic(kafkatest.Topic{Name: topic, Partitions: int(partitions), Replication: 1, Configs: map[string]string{"max.message.bytes": "2000000", "segment.bytes": "1073741824"}})
}

func (s *suite) remove(c *kafkatest.Cluster, topic string) {
	if _, err := c.Admin().DeleteTopics(s.ctx, topic); err != nil {
		s.t.Fatalf("deleting topic %s: %v", topic, err)
	}
	for _, id := range c.Brokers() {
		awaitGone(s.ctx, s.t, topic, c.DataDir(id))
	}
}

// batchBytes is about what all batches hold before compression.
const batchBytes = 64 << 10

// fill makes a topic of equal batches and returns the order to copy it.
func (s *suite) fill(c cell, size int) order {
	s.topics++
	o := order{Topic: fmt.Sprintf("bench-%d", s.topics), Partitions: c.partitions, Codec: c.codec, Source: s.from, Destination: s.to}
	one, records, err := makeBatch(size, batchBytes, c.codec)
	if err != nil {
		s.t.Fatalf("batch: %v", err)
	}
	s.create(s.src, o.Topic, c.partitions)
	want := int64(s.extent.megabytes) * 1e6 / int64(size*records) * int64(len(one))
	o.Bytes = produceRaw(s.t, s.src, o.Topic, c.partitions, one, want)
	o.Batches = o.Bytes / int64(len(one))
	o.Records = o.Batches * int64(records)
	return o
}

// makeBatch builds a batch of records of one size, that together are about as large as asked, with values that compress as text does.
func makeBatch(size, bytes int, codec string) (one []byte, records int, err error) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []batch.Record
	for len(all) == 0 || (len(all)+1)*size <= bytes {
		all = append(all, batch.Record{OffsetDelta: int32(len(all)), Value: text(random, size)})
	}
	one = batch.AppendData(nil, batch.DataSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: time.Now().UnixMilli(), Records: all})
	one, err = compressed(one, codec)
	return one, len(all), err
}

// text is random words of which some are numbers: lz4 halves it, zstd does better.
func text(random *rand.Rand, size int) []byte {
	words := strings.Fields("order customer payment accepted amount currency street warehouse shipped returned pending total item quantity price reference created updated region status")
	var b []byte
	for len(b) < size {
		if random.IntN(3) == 0 {
			b = fmt.Appendf(b, "%d ", random.Uint32())
		} else {
			b = append(append(b, words[random.IntN(len(words))]...), ' ')
		}
	}
	return b[:size]
}

// compressed is a batch as its producer would have compressed it.
func compressed(one []byte, codec string) ([]byte, error) {
	codecs := map[string]kgo.CompressionCodec{"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	if codec == "none" {
		return one, nil
	}
	c, ok := codecs[codec]
	if !ok {
		return nil, fmt.Errorf("no codec %q", codec)
	}
	by, err := kgo.DefaultCompressor(c)
	if err != nil {
		return nil, err
	}
	packed, kind := by.Compress(new(bytes.Buffer), one[batch.HeaderSize:])
	out := append(slices.Clone(one[:batch.HeaderSize]), packed...)
	setCodec(out, int8(kind))
	return out, nil
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Processor: "unknown"}
	line := func(file, name string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			return ""
		}
		for l := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == name {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}
	if v := line("/proc/cpuinfo", "model name"); v != "" {
		m.Processor = v
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(release))
	}
	var kib int64
	if _, err := fmt.Sscan(line("/proc/meminfo", "MemTotal"), &kib); err == nil {
		m.MemoryMiB = kib >> 10
	}
	return m
}

func theseVersions(kafka string) versions {
	v := versions{Go: runtime.Version(), Kafka: kafka, MirrorMaker: kafka, Java: "Java unknown", FranzGo: "unknown"}
	if out, err := exec.Command("java", "-version").CombinedOutput(); err == nil {
		v.Java, _, _ = strings.Cut(string(out), "\n")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/twmb/franz-go" {
				v.FranzGo = d.Version
			}
		}
	}
	return v
}
