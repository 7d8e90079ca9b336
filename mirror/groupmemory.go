package mirror

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// What metadata sync remembers of groups is kept in the Control as Provenance, one entry for each group and one for each topic (spec decision 17), so that a restart alone moves nothing and
// that groups can be shown while no process runs.

// Kinds of Provenance about groups.
const (
	groupProvenance         = "group"          // Name is the group
	shareGroupProvenance    = "share-group"    // Name is the group
	groupEpisodesProvenance = "group-episodes" // Name is the topic
)

// groupMemoryVersion is the version of the values of these kinds, "v" in JSON. It is another one than that of the record around them.
const groupMemoryVersion = 1

// groupMemory is what is remembered of one group. Moments are kept to the millisecond.
type groupMemory struct {
	Kind       GroupKind
	Group      string
	Active     bool      // it had members at the destination when it was looked at last
	Looked     time.Time // when it was last looked at on both sides; zero: never
	Partitions map[TopicPartition]partitionMemory
}

// partitionMemory is what is remembered of one group in one partition.
type partitionMemory struct {
	metadatasync.Memory
	Here    int64     // where the destination has it, as seen or written last; Unknown: it has none
	Episode int32     // of the partition, in which the group was looked at
	Renewed time.Time // when the mirror last wrote it at the destination; zero: never. Kept to the minute.
	Skipped string    // a code, why it is not where the source has it; "" if it is, or as near as the copy goes
}

// Codes of partitionMemory.Skipped. A code that is not known here is shown as it is.
const (
	skippedActive      = "active"
	skippedMoved       = "moved"
	skippedNoOffset    = "no-offset"
	skippedPending     = "pending"
	skippedRefused     = "refused"
	skippedUnknown     = "unknown"
	skippedUnreadable  = "unreadable"
	skippedNotMirrored = "not-mirrored"
	skippedUnsettled   = "unsettled"
)

// skippedCode is the code of a decision.
func skippedCode(r metadatasync.Reason) string {
	return map[metadatasync.Reason]string{metadatasync.NoOffset: skippedNoOffset, metadatasync.IsActive: skippedActive, metadatasync.Moved: skippedMoved}[r]
}

// skippedWords are what GroupPartitionStatus.Skipped says of a code.
func skippedWords(code string) string {
	return cmp.Or(map[string]string{
		skippedActive:      "active at the destination",
		skippedMoved:       "moved at the destination",
		skippedNoOffset:    "no offset at the source",
		skippedPending:     "a transaction is committing it",
		skippedRefused:     "refused by the destination",
		skippedUnknown:     "it is not known whether it was written",
		skippedUnreadable:  "it could not be read at the destination",
		skippedNotMirrored: "the partition is not mirrored now, and was not looked at",
		skippedUnsettled:   "the stop could not put it to its last place",
	}[code], code)
}

// forgottenPartition is the memory of a partition in which the group was never looked at.
func forgottenPartition() partitionMemory {
	return partitionMemory{Memory: metadatasync.Forgotten(), Here: Unknown, Episode: Unknown}
}

// status is the memory as others are shown it.
func (g groupMemory) status() GroupStatus {
	s := GroupStatus{Group: g.Group, Kind: g.Kind, Active: g.Active, Seen: g.Looked}
	for tp, p := range g.Partitions {
		if p.Skipped == skippedUnknown {
			p.Wrote = Unknown
		}
		s.Partitions = append(s.Partitions, GroupPartitionStatus{TopicPartition: tp, Source: p.Seen, Written: p.Wrote, Here: p.Here, Skipped: skippedWords(p.Skipped)})
	}
	slices.SortFunc(s.Partitions, func(a, b GroupPartitionStatus) int { return compareTopicPartitions(a.TopicPartition, b.TopicPartition) })
	return s
}

