package batch

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// The bytes of spec.md, section 5.
const (
	goldenPIDReset = "00000000000000060000003f0000000c02bbdac33c0020000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff000000011a00000008000000070600000000"
	goldenAbort    = "0000000000000003000000420000000b020fed7e950030000000000000018bcfe568000000018bcfe568000000000000000fa10005ffffffff000000012000000008000000000c00000000000000"
)

func mustHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSpec5GoldenControlBatches(t *testing.T) {
	for _, c := range []struct {
		name, golden string
		spec         ControlSpec
		want         Control
	}{
		{"PID reset", goldenPIDReset, ControlSpec{
			BaseOffset: 6, LeaderEpoch: 12, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Timestamp: 1700000000000,
			Key: []byte{0, 0, 0, 7}, Value: []byte{0, 0, 0},
		}, Control{Type: ControlMirrorPIDReset, CoordinatorEpoch: -1}},
		{"ABORT", goldenAbort, ControlSpec{
			BaseOffset: 3, LeaderEpoch: 11, ProducerID: 4001, ProducerEpoch: 5, BaseSequence: -1, Transactional: true, Timestamp: 1700000000000,
			Key: []byte{0, 0, 0, 0}, Value: []byte{0, 0, 0, 0, 0, 0},
		}, Control{Type: ControlAbort, CoordinatorEpoch: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := mustHex(t, c.golden)
			prefix := []byte("kept")
			got := AppendControl(prefix, c.spec)
			if !bytes.Equal(got[:4], prefix) || !bytes.Equal(got[4:], want) {
				t.Fatalf("built\n%x, want\n%x", got[4:], want)
			}
			h, n, err := Next(want)
			if err != nil || n != len(want) {
				t.Fatalf("Next = %d, %v", n, err)
			}
			if err := Check(want, &h); err != nil {
				t.Fatal(err)
			}
			control, err := ReadControl(want, &h)
			if err != nil || control != c.want {
				t.Fatalf("ReadControl = %+v, %v; want %+v", control, err, c.want)
			}
			if !h.Control() || h.Transactional() != c.spec.Transactional || h.ProducerID != c.spec.ProducerID || h.LastSequence() != -1 {
				t.Fatalf("header %+v", h)
			}
		})
	}
}
