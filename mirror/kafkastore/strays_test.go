package kafkastore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/topicreader"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// notices keeps what a store tells.
type notices struct {
	mu  sync.Mutex
	all []error
}

func (n *notices) take(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, err)
}

func (n *notices) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprint(n.all)
}

// Rights are given by topic, so what somebody may write into one topic says nothing about another's records, and takes none of them back.
func TestRealRecordsOutOfPlaceDoNotCount(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	var told notices
	cfg.Notice = told.take
	s := open(t, cfg)
	n := opened(t, s, "node-1")
	state := stateKey("m", 0)
	right, err := s.placeOf(state, 2)
	must(t, err)
	write(t, n, change(state, "state"), change(lmeKey("m", 0), "lme"))
	control, stop, pause := key(65, "mirror"), key(71, "stopped"), key(72, "paused")
	update(t, s, change(control, "settings"), change(stop, "stop"), change(pause, "pause"))
	check := func(what string, s *Store) {
		t.Helper()
		for _, x := range []struct {
			key  []byte
			want string
		}{{state, "state by node-1/1"}, {lmeKey("m", 0), "lme by node-1/1"}, {control, "settings"}, {stop, "stop"}, {pause, "pause"},
			{key(71, "t"), "-"}, {key(67, "t"), "-"}, {stateKey("x", 1), "-"}} {
			if got := shown(t, s, x.key); got != x.want {
				t.Errorf("%s: key %x: %s, want %s", what, x.key, got, x.want)
			}
		}
		must(t, s.Read(t.Context(), func(v keyedlog.View) error {
			if got := v.Session("node-1"); got != 1 {
				t.Errorf("%s: session %d", what, got)
			}
			return nil
		}))
	}
	check("before", s)
	forged := sessionRecord{number: 99, token: newUpdate()}
	_, layout := topicreader.StateLayoutRecord(1)
	for range 12 { // so that offsets are above those of what counts
		byHand(t, cfg,
			&kgo.Record{Topic: pauseTopic, Key: key(71, "t"), Value: []byte("x")},
			&kgo.Record{Topic: pauseTopic, Key: key(67, "t"), Value: []byte("x")},
			&kgo.Record{Topic: pauseTopic, Key: control, Value: []byte("x")},
			&kgo.Record{Topic: pauseTopic, Key: stop},
			&kgo.Record{Topic: pauseTopic, Key: sessionKey("node-1"), Value: forged.value()},
			&kgo.Record{Topic: pauseTopic, Key: state},
			&kgo.Record{Topic: pauseTopic, Key: []byte{0, 63}, Value: layout},
			&kgo.Record{Topic: stateTopic, Partition: 1 - right.partition, Key: state, Value: []byte("x")},
			&kgo.Record{Topic: stateTopic, Partition: 1 - right.partition, Key: lmeKey("m", 0)},
			&kgo.Record{Topic: stateTopic, Partition: 1, Key: []byte{0, 63}, Value: layout},
			&kgo.Record{Topic: stateTopic, Key: sessionKey("node-1"), Value: forged.value()},
			&kgo.Record{Topic: controlTopic, Key: stateKey("x", 1), Value: []byte("x")},
			&kgo.Record{Topic: controlTopic, Key: pause},
		)
	}
	check("a running process", s)
	check("a new one", open(t, cfg))
	must(t, n.Check(t.Context()))
	write(t, n, change(state, "state"))
	words := fmt.Sprintf("of %s-0 with key %x does not count: records of that key belong into %s;", cfg.namespace+pauseTopic, key(71, "t"), cfg.namespace+stopTopic)
	if text := told.text(); strings.Count(text, words) != 2 {
		t.Errorf("told: %s", text)
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	// Two processes tell; each kind of record in each partition once, however many there are.
	if len(told.all) > 2*13 {
		t.Errorf("%d notices", len(told.all))
	}
	for _, err := range told.all {
		var stray *StrayError
		if !errors.As(err, &stray) {
			t.Errorf("told: %v", err)
		}
	}
}

// A topic of states that gets more partitions keeps the ones that its keys have: for who runs, and for who comes.
func TestRealPartitionsThatAreAddedAreNotUsed(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	n := opened(t, s, "node-1")
	const keys = 8
	for p := range int32(keys) {
		write(t, n, change(stateKey("m", p), "old"), change(lmeKey("m", p), "old"))
	}
	_, err := admin(t, cfg).CreatePartitions(t.Context(), 3, cfg.namespace+stateTopic)
	must(t, err)
	_, err = admin(t, cfg).CreatePartitions(t.Context(), 1, cfg.namespace+pauseTopic)
	must(t, err)
	poll(t, "a new process that sees five partitions", func() bool {
		return open(t, cfg).next.reader.Partitions(cfg.namespace+stateTopic) == 5
	})
	other := open(t, cfg)
	for p := range int32(keys) {
		expect(t, other, stateKey("m", p), "old by node-1/1")
	}
	later := opened(t, other, "node-1")
	for p := range int32(keys) {
		write(t, later, change(stateKey("m", p), "new"), change(lmeKey("m", p), "new"))
	}
	update(t, other, change(key(72, "k"), "pause"))
	s.client.ForceMetadataRefresh()
	s.shown.reader.Forget()
	for _, reader := range []*Store{s, other, open(t, cfg)} {
		for p := range int32(keys) {
			expect(t, reader, stateKey("m", p), "new by node-1/2")
			expect(t, reader, lmeKey("m", p), "new by node-1/2")
		}
		expect(t, reader, key(72, "k"), "pause")
	}
	if err := try(t.Context(), n, change(stateKey("m", 0), "x")); !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("the older session: %v", err)
	}
}

