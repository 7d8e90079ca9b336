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
	expect := func(what string, want sessionRecord, next int64) {
		t.Helper()
		if got, err := r.sessions.of("node-1"); got != want || err != nil {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if got := r.nextSession("node-1"); got != next {
			t.Errorf("%s: the next session is %d", what, got)
		}
	}
	one := sessionRecord{number: 3, token: newUpdate()}
	record := topicreader.Record{Topic: controlTopic, Key: sessionKey("node-1"), Value: one.value()}
	r.add(record)
	expect("one", one, 4)
	if got := r.text(); got != "" {
		t.Errorf("a view shows the store's own records: %q", got)
	}
	later := sessionRecord{number: 2, token: newUpdate()}
	r.add(topicreader.Record{Topic: controlTopic, Offset: 1, Key: sessionKey("node-1"), Value: later.value()})
	expect("one that comes later, whatever its number", later, 4)
	r.add(topicreader.Record{Topic: controlTopic, Offset: 2, Key: sessionKey("node-1")})
	expect("a tombstone", sessionRecord{}, 4)
	for i, session := range []string{"9", "0", "-1", "x", "9007199254740993", "99999999999999999999"} {
		k := read(int64(3+i), session, "v", "", 1)
		k.Headers = []topicreader.Header{{Key: headerWriter, Value: []byte("node-1")}, {Key: headerSession, Value: []byte(session)}}
		r.add(k)
	}
	expect("what the writer wrote, if its number can be one", sessionRecord{}, 10)
	for name, change := range map[string]func(*topicreader.Record){
		"a newer version": func(k *topicreader.Record) { k.Value[0]++ },
		"a cut value":     func(k *topicreader.Record) { k.Value = k.Value[:8] },
		"a long value":    func(k *topicreader.Record) { k.Value = append(k.Value, 0) },
		"no value":        func(k *topicreader.Record) { k.Value = []byte{} },
		"number 0":        func(k *topicreader.Record) { copy(k.Value[1:], make([]byte, 8)) },
		"a huge number":   func(k *topicreader.Record) { k.Value[1] = 0x7f },
	} {
		r := newRecords()
		r.add(record)
		k := record
		k.Key, k.Value, k.Offset = bytes.Clone(k.Key), bytes.Clone(k.Value), 7
		change(&k)
		r.add(k)
		var unreadable *SessionRecordError
		if got, err := r.sessions.of("node-1"); !errors.As(err, &unreadable) || *unreadable != (SessionRecordError{"node-1", controlTopic, 7}) || got != (sessionRecord{}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := r.sessions.of("node-2"); err != nil || got != (sessionRecord{}) {
			t.Errorf("%s, another writer: %v, %v", name, got, err)
		}
		if got := r.nextSession("node-1"); got != 4 {
			t.Errorf("%s: the next session is %d", name, got)
		}
		r.add(record)
		if got, err := r.sessions.of("node-1"); err != nil || got != one {
			t.Errorf("%s, healed: %v, %v", name, got, err)
		}
	}
	for name, bad := range map[string][]byte{"a cut key": record.Key[:5], "a nameless key": sessionKey(""), "half a key": record.Key[:3]} {
		r := newRecords()
		k := record
		k.Key = bad
		r.add(k)
		if len(r.sessions.newest)+len(r.sessions.unreadable) > 0 {
			t.Errorf("%s: %+v", name, r.sessions)
		}
		if stray := new(Store).stray(k, 1); stray == nil {
			t.Errorf("%s is at home", name)
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
		case sessionType, topicreader.StateLayoutType:
			continue
		case 1:
			k = lmeKey("m", 0)
		case 2:
			k = stateKey("m", 0)
		}
		at, err := s.placeOf(k, 50)
		must(t, err)
		left := recordType == 1 || recordType == 2 || recordType == 75 || recordType == 76 || recordType == 78
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
