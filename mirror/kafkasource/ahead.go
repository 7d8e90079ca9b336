package kafkasource

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// Over a long link a fetcher that waits for each reply before it asks for the next leaves the link empty for a round trip between two of them: with 100 ms and 1 MiB
// to a partition that is 10 MB/s, whatever the link could carry. So for a partition that is far behind, several requests travel at once: each asks for where the one
// before it will probably end, by the bytes that an offset took so far. A guess that was too low costs the batches that come twice, and they are left out; one that
// was too high leaves a hole, and everything behind it is thrown away and asked for again.
//
// What comes of a guess is as good as what an ordinary fetch brings: all the requests carry the leader epoch of the position that the caller wanted, a broker answers
// only while it leads in just that epoch, and the log of a leader is not cut while it leads (KIP-101). So a reply in that epoch continues what the caller has of it.
// Topics are named by their ids, so that a recreated topic is another one (KIP-516); without ids, or an epoch, nothing is read ahead.
const (
	// aheadChunk is what one request ahead asks for: the larger, the less comes twice.
	aheadChunk = 4 << 20
	// aheadWorth is the round trip from which it is worth while.
	aheadWorth = 20 * time.Millisecond
	// aheadLanes is how many partitions of one broker are read ahead at once. Where more are behind, their bytes together fill a reply.
	aheadLanes = 4
	// aheadPoll is how often the other partitions are asked for meanwhile. Such a request does not wait at the broker, which would hold up those behind it.
	aheadPoll = 100 * time.Millisecond
	// aheadPatience is how long the caller may take over what it was given before the rest is given up.
	aheadPatience = time.Second
	// aheadCare is how much less than expected a request is taken to bring, at first; leastCare after guesses that left holes.
	aheadCare, leastCare = 0.98, 0.5
)

// ahead is what a fetcher asks for before it knows the position. Under fetcher.mu.
type ahead struct {
	chunk int64         // aheadChunk
	worth time.Duration // aheadWorth

	lanes map[mirror.TopicPartition]*lane
	poll  *pollRequest
	polls time.Time // of the last poll
	kept  []mirror.FetchedPartition
	bytes int64         // that requests under way may bring, those of lanes that have ended included
	news  chan struct{} // something has arrived

	rate    float64   // bytes in a second that the link carries, as far as is known
	arrived time.Time // of the last reply to a request ahead
}

// lane is one partition that is read ahead.
type lane struct {
	want   mirror.FetchPosition // the caller's last; Offset is where what was passed on ends
	wanted bool
	chunks []*chunk  // in the order of their offsets
	next   int64     // the guess of the next request
	care   float64   // see step
	passed time.Time // when something was last passed on
	span   float64   // offsets in a byte
	most   int64     // offsets of the longest batch of the last reply

	highWatermark, lastStable, logStart int64
}

// chunk is one request ahead.
type chunk struct {
	at   int64
	done bool
	resp *kmsg.FetchResponse
}

// pollRequest is a request for the partitions that are not read ahead.
type pollRequest struct {
	lost uint64
	done bool
	resp *kmsg.FetchResponse
	err  error
}

// readsAhead says whether Fetch is to go by way of fetchAhead.
func (f *fetcher) readsAhead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ahead.lanes) > 0 || f.ahead.poll != nil
}

