package kafkastore

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
)

// settled returns a channel of a watch that has told all that was written.
func settled(t *testing.T, s *Store) <-chan struct{} {
	t.Helper()
	changed := s.Changed()
	closes(t, changed) // it watches
	for {
		changed = s.Changed()
		select {
		case <-changed:
		case <-time.After(500 * time.Millisecond):
			return changed
		}
	}
}

func closes(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("the channel stays open")
	}
}

// A watch that is refused closes its channel, so that whoever waits reads and sees the error; and it does so with pauses.
func TestARefusedWatchIsNoSilence(t *testing.T) {
	for _, refused := range []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets} {
		t.Run(refused.Name(), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			s := open(t, f.cfg)
			opened(t, s, "w")
			changed := settled(t, s)
			f.ControlKey(int16(refused), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				f.KeepControl()
				switch req := kreq.(type) {
				case *kmsg.FetchRequest:
					resp := req.ResponseKind().(*kmsg.FetchResponse)
					topic := kmsg.NewFetchResponseTopic()
					topic.Topic = stopTopic
					topic.Partitions = []kmsg.FetchResponseTopicPartition{{ErrorCode: kerr.TopicAuthorizationFailed.Code}}
					resp.Topics = append(resp.Topics, topic)
					return resp, nil, true
				case *kmsg.ListOffsetsRequest:
					resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
					topic := kmsg.NewListOffsetsResponseTopic()
					topic.Topic = stopTopic
					topic.Partitions = []kmsg.ListOffsetsResponseTopicPartition{{ErrorCode: kerr.TopicAuthorizationFailed.Code}}
					resp.Topics = append(resp.Topics, topic)
					return resp, nil, true
				}
				return nil, nil, false
			})
			if refused == kmsg.ListOffsets { // the next long poll ends with news
				byHand(t, f.cfg, &kgo.Record{Topic: pauseTopic, Key: key(72, "k"), Value: []byte("x")})
			}
			closes(t, changed)
			closed, over := 0, time.After(3*time.Second)
			for {
				select {
				case <-s.Changed():
					closed++
					continue
				case <-over:
				}
				break
			}
			if closed == 0 || closed > 12 {
				t.Errorf("closed %d times in three seconds", closed)
			}
		})
	}
}

// A right to see the stops that is taken away is seen.
func deafness(t *testing.T, c *kafkatest.Cluster, node, cfg Config) {
	s := open(t, cfg)
	changed := settled(t, s)
	deny := kadm.NewACLs().Deny("User:viewer").DenyHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Topics(stopTopic).Operations(kadm.OpRead, kadm.OpDescribe)
	c.CreateACLs(deny)
	update(t, open(t, node), change(key(71, "t"), "stop"))
	closes(t, changed)
	poll(t, "the refusal", func() bool {
		var access *AccessError
		err := s.Read(t.Context(), func(keyedlog.View) error { return nil })
		return errors.As(err, &access) && access.Name == stopTopic
	})
	_, err := c.Admin().DeleteACLs(t.Context(), deny)
	must(t, err)
	for shown := ""; shown != "stop"; {
		changed = s.Changed()
		err := s.Read(t.Context(), func(v keyedlog.View) error {
			r, _ := v.Get(key(71, "t"))
			shown = string(r.Value)
			return nil
		})
		if shown != "stop" {
			t.Logf("still refused: %v", err)
			closes(t, changed)
		}
	}
}
