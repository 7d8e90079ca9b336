package dropped

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/mirror"
)

var tp = mirror.TopicPartition{Topic: "orders", Partition: 3}

// piece is a batch of a log that the test wrote, and what it knows of it.
type piece struct {
	base, last int64
	bytes      []byte
	pid        int64 // -1: none
	txn        int   // number of the transaction, 0: none
	kind       string
	values     []string
}

// history is a log, and what became of its transactions.
type history struct {
	pieces []piece
	begins map[int]int64 // transaction: its first offset
	end    int64
}

var compressors = func() map[int8]kgo.Compressor {
	m := map[int8]kgo.Compressor{}
	for codec, c := range map[int8]kgo.CompressionCodec{1: kgo.GzipCompression(), 2: kgo.SnappyCompression(), 3: kgo.Lz4Compression(), 4: kgo.ZstdCompression()} {
		var err error
		if m[codec], err = kgo.DefaultCompressor(c); err != nil {
			panic(err)
		}
	}
	return m
}()

// compressed is an uncompressed batch as a producer with compression has it.
func compressed(b []byte, codec int8) []byte {
	if codec == 0 {
		return b
	}
	var into bytes.Buffer
	small, _ := compressors[codec].Compress(&into, b[batch.HeaderSize:])
	b = append(b[:batch.HeaderSize:batch.HeaderSize], small...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[22] |= byte(codec)
	batch.Seal(b)
	return b
}

func (h *history) data(pid int64, txn int, codec int8, values ...string) {
	spec := batch.DataSpec{BaseOffset: h.end, LeaderEpoch: 5, ProducerID: pid, ProducerEpoch: 2, BaseSequence: 1, Transactional: txn > 0, BaseTimestamp: 1_700_000_000_000 + h.end}
	for i, v := range values {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), TimestampDelta: int64(i), Key: []byte("k"), Value: []byte(v), Headers: []batch.RecordHeader{{Key: "h", Value: []byte(v)}}})
	}
	if txn > 0 && h.begins[txn] == 0 {
		h.begins[txn] = h.end
	}
	h.add(piece{bytes: compressed(batch.AppendData(nil, spec), codec), pid: pid, txn: txn, kind: "data", values: values}, int64(len(values)))
}

func (h *history) marker(pid int64, txn int, commit bool) {
	key, kind := []byte{0, 0, 0, byte(batch.ControlAbort)}, "ABORT"
	if commit {
		key[3], kind = byte(batch.ControlCommit), "COMMIT"
	}
	b := batch.AppendControl(nil, batch.ControlSpec{BaseOffset: h.end, LeaderEpoch: 5, ProducerID: pid, ProducerEpoch: 2, BaseSequence: -1, Transactional: true, Timestamp: 1_700_000_000_000, Key: key, Value: make([]byte, 6)})
	h.add(piece{bytes: b, pid: pid, txn: txn, kind: kind}, 1)
}

func (h *history) add(p piece, n int64) {
	p.base, p.last = h.end, h.end+n-1
	h.end += n
	h.pieces = append(h.pieces, p)
}

// state is what was to be read of a piece if [from, end) was dropped and nothing was damaged.
func (h *history) state(p *piece, from int64) Transaction {
	if p.kind == "data" && p.txn == 0 {
		return Transaction{State: None, Marker: -1}
	}
	t := Transaction{State: Open, Marker: -1}
	for _, x := range h.pieces {
		if x.kind != "data" && x.txn == p.txn {
			t.State, t.Marker = map[string]State{"COMMIT": Committed, "ABORT": Aborted}[x.kind], x.base
		}
	}
	seen, ended := false, false // data of the transaction, and an earlier end of the producer's, within what was dropped
	for _, x := range h.pieces {
		if x.base < from || x.pid != p.pid {
			continue
		}
		if x.txn == p.txn {
			seen = seen || x.kind == "data"
			break
		}
		ended = ended || x.kind != "data"
	}
	t.Whole = seen && (ended || from == 0)
	t.Below = p.kind != "data" && !seen && !ended
	return t
}

