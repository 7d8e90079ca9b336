package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/verify"
	"github.com/clustermirror/clustermirror/producerstate"
	"github.com/clustermirror/clustermirror/txnabort"
)

var tp = mirror.TopicPartition{Topic: "orders", Partition: 3}

// side is a log that the test wrote.
type side struct {
	start, end int64
	batches    [][]byte
}

func (s *side) Partition() mirror.TopicPartition { return tp }
func (s *side) Bounds(ctx context.Context) (verify.Bounds, error) {
	return verify.Bounds{Start: s.start, End: s.end, Shown: s.end, Local: s.start}, ctx.Err()
}

func (s *side) Read(ctx context.Context, from int64, most int) (b []byte, err error) {
	if from < s.start || from > s.end {
		return nil, fmt.Errorf("%d of [%d,%d]: %w", from, s.start, s.end, mirror.ErrOffsetOutOfRange)
	}
	for _, x := range s.batches {
		h, _, err := batch.Next(x)
		if err != nil || h.LastOffset() < from {
			continue
		}
		if len(b) > 0 && len(b)+len(x) > most {
			break
		}
		b = append(b, x...)
	}
	return b, ctx.Err()
}

func (s *side) fork() *side { return &side{s.start, s.end, slices.Clone(s.batches)} }

func (s *side) data(pid int64, epoch int16, n int) {
	spec := batch.DataSpec{BaseOffset: s.end, LeaderEpoch: 5, ProducerID: pid, ProducerEpoch: epoch, Transactional: pid >= 0, BaseTimestamp: 1_700_000_000_000 + s.end*1000}
	for i := range n {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), Value: []byte("v")})
	}
	s.batches, s.end = append(s.batches, batch.AppendData(nil, spec)), s.end+int64(n)
}

func (s *side) marker(pid int64, epoch int16, kind batch.ControlType) {
	s.batches = append(s.batches, batch.AppendControl(nil, batch.ControlSpec{BaseOffset: s.end, LeaderEpoch: 5, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: -1, Transactional: true,
		Timestamp: 1_700_000_000_000 + s.end*1000, Key: []byte{0, 0, 0, byte(kind)}, Value: make([]byte, 6)}))
	s.end++
}

// stop ends mirroring as a mirror does: an ABORT for each producer with an open transaction, and the reset.
func (s *side) stop(open map[int64]int16) {
	for pid := range int64(9) {
		if epoch, there := open[pid]; there {
			s.batches = append(s.batches, txnabort.Abort(s.end, 6, producerstate.Transaction{ProducerID: pid, ProducerEpoch: epoch}, 1_700_000_900_000))
			s.end++
		}
	}
	s.batches = append(s.batches, txnabort.PIDReset(s.end, 6, 1_700_000_900_000))
	s.end++
}

// history is a source and its copy, and what is known of them.
type history struct {
	source, copied *side
	lmo            int64
	truth          map[int64]Fate // of each producer whose transaction was open at LMO
	counts         Counts
	version2       bool
}

// draw makes a random history: transactions of a few producers, of either protocol, and a failover in the middle.
func draw(t *rapid.T) *history {
	h := &history{source: &side{}, truth: map[int64]Fate{}, version2: rapid.Bool().Draw(t, "v2")}
	open, epochs, above := map[int64]int16{}, map[int64]int16{}, map[int64]int64{}
	steps := func(most int, after bool) {
		for range rapid.IntRange(0, most).Draw(t, "steps") {
			pid, n := rapid.Int64Range(0, 4).Draw(t, "producer"), rapid.IntRange(1, 3).Draw(t, "records")
			epoch, isOpen := open[pid]
			step := rapid.SampledFrom([]string{"plain", "data", "data", "commit", "abort", "fence"}).Draw(t, "step")
			switch {
			case step == "plain":
				h.source.data(-1, -1, n)
				if after {
					h.counts.NoTransaction += int64(n)
				}
			case step == "data":
				if !isOpen {
					open[pid] = epochs[pid]
				}
				h.source.data(pid, open[pid], n)
				if after {
					above[pid] += int64(n)
				}
			case isOpen:
				kind, fate := batch.ControlCommit, Committed
				if step != "commit" {
					kind, fate = batch.ControlAbort, Aborted
				}
				if h.version2 || step == "fence" {
					epoch++
					epochs[pid] = epoch
				}
				h.source.marker(pid, epoch, kind)
				delete(open, pid)
				if _, known := h.truth[pid]; after && known && h.truth[pid] == Open {
					h.truth[pid] = fate
				}
				if fate == Committed {
					h.counts.Committed += above[pid]
				} else {
					h.counts.Aborted += above[pid]
				}
				delete(above, pid)
			}
		}
	}
	steps(20, false)
	h.lmo, h.copied = h.source.end, h.source.fork()
	h.copied.stop(open)
	h.copied.data(-1, -1, 2) // clients go on here
	for pid := range open {
		h.truth[pid] = Open
	}
	steps(20, true)
	for _, n := range above {
		h.counts.Open += n
	}
	return h
}

