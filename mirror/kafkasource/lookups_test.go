package kafkasource

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/mirror"
)

func TestTopicsAllAndByName(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(2, "b"), kfake.SeedTopics(1, "a"))
	s := openTo(t, c)
	all, err := s.Topics(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" || all[1].Partitions != 2 {
		t.Fatalf("%+v %v", all, err)
	}
	some, err := s.Topics(t.Context(), "b", "absent")
	if err != nil || len(some) != 1 || some[0].Name != "b" {
		t.Fatalf("%+v %v", some, err)
	}
}

func TestTopicsWithoutALeader(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(2, "t"))
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if len(req.(*kmsg.MetadataRequest).Topics) == 0 {
			return nil, nil, false
		}
		resp := metadataAnswer(c, req, "source-one")
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr("t")
		for p, code := range []int16{kerr.ReplicaNotAvailable.Code, kerr.LeaderNotAvailable.Code} {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.ErrorCode, mp.Leader, mp.LeaderEpoch = int32(p), code, int32(-p), 4
			topic.Partitions = append(topic.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	s := openTo(t, c)
	topic := topicOf(t, s, "t")
	if topic.Err != nil || topic.Leaders[0].Err != nil || topic.Leaders[0].Leader != 0 {
		t.Errorf("a follower that is down is no trouble: %+v", topic)
	}
	if topic.Leaders[1].Leader != -1 {
		t.Errorf("%+v", topic.Leaders[1])
	}
	sourceError(t, topic.Leaders[1].Err, mirror.SourceNotLeader, false)
	tp := mirror.TopicPartition{Topic: "t", Partition: 1}
	offsets, err := s.Offsets(t.Context(), []mirror.TopicPartition{tp})
	if err != nil {
		t.Fatal(err)
	}
	sourceError(t, offsets[tp].Err, mirror.SourceNotLeader, false)
}

func metadataAnswer(c *kfake.Cluster, req kmsg.Request, id string) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = kmsg.StringPtr(id)
	resp.ControllerID = 0
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID = 0
	b.Host, b.Port = hostPort(c.ListenAddrs()[0])
	resp.Brokers = append(resp.Brokers, b)
	return resp
}

func TestOffsetsOfManyBrokersInFewRequests(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(60, "t"))
	s := openTo(t, c)
	produce(t, c, "t", 5, "1", "2")
	if err := c.DeleteRecords("t", 5, 1); err != nil {
		t.Fatal(err)
	}
	var all []mirror.TopicPartition
	for p := range int32(60) {
		all = append(all, mirror.TopicPartition{Topic: "t", Partition: p})
	}
	before := s.Counts()
	all = append(all, all[0], mirror.TopicPartition{Topic: "t", Partition: 60}, mirror.TopicPartition{Topic: "absent"})
	offsets, err := s.Offsets(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if len(offsets) != 62 {
		t.Errorf("%d answers", len(offsets))
	}
	for tp, o := range offsets {
		switch {
		case tp.Topic == "absent" || tp.Partition == 60:
			sourceError(t, o.Err, mirror.SourceUnknownTopic, false)
			if o.LogStart != -1 || o.HighWatermark != -1 {
				t.Errorf("%v: %+v", tp, o)
			}
		case o.Err != nil:
			t.Error(o.Err)
		case tp.Partition == 5 && (o.LogStart != 1 || o.HighWatermark != 2), tp.Partition != 5 && (o.LogStart != 0 || o.HighWatermark != 0):
			t.Errorf("%v: %+v", tp, o)
		}
	}
	// Two metadata requests, ApiVersions per connection, and two requests per broker.
	if n := s.Counts().Requests - before.Requests; n > 2+4+6 {
		t.Errorf("%d requests", n)
	}
}

// TestF24TimeAfterTheLastRecord: the end, not 0; and an error with offset −1 stays an error.
func TestF24TimeAfterTheLastRecord(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", 0, "1", "2", "3")
	s := openTo(t, c)
	tp := mirror.TopicPartition{Topic: "t"}
	at := func(when time.Time) mirror.SourceOffsets {
		t.Helper()
		got, err := s.OffsetsAt(t.Context(), when, []mirror.TopicPartition{tp})
		if err != nil {
			t.Fatal(err)
		}
		return got[tp]
	}
	for _, x := range []struct {
		when time.Time
		want int64
	}{
		{time.Time{}, 0},
		{epochStart, 0},
		{stamp("2"), 1},
		{stamp("2").Add(time.Nanosecond), 2}, // the record of that very millisecond is earlier
		{stamp("3"), 2},
		{stamp("3").Add(time.Hour), 3},
	} {
		if o := at(x.when); o.Err != nil || o.HighWatermark != x.want {
			t.Errorf("%v: %+v, want %d", x.when, o, x.want)
		}
	}
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp < 0 {
			return nil, nil, false
		}
		return listOffsetsAnswer(req, kerr.UnknownServerError.Code, -1), nil, true
	})
	if o := at(stamp("3")); o.Err == nil || o.HighWatermark != -1 {
		t.Errorf("an error code taken for an offset: %+v", o)
	}
}

