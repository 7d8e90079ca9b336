package replicareader

import (
	"context"
	"errors"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
)

// Compared is how two brokers' copies compare: Comparison.First is the first difference where both hold records, Comparison.Outside what only one of them holds, because its
// log starts earlier ("a" is A, "b" is B) or it is behind.
type Compared struct {
	A, B int32
	mirror.Comparison
}

func (c Compared) String() string {
	return fmt.Sprintf("a is broker %d, b is broker %d: %s", c.A, c.B, c.Comparison)
}

// Compare compares the first broker's copy with each of the others', in step, batch by batch and byte by byte, as far as both reached when it began. Two copies that are being
// written end at different offsets: that is Outside, no difference. Brokers compact on their own, so copies of a compacted topic may differ in what is missing.
//
// An error says that a copy could not be read, or that its log start was raised under the comparison; what was compared up to there is returned with it.
func (r *Reader) Compare(ctx context.Context, t Target, brokers ...int32) ([]Compared, error) {
	if len(brokers) < 2 {
		return nil, errors.New("one copy cannot be compared; name two brokers at least")
	}
	logs := make([]mirror.LogReader, len(brokers))
	for i, broker := range brokers {
		start, end, err := r.startAndEnd(ctx, broker, t)
		if err != nil {
			return nil, err
		}
		logs[i] = copyLog{r, broker, t, start, end}
	}
	var all []Compared
	for i := 1; i < len(logs); i++ {
		c, err := mirror.Compare(ctx, logs[0], logs[i], mirror.CompareOptions{})
		all = append(all, Compared{A: brokers[0], B: brokers[i], Comparison: c})
		if err != nil {
			return all, fmt.Errorf("a is broker %d, b is broker %d: %w", brokers[0], brokers[i], err)
		}
	}
	return all, nil
}

// copyLog is a broker's copy with the ends that it had once.
type copyLog struct {
	reader     *Reader
	broker     int32
	target     Target
	start, end int64
}

func (l copyLog) Start() int64 { return l.start }
func (l copyLog) End() int64   { return l.end }
func (l copyLog) Read(ctx context.Context, from int64, max int) ([]byte, error) {
	return l.reader.Read(ctx, l.broker, l.target, from, max)
}
