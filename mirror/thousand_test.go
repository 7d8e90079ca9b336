package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// syncedStore is a store that takes its time for a write, as one that syncs a file does.
type syncedStore struct {
	statemachine.StateStore
	takes time.Duration
	wrote func()
}

type syncedSession struct {
	statemachine.Session
	syncedStore
}

func (s syncedStore) Open(ctx context.Context, owner string) (statemachine.Session, error) {
	session, err := s.StateStore.Open(ctx, owner)
	return syncedSession{session, s}, err
}

func (s syncedSession) Write(ctx context.Context, w []statemachine.Write) ([]statemachine.WriteResult, error) {
	s.wrote()
	time.Sleep(s.takes) // of the bubble's clock
	return s.Session.Write(ctx, w)
}

func (s syncedSession) Close() error { return s.Session.Close() }

// beginTransaction writes a record of a transaction that stays open.
func beginTransaction(t testing.TB, c *memlog.Cluster, topic string, partition int32, producer int64) {
	t.Helper()
	b := batch.AppendData(nil, batch.DataSpec{ProducerID: producer, Transactional: true, BaseTimestamp: 1_700_000_000_000, Records: []batch.Record{{Value: []byte("of an open transaction")}}})
	if _, err := c.ProduceBatch(t.Context(), topic, partition, b); err != nil {
		t.Fatal(err)
	}
}

// A failover of a thousand partitions, each with an open transaction, costs at most one request to a cluster and one write of the store for every hundred of them, however they lie in topics. The source is not asked at all.
func TestAFailoverOfAThousandPartitionsCostsFewRequestsAndStoreWrites(t *testing.T) {
	const n = 1000
	for _, topics := range []int{1, 10, n} {
		t.Run(fmt.Sprintf("topics=%d", topics), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
				names := make([]string, topics)
				for i := range names {
					names[i] = fmt.Sprintf("t%04d", i)
					a.local(names[i], int32(n/topics))
					for p := range n / topics {
						beginTransaction(t, a.Cluster, names[i], int32(p), int64(i*n+p))
					}
				}
				var mu sync.Mutex
				count := map[string]int{}
				counts := func(what string) {
					mu.Lock()
					count[what]++
					mu.Unlock()
				}
				hooks := func(of string) memlog.Hooks {
					return memlog.Hooks{Before: func(_ context.Context, c memlog.Call) error {
						if !strings.HasPrefix(c.Operation, "Log.") { // of a log's own: they are calls in this process, or gathered by whoever makes requests of them
							counts(of + " " + c.Operation)
						}
						return nil
					}}
				}
				m := open(t, "m", a.Cluster, b, func(c *mirror.Config) {
					c.Store, c.OnEvent = syncedStore{c.Store, 10 * time.Millisecond, func() { counts("store write") }}, nil
				})
				defer m.close()
				m.start(names...)
				m.untilInStep()
				time.Sleep(time.Minute)
				a.SetHooks(hooks("source"))
				b.SetHooks(hooks("destination"))
				mu.Lock()
				clear(count)
				mu.Unlock()
				plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
				report, err := m.ExecuteFailover(t.Context(), plan)
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				t.Logf("took %s: %v", report.Took, count)
				all := 0
				for what, n := range count {
					if what == "source Fetcher.Fetch" { // which asks all the time, for whatever is not stopped yet
						continue
					}
					if all += n; strings.HasPrefix(what, "source") {
						t.Errorf("the failover asked the source: %s", what)
					}
				}
				if all > n/100 {
					t.Errorf("%d requests and store writes: %v", all, count)
				}
				for _, p := range report.Partitions {
					if p.Err != nil || len(p.Aborts) != 1 {
						t.Fatalf("%+v", p)
					}
				}
			})
		})
	}
}