// draw is a random log from offset 1 on, or 0.
func draw(t *rapid.T) *history {
	h := &history{begins: map[int]int64{}, end: rapid.Int64Range(0, 1).Draw(t, "start")}
	open, txns := map[int64]int{}, 0
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		pid := rapid.Int64Range(1, 3).Draw(t, "producer")
		codec := rapid.Int8Range(0, 4).Draw(t, "codec")
		values := make([]string, rapid.IntRange(1, 4).Draw(t, "records"))
		for i := range values {
			values[i] = fmt.Sprint("v", h.end+int64(i))
		}
		switch rapid.SampledFrom([]string{"plain", "data", "data", "commit", "abort"}).Draw(t, "step") {
		case "plain":
			h.data(-1, 0, codec, values...)
		case "data":
			if open[pid] == 0 {
				txns++
				open[pid] = txns
			}
			h.data(pid, open[pid], codec, values...)
		case "commit", "abort":
			if open[pid] != 0 {
				h.marker(pid, open[pid], rapid.Bool().Draw(t, "committed"))
				open[pid] = 0
			}
		}
	}
	if len(h.pieces) == 0 {
		h.data(-1, 0, 0, "v")
	}
	return h
}

// plainSink writes as a FileSink does, and syncs nothing: most examples need no disk.
type plainSink struct{ dir string }

func (s plainSink) Dropped(_ context.Context, tp mirror.TopicPartition, from, to int64, batches []byte) error {
	folder := filepath.Join(s.dir, tp.Topic, fmt.Sprint(tp.Partition))
	return errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, fmt.Sprintf("%020d.%020d.0.log", from, to)), batches, 0o600))
}

// drop hands what lies at or above from to a sink, in parts as drawn.
func (h *history) drop(t *rapid.T, sink mirror.Sink, from int) {
	for i := from; i < len(h.pieces); {
		n := rapid.IntRange(1, 15).Draw(t, "part")
		var part []byte
		first, last := h.pieces[i].base, int64(0)
		for ; n > 0 && i < len(h.pieces); i, n = i+1, n-1 {
			part, last = append(part, h.pieces[i].bytes...), h.pieces[i].last
		}
		if err := sink.Dropped(context.Background(), tp, first, last+1, part); err != nil {
			t.Fatal(err)
		}
	}
}

func temporary(t *rapid.T) (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "dropped")
	if err != nil {
		t.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

func list(t rapid.TB, dir string) *Folder {
	folder, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func sameTransaction(a, b Transaction) bool { a.Why, b.Why = "", ""; return a == b }

// What a truncation dropped is read back: each byte, each record, and what became of its transaction, whatever the parts in which it was handed over.
func TestWhatWasDroppedIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		dir, remove := temporary(t)
		defer remove()
		cut := rapid.IntRange(0, len(h.pieces)-1).Draw(t, "cut")
		from := h.pieces[cut].base
		h.drop(t, mirror.FileSink(dir), cut)
		folder := list(t, dir)
		i := cut
		for b, err := range folder.Batches(context.Background(), Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			p := &h.pieces[i]
			if want := h.state(p, from); !bytes.Equal(b.Bytes, p.bytes) || b.Base != p.base || b.Kind != p.kind || !sameTransaction(b.Transaction, want) || b.Again {
				t.Fatalf("%s at %d: %+v, want %+v", p.kind, p.base, b.Transaction, want)
			}
			if (b.Transaction.Why != "") != (b.Transaction.State == Open) {
				t.Fatalf("%+v", b.Transaction)
			}
			i++
		}
		if i != len(h.pieces) {
			t.Fatalf("%d of %d batches", i-cut, len(h.pieces)-cut)
		}
		var want, got []string
		for _, p := range h.pieces[cut:] {
			for j, v := range p.values {
				want = append(want, fmt.Sprint(p.base+int64(j), " ", v, " ", h.state(&p, from).State))
			}
		}
		for r, err := range folder.Records(context.Background(), Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Kind != "data" {
				continue
			}
			if string(r.Key) != "k" || len(r.Headers) != 1 || string(r.Headers[0].Value) != string(r.Value) || r.LeaderEpoch != 5 || r.TopicPartition != tp || r.Timestamp.UnixMilli() != 1_700_000_000_000+r.Offset {
				t.Fatalf("%+v", r)
			}
			got = append(got, fmt.Sprint(r.Offset, " ", string(r.Value), " ", r.Transaction.State))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q\nwant %q", got, want)
		}
		s, err := folder.Summarize(context.Background(), Options{})
		if err != nil || s.Records.sum() != int64(len(want)) {
			t.Fatalf("%+v, %v", s.Records, err)
		}
	})
}

