package kraft

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// remembered keeps, one record a topic, what this package changed in the cluster and has to put back, and which replicas may hold what was truncated. Whoever comes under the node
// id after a crash reads it, and so do peers, which may lead other partitions of the topic. A topic of which nothing is remembered has no record.
type remembered struct {
	log     keyedlog.Log
	changes gather[rememberedChange, error] // many partitions' changes are one update
	may     func() error                    // why nothing may be changed now: whoever came under the node id reads it; nil: it always may

	reading turn // one reads at a time, and the others take what it found

	mu      sync.Mutex
	cache   map[string]memory
	changed <-chan struct{} // closed when the cache may be old; nil: there is none
	writes  int             // updates that this process has tried
}

// rememberedChange changes what is remembered of a topic. f may be called more than once.
type rememberedChange struct {
	topic string
	id    mirror.TopicID
	f     func(*memory)
	old   bool // f is only for a record under this id: there may be a newer one
}

// rememberedType is the record type that the keys begin with: below those of a Control, beside those of the storages themselves.
const rememberedType = 62

// memory is what is remembered of one topic.
type memory struct {
	Version int            `json:"version"`
	TopicID mirror.TopicID `json:"topic_id"`
	// Creator is the node id of the process that is creating the topic, and TopicID is zero; 0: it has its id.
	Creator int32 `json:"creator,omitempty"`
	// Configs are the topic's own settings from before this process set them; nil: it had none.
	Configs map[string]*string `json:"configs,omitempty"`
	// Said are, by setting, the values that the topic may say while Configs are taken from it or put back: from before, and of a put-back. Finding them is nobody else's change.
	Said map[string][]*string `json:"said,omitempty"`
	// Unconfirmed says, by partition, up to where a replica's copy may be trusted, because it has not followed a truncation yet.
	Unconfirmed map[int32]map[int32]int64 `json:"unconfirmed,omitempty"`
	// LeftOut are, by partition, the replicas that a hand-over left out, to be added again.
	LeftOut map[int32][]int32 `json:"left_out,omitempty"`
	// Takers are the node ids of the processes that are taking over partitions of the topic: nobody else puts its settings back meanwhile.
	Takers []int32 `json:"takers,omitempty"`
	// Forced is, by partition, what a Force that is not finished has elected.
	Forced map[int32]forcedEnd `json:"forced,omitempty"`
}

// forcedEnd is where the mirror ended in a partition, and whose copy was elected.
type forcedEnd struct {
	Leader int32 `json:"leader"`
	Epoch  int32 `json:"epoch"`
	End    int64 `json:"end"`
}

func (m memory) empty() bool {
	return len(m.Configs) == 0 && len(m.Unconfirmed) == 0 && len(m.LeftOut) == 0 && len(m.Takers) == 0 && len(m.Forced) == 0
}

// takenBy says whether a process is taking the topic over.
func (m memory) takenBy(node int32) bool { return slices.Contains(m.Takers, node) }

