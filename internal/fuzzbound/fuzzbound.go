// Package fuzzbound holds the body of a fuzz target to the time and the memory that an input of its size may cost. An input that is answered rightly but costs a thousand
// times its size is a way to bring a process down, so it is a finding like a panic.
package fuzzbound

import (
	"runtime/metrics"
	"time"
)

// The bounds. Both have a floor, for what each run costs whatever its input, and for how coarsely the runtime counts.
const (
	TimePerKiB    = 100 * time.Millisecond // of processor time; an input below one KiB has that of one
	BytesPerByte  = 64                     // allocated for each byte of input, also what was freed meanwhile
	BytesForNone  = 1 << 20                // allocated whatever the input
	attempts      = 3
	bytesPerKiB   = 1 << 10
	heapAllocated = "/gc/heap/allocs:bytes"
)

// Reporter is what of a *testing.T is needed.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Run runs body and reports what it used above the bounds for an input of size bytes. The whole process is measured, so a body above a bound is run again, twice at
// most, and the least that was used counts: what another goroutine did meanwhile is no finding. Time is the processor's, so a busy machine makes no finding either.
func Run(t Reporter, size int, body func()) {
	t.Helper()
	took, allocated := measured(body)
	limit := TimePerKiB * time.Duration(max(1, size)+bytesPerKiB-1) / bytesPerKiB
	limit = max(limit, TimePerKiB)
	most := uint64(BytesForNone) + BytesPerByte*uint64(size)
	for i := 1; i < attempts && (took > limit || allocated > most); i++ {
		tookNow, allocatedNow := measured(body)
		took, allocated = min(took, tookNow), min(allocated, allocatedNow)
	}
	if took > limit {
		t.Errorf("an input of %d bytes took %v of processor time, at most %v are allowed", size, took, limit)
	}
	if allocated > most {
		t.Errorf("for an input of %d bytes %d bytes were allocated, at most %d are allowed", size, allocated, most)
	}
}

func measured(body func()) (took time.Duration, allocated uint64) {
	sample := []metrics.Sample{{Name: heapAllocated}}
	metrics.Read(sample)
	before, begin := sample[0].Value.Uint64(), processorTime()
	body()
	took = processorTime() - begin
	metrics.Read(sample)
	return took, sample[0].Value.Uint64() - before
}