// A truncation that is tried again, from wherever and in whatever parts, gives no record twice that is not marked.
func TestWhatIsDroppedAgainIsMarked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		dir, remove := temporary(t)
		defer remove()
		lowest := len(h.pieces)
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			cut := rapid.IntRange(0, len(h.pieces)-1).Draw(t, "cut")
			lowest = min(lowest, cut)
			h.drop(t, plainSink{dir}, cut)
		}
		given := map[int64]bool{}
		for b, err := range list(t, dir).Batches(context.Background(), Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if given[b.Base] != b.Again {
				t.Fatalf("the batch at %d: again %v", b.Base, b.Again)
			}
			given[b.Base] = true
			if b.Transaction.State == Open && h.state(h.at(b.Base), 0).State != Open {
				t.Fatalf("the batch at %d is open", b.Base)
			}
		}
		if len(given) != len(h.pieces)-lowest {
			t.Fatalf("%d of %d batches", len(given), len(h.pieces)-lowest)
		}
	})
}

func (h *history) at(base int64) *piece {
	i, _ := slices.BinarySearchFunc(h.pieces, base, func(p piece, base int64) int { return int(p.base - base) })
	return &h.pieces[i]
}

// A damaged or half file stops where the damage is, and says where; everything before it is given, and no transaction's end is told that may lie behind it.
func TestADamagedFileIsReadAsFarAsItGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := draw(t)
		dir, remove := temporary(t)
		defer remove()
		h.drop(t, plainSink{dir}, 0)
		files := list(t, dir).Files
		file := files[rapid.IntRange(0, len(files)-1).Draw(t, "file")]
		b, err := os.ReadFile(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		// Where batches begin. The damage is in one of them, in what its checksum covers or frames.
		var begins []int
		var bases []int64
		for at := 0; at < len(b); {
			head, n, err := batch.Next(b[at:])
			if err != nil {
				t.Fatal(err)
			}
			begins, bases, at = append(begins, at), append(bases, head.BaseOffset), at+n
		}
		which := rapid.IntRange(0, len(begins)-1).Draw(t, "batch")
		end := len(b)
		if which+1 < len(begins) {
			end = begins[which+1]
		}
		if at := rapid.IntRange(begins[which]+16, end-1).Draw(t, "byte"); rapid.Bool().Draw(t, "half") {
			b = b[:at]
		} else {
			b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		if err := os.WriteFile(file.Path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		damaged := 0
		var got []int64
		for x, err := range list(t, dir).Batches(context.Background(), Options{}) {
			var damage *DamageError
			if errors.As(err, &damage) {
				damaged++
				if damage.Path != file.Path || damage.Byte != int64(begins[which]) || damage.Offset != bases[which] || !strings.Contains(damage.Error(), file.Path) {
					t.Fatal(damage)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, x.Base)
			p := h.at(x.Base)
			want := h.state(p, 0)
			if !bytes.Equal(x.Bytes, p.bytes) || x.Transaction.State != want.State && x.Transaction.State != Unknown || x.Transaction.State == Unknown && x.Transaction.Why == "" {
				t.Fatalf("%+v, want %+v", x.Transaction, want)
			}
		}
		var want []int64
		for _, p := range h.pieces {
			if p.base < bases[which] || p.base >= file.To {
				want = append(want, p.base)
			}
		}
		if damaged != 1 || !slices.Equal(got, want) {
			t.Fatalf("%d errors, batches at %v, want %v", damaged, got, want)
		}
		s, err := list(t, dir).Summarize(context.Background(), Options{})
		if err != nil || !strings.Contains(s.String(), "is damaged at byte") {
			t.Fatalf("%v\n%s", err, s)
		}
	})
}

// FuzzFolder reads a file of any name and contents: it ends, costs little, gives a prefix of the file, byte by byte, and says where it stops.
func FuzzFolder(f *testing.F) {
	h := &history{begins: map[int]int64{}, end: 880}
	h.data(-1, 0, 0, "a", "b")
	h.data(7, 1, 4, "c")
	h.marker(7, 1, true)
	var whole []byte
	for _, p := range h.pieces {
		whole = append(whole, p.bytes...)
	}
	f.Add("880.884.0.log", whole)
	f.Add("880.885.0.log", whole)
	f.Add("00000000000000000880.00000000000000000884.0.log", whole[:len(whole)-1])
	f.Add("unfinished-1", whole)
	for _, b := range fuzzbound.Recorded(f) {
		f.Add("0.7.0.log", b)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if name = name[:min(len(name), 60)]; strings.ContainsAny(name, "/\x00") || name == "" || name == "." || name == ".." || len(content) > 1<<16 {
			return
		}
		path := filepath.Join(dir, "t", "0", name)
		if os.MkdirAll(filepath.Dir(path), 0o700) != nil || os.WriteFile(path, content, 0o600) != nil {
			return
		}
		defer os.Remove(path)
		fuzzbound.Run(t, len(content), func() {
			folder := list(t, dir)
			if len(folder.Files)+len(folder.Strays) != 1 {
				t.Fatalf("%+v", folder)
			}
			o, at, damaged := Options{MaxBatch: max(1, len(content))}, 0, false
			for b, err := range folder.Batches(t.Context(), o) {
				var damage *DamageError
				if err != nil {
					if damaged = errors.As(err, &damage); !damaged || damage.Byte != int64(at) || damage.Path != path {
						t.Fatalf("at %d: %v", at, err)
					}
					continue
				}
				if damaged || !bytes.HasPrefix(content[at:], b.Bytes) {
					t.Fatalf("at byte %d is another batch", at)
				}
				at += len(b.Bytes)
			}
			if len(folder.Files) > 0 && !damaged && at != len(content) {
				t.Fatalf("%d of %d bytes, without an error", at, len(content))
			}
			for _, err := range folder.Records(t.Context(), o) {
				if err != nil && !errors.As(err, new(*DamageError)) {
					t.Fatal(err)
				}
			}
			s, err := folder.Summarize(t.Context(), o)
			if err != nil || s.String() == "" {
				t.Fatal(err)
			}
		})
	})
}

