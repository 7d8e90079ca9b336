package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// abandoned is a pretended cluster with one empty partition, orders-0, whose mirror process is gone. Brokers 1 and 2 have copies.
type abandoned struct {
	*pretended
	cfg Config

	mu      sync.Mutex
	now     clustermetadata.Partition
	open    map[int64]int64 // transactions that the leader has open: producer, and where it began
	aborted []int64
	asked   map[string]int
	on      map[string]func() // what happens before a request is answered
	end     int64             // of the copies
}

func abandon(t *testing.T) *abandoned {
	a := &abandoned{pretended: pretend(t), open: map[int64]int64{}, asked: map[string]int{}, on: map[string]func(){}}
	a.cfg = a.config()
	a.cfg.SessionTimeout, a.cfg.HeartbeatInterval = 300*time.Millisecond, 50*time.Millisecond
	a.answer = a.answers
	a.broker(1, 10, false)
	a.broker(2, 20, false)
	a.broker(pretendedNode, 30, true)
	a.topic("orders", 1)
	a.now = clustermetadata.Partition{Topic: "orders", TopicID: mirror.TopicID{15: 1}, Replicas: []int32{pretendedNode, 1, 2}, ISR: []int32{pretendedNode}, Leader: -1, LeaderEpoch: 4}
	a.partition(a.now)
	a.producerIDs(5000)
	a.seen()
	return a
}

func (a *abandoned) change(f func(*clustermetadata.Partition)) {
	f(&a.now)
	a.now.PartitionEpoch++
	a.partition(a.now)
}

