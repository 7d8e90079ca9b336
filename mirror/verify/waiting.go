package verify

import (
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/clustermirror/clustermirror/mirror"
)

// keyHash stands for a record's key: half of its SHA-256, which nobody can hit twice.
type keyHash [16]byte

func hashOf(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash(sum[:16])
}

// absent is a record that one side lacks, and whose lack is not explained yet.
type absent struct {
	offset   int64
	lacks    int
	producer int64 // of its transaction, as long as it is not known how that ended; otherwise mirror.Unknown
}

// waiting are the records whose lack is not explained yet, by key. The cleaner takes a record because of a later one with its key, or because its transaction was aborted; an aborted
// record is no such later one (Kafka: Cleaner.buildOffsetMap). So most of them wait for a record of their key only, and for the end of the transaction where that is in one.
type waiting struct {
	most int // entries in keys, and in producers
	n    int
	keys map[keyHash][]absent
	// producers are the records with waiting keys in transactions whose end was not seen: their greatest offset, by producer and key.
	producers map[int64]map[keyHash]int64
	undecided int
	blurred   bool  // some of those could not be kept: what waits is not explained by their lack
	next      int64 // every offset below was looked at
	gap       int64 // the greatest offset, since something waits, that neither side holds; mirror.Unknown: none
	explained int64
}

func newWaiting(most int) *waiting {
	return &waiting{most: most, keys: map[keyHash][]absent{}, producers: map[int64]map[keyHash]int64{}, gap: mirror.Unknown}
}

// upTo notes that neither side holds an offset from next to below to.
func (w *waiting) upTo(to int64) {
	if w.n > 0 && to > w.next {
		w.gap = to - 1
	}
	w.next = max(w.next, to)
}

// seen notes a record that one side or both hold. producer: of its transaction, mirror.Unknown if it is in none. Records come in the order of offsets; one that comes again changes nothing.
func (w *waiting) seen(offset int64, key []byte, producer int64) {
	w.upTo(offset)
	w.next = max(w.next, offset+1)
	if w.n == 0 || key == nil {
		return
	}
	k := hashOf(key)
	switch _, waits := w.keys[k]; {
	case !waits:
	case producer == mirror.Unknown:
		w.drop(k, func(a *absent) bool { return a.offset < offset })
	default:
		w.decideLater(producer, k, offset)
	}
}

func (w *waiting) decideLater(producer int64, k keyHash, offset int64) {
	keys := w.producers[producer]
	last, there := keys[k]
	if !there {
		if w.undecided >= w.most {
			w.blurred = true
			return
		}
		if keys == nil {
			keys = map[keyHash]int64{}
			w.producers[producer] = keys
		}
		w.undecided++
	}
	keys[k] = max(last, offset)
}

// lack notes that a side lacks a record that was seen. Memory for it: false if there is none.
func (w *waiting) lack(offset int64, key []byte, producer int64, side int) bool {
	if w.n >= w.most {
		return false
	}
	if w.n == 0 {
		w.next, w.gap = offset+1, mirror.Unknown
	}
	k := hashOf(key)
	w.keys[k] = append(w.keys[k], absent{offset, side, producer})
	w.n++
	if producer != mirror.Unknown {
		w.decideLater(producer, k, offset)
	}
	return true
}

// ended notes the marker that ends a producer's transaction.
func (w *waiting) ended(producer int64, committed bool) {
	keys := w.producers[producer]
	delete(w.producers, producer)
	w.undecided -= len(keys)
	for k, last := range keys {
		list := w.keys[k]
		for i := range list {
			if list[i].producer == producer && committed {
				list[i].producer = mirror.Unknown
			}
		}
		w.drop(k, func(a *absent) bool { return committed && a.offset < last || a.producer == producer })
	}
}

func (w *waiting) drop(k keyHash, explained func(*absent) bool) {
	list := w.keys[k]
	before := len(list)
	list = slices.DeleteFunc(list, func(a absent) bool { return explained(&a) })
	w.n -= before - len(list)
	w.explained += int64(before - len(list))
	if w.keys[k] = list; len(list) == 0 {
		delete(w.keys, k)
	}
	if w.n == 0 { // nothing is left that they could explain
		clear(w.producers)
		w.undecided, w.blurred = 0, false
	}
}

// open says of a waiting record that a transaction which may explain it had no end.
func (w *waiting) open(k keyHash, a *absent) bool {
	if w.blurred || a.producer != mirror.Unknown {
		return true
	}
	for _, keys := range w.producers {
		if keys[k] > a.offset {
			return true
		}
	}
	return false
}

// Waiting is a record of a Resume: one side lacks it, and what explains that was not seen yet.
type Waiting struct {
	Key      []byte // a hash of the record's key
	Offset   int64
	In       string // the side that lacks it, "a" or "b"
	Producer int64  // of its transaction, if it is not known how that ended; otherwise -1
}

// Undecided is a record of a Resume: it explains a Waiting with the same key if its transaction was committed.
type Undecided struct {
	Key      []byte
	Offset   int64
	Producer int64
}

func (w *waiting) save(r *Resume) {
	r.WaitingGap, r.WaitingNext, r.Blurred = w.gap, w.next, w.blurred
	for k, list := range w.keys {
		for _, a := range list {
			r.Waiting = append(r.Waiting, Waiting{Key: k[:], Offset: a.offset, In: names[a.lacks], Producer: a.producer})
		}
	}
	slices.SortFunc(r.Waiting, func(a, b Waiting) int { return cmp.Compare(a.Offset, b.Offset) })
	for p, keys := range w.producers {
		for k, offset := range keys {
			r.Undecided = append(r.Undecided, Undecided{Key: k[:], Offset: offset, Producer: p})
		}
	}
	slices.SortFunc(r.Undecided, func(a, b Undecided) int { return cmp.Compare(a.Offset, b.Offset) })
}

// load takes what save kept. What cannot be from there, or is more than is kept, is left out and told: it must not be taken for explained.
func (w *waiting) load(r *Resume) (left []Waiting) {
	for _, a := range r.Waiting {
		side := slices.Index(names[:], a.In)
		if len(a.Key) != len(keyHash{}) || side < 0 || w.n >= w.most {
			left = append(left, a)
			continue
		}
		k := keyHash(a.Key)
		w.keys[k] = append(w.keys[k], absent{a.Offset, side, a.Producer})
		w.n++
	}
	for _, u := range r.Undecided {
		if len(u.Key) == len(keyHash{}) {
			w.decideLater(u.Producer, keyHash(u.Key), u.Offset)
		}
	}
	w.gap, w.next, w.blurred = r.WaitingGap, r.WaitingNext, w.blurred || r.Blurred
	return left
}
