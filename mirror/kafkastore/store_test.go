package kafkastore

import (
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func TestRealLife(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	s, other := shared(t, prefix), shared(t, prefix)
	k := key(66, "life")
	expect(t, s, k, "-")
	begin := time.Now()
	update(t, s, change(k, "1"))
	t.Logf("first update %v", time.Since(begin))
	expect(t, other, k, "1")
	for range 3 {
		begin = time.Now()
		update(t, other, change(k, "2"))
		t.Logf("update %v", time.Since(begin))
	}
	expect(t, s, k, "2")
	n := opened(t, s, "life-1")
	begin = time.Now()
	write(t, n, change(k, "3"))
	t.Logf("claim %v", time.Since(begin))
	expect(t, other, k, "3 by life-1/1")
	for range 5 {
		begin = time.Now()
		write(t, n, change(k, "4"))
		t.Logf("own %v", time.Since(begin))
	}
	if err := other.Update(t.Context(), put(change(k, "x"))); !errors.Is(err, keyedlog.ErrOwned) {
		t.Errorf("%v", err)
	}
	st := stateKey("life", 1)
	write(t, n, change(st, "s"), change(lmeKey("life", 1), "l"), change(k, "5"))
	expect(t, n, st, "s by life-1/1")
	m := opened(t, other, "life-1")
	if err := try(t.Context(), n, change(k, "no")); !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("%v", err)
	}
	if err := n.Check(t.Context()); !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("%v", err)
	}
	write(t, m, change(k, "6"))
	expect(t, s, k, "6 by life-1/2")
	write(t, m, keyedlog.Change{Key: k})
	expect(t, s, k, "-")
}
