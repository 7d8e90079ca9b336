package replicaserver

import (
	"net"
	"testing"
	"testing/synctest"
)

// addressed is a connection that comes from an address.
type addressed struct {
	net.Conn
	ip net.IP
}

func (c *addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: c.ip, Port: 1} }

// TestOneAddressLeavesRoomForOthers: a host that opens connections without end is closed at its share, and gets places back as it gives them up.
func TestOneAddressLeavesRoomForOthers(t *testing.T) {
	topics, _ := topicOf(1)
	inVirtualTime(t, topics, func(c *Config) { c.MaxConnections = 6 }, func(t *testing.T, _ *Server, l *pipeListener, _ *follower) {
		from := func(ip string) *follower {
			ours, theirs := net.Pipe()
			l.conns <- &addressed{theirs, net.ParseIP(ip)}
			t.Cleanup(func() { _ = ours.Close() })
			return &follower{t: t, conn: ours}
		}
		flood := []*follower{from("10.0.0.9"), from("10.0.0.9"), from("10.0.0.9")}
		if _, err := from("10.0.0.9").try(fetchOf(17, topicA, 0)); err == nil {
			t.Error("a fourth connection of one address is served")
		}
		from("10.0.0.1").ask(fetchOf(17, topicA, 0))
		_ = flood[0].conn.Close()
		synctest.Wait()
		from("10.0.0.9").ask(fetchOf(17, topicA, 0))
		for _, c := range flood {
			_ = c.conn.Close()
		}
	})
}
