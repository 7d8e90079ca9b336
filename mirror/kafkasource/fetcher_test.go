package kafkasource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// fetching is a one-broker cluster with topic t of two partitions, and a fetcher that wants partition 0 from 0.
func fetching(t *testing.T, o mirror.FetchOptions, opts ...kfake.Opt) (*kfake.Cluster, *Source, mirror.SourceTopic, mirror.Fetcher) {
	t.Helper()
	c := cluster(t, append(opts, kfake.SeedTopics(2, "t"))...)
	s := openTo(t, c)
	topic := topicOf(t, s, "t")
	if o.MaxWait == 0 {
		o.MaxWait = 5 * time.Millisecond
	}
	f := fetcherOf(t, s, topic.Leaders[0].Leader, o)
	f.Want(position(topic, 0, 0))
	return c, s, topic, f
}

func mustFetch(t *testing.T, f mirror.Fetcher) []mirror.FetchedPartition {
	t.Helper()
	got, err := f.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// answerOnce answers the next fetch request by itself.
func answerOnce(c *kfake.Cluster, answer func(*kmsg.FetchRequest, *kmsg.FetchResponse)) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		answer(req.(*kmsg.FetchRequest), resp)
		return resp, nil, true
	})
}

// answerPartition puts one partition of the first topic asked for into a reply.
func answerPartition(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) *kmsg.FetchResponseTopicPartition {
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = req.Topics[0].Partitions[0].Partition
	t.Partitions = append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	return &resp.Topics[0].Partitions[0]
}

func TestLostFetchSessionIsMendedInside(t *testing.T) {
	for _, x := range []struct {
		err    *kerr.Error
		keepID bool
	}{{kerr.FetchSessionIDNotFound, false}, {kerr.InvalidFetchSessionEpoch, true}, {kerr.FetchSessionTopicIDError, true}} {
		t.Run(x.err.Message, func(t *testing.T) {
			c, _, _, f := fetching(t, mirror.FetchOptions{})
			seen := recordFetches(c)
			mustFetch(t, f)
			mustFetch(t, f)
			answerOnce(c, func(_ *kmsg.FetchRequest, resp *kmsg.FetchResponse) { resp.ErrorCode = x.err.Code })
			if got := mustFetch(t, f); len(got) != 1 || got[0].Err != nil {
				t.Fatalf("%+v", got)
			}
			all := seen.all()
			if len(all) != 4 {
				t.Fatalf("%d requests", len(all))
			}
			lost, mend := all[2], all[3]
			if lost.SessionEpoch != 2 || mend.SessionEpoch != 0 || named(mend) != 1 || (mend.SessionID != 0) != x.keepID {
				t.Errorf("lost %d/%d, then %d/%d naming %d", lost.SessionID, lost.SessionEpoch, mend.SessionID, mend.SessionEpoch, named(mend))
			}
			// Twice in one call is the caller's to know; the next call begins anew again.
			for range 2 {
				answerOnce(c, func(_ *kmsg.FetchRequest, resp *kmsg.FetchResponse) { resp.ErrorCode = x.err.Code })
			}
			_, err := f.Fetch(t.Context())
			sourceError(t, err, mirror.SourceSession, false)
			mustFetch(t, f)
		})
	}
}

func TestBrokerThatKeepsNoSessionIsAskedInFull(t *testing.T) {
	c, _, _, f := fetching(t, mirror.FetchOptions{})
	seen := recordFetches(c)
	for range 3 {
		answerOnce(c, func(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) { answerPartition(req, resp).HighWatermark = 0 })
		if got := mustFetch(t, f); len(got) != 1 {
			t.Fatalf("%+v", got)
		}
	}
	for _, r := range seen.all() {
		if r.SessionEpoch != 0 || named(r) != 1 {
			t.Errorf("session epoch %d, %d partitions", r.SessionEpoch, named(r))
		}
	}
}

