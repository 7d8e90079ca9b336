package closest

import "testing"

func TestName(t *testing.T) {
	known := []string{"topics", "topic", "pause", "resume"}
	for name, want := range map[string]string{"topcs": "topics", "topic": "topic", "topi": "topic", "resune": "resume", "paus": "pause", "": "topic"} {
		if got := Name(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := Name("x", nil); got != "" {
		t.Errorf("nothing is known, and still %q", got)
	}
}

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"ab", "ba", 2}, {"same", "same", 0}} {
		if got, back := edits(c.a, c.b), edits(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("%q and %q: %d and %d, want %d", c.a, c.b, got, back, c.want)
		}
	}
}
