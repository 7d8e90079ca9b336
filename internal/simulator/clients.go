package simulator

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clienthistory"
	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/producerstate"
)

// clients are everybody who writes to clusters.
type clients struct {
	producers []*producer
	consumers []*consumer
	salt      int
}

// producer is an idempotent or transactional producer. It has an id of one cluster.
type producer struct {
	name    string
	c       *cluster
	id      int64
	epoch   int16
	v2      bool // KIP-890: the end of a transaction raises the epoch
	open    bool // a transaction
	ended   bool // the coordinator has decided; markers may be missing
	commits bool
	wrote   []*written
	seqs    []sequence

	transaction clienthistory.Transaction
}

// written is a partition of a transaction that is not ended there.
type written struct {
	l      *partitionLog
	resets int
}

type sequence struct {
	l      *partitionLog
	resets int
	next   int32
}

func (w *world) producer(name string) *producer {
	for _, p := range w.clients.producers {
		if p.name == name {
			return p
		}
	}
	return nil
}

// register gives a producer an id of a cluster.
func (w *world) register(name string, c *cluster) *producer {
	p := w.producer(name)
	if p == nil {
		p = &producer{name: name}
		w.clients.producers = append(w.clients.producers, p)
	}
	if p.c != c {
		p.c = c
		p.renew()
	}
	return p
}

// renew gives it a new id.
func (p *producer) renew() {
	p.id, p.epoch, p.seqs = p.c.nextID, 0, nil
	p.open, p.ended, p.wrote = false, false, nil
	p.c.nextID++
	p.c.w.tell(func(m *model.World) { m.GivenID(p.c.name, p.id) })
	p.c.w.say("client %s has producer id %d of %s", p.name, p.id, p.c.name)
}

// at is the next sequence for a log. A log that a mirror has ended since knows the producer no more: it needs a new id.
func (p *producer) at(l *partitionLog) *sequence {
	for i := range p.seqs {
		if s := &p.seqs[i]; s.l == l {
			if s.resets != l.resets {
				p.renew()
				break
			}
			return s
		}
	}
	p.seqs = append(p.seqs, sequence{l: l, resets: l.resets})
	return &p.seqs[len(p.seqs)-1]
}

// records makes n records that nobody else has.
func (w *world) records(n int) []batch.Record {
	list := make([]batch.Record, n)
	for i := range list {
		w.clients.salt++
		list[i] = batch.Record{OffsetDelta: int32(i), Value: fmt.Appendf(nil, "%d", w.clients.salt)}
	}
	return list
}

// produce writes one batch; p nil: not idempotent. It says whether the log took it.
func (w *world) produce(l *partitionLog, p *producer, n int, transactional bool) bool {
	by := "plain"
	if p != nil {
		by = p.name
	}
	if l.gone || l.c.lost || l.leaderID() < 0 && l.open {
		return false
	}
	if !l.open {
		return false
	}
	var s *sequence
	if p != nil {
		s = p.at(l) // which may have to give it another id
	}
	if p != nil && !transactional && slices.ContainsFunc(w.history.view(l).InFlight(), func(t producerstate.Transaction) bool { return t.ProducerID == p.id }) {
		return false // INVALID_TXN_STATE: somebody else's transaction of that id is open in a copy that was taken
	}
	spec := batch.DataSpec{BaseOffset: l.end, LeaderEpoch: l.epoch, ProducerID: -1, BaseTimestamp: w.time().UnixMilli(), Records: w.records(n)}
	if p != nil {
		spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence, spec.Transactional = p.id, p.epoch, s.next, transactional
		s.next += int32(n)
	}
	accepted := w.append(l, by, batch.AppendData(nil, spec))
	t := clienthistory.Transaction(0)
	if transactional {
		t = p.transaction
	}
	w.history.produced(l, spec.BaseOffset, n, t, accepted)
	return true
}

func (w *world) append(l *partitionLog, by string, b []byte) (accepted bool) {
	list := heldFrom(b)
	l.add(list)
	for i := range l.replicas {
		if i == l.leader || !l.replicas[i].stuck {
			l.replicas[i].end = l.end
		}
	}
	accepted = true
	for i := range l.replicas {
		accepted = accepted && (!l.replicas[i].inSync || l.replicas[i].end == l.end)
	}
	w.say("client %s writes %v: %s, accepted %v", by, l.at, listOf(list), accepted)
	w.tell(func(m *model.World) { m.Appended(l.at, model.Clients, by, facts(list), accepted) })
	l.follow()
	return accepted
}