// list reads in steps as drawn, each resumed from JSON.
func (h *history) list(t *rapid.T, o Options) PartitionReport {
	o.Chunk, o.MaxBytes = rapid.IntRange(1, 500).Draw(t, "chunk"), rapid.Int64Range(1, 2000).Draw(t, "bytes")
	for {
		r, err := Partition(context.Background(), h.source, h.copied, Position{LME: 5, LMO: h.lmo}, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Done {
			return r
		}
		stored, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		o.Resume = new(PartitionReport)
		if err := json.Unmarshal(stored, o.Resume); err != nil {
			t.Fatal(err)
		}
	}
}

func same(end int64) func(context.Context, int32) (mirror.EpochEnd, error) {
	return func(context.Context, int32) (mirror.EpochEnd, error) { return mirror.EpochEnd{Epoch: 5, End: end}, nil }
}

// The list is exactly right where nothing is missing: each transaction that was open at LMO with how the source ended it, and each record at or above LMO once.
func TestTheListIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		r := h.list(t, Options{EndOfEpoch: same(h.source.end)})
		got := map[int64]Fate{}
		for _, x := range r.Transactions {
			got[x.ProducerID] = x.Source
			if x.First < 0 || x.First > x.Last || x.Last >= h.lmo || !x.FirstIsExact || x.Abort < h.lmo || (x.Marker >= 0) != (x.Source != Open) || x.Why != "" {
				t.Fatalf("%+v", x)
			}
			if x.Source == Committed && (x.Version == "v2") != h.version2 && x.Version != "v2" {
				t.Fatalf("%+v", x)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(h.truth) || r.Records != h.counts || len(r.Gaps) != 0 || len(r.Possible) != 0 || !r.Compared || r.Reset != h.lmo+int64(len(h.truth)) {
			t.Fatalf("%v, want %v; %+v, want %+v", got, h.truth, r, h.counts)
		}
	})
}

// Where something is missing, nothing is told that is not so: retention and compaction at the source, an unclean election there, the marks of the stop gone here.
func TestTheListNeverGuesses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		o := Options{EndOfEpoch: same(h.source.end)}
		what := rapid.SampledFrom([]string{"retention", "compaction", "lost", "marks"}).Draw(t, "what")
		switch what {
		case "retention":
			h.source.start = rapid.Int64Range(0, h.source.end).Draw(t, "start")
		case "compaction":
			h.source.batches = slices.DeleteFunc(h.source.batches, func([]byte) bool { return rapid.IntRange(0, 3).Draw(t, "keep") == 0 })
		case "lost":
			o.EndOfEpoch = same(rapid.Int64Range(0, h.lmo).Draw(t, "end"))
		case "marks":
			h.copied.start = h.copied.end - 1
			h.copied.batches = h.copied.batches[len(h.copied.batches)-1:]
		}
		r := h.list(t, o)
		for _, x := range r.Transactions {
			if x.Source != Unknown && x.Source != h.truth[x.ProducerID] || (x.Source == Unknown) != (x.Why != "") {
				t.Fatalf("%s: %+v, truly %s", what, x, h.truth[x.ProducerID])
			}
		}
		if what == "marks" {
			if len(r.Transactions) != 0 || r.Reset >= 0 || len(r.Gaps) == 0 {
				t.Fatalf("%+v", r)
			}
			for pid, fate := range h.truth {
				if possible := slices.ContainsFunc(r.Possible, func(x Transaction) bool { return x.ProducerID == pid }); possible && fate != Committed {
					t.Fatalf("producer %d, %s: possible %v", pid, fate, possible)
				}
			}
		}
		if s := r.Records; what == "retention" && s.Sum() > h.counts.Sum() {
			t.Fatalf("%+v", s)
		}
	})
}

