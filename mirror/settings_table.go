package mirror

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/secret"
)

// Names of settings that the code asks for.
const (
	statePartitionsSetting   = "mirror.state.topic.num.partitions"
	stateReplicationSetting  = "mirror.state.topic.replication.factor"
	fetchersSetting          = "mirror.num.replica.fetchers"
	refreshSetting           = "mirror.metadata.refresh.interval.ms"
	fetchBackoffSetting      = "mirror.fetch.backoff.ms"
	retryInitialSetting      = "mirror.failed.retry.initial.backoff.ms"
	retryMaxSetting          = "mirror.failed.retry.max.backoff.ms"
	retryAttemptsSetting     = "mirror.failed.retry.max.attempts"
	topicsIncludeSetting     = "mirror.topics.include"
	topicsExcludeSetting     = "mirror.topics.exclude"
	topicSetPrefix           = "mirror.topic.set."
	lossPolicySetting        = "mirror.loss.policy"
	startFloorSetting        = "mirror.start.floor"
	rateSetting              = "mirror.replication.throttled.rate"
	nodeRateSetting          = "mirror.node.throttled.rate"
	verifyRateSetting        = "mirror.verification.rate"
	verifyIntervalSetting    = "mirror.verification.interval.ms"
	fetchWaitSetting         = "fetch.wait.max.ms"
	fetchMinBytesSetting     = "fetch.min.bytes"
	fetchMaxBytesSetting     = "fetch.max.bytes"
	fetchResponseMaxSetting  = "fetch.response.max.bytes"
	jaasSetting              = secret.JAAS
	groupsIncludeSetting     = "mirror.groups.include"
	groupsExcludeSetting     = "mirror.groups.exclude"
	aclIncludeSetting        = "mirror.acl.include"
	propertiesExcludeSetting = "mirror.topic.properties.exclude"
)

// setting is a definition with what code needs beside it.
type setting struct {
	SettingDefinition
	fault     func(value string) error // what is wrong with a value, nil for nothing
	reference bool                     // a value may hold ${provider:…}, which is resolved when a connection is made
	address   bool                     // of a host, a URL, or several of them: nobody's user or password belongs into it
}

// maxMillis is the longest time that time.Duration holds.
const maxMillis = math.MaxInt64 / int64(time.Millisecond)

// wholeNumber makes a definition of a number from least to most.
func wholeNumber(level SettingLevel, kind, name, byDefault string, least, most int64, doc string, aliases ...string) setting {
	valid := fmt.Sprintf("at least %d", least)
	if most < math.MaxInt16+1 {
		valid = fmt.Sprintf("%d to %d", least, most)
	}
	return setting{
		SettingDefinition: SettingDefinition{Name: name, Aliases: aliases, Level: level, Type: kind, Default: byDefault, Valid: valid, Doc: doc},
		fault: func(value string) error {
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
				return errors.New("is no whole number")
			case n < least:
				return fmt.Errorf("is less than %d", least)
			case n > most:
				return fmt.Errorf("is more than %d", most)
			}
			return nil
		},
	}
}

func oneOf(level SettingLevel, name, byDefault, doc string, values ...string) setting {
	return setting{
		SettingDefinition: SettingDefinition{Name: name, Level: level, Type: "string", Default: byDefault, Valid: strings.Join(values, ", "), Doc: doc},
		fault: func(value string) error {
			if !slices.Contains(values, value) {
				return fmt.Errorf("is none of %s", strings.Join(values, ", "))
			}
			return nil
		},
	}
}

// text is a string, list or password of which any value, or any element, is fine, unless fault says otherwise.
func text(level SettingLevel, kind, name, byDefault, valid, doc string, fault func(string) error, aliases ...string) setting {
	if fault == nil {
		fault = func(string) error { return nil }
	}
	return setting{
		SettingDefinition: SettingDefinition{Name: name, Aliases: aliases, Level: level, Type: kind, Default: byDefault, Valid: valid, Secret: secret.IsSetting(name), Doc: doc}, fault: fault,
	}
}

