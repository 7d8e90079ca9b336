package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
)

// ErrUnregistered: the controllers do not know this registration any more. Somebody took it away, or another process came under the same node id. Nothing registers it again by itself.
var ErrUnregistered = errors.New("kraft: this process's registration is gone")

// ErrNodeIDTaken: another process lives under this node id.
var ErrNodeIDTaken = errors.New("kraft: another broker lives under this node id")

// membership is this process's registration as a broker: it registers once, keeps the session alive by heartbeats, and fences itself when asked, to raise leader epochs.
type membership struct {
	cfg    *Config
	client *kraftclient.Client // of its own: no other request stands before a heartbeat
	meta   *metadata
	notice func(Event)

	cluster     string
	incarnation [16]byte
	dir         [16]byte
	host        string
	port        uint16
	listener    string
	protocol    int16
	clients     *kmsg.BrokerRegistrationRequestListener // nil: none, mirrored topics are dark

	lease  atomic.Pointer[time.Time] // when the last heartbeat that was answered was sent; nil: never registered
	onLost func()                    // called once, when gone is set

	beat    turn // one heartbeat at a time, so answers are in order
	lifting turn // see lift

	mu       sync.Mutex
	epoch    int64 // broker epoch
	fenced   bool
	since    time.Time // fenced
	leaving  bool
	wanted   bool          // that the controllers do not fence us
	resigned bool          // for good: see fenceForGood
	alive    time.Time     // when a heartbeat was last answered
	gone     error         // the registration is lost
	lost     chan struct{} // closed with gone
	seen     bool          // the metadata has shown this registration
	cordon   bool          // the version knows cordoned log dirs
	uncordon int           // how many want it lifted now
	lifted   bool          // the controllers know that it is, and no heartbeat that says otherwise is under way
}

func newMembership(cfg *Config, client *kraftclient.Client, meta *metadata, notice func(Event)) *membership {
	return &membership{cfg: cfg, client: client, meta: meta, notice: notice, lost: make(chan struct{}), epoch: -1, beat: newTurn(), lifting: newTurn()}
}

// highestTested are the feature levels that this package was tried with (Apache Kafka 4.4).
var highestTested = map[string]int16{
	"metadata.version": 33, "group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1, "share.version": 2, "streams.version": 1, "kraft.version": 1,
}

// features is what is registered: from what is finalized to the highest level that was tried, so that the cluster can be upgraded while this process is in it. That holds for features
// too that the cluster does not use yet, as one that was upgraded from an older version: Kafka takes a broker that does not name a feature for one that knows only level 0 of it, and
// refuses to finalize any. A level cannot be lowered while this process is in the cluster: it leaves first.
func (m *membership) features(ctx context.Context) ([]kmsg.BrokerRegistrationRequestFeature, error) {
	resp, err := m.client.Controller(ctx, versionsRequest())
	if err != nil {
		return nil, fmt.Errorf("asking the controller for the cluster's features: %w", err)
	}
	levels := map[string]int16{}
	for name := range highestTested {
		levels[name] = 0
	}
	for _, f := range resp.(*kmsg.ApiVersionsResponse).FinalizedFeatures {
		levels[f.Name] = f.MaxVersionLevel
	}
	m.meta.look(func(im *clustermetadata.Image) { maps.Copy(levels, im.Features()) })
	var fs []kmsg.BrokerRegistrationRequestFeature
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		level := levels[name]
		highest, known := highestTested[name]
		if (!known || level > highest) && !m.cfg.UntestedVersion {
			return nil, fmt.Errorf("kraft: the cluster's feature %s is at level %d, this version was tried up to %d; use a newer version of this program, or set UntestedVersion after you have tried it", name, level, highest)
		}
		f := kmsg.NewBrokerRegistrationRequestFeature()
		f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = name, level, max(level, highest)
		fs = append(fs, f)
	}
	return fs, nil
}

// versionsRequest asks a node for its versions. Without a name of the client's software the answer has neither versions nor features (KIP-511).
func versionsRequest() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "clustermirror", "1"
	return req
}