// look takes note of an ordinary reply, which took that long, and begins to read ahead where that is worth while.
func (f *fetcher) look(reply []mirror.FetchedPartition, took time.Duration) {
	bytes := 0
	for i := range reply {
		bytes += len(reply[i].Records)
	}
	if bytes == 0 || f.dials.roundTrip() < f.ahead.worth {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead.rate = float64(bytes) / max(took-f.dials.roundTrip(), 100*time.Microsecond).Seconds()
	f.beginAhead(reply)
}

// aheadBound is how many bytes may be under way: what fills the link twice over and two requests more, not more than the budget, and not more than arrives in a quarter of
// a call's bound.
func (f *fetcher) aheadBound() int64 {
	fills := 2*f.ahead.rate*f.dials.roundTrip().Seconds() + 2*float64(f.ahead.chunk)
	inTime := f.ahead.rate * f.source.cfg.Bound.Seconds() / 4
	return int64(min(float64(f.source.cfg.ReadAheadBytes), fills, inTime))
}

// beginAhead starts to read ahead the partitions of a reply that are far behind, where that is worth while. Under mu.
func (f *fetcher) beginAhead(reply []mirror.FetchedPartition) {
	a := &f.ahead
	if f.limit > 0 || f.pause > 0 || f.session.byNames() || f.aheadBound() < 2*a.chunk {
		return
	}
	behind := 0
	for i := range reply {
		if len(reply[i].Records) > 0 {
			behind++
		}
	}
	if behind > aheadLanes {
		return
	}
	for i := range reply {
		p := &reply[i]
		w := f.session.partitions[p.TopicPartition]
		if len(p.Records) == 0 || w == nil || w.dropped || w.want.TopicID == (mirror.TopicID{}) || w.want.LeaderEpoch < 0 || a.lanes[p.TopicPartition] != nil {
			continue
		}
		l := &lane{want: w.want, care: aheadCare, passed: time.Now(), highWatermark: p.HighWatermark, lastStable: p.LastStable, logStart: p.LogStart}
		end := l.learn(p.Records)
		if end <= p.Offset || p.HighWatermark-end < 4*l.step(a.chunk) {
			continue
		}
		l.want.Offset, l.next = end, end
		if a.lanes == nil {
			a.lanes = make(map[mirror.TopicPartition]*lane)
		}
		a.lanes[p.TopicPartition] = l
		f.session.forget(p.TopicPartition)
	}
}

// learn looks at the whole batches of a reply and returns where they end, -1 for none.
func (l *lane) learn(records []byte) int64 {
	first, end, most := int64(-1), int64(-1), int64(0)
	at := 0
	for at < len(records) {
		h, n, err := batch.Next(records[at:])
		if err != nil {
			break
		}
		if first < 0 {
			first = h.BaseOffset
		}
		end, most = h.NextOffset(), max(most, h.NextOffset()-h.BaseOffset)
		at += n
	}
	if at > 0 {
		l.span, l.most = float64(end-first)/float64(at), most
	}
	return end
}

// step is how many offsets a request ahead brings: the last batch of a reply may not have found room.
func (l *lane) step(chunk int64) int64 {
	return max(int64(l.care*(l.span*float64(chunk)-float64(l.most))), 1)
}

// wantAhead tells a lane where the caller goes on. False: this is not a partition that is read ahead, or not any more.
func (f *fetcher) wantAhead(position mirror.FetchPosition) bool {
	l := f.ahead.lanes[position.TopicPartition]
	if l == nil {
		return false
	}
	if position.TopicID != l.want.TopicID || position.LeaderEpoch != l.want.LeaderEpoch || position.Offset != l.want.Offset {
		f.endLane(l)
		return false
	}
	l.want, l.wanted = position, true
	return true
}

// endLane leaves a partition to the ordinary requests. What is under way for it is dropped as it comes.
func (f *fetcher) endLane(l *lane) {
	delete(f.ahead.lanes, l.want.TopicPartition)
	if l.wanted {
		f.session.want(l.want)
	}
}

func (f *fetcher) endLanes() {
	for _, l := range f.ahead.lanes {
		f.endLane(l)
	}
}

// fill sends requests ahead, for each lane its share.
func (f *fetcher) fill() {
	bound := f.aheadBound()
	for _, l := range f.ahead.lanes {
		share := max(bound/int64(len(f.ahead.lanes))/f.ahead.chunk, 2)
		for int64(len(l.chunks)) < share && f.ahead.bytes+f.ahead.chunk <= bound && l.next < l.highWatermark {
			f.sendAhead(l)
		}
		if len(l.chunks) == 0 && l.next >= l.highWatermark {
			f.endLane(l) // it has caught up
		}
	}
}

// sendAhead sends one request for where a lane will probably go on.
func (f *fetcher) sendAhead(l *lane) {
	c := &chunk{at: l.next}
	l.chunks = append(l.chunks, c)
	l.next += l.step(f.ahead.chunk)
	f.ahead.bytes += f.ahead.chunk
	f.source.counter.ahead.Add(1)

	r := kmsg.NewPtrFetchRequest()
	f.fillIn(r)
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = 0, 1, int32(f.ahead.chunk)
	r.SessionID, r.SessionEpoch = 0, -1 // no session
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = l.want.Topic, l.want.TopicID
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = l.want.Partition, c.at, max(int32(f.ahead.chunk), l.want.MaxBytes)
	p.CurrentLeaderEpoch, p.LogStartOffset = l.want.LeaderEpoch, l.want.LogStart
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	sent := time.Now()
	go func() {
		resp, _ := f.exchange(&fetchRequest{r, r.MaxVersion()}) // an ordinary request will meet the same error
		f.mu.Lock()
		defer f.mu.Unlock()
		c.resp, c.done = resp, true
		f.ahead.bytes -= f.ahead.chunk
		f.ahead.came(resp, sent, time.Now())
	}()
}

// came takes note of a reply to a request ahead. Between two of them that were under way at once there is nothing but the bytes of the second.
func (a *ahead) came(resp *kmsg.FetchResponse, sent, now time.Time) {
	if records := onlyPartition(resp); records != nil && sent.Before(a.arrived) {
		rate := float64(len(records.RecordBatches)) / max(now.Sub(a.arrived), 100*time.Microsecond).Seconds()
		a.rate += (rate - a.rate) / 8
	}
	a.arrived = now
	a.tell()
}

// onlyPartition is what a reply to a request ahead says, nil if it is not what was asked for.
func onlyPartition(resp *kmsg.FetchResponse) *kmsg.FetchResponseTopicPartition {
	if resp == nil || resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil
	}
	return &resp.Topics[0].Partitions[0]
}

