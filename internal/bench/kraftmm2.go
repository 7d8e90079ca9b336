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

//go:embed kraftmm2.xml
var mirrorMakerPom []byte

// mirrorMakerSettings are what MirrorMaker 2 gets for a high rate: large batches that are filled, large fetches, one task for each partition, and nothing to do beside copying.
// acks=all costs it nothing: the topic has one replica.
var mirrorMakerSettings = []string{
	"tasks.max=4",
	"source->destination.consumer.fetch.min.bytes=1048576", "source->destination.consumer.fetch.max.wait.ms=100", "source->destination.consumer.max.partition.fetch.bytes=10485760",
	"source->destination.consumer.max.poll.records=5000",
	"source->destination.producer.override.batch.size=524288", "source->destination.producer.override.linger.ms=20", "source->destination.producer.override.buffer.memory=268435456",
	"source->destination.producer.override.max.request.size=4194304", "source->destination.producer.override.acks=all", "source->destination.producer.override.compression.type=none",
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

// mirrorMaker has MirrorMaker 2 copy the source's topic into one that exists already, with one replica. Its process has the JVM's own choice of collector and compilers. It ends with the run:
// only another process copies again from the beginning.
func (b *kraftBench) mirrorMaker() kraftRun {
	libs, err := mirrorMakerLibs(b.ctx, b.dst.Version())
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	folder, err := os.MkdirTemp("", "bench-mm2-")
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	b.t.Cleanup(func() { os.RemoveAll(folder) })
	properties := fmt.Sprintf(mirrorMakerConfig, strings.Join(b.src.Bootstrap(), ","), strings.Join(b.dst.Bootstrap(), ","), kraftRelay) + strings.Join(mirrorMakerSettings, "\n") + "\n"
	config, logs := filepath.Join(folder, "mm2.properties"), filepath.Join(folder, "log4j2.properties")
	for path, content := range map[string]string{config: properties, logs: mirrorMakerLog} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			b.t.Fatalf("%v", err)
		}
	}
	out, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	defer out.Close()
	b.create(b.dst, kraftRelay, kraftFollower)
	cmd := exec.CommandContext(b.ctx, "java", "-Xmx1g", "-cp", libs+"/*", "-Dlog4j2.configurationFile="+logs, "org.apache.kafka.connect.mirror.MirrorMaker", config)
	cmd.Stdout, cmd.Stderr = out, out
	if err := kafkatest.StartProcess(cmd); err != nil {
		b.t.Fatalf("MirrorMaker 2: %v", err)
	}
	pid := cmd.Process.Pid
	follower := b.pid(b.dst, kraftFollower)
	received := b.processTime(follower)
	// Its batches are not the source's, so offsets are counted.
	all := int64(b.batches) * kraftPartitions * kraftRecords
	var sent time.Duration
	have := func() (n int64) {
		ends, err := b.dst.Admin().ListEndOffsets(b.ctx, kraftRelay)
		if err != nil {
			b.t.Fatalf("offsets: %v", err)
		}
		for _, o := range ends[kraftRelay] {
			n += o.Offset
		}
		return n
	}
	first := int64(0)
	b.poll("the first record of MirrorMaker 2; see "+out.Name(), 10*time.Millisecond, func() bool {
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
	for _, topic := range []string{kraftRelay, "mm2-configs.source.internal", "mm2-offsets.source.internal", "mm2-status.source.internal"} {
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