// TestKIP951LeaderHintWithItsAddress: the new leader is reported with its address, and its fetcher needs no look-up.
func TestKIP951LeaderHintWithItsAddress(t *testing.T) {
	c, s, topic, f := fetching(t, mirror.FetchOptions{}, kfake.NumBrokers(2))
	mustFetch(t, f)
	was := topic.Leaders[0]
	to := 1 - was.Leader
	host, port := hostPort(c.ListenAddrs()[to])
	want := mirror.Broker{ID: to, Host: host, Port: port}
	s.forgetBroker(want)
	if err := c.MoveTopicPartition("t", 0, to); err != nil {
		t.Fatal(err)
	}
	got := fetchUntil(t, f)[0]
	sourceError(t, got.Err, mirror.SourceNotLeader, false)
	if got.Offset != 0 || got.LeaderEpoch != was.LeaderEpoch || got.HighWatermark != -1 {
		t.Errorf("%+v", got)
	}
	if got.CurrentLeader == nil || got.CurrentLeader.Leader != to || got.CurrentLeader.LeaderEpoch <= was.LeaderEpoch {
		t.Fatalf("hint %+v", got.CurrentLeader)
	}
	if got.LeaderEndpoint == nil || *got.LeaderEndpoint != want {
		t.Fatalf("endpoint %+v, want %+v", got.LeaderEndpoint, want)
	}
	before := s.Counts().Metadata
	next := fetcherOf(t, s, to, mirror.FetchOptions{MaxWait: time.Millisecond})
	at := position(topic, 0, 0)
	at.LeaderEpoch = got.CurrentLeader.LeaderEpoch
	next.Want(at)
	if got := mustFetch(t, next); len(got) != 1 || got[0].Err != nil {
		t.Errorf("%+v", got)
	}
	if n := s.Counts().Metadata - before; n != 0 {
		t.Errorf("%d look-ups", n)
	}
}

func TestSpec4LastEpochAndDivergence(t *testing.T) {
	c, _, topic, f := fetching(t, mirror.FetchOptions{})
	at := position(topic, 0, 0)
	at.LastEpoch, at.LogStart = 3, 7
	f.Want(at)
	var asked kmsg.FetchRequestTopicPartition
	answerOnce(c, func(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
		asked = req.Topics[0].Partitions[0]
		p := answerPartition(req, resp)
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 2, 41
	})
	got := mustFetch(t, f)
	if asked.LastFetchedEpoch != 3 || asked.LogStartOffset != 7 || asked.CurrentLeaderEpoch != topic.Leaders[0].LeaderEpoch {
		t.Errorf("asked %+v", asked)
	}
	if got[0].Diverging == nil || *got[0].Diverging != (mirror.EpochEnd{Epoch: 2, End: 41}) || got[0].Err != nil {
		t.Errorf("%+v", got[0])
	}
	if got := fetchUntil(t, f); got[0].Diverging != nil || got[0].CurrentLeader != nil || got[0].LeaderEndpoint != nil {
		t.Errorf("hints out of nothing: %+v", got[0])
	}
}

// TestAnswerCarriesWhatWasAsked: a partition is moved and another dropped while the request is at the broker.
func TestAnswerCarriesWhatWasAsked(t *testing.T) {
	c, _, topic, f := fetching(t, mirror.FetchOptions{})
	produce(t, c, "t", 0, "1", "2", "3")
	produce(t, c, "t", 1, "1")
	f.Want(position(topic, 1, 0))
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.DropControl()
		f.Want(position(topic, 0, 2))
		f.Forget(mirror.TopicPartition{Topic: "t", Partition: 1})
		return nil, nil, false
	})
	got := mustFetch(t, f)
	if len(got) != 1 || got[0].Partition != 0 || got[0].Offset != 0 || len(got[0].Records) == 0 {
		t.Fatalf("%+v", got)
	}
	if got = mustFetch(t, f); len(got) != 1 || got[0].Partition != 0 || got[0].Offset != 2 {
		t.Fatalf("%+v", got)
	}
}

// TestTopicWithoutIDIsFetchedByName: the version is held down for that request, whatever the broker speaks.
func TestTopicWithoutIDIsFetchedByName(t *testing.T) {
	c, _, topic, f := fetching(t, mirror.FetchOptions{})
	seen := recordFetches(c)
	mustFetch(t, f)
	byName := position(topic, 1, 0)
	byName.TopicID = mirror.TopicID{}
	f.Want(byName)
	if got := mustFetch(t, f); len(got) != 2 || got[0].Err != nil || got[1].Err != nil {
		t.Fatalf("%+v", got)
	}
	f.Want(position(topic, 1, 0))
	mustFetch(t, f)
	all := seen.all()
	for i, want := range []int16{18, 12, 18} {
		if all[i].Version != want || all[i].SessionEpoch != 0 {
			t.Errorf("request %d: version %d, session epoch %d", i, all[i].Version, all[i].SessionEpoch)
		}
	}
}

