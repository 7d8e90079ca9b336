package kraft

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestFenceLetsOthersInBetweenRounds: what waits for the barrier waits for one round, and the next one for it.
func TestFenceLetsOthersInBetweenRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b barrier
		if err := b.exclude(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.letIn(t.Context()); err != nil { // nobody waits
			t.Fatal(err)
		}
		in, out := make(chan bool, 2), make(chan bool)
		for range 2 {
			go func() {
				if err := b.share(t.Context()); err != nil {
					t.Error(err)
				}
				in <- true
				<-out
				b.unshare()
			}()
		}
		synctest.Wait()
		if len(in) != 0 {
			t.Fatal("a fence was met")
		}
		again := make(chan error, 1)
		go func() { again <- b.letIn(t.Context()) }()
		synctest.Wait()
		if len(in) != 2 || len(again) != 0 {
			t.Fatalf("%d were let in, the next round: %d", len(in), len(again))
		}
		late := make(chan error, 1)
		go func() { late <- b.share(t.Context()) }() // after those it is the fence's turn
		out <- true
		synctest.Wait()
		if len(again) != 0 {
			t.Fatal("the next round met one that was let in")
		}
		out <- true
		if err := <-again; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(late) != 0 {
			t.Fatal("a fence was met")
		}
		b.include()
		if err := <-late; err != nil {
			t.Fatal(err)
		}
		b.unshare()
	})
}

// TestFenceThatIsNotLetBackExcludesNobody: its context ends while it waits for those that it let in.
func TestFenceThatIsNotLetBackExcludesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b barrier
		if err := b.exclude(t.Context()); err != nil {
			t.Fatal(err)
		}
		shared := make(chan error, 1)
		go func() { shared <- b.share(t.Context()) }()
		synctest.Wait()
		ctx, cut := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.letIn(ctx) }()
		if err := <-shared; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cut()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := b.share(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
