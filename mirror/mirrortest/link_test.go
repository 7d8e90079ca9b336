package mirrortest

import (
	"fmt"
	"net"
	"slices"
	"testing"
)

// TestFaultsAreReplayed: what goes wrong is decided by the seed, the number of the connection and that of the request on it, so a seed brings the same again, and another one something else.
func TestFaultsAreReplayed(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	play := func(seed uint64) (happened []string) {
		l := newLink(seed, Faults{Break: 0.05, Hole: 0.05})
		for range 20 {
			conn, err := l.dial(t.Context(), "tcp", server.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			what := "100 requests"
			for i := range 100 {
				_, err := conn.Write([]byte("request"))
				l.mu.Lock()
				lost := conn.(*linkConn).lost
				l.mu.Unlock()
				if err != nil || lost {
					what = fmt.Sprintf("request %d: lost %v, broken %v", i, lost, err != nil)
					break
				}
			}
			happened = append(happened, what)
			conn.Close()
		}
		return happened
	}
	one := play(1)
	if again := play(1); !slices.Equal(one, again) {
		t.Errorf("seed 1 brought\n%q\nand then\n%q", one, again)
	}
	if two := play(2); slices.Equal(one, two) {
		t.Error("seed 2 brought the same as seed 1")
	}
}