func (a *abandoned) answers(req kmsg.Request) (kmsg.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := kmsg.NameForKey(req.Key())
	a.asked[name]++
	if f := a.on[name]; f != nil {
		f()
	}
	switch q := req.(type) {
	case *kmsg.ListOffsetsRequest:
		resp := kmsg.NewPtrListOffsetsResponse()
		for _, qt := range q.Topics {
			t := kmsg.NewListOffsetsResponseTopic()
			t.Topic = qt.Topic
			for _, qp := range qt.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.Timestamp, p.Offset = qp.Partition, -1, a.end
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil
	case *kmsg.FetchRequest:
		resp := kmsg.NewPtrFetchResponse()
		for _, qt := range q.Topics {
			t := kmsg.NewFetchResponseTopic()
			t.Topic, t.TopicID = qt.Topic, qt.TopicID
			for _, qp := range qt.Partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.HighWatermark, p.LastStableOffset = qp.Partition, a.end, a.end
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil
	case *kmsg.InitProducerIDRequest:
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ProducerID = 1 << 40
		return resp, nil
	case *kmsg.AlterPartitionAssignmentsRequest:
		a.change(func(p *clustermetadata.Partition) { // pending until the leader's followers are in sync: the new order is what counts here
			p.Replicas, p.Removing = append(slices.Clone(q.Topics[0].Partitions[0].Replicas), pretendedNode), []int32{pretendedNode}
		})
		return kmsg.NewPtrAlterPartitionAssignmentsResponse(), nil
	case *kmsg.ElectLeadersRequest:
		a.change(func(p *clustermetadata.Partition) {
			p.Leader, p.LeaderEpoch, p.ISR = p.Replicas[0], p.LeaderEpoch+1, p.Replicas[:1]
		})
		return kmsg.NewPtrElectLeadersResponse(), nil
	case *kmsg.DescribeProducersRequest:
		resp := kmsg.NewPtrDescribeProducersResponse()
		t, p := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition()
		t.Topic = "orders"
		for id, began := range a.open {
			producer := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
			producer.ProducerID, producer.CurrentTxnStartOffset = id, began
			p.ActiveProducers = append(p.ActiveProducers, producer)
		}
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
		return resp, nil
	case *kmsg.WriteTxnMarkersRequest:
		resp := kmsg.NewPtrWriteTxnMarkersResponse()
		for _, qm := range q.Markers {
			a.aborted = append(a.aborted, qm.ProducerID)
			delete(a.open, qm.ProducerID)
			m, t := kmsg.NewWriteTxnMarkersResponseMarker(), kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			m.ProducerID, t.Topic = qm.ProducerID, "orders"
			t.Partitions = append(t.Partitions, kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition())
			m.Topics = append(m.Topics, t)
			resp.Markers = append(resp.Markers, m)
		}
		return resp, nil
	}
	return nil, fmt.Errorf("asked %s", name)
}

func bounded(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(stop)
	return ctx
}

func kept(context.Context, Forced) error { return nil }

// TestForceLeavesClientsTransactions: what began after the recorded end is a client's, in the first run and in those that go on with it.
func TestForceLeavesClientsTransactions(t *testing.T) {
	a := abandon(t)
	a.on["ElectLeaders"] = func() { a.open[77] = 0 } // a client is the first to write, at the end: the mirror left nothing open
	first, stop := context.WithCancel(t.Context())
	defer stop()
	a.on["DescribeProducers"] = stop // the first run ends before the replicas are in sync
	forced, err := Force(first, a.cfg, nil, kept)
	if err == nil || len(forced) != 1 || forced[0].Leader != 1 || !forced[0].Opened {
		t.Fatalf("the first run: %+v, %v", forced, err)
	}
	a.mu.Lock()
	a.on = map[string]func(){"DescribeProducers": func() {
		if len(a.now.Removing) > 0 {
			a.change(func(p *clustermetadata.Partition) { p.Replicas, p.Removing, p.ISR = []int32{1, 2}, nil, []int32{1, 2} })
		}
	}}
	a.mu.Unlock()
	recorded := 0
	forced, err = Force(bounded(t), a.cfg, nil, func(context.Context, Forced) error { recorded++; return nil })
	if err != nil || len(forced) != 1 || forced[0].End != 0 || !forced[0].Opened || recorded != 0 {
		t.Fatalf("the second run: %+v, recorded %d times, %v", forced, recorded, err)
	}
	if len(a.aborted) != 0 || len(a.open) != 1 {
		t.Errorf("the transactions of %v were aborted; they are clients'", a.aborted)
	}
}

// TestForceRefusesAnOpenPartition: a stock broker leads although no Force has elected it: an unfinished take-over, in which clients write.
func TestForceRefusesAnOpenPartition(t *testing.T) {
	a := abandon(t)
	a.change(func(p *clustermetadata.Partition) { p.Leader, p.ISR = 2, []int32{2} })
	a.open[77] = 3
	a.seen()
	if forced, err := Force(bounded(t), a.cfg, nil, kept); err == nil || !strings.Contains(err.Error(), "no Force has elected it") || forced[0].Opened || !forced[0].Led || forced[0].Leader != 2 {
		t.Errorf("force: %+v, %v", forced, err)
	}
	if len(a.aborted) != 0 || a.asked["AlterPartitionAssignments"]+a.asked["ElectLeaders"] != 0 {
		t.Errorf("aborted %v, asked %v", a.aborted, a.asked)
	}
}

// TestForceLooksForLifeBeforeEachStep: a substitute that registers while Force is under way ends it, before the record and before the election.
func TestForceLooksForLifeBeforeEachStep(t *testing.T) {
	for _, at := range []string{"InitProducerID", "record", "AlterPartitionAssignments"} {
		t.Run(at, func(t *testing.T) {
			a := abandon(t)
			comes := func() { a.broker(pretendedNode, 40, false) }
			a.on[at] = comes
			recorded := 0
			_, err := Force(bounded(t), a.cfg, nil, func(context.Context, Forced) error {
				if recorded++; at == "record" {
					comes()
				}
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), "is alive") {
				t.Errorf("force: %v", err)
			}
			if a.asked["ElectLeaders"] != 0 {
				t.Error("it was opened although a process came")
			}
			if before := at == "InitProducerID"; before != (recorded == 0) {
				t.Errorf("recorded %d times", recorded)
			}
		})
	}
	a := abandon(t)
	_, err := Force(bounded(t), a.cfg, nil, func(context.Context, Forced) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.change(func(p *clustermetadata.Partition) { p.Replicas = []int32{pretendedNode, 2, 1} })
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "somebody changed it meanwhile") || a.asked["ElectLeaders"] != 0 {
		t.Errorf("the partition changed after it was looked at: %v", err)
	}
}

// TestForceOfATopicThatIsDeleted: what there is no more was not opened.
func TestForceOfATopicThatIsDeleted(t *testing.T) {
	for _, at := range []string{"InitProducerID", "DescribeProducers"} {
		a := abandon(t)
		var once sync.Once
		a.on[at] = func() { once.Do(func() { a.deleted(1) }) }
		forced, err := Force(bounded(t), a.cfg, nil, kept)
		if !errors.Is(err, mirror.ErrUnknownTopic) || len(forced) != 1 || forced[0].Opened {
			t.Errorf("deleted at %s: %+v, %v", at, forced, err)
		}
	}
}
