package chaos_test

import (
	"slices"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// TestWhoWakesUpAddsNothingOfItsOwn: a process that was held up may end the call that it was in. It changes nothing else, and adds nothing that its successor does not have.
func TestWhoWakesUpAddsNothingOfItsOwn(t *testing.T) {
	const a, b, c, d, e, f, x = "a", "b", "c", "d", "e", "f", "x"
	// log has one batch with one record at each offset from first on.
	log := func(first int64, values ...string) (log []byte) {
		for i, v := range values {
			log = batch.AppendData(log, batch.DataSpec{BaseOffset: first + int64(i), ProducerID: -1, Records: []batch.Record{{Value: []byte(v)}}})
		}
		return log
	}
	held := onDisk{Start: 10, LeaderEpoch: 2, log: log(10, a, b, c)}
	successor := onDisk{Start: 10, LeaderEpoch: 4, log: log(10, a, b, c, d, e, f)}
	with := func(d onDisk, change func(d *onDisk)) onDisk {
		change(&d)
		return d
	}
	for _, one := range []struct {
		name      string
		after     onDisk
		successor onDisk
		added     int64
		wrong     bool
	}{
		{"nothing", held, successor, 0, false},
		{"nothing, and its successor has nothing more", held, held, 0, false},
		{"the append it was in", with(held, func(o *onDisk) { o.log = log(10, a, b, c, d, e) }), successor, 2, false},
		{"what the source had not yet", with(held, func(o *onDisk) { o.log = log(10, a, b, c, d, e, f) }), successor, 0, true},
		{"more than its successor has", with(held, func(o *onDisk) { o.log = log(10, a, b, c, d) }), held, 0, true},
		{"something else", with(held, func(o *onDisk) { o.log = log(10, a, b, c, x) }), successor, 0, true},
		{"less", with(held, func(o *onDisk) { o.log = log(10, a, b) }), successor, 0, true},
		{"other bytes", with(held, func(o *onDisk) { o.log = log(10, a, b, x) }), successor, 0, true},
		{"the start that it was raising", with(held, func(o *onDisk) { o.Start, o.log = 12, log(12, c) }), with(successor, func(o *onDisk) { o.Start, o.log = 13, log(13, d, e, f) }), 0, false},
		{"the start that it was raising, before its successor did", with(held, func(o *onDisk) { o.Start, o.log = 12, log(12, c) }), successor, 0, false},
		{"a start beyond the source's", with(held, func(o *onDisk) { o.Start, o.log = 13, nil }), successor, 0, true},
		{"a start that falls", with(held, func(o *onDisk) { o.Start = 9 }), successor, 0, true},
		{"the epoch that it was raising", with(held, func(o *onDisk) { o.LeaderEpoch = 3 }), successor, 0, false},
		{"an epoch above its successor's", with(held, func(o *onDisk) { o.LeaderEpoch = 5 }), successor, 0, true},
		{"an epoch that falls", with(held, func(o *onDisk) { o.LeaderEpoch = 1 }), successor, 0, true},
		{"an open gate", with(held, func(o *onDisk) { o.Open = true }), successor, 0, true},
		{"damage", with(held, func(o *onDisk) { o.log = slices.Clone(o.log); o.log[70] ^= 1 }), successor, 0, true},
	} {
		added, problem := overtaken{before: held, after: one.after, successor: one.successor, sourceStart: 12, end: 15}.judge()
		if added != one.added || problem != "" != one.wrong {
			t.Errorf("%s: %d added, %q", one.name, added, problem)
		}
	}
}
