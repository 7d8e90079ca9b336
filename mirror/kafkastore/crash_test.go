package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// life is what a process does in the crash test: three updates of several topics each. done counts those that were acknowledged.
type life struct {
	run  int
	done int
}

func (l *life) keys() [][]byte {
	name := fmt.Sprintf("run-%d", l.run)
	return [][]byte{key(66, name), stateKey(name, 0), lmeKey(name, 1), key(72, name), key(74, name)}
}

func (l *life) live(t testing.TB, s *Store) error {
	k := l.keys()
	n, err := s.Open(t.Context(), "mortal")
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return try(t.Context(), n, change(k[0], "1"), change(k[1], "1"), change(k[2], "1")) }, // a claim
		func() error { return try(t.Context(), n, change(k[0], "2"), change(k[1], "2"), change(k[2], "2")) }, // its own
		func() error { return s.Update(t.Context(), put(change(k[3], "3"), change(k[4], "3"))) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		l.done++
	}
	return nil
}

// values of the keys after each number of updates.
var lives = [][]string{{"-", "-", "-", "-", "-"}, {"1", "1", "1", "-", "-"}, {"2", "2", "2", "-", "-"}, {"2", "2", "2", "3", "3"}}

// outcome says how many updates a store shows; false: it shows a state that there never was.
func (l *life) outcome(t testing.TB, s reads) (updates int, values []string) {
	t.Helper()
	err := s.Read(t.Context(), func(v keyedlog.View) error {
		values = nil
		for _, k := range l.keys() {
			r, ok := v.Get(k)
			text := string(r.Value)
			if !ok {
				text = "-"
			}
			values = append(values, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.IndexFunc(lives, func(want []string) bool { return slices.Equal(values, want) }), values
}

// TestRealCrash kills a process before and after each kind of request in each of its steps. The next process takes over: what it finds is what was acknowledged, or that and the
// update that was under way, whole.
func TestRealCrash(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	opened(t, open(t, cfg), "mortal") // makes the topics
	s, l := process(t, cfg)
	first := &life{run: -1}
	if err := first.live(t, s); err != nil {
		t.Fatal(err)
	}
	counts := make(map[kmsg.Key]int)
	for _, kind := range l.requests() {
		counts[kind]++
	}
	t.Logf("requests of one life: %v", byName(counts))
	if n, values := first.outcome(t, s); n != 3 {
		t.Fatalf("a life without a crash ends with %v", values)
	}
	s.Close()

	var points []point
	for _, kind := range []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.InitProducerID, kmsg.ListOffsets, kmsg.Fetch, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn} {
		if counts[kind] == 0 {
			t.Fatalf("no %s in a life: is it gone?", kind.Name())
		}
		const most = 5 // of a kind, spread over the life
		n := min(counts[kind], most)
		for i := range n {
			nth := 1 + i*counts[kind]/n
			points = append(points, point{kind, nth, false}, point{kind, nth, true})
		}
	}
	if len(points) < 50 {
		t.Fatalf("%d kill points, want at least 50", len(points))
	}
	next := open(t, cfg) // the process that takes over, each time
	ends := make(map[string]int)
	for run, p := range points {
		s, line := process(t, cfg)
		one := &life{run: run}
		line.on(p.kind, p.nth, p.after, func() error {
			line.sever()
			go s.Close() // its calls end now and not with their bounds
			return errCut
		})
		err := one.live(t, s)
		kill(s, line)
		took := opened(t, next, "mortal")
		got, values := one.outcome(t, took)
		if got != one.done && got != one.done+1 {
			t.Errorf("killed at %v: %d updates were acknowledged (%v), but %v is there", p, one.done, err, values)
		}
		ends[fmt.Sprintf("%d acknowledged, %d there", one.done, got)]++
		// The next process goes on, and what was found stays found.
		write(t, took, change(key(66, fmt.Sprint("next-", run)), "x"))
		if again, _ := one.outcome(t, next); again != got {
			t.Errorf("killed at %v: %d updates are there, then %d", p, got, again)
		}
	}
	t.Logf("%d kill points: %v", len(points), ends)
	if len(ends) < 5 {
		t.Errorf("the kill points end in too few ways: %v", ends)
	}
}

// point is where a process dies: before the nth request of a kind goes out, or once its answer is there.
type point struct {
	kind  kmsg.Key
	nth   int
	after bool
}

func (p point) String() string {
	if p.after {
		return fmt.Sprintf("the answer to %s %d", p.kind.Name(), p.nth)
	}
	return fmt.Sprintf("%s %d", p.kind.Name(), p.nth)
}

func byName(counts map[kmsg.Key]int) map[string]int {
	m := make(map[string]int)
	for k, n := range counts {
		m[k.Name()] = n
	}
	return m
}

// A process that dies while it makes the topics leaves nothing that the next one cannot go on from.
func TestRealCrashAtTheFirstWrite(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		cfg := sharedConfig(t, newPrefix())
		s, line := process(t, cfg)
		line.on(kmsg.CreateTopics, 1, after, func() error {
			line.sever()
			go s.Close()
			return errCut
		})
		one := &life{}
		if err := one.live(t, s); err == nil || one.done != 0 {
			t.Errorf("%v, %d updates", err, one.done)
		}
		next := open(t, cfg)
		if err := one.live(t, next); err != nil {
			t.Error(err)
		}
		if n, values := one.outcome(t, next); n != 3 {
			t.Errorf("%v", values)
		}
	}
}

// A process that dies in the middle of a transaction hides what follows until its timeout: a reader says so. Whoever opens its writer ends that at once.
func TestRealReadBehindADeadTransaction(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	dead, line := process(t, cfg)
	n := opened(t, dead, "w")
	k := key(66, "k")
	write(t, n, change(k, "1"))
	line.on(kmsg.EndTxn, 1, false, func() error {
		line.sever()
		go dead.Close()
		return errCut
	})
	if err := try(t.Context(), n, change(k, "2")); err == nil {
		t.Fatal("a dead process has written")
	}
	s := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := s.Read(ctx, func(keyedlog.View) error { t.Error("it was read"); return nil })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), cfg.namespace+controlTopic+"-0") || !strings.Contains(err.Error(), "transaction that is open") {
		t.Errorf("error %v", err)
	}
	opened(t, s, "w")
	expect(t, s, k, "1 by w/1")
}
