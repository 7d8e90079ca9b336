package kafkasource

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/mirror"
)

// commitGroups commits offset i for group i in t-0.
func commitGroups(t *testing.T, c *kfake.Cluster, names ...string) []mirror.Group {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var groups []mirror.Group
	for i, name := range names {
		var o kadm.Offsets
		o.AddOffset("t", 0, int64(i), -1)
		if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), name, o); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, mirror.Group{Name: name})
	}
	return groups
}

// TestGroupsOfASource: what a look costs is one metadata request, one ListGroups for each broker and one OffsetFetch for each coordinator; the first one asks who the coordinators are, too.
func TestGroupsOfASource(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint("g", i))
	}
	commitGroups(t, c, names...)
	s := openTo(t, c)
	asked := map[kmsg.Key]int{}
	c.Control(func(req kmsg.Request) (kmsg.Response, error, bool) { // one request at a time
		c.KeepControl()
		asked[kmsg.Key(req.Key())]++
		return nil, nil, false
	})
	for round := 1; round <= 3; round++ {
		groups, err := s.Groups(t.Context())
		if err != nil || len(groups) != len(names) {
			t.Fatalf("%v, %+v", err, groups)
		}
		before := s.Counts()
		got, err := s.GroupOffsets(t.Context(), groups)
		if err != nil || len(got) != len(names) {
			t.Fatalf("%v, %+v", err, got)
		}
		for i, n := range names {
			if o := got[n].Offsets[mirror.TopicPartition{Topic: "t"}]; got[n].Err != nil || len(got[n].Offsets) != 1 || o.Offset != int64(i) {
				t.Errorf("%s: %+v", n, got[n])
			}
		}
		if after := s.Counts(); round > 1 && after.Requests != before.Requests+3 {
			t.Errorf("round %d: reading the offsets cost %d requests", round, after.Requests-before.Requests)
		}
	}
	if asked[kmsg.ListGroups] != 9 || asked[kmsg.OffsetFetch] != 9 || asked[kmsg.FindCoordinator] != 1 {
		t.Errorf("asked %v", asked)
	}
}

// TestF59GroupErrorsOfASource: they are a mirror's, name the broker, and leave the others' groups alone.
func TestF59GroupErrorsOfASource(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
	groups := commitGroups(t, c, "g0", "g1", "g2", "g3", "g4", "g5")
	s := openTo(t, c)
	c.ControlKey(int16(kmsg.ListGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() != 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.OffsetFetchRequest)
		resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range r.Groups {
			a := kmsg.NewOffsetFetchResponseGroup()
			a.Group = g.Group
			if a.Group == "g2" {
				a.ErrorCode = kerr.GroupAuthorizationFailed.Code
			}
			resp.Groups = append(resp.Groups, a)
		}
		return resp, nil, true
	})
	listed, err := s.Groups(t.Context())
	e := sourceError(t, err, mirror.SourceNotLeader, false)
	if e.Operation != listGroupsOperation || !strings.Contains(err.Error(), "broker 1: ListGroups") || !errors.Is(err, kerr.CoordinatorLoadInProgress) || len(listed) == 0 || len(listed) == len(groups) {
		t.Errorf("%v, %+v", err, listed)
	}
	got, err := s.GroupOffsets(t.Context(), groups)
	if err != nil || len(got) != len(groups) {
		t.Fatalf("%v, %+v", err, got)
	}
	for name, o := range got {
		if name != "g2" && o.Err != nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if e := sourceError(t, got["g2"].Err, mirror.SourceDenied, true); !strings.Contains(e.Advice, "DESCRIBE") || strings.Contains(e.Advice, "topic") {
		t.Errorf("advice: %s", e.Advice)
	}
}

// TestSilentBrokerOfASource: it costs a third of the bound, and the others' groups are there.
func TestSilentBrokerOfASource(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(1, "t"))
	groups := commitGroups(t, c, "g0", "g1", "g2", "g3", "g4", "g5")
	s := open(t, Config{Seeds: c.ListenAddrs(), Bound: 3 * time.Second})
	all, err := s.Groups(t.Context())
	if err != nil || len(all) != len(groups) {
		t.Fatalf("%v, %+v", err, all)
	}
	silent := make(chan struct{})
	t.Cleanup(func() { close(silent) })
	c.ControlKey(int16(kmsg.ListGroups), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() != 1 {
			return nil, nil, false
		}
		c.SleepControl(func() { <-silent })
		return nil, nil, false
	})
	listed, err := s.Groups(t.Context())
	if e := sourceError(t, err, mirror.SourceTimeout, true); !strings.Contains(e.Error(), "broker 1: ListGroups") || len(listed) == 0 || len(listed) == len(all) {
		t.Errorf("%v, %+v", err, listed)
	}
}

// TestGroupsOfASourceThatIsAway, closed, or another cluster's: errors of the whole call.
func TestGroupsOfASourceThatIsAway(t *testing.T) {
	s := open(t, Config{Seeds: []string{closedPort(t)}})
	_, err := s.Groups(t.Context())
	sourceError(t, err, mirror.SourceUnreachable, true)
	got, err := s.GroupOffsets(t.Context(), []mirror.Group{{Name: "g"}})
	sourceError(t, err, mirror.SourceUnreachable, true)
	sourceError(t, got["g"].Err, mirror.SourceUnreachable, true)
	s.Close()
	if _, err := s.Groups(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := s.GroupOffsets(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestShareGroupsOfASourceWithoutThem: the group's error is that the source does not support it, and no other group is harmed.
func TestShareGroupsOfASourceWithoutThem(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V3_6_0()))
	groups := append(commitGroups(t, c, "g"), mirror.Group{Name: "s", Kind: mirror.ShareGroup})
	got, err := openTo(t, c).GroupOffsets(t.Context(), groups)
	if err != nil || got["g"].Err != nil || len(got["g"].Offsets) != 1 || !errors.Is(got["s"].Err, mirror.ErrUnsupported) {
		t.Fatalf("%v, %+v", err, got)
	}
	sourceError(t, got["s"].Err, mirror.SourceUnsupported, false)
}
