package mirror

import (
	"context"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// raiser raises leader epochs at the destination, all that are wanted at once with one call: one raise may cost as much as many.
type raiser struct {
	m *Mirror
	q gathering[raiseItem]
}

type raiseItem struct {
	r     *runner
	token partition.Token
	epoch int32
}

func (a *raiser) add(r *runner, token partition.Token, epoch int32) {
	a.q.add(raiseItem{r, token, epoch})
}

func (a *raiser) run() {
	for {
		items, ok := a.q.take(a.m.ctx)
		if !ok {
			return
		}
		atLeast := map[TopicPartition]int32{}
		for _, it := range items {
			if it.r.log.LeaderEpoch() < it.epoch {
				atLeast[it.r.tp] = max(atLeast[it.r.tp], it.epoch)
			}
		}
		var got map[TopicPartition]int32
		var err error
		if len(atLeast) > 0 {
			if err = a.m.lease.hold(); err == nil {
				ctx, stop := context.WithTimeout(a.m.ctx, a.m.cfg.CallBound)
				got, err = a.m.cfg.Destination.RaiseLeaderEpochs(ctx, atLeast)
				stop()
			}
		}
		for _, it := range items {
			_, asked := atLeast[it.r.tp]
			_, raised := got[it.r.tp]
			switch {
			case asked && !raised && err == nil:
				it.r.done(it.token, fmt.Errorf("destination did not raise the leader epoch of %s-%d to %d", it.r.tp.Topic, it.r.tp.Partition, it.epoch))
			case asked && !raised:
				it.r.done(it.token, fmt.Errorf("raising the destination's leader epoch to %d: %w", it.epoch, err))
			default: // somebody may have the log by now, and what is written under the new epoch is then theirs
				it.r.askOwner(it.token)
			}
		}
	}
}
