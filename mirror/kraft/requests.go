package kraft

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
)

// requests are what this process asks of the active controller, each kind for many partitions at once. An accepted request says nothing yet about the cluster: its effect is what
// the metadata shows afterwards.
type requests struct {
	cfg    *Config
	client *kraftclient.Client

	alterPartition gather[isrChange, isrAnswer]
	reassign       gather[reassignment, error]
	elect          gather[mirror.TopicPartition, error]
	configs        gather[configChange, error]
	configsTried   gather[configChange, error] // changes nothing: would it be taken?
	showUps        gather[showUp, error]
}

// isrChange is one partition of an AlterPartition request.
type isrChange struct {
	topicID     mirror.TopicID
	partition   int32
	leaderEpoch int32
	epoch       int32 // partition epoch
	isr         []inSync
}

// inSync is a replica that is in sync, and the broker epoch under which it came to be (KIP-903): the controllers refuse it if it has registered anew since. -1: as it is now.
type inSync struct {
	id    int32
	epoch int64
}

type isrAnswer struct{ code int16 }

type reassignment struct {
	tp       mirror.TopicPartition
	replicas []int32 // nil: cancel
}

// showUp is a replica fetch of one partition at its leader's log end.
type showUp struct {
	leader      int32
	target      replicareader.Target
	leaderEpoch int32
	start, end  int64
}

// configChange sets or, with a nil value, takes back settings of a topic.
type configChange struct {
	topic  string
	values map[string]*string
}

const (
	mostPartitions = 1000 // in one request of ours
	mostTopics     = 500
)

func newRequests(cfg *Config, client *kraftclient.Client, brokerEpoch func() int64) *requests {
	r := &requests{cfg: cfg, client: client}
	bound := cfg.RequestTimeout
	r.alterPartition = gather[isrChange, isrAnswer]{most: mostPartitions, bound: bound, send: func(ctx context.Context, qs []isrChange) ([]isrAnswer, error) {
		return r.sendAlterPartition(ctx, brokerEpoch(), qs)
	}}
	r.reassign = gather[reassignment, error]{most: mostPartitions, bound: bound, send: r.sendReassign}
	r.elect = gather[mirror.TopicPartition, error]{most: mostPartitions, bound: bound, send: func(ctx context.Context, qs []mirror.TopicPartition) ([]error, error) {
		return r.sendElect(ctx, preferredElection, qs)
	}}
	for to, try := range map[*gather[configChange, error]]bool{&r.configs: false, &r.configsTried: true} {
		to.most, to.bound = mostTopics, bound
		to.send = func(ctx context.Context, qs []configChange) ([]error, error) { return r.sendConfigs(ctx, try, qs) }
	}
	r.showUps = gather[showUp, error]{most: mostPartitions, bound: bound, send: func(ctx context.Context, qs []showUp) ([]error, error) {
		return r.sendShowUps(ctx, brokerEpoch(), qs)
	}}
	return r
}

func (r *requests) sendAlterPartition(ctx context.Context, epoch int64, qs []isrChange) ([]isrAnswer, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = r.cfg.NodeID, epoch
	for id, some := range grouped(qs, func(q isrChange) mirror.TopicID { return q.topicID }) {
		t := kmsg.NewAlterPartitionRequestTopic()
		t.TopicID = id
		for _, q := range some {
			p := kmsg.NewAlterPartitionRequestTopicPartition()
			p.Partition, p.LeaderEpoch, p.PartitionEpoch = q.partition, q.leaderEpoch, q.epoch
			for _, replica := range q.isr {
				m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
				m.BrokerID, m.BrokerEpoch = replica.id, replica.epoch
				if replica.id == r.cfg.NodeID {
					m.BrokerEpoch = epoch
				}
				p.NewEpochISR = append(p.NewEpochISR, m)
			}
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := r.client.Controller(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("changing in-sync replicas: %w", err)
	}
	a := resp.(*kmsg.AlterPartitionResponse)
	if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
		return nil, fmt.Errorf("changing in-sync replicas: %w", err)
	}
	type key struct {
		id mirror.TopicID
		p  int32
	}
	codes := map[key]int16{}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			codes[key{t.TopidID, p.Partition}] = p.ErrorCode
		}
	}
	out := make([]isrAnswer, len(qs))
	for i, q := range qs {
		code, ok := codes[key{q.topicID, q.partition}]
		if !ok {
			code = kerr.UnknownServerError.Code
		}
		out[i].code = code
	}
	return out, nil
}

