package keyedlogtest

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func readIsFreshAcrossHandles(s *suite) {
	other := s.other()
	one, two := s.open(s.log, "one"), s.open(other, "two")
	for round := range s.rounds {
		value := strconv.Itoa(round)
		s.put(byLog(s.log), s.set(0, value))
		s.expect(other, 0, value, "", 0)
		s.expect(two, 0, value, "", 0)
		s.put(byLog(other), s.set(0, "back "+value))
		s.expect(s.log, 0, "back "+value, "", 0)
		s.expect(one, 0, "back "+value, "", 0)
		s.put(one.Update, s.set(1, value))
		s.expect(other, 1, value, "one", one.Number())
		s.expect(two, 1, value, "one", one.Number())
		// decisions see the newest, too
		see := func(name string, w writer) {
			err := w(s.ctx, [][]byte{s.key(0), s.key(1)}, func(v keyedlog.View) ([]keyedlog.Change, error) {
				a, _ := v.Get(s.key(0))
				b, _ := v.Get(s.key(1))
				if string(a.Value) != "back "+value || string(b.Value) != value {
					s.Errorf("%s decides on %s and %s, which is not the newest", name, text(a), text(b))
				}
				return nil, nil
			})
			if err != nil {
				s.Fatalf("%s: %v", name, err)
			}
		}
		see("the log", byLog(s.log))
		see("the other handle", byLog(other))
		see("a session", one.Update)
		see("a session of the other handle", two.Update)
	}
}

func sessionReadsItsOwnWrites(s *suite) {
	session := s.open(s.log, "one")
	problems := make(chan string, s.writers)
	var wait sync.WaitGroup
	for i := range s.writers {
		wait.Go(func() {
			for n := 1; n <= s.rounds; n++ {
				if err := s.try(session.Update, s.set(i, strconv.Itoa(n))); err != nil {
					problems <- "Update of a key that nobody else writes: " + err.Error()
					return
				}
				seen := 0
				err := session.Read(s.ctx, func(v keyedlog.View) error { seen = number(v, s.key(i)); return nil })
				if err != nil || seen < n {
					problems <- "Read shows less than the session has written"
					return
				}
			}
		})
	}
	wait.Wait()
	close(problems)
	for p := range problems {
		s.Error(p)
	}
}

func callbacksErrorIsReturned(s *suite) {
	session := s.open(s.log, "one")
	s.put(session.Update, s.set(0, "x"), s.set(1, "x"), s.set(2, "x"))
	enough := errors.New("enough")
	for _, r := range []reader{s.log, s.other(), session} {
		err := r.Read(s.ctx, func(keyedlog.View) error { return enough })
		if err != enough {
			s.Errorf("Read: error %v, want the callback's as it is", err)
		}
		calls := 0
		s.read(r, func(v keyedlog.View) error {
			err := v.Each(nil, func(keyedlog.Record) error {
				calls++
				if calls == 2 {
					return enough
				}
				return nil
			})
			if !errors.Is(err, enough) || calls != 2 {
				s.Errorf("Each: error %v after %d calls, want the callback's error after 2", err, calls)
			}
			return nil
		})
	}
}

