package clustermetadata

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// picture is all that an image says, as text, but for offsets and epochs of the log.
func picture(im *Image) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(im.features)) {
		fmt.Fprintf(&b, "feature %s %d\n", name, im.features[name])
	}
	for _, c := range im.Controllers() {
		fmt.Fprintf(&b, "controller %+v\n", c)
	}
	for _, broker := range im.Brokers() {
		fmt.Fprintf(&b, "broker %+v\n", broker)
	}
	for _, name := range im.Topics() {
		id, n, _ := im.Topic(name)
		fmt.Fprintf(&b, "topic %s %x, %d partitions\n", name, [16]byte(id), n)
		for _, number := range slices.Sorted(maps.Keys(im.topics[id].partitions)) {
			fmt.Fprintf(&b, "  %+v\n", im.topics[id].partitions[number])
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(im.configs), func(a, b resource) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) }) {
		values := im.Configs(of.kind, of.name)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(&b, "config %d %q %s=%q\n", of.kind, of.name, key, values[key])
		}
	}
	for _, u := range slices.SortedFunc(maps.Keys(im.scram), func(a, b scramUser) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.mechanism, b.mechanism))
	}) {
		c := im.scram[u]
		fmt.Fprintf(&b, "user %s %d: %x %x %x %d\n", u.name, u.mechanism, c.Salt, c.StoredKey, c.ServerKey, c.Iterations)
	}
	fmt.Fprintf(&b, "next producer id %d\n", im.NextProducerID())
	return b.String()
}
