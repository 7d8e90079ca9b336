package mirror

import "time"

// Settings are a mirror's or a node's configuration by Kafka's names (spec §7): "bootstrap.servers", "mirror.topics.include" … What is absent has its default.
// A value of a secret setting is never printed, neither by String nor in an error. mirror/properties reads them from Java properties files.
type Settings map[string]string

// SettingLevel is where a setting belongs.
type SettingLevel uint8

// The levels.
const (
	NodeSetting       SettingLevel = iota + 1 // of one process
	MirrorSetting                             // of one mirror: kept in the Control, changed by AlterConfig
	ConnectionSetting                         // of one mirror, and a change reconnects to the source
)

// SettingDefinition is one setting: its documentation as data.
type SettingDefinition struct {
	Name    string
	Level   SettingLevel
	Type    string // int, long, short, boolean, string, list, password
	Default string // as it would be written in a file; "" is empty
	Valid   string // in words
	Secret  bool
	Doc     string
}

// NodeOptions are the node-level settings, parsed. FromNodeSettings makes them.
type NodeOptions struct {
	StatePartitions        int32         // mirror.state.topic.num.partitions [50]
	StateReplicationFactor int16         // mirror.state.topic.replication.factor [3]
	FetchersPerBroker      int           // mirror.num.replica.fetchers [1]
	RefreshInterval        time.Duration // mirror.metadata.refresh.interval.ms [30 s]
	FetchBackoff           time.Duration // mirror.fetch.backoff.ms [1 s]
	Retry                  RetryPolicy   // mirror.failed.retry.*
}