// A session record that cannot be read stands in the way of its own writer only, and not once that one is opened again or the record is taken back.
func TestRealSessionRecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	var told notices
	cfg.Notice = told.take
	s := open(t, cfg)
	zzz, other := opened(t, s, "zzz"), opened(t, s, "other")
	k, free := key(66, "k"), key(66, "free")
	must(t, zzz.Close())
	zzz = opened(t, s, "zzz")
	write(t, zzz, change(k, "1"))
	bad := func() *kgo.Record {
		return &kgo.Record{Topic: controlTopic, Key: sessionKey("zzz"), Value: []byte("2")}
	}
	byHand(t, cfg, bad())
	for range 2 {
		var unreadable *SessionRecordError
		if err := zzz.Check(t.Context()); !errors.As(err, &unreadable) || unreadable.Writer != "zzz" || errors.Is(err, keyedlog.ErrFenced) {
			t.Errorf("the writer's own check: %v", err)
		}
	}
	for _, process := range []*Store{s, open(t, cfg)} {
		expect(t, process, k, "1 by zzz/2")
		update(t, process, change(free, "x"))
	}
	must(t, other.Check(t.Context()))
	if text := told.text(); !strings.Contains(text, `"zzz"`) || strings.Contains(text, `"other"`) {
		t.Errorf("told: %s", text)
	}
	// Its number does not fall, also where nothing is left of the older record, as after a compaction.
	fresh := open(t, cfg)
	must(t, fresh.Read(t.Context(), func(keyedlog.View) error { return nil }))
	fresh.records.sessions = newSessionRecords()
	fresh.records.sessions.take(topicreader.Record{Topic: controlTopic, Offset: 1, Key: sessionKey("zzz"), Value: []byte("2")})
	again := opened(t, fresh, "zzz")
	if again.Number() != 3 {
		t.Errorf("session %d", again.Number())
	}
	must(t, again.Check(t.Context()))
	if err := zzz.Check(t.Context()); !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("the older session: %v", err)
	}
	// A tombstone heals too. Whoever was open is open no more: nobody could tell it from who was opened since.
	byHand(t, cfg, bad(), &kgo.Record{Topic: controlTopic, Key: sessionKey("zzz")})
	if err := again.Check(t.Context()); !errors.Is(err, keyedlog.ErrFenced) {
		t.Errorf("after a tombstone: %v", err)
	}
	for _, process := range []*Store{fresh, open(t, cfg)} {
		update(t, process, change(free, "y"))
		if last := opened(t, process, "zzz"); last.Number() < 4 {
			t.Errorf("session %d", last.Number())
		} else {
			write(t, last, change(k, "2"))
		}
	}
}
