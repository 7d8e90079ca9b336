package simulator

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// Config is a run's header: everything that is not an op.
type Config struct {
	Seed       uint64 // of latencies and other small things
	Partitions int32
	Loss       partition.LossPolicy
	Floor      int64  // of the log start
	Recovers   string // what logs say of themselves: no, all, less, nothing
	Piece      int32  // batches that one read of a log feeds, 0: all
	Reply      int32  // batches in a fetch reply
	MaxBatch   int32  // bytes of a batch that the destinations take, until the end; 0: all
	Bumps      int32  // leader epochs that moving the gate costs
	Closes     bool   // a restart closes the gate of a log that was open
	Diverging  bool   // the source's fetch replies tell of diverging epochs
	NoEpochs   bool   // the source does not answer for ends of epochs
	Blind      bool   // the source's metadata tell no leader epochs
	Unfenced   bool   // the source's brokers do not look at the leader epoch of a request (older than KIP-320)
}

// drawConfig draws a header.
func drawConfig(r *rand.Rand) Config {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	c := Config{
		Seed: r.Uint64() >> 16, Partitions: int32(1 + r.IntN(2)), Recovers: pick("no", "no", "all", "less", "nothing"), Piece: int32(r.IntN(4)), Reply: int32(1 + r.IntN(6)),
		Bumps: int32(r.IntN(2)), Closes: r.IntN(3) == 0, Diverging: r.IntN(3) > 0,
	}
	switch r.IntN(24) {
	case 0, 1, 2:
		c.Blind = true
	case 3, 4:
		c.NoEpochs, c.Diverging = true, false
	}
	c.Unfenced = r.IntN(8) == 0
	if r.IntN(16) == 0 { // a batch of three or four records is larger, until the run is healed
		c.MaxBatch = int32(80 + r.IntN(20))
	}
	if r.IntN(3) == 0 {
		c.Loss = partition.LossPolicy(r.IntN(3))
	}
	if r.IntN(8) == 0 {
		c.Floor = int64(1 + r.IntN(20))
	}
	return c
}

// String is the header's line.
func (c Config) String() string {
	return fmt.Sprintf("config seed=%d partitions=%d loss=%v floor=%d recovers=%s piece=%d reply=%d max-batch=%d bumps=%d closes=%v diverging=%v no-epochs=%v blind=%v unfenced=%v",
		c.Seed, c.Partitions, c.Loss, c.Floor, c.Recovers, c.Piece, c.Reply, c.MaxBatch, c.Bumps, c.Closes, c.Diverging, c.NoEpochs, c.Blind, c.Unfenced)
}

// parseConfig reads a header's line. What it does not name is as it is by default.
func parseConfig(line string) (Config, error) {
	c := Config{Partitions: 1, Recovers: "no", Reply: 4, Diverging: true}
	for i, word := range strings.Fields(line) {
		name, value, ok := strings.Cut(word, "=")
		if i == 0 && word == "config" {
			continue
		}
		if !ok {
			return c, fmt.Errorf("config: %q is no name=value", word)
		}
		n, err := strconv.ParseInt(value, 10, 32)
		switch name {
		case "seed":
			c.Seed, err = strconv.ParseUint(value, 10, 64)
		case "partitions":
			c.Partitions = int32(min(max(n, 1), 4))
		case "floor":
			c.Floor, err = strconv.ParseInt(value, 10, 64)
		case "piece":
			c.Piece = int32(n)
		case "reply":
			c.Reply = int32(max(n, 1))
		case "max-batch":
			c.MaxBatch = int32(n)
		case "bumps":
			c.Bumps = int32(n)
		case "recovers":
			c.Recovers, err = value, nil
		case "loss":
			c.Loss, err = parseLoss(value)
		case "closes":
			c.Closes, err = strconv.ParseBool(value)
		case "diverging":
			c.Diverging, err = strconv.ParseBool(value)
		case "blind":
			c.Blind, err = strconv.ParseBool(value)
		case "no-epochs":
			c.NoEpochs, err = strconv.ParseBool(value)
		case "unfenced":
			c.Unfenced, err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("config: unknown name %q", name)
		}
		if err != nil {
			return c, fmt.Errorf("config: %s: %w", word, err)
		}
	}
	return c, nil
}

func parseLoss(s string) (partition.LossPolicy, error) {
	for _, l := range []partition.LossPolicy{partition.LossRestart, partition.LossFail, partition.LossKeep} {
		if l.String() == s {
			return l, nil
		}
	}
	return 0, fmt.Errorf("unknown loss policy %q", s)
}
