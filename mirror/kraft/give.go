package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/mirror"
)

// errLacking: some copy does not have everything yet.
var errLacking = errors.New("start the brokers that are missing, or wait")

// Give moves a partition that this process leads to another mirror process, which has to be alive. That one learns from the stock brokers' copies what it
// holds, as after a restart, and its partition's mirror goes on there. Nothing may be appended meanwhile: the caller has ended the mirroring of the partition here.
//
// The peer is added in front of the replicas, which completes only when all of them are in sync. They are: the call waits until every copy has everything. Between that and the
// moment in which the peer has shrunk the in-sync replicas to itself, the death of both processes would make a stock broker the leader, with every batch, before the topic is stopped.
func (d *Destination) Give(ctx context.Context, tp mirror.TopicPartition, peer int32) error {
	end, err := d.begin()
	if err != nil {
		return err
	}
	defer end()
	if !d.isMirror(peer) {
		return d.errorf(tp, "broker %d is no other mirror process of this cluster: none has registered under that id, and Config.Peers %v does not name it", peer, d.cfg.Peers)
	}
	alive := false
	d.meta.look(func(im *clustermetadata.Image) {
		b, ok := im.Broker(peer)
		alive = ok && !b.Fenced
	})
	if !alive {
		return d.errorf(tp, "mirror process %d is not alive: start it, then give it the partition", peer)
	}
	l := d.known(tp)
	if l == nil {
		return d.errorf(tp, "it is not led here: %w", mirror.ErrFenced)
	}
	if err := l.work.take(ctx); err != nil {
		return d.errorf(tp, "something else is under way with it: %w", err)
	}
	defer l.work.release()
	if err := l.mine("give away"); err != nil {
		return err
	}
	p, err := d.partition(tp)
	if err != nil {
		return err
	}
	stock := without(without(target(p), d.cfg.NodeID), peer)
	// Dead copies are not waited for: with them the reassignment would never complete.
	waitErr := l.awaitLive(ctx)
	if ready, late := l.caughtUp(stock); len(ready) < len(stock) {
		return d.errorf(tp, "giving it to %d: every copy has to have everything up to %d; %s: %w", peer, l.log.End(), late, errors.Join(errLacking, waitErr))
	}
	l.setOpening(true)
	defer l.setOpening(false)
	l.setShut(true) // nothing is appended from here on
	defer l.setShut(false)
	l.log.Hold()
	if err := d.membership.uncordoned(ctx, func() error { return d.setReplicas(ctx, tp, append([]int32{peer}, stock...)) }); err != nil {
		l.release()
		return err
	}
	everybody := append([]int32{d.cfg.NodeID, peer}, stock...)
	if err := d.barrier.sharing(ctx, func() error {
		return d.setISR(ctx, tp, everybody, func(p clustermetadata.Partition) bool { return !slices.Contains(p.Replicas, d.cfg.NodeID) })
	}); err != nil {
		l.release()
		return err
	}
	l.given()
	if p, err = d.partition(tp); err == nil && p.Leader != peer {
		err = carryOut(ctx, &d.requests.elect, tp)
	}
	if err == nil {
		err = d.meta.wait(ctx, fmt.Sprintf("mirror process %d to lead %s-%d alone", peer, tp.Topic, tp.Partition), func(im *clustermetadata.Image) bool {
			now, ok := im.Partition(tp.Topic, tp.Partition)
			return !ok || now.Leader == peer && len(now.ISR) == 1
		})
	}
	return err
}
