package kafkatest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// taken remembers the ports that this process gave out, so that two nodes that are not yet listening do not get the same one.
var taken struct {
	sync.Mutex
	ports map[int]bool
}

// freePort finds a loopback port that nobody listens on. It stays below the range that the kernel uses for outgoing connections (32768 and up):
// the port of a broker that is down for a moment must not be taken by somebody's client.
func freePort() (int, error) {
	taken.Lock()
	defer taken.Unlock()
	if taken.ports == nil {
		taken.ports = map[int]bool{}
	}
	for range 1000 {
		p := 12000 + rand.IntN(20000)
		if taken.ports[p] {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
		if err != nil {
			continue
		}
		l.Close()
		taken.ports[p] = true
		return p, nil
	}
	return 0, errors.New("kafkatest: no free loopback port between 12000 and 31999")
}

// FreePort is a loopback port that nobody listens on, and that nobody else in this process was given.
func FreePort() (int, error) { return freePort() }

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
