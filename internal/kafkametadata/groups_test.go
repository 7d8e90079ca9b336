package kafkametadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// groupCluster is a cluster's groups as far as this package's requests see them. Every request and answer is encoded and read again, in the version that a broker would choose.
type groupCluster struct {
	mu      sync.Mutex
	brokers []int32
	silent  map[int32]bool                       // accept requests and do not answer
	dead    map[int32]bool                       // refuse connections
	newest  map[kmsg.Key]int16                   // versions that the brokers serve at most; −1: not at all
	told    map[string]int32                     // what FindCoordinator tells of a group, if it is not who has it
	groups  map[string]*fakeGroup                // by name
	asked   map[int32]map[kmsg.Key]int           // requests by broker
	before  func(broker int32, req kmsg.Request) // called without the lock, before a request is answered
	replies map[kmsg.Key]func(r kmsg.Response)   // changes an answer, under the lock
	slow    time.Duration                        // how long an answer takes
	sizes   []int                                // partitions of each OffsetCommit
}

type fakeGroup struct {
	at      int32 // its coordinator, −1: none
	kind    string
	state   string
	offsets map[mirror.TopicPartition]mirror.GroupOffset
	pending []mirror.TopicPartition
	refuses map[mirror.TopicPartition]int16
	code    int16 // the answer to everything, 0: none
}

func newGroupCluster(brokers ...int32) *groupCluster {
	return &groupCluster{brokers: brokers, silent: map[int32]bool{}, dead: map[int32]bool{}, newest: map[kmsg.Key]int16{}, told: map[string]int32{}, groups: map[string]*fakeGroup{},
		asked: map[int32]map[kmsg.Key]int{}, replies: map[kmsg.Key]func(kmsg.Response){}}
}

// group adds an empty group.
func (f *groupCluster) group(name string, at int32, offsets map[mirror.TopicPartition]mirror.GroupOffset) *fakeGroup {
	g := &fakeGroup{at: at, kind: "classic", state: "Empty", offsets: maps.Clone(offsets)}
	if g.offsets == nil {
		g.offsets = map[mirror.TopicPartition]mirror.GroupOffset{}
	}
	f.groups[name] = g
	return g
}

func (f *groupCluster) Brokers(context.Context) ([]int32, error) { return slices.Clone(f.brokers), nil }

// count is how often brokers were asked something.
func (f *groupCluster) count(api kmsg.Key) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.asked {
		n += of[api]
	}
	return n
}