// otherTakers are the living processes beside this one that are taking the topic over. What a dead one has begun is found in the partitions; when it comes back it begins again.
func (d *Destination) otherTakers(m memory) (ids []int32) {
	d.meta.look(func(im *clustermetadata.Image) {
		for _, id := range without(m.Takers, d.cfg.NodeID) {
			if b, ok := im.Broker(id); ok && !b.Fenced {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// lookAnew makes the next look read the log: what a peer has written may not have been told yet.
func (r *remembered) lookAnew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = nil
}

// creating says that the topic may not exist yet, or under an id that its creator did not come to know.
func (m memory) creating() bool { return m.Creator != 0 }

func newRemembered(log keyedlog.Log, bound time.Duration) *remembered {
	r := &remembered{log: log, reading: newTurn()}
	r.changes = gather[rememberedChange, error]{most: mostPartitions, bound: bound, send: r.update}
	return r
}

func rememberedKey(topic string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, rememberedType), topic...)
}

// of is what is remembered of a topic; one that was deleted and made again has nothing.
func (r *remembered) of(ctx context.Context, topic string, id mirror.TopicID) (memory, error) {
	all, err := r.all(ctx)
	if err != nil {
		return memory{}, err
	}
	if m, ok := all[topic]; ok && m.TopicID == id {
		return m, nil
	}
	return memory{Version: 1, TopicID: id}, nil
}

// all is a copy of everything remembered.
func (r *remembered) all(ctx context.Context) (map[string]memory, error) {
	if have, ok := r.cached(); ok {
		return have, nil
	}
	if err := r.reading.take(ctx); err != nil {
		return nil, fmt.Errorf("kraft: reading what is remembered of this cluster's topics: %w", err)
	}
	defer r.reading.release()
	if have, ok := r.cached(); ok {
		return have, nil
	}
	r.mu.Lock()
	writes := r.writes
	r.mu.Unlock()
	changed := r.log.Changed()
	cache := map[string]memory{}
	err := r.log.Read(ctx, func(v keyedlog.View) error {
		clear(cache)
		return v.Each(binary.BigEndian.AppendUint16(nil, rememberedType), func(rec keyedlog.Record) error {
			topic := string(rec.Key[2:])
			m, err := decodeMemory(topic, rec.Value)
			cache[topic] = m
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("kraft: reading what is remembered of this cluster's topics: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writes == writes { // else it may be from before what was written meanwhile
		r.cache, r.changed = cache, changed
	}
	return maps.Clone(cache), nil
}

// cached is a copy of what was read last, if it cannot be old.
func (r *remembered) cached() (map[string]memory, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		return nil, false
	}
	select {
	case <-r.changed:
		return nil, false
	default:
		return maps.Clone(r.cache), true
	}
}

func decodeMemory(topic string, value []byte) (m memory, err error) {
	if err := json.Unmarshal(value, &m); err != nil || m.Version != 1 {
		return m, fmt.Errorf("kraft: what is remembered of topic %s cannot be read (version %d, %v): a newer version wrote it; run at least that version", topic, m.Version, err)
	}
	return m, nil
}

// change changes what is remembered of a topic. When it returns nil that survives a crash.
func (r *remembered) change(ctx context.Context, topic string, id mirror.TopicID, f func(*memory)) error {
	return r.do(ctx, rememberedChange{topic: topic, id: id, f: f})
}

// forget drops what is remembered of a topic under this id; what is remembered of a newer one of the same name stays.
func (r *remembered) forget(ctx context.Context, topic string, id mirror.TopicID) error {
	return r.do(ctx, rememberedChange{topic: topic, id: id, old: true, f: func(m *memory) { *m = memory{Version: 1, TopicID: id} }})
}

func (r *remembered) do(ctx context.Context, q rememberedChange) error {
	if err := carryOut(ctx, &r.changes, q); err != nil {
		return fmt.Errorf("kraft: remembering what was changed of topic %s: %w", q.topic, err)
	}
	return nil
}

// update carries out changes together, each on what the record says now.
func (r *remembered) update(ctx context.Context, qs []rememberedChange) ([]error, error) {
	if r.may != nil {
		if err := r.may(); err != nil {
			return nil, err
		}
	}
	now := map[string]memory{}
	err := r.log.Update(ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
		clear(now)
		had := map[string]bool{}
		for _, q := range qs {
			m, ok := now[q.topic]
			if !ok {
				if rec, found := v.Get(rememberedKey(q.topic)); found {
					var err error
					if m, err = decodeMemory(q.topic, rec.Value); err != nil {
						return nil, err
					}
					had[q.topic] = true
				}
			}
			if m.Version == 0 || m.TopicID != q.id {
				if q.old {
					if m.Version != 0 {
						now[q.topic] = m
					}
					continue
				}
				m = memory{Version: 1, TopicID: q.id}
			}
			q.f(&m)
			now[q.topic] = m
		}
		var changes []keyedlog.Change
		for _, topic := range slices.Sorted(maps.Keys(now)) {
			m := now[topic]
			switch {
			case !m.empty():
				value, err := json.Marshal(m)
				if err != nil {
					return nil, err
				}
				changes = append(changes, keyedlog.Change{Key: rememberedKey(topic), Value: value})
			case had[topic]:
				changes = append(changes, keyedlog.Change{Key: rememberedKey(topic)})
			}
		}
		return changes, nil
	})
	r.mu.Lock()
	r.writes++
	r.changed = nil // read anew: a peer may have changed something too, and after an error it may have been written
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return make([]error, len(qs)), nil
}
