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
func Transactions(client *kgo.Client) mirror.TransactionEnder { return transactions{onCluster{client}} }

type transactions struct{ onCluster }

var _ mirror.FenceCluster = transactions{}

// openAt is a producer that has a transaction open in one partition.
type openAt struct {
	mirror.TopicPartition
	producerID int64
}

// begun is that transaction.
type begun struct {
	start                   int64
	epoch, coordinatorEpoch int32
}

// lookFor returns what is open in the partitions, at their leaders.
func lookFor(ctx context.Context, admin *kadm.Client, partitions kadm.TopicsSet) (map[openAt]begun, error) {
	described, err := admin.DescribeProducers(ctx, partitions)
	if err != nil {
		return nil, fmt.Errorf("looking at the producers: %w", err)
	}
	found := map[openAt]begun{}
	for _, topic := range described {
		for _, p := range topic.Partitions {
			if p.Err != nil {
				return nil, fmt.Errorf("looking at the producers of %s-%d: %w", p.Topic, p.Partition, p.Err)
			}
			for _, x := range p.ActiveProducers {
				if x.CurrentTxnStartOffset >= 0 { // else it has ended
					found[openAt{mirror.TopicPartition{Topic: x.Topic, Partition: x.Partition}, x.ProducerID}] = begun{x.CurrentTxnStartOffset, int32(x.ProducerEpoch), x.CoordinatorEpoch}
				}
			}
		}
	}
	return found, nil
}

func (t transactions) AbortTransactions(ctx context.Context, open []mirror.OpenTransaction) error {
	admin := kadm.NewClient(t.client)
	partitions := kadm.TopicsSet{}
	for _, o := range open {
		partitions.Add(o.Topic, o.Partition)
	}
	found, err := lookFor(ctx, admin, partitions)
	if err != nil {
		return err
	}
	var ids []int64
	for at, x := range found {
		// Of a producer that is named, what began behind the named transaction is its next one.
		if !slices.ContainsFunc(open, func(o mirror.OpenTransaction) bool {
			return o.TopicPartition == at.TopicPartition && (o.ProducerID == mirror.Unknown || o.ProducerID == at.producerID && x.start <= o.FirstOffset)
		}) {
			delete(found, at)
		} else if !slices.Contains(ids, at.producerID) {
			ids = append(ids, at.producerID)
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
	if len(ids) == 0 {
		return errors.Join(errs...)
	}
	// Its coordinator may have ended it between the two answers, and its producer may have begun another one. Only what is open still, from the same offset on, hangs.
	still, err := lookFor(ctx, admin, partitions)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	var markers []kadm.TxnMarkers
	for at, x := range found {
		if now, there := still[at]; slices.Contains(ids, at.producerID) && there && now.start == x.start {
			m := kadm.TxnMarkers{ProducerID: at.producerID, ProducerEpoch: int16(now.epoch), CoordinatorEpoch: now.coordinatorEpoch, Topics: kadm.TopicsSet{}}
			m.Topics.Add(at.Topic, at.Partition)
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
