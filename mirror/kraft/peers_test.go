package kraft

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
)

// brokerWith is a broker that has one log directory.
func (f *fake) brokerWith(id int32, dir [16]byte) {
	b := kbin.AppendInt8(kbin.AppendInt32(nil, id), 0)
	b = append(b, make([]byte, 16)...)
	b = kbin.AppendInt64(b, 7)
	b = kbin.AppendCompactString(kbin.AppendCompactArrayLen(b, 1), "INTERNAL")
	b = kbin.AppendCompactString(b, "127.0.0.1")
	b = append(kbin.AppendInt16(kbin.AppendInt16(b, int16(id)), 0), 0)
	b = append(kbin.AppendCompactArrayLen(b, 0), 0, 0, 0)
	f.record(0, 4, append(append(b, 1, 0, 17, 2), dir[:]...)) // one tagged field: LogDirs
}

// TestMirrorIsRecognised: another mirror process that nobody named is no stock broker.
func TestMirrorIsRecognised(t *testing.T) {
	const cluster, unnamed, stranger, late = "a cluster", 8003, 8004, 8005
	f := newFake(t)
	f.brokerWith(unnamed, directoryID(cluster, unnamed))
	f.brokerWith(stranger, directoryID(cluster, unnamed))
	d := f.process()
	if live := d.liveBrokers(); !slices.Equal(live, []int32{1, 2, 3, unnamed, stranger}) {
		t.Fatalf("before the cluster's id is known: %v", live)
	}
	name := cluster
	d.peers.cluster.Store(&name)
	f.mu.Lock()
	f.brokerWith(late, directoryID(cluster, late))
	f.mu.Unlock()
	if err := d.meta.caughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if live := d.liveBrokers(); !slices.Equal(live, []int32{1, 2, 3, stranger}) {
		t.Errorf("live stock brokers: %v", live)
	}
	for id, want := range map[int32]bool{1: false, other: true, unnamed: true, stranger: false, late: true, 77: false} {
		if d.isMirror(id) != want {
			t.Errorf("broker %d: %v", id, !want)
		}
	}
}
