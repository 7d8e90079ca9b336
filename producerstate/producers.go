package producerstate

import (
	"cmp"
	"slices"
)

// producer is one entry of the producer map.
type producer struct {
	Producer
	seen int64 // last offset of its last batch of any kind
}

// producers is the producer map, by id. It is nil until there is one: many a log has none.
type producers map[int64]*producer

func (ps *producers) add(id int64) *producer {
	p := &producer{Producer: Producer{ID: id, Epoch: -1, LastSequence: -1, LastOffset: -1, LastTimestamp: -1, CoordinatorEpoch: -1, OpenSince: -1}, seen: -1}
	ps.put(p)
	return p
}

func (ps *producers) put(p *producer) {
	if *ps == nil {
		*ps = producers{}
	}
	(*ps)[p.ID] = p
}

// appendSorted appends copies of all entries to dst, in order of id.
func (ps producers) appendSorted(dst []producer) []producer {
	from := len(dst)
	for _, p := range ps {
		dst = append(dst, *p)
	}
	slices.SortFunc(dst[from:], func(a, b producer) int { return cmp.Compare(a.ID, b.ID) })
	return dst
}

// forgetBelow drops who has nothing open and wrote nothing at or above start.
func (ps producers) forgetBelow(start int64) {
	for id, p := range ps {
		if p.OpenSince < 0 && p.seen < start {
			delete(ps, id)
		}
	}
}
