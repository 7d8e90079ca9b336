package mirrortest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// coordinator is the transaction coordinator of a cluster. It hands out producer ids of the memory cluster, so that none of another cluster comes again, and writes markers there. Offsets
// that belong to a transaction are kept by a transaction of kfake's under the same name, because kfake has the groups.
type coordinator struct {
	cluster *Cluster

	mu   sync.Mutex
	byID map[string]*transactional
}

// transactional is one transactional id. Its fields are under coordinator.mu.
type transactional struct {
	name       string
	producer   memlog.ProducerID
	timeout    time.Duration
	open       bool
	since      time.Time
	partitions map[mirror.TopicPartition]struct{}
	timer      *time.Timer        // of the open transaction
	timedOut   *memlog.ProducerID // whose transaction was aborted because its time was over: it may come back (KIP-588)
	ended      bool               // at least one has ended; committed says how the last one did
	committed  bool
	bumped     bool // its end raised the epoch (KIP-890)

	shadow *memlog.ProducerID  // kfake's, once there were offsets
	groups map[string]struct{} // with offsets in the open transaction
}

func newCoordinator(c *Cluster) *coordinator {
	return &coordinator{cluster: c, byID: map[string]*transactional{}}
}

// close ends the timers.
func (co *coordinator) close() {
	co.mu.Lock()
	defer co.mu.Unlock()
	for _, t := range co.byID {
		if t.timer != nil {
			t.timer.Stop()
		}
	}
}

// longestTransaction is Kafka's default of transaction.max.timeout.ms.
const longestTransaction = 15 * time.Minute

func (c *connection) initProducerID(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.InitProducerIDRequest), r.ResponseKind().(*kmsg.InitProducerIDResponse)
	if req.TransactionalID == nil {
		id := c.front.cluster.memory.NewProducerID()
		resp.ProducerID, resp.ProducerEpoch = id.ID, id.Epoch
		return resp, nil
	}
	timeout := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	switch {
	case *req.TransactionalID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
	case timeout <= 0 || timeout > longestTransaction:
		resp.ErrorCode = kerr.InvalidTransactionTimeout.Code
	default:
		var known *memlog.ProducerID
		if req.ProducerID >= 0 {
			known = &memlog.ProducerID{ID: req.ProducerID, Epoch: req.ProducerEpoch}
		}
		id, err := c.front.cluster.transactions.begin(ctx, *req.TransactionalID, timeout, known)
		if err != nil {
			return nil, err
		}
		if id == nil {
			resp.ErrorCode = kerr.ProducerFenced.Code
			break
		}
		resp.ProducerID, resp.ProducerEpoch = id.ID, id.Epoch
	}
	return resp, nil
}

// begin gives a transactional id to a producer: who had it before is fenced, and what that left open is aborted. known is the identity that the producer has already (KIP-360); nil is
// returned where that is an old one.
func (co *coordinator) begin(ctx context.Context, name string, timeout time.Duration, known *memlog.ProducerID) (*memlog.ProducerID, error) {
	co.mu.Lock()
	defer co.mu.Unlock()
	t := co.byID[name]
	if t == nil {
		t = &transactional{name: name, producer: co.cluster.memory.NewProducerID(), timeout: timeout}
		co.byID[name] = t
		id := t.producer
		return &id, nil
	}
	if known != nil && *known != t.producer && (t.timedOut == nil || *known != *t.timedOut) {
		return nil, nil
	}
	t.timeout, t.timedOut = timeout, nil
	if err := co.fence(ctx, t); err != nil {
		return nil, err
	}
	id := t.producer
	return &id, nil
}

// fence raises a producer's epoch and aborts under it what is open. Under mu.
func (co *coordinator) fence(ctx context.Context, t *transactional) error {
	raise := func() {
		if t.producer.Epoch++; t.producer.Epoch == math.MaxInt16 { // used up
			t.producer = co.cluster.memory.NewProducerID()
		}
	}
	if !t.open {
		raise()
		t.ended = false
		return nil
	}
	t.producer.Epoch++ // the last one of an id is still good for a marker
	err := co.end(ctx, t, false)
	t.producer.Epoch--
	raise()
	t.ended = false
	return err
}