// register asks the controllers to let this process in. previous is the broker epoch of the last registration under this node id, −1 for none: with the right one the controllers take
// its end for a clean one, and it stays the leader that may be elected (KIP-966).
func (m *membership) register(ctx context.Context, previous int64) error {
	features, err := m.features(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.Features = m.cfg.NodeID, m.cluster, m.incarnation, features
	req.LogDirs, req.PreviousBrokerEpoch = [][16]byte{m.dir}, previous
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port, l.SecurityProtocol = m.listener, m.host, m.port, m.protocol
	req.Listeners = append(req.Listeners, l)
	if m.clients != nil {
		req.Listeners = append(req.Listeners, *m.clients)
	}
	sent := time.Now()
	resp, err := m.client.Controller(ctx, req)
	if err != nil {
		return fmt.Errorf("registering as broker %d: %w", m.cfg.NodeID, err)
	}
	r := resp.(*kmsg.BrokerRegistrationResponse)
	switch err := kerr.ErrorForCode(r.ErrorCode); {
	case errors.Is(err, kerr.DuplicateBrokerRegistration):
		return fmt.Errorf("registering as broker %d: %w; it is still in its session", m.cfg.NodeID, ErrNodeIDTaken)
	case err != nil:
		return fmt.Errorf("registering as broker %d: %w%s", m.cfg.NodeID, err, registrationAdvice(r.ErrorCode))
	}
	m.mu.Lock()
	m.epoch, m.alive, m.wanted = r.BrokerEpoch, sent, true
	m.setFenced(true)
	m.mu.Unlock()
	m.lease.Store(&sent)
	return nil
}

func registrationAdvice(code int16) string {
	switch code {
	case kerr.ClusterAuthorizationFailed.Code:
		return "; its principal needs CLUSTER_ACTION on Cluster:kafka-cluster"
	case kerr.InconsistentClusterID.Code:
		return "; the controllers are of another cluster than the brokers"
	case kerr.UnsupportedVersion.Code:
		return "; the cluster has a feature level that this version does not know"
	}
	return ""
}

// heartbeat sends one heartbeat and notes the answer.
func (m *membership) heartbeat(ctx context.Context, wantFence bool) (fenced bool, err error) {
	if err := m.beat.take(ctx); err != nil {
		return true, fmt.Errorf("heartbeat of broker %d: %w", m.cfg.NodeID, err)
	}
	defer m.beat.release()
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	m.mu.Lock()
	gone := m.gone
	if m.resigned && !wantFence && gone == nil { // it was asked for before, and has waited for its turn: it would undo the resignation
		gone = ErrResigned
	}
	req.BrokerID, req.BrokerEpoch, req.WantFence = m.cfg.NodeID, m.epoch, wantFence
	cordoned := m.cordon && m.uncordon == 0
	if m.cordon {
		req.CordonedLogDirs = [][16]byte{} // none; null would change nothing
	}
	if cordoned {
		req.CordonedLogDirs = [][16]byte{m.dir}
		m.lifted = false
	}
	m.mu.Unlock()
	if gone != nil {
		return true, gone
	}
	m.meta.look(func(im *clustermetadata.Image) { req.CurrentMetadataOffset = max(im.Next()-1, 0) })
	bounded, stop := m.cfg.bounded(ctx)
	defer stop()
	sent := time.Now()
	resp, err := m.client.Controller(bounded, req)
	if err != nil {
		return true, fmt.Errorf("heartbeat of broker %d: %w", m.cfg.NodeID, err)
	}
	r := resp.(*kmsg.BrokerHeartbeatResponse)
	switch err := kerr.ErrorForCode(r.ErrorCode); {
	case errors.Is(err, kerr.StaleBrokerEpoch), errors.Is(err, kerr.BrokerIDNotRegistered):
		err := m.unregistered(err)
		m.lose(Unregistered, err)
		return true, err
	case err != nil:
		return true, fmt.Errorf("heartbeat of broker %d: %w", m.cfg.NodeID, err)
	}
	m.mu.Lock()
	m.alive, m.lifted = sent, !cordoned
	m.setFenced(r.IsFenced)
	m.mu.Unlock()
	m.lease.Store(&sent)
	return r.IsFenced, nil
}

// lose ends the membership for good, as the registration is lost or can be known of no more.
func (m *membership) lose(kind EventKind, err error) {
	m.mu.Lock()
	first, leaving := m.gone == nil, m.leaving
	if first {
		m.gone = err
		close(m.lost)
	}
	m.mu.Unlock()
	if first && m.onLost != nil {
		m.onLost()
	}
	if first && !leaving {
		var led []string // all of them: a person has to see what stands still
		m.meta.look(func(im *clustermetadata.Image) {
			for _, p := range im.PartitionsOf(m.cfg.NodeID) {
				led = append(led, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
			}
		})
		m.notice(Event{Kind: kind, Text: fmt.Sprintf("%v. It led %d partitions, of which nothing is lost: %s", err, len(led), strings.Join(led, ", ")), Err: err})
	}
}

// run keeps the session alive until ctx ends or the registration is lost.
func (m *membership) run(ctx context.Context) {
	for {
		m.mu.Lock()
		wait, gone, wanted := m.cfg.HeartbeatInterval, m.gone, m.wanted
		if m.fenced {
			wait = min(wait, 200*time.Millisecond)
		}
		m.mu.Unlock()
		if gone != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-m.lost:
			return
		case <-time.After(wait):
		}
		if !wanted {
			continue // whoever fences sends the heartbeats
		}
		was := m.isFenced()
		fenced, err := m.heartbeat(ctx, false)
		switch {
		case err != nil && ctx.Err() == nil && m.registered() == nil:
			m.mu.Lock()
			silent := time.Since(m.alive) > m.cfg.SessionTimeout && !m.fenced
			if silent {
				m.setFenced(true)
			}
			m.mu.Unlock()
			if silent {
				m.notice(Event{Kind: Fenced, Err: err, Text: fmt.Sprintf("no controller has answered for %s: by now they take broker %d for dead, and its partitions have no leader. It goes on trying", m.cfg.SessionTimeout, m.cfg.NodeID)})
			}
		case err == nil && was && !fenced:
			m.notice(Event{Kind: Joined, Text: fmt.Sprintf("broker %d of cluster %s", m.cfg.NodeID, m.cluster)})
		}
	}
}

// awaitActive waits until the controllers do not fence this process.
func (m *membership) awaitActive(ctx context.Context) error {
	for {
		fenced, err := m.heartbeat(ctx, false)
		if err == nil && !fenced {
			return nil
		}
		if gone := m.registered(); gone != nil {
			return gone
		}
		if perr := pause(ctx, 30); perr != nil {
			return fmt.Errorf("broker %d stays fenced: %w", m.cfg.NodeID, errors.Join(err, perr))
		}
	}
}

// fenceOnce makes the controllers fence this process and let it in again. Every partition that it leads alone has then a leader epoch that is greater by two.
func (m *membership) fenceOnce(ctx context.Context) error {
	m.mu.Lock()
	m.wanted = false
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.wanted = true
		m.mu.Unlock()
	}()
	fenced, err := m.heartbeat(ctx, true)
	if err != nil {
		return fmt.Errorf("fencing broker %d to raise leader epochs: %w", m.cfg.NodeID, err)
	}
	if !fenced {
		return fmt.Errorf("fencing broker %d to raise leader epochs: the controller did not do it", m.cfg.NodeID)
	}
	return m.awaitActive(ctx)
}

