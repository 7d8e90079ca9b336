package filestore

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// view is the records in memory. It is a keyedlog.View.
type view struct {
	records  map[string]keyedlog.Record
	sessions map[string]int64
	version  int64
	live     int64    // what the entries of a snapshot take, in bytes, about
	sorted   []string // the keys in order; nil: not known
}

func newView() *view {
	return &view{records: make(map[string]keyedlog.Record), sessions: make(map[string]int64)}
}

func (v *view) Get(key []byte) (keyedlog.Record, bool) {
	r, ok := v.records[string(key)]
	return r, ok
}

func (v *view) Each(prefix []byte, f func(keyedlog.Record) error) error {
	keys := v.keys()
	from, _ := slices.BinarySearch(keys, string(prefix))
	for _, key := range keys[from:] {
		if !strings.HasPrefix(key, string(prefix)) {
			break
		}
		if err := f(v.records[key]); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) Session(writer string) int64 { return v.sessions[writer] }

func (v *view) Version() int64 { return v.version }

func (v *view) keys() []string {
	if v.sorted == nil {
		v.sorted = slices.Sorted(maps.Keys(v.records))
	}
	return v.sorted
}

// size is what an entry takes in a snapshot, about.
func size(key, value []byte, writer string) int64 {
	return int64(len(key) + len(value) + len(writer) + 8)
}

// apply does what a frame says. Nothing of the entries is kept.
func (v *view) apply(version int64, entries []entry) {
	v.version = version
	for _, e := range entries {
		if e.kind == kindSession {
			if _, ok := v.sessions[e.writer]; !ok {
				v.live += size(nil, nil, e.writer)
			}
			v.sessions[e.writer] = e.session
			continue
		}
		old, had := v.records[string(e.key)]
		if had {
			v.live -= size(old.Key, old.Value, old.Writer)
		}
		if had != (e.kind == kindRecord) {
			v.sorted = nil
		}
		if e.kind == kindTombstone {
			delete(v.records, string(e.key))
			continue
		}
		r := keyedlog.Record{Key: bytes.Clone(e.key), Value: append([]byte{}, e.value...), Writer: e.writer, Session: e.session}
		v.records[string(e.key)] = r
		v.live += size(r.Key, r.Value, r.Writer)
	}
}

// snapshot is the entries that make these records out of none, in an order that depends on them only.
func (v *view) snapshot() []entry {
	entries := make([]entry, 0, len(v.sessions)+len(v.records))
	for _, writer := range slices.Sorted(maps.Keys(v.sessions)) {
		entries = append(entries, entry{kind: kindSession, writer: writer, session: v.sessions[writer]})
	}
	for _, key := range v.keys() {
		r := v.records[key]
		entries = append(entries, entry{kind: kindRecord, writer: r.Writer, session: r.Session, key: r.Key, value: r.Value})
	}
	return entries
}