func compareTopicPartitions(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

type (
	groupMemoryValue struct {
		Version int                                        `json:"v"`
		Active  bool                                       `json:"active,omitempty"`
		Looked  milliseconds                               `json:"at,omitempty"`
		Topics  map[string]map[int32]partitionMemoryValues `json:"topics,omitempty"`
		IDs     map[string]partitionsByTopicID             `json:"ids,omitempty"` // by topic: that at the source, of what is in Topics
	}
	groupEpisodesValue struct {
		Version  int                 `json:"v"`
		Episodes map[int32]int32     `json:"episodes,omitempty"`
		Except   map[int32][]string  `json:"except,omitempty"`
		IDs      partitionsByTopicID `json:"ids,omitempty"` // that at the source, of what is in Episodes
	}
	// partitionsByTopicID says of which topic at the source each partition's values are; one that is not in it: not known.
	partitionsByTopicID map[topicIDText][]int32
	// partitionMemoryValues is [seen, epoch of seen, wrote, before, here, episode, renewed in minutes since 1970] in JSON, behind it the code if there is one, and true where before is theirs.
	partitionMemoryValues partitionMemory
	milliseconds          int64 // since 1970; 0: never
)

// note has a partition's id stored.
func (p partitionsByTopicID) note(id TopicID, partition int32) {
	if id != (TopicID{}) {
		p[topicIDText(id)] = append(p[topicIDText(id)], partition)
		slices.Sort(p[topicIDText(id)])
	}
}

// byPartition reads what was noted.
func (p partitionsByTopicID) byPartition() (map[int32]TopicID, error) {
	all := map[int32]TopicID{}
	for id, partitions := range p {
		for _, partition := range partitions {
			if _, twice := all[partition]; twice || id == (topicIDText{}) {
				return nil, fmt.Errorf("partition %d has two topic ids, or none", partition)
			}
			all[partition] = TopicID(id)
		}
	}
	return all, nil
}

// lastMillisecond is the last one that times can have in JSON.
var lastMillisecond = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli()

func millisecondsOf(t time.Time) milliseconds {
	return milliseconds(max(0, t.UnixMilli()))
}

func (m milliseconds) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

func (m *milliseconds) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*int64)(m)); err != nil {
		return err
	}
	if *m < 0 || int64(*m) > lastMillisecond {
		return fmt.Errorf("%d is no moment in milliseconds", *m)
	}
	return nil
}

func (p partitionMemoryValues) MarshalJSON() ([]byte, error) {
	b := fmt.Appendf(nil, "[%d,%d,%d,%d,%d,%d,%d", p.Seen, p.SeenEpoch, p.Wrote, p.Before, p.Here, p.Episode, millisecondsOf(p.Renewed)/minute)
	if p.Skipped != "" || p.Theirs {
		code, err := json.Marshal(p.Skipped)
		if err != nil {
			return nil, err
		}
		b = append(append(b, ','), code...)
	}
	if p.Theirs {
		b = append(b, ",true"...)
	}
	return append(b, ']'), nil
}

// minute in milliseconds.
const minute = milliseconds(60_000)

func (p *partitionMemoryValues) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	const numbers = 7
	if len(list) < numbers || len(list) > numbers+2 {
		return fmt.Errorf("a partition has %d values, not %d to %d", len(list), numbers, numbers+2)
	}
	*p = partitionMemoryValues{}
	var renewed int64
	for i, into := range []any{&p.Seen, &p.SeenEpoch, &p.Wrote, &p.Before, &p.Here, &p.Episode, &renewed, &p.Skipped, &p.Theirs}[:len(list)] {
		if bytes.Equal(list[i], []byte("null")) {
			return errors.New("a value of a partition is null")
		}
		if err := json.Unmarshal(list[i], into); err != nil {
			return err
		}
	}
	if min(p.Seen, int64(p.SeenEpoch), p.Wrote, p.Before, p.Here, int64(p.Episode)) < metadatasync.None {
		return fmt.Errorf("%s holds an offset or epoch below %d", b, metadatasync.None)
	}
	if renewed < 0 || renewed > lastMillisecond/int64(minute) {
		return fmt.Errorf("%d is no moment in minutes", renewed)
	}
	p.Renewed = (milliseconds(renewed) * minute).time()
	return nil
}