func listOffsetsAnswer(req kmsg.Request, code int16, offset int64) *kmsg.ListOffsetsResponse {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, rt := range req.(*kmsg.ListOffsetsRequest).Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.ErrorCode, p.Offset = rp.Partition, code, offset
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// TestF26TransientAnswersAreErrors: what brokers answer during an election is never an offset.
func TestF26TransientAnswersAreErrors(t *testing.T) {
	tp := mirror.TopicPartition{Topic: "t"}
	for _, x := range []struct {
		name   string
		err    *kerr.Error
		offset int64
		want   mirror.SourceCode
	}{
		{"not leader", kerr.NotLeaderForPartition, -1, mirror.SourceNotLeader},
		{"not leader, old offset", kerr.NotLeaderForPartition, 35, mirror.SourceNotLeader},
		{"offset not available", kerr.OffsetNotAvailable, -1, mirror.SourceOffsetsNotReady},
		{"leader not available", kerr.LeaderNotAvailable, -1, mirror.SourceNotLeader},
		{"fenced", kerr.FencedLeaderEpoch, -1, mirror.SourceFencedEpoch},
		{"broker behind", kerr.UnknownLeaderEpoch, -1, mirror.SourceUnknownEpoch},
		{"no error and no offset", nil, -1, mirror.SourceOffsetsNotReady},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "t"))
			var code int16
			if x.err != nil {
				code = x.err.Code
			}
			c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				if p := req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0]; p.Timestamp == earliestTimestamp || p.CurrentLeaderEpoch < 0 {
					return nil, nil, false // the start may be known; and without an epoch in the request the test shall fail
				}
				return listOffsetsAnswer(req, code, x.offset), nil, true
			})
			s := openTo(t, c)
			got, err := s.Offsets(t.Context(), []mirror.TopicPartition{tp})
			if err != nil {
				t.Fatal(err)
			}
			o := got[tp]
			sourceError(t, o.Err, x.want, false)
			if o.LogStart != -1 || o.HighWatermark != -1 || o.LeaderEpoch != -1 {
				t.Errorf("offsets beside an error: %+v", o)
			}
			at, err := s.OffsetsAt(t.Context(), epochStart, []mirror.TopicPartition{tp})
			if err != nil {
				t.Fatal(err)
			}
			sourceError(t, at[tp].Err, x.want, false)
		})
	}
}

