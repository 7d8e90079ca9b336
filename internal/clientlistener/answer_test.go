package clientlistener

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchOf asks for partitions 0 and 1 of the topic that is led here, which leads 0, and 0 of another one.
func fetchOf(version int16) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch, req.Rack = version, 500, 1, 50<<20, 0, "near"
	for _, topic := range []struct {
		name string
		id   [16]byte
		n    int32
	}{{"led", ledID, 2}, {"other", otherID, 1}} {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic.name, topic.id
		for n := range topic.n {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes, p.LastFetchedEpoch = n, 7, 100, 1<<20, 6
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// fetchSays answers every partition of a Fetch with a code, and with records, as no broker does to a probe.
func fetchSays(code func(topic string, id [16]byte, partition int32) int16) func(kmsg.Request) kmsg.Response {
	return func(raw kmsg.Request) kmsg.Response {
		req := raw.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.SessionID = 77
		for _, t := range req.Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.RecordBatches, rp.HighWatermark = p.Partition, code(t.Topic, t.TopicID, p.Partition), []byte("records"), 4711
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
}

func TestFetchIsSentOn(t *testing.T) {
	led := &fakePartition{read: ReadAnswer{Replica: 3, HighWatermark: 200, LogStart: 50}}
	var code int16
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return code }))
	c := dial(t, start(t, led, func(c *Config) { c.MaxHold = time.Millisecond }, b))
	for version := int16(4); version <= 18; version++ {
		for _, code = range []int16{0, codeOffsetOutOfRange, codeNotLeaderOrFollower, codeFencedLeaderEpoch, codeUnknownLeaderEpoch} {
			resp := c.ask(fetchOf(version)).(*kmsg.FetchResponse)
			p := b.last().(*kmsg.FetchRequest)
			if len(p.Topics) != 2 || p.MaxWaitMillis != 0 || p.MinBytes != 0 || version >= 7 && (p.SessionID != 0 || p.SessionEpoch != -1) {
				t.Errorf("version %d: the broker was asked %+v", version, p)
			}
			for _, pt := range p.Topics {
				for _, pp := range pt.Partitions {
					if pp.FetchOffset != farOffset || version >= 12 && pp.LastFetchedEpoch != -1 {
						t.Errorf("version %d: the broker was asked for records: %+v", version, pp)
					}
				}
			}
			if resp.SessionID != 0 || resp.ErrorCode != 0 || len(resp.Topics) != 2 {
				t.Fatalf("version %d: %+v", version, resp)
			}
			ours, wrong, other := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1], resp.Topics[1].Partitions[0]
			want := int16(0)
			if version < 11 {
				want = codeUnsupportedVersion
			}
			if ours.ErrorCode != want || want == 0 && (ours.PreferredReadReplica != 3 || ours.HighWatermark != 200 || ours.LogStartOffset != 50) {
				t.Errorf("version %d, code %d: what is led here: %+v", version, code, ours)
			}
			for _, p := range []kmsg.FetchResponseTopicPartition{wrong, other} {
				if p.ErrorCode != codeNotLeaderOrFollower || p.HighWatermark != -1 {
					t.Errorf("version %d, code %d: what is not led here: %+v", version, code, p)
				}
			}
			for _, p := range []kmsg.FetchResponseTopicPartition{ours, wrong, other} {
				if len(p.RecordBatches) > 0 {
					t.Errorf("version %d: records passed through: %q", version, p.RecordBatches)
				}
			}
		}
	}
	q := led.reads[0]
	if q.LeaderEpoch != 7 || q.Offset != 100 || q.Rack != "near" {
		t.Errorf("asked was %+v", q)
	}
}

// TestFetchTellsNothingWithoutRights: whatever the broker says that is not about its copy goes to the client, and nothing of ours.
func TestFetchTellsNothingWithoutRights(t *testing.T) {
	led := &fakePartition{read: ReadAnswer{Replica: 3, HighWatermark: 200, LogStart: 50}}
	for _, code := range []int16{3, 29, 31, 58, 100, 103, 999, -1} {
		b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return code }))
		c := dial(t, start(t, led, nil, b))
		for _, version := range []int16{4, 11, 12, 13, 18} {
			for _, topic := range c.ask(fetchOf(version)).(*kmsg.FetchResponse).Topics {
				for _, p := range topic.Partitions {
					if p.ErrorCode != code || p.PreferredReadReplica != -1 || p.HighWatermark != -1 || p.LogStartOffset != -1 || len(p.RecordBatches) > 0 {
						t.Errorf("version %d, code %d: %+v", version, code, p)
					}
				}
			}
		}
	}
	if len(led.reads) > 0 {
		t.Errorf("the partition was asked %+v", led.reads)
	}
}

