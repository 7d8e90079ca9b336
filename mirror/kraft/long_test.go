//go:build long

// Tests with the tag long take minutes together, most of it waiting for sessions to end: go test -tags long -timeout 30m ./mirror/kraft. The others are run for each change.

package kraft_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaFeaturesChangedWhileJoined: features that the cluster does not use yet, as after an upgrade from an older version, are finalized while this process is in it. They cannot be
// lowered then: the controllers refuse that and name this process. After it has left they can. metadata.version beyond what the brokers know is refused anyway.
func TestRealKafkaFeaturesChangedWhileJoined(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Controllers: 1})
	update := func(name string, level int16, kind int8) error {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = name, level, kind
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp, err := req.RequestWith(bound(t), c.AdminClient())
		if err != nil {
			t.Fatal(err)
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		message := ""
		if resp.ErrorMessage != nil {
			message = *resp.ErrorMessage
		}
		for _, r := range resp.Results {
			err = errors.Join(err, kerr.ErrorForCode(r.ErrorCode))
			if r.ErrorMessage != nil {
				message += *r.ErrorMessage
			}
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, message)
		}
		return err
	}
	const up, down = 1, 2
	levels := watchOf(t, c).image().Features()
	names := []string{"transaction.version", "group.version", "share.version", "streams.version", "eligible.leader.replicas.version"}
	var lowered []string
	for _, name := range names {
		err := update(name, 0, down)
		t.Logf("before: %s %d → 0: %v", name, levels[name], err)
		if err == nil {
			lowered = append(lowered, name)
		}
	}
	if len(lowered) == 0 {
		t.Fatal("no feature could be lowered")
	}
	s := play(t, c, []string{"features"})
	for _, name := range lowered {
		if err := update(name, levels[name], up); err != nil {
			t.Errorf("%s cannot be finalized at %d while this process is joined: %v", name, levels[name], err)
		}
		s.more("features", 1)
	}
	await(t, s.open("features", 0)) // what only this process has ends with it
	s.Close()
	s.returns()
	for _, name := range append(lowered, "metadata.version") {
		err := update(name, levels[name]-1, down)
		t.Logf("while joined: %s %d → %d: %v", name, levels[name], levels[name]-1, err)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(nodeID)) && name != "metadata.version" {
			t.Errorf("%s was lowered, or the refusal does not name this process: %v", name, err)
		}
	}
	s.more("features", 1)
	await(t, s.open("features", 0))
	if p := s.w.partition("features", 0); p.LeaderEpoch != 0 || p.Leader != nodeID {
		t.Errorf("leader %d, epoch %d", p.Leader, p.LeaderEpoch)
	}
	s.exactly("features", 1, 2, 3)
	s.handOver("features")
	if err := s.Leave(bound(t)); err != nil {
		t.Error(err)
	}
	for _, name := range lowered {
		if err := update(name, 0, down); err != nil {
			t.Errorf("%s cannot be lowered after this process has left: %v", name, err)
		}
	}
}

// TestRealKafkaRollingRestart: all brokers and controllers are restarted one after the other while batches are appended, without an act of an operator at the mirror. The copies are
// byte-identical and complete, and nobody but this process has led.
func TestRealKafkaRollingRestart(t *testing.T) {
	c := short(t, 3, nil)
	s := play(t, c, []string{"rolling"}, quick)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	l := s.open("rolling", 0)
	go func() {
		n := 0
		for ctx.Err() == nil {
			b := data(l.End(), l.LeaderEpoch(), 3, "rolling")
			if l.Append(ctx, l.LeaderEpoch(), slices.Clone(b)) == nil {
				s.written["rolling"] = append(s.written["rolling"], b...)
				n++
			}
			time.Sleep(5 * time.Millisecond)
		}
		ended <- n
	}()
	for _, id := range c.Brokers() {
		c.Stop(id)
		c.StartBroker(id)
	}
	stop()
	t.Log(<-ended, "batches were appended meanwhile")
	s.more("rolling", 1)
	await(t, l)
	s.exactly("rolling", 1, 2, 3)
	s.closedAll()
	if p := s.w.partition("rolling", 0); p.Leader != nodeID || !slices.Equal(p.ISR, []int32{nodeID}) {
		t.Error("not its shape:", s.w.history("rolling", 0))
	}
	if got := s.w.partition("rolling", 0).LeaderEpoch; got != 0 {
		t.Errorf("leader epoch %d: there was an election", got)
	}
	s.handOver("rolling")
	s.inSync("rolling", 1, 2, 3)
}

// TestRealKafkaHandOverWithPausedFollower: one follower stands still (SIGSTOP) and the controllers do not know it yet, once with everything copied, once behind. The hand-over does not
// wait for it longer than the bound, and a broker that answers leads, although the other is the first in order. As with any Kafka leader, a write with acks=all waits until a broker that is
// in sync and silent is taken out, at the end of its session. When the follower goes on it is in sync again.
func TestRealKafkaHandOverWithPausedFollower(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Controllers: 1, Config: map[string]string{"broker.session.timeout.ms": "15000"}})
	s := play(t, c, []string{"full", "behind"})
	if _, err := s.GrowTopic(bound(t), "full", 2); err != nil {
		t.Fatal(err)
	}
	l := s.open("full", 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 3, "full"))
	await(t, l)
	first := s.w.partition("full", 1).Replicas[1]
	if first == 1 {
		t.Fatal("the controller would be paused")
	}
	eventually(t, "the follower to have everything", func() bool {
		return len(c.SegmentBytes("full", 1, first)) > 0 && len(c.SegmentBytes("full", 0, first)) >= len(s.written["full"])
	})
	c.Pause(first)
	paused := time.Now()
	s.more("behind", 5)
	await(t, s.open("behind", 0))
	eventually(t, "the follower to have been silent", func() bool { return time.Since(paused) > 2*time.Second })
	s.w.mayLead("full")
	began := time.Now()
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	produce(t, c, "full", 1, "a")
	p := s.w.partition("full", 1)
	t.Logf("written after %v; leader %d, replicas %v, in sync %v", time.Since(began).Round(time.Millisecond), p.Leader, p.Replicas, p.ISR)
	if p.Leader == first {
		t.Errorf("broker %d leads, that does not answer", first)
	}
	s.handOver("full")
	s.handOverNow("behind")
	c.Resume(first)
	s.inSync("full", 1, 2, 3)
	s.inSync("behind", 1, 2, 3)
	s.writer.Stop()
	s.same("full", 1, 2, 3)
	s.same("behind", 1, 2, 3)
}

