package producerstate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// Manager is the state of one log. Not safe for concurrent use. Pure: no clock, no I/O.
type Manager struct {
	current    state
	start      int64     // the log's start: what lies wholly below it is forgotten
	highest    int64     // producer id
	aborted    []Aborted // in order of LastOffset
	points     []point   // in order of next; see points.go
	pointEvery int       // batches between two points at least
	sincePoint int       // batches observed since the newest point
	observed   uint64    // batches observed in all
}

// state is what differs from one offset of the log to the next and cannot be found by looking back from the end.
type state struct {
	next      int64
	isReset   bool // the batch that ends at next is a MIRROR_PID_RESET
	producers producers
	open      openTransactions
	decided   decidedTransactions
}

// New returns the state of an empty log.
func New() *Manager {
	return &Manager{current: emptyAt(0), highest: -1, pointEvery: pointInterval}
}

func emptyAt(offset int64) state {
	return state{next: offset}
}

// Observe applies whole, checked batches in log order, as replication does: no sequence and no duplicate check, an older producer epoch is taken as it is;
// markers of both transaction versions close what is open (a v2 marker carries a higher epoch than the data, KIP-890). A marker of a producer with nothing open
// updates its epochs. A control batch that compaction emptied says nothing; other control types are ignored.
// MIRROR_PID_RESET empties the producer map, producers seen earlier in the same call included; open transactions are not touched by it (spec §5),
// and a marker after it still closes them. Batches wholly below Next are known already and passed over, so observing a batch twice does no harm.
// The bytes are not kept.
// Errors: *TransactionError, *batch.CorruptError for a control batch that cannot be read, what batch.Next says of bytes that are no whole batch.
// On an error batches before the bad one are applied and Next says where it stands.
func (m *Manager) Observe(batches []byte) error {
	for len(batches) > 0 {
		h, n, err := batch.Next(batches)
		if err != nil {
			return fmt.Errorf("producer state at %d: %w", m.current.next, err)
		}
		if h.NextOffset() > m.current.next {
			if err := m.observe(batches[:n], &h); err != nil {
				return err
			}
		}
		batches = batches[n:]
	}
	return nil
}

func (m *Manager) observe(b []byte, h *batch.Header) error {
	isReset := false
	switch {
	case !h.Control():
		if h.ProducerID >= 0 {
			if err := m.current.data(h); err != nil {
				return err
			}
		}
	case h.RecordCount > 0:
		c, err := batch.ReadControl(b, h)
		if err != nil {
			return fmt.Errorf("producer state at %d: %w", m.current.next, err)
		}
		switch c.Type {
		case batch.ControlMirrorPIDReset:
			isReset = true
			m.current.reset()
		case batch.ControlAbort, batch.ControlCommit:
			if h.ProducerID >= 0 {
				m.marker(h, c)
			}
		}
	}
	m.highest = max(m.highest, h.ProducerID)
	m.current.next = h.NextOffset()
	m.current.isReset = isReset
	m.observed++
	m.maybeKeepPoint()
	return nil
}

// data applies a data batch of a producer. Also one that compaction emptied: it is kept because it says the producer's last sequence.
func (s *state) data(h *batch.Header) error {
	p := s.producers[h.ProducerID]
	if p != nil && p.OpenSince >= 0 && !h.Transactional() {
		return &TransactionError{ProducerID: h.ProducerID, Offset: h.BaseOffset, OpenSince: p.OpenSince}
	}
	if p == nil {
		p = s.producers.add(h.ProducerID)
	}
	p.Epoch = h.ProducerEpoch
	p.LastSequence = h.LastSequence()
	p.LastOffset = h.LastOffset()
	p.LastTimestamp = h.MaxTimestamp
	p.seen = h.LastOffset()
	if !h.Transactional() {
		return nil
	}
	if p.OpenSince < 0 {
		p.OpenSince = s.open.adopt(h.ProducerID)
	}
	if p.OpenSince < 0 {
		p.OpenSince = h.BaseOffset
		s.open.begin(Transaction{
			ProducerID:       h.ProducerID,
			FirstOffset:      h.BaseOffset,
			CoordinatorEpoch: p.CoordinatorEpoch,
			FirstTimestamp:   firstTimestamp(h),
		})
	}
	t := s.open.at(p.OpenSince)
	t.ProducerEpoch = h.ProducerEpoch
	t.LastOffset = h.LastOffset()
	return nil
}

