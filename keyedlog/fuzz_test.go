package keyedlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/keyedlog"
	sm "github.com/clustermirror/clustermirror/statemachine"
)

// FuzzStateStore puts any two records where a state store keeps its own. It loads them, or names the one that it cannot read; then it writes over nothing that it cannot read,
// and what it writes is loaded again.
func FuzzStateStore(f *testing.F) {
	id := sm.TopicID{1, 2, 3}
	k := sm.Key{Mirror: "m", TopicID: id, Partition: 3}
	state := sm.AppendPartitionState(nil, sm.PartitionState{State: sm.Mirroring, LeaderEpoch: 4, StateEpoch: 2, Episode: 1})
	lme := sm.AppendLastMirrorEpoch(nil, sm.LastMirrorEpoch{Epoch: 3, Offset: 9})
	f.Add(sm.AppendKey(nil, sm.PartitionStateType, k), state, sm.AppendKey(nil, sm.LastMirrorEpochsType, k), lme)
	f.Add(sm.AppendKey(nil, sm.PartitionStateType, k), lme, sm.AppendKey(nil, sm.LastMirrorEpochsType, k), state)
	f.Add([]byte{0, 2, 0, 1}, state, []byte{0, 62, 1}, []byte("x"))
	f.Add(binary.BigEndian.AppendUint16(nil, 63), []byte{1, 0, 0, 0, 9}, []byte{0}, []byte{})
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 []byte) {
		if len(key1) == 0 || len(key2) == 0 || bytes.Equal(key1, key2) {
			return // no records of a log
		}
		ctx := context.Background()
		log := keyedlog.NewMemory()
		put := []keyedlog.Change{{Key: key1, Value: append([]byte{}, value1...)}, {Key: key2, Value: append([]byte{}, value2...)}}
		if err := log.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) { return put, nil }); err != nil {
			t.Fatal(err)
		}
		store := keyedlog.NewStateStore(log)
		var entries []sm.Entry
		var err error
		fuzzbound.Run(t, len(key1)+len(value1)+len(key2)+len(value2), func() {
			entries = nil
			err = store.Load(ctx, func(e sm.Entry) error {
				entries = append(entries, e)
				return nil
			})
		})
		var bad *keyedlog.RecordError
		if err != nil && (!errors.As(err, &bad) || !bytes.Equal(bad.Key, key1) && !bytes.Equal(bad.Key, key2)) {
			t.Fatalf("error %T %v", err, err)
		}
		s, openErr := store.Open(ctx, "somebody")
		if openErr != nil {
			t.Fatal(openErr)
		}
		for _, raw := range [][]byte{key1, key2} {
			_, k, err := sm.DecodeKey(raw)
			if err != nil || sm.CheckMirrorName(k.Mirror) != nil {
				continue
			}
			fresh := sm.NewPartitionState()
			fresh.State, fresh.LeaderEpoch = sm.Preparing, 7
			results, err := s.Write(ctx, []sm.Write{{Key: k, State: &fresh}})
			if err != nil {
				t.Fatal(err)
			}
			var unread *keyedlog.RecordError
			if errors.As(results[0].Err, &unread) {
				for _, c := range put {
					if now, there := read(t, log, c.Key); !there || !bytes.Equal(now, c.Value) {
						t.Fatalf("a record that cannot be read (%v) was written over", unread)
					}
				}
			}
		}
		for _, e := range entries {
			if key := sm.AppendKey(nil, sm.PartitionStateType, e.Key); !bytes.Equal(key[2:], key1[min(2, len(key1)):]) && !bytes.Equal(key[2:], key2[min(2, len(key2)):]) {
				t.Fatalf("%v is of neither record", e.Key)
			}
		}
	})
}

func read(t *testing.T, log keyedlog.Log, key []byte) (value []byte, there bool) {
	t.Helper()
	err := log.Read(context.Background(), func(v keyedlog.View) error {
		var r keyedlog.Record
		r, there = v.Get(key)
		value = bytes.Clone(r.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value, there
}
