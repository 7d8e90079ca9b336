package kraft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
)

// Producer ids are handed out by each cluster for itself, so an id in mirrored batches may be given to a producer of this cluster too. A stock broker that then leads the partition
// takes that producer's first batch for a repetition: it answers success and drops the record (F-48). So the controllers' counter is kept above every id that was ever mirrored,
// before the batch with the id is appended. A broker holds up to two blocks from before that and goes on giving them to clients: it is made to use them up, in the background while the
// topic is mirrored, and at a stop what is left of that is waited for.
//
// A producer that got an id before that, and writes only after the stop, is not made safe: nothing takes an id back. A broker that cannot be asked keeps its blocks and comes back with
// them, unless its process begins anew: then it gets new ones. So what is settled counts for one registration only, and a broker that comes back is made to use up what it holds as long as
// this process lives, after the stop too. Nothing remembers that for the next process, which begins with it when a batch is appended.

// mostIDsAhead is how far above the cluster's counter an id may be. A greater one is refused: a push that far would take minutes, and a broken or hostile source must not use up
// another cluster's ids.
const mostIDsAhead = 20_000_000

const (
	idBlock      = 1000 // ids in one answer of the controllers
	idsAtATime   = 32   // requests under way, each over a connection of its own: a connection is served one request at a time
	mostBurns    = 4 * idBlock
	burnsAtATime = 16
)

type producerIDs struct {
	d    *Destination
	ask  func(ctx context.Context, broker int32) (int64, error) // asks a broker for an id
	rest time.Duration                                          // between two rounds in the background
	news chan struct{}                                          // something may have to be settled

	pushing turn // one push at a time
	clients []*kraftclient.Client

	settling turn // one round at a time

	mu      sync.Mutex
	wanted  int64                  // up to here no broker is to give out an id
	settled map[int32]settledIDs   // by broker
	told    map[int32]registration // of brokers that a stop did without
	stops   int                    // that wait: a round in the background makes way for them
	yield   context.CancelFunc     // ends the round in the background, nil: there is none
}

// registration is one life of a broker: the broker epoch is another one after each registration.
type registration int64

// settledIDs says that a broker will not give out any id up to highest, as long as it is the one that was asked.
type settledIDs struct {
	of      registration
	highest int64
}

// backgroundBound ends a round in the background, which then goes on after a rest.
const backgroundBound = 30 * time.Second

func newProducerIDs(d *Destination) *producerIDs {
	p := &producerIDs{d: d, rest: 2 * time.Second, news: make(chan struct{}, 1), pushing: newTurn(), settling: newTurn(), wanted: -1, settled: map[int32]settledIDs{}, told: map[int32]registration{}}
	p.ask = p.initProducerID
	return p
}

// next is the first id that the controllers have not given out.
func (p *producerIDs) next() (next int64) {
	p.d.meta.look(func(im *clustermetadata.Image) { next = im.NextProducerID() })
	return next
}

// raise returns when the controllers will give out no id up to highest, and has the brokers use up what they hold after that.
func (p *producerIDs) raise(ctx context.Context, highest int64) error {
	if highest < 0 {
		return nil
	}
	if err := p.push(ctx, highest); err != nil {
		return err
	}
	next := p.next()
	p.mu.Lock()
	more := highest > p.wanted
	if more { // all that was given out to brokers until now: ids of the source that come later are mostly settled then
		p.wanted = max(highest, next-1)
	}
	p.mu.Unlock()
	if more {
		p.look()
	}
	return nil
}

// push moves the controllers' counter.
func (p *producerIDs) push(ctx context.Context, highest int64) error {
	if p.next() > highest {
		return nil
	}
	if err := p.pushing.take(ctx); err != nil {
		return fmt.Errorf("moving the cluster's producer ids above %d: others are being moved: %w", highest, err)
	}
	defer p.pushing.release()
	next := p.next()
	if next > highest {
		return nil
	}
	if highest-next > mostIDsAhead {
		return fmt.Errorf("implausible producer id %d: this cluster has given out ids below %d, and %d more at most are skipped; look at the source's producers, and move this cluster's ids up (InitProducerId) if that id is real", highest, next, mostIDsAhead)
	}
	for len(p.clients) < idsAtATime {
		c, err := p.d.client.Again()
		if err != nil {
			return err
		}
		p.clients = append(p.clients, c)
	}
	blocks := (highest-next)/idBlock + 1
	var wg sync.WaitGroup
	errs := make([]error, idsAtATime)
	todo := make(chan struct{})
	bounded, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.d.ctx, stop)() // Close waits for this turn
	for i, c := range p.clients {
		wg.Go(func() {
			for range todo {
				if errs[i] = p.allocate(bounded, c); errs[i] != nil {
					stop()
					return
				}
			}
		})
	}
