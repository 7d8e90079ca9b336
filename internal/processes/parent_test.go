package processes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest/children"
)

// running is a child as its parent sees it.
type running struct {
	*children.Child[order, answer]
	t *testing.T
}

// begin starts a child.
func begin(t *testing.T, p place, name string) *running {
	t.Helper()
	where, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"="+string(where))
	return &running{children.Begin[order, answer](t, name, bound, cmd), t}
}

// do gives an order that has to succeed.
func (c *running) do(o order) answer {
	c.t.Helper()
	a := c.Ask(o)
	if a.Err != "" {
		c.t.Fatalf("%s: %+v: %s", c.Name, o, a.Err)
	}
	return a
}

// opens has the child open its mirror beside a process that does nothing more: what that one had begun in the store hides what follows until it times out, and who opens is told to try again then.
func (c *running) opens(o order) {
	c.t.Helper()
	o.Do = "open"
	eventually(c.t, c.Name+": open", func() (bool, string) {
		a := c.Ask(o)
		if a.Err != "" && !strings.Contains(a.Err, "try again then") {
			c.t.Fatalf("%s: %+v: %s", c.Name, o, a.Err)
		}
		return a.Err == "", a.Err
	})
}

func (c *running) verb(mirror, verb string, topics ...string) answer {
	c.t.Helper()
	return c.do(order{Do: "verb", Mirror: mirror, Verb: verb, Topics: topics})
}

// until waits for one partition of the child's mirror, and returns how long that took.
func (c *running) until(what, topic string, partition int32, ok func(partitionStatus) bool) time.Duration {
	c.t.Helper()
	return eventually(c.t, fmt.Sprintf("%s: %s-%d %s", c.Name, topic, partition, what), func() (bool, string) {
		a := c.do(order{Do: "status"})
		for _, p := range a.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return ok(p), print(p)
			}
		}
		return false, fmt.Sprintf("%v %v %s", a.Partitions, a.Troubles, a.Fenced)
	})
}

// untilState waits until a topic's partition 0 is in a state.
func (c *running) untilState(topic, state string) time.Duration {
	c.t.Helper()
	return c.until("is "+state, topic, 0, func(p partitionStatus) bool { return p.State == state })
}

// untilEnd waits until the copy of partition 0 ends at end, and is being mirrored.
func (c *running) untilEnd(topic string, end int64) {
	c.t.Helper()
	c.until(fmt.Sprintf("is copied up to %d", end), topic, 0, func(p partitionStatus) bool { return p.State == "MIRRORING" && p.End == end })
}

// untilDescribed waits until a topic's partition 0 is described so to this child, by whom it was reported, and returns that.
func (c *running) untilDescribed(m, topic, what string, ok func(describedPartition) bool) (found describedPartition) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%s is described as %s", topic, what), func() (bool, string) {
		d := c.do(order{Do: "describe", Mirror: m}).Described
		for _, found = range d.Partitions {
			if found.Topic == topic && found.Partition == 0 && !found.Reported.IsZero() && ok(found) {
				return true, ""
			}
		}
		return false, d.Text
	})
	return found
}