func (r *requests) sendReassign(ctx context.Context, qs []reassignment) ([]error, error) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = int32(r.cfg.RequestTimeout / time.Millisecond)
	for topic, some := range grouped(qs, func(q reassignment) string { return q.tp.Topic }) {
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic = topic
		for _, q := range some {
			p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			p.Partition, p.Replicas = q.tp.Partition, q.replicas
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := r.client.Controller(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("reassigning replicas: %w", err)
	}
	a := resp.(*kmsg.AlterPartitionAssignmentsResponse)
	if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
		return nil, fmt.Errorf("reassigning replicas: %w%s", err, said(a.ErrorMessage))
	}
	answers := map[mirror.TopicPartition]error{}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				answers[mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = fmt.Errorf("reassigning replicas of %s-%d: %w%s", t.Topic, p.Partition, err, said(p.ErrorMessage))
			}
		}
	}
	out := make([]error, len(qs))
	for i, q := range qs {
		out[i] = answers[q.tp]
	}
	return out, nil
}

// election is a kind of election, by Kafka's number.
type election int8

const (
	preferredElection election = 0
	uncleanElect      election = 1
)

func (e election) String() string {
	return [...]string{"electing the preferred leader", "electing the longest copy"}[e]
}

// sendElect has leaders elected. One that leads already is no error.
func (r *requests) sendElect(ctx context.Context, kind election, qs []mirror.TopicPartition) ([]error, error) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = int8(kind), int32(r.cfg.RequestTimeout/time.Millisecond)
	for topic, some := range grouped(qs, func(q mirror.TopicPartition) string { return q.Topic }) {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic = topic
		for _, q := range some {
			t.Partitions = append(t.Partitions, q.Partition)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := r.client.Controller(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", kind, err)
	}
	a := resp.(*kmsg.ElectLeadersResponse)
	if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
		return nil, fmt.Errorf("%v: %w", kind, err)
	}
	answers := map[mirror.TopicPartition]error{}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.ElectionNotNeeded) {
				answers[mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = fmt.Errorf("%v of %s-%d: %w%s", kind, t.Topic, p.Partition, err, said(p.ErrorMessage))
			}
		}
	}
	out := make([]error, len(qs))
	for i, q := range qs {
		out[i] = answers[q]
	}
	return out, nil
}

// sendConfigs changes settings of topics, or only asks whether it could.
func (r *requests) sendConfigs(ctx context.Context, try bool, qs []configChange) ([]error, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = try
	for _, q := range qs {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, q.topic
		for name, value := range q.values {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value, c.Op = name, value, kmsg.IncrementalAlterConfigOpSet
			if value == nil {
				c.Op = kmsg.IncrementalAlterConfigOpDelete
			}
			res.Configs = append(res.Configs, c)
		}
		req.Resources = append(req.Resources, res)
	}
	resp, err := r.client.Controller(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("changing topic settings: %w", err)
	}
	answers := map[string]error{}
	for _, a := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
			answers[a.ResourceName] = fmt.Errorf("changing settings of topic %s: %w%s", a.ResourceName, err, said(a.ErrorMessage))
		}
	}
	out := make([]error, len(qs))
	for i, q := range qs {
		out[i] = answers[q.topic]
	}
	return out, nil
}

// sendShowUps sends one replica fetch to each leader, and returns the answers' errors.
func (r *requests) sendShowUps(ctx context.Context, epoch int64, qs []showUp) ([]error, error) {
	byLeader := map[int32][]int{}
	for i, q := range qs {
		byLeader[q.leader] = append(byLeader[q.leader], i)
	}
	out := make([]error, len(qs))
	var all sync.WaitGroup
	for leader, some := range byLeader {
		all.Go(func() {
			req := kmsg.NewPtrFetchRequest()
			req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = r.cfg.NodeID, r.cfg.NodeID, epoch
			req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, 1
			req.SessionEpoch = -1
			for id, ofTopic := range grouped(some, func(i int) mirror.TopicID { return qs[i].target.ID }) {
				t := kmsg.NewFetchRequestTopic()
				t.Topic, t.TopicID = qs[ofTopic[0]].target.Topic, id
				for _, i := range ofTopic {
					q := &qs[i]
					p := kmsg.NewFetchRequestTopicPartition()
					p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes = q.target.Partition, q.leaderEpoch, q.end, -1, q.start, 1
					t.Partitions = append(t.Partitions, p)
				}
				req.Topics = append(req.Topics, t)
			}
			resp, err := r.client.Broker(ctx, leader, req)
			if err == nil {
				err = kerr.ErrorForCode(resp.(*kmsg.FetchResponse).ErrorCode)
			}
			if err != nil {
				for _, i := range some {
					out[i] = err
				}
				return
			}
			codes := map[replicareader.Target]int16{}
			for _, t := range resp.(*kmsg.FetchResponse).Topics {
				for _, p := range t.Partitions {
					codes[replicareader.Target{ID: t.TopicID, Partition: p.Partition}] = p.ErrorCode
				}
			}
			for _, i := range some {
				out[i] = kerr.ErrorForCode(codes[replicareader.Target{ID: qs[i].target.ID, Partition: qs[i].target.Partition}])
			}
		})
	}
	all.Wait()
	return out, nil
}

