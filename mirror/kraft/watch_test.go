package kraft_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/internal/kraftclient"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// watch says who led the watched partitions, from the metadata log that lies on the nodes' disks: every change, not only those that somebody happened to look at. A watched partition
// may have no leader but one of ours, from the beginning of the log until mayLead, and again from mustNotLead on. The test fails at its end if it had.
type watch struct {
	t      *testing.T
	c      *kafkatest.Cluster
	ours   []int32
	phases map[string][]phase // by topic
}

// phase begins with an offset of the metadata log.
type phase struct {
	from int64
	open bool
}

// watched is a watch of all partitions of these topics, that need not exist yet.
func watched(t *testing.T, c *kafkatest.Cluster, topics ...string) *watch {
	w := watchOf(t, c, topics...)
	t.Cleanup(func() {
		for _, v := range w.violations() {
			t.Errorf("watch: %s", v)
		}
	})
	return w
}

func watchOf(t *testing.T, c *kafkatest.Cluster, topics ...string) *watch {
	w := &watch{t: t, c: c, ours: []int32{nodeID}, phases: map[string][]phase{}}
	for _, topic := range topics {
		w.phases[topic] = []phase{{0, false}}
	}
	return w
}

// log is the newest copy of the metadata log.
func (w *watch) log() []byte {
	var newest []byte
	epoch := int32(-1)
	for _, id := range w.c.Brokers() {
		if len(w.c.LogDirs("__cluster_metadata", 0, id)) == 0 {
			continue // not a controller, and not started yet
		}
		b := clustermetadata.Whole(w.c.MetadataLogBytes(id), math.MaxInt64)
		last := int32(-1)
		for h := range batch.All(b) {
			last = h.LeaderEpoch
		}
		if cmp.Or(cmp.Compare(last, epoch), cmp.Compare(len(b), len(newest))) > 0 {
			newest, epoch = b, last
		}
	}
	return newest
}

// image is what the log says now.
func (w *watch) image() *clustermetadata.Image {
	w.t.Helper()
	im, _ := w.read()
	return im
}

func (w *watch) read() (*clustermetadata.Image, []clustermetadata.Change) {
	w.t.Helper()
	im := clustermetadata.New()
	changes, err := im.Apply(w.log())
	if err != nil {
		w.t.Fatalf("watch: %v", err)
	}
	return im, changes
}

func (w *watch) partition(topic string, p int32) clustermetadata.Partition {
	w.t.Helper()
	got, _ := w.image().Partition(topic, p)
	return got
}

// mayLead lets stock brokers lead from now on.
func (w *watch) mayLead(topics ...string) { w.turn(true, topics) }

// mustNotLead ends that.
func (w *watch) mustNotLead(topics ...string) { w.turn(false, topics) }

func (w *watch) turn(open bool, topics []string) {
	w.t.Helper()
	next := w.image().Next()
	for _, topic := range topics {
		w.phases[topic] = append(w.phases[topic], phase{next, open})
	}
}

// violations are all leaders that should not have been.
func (w *watch) violations() []string {
	w.t.Helper()
	_, changes := w.read()
	var vs []string
	for _, c := range changes {
		p := c.After
		phases, ok := w.phases[p.Topic]
		if c.Kind != clustermetadata.PartitionChanged || !ok || p.Leader < 0 || slices.Contains(w.ours, p.Leader) {
			continue
		}
		open := false
		for _, ph := range phases {
			if c.Offset >= ph.from {
				open = ph.open
			}
		}
		if !open {
			vs = append(vs, fmt.Sprintf("broker %d leads %s-%d (leader epoch %d, in sync %v, replicas %v) by the record at %d", p.Leader, p.Topic, p.Partition, p.LeaderEpoch, p.ISR, p.Replicas, c.Offset))
		}
	}
	return vs
}

// history is every state that a partition had, for a test's output.
func (w *watch) history(topic string, p int32) string {
	_, changes := w.read()
	var b bytes.Buffer
	for _, c := range changes {
		switch a := c.After; {
		case c.Kind == clustermetadata.PartitionChanged && a.Topic == topic && a.Partition == p:
			fmt.Fprintf(&b, "\n  %d: leader %d, epoch %d/%d, in sync %v, replicas %v, adding %v, removing %v, ELR %v, last known %v, recovering %v", c.Offset, a.Leader, a.LeaderEpoch, a.PartitionEpoch, a.ISR, a.Replicas, a.Adding,
				a.Removing, a.ELR, a.LastKnownELR, a.Recovering)
		case c.Kind == clustermetadata.ConfigChanged && c.Name == topic:
			fmt.Fprintf(&b, "\n  %d: config %s", c.Offset, c.Key)
		case c.Kind == clustermetadata.BrokerChanged:
			fmt.Fprintf(&b, "\n  %d: broker %d", c.Offset, c.Broker)
		}
	}
	return b.String()
}

