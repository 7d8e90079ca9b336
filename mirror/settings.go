package mirror

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/secret"
)

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

// String is what the level is called in a sentence.
func (l SettingLevel) String() string {
	switch l {
	case NodeSetting:
		return "node"
	case MirrorSetting:
		return "mirror"
	case ConnectionSetting:
		return "connection"
	}
	return "unknown"
}

// SettingDefinition is one setting: its documentation as data.
type SettingDefinition struct {
	Name    string
	Aliases []string // other names that are accepted: those of later drafts of the KIP
	Level   SettingLevel
	Type    string // int, long, short, boolean, string, list, password
	Default string // as it would be written in a file; "" is empty
	Valid   string // in words
	Secret  bool
	Doc     string
}

// NodeOptions are the node-level settings, parsed. NodeOptionsFrom makes them.
type NodeOptions struct {
	StatePartitions        int32         // mirror.state.topic.num.partitions [50]
	StateReplicationFactor int16         // mirror.state.topic.replication.factor [3]
	FetchersPerBroker      int           // mirror.num.replica.fetchers [1]
	RefreshInterval        time.Duration // mirror.metadata.refresh.interval.ms [30 s]
	FetchBackoff           time.Duration // mirror.fetch.backoff.ms [1 s]
	Retry                  RetryPolicy   // mirror.failed.retry.*
	VerifyRate             int64         // mirror.verification.rate [0: nothing is compared]
	VerifyInterval         time.Duration // mirror.verification.interval.ms [24 h]
	SharedRate             int64         // mirror.node.throttled.rate [0: no limit]; whoever opens the mirrors makes one SharedRate of it for all of them
}

// SettingDefinitions lists every setting, in the order in which a person would read them. The result is the caller's.
func SettingDefinitions() []SettingDefinition {
	list := make([]SettingDefinition, len(settingTable))
	for i, s := range settingTable {
		list[i] = s.SettingDefinition
		list[i].Aliases = slices.Clone(s.Aliases)
	}
	return list
}

// Effective is the value that counts: what was set, under its name or an alias, or else the default. A name that is no setting's gives what is there.
func (s Settings) Effective(name string) string {
	d, known := settingsByName[name]
	if !known {
		return strings.TrimSpace(s[name])
	}
	for _, n := range append([]string{d.Name}, d.Aliases...) {
		if value, set := s[n]; set {
			return strings.TrimSpace(value)
		}
	}
	return d.Default
}

// Canonical returns a copy in which aliases have their setting's own name: what is stored. Errors: two names of one setting with different values (a *SettingError each).
func (s Settings) Canonical() (Settings, error) {
	if err := joinFaults(s.conflicts()); err != nil {
		return nil, err
	}
	c := make(Settings, len(s))
	for name, value := range s {
		if d, known := settingsByName[name]; known && name != d.Name {
			if _, both := s[d.Name]; both {
				continue
			}
			name = d.Name
		}
		c[name] = value
	}
	return c, nil
}

// ReconnectNeeded says whether a mirror has to connect to its source anew when its settings change from old to new (spec §1.5). Filters, pins, topic sets, floor and loss policy
// never need it. A name that is not known does: nobody can say what it means.
func ReconnectNeeded(old, new Settings) bool {
	names := Settings{}
	maps.Copy(names, old)
	maps.Copy(names, new)
	for name := range names {
		d, known := lookUpSetting(name)
		if (!known || d.Level == ConnectionSetting) && old.Effective(name) != new.Effective(name) {
			return true
		}
	}
	return false
}

// hiddenValue is printed instead of a secret, as Kafka does.
const hiddenValue = "[hidden]"

// String lists the settings by name, secrets hidden. A setting that is not known is hidden when its name looks like a secret's: it may be a mistyped one. An address that may have
// a user in it is hidden too; Check refuses it.
func (s Settings) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name + "=" + s.shown(name))
	}
	return b.String()
}

// GoString is String: %#v hides secrets too.
func (s Settings) GoString() string { return "mirror.Settings{" + s.String() + "}" }

// LogValue is a group of the settings by name, secrets hidden.
func (s Settings) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, len(s))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		attrs = append(attrs, slog.String(name, s.shown(name)))
	}
	return slog.GroupValue(attrs...)
}

func (s Settings) shown(name string) string {
	d, known := lookUpSetting(name)
	if isSecretSetting(name) || (!known || d.address) && secret.InAddress(s[name]) {
		return hiddenValue
	}
	return s[name]
}

func isSecretSetting(name string) bool {
	_, known := lookUpSetting(name)
	return secret.IsSetting(name) || !known && (secret.InFamily(name) || secret.Looks(name))
}
