package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

// returning looks, while topics are stopped, at the cluster that they were copied from: whether it answers, and whether somebody writes there beyond what was known of it. It only reads, and
// nothing waits for it. While the source is silent one look is one request; else it is the cluster, its topics and their ends, and where somebody writes a part of that, once, to say who.
type returning struct {
	m *Mirror

	mu  sync.Mutex
	old OldSource
	// partitions are those that are stopped, by name; known is what is held against their ends.
	partitions map[TopicPartition]*oldPartition
	cluster    string // whose they are a copy of, as it was recorded when they were stopped; "": it was not
}

type oldPartition struct {
	episode   int32
	known     int64     // where the source ended as far as it was known when the topic was stopped; Unknown: nothing was, until it is looked at
	at        time.Time // as of when
	end       int64     // at the last look; Unknown
	producers []int64
	told      time.Time
	toldEnd   int64
}

// OldSource is how the cluster is that stopped topics were copied from: it may come back, and its clients with it.
type OldSource struct {
	// Looked is when it was looked at last; zero: never. Nothing looks while no topic is stopped, or with a negative Config.OldSourceInterval.
	Looked time.Time
	// Silent is since when it has not answered, and Err why not; zero and nil: it answers.
	Silent time.Time
	Err    error
	// Returned is since when it answers again, after it did not; zero: it was not away while it was looked at.
	Returned time.Time
}

// SplitBrain is what the source of a stopped partition has, and had not when that was stopped, as far as that was known: both clusters are written to. A failback gives these records up at the source,
// and hands them to the sink there.
type SplitBrain struct {
	Partition int32
	From, To  int64     // offsets at the source
	Since     time.Time // as of when the source was known to end at From; what it has from there on was written, or heard of, since
	Producers []int64   // ids of those who wrote the first of them, as far as one fetch shows it; −1: a producer without an id
}

func (b SplitBrain) String() string { return fmt.Sprintf("partition %d: %s", b.Partition, b.words()) }

func (b SplitBrain) words() string {
	s := fmt.Sprintf("the source has [%d,%d), %d offsets that were not known at %s", b.From, b.To, b.To-b.From, stamp(b.Since))
	if len(b.Producers) > 0 {
		s += ", of " + producerWords(b.Producers)
	}
	return s
}

func producerWords(ids []int64) string {
	var words []string
	for _, id := range ids {
		if id < 0 {
			words = append(words, "one without an id")
		} else {
			words = append(words, fmt.Sprint(id))
		}
	}
	return "producers " + few(words)
}

const (
	splitBrainAgain = 10 * time.Minute // between two SplitBrainSeen of a partition
	splitBrainReads = 16               // partitions, of one look, whose writers are read
	splitBrainBytes = 1 << 20          // of each
	mostProducers   = 10
)

func (r *returning) run() {
	if r.m.cfg.OldSourceInterval < 0 {
		return
	}
	tick := time.NewTicker(r.m.cfg.OldSourceInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.m.ctx.Done():
			return
		case <-tick.C:
			if r.m.lease.over() != nil {
				return
			}
			if topics := r.notice(r.m.stoppedPartitions()); len(topics) > 0 {
				r.look(topics)
			}
		}
	}
}

// stoppedPartitions are those that this process has, of topics that are to stay stopped.
func (m *Mirror) stoppedPartitions() []PartitionStatus {
	m.mu.Lock()
	var rs []*runner
	for _, t := range m.topics {
		if _, want, _ := statemachine.ParseMirrorNameValue(t.wish.MirrorName); want == statemachine.WantStopped {
			rs = append(rs, t.partitions...)
		}
	}
	m.mu.Unlock()
	now := time.Now()
	var stopped []PartitionStatus
	for _, r := range rs {
		if p := r.status(now); p.State == statemachine.Stopped && !p.Halted && p.LME != nil {
			stopped = append(stopped, p)
		}
	}
	return stopped
}

// notice remembers which partitions are stopped, and what was known of their sources, and returns the ids that their topics have there, as far as they are recorded.
func (r *returning) notice(stopped []PartitionStatus) map[string]TopicID {
	r.mu.Lock()
	defer r.mu.Unlock()
	topics, had := map[string]TopicID{}, r.partitions
	r.cluster = ""
	r.partitions = map[TopicPartition]*oldPartition{}
	for i := range stopped {
		p := &stopped[i]
		tp := TopicPartition{p.Topic, p.Partition}
		topics[p.Topic] = cmp.Or(topics[p.Topic], p.LME.SourceTopicID)
		r.cluster = cmp.Or(r.cluster, p.LME.SourceClusterID, r.m.cfg.SourceClusterID)
		o := had[tp]
		if o == nil || o.episode != p.Episode {
			o = &oldPartition{episode: p.Episode, known: Unknown, end: Unknown, toldEnd: Unknown}
			if !p.SourceSeen.IsZero() && p.SourceEnd >= 0 {
				o.known, o.at = max(p.SourceEnd, p.LME.Offset), p.SourceSeen
			}
		}
		r.partitions[tp] = o
	}
	if len(topics) == 0 {
		r.old = OldSource{}
	}
	return topics
}

