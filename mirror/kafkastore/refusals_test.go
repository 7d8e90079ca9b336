package kafkastore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
)

func makeTopic(t *testing.T, cfg Config, topic string, partitions int32, policy string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Seeds...))
	must(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, map[string]*string{"cleanup.policy": &policy}, cfg.namespace+topic)
	must(t, err)
}

func TestRealTopicsThatExist(t *testing.T) {
	t.Parallel()
	t.Run("partitions are kept", func(t *testing.T) {
		cfg := sharedConfig(t, newPrefix())
		makeTopic(t, cfg, stateTopic, 11, "compact")
		s := open(t, cfg)
		update(t, s, change(stateKey("m", 0), "x"))
		expect(t, open(t, cfg), stateKey("m", 0), "x")
		if n := s.shown.reader.Partitions(cfg.namespace + stateTopic); n != 11 {
			t.Errorf("%d partitions", n)
		}
	})
	for _, policy := range []string{"delete", "compact,delete"} {
		t.Run(policy, func(t *testing.T) {
			cfg := sharedConfig(t, newPrefix())
			s := open(t, cfg)
			makeTopic(t, cfg, stopTopic, 1, policy)
			refused := func(err error) {
				t.Helper()
				var topic *TopicError
				if !errors.As(err, &topic) || topic.Topic != cfg.namespace+stopTopic || !errors.Is(err, errNotCompacted) {
					t.Errorf("error %v", err)
				}
			}
			_, err := Open(t.Context(), cfg)
			refused(err)
			refused(s.Update(t.Context(), put(change(key(66, "k"), "x"))))
			_, err = s.Open(t.Context(), "w")
			refused(err)
		})
	}
	t.Run("more replicas than brokers", func(t *testing.T) {
		cfg := sharedConfig(t, newPrefix())
		cfg.ReplicationFactor = 4
		err := open(t, cfg).Update(t.Context(), put(change(key(66, "k"), "x")))
		var topic *TopicError
		if !errors.As(err, &topic) || !strings.Contains(err.Error(), "mirror.state.topic.replication.factor") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the configuration of new ones", func(t *testing.T) {
		cfg := sharedConfig(t, newPrefix())
		cfg.ReplicationFactor = 3
		opened(t, open(t, cfg), "w")
		c := kafkatest.Shared(t)
		got, err := c.Admin().DescribeTopicConfigs(t.Context(), open(t, cfg).topics()...)
		must(t, err)
		if len(got) != len(Topics()) {
			t.Errorf("%d topics", len(got))
		}
		for _, r := range got {
			for _, x := range r.Configs {
				want := map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "2", "unclean.leader.election.enable": "false", "segment.bytes": "8388608"}[x.Key]
				if want != "" && x.MaybeValue() != want {
					t.Errorf("%s: %s=%s, want %s", r.Name, x.Key, x.MaybeValue(), want)
				}
			}
		}
	})
}

// A topic that was deleted and made again is read anew, and versions do not fall.
func TestRealTopicMadeAgain(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	k := key(72, "k")
	update(t, s, change(k, "x"), change(key(66, "k"), "x"))
	expect(t, s, k, "x")
	version := s.version
	c := kafkatest.Shared(t)
	_, err := c.Admin().DeleteTopics(t.Context(), cfg.namespace+pauseTopic)
	must(t, err)
	makeTopic(t, cfg, pauseTopic, 1, "compact")
	poll(t, "the new topic", func() bool {
		err := s.Read(t.Context(), func(v keyedlog.View) error {
			if v.Version() < version {
				t.Errorf("version %d, was %d", v.Version(), version)
			}
			if _, ok := v.Get(k); ok {
				return errors.New("still there")
			}
			return nil
		})
		return err == nil
	})
	expect(t, s, key(66, "k"), "x")
	update(t, s, change(k, "y"))
	expect(t, open(t, cfg), k, "y")
}

// One that was made again with another configuration is looked at again, also where nothing was in it that would be missed.
func TestRealTopicMadeAgainOtherwise(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	opened(t, s, "w")
	k := key(72, "k")
	update(t, s, change(k, "x"))
	name := cfg.namespace + stopTopic
	_, err := kafkatest.Shared(t).Admin().DeleteTopics(t.Context(), name)
	must(t, err)
	makeTopic(t, cfg, stopTopic, 1, "delete")
	refused := func() bool {
		var topic *TopicError
		err := s.Update(t.Context(), put(change(k, "y")))
		return errors.As(err, &topic) && topic.Topic == name && errors.Is(err, errNotCompacted)
	}
	poll(t, "the refusal", refused)
	if !refused() {
		t.Error("refused once only")
	}
	alter := func(value string) {
		t.Helper()
		_, err := kafkatest.Shared(t).Admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &value}}, name)
		must(t, err)
	}
	alter("compact")
	poll(t, "the refusal's end", func() bool { return s.Update(t.Context(), put(change(k, "z"))) == nil })
	// A configuration that is changed under it is noticed too.
	alter("delete")
	must(t, s.reading.take(t.Context()))
	for topic, v := range s.vetted {
		v.at = v.at.Add(-vetAfter)
		s.vetted[topic] = v
	}
	s.reading.give()
	poll(t, "the refusal of what was changed", refused)
}

// What is too large is named, and nothing of its update is written.
func TestRealRecordThatIsTooLarge(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t, newPrefix())
	s := open(t, cfg)
	n := opened(t, s, "w")
	small, large := key(72, "small"), key(75, "large")
	update(t, s, change(small, "1"))
	refused := func(what string, err error) {
		t.Helper()
		var size *SizeError
		if !errors.As(err, &size) || size.Topic != cfg.namespace+statusTopic || string(size.Key) != string(large) || size.Bytes < 2<<20 || !errors.Is(err, kerr.MessageTooLarge) {
			t.Errorf("%s: error %.300v", what, err)
		}
		expect(t, s, small, "1")
		expect(t, s, large, "-")
	}
	much := change(large, strings.Repeat("x", 2<<20))
	refused("update", s.Update(t.Context(), put(change(small, "2"), much)))
	refused("claim", try(t.Context(), n, change(small, "2"), much, change(key(75, "other"), "x")))
	limit := func(bytes string) {
		t.Helper()
		_, err := kafkatest.Shared(t).Admin().AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &bytes}}, cfg.namespace+statusTopic)
		must(t, err)
	}
	limit("4194304")
	poll(t, "a larger limit", func() bool { return try(t.Context(), n, much) == nil })
	limit("1000")
	poll(t, "a refusal of the limit", func() bool {
		again, err := Open(t.Context(), cfg)
		if err == nil {
			again.Close()
		}
		return errors.Is(err, errSmallMessages)
	})
}

// A silent cluster ends no call later than its bound.
func TestBoundWithoutACluster(t *testing.T) {
	l := new(lifeline)
	l.sever()
	begin := time.Now()
	_, err := Open(t.Context(), Config{Seeds: []string{"127.0.0.1:1"}, ClientOptions: []kgo.Opt{kgo.Dialer(l.dial)}, Bound: 200 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Error("a configuration without an address was accepted")
	}
}
