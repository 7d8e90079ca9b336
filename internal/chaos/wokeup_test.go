package chaos_test

import "testing"

// TestWhoWakesUpAddsNothingOfItsOwn: a process that was held up may end the call that it was in. It changes nothing else, and adds nothing that its successor does not have.
func TestWhoWakesUpAddsNothingOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		name                     string
		before, after, successor string
		added                    int
		wrong                    bool
	}{
		{"nothing", "abc", "abc", "abcdef", 0, false},
		{"the call it was in", "abc", "abcde", "abcdef", 2, false},
		{"more than its successor has", "abc", "abcdefgh", "abcdef", 0, true},
		{"something else", "abc", "abcxy", "abcdef", 0, true},
		{"less", "abc", "ab", "abcdef", 0, true},
		{"another byte", "abc", "abx", "abcdef", 0, true},
	} {
		added, problem := wokeUp([]byte(c.before), []byte(c.after), []byte(c.successor))
		if added != c.added || problem != "" != c.wrong {
			t.Errorf("%s: %d added, %q", c.name, added, problem)
		}
	}
}
