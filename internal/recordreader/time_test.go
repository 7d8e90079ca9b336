package recordreader

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// A time is told exactly where JSON can tell it, and in every time zone as one that it can.
func TestATimestampCanBeTold(t *testing.T) {
	for _, ms := range []int64{0, -1, 1, 1_700_000_000_123} {
		if got := Time(ms).UnixMilli(); got != ms {
			t.Errorf("%d is told as %d", ms, got)
		}
	}
	for _, ms := range []int64{math.MinInt64, -1, 1_700_000_000_000_000, 1_700_000_000_000_000_000, math.MaxInt64} {
		for _, hours := range []int{-14, 0, 14} {
			when := Time(ms).In(time.FixedZone("", hours*3600))
			if _, err := json.Marshal(when); err != nil {
				t.Errorf("%d, %d hours from UTC: %v", ms, hours, err)
			}
		}
	}
}
