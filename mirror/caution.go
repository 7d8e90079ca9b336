package mirror

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Caution is why a topic of some name deserves a second look when it is mirrored, and what to do. It says nothing against mirroring: the bytes are copied like any other's.
type Caution struct {
	About  string // whose topic it is by its name
	Never  bool   // it is not mirrored at all: Start refuses it, and no pattern finds it
	Reason string
	Do     string
}

func (c Caution) String() string { return c.About + ": " + c.Reason + "; " + c.Do }

// nameCaution is a Caution with the names that it is about, each of which the pattern matches whole.
type nameCaution struct {
	pattern *regexp.Regexp
	Caution
}

// cautions are in the order in which they are tried. Names are those that the programs choose by themselves, or that their documentation has: an application's own topic that happens to
// look like one is worth less than a warning that nobody reads any more. README.md has the same sentences.
var cautions = []nameCaution{
	{wholeName(`__transaction_state`), Caution{"transactions", true,
		"it is the memory of the source's transaction coordinators, and means nothing to another cluster's",
		"nothing: transactions that are open at a failover are aborted in the copy, and transactional producers begin anew at the destination"}},
	{wholeName(`__consumer_offsets`), Caution{"committed offsets", true,
		"each cluster keeps groups in partitions of its own",
		"nothing: groups are followed by themselves (mirror.groups.include)"}},
	{wholeName(`__share_group_state`), Caution{"share-group state", true,
		"it has what is acquired and delivered record by record, at this cluster",
		"nothing: start offsets of share groups are followed by themselves; records behind them are delivered again, also those that were acknowledged"}},
	{wholeName(`__cluster_metadata`), Caution{"cluster metadata", true,
		"it is the log of the source's controllers",
		"nothing: topics are created at the destination, their settings and the access rules are followed"}},
	{wholeName(`__.*`), Caution{"an internal topic", true,
		"what is in it belongs to its own cluster",
		"nothing; if it is an application's after all, the application needs a topic of another name"}},
	{wholeName(`_schemas.*`, `_schema_encoders`, `_dek_registry_keys`), Caution{"a schema registry", false,
		"two registries that both write it give one id to two schemas",
		"until the failover let no registry at the destination write it (leader.eligibility=false, or none is started), and after it none of the source; ids stay valid"}},
	{wholeName(`_?connect([-_.].+)?[-_.](configs|offsets|status|statuses|(config|offset|status)[-_.](storage|topic))`, `.+[-_.]connect[-_.](configs|offsets|statuses)`),
		Caution{"Kafka Connect", false,
			"workers that start with the copy run the same connectors a second time",
			"start workers at the destination only after the failover, when those of the source have ended, with the copies of all three topics; or exclude the three"}},
	{wholeName(`_confluent-ksql-.*`), Caution{"ksqlDB", false,
		"a server that starts with the copy runs the same queries a second time",
		"start servers with this service id at the destination only after the failover, when those of the source have ended, with the copies of all its topics; or exclude them"}},
	{wholeName(`.+-changelog`), Caution{"state of a Kafka Streams application", false,
		"each topic is cut at its own place, so after a failover the state may be ahead of its input or behind it",
		"put it into one topic set with the input topics (mirror.topic.set.NAME), start the application at the destination without its local state, and accept the difference; or exclude it " +
			"and reset the application there (kafka-streams-application-reset.sh)"}},
	{wholeName(`.+-repartition`, `.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic`), Caution{"steps between parts of a Kafka Streams application", false,
		"the application deletes its records as it goes, and what is under way in it is counted as read in the input topics",
		"mirror it together with the application's changelogs, input topics and group; or exclude it and them, and reset the application at the destination (kafka-streams-application-reset.sh)"}},
	{wholeName(`mm2-.+[.-]internal`, `.+[.-]checkpoints[.-]internal`, `heartbeats`), Caution{"MirrorMaker", false,
		"it has what is true between MirrorMaker's own two clusters, and a copy misleads the tools that read it",
		"exclude it (mirror.topics.exclude)"}},
	{wholeName(`_confluent[-_].*`), Caution{"Confluent's services", false,
		"it describes the source cluster: metrics, licences, role bindings",
		"exclude it (mirror.topics.exclude), unless a service at the destination is meant to take it over"}},
}

func wholeName(patterns ...string) *regexp.Regexp {
	return regexp.MustCompile("^(?:" + strings.Join(patterns, "|") + ")$")
}

// CautionOf says why a topic of this name deserves a second look when it is mirrored; false: it is a topic like any other. It judges by the name alone.
func CautionOf(topic string) (Caution, bool) {
	for _, c := range cautions {
		if c.pattern.MatchString(topic) {
			return c.Caution, true
		}
	}
	return Caution{}, false
}

// cautionGroup are topics with the same Caution.
type cautionGroup struct {
	Caution
	topics []string // sorted
}

// cautionsOf sorts topics by their Caution, in the order of the table.
func cautionsOf(topics []string) (groups []cautionGroup) {
	by := map[string][]string{}
	for _, topic := range topics {
		if c, ok := CautionOf(topic); ok {
			by[c.About] = append(by[c.About], topic)
		}
	}
	for _, c := range cautions {
		if topics := by[c.About]; len(topics) > 0 {
			slices.Sort(topics)
			groups = append(groups, cautionGroup{c.Caution, slices.Compact(topics)})
		}
	}
	return groups
}

// cautionNotes are notes of a verb on topics that it is about.
func cautionNotes(topics []string) (notes []string) {
	for _, g := range cautionsOf(topics) {
		notes = append(notes, fmt.Sprintf("caution: %s: %s", few(g.topics), g.Caution))
	}
	return notes
}

// cautioned is a reason with the topic's Caution behind it.
func cautioned(reason, topic string) string {
	c, ok := CautionOf(topic)
	if !ok {
		return reason
	}
	if reason != "" {
		reason += "; "
	}
	return reason + "caution: " + c.String()
}
