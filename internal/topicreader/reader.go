// Package topicreader reads compacted topics of a Kafka cluster to their end, committed records only, in few requests: one ListOffsets and, where there is something new,
// one Fetch for each broker that leads some of their partitions. It stands on a kgo.Client for connections and on kgo for the bytes of batches, and it owns no group.
//
// What ReadToEnd promises is that every record whose transaction was committed before the call began is handed over by its end. A commit is answered before its markers are
// in the partitions, and an unread record behind another producer's open transaction is invisible until that one ends. So the end is the high watermark, not the last stable
// offset, and ReadToEnd waits until what is visible reaches it.
//
// The high watermarks are asked for with ListOffsets and not taken from Fetch: a new leader does not answer ListOffsets before it knows all that was acknowledged (KIP-207).
//
// What is assumed: the broker that answers still leads. One that was deposed and does not know it yet, because it is cut off from the controller while clients reach it,
// answers with its old high watermark, and nothing in the answer says so. A Reader that has seen the new leader's epoch refuses it (KIP-320); one that has not, because it
// asks for leaders only when something fails, reads what was there when that broker was deposed, until the broker learns of it or cannot be reached any more. No acknowledged
// record is lost by that, but records that were acknowledged by the new leader before the call began are missed.
package topicreader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/asking"
)

// Record is one committed record.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte // nil is a tombstone
	Headers   []Header
	Timestamp time.Time
}

// Header is a header of a Record.
type Header struct {
	Key   string
	Value []byte
}