// look asks the source who it is, and where the logs of these topics end.
func (r *returning) look(ids map[string]TopicID) {
	ctx, stop := context.WithTimeout(r.m.ctx, r.m.cfg.CallBound)
	defer stop()
	names := slices.Sorted(maps.Keys(ids))
	// The desk is not asked: who answers here is no news for those who copy, and must not become the source that they expect.
	info, err := r.m.cfg.Source.Cluster(ctx)
	r.mu.Lock()
	want := r.cluster
	r.mu.Unlock()
	if err == nil && want != "" && info.ID != want {
		err = &ClusterChangedError{Want: want, Got: info.ID}
	}
	var topics []SourceTopic
	if err == nil {
		topics, err = r.m.cfg.Source.Topics(ctx, names...)
	}
	var offsets map[TopicPartition]SourceOffsets
	leaders := map[TopicPartition]int32{}
	found := map[string]TopicID{}
	if err == nil {
		var ask []TopicPartition
		for _, t := range topics {
			if t.Err != nil || ids[t.Name] != (TopicID{}) && t.ID != ids[t.Name] {
				continue // another topic of that name says nothing of this one
			}
			found[t.Name] = t.ID
			for _, l := range t.Leaders {
				tp := TopicPartition{t.Name, l.Partition}
				if r.has(tp) && l.Err == nil && l.Leader >= 0 {
					ask, leaders[tp] = append(ask, tp), l.Leader
				}
			}
		}
		if len(ask) > 0 {
			offsets, err = r.m.cfg.Source.Offsets(ctx, ask)
		}
	}
	if r.m.ctx.Err() != nil {
		return
	}
	now := time.Now()
	if back := r.answered(now, err); !back.IsZero() {
		r.m.emit(SourceReturned{EventMeta: r.m.meta(TopicPartition{Partition: Unknown}), ClusterID: info.ID, Silent: back, Topics: names})
	}
	news := r.measure(now, offsets)
	for i, tp := range news {
		if i < splitBrainReads {
			r.writers(ctx, tp, found[tp.Topic], leaders[tp])
		}
		if b, split := r.splitBrain(tp); split {
			r.m.emit(SplitBrainSeen{r.m.meta(tp), b})
		}
	}
}

func (r *returning) has(tp TopicPartition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitions[tp] != nil
}

// answered notes how a look went, and returns since when the source was silent, if it is back with this one.
func (r *returning) answered(now time.Time, err error) (silent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old.Looked, r.old.Err = now, err
	switch {
	case err != nil:
		if r.old.Silent.IsZero() {
			r.old.Silent, r.old.Returned = now, time.Time{}
		}
	case !r.old.Silent.IsZero():
		silent = r.old.Silent
		r.old.Silent, r.old.Returned = time.Time{}, now
	}
	return silent
}

// measure takes in the ends, and returns the partitions of which a split brain is to be told now.
func (r *returning) measure(now time.Time, offsets map[TopicPartition]SourceOffsets) (tell []TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tp, a := range offsets {
		o := r.partitions[tp]
		if o == nil || a.Err != nil || a.HighWatermark < 0 {
			continue
		}
		o.end = a.HighWatermark
		if o.known == Unknown {
			o.known, o.at = o.end, now
		}
		if o.end > max(o.known, o.toldEnd) && now.Sub(o.told) >= splitBrainAgain {
			o.told, o.toldEnd = now, o.end
			tell = append(tell, tp)
		}
	}
	slices.SortFunc(tell, compareTopicPartitions)
	return tell
}

// writers reads, once, who wrote the first of what was not known. What cannot be read is left out.
func (r *returning) writers(ctx context.Context, tp TopicPartition, id TopicID, leader int32) {
	b, _ := r.splitBrain(tp)
	if len(b.Producers) > 0 {
		return
	}
	f, err := r.m.cfg.Source.OpenFetcher(ctx, leader, FetchOptions{MaxWait: time.Second, MaxBytes: splitBrainBytes, PartitionMaxBytes: splitBrainBytes})
	if err != nil {
		return
	}
	defer f.Close()
	f.Want(FetchPosition{TopicPartition: tp, TopicID: id, Offset: b.From, LeaderEpoch: Unknown, LastEpoch: Unknown, LogStart: Unknown})
	reply, err := f.Fetch(ctx)
	if err != nil {
		return
	}
	var ids []int64
	for _, p := range reply {
		if p.TopicPartition != tp || p.Err != nil {
			continue
		}
		for h := range batch.All(p.Records) {
			if h.NextOffset() > b.From && !h.Control() && !slices.Contains(ids, h.ProducerID) && len(ids) < mostProducers {
				ids = append(ids, h.ProducerID)
			}
		}
	}
	slices.Sort(ids)
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.partitions[tp]; o != nil && o.known == b.From {
		o.producers = ids
	}
}

// splitBrain is that of one partition, and whether there is one.
func (r *returning) splitBrain(tp TopicPartition) (SplitBrain, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.apart(tp)
}

// apart is splitBrain, under r.mu.
func (r *returning) apart(tp TopicPartition) (SplitBrain, bool) {
	o := r.partitions[tp]
	if o == nil || o.known == Unknown || o.end <= o.known {
		return SplitBrain{}, false
	}
	return SplitBrain{Partition: tp.Partition, From: o.known, To: o.end, Since: o.at, Producers: slices.Clone(o.producers)}, true
}

// of lists those of a topic whose partitions these are, as far as they are stopped.
func (r *returning) of(topic string, partitions []PartitionStatus) (all []SplitBrain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.partitions) == 0 {
		return nil
	}
	for i := range partitions {
		p := &partitions[i]
		if b, split := r.apart(TopicPartition{topic, p.Partition}); split && p.State == statemachine.Stopped {
			all = append(all, b)
		}
	}
	return all
}

// status is how the old source is; nil: nothing looks at it.
func (r *returning) status() *OldSource {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.old.Looked.IsZero() {
		return nil
	}
	old := r.old
	return &old
}

// splitBrainWords is a topic's split brain in one line.
func splitBrainWords(all []SplitBrain) string {
	var words []string
	for _, b := range all {
		words = append(words, b.String())
	}
	return strings.Join(words, "; ")
}
