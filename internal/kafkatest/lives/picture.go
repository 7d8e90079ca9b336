package lives

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Picture is a cluster as it looks to somebody who knows nothing of mirrors and their plans: what lies on its brokers' disks, where its groups are, and what its topics and brokers are set to. Topics
// whose names begin with __ are Kafka's own and the mirror's store; they are not in it.
type Picture struct {
	logs map[string][]byte // by TOPIC-NUMBER
	says map[string]string // everything else, by what it is about
}

// TakePicture reads a cluster in which nobody writes. All replicas of a partition have to hold the same in the end; those of a process that has joined are no broker's.
func TakePicture(t testing.TB, c *kafkatest.Cluster) Picture {
	t.Helper()
	p := Picture{logs: map[string][]byte{}, says: map[string]string{}}
	topics, err := c.Admin().ListTopics(Limited(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, topic := range topics.Sorted() {
		if strings.HasPrefix(topic.Topic, "__") {
			continue
		}
		names = append(names, topic.Topic)
		p.says["topic "+topic.Topic] = fmt.Sprintf("id %v", topic.ID)
		for _, partition := range topic.Partitions.Sorted() {
			p.logs[fmt.Sprintf("%s-%d", topic.Topic, partition.Partition)] = sameOnDisks(t, c, topic.Topic, partition.Partition, slices.DeleteFunc(partition.Replicas, func(id int32) bool { return id == NodeID }))
		}
	}
	configs, err := c.Admin().DescribeTopicConfigs(Limited(t), names...)
	if err != nil {
		t.Fatal(err)
	}
	brokers, err := c.Admin().DescribeBrokerConfigs(Limited(t), c.Brokers()...)
	if err != nil {
		t.Fatal(err)
	}
	own := func(kind string, all kadm.ResourceConfigs, sources ...kmsg.ConfigSource) {
		for _, of := range all {
			for _, x := range of.Configs {
				if slices.Contains(sources, x.Source) {
					p.says[fmt.Sprintf("%s of %s %s", x.Key, kind, of.Name)] = x.MaybeValue()
				}
			}
		}
	}
	own("topic", configs, kmsg.ConfigSourceDynamicTopicConfig)
	own("broker", brokers, kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	groups, err := c.Admin().ListGroups(Limited(t))
	if err != nil {
		t.Fatal(err)
	}
	fetched := c.Admin().FetchManyOffsets(Limited(t), groups.Groups()...)
	if err := fetched.Error(); err != nil {
		t.Fatal(err)
	}
	for group, answer := range fetched {
		for _, o := range answer.Fetched.Sorted() {
			p.says[fmt.Sprintf("group %s on %s-%d", group, o.Topic, o.Partition)] = fmt.Sprint(o.At)
		}
	}
	return p
}

// sameOnDisks is a log as all its replicas have it, which may be nothing at all.
func sameOnDisks(t testing.TB, c *kafkatest.Cluster, topic string, partition int32, replicas []int32) (log []byte) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s-%d is the same on brokers %v", topic, partition, replicas), func() (bool, string) {
		for i, id := range replicas {
			b := c.SegmentBytes(topic, partition, id)
			if i > 0 && !bytes.Equal(b, log) {
				return false, Difference(b, log)
			}
			log = b
		}
		return true, ""
	})
	return log
}

// Log is a partition's bytes.
func (p Picture) Log(topic string, partition int32) []byte {
	return p.logs[fmt.Sprintf("%s-%d", topic, partition)]
}

// Changes are what is different in a later picture, one line each, sorted. Whose line is "t-0: [90,100) is gone" has lost these offsets, whatever came in their place; what was written is told batch by
// batch (Written).
func (p Picture) Changes(t testing.TB, later Picture) (lines []string) {
	t.Helper()
	for name := range union(p.logs, later.logs) {
		before, errBefore := pieces(p.logs[name])
		after, errAfter := pieces(later.logs[name])
		if errBefore != nil || errAfter != nil {
			t.Fatalf("%s: %v, %v", name, errBefore, errAfter)
		}
		same := 0
		for same < min(len(before), len(after)) && bytes.Equal(before[same].raw, after[same].raw) {
			same++
		}
		if rest := before[same:]; len(rest) > 0 {
			lines = append(lines, fmt.Sprintf("%s: [%d,%d) is gone", name, rest[0].base, rest[len(rest)-1].next))
		}
		for _, x := range after[same:] {
			lines = append(lines, name+": "+x.told())
		}
	}
	for about := range union(p.says, later.says) {
		before, was := p.says[about]
		after, is := later.says[about]
		switch {
		case !was:
			lines = append(lines, about+": "+after+", which was not there")
		case !is:
			lines = append(lines, about+": "+before+" is gone")
		case before != after:
			lines = append(lines, about+": "+before+", then "+after)
		}
	}
	slices.Sort(lines)
	return lines
}

func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// Written are the batches of a partition's log from an offset on, one line each, as Changes tells those that were written.
func Written(t testing.TB, topic string, partition int32, log []byte, from int64) (lines []string) {
	t.Helper()
	all, err := pieces(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if x.base >= from {
			lines = append(lines, fmt.Sprintf("%s-%d: %s", topic, partition, x.told()))
		}
	}
	return lines
}

// told says what a batch is. It is read here byte by byte, for the reason that is written beside piece.
func (p piece) told() string {
	const control = 1 << 5
	if binary.BigEndian.Uint16(p.raw[21:])&control == 0 {
		return fmt.Sprintf("records [%d,%d)", p.base, p.next)
	}
	producer, epoch := int64(binary.BigEndian.Uint64(p.raw[43:])), int16(binary.BigEndian.Uint16(p.raw[51:]))
	at := 61 // behind the header: the record's length, its attributes (one byte), its time, its offset, its key's length, its key
	for i := range 4 {
		_, n := binary.Varint(p.raw[at:])
		at += n
		if i == 0 {
			at++
		}
	}
	switch kind := int16(binary.BigEndian.Uint16(p.raw[at+2:])); kind {
	case 0:
		return fmt.Sprintf("ABORT of producer %d epoch %d at %d", producer, epoch, p.base)
	case 1:
		return fmt.Sprintf("COMMIT of producer %d epoch %d at %d", producer, epoch, p.base)
	default:
		return fmt.Sprintf("control record of type %d at %d", kind, p.base)
	}
}
