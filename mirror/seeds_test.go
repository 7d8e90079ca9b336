package mirror_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Uint64("seeds", 10, "how many seeds each random test runs")
	seed  = flag.Int64("seed", -1, "the one seed that random tests run")
)

// seeded runs a random test with some seeds, each in a bubble of its own.
func seeded(t *testing.T, run func(t *testing.T, rng *rand.Rand)) {
	first, n := uint64(0), *seeds
	if *seed >= 0 {
		first, n = uint64(*seed), 1
	}
	for s := first; s < first+n; s++ {
		t.Run(fmt.Sprint("seed ", s), func(t *testing.T) {
			t.Logf("seed: %d", s)
			synctest.Test(t, func(t *testing.T) { run(t, rand.New(rand.NewPCG(s, 1))) })
		})
	}
}
