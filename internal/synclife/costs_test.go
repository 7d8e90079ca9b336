//go:build long

package synclife_test

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kafkatest/lives"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// asked counts the requests to each broker, by its address, and by what they are; those of fetchers are not part of a refresh.
type asked struct {
	mu    sync.Mutex
	kinds map[string]map[string]int
}

var _ kgo.HookBrokerWrite = (*asked)(nil)

// OnBrokerWrite counts a request.
func (a *asked) OnBrokerWrite(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if kmsg.Key(key) == kmsg.Fetch {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	if a.kinds[at] == nil {
		a.kinds[at] = map[string]int{}
	}
	a.kinds[at][kmsg.NameForKey(key)]++
}

// take returns what was counted and begins anew.
func (a *asked) take() map[string]map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.kinds
	a.kinds = map[string]map[string]int{}
	return was
}

// A refresh at which nothing is new costs few requests, however many partitions and groups there are. The destination is in memory.
func TestARefreshWithNothingToDoIsFewRequests(t *testing.T) {
	const topics, partitions, groups, most, interval = 25, 200, 500, 20, 2 * time.Second
	a := kafkatest.Start(t, kafkatest.Options{Brokers: 3, HeapMB: 1024, Authorizer: true, Config: map[string]string{"log.index.size.max.bytes": "4096"}})
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("cost-%02d", i))
		a.CreateTopic(kafkatest.Topic{Name: names[i], Partitions: partitions, Configs: map[string]string{"retention.ms": "86400000"}})
	}
	a.CreateACLs(allowed("alice", "cost", kadm.ACLPatternPrefixed, kadm.OpRead))
	cl := lives.Client(a)
	for i, name := range names {
		lives.Produce(t, cl, name, int32(i), lives.Values("of the source", 10)...)
	}
	for g := range groups {
		var offsets kadm.Offsets
		for p := range int32(10) {
			offsets.Add(kadm.Offset{Topic: names[g%topics], Partition: (int32(g)*7 + p*13) % partitions, At: 0, LeaderEpoch: -1})
		}
		group := fmt.Sprintf("cost-group-%03d", g)
		lives.Eventually(t, group+" is there", func() (bool, string) {
			answer, err := a.Admin().CommitOffsets(lives.Limited(t), group, offsets)
			if err == nil {
				err = answer.Error()
			}
			return err == nil, fmt.Sprint(err)
		})
	}
	count := &asked{kinds: map[string]map[string]int{}}
	source, err := kafkasource.New(kafkasource.Config{Seeds: a.Bootstrap(), ClientOptions: []kgo.Opt{kgo.WithHooks(count)}})
	if err != nil {
		t.Fatal(err)
	}
	b := memlog.New(memlog.Config{ClusterID: "the destination"})
	b.SetAuthorizer(true)
	control := mirror.NewMemoryControl()
	m, err := mirror.Open(lives.Limited(t), mirror.Config{
		Name: "cost", Source: source, Destination: b, Store: &statemachine.MemoryStore{}, Control: control, Sink: mirror.Discard, RefreshInterval: interval,
		OnEvent: func(e mirror.Event) {
			if e.Level() > 0 {
				t.Log(e)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := m.Admin().Start(lives.Limited(t), names, mirror.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("cost-group-%03d", groups-1)
	lives.Eventually(t, "everything is mirrored and followed", func() (bool, string) {
		s := m.Status()
		mirroring := 0
		for _, x := range s.Topics {
			for _, p := range x.Partitions {
				if p.State == statemachine.Mirroring {
					mirroring++
				}
			}
		}
		followed := len(s.Metadata.FollowedGroups)
		_, there := b.GroupOffset(last, mirror.TopicPartition{Topic: names[(groups-1)%topics], Partition: (int32(groups-1) * 7) % partitions})
		return mirroring == topics*partitions && followed == groups && there, fmt.Sprintf("%d partitions, %d groups, %+v", mirroring, followed, s.Metadata.Groups)
	})
	part := func() (at [3]time.Time) {
		s := m.Status().Metadata
		return [3]time.Time{s.Groups.At, s.Configs.At, s.ACLs.At}
	}
	// A refresh is over when all parts of it are.
	next := func() {
		before := part()
		lives.Eventually(t, "a refresh", func() (bool, string) {
			now := part()
			return now[0].After(before[0]) && now[1].After(before[1]) && now[2].After(before[2]), fmt.Sprintf("%+v", m.Status().Metadata.Groups)
		})
	}
	next()
	next()
	count.take()
	began := time.Now()
	for range 5 {
		next()
	}
	took := time.Since(began)
	counts := count.take()
	n := int(took.Round(interval) / interval)
	t.Logf("%d refreshes in %v, %d partitions, %d groups", n, took.Round(time.Millisecond), topics*partitions, groups)
	for _, at := range slices.Sorted(maps.Keys(counts)) {
		total := 0
		var words []string
		for _, kind := range slices.Sorted(maps.Keys(counts[at])) {
			total += counts[at][kind]
			words = append(words, fmt.Sprintf("%s %.1f", kind, float64(counts[at][kind])/float64(n)))
		}
		t.Logf("broker %s: %.1f requests each: %s", at, float64(total)/float64(n), strings.Join(words, ", "))
		if total > most*n {
			t.Errorf("broker %s: %d requests in %d refreshes, more than %d each", at, total, n, most)
		}
	}
	if len(counts) == 0 {
		t.Error("nothing was counted")
	}
}
