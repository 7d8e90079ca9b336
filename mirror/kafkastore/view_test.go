package kafkastore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// read is a record of update u, one of that many, at an offset.
func read(offset int64, key, value, u string, of int) topicreader.Record {
	k := topicreader.Record{Topic: controlTopic, Offset: offset, Key: []byte(key), Value: []byte(value)}
	if value == "" {
		k.Value = nil
	}
	k.Headers = []topicreader.Header{{Key: headerUpdate, Value: []byte(u)}, {Key: headerOf, Value: fmt.Append(nil, of)}}
	return k
}

func (r *records) text() string {
	var b strings.Builder
	view{r, 0}.Each(nil, func(k keyedlog.Record) error {
		fmt.Fprintf(&b, "%s=%s ", k.Key, k.Value)
		return nil
	})
	return b.String()
}

func TestUpdatesAreShownWhole(t *testing.T) {
	r := newRecords()
	step := func(want string, records ...topicreader.Record) {
		t.Helper()
		r.pass++
		for _, k := range records {
			r.add(k)
		}
		r.passed()
		if got := r.text(); got != want {
			t.Errorf("reading %d shows %q, want %q", r.pass, got, want)
		}
	}
	step("a1=1 b1=1 ", read(0, "a1", "1", "u1", 2), read(0, "b1", "1", "u1", 2))
	step("a1=1 b1=1 ", read(1, "a1", "2", "u2", 2)) // the other record is in a partition that was read before it was written
	if r.waiting != 1 {
		t.Errorf("%d records wait", r.waiting)
	}
	step("a1=2 b1=2 ", read(1, "b1", "2", "u2", 2))
	step("a1=2 b1=2 ", read(2, "a1", "3", "u3", 3), read(2, "b1", "3", "u3", 3))
	step("a1=3 b1=3 ") // the third record was compacted away: it must have been in this reading
	if r.waiting != 0 {
		t.Errorf("%d records wait", r.waiting)
	}
	// What waits does not undo what came behind it.
	step("a1=5 b1=3 ", read(3, "a1", "4", "u4", 2), read(4, "a1", "5", "u5", 1))
	step("a1=5 b1=4 ", read(5, "b1", "4", "u4", 2))
	step("a1=5 b1=4 ", read(6, "b1", "", "u6", 2))
	step("a1=5 ", read(6, "a1", "5", "u6", 2))
	if len(r.keys) != 1 {
		t.Errorf("%d keys are kept, the tombstone too", len(r.keys))
	}
	// A tombstone is kept as long as older records may still be shown.
	step("a1=5 ", read(7, "c1", "7", "u7", 3))
	step("a1=5 c1=7 ", read(8, "c1", "", "u8", 2))
	step("a1=5 ")
	// A record of somebody else, without headers.
	step("a1=5 x=y ", topicreader.Record{Key: []byte("x"), Value: []byte("y")})
}

func TestWatchedUpdatesAreSeen(t *testing.T) {
	r := newRecords()
	mine, other := &watch{before: map[string]int64{"k": -1}}, &watch{before: map[string]int64{"gone": 4}}
	r.watched["mine"], r.watched["other"] = mine, other
	r.add(read(0, "k", "v", "mine", 2))
	if !mine.seen || other.seen {
		t.Errorf("%+v, %+v", mine, other)
	}
	// What was there before is no later record, also when it is a tombstone that is forgotten once it was read.
	r.add(read(4, "gone", "", "before", 1))
	r.passed()
	if other.overwritten {
		t.Error("what was there before counts as written since")
	}
	r.add(read(5, "gone", "", "since", 1))
	r.passed()
	if !other.overwritten || other.seen {
		t.Errorf("after a later tombstone: %+v", other)
	}
}

func TestSessionRecords(t *testing.T) {
	r := newRecords()
	one := sessionRecord{number: 3, token: newUpdate()}
	record := topicreader.Record{Topic: controlTopic, Key: sessionKey("node-1"), Value: one.value()}
	r.add(record)
	if got := r.sessions["node-1"]; got != one || r.fault != nil {
		t.Errorf("%+v, %v", got, r.fault)
	}
	if got := r.text(); got != "" {
		t.Errorf("a view shows the store's own records: %q", got)
	}
	older := sessionRecord{number: 2, token: newUpdate()}
	r.add(topicreader.Record{Topic: controlTopic, Offset: 1, Key: sessionKey("node-1"), Value: older.value()})
	r.add(topicreader.Record{Topic: controlTopic, Offset: 2, Key: sessionKey("node-1")})
	if got := r.sessions["node-1"]; got != one || r.fault != nil {
		t.Errorf("after an older one and a tombstone: %+v, %v", got, r.fault)
	}
	for name, change := range map[string]func(*topicreader.Record){
		"a newer version": func(k *topicreader.Record) { k.Value[0]++ },
		"a cut value":     func(k *topicreader.Record) { k.Value = k.Value[:8] },
		"a long value":    func(k *topicreader.Record) { k.Value = append(k.Value, 0) },
		"a cut key":       func(k *topicreader.Record) { k.Key = k.Key[:len(k.Key)-1] },
		"a nameless key":  func(k *topicreader.Record) { k.Key = sessionKey("") },
		"half a key":      func(k *topicreader.Record) { k.Key = k.Key[:3] },
	} {
		r := newRecords()
		k := record
		k.Key, k.Value = bytes.Clone(k.Key), bytes.Clone(k.Value)
		change(&k)
		r.add(k)
		if !errors.Is(r.fault, errSessionRecord) || len(r.sessions) != 0 {
			t.Errorf("%s: %v, %v", name, r.fault, r.sessions)
		}
	}
}

