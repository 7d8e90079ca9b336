package leaderlog

import (
	"testing"

	"github.com/clustermirror/clustermirror/internal/replicaserver"
)

// under is a Fetch under a broker epoch.
func under(l *Log, broker int32, epoch, offset int64, lastEpoch int32) replicaserver.FetchQuery {
	q := query(l, broker, offset, lastEpoch)
	q.BrokerEpoch = epoch
	return q
}

// TestPositionsEndWithTheRegistration: a broker that registers anew may have lost what its disk had not written; nothing is believed of it until it fetches.
func TestPositionsEndWithTheRegistration(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int64 // as the broker tells it
	}{{"told", 7, 9}, {"a broker that does not tell it", -1, -1}} {
		t.Run(c.name, func(t *testing.T) {
			all := []int32{1, 2, 3}
			l := led(t, Options{}, 5, Found{})
			l.SetFollowers(all, all, map[int32]int64{1: 7, 2: 8}, 2)
			for _, id := range all[:2] {
				at(t, l, id, 0, -1)
			}
			add(t, l, data(0, 10, 1, "a"))
			if a := l.Fetch(under(l, 1, c.before, 10, 1)); told(a) != "[]" {
				t.Fatal(told(a))
			}
			if f := l.Followers()[0]; f.Position != 10 || !f.Truncated || f.BrokerEpoch != 7 {
				t.Fatalf("%+v", f)
			}
			l.SetFollowers(all, []int32{2, 3}, map[int32]int64{1: 7, 2: 8}, 2) // dead: its disk has it
			if f := l.Followers()[0]; f.Position != 10 || f.Live {
				t.Errorf("%+v", f)
			}
			l.SetFollowers(all, all, map[int32]int64{1: 9, 2: 8}, 2)
			if f := l.Followers()[0]; f.Position != -1 || f.Truncated || f.BrokerEpoch != -1 {
				t.Errorf("it has registered anew and not fetched: %+v", f)
			}
			at(t, l, 2, 10, 1)
			positions(t, l, 0, 10, 0) // one copy, and two are asked for
			if a := l.Fetch(under(l, 1, c.after, 0, -1)); told(a) != "[0-9@1]" {
				t.Error(told(a))
			}
			if f := l.Followers()[0]; f.Position != 0 || f.BrokerEpoch != 9 {
				t.Errorf("%+v", f)
			}
			l.Fetch(under(l, 1, c.after, 10, 1))
			positions(t, l, 0, 10, 10)
		})
	}
}

// TestOnlyTheRegisteredBrokerIsBelieved: somebody else's fetch confirms nothing, and shuts nobody out.
func TestOnlyTheRegisteredBrokerIsBelieved(t *testing.T) {
	all := []int32{1, 2, 3}
	l := led(t, Options{}, 5, Found{})
	l.SetFollowers(all, all, map[int32]int64{1: 7}, 1)
	l.Fetch(under(l, 1, 7, 0, -1))
	seen := l.Followers()[0].Seen
	add(t, l, data(0, 10, 1, "a"))
	for _, epoch := range []int64{6, 8, 1 << 60} {
		if a := l.Fetch(under(l, 1, epoch, 10, 1)); told(a) != "code 6" {
			t.Errorf("epoch %d: %s", epoch, told(a))
		}
	}
	if f := l.Followers()[0]; f.Position != 0 || f.Seen != seen {
		t.Errorf("%+v", f)
	}
	if a := l.Fetch(under(l, 1, 7, 10, 1)); told(a) != "[]" {
		t.Errorf("the broker itself: %s", told(a))
	}
	// It restarted, and its registration is not known here yet: it asks again, and is not shut out.
	if a := l.Fetch(under(l, 1, 9, 3, 1)); told(a) != "code 6" {
		t.Error(told(a))
	}
	l.SetFollowers(all, all, map[int32]int64{1: 9}, 1)
	if a := l.Fetch(under(l, 1, 9, 10, 1)); told(a) != "[]" {
		t.Errorf("after the metadata came: %s", told(a))
	}
	if a := l.Fetch(under(l, 1, 7, 10, 1)); told(a) != "code 6" {
		t.Errorf("from before its restart: %s", told(a))
	}
}

// TestAnUnregisteredBrokersEpochCounts: without the metadata's word an older epoch is refused, and a newer one is another process.
func TestAnUnregisteredBrokersEpochCounts(t *testing.T) {
	l := led(t, Options{}, 5, Found{})
	l.Fetch(under(l, 1, 7, 0, -1))
	add(t, l, data(0, 10, 1, "a"))
	l.Fetch(under(l, 1, 7, 10, 1))
	if a := l.Fetch(under(l, 1, 6, 10, 1)); told(a) != "code 6" {
		t.Error(told(a))
	}
	if a := l.Fetch(under(l, 1, 9, 5, 0)); !a.Diverging {
		t.Error(told(a))
	}
	if f := l.Followers()[0]; f.Position != -1 || f.BrokerEpoch != 9 {
		t.Errorf("%+v", f)
	}
}