// firstTimestamp is the time of a batch's first record, as exactly as the header tells: the base timestamp, unless something else stands there.
func firstTimestamp(h *batch.Header) int64 {
	if h.LogAppendTime() || h.DeleteHorizon() {
		return h.MaxTimestamp
	}
	return h.BaseTimestamp
}

// marker applies an ABORT or COMMIT. Epochs are taken as they are, older ones too: the source has decided already.
func (m *Manager) marker(h *batch.Header, c batch.Control) {
	s := &m.current
	p := s.producers[h.ProducerID]
	if p == nil {
		p = s.producers.add(h.ProducerID)
	}
	first := p.OpenSince
	if first < 0 {
		first = s.open.adopt(h.ProducerID)
	}
	if p.Epoch != h.ProducerEpoch {
		// Under a new epoch sequences begin anew.
		p.LastSequence, p.LastOffset = -1, -1
	}
	p.Epoch = h.ProducerEpoch
	p.CoordinatorEpoch = c.CoordinatorEpoch
	p.LastTimestamp = h.MaxTimestamp
	p.OpenSince = -1
	p.seen = h.LastOffset()
	if first < 0 {
		return
	}
	s.open.end(first)
	s.decided.add(first, h.LastOffset())
	if c.Type == batch.ControlAbort {
		m.aborted = append(m.aborted, Aborted{
			ProducerID:  h.ProducerID,
			FirstOffset: first,
			LastOffset:  h.LastOffset(),
			LastStable:  s.open.oldest(h.NextOffset()),
		})
	}
}

// reset is what MIRROR_PID_RESET does.
func (s *state) reset() {
	clear(s.producers)
	s.open.orphan()
}

// Next is the offset after the last batch that was observed (or the offset given to Restore, TruncateTo's result …); 0 for New.
func (m *Manager) Next() int64 { return m.current.next }

// LastStable is the last stable offset below end: the first offset of the oldest transaction that is open at end, or end. A transaction whose marker
// lies at or above end is open there: give the high watermark as end, and a marker that may still be lost decides nothing (Kafka: unreplicated transactions).
// It is never below the log's start, except where end is. Far below Next, where many transactions were decided since, it may be too low, never too high.
func (m *Manager) LastStable(end int64) int64 {
	stable := m.current.decided.oldest(end, m.current.open.oldest(end))
	return max(stable, min(m.start, end))
}

// InFlight lists the open transactions in order of first offset. The slice is the caller's.
func (m *Manager) InFlight() []Transaction {
	return m.current.open.appendTo(make([]Transaction, 0, m.current.open.count()))
}

// Aborted lists the aborted transactions that overlap [from, to), in order of LastOffset. The slice is the caller's.
func (m *Manager) Aborted(from, to int64) []Aborted {
	i, _ := slices.BinarySearchFunc(m.aborted, from, func(a Aborted, from int64) int { return cmp.Compare(a.LastOffset, from) })
	var found []Aborted
	for _, a := range m.aborted[i:] {
		if a.FirstOffset < to {
			found = append(found, a)
		}
		// Whatever ends later began at or after what was stable then.
		if a.LastStable >= to {
			break
		}
	}
	return found
}

// Producers lists the producers in order of id. The slice is the caller's.
func (m *Manager) Producers() []Producer {
	list := make([]Producer, 0, len(m.current.producers))
	for _, p := range m.current.producers.appendSorted(nil) {
		list = append(list, p.Producer)
	}
	return list
}

// HighestProducerID is the greatest id ever observed in the log (resets and truncation do not lower it), -1 if none.
func (m *Manager) HighestProducerID() int64 { return m.highest }

// LastIsReset says that the last observed batch is a MIRROR_PID_RESET.
func (m *Manager) LastIsReset() bool { return m.current.isReset }

// Expire forgets producers that have nothing open and whose last batch is older than before (milliseconds), as a broker does after producer.id.expiration.ms.
// The caller has the clock. A truncation may bring them back until the next Expire.
func (m *Manager) Expire(before int64) {
	for id, p := range m.current.producers {
		if p.OpenSince < 0 && p.LastTimestamp < before {
			delete(m.current.producers, id)
		}
	}
}
