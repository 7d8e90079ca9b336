package realkafka_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/statemachine"
)

// quota is what clients of a name may read in a second. Kafka lets them read ten times as much at once, and then makes them wait (quota.window.num).
const quota = 64 << 10

// limitClient gives clients of a name that quota.
func limitClient(t *testing.T, c *kafkatest.Cluster, name string) {
	t.Helper()
	answers, err := c.Admin().AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: quota}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// noise is text that no codec makes smaller than half.
func noise(t *testing.T, bytes int) string {
	t.Helper()
	b := make([]byte, bytes/2)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// TestF79QuotasOfRealBrokers: the source and the records of states are both behind a quota of 64 KiB/s. A start comes to its end, throttle times are shown as what they are, and our own
// limit holds.
func TestF79QuotasOfRealBrokers(t *testing.T) {
	c := shared(t)
	t.Run("source", func(t *testing.T) {
		const topic, name, batches = "f79-source", "f79-source", 30
		c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
		cl := lives.Client(c)
		for range batches {
			lives.Produce(t, cl, topic, 0, noise(t, 40_000))
		}
		limitClient(t, c, name)
		r := open(t, c, func(s *setup) { s.source.ClientOptions = append(s.source.ClientOptions, kgo.ClientID(name)) })
		r.start(topic)
		r.same(topic, 0, batches)
		if r.Status().Throttled <= 0 || len(told[mirror.SourceThrottled](r)) == 0 {
			t.Errorf("throttled for %s, told %v: the quota was not felt", r.Status().Throttled, told[mirror.SourceThrottled](r))
		}
		for _, e := range r.told() {
			switch e := e.(type) {
			case mirror.SourceTrouble, mirror.RetryScheduled, mirror.NothingLeft:
				t.Errorf("told: %s", e)
			case stateChanged:
				if e.To == statemachine.Failed {
					t.Errorf("told: %s", e)
				}
			}
		}
	})
	t.Run("own limit", func(t *testing.T) {
		const topic, batches, rate = "f79-own-limit", 16, 128 << 10
		c.CreateTopic(kafkatest.Topic{Name: topic, Replication: 3})
		cl := lives.Client(c)
		for range batches {
			lives.Produce(t, cl, topic, 0, noise(t, 40_000))
		}
		r := open(t, c, func(s *setup) { s.mirror.FetchRate = rate })
		began := time.Now()
		r.start(topic)
		copied := len(r.same(topic, 0, batches))
		// The last reply, of a second's worth, is not waited for; a quarter of a second is allowed beforehand.
		if took, least := time.Since(began), time.Duration(float64(copied)/rate*float64(time.Second))-1250*time.Millisecond; took < least*9/10 {
			t.Errorf("%d bytes in %s at %d bytes/s, which takes at least %s", copied, took, rate, least)
		}
	})
	t.Run("states", func(t *testing.T) {
		const name, records = "f79-states", 240
		open := func(bound time.Duration, opts ...kgo.Opt) (statemachine.StateStore, *kafkastore.Store) {
			t.Helper()
			s, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: c.Bootstrap(), ReplicationFactor: 3, StatePartitions: 1, Bound: bound, ClientOptions: opts})
			if err != nil {
				t.Fatal(err)
			}
			return keyedlog.NewStateStore(s), s
		}
		fill, store := open(bound)
		session, err := fill.Open(t.Context(), "f79")
		if err != nil {
			t.Fatal(err)
		}
		var writes []statemachine.Write
		for i := range int32(records) {
			state := statemachine.NewPartitionState()
			state.State, state.Episode, state.ErrorMessage = statemachine.Preparing, 1, noise(t, 4000)
			writes = append(writes, statemachine.Write{Key: statemachine.Key{Mirror: "f79", TopicID: statemachine.TopicID{79}, Partition: i}, LeaderEpoch: -1, State: &state})
		}
		for part := range 4 {
			results, err := session.Write(t.Context(), writes[part*records/4:(part+1)*records/4])
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}

		limitClient(t, c, name)
		throttled, store := open(5*time.Second, kgo.ClientID(name))
		defer store.Close()
		// One call is too short for all of it. What was read is kept, so that the next one goes on: a process that waits gets there.
		tries, seen := 0, map[int32]bool{}
		lives.Eventually(t, "the states are read under the quota", func() (bool, string) {
			tries++
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			s, err := throttled.Open(ctx, "f79 again")
			if err == nil {
				clear(seen)
				err = s.Load(ctx, func(e statemachine.Entry) error {
					if e.Key.Mirror == "f79" {
						seen[e.Key.Partition] = true
					}
					return nil
				})
				s.Close()
			}
			return err == nil && len(seen) == records, fmt.Sprintf("try %d: %d states, %v", tries, len(seen), err)
		})
		t.Logf("read in %d tries", tries)
	})
}