func (f *groupCluster) Ask(ctx context.Context, broker int32, sent kmsg.Request) (kmsg.Response, error) {
	api := kmsg.Key(sent.Key())
	if f.before != nil {
		f.before(broker, sent)
	}
	f.mu.Lock()
	if f.asked[broker] == nil {
		f.asked[broker] = map[kmsg.Key]int{}
	}
	f.asked[broker][api]++
	silent, dead := f.silent[broker], f.dead[broker]
	f.mu.Unlock()
	if dead {
		return nil, errors.New("connection refused")
	}
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.slow > 0 && !wait(ctx, f.slow) {
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	version := sent.MaxVersion()
	if most, ok := f.newest[api]; ok {
		version = min(version, most)
	}
	if version < 0 {
		return nil, errors.New("broker is too old")
	}
	sent.SetVersion(version)
	req := kmsg.RequestForKey(sent.Key())
	req.SetVersion(version)
	if err := req.ReadFrom(sent.AppendTo(nil)); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	f.answer(broker, req, resp)
	if change := f.replies[api]; change != nil {
		change(resp)
	}
	got := req.ResponseKind()
	return got, got.ReadFrom(resp.AppendTo(nil))
}

func (f *groupCluster) answer(broker int32, req kmsg.Request, resp kmsg.Response) {
	switch req := req.(type) {
	case *kmsg.ListGroupsRequest:
		for name, g := range f.groups {
			if g.at == broker {
				l := kmsg.NewListGroupsResponseGroup()
				l.Group, l.GroupType, l.GroupState, l.ProtocolType = name, g.kind, g.state, "consumer"
				if g.kind == "share" {
					l.ProtocolType = "share"
				}
				r := resp.(*kmsg.ListGroupsResponse)
				r.Groups = append(r.Groups, l)
			}
		}
	case *kmsg.FindCoordinatorRequest:
		r := resp.(*kmsg.FindCoordinatorResponse)
		if req.Version < 4 {
			a := f.coordinatorOf(req.CoordinatorKey)
			r.NodeID, r.ErrorCode = a.NodeID, a.ErrorCode
		}
		for _, key := range req.CoordinatorKeys {
			r.Coordinators = append(r.Coordinators, f.coordinatorOf(key))
		}
	case *kmsg.OffsetFetchRequest:
		r := resp.(*kmsg.OffsetFetchResponse)
		if req.Version < 8 {
			g := f.offsetsOf(broker, req.Group)
			r.ErrorCode = g.ErrorCode
			for _, t := range g.Topics {
				old := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					old.Partitions = append(old.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode})
				}
				r.Topics = append(r.Topics, old)
			}
		}
		for _, g := range req.Groups {
			if g.Topics != nil || !req.RequireStable {
				panic("it asks for some topics only, or for unstable offsets")
			}
			r.Groups = append(r.Groups, f.offsetsOf(broker, g.Group))
		}
	case *kmsg.OffsetCommitRequest:
		f.commit(broker, req, resp.(*kmsg.OffsetCommitResponse))
	case *kmsg.DescribeShareGroupOffsetsRequest:
		for _, g := range req.Groups {
			a := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			a.GroupID = g.GroupID
			a.ErrorCode = f.refusal(broker, g.GroupID, "share")
			if a.ErrorCode == 0 {
				for tp, o := range f.groups[g.GroupID].offsets {
					p := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
					p.Partition, p.StartOffset = tp.Partition, o.Offset
					a.Topics = append(a.Topics, kmsg.DescribeShareGroupOffsetsResponseGroupTopic{Topic: tp.Topic, Partitions: []kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition{p}})
				}
			}
			r := resp.(*kmsg.DescribeShareGroupOffsetsResponse)
			r.Groups = append(r.Groups, a)
		}
	case *kmsg.AlterShareGroupOffsetsRequest:
		r := resp.(*kmsg.AlterShareGroupOffsetsResponse)
		if r.ErrorCode = f.refusal(broker, req.GroupID, "share"); r.ErrorCode != 0 {
			return
		}
		g := f.groups[req.GroupID]
		if g.state != "Empty" {
			r.ErrorCode, r.ErrorMessage = kerr.NonEmptyGroup.Code, kmsg.StringPtr("it has members")
			return
		}
		for _, t := range req.Topics {
			a := kmsg.AlterShareGroupOffsetsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				tp := mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				of := kmsg.AlterShareGroupOffsetsResponseTopicPartition{Partition: p.Partition, ErrorCode: g.refuses[tp]}
				if of.ErrorCode == 0 {
					g.offsets[tp] = mirror.GroupOffset{Offset: p.StartOffset}
				} else {
					of.ErrorMessage = kmsg.StringPtr("not this one")
				}
				a.Partitions = append(a.Partitions, of)
			}
			r.Topics = append(r.Topics, a)
		}
	case *kmsg.ApiVersionsRequest:
		for key := range kmsg.Key(100) {
			if most, ok := f.newest[key]; !ok || most >= 0 {
				r := resp.(*kmsg.ApiVersionsResponse)
				r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: int16(key)})
			}
		}
	default:
		panic(fmt.Sprintf("nobody should ask for %T", req))
	}
}

func (f *groupCluster) coordinatorOf(group string) kmsg.FindCoordinatorResponseCoordinator {
	a := kmsg.FindCoordinatorResponseCoordinator{Key: group, NodeID: f.brokers[0]}
	if g := f.groups[group]; g != nil {
		a.NodeID = g.at
	}
	if told, ok := f.told[group]; ok {
		a.NodeID = told
	}
	if a.NodeID < 0 {
		a.ErrorCode = kerr.CoordinatorNotAvailable.Code
	}
	return a
}

// refusal is a group-level code.
func (f *groupCluster) refusal(broker int32, group, kind string) int16 {
	g := f.groups[group]
	switch {
	case g == nil, (g.kind == "share") != (kind == "share"):
		return kerr.GroupIDNotFound.Code
	case g.at != broker:
		return kerr.NotCoordinator.Code
	}
	return g.code
}

