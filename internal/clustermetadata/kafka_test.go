package clustermetadata

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// seen is what an image says of things that brokers tell their clients too, in the form of said.
func seen(im *Image) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(im.features)) {
		lines = append(lines, fmt.Sprintf("feature %s %d", name, im.features[name]))
	}
	for _, b := range im.Brokers() {
		for _, l := range b.Listeners {
			if l.Name == "INTERNAL" && !b.Fenced {
				lines = append(lines, fmt.Sprintf("broker %d %s:%d rack %q", b.ID, l.Host, l.Port, b.Rack))
			}
		}
		lines = append(lines, settings(fmt.Sprintf("broker %d", b.ID), im.Configs(BrokerResource, fmt.Sprint(b.ID)))...)
	}
	lines = append(lines, settings("all brokers", im.Configs(BrokerResource, ""))...)
	for _, name := range im.Topics() {
		id, n, _ := im.Topic(name)
		lines = append(lines, fmt.Sprintf("topic %s %x", name, [16]byte(id)))
		for number := range int32(n) {
			p, _ := im.Partition(name, number)
			lines = append(lines, position(name, number, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.ELR, p.LastKnownELR))
		}
		lines = append(lines, settings("topic "+name, im.Configs(TopicResource, name))...)
	}
	for u, c := range im.scram {
		lines = append(lines, fmt.Sprintf("user %s %d %d", u.name, u.mechanism, c.Iterations))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func position(topic string, number, leader, epoch int32, replicas, isr, elr, lastKnown []int32) string {
	set := func(ids []int32) []int32 { return slices.Sorted(slices.Values(ids)) }
	return fmt.Sprintf("partition %s-%d leader %d epoch %d replicas %d isr %d elr %d last known %d", topic, number, leader, epoch, replicas, set(isr), set(elr), set(lastKnown))
}

func settings(of string, values map[string]string) []string {
	var lines []string
	for key, value := range values {
		lines = append(lines, fmt.Sprintf("config of %s: %s=%q", of, key, value))
	}
	return lines
}

// said is what brokers tell: those that run, features, topics and their partitions, what is configured, SCRAM users.
func said(ctx context.Context, cl *kgo.Client, elr bool) (string, error) {
	adm := kadm.NewClient(cl)
	var lines []string
	versions, err := adm.ApiVersions(ctx)
	if err != nil {
		return "", err
	}
	for _, v := range versions {
		if v.Err != nil {
			return "", v.Err
		}
		for _, f := range v.Raw().FinalizedFeatures {
			if line := fmt.Sprintf("feature %s %d", f.Name, f.MaxVersionLevel); f.Name != "kraft.version" && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	md, err := adm.Metadata(ctx)
	if err != nil {
		return "", err
	}
	var brokers []int32
	for _, b := range md.Brokers {
		rack := ""
		if b.Rack != nil {
			rack = *b.Rack
		}
		lines = append(lines, fmt.Sprintf("broker %d %s:%d rack %q", b.NodeID, b.Host, b.Port, rack))
		brokers = append(brokers, b.NodeID)
	}
	for _, t := range md.Topics {
		lines = append(lines, fmt.Sprintf("topic %s %x", t.Topic, [16]byte(t.ID)))
		extra := map[int32]kmsg.DescribeTopicPartitionsResponseTopicPartition{}
		if elr {
			if extra, err = describe(ctx, cl, t.Topic); err != nil {
				return "", err
			}
		}
		for _, p := range t.Partitions {
			x := extra[p.Partition]
			lines = append(lines, position(t.Topic, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, x.EligibleLeaderReplicas, x.LastKnownELR))
		}
	}
	add := func(of string, configs []kadm.Config, source kmsg.ConfigSource) {
		for _, c := range configs {
			for _, s := range append(c.Synonyms, kadm.ConfigSynonym{Source: c.Source, Value: c.Value}) {
				if s.Source != source {
					continue
				}
				if line := settings(of, map[string]string{c.Key: *s.Value})[0]; !slices.Contains(lines, line) {
					lines = append(lines, line)
				}
			}
		}
	}
	topics, err := adm.DescribeTopicConfigs(ctx, md.Topics.Names()...)
	if err != nil {
		return "", err
	}
	for _, r := range topics {
		if r.Err != nil {
			return "", r.Err
		}
		add("topic "+r.Name, r.Configs, kmsg.ConfigSourceDynamicTopicConfig)
	}
	each, err := adm.DescribeBrokerConfigs(ctx, brokers...)
	if err != nil {
		return "", err
	}
	for _, r := range each {
		if r.Err != nil {
			return "", r.Err
		}
		add("broker "+r.Name, r.Configs, kmsg.ConfigSourceDynamicBrokerConfig)
		add("all brokers", r.Configs, kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	}
	users, err := adm.DescribeUserSCRAMs(ctx)
	if err != nil {
		return "", err
	}
	for _, u := range users {
		for _, c := range u.CredInfos {
			lines = append(lines, fmt.Sprintf("user %s %d %d", u.User, c.Mechanism, c.Iterations))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n", nil
}

// describe asks for what Metadata does not tell: the eligible leader replicas (KIP-966).
func describe(ctx context.Context, cl *kgo.Client, topic string) (map[int32]kmsg.DescribeTopicPartitionsResponseTopicPartition, error) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
	rt.Topic = topic
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	all := map[int32]kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			all[p.Partition] = p
		}
	}
	return all, nil
}

// within polls until is is true.
func within(t *testing.T, what string, is func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	for {
		ok, why := is(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within the bound: %s", what, why)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestImageIsWhatBrokersSay(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Config: map[string]string{"metadata.log.max.record.bytes.between.snapshots": "4000", "replica.lag.time.max.ms": "3000"},
		NodeConfig: map[int32]map[string]string{2: {"broker.rack": "north"}}})
	adm := c.Admin()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	value := func(key, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value}
	}
	altered := func(rs kadm.AlterConfigsResponses, err error) {
		t.Helper()
		must(err)
		for _, r := range rs {
			must(r.Err)
		}
	}

	c.CreateTopic(kafkatest.Topic{Name: "kept", Partitions: 2, Replication: 3, Configs: map[string]string{"min.insync.replicas": "2", "retention.ms": "86400000", "segment.bytes": "2000000"}})
	c.CreateTopic(kafkatest.Topic{Name: "gone", Partitions: 3, Configs: map[string]string{"retention.ms": "1000000"}})
	c.CreateTopic(kafkatest.Topic{Name: "moved", Assignment: [][]int32{{1, 2}}})
	c.MoveLeader("moved", 0, 3)
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign("moved", 0, []int32{3, 2})
	_, err := adm.AlterPartitionAssignments(ctx, move)
	must(err)
	c.WaitPartition("moved", 0, "two replicas", func(p kafkatest.Partition) bool { return slices.Equal(p.Replicas, []int32{3, 2}) })
	_, err = adm.DeleteTopic(ctx, "gone")
	must(err)
	c.CreateTopic(kafkatest.Topic{Name: "gone"}) // the same name, another topic

	altered(adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{value("retention.ms", "3600000"), {Op: kadm.DeleteConfig, Name: "segment.bytes"}}, "kept"))
	altered(adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{value("message.max.bytes", "2000000")}))
	altered(adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{value("message.max.bytes", "3000000")}, 1))
	users := func(remove []kadm.DeleteSCRAM, add ...kadm.UpsertSCRAM) {
		t.Helper()
		rs, err := adm.AlterUserSCRAMs(ctx, remove, add)
		must(err)
		must(rs.Error())
	}
	users(nil, kadm.UpsertSCRAM{User: "alice", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "in-a-test"}, kadm.UpsertSCRAM{User: "bob", Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "in-a-test"})
	users([]kadm.DeleteSCRAM{{User: "bob", Mechanism: kadm.ScramSha512}})
	users(nil, kadm.UpsertSCRAM{User: "alice", Mechanism: kadm.ScramSha512, Iterations: 5000, Password: "in-a-test"})
	id, _, err := c.Client().ProducerID(ctx)
	must(err)
	c.Stop(3)
	c.StartBroker(3)
	c.WaitISR("kept", 0, 1, 2, 3)
	c.WaitISR("kept", 1, 1, 2, 3)
	c.WaitISR("moved", 0, 2, 3)
	c.Stop(3)
	c.Stop(2)
	c.WaitISR("kept", 0, 1)
	c.WaitISR("kept", 1, 1)
	c.WaitPartition("moved", 0, "no leader", func(p kafkatest.Partition) bool { return p.Leader == -1 })
	cordons := c.Version() >= "4.3"
	if cordons {
		altered(adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{value("cordoned.log.dirs", "*")}, 1))
	}

	running, err := kgo.NewClient(kgo.SeedBrokers(c.InternalAddress(1))) // one that has not heard of the others
	must(err)
	t.Cleanup(running.Close)
	var log []byte
	var im *Image
	var want string
	within(t, "the image of the metadata log", func(ctx context.Context) (bool, string) {
		var err error
		if want, err = said(ctx, running, c.Version() >= "4"); err != nil {
			return false, err.Error()
		}
		im, log = New(), Whole(c.MetadataLogBytes(1), 1<<62)
		if _, err := im.Apply(log); err != nil {
			t.Fatal(err)
		}
		if b, _ := im.Broker(1); cordons && (len(b.CordonedLogDirs) != 1 || !slices.Equal(b.CordonedLogDirs, b.LogDirs)) {
			return false, fmt.Sprintf("not cordoned: %+v", b)
		}
		got := seen(im)
		return got == want, fmt.Sprintf("image:\n%s\nbrokers:\n%s", got, want)
	})
	checkIndex(t, im)
	if next := im.NextProducerID(); next <= id || next%1000 != 0 {
		t.Errorf("next producer id %d, and %d was given out", next, id)
	}
	if ids := im.Controllers(); len(ids) != 1 || !strings.HasSuffix(c.ControllerAddresses()[0], fmt.Sprintf(":%d", ids[0].Listeners[0].Port)) {
		t.Errorf("controllers %+v, want %v", ids, c.ControllerAddresses())
	}
	for id, fenced := range map[int32]bool{1: false, 2: true, 3: true} {
		if b, ok := im.Broker(id); !ok || b.Fenced != fenced || (b.Rack == "north") != (id == 2) || len(b.LogDirs) != 1 {
			t.Errorf("broker %d: %+v", id, b)
		}
	}

	dir := filepath.Join(c.DataDir(1), "__cluster_metadata-0")
	files, err := filepath.Glob(filepath.Join(dir, "*-*.checkpoint"))
	must(err)
	if len(files) == 0 {
		t.Fatal("no snapshot was made")
	}
	file := slices.Max(files)
	content, err := os.ReadFile(file)
	must(err)
	compareSnapshot(t, log, filepath.Base(file), content)
	t.Logf("%d bytes of log, snapshot %s of %d bytes, of %d", len(log), filepath.Base(file), len(content), len(files))
	if to := os.Getenv("CLUSTERMIRROR_METADATA_DUMP"); to != "" {
		must(os.WriteFile(filepath.Join(to, c.Version()+".log"), log, 0o644))
		must(os.WriteFile(filepath.Join(to, c.Version()+".said"), []byte(want), 0o644))
		must(os.WriteFile(filepath.Join(to, c.Version()+"-"+filepath.Base(file)), content, 0o644))
	}
}

