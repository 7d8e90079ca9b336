package topicreader

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxPolls is how many brokers Wait asks at once.
const maxPolls = 1024

const (
	pollWait = 5 * time.Second
	lookWait = time.Second // while some topic is not there
)

// poll is one Fetch that waits.
type poll struct {
	broker     int32
	partitions []*partition
	giveUp     context.CancelFunc
	resp       kmsg.Response
	err        error
}

// Wait returns when there is something behind the positions: committed records, or the end of a transaction that was aborted. It may return without a reason, and it
// leaves the positions where they are. It goes on over brokers that are down, and ends with ctx and with what is refused for good (see ReadToEnd). Its long polls occupy the
// client's connections for Fetch: whoever reads while another waits does so with another client. SkipToEnd does not mind.
func (r *Reader) Wait(ctx context.Context) error {
	return r.persist(ctx, func() error {
		for {
			by := r.byLeader(func(*partition) bool { return true })
			for broker, ps := range by {
				if broker < 0 { // it is being elected: nobody else tells when that is over
					r.stale = true
				}
				p := r.polling[broker]
				if p != nil && !slices.Equal(p.partitions, ps) { // it leads others now, of which that poll would not tell
					p.giveUp()
					delete(r.polling, broker)
					p = nil
				}
				if broker < 0 || p != nil || len(r.polling) == maxPolls {
					continue
				}
				ctx, giveUp := context.WithCancel(ctx)
				p = &poll{broker: broker, partitions: ps, giveUp: giveUp}
				r.polling[broker] = p
				req, send := r.fetchRequest(ps, pollWait), r.sender(ps)
				go func() {
					defer giveUp()
					p.resp, p.err = send(ctx, broker, req)
					r.polls <- p
				}()
			}
			timer := time.NewTimer(lookWait)
			select {
			case p := <-r.polls:
				timer.Stop()
				if r.polling[p.broker] != p { // it was given up
					continue
				}
				delete(r.polling, p.broker)
				if p.err != nil {
					return passing(p.err)
				}
				news, err := r.news(p.resp.(*kmsg.FetchResponse))
				if news || err != nil {
					return err
				}
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-timer.C:
				known := len(by)
				if err := r.refresh(ctx, true); err != nil {
					return err
				}
				if known < len(r.byLeader(func(*partition) bool { return true })) {
					return nil // a topic has appeared
				}
			}
		}
	})
}

// news says whether an answer has something behind a position.
func (r *Reader) news(resp *kmsg.FetchResponse) (bool, error) {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return false, passing(err)
	}
	var first error
	news := false
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			p := r.find(t.Topic, t.TopicID, rp.Partition)
			switch {
			case p == nil:
			case rp.ErrorCode == kerr.OffsetOutOfRange.Code:
				news = true
			case rp.ErrorCode != 0:
				if err := refusal(rp.ErrorCode, p.topic, "READ"); first == nil || !isPassing(err) {
					first = err
				}
			case len(rp.RecordBatches) > 0 && rp.LastStableOffset > p.next:
				news = true
			}
		}
	}
	if news {
		return true, nil
	}
	return false, first
}