feed:
	for range blocks {
		select {
		case todo <- struct{}{}:
		case <-bounded.Done():
			break feed
		}
	}
	close(todo)
	wg.Wait()
	if err := errors.Join(errs...); err != nil && p.next() <= highest {
		return fmt.Errorf("moving the cluster's producer ids above %d: %w", highest, err)
	}
	return p.d.meta.wait(bounded, fmt.Sprintf("the cluster's producer ids to be above %d", highest), func(im *clustermetadata.Image) bool { return im.NextProducerID() > highest })
}

// allocate takes one block.
func (p *producerIDs) allocate(ctx context.Context, c *kraftclient.Client) error {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = p.d.cfg.NodeID, p.d.membership.brokerEpoch()
	bounded, stop := p.d.cfg.bounded(ctx)
	defer stop()
	resp, err := c.Controller(bounded, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.AllocateProducerIDsResponse).ErrorCode)
}

// look has the brokers looked at in the background.
func (p *producerIDs) look() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// keepSettled has brokers use up what they hold, until ctx ends: after a mirrored id that is new, and when a broker comes back. It waits a while between two rounds.
func (p *producerIDs) keepSettled(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.news:
		}
		p.background(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.rest):
		}
	}
}

func (p *producerIDs) background(ctx context.Context) {
	bounded, stop := context.WithTimeout(ctx, backgroundBound)
	defer stop()
	p.mu.Lock()
	wanted, busy := p.wanted, p.stops > 0
	if !busy {
		p.yield = stop
	}
	p.mu.Unlock()
	if busy {
		p.look()
		return
	}
	defer func() {
		p.mu.Lock()
		p.yield = nil
		p.mu.Unlock()
	}()
	if wanted < 0 || p.allSettled(wanted) {
		return
	}
	if err := p.burnAll(bounded, wanted); err != nil && ctx.Err() == nil {
		p.look()
		if !errors.Is(err, context.Canceled) {
			p.d.cfg.Logger.Warn("kraft: brokers still hold producer ids that may be mirrored; it is tried again", "highest", wanted, "error", err)
		}
	}
}

// stockBrokers are the registered ones, and which of them live.
func (p *producerIDs) stockBrokers() (all map[int32]registration, live []int32) {
	all = map[int32]registration{}
	p.d.meta.look(func(im *clustermetadata.Image) {
		live = p.d.live(im)
		for _, b := range im.Brokers() {
			if b.ID != p.d.cfg.NodeID && !p.d.peers.mirror(im, b.ID) {
				all[b.ID] = registration(b.Epoch)
			}
		}
	})
	return all, live
}

// isSettled says whether this life of a broker gives out no id up to highest.
func (p *producerIDs) isSettled(broker int32, of registration, highest int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.settled[broker]
	return ok && s.of == of && s.highest >= highest
}

func (p *producerIDs) allSettled(highest int64) bool {
	all, live := p.stockBrokers()
	return !slices.ContainsFunc(live, func(id int32) bool { return !p.isSettled(id, all[id], highest) })
}

// settle returns when no live broker will give out an id up to highest. Brokers that are not alive are told of, and seen to when they come back.
func (p *producerIDs) settle(ctx context.Context, highest int64) error {
	if highest < 0 {
		return nil
	}
	if err := p.raise(ctx, highest); err != nil {
		return err
	}
	if err := p.settleLive(ctx, highest); err != nil {
		return err
	}
	all, live := p.stockBrokers()
	for id, of := range all {
		if !slices.Contains(live, id) && !p.isSettled(id, of, highest) {
			p.tell(id, of, highest)
		}
	}
	return nil
}