// encode makes the entry of the Control. The same memory always gives the same text. Errors: a name that cannot be stored, or more than a record takes.
func (g groupMemory) encode(mirror string) (Provenance, error) {
	v := groupMemoryValue{Version: groupMemoryVersion, Active: g.Active, Looked: millisecondsOf(g.Looked)}
	for tp, p := range g.Partitions {
		if v.Topics == nil {
			v.Topics = map[string]map[int32]partitionMemoryValues{}
		}
		if v.Topics[tp.Topic] == nil {
			v.Topics[tp.Topic] = map[int32]partitionMemoryValues{}
		}
		v.Topics[tp.Topic][tp.Partition] = partitionMemoryValues(p)
		if p.Topic != (TopicID{}) {
			if v.IDs == nil {
				v.IDs = map[string]partitionsByTopicID{}
			}
			if v.IDs[tp.Topic] == nil {
				v.IDs[tp.Topic] = partitionsByTopicID{}
			}
			v.IDs[tp.Topic].note(p.Topic, tp.Partition)
		}
	}
	return encodeRemembered(Provenance{Mirror: mirror, Kind: provenanceOf(g.Kind), Name: g.Group}, v)
}

// provenanceOf is the kind of Provenance for a kind of groups.
func provenanceOf(k GroupKind) string {
	if k == ShareGroup {
		return shareGroupProvenance
	}
	return groupProvenance
}

// decodeGroupMemory reads what encode made. ok is false for an entry of another kind. Errors: *ControlRecordError; errors.Is finds ErrNewerRecord where a newer version wrote it.
func decodeGroupMemory(p Provenance) (g groupMemory, ok bool, err error) {
	if p.Kind != groupProvenance && p.Kind != shareGroupProvenance {
		return groupMemory{}, false, nil
	}
	kind := OffsetGroup
	if p.Kind == shareGroupProvenance {
		kind = ShareGroup
	}
	var v groupMemoryValue
	if err := decodeRemembered(p, groupMemoryVersion, &v); err != nil {
		return groupMemory{Kind: kind}, true, err
	}
	g = groupMemory{Group: p.Name, Kind: kind, Active: v.Active, Looked: v.Looked.time()}
	for topic, partitions := range v.Topics {
		ids, err := v.IDs[topic].byPartition()
		if err != nil {
			return groupMemory{}, true, unreadableProvenance(p, fmt.Errorf("topic %q: %w", topic, err))
		}
		for partition, m := range partitions {
			if partition < 0 {
				return groupMemory{}, true, unreadableProvenance(p, fmt.Errorf("topic %q has a partition %d", topic, partition))
			}
			if g.Partitions == nil {
				g.Partitions = map[TopicPartition]partitionMemory{}
			}
			m.Topic = ids[partition]
			g.Partitions[TopicPartition{topic, partition}] = partitionMemory(m)
		}
	}
	return g, true, nil
}

// groupEpisodes says for the partitions of one topic in which episode their groups were looked at first: in a later one, what the destination has is from before. So it is when the source's topic is
// another one since (F-28).
type groupEpisodes struct {
	Topic    string
	Episodes map[int32]int32    // by partition
	IDs      map[int32]TopicID  // of the source's topic then, by partition
	Except   map[int32][]string // groups that could not be looked at then, by partition
	Unread   bool               // what is stored cannot be read
}

// over says whether the first look at a partition in this episode is over. id is the source's topic, zero: not known, any will do.
func (e groupEpisodes) over(partition, episode int32, id TopicID) bool {
	at, ok := e.Episodes[partition]
	was := metadatasync.Memory{Topic: e.IDs[partition]}
	return e.Unread || ok && at == episode && !was.Earlier(id)
}

// overIn is over, also where the episode is not known: then any will do.
func (e groupEpisodes) overIn(partition int32, episode *int32) bool {
	if episode == nil {
		_, ok := e.Episodes[partition]
		return e.Unread || ok
	}
	return e.over(partition, *episode, TopicID{})
}

// first says whether a group that is not remembered in this episode of a partition is looked at for the first time since it began.
func (e groupEpisodes) first(partition, episode int32, id TopicID, group string) bool {
	return !e.over(partition, episode, id) || slices.Contains(e.Except[partition], group)
}

