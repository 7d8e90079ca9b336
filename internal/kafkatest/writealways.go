package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
)

const (
	writePause = 30 * time.Millisecond // between two rounds of one way
	writeLimit = 3 * time.Second       // of one attempt
)

// Way is one of the ways in which a Writer tries to write.
type Way struct {
	Address    string // whom the request is sent to
	Acks       int16  // 0, 1, or -1 for all
	Idempotent bool
}

// Write is one record that a Writer tried to write. Its value names all this, see Writer.FindIn.
type Write struct {
	Way
	Number    int64 // unique among the Writer's attempts
	Topic     string
	Partition int32
}

// Success is a write that was appended by the one who was asked, by its own word. With acks=0 there is no word.
type Success struct {
	Write
	Time   time.Time // when the answer came
	Offset int64
	// Err is nil, or what a leader says after it has appended the record: REQUEST_TIMED_OUT or NOT_ENOUGH_REPLICAS_AFTER_APPEND.
	Err error
}

// Writer is what WriteAlways started. Methods are safe for concurrent use, but for WaitRounds.
type Writer struct {
	c      *Cluster
	marker string
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	number    int64
	rounds    map[Way]int
	answers   map[Way]map[string]int
	successes []Success
}

// WriteAlways starts to write to the partitions (by topic) all the time, until Stop or the end of the test, as a client would that does not care who the leader is: one Produce request
// for each record, sent to the INTERNAL listener of every broker, and to the further addresses, which have the same security; with acks 0, 1 and all, each with and without a producer
// id. Requests are sent whether or not the listener offers Produce, and go on through every error. An idempotent attempt has sequence 0 and a producer epoch of its own, higher
// than the one before, so no earlier attempt stands in its way.
func (c *Cluster) WriteAlways(partitions map[string][]int32, further ...string) *Writer {
	c.t.Helper()
	id := make([]byte, 8)
	rand.Read(id)
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{c: c, marker: "kafkatest-write-" + hex.EncodeToString(id), cancel: cancel, rounds: map[Way]int{}, answers: map[Way]map[string]int{}}
	var ways []Way
	for _, addr := range append(c.internalAddresses(), further...) {
		for _, acks := range []int16{0, 1, -1} {
			for _, idempotent := range []bool{false, true} {
				way := Way{Address: addr, Acks: acks, Idempotent: idempotent}
				w.rounds[way], w.answers[way] = 0, map[string]int{}
				ways = append(ways, way)
			}
		}
	}
	for _, way := range ways { // only now: what has begun writes into the maps
		w.done.Go(func() { w.write(ctx, way, partitions) })
	}
	c.t.Cleanup(w.Stop)
	return w
}

// Stop ends all attempts and waits for that. A record whose attempt was under way may still be appended.
func (w *Writer) Stop() {
	w.cancel()
	w.done.Wait()
}

// Marker is what the value of every record of this Writer begins with, and no other record.
func (w *Writer) Marker() string { return w.marker }

// Successes lists what got through so far, in the order of the answers. Writes with acks=0 are not among them: look for them with FindIn.
func (w *Writer) Successes() []Success {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.successes)
}

// Answers tells how often each way got which answer: the name of Kafka's error (kerr.NotLeaderForPartition.Message), "appended", "sent" (acks=0, and the connection stayed up), "closed" (acks=0, and it did not: a broker's
// sign of an error), "no answer", "no connection", or "no producer id". It has all ways, so that a test can see that each was tried.
func (w *Writer) Answers() map[Way]map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[Way]map[string]int{}
	for way, counts := range w.answers {
		all[way] = maps.Clone(counts)
	}
	return all
}

// FindIn lists the writes whose records are in the given bytes of an uncompressed log (SegmentBytes), in the order of their first place there. It finds what was written with acks=0, and
// attempts that were appended though no answer came.
func (w *Writer) FindIn(segments []byte) []Write {
	pattern := regexp.MustCompile(regexp.QuoteMeta(w.marker) + `/(\d+)/([^/]+)/(0|1|-1)/(true|false)/([^/]+)/(\d+)/`)
	var found []Write
	seen := map[int64]bool{}
	for _, m := range pattern.FindAllSubmatch(segments, -1) {
		number, _ := strconv.ParseInt(string(m[1]), 10, 64) // the pattern lets only numbers through
		acks, _ := strconv.ParseInt(string(m[3]), 10, 16)
		partition, _ := strconv.ParseInt(string(m[6]), 10, 32)
		if seen[number] {
			continue
		}
		seen[number] = true
		found = append(found, Write{Number: number, Topic: string(m[5]), Partition: int32(partition),
			Way: Way{Address: string(m[2]), Acks: int16(acks), Idempotent: string(m[4]) == "true"}})
	}
	return found
}

func (w *Writer) value(a Write) []byte {
	return fmt.Appendf(nil, "%s/%d/%s/%d/%t/%s/%d/", w.marker, a.Number, a.Address, a.Acks, a.Idempotent, a.Topic, a.Partition)
}