// TestRealKafkaRevoked: one command takes the rights away. Ten seconds later, which is a session and a bit, the process is fenced, its partitions have no leader, and no stock broker
// leads them: nothing is lost and nothing can be written.
func TestRealKafkaRevoked(t *testing.T) {
	c := plainCluster(t)
	grant(c, mirrorUser, kraft.Rights()...)
	w := watched(t, c, "revoked")
	port := freeListener(t)
	j := join(t, c, secured(c, "SASL_PLAINTEXT"), func(cfg *kraft.Config) { cfg.Listener = port })
	l := j.create("revoked", 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 5, "kept"))
	await(t, l)
	was := c.WaitSameSegments("revoked", 0, 1)
	strangersStayOut(t, j, "revoked", port.Addr().String(), kafkatest.Credentials{User: "stranger", Password: "stranger-secret"})
	if got := alerts(t, c); got != (shown{underReplicated: 1, unavailable: 1, underMinISR: 1, atMinISR: 1}) {
		t.Errorf("while the process leads one partition kafka-topics shows %+v", got)
	}
	if got := listed(t, c); !got[nodeID] {
		t.Errorf("the inter-broker listener names the brokers %v, and not the process", got)
	}

	began := time.Now()
	revoke(t, c, mirrorUser, kraft.ClusterAction)
	j.saw(kraft.Fenced)
	eventually(t, "no leader of what the process led", func() bool { return w.partition("revoked", 0).Leader == -1 })
	if got := alerts(t, c); got != (shown{underReplicated: 1, unavailable: 1, underMinISR: 1}) {
		t.Errorf("without its leader kafka-topics shows %+v", got)
	}
	t.Logf("no leader %.1f s after the rule was deleted; %s", time.Since(began).Seconds(), w.history("revoked", 0))
	b, ok := w.image().Broker(nodeID)
	if !ok || !b.Fenced {
		t.Errorf("the process is registered: %v, fenced: %v; it should be both", ok, b.Fenced)
	}
	if p := w.partition("revoked", 0); !slices.Equal(p.ISR, nil) && len(p.ISR) > 0 || !slices.Contains(p.Replicas, 1) {
		t.Errorf("replicas %v, in sync %v", p.Replicas, p.ISR)
	}
	if got := c.WaitSameSegments("revoked", 0, 1); !slices.Equal(got, was) {
		t.Error("the copy has changed")
	}

	// The other way: take the registration away. The process does not come back by itself.
	grant(c, mirrorUser, kraft.ClusterAction)
	eventually(t, "the process to lead again", func() bool { return w.partition("revoked", 0).Leader == nodeID })
	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	unregister.BrokerID = nodeID
	resp, err := unregister.RequestWith(bound(t), c.AdminClient())
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	j.saw(kraft.Unregistered)
	eventually(t, "no leader after that", func() bool {
		_, there := w.image().Broker(nodeID)
		return !there && w.partition("revoked", 0).Leader == -1
	})
	if got := c.WaitSameSegments("revoked", 0, 1); !slices.Equal(got, was) {
		t.Error("the copy has changed")
	}
}

// shown is how many partitions kafka-topics.sh --describe names with each of its flags.
type shown struct{ underReplicated, unavailable, underMinISR, atMinISR int }

// alerts runs Kafka's own tool.
func alerts(t *testing.T, c *kafkatest.Cluster) shown {
	t.Helper()
	libs, err := kafkatest.Libs(c.Version())
	if err != nil {
		t.Fatal(err)
	}
	var got shown
	var wg sync.WaitGroup
	for flag, n := range map[string]*int{
		"--under-replicated-partitions": &got.underReplicated, "--unavailable-partitions": &got.unavailable, "--under-min-isr-partitions": &got.underMinISR, "--at-min-isr-partitions": &got.atMinISR,
	} {
		wg.Go(func() {
			cmd := exec.CommandContext(bound(t), "java", "-cp", libs+"/*", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", c.Bootstrap()[0], "--describe",
				"--topic", "revoked", flag)
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("kafka-topics %s: %v %s", flag, err, out)
			}
			*n = strings.Count(string(out), "Partition: ")
			t.Logf("kafka-topics %s: %s", flag, out)
		})
	}
	wg.Wait()
	return got
}

// listed are the brokers that DescribeCluster names on the inter-broker listener, fenced ones too: what kafka-cluster.sh list-endpoints --include-fenced-brokers asks.
func listed(t *testing.T, c *kafkatest.Cluster) map[int32]bool {
	t.Helper()
	cl, err := kgo.NewClient(append(c.ListenerOptions("INTERNAL", kafkatest.Credentials{}, nil), kgo.SeedBrokers(c.InternalAddress(1)))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	raw, err := cl.SeedBrokers()[0].Request(bound(t), req)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int32]bool{}
	for _, b := range raw.(*kmsg.DescribeClusterResponse).Brokers {
		ids[b.NodeID] = true
	}
	return ids
}
