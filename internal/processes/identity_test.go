package processes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestF33SettingsThatNameAnotherCluster: an operator's process alters the address of the source, and behind the new one is another cluster with a topic of the same name.
// The mirror in the other process says so, fetches nothing from it, and goes on when the address is put right and somebody asks it to.
func TestF33SettingsThatNameAnotherCluster(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const m, topic = "identity", "identity-orders"
		right, wrong := startSource(t, "right-cluster", topic), startSource(t, "wrong-cluster", topic)
		right.produce(topic, 5)
		wrong.produce(topic, 9)
		worker, operator := begin(t, p, "worker"), begin(t, p, "operator")
		address := func(s *source) map[string]string {
			return map[string]string{"bootstrap.servers": strings.Join(s.seeds(), ",")}
		}
		operator.do(order{Do: "verb", Verb: "create", Mirror: m, Settings: address(right)})
		worker.do(order{Do: "open", Mirror: m, Owner: "identity-worker", FromSettings: true})
		operator.verb(m, "start", topic)
		worker.untilEnd(topic, 5)
		control := mirror.NewControl(look(t, p))
		eventually(t, "the source's cluster id is recorded", func() (bool, string) {
			s, err := control.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			entry, _ := s.Mirror(m)
			return entry.SourceClusterID == "right-cluster", print(entry)
		})
		before := worker.do(order{Do: "log", Topic: topic}).Log

		done := operator.do(order{Do: "verb", Verb: "alter", Mirror: m, Settings: address(wrong)}).Done
		worker.until("is FAILED, with both cluster ids", topic, 0, func(p partitionStatus) bool {
			return p.State == "FAILED" && strings.Contains(p.Reason, "right-cluster") && strings.Contains(p.Reason, "wrong-cluster")
		})
		t.Logf("FAILED at most %v after the verb had returned", time.Since(done).Round(time.Millisecond))
		if now := worker.do(order{Do: "log", Topic: topic}).Log; now.Sum != before.Sum || now.End != before.End {
			t.Errorf("the copy has changed: it ended at %d and ends at %d", before.End, now.End)
		}
		if n := wrong.served.Load(); n != 0 {
			t.Errorf("%d fetches from the wrong cluster", n)
		}
		right.produce(topic, 3)
		operator.do(order{Do: "verb", Verb: "alter", Mirror: m, Settings: address(right)})
		operator.verb(m, "recover", topic)
		worker.untilEnd(topic, 8)
		if n := wrong.served.Load(); n != 0 {
			t.Errorf("%d fetches from the wrong cluster", n)
		}
	})
}