func (f *groupCluster) offsetsOf(broker int32, group string) kmsg.OffsetFetchResponseGroup {
	a := kmsg.NewOffsetFetchResponseGroup()
	a.Group = group
	if a.ErrorCode = f.refusal(broker, group, "classic"); a.ErrorCode != 0 {
		return a
	}
	g := f.groups[group]
	add := func(tp mirror.TopicPartition, offset int64, epoch int32, metadata string, code int16) {
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = tp.Partition, offset, epoch, kmsg.StringPtr(metadata), code
		a.Topics = append(a.Topics, kmsg.OffsetFetchResponseGroupTopic{Topic: tp.Topic, Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{p}})
	}
	for tp, o := range g.offsets {
		switch {
		case slices.Contains(g.pending, tp):
			add(tp, -1, -1, "", kerr.UnstableOffsetCommit.Code)
		case g.refuses[tp] != 0:
			add(tp, -1, -1, "", g.refuses[tp])
		default:
			add(tp, o.Offset, o.LeaderEpoch, o.Metadata, 0)
		}
	}
	return a
}

func (f *groupCluster) commit(broker int32, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) {
	if req.Generation != -1 || req.MemberID != "" {
		panic("it commits as a member")
	}
	g := f.groups[req.Group]
	if g == nil {
		g = f.group(req.Group, f.coordinatorOf(req.Group).NodeID, nil)
	}
	code := f.refusal(broker, req.Group, "classic")
	if code == 0 && g.state != "Empty" {
		code = kerr.UnknownMemberID.Code
	}
	n := 0
	for _, t := range req.Topics {
		a := kmsg.OffsetCommitResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			n++
			tp := mirror.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			of := kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code}
			if code == 0 {
				of.ErrorCode = g.refuses[tp]
			}
			if of.ErrorCode == 0 {
				g.offsets[tp] = mirror.GroupOffset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: *p.Metadata}
			}
			a.Partitions = append(a.Partitions, of)
		}
		resp.Topics = append(resp.Topics, a)
	}
	f.sizes = append(f.sizes, n)
}

func tp(topic string, partition int32) mirror.TopicPartition {
	return mirror.TopicPartition{Topic: topic, Partition: partition}
}

// at are offsets of a topic's partitions from 0 on.
func at(topic string, offsets ...int64) map[mirror.TopicPartition]mirror.GroupOffset {
	m := map[mirror.TopicPartition]mirror.GroupOffset{}
	for p, o := range offsets {
		m[tp(topic, int32(p))] = mirror.GroupOffset{Offset: o, LeaderEpoch: int32(o) + 7, Metadata: fmt.Sprintf("note %d", o)}
	}
	return m
}

func named(names ...string) []mirror.Group {
	var groups []mirror.Group
	for _, n := range names {
		groups = append(groups, mirror.Group{Name: n})
	}
	return groups
}

func TestGroupsOfEveryBroker(t *testing.T) {
	f := newGroupCluster(1, 2, 3)
	f.group("empty", 1, nil)
	f.group("dead", 2, nil).state = "Dead"
	f.group("busy", 2, nil).state = "Stable"
	next := f.group("next generation", 3, nil)
	next.kind, next.state = "consumer", "Reconciling"
	shared := f.group("shared", 3, nil)
	shared.kind, shared.state = "share", "Stable"
	f.group("streams", 1, nil).kind = "streams"
	got, err := New(f, time.Second).Groups(t.Context())
	want := []mirror.Group{
		{Name: "busy", Active: true, State: "Stable"}, {Name: "dead", State: "Dead"}, {Name: "empty", State: "Empty"}, {Name: "next generation", Active: true, State: "Reconciling"},
		{Name: "shared", Kind: mirror.ShareGroup, Active: true, State: "Stable"}, {Name: "streams", State: "Empty"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v\n%+v", err, got)
	}
	if n := f.count(kmsg.ListGroups); n != 3 {
		t.Fatalf("%d requests for 3 brokers", n)
	}
	// Brokers before 3.8 tell no types, before 2.6 no states.
	f.newest[kmsg.ListGroups] = 4
	if got, err = New(f, time.Second).Groups(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Fatalf("version 4: %v\n%+v", err, got)
	}
	f.newest[kmsg.ListGroups] = 3
	if got, err = New(f, time.Second).Groups(t.Context()); err != nil || len(got) != len(want) || got[0] != (mirror.Group{Name: "busy"}) || got[4].Kind != mirror.ShareGroup {
		t.Fatalf("version 3: %v\n%+v", err, got)
	}
}

// TestF59SilentBrokerHidesOnlyItsGroups: the others' groups are told beside the error that names the broker.
func TestF59SilentBrokerHidesOnlyItsGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupCluster(1, 2, 3)
		for id := int32(1); id <= 3; id++ {
			f.group(fmt.Sprint("g", id), id, nil)
		}
		f.silent[2] = true
		began := time.Now()
		got, err := New(f, 3*time.Second).Groups(t.Context())
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		var of BrokersError
		if !errors.As(err, &of) || len(of) != 1 || of[0].Broker != 2 || !strings.Contains(err.Error(), "broker 2: ListGroups") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error does not name broker 2: %v", err)
		}
		if len(got) != 2 || got[0].Name != "g1" || got[1].Name != "g3" {
			t.Errorf("groups %+v", got)
		}
		// A broker that loads its groups tells those that it has.
		f.silent[2] = false
		f.replies[kmsg.ListGroups] = func(r kmsg.Response) { r.(*kmsg.ListGroupsResponse).ErrorCode = kerr.CoordinatorLoadInProgress.Code }
		if got, err = New(f, 3*time.Second).Groups(t.Context()); len(got) != 3 || !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Errorf("loading: %v, %+v", err, got)
		}
	})
}