// begin begins a transaction.
func (w *world) begin(name string, c *cluster, v2 bool) {
	p := w.producer(name)
	if p != nil && (p.open || p.ended) {
		return
	}
	p = w.register(name, c)
	p.v2, p.open, p.transaction = v2, true, w.history.begin()
}

// send writes to a partition within a transaction.
func (w *world) send(name string, partition int32, topic string, n int) {
	p := w.producer(name)
	if p == nil || !p.open {
		return
	}
	l := p.c.log(topic, partition)
	if l == nil || !l.open {
		return
	}
	id := p.id
	p.at(l)
	if p.id != id { // it had to start over
		p.open, p.transaction = true, w.history.begin()
	}
	if !w.produce(l, p, n, true) {
		return
	}
	for _, x := range p.wrote {
		if x.l == l {
			return
		}
	}
	p.wrote = append(p.wrote, &written{l, l.resets})
}

// end decides a transaction and writes its markers: to all partitions, or to so many (most ≥ 0), the others later.
func (w *world) end(name string, commit bool, most int) {
	p := w.producer(name)
	if p == nil || !p.open && !p.ended || p.c.lost {
		return
	}
	if p.open {
		p.open, p.ended = false, true
		if p.v2 {
			p.epoch++
			for i := range p.seqs {
				p.seqs[i].next = 0
			}
		}
		p.commits = commit
		w.history.ended(p.transaction, commit)
	}
	var left []*written
	for i, x := range p.wrote {
		l := x.l
		switch {
		case l.gone || l.resets != x.resets: // the log was a mirror's meanwhile: its end has decided
		case !l.open:
			left = append(left, x)
		case most >= 0 && i >= most || l.leaderID() < 0:
			left = append(left, x)
		default:
			w.append(l, p.name, marker(l, p, w.time().UnixMilli()))
		}
	}
	p.wrote = left
	p.ended = len(left) > 0
}

// marker is what the coordinator writes.
func marker(l *partitionLog, p *producer, at int64) []byte {
	kind := uint16(batch.ControlAbort)
	if p.commits {
		kind = uint16(batch.ControlCommit)
	}
	return batch.AppendControl(nil, batch.ControlSpec{
		BaseOffset: l.end, LeaderEpoch: l.epoch, ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: -1, Transactional: true, Timestamp: at,
		Key: binary.BigEndian.AppendUint16([]byte{0, 0}, kind), Value: []byte{0, 0, 0, 0, 0, 3},
	})
}

// compact drops records of batches that are replicated: some, or all of a batch.
func (l *partitionLog) compact() bool {
	from, to := int64(-1), int64(-1)
	var list, kept []held
	for i := range l.batches {
		b := &l.batches[i]
		if i == len(l.batches)-1 || b.next() > l.high || b.h.BaseOffset < l.start || b.h.Control() || b.h.Transactional() {
			kept = append(kept, *b)
			continue
		}
		how := l.w.draw(fingerprintOf(l.at)*31+40) % 4
		if how == 0 && b.h.ProducerID < 0 && i > 0 {
			from, to = first(from, b.h.BaseOffset), b.next()
			l.w.history.taken(l, b.h.BaseOffset, b.next(), "compaction")
			continue
		}
		if how == 1 && b.h.RecordCount > 1 {
			records, err := batch.ReadRecords(b.bytes, &b.h)
			if err != nil {
				l.w.wrong(err)
				return false
			}
			h := &b.h
			smaller := batch.AppendData(nil, batch.DataSpec{
				BaseOffset: h.BaseOffset, LeaderEpoch: h.LeaderEpoch, LastOffsetDelta: h.LastOffsetDelta, ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch,
				BaseSequence: h.BaseSequence, BaseTimestamp: h.BaseTimestamp, MaxTimestamp: h.MaxTimestamp, Records: records[1:],
			})
			from, to = first(from, h.BaseOffset), b.next()
			l.w.history.taken(l, h.BaseOffset, h.BaseOffset+int64(records[0].OffsetDelta)+1, "compaction")
			kept = append(kept, heldFrom(smaller)...)
			continue
		}
		kept = append(kept, *b)
	}
	if from < 0 {
		return false
	}
	for i := range kept {
		if kept[i].h.BaseOffset >= from && kept[i].next() <= to {
			list = append(list, kept[i])
		}
	}
	l.batches, l.former = kept, nil
	l.rewrites++
	l.changed = true
	l.w.tell(func(m *model.World) { m.Compacted(l.at, from, to, facts(list)) })
	return true
}

func first(from, base int64) int64 {
	if from < 0 {
		return base
	}
	return from
}
