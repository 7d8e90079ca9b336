package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// packRecords writes records as FuzzControl reads them: lengths of two bytes, then key and value.
func packRecords(records map[string][]byte) (b []byte) {
	for _, key := range slices.Sorted(maps.Keys(records)) {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(key))), key...)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(records[key]))), records[key]...)
	}
	return b
}

func unpackRecords(b []byte) map[string][]byte {
	records := map[string][]byte{}
	take := func() (taken []byte) {
		if len(b) < 2 {
			b = nil
			return nil
		}
		n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
		taken, b = b[2:2+n], b[2+n:]
		return taken
	}
	for len(b) > 0 {
		if key, value := take(), take(); len(key) > 0 && len(value) > 0 {
			records[string(key)] = value
		}
	}
	return records
}

func keyedLogOf(t *testing.T, records map[string][]byte) *keyedlog.Memory {
	t.Helper()
	log := keyedlog.NewMemory()
	putRecords(t, log, records)
	return log
}

// FuzzControl has a Control read any records. The desired state is refused with the record's name, or is the same when it is written and read again; history too. No report
// stops another one: each is in the answer, readable or not, and a readable one comes back equal from what is written of it.
func FuzzControl(f *testing.F) {
	first := readFirst(f)
	f.Add(packRecords(first))
	for key, value := range first {
		f.Add(packRecords(map[string][]byte{key: value}))
	}
	f.Add(packRecords(map[string][]byte{"\x00\x4b\x00\x01m": []byte(`{"version":1}`), "\x00\x4e\x00\x01o\x00\x01m": []byte(`{"version":2}`), "x": []byte("y")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx := context.Background()
		records := unpackRecords(b)
		log := keyedLogOf(t, records)
		var state ControlState
		var history []HistoryEntry
		var reports Reports
		var stateErr, historyErr, reportsErr error
		fuzzbound.Run(t, len(b), func() {
			c := NewControl(log)
			state, stateErr = c.Read(ctx)
			history, historyErr = c.History(ctx)
			reports, reportsErr = c.Reports(ctx)
		})
		for _, err := range []error{stateErr, historyErr} {
			var bad *ControlRecordError // or a state that is impossible as a whole
			if err != nil && !errors.As(err, &bad) && !strings.HasPrefix(err.Error(), "mirror: desired state: ") {
				t.Fatalf("error %T %v", err, err)
			}
		}
		if reportsErr != nil {
			t.Fatal(reportsErr)
		}
		if stateErr == nil {
			sameState(t, state)
		}
		written := map[string][]byte{}
		put := func(c keyedlog.Change, err error) {
			if err != nil {
				t.Fatal(err)
			}
			written[string(c.Key)] = c.Value
		}
		for _, h := range history {
			put(noteRecord(h.Number, h))
		}
		for i, n := range reports.Nodes {
			if n.Interval%time.Millisecond != 0 || n.Refresh%time.Millisecond != 0 {
				t.Fatalf("%+v", reports.Nodes[i])
			}
			put(n.change())
		}
		for _, p := range reports.Partitions {
			put(p.change(1))
		}
		for _, a := range reports.Answers {
			put(a.change())
			_, _ = a.Plan()
		}
		c := NewControl(keyedLogOf(t, written))
		again, err := c.Reports(ctx)
		if err != nil || len(again.Unread) > 0 {
			t.Fatalf("what was written of reports: %v, %v", err, again.Unread)
		}
		entries, err := c.History(ctx)
		if err != nil || len(entries) != len(history) {
			t.Fatalf("what was written of the history: %d entries of %d, %v", len(entries), len(history), err)
		}
		// Written once they are as they stay: texts are cut, times are without a zone.
		rewritten := map[string][]byte{}
		for _, h := range entries {
			c, err := noteRecord(h.Number, h)
			must(t, err)
			rewritten[string(c.Key)] = c.Value
		}
		for _, n := range again.Nodes {
			c, err := n.change()
			must(t, err)
			rewritten[string(c.Key)] = c.Value
		}
		for _, p := range again.Partitions {
			c, err := p.change(1)
			must(t, err)
			rewritten[string(c.Key)] = c.Value
		}
		for _, a := range again.Answers {
			c, err := a.change()
			must(t, err)
			rewritten[string(c.Key)] = c.Value
		}
		for key, value := range written {
			if got := rewritten[key]; !bytes.Equal(got, value) && len(value) < historyText {
				t.Fatalf("key %x: %s became\n%s", key, value, got)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readFirst is readFirstRecords for a fuzz target.
func readFirst(f *testing.F) (records map[string][]byte) {
	f.Helper()
	text, err := os.ReadFile(firstRecords)
	if err != nil {
		f.Fatal(err)
	}
	records = map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		var key []byte
		var value string
		if hexed, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			if _, err := fmt.Sscanf(hexed, "%x", &key); err != nil {
				f.Fatal(err)
			}
			value = rest
		}
		records[string(key)] = []byte(value)
	}
	return records
}

// sameState demands that a state that was read is the same when it is written and read again.
func sameState(t *testing.T, s ControlState) {
	t.Helper()
	before := s.Clone()
	written, err := encodeControl(&s)
	if err != nil {
		t.Fatalf("a state that was read cannot be written: %v\n%+v", err, before)
	}
	back, err := decodeControl(rawOf(written))
	if err != nil {
		t.Fatalf("what was written cannot be read: %v\n%q", err, written)
	}
	again, err := encodeControl(&back)
	if err != nil || !maps.EqualFunc(written, again, bytes.Equal) {
		t.Fatalf("%v\n%q became\n%q", err, written, again)
	}
}

func rawOf(records map[string][]byte) (raw []controlRaw) {
	for _, key := range slices.Sorted(maps.Keys(records)) {
		raw = append(raw, controlRaw{[]byte(key), records[key]})
	}
	return raw
}

// FuzzRemembered reads any value of each kind that metadata sync remembers: it is refused with its name, or comes back equal from what is written of it.
func FuzzRemembered(f *testing.F) {
	f.Add(uint8(0), "orders", `{"v":1,"settings":{"retention.ms":{"set":"1","was":null,"before":"2"},"x":{"set":""}}}`)
	f.Add(uint8(1), "orders", `{"v":1,"episodes":{"0":1,"7":2},"except":{"7":["a","b"]}}`)
	f.Add(uint8(2), `["topic","orders","literal","User:a","*","read","allow"]`, "")
	f.Add(uint8(1), "orders", `{"v":2}`)
	f.Add(uint8(0), "orders", strings.Repeat(`{"v":`, 20_000))
	f.Fuzz(func(t *testing.T, kind uint8, name, value string) {
		p := Provenance{Mirror: "m", Name: name, Value: value}
		var again Provenance
		var same bool
		var err error
		fuzzbound.Run(t, len(name)+len(value), func() {
			switch kind % 3 {
			case 0:
				p.Kind = settingProvenance
				settings, readErr := decodeSettings(p)
				if err = readErr; err == nil {
					again, err = encodeSettings("m", name, settings)
				}
				if again.Value == "" {
					same = len(settings) == 0
				} else if back, err := decodeSettings(again); err == nil {
					same = sameSettings(back, settings)
				}
			case 1:
				p.Kind = groupEpisodesProvenance
				e, _, readErr := decodeGroupEpisodes(p)
				if err = readErr; err == nil {
					again, err = e.encode("m")
				}
				if err == nil {
					back, _, backErr := decodeGroupEpisodes(again)
					same = backErr == nil && reflect.DeepEqual(back, e)
				}
			case 2:
				a, readErr := aclStored(name)
				same = readErr != nil || a.stored() == name
			}
		})
		var bad *ControlRecordError
		switch {
		case err != nil && !errors.As(err, &bad):
			t.Fatalf("error %T %v", err, err)
		case err == nil && !same:
			t.Fatalf("%q %q became %q", name, value, again.Value)
		}
	})
}

// FuzzReadSinkFile: whatever a file of dropped records holds and is called, what is read without an error is all of it, whole batches in order, from its name's first offset to
// the last one; and what the sink writes is read.
func FuzzReadSinkFile(f *testing.F) {
	whole := slices.Concat(data(880, 20), data(900, 50, transactional(7)), marker(950, 7, 1))
	f.Add("t/12/00000000000000000880.00000000000000000951.0.log", whole)
	f.Add("t/12/880.951.0.log", whole[:len(whole)-1])
	f.Add("t/-1/1.0.log", whole)
	f.Add("t/0/880.951.log.log", data(0, 1))
	for _, b := range fuzzbound.Recorded(f) {
		f.Add("t/0/0.7.0.log", b)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		// The name is below the folder, and one that a file system takes.
		parts := strings.Split(strings.ReplaceAll(name, "\x00", ""), "/")
		for i, p := range parts {
			if parts[i] = p[:min(len(p), 60)]; p == "" || p == "." || p == ".." {
				return
			}
		}
		path := filepath.Join(dir, "read", filepath.Join(parts[max(0, len(parts)-3):]...))
		defer os.RemoveAll(filepath.Join(dir, "read"))
		if os.MkdirAll(filepath.Dir(path), 0o700) != nil || os.WriteFile(path, content, 0o600) != nil {
			return
		}
		var s SinkFile
		var err error
		fuzzbound.Run(t, len(content), func() { s, err = ReadSinkFile(path) })
		if err != nil {
			return
		}
		if !bytes.Equal(s.Batches, content) || s.From > s.To || s.From < 0 {
			t.Fatalf("[%d,%d), %d bytes of %d", s.From, s.To, len(s.Batches), len(content))
		}
		next, size := s.From, 0
		for h, raw := range batch.All(content) {
			if h.BaseOffset < next || batch.Check(raw, &h) != nil || size == 0 && h.BaseOffset != s.From {
				t.Fatalf("a batch [%d,%d) at byte %d of a file of [%d,%d)", h.BaseOffset, h.NextOffset(), size, s.From, s.To)
			}
			next, size = h.NextOffset(), size+len(raw)
		}
		if size != len(content) || next != s.To && size > 0 {
			t.Fatalf("%d bytes of %d up to %d, the name says %d", size, len(content), next, s.To)
		}
		if checkTopicName(s.Topic) != nil || s.Partition < 0 {
			return
		}
		kept := filepath.Join(dir, "kept")
		defer os.RemoveAll(kept)
		if err := FileSink(kept).Dropped(context.Background(), s.TopicPartition, s.From, s.To, content); err != nil {
			t.Fatal(err)
		}
		again, err := ReadSinkFile(filepath.Join(kept, s.Topic, fmt.Sprint(s.Partition), fmt.Sprintf("%020d.%020d.0.log", s.From, s.To)))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("[%d,%d) of %v was kept, and reads as [%d,%d) of %v: %v", s.From, s.To, s.TopicPartition, again.From, again.To, again.TopicPartition, err)
		}
	})
}

// FuzzPlans: a text is no plan, or it is one that is the same when it is written and read again, with the same hash, packed too; and it can be printed.
func FuzzPlans(f *testing.F) {
	for _, p := range []any{FailoverPlan{Mirror: "m", Severity: SeveritySafe}, FailbackPlan{Mirror: "m", Severity: SeveritySafe, Partitions: []FailbackPartition{{Topic: "t", Partition: 1}}}} {
		b, err := indentedJSON(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var over FailoverPlan
		var back FailbackPlan
		var overErr, backErr error
		fuzzbound.Run(t, len(b), func() {
			over, back = FailoverPlan{}, FailbackPlan{}
			overErr, backErr = over.UnmarshalJSON(b), back.UnmarshalJSON(b)
		})
		if overErr == nil {
			text, err := over.JSON()
			var again FailoverPlan
			if err != nil || again.UnmarshalJSON(text) != nil || again.Hash() != over.Hash() || again.String() != over.String() {
				t.Fatalf("%v\n%s", err, text)
			}
		}
		if backErr != nil {
			return
		}
		packed, err := back.pack()
		if err != nil {
			t.Fatal(err)
		}
		again, err := FailbackAnswer{Packed: packed}.Plan()
		if err != nil || again.Hash() != back.Hash() || again.String() != back.String() {
			t.Fatalf("%v\n%s\n%s", err, again, back)
		}
	})
}