// The summary names all that a person has to know: whose marker it is that ends something below, what is open and why, and what was not read.
func TestTheSummaryOfAFolder(t *testing.T) {
	h := &history{begins: map[int]int64{}, end: 880}
	h.marker(4001, 1, true)
	h.data(-1, 0, 1, "a", "b")
	h.data(7, 2, 4, "c", "d", "e")
	h.data(8, 3, 0, "f")
	h.marker(7, 2, true)
	h.data(9, 4, 3, "g", "h")
	h.marker(8, 3, false)
	dir := t.TempDir()
	var b []byte
	for _, p := range h.pieces {
		b = append(b, p.bytes...)
	}
	sink := mirror.FileSink(dir)
	if err := errors.Join(sink.Dropped(t.Context(), tp, 880, h.end, b), sink.Dropped(t.Context(), mirror.TopicPartition{Topic: "payments"}, 880, h.end, b)); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "payments", "0", fmt.Sprintf("%020d.%020d.0.log", 880, h.end))
	if err := errors.Join(os.WriteFile(half, b[:len(b)-100], 0o600), os.WriteFile(filepath.Join(dir, "orders", "3", "unfinished-12"), b, 0o600), os.WriteFile(filepath.Join(dir, "notes.txt"), b, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err := list(t, dir).Summarize(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(s.String(), dir, "/dropped")
	golden, err := os.ReadFile(filepath.Join("testdata", "summary.txt"))
	if err != nil || got != string(golden) {
		t.Errorf("%v\n%s", err, got)
	}
}