func TestRecreatedTopicIsAskedByItsNewID(t *testing.T) {
	c, s, topic, f := fetching(t, mirror.FetchOptions{})
	mustFetch(t, f)
	if err := errors.Join(c.DeleteTopic("t"), c.CreateTopic("t", 1, nil)); err != nil {
		t.Fatal(err)
	}
	got := fetchUntil(t, f)
	sourceError(t, got[0].Err, mirror.SourceTopicIDChanged, false)
	again := topicOf(t, s, "t")
	if again.ID == topic.ID {
		t.Fatal("same id")
	}
	f.Want(position(again, 0, 0))
	if got = fetchUntil(t, f); len(got) != 1 || got[0].Err != nil {
		t.Fatalf("%+v", got)
	}
}

func TestThrottledFetcherWaits(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	s := open(t, Config{Seeds: c.ListenAddrs(), Bound: 300 * time.Millisecond})
	topic := topicOf(t, s, "t")
	f := fetcherOf(t, s, 0, mirror.FetchOptions{MaxWait: time.Millisecond})
	f.Want(position(topic, 0, 0))
	answerOnce(c, func(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) { resp.ThrottleMillis = 60_000 })
	// A reply that a quota left empty says nothing about the log, and neither does a fetch that sent no request.
	if got, err := f.Fetch(t.Context()); got != nil || !errors.Is(err, mirror.ErrNoAnswer) {
		t.Fatalf("%+v, %v", got, err)
	}
	before := s.Counts().Fetches
	if got, err := f.Fetch(t.Context()); got != nil || !errors.Is(err, mirror.ErrNoAnswer) || s.Counts().Fetches != before {
		t.Errorf("asked while the broker wants no request: %+v", got)
	}
}

func TestRackIsDroppedWhenALeaderSendsUsToAFollower(t *testing.T) {
	c, _, _, f := fetching(t, mirror.FetchOptions{Rack: "r1"})
	seen := recordFetches(c)
	answerOnce(c, func(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
		answerPartition(req, resp).PreferredReadReplica = 2
	})
	if got := mustFetch(t, f); len(got) != 1 || got[0].CurrentLeader != nil || got[0].Err != nil {
		t.Fatalf("%+v", got)
	}
	mustFetch(t, f)
	if all := seen.all(); all[0].Rack != "r1" || all[1].Rack != "" {
		t.Errorf("racks %q %q", all[0].Rack, all[1].Rack)
	}
}

// TestSlowLineGetsSmallerReplies: each reply that does not arrive in time halves the next one's limit, over the life of fetchers; good ones double it.
func TestSlowLineGetsSmallerReplies(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	s := open(t, Config{Seeds: c.ListenAddrs(), Bound: 300 * time.Millisecond})
	topic := topicOf(t, s, "t")
	var limits []int32
	fetch := func(answer bool) {
		t.Helper()
		f := fetcherOf(t, s, 0, mirror.FetchOptions{MaxWait: time.Millisecond, MaxBytes: 1 << 20})
		defer f.Close()
		f.Want(position(topic, 0, 0))
		c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.DropControl()
			limits = append(limits, req.(*kmsg.FetchRequest).MaxBytes)
			return nil, nil, !answer
		})
		_, err := f.Fetch(t.Context())
		if answer != (err == nil) {
			t.Fatal(err)
		}
		if !answer {
			sourceError(t, err, mirror.SourceTimeout, true)
		}
	}
	for _, answer := range []bool{false, false, true, true, true} {
		fetch(answer)
	}
	want := []int32{1 << 20, 1 << 19, 1 << 18, 1 << 19, 1 << 20}
	for i := range want {
		if limits[i] != want[i] {
			t.Fatalf("limits %v, want %v", limits, want)
		}
	}
}

func TestBatchLargerThanEveryLimitArrives(t *testing.T) {
	c, _, _, f := fetching(t, mirror.FetchOptions{MaxBytes: 1000, PartitionMaxBytes: 500}, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "200000000"}))
	big := strings.Repeat("x", 70<<20)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(90<<20), kgo.BrokerMaxWriteBytes(100<<20))
	if err != nil {
		t.Fatal(err)
	}
	err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte(big)}).FirstErr()
	cl.Close()
	if err != nil {
		t.Fatal(err)
	}
	if got := fetchUntil(t, f); len(got) != 1 || got[0].Err != nil || len(got[0].Records) < len(big) {
		t.Fatalf("%d partitions", len(got))
	}
}

