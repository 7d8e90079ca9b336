package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// persister writes state records. What comes in while a write is under way goes out together in the next one, so many partitions cost few writes.
type persister struct {
	m *Mirror
	q gathering[persistItem]

	mu      sync.Mutex
	err     error            // of the last try of the write under way
	waiting map[*runner]bool // whose records are in it
}

// stuck is why a partition's state is not written yet, nil if nothing stands in the way.
func (p *persister) stuck(r *runner) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.waiting[r] {
		return nil
	}
	return p.err
}

// busy says that a write is failing at the moment.
func (p *persister) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}

func (p *persister) note(items []persistItem, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.waiting = err, nil
	if err != nil {
		p.waiting = make(map[*runner]bool, len(items))
		for _, it := range items {
			p.waiting[it.r] = true
		}
	}
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
			Key: p.m.key(it.r), ExpectedStateEpoch: it.e.ExpectedStateEpoch, LeaderEpoch: it.e.Record.LeaderEpoch, State: &record, LME: it.e.LME,
		}
	}
	writes = append(writes, p.adopted(items)...)
	wait := 100 * time.Millisecond
	for attempt := 0; ; attempt++ {
		began := time.Now()
		ctx, stop := context.WithTimeout(p.m.ctx, p.m.cfg.CallBound)
		results, err := p.m.session.Write(ctx, writes)
		stop()
		if err == nil && len(results) < len(writes) {
			err = fmt.Errorf("the state store answered %d of %d writes", len(results), len(writes))
		}
		p.note(items, err)
		switch {
		case err == nil:
			p.m.lease.note(began)
			if attempt > 0 {
				p.m.emit(StoreTrouble{EventMeta: p.m.meta(TopicPartition{Partition: Unknown})})
				p.settle(items, results)
			}
			for i, it := range items {
				p.answer(it, results[i], ofOne(results[i].Err))
			}
			return
		case errors.Is(err, statemachine.ErrFenced):
			for _, it := range items {
				p.answer(it, statemachine.WriteResult{Err: err}, err)
			}
			return
		case p.m.ctx.Err() != nil:
			return
		}
		if attempt == 0 {
			p.m.emit(StoreTrouble{EventMeta: p.m.meta(TopicPartition{Partition: Unknown}), Err: err})
		}
		if !p.m.pause(p.m.ctx, wait) {
			return
		}
		wait = min(2*wait, maxStoreWait)
	}
}

// maxStoreWait is the longest pause between two tries of the state store.
const maxStoreWait = 10 * time.Second

// adopted is the tombstones of partitions that were stopped in another mirror and are now taken over: they go with this mirror's first write, and the last mirror
// epochs stay (spec decision 21). Where they belong to another owner they are refused, which harms no other write: their owner takes them out (following.leave).
func (p *persister) adopted(items []persistItem) []statemachine.Write {
	var writes []statemachine.Write
	for _, it := range items {
		if w := it.r.adopts; w != nil {
			it.r.adopts = nil
			writes = append(writes, *w)
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
	// Read until the store answers, as it was written to until it answered: a guess would either stop a good partition or go on with a lost one.
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, maxStoreWait) {
		ctx, stop := context.WithTimeout(p.m.ctx, p.m.cfg.CallBound)
		err := p.m.session.Load(ctx, func(e statemachine.Entry) error {
			if i, ok := doubtful[e.Key]; ok {
				if epoch, ours := partition.Settled(items[i].e, e); ours {
					results[i] = statemachine.WriteResult{StateEpoch: epoch}
				}
			}
			return nil
		})
		stop()
		if err == nil || errors.Is(err, statemachine.ErrFenced) || !p.m.pause(p.m.ctx, wait) {
			return
		}
	}
}

// ofOne is the refusal of one record. A session that is fenced as a whole says so for the write as a whole: a record refused for its leader epoch ends its partition,
// and not the other ones of this process.
func ofOne(err error) error {
	if errors.Is(err, statemachine.ErrFenced) {
		return fmt.Errorf("%w: %v", ErrFenced, err)
	}
	return err
}

// answer tells the runner what became of its record; refusal is why it was not written, nil if it was.
func (p *persister) answer(it persistItem, res statemachine.WriteResult, refusal error) {
	if refusal != nil {
		it.r.refused(refusal)
	}
	it.r.send(partition.Event{Kind: partition.Persisted, Token: it.e.Token, StateEpoch: res.StateEpoch, Err: res.Err})
}
