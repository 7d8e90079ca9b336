package kraft

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// remembered keeps, one record a topic, what this package changed in the cluster and has to put back, and which replicas may hold what was truncated. Whoever comes under the node
// id after a crash reads it. A topic of which nothing is remembered has no record.
type remembered struct {
	log keyedlog.Log

	mu    sync.Mutex // one change at a time; also of cache
	cache map[string]memory
	read  bool
}

// rememberedType is the record type that the keys begin with: below those of a Control, beside those of the storages themselves.
const rememberedType = 62

// memory is what is remembered of one topic.
type memory struct {
	Version int            `json:"version"`
	TopicID mirror.TopicID `json:"topic_id"`
	// Configs are the topic's own settings from before this process set them; nil: it had none.
	Configs map[string]*string `json:"configs,omitempty"`
	// Unconfirmed says, by partition, up to where a replica's copy may be trusted, because it has not followed a truncation yet.
	Unconfirmed map[int32]map[int32]int64 `json:"unconfirmed,omitempty"`
	// LeftOut are, by partition, the replicas that a hand-over left out, to be added again.
	LeftOut map[int32][]int32 `json:"left_out,omitempty"`
}

func (m memory) empty() bool {
	return len(m.Configs) == 0 && len(m.Unconfirmed) == 0 && len(m.LeftOut) == 0
}

func newRemembered(log keyedlog.Log) *remembered { return &remembered{log: log} }

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

// all is a copy of everything remembered, as this process knows it: it is the only one under its node id that changes it.
func (r *remembered) all(ctx context.Context) (map[string]memory, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	return maps.Clone(r.cache), nil
}

// load reads the records once. Under mu.
func (r *remembered) load(ctx context.Context) error {
	if r.read {
		return nil
	}
	cache := map[string]memory{}
	err := r.log.Read(ctx, func(v keyedlog.View) error {
		return v.Each(binary.BigEndian.AppendUint16(nil, rememberedType), func(rec keyedlog.Record) error {
			topic := string(rec.Key[2:])
			var m memory
			if err := json.Unmarshal(rec.Value, &m); err != nil || m.Version != 1 {
				return fmt.Errorf("kraft: what is remembered of topic %s cannot be read (version %d, %v): a newer version wrote it; run at least that version", topic, m.Version, err)
			}
			cache[topic] = m
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("kraft: reading what is remembered of this cluster's topics: %w", err)
	}
	r.cache, r.read = cache, true
	return nil
}

// change changes what is remembered of a topic. When it returns nil that survives a crash.
func (r *remembered) change(ctx context.Context, topic string, id mirror.TopicID, f func(*memory)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(ctx); err != nil {
		return err
	}
	m, ok := r.cache[topic]
	if !ok || m.TopicID != id {
		m = memory{Version: 1, TopicID: id}
	}
	m.Configs, m.Unconfirmed, m.LeftOut = maps.Clone(m.Configs), cloneUnconfirmed(m.Unconfirmed), maps.Clone(m.LeftOut)
	f(&m)
	var value []byte
	if !m.empty() {
		var err error
		if value, err = json.Marshal(m); err != nil {
			return err
		}
	} else if !ok {
		return nil
	}
	err := r.log.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: rememberedKey(topic), Value: value}}, nil
	})
	if err != nil {
		r.read = false // it may have been written
		return fmt.Errorf("kraft: remembering what was changed of topic %s: %w", topic, err)
	}
	if value == nil {
		delete(r.cache, topic)
	} else {
		r.cache[topic] = m
	}
	return nil
}

func cloneUnconfirmed(u map[int32]map[int32]int64) map[int32]map[int32]int64 {
	c := maps.Clone(u)
	for p, of := range c {
		c[p] = maps.Clone(of)
	}
	return c
}
