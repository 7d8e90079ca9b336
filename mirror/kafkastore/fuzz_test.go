package kafkastore

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// written reads records out of any bytes: for each a flag byte, the length of its key, of its value and of its update's name, how many the update has, and these three.
func written(b []byte) (all []topicreader.Record) {
	take := func(n int) (taken []byte) {
		n = min(n, len(b))
		taken, b = b[:n:n], b[n:]
		return taken
	}
	for offset := int64(0); len(b) >= 5; offset++ {
		head := take(5)
		k := topicreader.Record{Topic: controlTopic, Offset: offset, Key: take(int(head[1])), Value: take(int(head[2]))}
		update := take(int(head[3]))
		if head[0]&1 != 0 {
			k.Value = nil
		}
		if head[0]&2 != 0 {
			k.Headers = append(k.Headers, topicreader.Header{Key: headerUpdate, Value: update}, topicreader.Header{Key: headerOf, Value: strconv.AppendInt(nil, int64(head[4]), 10)})
		}
		if head[0]&4 != 0 {
			k.Headers = append(k.Headers, topicreader.Header{Key: headerWriter, Value: update}, topicreader.Header{Key: headerSession, Value: k.Value})
		}
		if head[0]&8 != 0 {
			k.Offset -= int64(head[4]) // what another partition has may come later
		}
		all = append(all, k)
	}
	return all
}

// FuzzRecords shows a store any records. Once a later reading has passed, it shows each key's newest one and no other, whatever they say of the updates that they belong to; a
// session is one that was read, or unreadable by name.
func FuzzRecords(f *testing.F) {
	record := func(flags byte, key, value, update string, of byte) []byte {
		return append([]byte{flags, byte(len(key)), byte(len(value)), byte(len(update)), of}, key+value+update...)
	}
	session := sessionRecord{number: 3, token: newUpdate()}
	f.Add(slices.Concat(record(2, "a1", "1", "u1", 2), record(2, "b1", "1", "u1", 2), record(3, "a1", "", "u2", 3), record(0, "x", "y", "", 0)))
	f.Add(slices.Concat(record(0, string(sessionKey("w")), string(session.value()), "", 0), record(4, "k", "7", "w", 0), record(0, string(sessionKey("w")), "x", "", 0)))
	f.Add(slices.Concat(record(2, "a1", "1", "u1", 255), record(10, "a1", "2", "u2", 1), record(1, "a1", "", "", 0)))
	f.Add(bytes.Repeat(record(2, "a", "b", "u", 255), 2000))
	f.Fuzz(func(t *testing.T, b []byte) {
		all := written(b)
		var r *records
		fuzzbound.Run(t, len(b), func() {
			r = newRecords()
			for range 2 { // a second reading that finds nothing new
				r.pass++
				if r.pass == 1 {
					for _, k := range all {
						r.add(k)
					}
				}
				r.passed()
			}
		})
		if r.waiting != 0 || len(r.pending) != 0 || len(r.removed) != 0 {
			t.Fatalf("%d records of %d updates wait, %d tombstones are kept", r.waiting, len(r.pending), len(r.removed))
		}
		shown := map[string]string{}
		_ = view{r, 0}.Each(nil, func(k keyedlog.Record) error {
			shown[string(k.Key)] = string(k.Value)
			return nil
		})
		newest := map[string]int64{}
		for _, k := range all {
			if t, ok := recordType(k.Key); ok && t == sessionType {
				continue
			}
			if at, known := newest[string(k.Key)]; !known || k.Offset > at {
				newest[string(k.Key)] = k.Offset
			}
		}
		for key, value := range shown {
			if _, written := newest[key]; !written {
				t.Fatalf("key %q was never written", key)
			}
			fits := slices.ContainsFunc(all, func(k topicreader.Record) bool {
				return string(k.Key) == key && k.Offset == newest[key] && k.Value != nil && string(k.Value) == value
			})
			if !fits {
				t.Fatalf("key %q shows %q, its newest record is at %d", key, value, newest[key])
			}
		}
		for key, offset := range newest {
			removed := slices.ContainsFunc(all, func(k topicreader.Record) bool { return string(k.Key) == key && k.Offset == offset && k.Value == nil })
			if _, there := shown[key]; !there && !removed {
				t.Fatalf("key %q at %d is not shown", key, offset)
			}
		}
		for writer, s := range r.sessions.newest {
			if again, ok := decodeSession(s.value()); !ok || again != s || r.nextSession(writer) <= s.number {
				t.Fatalf("session %+v of %q reads as %+v, the next one is %d", s, writer, again, r.nextSession(writer))
			}
		}
		for writer, err := range r.sessions.unreadable {
			if _, known := r.sessions.newest[writer]; known || fmt.Sprint(err) == "" {
				t.Fatalf("%q: %v, and a session", writer, err)
			}
		}
	})
}
