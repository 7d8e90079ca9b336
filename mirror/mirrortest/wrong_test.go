package mirrortest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// ledger is a service that keeps its position itself, in a database of its own, and reads on from there wherever it runs.
type ledger struct {
	position int64
	entries  []string
	next     func(*ledger, *kgo.Record) int64 // where it goes on behind a record
}

// read takes the next n entries.
func (l *ledger) read(ctx context.Context, t *testing.T, where *mirrortest.Cluster, n int) {
	t.Helper()
	cl := client(t, where, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"entries": {0: kgo.NewOffset().At(l.position)}}))
	for want := len(l.entries) + n; len(l.entries) < want; {
		fetches := cl.PollRecords(ctx, want-len(l.entries))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			l.entries = append(l.entries, string(r.Value))
			l.position = l.next(l, r)
		})
	}
}

// TestAServiceThatCountsIsWrong: markers take offsets, and a failover appends some. Who keeps the next offset goes on where he was; who counts records reads some again.
func TestAServiceThatCountsIsWrong(t *testing.T) {
	t.Parallel()
	life := func(t *testing.T, l *ledger) {
		pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"entries": 1}})
		ctx := bounded(t)
		begin := func(value string) *kgo.Client {
			cl := client(t, pair.Active(), kgo.TransactionalID(value), kgo.DefaultProduceTopic("entries"))
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			produce(ctx, t, cl, value)
			return cl
		}
		for i := range 3 {
			if err := begin(fmt.Sprint(i)).EndTransaction(ctx, kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		begin("open")
		pair.AwaitCaughtUp()
		l.read(ctx, t, pair.Active(), 3)
		pair.KillPrimary()
		pair.Failover()
		produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("entries")), "3", "4")
		l.read(ctx, t, pair.Active(), 2)
		pair.Failback()
		produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("entries")), "5")
		l.read(ctx, t, pair.Active(), 1)
	}
	right := &ledger{next: func(_ *ledger, r *kgo.Record) int64 { return r.Offset + 1 }}
	t.Run("right", func(t *testing.T) { life(t, right) })
	if want := []string{"0", "1", "2", "3", "4", "5"}; !slices.Equal(right.entries, want) {
		t.Errorf("the right one has %v", right.entries)
	}
	wrong := &ledger{next: func(l *ledger, _ *kgo.Record) int64 { return int64(len(l.entries)) }}
	t.Run("wrong", func(t *testing.T) { life(t, wrong) })
	if want := []string{"0", "1", "2", "2", "3", "3"}; !slices.Equal(wrong.entries, want) {
		t.Errorf("the wrong one has %v, not %v", wrong.entries, want)
	}
}

// TestAServiceThatTrustsItsCacheIsWrong: one that takes an acknowledged record for one that is there for ever has entries in its cache that nobody else will read; the failover names them.
func TestAServiceThatTrustsItsCacheIsWrong(t *testing.T) {
	t.Parallel()
	pair := mirrortest.Start(t, mirrortest.Config{Topics: map[string]int32{"entries": 1}})
	ctx := bounded(t)
	cache := map[string]bool{}
	write := func(value string) {
		produce(ctx, t, client(t, pair.Active(), kgo.DefaultProduceTopic("entries")), value)
		cache[value] = true
	}
	write("copied")
	pair.AwaitCaughtUp()
	pair.Link().Cut()
	write("acknowledged")
	over := pair.Failover()
	for _, r := range over.NotCopied {
		if !cache[string(r.Value)] {
			t.Errorf("%q was never acknowledged", r.Value)
		}
		delete(cache, string(r.Value))
	}
	if got := consume(ctx, t, pair.Active(), "entries", 1); len(cache) != 1 || !cache[got[0]] {
		t.Errorf("the cache is %v without what the failover named, the topic has %v", cache, got)
	}
}