func TestFetchHasNoSessions(t *testing.T) {
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return 0 }))
	c := dial(t, start(t, &fakePartition{}, nil, b))
	for version := int16(7); version <= 18; version++ {
		for _, session := range [][2]int32{{5, 1}, {5, 0}, {5, -1}, {0, 3}} {
			req := fetchOf(version)
			req.SessionID, req.SessionEpoch = session[0], session[1]
			if resp := c.ask(req).(*kmsg.FetchResponse); resp.ErrorCode != codeFetchSessionIDNotFound || len(resp.Topics) > 0 || resp.SessionID != 0 {
				t.Errorf("version %d, session %v: %+v", version, session, resp)
			}
			if p := b.last().(*kmsg.FetchRequest); len(p.Topics) > 0 || p.SessionID != 0 || p.SessionEpoch != -1 {
				t.Errorf("the broker was asked %+v", p)
			}
		}
	}
}

// TestWhoDoesNotGoWaits: a consumer that ignores where it was sent does not make this process spin.
func TestWhoDoesNotGoWaits(t *testing.T) {
	led := &fakePartition{read: ReadAnswer{Replica: 3}}
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return codeNotLeaderOrFollower }))
	const held = 30 * time.Millisecond
	c := dial(t, start(t, led, func(c *Config) { c.MaxHold = held }, b))
	c.ask(fetchOf(12))
	began := time.Now()
	for range 3 {
		c.ask(fetchOf(12))
	}
	if took := time.Since(began); took < 2*held { // the machine may have slept for longer than a second between two of them, hardly between all
		t.Errorf("three more requests took %s", took)
	}
}

// TestWhoIsSentNowhereWaits: a consumer of partitions without a follower in step, and one that believes that they are led here.
func TestWhoIsSentNowhereWaits(t *testing.T) {
	const held = 30 * time.Millisecond
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return codeNotLeaderOrFollower }))
	s := start(t, &fakePartition{read: ReadAnswer{Code: codeReplicaNotAvailable, Replica: -1}}, func(c *Config) { c.MaxHold = held }, b)
	for name, topic := range map[string]int{"no follower": 0, "not led here": 1} {
		c := dial(t, s)
		of := func(offset int64) *kmsg.FetchRequest {
			req := fetchOf(12)
			req.Topics = req.Topics[topic : topic+1]
			req.Topics[0].Partitions = req.Topics[0].Partitions[:1]
			req.Topics[0].Partitions[0].FetchOffset = offset
			return req
		}
		c.ask(of(100))
		began := time.Now()
		for range 3 {
			c.ask(of(100))
		}
		if took := time.Since(began); took < 2*held { // the machine may have slept for longer than a second between two of them, hardly between all
			t.Errorf("%s: three more requests took %s", name, took)
		}
		asked := 0
		for ; asked < 1000 && time.Since(began) < 10*time.Second; asked++ {
			c.ask(of(int64(asked))) // who resets asks for another offset
		}
		if asked < 1000 {
			t.Errorf("%s: whoever asks for another offset is held: %d in %s", name, asked, time.Since(began))
		}
	}
}

// TestTopicsAreAskedOnceForAnAnswer: what is the same for all partitions of a request is found once.
func TestTopicsAreAskedOnceForAnAnswer(t *testing.T) {
	led := &fakePartition{read: ReadAnswer{Replica: 3}}
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return codeNotLeaderOrFollower }))
	var looked atomic.Int32
	c := dial(t, start(t, led, func(c *Config) {
		c.Topics = func() Topics {
			looked.Add(1)
			return allLed{led}
		}
	}, b))
	c.ask(fetchOf(12))
	if looked.Load() != 1 || len(led.reads) != 3 {
		t.Errorf("for an answer of %d partitions it was looked %d times", len(led.reads), looked.Load())
	}
}

