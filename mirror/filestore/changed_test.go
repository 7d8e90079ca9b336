package filestore

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// pair is two handles of one folder in memory.
func pair(t *testing.T) (d *disk, one, two *Store) {
	t.Helper()
	d = newDisk()
	one, err := open(d.folder(), "disk", Options{})
	must(t, err)
	two, err = open(d.folder(), "disk", Options{})
	must(t, err)
	return d, one, two
}

// closedWithin demands that a channel is closed in a time that the bubble's clock measures.
func closedWithin(t *testing.T, what string, changed <-chan struct{}, limit time.Duration) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(limit):
		t.Errorf("%s: the channel is open after %v", what, limit)
	}
}

func TestChangedClosesWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, one, two := pair(t)
		changed := two.Changed()
		if two.Changed() != changed {
			t.Error("two waiters wait for one change at two channels")
		}
		time.Sleep(time.Hour)
		select {
		case <-changed:
			t.Error("the channel was closed without a change")
		default:
		}
		must(t, write(bounded(t), one, "k", "1"))
		closedWithin(t, "a change of the other handle", changed, 250*time.Millisecond)

		changed = two.Changed()
		must(t, write(bounded(t), two, "k", "2"))
		closedWithin(t, "a change of this handle", changed, time.Millisecond)

		must(t, write(bounded(t), one, "k", "3"))
		changed = two.Changed() // a change that this handle has not read is one
		closedWithin(t, "a change before, that nobody has read here", changed, 250*time.Millisecond)

		changed = two.Changed()
		must(t, one.log.rewrite()) // a new generation with the same records
		time.Sleep(time.Second)
		must(t, write(bounded(t), one, "k", "4"))
		closedWithin(t, "a change after a compaction", changed, 250*time.Millisecond)
		must(t, errors.Join(one.Close(), two.Close()))
	})
}

// Waiting costs a look at the file's length, not the lock; it costs nothing while nobody waits; and it ends with Close. The bubble ends only when every goroutine has.
func TestWaitingForAChangeIsCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, one, two := pair(t)
		locks, looks := d.asked()
		time.Sleep(time.Hour)
		if l, o := d.asked(); l != locks || o != looks {
			t.Errorf("while nobody waits the lock is taken %d times and the log is opened %d times", l-locks, o-looks)
		}
		changed := two.Changed()
		time.Sleep(time.Minute)
		if l, o := d.asked(); l != locks || o-looks > 5*60 {
			t.Errorf("in a minute of waiting the lock is taken %d times and the log is opened %d times", l-locks, o-looks)
		}
		must(t, two.Close())
		must(t, write(bounded(t), one, "k", "v"))
		time.Sleep(time.Minute)
		select {
		case <-changed:
			t.Error("a channel was closed by Close, or after it")
		case <-two.Changed():
			t.Error("a channel that was taken after Close was closed")
		default:
		}
		if err := write(bounded(t), two, "k", "v"); !errors.Is(err, keyedlog.ErrClosed) {
			t.Errorf("a write after Close: %v", err)
		}
		must(t, one.Close())
	})
}

// What a crash left behind the last frame is no change, and neither is a lock that somebody holds. Damage is for the waiter to see: its next Read says it.
func TestATornEndIsNoChangeAndDamageIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, one, two := pair(t)
		must(t, write(bounded(t), one, "k", "1"))
		_, err := shown(bounded(t), two)
		must(t, err)
		good := bytes.Clone(d.files[logName].bytes)
		changed := two.Changed()
		d.put(logName, append(bytes.Clone(good), make([]byte, 100)...))
		time.Sleep(time.Minute)
		holder := d.folder()
		_, err = holder.Lock("4711")
		must(t, err)
		time.Sleep(time.Minute)
		select {
		case <-changed:
			t.Error("the channel was closed by zeros behind the log, or by a lock")
		default:
		}
		holder.Unlock()
		d.put(logName, good[:len(good)-1])
		closedWithin(t, "a log that became shorter", changed, 250*time.Millisecond)
		var damaged *DamagedError
		if _, err := shown(bounded(t), two); !errors.As(err, &damaged) {
			t.Errorf("the read that follows says %v", err)
		}
		must(t, errors.Join(one.Close(), two.Close()))
	})
}
