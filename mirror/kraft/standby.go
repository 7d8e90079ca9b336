package kraft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// Any number of processes may be started under one node id: the controllers let one in, and the others wait in Join. They follow the metadata meanwhile, and ask the controllers, which log each
// refusal as an error, only when that shows that the living one's registration is fenced for longer than the raising of leader epochs takes. When the turn of one has come after weeks, versions,
// rights, certificates and the way to the brokers are looked at again before it registers. Where it was taken away, by an operator or by a process that has left the cluster, nobody
// comes in by waiting: that would undo the kill switch.

// fencedFor is how long a registration is seen fenced before its process is taken for gone. Raising leader epochs fences for a tenth of a second, again and again.
const fencedFor = time.Second

// lookAfter is how old Preflight's look may be when the turn of a process that stood by has come.
const lookAfter = 10 * time.Minute

// askAnyway is after what time the controllers are asked although nothing has changed.
const askAnyway = time.Hour

// register comes in under the identity of this folder, or of a process that has resigned, or waits until the process that lives under this node id has gone. It returns the registration
// that it found.
func (d *Destination) register(ctx context.Context) (before clustermetadata.Broker, err error) {
	m := d.membership
	m.cluster, m.dir = d.cluster, directoryID(d.cluster, d.cfg.NodeID)
	if m.incarnation, _, err = d.identity.incarnation(d.cfg.NodeID, d.cluster); err != nil {
		return before, err
	}
	waiting, looked := false, time.Now()
	for {
		before = d.registration()
		if waiting && before.Epoch < 0 {
			err := fmt.Errorf("%w (broker %d, while this process stood by): somebody unregistered it, or its process has left the cluster. Nobody comes in its place by itself: find out who it was, then start this process again",
				ErrUnregistered, d.cfg.NodeID)
			d.notice(Event{Kind: Unregistered, Err: err, Text: err.Error()})
			return before, err
		}
		if waiting && time.Since(looked) >= d.lookAfter {
			if err := d.lookAgain(ctx); err != nil {
				return before, err
			}
			looked = time.Now()
		}
		if err := d.succeed(ctx, before); err != nil {
			return before, err
		}
		bounded, stop := d.cfg.bounded(ctx)
		err := d.askCordons(bounded) // the controllers may have been upgraded since the last time
		if err == nil {
			err = m.register(bounded, before.Epoch)
		}
		late := bounded.Err() != nil
		stop()
		if err == nil {
			break
		}
		switch taken := errors.Is(err, ErrNodeIDTaken); {
		case ctx.Err() != nil, !taken && !(waiting && late): // who waits outlives a time without controllers
			return before, err
		case taken && !waiting:
			waiting = true
			d.notice(Event{Kind: StandingBy, Err: ErrNodeIDTaken, Text: fmt.Sprintf("another process lives under node id %d (%s): this one waits until it has gone, and goes on then", d.cfg.NodeID, listenerText(before))})
		}
		if werr := d.standBy(ctx, before); werr != nil {
			return before, errors.Join(err, werr)
		}
	}
	if waiting {
		d.notice(Event{Kind: StandingBy, Text: fmt.Sprintf("the other process under node id %d has gone: this one goes on in its place", d.cfg.NodeID)})
	}
	return before, m.awaitActive(ctx)
}

// lookAgain looks at what Join looked at before this process stood by. What forbids to join is an error, what a person should know is told.
func (d *Destination) lookAgain(ctx context.Context) error {
	look := &preflight{d: d, advertised: hostPort{d.membership.host, d.membership.port}, patient: true}
	look.look(ctx)
	bounded, stop := look.bounded(ctx)
	defer stop()
	look.certificate(bounded)
	if cl := d.cfg.Clients; cl != nil && cl.TLS != nil {
		if leaf, err := ownCertificate(cl.TLS, d.membership.clients.Host); err != nil {
			look.addf(AboutClientListener, Blocks, "look at the certificate and key of Clients.TLS", "there is no certificate to show to clients: %v", err)
		} else {
			look.validNow(AboutClientListener, leaf)
		}
	}
	for _, f := range look.report.Of(Warns) {
		if f.Kind != AboutNodeID {
			d.notice(Event{Kind: Trouble, Text: f.Error()})
		}
	}
	return cmp.Or(look.report.Err(), ctx.Err())
}

// registration is the one under this node id as the metadata shows it, with broker epoch −1 for none.
func (d *Destination) registration() clustermetadata.Broker {
	found := clustermetadata.Broker{ID: -1, Epoch: -1}
	d.meta.look(func(im *clustermetadata.Image) {
		if b, ok := im.Broker(d.cfg.NodeID); ok {
			found = b
		}
	})
	return found
}

// succeed takes the incarnation of a process that has resigned, if the registration is one's. Where that cannot be found out its session ends by itself.
func (d *Destination) succeed(ctx context.Context, b clustermetadata.Broker) error {
	m := d.membership
	if !b.Fenced || b.Incarnation == m.incarnation {
		return nil
	}
	r, is, err := d.resigned(ctx, b, true)
	if err != nil {
		d.cfg.Logger.Warn("kraft: whether the process that was here has resigned is not known: its session has to end", "error", err)
	}
	if !is {
		return ctx.Err()
	}
	if err := d.identity.keep(r.Incarnation, d.cfg.NodeID, d.cluster); err != nil {
		return err
	}
	m.incarnation = r.Incarnation
	return nil
}

