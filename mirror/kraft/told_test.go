package kraft

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestAnEventSaysWhy: who shows an Event's text shows the reason.
func TestAnEventSaysWhy(t *testing.T) {
	var told []string
	d := newDestination(Config{Logger: slog.New(slog.DiscardHandler), Notice: func(e Event) { told = append(told, e.Text) }})
	refused := errors.New("broker 3 refuses")
	d.notice(Event{Text: "it is tried again", Err: refused})
	d.notice(Event{Text: refused.Error(), Err: refused})
	d.notice(Event{Text: "all is well"})
	for i, want := range []string{"it is tried again: broker 3 refuses", "broker 3 refuses", "all is well"} {
		if told[i] != want {
			t.Errorf("%q, not %q", told[i], want)
		}
	}
}

// TestCallsAfterCloseSayThatItIsClosed also of a log that this process leads.
func TestCallsAfterCloseSayThatItIsClosed(t *testing.T) {
	_, d := startFake(t)
	if _, err := d.CreateTopic(within(t, 5*time.Second), mirror.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	l := d.known(orders)
	d.Close()
	if _, err := l.Read(t.Context(), 0, 100); !errors.Is(err, ErrClosed) {
		t.Errorf("a read: %v", err)
	}
	for what, err := range map[string]error{"append": l.Append(t.Context(), 0, oneBatch(0)), "open": l.Open(t.Context()), "reset": l.ResetTo(t.Context(), 0)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
