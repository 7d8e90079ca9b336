package kraft_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaHandOverBrokerRestartsInside: a broker that had everything is killed and comes back between the moment in which it was looked at and the AlterPartition that names it in sync. It may
// have lost what its disk had not written, so the controllers refuse it by its broker epoch (KIP-903), and the hand-over looks again.
func TestRealKafkaHandOverBrokerRestartsInside(t *testing.T) {
	c := short(t, 1, nil)
	st := stepAt(takesIn)
	var refused atomic.Int32
	s := play(t, c, []string{"restarts"}, quick, func(cfg *kraft.Config) {
		cfg.RequestTimeout = time.Minute // the restart happens inside one
		cfg.Intercept(func(_ context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (kmsg.Response, error) {
			if st.at(req) && st.armed.CompareAndSwap(true, false) {
				st.reached <- true
				<-st.goOn
			}
			resp, err := send()
			if a, ok := resp.(*kmsg.AlterPartitionResponse); ok && err == nil && takesIn(req) {
				for _, topic := range a.Topics {
					for _, p := range topic.Partitions {
						if p.ErrorCode == kerr.IneligibleReplica.Code {
							refused.Add(1)
						}
					}
				}
			}
			return resp, err
		})
	})
	s.w.mayLead("restarts")
	l := s.open("restarts", 0)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if err := st.during(t, func() error { return l.Open(ctx) }, func() {
		c.Kill(3)
		s.fenced(3)
		c.StartBroker(3)
		eventually(t, "the broker to be let in again", func() bool { b, ok := s.w.image().Broker(3); return ok && !b.Fenced })
	}); err != nil {
		t.Fatal(err)
	}
	if refused.Load() == 0 {
		t.Error("a broker that has restarted was taken in sync for what it had before")
	}
	s.inSync("restarts", 1, 2, 3)
	s.writer.Stop()
	s.same("restarts", 1, 2, 3)
}
