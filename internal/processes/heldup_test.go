package processes_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// heldFor is twice the fence time: a process that did not ask its store for that long may change nothing (leaseAge of package mirror is 9 s).
const heldFor = 18 * time.Second

// TestAProcessThatWasHeldUpWritesNothing: a process that mirrors is stopped with SIGSTOP for twice the fence time. Another one opens its owner's name and works: it goes on
// mirroring one topic, and stops another and opens it. There is more to fetch when the first one wakes up. It has to say that it is fenced, and not one byte may change: not
// in its copy, not in the records, not in what it was asked to do.
func TestAProcessThatWasHeldUpWritesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const m, owner, goesOn, opened, later = "held", "held-worker", "held-orders", "held-payments", "held-later"
		src := startSource(t, "primary", goesOn, opened, later)
		src.produce(goesOn, 5)
		src.produce(opened, 5)
		src.produce(later, 5)
		first, second := begin(t, p, "first"), begin(t, p, "second")
		first.do(order{Do: "open", Mirror: m, Owner: owner, Seeds: src.seeds()})
		records := look(t, p)
		control := mirror.NewControl(records)
		exists(t, control, m)
		first.verb(m, "start", goesOn, opened)
		first.untilEnd(goesOn, 5)
		first.untilEnd(opened, 5)
		copies := func() string {
			return fmt.Sprintf("%x %x", first.do(order{Do: "log", Topic: goesOn}).Log.Sum, first.do(order{Do: "log", Topic: opened}).Log.Sum)
		}
		before := copies()

		first.Hold()
		held := time.Now()
		src.produce(goesOn, 5) // waits for the first one, and for the second
		src.produce(opened, 5)
		second.opens(order{Mirror: m, Owner: owner, Seeds: src.seeds()})
		second.untilEnd(goesOn, 10)
		second.untilEnd(opened, 10)
		second.verb(m, "stop", opened)
		second.untilState(opened, "STOPPED")
		second.until("is the clients'", opened, 0, func(p partitionStatus) bool { return p.Owner == mirror.OwnerOpen.String() })
		sessions := sessionsOf(t, records, owner)
		wanted := wants(t, control, m)
		eventually(t, "the first was held up long enough", func() (bool, string) { return time.Since(held) > heldFor, "" })
		src.produce(goesOn, 5)
		second.untilEnd(goesOn, 15)

		first.Release()
		took := eventually(t, "the first says that it is fenced", func() (bool, string) {
			a := first.do(order{Do: "status"})
			return a.Fenced != "", print(a)
		})
		t.Logf("held up for %v; fenced %v after it went on", time.Since(held)-took, took)
		// What others want from now on is not for the first one.
		if now := wants(t, control, m); now != wanted {
			t.Errorf("the desired state was\n%s\nand is\n%s", wanted, now)
		}
		src.denied.Store(true)
		second.untilState(goesOn, "FAILED")
		src.denied.Store(false)
		second.verb(m, "recover", goesOn)
		second.verb(m, "start", later)
		src.produce(goesOn, 1)
		second.untilEnd(goesOn, 16)
		second.untilEnd(later, 5)
		if now := copies(); now != before {
			t.Errorf("the first one's copies were %s and are %s", before, now)
		}
		if a := first.Ask(order{Do: "log", Topic: later}); a.Err == "" {
			t.Errorf("the first one has begun a topic: %+v", a.Log)
		}
		first.do(order{Do: "close"}) // nothing of it can come any more
		if now := sessionsOf(t, records, owner); now != sessions {
			t.Errorf("sessions of the owner: %v, and behind the waking %v", sessions, now)
		}
		audit(t, records, owner, sessions)
		if copies() != before {
			t.Errorf("the first one's copies have changed while it was closed")
		}
		for _, topic := range []string{goesOn, opened} {
			one, other := first.do(order{Do: "log", Topic: topic}).Log, second.do(order{Do: "log", Topic: topic}).Log
			if !bytes.HasPrefix(other.Bytes, one.Bytes) || len(other.Bytes) == len(one.Bytes) {
				t.Errorf("%s: the copy of the second, up to %d, does not go on where that of the first ended, at %d", topic, other.End, one.End)
			}
		}
	})
}