// mine finds the transactional id of a request, if the producer may use it. Under mu.
func (co *coordinator) mine(name string, id memlog.ProducerID) (*transactional, *kerr.Error) {
	t := co.byID[name]
	switch {
	case t == nil || t.producer.ID != id.ID:
		return nil, kerr.InvalidProducerIDMapping
	case t.producer.Epoch != id.Epoch:
		return t, kerr.ProducerFenced
	}
	return t, nil
}

// start begins a transaction if none is open. Under mu.
func (co *coordinator) start(t *transactional) {
	if t.open {
		return
	}
	t.open, t.since, t.partitions = true, time.Now(), map[mirror.TopicPartition]struct{}{}
	co.arm(t, t.timeout)
}

// arm aborts the open transaction when its time is over. Under mu.
func (co *coordinator) arm(t *transactional, after time.Duration) {
	since := t.since
	t.timer = time.AfterFunc(after, func() {
		ctx, ok := co.cluster.admit()
		if !ok {
			co.mu.Lock()
			defer co.mu.Unlock()
			if !co.cluster.ended() && t.open && t.since.Equal(since) { // the cluster is dead; a coordinator that comes back finds it
				co.arm(t, 50*time.Millisecond)
			}
			return
		}
		defer co.cluster.running.Done()
		co.mu.Lock()
		defer co.mu.Unlock()
		if t.open && t.since.Equal(since) {
			was := t.producer
			t.timedOut = &was
			_ = co.fence(ctx, t) // what cannot be marked now belongs to a mirror's copy, or to a cluster that ends
		}
	})
}

