package logtrunc

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"pgregory.net/rapid"
)

// naive is a cache as a plain list, with each rule as it is said.
type naive []Entry

func (n naive) assign(epoch int32, start int64) naive {
	if epoch < 0 || len(n) > 0 && n[len(n)-1].Epoch == epoch && n[len(n)-1].Start <= start {
		return n
	}
	n = slices.DeleteFunc(slices.Clone(n), func(e Entry) bool { return e.Epoch >= epoch || e.Start >= start })
	return append(n, Entry{epoch, start})
}

func (n naive) raise(start int64) naive {
	covers := -1
	for i, e := range n {
		if e.Start <= start {
			covers = i
		}
	}
	if covers < 0 {
		return n
	}
	n = slices.Clone(n[covers:])
	n[0].Start = start
	return n
}

func (n naive) endOf(epoch int32, end int64) (int32, int64) {
	if len(n) == 0 || epoch < 0 || epoch > n[len(n)-1].Epoch {
		return Unknown, Unknown
	}
	known := epoch
	for i, e := range n {
		switch {
		case e.Epoch > epoch:
			return known, e.Start
		case i == len(n)-1:
			return epoch, end
		}
		known = e.Epoch
	}
	panic("an epoch up to the last one is found")
}

// FuzzCache does with a cache what the bytes say: it never loses its order, and answers as a plain list does, whatever the numbers. Where a log is cut by what it says, the
// cut is inside the log.
func FuzzCache(f *testing.F) {
	step := func(kind byte, epoch int32, offset int64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32([]byte{kind}, uint32(epoch)), uint64(offset))
	}
	join := func(steps ...[]byte) (all []byte) {
		for _, s := range steps {
			all = append(all, s...)
		}
		return all
	}
	f.Add(join(step(0, 1, 0), step(0, 2, 10), step(0, 5, 20), step(1, 0, 15), step(2, 0, 5), step(0, 3, 12)))
	f.Add(join(step(0, 5, 20), step(0, 3, 30), step(0, 3, 10), step(0, -1, 5), step(0, 1<<31-1, 1<<63-1), step(3, 0, 0), step(0, 0, -9)))
	f.Add(slices.Repeat(step(0, 1, 0), 500))
	const stepSize = 1 + 4 + 8
	f.Fuzz(func(t *testing.T, b []byte) {
		c, model := &Cache{}, naive(nil)
		fuzzbound.Run(t, len(b), func() {
			*c = Cache{}
			each(b, stepSize, func(s []byte) { apply(c, s) })
		})
		*c = Cache{}
		each(b[:min(len(b), 200*stepSize)], stepSize, func(s []byte) {
			epoch, offset := apply(c, s)
			switch s[0] % 4 {
			case 0:
				model = model.assign(epoch, offset)
			case 1:
				model = slices.DeleteFunc(slices.Clone(model), func(e Entry) bool { return e.Start >= offset })
			case 2:
				model = model.raise(offset)
			case 3:
				model = nil
			}
			if !slices.Equal(c.Entries(), []Entry(model)) {
				t.Fatalf("after %x: %v, a plain list has %v", s, c.Entries(), model)
			}
			for i := 1; i < len(model); i++ {
				if model[i-1].Epoch >= model[i].Epoch || model[i-1].Start >= model[i].Start {
					t.Fatalf("out of order: %v", model)
				}
			}
			for _, ask := range []int32{epoch - 1, epoch, epoch + 1} {
				gotEpoch, gotEnd := c.EndOffsetFor(ask, offset)
				if wantEpoch, wantEnd := model.endOf(ask, offset); gotEpoch != wantEpoch || gotEnd != wantEnd {
					t.Fatalf("end of %d up to %d is (%d, %d), a plain list says (%d, %d): %v", ask, offset, gotEpoch, gotEnd, wantEpoch, wantEnd, model)
				}
				if point := LMEPoint(c, ask, offset, -5, 1000); point < -5 || point > 1000 {
					t.Fatalf("a log [-5, 1000) is cut at %d", point)
				}
			}
		})
	})
}

// each cuts b into pieces of size bytes.
func each(b []byte, size int, do func(piece []byte)) {
	for ; len(b) >= size; b = b[size:] {
		do(b[:size])
	}
}

func apply(c *Cache, s []byte) (epoch int32, offset int64) {
	epoch, offset = int32(binary.BigEndian.Uint32(s[1:])), int64(binary.BigEndian.Uint64(s[5:]))
	switch s[0] % 4 {
	case 0:
		c.Assign(epoch, offset)
	case 1:
		c.TruncateTo(offset)
	case 2:
		c.RaiseStart(offset)
	case 3:
		c.Reset()
	}
	return epoch, offset
}

// FuzzSearch draws pairs of logs and answers from the bytes, and demands of the search what the properties of the same names say.
func FuzzSearch(f *testing.F) {
	f.Add(slices.Repeat([]byte{0}, 800))
	f.Add(slices.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 0}, 200))
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		rapid.SampledFrom([]func(*rapid.T){searchFindsTheTrueDivergencePoint, searchWithALowerSource, searchOverCompactedCopies, searchSurvivesAnyAnswers, cacheAgainstTheLogItself}).Draw(t, "property")(t)
	}))
}
