package logtest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
)

// checkConcurrency reads, asks and waits while another goroutine appends and raises the start. Every read must be a stretch of what was appended.
func checkConcurrency(t testing.TB, s Subject) {
	const batches, each = 300, 3
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	var all []byte
	at := map[int64]int{} // base → place in all
	for i := range int64(batches) {
		at[i*each] = len(all)
		all = append(all, data(i*each, each).bytes...)
	}
	at[batches*each] = len(all)

	done := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for from := int64(0); ; {
				select {
				case <-done:
					return
				default:
				}
				replicatedAt, end := s.Log.Replicated(), s.Log.End()
				if replicatedAt > end {
					t.Errorf("Replicated %d was above End %d", replicatedAt, end)
					return
				}
				b, err := s.Log.Read(ctx, from, 2000)
				if errors.Is(err, mirror.ErrOffsetOutOfRange) {
					from = s.Log.Start()
					continue
				}
				if err != nil {
					t.Errorf("read at %d: %v", from, err)
					return
				}
				n := 0
				for info, whole := range mirror.Batches(b) {
					place, ok := at[info.Base]
					if !ok || !bytes.HasPrefix(all[place:], whole) {
						t.Errorf("read at %d returned a batch at %d that was not appended", from, info.Base)
						return
					}
					n += len(whole)
					from = info.Next()
				}
				if n < len(b) {
					t.Errorf("read returned %d bytes that are no whole batch", len(b)-n)
					return
				}
				if from >= batches*each {
					from = s.Log.Start()
				}
				if _, _, err := s.Log.Owner(ctx); err != nil {
					t.Errorf("Owner: %v", err)
					return
				}
			}
		})
	}
	others.Go(func() {
		if err := s.Log.AwaitReplicated(ctx, batches*each); err != nil {
			t.Errorf("AwaitReplicated: %v", err)
		}
	})
	for i := range int64(batches) {
		place := at[i*each]
		if err := s.Log.Append(ctx, s.Log.LeaderEpoch(), bytes.Clone(all[place:at[(i+1)*each]])); err != nil {
			t.Errorf("append: %v", err)
			break
		}
		if i%50 == 49 {
			if err := s.Log.AwaitReplicated(ctx, (i+1)*each); err != nil {
				t.Errorf("AwaitReplicated: %v", err)
				break
			}
			if err := s.Log.RaiseStart(ctx, i); err != nil {
				t.Errorf("RaiseStart: %v", err)
				break
			}
		}
	}
	close(done)
	if s.Log.End() != batches*each {
		cancel() // who waits for more waits in vain
	}
	others.Wait()
	if s.Log.End() != batches*each {
		t.Errorf("End is %d after appends up to %d", s.Log.End(), batches*each)
	}
}
