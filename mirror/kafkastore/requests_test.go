package kafkastore

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// The kinds of requests that each call sends are those of the package's text, and no others: rights are given by them.
func TestRealRequestsOfEachCall(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	var asked requests
	cfg.ClientOptions = []kgo.Opt{kgo.WithHooks(&asked)}
	s := open(t, cfg)
	n := opened(t, s, "w")
	own, free := key(66, "own"), key(72, "free")
	write(t, n, change(own, "1"))
	update(t, s, change(free, "1")) // both coordinators are known now
	must(t, n.Check(t.Context()))
	expect(t, s, own, "1 by w/1")
	asked.since()
	for _, x := range []struct {
		name, want string
		call       func()
	}{
		{"read, nothing new", "ListOffsets", func() { expect(t, s, own, "1 by w/1") }},
		{"check, nothing new", "ListOffsets", func() { must(t, n.Check(t.Context())) }},
		{"own records", "AddPartitionsToTxn EndTxn Produce", func() { write(t, n, change(own, "2")) }},
		{"check", "ListOffsets", func() { must(t, n.Check(t.Context())) }},
		{"read", "ListOffsets", func() { expect(t, s, own, "2 by w/1") }},
		{"update without a change", "InitProducerID ListOffsets", func() { update(t, s) }},
		{"update", "AddPartitionsToTxn EndTxn InitProducerID ListOffsets Produce", func() { update(t, s, change(free, "2")) }},
		{"claim", "AddPartitionsToTxn EndTxn InitProducerID ListOffsets Produce", func() { write(t, n, change(free, "3")) }},
		{"own update without a change", "ListOffsets", func() {
			must(t, n.Update(t.Context(), [][]byte{own}, func(keyedlog.View) ([]keyedlog.Change, error) { return nil, nil }))
		}},
		{"close", "", func() { must(t, n.Close()) }},
	} {
		x.call()
		all, sum := asked.since()
		if all["ListOffsets"] > 0 {
			delete(all, "Fetch")    // where there is something new: the marker of the last transaction, if nothing else
			delete(all, "Metadata") // every few seconds
		}
		if got := strings.Join(slices.Sorted(maps.Keys(all)), " "); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
		if strings.HasPrefix(x.name, "check") && all["ListOffsets"] != 1 {
			t.Errorf("%s: %v, want one of the one broker that leads the control topic", x.name, all)
		}
		t.Logf("%s: %d requests: %v", x.name, sum, all)
	}
}
