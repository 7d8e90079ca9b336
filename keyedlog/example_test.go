package keyedlog_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Two processes on one log: whoever opens a name fences the one before, and what a name has written is its own.
func Example() {
	ctx := context.Background()
	log := keyedlog.NewMemory()
	value := func(s string) func(keyedlog.View) ([]keyedlog.Change, error) {
		return func(keyedlog.View) ([]keyedlog.Change, error) {
			return []keyedlog.Change{{Key: []byte("report"), Value: []byte(s)}}, nil
		}
	}
	keys := [][]byte{[]byte("report")}

	first, _ := log.Open(ctx, "node-1")
	_ = first.Update(ctx, keys, value("in step"))
	second, _ := log.Again().Open(ctx, "node-1") // the process was started again, elsewhere
	err := first.Update(ctx, keys, value("in step, so I believe"))
	fmt.Println("first:", errors.Is(err, keyedlog.ErrFenced))
	fmt.Println("second:", second.Update(ctx, keys, value("catching up")))

	err = log.Update(ctx, value("from nowhere"))
	fmt.Println("nobody:", errors.Is(err, keyedlog.ErrOwned))
	_ = log.Read(ctx, func(v keyedlog.View) error {
		r, _ := v.Get([]byte("report"))
		fmt.Printf("%s, by session %d of %s\n", r.Value, r.Session, r.Writer)
		return nil
	})
	// Output:
	// first: true
	// second: <nil>
	// nobody: true
	// catching up, by session 2 of node-1
}

// The states of partitions on a keyed log, and the bytes that they are there (KIP-1279's __mirror_state).
func ExampleNewStateStore() {
	ctx := context.Background()
	log := keyedlog.NewMemory()
	store := keyedlog.NewStateStore(log)

	session, _ := store.Open(ctx, "node-1")
	key := statemachine.Key{Mirror: "a-to-b", TopicID: statemachine.TopicID{15: 1}}
	preparing, _ := statemachine.Move(statemachine.NewPartitionState(), statemachine.Preparing)
	results, err := session.Write(ctx, []statemachine.Write{{Key: key, LeaderEpoch: 4, State: &preparing}})
	fmt.Println("state epoch", results[0].StateEpoch, err)

	_, _ = store.Open(ctx, "node-1")
	_, err = session.Write(ctx, nil) // the heartbeat
	fmt.Println("fenced:", errors.Is(err, statemachine.ErrFenced))

	_ = store.Load(ctx, func(e statemachine.Entry) error {
		fmt.Println(e.Key, e.Owner, e.State.State)
		return nil
	})
	_ = log.Read(ctx, func(v keyedlog.View) error {
		return v.Each(nil, func(r keyedlog.Record) error {
			fmt.Printf("%x\n%x\n", r.Key, r.Value)
			return nil
		})
	})
	// Output:
	// state epoch 1 <nil>
	// fenced: true
	// a-to-b:AAAAAAAAAAAAAAAAAAAAAQ:0 node-1 PREPARING
	// 00020006612d746f2d620000000000000000000000000000000100000000
	// 00000000000004000000010000001001000400000001
}
