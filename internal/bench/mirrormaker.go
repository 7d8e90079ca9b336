package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

//go:embed mirrormaker.xml
var mirrorMakerPom []byte

// mirrorMakerSettings are what MirrorMaker 2 gets for a high rate: large batches that are filled, large fetches, polls of 5,000 records, one task for each partition up to four, and nothing to
// do beside copying. Records are compressed again as they were. acks=all costs it nothing: the topic has one replica.
func mirrorMakerSettings(codec string, batchBytes int, linger time.Duration) []string {
	return []string{
		"tasks.max=4",
		"source->destination.consumer.fetch.min.bytes=1048576", "source->destination.consumer.fetch.max.wait.ms=100", "source->destination.consumer.max.partition.fetch.bytes=10485760",
		"source->destination.consumer.max.poll.records=5000",
		fmt.Sprintf("source->destination.producer.override.batch.size=%d", batchBytes), fmt.Sprintf("source->destination.producer.override.linger.ms=%d", linger.Milliseconds()),
		"source->destination.producer.override.buffer.memory=268435456",
		"source->destination.producer.override.max.request.size=4194304", "source->destination.producer.override.acks=all", "source->destination.producer.override.compression.type=" + codec,
	}
}

// mirrorMakerConfig is the rest of its properties.
const mirrorMakerConfig = `clusters=source,destination
source.bootstrap.servers=%s
destination.bootstrap.servers=%s
source->destination.enabled=true
destination->source.enabled=false
source->destination.topics=%s
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
connector.client.config.override.policy=All
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
emit.heartbeats.enabled=false
emit.checkpoints.enabled=false
sync.topic.acls.enabled=false
sync.topic.configs.enabled=false
sync.group.offsets.enabled=false
refresh.topics.enabled=false
refresh.groups.enabled=false
`

const mirrorMakerLog = `status = error
appenders = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n%throwable
rootLogger.level = info
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = out
`

// mirrorMakerTopics are its own, in the destination.
var mirrorMakerTopics = []string{"mm2-configs.source.internal", "mm2-offsets.source.internal", "mm2-status.source.internal"}

// startMirrorMaker has MirrorMaker 2 copy the source's topic into one that exists already, with one replica, and returns its process and where it logs. The process has the JVM's own choice of
// collector and compilers. It has to end with the run: only another process copies again from the beginning.
func startMirrorMaker(ctx context.Context, t *program, src, dst *kafkatest.Cluster, topic string, settings []string) (*exec.Cmd, string) {
	libs, err := mirrorMakerLibs(ctx, dst.Version())
	if err != nil {
		t.Fatalf("%v", err)
	}
	folder, err := os.MkdirTemp("", "bench-mm2-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	properties := fmt.Sprintf(mirrorMakerConfig, strings.Join(src.Bootstrap(), ","), strings.Join(dst.Bootstrap(), ","), topic) + strings.Join(settings, "\n") + "\n"
	config, logs := filepath.Join(folder, "mm2.properties"), filepath.Join(folder, "log4j2.properties")
	for path, content := range map[string]string{config: properties, logs: mirrorMakerLog} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatalf("%v", err)
		}
	}
	out, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, "java", "-Xmx1g", "-cp", libs+"/*", "-Dlog4j2.configurationFile="+logs, "org.apache.kafka.connect.mirror.MirrorMaker", config)
	cmd.Stdout, cmd.Stderr = out, out
	if err := kafkatest.StartProcess(cmd); err != nil {
		t.Fatalf("MirrorMaker 2: %v", err)
	}
	return cmd, out.Name()
}

// recordsIn counts a topic's records by offsets: batches of MirrorMaker 2 are not the source's.
func recordsIn(ctx context.Context, c *kafkatest.Cluster, topic string) (n int64, err error) {
	ends, err := c.Admin().ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("offsets: %w", err)
	}
	for _, o := range ends[topic] {
		n += o.Offset
	}
	return n, nil
}

// mirrorMaker measures one run of MirrorMaker 2 beside one of the mirror.
func (b *kraftBench) mirrorMaker() kraftRun {
	b.create(b.dst, kraftRelay, kraftFollower)
	cmd, out := startMirrorMaker(b.ctx, b.t, b.src, b.dst, kraftRelay, kraftMirrorMaker)
	pid := cmd.Process.Pid
	follower := b.pid(b.dst, kraftFollower)
	received := b.processTime(follower)
	all := int64(b.batches) * kraftPartitions * kraftRecords
	var sent time.Duration
	have := func() int64 {
		n, err := recordsIn(b.ctx, b.dst, kraftRelay)
		if err != nil {
			b.t.Fatalf("%v", err)
		}
		return n
	}
	first := int64(0)
	b.poll("the first record of MirrorMaker 2; see "+out, 10*time.Millisecond, func() bool {
		sent = b.processTime(pid)
		first = have()
		return first > 0
	})
	began := time.Now()
	b.poll("the last record of MirrorMaker 2", 10*time.Millisecond, func() bool { return have() >= all })
	r := kraftRun{bytes: b.total * (all - first) / all, wall: time.Since(began), followers: b.processTime(follower) - received, sender: b.processTime(pid) - sent}
	if err := cmd.Process.Kill(); err != nil {
		b.t.Fatalf("MirrorMaker 2: %v", err)
	}
	_ = cmd.Wait() // it was killed
	for _, topic := range append([]string{kraftRelay}, mirrorMakerTopics...) {
		b.remove(topic)
	}
	return r
}

// mirrorMakerLibs is the folder with MirrorMaker's jars, which Maven fetches once.
func mirrorMakerLibs(ctx context.Context, version string) (string, error) {
	dir := filepath.Join(kafkatest.CacheDir(), "mirrormaker-"+version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(kafkatest.CacheDir(), "fetching-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	pom := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(pom, mirrorMakerPom, 0o644); err != nil {
		return "", err
	}
	jars := filepath.Join(tmp, "jars")
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-Dkafka.version="+version, "-DoutputDirectory="+jars, "-DincludeScope=runtime")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching MirrorMaker %s with Maven: %w\n%s", version, err, out)
	}
	return dir, os.Rename(jars, dir)
}