func eachIsInOrderOfKey(s *suite) {
	session := s.open(s.log, "one")
	var changes []keyedlog.Change
	var want []keyedlog.Record
	for i := range s.records {
		n := (i*7 + 3) % s.records // no order that means anything
		if s.records%7 == 0 {
			n = s.records - 1 - i
		}
		changes = append(changes, s.set(n, strconv.Itoa(n)))
		want = append(want, keyedlog.Record{Key: s.key(n), Value: []byte(strconv.Itoa(n)), Writer: "one", Session: session.Number()})
	}
	slices.SortFunc(want, func(a, b keyedlog.Record) int { return bytes.Compare(a.Key, b.Key) })
	s.put(session.Update, changes...)
	middle := want[len(want)/2].Key
	for _, r := range []reader{s.log, s.other(), session} {
		s.same("Each", want, s.all(r))
		for length := range len(middle) + 1 {
			prefix := middle[:length]
			var got, fit []keyedlog.Record
			for _, r := range want {
				if bytes.HasPrefix(r.Key, prefix) {
					fit = append(fit, r)
				}
			}
			s.read(r, func(v keyedlog.View) error {
				got = nil
				return v.Each(prefix, func(r keyedlog.Record) error {
					if one, ok := v.Get(r.Key); !ok || !equal(one, r) {
						s.Errorf("Get shows %s where Each shows %s", text(one), text(r))
					}
					got = append(got, copied(r))
					return nil
				})
			})
			s.same("Each with a prefix of "+strconv.Itoa(length)+" bytes", fit, got)
		}
		s.absent(r, s.records)
	}
}

func versionGrows(s *suite) {
	other := s.other()
	session := s.open(other, "one")
	last := s.version(s.log)
	seen := map[reader]map[int64][]keyedlog.Record{s.log: {}, other: {}}
	for i, w := range []writer{byLog(s.log), session.Update, byLog(other), session.Update} {
		for _, c := range []keyedlog.Change{s.set(i, "x"), s.set(i, "x"), s.gone(i)} { // the same value again is a change
			s.put(w, c)
			for at, r := range []reader{s.log, other, session} {
				v := s.version(r)
				if at == 0 && v == last || v < last {
					s.Errorf("version %d after a change, was %d", v, last)
				}
				last = max(last, v)
			}
			for r, versions := range seen {
				var version int64
				var all []keyedlog.Record
				s.read(r, func(v keyedlog.View) error {
					version, all = v.Version(), nil
					return v.Each(nil, func(r keyedlog.Record) error { all = append(all, copied(r)); return nil })
				})
				if before, ok := versions[version]; ok {
					s.same("two Views of one version", before, all)
				}
				versions[version] = all
			}
		}
	}
	// a decision sees the version that it stands on
	before := s.version(s.log)
	err := other.Update(s.ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
		if v.Version() < before {
			s.Errorf("decide sees version %d, a reader before it %d", v.Version(), before)
		}
		return nil, nil
	})
	if err != nil {
		s.Errorf("Update: %v", err)
	}
}

func changedClosesAcrossHandles(s *suite) {
	other := s.other()
	wait := func(what string, c <-chan struct{}) {
		s.Helper()
		select {
		case <-c:
		case <-s.ctx.Done():
			s.Fatalf("%s: Changed is open after a change", what)
		}
	}
	for round := range 3 {
		mine, too, others := s.log.Changed(), s.log.Changed(), other.Changed()
		s.put(byLog(s.log), s.set(0, strconv.Itoa(round)))
		wait("an update by this handle", mine)
		wait("an update by this handle, second channel", too)
		wait("an update by this handle, seen at the other", others)
		s.expect(other, 0, strconv.Itoa(round), "", 0)
		mine, others = s.log.Changed(), other.Changed()
		s.put(byLog(other), s.gone(0))
		wait("a tombstone by the other handle", mine)
		wait("a tombstone by the other handle, seen there", others)
		s.absent(s.log, 0)
	}
}

// Whoever waits for a change of a closed log would spin if it were told of one again and again.
func changedStaysOpenAfterClose(s *suite) {
	other := s.again()
	before := s.log.Changed()
	if err := s.log.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	after := s.log.Changed()
	others := other.Changed()
	s.put(byLog(other), s.set(0, "x"))
	select {
	case <-others: // so would these two be
	case <-s.ctx.Done():
		s.Fatalf("Changed of the other handle is open after a change")
	}
	for when, c := range map[string]<-chan struct{}{"before": before, "after": after} {
		select {
		case <-c:
			s.Errorf("a channel of a closed log, taken %s Close, was closed", when)
		default:
		}
	}
	if err := s.log.Close(); err != nil {
		s.Errorf("a second Close: %v", err)
	}
}
