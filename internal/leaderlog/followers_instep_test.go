package leaderlog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// TestInStepIsAMatterOfTime: a follower that copies as fast as records come is in step although it never has the newest; one that falls behind is in step until it did.
func TestInStepIsAMatterOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Topic: "t", Memory: NewMemory(1 << 20)})
		defer l.Close()
		l.SetFollowers([]int32{1, 2, 3}, []int32{1, 2, 3}, nil, 1)
		l.Lead(0)
		l.Begin(Found{})
		l.Release()
		begin := time.Now()
		epoch := int32(-1)
		fetch := func(broker int32, offset int64) {
			t.Helper()
			if offset > 0 {
				epoch = 0
			}
			if a := l.Fetch(replicaserver.FetchQuery{Broker: broker, BrokerEpoch: -1, LeaderEpoch: 0, Offset: offset, LastFetchedEpoch: epoch, MaxBytes: 1 << 20}); a.Code != 0 || a.Diverging {
				t.Fatalf("broker %d at %d: %+v", broker, offset, a)
			}
		}
		for _, b := range []int32{1, 2, 3} {
			fetch(b, 0)
		}
		for i := range int64(20) {
			time.Sleep(time.Second)
			if err := l.Append(t.Context(), 0, data(i, 1, 0, "x")); err != nil {
				t.Fatal(err)
			}
			fetch(1, i+1) // has all
			fetch(2, i)   // what there was when it asked before
			fetch(3, 0)   // nothing
		}
		for broker, want := range map[int32]time.Duration{1: 20 * time.Second, 2: 19 * time.Second, 3: 0} {
			for _, f := range l.Followers() {
				if f.Broker == broker && f.InStep.Sub(begin) != want {
					t.Errorf("broker %d was in step until %s after the beginning, want %s", broker, f.InStep.Sub(begin), want)
				}
			}
		}
	})
}