func TestFetchErrorsOfOurs(t *testing.T) {
	led := &fakePartition{read: ReadAnswer{Code: codeReplicaNotAvailable, Replica: -1, HighWatermark: 9, LogStart: 2}}
	b := startBroker(t, fetchSays(func(string, [16]byte, int32) int16 { return codeNotLeaderOrFollower }))
	c := dial(t, start(t, led, nil, b))
	if p := c.ask(fetchOf(12)).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != codeReplicaNotAvailable || p.PreferredReadReplica != -1 || p.HighWatermark != 9 || p.LogStartOffset != 2 {
		t.Errorf("%+v", p)
	}
}

// codes answers ListOffsets, OffsetForLeaderEpoch, Produce and DeleteRecords with a code for each partition.
func codes(code *int16) func(kmsg.Request) kmsg.Response {
	return func(raw kmsg.Request) kmsg.Response {
		resp := raw.ResponseKind()
		switch req := raw.(type) {
		case *kmsg.ListOffsetsRequest:
			r := resp.(*kmsg.ListOffsetsResponse)
			for _, t := range req.Topics {
				rt := kmsg.NewListOffsetsResponseTopic()
				rt.Topic = t.Topic
				for _, p := range t.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, *code
					rt.Partitions = append(rt.Partitions, rp)
				}
				r.Topics = append(r.Topics, rt)
			}
		case *kmsg.OffsetForLeaderEpochRequest:
			r := resp.(*kmsg.OffsetForLeaderEpochResponse)
			for _, t := range req.Topics {
				rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
				rt.Topic = t.Topic
				for _, p := range t.Partitions {
					rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, *code
					rt.Partitions = append(rt.Partitions, rp)
				}
				r.Topics = append(r.Topics, rt)
			}
		case *kmsg.ProduceRequest:
			if req.Acks == 0 {
				return nil
			}
			r := resp.(*kmsg.ProduceResponse)
			for _, t := range req.Topics {
				rt := kmsg.NewProduceResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewProduceResponseTopicPartition()
					rp.Partition, rp.ErrorCode, rp.CurrentLeader.LeaderID = p.Partition, *code, 9999
					rt.Partitions = append(rt.Partitions, rp)
				}
				r.Topics = append(r.Topics, rt)
			}
		case *kmsg.DeleteRecordsRequest:
			r := resp.(*kmsg.DeleteRecordsResponse)
			for _, t := range req.Topics {
				rt := kmsg.NewDeleteRecordsResponseTopic()
				rt.Topic = t.Topic
				for _, p := range t.Partitions {
					rp := kmsg.NewDeleteRecordsResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, *code
					rt.Partitions = append(rt.Partitions, rp)
				}
				r.Topics = append(r.Topics, rt)
			}
		}
		return resp
	}
}

