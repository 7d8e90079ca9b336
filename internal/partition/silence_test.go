package partition

import "testing"

// TestF05BySilence: what a session leaves out twice without any records, while the source's end lies above the position, is an empty answer.
func TestF05BySilence(t *testing.T) {
	var s Silence
	silent := func(what string, offset, end int64, proven bool) {
		t.Helper()
		answer, got := s.LeftOut(offset, 4, end)
		want := Fetch{}
		if proven {
			want = Fetch{Offset: offset, LeaderEpoch: 4, HighWatermark: end, LastStable: -1, LogStart: -1, LeaderID: -1, CurrentEpoch: -1}
		}
		if got != proven || answer.Code != want.Code || answer.Offset != want.Offset || answer.LeaderEpoch != want.LeaderEpoch || answer.HighWatermark != want.HighWatermark ||
			answer.LastStable != want.LastStable || answer.LogStart != want.LogStart || answer.LeaderID != want.LeaderID || answer.CurrentEpoch != want.CurrentEpoch ||
			answer.Crowded || answer.Records != nil {
			t.Errorf("%s: proven %v, %+v", what, got, answer)
		}
	}
	silent("once may be want of room", 0, 10, false)
	silent("twice", 0, 10, true)
	silent("then it counts anew", 0, 10, false)
	silent("another position counts anew", 5, 10, false)
	silent("twice there", 5, 10, true)
	silent("in step", 10, 10, false)
	silent("in step says nothing", 10, 10, false)
	silent("the end is not known", 10, -1, false)
	silent("nor that", 10, -1, false)
	silent("the end moved: once", 10, 12, false)
	silent("and twice", 10, 12, true)
}
