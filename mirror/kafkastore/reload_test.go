package kafkastore

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

const manyPartitions = 5000

// filled is a cluster on which that many partitions of mirrors have their records.
func filled(t testing.TB) Config {
	t.Helper()
	cfg := sharedConfig(t, newPrefix())
	cfg.StatePartitions = 50
	s := open(t, cfg)
	n := opened(t, s, "node")
	var changes []keyedlog.Change
	for p := range int32(manyPartitions) {
		state := statemachine.NewPartitionState()
		state.State, state.StateEpoch, state.LeaderEpoch, state.SourceClusterID = statemachine.Mirroring, 2, 4, "source-cluster-identifier"
		changes = append(changes, keyedlog.Change{Key: stateKey("my-mirror", p), Value: statemachine.AppendPartitionState(nil, state)},
			keyedlog.Change{Key: key(75, fmt.Sprint("report-", p)), Value: make([]byte, 300)})
	}
	write(t, n, changes...)
	s.Close()
	return cfg
}

// A process that starts reads the records of 5,000 partitions with few requests; one that has read asks each broker once.
func TestRealReloadRequests(t *testing.T) {
	t.Parallel()
	cfg := filled(t)
	var asked requests
	cfg.ClientOptions = []kgo.Opt{kgo.WithHooks(&asked)}
	s := open(t, cfg)
	load := func() (n int) {
		t.Helper()
		must(t, keyedlog.NewStateStore(s).Load(t.Context(), func(e statemachine.Entry) error {
			if e.State.State != statemachine.Mirroring || e.Owner != "node" {
				return fmt.Errorf("%+v", e)
			}
			n++
			return nil
		}))
		return n
	}
	if n := load(); n != manyPartitions {
		t.Fatalf("%d entries", n)
	}
	all, sum := asked.since()
	t.Logf("reload of %d partitions and their reports: %d requests: %v", manyPartitions, sum, all)
	if sum > 60 {
		t.Errorf("%d requests, want at most 60", sum)
	}
	load()
	all, sum = asked.since()
	t.Logf("once more: %d requests: %v", sum, all)
	if brokers := len(kafkatest.Shared(t).Brokers()); all["ListOffsets"] > brokers || sum > brokers {
		t.Errorf("%d requests although nothing is new, want one for each of %d brokers", sum, brokers)
	}
}

// BenchmarkReload5000 is the time from nothing to all states of 5,000 partitions. It needs real Kafka and is run by hand.
func BenchmarkReload5000(b *testing.B) {
	cfg := filled(b)
	for b.Loop() {
		s, err := Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if err := keyedlog.NewStateStore(s).Load(b.Context(), func(statemachine.Entry) error { n++; return nil }); err != nil || n != manyPartitions {
			b.Fatal(n, err)
		}
		s.Close()
	}
}
