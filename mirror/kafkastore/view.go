package kafkastore

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// records is what was read. Whoever has Store.reading or Store.mu may look at it, and whoever has both may change it; watched is under Store.mu, sorted under Store.reading.
type records struct {
	keys     map[string]versioned
	sorted   []string // keys that are there, in order; nil: not known
	sessions sessionRecords
	removed  []string // keys of tombstones that are still kept

	pass    int // number of this reading of all topics
	pending map[string]*part
	waiting int // records in pending

	watched map[string]*watch // updates whose outcome is asked for
}

// watch is what is looked for while it is not known whether an update was written.
type watch struct {
	before      map[string]int64 // where the newest records of its keys were
	seen        bool             // a record of it was read
	overwritten bool             // a later record of one of its keys was read
}

// versioned is the newest record of a key, or its tombstone.
type versioned struct {
	keyedlog.Record
	offset int64
	place  place
}

// part is what was read so far of an update.
type part struct {
	records []topicreader.Record
	of      int
	pass    int // in which it was first seen
}

func newRecords() *records {
	return &records{keys: make(map[string]versioned), sessions: newSessionRecords(), pending: make(map[string]*part), watched: make(map[string]*watch)}
}

// add takes a record that was read. Those of one update are shown together: what is in other partitions may not have been read yet.
func (r *records) add(k topicreader.Record) {
	update, _ := k.Header(headerUpdate)
	for name, w := range r.watched {
		if before, ok := w.before[string(k.Key)]; ok && k.Offset > before {
			w.overwritten = true
		}
		w.seen = w.seen || name == string(update)
	}
	of := number(k, headerOf)
	if len(update) == 0 || of <= 1 {
		r.set(k)
		return
	}
	p := r.pending[string(update)]
	if p == nil {
		p = &part{of: int(of), pass: r.pass}
		r.pending[string(update)] = p
	}
	p.records = append(p.records, k)
	r.waiting++
	if len(p.records) == p.of {
		r.show(string(update), p)
	}
}

func (r *records) show(update string, p *part) {
	for _, k := range p.records {
		r.set(k)
	}
	r.waiting -= len(p.records)
	delete(r.pending, update)
}

// passed ends a reading. Whatever was first seen in an earlier one is complete now, because its other records were in the log before this one began: those that are missing
// were compacted away.
func (r *records) passed() {
	for update, p := range r.pending {
		if p.pass < r.pass {
			r.show(update, p)
		}
	}
	if len(r.pending) > 0 {
		return
	}
	for _, key := range r.removed {
		if r.keys[key].Value == nil {
			delete(r.keys, key)
		}
	}
	r.removed = nil
}

func number(k topicreader.Record, header string) int64 {
	b, _ := k.Header(header)
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

func (r *records) set(k topicreader.Record) {
	if t, ok := recordType(k.Key); ok && t == sessionType {
		r.sessions.take(k)
		return
	}
	key := string(k.Key)
	before, known := r.keys[key]
	if known && before.offset > k.Offset {
		return
	}
	v := versioned{offset: k.Offset, place: place{k.Topic, k.Partition}, Record: keyedlog.Record{Key: k.Key, Value: k.Value}}
	if k.Value == nil {
		r.removed = append(r.removed, key)
	} else if writer, ok := k.Header(headerWriter); ok {
		if n := number(k, headerSession); n > 0 && n <= mostSessions {
			v.Writer, v.Session = string(writer), n
		}
	}
	if (!known || before.Value == nil) != (k.Value == nil) {
		r.sorted = nil
	}
	r.keys[key] = v
}

// get returns a record that is there.
func (r *records) get(key []byte) (keyedlog.Record, bool) {
	v, ok := r.keys[string(key)]
	return v.Record, ok && v.Value != nil
}

// view is all that was read. It is used under Store.reading.
type view struct {
	r       *records
	version int64
}

func (v view) Get(key []byte) (keyedlog.Record, bool) { return v.r.get(key) }

func (v view) Each(prefix []byte, f func(keyedlog.Record) error) error {
	if v.r.sorted == nil {
		v.r.sorted = []string{}
		for k, record := range v.r.keys {
			if record.Value != nil {
				v.r.sorted = append(v.r.sorted, k)
			}
		}
		slices.Sort(v.r.sorted)
	}
	at, _ := slices.BinarySearch(v.r.sorted, string(prefix))
	for _, k := range v.r.sorted[at:] {
		if !strings.HasPrefix(k, string(prefix)) {
			return nil
		}
		if err := f(v.r.keys[k].Record); err != nil {
			return err
		}
	}
	return nil
}

func (v view) Session(writer string) int64 { return v.r.sessions.newest[writer].number }
func (v view) Version() int64              { return v.version }

// named is a view of a session's own keys, which nobody else changes. It holds no lock.
type named struct {
	keys     map[string]keyedlog.Record
	sessions map[string]int64
	version  int64
}

func (v named) Get(key []byte) (keyedlog.Record, bool) {
	r, ok := v.keys[string(key)]
	return r, ok
}

func (v named) Each(prefix []byte, f func(keyedlog.Record) error) error {
	for _, k := range slices.Sorted(maps.Keys(v.keys)) {
		if !bytes.HasPrefix([]byte(k), prefix) {
			continue
		}
		if err := f(v.keys[k]); err != nil {
			return err
		}
	}
	return nil
}

func (v named) Session(writer string) int64 { return v.sessions[writer] }
func (v named) Version() int64              { return v.version }

// checkTwins keeps the two records of a mirror's partition together: whoever may not change the one changes the other neither. Because of that a session that has one of them
// needs to ask nobody before it writes the other.
func checkTwins(v keyedlog.View, writer string, changes []keyedlog.Change) error {
	for _, c := range changes {
		if other := twin(c.Key); other != nil {
			if err := keyedlog.CheckOwner(v, other, writer); err != nil {
				return err
			}
		}
	}
	return nil
}
