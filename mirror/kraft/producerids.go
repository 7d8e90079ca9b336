package kraft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
)

// Producer ids are handed out by each cluster for itself, so an id in mirrored batches may be given to a producer of this cluster too. A stock broker that then leads the partition
// takes that producer's first batch for a repetition: it answers success and drops the record (F-48). So the controllers' counter is kept above every id that was ever mirrored,
// before the batch with the id is appended, and at a stop every broker uses up the blocks that it was given earlier.
//
// Ids that the cluster had given out before the topic was mirrored are not made safe by this: a producer that holds one already goes on with it.

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
	d *Destination

	pushing turn // one push at a time
	clients []*kraftclient.Client

	settling turn
	settled  map[int32]int64 // by broker and its epoch's end: ids up to here it will not give out
}

func newProducerIDs(d *Destination) *producerIDs {
	return &producerIDs{d: d, pushing: newTurn(), settling: newTurn(), settled: map[int32]int64{}}
}

// next is the first id that the controllers have not given out.
func (p *producerIDs) next() (next int64) {
	p.d.meta.look(func(im *clustermetadata.Image) { next = im.NextProducerID() })
	return next
}

// raise returns when the controllers will give out no id up to highest.
func (p *producerIDs) raise(ctx context.Context, highest int64) error {
	if highest < 0 || p.next() > highest {
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

// settle returns when no live broker will give out an id up to highest. A broker that is not alive takes new blocks when it starts.
func (p *producerIDs) settle(ctx context.Context, highest int64) error {
	if highest < 0 {
		return nil
	}
	if err := p.raise(ctx, highest); err != nil {
		return err
	}
	return p.burnAll(ctx, highest)
}

// burnAll has every live broker use up the ids up to highest that it holds.
func (p *producerIDs) burnAll(ctx context.Context, highest int64) error {
	if err := p.settling.take(ctx); err != nil {
		return fmt.Errorf("using up the producer ids that brokers hold: %w", err)
	}
	defer p.settling.release()
	brokers := p.d.liveBrokers()
	errs := make(chan error, len(brokers))
	for _, id := range brokers {
		if p.settled[id] >= highest {
			errs <- nil
			continue
		}
		go func() { errs <- p.burn(ctx, id, highest) }()
	}
	var all []error
	for range brokers {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	for _, id := range brokers {
		p.settled[id] = max(p.settled[id], highest)
	}
	return nil
}

// burn asks a broker for ids until it gives one above highest: then the blocks that it held are used up, because it gives them in order.
func (p *producerIDs) burn(ctx context.Context, broker int32, highest int64) error {
	for asked := 0; asked < mostBurns; {
		n := burnsAtATime
		if asked == 0 {
			n = 1
		}
		lowest := make(chan int64, n)
		errs := make(chan error, n)
		for range n {
			go func() {
				id, err := p.initProducerID(ctx, broker)
				lowest <- id
				errs <- err
			}()
		}
		all, above := []error(nil), true
		for range n {
			all = append(all, <-errs)
			above = above && <-lowest > highest
		}
		if err := errors.Join(all...); err != nil {
			live := p.d.liveBrokers()
			for _, id := range live {
				if id == broker {
					return fmt.Errorf("using up the producer ids that broker %d holds: %w", broker, err)
				}
			}
			return nil // it died: it will take new blocks
		}
		if above {
			return nil
		}
		asked += n
	}
	return fmt.Errorf("using up the producer ids that broker %d holds: after %d of them it still gives out ids up to %d", broker, mostBurns, highest)
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