func listOf(version int16, timestamp int64, committed bool) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	if committed {
		req.IsolationLevel = 1
	}
	for _, topic := range []string{"led", "other"} {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = timestamp, 7
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestListOffsetsIsAnswered(t *testing.T) {
	led := &fakePartition{offset: OffsetAnswer{Timestamp: 5, Offset: 42, LeaderEpoch: 6}}
	var code int16
	b := startBroker(t, codes(&code))
	c := dial(t, start(t, led, nil, b))
	for version := int16(1); version <= 11; version++ {
		for _, code = range []int16{codeNotLeaderOrFollower, codeFencedLeaderEpoch, codeUnknownLeaderEpoch, 0, 3, 29} {
			for _, timestamp := range []int64{Latest, Earliest, 1000} {
				led.asked = nil
				resp := c.ask(listOf(version, timestamp, version >= 2)).(*kmsg.ListOffsetsResponse)
				ours, other := resp.Topics[0].Partitions[0], resp.Topics[1].Partitions[0]
				if other.ErrorCode != code || other.Offset != -1 {
					t.Errorf("version %d, code %d: what is not led here: %+v", version, code, other)
				}
				if !notLed(code) {
					if ours.ErrorCode != code || ours.Offset != -1 || len(led.asked) > 0 {
						t.Errorf("version %d, code %d: answered although the broker had its own answer: %+v", version, code, ours)
					}
					continue
				}
				if ours.ErrorCode != 0 || ours.Offset != 42 || ours.Timestamp != 5 || version >= 4 && ours.LeaderEpoch != 6 {
					t.Errorf("version %d, code %d: %+v", version, code, ours)
				}
				want := OffsetQuestion{LeaderEpoch: -1, Timestamp: timestamp, Committed: version >= 2}
				if version >= 4 {
					want.LeaderEpoch = 7
				}
				if !slices.Equal(led.asked, []OffsetQuestion{want}) {
					t.Errorf("version %d: asked was %+v", version, led.asked)
				}
			}
		}
	}
	code = codeNotLeaderOrFollower
	led.offset = NoOffset(codeOffsetNotAvailable)
	for version, want := range map[int16]int16{4: codeLeaderNotAvailable, 5: codeOffsetNotAvailable} {
		if p := c.ask(listOf(version, Latest, true)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode != want {
			t.Errorf("version %d: nobody knows: %+v", version, p)
		}
	}
	debug := listOf(7, Latest, false)
	debug.ReplicaID = -2
	if p := c.ask(debug).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode != code {
		t.Errorf("a debug reader: %+v", p)
	}
}

func TestOffsetForLeaderEpochIsAnswered(t *testing.T) {
	led := &fakePartition{epoch: [3]int64{4, 99, 0}}
	var code int16
	b := startBroker(t, codes(&code))
	c := dial(t, start(t, led, nil, b))
	for version := int16(0); version <= 4; version++ {
		for _, code = range []int16{codeNotLeaderOrFollower, codeFencedLeaderEpoch, codeUnknownLeaderEpoch, 3, 29} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version, req.ReplicaID = version, -1
			for _, topic := range []string{"led", "other"} {
				p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				p.LeaderEpoch = 4
				req.Topics = append(req.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}})
			}
			resp := c.ask(req).(*kmsg.OffsetForLeaderEpochResponse)
			ours, other := resp.Topics[0].Partitions[0], resp.Topics[1].Partitions[0]
			if other.ErrorCode != code {
				t.Errorf("version %d, code %d: what is not led here: %+v", version, code, other)
			}
			if want := code; notLed(code) {
				if ours.ErrorCode != 0 || ours.EndOffset != 99 || version >= 1 && ours.LeaderEpoch != 4 {
					t.Errorf("version %d, code %d: %+v", version, code, ours)
				}
			} else if ours.ErrorCode != want || ours.EndOffset > 0 {
				t.Errorf("version %d, code %d: %+v", version, code, ours)
			}
		}
	}
}

func produceOf(version, acks int16, size int) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	id := "a-transaction"
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = version, acks, 1000, &id
	for _, topic := range []struct {
		name string
		id   [16]byte
	}{{"led", ledID}, {"other", otherID}} {
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = topic.name, topic.id
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = make([]byte, size)
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestProduceIsRefused(t *testing.T) {
	var code int16
	b := startBroker(t, codes(&code))
	c := dial(t, start(t, &fakePartition{}, nil, b))
	for version := int16(3); version <= 13; version++ {
		for _, code = range []int16{codeNotLeaderOrFollower, 0, 3, 29, 53} {
			resp := c.ask(produceOf(version, -1, 100)).(*kmsg.ProduceResponse)
			ours, other := resp.Topics[0].Partitions[0], resp.Topics[1].Partitions[0]
			if other.ErrorCode != code {
				t.Errorf("version %d, code %d: what is not led here: %+v", version, code, other)
			}
			want := code
			if code == codeNotLeaderOrFollower {
				want = codePolicyViolation
				if version >= 8 && (ours.ErrorMessage == nil || *ours.ErrorMessage != readOnly) {
					t.Errorf("version %d: message %v", version, ours.ErrorMessage)
				}
			}
			if ours.ErrorCode != want {
				t.Errorf("version %d, code %d: %+v", version, code, ours)
			}
		}
	}
}

func TestDeleteRecordsIsRefused(t *testing.T) {
	var code int16
	b := startBroker(t, codes(&code))
	c := dial(t, start(t, &fakePartition{}, nil, b))
	for version := int16(0); version <= 2; version++ {
		for code, want := range map[int16]int16{codeNotLeaderOrFollower: codePolicyViolation, 0: 0, 29: 29} {
			req := kmsg.NewPtrDeleteRecordsRequest()
			req.Version = version
			req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "led", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{}}}}
			b.say = codes(&code)
			if p := c.ask(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; p.ErrorCode != want {
				t.Errorf("version %d, code %d: %+v", version, code, p)
			}
		}
	}
}

