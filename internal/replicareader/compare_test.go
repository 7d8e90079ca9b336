package replicareader

import (
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

func TestCompareTellsTheFirstDifference(t *testing.T) {
	b := newBrokers(t)
	o := b.target("orders", 0)
	one, two, three := data(0, 0, 5, 100), data(5, 0, 5, 5000), data(12, 1, 5, 100)
	other := data(5, 0, 5, 5000)
	batch.SetLeaderEpoch(other, 1)
	b.put(1, o, one, two, three)
	b.put(2, o, one, two, three)
	b.put(3, o, one, other, three)
	b.put(4, o, one, two, three).start = 7
	b.put(5, o, one)
	b.put(6, o, one, three)
	r := New(b)
	all, err := r.Compare(t.Context(), o, 1, 2, 3, 4, 5, 6)
	if err != nil || len(all) != 5 {
		t.Fatalf("%v, %v", all, err)
	}
	for i, want := range []struct {
		equal bool
		kind  mirror.DifferenceKind
		text  string
	}{
		{true, "", "equal; 3 batches"},
		{false, mirror.DifferenceBytes, "batch at offset 5 differs in byte 15 (leader epoch)"},
		{false, "", "only a has [0,7)"},
		{false, "", "only a has [5,17)"},
		{false, mirror.DifferenceMissingB, "missing in b"},
	} {
		c := all[i]
		if c.A != 1 || c.B != int32(i+2) || c.Equal() != want.equal || !strings.Contains(c.String(), want.text) || (c.First == nil) != (want.kind == "") || c.First != nil && c.First.Kind != want.kind {
			t.Errorf("%s", c)
		}
		t.Log(c)
	}
	_, err = r.Compare(t.Context(), o, 1, 9)
	wantReason(t, err, NotReplica)
	if _, err := r.Compare(t.Context(), o, 1); err == nil {
		t.Error("one copy was compared")
	}
	two[80] ^= 1 // both brokers' disks
	all, err = r.Compare(t.Context(), o, 1, 2)
	if wantReason(t, err, Damaged); len(all) != 1 || all[0].Batches != 1 {
		t.Errorf("%v", all)
	}
}
