package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// history is a log as it may stand after a crash: a prefix of batches that reaches floor at least, and a start within [lowest, start].
type history struct {
	lowest, start int64
	batches       []made // also those below start: they may come back with an older start
	end           int64
	floor         int64
}

func emptyAt(offset int64) history {
	return history{lowest: offset, start: offset, end: offset, floor: offset}
}

// add is the history with more batches; nothing of them is promised yet.
func (h history) add(some []made) history {
	h.batches = append(append([]made{}, h.batches...), some...)
	h.end = some[len(some)-1].next
	return h
}

// cut is the history after a truncation.
func (h history) cut(to int64) history {
	switch {
	case to >= h.end:
		return h
	case to <= h.start:
		return emptyAt(to)
	}
	h.end = h.start
	for i, b := range h.batches {
		if b.next > to {
			h.batches = h.batches[:i:i]
			break
		}
		h.end = max(h.end, b.next)
	}
	h.floor = min(h.floor, h.end)
	return h
}

// loose is the history of which only what lies below floor is promised.
func (h history) loose(floor int64) history {
	h.floor = min(h.floor, floor)
	return h
}

// explains says whether a log can be what is left of this history.
func (h history) explains(log mirror.Log, all []byte) error {
	start, end := log.Start(), log.End()
	if start < h.lowest || start > h.start {
		return fmt.Errorf("start is %d, it should be %d to %d", start, h.lowest, h.start)
	}
	if end < h.floor {
		return fmt.Errorf("end is %d, though the log was replicated up to %d", end, h.floor)
	}
	rest, at := all, start
	for _, b := range h.batches {
		if b.next <= start {
			continue
		}
		if len(rest) == 0 {
			break
		}
		if !bytes.HasPrefix(rest, b.bytes) {
			return fmt.Errorf("it holds %s where batch %s was appended", describe(rest), b)
		}
		rest, at = rest[len(b.bytes):], b.next
	}
	if len(rest) > 0 {
		return fmt.Errorf("it holds %s, which was never appended there", describe(rest))
	}
	if end != at {
		return fmt.Errorf("end is %d, its batches end at %d", end, at)
	}
	if r := log.Replicated(); r < start || r > end {
		return fmt.Errorf("what is replicated is %d in [%d, %d]", r, start, end)
	}
	return nil
}

// settle is the history of a log that is known to be exactly what is there.
func (h history) settle(log mirror.Log) history {
	h.lowest, h.start, h.end, h.floor = log.Start(), log.Start(), log.End(), log.End()
	var kept []made
	for _, b := range h.batches {
		if b.next > h.start && b.next <= h.end {
			kept = append(kept, b)
		}
	}
	h.batches = kept
	return h
}

// checkPowerCuts runs a log on a FaultyDir, with random operations, power cuts at random places, recovery included, and failing files in some of the runs.
func checkPowerCuts(t testing.TB, f CrashFactory) {
	runs := f.PowerCuts
	if runs == 0 {
		runs = 200
	}
	for seed := range runs {
		p := &powerRun{t: t, f: f, r: rand.New(rand.NewPCG(uint64(seed), 18)), dir: &FaultyDir{}, seed: seed}
		p.dir.Fault = func(op FileOperation) error {
			if p.faults > 0 && p.r.IntN(p.faults) == 0 {
				return errors.New("injected fault")
			}
			return nil
		}
		p.may = []history{emptyAt(0)}
		for life := range 4 {
			p.open(life > 0 && p.r.IntN(3) == 0)
			p.live()
			if t.Failed() {
				return
			}
		}
	}
}

// powerRun is one run, with one seed.
type powerRun struct {
	t      testing.TB
	f      CrashFactory
	r      *rand.Rand
	dir    *FaultyDir
	seed   int
	faults int // one operation in so many fails; 0: none
	serial uint64

	o     Opened
	may   []history // what the log may be; one when that is known
	trace []string
}

func (p *powerRun) fatalf(format string, args ...any) {
	p.t.Helper()
	steps := ""
	for _, s := range p.trace {
		steps += "\n\t" + s
	}
	p.t.Fatalf("run %d: %s\nsteps:%s\nfiles: %s", p.seed, fmt.Sprintf(format, args...), steps, p.dir)
}

func (p *powerRun) step(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf(format, args...))
}

// open opens the log, with a power cut on the way if asked, and finds out which of its histories it has.
func (p *powerRun) open(cut bool) {
	if cut {
		p.dir.CutPowerAfter(1 + p.r.IntN(12))
		o, err := p.f.OpenOn(p.dir)
		if err == nil {
			o.Close()
			p.dir.CutPower()
		} else if p.dir.powered() {
			p.fatalf("opening the log: %v", err)
		}
		p.step("power cut while opening")
		p.dir.Restart(p.r)
	}
	o, err := p.f.OpenOn(p.dir)
	if err != nil {
		p.fatalf("opening the log after a crash: %v", err)
	}
	p.o = o
	p.identify("after a crash")
	p.step("opened: [%d, %d]", o.Log.Start(), o.Log.End())
}

