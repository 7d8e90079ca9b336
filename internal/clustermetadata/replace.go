package clustermetadata

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Replace makes this image a snapshot's: snapshot is a new image that was given the whole content of the snapshot with the id {end, epoch}, and is not to be used any more. The changes
// are the difference between what was known and what the snapshot says, all at the offset end; a topic that has another id under the same name was deleted and created.
// Metadata transactions never reach into a snapshot: records kept back are dropped.
func (im *Image) Replace(snapshot *Image, end int64, epoch int32) []Change {
	s := changes{offset: end}
	for _, name := range union(im.features, snapshot.features, strings.Compare) {
		im.setFeature(name, snapshot.features[name], &s)
	}
	for _, id := range union(im.controllers, snapshot.controllers, cmp.Compare) {
		im.setController(id, found(snapshot.controllers, id), &s)
	}
	for _, id := range union(im.brokers, snapshot.brokers, cmp.Compare) {
		im.setBroker(id, found(snapshot.brokers, id), &s)
	}
	for _, name := range im.Topics() {
		if t := im.topics[im.ids[name]]; snapshot.topics[t.id] == nil || snapshot.topics[t.id].name != name {
			im.dropTopic(t, &s)
		}
	}
	for _, name := range snapshot.Topics() {
		want := snapshot.topics[snapshot.ids[name]]
		t := im.topics[want.id]
		if t == nil {
			t = im.addTopic(name, want.id, &s)
		}
		for _, number := range union(t.partitions, want.partitions, cmp.Compare) {
			if p, ok := want.partitions[number]; ok {
				im.putPartition(t, p, &s)
			} else {
				im.dropPartition(t, number, &s)
			}
		}
	}
	for _, of := range union(im.configs, snapshot.configs, func(a, b resource) int { return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.name, b.name)) }) {
		for _, key := range union(im.configs[of], snapshot.configs[of], strings.Compare) {
			value, ok := snapshot.configs[of][key]
			im.setConfig(of, key, value, !ok, &s)
		}
	}
	for _, user := range union(im.scram, snapshot.scram, func(a, b scramUser) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.mechanism, b.mechanism))
	}) {
		im.setScram(user, found(snapshot.scram, user), &s)
	}
	im.setProducerID(snapshot.producerID, &s)
	im.next, im.epoch, im.failed, im.transaction = end, epoch, snapshot.failed, nil
	return s.all
}

// union are the keys of both maps, in order.
func union[K comparable, V any](a, b map[K]V, compare func(K, K) int) []K {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.SortFunc(keys, compare)
	return slices.Compact(keys)
}

// found is the value of a key, nil if there is none.
func found[K comparable, V any](m map[K]V, key K) *V {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}
