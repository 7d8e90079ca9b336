package logtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/logtest"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// inMemory makes a log of a memlog cluster with that many replicas.
func inMemory(replicas int) logtest.Factory {
	return func(t testing.TB) logtest.Subject {
		c := memlog.New(memlog.Config{Replicas: replicas})
		tp := mirror.TopicPartition{Topic: "orders"}
		if _, err := c.CreateTopic(t.Context(), mirror.TopicSpec{Name: tp.Topic, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		log, err := c.OpenLog(t.Context(), tp)
		if err != nil {
			t.Fatal(err)
		}
		s := logtest.Subject{Log: log, Close: c.Close, RaiseLeaderEpoch: func(ctx context.Context, epoch int32) error {
			_, err := c.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{tp: epoch})
			return err
		}, SetForeign: func(foreign bool) error { return c.SetForeign(tp.Topic, tp.Partition, foreign) },
			SetRemote: func(below int64) error { return c.SetRemote(tp.Topic, tp.Partition, below, 0) }}
		if replicas > 1 {
			all := func(f func(topic string, partition int32, replica int) error) func() {
				return func() {
					var errs []error
					for r := 1; r < replicas; r++ {
						errs = append(errs, f(tp.Topic, tp.Partition, r))
					}
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.HoldReplication, s.ReleaseReplication = all(c.HoldReplica), all(c.ReleaseReplica)
		}
		return s
	}
}

func TestMemlogKeepsTheContract(t *testing.T) { logtest.Run(t, inMemory(1)) }

func TestMemlogWithReplicasKeepsTheContract(t *testing.T) { logtest.Run(t, inMemory(3)) }