// grouped are qs by a key, in the order in which the keys come first.
func grouped[K comparable, Q any](qs []Q, key func(Q) K) iter.Seq2[K, []Q] {
	of := map[K][]Q{}
	var order []K
	for _, q := range qs {
		k := key(q)
		if _, ok := of[k]; !ok {
			order = append(order, k)
		}
		of[k] = append(of[k], q)
	}
	return func(yield func(K, []Q) bool) {
		for _, k := range order {
			if !yield(k, of[k]) {
				return
			}
		}
	}
}

// said is a broker's own words behind an error.
func said(message *string) string {
	if message == nil || *message == "" {
		return ""
	}
	return " (" + *message + ")"
}

// createTopic creates a topic with these replicas for each partition.
func (r *requests) createTopic(ctx context.Context, name string, assignment [][]int32, configs map[string]string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(r.cfg.RequestTimeout / time.Millisecond)
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for p, replicas := range assignment {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), replicas
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	for name, value := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, kmsg.StringPtr(value)
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	resp, err := r.client.Controller(ctx, req)
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	for _, a := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
			return fmt.Errorf("creating topic %s: %w%s", name, err, said(a.ErrorMessage))
		}
	}
	return nil
}

// createPartitions grows a topic to count partitions; assignment is of the new ones, nil: the cluster chooses.
func (r *requests) createPartitions(ctx context.Context, name string, count int32, assignment [][]int32) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(r.cfg.RequestTimeout / time.Millisecond)
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, count
	for _, replicas := range assignment {
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = replicas
		t.Assignment = append(t.Assignment, a)
	}
	req.Topics = append(req.Topics, t)
	resp, err := r.client.Controller(ctx, req)
	if err != nil {
		return fmt.Errorf("adding partitions to topic %s: %w", name, err)
	}
	for _, a := range resp.(*kmsg.CreatePartitionsResponse).Topics {
		if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
			return fmt.Errorf("adding partitions to topic %s: %w%s", name, err, said(a.ErrorMessage))
		}
	}
	return nil
}

// setISR makes isr the in-sync replicas of a partition that we lead, and returns when the metadata shows it, or shows that a reassignment was completed by it.
func (d *Destination) setISR(ctx context.Context, tp mirror.TopicPartition, isr []int32, done func(clustermetadata.Partition) bool) error {
	return d.setISROf(ctx, tp, mirror.TopicID{}, isr, done)
}

// setISROf is setISR of a topic's partition, not of another topic's that got its name; without an id the one that has the name now.
func (d *Destination) setISROf(ctx context.Context, tp mirror.TopicPartition, id mirror.TopicID, isr []int32, done func(clustermetadata.Partition) bool) error {
	for {
		if err := d.inSession(); err != nil {
			return d.errorf(tp, "%w", err)
		}
		p, err := d.partitionOf(tp, id)
		if err != nil {
			return err
		}
		id = p.TopicID
		if done(p) {
			return nil
		}
		if p.Leader != d.cfg.NodeID {
			return d.errorf(tp, "its leader is %d and not this process (%d): %w", p.Leader, d.cfg.NodeID, mirror.ErrFenced)
		}
		names, err := d.inSync(tp, isr)
		if err != nil {
			return err
		}
		a, err := d.requests.alterPartition.do(ctx, isrChange{p.TopicID, tp.Partition, p.LeaderEpoch, p.PartitionEpoch, names})
		if err != nil {
			if ctx.Err() != nil || d.membership.registered() != nil || errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.StaleBrokerEpoch) {
				return d.errorf(tp, "in-sync replicas %v: %w", isr, err)
			}
			if perr := pause(ctx, 100); perr != nil {
				return d.errorf(tp, "in-sync replicas %v: %w", isr, errors.Join(err, perr))
			}
			if err := d.meta.caughtUp(ctx); err != nil { // it may have been done
				return err
			}
			continue
		}
		switch err := kerr.ErrorForCode(a.code); {
		case err == nil, errors.Is(err, kerr.NewLeaderElected):
			if err := d.meta.wait(ctx, fmt.Sprintf("the change of %s-%d's in-sync replicas", tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
				now, ok := im.Partition(tp.Topic, tp.Partition)
				return !ok || now.PartitionEpoch > p.PartitionEpoch || now.TopicID != id
			}); err != nil {
				return err
			}
			if now, err := d.partitionOf(tp, id); err == nil && !done(now) && slices.Equal(sorted(now.ISR), sorted(isr)) {
				return d.errorf(tp, "the in-sync replicas became %v, and still leader %d, replicas %v (adding %v, removing %v) is not what was to come of it", now.ISR, now.Leader, now.Replicas, now.Adding, now.Removing)
			}
		case errors.Is(err, kerr.InvalidUpdateVersion), errors.Is(err, kerr.NotController), errors.Is(err, kerr.FencedLeaderEpoch), errors.Is(err, kerr.OperationNotAttempted):
			// The partition has changed under us, or our image is late: look again.
			if perr := pause(ctx, 20); perr != nil {
				return d.errorf(tp, "in-sync replicas %v: %w", isr, errors.Join(err, perr))
			}
			if err := d.meta.caughtUp(ctx); err != nil {
				return err
			}
		default:
			return d.errorf(tp, "in-sync replicas %v: %w", isr, err)
		}
		if ctx.Err() != nil {
			return d.errorf(tp, "in-sync replicas %v: %w", isr, ctx.Err())
		}
	}
}