// direct speaks to a cluster's controllers as an administrator, without a broker in between.
func direct(t *testing.T, c *kafkatest.Cluster) *kraftclient.Client {
	t.Helper()
	cl, err := kraftclient.New(kraftclient.Config{
		Controllers: c.ControllerAddresses(), ControllerOptions: c.ListenerOptions("CONTROLLER", kafkatest.Credentials{}, nil), BrokerOptions: []kgo.Opt{},
		Address: func(int32) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// alterISR sends the AlterPartition that would be wrong to send: what a faulty version of this package might do.
func alterISR(t *testing.T, c *kafkatest.Cluster, w *watch, topic string, p int32, isr ...int32) {
	t.Helper()
	cl := direct(t, c)
	im := w.image()
	now, _ := im.Partition(topic, p)
	self, _ := im.Broker(now.Leader)
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = self.ID, self.Epoch
	at := kmsg.NewAlterPartitionRequestTopic()
	at.TopicID = now.TopicID
	ap := kmsg.NewAlterPartitionRequestTopicPartition()
	ap.Partition, ap.LeaderEpoch, ap.PartitionEpoch = p, now.LeaderEpoch, now.PartitionEpoch
	for _, id := range isr {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID = id
		ap.NewEpochISR = append(ap.NewEpochISR, m)
	}
	at.Partitions = append(at.Partitions, ap)
	req.Topics = append(req.Topics, at)
	resp, err := cl.Controller(bound(t), req)
	if err != nil {
		t.Fatal(err)
	}
	a := resp.(*kmsg.AlterPartitionResponse)
	if err := cmp.Or(a.ErrorCode, a.Topics[0].Partitions[0].ErrorCode); err != 0 {
		t.Fatalf("AlterPartition: %v", kerr.ErrorForCode(err))
	}
}

// session is the session timeout in clusters of short: long enough for brokers on a busy machine.
const session = 4 * time.Second

// short are three brokers whose sessions end soon, the first of which are controllers.
func short(t *testing.T, controllers int, config map[string]string) *kafkatest.Cluster {
	t.Helper()
	all := map[string]string{"broker.session.timeout.ms": fmt.Sprint(session.Milliseconds()), "broker.heartbeat.interval.ms": "500"}
	for k, v := range config {
		all[k] = v
	}
	return kafkatest.Start(t, kafkatest.Options{Brokers: 3, Controllers: controllers, Config: all})
}

// quick is how a process joins a cluster of short.
func quick(c *kraft.Config) {
	c.SessionTimeout, c.HeartbeatInterval = session, 500*time.Millisecond
}

// TestRealKafkaWatchSaysNo shows that what the other tests rely on can fail: a version of this package that left a follower in the in-sync replicas would make a stock broker the
// leader when this process dies. The watch names it, and the writers get through.
func TestRealKafkaWatchSaysNo(t *testing.T) {
	c := short(t, 1, nil)
	w := watchOf(t, c, "no", "never")
	j := join(t, c, quick)
	l := j.create("no", 1)
	other := j.create("never", 1)
	appendTo(t, l, data(0, l.LeaderEpoch(), 5, "no"))
	appendTo(t, other, data(0, other.LeaderEpoch(), 5, "never"))
	await(t, l)
	await(t, other)
	writer := c.WriteAlways(map[string][]int32{"no": {0}, "never": {0}})
	writer.WaitRounds(2)
	if vs, got := w.violations(), writer.Successes(); len(vs)+len(got) > 0 {
		t.Fatalf("before anything is wrong: %v, %v", vs, got)
	}
	alterISR(t, c, w, "no", 0, nodeID, 2)
	j.Close()
	eventually(t, "a stock leader", func() bool { return w.partition("no", 0).Leader == 2 })
	eventually(t, "no leader of the other", func() bool { return w.partition("never", 0).Leader == -1 })
	writer.WaitRounds(2)
	writer.Stop()
	if vs := w.violations(); len(vs) == 0 {
		t.Error("the watch has seen nothing")
	} else {
		t.Log(vs)
	}
	for _, v := range w.violations() {
		if !bytes.Contains([]byte(v), []byte("broker 2 leads no-0")) {
			t.Error("the watch has seen too much: ", v)
		}
	}
	through := map[string]int{}
	for _, s := range writer.Successes() {
		through[s.Topic]++
	}
	if through["no"] == 0 || through["never"] != 0 || len(writer.FindIn(c.SegmentBytes("no", 0, 2))) == 0 || len(writer.FindIn(c.SegmentBytes("never", 0, 2))) != 0 {
		t.Errorf("the writers got through: %v", through)
	}
	w.mayLead("no")
	if len(w.violations()) == 0 {
		t.Error("mayLead forgives what was before")
	}
}
