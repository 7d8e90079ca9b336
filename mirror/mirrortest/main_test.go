package mirrortest_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror/mirrortest"
)

// TestMain fails when a goroutine of a harness is left.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftovers(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leftovers is the stacks of goroutines that run this module's code, kfake's or a client's, the caller's aside, once those that are ending have ended.
func leftovers() string {
	var left []byte
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for i, s := range bytes.Split(stacks, []byte("\n\n")) {
			if i > 0 && (bytes.Contains(s, []byte("clustermirror/mirror")) || bytes.Contains(s, []byte("franz-go"))) {
				left = append(append(left, s...), '\n')
			}
		}
		if left == nil {
			return ""
		}
		runtime.Gosched()
	}
	return string(left)
}

// TestNothingIsLeft: after the test's end nobody listens on the ports, and the harness's goroutines are gone (TestMain). In the middle of everything, too.
func TestNothingIsLeft(t *testing.T) {
	for name, until := range map[string]func(*mirrortest.Pair){
		"started":   func(*mirrortest.Pair) {},
		"killed":    func(pair *mirrortest.Pair) { pair.KillPrimary() },
		"black":     func(pair *mirrortest.Pair) { pair.Link().BlackHole() },
		"over":      func(pair *mirrortest.Pair) { pair.Failover() },
		"returned":  func(pair *mirrortest.Pair) { pair.Failover(); pair.Return() },
		"home":      func(pair *mirrortest.Pair) { pair.Failover(); pair.Failback() },
		"no topics": func(pair *mirrortest.Pair) {},
	} {
		var ports []string
		t.Run(name, func(t *testing.T) {
			cfg := mirrortest.Config{Topics: map[string]int32{"orders": 2}, Brokers: 2}
			if name == "no topics" {
				cfg.Topics = nil
			}
			pair := mirrortest.Start(t, cfg)
			ports = append(pair.Primary().Addresses(), pair.Standby().Addresses()...)
			if conn, err := net.Dial("tcp", ports[0]); err != nil {
				t.Errorf("nobody listens on %s: %v", ports[0], err)
			} else {
				conn.Close()
			}
			until(pair)
		})
		if len(ports) != 4 {
			t.Errorf("%s: ports %v", name, ports)
		}
		for _, port := range ports {
			if conn, err := net.Dial("tcp", port); err == nil {
				conn.Close()
				t.Errorf("%s: somebody listens on %s", name, port)
			}
		}
	}
}
