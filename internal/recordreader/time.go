package recordreader

import "time"

// The first and the last time that JSON can tell (RFC 3339: four digits of a year), whatever the time zone.
var firstTold, lastTold = time.Date(0, 1, 2, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()

// Time is a timestamp of a batch as a time that can be told. Producers set what they like: with microseconds in place of milliseconds a batch is of the year 55000, and one such time makes json.Marshal refuse
// the whole report that it is in. What lies beyond is told as the first and the last that can be.
func Time(ms int64) time.Time { return time.UnixMilli(min(max(ms, firstTold), lastTold)) }