// identify looks which history explains the log.
func (p *powerRun) identify(when string) {
	all, err := everything(bounded(p.t), p.o.Log, 1<<20)
	if err != nil {
		p.fatalf("reading %s: %v", when, err)
	}
	var why []error
	for _, h := range p.may {
		err := h.explains(p.o.Log, all)
		if err == nil {
			p.may = []history{h.settle(p.o.Log)}
			return
		}
		why = append(why, err)
	}
	p.fatalf("the log %s is [%d, %d] and holds %s:\n%v", when, p.o.Log.Start(), p.o.Log.End(), describe(all), errors.Join(why...))
}

// live does operations until the power is cut, then restarts.
func (p *powerRun) live() {
	p.faults = 0
	if p.seed%3 == 0 {
		p.faults = 10
	}
	if p.r.IntN(5) > 0 {
		p.dir.CutPowerAfter(1 + p.r.IntN(60))
	}
	for range 12 {
		if p.operate() {
			continue
		}
		if !p.dir.powered() {
			break
		}
		// A file failed and the log said so. What it is now, it must be one of its histories; then it goes on, or cannot, and is opened anew.
		faults := p.faults
		p.faults = 0
		p.dir.CutPowerAfter(0)
		before := append([]history{}, p.may...)
		p.identify("after a failed operation")
		p.dir.CutPowerAfter(p.r.IntN(30)) // 0: none
		live := p.may[0]
		for _, h := range before {
			live.floor = min(live.floor, h.floor)
		}
		b := p.batch(p.o.Log.End())
		p.may = append(before, live.add([]made{b}))
		err := p.o.Log.Append(bounded(p.t), p.o.Log.LeaderEpoch(), bytes.Clone(b.bytes))
		if err == nil {
			err = p.o.Log.AwaitReplicated(bounded(p.t), b.next)
		}
		p.step("append of %s after the failure: %v", b, err)
		if err != nil {
			break
		}
		live = live.add([]made{b})
		live.floor = p.o.Log.Replicated()
		p.may = []history{live}
		p.faults = faults
	}
	p.faults = 0
	if p.dir.powered() {
		p.step("power cut")
	} else {
		p.step("power was cut")
	}
	p.dir.CutPower()
	p.o.Close()
	p.dir.Restart(p.r)
}

func (p *powerRun) batch(base int64) made {
	p.serial++
	n := 1 + p.r.Int32N(4)
	return build(batch.DataSpec{BaseOffset: base, Records: records(n, p.serial<<20, 10+p.r.IntN(60))})
}

// operate does one operation. false: it failed, and may lists what the log may be.
func (p *powerRun) operate() bool {
	ctx, log := bounded(p.t), p.o.Log
	now := p.may[0]
	var err error
	switch k := p.r.IntN(12); {
	case k < 6:
		var some []made
		next := now.end
		for range 1 + p.r.IntN(3) {
			b := p.batch(next)
			some, next = append(some, b), b.next
		}
		p.may = []history{now.add(some)}
		err = log.Append(ctx, log.LeaderEpoch(), join(some...))
		p.step("append of %v: %v", some, err)
	case k < 8:
		err = log.AwaitReplicated(ctx, now.end)
		p.step("await replicated: %v", err)
	case k < 10:
		to := max(now.start-2, 0) + p.r.Int64N(now.end-max(now.start-2, 0)+3)
		cut := now.cut(to)
		p.may = []history{cut, now.loose(min(cut.end, now.lowest))}
		if to > now.start {
			p.may[1] = now.loose(cut.end)
		}
		_, err = log.TruncateTo(ctx, to)
		if err == nil {
			err = log.AwaitTruncated(ctx)
		}
		p.step("truncate to %d: %v", to, err)
		if err == nil {
			p.may = p.may[:1]
		}
	case k < 11:
		to := now.start + p.r.Int64N(now.end-now.start+2)
		now.start = max(now.start, min(to, now.end))
		p.may = []history{now}
		err = log.RaiseStart(ctx, min(to, log.Replicated()))
		p.step("raise start to %d: %v", to, err)
		if err == nil {
			p.may[0].start = log.Start()
		}
	default:
		to := p.r.Int64N(now.end + 10)
		p.may = []history{emptyAt(to), now.loose(now.lowest)}
		err = log.ResetTo(ctx, to)
		if err == nil {
			err = log.AwaitTruncated(ctx)
		}
		p.step("reset to %d: %v", to, err)
		if err == nil {
			p.may = p.may[:1]
		}
	}
	if err != nil {
		return false
	}
	h := &p.may[0]
	if log.Start() != h.start || log.End() != h.end {
		p.fatalf("the log is [%d, %d], it should be [%d, %d]", log.Start(), log.End(), h.start, h.end)
	}
	if r := log.Replicated(); r < h.start || r > h.end {
		p.fatalf("Replicated is %d in [%d, %d]", r, h.start, h.end)
	}
	h.floor = max(h.floor, log.Replicated())
	return true
}

// powered says whether the power is on.
func (d *FaultyDir) powered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.off
}