// exchange sends a request beside others.
func (f *fetcher) exchange(r *fetchRequest) (*kmsg.FetchResponse, error) {
	// Not the caller's context: the client ends a connection whose request is given up, and others wait on it.
	kresp, err := f.seed.Request(context.Background(), r)
	if err != nil {
		return nil, err
	}
	if v := kresp.GetVersion(); v <= byNamesVersion {
		return nil, tooOld(fetchOperation, "Fetch", v, byNamesVersion+1)
	}
	return kresp.(*kmsg.FetchResponse), nil
}

func (a *ahead) tell() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// fetchAhead is Fetch while partitions are read ahead. over: none is any more, and nothing was received that may go without what the others have to say.
func (f *fetcher) fetchAhead(ctx context.Context, bound time.Duration) (reply []mirror.FetchedPartition, over bool, err error) {
	a := &f.ahead
	asked := false // the poll under way was sent in this call, hence for everybody who was wanted before it
	for {
		f.mu.Lock()
		f.tidyLanes()
		records := f.pass()
		f.fill()
		done := a.poll
		if done != nil && done.done {
			a.poll = nil
		} else {
			done = nil
		}
		over = len(a.lanes) == 0 && a.poll == nil
		if !over && a.poll == nil && done == nil && !f.session.idle() && time.Since(a.polls) >= aheadPoll {
			f.sendPoll()
			asked = true
		}
		waiting := false
		for _, l := range a.lanes {
			waiting = waiting || l.wanted
		}
		f.mu.Unlock()

		if done != nil {
			if done.err != nil {
				return nil, false, f.failed(done.err, bound)
			}
			others, err := f.receive(done.resp, done.lost)
			if err != nil && err.Code != mirror.SourceSession { // that session is begun anew with the next poll
				return nil, false, err
			}
			a.kept = append(a.kept, others...)
		}
		// From a reply without records the caller concludes that whoever it leaves out has nothing more to read. Nobody has said so of those that are read ahead.
		if len(records) > 0 || carriesRecords(a.kept) || done != nil && asked && !waiting {
			reply, a.kept = append(a.kept, records...), nil
			return reply, false, nil
		}
		if over {
			return nil, true, nil
		}
		if err := f.awaitNews(ctx); err != nil {
			return nil, false, f.failed(err, bound)
		}
	}
}

// tidyLanes ends the lanes that nobody takes anything from, and all of them where the source or the caller wants less to be read.
func (f *fetcher) tidyLanes() {
	if f.limit > 0 || f.session.byNames() || time.Until(f.throttled) > 0 {
		f.endLanes()
	}
	for _, l := range f.ahead.lanes {
		if !l.wanted && time.Since(l.passed) > aheadPatience {
			f.endLane(l)
		}
	}
}