// inSync names replicas with the broker epochs of what they hold. A broker that has restarted since it had everything may have lost it, and until it has fetched again nobody names it
// in sync. Where there is nothing to lose, in an empty log and of another mirror process, no epoch is named.
func (d *Destination) inSync(tp mirror.TopicPartition, isr []int32) ([]inSync, error) {
	var names []inSync
	l := d.known(tp)
	empty := l == nil || l.log.Start() == l.log.End()
	for _, id := range isr {
		name := inSync{id, -1}
		if !empty && id != d.cfg.NodeID && !d.isMirror(id) {
			end, fs := l.log.End(), l.log.Followers()
			i := slices.IndexFunc(fs, func(f leaderlog.Follower) bool { return f.Broker == id && f.Has(end) })
			if i < 0 {
				return nil, d.errorf(tp, "in-sync replicas %v: broker %d has not everything up to %d any more: %w", isr, id, end, kerr.IneligibleReplica)
			}
			name.epoch = fs[i].BrokerEpoch
		}
		names = append(names, name)
	}
	return names, nil
}

// setReplicas makes replicas the target of a reassignment, and returns when the metadata shows that.
//
// A reassignment that adds nobody leaves those to be added whom an earlier one is still adding, even if it removes them again, and then waits for ever that they come in sync; one that
// removes nobody leaves those to be removed whom an earlier one removes (Kafka: ReplicationControlManager.changePartitionReassignment, 4.3.1). So the earlier one is cancelled first,
// unless that would delete copies of a log that nobody else has.
func (d *Destination) setReplicas(ctx context.Context, tp mirror.TopicPartition, replicas []int32) error {
	return d.setReplicasOf(ctx, tp, mirror.TopicID{}, replicas)
}

// setReplicasOf is setReplicas as setISROf is setISR. The request itself names no id.
func (d *Destination) setReplicasOf(ctx context.Context, tp mirror.TopicPartition, id mirror.TopicID, replicas []int32) error {
	for {
		if err := d.inSession(); err != nil {
			return d.errorf(tp, "%w", err)
		}
		p, err := d.partitionOf(tp, id)
		if err != nil {
			return err
		}
		id = p.TopicID
		unwanted := beyond(replicas, p.Replicas) == 0 && beyond(p.Adding, replicas) > 0 || beyond(p.Replicas, replicas) == 0 && len(p.Removing) > 0
		if !unwanted && slices.Equal(target(p), replicas) {
			return nil
		}
		change := reassignment{tp, replicas}
		if unwanted {
			change.replicas = nil
			if p.Leader == d.cfg.NodeID && slices.ContainsFunc(replicas, func(id int32) bool { return slices.Contains(p.Adding, id) }) {
				return d.errorf(tp, "brokers %v are being added, some of them do not come in sync, and a cancel would delete the copies of all of them: start those that are not alive", p.Adding)
			}
		}
		err = carryOut(ctx, &d.requests.reassign, change)
		if unwanted && errors.Is(err, kerr.NoReassignmentInProgress) { // it has ended meanwhile
			if err := d.meta.caughtUp(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := d.meta.wait(ctx, fmt.Sprintf("the reassignment of %s-%d to %v", tp.Topic, tp.Partition, replicas), func(im *clustermetadata.Image) bool {
			now, ok := im.Partition(tp.Topic, tp.Partition)
			return !ok || now.PartitionEpoch > p.PartitionEpoch || now.TopicID != id
		}); err != nil {
			return err
		}
	}
}

// beyond counts what is in ids and not in others.
func beyond(ids, others []int32) (n int) {
	for _, id := range ids {
		if !slices.Contains(others, id) {
			n++
		}
	}
	return n
}

// target are the replicas of a partition when what is under way has ended.
func target(p clustermetadata.Partition) []int32 {
	var t []int32
	for _, id := range p.Replicas {
		if !slices.Contains(p.Removing, id) {
			t = append(t, id)
		}
	}
	return t
}

func sorted(ids []int32) []int32 {
	s := slices.Clone(ids)
	slices.Sort(s)
	return s
}
