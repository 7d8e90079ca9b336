package kraft

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// pretended is a cluster's metadata log, and what a test lets its controllers and brokers answer. Nothing is sent: it stands in Config.intercept.
type pretended struct {
	t *testing.T
	d *Destination
	// answer is asked for every request but those that follow the metadata.
	answer func(req kmsg.Request) (kmsg.Response, error)

	mu      sync.Mutex
	batches [][]byte // one record each
}

const pretendedNode = 9999

// pretend makes one that is followed by a Destination that has not registered.
func pretend(t *testing.T) *pretended {
	f := &pretended{t: t}
	cfg, err := f.config().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	f.d = newDestination(cfg)
	if err := f.d.connect(); err != nil {
		t.Fatal(err)
	}
	f.d.membership.listener = "INTERNAL"
	t.Cleanup(func() { f.d.Close() })
	return f
}

func (f *pretended) config() Config {
	return Config{
		NodeID: pretendedNode, Controllers: []string{"127.0.0.1:1"}, Listen: "127.0.0.1:0", Folder: f.t.TempDir(), Remember: keyedlog.NewMemory(), RequestTimeout: 3 * time.Second,
		BrokerOptions: []kgo.Opt{kgo.RequestRetries(0)},
		intercept: func(ctx context.Context, req kmsg.Request, _ func() (kmsg.Response, error)) (kmsg.Response, error) {
			if fetch, ok := req.(*kmsg.FetchRequest); ok && fetch.Topics[0].Topic == metadataTopic {
				return f.metadata(ctx, fetch)
			}
			return f.answer(req)
		},
	}
}

// metadata answers who follows the log.
func (f *pretended) metadata(ctx context.Context, req *kmsg.FetchRequest) (kmsg.Response, error) {
	from := int(req.Topics[0].Partitions[0].FetchOffset)
	deadline := time.Now().Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	for {
		f.mu.Lock()
		n := len(f.batches)
		var b []byte
		if from < n {
			b = slices.Concat(f.batches[from:]...)
		}
		f.mu.Unlock()
		if len(b) == 0 && time.Now().Before(deadline) && pause(ctx, 1) == nil {
			continue
		}
		resp := kmsg.NewPtrFetchResponse()
		t, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.RecordBatches, p.SnapshotID.EndOffset, p.DivergingEpoch.EndOffset = int64(n), b, -1, -1
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
		return resp, ctx.Err()
	}
}

// write adds a record (internal/clustermetadata: replay.go).
func (f *pretended) write(kind, version byte, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, batch.AppendData(nil, batch.DataSpec{BaseOffset: int64(len(f.batches)), LeaderEpoch: 1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
		Records: []batch.Record{{Value: append([]byte{1, kind, version}, body...)}}}))
}

// broker registers one under a broker epoch.
func (f *pretended) broker(id int32, epoch int64, fenced bool) {
	b := append(kbin.AppendInt8(kbin.AppendInt32(nil, id), 0), make([]byte, 16)...)
	b = kbin.AppendCompactArrayLen(kbin.AppendInt64(b, epoch), 2)
	for _, name := range []string{"INTERNAL", "EXTERNAL"} {
		b = kbin.AppendCompactString(kbin.AppendCompactString(b, name), "127.0.0.1")
		b = append(kbin.AppendInt16(kbin.AppendInt16(b, int16(id)), 0), 0)
	}
	b = kbin.AppendCompactString(kbin.AppendCompactArrayLen(b, 0), "rack")
	f.write(0, 4, append(kbin.AppendBool(kbin.AppendBool(b, fenced), false), 0))
}

// fence fences a broker, or lets it in.
func (f *pretended) fence(id int32, epoch int64, fenced bool) {
	kind := byte(8)
	if fenced {
		kind = 7
	}
	f.write(kind, 0, append(kbin.AppendInt64(kbin.AppendInt32(nil, id), epoch), 0))
}

func (f *pretended) topic(name string, id byte) {
	f.write(2, 0, append(append(kbin.AppendCompactString(nil, name), append(make([]byte, 15), id)...), 0))
}

// deleted takes a topic away.
func (f *pretended) deleted(id byte) {
	f.write(9, 0, append(append(make([]byte, 15), id), 0))
}

// partition writes all of one.
func (f *pretended) partition(p clustermetadata.Partition) {
	b := append(kbin.AppendInt32(nil, p.Partition), p.TopicID[:]...)
	for _, ids := range [][]int32{p.Replicas, p.ISR, p.Removing, p.Adding} {
		b = kbin.AppendCompactArrayLen(b, len(ids))
		for _, id := range ids {
			b = kbin.AppendInt32(b, id)
		}
	}
	f.write(3, 0, append(kbin.AppendInt32(kbin.AppendInt32(kbin.AppendInt32(b, p.Leader), p.LeaderEpoch), p.PartitionEpoch), 0))
}

// setting sets one of a topic.
func (f *pretended) setting(topic, key, value string) {
	b := kbin.AppendCompactString(kbin.AppendCompactString(kbin.AppendInt8(nil, int8(clustermetadata.TopicResource)), topic), key)
	f.write(4, 0, append(kbin.AppendCompactString(b, value), 0))
}

// producerIDs moves the counter.
func (f *pretended) producerIDs(next int64) {
	f.write(15, 0, append(kbin.AppendInt64(kbin.AppendInt64(kbin.AppendInt32(nil, 1), 1), next), 0))
}

// seen waits until the Destination has all of it.
func (f *pretended) seen() {
	f.t.Helper()
	ctx, stop := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer stop()
	if err := f.d.meta.caughtUp(ctx); err != nil {
		f.t.Fatal(err)
	}
}