func TestNoFoldersAreHere(t *testing.T) {
	b := startBroker(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		d := kmsg.NewDescribeLogDirsResponseDir()
		d.Dir = "/var/lib/kafka"
		resp.Dirs = append(resp.Dirs, d)
		return resp
	})
	s := start(t, &fakePartition{}, nil, b)
	c := dial(t, s)
	for version := int16(1); version <= 5; version++ {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Version = version
		if resp := c.ask(req).(*kmsg.DescribeLogDirsResponse); len(resp.Dirs) > 0 {
			t.Errorf("version %d: %+v", version, resp)
		}
	}
	asked := b.count()
	alter := kmsg.NewPtrAlterReplicaLogDirsRequest()
	alter.Version = 2
	c.send(alter)
	if !c.ended() || b.count() != asked {
		t.Error("AlterReplicaLogDirs went to a broker that was not meant")
	}
}

func TestVersionsAreNarrowed(t *testing.T) {
	b := startBroker(t, func(raw kmsg.Request) kmsg.Response {
		req := raw.(*kmsg.ApiVersionsRequest)
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = req.Version
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: keyApiVersions, MaxVersion: 7}}
		if req.Version > 7 {
			resp.Version, resp.ErrorCode = 0, codeUnsupportedVersion
			return resp
		}
		for key := range int16(100) {
			if key != keyApiVersions {
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: 99})
			}
		}
		return resp
	})
	c := dial(t, start(t, &fakePartition{}, nil, b))
	for version := int16(0); version <= 5; version++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "a", "1"
		if version == 5 { // the newest clients begin so, and say to which broker they believe they speak
			req.Version, req.NodeID = 5, 9999
			c.send(req)
			body, err := readFrame(c.conn)
			if err != nil {
				t.Fatal(err)
			}
			resp := kmsg.NewPtrApiVersionsResponse()
			if err := resp.ReadFrom(body[4:]); err != nil || resp.ErrorCode != codeUnsupportedVersion || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].MaxVersion != 4 {
				t.Errorf("version 5: %+v, %v", resp, err)
			}
			continue
		}
		resp := c.ask(req).(*kmsg.ApiVersionsResponse)
		if len(resp.ApiKeys) != 99 {
			t.Errorf("version %d: %d kinds", version, len(resp.ApiKeys))
		}
		for _, a := range resp.ApiKeys {
			k, special := kindOf(a.ApiKey)
			switch {
			case a.ApiKey == keyAlterReplicaLogDirs:
				t.Error("AlterReplicaLogDirs is offered")
			case !special && (a.MinVersion != 0 || a.MaxVersion != 99):
				t.Errorf("%d: %d to %d", a.ApiKey, a.MinVersion, a.MaxVersion)
			case special && (a.MinVersion != k.min || a.MaxVersion != k.max):
				t.Errorf("%s: %d to %d", k.name, a.MinVersion, a.MaxVersion)
			}
		}
	}
}

// TestWhatIsToldIsUnderstood: kmsg reads and writes every version that clients are told of.
func TestWhatIsToldIsUnderstood(t *testing.T) {
	for _, k := range kinds {
		if k.max < k.min {
			continue
		}
		req := k.request(k.max)
		if req == nil || req.MaxVersion() < k.max || kmsg.NameForKey(k.key) == "" {
			t.Errorf("%s: version %d is unknown to kmsg", k.name, k.max)
			continue
		}
		for version := k.accepted; version <= k.max; version++ {
			if k.request(version).IsFlexible() != (version >= k.flexible) {
				t.Errorf("%s version %d: flexible is %v", k.name, version, !(version >= k.flexible))
			}
		}
		if _, ok := kindOf(k.key); !ok {
			t.Error(fmt.Sprint(k))
		}
	}
}
