package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/clustermirror/mirror/kafkastore"
)

// TestStateInAnotherClusterThanTheDestination: the cluster that keeps the desired state has none of the topics, because the mirror writes elsewhere. Verbs go by what was recorded
// and reported, describe shows the id that they check, and a mirror whose partitions are not stopped is not deleted.
func TestStateInAnotherClusterThanTheDestination(t *testing.T) {
	const keptIn = "KptZqbTwueFxgHciKmNwyv"
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(keptIn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	at := fake.ListenAddrs()[0]
	source := startSource(t, "orders").ListenAddrs()[0]
	login := writeFile(t, "client.properties", "mirror.state.topic.replication.factor=1", "mirror.state.topic.num.partitions=2")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	s := &session{t: t, common: []string{"--bootstrap-server", at, "--command-config", login}, shown: strings.NewReplacer()}
	run := func(status int, says string, args ...string) string {
		t.Helper()
		got, out, complaints := command(t, append(append(args, s.common...), "--mirror", "dr")...)
		if got != status || !strings.Contains(out+complaints, says) {
			t.Errorf("%v: exit status %d, want %d, with %q\n%s%s", args, got, status, says, out, complaints)
		}
		return out
	}
	run(0, "create, mirror dr", "--create", "--mirror-config", config)
	records, err := kafkastore.Open(t.Context(), kafkastore.Config{Seeds: fake.ListenAddrs(), ReplicationFactor: 1, StatePartitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	startMirror(t, records, standbyID)
	run(0, "orders: recorded", "--start", "--topics", "orders")
	describe := []string{"--describe", "--mirror", "dr"}
	s.await(describe, "orders-0   MIRRORING", "destination "+standbyID)
	out := run(0, "destination "+standbyID, describe[:1]...)
	if strings.Contains(out, "destination "+standbyID+" (") || strings.Contains(out, keptIn) { // a process that runs says where it writes
		t.Errorf("the cluster with the desired state is shown beside the destination:\n%s", out)
	}

	consent := []string{"--reason", "drill", "--yes", "--destination-cluster-id"}
	run(1, "partition 0 is MIRRORING", append([]string{"--delete"}, append(consent, standbyID)...)...)
	run(0, "orders: recorded", "--pause", "--topics", "orders")
	s.await(describe, "orders-0   PAUSED")
	run(0, "orders: recorded", "--resume", "--topics", "orders")
	s.await(describe, "orders-0   MIRRORING")
	run(1, "TOPIC_NOT_IN_CLUSTER_MIRROR", "--stop", "--topics", "nosuch", "--dry-run")
	run(2, "process mirror-1, ", append([]string{"--stop", "--topics", "orders"}, append(consent, keptIn)...)...)
	run(0, "orders: recorded", append([]string{"--stop", "--topics", "orders"}, append(consent, standbyID)...)...)
	s.await(describe, "orders-0   STOPPED")
	run(0, "orders: recorded", append([]string{"--delete"}, append(consent, standbyID)...)...)
}