// TestGroupThatTwoBrokersList: while its coordinator moves, the one that sees members counts.
func TestGroupThatTwoBrokersList(t *testing.T) {
	f := newGroupCluster(1, 2)
	f.group("g", 1, nil)
	f.replies[kmsg.ListGroups] = func(r kmsg.Response) {
		l := kmsg.NewListGroupsResponseGroup()
		l.Group, l.GroupState, l.GroupType = "g", "Stable", "consumer"
		if r := r.(*kmsg.ListGroupsResponse); len(r.Groups) == 0 {
			r.Groups = append(r.Groups, l)
		}
	}
	got, err := New(f, time.Second).Groups(t.Context())
	if err != nil || len(got) != 1 || !got[0].Active {
		t.Fatalf("%v, %+v", err, got)
	}
}

// TestRequestsForManyGroups: reading 500 groups of three brokers costs each one ListGroups and one or two OffsetFetch, and the look-up of coordinators once.
func TestRequestsForManyGroups(t *testing.T) {
	f := newGroupCluster(1, 2, 3)
	for i := range 500 {
		f.group(fmt.Sprintf("g%03d", i), int32(i%3+1), at("t", int64(i)))
	}
	c := New(f, time.Second)
	for round := 1; round <= 3; round++ {
		groups, err := c.Groups(t.Context())
		if err != nil || len(groups) != 500 {
			t.Fatalf("%v, %d groups", err, len(groups))
		}
		offsets, err := c.GroupOffsets(t.Context(), groups)
		if err != nil || len(offsets) != 500 || offsets["g123"].Offsets[tp("t", 0)].Offset != 123 {
			t.Fatalf("%v, offsets of %d groups, g123: %+v", err, len(offsets), offsets["g123"])
		}
		for id, asked := range f.asked {
			if asked[kmsg.ListGroups] != round || asked[kmsg.OffsetFetch] > 2*round {
				t.Errorf("round %d: broker %d was asked %v", round, id, asked)
			}
		}
		if n := f.count(kmsg.FindCoordinator); n != 1 {
			t.Fatalf("round %d: %d look-ups of coordinators", round, n)
		}
	}
	// Ten times as many at one broker come in parts.
	f = newGroupCluster(1)
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("g%04d", i))
		f.group(names[i], 1, at("t", int64(i)))
	}
	offsets, err := New(f, time.Second).GroupOffsets(t.Context(), named(names...))
	if err != nil || len(offsets) != 5000 || f.count(kmsg.OffsetFetch) != 20 || f.count(kmsg.FindCoordinator) != 5 {
		t.Fatalf("%v, %d groups, %d and %d requests", err, len(offsets), f.count(kmsg.OffsetFetch), f.count(kmsg.FindCoordinator))
	}
	for i, n := range names {
		if offsets[n].Err != nil || offsets[n].Offsets[tp("t", 0)].Offset != int64(i) {
			t.Fatalf("%s: %+v", n, offsets[n])
		}
	}
}