// Header returns the value of the last header of that name.
func (r Record) Header(name string) (value []byte, ok bool) {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// Reader has a position in each partition of some topics. Not safe for concurrent use. Its client may serve others too; what it holds needs no closing.
type Reader struct {
	client  *kgo.Client
	missing bool // topics that are not there are empty
	topics  map[string]*topic
	names   []string // sorted
	stale   bool     // leaders must be asked for
	polls   chan *poll
	polling map[int32]*poll // what Wait has asked brokers for and they have not answered
}

type topic struct {
	id         [16]byte
	partitions []*partition // nil: not there, as far as is known
}

type partition struct {
	topic       string
	number      int32
	leader      int32 // -1: nobody
	leaderEpoch int32
	next        int64 // the position
	end         int64 // where this ReadToEnd goes to, -1: not known yet
	stable      int64 // last stable offset, as last seen
	restart     bool  // the position is out of range: the log's start must be asked for
}

// New returns a reader that stands at the start of each topic's log. Nothing is asked yet.
func New(client *kgo.Client, topics ...string) *Reader {
	names := slices.Compact(slices.Sorted(slices.Values(topics)))
	r := &Reader{client: client, names: names, topics: make(map[string]*topic), stale: true, polls: make(chan *poll, maxPolls), polling: make(map[int32]*poll)}
	for _, name := range names {
		r.topics[name] = new(topic)
	}
	return r
}

// MissingIsEmpty makes a topic that does not exist an empty one, instead of a *MissingError. It is looked for again in every call, on every broker: its leader knows it first.
// It returns r.
func (r *Reader) MissingIsEmpty() *Reader {
	r.missing = true
	return r
}

// Partitions is how many partitions a topic has, 0 as long as it is not known to exist.
func (r *Reader) Partitions(name string) int32 {
	if t := r.topics[name]; t != nil {
		return int32(len(t.partitions))
	}
	return 0
}

// ID is a topic's id, all zeros as long as it is not known to exist. A topic that was deleted and created again has another one.
func (r *Reader) ID(name string) (id [16]byte) {
	if t := r.topics[name]; t != nil {
		id = t.id
	}
	return id
}

// Next is the offset of a partition behind what was read, 0 for one that is not known.
func (r *Reader) Next(name string, number int32) int64 {
	if number < 0 || number >= r.Partitions(name) {
		return 0
	}
	return r.topics[name].partitions[number].next
}

// Leader is the broker that leads a partition as far as is known, -1 for none.
func (r *Reader) Leader(name string, number int32) int32 { return r.Lead(name, number).Leader }

// Lead is Leader and its epoch.
func (r *Reader) Lead(name string, number int32) Lead {
	if number < 0 || number >= r.Partitions(name) {
		return Lead{name, number, -1, -1}
	}
	return r.topics[name].partitions[number].lead()
}

func (p *partition) lead() Lead { return Lead{p.topic, p.number, p.leader, p.leaderEpoch} }

// Forget makes the next call ask for leaders anew.
func (r *Reader) Forget() { r.stale = true }

// Total is the sum of all positions. It grows with everything that is read.
func (r *Reader) Total() int64 {
	var sum int64
	for p := range r.all {
		sum += p.next
	}
	return sum
}

func (r *Reader) all(yield func(*partition) bool) {
	for _, name := range r.names {
		for _, p := range r.topics[name].partitions {
			if !yield(p) {
				return
			}
		}
	}
}

const (
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// ReadToEnd hands over all committed records between the positions and the high watermarks that the partitions had when the call began, in order within each partition.
// The records are apply's to keep. Positions move with what was handed over: after an error the next call goes on from there. It goes on over changes of leaders and lost
// connections until ctx ends; the error then says what it was waiting for. Errors: *MissingError, *AccessError, *ReplacedError, *PartitionsError, *WaitError, and what a broker refuses for good.
func (r *Reader) ReadToEnd(ctx context.Context, apply func(Record)) error {
	for p := range r.all {
		p.end = -1
	}
	return r.persist(ctx, func() error {
		if err := r.findEnds(ctx); err != nil {
			return err
		}
		for {
			behind := r.byLeader(func(p *partition) bool { return p.next < p.end })
			if len(behind) == 0 {
				return nil
			}
			if err := r.fetch(ctx, behind, apply); err != nil {
				return err
			}
		}
	})
}

// Look finds out which topics there are and who leads them, and reads nothing. Errors are those of ReadToEnd.
func (r *Reader) Look(ctx context.Context) error {
	return r.persist(ctx, func() error { return nil })
}

// SkipToEnd moves the positions to the high watermarks that the partitions have now. What lies before is not read.
func (r *Reader) SkipToEnd(ctx context.Context) error {
	for p := range r.all {
		p.end = -1
	}
	return r.persist(ctx, func() error {
		if err := r.findEnds(ctx); err != nil {
			return err
		}
		for p := range r.all {
			p.next = max(p.next, p.end)
		}
		return nil
	})
}

// persist repeats a step while what stands in its way may pass, with growing pauses, until ctx ends.
func (r *Reader) persist(ctx context.Context, step func() error) error {
	pause := firstPause
	looked := false // topics that are not there are looked for once a call
	for {
		err := r.refresh(ctx, !looked)
		if err == nil {
			looked = true
			before := r.Total()
			if err = step(); err == nil {
				return nil
			}
			if r.Total() > before {
				pause = firstPause
			}
		}
		var passing *passingError
		if !errors.As(err, &passing) && ctx.Err() == nil {
			return err
		}
		r.stale = true
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return r.waited(ctx, err)
		}
		pause = min(2*pause, longestPause)
	}
}

// waited tells what a call was waiting for when its context ended.
func (r *Reader) waited(ctx context.Context, last error) error {
	for p := range r.all {
		if p.next < p.end && p.stable >= 0 && p.stable < p.end {
			return &WaitError{Topic: p.topic, Partition: p.number, Next: p.next, End: p.end, Stable: p.stable, Err: context.Cause(ctx), Last: last}
		}
	}
	return &WaitError{Partition: -1, Err: context.Cause(ctx), Last: last}
}

// byLeader sorts partitions by the broker that leads them.
func (r *Reader) byLeader(wanted func(*partition) bool) map[int32][]*partition {
	m := make(map[int32][]*partition)
	for p := range r.all {
		if wanted(p) {
			m[p.leader] = append(m[p.leader], p)
		}
	}
	return m
}

// ask sends one request to each broker at once and hands the answers over one after the other. Every answer is handled; the first error is returned.
func ask[A kmsg.Response](ctx context.Context, r *Reader, by map[int32][]*partition, request func([]*partition) kmsg.Request, handle func([]*partition, A) error) error {
	type answer struct {
		partitions []*partition
		resp       kmsg.Response
		err        error
	}
	answers := make(chan answer, len(by))
	for broker, ps := range by {
		if broker < 0 {
			answers <- answer{ps, nil, fmt.Errorf("%s has no leader now", ps[0])}
			continue
		}
		req, send := request(ps), r.sender(ps)
		go func() {
			resp, err := send(ctx, broker, req)
			answers <- answer{ps, resp, err}
		}()
	}
	var first error
	for range by {
		a := <-answers
		err := passing(a.err)
		if a.err == nil {
			err = handle(a.partitions, a.resp.(A))
		}
		if first == nil || err != nil && !isPassing(err) {
			first = err
		}
	}
	return first
}

// sender is how a request for partitions of one broker is sent: it is given up when the broker is silent and another one leads one of them. It may run beside what changes the Reader.
func (r *Reader) sender(ps []*partition) func(context.Context, int32, kmsg.Request) (kmsg.Response, error) {
	client, leads := r.client, make([]Lead, len(ps))
	for i, p := range ps {
		leads[i] = p.lead()
	}
	return func(ctx context.Context, broker int32, req kmsg.Request) (kmsg.Response, error) {
		held := time.Duration(0)
		if fetch, ok := req.(*kmsg.FetchRequest); ok {
			held = time.Duration(fetch.MaxWaitMillis) * time.Millisecond
		}
		return asking.Holder(ctx, client, broker, req, held, func(ctx context.Context) bool { return Moved(ctx, client, leads) })
	}
}

func (p *partition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.number) }
