package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Transactions returns what aborts open transactions of the client's cluster.
//
// One that its coordinator knows is ended by the coordinator: its transactional id is initialised anew, as its own application would (Kafka: Admin.fenceProducers), so the producer is fenced before
// anything is aborted, every partition gets the marker, and one that is about to commit commits. That needs WRITE on the transactional id. One that no coordinator knows is hanging: its partitions get
// an ABORT each from their leaders, as kafka-transactions.sh abort has it, which needs CLUSTER_ACTION or, from Kafka 4.0, ALTER on the cluster. Both need DESCRIBE on the transactional ids and READ on
// the topics. The client is the caller's.
func Transactions(client *kgo.Client) mirror.TransactionEnder { return transactions{client} }

type transactions struct{ client *kgo.Client }

// ending is a producer with an open transaction.
type ending struct {
	epoch, coordinatorEpoch map[mirror.TopicPartition]int32
}

func (t transactions) AbortTransactions(ctx context.Context, open []mirror.OpenTransaction) error {
	admin := kadm.NewClient(t.client)
	partitions := kadm.TopicsSet{}
	for _, o := range open {
		partitions.Add(o.Topic, o.Partition)
	}
	described, err := admin.DescribeProducers(ctx, partitions)
	if err != nil {
		return fmt.Errorf("looking at the producers: %w", err)
	}
	producers := map[int64]ending{}
	var ids []int64
	for _, topic := range described {
		for _, p := range topic.Partitions {
			if p.Err != nil {
				return fmt.Errorf("looking at the producers of %s-%d: %w", p.Topic, p.Partition, p.Err)
			}
			for _, x := range p.ActiveProducers {
				if x.CurrentTxnStartOffset < 0 {
					continue // it has ended
				}
				if _, known := producers[x.ProducerID]; !known {
					producers[x.ProducerID] = ending{map[mirror.TopicPartition]int32{}, map[mirror.TopicPartition]int32{}}
					ids = append(ids, x.ProducerID)
				}
				tp := mirror.TopicPartition{Topic: x.Topic, Partition: x.Partition}
				producers[x.ProducerID].epoch[tp], producers[x.ProducerID].coordinatorEpoch[tp] = int32(x.ProducerEpoch), x.CoordinatorEpoch
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	listed, err := admin.ListTransactions(ctx, ids, nil)
	if err != nil {
		return fmt.Errorf("asking coordinators for transactions: %w", err)
	}
	var errs []error
	for _, l := range listed.Sorted() {
		switch l.State {
		case "Ongoing":
			errs = append(errs, t.fence(ctx, l.TxnID))
		case "PrepareCommit", "PrepareAbort", "PrepareEpochFence": // its coordinator is about to end it
		default:
			continue // its coordinator knows of none: it hangs in the partition
		}
		ids = slices.DeleteFunc(ids, func(id int64) bool { return id == l.ProducerID })
	}
	var markers []kadm.TxnMarkers
	for _, id := range ids {
		for tp, epoch := range producers[id].epoch {
			m := kadm.TxnMarkers{ProducerID: id, ProducerEpoch: int16(epoch), CoordinatorEpoch: producers[id].coordinatorEpoch[tp], Topics: kadm.TopicsSet{}}
			m.Topics.Add(tp.Topic, tp.Partition)
			markers = append(markers, m)
		}
	}
	if len(markers) > 0 {
		written, err := admin.WriteTxnMarkers(ctx, markers...)
		if err != nil {
			errs = append(errs, fmt.Errorf("aborting hanging transactions: %w", err))
		}
		written.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
			if p.Err != nil {
				errs = append(errs, fmt.Errorf("aborting the hanging transaction of producer %d in %s-%d: %w", p.ProducerID, p.Topic, p.Partition, p.Err))
			}
		})
	}
	return errors.Join(errs...)
}

// fence initialises a transactional id anew.
func (t transactions) fence(ctx context.Context, id string) error {
	ctx, stop := context.WithTimeout(ctx, raiseBound)
	defer stop()
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = kmsg.StringPtr(id), 60_000, -1, -1
		resp, err := req.RequestWith(ctx, t.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, kerr.ConcurrentTransactions) && !kerr.IsRetriable(err):
			return fmt.Errorf("fencing transactional id %q: %w", id, err)
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("fencing transactional id %q: %w", id, err)
		}
	}
}