// end writes the markers and what offsets there are, under the producer's epoch of now: all of it, also when ctx ends meanwhile, for a coordinator that comes back would go on with it. A
// partition that is a mirror's copy by now, or gone, gets none. Under mu.
func (co *coordinator) end(ctx context.Context, t *transactional, commit bool) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	defer stop()
	t.timer.Stop()
	t.open, t.ended, t.committed = false, true, commit
	for tp := range t.partitions {
		err := co.cluster.memory.WriteMarker(ctx, tp.Topic, tp.Partition, t.producer, commit)
		if failed, _ := code(err); failed != 0 && failed != kerr.PolicyViolation.Code && failed != kerr.UnknownTopicOrPartition.Code {
			return err
		}
	}
	if t.groups == nil {
		return nil
	}
	t.groups = nil
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = t.name, t.shadow.ID, t.shadow.Epoch, commit
	resp, err := req.RequestWith(ctx, co.cluster.inner)
	if err != nil {
		return err
	}
	if resp.Version >= 5 {
		t.shadow.Epoch = resp.ProducerEpoch
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// cast makes sure that kfake has a transaction for the offsets of this one, with the group in it. Under mu.
func (co *coordinator) cast(ctx context.Context, t *transactional, group string) error {
	if t.shadow == nil {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &t.name, int32(longestTransaction.Milliseconds())
		resp, err := req.RequestWith(ctx, co.cluster.inner)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		t.shadow = &memlog.ProducerID{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
	}
	if _, done := t.groups[group]; done {
		return nil
	}
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = t.name, t.shadow.ID, t.shadow.Epoch, group
	resp, err := req.RequestWith(ctx, co.cluster.inner)
	if err != nil {
		return err
	}
	if t.groups == nil {
		t.groups = map[string]struct{}{}
	}
	t.groups[group] = struct{}{}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// produce appends a batch of a transaction. From Produce v12 on the partition joins it by that (KIP-890).
func (co *coordinator) produce(ctx context.Context, req *kmsg.ProduceRequest, tp mirror.TopicPartition, info mirror.BatchInfo, sent []byte) (int64, error) {
	if req.TransactionID == nil {
		return -1, memlog.ErrInvalidTransaction
	}
	co.mu.Lock()
	defer co.mu.Unlock()
	t, refused := co.mine(*req.TransactionID, memlog.ProducerID{ID: info.ProducerID, Epoch: info.ProducerEpoch})
	if refused == kerr.ProducerFenced {
		return -1, memlog.ErrProducerFenced
	}
	if refused != nil {
		return -1, memlog.ErrInvalidTransaction
	}
	if req.Version >= implicitVersion {
		co.start(t)
	}
	if _, added := t.partitions[tp]; !t.open || !added && req.Version < implicitVersion {
		return -1, memlog.ErrInvalidTransaction
	}
	base, err := co.cluster.memory.ProduceBatch(ctx, tp.Topic, tp.Partition, sent)
	if err == nil {
		t.partitions[tp] = struct{}{}
	}
	return base, err
}

// implicitVersion is the first version of Produce that adds a partition to its transaction by itself.
const implicitVersion = 12

// batchOf reads what one sent batch says of itself.
func batchOf(sent []byte) (info mirror.BatchInfo, transactional bool) {
	for info := range mirror.Batches(sent) {
		return info, info.Transactional
	}
	return info, false
}

func (c *connection) addPartitions(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.AddPartitionsToTxnRequest), r.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version >= 4 { // brokers only
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp, nil
	}
	co := c.front.cluster.transactions
	co.mu.Lock()
	defer co.mu.Unlock()
	t, refused := co.mine(req.TransactionalID, memlog.ProducerID{ID: req.ProducerID, Epoch: req.ProducerEpoch})
	missing := map[mirror.TopicPartition]bool{}
	for _, rt := range req.Topics {
		for _, p := range rt.Partitions {
			tp := mirror.TopicPartition{Topic: rt.Topic, Partition: p}
			if _, err := c.front.cluster.memory.Leader(ctx, tp); err != nil {
				missing[tp] = true
			}
		}
	}
	for _, rt := range req.Topics {
		st := kmsg.NewAddPartitionsToTxnResponseTopic()
		st.Topic = rt.Topic
		for _, p := range rt.Partitions {
			sp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			sp.Partition = p
			tp := mirror.TopicPartition{Topic: rt.Topic, Partition: p}
			switch {
			case refused != nil:
				sp.ErrorCode = refused.Code
			case missing[tp]:
				sp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case len(missing) > 0: // all or none
				sp.ErrorCode = kerr.OperationNotAttempted.Code
			default:
				co.start(t)
				t.partitions[tp] = struct{}{}
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp, nil
}

func (c *connection) addOffsets(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.AddOffsetsToTxnRequest), r.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	co := c.front.cluster.transactions
	co.mu.Lock()
	defer co.mu.Unlock()
	t, refused := co.mine(req.TransactionalID, memlog.ProducerID{ID: req.ProducerID, Epoch: req.ProducerEpoch})
	if refused != nil {
		resp.ErrorCode = refused.Code
		return resp, nil
	}
	co.start(t)
	return resp, co.cast(ctx, t, req.Group)
}

// commitOffsets has kfake keep the offsets, in its own transaction of the same name.
func (c *connection) commitOffsets(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.TxnOffsetCommitRequest), r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	co := c.front.cluster.transactions
	co.mu.Lock()
	defer co.mu.Unlock()
	t, refused := co.mine(req.TransactionalID, memlog.ProducerID{ID: req.ProducerID, Epoch: req.ProducerEpoch})
	if refused == nil && !t.open && req.Version < implicitOffsetsVersion {
		refused = kerr.InvalidTxnState
	}
	if refused != nil {
		for _, rt := range req.Topics {
			st := kmsg.NewTxnOffsetCommitResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, refused.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil
	}
	co.start(t)
	if err := co.cast(ctx, t, req.Group); err != nil {
		return nil, err
	}
	req.ProducerID, req.ProducerEpoch = t.shadow.ID, t.shadow.Epoch
	reply, err := c.pass(ctx, r.again())
	return rawReply{resp, reply}, err
}

// implicitOffsetsVersion is the first version of TxnOffsetCommit that adds its group to the transaction by itself.
const implicitOffsetsVersion = 5

// epochRaisedVersion is the first version of EndTxn with which the producer goes on under the next epoch (KIP-890).
const epochRaisedVersion = 5

func (c *connection) endTransaction(ctx context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.EndTxnRequest), r.ResponseKind().(*kmsg.EndTxnResponse)
	c.front.cluster.gate.RLock()
	defer c.front.cluster.gate.RUnlock()
	if c.front.cluster.fenced { // a COMMIT that the other cluster would not get
		resp.ErrorCode = kerr.ProducerFenced.Code
		return resp, nil
	}
	co := c.front.cluster.transactions
	co.mu.Lock()
	defer co.mu.Unlock()
	raises := req.Version >= epochRaisedVersion
	id := memlog.ProducerID{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	t, refused := co.mine(req.TransactionalID, id)
	again := t != nil && !t.open && t.ended && t.committed == req.Commit // its answer was lost
	switch {
	case refused == kerr.ProducerFenced && again && t.bumped && id.Epoch == t.producer.Epoch-1:
	case refused != nil:
		resp.ErrorCode = refused.Code
		return resp, nil
	case !t.open && again && !raises:
	case !t.open && (req.Commit || !raises): // an abort of nothing is fine for the newer ones
		resp.ErrorCode = kerr.InvalidTxnState.Code
		return resp, nil
	default:
		if raises {
			t.producer.Epoch++
		}
		t.bumped = raises
		if !t.open {
			t.ended, t.committed = true, false
		} else if err := co.end(ctx, t, req.Commit); err != nil {
			return nil, err
		}
		if t.producer.Epoch == math.MaxInt16 {
			t.producer = co.cluster.memory.NewProducerID()
		}
	}
	if raises {
		resp.ProducerID, resp.ProducerEpoch = t.producer.ID, t.producer.Epoch
	}
	return resp, nil
}

func (t *transactional) state() string {
	switch {
	case t.open:
		return "Ongoing"
	case !t.ended:
		return "Empty"
	case t.committed:
		return "CompleteCommit"
	}
	return "CompleteAbort"
}

func (c *connection) describeTransactions(_ context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.DescribeTransactionsRequest), r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	co := c.front.cluster.transactions
	co.mu.Lock()
	defer co.mu.Unlock()
	for _, name := range req.TransactionalIDs {
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID = name
		t := co.byID[name]
		if t == nil {
			st.ErrorCode = kerr.TransactionalIDNotFound.Code
			resp.TransactionStates = append(resp.TransactionStates, st)
			continue
		}
		st.State, st.TimeoutMillis, st.ProducerID, st.ProducerEpoch, st.StartTimestamp = t.state(), int32(t.timeout.Milliseconds()), t.producer.ID, t.producer.Epoch, -1
		if t.open {
			st.StartTimestamp = t.since.UnixMilli()
			for _, tp := range slices.SortedFunc(maps.Keys(t.partitions), byName) {
				if n := len(st.Topics); n == 0 || st.Topics[n-1].Topic != tp.Topic {
					topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
					topic.Topic = tp.Topic
					st.Topics = append(st.Topics, topic)
				}
				last := &st.Topics[len(st.Topics)-1]
				last.Partitions = append(last.Partitions, tp.Partition)
			}
		}
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	return resp, nil
}

func byName(a, b mirror.TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func (c *connection) listTransactions(_ context.Context, r *request) (kmsg.Response, error) {
	req, resp := r.Request.(*kmsg.ListTransactionsRequest), r.ResponseKind().(*kmsg.ListTransactionsResponse)
	co := c.front.cluster.transactions
	co.mu.Lock()
	defer co.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(co.byID)) {
		t := co.byID[name]
		if len(req.StateFilters) > 0 && !slices.Contains(req.StateFilters, t.state()) || len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, t.producer.ID) {
			continue
		}
		st := kmsg.NewListTransactionsResponseTransactionState()
		st.TransactionalID, st.ProducerID, st.TransactionState = name, t.producer.ID, t.state()
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	return resp, nil
}
