package kraft

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// A process that dies keeps its node id for the rest of its session: the controllers let nobody else in, because they cannot know that it is gone. One that goes by itself can say so.
//
// To the controllers it says so by a heartbeat that wants to be fenced: its partitions have no leader at once, and the next one who leads them has a greater leader epoch. Kafka 3.9 lets another
// incarnation in then. Since 4.0 it does not: what counts is when the last heartbeat came, fenced or not (Kafka: BrokerHeartbeatTracker.hasValidSession). An incarnation that is registered may
// register again at any time. So the process that goes leaves its incarnation to whoever comes next, in Config.Remember, as its last deed: when its listener and its connections are closed
// and its folder has forgotten it. One process takes it out, in one atomic step, and registers under it: there is still one process under an incarnation at a time.

// ErrResigned is what calls return that would begin something new in the cluster after Resign was called.
var ErrResigned = errors.New("kraft: this process is leaving its place to another one and begins nothing new")

// works are the creations, take-overs, hand-overs and the like that are under way. The zero value is ready.
type works struct {
	mu    sync.Mutex
	n     int
	ended bool
	idle  chan struct{} // closed when ended and nothing is under way; nil: nobody waits
}

// begin says that something begins, or why it must not. Every begin that returned nil is ended by one call of end.
func (w *works) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return ErrResigned
	}
	w.n++
	return nil
}

func (w *works) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n--; w.n == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// close lets nothing begin any more, and waits for what has begun.
func (w *works) close(ctx context.Context) error {
	w.mu.Lock()
	w.ended = true
	if w.n == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin is for everything that changes who leads what, in several steps: end is called when it is done.
func (d *Destination) begin() (end func(), err error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if err := d.works.begin(); err != nil {
		return nil, err
	}
	return d.works.end, nil
}

// Resign ends this process in good order, as for a rolling restart: another process under the same node id, from another folder or host, is let in at once and not after the session. From
// the call on no creation, hand-over, take-over or raising of leader epochs begins (ErrResigned); those under way are waited for, as long as ctx lasts. Then this process has itself fenced, if that
// makes no stock broker a leader, and closes: see Close. Close is done in any case, also with an error. The error says why another process has to wait until this one's session ends, as
// after a Close; nothing else is lost by it.
//
// End the mirrors before: what they append after the call may be copied again.
func (d *Destination) Resign(ctx context.Context) error {
	if d.ended() != nil {
		return nil
	}
	err := d.stepDown(ctx)
	first := d.halt()
	if !first { // somebody has closed it meanwhile, and with it what this one began
		return err
	}
	defer d.letGo()
	if err == nil {
		err = d.leaveIncarnation(ctx)
	}
	if err != nil {
		return fmt.Errorf("kraft: broker %d has ended, and another process under its node id is let in when its session ends (%s): %w", d.cfg.NodeID, d.cfg.SessionTimeout, err)
	}
	return nil
}

// stepDown has this process fenced for good.
func (d *Destination) stepDown(ctx context.Context) error {
	if err := d.usable(); err != nil {
		return err
	}
	if err := d.works.close(ctx); err != nil {
		return fmt.Errorf("a creation, take-over or hand-over that is under way has not ended: %w", err)
	}
	if err := d.barrier.exclude(ctx); err != nil {
		return fmt.Errorf("a creation, take-over or hand-over that is under way has not ended: %w", err)
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	if d.unsafeToFence() != nil { // what was left half done by somebody's failure, or changed by somebody else, is mended every few seconds: this time at once
		d.barrier.include()
		d.tidyOnce(ctx)
		unheld := d.holdLed(ctx)
		if err := d.barrier.exclude(ctx); err != nil {
			return errors.Join(d.unsafeToFence(), err)
		}
		if err := d.unsafeToFence(); err != nil {
			return errors.Join(err, unheld)
		}
	}
	return d.membership.fenceForGood(ctx)
}

// fenceForGood makes the controllers fence this process; no heartbeat follows, not even one that waits for its turn already.
func (m *membership) fenceForGood(ctx context.Context) error {
	m.mu.Lock()
	m.wanted, m.resigned = false, true
	m.mu.Unlock()
	fenced, err := m.heartbeat(ctx, true)
	if err == nil && !fenced {
		err = errors.New("the controller did not do it")
	}
	if err != nil {
		return fmt.Errorf("having itself fenced: %w", err)
	}
	return nil
}

// resignedType is the record type of what resigned processes leave: below what remembered keeps.
const resignedType = 61

// resignation is the incarnation that a process has left to the next one under its node id.
type resignation struct {
	Version     int      `json:"version"`
	ClusterID   string   `json:"cluster_id"`
	Incarnation [16]byte `json:"incarnation"`
	Epoch       int64    `json:"broker_epoch"` // of its registration
}

func resignedKey(node int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, resignedType), uint32(node))
}

