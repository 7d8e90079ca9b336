package keyedlog_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/keyedlog"
	sm "github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/statemachine/storetest"
)

func TestStateStoreInMemoryPassesTheKit(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Fixture {
		log := keyedlog.NewMemory()
		return storetest.Fixture{
			Store: keyedlog.NewStateStore(log),
			// what the killed process holds goes on with the old handle
			Crash: func() (sm.StateStore, error) { return keyedlog.NewStateStore(log.Again()), nil },
		}
	})
}

// golden is spec §8's key: mirror "my-mirror", topic id 01..10, partition 0.
var golden = sm.Key{Mirror: "my-mirror", TopicID: sm.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}

const goldenKey = "00096d792d6d6972726f720102030405060708090a0b0c0d0e0f1000000000"

// stored is every record of a log in words: key, value, writer, session.
func stored(t *testing.T, log keyedlog.Log) []string {
	t.Helper()
	var lines []string
	err := log.Read(context.Background(), func(v keyedlog.View) error {
		return v.Each(nil, func(r keyedlog.Record) error {
			lines = append(lines, fmt.Sprintf("%x=%x %s/%d", r.Key, r.Value, r.Writer, r.Session))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func version(t *testing.T, log keyedlog.Log) (n int64) {
	t.Helper()
	if err := log.Read(context.Background(), func(v keyedlog.View) error { n = v.Version(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// A purge that is followed by the same state takes a record out and leaves the other as it was; the session that did it holds the key all the same.
func TestStateStoreKeepsTheSessionThatWroteTheSameStateBehindAPurge(t *testing.T) {
	log := keyedlog.NewMemory()
	store := keyedlog.NewStateStore(log)
	first, purge := in(unchecked(golden), sm.Stopping), unchecked(golden)
	first.LME = &sm.LastMirrorEpoch{Epoch: 3, Offset: 7, Episode: 1}
	write(t, open(t, store, "a"), first)
	purge.Delete, purge.Purge = true, true
	write(t, open(t, store, "a"), purge, in(unchecked(golden), sm.Stopping))
	taken := in(unchecked(golden), sm.Stopped)
	taken.TakeFrom = "a"
	if results, err := open(t, store, "b").Write(context.Background(), []sm.Write{taken}); err != nil || !errors.Is(results[0].Err, sm.ErrNotOwner) {
		t.Errorf("taken from a session that holds: %+v, %v, want %v", results, err, sm.ErrNotOwner)
	}
}

func put(t *testing.T, log keyedlog.Log, key, value []byte) {
	t.Helper()
	err := log.Update(context.Background(), func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: key, Value: value}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, store sm.StateStore, owner string) sm.Session {
	t.Helper()
	session, err := store.Open(context.Background(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// write demands that each write is accepted.
func write(t *testing.T, session sm.Session, writes ...sm.Write) {
	t.Helper()
	results, err := session.Write(context.Background(), writes)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func unchecked(k sm.Key) sm.Write {
	return sm.Write{Key: k, ExpectedStateEpoch: -1, LeaderEpoch: -1}
}

func in(w sm.Write, state sm.State) sm.Write {
	s := sm.NewPartitionState()
	s.State = state
	w.State = &s
	return w
}

func TestStateStoreWritesTheBytesOfTheStateTopic(t *testing.T) { // spec §8
	log := keyedlog.NewMemory()
	a, b := open(t, keyedlog.NewStateStore(log), "a"), open(t, keyedlog.NewStateStore(log), "b")
	w := in(unchecked(golden), sm.Preparing)
	w.LeaderEpoch = 4
	write(t, a, w, in(w, sm.Mirroring))
	lme := unchecked(golden)
	lme.LME = &sm.LastMirrorEpoch{Epoch: 3, Offset: -1}
	write(t, a, lme)
	state := "0002" + goldenKey + "=" + "0000" + hex.EncodeToString([]byte{byte(sm.Mirroring)}) + "0000000400000002" + "00" + "0000" + hex.EncodeToString([]byte{byte(sm.Unknown)}) + "00"
	check := func(when string, want ...string) {
		t.Helper()
		if got := stored(t, log); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check("written", "0001"+goldenKey+"=00000000000300 a/1", state+" a/1")

	deleted := unchecked(golden)
	deleted.Delete = true
	write(t, a, deleted)
	check("deleted", "0001"+goldenKey+"=00000000000300 /0")

	// the next owner's state takes the LME's record along
	write(t, b, w, in(w, sm.Mirroring))
	check("of another owner", "0001"+goldenKey+"=00000000000300 b/1", state+" b/1")
	open(t, keyedlog.NewStateStore(log), "b")
	taken := unchecked(golden)
	taken.TakeFrom, taken.LME = "b", lme.LME
	write(t, a, taken)
	check("taken over by an LME alone", "0001"+goldenKey+"=00000000000300 a/1", state+" a/1")

	deleted.Purge = true
	write(t, a, deleted)
	check("purged")
}

func TestStateStoreWritesNothingWhereNothingDiffers(t *testing.T) {
	log := keyedlog.NewMemory()
	session := open(t, keyedlog.NewStateStore(log), "a")
	lme := in(unchecked(golden), sm.Stopping)
	lme.LME = &sm.LastMirrorEpoch{Epoch: 3, Offset: 7, Episode: 1}
	write(t, session, lme)
	before := version(t, log)
	lme.State = nil
	nothing := unchecked(sm.Key{Mirror: "m", Partition: 1})
	nothing.Delete = true
	write(t, session, lme, unchecked(golden), nothing)
	results, err := session.Write(context.Background(), []sm.Write{in(unchecked(golden), sm.Mirroring)})
	if err != nil || results[0].Err == nil {
		t.Errorf("an illegal move: %+v, %v", results, err)
	}
	if after := version(t, log); after != before {
		t.Errorf("version %d after writes without a change, was %d", after, before)
	}
}

// Whoever repeats a write in a new session holds the key with that one: opened before the write, it lets nobody else have the key.
func TestStateStoreKeepsTheSessionThatRepeatedAWrite(t *testing.T) {
	log := keyedlog.NewMemory()
	store := keyedlog.NewStateStore(log)
	lme := unchecked(golden)
	lme.LME = &sm.LastMirrorEpoch{Epoch: 3, Offset: 7, Episode: 1}
	write(t, open(t, store, "a"), lme)
	write(t, open(t, store, "a"), lme)
	taken := lme
	taken.TakeFrom = "a"
	b := open(t, store, "b")
	if results, err := b.Write(context.Background(), []sm.Write{taken}); err != nil || !errors.Is(results[0].Err, sm.ErrNotOwner) {
		t.Errorf("taken from a session that holds: %+v, %v, want %v", results, err, sm.ErrNotOwner)
	}
	open(t, store, "a")
	write(t, b, taken)
}

func TestStateStoreSaysFencedAndClosed(t *testing.T) {
	ctx := context.Background()
	log := keyedlog.NewMemory()
	store := keyedlog.NewStateStore(log)
	old := open(t, store, "a")
	next := open(t, store, "a")
	refused := in(unchecked(sm.Key{Mirror: "no name"}), sm.Preparing)
	for name, writes := range map[string][]sm.Write{"the heartbeat": nil, "a write": {in(unchecked(golden), sm.Preparing)}, "a check": {unchecked(golden)}, "a refused one": {refused}} {
		if _, err := old.Write(ctx, writes); !errors.Is(err, sm.ErrFenced) || !errors.Is(err, keyedlog.ErrFenced) {
			t.Errorf("%s of a fenced session: %v", name, err)
		}
		if results, err := next.Write(ctx, writes); err != nil || len(results) != len(writes) {
			t.Errorf("%s of the newest session: %v, %v", name, results, err)
		}
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if _, err := next.Write(ctx, nil); !errors.Is(err, sm.ErrClosed) || !errors.Is(err, keyedlog.ErrClosed) {
		t.Errorf("the heartbeat of a closed session: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if n := len(stored(t, log)); n != 1 { // the log is open
		t.Errorf("%d records behind a closed store", n)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if _, err := store.Open(ctx, "a"); !errors.Is(err, sm.ErrClosed) {
		t.Errorf("Open on a closed log: %v", err)
	}
	if err := store.Load(ctx, func(sm.Entry) error { return nil }); !errors.Is(err, sm.ErrClosed) {
		t.Errorf("Load on a closed log: %v", err)
	}
}

func TestStateStoreRefusesANameThatNoRecordHas(t *testing.T) {
	log := keyedlog.NewMemory()
	session := open(t, keyedlog.NewStateStore(log), "a")
	bad := in(unchecked(sm.Key{Mirror: strings.Repeat("m", 40_000)}), sm.Preparing) // AppendKey has no form for it
	results, err := session.Write(context.Background(), []sm.Write{bad, in(unchecked(golden), sm.Preparing)})
	var name *sm.MirrorNameError
	if err != nil || !errors.As(results[0].Err, &name) || results[0].StateEpoch != -1 || results[1] != (sm.WriteResult{StateEpoch: 1}) {
		t.Errorf("%+v, %v", results, err)
	}
}

func TestStateStoreNeverSkipsWhatItCannotRead(t *testing.T) {
	stateKey := sm.AppendKey(nil, sm.PartitionStateType, golden)
	lmeKey := sm.AppendKey(nil, sm.LastMirrorEpochsType, golden)
	state := sm.AppendPartitionState(nil, sm.NewPartitionState())
	newer := slices.Concat([]byte{0, 1}, state[2:])
	for name, c := range map[string]struct{ key, value []byte }{
		"a newer state":      {stateKey, newer},
		"a newer LME":        {lmeKey, []byte{0, 1, 0, 0, 0, 3, 0}},
		"a state of no form": {stateKey, state[:5]},
		"an empty LME":       {lmeKey, []byte{}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			log := keyedlog.NewMemory()
			put(t, log, c.key, c.value)
			before := stored(t, log)
			store := keyedlog.NewStateStore(log)
			session := open(t, store, "a")
			check := func(err error) {
				t.Helper()
				var unreadable *keyedlog.RecordError
				var record *sm.RecordError
				if !errors.As(err, &unreadable) || !bytes.Equal(unreadable.Key, c.key) || !errors.As(err, &record) {
					t.Fatalf("error %v", err)
				}
				if text := err.Error(); !strings.Contains(text, golden.String()) || !strings.Contains(text, "newer version") {
					t.Errorf("the text %q names no key or no reason", text)
				}
			}
			each := func(e sm.Entry) error { t.Errorf("Load shows %+v", e); return nil }
			check(store.Load(context.Background(), each))
			check(session.Load(context.Background(), each))
			purge := unchecked(golden)
			purge.Delete, purge.Purge = true, true
			other := golden
			other.Partition = 1
			results, err := session.Write(context.Background(), []sm.Write{purge, in(unchecked(golden), sm.Preparing), in(unchecked(other), sm.Preparing)})
			if err != nil {
				t.Fatal(err)
			}
			check(results[0].Err)
			check(results[1].Err)
			if results[2].Err != nil { // refused alone
				t.Errorf("another key: %v", results[2].Err)
			}
			if after := stored(t, log); len(after) != 2 || !slices.Contains(after, before[0]) {
				t.Errorf("stored %q, was %q", after, before)
			}
		})
	}
	log := keyedlog.NewMemory()
	put(t, log, stateKey[:9], state)
	var unreadable *keyedlog.RecordError
	err := keyedlog.NewStateStore(log).Load(context.Background(), func(sm.Entry) error { return nil })
	if !errors.As(err, &unreadable) || !strings.Contains(err.Error(), hex.EncodeToString(stateKey[:9])) {
		t.Errorf("a key of no form: %v", err)
	}
}

func TestStateStoreLeavesOtherRecordsAlone(t *testing.T) {
	log := keyedlog.NewMemory()
	put(t, log, []byte{0, 3, 1, 2, 3}, []byte("control"))
	put(t, log, []byte{1}, []byte("control"))
	store := keyedlog.NewStateStore(log)
	write(t, open(t, store, "a"), in(unchecked(golden), sm.Preparing))
	n := 0
	if err := store.Load(context.Background(), func(sm.Entry) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
	if n := len(stored(t, log)); n != 3 {
		t.Errorf("%d records", n)
	}
}

// What another program wrote into the topic, and nobody's, is the first writer's.
func TestStateStoreReadsRecordsWithoutAnOwner(t *testing.T) {
	log := keyedlog.NewMemory()
	put(t, log, sm.AppendKey(nil, sm.LastMirrorEpochsType, golden), []byte{0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 6, 0}) // the later draft's form
	put(t, log, sm.AppendKey(nil, sm.PartitionStateType, golden), sm.AppendPartitionState(nil, sm.PartitionState{State: sm.Stopped, StateEpoch: 5, PreviousState: sm.Unknown}))
	store := keyedlog.NewStateStore(log)
	session := open(t, store, "a")
	before := version(t, log)
	write(t, session, unchecked(golden))
	if after := version(t, log); after != before {
		t.Error("a check rewrote a record of another form")
	}
	w := in(unchecked(golden), sm.Preparing)
	w.ExpectedStateEpoch = 5
	write(t, session, w)
	err := store.Load(context.Background(), func(e sm.Entry) error {
		if e.Owner != "a" || e.State.StateEpoch != 6 || *e.LME != (sm.LastMirrorEpoch{Epoch: 3, Offset: 6}) {
			t.Errorf("%+v, LME %+v", e, e.LME)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The same writes in the same sessions have the same answers as in the reference, and leave the same entries.
func TestStateStoreAnswersAsMemoryStore(t *testing.T) {
	ctx := context.Background()
	owners := []string{"a", "b"}
	rapid.Check(t, func(rt *rapid.T) {
		reference, store := new(sm.MemoryStore), keyedlog.NewStateStore(keyedlog.NewMemory())
		var sessions [][2]sm.Session
		open := func(owner string) {
			x, err1 := reference.Open(ctx, owner)
			y, err2 := store.Open(ctx, owner)
			if err1 != nil || err2 != nil {
				rt.Fatal(err1, err2)
			}
			sessions = append(sessions, [2]sm.Session{x, y})
		}
		entries := func(s sm.StateStore) (lines []string) {
			err := s.Load(ctx, func(e sm.Entry) error {
				lme := "none"
				if e.LME != nil {
					lme = fmt.Sprintf("%+v", *e.LME)
				}
				lines = append(lines, fmt.Sprintf("%v %s %+v %s", e.Key, e.Owner, e.State, lme))
				return nil
			})
			if err != nil {
				rt.Fatal(err)
			}
			return lines
		}
		open("a")
		rt.Repeat(map[string]func(*rapid.T){
			"open": func(rt *rapid.T) { open(rapid.SampledFrom(owners).Draw(rt, "owner")) },
			"write": func(rt *rapid.T) {
				at := rapid.IntRange(max(0, len(sessions)-3), len(sessions)-1).Draw(rt, "session")
				writes := rapid.SliceOfN(rapid.Custom(drawWrite), 0, 3).Draw(rt, "writes")
				want, wantErr := sessions[at][0].Write(ctx, writes)
				got, err := sessions[at][1].Write(ctx, writes)
				if errors.Is(wantErr, sm.ErrFenced) != errors.Is(err, sm.ErrFenced) || len(got) != len(want) {
					rt.Fatalf("%d results, %v, want %d, %v", len(got), err, len(want), wantErr)
				}
				for i := range want {
					if got[i].StateEpoch != want[i].StateEpoch || fmt.Sprint(got[i].Err) != fmt.Sprint(want[i].Err) {
						rt.Fatalf("result %d is %+v, want %+v", i, got[i], want[i])
					}
				}
			},
			"": func(rt *rapid.T) {
				if want, got := entries(reference), entries(store); !slices.Equal(got, want) {
					rt.Fatalf("entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			},
		})
	})
}

func drawWrite(t *rapid.T) sm.Write {
	w := unchecked(sm.Key{Mirror: "m", Partition: rapid.Int32Range(0, 1).Draw(t, "partition")})
	w.TakeFrom = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "take from")
	w.LeaderEpoch = rapid.SampledFrom([]int32{-1, -1, 1, 2}).Draw(t, "leader epoch")
	w.ExpectedStateEpoch = rapid.SampledFrom([]int32{-1, -1, 0, 1, 2}).Draw(t, "expected state epoch")
	switch rapid.SampledFrom([]string{"state", "state", "LME", "both", "delete", "purge", "nothing"}).Draw(t, "kind") {
	case "state":
		w = in(w, rapid.SampledFrom([]sm.State{sm.Preparing, sm.Mirroring, sm.Stopping}).Draw(t, "state"))
	case "LME":
		w.LME = &sm.LastMirrorEpoch{Epoch: 3, Offset: -1, Episode: rapid.Int32Range(0, 1).Draw(t, "episode")}
	case "both":
		w = in(w, sm.Stopping)
		w.LME = &sm.LastMirrorEpoch{Epoch: rapid.Int32Range(3, 4).Draw(t, "epoch"), Offset: -1}
	case "delete":
		w.Delete = true
		if rapid.Bool().Draw(t, "with LME") {
			w.LME = &sm.LastMirrorEpoch{Epoch: 3, Offset: -1}
		}
	case "purge":
		w.Delete, w.Purge = true, true
	}
	return w
}
