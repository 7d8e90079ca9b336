package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// persister writes state records. What comes in while a write is under way goes out together in the next one, so many partitions cost few writes.
type persister struct {
	m *Mirror
	q gathering[persistItem]
}

type persistItem struct {
	r *runner
	e partition.Effect
}

func (p *persister) add(r *runner, e partition.Effect) { p.q.add(persistItem{r, e}) }

func (p *persister) run() {
	for {
		items, ok := p.q.take(p.m.ctx)
		if !ok {
			return
		}
		p.write(items)
	}
}

// write tries until the store has answered: a state change that is not durable must not be acted on, and one that may be durable must not be guessed at.
func (p *persister) write(items []persistItem) {
	writes := make([]statemachine.Write, len(items))
	for i, it := range items {
		record := it.e.Record
		writes[i] = statemachine.Write{
			Key: p.m.key(it.r), ExpectedStateEpoch: it.e.ExpectedStateEpoch, LeaderEpoch: it.r.log.LeaderEpoch(), State: &record, LME: it.e.LME,
		}
	}
	writes = append(writes, p.adopted(items)...)
	wait := 100 * time.Millisecond
	for attempt := 0; ; attempt++ {
		ctx, stop := context.WithTimeout(p.m.ctx, p.m.cfg.CallBound)
		results, err := p.m.session.Write(ctx, writes)
		stop()
		switch {
		case err == nil:
			if attempt > 0 {
				p.m.emit(StoreTrouble{EventMeta: p.m.meta(TopicPartition{Partition: Unknown})})
				p.settle(items, results)
			}
			for i, it := range items {
				p.answer(it, results[i])
			}
			return
		case errors.Is(err, statemachine.ErrFenced):
			for _, it := range items {
				p.answer(it, statemachine.WriteResult{Err: err})
			}
			return
		case p.m.ctx.Err() != nil:
			return
		}
		if attempt == 0 {
			p.m.emit(StoreTrouble{EventMeta: p.m.meta(TopicPartition{Partition: Unknown}), Err: err})
		}
		select {
		case <-p.m.ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, 10*time.Second)
	}
}

// adopted is the tombstones of partitions that were stopped in another mirror and are now taken over: they go with this mirror's first write, and the last mirror
// epochs stay (spec decision 21).
func (p *persister) adopted(items []persistItem) []statemachine.Write {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	var writes []statemachine.Write
	for _, it := range items {
		key := p.m.key(it.r)
		key.Mirror = it.r.topic.wish.AdoptedFrom
		if _, ok := p.m.loaded[key]; key.Mirror != "" && ok {
			delete(p.m.loaded, key)
			writes = append(writes, statemachine.Write{Key: key, ExpectedStateEpoch: -1, LeaderEpoch: -1, Delete: true})
		}
	}
	return writes
}

// settle corrects the results of a write that was tried again: where the earlier try had taken effect without an answer, the repeated one is refused for its
// expected state epoch although the record is ours.
func (p *persister) settle(items []persistItem, results []statemachine.WriteResult) {
	doubtful := map[statemachine.Key]int{}
	for i := range results {
		if errors.Is(results[i].Err, statemachine.ErrStateEpoch) {
			doubtful[p.m.key(items[i].r)] = i
		}
	}
	if len(doubtful) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(p.m.ctx, p.m.cfg.CallBound)
	defer stop()
	// An error leaves the refusals as they are: the partitions stop, which is safe.
	_ = p.m.session.Load(ctx, func(e statemachine.Entry) error {
		i, ok := doubtful[e.Key]
		if !ok {
			return nil
		}
		want := items[i].e
		got := e.State
		epoch := got.StateEpoch
		got.StateEpoch = want.Record.StateEpoch
		if got == want.Record && (want.LME == nil || e.LME != nil && *e.LME == *want.LME) {
			results[i] = statemachine.WriteResult{StateEpoch: epoch}
		}
		return nil
	})
}

func (p *persister) answer(it persistItem, res statemachine.WriteResult) {
	it.r.send(partition.Event{Kind: partition.Persisted, Token: it.e.Token, StateEpoch: res.StateEpoch, Err: res.Err})
}