// leaveIncarnation gives this process's incarnation away. Nothing of it may live any more but the lock on its folder.
func (d *Destination) leaveIncarnation(ctx context.Context) error {
	m := d.membership
	value, err := json.Marshal(resignation{Version: 1, ClusterID: d.cluster, Incarnation: m.incarnation, Epoch: m.brokerEpoch()})
	if err != nil {
		return err
	}
	if err := d.identity.forget(); err != nil { // before: a process that comes again in this folder must not use it beside the one that takes it
		return err
	}
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	err = d.cfg.Remember.Update(bounded, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: resignedKey(d.cfg.NodeID), Value: value}}, nil
	})
	if errors.Is(err, keyedlog.ErrNothingWritten) {
		err = errors.Join(err, d.identity.keep(m.incarnation, d.cfg.NodeID, d.cluster))
	}
	if err != nil {
		return fmt.Errorf("leaving its place to another process: %w", err)
	}
	return nil
}

// resigned is what the process of this registration has left, if it has. take takes it out, so that nobody else has it.
func (d *Destination) resigned(ctx context.Context, b clustermetadata.Broker, take bool) (r resignation, is bool, err error) {
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	key := resignedKey(d.cfg.NodeID)
	look := func(v keyedlog.View) error {
		r, is = resignation{}, false
		rec, found := v.Get(key)
		if !found {
			return nil
		}
		if err := json.Unmarshal(rec.Value, &r); err != nil || r.Version != 1 {
			return fmt.Errorf("what a process under node id %d has left cannot be read (version %d, %v)", d.cfg.NodeID, r.Version, err)
		}
		is = r.ClusterID == d.cluster && r.Epoch == b.Epoch && r.Incarnation == b.Incarnation
		return nil
	}
	if err = d.cfg.Remember.Read(bounded, look); err != nil || !is || !take {
		return r, is, err
	}
	err = d.cfg.Remember.Update(bounded, func(v keyedlog.View) ([]keyedlog.Change, error) {
		if err := look(v); err != nil || !is {
			return nil, err
		}
		return []keyedlog.Change{{Key: key}}, nil
	})
	return r, is && err == nil, err // not known whether: then nobody has it
}

// forgetResignation takes out what a process under this node id has left to a successor under a broker epoch below this one: nobody comes by it any more.
func (d *Destination) forgetResignation(ctx context.Context, below int64) error {
	bounded, stop := d.cfg.bounded(ctx)
	defer stop()
	key := resignedKey(d.cfg.NodeID)
	old := func(v keyedlog.View) bool {
		rec, found := v.Get(key)
		var r resignation
		if found && json.Unmarshal(rec.Value, &r) != nil {
			return below == math.MaxInt64
		}
		return found && r.Epoch < below
	}
	is := false
	err := d.cfg.Remember.Read(bounded, func(v keyedlog.View) error {
		is = old(v)
		return nil
	})
	if err == nil && is {
		err = d.cfg.Remember.Update(bounded, func(v keyedlog.View) ([]keyedlog.Change, error) {
			if !old(v) {
				return nil, nil
			}
			return []keyedlog.Change{{Key: key}}, nil
		})
	}
	if err != nil {
		return fmt.Errorf("kraft: taking away what a process under node id %d has left to its successor: %w", d.cfg.NodeID, err)
	}
	return nil
}

// forgetEarlierResignation takes out one that nobody took: the process came in otherwise, after the session. It would lie there for ever.
func (d *Destination) forgetEarlierResignation(ctx context.Context) {
	if err := d.forgetResignation(ctx, d.membership.brokerEpoch()); err != nil && ctx.Err() == nil {
		d.cfg.Logger.Warn("kraft: it stays until the next process begins, and does no harm", "error", err)
	}
}
