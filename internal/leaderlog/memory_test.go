package leaderlog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// sized is one batch whose chunk has that many bytes.
func sized(base int64, size int) []byte {
	for n := 0; ; n++ {
		if b := data(base, 1, 1, string(make([]byte, n))); len(b) >= size {
			return b
		}
	}
}

// shared is a partition with one live follower that has taken everything so far.
func shared(t *testing.T, m *Memory) *Log {
	l := led(t, Options{Memory: m}, 5, Found{})
	l.SetFollowers([]int32{1, 2}, []int32{1}, nil, 1)
	at(t, l, 1, 0, -1)
	return l
}

func held(l *Log) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.window.chunks)
}

func TestMemoryCountsWholeChunks(t *testing.T) {
	m := NewMemory(1000)
	l := shared(t, m)
	add(t, l, sized(0, 110), sized(1, 110))
	add(t, l, sized(2, 110))
	if _, err := l.TruncateTo(bounded(t), 1); err != nil || m.Used() != 220 {
		t.Errorf("%d bytes, %v: half of the first chunk is held still", m.Used(), err)
	}
	if l.TruncateTo(bounded(t), 0); m.Used() != 0 || m.Limit() != 1000 {
		t.Errorf("%d bytes of %d", m.Used(), m.Limit())
	}
}

// TestMemoryLetsGo: first what no live follower needs, the oldest first, whosever it is; then what enough followers have.
func TestMemoryLetsGo(t *testing.T) {
	m := NewMemory(480)
	a, b := shared(t, m), shared(t, m)
	a.SetFollowers([]int32{1, 2}, []int32{1, 2}, nil, 1) // its second follower never fetches, and needs everything
	for i := range int64(2) {
		add(t, a, sized(i, 110))
		at(t, a, 1, i+1, 1)
	}
	for i := range int64(2) {
		add(t, b, sized(i, 110))
	}
	at(t, b, 1, 1, 1)
	is := func(what string, inA, inB int) {
		t.Helper()
		if held(a) != inA || held(b) != inB || m.Used() > m.Limit() {
			t.Fatalf("%s: %d and %d chunks, %d bytes", what, held(a), held(b), m.Used())
		}
	}
	is("four chunks fit", 2, 2)
	add(t, a, sized(2, 110))
	is("what nobody needs of b goes first", 3, 1)
	add(t, b, sized(2, 110))
	is("then what a's second follower needs", 2, 2)
	if answer := a.Fetch(query(a, 2, 0, -1)); !answer.Back {
		t.Errorf("it is to be read back: %+v", answer)
	}
	add(t, b, sized(3, 110))
	is("again", 1, 3)
	if err := a.Append(now(), 5, sized(3, 110)); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody has the others yet: %v", err)
	}
	at(t, a, 2, 2, 1)
	at(t, a, 1, 3, 1)
	at(t, b, 1, 2, 1)
	add(t, a, sized(3, 110))
	is("b's again, as a's second follower is one behind", 2, 2)
}

func TestMemoryWaitsForFollowers(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, l *Log, cancel context.CancelFunc)
		want error
	}{
		{"a follower takes what fills it", func(t *testing.T, l *Log, _ context.CancelFunc) { at(t, l, 1, 1, 1) }, nil},
		{"a cut", func(t *testing.T, l *Log, _ context.CancelFunc) { l.TruncateTo(bounded(t), 1); l.ResetTo(0) }, nil},
		{"a reset beyond the batch", func(_ *testing.T, l *Log, _ context.CancelFunc) { l.ResetTo(50) }, ErrOutOfOrder},
		{"the wait ends", func(_ *testing.T, _ *Log, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"no leadership", func(_ *testing.T, l *Log, _ context.CancelFunc) { l.Resign() }, ErrFenced},
		{"another leader epoch", func(_ *testing.T, l *Log, _ context.CancelFunc) { l.Lead(6) }, ErrFenced},
		{"closed", func(_ *testing.T, l *Log, _ context.CancelFunc) { l.Close() }, ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory(250)
			l := shared(t, m)
			add(t, l, sized(0, 110))
			add(t, l, sized(1, 110))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- l.Append(ctx, 5, sized(2, 110)) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s: it did not wait: %v", c.name, err)
			default:
			}
			c.end(t, l, cancel)
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("%s: %v, not %v", c.name, err, c.want)
			}
			if want := int64(held(l) * 110); m.Used() != want {
				t.Errorf("%s: %d bytes, not %d", c.name, m.Used(), want)
			}
		})
	}
}

// TestMemoryIsNeverADeadlock: a chunk larger than the budget passes when nothing else is held, and a partition that holds nothing may take one whatever others hold.
func TestMemoryIsNeverADeadlock(t *testing.T) {
	m := NewMemory(100)
	a, b := shared(t, m), shared(t, m)
	add(t, a, sized(0, 1000))
	add(t, b, sized(0, 1000))
	if m.Used() != 2000 {
		t.Errorf("%d bytes", m.Used())
	}
	if err := b.Append(now(), 5, sized(1, 110)); !errors.Is(err, context.Canceled) {
		t.Errorf("a second chunk: %v", err)
	}
	at(t, b, 1, 1, 1)
	add(t, b, sized(1, 110))
	if held(a) != 1 || held(b) != 1 || m.Used() != 1110 {
		t.Errorf("%d and %d chunks, %d bytes", held(a), held(b), m.Used())
	}
}

// TestNothingGoesThatNoLiveFollowerHas: even what counts as replicated stays when those that have it died.
func TestNothingGoesThatNoLiveFollowerHas(t *testing.T) {
	m := NewMemory(250)
	l := shared(t, m)
	add(t, l, sized(0, 110))
	add(t, l, sized(1, 110))
	at(t, l, 1, 2, 1)
	l.SetFollowers([]int32{1, 2}, []int32{2}, nil, 1)
	if err := l.Append(now(), 5, sized(2, 110)); !errors.Is(err, context.Canceled) {
		t.Errorf("append: %v", err)
	}
	l.SetFollowers([]int32{1, 2}, []int32{1, 2}, nil, 1)
	add(t, l, sized(2, 110))
	positions(t, l, 0, 3, 2)
}