// pass takes what has come for the lanes that are wanted.
func (f *fetcher) pass() []mirror.FetchedPartition {
	var out []mirror.FetchedPartition
	for _, l := range f.ahead.lanes {
		for l.wanted && len(l.chunks) > 0 && l.chunks[0].done && f.ahead.lanes[l.want.TopicPartition] == l {
			c := l.chunks[0]
			l.chunks = l.chunks[1:]
			if p, some := f.passOne(l, c); some {
				out = append(out, p)
			}
		}
	}
	return out
}

// passOne takes one reply to a request ahead: what of it continues the lane.
func (f *fetcher) passOne(l *lane, c *chunk) (out mirror.FetchedPartition, some bool) {
	rp := onlyPartition(c.resp)
	if rp == nil || rp.ErrorCode != 0 || rp.DivergingEpoch.EndOffset >= 0 || rp.DivergingEpoch.Epoch >= 0 {
		f.lose(1)
		f.endLane(l) // an ordinary request will be told what is wrong
		return out, false
	}
	if c.resp.ThrottleMillis > 0 {
		f.pause = time.Duration(c.resp.ThrottleMillis) * time.Millisecond
		f.throttled = time.Now().Add(f.pause)
	}
	l.highWatermark = max(l.highWatermark, rp.HighWatermark)
	l.lastStable, l.logStart = max(l.lastStable, rp.LastStableOffset), max(l.logStart, rp.LogStartOffset)
	records, found := l.continuation(c.at, rp.RecordBatches)
	switch found {
	case comesTwice:
		f.lose(1)
		return out, false
	case leavesHole:
		f.lose(1 + len(l.chunks))
		l.chunks, l.next = nil, l.want.Offset
		l.care = max(l.care*0.9, leastCare)
		return out, false
	case isOdd:
		f.lose(1)
		f.endLane(l)
		return out, false
	}
	out = mirror.FetchedPartition{
		TopicPartition: l.want.TopicPartition,
		Offset:         l.want.Offset,
		LeaderEpoch:    l.want.LeaderEpoch,
		HighWatermark:  l.highWatermark,
		LastStable:     l.lastStable,
		LogStart:       l.logStart,
		Records:        records,
	}
	l.want.Offset = l.learn(records)
	l.next = max(l.next, l.want.Offset)
	l.wanted, l.passed = false, time.Now()
	return out, true
}

// found is what a reply to a request ahead is to its lane.
type found uint8

const (
	continues  found = iota
	comesTwice       // all of it was passed on before
	leavesHole       // it begins behind where the lane ends
	isOdd            // it has no whole batch, or one that reaches across the lane's end
)

// continuation is what of a reply, to a request for that offset, continues a lane.
func (l *lane) continuation(at int64, records []byte) ([]byte, found) {
	whole := false
	for len(records) > 0 {
		h, n, err := batch.Next(records)
		if err != nil {
			break
		}
		whole = true
		if h.NextOffset() <= l.want.Offset {
			records = records[n:]
			continue
		}
		switch {
		case h.BaseOffset < l.want.Offset:
			return nil, isOdd
		case h.BaseOffset > l.want.Offset && at > l.want.Offset:
			return nil, leavesHole // where the request asked for the lane's end or less, it is a hole of the log itself: its cleaner leaves such
		}
		return records, continues
	}
	if !whole {
		return nil, isOdd
	}
	return nil, comesTwice
}

func (f *fetcher) lose(replies int) { f.source.counter.aheadLost.Add(int64(replies)) }

// sendPoll asks for those that are not read ahead. Fetch receives the answer.
func (f *fetcher) sendPoll() {
	a := &f.ahead
	p := &pollRequest{lost: f.session.lost}
	r := f.session.build(f.options.PartitionMaxBytes)
	f.fillIn(r)
	r.MaxWaitMillis = 0
	a.poll, a.polls = p, time.Now()
	go func() {
		resp, err := f.exchange(&fetchRequest{r, r.MaxVersion()})
		f.mu.Lock()
		defer f.mu.Unlock()
		p.resp, p.err, p.done = resp, err, true
		a.tell()
	}()
}

// awaitNews waits until something arrives or a poll may be due.
func (f *fetcher) awaitNews(ctx context.Context) error {
	timer := time.NewTimer(aheadPoll)
	defer timer.Stop()
	select {
	case <-f.ahead.news:
	case <-timer.C:
	case <-f.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func carriesRecords(reply []mirror.FetchedPartition) bool {
	return slices.ContainsFunc(reply, func(p mirror.FetchedPartition) bool { return len(p.Records) > 0 })
}
