package kraft

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// That this node id leads a partition does not say that this process does: after its session another one may have come under the id. The controllers refuse heartbeats and
// AlterPartition under an old broker epoch, and followers refuse an old leader epoch; nothing else is refused. So a process whose last answered heartbeat is older than a session, as
// after a long pause, serves nobody and changes nothing until the next one is answered, and one that learns of another registration gives up for good.

// inSession is why this process may change nothing of the cluster now, nil if it may. One that never registered (Force, Preflight) may.
func (m *membership) inSession() error {
	if err := m.registered(); err != nil {
		return err
	}
	if m.expired() {
		return fmt.Errorf("kraft: no heartbeat of broker %d was answered for %s: another process may have its partitions by now; it goes on with the next one that is answered", m.cfg.NodeID, m.cfg.SessionTimeout)
	}
	return nil
}

// expired says that the last heartbeat that was answered was sent longer ago than a session. The monotonic clock may stand still while the machine sleeps, the other one may be set back.
func (m *membership) expired() bool {
	sent := m.lease.Load()
	if sent == nil {
		return false
	}
	now := time.Now()
	return now.Sub(*sent) > m.cfg.SessionTimeout || now.Round(0).Sub(sent.Round(0)) > m.cfg.SessionTimeout
}

// shown takes what the metadata says of this node id, before anything that comes after it. The image may be older than the answer to our registration.
func (m *membership) shown(b clustermetadata.Broker, known bool) {
	m.mu.Lock()
	if m.epoch < 0 {
		m.mu.Unlock()
		return
	}
	ours := known && b.Epoch == m.epoch && b.Incarnation == m.incarnation
	other := !ours && (m.seen || known && b.Epoch > m.epoch)
	m.seen = m.seen || ours
	m.mu.Unlock()
	switch {
	case other && known:
		m.lose(Unregistered, m.unregistered(fmt.Errorf("the metadata shows broker epoch %d", b.Epoch)))
	case other:
		m.lose(Unregistered, m.unregistered(kerr.BrokerIDNotRegistered))
	}
}

func (m *membership) unregistered(cause error) error {
	return fmt.Errorf("%w (broker %d, %v): somebody unregistered it, as an operator does with a broker id that is not in its node pools, or another process came under this id. It leads nothing any more. "+
		"Find out who it was, then start this process again", ErrUnregistered, m.cfg.NodeID, cause)
}

// lookAtRegistration has the membership see what the image shows of it.
func (d *Destination) lookAtRegistration() {
	var b clustermetadata.Broker
	var known bool
	d.meta.look(func(im *clustermetadata.Image) { b, known = im.Broker(d.cfg.NodeID) })
	d.membership.shown(b, known)
}

// giveUp ends everything when the registration is lost: it leads nothing, serves nobody, and asks for nothing more.
func (d *Destination) giveUp() {
	d.stop()
	for _, l := range d.all() {
		l.lose()
	}
	d.meta.die(d.membership.registered()) // whoever waits for the metadata hears of it
	d.mu.Lock()
	server, clients := d.server, d.clients
	d.mu.Unlock()
	if clients != nil {
		go clients.Close() // Close waits for it too
	}
	if server != nil {
		go func() { // Close waits for it too
			ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
			defer stop()
			_ = server.Close(ctx)
		}()
	}
}

// inSession is why this process may do nothing in the cluster now, nil if it may.
func (d *Destination) inSession() error {
	if err := d.usable(); err != nil {
		return err
	}
	return d.membership.inSession()
}

// changes says that a request may change the cluster. It goes by the key: some are wrapped.
func changes(req kmsg.Request) bool {
	switch kmsg.Key(req.Key()) {
	case kmsg.AlterPartition, kmsg.AllocateProducerIDs, kmsg.AlterPartitionAssignments, kmsg.ElectLeaders, kmsg.IncrementalAlterConfigs, kmsg.CreateTopics, kmsg.CreatePartitions,
		kmsg.UnregisterBroker, kmsg.CreateACLs, kmsg.DeleteACLs, kmsg.OffsetCommit, kmsg.AlterShareGroupOffsets:
		return true
	}
	return false
}

// guarded stands around every request: what changes the cluster is not sent outside the session, and an answer that calls our broker epoch old ends it all.
func (d *Destination) guarded(ctx context.Context, req kmsg.Request, send func() (kmsg.Response, error)) (resp kmsg.Response, err error) {
	epoch := int64(-1)
	switch r := req.(type) {
	case *kmsg.AlterPartitionRequest:
		epoch = r.BrokerEpoch
	case *kmsg.AllocateProducerIDsRequest:
		epoch = r.BrokerEpoch
	}
	if changes(req) {
		if err := d.membership.inSession(); err != nil {
			return nil, err
		}
	}
	if d.cfg.intercept != nil {
		resp, err = d.cfg.intercept(ctx, req, send)
	} else {
		resp, err = send()
	}
	if err != nil || epoch < 0 || epoch != d.membership.brokerEpoch() {
		return resp, err
	}
	code := int16(0)
	switch r := resp.(type) {
	case *kmsg.AlterPartitionResponse:
		code = r.ErrorCode
	case *kmsg.AllocateProducerIDsResponse:
		code = r.ErrorCode
	}
	if code == kerr.StaleBrokerEpoch.Code {
		d.membership.lose(Unregistered, d.membership.unregistered(kerr.StaleBrokerEpoch))
	}
	return resp, err
}

// served is a Log's partition as followers get it: outside the session they are told to ask again, as while the log is held.
type served struct {
	*leaderlog.Log
	membership *membership
}

func (s *served) Fetch(q replicaserver.FetchQuery) replicaserver.FetchAnswer {
	if s.membership.expired() {
		return replicaserver.FetchAnswer{Code: kerr.NotLeaderForPartition.Code, LeaderEpoch: s.LeaderEpoch(), HighWatermark: -1, LastStableOffset: -1, LogStart: -1}
	}
	return s.Log.Fetch(q)
}

func (s *served) Offsets(leaderEpoch int32) replicaserver.OffsetsAnswer {
	if s.membership.expired() {
		return replicaserver.OffsetsAnswer{Code: kerr.NotLeaderForPartition.Code, Start: -1, End: -1, StartEpoch: -1, EndEpoch: -1}
	}
	return s.Log.Offsets(leaderEpoch)
}

func (s *served) EndOffsetFor(leaderEpoch, epoch int32) (foundEpoch int32, endOffset int64, code int16) {
	if s.membership.expired() {
		return -1, -1, kerr.NotLeaderForPartition.Code
	}
	return s.Log.EndOffsetFor(leaderEpoch, epoch)
}
