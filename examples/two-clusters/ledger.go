package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// place of a record in a log.
type position struct {
	side, topic string
	partition   int32
	offset      int64
}

// ledger is what the clients know: what they were told is written, and what they have read.
type ledger struct {
	mu      sync.Mutex
	written map[string]position   // acknowledged records, of transactions those that were committed, by id
	read    map[string][]position // each record that the consumer was given, by id, every time
	twice   int
	count   map[string]int // records acknowledged by a side
	given   map[string]int // records that the consumer got from a side
	cut     int            // records whose writers got no answer
}

func newLedger() *ledger {
	return &ledger{written: map[string]position{}, read: map[string][]position{}, count: map[string]int{}, given: map[string]int{}}
}

// value makes a record's value: its id, and something to fill it.
func value(id string) []byte {
	return []byte(id + "|" + strings.Repeat("abcdefgh", 30))
}

// idOf is the id in a value.
func idOf(value []byte) string {
	id, _, _ := strings.Cut(string(value), "|")
	return id
}

func (l *ledger) wrote(id string, at position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[id] = at
	l.count[at.side]++
}

func (l *ledger) unanswered(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut += n
}

func (l *ledger) got(id string, at position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.read[id]) > 0 {
		l.twice++
	}
	l.read[id] = append(l.read[id], at)
	l.given[at.side]++
}

// writtenAt and readAt are how many records a side has acknowledged and given.
func (l *ledger) writtenAt(side string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[side]
}

func (l *ledger) readAt(side string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given[side]
}

func (l *ledger) readTwice() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.twice
}

func (l *ledger) hasRead(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.read[id]) > 0
}

// unread names a partition whose newest acknowledged record of a side the consumer has not got yet; "" if there is none.
func (l *ledger) unread(side string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest, of := map[string]int64{}, map[string]string{}
	for id, at := range l.written {
		name := partitionName(at.topic, at.partition)
		if last, is := newest[name]; at.side == side && (!is || at.offset > last) {
			newest[name], of[name] = at.offset, id
		}
	}
	for name, id := range of {
		if len(l.read[id]) == 0 {
			return name + ": " + id
		}
	}
	return ""
}

// acknowledged are all records that were.
func (l *ledger) acknowledged() map[string]position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.written)
}

func partitionName(topic string, partition int32) string {
	return fmt.Sprintf("%s-%d", topic, partition)
}

// some names a few of many.
func some(all []string) string {
	slices.Sort(all)
	if len(all) > 3 {
		return fmt.Sprintf("%s … (%d)", strings.Join(all[:3], ", "), len(all))
	}
	return strings.Join(all, ", ")
}
