package runbook

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// pages are those of docs/runbook, with what they promise.
var pages = []struct {
	name     string
	clusters []string // the primary, the standby, and another one
	promises func(f *follower)
}{
	{"disaster-failover", []string{"a primary that dies", "standby"}, func(f *follower) {
		f.isStopped("standby", "dr", map[string]int64{"orders": 5, "payments": 5})
		f.isCopyOf("standby", "primary", "orders", 5)
		f.isCopyOf("standby", "primary", "payments", 5)
		f.isWritable("standby", "payments")
		f.isAt("standby", "billing", "orders", 7) // three from the primary, two here, behind the reset
	}},
	{"planned-promote", []string{"primary", "standby"}, func(f *follower) {
		w := f.writers["primary orders"]
		w.end()
		if w.refused == nil {
			f.t.Errorf("the fence has stopped nobody")
		}
		f.isStopped("standby", "dr", map[string]int64{"orders": f.endOf("primary", "orders"), "payments": 5})
		f.isCopyOf("standby", "primary", "orders", f.endOf("primary", "orders"))
		f.hasAll("standby", "orders", w.acknowledged())
		f.isWritable("standby", "orders")
		f.isWritable("standby", "payments")
	}},
	{"half-failed-over", []string{"primary", "standby"}, func(f *follower) {
		f.isIn("standby", "dr", statemachine.Stopped, "orders", "payments")
		f.isWritable("standby", "orders")
		f.isWritable("standby", "payments")
		f.isAt("standby", "billing", "payments", 2)
	}},
	{"lost-node", []string{"primary", "a standby of three"}, func(f *follower) {
		f.isStopped("standby", "dr", map[string]int64{"orders": 8, "payments": 5})
		f.isCopyOf("standby", "primary", "orders", 8)
		f.isCopyOf("standby", "primary", "payments", 5)
		f.isWritable("standby", "orders")
		f.isWritable("standby", "payments")
	}},
	{"wrong-cluster", []string{"a balanced primary", "standby", "primary"}, func(f *follower) {
		f.isIn("standby", "dr", statemachine.Mirroring, "orders", "payments")
		f.isCopyOf("standby", "primary", "orders", f.endOf("primary", "orders"))
	}},
	{"failback", []string{"primary", "standby"}, func(f *follower) {
		f.isIn("standby", "dr", statemachine.Mirroring, "orders", "payments")
		f.isCopyOf("primary", "standby", "orders", f.endOf("primary", "orders"))
		f.isWritable("primary", "orders")
	}},
	{"lost-state-topic", []string{"primary", "standby"}, func(f *follower) {
		f.isStopped("standby", "dr", map[string]int64{"orders": 5})
		f.isIn("standby", "dr", statemachine.Mirroring, "payments")
		f.isCopyOf("standby", "primary", "orders", 5)
		f.isCopyOf("standby", "primary", "payments", 5)
		f.isWritable("standby", "orders")
	}},
	{"half-dead-source", []string{"a primary of three that dies", "standby"}, func(f *follower) {
		w := f.writers["primary payments"]
		w.end()
		if w.refused == nil {
			f.t.Errorf("the fence has stopped nobody")
		}
		f.isStopped("standby", "dr", map[string]int64{"orders": 5, "payments": f.endOf("primary", "payments")})
		f.hasAll("standby", "payments", w.acknowledged())
		f.isWritable("standby", "orders")
		f.isWritable("standby", "payments")
		// What the card says of a source whose controllers are gone.
		f.clusters["primary"].Kill(1)
		f.dead["primary"] = true
		f.clusters["primary"].Produce(f.names.inRun("payments"), 0, "taken without controllers")
	}},
	{"abort-failback", []string{"primary", "standby"}, func(f *follower) {
		f.isWritable("standby", "orders")
		f.isIn("primary", "home", statemachine.Mirroring, "orders", "payments")
		f.isCopyOf("primary", "standby", "orders", f.endOf("standby", "orders"))
	}},
}

// TestPages follows each page of docs/runbook, and looks at what it promises.
func TestPages(t *testing.T) {
	for _, p := range pages {
		t.Run(p.name, func(t *testing.T) {
			f := follow(t, p.name, p.clusters...)
			p.promises(f)
		})
	}
}