// The page's example: transaction 4001 was committed at the source and aborted here, 4002 aborted on both sides (KIP-1279), beside all that cannot be known.
func TestF47TheListOfTheKIPPage(t *testing.T) {
	h := &history{source: &side{}}
	h.source.data(4001, 5, 2)
	h.source.data(4002, 0, 1)
	h.source.data(4003, 0, 2)
	h.lmo, h.copied = h.source.end, h.source.fork()
	h.copied.stop(map[int64]int16{1: 0})
	h.copied.batches, h.copied.end = h.copied.batches[:3], h.lmo
	for _, x := range []producerstate.Transaction{{ProducerID: 4001, ProducerEpoch: 5}, {ProducerID: 4002}, {ProducerID: 4003}} {
		h.copied.batches = append(h.copied.batches, txnabort.Abort(h.copied.end, 6, x, 1_700_000_900_000))
		h.copied.end++
	}
	h.copied.stop(nil)
	h.source.data(4001, 5, 1)
	h.source.marker(4001, 6, batch.ControlCommit)
	h.source.marker(4002, 1, batch.ControlAbort)
	h.source.data(-1, -1, 3)
	now := func() time.Time { return time.Unix(1_700_001_000, 0) }
	position := Position{LME: 5, LMO: h.lmo}
	exact, err := Partition(t.Context(), h.source, h.copied, position, Options{EndOfEpoch: same(h.source.end), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	late := h.source.fork()
	late.start = h.lmo + 1
	gone, err := Partition(t.Context(), late, h.copied, position, Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	gone.TopicPartition.Topic = "payments"
	r := Report{Mirror: "dr", SourceClusterID: "primary", DestinationClusterID: "standby", Taken: now(), Partitions: []PartitionReport{exact, gone}}
	golden, err := os.ReadFile(filepath.Join("testdata", "report.txt"))
	if err != nil || r.String() != string(golden) {
		t.Errorf("%v\n%s", err, r.String())
	}
	if r.Count(Committed) != 1 || r.Count(Aborted) != 1 || r.Count(Open) != 1 || r.Count(Unknown) != 3 {
		t.Errorf("%d committed, %d aborted, %d open, %d unknown", r.Count(Committed), r.Count(Aborted), r.Count(Open), r.Count(Unknown))
	}
}

// FuzzPartition makes the list of a source of any bytes: it ends, costs little, and can be printed.
func FuzzPartition(f *testing.F) {
	h := &history{source: &side{}}
	h.source.data(1, 5, 2)
	h.copied = h.source.fork()
	h.copied.stop(map[int64]int16{1: 5})
	h.source.marker(1, 6, batch.ControlCommit)
	f.Add(slices.Concat(h.source.batches...), int64(2), int64(3))
	for _, b := range fuzzbound.Recorded(f) {
		f.Add(b, int64(2), int64(100))
	}
	f.Fuzz(func(t *testing.T, content []byte, lmo, end int64) {
		if len(content) > 1<<16 || lmo < 0 || end < 0 {
			return
		}
		fuzzbound.Run(t, len(content), func() {
			r, _ := Partition(t.Context(), &blob{content, end}, h.copied, Position{LME: 5, LMO: min(lmo, h.copied.end)}, Options{})
			report := Report{Partitions: []PartitionReport{r}}
			if text := report.String(); !strings.HasPrefix(text, "RECONCILIATION") {
				t.Error(text)
			}
		})
	})
}

// blob is a source whose every read brings the same bytes, from the batch on that holds the offset.
type blob struct {
	bytes []byte
	end   int64
}

func (b *blob) Partition() mirror.TopicPartition { return tp }
func (b *blob) Bounds(ctx context.Context) (verify.Bounds, error) {
	return verify.Bounds{End: b.end}, ctx.Err()
}
func (b *blob) Read(ctx context.Context, from int64, _ int) ([]byte, error) {
	rest := b.bytes
	for len(rest) > 0 {
		h, n, err := batch.Next(rest)
		if err != nil || h.LastOffset() >= from {
			break
		}
		rest = rest[n:]
	}
	return rest, ctx.Err()
}

// stuck is a log whose every read brings the same first batches, whatever was asked for.
type stuck struct{ side }

func (s *stuck) Read(ctx context.Context, _ int64, _ int) ([]byte, error) {
	return s.batches[0], ctx.Err()
}

// A source that answers with what was read already is an error, and no reading without an end.
func TestASourceThatBringsNothingNewIsAnError(t *testing.T) {
	h := &history{source: &side{}}
	h.source.data(-1, -1, 2)
	h.lmo, h.copied = h.source.end, h.source.fork()
	h.copied.stop(nil)
	h.source.data(-1, -1, 2)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	_, err := Partition(ctx, &stuck{*h.source}, h.copied, Position{LME: 5, LMO: h.lmo}, Options{})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "a read at 2 gives batches that end at 2") {
		t.Errorf("%v", err)
	}
}
