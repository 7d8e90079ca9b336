package partition

// Silence is the proof that nothing is left to read (F-05), drawn from replies that do not name a partition. A fetch session does not repeat what has not changed:
// whoever stands in it and is left out of a reply without any records, although the source's end lies above its position, has got an empty answer. Once may be a
// broker that had no room or no time; twice at the same position is the proof. The zero Silence has heard nothing. It is one partition's.
type Silence struct {
	offset  int64
	replies int
}

// silentReplies is how many replies have to leave a partition out.
const silentReplies = 2

// LeftOut counts one reply to a request in which the partition stood at this position and under this leader epoch, and which carries no records for anybody and does
// not name it. end is the source's high watermark as it was told last, −1 if it was not. When the proof is complete, answer is the empty reply that it stands for, and
// counting begins anew.
func (s *Silence) LeftOut(offset int64, leaderEpoch int32, end int64) (answer Fetch, proven bool) {
	if offset != s.offset {
		*s = Silence{offset: offset}
	}
	if end <= offset {
		return Fetch{}, false
	}
	if s.replies++; s.replies < silentReplies {
		return Fetch{}, false
	}
	s.replies = 0
	return Fetch{Offset: offset, LeaderEpoch: leaderEpoch, HighWatermark: end, LastStable: -1, LogStart: -1, LeaderID: -1, CurrentEpoch: -1}, true
}
