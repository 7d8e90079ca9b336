package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestAnElectionWhileTheSourceDoesNotAnswer: a question about a leader epoch meets a source that does not answer, and the partition's leader changes before it does. When the source is
// asked again what it did not answer, it refuses that question, which names the old leader epoch. That is an answer: the mirror goes on, in every partition.
func TestAnElectionWhileTheSourceDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 2)
		for p := range int32(2) {
			a.fill("t", p, 5)
		}
		var silent atomic.Bool
		var unanswered atomic.Int64
		src := &oddSource{at: a.Cluster, epochEnd: func(ctx context.Context, tp mirror.TopicPartition, leader, epoch int32) (mirror.EpochEnd, error) {
			if silent.Load() {
				unanswered.Add(1)
				<-ctx.Done()
				return mirror.EpochEnd{}, ctx.Err()
			}
			return a.EndOffsetForEpoch(ctx, tp, leader, epoch)
		}}
		m := &pair{running: open(t, "m", src, b), a: a, b: b}
		defer m.running.close()
		m.start("t")
		m.inStepAndSame()

		silent.Store(true)
		elect := func() {
			if _, err := a.ElectLeader("t", 0); err != nil {
				t.Fatal(err)
			}
		}
		elect() // the new leader is asked where our last epoch ends
		m.until("the question is not answered", func(mirror.Status) bool { return unanswered.Load() > 0 && m.one("t", 0).Reason != "" })
		elect()
		silent.Store(false)
		for p := range int32(2) {
			a.fill("t", p, 5)
		}
		time.Sleep(5 * time.Minute) // virtual
		m.until("all there", func(s mirror.Status) bool { return one(s, "t", 0).End == 10 && one(s, "t", 1).End == 10 })
		m.inStepAndSame()
	})
}
