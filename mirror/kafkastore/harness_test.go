package kafkastore

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// requests counts what clients ask, by the name of the API; what a connection asks first does not count.
type requests struct {
	mu  sync.Mutex
	all map[string]int
}

func (r *requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[string]int)
	}
	if key != int16(kmsg.ApiVersions) {
		r.all[kmsg.NameForKey(key)]++
	}
}

// since returns what was counted and begins anew.
func (r *requests) since() (all map[string]int, sum int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.all = r.all, nil
	for _, n := range all {
		sum += n
	}
	return all, sum
}

// prefixes gives each test transactional ids and topics of its own.
var prefixes atomic.Int64

func newPrefix() string { return fmt.Sprintf("t%d", prefixes.Add(1)) }

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Bound == 0 {
		cfg.Bound = 20 * time.Second
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// sharedConfig is of the cluster of all tests, with one replica, which is quick. Two stores that are to fence each other have the same prefix.
func sharedConfig(t testing.TB, prefix string) Config {
	t.Helper()
	return Config{Seeds: kafkatest.Shared(t.(kafkatest.T)).Bootstrap(), Prefix: prefix, namespace: prefix, StatePartitions: 2, ReplicationFactor: 1}
}

func opened(t testing.TB, s *Store, writer string) keyedlog.Session {
	t.Helper()
	n, err := s.Open(t.Context(), writer)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// key is one of a record type, with a text behind it.
func key(recordType int16, text string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(recordType)), text...)
}

func stateKey(mirror string, partition int32) []byte {
	return statemachine.AppendKey(nil, statemachine.PartitionStateType, statemachine.Key{Mirror: mirror, TopicID: statemachine.TopicID{1}, Partition: partition})
}

func lmeKey(mirror string, partition int32) []byte {
	return statemachine.AppendKey(nil, statemachine.LastMirrorEpochsType, statemachine.Key{Mirror: mirror, TopicID: statemachine.TopicID{1}, Partition: partition})
}

// put is a decision that does not look.
func put(changes ...keyedlog.Change) func(keyedlog.View) ([]keyedlog.Change, error) {
	return func(keyedlog.View) ([]keyedlog.Change, error) { return changes, nil }
}

func change(key []byte, value string) keyedlog.Change {
	return keyedlog.Change{Key: key, Value: []byte(value)}
}

func update(t testing.TB, s keyedlog.Log, changes ...keyedlog.Change) {
	t.Helper()
	if err := s.Update(t.Context(), put(changes...)); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, n keyedlog.Session, changes ...keyedlog.Change) {
	t.Helper()
	if err := try(t.Context(), n, changes...); err != nil {
		t.Fatal(err)
	}
}

func try(ctx context.Context, n keyedlog.Session, changes ...keyedlog.Change) error {
	var keys [][]byte
	for _, c := range changes {
		keys = append(keys, c.Key)
	}
	return n.Update(ctx, keys, put(changes...))
}

type reads interface {
	Read(context.Context, func(keyedlog.View) error) error
}

// shown is "value" or "value by writer/session" of a key, "-" if it is not there.
func shown(t testing.TB, s reads, key []byte) (text string) {
	t.Helper()
	err := s.Read(t.Context(), func(v keyedlog.View) error {
		r, ok := v.Get(key)
		text = describe(r, ok)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func describe(r keyedlog.Record, ok bool) string {
	switch {
	case !ok:
		return "-"
	case r.Writer == "":
		return string(r.Value)
	}
	return fmt.Sprintf("%s by %s/%d", r.Value, r.Writer, r.Session)
}

func expect(t testing.TB, s reads, key []byte, want string) {
	t.Helper()
	if got := shown(t, s, key); got != want {
		t.Errorf("key %x: %s, want %s", key, got, want)
	}
}

// byHand produces as anybody with the right to may: outside of every transaction.
func byHand(t *testing.T, cfg Config, records ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	defer cl.Close()
	for _, r := range records {
		r.Topic = cfg.namespace + r.Topic
	}
	must(t, cl.ProduceSync(t.Context(), records...).FirstErr())
}

func admin(t *testing.T, cfg Config) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Seeds...))
	must(t, err)
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}