func TestFetchWithNothingWantedWaitsForAWant(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	produce(t, c, "t", 0, "1")
	s := openTo(t, c)
	topic := topicOf(t, s, "t")
	short := fetcherOf(t, s, 0, mirror.FetchOptions{MaxWait: time.Millisecond})
	if got, err := short.Fetch(t.Context()); got != nil || !errors.Is(err, mirror.ErrNoAnswer) {
		t.Fatal(got, err)
	}
	if n := s.Counts().Fetches; n != 0 {
		t.Errorf("%d requests about nothing", n)
	}
	long := fetcherOf(t, s, 0, mirror.FetchOptions{MaxWait: time.Hour})
	go long.Want(position(topic, 0, 0))
	if got := mustFetch(t, long); len(got) != 1 || len(got[0].Records) == 0 {
		t.Errorf("%+v", got)
	}
}

func TestFetchEndsWithItsContextAndWithClose(t *testing.T) {
	for _, how := range []string{"context", "fetcher", "source"} {
		t.Run(how, func(t *testing.T) {
			c, s, _, f := fetching(t, mirror.FetchOptions{MaxWait: time.Hour})
			arrived := make(chan struct{})
			c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
				close(arrived)
				return nil, nil, true
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := f.Fetch(ctx)
				ended <- err
			}()
			<-arrived
			switch how {
			case "context":
				cancel()
			case "fetcher":
				f.Close()
			case "source":
				s.Close()
			}
			select {
			case err := <-ended:
				if want := map[string]error{"context": context.Canceled, "fetcher": ErrClosed, "source": ErrClosed}[how]; !errors.Is(err, want) {
					t.Errorf("%v", err)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("still fetching")
			}
			if how != "context" {
				if _, err := f.Fetch(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
				return
			}
			// The next one connects anew.
			c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) { return req.ResponseKind(), nil, true })
			mustFetch(t, f)
		})
	}
}

// TestF79ThrottleTimeIsToldAndRepliesCanBeLimited: the pause that a broker asks for reaches the caller once, beside records too, and no request is sent before it is over. The limit of
// replies is altered while the fetcher is open.
func TestF79ThrottleTimeIsToldAndRepliesCanBeLimited(t *testing.T) {
	c, _, _, f := fetching(t, mirror.FetchOptions{MaxWait: time.Millisecond, MaxBytes: 1 << 20})
	seen := recordFetches(c)
	throttled := func(what string, want time.Duration) {
		t.Helper()
		if got := f.(mirror.ThrottleTeller).Throttled(); got != want {
			t.Errorf("%s: throttled %s, want %s", what, got, want)
		}
	}
	throttled("before the first reply", 0)
	answerOnce(c, func(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
		answerPartition(req, resp).HighWatermark = 7
		resp.ThrottleMillis = 40
	})
	began := time.Now()
	if got := mustFetch(t, f); len(got) != 1 || got[0].Err != nil || got[0].HighWatermark != 7 {
		t.Fatalf("%+v", got)
	}
	throttled("a reply with a pause", 40*time.Millisecond)
	f.(mirror.ReplyLimiter).LimitReply(1000)
	mustFetch(t, f)
	if since := time.Since(began); since < 40*time.Millisecond {
		t.Errorf("asked again after %s", since)
	}
	throttled("the reply after it", 0)
	f.(mirror.ReplyLimiter).LimitReply(0)
	mustFetch(t, f)
	all := seen.all()
	var limits []int32
	for _, r := range all {
		limits = append(limits, r.MaxBytes)
	}
	if n := len(limits); n < 3 || limits[0] != 1<<20 || limits[n-2] != 1000 || limits[n-1] != 1<<20 {
		t.Errorf("replies were limited to %d", limits)
	}
}

// TestF79LongPauseIsNoFailure: a pause that is longer than a call may take ends no call with an error.
func TestF79LongPauseIsNoFailure(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "t"))
	s := open(t, Config{Seeds: c.ListenAddrs(), Bound: 300 * time.Millisecond})
	f := fetcherOf(t, s, 0, mirror.FetchOptions{MaxWait: time.Millisecond})
	f.Want(position(topicOf(t, s, "t"), 0, 0))
	answerOnce(c, func(_ *kmsg.FetchRequest, resp *kmsg.FetchResponse) { resp.ThrottleMillis = 60_000 })
	for i, want := range []time.Duration{time.Minute, 0, 0} {
		got, err := f.Fetch(t.Context())
		if told := f.(mirror.ThrottleTeller).Throttled(); got != nil || !errors.Is(err, mirror.ErrNoAnswer) || told != want {
			t.Errorf("fetch %d: %+v, %v, throttled %s", i, got, err, told)
		}
	}
}
