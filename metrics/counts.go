package metrics

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermirror/clustermirror/mirror"
)

// A counter that appears with its first event hides that event from increase(): it has to be there before, as 0. So the kinds are known here.

// eventKinds are the kinds of mirror.Event, by their types' names.
var eventKinds = []string{
	"BatchRefetched", "CopyDiffers", "CutMade", "EpochRaised", "Fenced", "GroupLeft", "GroupMovedBack", "GroupsNotSettled", "LastEpochRecorded", "LeaderMoved", "LogDoubted", "MarkersWritten", "MirrorDeleted", "NothingLeft",
	"RecordsDropped", "RecordsLost", "RetryScheduled", "RulesFollowed", "SettingsFollowed", "SourceReturned", "SourceThrottled", "SourceTrouble", "SplitBrainSeen", "StartRaised", "StateChanged", "StoreTrouble", "SyncSkipped", "SyncTrouble", "TopicTrouble", "VerificationPassEnded", "WishRecorded",
}

// destinationKinds are the kinds of kraft.Event.
var destinationKinds = []string{"joined", "fenced", "unregistered", "violation", "unsafe", "shape changed", "topic gone", "handed over", "taken over", "setting kept", "trouble", "standing by"}

// needsPerson are those of which it matters which topic they were about.
var needsPerson = []string{"violation", "unsafe", "shape changed", "topic gone"}

// counts are what events come to since the process began.
type counts struct {
	mirrors          map[string]*mirrorCounts
	destinationKinds map[string]int
	told             map[[2]string]time.Time // by kind and topic
}

type mirrorCounts struct {
	kinds         map[string]int
	lost, dropped int64
	storeTrouble  bool
}

func newCounts() counts {
	c := counts{mirrors: map[string]*mirrorCounts{}, destinationKinds: map[string]int{}, told: map[[2]string]time.Time{}}
	for _, kind := range destinationKinds {
		c.destinationKinds[kind] = 0
	}
	return c
}

// of returns the counts of a mirror.
func (c *counts) of(name string) *mirrorCounts {
	m := c.mirrors[name]
	if m == nil {
		m = &mirrorCounts{kinds: map[string]int{}}
		for _, kind := range eventKinds {
			m.kinds[kind] = 0
		}
		c.mirrors[name] = m
	}
	return m
}

func (c *counts) event(e mirror.Event) {
	m := c.of(e.Where().Mirror)
	kind := fmt.Sprintf("%T", e)
	m.kinds[kind[strings.LastIndexByte(kind, '.')+1:]]++
	switch e := e.(type) {
	case mirror.RecordsLost:
		m.lost += max(0, e.To-e.From)
	case mirror.RecordsDropped:
		m.dropped += max(0, e.To-e.From)
	case mirror.StoreTrouble:
		m.storeTrouble = e.Err != nil
	}
}

func (c *counts) destination(kind, topic string, now time.Time) {
	c.destinationKinds[kind]++
	if topic != "" && slices.Contains(needsPerson, kind) {
		c.told[[2]string{kind, topic}] = now
	}
}

// series are the counts of the mirrors that run, and of those of which something was counted.
func (c *counts) series(running []string, cluster string) []prometheus.Metric {
	var all []prometheus.Metric
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		all = append(all, constant(d, kind, value, labels...))
	}
	for _, name := range running {
		add(mirrorStoreTrouble, prometheus.GaugeValue, one(c.of(name).storeTrouble), name, cluster)
	}
	for name, m := range c.mirrors {
		add(lostOffsets, prometheus.CounterValue, float64(m.lost), name, cluster)
		add(droppedOffsets, prometheus.CounterValue, float64(m.dropped), name, cluster)
		for kind, n := range m.kinds {
			add(events, prometheus.CounterValue, float64(n), name, kind, cluster)
		}
	}
	for kind, n := range c.destinationKinds {
		add(destinationEvents, prometheus.CounterValue, float64(n), kind, cluster)
	}
	for what, at := range c.told {
		add(destinationTold, prometheus.GaugeValue, float64(at.UnixMilli())/1000, what[0], what[1], cluster)
	}
	return all
}
