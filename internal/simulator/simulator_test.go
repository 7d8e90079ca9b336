package simulator

import (
	"testing"
	"time"
)

// TestSeeds plays fresh seeds.
func TestSeeds(t *testing.T) {
	from := uint64(time.Now().UnixNano()) >> 10
	t.Logf("seeds from %d", from)
	res := Run(Options{From: from, Seeds: 200}, func(f Failure) { t.Error(f) })
	t.Log(res.Summary())
	if res.Stats.Failovers == 0 || res.Stats.Failbacks == 0 {
		t.Error("no failover or no failback")
	}
}

// TestAScriptIsItsSeed: the ops that were chosen replay to the byte without the adversary.
func TestAScriptIsItsSeed(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a := Seed(seed, true)
		s, err := ParseScript(a.Script.String())
		if err != nil {
			t.Fatal(err)
		}
		if b := Play(s, true); a.Transcript != b.Transcript {
			t.Fatalf("seed %d: its script plays another run", seed)
		}
	}
}