// standBy returns when another try to register may be of use.
func (d *Destination) standBy(ctx context.Context, refused clustermetadata.Broker) error {
	changed := func(im *clustermetadata.Image) bool {
		b, ok := im.Broker(d.cfg.NodeID)
		return !ok || b.Epoch != refused.Epoch
	}
	quiet, stop := context.WithTimeout(ctx, askAnyway) // then the controllers are asked all the same
	defer stop()
	for {
		err := d.meta.wait(quiet, "the other process to go", func(im *clustermetadata.Image) bool {
			b, _ := im.Broker(d.cfg.NodeID)
			return changed(im) || b.Fenced
		})
		if err != nil && quiet.Err() == nil {
			return err
		}
		if quiet.Err() != nil {
			return ctx.Err()
		}
		for since := time.Now(); ; {
			b := d.registration()
			if b.Epoch != refused.Epoch || b.Fenced && time.Since(since) > fencedFor {
				return pause(ctx, 200)
			}
			if !b.Fenced {
				break
			}
			if _, is, _ := d.resigned(ctx, b, false); is {
				return ctx.Err()
			}
			if err := pause(ctx, 50); err != nil {
				return err
			}
		}
	}
}

// Standing is how a Destination stands with its cluster, for health checks.
type Standing struct {
	NodeID    int32
	ClusterID string
	// Registered: the controllers have let this process in at least once, and its registration was not taken away.
	Registered bool
	// Fenced is since when the controllers do not let it lead, or have not answered for a session; the zero time: they do. Raising leader epochs fences for a tenth of a second at a time.
	Fenced time.Time
	// Lost is why it leads nothing any more, for good: ErrUnregistered, or that the metadata cannot be followed; nil while it may.
	Lost error
	// Leads counts the partitions that it leads; Unknown those of them whose content is not known yet, so that nobody is served.
	Leads, Unknown int
	// Absent are live brokers that are to follow some of these partitions, and have asked for nothing, or never for one of them, for FollowerSilence.
	Absent []int32
}

// FollowerSilence is after what time a live broker that follows nothing is named in Standing.Absent: brokers ask at least every half second, and try again after one.
const FollowerSilence = 15 * time.Second

// Err is why this process does not lead, or is not followed, as it should; nil: it is well.
func (s Standing) Err() error {
	switch {
	case s.Lost != nil:
		return s.Lost
	case !s.Registered:
		return fmt.Errorf("kraft: broker %d is not let in yet", s.NodeID)
	case !s.Fenced.IsZero():
		return fmt.Errorf("kraft: broker %d is fenced since %s: its partitions have no leader; the controllers do not answer, or are just letting it in", s.NodeID, s.Fenced.Format(time.RFC3339))
	case s.Unknown > 0:
		return fmt.Errorf("kraft: of %d of the %d partitions that broker %d leads it is not known yet what they hold: their copies are being asked", s.Unknown, s.Leads, s.NodeID)
	case len(s.Absent) > 0:
		return fmt.Errorf("kraft: brokers %v are alive and have not come to copy for %s: look at their logs (ReplicaFetcherThread), and whether they reach broker %d", s.Absent, FollowerSilence, s.NodeID)
	}
	return nil
}

// Standing says how this process stands with its cluster, from what is known here: nothing is asked. After Close it is as it was.
func (d *Destination) Standing() Standing {
	s := Standing{NodeID: d.cfg.NodeID, ClusterID: d.cluster}
	s.Registered, s.Fenced, s.Lost = d.membership.standing()
	if s.Lost != nil {
		return s
	}
	now, absent := time.Now(), map[int32]bool{}
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			if p.Leader == d.cfg.NodeID {
				s.Leads++
			}
		}
	})
	known := 0
	for _, l := range d.all() {
		l.mu.Lock()
		ours := l.ours
		l.mu.Unlock()
		if !ours || l.log.Held() {
			continue
		}
		known++
		for _, f := range l.log.Followers() {
			// A partition that nothing happens to is not named again in the broker's fetch session: whether the broker comes is seen by its fetches as a whole.
			came := f.Seen
			if server := d.serving(); !f.Seen.IsZero() && server != nil {
				came = later(came, server.LastFetch(f.Broker))
			}
			if f.Live && now.Sub(later(came, f.Since)) > FollowerSilence {
				absent[f.Broker] = true
			}
		}
	}
	s.Unknown = max(0, s.Leads-known)
	s.Absent = slices.Sorted(maps.Keys(absent))
	return s
}

// serving is the server that brokers fetch from, nil before there is one.
func (d *Destination) serving() *replicaserver.Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// standing is the part of Standing that the registration tells.
func (m *membership) standing() (registered bool, fenced time.Time, lost error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced {
		fenced = m.since
	}
	return m.epoch >= 0 && m.gone == nil, fenced, m.gone
}
