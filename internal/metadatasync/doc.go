// Package metadatasync decides what is to be written at the destination so that groups, topic settings and access rules follow the source (spec §6 and decisions 12 and 17). It is pure:
// it has no clock, no goroutine and no client. What it is told is what both sides say now and what is remembered of earlier writes; what it returns is what to write, what to
// remember before that is written, and why something is left alone.
//
// One rule holds for all three: the destination's own is not touched. What the mirror wrote is remembered before it is written, together with what it replaces, so that a crash between
// the two leaves nothing that looks like somebody else's.
package metadatasync
