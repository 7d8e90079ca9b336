package leaderlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/logtrunc"
	"pgregory.net/rapid"
)

// FuzzAppend: a chunk of any bytes is refused and leaves nothing, or is in the log, verbatim, with its epochs; batches are read from wherever a reader begins.
func FuzzAppend(f *testing.F) {
	for _, b := range fuzzbound.Recorded(f) {
		f.Add(b, int64(3), 100)
	}
	f.Add(chunkOf(data(0, 3, 2, "a"), data(5, 2, 4, "b"), data(7, 1, 4, "c")), int64(4), 0)
	f.Add(chunkOf(control(0, 1, 77, 0, 0), control(1, 1, 77, 1, 0), control(2, 1, -1, 7, 0), control(3, 1, 5, 7, 0)), int64(0), 1000)
	f.Add(data(0, 1, -1, "x"), int64(0), 1)
	f.Fuzz(func(t *testing.T, chunk []byte, from int64, most int) {
		var l *Log
		var err error
		fuzzbound.Run(t, len(chunk), func() {
			l = led(t, Options{}, 5, Found{})
			err = l.Append(bounded(t), 5, chunk)
		})
		if err != nil {
			var poison *PoisonError
			var epoch *EpochError
			var corrupt *batch.CorruptError
			var format *batch.FormatError
			if !errors.Is(err, ErrOutOfOrder) && !errors.Is(err, batch.ErrCut) && !errors.As(err, &poison) && !errors.As(err, &epoch) && !errors.As(err, &corrupt) && !errors.As(err, &format) {
				t.Fatalf("error %T %v", err, err)
			}
			if l.End() != 0 || l.memory.Used() != 0 || len(l.Epochs()) != 0 {
				t.Fatalf("%v, and the log ends at %d with %d bytes", err, l.End(), l.memory.Used())
			}
			return
		}
		// What is read from 0 on is the chunk. From elsewhere it is the chunk from the batch on that contains the offset, or comes next.
		whole, err := l.Read(bounded(t), 0, len(chunk))
		if err != nil || !bytes.Equal(whole, chunk) {
			t.Fatalf("%d bytes of %d, %v", len(whole), len(chunk), err)
		}
		at, last := 0, int64(-1)
		var want []byte
		found := false
		var epochs logtrunc.Cache
		for h, raw := range batch.All(chunk) {
			if h.BaseOffset <= last || h.LeaderEpoch < 0 || h.LeaderEpoch > 5 {
				t.Fatalf("batch %d–%d@%d is in the log", h.BaseOffset, h.LastOffset(), h.LeaderEpoch)
			}
			epochs.Assign(h.LeaderEpoch, h.BaseOffset) // epochs may fall: Kafka's cache forgets what was above then
			if !found && h.LastOffset() >= from {
				want, found = chunk[at:], true
			}
			at, last = at+len(raw), h.LastOffset()
		}
		if at != len(chunk) || l.End() != last+1 {
			t.Fatalf("%d bytes of %d are batches, the log ends at %d behind %d", at, len(chunk), l.End(), last)
		}
		if !slices.Equal(l.Epochs(), epochs.Entries()) {
			t.Fatalf("epochs %v, batch by batch %v", l.Epochs(), epochs.Entries())
		}
		got, err := l.Read(bounded(t), from, most)
		switch {
		case from < 0 || from > l.End():
			if err == nil {
				t.Fatalf("read from %d of a log that ends at %d", from, l.End())
			}
		case err != nil || !bytes.HasPrefix(want, got) || len(want) > 0 && len(got) == 0:
			t.Fatalf("from %d: %s of %s, %v", from, spans(got), spans(want), err)
		case len(got) > max(most, 0) && bytes.Count([]byte(spans(got)), []byte("@")) != 1:
			t.Fatalf("%d bytes when at most %d were asked for", len(got), most)
		}
	})
}

// FuzzFollowers draws the lives of a log and its followers from the bytes: see followersEndUpWithTheLog.
func FuzzFollowers(f *testing.F) {
	f.Add(fuzzbound.Drawn(1 << 16))
	f.Add(fuzzbound.Drawn(1<<16 + 1))
	f.Fuzz(rapid.MakeFuzz(followersEndUpWithTheLog))
}
