package replicaserver

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pipeListener hands out connections that need no network, which virtual time can wait for.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects; the connection is the caller's to close.
func (l *pipeListener) dial(t testing.TB) *follower {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return &follower{t: t, conn: ours}
}

// told is what a follower says of a partition.
type told struct {
	epoch     int32
	offset    int64
	lastEpoch int32
	start     int64
	maxBytes  int32
}

// handler is what a follower of Kafka does about sessions (KIP-227, the client's side): it names what changed, and it believes an answer only if it can be one.
type handler struct {
	id, epoch int32
	session   map[partitionKey]told
	maxWait   int32
	maxBytes  int32
}

// build makes the next request for the wanted partitions.
func (h *handler) build(want map[partitionKey]told) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.MaxWaitMillis, req.SessionID, req.SessionEpoch = 18, 1, h.maxBytes, h.maxWait, h.id, h.epoch
	req.ReplicaState.ID, req.ReplicaState.Epoch = 1, 5
	if h.epoch == 0 {
		h.session = nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), compareKeys) {
		p := want[k]
		if old, ok := h.session[k]; ok && old == p {
			continue
		}
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != k.topic {
			t := kmsg.NewFetchRequestTopic()
			t.TopicID = k.topic
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.FetchOffset, rp.LastFetchedEpoch, rp.LogStartOffset, rp.PartitionMaxBytes = k.partition, p.epoch, p.offset, p.lastEpoch, p.start, p.maxBytes
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, rp)
	}
	for k := range h.session {
		if _, ok := want[k]; !ok {
			t := kmsg.NewFetchRequestForgottenTopic()
			t.TopicID, t.Partitions = k.topic, []int32{k.partition}
			req.ForgottenTopics = append(req.ForgottenTopics, t)
		}
	}
	h.session = maps.Clone(want)
	return req
}

// failed notes that a request had no answer: the session is closed by the next one.
func (h *handler) failed() { h.epoch = 0 }

// handle takes an answer; what is in it counts only if it is one to the request.
func (h *handler) handle(resp *kmsg.FetchResponse) (map[partitionKey]*kmsg.FetchResponseTopicPartition, error) {
	if resp.ErrorCode != 0 {
		if h.epoch = 0; resp.ErrorCode == codeSessionNotFound {
			h.id = 0
		}
		return nil, nil
	}
	got := map[partitionKey]*kmsg.FetchResponseTopicPartition{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			k := partitionKey{t.TopicID, t.Partitions[j].Partition}
			if _, ok := h.session[k]; !ok {
				return nil, fmt.Errorf("the answer has %v, which is not in the session", k)
			}
			if got[k] != nil {
				return nil, fmt.Errorf("the answer has %v twice", k)
			}
			got[k] = &t.Partitions[j]
		}
	}
	if h.epoch == 0 && len(got) != len(h.session) {
		return nil, fmt.Errorf("a full answer has %d partitions of %d", len(got), len(h.session))
	}
	switch {
	case resp.SessionID == 0:
		h.id, h.epoch = 0, 0
	case h.epoch == 0:
		h.id, h.epoch = resp.SessionID, 1
	case resp.SessionID != h.id:
		return nil, fmt.Errorf("the answer is of session %d, asked was %d", resp.SessionID, h.id)
	default:
		h.epoch++
	}
	return got, nil
}

func compareKeys(a, b partitionKey) int {
	return slices.Compare(append(a.topic[:], byte(a.partition)), append(b.topic[:], byte(b.partition)))
}

// replica is a follower's copy of a partition.
type replica struct {
	batches     []fakeBatch
	start, high int64
	epoch       int32 // the leader epoch that it knows
	resting     bool  // after an error it does not ask for a while
}

func (r *replica) end() int64 { return r.start + int64(len(r.batches)) }

func (r *replica) told() told {
	last := int32(-1)
	if n := len(r.batches); n > 0 {
		last = r.batches[n-1].epoch
	}
	return told{r.epoch, r.end(), last, r.start, 1 << 20}
}

// take does what a follower does with a partition's answer.
func (r *replica) take(p *kmsg.FetchResponseTopicPartition, l *fakeLog) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch p.ErrorCode {
	case 0:
	case 1: // out of range: it asks where the log is, and starts over there or is cut to it
		if end := l.end(); end < r.end() {
			r.cut(end)
		} else {
			r.batches, r.start = nil, l.start
		}
		return nil
	case codeFencedLeaderEpoch, codeUnknownLeaderEpoch:
		if p.CurrentLeader.LeaderID != 9999 {
			return fmt.Errorf("an error about leader epochs names no leader: %+v", p.CurrentLeader)
		}
		r.epoch = l.epoch
		return nil
	default:
		r.resting = true
		return nil
	}
	if p.DivergingEpoch.EndOffset >= 0 || p.DivergingEpoch.Epoch >= 0 {
		to := min(r.end(), p.DivergingEpoch.EndOffset)
		for i, b := range r.batches {
			if b.epoch > p.DivergingEpoch.Epoch {
				to = min(to, r.start+int64(i))
				break
			}
		}
		if to == r.end() {
			return fmt.Errorf("a diverging epoch %+v cuts nothing from %d", p.DivergingEpoch, r.end())
		}
		r.cut(to)
		return nil
	}
	for b := p.RecordBatches; len(b) > 0; {
		if len(b) < 61 || 12+int(binary.BigEndian.Uint32(b[8:])) > len(b) {
			return fmt.Errorf("a batch is cut off: %d bytes", len(b))
		}
		n := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if offset := int64(binary.BigEndian.Uint64(b)); offset != r.end() {
			return fmt.Errorf("a batch at %d comes to a copy that ends at %d", offset, r.end())
		}
		r.batches = append(r.batches, fakeBatch{r.end(), int32(binary.BigEndian.Uint32(b[12:])), slices.Clone(b[:n])})
		b = b[n:]
	}
	r.high = p.HighWatermark
	if p.LogStartOffset > r.end() {
		return fmt.Errorf("the log begins at %d, behind the copy's end %d, without an error", p.LogStartOffset, r.end())
	}
	for r.start < p.LogStartOffset {
		r.batches, r.start = r.batches[1:], r.start+1
	}
	return nil
}

func (r *replica) cut(to int64) {
	r.high = min(r.high, to)
	if to <= r.start {
		r.batches, r.start = nil, to
		return
	}
	r.batches = r.batches[:to-r.start]
}

// differs says how a copy differs from the log, "" if not.
func (r *replica) differs(l *fakeLog) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := slices.EqualFunc(r.batches, l.batches, func(a, b fakeBatch) bool { return a.offset == b.offset && string(a.bytes) == string(b.bytes) })
	if same && r.start == l.start && r.high == l.high {
		return ""
	}
	return fmt.Sprintf("the copy is [%d, %d) high watermark %d, the log [%d, %d) high watermark %d, bytes equal %v", r.start, r.end(), r.high, l.start, l.end(), l.high, same)
}