// compareSnapshot says that a snapshot is the image of the log up to its end, and that the log goes on from it. name is the file's: end offset and epoch with 20 and 10 digits.
func compareSnapshot(t *testing.T, log []byte, name string, content []byte) {
	t.Helper()
	var end int64
	var epoch int32
	if n, err := fmt.Sscanf(name, "%020d-%010d.checkpoint", &end, &epoch); n != 2 || err != nil || end == 0 {
		t.Fatalf("snapshot %s: %v", name, err)
	}
	snapshot, before, whole := New(), New(), New()
	if _, err := snapshot.Apply(content); err != nil {
		t.Fatalf("snapshot %s: %v", name, err)
	}
	if _, err := before.Apply(Whole(log, end)); err != nil || before.Next() != end || before.LastEpoch() != epoch {
		t.Fatalf("log below %d: %v, next %d, epoch %d", end, err, before.Next(), before.LastEpoch())
	}
	if got, want := picture(snapshot), picture(before); got != want {
		t.Errorf("snapshot %s says\n%s\nthe log below it\n%s", name, got, want)
	}
	if changes := before.Replace(snapshot, end, epoch); len(changes) != 0 {
		t.Errorf("the snapshot of what is known changes %+v", changes)
	}
	im := New()
	if changes := im.Replace(snapshot, end, epoch); len(changes) == 0 || changes[0].Offset != end {
		t.Errorf("a snapshot over nothing changes %+v", changes)
	}
	if _, err := im.Apply(log); err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Apply(log); err != nil {
		t.Fatal(err)
	}
	if got, want := picture(im), picture(whole); got != want || im.Next() != whole.Next() || im.LastEpoch() != whole.LastEpoch() {
		t.Errorf("from the snapshot on:\n%s\nfrom the log's start:\n%s", got, want)
	}
}
