package replicaserver

import (
	"context"
	"errors"
	"time"
)

// readBack is one reading of batches that are not in memory. It runs beside the Fetches of its session, which are not held up by it: what it brought is in the answer to the first one after it.
type readBack struct {
	cancel context.CancelFunc
	size   int   // what it may bring, but for one batch that is larger
	epoch  int32 // leader epoch of the answer that asked for it: what was read under another one may not be the log any more

	// Guarded by the session's mutex until done is seen.
	done  bool
	bytes []byte
	err   error
}

// readBackOf completes an answer that says that batches must be read back: with those that were, or by asking for them.
func (s *session) readBackOf(e *entry, a FetchAnswer) FetchAnswer {
	b := e.back
	if b != nil && b.epoch != a.LeaderEpoch {
		s.dropBack(e)
		b = nil
	}
	if b == nil {
		if !e.wanted {
			e.wanted = true
			s.wants = append(s.wants, e)
		}
		return a
	}
	s.mu.Lock()
	done := b.done
	s.mu.Unlock()
	switch {
	case !done:
	case b.err != nil || len(b.bytes) == 0:
		s.dropBack(e)
		a.Code = codeStorageError // the follower tries again after a moment (replica.fetch.backoff.ms)
	default:
		a.Batches, a.Size = [][]byte{b.bytes}, len(b.bytes)
	}
	return a
}

// dropBack forgets what was or is being read back for a partition.
func (s *session) dropBack(e *entry) {
	e.wanted = false
	if b := e.back; b != nil {
		b.cancel()
		s.backBytes -= b.size
		e.back = nil
	}
}

// reads says whether a reading back runs.
func (s *session) reads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backs > 0
}

// startReadBacks begins to read back what is wanted, as much at a time as the limits allow.
func (f *fetching) startReadBacks() {
	s := f.session
	limit := min(f.maxBytes, maxReadBackMemory)
	n := 0
	for ; n < len(s.wants); n++ {
		e := s.wants[n]
		if e.gone || !e.wanted {
			continue
		}
		size := min(max(1, int(e.maxBytes)), max(1, f.maxBytes))
		s.mu.Lock()
		full := s.backs >= readBacksAtOnce || s.backBytes > 0 && s.backBytes+size > limit
		if !full {
			s.backs++
		}
		s.mu.Unlock()
		if full {
			break
		}
		e.wanted = false
		ctx, cancel := context.WithTimeout(s.context, f.server.config.ReadBackBound)
		e.back = &readBack{cancel: cancel, size: size, epoch: e.answer.LeaderEpoch}
		s.backBytes += size
		f.server.open.Add(1)
		go f.server.readBack(ctx, s, e, e.back, e.part, e.offset)
	}
	s.wants = append(s.wants[:0], s.wants[n:]...)
}

// readBack reads, when it is its turn, and wakes the partition.
func (s *Server) readBack(ctx context.Context, in *session, e *entry, b *readBack, part Partition, from int64) {
	defer s.open.Done()
	defer b.cancel()
	started := time.Now()
	var bytes []byte
	var err error
	select {
	case s.backs <- struct{}{}:
		bytes, err = part.ReadBack(ctx, from, b.size)
		<-s.backs
	case <-ctx.Done():
		err = ctx.Err()
	}
	if f := s.config.Observer.ReadBack; f != nil {
		f(time.Since(started), len(bytes), err)
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.log.Warn("batches for a follower could not be read back; it asks again", "broker", in.broker, "topic", e.key.topic, "partition", e.key.partition, "offset", from, "error", err)
	}
	in.mu.Lock()
	b.done, b.bytes, b.err = true, bytes, err
	in.backs--
	in.mu.Unlock()
	in.wake(e)
}