// What is written is what kgo reads, also when it takes several batches.
func TestBatches(t *testing.T) {
	var all []*output
	for i := range 2000 {
		all = append(all, &output{place: place{"t", 3}, key: fmt.Append(nil, "key-", i), value: bytes.Repeat([]byte{byte(i)}, 1+i%500), writer: "w", session: 7})
	}
	all[5].value, all[6].value, all[6].writer = nil, []byte{}, ""
	now := time.UnixMilli(1_700_000_000_123)
	encoded, sizes := batches(all, "u", len(all), 99, 5, 0, now)
	if len(encoded) < 2 {
		t.Fatalf("%d batches", len(encoded))
	}
	at, sequence := 0, int32(0)
	for i, raw := range encoded {
		if len(raw) > 2*maxBatchBytes {
			t.Errorf("batch %d has %d bytes", i, len(raw))
		}
		var header kmsg.RecordBatch
		if err := header.ReadFrom(raw); err != nil {
			t.Fatal(err)
		}
		if header.FirstSequence != sequence || header.ProducerID != 99 || header.ProducerEpoch != 5 || header.Attributes != 1<<4 || int(header.NumRecords) != sizes[i] {
			t.Errorf("batch %d: %+v", i, header)
		}
		sequence += header.NumRecords
		answer := &kmsg.FetchResponseTopicPartition{RecordBatches: raw}
		got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Partition: 3}, answer, kgo.DefaultDecompressor(), nil)
		if got.Err != nil || next != int64(sizes[i]) || len(got.Records) != sizes[i] {
			t.Fatalf("batch %d: %v, next %d", i, got.Err, next)
		}
		for _, k := range got.Records {
			want := all[at]
			if !bytes.Equal(k.Key, want.key) || !bytes.Equal(k.Value, want.value) || (k.Value == nil) != (want.value == nil) || !k.Timestamp.Equal(now) {
				t.Fatalf("record %d: %+v", at, k)
			}
			var headers []string
			for _, h := range k.Headers {
				headers = append(headers, h.Key+"="+string(h.Value))
			}
			expected := []string{"writer=w", "session=7", "update=u", "of=2000"}
			if want.writer == "" {
				expected = expected[2:]
			}
			if !slices.Equal(headers, expected) {
				t.Fatalf("record %d has headers %q", at, headers)
			}
			at++
		}
	}
	if at != len(all) {
		t.Errorf("%d records", at)
	}
}

// What Changed leaves out is what keyedlog.Log allows it to, and no other record.
func TestChangedLeavesOutStatesAndReportsOnly(t *testing.T) {
	s := &Store{}
	for recordType := range int16(256) {
		k := key(recordType, "x")
		switch recordType {
		case sessionType:
			continue
		case 1:
			k = lmeKey("m", 0)
		case 2:
			k = stateKey("m", 0)
		}
		at, err := s.placeOf(k, 50)
		must(t, err)
		left := recordType == 1 || recordType == 2 || recordType == 75 || recordType == 76
		if slices.Contains(s.watched(), at.topic) == left {
			t.Errorf("record type %d is in %s, whose changes are told: %v", recordType, at.topic, !left)
		}
	}
}

func TestPlaces(t *testing.T) {
	s := &Store{}
	for want, k := range map[place][]byte{
		{controlTopic, 0}: key(66, "x"), {stopTopic, 0}: key(71, "x"), {pauseTopic, 0}: key(73, "x"), {historyTopic, 0}: key(74, "x"), {statusTopic, 0}: key(76, "x"),
	} {
		if got, err := s.placeOf(k, 50); got != want || err != nil {
			t.Errorf("%x is in %v, %v; want %v", k, got, err, want)
		}
	}
	for _, k := range [][]byte{nil, {0}, key(100, ""), key(-3, "x")} {
		if got, err := s.placeOf(k, 50); got != (place{controlTopic, 0}) || err != nil {
			t.Errorf("%x is in %v, %v", k, got, err)
		}
	}
	for _, k := range [][]byte{key(64, "x"), key(1, "x"), key(2, "")} {
		if got, err := s.placeOf(k, 50); err == nil {
			t.Errorf("%x is in %v", k, got)
		}
	}
	if state, lme := stateKey("m", 3), lmeKey("m", 3); !bytes.Equal(twin(state), lme) || !bytes.Equal(twin(lme), state) || twin(key(66, "x")) != nil {
		t.Error("twins")
	}
}