func patterns(level SettingLevel, name, byDefault, doc string, aliases ...string) setting {
	return text(level, "list", name, byDefault, "regular expressions (RE2), separated by commas; each has to match a whole name", doc, func(value string) error {
		_, err := compilePatterns(settingList(value))
		return err
	}, aliases...)
}

// connection makes a setting one that whoever connects reads (internal/kafkaconfig); that also says what a protocol or mechanism needs besides.
func connection(s setting) setting {
	s.Level, s.reference = ConnectionSetting, true
	return s
}

// address makes a connection setting one that says where somebody is.
func address(s setting) setting {
	s.address = true
	return connection(s)
}

// settingTable is spec §7 with the decisions, in the order in which a person would read it.
var settingTable = []setting{
	wholeNumber(NodeSetting, "int", statePartitionsSetting, "50", 1, math.MaxInt32, "Partitions of the topic of states. It must not change once the topic exists."),
	wholeNumber(NodeSetting, "short", stateReplicationSetting, "3", 1, math.MaxInt16, "Replication factor of the topics that hold states and desired state."),
	wholeNumber(NodeSetting, "int", fetchersSetting, "1", 1, math.MaxInt32, "Connections per source broker and mirror."),
	wholeNumber(NodeSetting, "long", refreshSetting, "30000", 0, maxMillis, "How often the source's metadata is looked at, in milliseconds. 0 is as often as a millisecond allows."),
	wholeNumber(NodeSetting, "long", fetchBackoffSetting, "1000", 0, maxMillis, "Pause after a fetch that failed, in milliseconds. 0 is one millisecond.", "fetch.backoff.ms"),
	wholeNumber(NodeSetting, "long", retryInitialSetting, "1000", 1, maxMillis, "Delay before a failed partition is tried again for the first time, in milliseconds; it doubles each time."),
	wholeNumber(NodeSetting, "long", retryMaxSetting, "300000", 1, maxMillis, "Longest delay between two tries, in milliseconds."),
	wholeNumber(NodeSetting, "int", retryAttemptsSetting, "0", 0, math.MaxInt16, "How often a failed partition is tried again; 0 is without end, so that a mirror comes back by itself after a long outage."),
	wholeNumber(NodeSetting, "long", nodeRateSetting, "0", 0, math.MaxInt64, "Bytes a second that all mirrors of the node together receive from their sources at most, beside each one's own mirror.replication.throttled.rate; 0: no limit."),
	wholeNumber(NodeSetting, "long", verifyRateSetting, "0", 0, math.MaxInt64, "Bytes a second, of both clusters together and of each mirror, that are read to compare copies with their source while they are mirrored; 0: they are not compared. Copying comes first."),
	wholeNumber(NodeSetting, "long", verifyIntervalSetting, "86400000", 1, maxMillis, "How often each copy is compared, in milliseconds, if mirror.verification.rate lets it."),

	address(text(ConnectionSetting, "list", "bootstrap.servers", "", "host:port, separated by commas; needed when a mirror is created", "Brokers of the source to begin with.", bootstrapFault)),
	patterns(MirrorSetting, topicsIncludeSetting, "", "Topics of the source that are found and mirrored by themselves; empty finds none. Names that begin with __ are never found.", "topics.include"),
	patterns(MirrorSetting, topicsExcludeSetting, "__.*", "Topics that are not mirrored; it wins over the included ones, and topics being mirrored that match are stopped.", "topics.exclude"),
	patterns(MirrorSetting, groupsIncludeSetting, ".*", "Groups, share groups too, whose offsets are followed; empty is all.", "groups.include"),
	patterns(MirrorSetting, groupsExcludeSetting, "", "Groups whose offsets are not followed; it wins over the included ones.", "groups.exclude"),
	text(MirrorSetting, "list", aclIncludeSetting, "*", "type;name;operation;permission;principal, separated by commas; * is any, fields at the end may be left out",
		"Rules that say which access rules of the source are followed; empty is none. Name and principal are regular expressions that match whole. What * does not mean is the resource CLUSTER: it has to be named.",
		aclRulesFault, "acls.include"),
	// The limits of timestamps are there as topics have them, and as the KIP writes them: log. is in the name of a broker's setting.
	patterns(MirrorSetting, propertiesExcludeSetting, strings.Join([]string{
		"follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "message.timestamp.difference.max.ms", "message.timestamp.before.max.ms",
		"message.timestamp.after.max.ms", "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms", "message.timestamp.type", "unclean.leader.election.enable", "min.insync.replicas", "mirror.name"}, ","),
		"Topic settings that are not followed; a value replaces the whole default. Those of tiered storage (remote.*, local.retention.*) never are.", "topic.properties.exclude"),
	patterns(MirrorSetting, topicSetPrefix+"<name>", "", "Topics that belong together under a name: part of them alone is not stopped or failed over unless that is asked for."),
	oneOf(MirrorSetting, lossPolicySetting, "restart",
		"What happens when the source removed records before they were copied: restart (the copy starts where the source's log now starts), fail (stop there), keep (older records stay, with a hole).",
		lossPolicies...),
	wholeNumber(MirrorSetting, "long", startFloorSetting, "0", 0, math.MaxInt64, "The start of a copy's log never follows the source's above this offset. 0 is no floor."),
	wholeNumber(MirrorSetting, "long", rateSetting, "", 1, math.MaxInt64,
		"Bytes that a process receives from the source in a second for this mirror at most, over all brokers; without a value there is no limit. It counts from the next fetch on, without a new connection."),
	text(MirrorSetting, "string", "source.cluster.id", "", "a cluster id; empty is the first one seen", "Pins the source cluster: another one is refused before anything is written.", nil),
	text(MirrorSetting, "string", "mirror.destination.cluster.id", "", "a cluster id; empty is any", "Pins the destination cluster: another one is refused before anything is written.", nil),

	connection(text(ConnectionSetting, "string", "client.id", "", "", "Name by which the source's brokers know the mirror's connections (quotas, logs).", nil)),
	connection(wholeNumber(ConnectionSetting, "int", "request.timeout.ms", "10000", 1, math.MaxInt32, "Longest time of one call of the source, in milliseconds. Kafka's clients wait 30000; a broker that is silent is noticed sooner here.")),
	connection(wholeNumber(ConnectionSetting, "long", "socket.connection.setup.timeout.ms", "", 1, maxMillis, "Longest wait for a connection, in milliseconds. Without a value it is a third of request.timeout.ms, at most 10000.")),
	connection(wholeNumber(ConnectionSetting, "long", "socket.connection.setup.timeout.max.ms", "30000", 1, maxMillis, "Longest wait for a connection after failures, in milliseconds.")),
	connection(wholeNumber(ConnectionSetting, "long", "connections.max.idle.ms", "600000", 1, maxMillis, "A connection that is idle this long is closed, in milliseconds.")),
	wholeNumber(ConnectionSetting, "int", fetchWaitSetting, "1000", 1, math.MaxInt32, "How long a broker may hold a fetch that brings nothing, in milliseconds."),
	wholeNumber(ConnectionSetting, "int", fetchMinBytesSetting, "1", 1, math.MaxInt32, "Bytes that a broker waits for before it answers a fetch."),
	wholeNumber(ConnectionSetting, "int", fetchMaxBytesSetting, "1048576", 1, math.MaxInt32, "Bytes of one partition in a reply."),
	wholeNumber(ConnectionSetting, "int", fetchResponseMaxSetting, "10485760", 1, math.MaxInt32, "Bytes of a whole reply."),
	connection(oneOf(ConnectionSetting, "security.protocol", "PLAINTEXT", "How brokers are spoken to.", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
	connection(oneOf(ConnectionSetting, "sasl.mechanism", "PLAIN", "How the mirror authenticates with SASL.", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
	connection(text(ConnectionSetting, "password", jaasSetting, "", "a login module, required, its options, ;", "Name and secret for SASL, as Kafka's clients write it.", nil)),
	address(text(ConnectionSetting, "string", "sasl.oauthbearer.token.endpoint.url", "", "a URL", "Where tokens for OAUTHBEARER are fetched.", urlFault)),
	connection(text(ConnectionSetting, "string", "sasl.login.callback.handler.class", "", "a class name of Kafka's own handlers", "How tokens are obtained; read for the sake of existing files.", nil)),
	connection(text(ConnectionSetting, "string", "ssl.truststore.type", "PEM", "PEM", "Form of the certificates that are trusted.", pemFault)),
	connection(text(ConnectionSetting, "string", "ssl.truststore.location", "", "a path", "File of the certificates that are trusted.", nil)),
	connection(text(ConnectionSetting, "password", "ssl.truststore.certificates", "", "PEM", "The certificates that are trusted.", nil)),
	connection(text(ConnectionSetting, "password", "ssl.truststore.password", "", "", "Password of the file of trusted certificates.", nil)),
	connection(text(ConnectionSetting, "string", "ssl.keystore.type", "PEM", "PEM", "Form of the mirror's own key and certificates.", pemFault)),
	connection(text(ConnectionSetting, "string", "ssl.keystore.location", "", "a path", "File of the mirror's own key and certificates.", nil)),
	connection(text(ConnectionSetting, "password", "ssl.keystore.key", "", "PEM", "The mirror's own key.", nil)),
	connection(text(ConnectionSetting, "password", "ssl.keystore.certificate.chain", "", "PEM", "The mirror's own certificates.", nil)),
	connection(text(ConnectionSetting, "password", "ssl.keystore.password", "", "", "Password of the file of the mirror's own key.", nil)),
	connection(text(ConnectionSetting, "password", "ssl.key.password", "", "", "Password of the mirror's own key.", nil)),
	connection(text(ConnectionSetting, "string", "ssl.endpoint.identification.algorithm", "https", "https; empty does not check host names", "How a broker's certificate is checked against its name.",
		func(value string) error {
			if value != "" && !strings.EqualFold(value, "https") {
				return errors.New("is neither https nor empty")
			}
			return nil
		})),
	connection(text(ConnectionSetting, "list", "ssl.enabled.protocols", "TLSv1.2,TLSv1.3", "TLSv1.2, TLSv1.3", "Versions of TLS.", nil)),
}

// settingsByName has each setting under its name and its aliases, without the topic sets, whose names are open.
var settingsByName = func() map[string]setting {
	m := make(map[string]setting)
	for _, s := range settingTable {
		for _, name := range append([]string{s.Name}, s.Aliases...) {
			m[name] = s
		}
	}
	return m
}()

// setNamePattern is what a topic set may be called.
var setNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// lookUpSetting finds a setting by name or alias, topic sets too.
func lookUpSetting(name string) (setting, bool) {
	if set, ok := strings.CutPrefix(name, topicSetPrefix); ok && setNamePattern.MatchString(set) {
		return settingsByName[topicSetPrefix+"<name>"], true
	}
	s, ok := settingsByName[name]
	return s, ok && s.Name != topicSetPrefix+"<name>"
}

// settingsElsewhere are names of the KIP, or of its drafts, that mean nothing here, with the reason.
var settingsElsewhere = map[string]string{
	"mirror.coordinator.threads":             "there is no coordinator in the brokers; leave it out",
	"mirror.coordinator.write.timeout.ms":    "there is no coordinator in the brokers; leave it out",
	"mirror.coordinator.append.linger.ms":    "there is no coordinator in the brokers; leave it out",
	"mirror.coordinator.load.buffer.size":    "there is no coordinator in the brokers; leave it out",
	"socket.timeout.ms":                      "request.timeout.ms bounds every request; leave it out",
	"socket.receive.buffer.bytes":            "the operating system sizes the buffers of a socket; leave it out",
	"mirror.name":                            "it belongs to topics, and the verbs write it",
	"mirror.support.unclean.leader.election": "it belongs to topics; a copy is always cut on proof only",
	"mirror.unclean.leader.election.enable":  "it belongs to topics; a copy is always cut on proof only",
	"mirror.replication.throttled.replicas":  "it belongs to topics of a cluster that mirrors in its brokers",
	"mirror.version":                         "it is a feature of clusters that mirror in their brokers",
}

// settingList splits a list as Kafka does: by commas, blanks around them dropped. Nothing is an empty list.
func settingList(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}