func TestOffsetsOfOneDeadBrokerLeaveTheOthers(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "t"))
	if err := errors.Join(c.MoveTopicPartition("t", 0, 0), c.MoveTopicPartition("t", 1, 1)); err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("cut"), c.CurrentNode() == 1
	})
	s := openTo(t, c)
	got, err := s.Offsets(t.Context(), []mirror.TopicPartition{{Topic: "t"}, {Topic: "t", Partition: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if o := got[mirror.TopicPartition{Topic: "t"}]; o.Err != nil || o.HighWatermark != 0 {
		t.Errorf("%+v", o)
	}
	e := sourceError(t, got[mirror.TopicPartition{Topic: "t", Partition: 1}].Err, mirror.SourceUnreachable, false)
	if e.Partition.Partition != 1 {
		t.Errorf("names %v", e.Partition)
	}
}

// TestF31LookupsCreateNoTopic: auto-creation is on, and no call asks for it, not even in words that an old broker understands so.
func TestF31LookupsCreateNoTopic(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"), kfake.AllowAutoTopicCreation())
	s := openTo(t, c)
	tp := mirror.TopicPartition{Topic: "t"}
	topic := topicOf(t, s, "t")
	f := fetcherOf(t, s, topic.Leaders[0].Leader, mirror.FetchOptions{MaxWait: time.Millisecond})
	f.Want(position(topic, 0, 0))
	if _, err := f.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if topics, err := s.Topics(t.Context(), "t"); err != nil || len(topics) != 0 {
			t.Fatalf("%+v %v", topics, err)
		}
		for _, ask := range []func() (map[mirror.TopicPartition]mirror.SourceOffsets, error){
			func() (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
				return s.Offsets(t.Context(), []mirror.TopicPartition{tp})
			},
			func() (map[mirror.TopicPartition]mirror.SourceOffsets, error) {
				return s.OffsetsAt(t.Context(), epochStart, []mirror.TopicPartition{tp})
			},
		} {
			got, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			sourceError(t, got[tp].Err, mirror.SourceUnknownTopic, false)
		}
		_, err := s.EndOffsetForEpoch(t.Context(), tp, -1, 0)
		sourceError(t, err, mirror.SourceUnknownTopic, false)
		// Brokers answer a session's deleted topic with UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION.
		if got := fetchUntil(t, f); got[0].Err == nil {
			t.Fatalf("%+v", got[0])
		}
	}
	if c.TopicInfo("t") != nil {
		t.Fatal("the topic is back")
	}
	// The cluster does create topics for those who ask.
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr("t")
	req.Topics = append(req.Topics, rt)
	if _, err := req.RequestWith(t.Context(), s.client); err != nil || c.TopicInfo("t") == nil {
		t.Fatalf("the cluster of this test creates no topic: %v", err)
	}
}

// TestF33AnotherClusterBehindTheAddresses: Cluster tells, and nothing else takes an answer of the new one.
func TestF33AnotherClusterBehindTheAddresses(t *testing.T) {
	for name, versions := range map[string]*kversion.Versions{"2.4": kversion.V2_4_0(), "newest": kversion.Stable()} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(versions))
			s := openTo(t, c)
			if info, err := s.Cluster(t.Context()); err != nil || info.ID != "source-one" {
				t.Fatal(info, err)
			}
			topic := topicOf(t, s, "t")
			f := fetcherOf(t, s, 0, mirror.FetchOptions{MaxWait: time.Millisecond})
			byName := position(topic, 0, 0)
			byName.TopicID = mirror.TopicID{}
			f.Want(byName)
			if _, err := f.Fetch(t.Context()); err != nil {
				t.Fatal(err)
			}

			_, port := hostPort(c.ListenAddrs()[0])
			c.Close()
			other := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(versions), kfake.ClusterID("source-two"), kfake.Ports(int(port)))
			produce(t, other, "t", 0, "1")

			// A connection that is gone may be found out first. No answer is taken before.
			changed := func(call func() error) {
				t.Helper()
				var err error
				for range 5 {
					if err = call(); errors.Is(err, ErrClusterChanged) {
						return
					}
					sourceError(t, err, mirror.SourceUnreachable, false)
				}
				t.Error(err)
			}
			changed(func() error {
				got, err := f.Fetch(t.Context())
				if len(got) != 0 {
					t.Errorf("fetched from another cluster: %+v", got)
				}
				return err
			})
			changed(func() error {
				_, err := s.Topics(t.Context(), "t")
				return err
			})
			changed(func() error {
				_, err := s.Offsets(t.Context(), []mirror.TopicPartition{{Topic: "t"}})
				return err
			})
			changed(func() error {
				_, err := s.EndOffsetForEpoch(t.Context(), mirror.TopicPartition{Topic: "t"}, -1, 0)
				return err
			})
			info, err := s.Cluster(t.Context())
			if err != nil || info.ID != "source-two" {
				t.Fatal(info, err)
			}
			if _, err := s.Topics(t.Context()); err != nil {
				t.Errorf("after Cluster told of the new id: %v", err)
			}
		})
	}
}

func TestOpenFetcherForABrokerThatIsNotThere(t *testing.T) {
	s := openTo(t, cluster(t))
	_, err := s.OpenFetcher(t.Context(), 77, mirror.FetchOptions{})
	sourceError(t, err, mirror.SourceUnreachable, false)
}

func TestCountsTellWhatWasAsked(t *testing.T) {
	s := openTo(t, cluster(t))
	for range 3 {
		if _, err := s.Cluster(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Counts(); n.Metadata != 3 || n.Connects < 1 || n.ConnectsFailed != 0 || n.Requests < 4 || n.Fetches != 0 {
		t.Errorf("%+v", n)
	}
}

func TestMillisecondsUp(t *testing.T) {
	for _, x := range []struct {
		t    time.Time
		want int64
	}{{time.UnixMilli(5), 5}, {time.UnixMilli(5).Add(1), 6}, {time.UnixMilli(-3), 0}, {time.Time{}, 0}} {
		if got := millisecondsUp(x.t); got != x.want {
			t.Errorf("%v: %d, want %d", x.t, got, x.want)
		}
	}
}

// TestF86LocalStarts: where a broker's own disks begin is asked with a timestamp that only brokers with KIP-405 know; others would look for a record of that time.
func TestF86LocalStarts(t *testing.T) {
	tp := mirror.TopicPartition{Topic: "t"}
	tiered := func(req kmsg.Request) (kmsg.Response, error, bool) {
		if req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp != -4 {
			return nil, nil, false
		}
		return listOffsetsAnswer(req, 0, 5000), nil, true
	}
	t.Run("a broker that can tell", func(t *testing.T) {
		c := cluster(t, kfake.SeedTopics(1, "t"))
		c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) { c.KeepControl(); return tiered(req) })
		s := openTo(t, c)
		if got, err := s.LocalStarts(t.Context(), []mirror.TopicPartition{tp}); err != nil || got[tp] != 5000 {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := s.LocalStarts(t.Context(), []mirror.TopicPartition{{Topic: "absent"}}); err == nil || len(got) > 0 {
			t.Errorf("a topic that is not there: %v", got)
		}
	})
	t.Run("one that cannot", func(t *testing.T) {
		c := cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V3_0_0()))
		c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) { c.KeepControl(); return tiered(req) })
		if got, err := openTo(t, c).LocalStarts(t.Context(), []mirror.TopicPartition{tp}); err != nil || len(got) > 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
