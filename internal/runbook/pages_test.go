package runbook

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestPages follows each page of docs/runbook, and looks at what it promises.
func TestPages(t *testing.T) {
	for _, p := range []struct {
		name     string
		clusters []string // the primary, and the standby
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
	} {
		t.Run(p.name, func(t *testing.T) {
			f := follow(t, p.name, p.clusters...)
			p.promises(f)
		})
	}
}
