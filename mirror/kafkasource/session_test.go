package kafkasource

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// brokerSession is a broker's side of a session by topic ids: what it would fetch.
type brokerSession struct {
	id, epoch int32
	holds     map[idPartition]kmsg.FetchRequestTopicPartition
}

type idPartition struct {
	id        mirror.TopicID
	partition int32
}

// apply is what FetchManager does with a request: a session epoch of 0 begins anew, any other must be the next one.
func (b *brokerSession) apply(t *rapid.T, r *kmsg.FetchRequest, offers bool) (sessionID int32) {
	if r.SessionEpoch == firstSessionEpoch {
		b.holds = map[idPartition]kmsg.FetchRequestTopicPartition{}
		b.epoch = firstSessionEpoch
		b.id++
	} else if r.SessionID != b.id || r.SessionEpoch != b.epoch+1 {
		t.Fatalf("session %d epoch %d, want %d and %d", r.SessionID, r.SessionEpoch, b.id, b.epoch+1)
	}
	b.epoch = r.SessionEpoch
	for _, rt := range r.Topics {
		for _, rp := range rt.Partitions {
			b.holds[idPartition{rt.TopicID, rp.Partition}] = rp
		}
	}
	for _, ft := range r.ForgottenTopics {
		for _, p := range ft.Partitions {
			key := idPartition{ft.TopicID, p}
			if _, held := b.holds[key]; !held {
				t.Fatalf("told to let go of %v, which it does not hold", key)
			}
			delete(b.holds, key)
		}
	}
	if !offers {
		return 0
	}
	return b.id
}

// TestSessionTellsTheBrokerExactlyWhatIsWanted drives a session through any order of wants, drops, recreated topics, losses and brokers without
// sessions, changes while a request travels included: after each request the broker holds what was wanted when it was built, and a request that
// follows without a change names nothing.
func TestSessionTellsTheBrokerExactlyWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, b := newSession(), &brokerSession{}
		wanted := map[mirror.TopicPartition]mirror.FetchPosition{}
		touched := map[mirror.TopicPartition]bool{}
		change := func() {
			tp := mirror.TopicPartition{Topic: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic"), Partition: rapid.Int32Range(0, 3).Draw(t, "partition")}
			touched[tp] = true
			if rapid.IntRange(0, 2).Draw(t, "drop") == 0 {
				s.forget(tp)
				delete(wanted, tp)
				return
			}
			at := mirror.FetchPosition{TopicPartition: tp, Offset: rapid.Int64Range(0, 3).Draw(t, "offset"), LeaderEpoch: rapid.Int32Range(-1, 1).Draw(t, "epoch")}
			at.TopicID[0] = tp.Topic[0]
			at.TopicID[1] = byte(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "recreated"))
			s.want(at)
			wanted[tp] = at
		}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				change()
			}
			before := map[idPartition]mirror.FetchPosition{}
			for tp, at := range wanted {
				before[idPartition{at.TopicID, tp.Partition}] = at
			}
			r, lost := s.build(1000), s.lost
			sessionID := b.apply(t, r, rapid.IntRange(0, 9).Draw(t, "offers") > 0)
			if len(b.holds) != len(before) {
				t.Fatalf("the broker holds %d partitions, want %d", len(b.holds), len(before))
			}
			for key, at := range before {
				if held, ok := b.holds[key]; !ok || held.FetchOffset != at.Offset || held.CurrentLeaderEpoch != at.LeaderEpoch {
					t.Fatalf("%v: the broker holds %+v, want %+v", key, held, at)
				}
			}
			clear(touched)
			for range rapid.IntRange(0, 2).Draw(t, "meanwhile") {
				change()
			}
			if rapid.IntRange(0, 9).Draw(t, "reply lost") == 0 {
				s.reset()
				continue
			}
			s.answered(sessionID, lost)
			for key, at := range before {
				p := s.find("", key.id, key.partition)
				now, still := wanted[at.TopicPartition]
				switch {
				case p == nil && touched[at.TopicPartition]: // dropped, or recreated and back
				case p == nil || p.sent != at:
					t.Fatalf("%v: an answer would carry %+v, was asked %+v", key, p, at)
				case !still || now.TopicID != key.id:
					t.Fatalf("%v: an answer for what is no longer wanted", key)
				}
			}
		}
		r, lost := s.build(1000), s.lost
		s.answered(b.apply(t, r, true), lost)
		if r := s.build(1000); !s.full && (len(r.Topics) > 0 || len(r.ForgottenTopics) > 0) {
			t.Fatalf("nothing changed, and the request names %+v, forgets %+v", r.Topics, r.ForgottenTopics)
		}
	})
}

func TestSessionNeverMixesNamesAndIDs(t *testing.T) {
	s := newSession()
	withID := mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: "a"}, TopicID: mirror.TopicID{1}}
	s.want(withID)
	s.answered(5, buildLost(s))
	if s.byNames() || s.full {
		t.Fatal("a session by ids was expected")
	}
	s.want(mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: "b"}})
	if !s.byNames() {
		t.Fatal("a partition without an id needs names")
	}
	if r := s.build(1); r.SessionEpoch != firstSessionEpoch || r.SessionID != 5 || len(r.Topics) != 2 {
		t.Fatalf("the session by ids goes on: %+v", r)
	}
	s.answered(6, s.lost)
	s.forget(mirror.TopicPartition{Topic: "b"})
	if r := s.build(1); r.SessionEpoch != firstSessionEpoch+1 || len(r.ForgottenTopics) != 1 {
		t.Fatalf("%+v", r)
	}
	s.answered(6, s.lost)
	if r := s.build(1); s.byNames() || r.SessionEpoch != firstSessionEpoch || r.SessionID != 6 || len(r.Topics) != 1 {
		t.Fatalf("the session by names goes on: %+v", r)
	}
}

func buildLost(s *session) uint64 {
	s.build(1)
	return s.lost
}

func TestSessionEpochStartsAgainAfterTheGreatest(t *testing.T) {
	s := newSession()
	s.want(mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: "a"}, TopicID: mirror.TopicID{1}})
	s.answered(5, buildLost(s))
	s.epoch = math.MaxInt32
	s.answered(5, buildLost(s))
	if s.epoch != 1 {
		t.Fatalf("epoch %d", s.epoch)
	}
}

func TestIdleRequestAllocatesNothing(t *testing.T) {
	s := newSession()
	for p := range int32(5000) {
		s.want(mirror.FetchPosition{TopicPartition: mirror.TopicPartition{Topic: "a", Partition: p}, TopicID: mirror.TopicID{1}})
	}
	s.answered(5, buildLost(s))
	if n := testing.AllocsPerRun(100, func() { s.answered(5, buildLost(s)) }); n != 0 {
		t.Fatalf("%v allocations per idle request", n)
	}
}
