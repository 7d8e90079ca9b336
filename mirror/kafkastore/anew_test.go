package kafkastore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// What was not read for so long that tombstones may be gone is read anew.
func TestReadsAnewAfterALongTime(t *testing.T) {
	s := open(t, newFake(t).cfg)
	k := key(66, "k")
	update(t, s, change(k, "x"))
	expect(t, s, k, "x")
	before := s.records
	s.shown.when = time.Now().Add(-reloadAfter + time.Minute)
	expect(t, s, k, "x")
	if s.records != before {
		t.Error("everything was read anew although the last time is not long ago")
	}
	s.shown.when = time.Now().Add(-reloadAfter - time.Minute)
	expect(t, s, k, "x")
	if s.records == before || s.shown.old() {
		t.Error("nothing was read anew")
	}
	if s.version < 1 {
		t.Errorf("version %d", s.version)
	}
}

// A topic that somebody made, and that forgets tombstones sooner than readers look again, is refused.
func TestShortRetentionIsRefused(t *testing.T) {
	for retention, good := range map[string]bool{"0": false, "3600000": false, "86399999": false, "86400000": true, "604800000": true, "": true} {
		f := newFake(t)
		cl, err := kgo.NewClient(kgo.SeedBrokers(f.cfg.Seeds...))
		must(t, err)
		defer cl.Close()
		configs := map[string]*string{"cleanup.policy": kmsg.StringPtr("compact")}
		if retention != "" {
			configs["delete.retention.ms"] = &retention
		}
		s := open(t, f.cfg)
		_, err = kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, configs, stopTopic)
		must(t, err)
		_, opening := Open(t.Context(), f.cfg)
		for _, err := range []error{opening, s.Update(t.Context(), put(change(key(66, "k"), "x")))} {
			var topic *TopicError
			refused := errors.As(err, &topic) && topic.Topic == stopTopic && errors.Is(err, errShortRetention)
			if refused == good || good && err != nil {
				t.Errorf("delete.retention.ms %q: error %v", retention, err)
			}
		}
	}
}

// long is a cluster on which a session's key counts to 3, with so much in between that no one Fetch brings it all. Everything was read.
func long(t *testing.T) (f *fake, s *Store, n keyedlog.Session, k []byte) {
	t.Helper()
	f = newFake(t)
	s = open(t, f.cfg)
	n = opened(t, s, "w")
	k = key(66, "k")
	write(t, n, change(k, "1"))
	for i := range 6 {
		write(t, n, change(key(66, "filler-"+strconv.Itoa(i)), strings.Repeat("x", 900<<10)))
	}
	write(t, n, change(k, "2"))
	write(t, n, change(k, "3"))
	expect(t, s, k, "3 by w/1")
	return f, s, n, k
}

// breakOff has a reading end at its second Fetch.
func (f *fake) breakOff(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fetches, done := 0, false
	f.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		if fetches++; fetches == 2 && !done {
			done = true
			cancel()
		}
		f.KeepControl()
		return nil, nil, false
	})
	err := s.Read(ctx, func(keyedlog.View) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v: the reading was not broken off", err)
	}
}

// A session that decides on what its process knows decides on all of it, also while everything is read anew and that was broken off.
func TestNobodyDecidesOnHalfAReload(t *testing.T) {
	f, s, n, k := long(t)
	s.shown.when = time.Now().Add(-reloadAfter - time.Hour)
	f.breakOff(t, s)
	must(t, n.Update(t.Context(), [][]byte{k}, count(k, false)))
	expect(t, s, k, "4 by w/1")
	expect(t, open(t, f.cfg), k, "4 by w/1")
}

// A first reading that was broken off is gone on with, unless it is so long ago that tombstones may be gone.
func TestABrokenFirstReading(t *testing.T) {
	f, _, _, k := long(t)
	for _, x := range []struct {
		name string
		ago  time.Duration
		anew bool
	}{{"just now", 0, false}, {"a day ago", 24 * time.Hour, true}} {
		t.Run(x.name, func(t *testing.T) {
			s := open(t, f.cfg)
			f.breakOff(t, s)
			half := s.next
			if half == nil || half.reader.Total() == 0 {
				t.Fatal("nothing was read")
			}
			half.when = half.when.Add(-x.ago)
			expect(t, s, k, "3 by w/1")
			if (s.shown != half) != x.anew {
				t.Errorf("begun anew: %v, want %v", s.shown != half, x.anew)
			}
		})
	}
}

// Whoever waits for a callback of another call gives up with its context.
func TestCallsEndWithTheirContextWhileACallbackRuns(t *testing.T) {
	s := open(t, newFake(t).cfg)
	n := opened(t, s, "w")
	own := key(66, "own")
	write(t, n, change(own, "1"))
	for name, blocked := range map[string]func(func()) error{
		"a reader": func(f func()) error {
			return s.Read(t.Context(), func(keyedlog.View) error { f(); return nil })
		},
		"a decision": func(f func()) error {
			return s.Update(t.Context(), func(keyedlog.View) ([]keyedlog.Change, error) { f(); return nil, nil })
		},
	} {
		must(t, blocked(func() {
			nothing := func(keyedlog.View) error { return nil }
			for call, do := range map[string]func(context.Context) error{
				"Read":           func(ctx context.Context) error { return s.Read(ctx, nothing) },
				"Update":         func(ctx context.Context) error { return s.Update(ctx, put(change(key(66, "k"), "x"))) },
				"Open":           func(ctx context.Context) error { _, err := s.Open(ctx, "v"); return err },
				"Session.Read":   func(ctx context.Context) error { return n.Read(ctx, nothing) },
				"Session.Update": func(ctx context.Context) error { return try(ctx, n, change(key(66, "free"), "x")) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				ended := make(chan error, 1)
				go func() { ended <- do(ctx) }()
				select {
				case err := <-ended:
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s while %s runs: error %v", call, name, err)
					}
				case <-time.After(10 * time.Second):
					t.Errorf("%s while %s runs outlives its context", call, name)
				}
				cancel()
			}
		}))
	}
}
