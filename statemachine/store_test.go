package statemachine_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"

	sm "github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/statemachine/storetest"
)

func TestExampleStorePassesTheKit(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) storetest.Fixture {
		path, mu := filepath.Join(tb.TempDir(), "states.json"), new(sync.Mutex)
		open := func() sm.StateStore { return &jsonStore{mu: mu, path: path} }
		return storetest.Fixture{Store: open(), Crash: func() (sm.StateStore, error) { return open(), nil }}
	})
}

func TestMemoryStorePassesTheKit(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture { return storetest.Fixture{Store: new(sm.MemoryStore)} })
}

func TestMemoryStoreZeroValueIsReady(t *testing.T) {
	var m sm.MemoryStore
	if err := m.Load(t.Context(), func(sm.Entry) error { return errors.New("an entry") }); err != nil {
		t.Errorf("Load of a new store: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestMemoryStoreLoadsInOrderOfKey(t *testing.T) {
	var m sm.MemoryStore
	session, err := m.Open(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	inOrder := []sm.Key{
		{Mirror: "a", Partition: 1}, {Mirror: "a", Partition: 2}, {Mirror: "a", Partition: 10}, {Mirror: "a", TopicID: sm.TopicID{1}}, {Mirror: "b"},
	}
	preparing := sm.NewPartitionState()
	preparing.State = sm.Preparing
	for i := range inOrder {
		k := inOrder[(i*3)%len(inOrder)]
		if r, err := session.Write(t.Context(), []sm.Write{{Key: k, LeaderEpoch: -1, State: &preparing}}); err != nil || r[0].Err != nil {
			t.Fatal(r, err)
		}
	}
	i := 0
	if err := m.Load(t.Context(), func(e sm.Entry) error {
		if e.Key != inOrder[i] {
			t.Errorf("entry %d is %v, want %v", i, e.Key, inOrder[i])
		}
		i++
		return nil
	}); err != nil || i != len(inOrder) {
		t.Errorf("%d entries, error %v", i, err)
	}
}

func TestMemoryStoreLoadStopsWhenTheContextEnds(t *testing.T) {
	var m sm.MemoryStore
	session, _ := m.Open(t.Context(), "node-1")
	preparing := sm.NewPartitionState()
	preparing.State = sm.Preparing
	_, _ = session.Write(t.Context(), []sm.Write{{Key: sm.Key{Mirror: "a"}, State: &preparing}, {Key: sm.Key{Mirror: "b"}, State: &preparing}})
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	if err := m.Load(ctx, func(sm.Entry) error { calls++; cancel(); return nil }); !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("Load: error %v after %d calls", err, calls)
	}
}

func TestRefusalsNameTheKeyAndWhatToDo(t *testing.T) {
	before := sm.NewEntry(sm.Key{Mirror: "m", TopicID: sm.TopicID{15: 1}, Partition: 3})
	before.Owner = "node-1"
	before.State.StateEpoch, before.State.LeaderEpoch = 5, 8
	const key = "key m:AAAAAAAAAAAAAAAAAAAAAQ:3: "
	for want, w := range map[string]sm.Write{
		key + `statemachine: key belongs to another owner: "node-1", not "node-2"; take it from its owner or leave it alone`:            {},
		key + `statemachine: key belongs to another owner: "node-1" may still be writing; open that name before "node-2" takes the key`: {TakeFrom: "node-1"},
		key + `statemachine: write asks for a change and its removal at once`:                                                           {Purge: true},
	} {
		w.Key = before.Key
		if after, got := sm.Apply(before, w, "node-2", false); got.Err == nil || got.Err.Error() != want || after != before || got.StateEpoch != -1 {
			t.Errorf("%+v: %v\nwant %s", got, got.Err, want)
		}
	}
	for want, w := range map[string]sm.Write{
		key + "statemachine: session is fenced: leader epoch 7, but 8 has written; stop serving this partition": {LeaderEpoch: 7},
		key + "statemachine: state epoch does not match: expected 4, found 5; read the record again":            {LeaderEpoch: 8, ExpectedStateEpoch: 4},
	} {
		w.Key = before.Key
		if after, got := sm.Apply(before, w, "node-1", false); got.Err == nil || got.Err.Error() != want || after != before {
			t.Errorf("%+v: %v\nwant %s", got, got.Err, want)
		}
	}
}

// TestApplyNeverGoesBack: whatever is written, a key's epochs fall only by Delete, its LME goes only by Purge, and a foreign owner changes nothing.
func TestApplyNeverGoesBack(t *testing.T) {
	states := []sm.State{sm.Preparing, sm.EpochFencing, sm.Mirroring, sm.Pausing, sm.Paused, sm.Stopping, sm.Stopped, sm.Failed, sm.Unknown, sm.State(9)}
	rapid.Check(t, func(t *rapid.T) {
		e := sm.NewEntry(sm.Key{Mirror: "m"})
		for range rapid.IntRange(1, 12).Draw(t, "writes") {
			w := sm.Write{
				Key:                e.Key,
				TakeFrom:           rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "take from"),
				ExpectedStateEpoch: rapid.SampledFrom([]int32{-1, -1, e.State.StateEpoch, 2}).Draw(t, "expected"),
				LeaderEpoch:        rapid.Int32Range(-1, 3).Draw(t, "leader epoch"),
				Delete:             rapid.IntRange(0, 5).Draw(t, "delete") == 0,
				Purge:              rapid.IntRange(0, 5).Draw(t, "purge") == 0,
			}
			if rapid.Bool().Draw(t, "with state") {
				st := sm.NewPartitionState()
				st.State = rapid.SampledFrom(states).Draw(t, "state")
				w.State = &st
			}
			if rapid.Bool().Draw(t, "with LME") {
				w.LME = &sm.LastMirrorEpoch{Epoch: rapid.Int32Range(-1, 5).Draw(t, "LME")}
			}
			owner := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner")
			reopened := rapid.Bool().Draw(t, "reopened")
			after, result := sm.Apply(e, w, owner, reopened)
			switch {
			case result.Err != nil:
				if after != e {
					t.Fatalf("refused with %v, but %+v became %+v", result.Err, e, after)
				}
			case e.Owner != "" && e.Owner != owner && !(w.TakeFrom == e.Owner && reopened):
				t.Fatalf("%q wrote a key of %q with %+v", owner, e.Owner, w)
			case !w.Delete && (after.State.StateEpoch < e.State.StateEpoch || after.State.LeaderEpoch < e.State.LeaderEpoch):
				t.Fatalf("epochs fall from %+v to %+v", e.State, after.State)
			case e.LME != nil && after.LME == nil && !w.Purge:
				t.Fatalf("%+v lost the LME", w)
			case !w.Delete && !sm.Legal(e.State.State, after.State.State):
				t.Fatalf("%v became %v", e.State.State, after.State.State)
			case result.StateEpoch != after.State.StateEpoch:
				t.Fatalf("state epoch %d reported, %d kept", result.StateEpoch, after.State.StateEpoch)
			case after.LME != nil && after.LME == w.LME:
				t.Fatal("the entry shares memory with the write")
			}
			e = after
		}
	})
}