// WaitRounds waits until every way has tried every partition n more times, each attempt begun after the call. Call it after whatever must have become impossible, before looking.
// One that does not answer makes a round as long as 3 s for each partition.
func (w *Writer) WaitRounds(n int) {
	w.c.t.Helper()
	ctx, cancel := w.c.limit()
	defer cancel()
	w.mu.Lock()
	begin := maps.Clone(w.rounds)
	w.mu.Unlock()
	err := poll(ctx, fmt.Sprintf("%d more rounds of every way to write", n), func(context.Context) (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for way, from := range begin {
			if w.rounds[way] < from+n+1 { // one may have been under way
				return false, fmt.Errorf("%+v has made %d", way, w.rounds[way]-from)
			}
		}
		return true, nil
	})
	if err != nil {
		w.c.t.Fatalf("%v", err)
	}
}

// write is the life of one way: round after round over all partitions.
func (w *Writer) write(ctx context.Context, way Way, partitions map[string][]int32) {
	l := &lane{w: w, way: way, producer: -1}
	defer l.hangUp()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		for _, topic := range slices.Sorted(maps.Keys(partitions)) {
			for _, partition := range partitions[topic] {
				l.attempt(ctx, topic, partition)
			}
		}
		w.mu.Lock()
		w.rounds[way]++
		w.mu.Unlock()
		pause.Reset(writePause)
	}
}

// lane is a way's connection and producer.
type lane struct {
	w        *Writer
	way      Way
	conn     *wire // nil: none
	producer int64 // -1: none yet
	epoch    int16
}

func (l *lane) hangUp() {
	if l.conn != nil {
		l.conn.close()
		l.conn = nil
	}
}

func (l *lane) attempt(ctx context.Context, topic string, partition int32) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	l.w.mu.Lock()
	l.w.number++
	a := Write{Way: l.way, Number: l.w.number, Topic: topic, Partition: partition}
	l.w.mu.Unlock()
	answer, success := l.try(ctx, a)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // Stop: whatever it was says nothing
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.answers[l.way][answer]++
	if success != nil {
		l.w.successes = append(l.w.successes, *success)
	}
}

func (l *lane) try(ctx context.Context, a Write) (answer string, success *Success) {
	if l.way.Idempotent {
		if err := l.nextEpoch(ctx); err != nil {
			return "no producer id", nil
		}
	}
	if l.conn == nil {
		conn, err := l.w.c.openWire(ctx, l.way.Address, l.w.c.o.Internal, ownCredentials)
		if err != nil {
			return "no connection", nil
		}
		l.conn = conn
	}
	req := l.request(a)
	if l.way.Acks == 0 {
		if err := l.conn.send(ctx, req); err != nil {
			l.hangUp()
			return "no answer", nil
		}
		// Kafka answers one connection's requests in their order, and closes it on an error of a write that has no answer.
		next := kmsg.NewPtrApiVersionsRequest()
		if _, err := l.conn.ask(ctx, next); err != nil {
			l.hangUp()
			return "closed", nil
		}
		return "sent", nil
	}
	raw, err := l.conn.ask(ctx, req)
	if err != nil {
		l.hangUp()
		return "no answer", nil
	}
	resp := raw.(*kmsg.ProduceResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return "an answer about other partitions", nil
	}
	p := resp.Topics[0].Partitions[0]
	answer = "appended"
	if p.ErrorCode != 0 {
		answer = kerr.TypedErrorForCode(p.ErrorCode).Message
	}
	err = kerr.ErrorForCode(p.ErrorCode)
	if err == nil || errors.Is(err, kerr.RequestTimedOut) || errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		success = &Success{Write: a, Time: time.Now(), Offset: p.BaseOffset, Err: err}
	}
	return answer, success
}

func (l *lane) request(a Write) *kmsg.ProduceRequest {
	spec := batch.DataSpec{LeaderEpoch: -1, ProducerID: -1, BaseTimestamp: time.Now().UnixMilli(), Records: []batch.Record{{Value: l.w.value(a)}}}
	if l.way.Idempotent {
		spec.ProducerID, spec.ProducerEpoch = l.producer, l.epoch
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version = 9 // the newest shape that every broker from 3.9 on reads and that names topics
	req.Acks = l.way.Acks
	req.TimeoutMillis = int32(writeLimit.Milliseconds() / 2)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = a.Topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = a.Partition, batch.AppendData(nil, spec)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// nextEpoch raises the producer's epoch; it takes a producer id from the brokers first, and again when the epochs are used up.
func (l *lane) nextEpoch(ctx context.Context) error {
	if l.producer >= 0 && l.epoch < 32_000 {
		l.epoch++
		return nil
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	resp, err := req.RequestWith(ctx, l.w.c.admin)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	l.producer, l.epoch = resp.ProducerID, resp.ProducerEpoch
	return nil
}
