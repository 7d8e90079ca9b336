package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// vanished looks whether the topics that are mirrored still are at the destination, and still are the ones whose logs are open here: without a new record at the source nobody asks
// a log for anything. It costs one question for each topic, however many partitions it has, some at a time, and nobody waits for it.
type vanished struct {
	m    *Mirror
	turn semaphore // one look at a time
}

// atOnce is how many topics are asked for at the same time: a Destination may gather them.
const atOnce = 32

// look begins a look, unless the last one is not over.
func (v *vanished) look() {
	select {
	case v.turn <- struct{}{}:
	default:
		return
	}
	v.m.spawn(func() {
		defer v.turn.release()
		ctx, stop := context.WithTimeout(v.m.ctx, v.m.cfg.CallBound)
		defer stop()
		names := make(chan string)
		var wg sync.WaitGroup
		topics := v.m.memberTopics()
		for range min(atOnce, len(topics)) {
			wg.Go(func() {
				for name := range names {
					v.lookAt(ctx, name)
				}
			})
		}
		for _, name := range topics {
			names <- name
		}
		close(names)
		wg.Wait()
	})
}

func (v *vanished) lookAt(ctx context.Context, name string) {
	m := v.m
	m.mu.Lock()
	t := m.topics[name]
	if t == nil || t.busy || t.checking || len(t.partitions) == 0 {
		m.mu.Unlock()
		return // it is looked up, or was never found
	}
	id, runners := t.id, t.partitions
	m.mu.Unlock()
	why := v.gone(ctx, name, id)
	if why == "" || v.gone(ctx, name, id) != why {
		return
	}
	m.mu.Lock()
	same := m.topics[name] == t && t.id == id && !t.busy && !t.checking && len(t.partitions) == len(runners)
	m.mu.Unlock()
	if !same {
		return
	}
	for _, r := range runners {
		r.send(partition.Event{Kind: partition.FailPartition, NonRetryable: true, Err: errors.New(why)})
	}
}

// gone is why a topic's logs are its logs no more; "": they are, or nobody knows.
func (v *vanished) gone(ctx context.Context, name string, id TopicID) string {
	const advice = "stop the topic, and start it to copy it anew"
	have, err := v.m.cfg.Destination.Topic(ctx, name)
	switch {
	case errors.Is(err, ErrUnknownTopic):
		return "the destination topic is deleted, and with it the copy; " + advice
	case err == nil && have.ID != id:
		return fmt.Sprintf("destination topic id %v → %v: the topic was deleted and created again, and the copy is gone with the old one; nothing was written into the new one: %s", id, have.ID, advice)
	}
	return ""
}
