package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// The first stored form: testdata/compat/v1/control.txt holds the records, and this is what they say. Both stay as they are for ever.
var (
	firstTime  = time.Date(2026, 3, 1, 2, 3, 4, 5006, time.UTC)
	firstState = ControlState{
		Mirrors: []MirrorEntry{
			{Name: "bare", Settings: Settings{}},
			{Name: "m", Settings: Settings{"bootstrap.servers": "a:9092,b:9092", "sasl.jaas.config": "${file:/etc/m.properties:jaas}", "mirror.topics.exclude": `__.*,<x>&"\`},
				SourceClusterID: "source-id", Created: firstTime},
		},
		Deleted: []DeletedMirror{{Name: "gone", At: firstTime}, {Name: "purged", Purge: true, At: firstTime}},
		Topics: []TopicWish{
			{Topic: "a.b", MirrorName: "m", Consents: []Consent{{TopicID: TopicID{1, 2, 255}, Partition: 3, From: 10, To: 1 << 40, Episode: 2}, {TopicID: TopicID{1, 2, 255}, Partition: 4, To: 7}}},
			{Topic: "b", MirrorName: "m", Recover: 12},
			{Topic: "b-1", MirrorName: "m.paused"},
			{Topic: "x.stopped", MirrorName: "m.stopped", AdoptedFrom: "old"},
		},
		Origins:    []TopicOrigin{{Mirror: "m", Topic: "a.b", SourceClusterID: "source-id", Upstream: []string{"up-1", "up-2"}}, {Mirror: "m", Topic: "b", SourceClusterID: "source-id"}},
		Provenance: []Provenance{{Mirror: "m", Kind: "config", Name: "a.b/retention.ms", Value: "1000"}, {Mirror: "m", Kind: "group", Name: "g", Value: ""}},
		Questions: []FailbackQuestion{
			{Mirror: "bare", Number: 1, Asked: firstTime},
			{Mirror: "m", Number: 1 << 40, Asked: firstTime, Topics: []string{"b", "a.b"}, Who: Operator{Host: "h", User: "u", Client: "c"}, Reason: "the site is back"},
		},
	}
	firstHistory = []HistoryEntry{
		{Number: 1, Time: firstTime, Verb: "create", Mirror: "m", Who: Operator{Host: "h", User: "u", Client: "c"}},
		{Number: 2, Time: firstTime, Verb: "stop", Mirror: "m", Topics: []string{"x.stopped"}, Reason: "drill <1>", Plan: "p", Detail: "d"},
	}
	firstReports = Reports{
		Nodes: []NodeReport{{Owner: "o", Mirror: "m", Host: "h", PID: 7, Opened: firstTime, Seen: firstTime.Add(time.Minute), SourceError: "e", DestinationID: "destination-id", Trouble: []string{"t1", "t2"}},
			{Owner: "o", Mirror: "m2", Opened: firstTime, Seen: firstTime.Add(time.Minute), Interval: 5 * time.Second, Refresh: 30 * time.Second, Node: "n", Version: "v1", Measured: firstTime, GroupsSeen: firstTime,
				Groups: &SyncReport{Off: "w"}, Settings: &SyncReport{At: firstTime, Skipped: []string{"x", "y"}}, AccessRules: &SyncReport{At: firstTime, Error: "e"}}},
		Partitions: []PartitionReport{
			{Mirror: "m", Topic: "a.b", Partition: 3, TopicID: TopicID{9}, Owner: "o", State: statemachine.Failed, Reason: "r", RetryAttempt: -1, SourceEnd: 100, SourceSeen: firstTime,
				DestinationStart: 1, DestinationEnd: 90, InStep: firstTime, LostFrom: 5, LostTo: 6, At: firstTime},
			{Mirror: "m", Topic: "b", Partition: 0, Owner: "o", State: statemachine.Unknown, SourceEnd: Unknown, DestinationStart: Unknown, DestinationEnd: Unknown, At: firstTime},
			{Mirror: "m2", Topic: "c", Partition: 1, Owner: "o", State: statemachine.Mirroring, SourceEnd: 9, SourceSeen: firstTime, DestinationEnd: 8, OpenTransactions: 2, OpenFrom: 4, Live: true, At: firstTime},
		},
		Answers: []FailbackAnswer{
			{Owner: "o", Mirror: "bare", Number: 1, Asked: firstTime, At: firstTime.Add(time.Second), Trouble: "why", Code: InvalidRequest},
			{Owner: "o", Mirror: "m", Number: 1 << 40, Asked: firstTime, At: firstTime.Add(time.Second), Packed: []byte("packed")},
		},
	}
)

const firstRecords = "testdata/compat/v1/control.txt"

// storeFirst writes the first form's contents through a Control.
func storeFirst(t *testing.T, log keyedlog.Log) Control {
	t.Helper()
	c := NewControl(log)
	for i, entry := range firstHistory {
		mustUpdate(t, c, func(s *ControlState) {
			if i == 0 {
				*s = firstState.Clone()
			}
			s.Note = &entry
		})
	}
	r, err := c.OpenReporter(context.Background(), "o")
	if err != nil {
		t.Fatal(err)
	}
	for i, partitions := range [][]PartitionReport{firstReports.Partitions[:2], firstReports.Partitions[2:]} {
		if err := r.Report(context.Background(), firstReports.Nodes[i], partitions); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range firstReports.Answers {
		if err := r.Answer(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// recordsOf lists the records of a log: key → value.
func recordsOf(t *testing.T, log keyedlog.Log) map[string][]byte {
	t.Helper()
	records := make(map[string][]byte)
	err := log.Read(context.Background(), func(v keyedlog.View) error {
		return v.Each(nil, func(r keyedlog.Record) error {
			records[string(r.Key)] = bytes.Clone(r.Value)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func putRecords(t *testing.T, log keyedlog.Log, records map[string][]byte) {
	t.Helper()
	err := log.Update(context.Background(), func(keyedlog.View) (changes []keyedlog.Change, _ error) {
		for key, value := range records {
			changes = append(changes, keyedlog.Change{Key: []byte(key), Value: value})
		}
		return changes, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readFirstRecords(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(firstRecords)
	if err != nil {
		t.Fatal(err)
	}
	records := make(map[string][]byte)
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		key, value, ok := strings.Cut(line, " ")
		b, err := hex.DecodeString(key)
		if err != nil || !ok {
			t.Fatalf("line %q: %v", line, err)
		}
		records[string(b)] = []byte(value)
	}
	return records
}

func TestControlRecordsOfVersion1AreRead(t *testing.T) {
	log := keyedlog.NewMemory()
	putRecords(t, log, readFirstRecords(t))
	c := NewControl(log)
	s := mustRead(t, c)
	s.Version = 0
	if !reflect.DeepEqual(s, firstState) {
		t.Errorf("state\n%+v, want\n%+v", s, firstState)
	}
	if h, err := c.History(context.Background()); err != nil || !reflect.DeepEqual(h, firstHistory) {
		t.Errorf("history\n%+v, want\n%+v; %v", h, firstHistory, err)
	}
	if r, err := c.Reports(context.Background()); err != nil || !reflect.DeepEqual(r, firstReports) {
		t.Errorf("reports\n%+v, want\n%+v; %v", r, firstReports, err)
	}
}

// TestAWishForACutIsReadAsItWasWritten: by the process that wrote it and by one that starts later; a stop without one leaves no trace of it in its record.
func TestAWishForACutIsReadAsItWasWritten(t *testing.T) {
	log := keyedlog.NewMemory()
	want := []TopicWish{
		{Topic: "all", MirrorName: "m.stopped", DrainUntil: firstTime.Add(time.Minute), Cut: CutWish{Asked: firstTime, MaxGiveUp: 1 << 40, Readers: true, ClockSkew: -1, Floors: []int64{0, 7, 1<<63 - 1}}},
		{Topic: "bare", MirrorName: "m.stopped", Cut: CutWish{Asked: firstTime}},
		{Topic: "none", MirrorName: "m.stopped"},
	}
	c := NewControl(log)
	mustUpdate(t, c, func(s *ControlState) {
		s.Mirrors, s.Topics = []MirrorEntry{{Name: "m", Settings: Settings{}}}, slices.Clone(want)
	})
	for who, c := range map[string]Control{"the same": c, "a later one": NewControl(log)} {
		if got := mustRead(t, c).Topics; !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads\n%+v, want\n%+v", who, got, want)
		}
	}
	for key, value := range recordsOf(t, log) {
		if bytes.Contains([]byte(key), []byte("none")) && bytes.Contains(bytes.ToLower(value), []byte("cut")) {
			t.Errorf("%s", value)
		}
	}
	mustUpdate(t, NewControl(log), func(s *ControlState) { s.Topics[0].Cut = CutWish{} }) // and it can be taken back
	want[0].Cut = CutWish{}
	if got := mustRead(t, c).Topics; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
}

func TestControlRecordsAreWrittenAsVersion1(t *testing.T) {
	log := keyedlog.NewMemory()
	storeFirst(t, log)
	got, want := recordsOf(t, log), readFirstRecords(t)
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if !bytes.Equal(got[key], want[key]) {
			t.Errorf("record\n%x %s\nis not in %s; there the key has %q", key, got[key], firstRecords, want[key])
		}
		if !bytes.HasPrefix(got[key], []byte(`{"version":1`)) {
			t.Errorf("record %x does not begin with its version: %s", key, got[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
}

func TestControlRecordOfANewerVersionIsRefusedByName(t *testing.T) {
	first := readFirstRecords(t)
	newer := func(value []byte) [][]byte {
		return [][]byte{
			bytes.Replace(value, []byte(`"version":1`), []byte(`"version":2`), 1),
			append(bytes.TrimSuffix(bytes.Clone(value), []byte("}")), `,"colour":"red"}`...),
		}
	}
	for key, value := range first {
		k, ok, err := decodeControlKey([]byte(key))
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		for _, v := range newer(value) {
			log := keyedlog.NewMemory()
			putRecords(t, log, first)
			putRecords(t, log, map[string][]byte{key: v})
			c := NewControl(log)
			var errs []error
			switch k.recordType {
			case historyRecord:
				_, err := c.History(context.Background())
				errs = append(errs, err)
				mustUpdate(t, c, func(s *ControlState) { s.Note = &HistoryEntry{Verb: "stop"} }) // a failover goes on
			case provenanceRecord: // what was written forbids nothing, least of all a stop: it is left as it is
				mustUpdate(t, c, func(s *ControlState) { s.Topics = nil })
				if after := recordsOf(t, log); !bytes.Equal(after[key], v) {
					t.Errorf("%s: %s became %s", k, v, after[key])
				}
				continue
			case partitionReportRecord, nodeReportRecord, answerRecord:
				r, err := c.Reports(context.Background()) // it is left out, and the others are read
				if err != nil || len(r.Unread) != 1 {
					t.Fatalf("%s: %v %+v", k, err, r.Unread)
				}
				errs = append(errs, r.Unread[0].Err)
				mustRead(t, c)
			default:
				before := recordsOf(t, log)
				_, err := c.Read(context.Background())
				errs = append(errs, err, c.Update(context.Background(), func(s *ControlState) error { s.Topics = nil; return nil }))
				if after := recordsOf(t, log); !reflect.DeepEqual(after, before) {
					t.Errorf("%s: %s: an update wrote over it", k, v)
				}
			}
			for _, err := range errs {
				var record *ControlRecordError
				if !errors.Is(err, ErrNewerRecord) || !errors.As(err, &record) || record.Record != k.String() || !strings.Contains(err.Error(), "newer version") {
					t.Errorf("%s with %s: %v", k, v, err)
				}
			}
		}
	}
	for _, recordType := range []int16{lastControlRecord + 1, 1000, -1} {
		log := keyedlog.NewMemory()
		putRecords(t, log, map[string][]byte{string(appendControlName(appendControlType(nil, recordType), "x")): []byte(`{"version":1}`)})
		if _, err := NewControl(log).Read(context.Background()); !errors.Is(err, ErrNewerRecord) || !strings.Contains(err.Error(), fmt.Sprint(recordType)) {
			t.Errorf("type %d: %v", recordType, err)
		}
	}
}

func TestControlLeavesRecordsOfOthersAlone(t *testing.T) {
	log := keyedlog.NewMemory()
	foreign := map[string][]byte{}
	for recordType := range firstControlRecord {
		foreign[string(appendControlType(nil, recordType))+"x"] = []byte("not JSON")
	}
	putRecords(t, log, foreign)
	c := storeFirst(t, log)
	mustUpdate(t, c, func(s *ControlState) { *s = ControlState{} })
	got := recordsOf(t, log)
	maps.DeleteFunc(got, func(key string, _ []byte) bool { return key[1] >= byte(historyRecord) })
	if !reflect.DeepEqual(got, foreign) {
		t.Errorf("left: %q", got)
	}
}

func TestControlRecordThatIsDamagedIsNamed(t *testing.T) {
	for key, value := range readFirstRecords(t) {
		k, _, err := decodeControlKey([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []string{"", "null", "[]", "{", `"x"`, `{}`, `{"version":0}`, `{"version":null}`, `{"version":"1"}`, string(value) + "x", string(value) + "{}", "\xff"} {
			log := keyedlog.NewMemory()
			putRecords(t, log, map[string][]byte{key: []byte(v)})
			c := NewControl(log)
			_, err1 := c.Read(context.Background())
			_, err2 := c.History(context.Background())
			r, err3 := c.Reports(context.Background())
			for _, u := range r.Unread { // it stops nobody
				if u.Mirror == "" || u.Node != (k.recordType == nodeReportRecord) || u.Answer != (k.recordType == answerRecord) {
					t.Errorf("%s with %q: %+v", k, v, u)
				}
				err3 = errors.Join(err3, u.Err)
			}
			if k.recordType == provenanceRecord {
				before := recordsOf(t, log)
				mustUpdate(t, c, func(s *ControlState) {
					if len(s.Provenance) != 1 || s.Provenance[0].unreadable() == nil {
						t.Errorf("%s with %q: %+v", k, v, s.Provenance)
					}
					s.SetMirror(MirrorEntry{Name: "m"})
				})
				if after := recordsOf(t, log); errors.Join(err1, err2, err3) != nil || string(after[key]) != v || len(after) != len(before)+1 {
					t.Errorf("%s with %q: %v; then %q", k, v, errors.Join(err1, err2, err3), after)
				}
				continue
			}
			if err := errors.Join(err1, err2, err3); err == nil || !strings.Contains(err.Error(), k.String()) || errors.Is(err, ErrNewerRecord) {
				t.Errorf("%s with %q: %v", k, v, err)
			}
		}
		for cut := range len(key) {
			if _, ok, err := decodeControlKey([]byte(key[:cut])); ok || err == nil {
				t.Errorf("%s: %d bytes of its key are read as a key", k, cut)
			}
		}
		if _, ok, err := decodeControlKey([]byte(key + "x")); ok || err == nil {
			t.Errorf("%s: a key with a byte behind it is read", k)
		}
	}
}

func TestControlDecodesHostileBytesWithoutPanic(t *testing.T) {
	first := readFirstRecords(t)
	keys := slices.Sorted(maps.Keys(first))
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		b, v := []byte(key), bytes.Clone(first[key])
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			target := &b
			if rapid.Bool().Draw(t, "value") {
				target = &v
			}
			if len(*target) == 0 {
				continue
			}
			at := rapid.IntRange(0, len(*target)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				(*target)[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				*target = (*target)[:at]
			default:
				*target = slices.Insert(*target, at, rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, "more")...)
			}
		}
		log := keyedlog.NewMemory()
		err := log.Update(context.Background(), func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{{Key: b, Value: append([]byte{}, v...)}}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c := NewControl(log)
		s, err := c.Read(context.Background())
		if err == nil { // what is read can be written again
			if _, err := encodeControl(&s); err != nil {
				t.Fatalf("%+v was read and cannot be stored: %v", s, err)
			}
		}
		_, _ = c.History(context.Background())
		_, _ = c.Reports(context.Background())
		_, _, _ = DecodeTopicOrigin(b, v)
	})
}

func TestControlKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) controlKey {
			k := controlKey{recordType: int16(rapid.IntRange(int(firstControlRecord), int(lastControlRecord)).Draw(t, label))}
			for range controlNames[k.recordType] {
				k.names = append(k.names, rapid.StringN(0, 8, 300).Draw(t, "name"))
			}
			switch k.recordType {
			case partitionReportRecord:
				k.partition = rapid.Int32().Draw(t, "partition")
			case historyRecord:
				k.number = rapid.Int64().Draw(t, "number")
			}
			return k
		}
		a, b := draw("a"), draw("b")
		ab, err := a.encode()
		if err != nil {
			t.Fatal(err)
		}
		bb, err := b.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok, err := decodeControlKey(ab); err != nil || !ok || !reflect.DeepEqual(got, a) {
			t.Fatalf("%+v came back as %+v, %v, %v", a, got, ok, err)
		}
		if bytes.Equal(ab, bb) != reflect.DeepEqual(a, b) {
			t.Fatalf("%+v and %+v: keys %x and %x", a, b, ab, bb)
		}
	})
	for _, name := range []string{"\xff", strings.Repeat("x", 1<<15)} {
		if _, err := (controlKey{recordType: topicRecord, names: []string{name}}).encode(); err == nil {
			t.Errorf("a name of %d bytes, %.10q, is stored", len(name), name)
		}
	}
}

func TestControlTopicsByRight(t *testing.T) {
	want := map[int16]string{64: "__mirror_control", 71: "__mirror_stop", 72: "__mirror_pause", 77: "__mirror_control", 78: "__mirror_status", 79: "__mirror_control", 80: "__mirror_control", 73: "__mirror_pause", 74: "__mirror_history", 75: "__mirror_status", 76: "__mirror_status"}
	for recordType := int16(-2); recordType < 100; recordType++ {
		name := want[recordType]
		if recordType >= 65 && recordType <= 70 {
			name = "__mirror_control"
		}
		if got := ControlTopic(recordType); got != name {
			t.Errorf("type %d is kept in %q, want %q", recordType, got, name)
		}
	}
}

func TestDecodeTopicOrigin(t *testing.T) {
	found := map[string]TopicOrigin{}
	for key, value := range readFirstRecords(t) {
		o, ok, err := DecodeTopicOrigin([]byte(key), value)
		if err != nil {
			t.Fatal(err)
		}
		if isOrigin := int16(binary.BigEndian.Uint16([]byte(key))) == originRecord; ok != isOrigin {
			t.Errorf("key %x: %v", key, ok)
		}
		if !ok {
			continue
		}
		found[o.Topic] = o
		if gone, ok, err := DecodeTopicOrigin([]byte(key), nil); !ok || err != nil || !reflect.DeepEqual(gone, TopicOrigin{Mirror: o.Mirror, Topic: o.Topic}) {
			t.Errorf("a tombstone: %+v, %v, %v", gone, ok, err)
		}
		if _, _, err := DecodeTopicOrigin([]byte(key), []byte(`{"version":2}`)); !errors.Is(err, ErrNewerRecord) {
			t.Errorf("a newer version: %v", err)
		}
		if _, _, err := DecodeTopicOrigin([]byte(key[:3]), value); err == nil {
			t.Error("a cut key is read")
		}
	}
	for _, o := range firstState.Origins {
		if !reflect.DeepEqual(found[o.Topic], o) {
			t.Errorf("%+v, want %+v", found[o.Topic], o)
		}
	}
	for _, key := range [][]byte{nil, {0}, {0, 1}, {1, 70}} {
		if _, ok, err := DecodeTopicOrigin(key, []byte("x")); ok || err != nil {
			t.Errorf("key %x: %v, %v", key, ok, err)
		}
	}
}

func TestTopicIDTextRefusesOtherLengths(t *testing.T) {
	for _, s := range []string{`""`, `"AAAA"`, `"AAAAAAAAAAAAAAAAAAAAAAAA"`, `"!!!!!!!!!!!!!!!!!!!!!!"`} {
		var id topicIDText
		if err := json.Unmarshal([]byte(s), &id); err == nil {
			t.Errorf("%s is read as %v", s, id)
		}
	}
}