func (p *producerIDs) settleLive(ctx context.Context, highest int64) error {
	if p.allSettled(highest) {
		return nil
	}
	p.mu.Lock()
	p.stops++
	if p.yield != nil {
		p.yield()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.stops--
		p.mu.Unlock()
	}()
	for !p.allSettled(highest) { // more than once where a broker began a new life meanwhile
		if err := cmp.Or(p.burnAll(ctx, highest), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// tell says, once for each life of a broker, that a stop went on without it.
func (p *producerIDs) tell(broker int32, of registration, highest int64) {
	p.mu.Lock()
	had, ok := p.told[broker]
	p.told[broker] = of
	p.mu.Unlock()
	if ok && had == of {
		return
	}
	p.d.notice(Event{Kind: Trouble, Text: fmt.Sprintf("broker %d is not alive for the controllers and may still hold producer ids up to %d, which are mirrored. If its process runs (it is cut off, or shutting "+
		"down), it comes back with them, and a producer that gets one loses its first records: it is made to use them up when it is back, as long as this process lives; restart broker %d before if this "+
		"process ends earlier", broker, highest, broker)})
}

// burnAll has every live broker use up the ids up to highest that it holds.
func (p *producerIDs) burnAll(ctx context.Context, highest int64) error {
	if err := p.settling.take(ctx); err != nil {
		return fmt.Errorf("using up the producer ids that brokers hold: %w", err)
	}
	defer p.settling.release()
	all, live := p.stockBrokers()
	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, id := range live {
		if p.isSettled(id, all[id], highest) {
			continue
		}
		wg.Go(func() {
			below, err := p.burn(ctx, id, highest)
			now, still := p.stockBrokers()
			switch {
			case err == nil && now[id] == all[id]:
				p.mu.Lock()
				p.settled[id] = settledIDs{all[id], below}
				_, told := p.told[id]
				delete(p.told, id)
				p.mu.Unlock()
				if told {
					p.d.cfg.Logger.Info("kraft: a broker that was not alive at a stop has used up the producer ids that it held", "broker", id, "highest", highest)
				}
			case err == nil, !slices.Contains(still, id): // it went, or is another one now: it is seen to when it is back
				p.look()
			default:
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// burn asks a broker for ids until it gives one above highest: then the blocks that it held are used up, because it gives them in order. It gives none up to below any more.
func (p *producerIDs) burn(ctx context.Context, broker int32, highest int64) (below int64, err error) {
	for asked := 0; asked < mostBurns; {
		n := burnsAtATime
		if asked == 0 {
			n = 1
		}
		ids := make(chan int64, n)
		errs := make(chan error, n)
		for range n {
			go func() {
				id, err := p.ask(ctx, broker)
				ids <- id
				errs <- err
			}()
		}
		var all []error
		below = math.MaxInt64
		for range n {
			all = append(all, <-errs)
			below = min(below, <-ids-1)
		}
		if err := errors.Join(all...); err != nil {
			return -1, fmt.Errorf("using up the producer ids that broker %d holds: %w", broker, err)
		}
		if below >= highest {
			return below, nil
		}
		asked += n
	}
	return -1, fmt.Errorf("using up the producer ids that broker %d holds: after %d of them it still gives out ids up to %d", broker, mostBurns, highest)
}

func (p *producerIDs) initProducerID(ctx context.Context, broker int32) (int64, error) {
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis = 60_000
		bounded, stop := p.d.cfg.bounded(ctx)
		resp, err := p.d.client.Broker(bounded, broker, req)
		stop()
		if err != nil {
			return -1, err
		}
		r := resp.(*kmsg.InitProducerIDResponse)
		err = kerr.ErrorForCode(r.ErrorCode)
		if err == nil {
			return r.ProducerID, nil
		}
		if !kerr.IsRetriable(err) || ctx.Err() != nil {
			return -1, err
		}
		if err := pause(ctx, 20); err != nil {
			return -1, err
		}
	}
}

func (p *producerIDs) close() {
	_ = p.pushing.take(context.Background()) // who pushes ends with the Destination
	defer p.pushing.release()
	for _, c := range p.clients {
		c.Close()
	}
	p.clients = nil
}

// NextProducerID is the first id that the controllers have not given out: mirror.ProducerIDTeller.
func (d *Destination) NextProducerID(context.Context) (int64, error) {
	if err := d.usable(); err != nil {
		return 0, err
	}
	return d.producers.next(), nil
}
