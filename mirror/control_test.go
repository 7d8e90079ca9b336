package mirror

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"
)

func wishOf(topic, mirrorName string) TopicWish {
	return TopicWish{Topic: topic, MirrorName: mirrorName}
}

func mustUpdate(t *testing.T, c Control, change func(*ControlState)) {
	t.Helper()
	if err := c.Update(context.Background(), func(s *ControlState) error { change(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, c Control) ControlState {
	t.Helper()
	s, err := c.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestControlKeepsTopicsAndConsentsSorted(t *testing.T) {
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) {
		for _, name := range []string{"b-1", "x.stopped", "a", "b"} {
			w := wishOf(name, "m")
			w.Consents = []Consent{{Partition: 2, From: 1, To: 2}, {Partition: 0, From: 5, To: 6}, {TopicID: TopicID{1}, Partition: 0}, {Partition: 0, From: 3, To: 4}}
			s.Set(w)
		}
		s.Set(wishOf("a", "m.paused"))
		s.Remove("x.stopped")
		s.Remove("never there")
	})
	s := mustRead(t, c)
	var names []string
	for _, w := range s.Topics {
		names = append(names, w.Topic+"="+w.MirrorName)
	}
	if want := []string{"a=m.paused", "b=m", "b-1=m"}; !reflect.DeepEqual(names, want) {
		t.Errorf("topics %v, want %v", names, want)
	}
	w, ok := s.Topic("b")
	if want := []Consent{{Partition: 0, From: 3, To: 4}, {Partition: 0, From: 5, To: 6}, {Partition: 2, From: 1, To: 2}, {TopicID: TopicID{1}}}; !ok || !reflect.DeepEqual(w.Consents, want) {
		t.Errorf("consents %v, want %v", w.Consents, want)
	}
	if _, ok := s.Topic("x.stopped"); ok {
		t.Error("a removed topic is still there")
	}
}

func TestControlErrorChangesNothing(t *testing.T) {
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) {
		s.Set(TopicWish{Topic: "a", MirrorName: "m", Consents: []Consent{{Partition: 1, From: 1, To: 2}}})
	})
	before, changed := mustRead(t, c), c.Changed()
	no := errors.New("no")
	err := c.Update(context.Background(), func(s *ControlState) error {
		s.Topics[0].MirrorName = "m.stopped"
		s.Topics[0].Consents[0].To = 99
		s.Set(wishOf("b", "m"))
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("error %v, want the function's own", err)
	}
	if after := mustRead(t, c); !reflect.DeepEqual(after, before) || isClosed(changed) {
		t.Errorf("state %+v, want %+v; changed %v", after, before, isClosed(changed))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Update(ctx, func(s *ControlState) error { s.Remove("a"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Update after the context's end: %v", err)
	}
	if _, err := c.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Read after the context's end: %v", err)
	}
	if after := mustRead(t, c); !reflect.DeepEqual(after, before) {
		t.Errorf("state %+v, want %+v", after, before)
	}
}

func TestControlStatesAreDeepCopies(t *testing.T) {
	c := NewMemoryControl()
	consents := []Consent{{Partition: 1, From: 1, To: 2}}
	var kept *ControlState
	mustUpdate(t, c, func(s *ControlState) {
		kept = s
		s.Set(TopicWish{Topic: "a", MirrorName: "m", Consents: consents})
	})
	want := mustRead(t, c)
	consents[0].To = 100
	kept.Topics[0].Topic = "z"
	got := mustRead(t, c)
	got.Topics[0].Consents[0].From, got.Topics[0].MirrorName = 50, "other"
	if after := mustRead(t, c); !reflect.DeepEqual(after, want) || after.Topics[0].Consents[0].To != 2 {
		t.Errorf("state %+v, want %+v", after, want)
	}
}

func TestControlChangedClosesAtTheNextChangeOnly(t *testing.T) {
	c := NewMemoryControl()
	first := c.Changed()
	if isClosed(first) {
		t.Fatal("closed before any change")
	}
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("a", "m")) })
	second := c.Changed()
	if !isClosed(first) || isClosed(second) {
		t.Fatalf("after a change: old channel closed %v, new one %v", isClosed(first), isClosed(second))
	}
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("a", "m")) })
	if s := mustRead(t, c); isClosed(second) || s.Version != 1 {
		t.Errorf("an update that leaves the state equal counts as a change: version %d", s.Version)
	}
	mustUpdate(t, c, func(s *ControlState) { s.Set(TopicWish{Topic: "a", MirrorName: "m", AdoptedFrom: "n"}) })
	if s := mustRead(t, c); !isClosed(second) || s.Version != 2 {
		t.Errorf("a change of one field is no change: version %d", s.Version)
	}
}

func TestControlUseConsentsTakesThoseOfOnePartition(t *testing.T) {
	var s ControlState
	s.Set(TopicWish{Topic: "a", MirrorName: "m", Consents: []Consent{{Partition: 0, From: 1, To: 2}, {Partition: 1, From: 3, To: 4}}})
	if s.UseConsents(TopicPartition{"a", 2}) || s.UseConsents(TopicPartition{"b", 0}) || !s.UseConsents(TopicPartition{"a", 0}) || s.UseConsents(TopicPartition{"a", 0}) {
		t.Error("UseConsents does not say whether there were any")
	}
	if w, _ := s.Topic("a"); !reflect.DeepEqual(w.Consents, []Consent{{Partition: 1, From: 3, To: 4}}) {
		t.Errorf("left: %v", w.Consents)
	}
}

func TestControlUpdatesOfManyAreAllKept(t *testing.T) {
	before := runtime.NumGoroutine()
	c := NewMemoryControl()
	if runtime.NumGoroutine() != before {
		t.Error("a memory Control runs a goroutine")
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			_ = c.Update(context.Background(), func(s *ControlState) error { s.Set(wishOf(fmt.Sprint(i), "m")); return nil })
		}()
	}
	all.Wait()
	if s := mustRead(t, c); len(s.Topics) != 50 || s.Version != 50 {
		t.Errorf("%d topics, version %d", len(s.Topics), s.Version)
	}
}

func TestControlWishSplitsMirrorName(t *testing.T) {
	for _, value := range []string{"", ".stopped", "m.removed", "m/x"} {
		if _, _, err := wishOf("a", value).Wish(); err == nil {
			t.Errorf("mirror.name %q is read without an error", value)
		}
	}
	if m, want, err := wishOf("a", "m.n.stopped").Wish(); err != nil || m != "m.n" || want.String() == "" {
		t.Errorf("%q %v %v", m, want, err)
	}
}