// encode is as that of groupMemory.
func (e groupEpisodes) encode(mirror string) (Provenance, error) {
	v := groupEpisodesValue{Version: groupMemoryVersion, Episodes: e.Episodes, Except: e.Except, IDs: partitionsByTopicID{}}
	for partition, id := range e.IDs {
		v.IDs.note(id, partition)
	}
	return encodeRemembered(Provenance{Mirror: mirror, Kind: groupEpisodesProvenance, Name: e.Topic}, v)
}

// decodeGroupEpisodes is as decodeGroupMemory.
func decodeGroupEpisodes(p Provenance) (e groupEpisodes, ok bool, err error) {
	if p.Kind != groupEpisodesProvenance {
		return groupEpisodes{}, false, nil
	}
	var v groupEpisodesValue
	if err := decodeRemembered(p, groupMemoryVersion, &v); err != nil {
		return groupEpisodes{}, true, err
	}
	for partition, episode := range v.Episodes {
		if partition < 0 || episode < 0 {
			return groupEpisodes{}, true, unreadableProvenance(p, fmt.Errorf("partition %d has the episode %d", partition, episode))
		}
	}
	e = groupEpisodes{Topic: p.Name}
	for partition := range v.Except {
		if partition < 0 {
			return groupEpisodes{}, true, unreadableProvenance(p, fmt.Errorf("it has a partition %d", partition))
		}
	}
	if len(v.Episodes) > 0 {
		e.Episodes = v.Episodes
	}
	if len(v.Except) > 0 {
		e.Except = v.Except
	}
	if len(v.IDs) > 0 {
		if e.IDs, err = v.IDs.byPartition(); err != nil {
			return groupEpisodes{}, true, unreadableProvenance(p, err)
		}
	}
	return e, true, nil
}

// groupMemories are those of one mirror, by group and kind. What cannot be read is left out and named in the error; the others are returned beside it.
func groupMemories(s *ControlState, mirror string) (all []groupMemory, err error) {
	all, unread := (&memoryCache{}).memories(s, mirror)
	for _, u := range unread {
		err = errors.Join(err, u)
	}
	return all, err
}

// memoryCache keeps decoded memories: most entries are the same at the next look. What it returns is shared, and not to be changed. Not safe for concurrent use.
type memoryCache struct {
	decoded map[Provenance]groupMemory
}

// memories are those of one mirror, by group and kind, and the errors of those that cannot be read, by group.
func (c *memoryCache) memories(s *ControlState, mirror string) (all []groupMemory, unread map[groupKey]error) {
	next := make(map[Provenance]groupMemory, len(c.decoded))
	unread = map[groupKey]error{}
	for _, p := range s.Provenance {
		if p.Mirror != mirror || p.Kind != groupProvenance && p.Kind != shareGroupProvenance {
			continue
		}
		g, ok := c.decoded[p]
		if !ok {
			var err error
			if g, _, err = decodeGroupMemory(p); err != nil {
				unread[groupKey{p.Name, g.Kind}] = err
				continue
			}
		}
		next[p] = g
		all = append(all, g)
	}
	c.decoded = next
	slices.SortFunc(all, func(a, b groupMemory) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	return all, unread
}

// groupKey names a group.
type groupKey struct {
	name string
	kind GroupKind
}

// GroupStatuses is how the groups that a mirror follows were when they were looked at last, as far as the desired state has it: by group and kind. It needs no process of the mirror. A group
// whose record cannot be read is left out and named in the error; the others are returned beside it. Errors: *ControlRecordError, joined; errors.Is finds ErrNewerRecord.
func GroupStatuses(s ControlState, mirror string) ([]GroupStatus, error) {
	memories, err := groupMemories(&s, mirror)
	return groupStatuses(&s, mirror, memories), err
}

// groupStatuses leaves out groups that are excluded: what is remembered of them is kept for when they are included again.
func groupStatuses(s *ControlState, mirror string, memories []groupMemory) (all []GroupStatus) {
	entry, _ := s.Mirror(mirror)
	filter, err := entry.Settings.GroupFilter()
	if err != nil {
		filter = GroupFilter{} // settings that cannot be read exclude nothing
	}
	for _, g := range memories {
		if filter.Matches(g.Group) {
			all = append(all, g.status())
		}
	}
	return all
}
