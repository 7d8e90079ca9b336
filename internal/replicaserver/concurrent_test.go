package replicaserver

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestManyFollowersAtOnce lets three followers copy partitions over loopback that are appended to, raised and cut at the same time, and wants equal copies in the end.
func TestManyFollowersAtOnce(t *testing.T) {
	topics, logs := topicOf(16)
	s := start(t, topics, func(c *Config) { c.Logger = quiet })
	var writers, followers sync.WaitGroup
	written := make(chan struct{})
	for p, l := range logs {
		writers.Go(func() {
			for i := range 200 {
				l.append(61 + (i*p)%900)
				switch {
				case i%50 == 20:
					l.truncate(max(0, l.end()-3)) // nobody else writes to it
				case i%70 == 30:
					l.raise(l.start + 5)
				case i%20 == 7:
					l.change(func() { l.cold = l.start + 5 })
				}
			}
		})
	}
	go func() {
		writers.Wait()
		close(written)
	}()
	for range 3 {
		c := dial(t, s)
		followers.Go(func() {
			h := &handler{maxWait: 50, maxBytes: 20_000}
			copies := map[partitionKey]*replica{}
			for p := range logs {
				copies[partitionKey{topicA, int32(p)}] = &replica{}
			}
			differ := func() (how string) {
				for k, r := range copies {
					how += r.differs(logs[k.partition])
				}
				return how
			}
			deadline := time.Now().Add(30 * time.Second)
			for {
				over := false
				select {
				case <-written:
					over = true
				default:
				}
				want := map[partitionKey]told{}
				for k, r := range copies {
					want[k] = r.told()
				}
				resp, err := c.try(h.build(want))
				if err != nil {
					t.Errorf("fetch: %v", err)
					return
				}
				got, err := h.handle(resp.(*kmsg.FetchResponse))
				if err != nil {
					t.Error(err)
					return
				}
				for k, p := range got {
					if err := copies[k].take(p, logs[k.partition]); err != nil {
						t.Errorf("%v: %v", k, err)
						return
					}
				}
				if over && len(got) == 0 { // unless something is still being read back
					if how := differ(); how == "" {
						return
					} else if time.Now().After(deadline) {
						t.Errorf("after 30 s: %s", how)
						return
					}
				}
			}
		})
	}
	followers.Wait()
}