// setFenced notes whether the controllers let us lead. Under mu.
func (m *membership) setFenced(is bool) {
	if is && !m.fenced {
		m.since = time.Now()
	}
	m.fenced = is
}

func (m *membership) isFenced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fenced
}

// registered is why the registration is lost, nil if it is not.
func (m *membership) registered() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

func (m *membership) brokerEpoch() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// uncordoned runs f while this process's log dir is not cordoned: Kafka 4.4 gives a cordoned one no replica, not even by a manual assignment. Many at once need two heartbeats.
func (m *membership) uncordoned(ctx context.Context, f func() error) error {
	if !m.cordon {
		return f()
	}
	m.mu.Lock()
	m.uncordon++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.uncordon--
		last := m.uncordon == 0
		m.mu.Unlock()
		if last {
			// The next heartbeat says so too; this one makes the moment short in which Kafka might place a replica here.
			_, _ = m.heartbeat(ctx, false)
		}
	}()
	if err := m.lift(ctx); err != nil {
		return err
	}
	return f()
}

// lift returns when the controllers know that the log dir is not cordoned. Whoever wants that has said so in uncordon.
func (m *membership) lift(ctx context.Context) error {
	if err := m.lifting.take(ctx); err != nil {
		return err
	}
	defer m.lifting.release()
	m.mu.Lock()
	lifted := m.lifted
	m.mu.Unlock()
	if lifted {
		return nil
	}
	_, err := m.heartbeat(ctx, false)
	return err
}
