package lives

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
)

// Freeze takes a broker away without losing what it has: the process stands still until it is fenced and out of the in-sync replicas.
func Freeze(t testing.TB, c *kafkatest.Cluster, topic string, broker int32) {
	t.Helper()
	c.Pause(broker)
	t.Cleanup(func() { c.Resume(broker) })
	c.WaitPartition(topic, 0, fmt.Sprintf("without broker %d", broker), func(p kafkatest.Partition) bool {
		return p.Leader != broker && !slices.Contains(p.ISR, broker)
	})
}

// FreezeLeader is the same for the last one in sync: the partition has no leader then.
func FreezeLeader(t testing.TB, c *kafkatest.Cluster, topic string, broker int32) {
	t.Helper()
	c.Pause(broker)
	t.Cleanup(func() { c.Resume(broker) })
	c.WaitPartition(topic, 0, "without a leader", func(p kafkatest.Partition) bool { return p.Leader == -1 })
}

// Elect lets a broker go on and makes it the leader, in sync or not. It returns the new leader epoch when the broker itself knows it: before that it would still follow an old leader that goes on.
func Elect(t testing.TB, c *kafkatest.Cluster, topic string, broker int32) int32 {
	t.Helper()
	c.Resume(broker)
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis = 1, 5_000
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	var p kafkatest.Partition
	Eventually(t, fmt.Sprintf("broker %d is elected", broker), func() (bool, string) {
		resp, err := Ask[*kmsg.ElectLeadersResponse](t, c, 1, req)
		p = c.Describe(topic, 0)
		return p.Leader == broker, fmt.Sprintf("leader %d; %v, %+v", p.Leader, err, resp)
	})
	OffsetOf(t, c, Latest, topic, 0) // only the leader answers
	return p.LeaderEpoch
}
