package logtrunc

// LMEPoint is where a log is cut in PREPARING, given the last mirror epoch and offset that the source recorded for us (spec §3, decision 3):
// lme Unknown → start (everything goes); else the start of the first epoch beyond lme, or end when there is none; additionally bounded by lmo when it is known.
// The result is within [start, end].
//
// An lme above our latest epoch keeps the log: the search that follows finds the exact point, and a wiped log cannot be brought back. lmo only ever lowers the point.
func LMEPoint(c *Cache, lme int32, lmo, start, end int64) int64 {
	if lme < 0 {
		return start
	}
	point := end
	if i := c.firstAbove(lme); i < len(c.entries) {
		point = c.entries[i].Start
	}
	if lmo >= 0 {
		point = min(point, lmo)
	}
	return max(start, min(point, end))
}
