package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/mirror"
)

// model is a Log as simple as it can be.
type model struct {
	start, end int64
	batches    []made
	open       bool
}

func (m *model) append(b made) bool {
	first := m.start == m.end && b.base <= m.start && b.next > m.start
	if b.base < m.end && !first {
		return false
	}
	m.batches = append(m.batches, b)
	m.end = b.next
	return true
}

// truncate gives the range in which the new end must lie.
func (m *model) truncate(to int64) (low, high int64) {
	switch {
	case to >= m.end:
		return m.end, m.end
	case to <= m.start:
		m.batches, m.start, m.end = nil, to, to
		return to, to
	}
	low, high = m.start, to
	for i, b := range m.batches {
		if b.next > to {
			high = max(min(to, b.base), m.start)
			m.batches = slices.Clone(m.batches[:i])
			break
		}
		low = max(b.next, m.start)
	}
	return low, high
}

func (m *model) raiseStart(to int64) {
	m.start = max(m.start, to)
	m.batches = slices.DeleteFunc(slices.Clone(m.batches), func(b made) bool { return b.next <= m.start })
}

// read is everything from the batch that contains from on.
func (m *model) read(from int64) []made {
	for i, b := range m.batches {
		if b.next > from {
			return m.batches[i:]
		}
	}
	return nil
}

// checkModel does random operations on a log and on the model. Replication is not held: Replicated may follow at its own pace.
func checkModel(t testing.TB, factory Factory) {
	rapid.Check(t, func(r *rapid.T) {
		s := factory(t)
		defer closeSubject(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		m := &model{}
		serial := uint64(0)
		ok := func(what string, err error) {
			r.Helper()
			if err != nil {
				r.Fatalf("%s: %v", what, err)
			}
		}
		fenced := func(what string, err error) {
			r.Helper()
			if !errors.Is(err, mirror.ErrFenced) {
				r.Fatalf("%s of an open log: %v, not ErrFenced", what, err)
			}
		}
		near := func(label string) int64 {
			return rapid.Int64Range(max(m.start-4, 0), m.end+4).Draw(r, label)
		}
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				var some []made
				next := *m
				next.batches = slices.Clone(m.batches)
				inOrder := true
				base := m.end
				for range rapid.IntRange(1, 4).Draw(r, "batches") {
					switch rapid.IntRange(0, 9).Draw(r, "place") {
					case 0:
						base += rapid.Int64Range(1, 5).Draw(r, "gap")
					case 1:
						base = max(base-rapid.Int64Range(1, 9).Draw(r, "below"), 0)
					}
					serial++
					n := rapid.Int32Range(1, 8).Draw(r, "records")
					b := hole(base, n, n-1+rapid.Int32Range(0, 2).Draw(r, "hole"))
					if rapid.Bool().Draw(r, "other bytes") {
						b = other(base, n)
					}
					some = append(some, b)
					if inOrder {
						inOrder = next.append(b)
					}
					base = max(b.next, base)
				}
				err := s.Log.Append(ctx, s.Log.LeaderEpoch(), join(some...))
				switch {
				case m.open:
					if !errors.Is(err, mirror.ErrFenced) {
						r.Fatalf("append of %v to an open log: %v", some, err)
					}
				case inOrder:
					ok(fmt.Sprintf("append of %v at %d", some, m.end), err)
					*m = next
				default:
					if !errors.Is(err, mirror.ErrOutOfOrder) {
						r.Fatalf("append of %v at %d: %v, not ErrOutOfOrder", some, m.end, err)
					}
					// A prefix of the batches in order may be there.
					for _, b := range some {
						if m.end >= s.Log.End() || !m.append(b) {
							break
						}
					}
				}
			},
			"fenced append": func(r *rapid.T) {
				epoch := s.Log.LeaderEpoch() + rapid.SampledFrom([]int32{-2, -1, 1, 2}).Draw(r, "epoch")
				if err := s.Log.Append(ctx, epoch, data(m.end, 1).bytes); !errors.Is(err, mirror.ErrFenced) {
					r.Fatalf("append under leader epoch %d, the log's is %d: %v", epoch, s.Log.LeaderEpoch(), err)
				}
			},
			"truncate": func(r *rapid.T) {
				to := near("to")
				if m.open {
					_, err := s.Log.TruncateTo(ctx, to)
					fenced(fmt.Sprintf("truncation to %d", to), err)
					return
				}
				low, high := m.truncate(to)
				end, err := s.Log.TruncateTo(ctx, to)
				ok("truncate", err)
				if end != s.Log.End() || end < low || end > high {
					r.Fatalf("truncation to %d returned %d, End %d; it should be %d to %d", to, end, s.Log.End(), low, high)
				}
				m.end = end
				if m.start > m.end {
					m.start = m.end
				}
			},
			"reset": func(r *rapid.T) {
				to := near("to")
				if m.open {
					fenced(fmt.Sprintf("reset to %d", to), s.Log.ResetTo(ctx, to))
					return
				}
				ok("reset", s.Log.ResetTo(ctx, to))
				*m = model{start: to, end: to, open: m.open}
			},
			"raise start": func(r *rapid.T) {
				to := near("to")
				ok("await replicated", s.Log.AwaitReplicated(ctx, m.end))
				if m.open {
					fenced(fmt.Sprintf("raise start to %d", to), s.Log.RaiseStart(ctx, to))
					return
				}
				ok("raise start", s.Log.RaiseStart(ctx, to))
				m.raiseStart(min(to, m.end))
			},
			"read": func(r *rapid.T) {
				from, limit := near("from"), rapid.IntRange(1, 2000).Draw(r, "max")
				b, err := s.Log.Read(ctx, from, limit)
				if from < m.start || from > m.end {
					if !errors.Is(err, mirror.ErrOffsetOutOfRange) {
						r.Fatalf("read at %d of [%d, %d]: %v", from, m.start, m.end, err)
					}
					return
				}
				ok("read", err)
				var want []byte
				for i, w := range m.read(from) {
					if i > 0 && len(want)+len(w.bytes) > limit {
						break
					}
					want = append(want, w.bytes...)
				}
				if string(b) != string(want) {
					r.Fatalf("read at %d of at most %d bytes: %s, it should be %s", from, limit, describe(b), describe(want))
				}
			},
			"open": func(r *rapid.T) {
				ok("open", s.Log.Open(ctx))
				m.open = true
			},
			"close": func(r *rapid.T) {
				ok("close", s.Log.CloseForWrites(ctx))
				m.open = false
			},
			"": func(r *rapid.T) {
				if s.Log.Start() != m.start || s.Log.End() != m.end {
					r.Fatalf("the log is [%d, %d], it should be [%d, %d]", s.Log.Start(), s.Log.End(), m.start, m.end)
				}
				if p := s.Log.Replicated(); p < m.start || p > m.end {
					r.Fatalf("Replicated is %d in [%d, %d]", p, m.start, m.end)
				}
				all, err := everything(ctx, s.Log, 1<<20)
				ok("read", err)
				if string(all) != string(join(m.batches...)) {
					r.Fatalf("the log holds %s, it should hold %s", describe(all), describe(join(m.batches...)))
				}
				o, epoch, err := s.Log.Owner(ctx)
				ok("owner", err)
				if (o == mirror.OwnerOpen) != m.open || epoch != s.Log.LeaderEpoch() {
					r.Fatalf("owner %s, epoch %d; open should be %v, the leader epoch is %d", o, epoch, m.open, s.Log.LeaderEpoch())
				}
			},
		})
	})
}