// sessions are the numbers of an owner's newest sessions: of its states, and of its reports.
type sessions struct{ states, reports int64 }

func sessionsOf(t *testing.T, l keyedlog.Log, owner string) (s sessions) {
	t.Helper()
	if err := l.Read(t.Context(), func(v keyedlog.View) error {
		s = sessions{v.Session(owner), v.Session("report/" + owner)}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// audit demands that every record of an owner was written last by its newest sessions.
func audit(t *testing.T, l keyedlog.Log, owner string, newest sessions) {
	t.Helper()
	n := 0
	if err := l.Read(t.Context(), func(v keyedlog.View) error {
		return v.Each(nil, func(r keyedlog.Record) error {
			switch {
			case r.Writer == owner && r.Session != newest.states, r.Writer == "report/"+owner && r.Session != newest.reports:
				t.Errorf("record %x of %q was written by session %d, the newest are %+v", r.Key, r.Writer, r.Session, newest)
			case r.Writer == owner || r.Writer == "report/"+owner:
				n++
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if n < 6 { // two states, a report of the process, two of partitions, one LME at least
		t.Errorf("only %d records of %q: too few to show anything", n, owner)
	}
}

// wants is what is wanted of one mirror.
func wants(t *testing.T, control mirror.Control, m string) string {
	t.Helper()
	s, err := control.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entry, _ := s.Mirror(m)
	text := print(entry)
	for _, w := range s.Topics {
		if name, _, err := w.Wish(); err == nil && name == m {
			text += print(w)
		}
	}
	for _, o := range s.Origins {
		if o.Mirror == m {
			text += print(o)
		}
	}
	return text
}

// TestAVerbThatWasHeldUp: a process is stopped in the middle of its verb, while another one decides the opposite. What it writes when it goes on is decided anew, and refused.
func TestAVerbThatWasHeldUp(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		settings := map[string]string{"bootstrap.servers": "localhost:1"}
		slow, quick := begin(t, p, "slow"), begin(t, p, "quick")
		control := mirror.NewControl(look(t, p))
		for i, held := range []string{beforeTheWrite, afterItsDecison} {
			one, other, topic := fmt.Sprintf("late-one-%d", i), fmt.Sprintf("late-other-%d", i), fmt.Sprintf("late-topic-%d", i)
			for _, m := range []string{one, other} {
				quick.do(order{Do: "verb", Verb: "create", Mirror: m, Settings: settings})
			}
			slow.Send(order{Do: "verb", Verb: "start", Mirror: one, Topics: []string{topic}, Held: held})
			slow.UntilHeld()
			if held == afterItsDecison && p.Dir != "" {
				// In a folder a decision is made under its lock: nobody else decides meanwhile, and is told who stands in the way.
				a := quick.Ask(order{Do: "verb", Verb: "start", Mirror: other, Topics: []string{topic}})
				if a.Err == "" {
					t.Errorf("%s: two processes decided at once", held)
				}
				t.Logf("while the lock is held: %s", a.Err)
				slow.Release()
				if a := slow.Receive(); a.Err != "" {
					t.Errorf("%s: %s", held, a.Err)
				}
				continue
			}
			quick.verb(other, "start", topic)
			slow.Release()
			if a := slow.Receive(); a.Code != mirror.TopicAlreadyInClusterMirror {
				t.Errorf("%s: the late one was told %+v", held, a)
			}
			s, err := control.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if wish, _ := s.Topic(topic); wish.MirrorName != other {
				t.Errorf("%s: the topic is in %q, not where it was put meanwhile", held, wish.MirrorName)
			}
		}
	})
}
