package processes_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestVerbsOfAnotherProcess: one process mirrors, another one uses the verbs. The mirror follows, and both see the same. When the first is killed the second still sees what
// it said last, and how old that is.
func TestVerbsOfAnotherProcess(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const m, topic = "verbs", "verbs-orders"
		src := startSource(t, "primary", topic)
		src.produce(topic, 5)
		worker, operator := begin(t, p, "worker"), begin(t, p, "operator")
		worker.do(order{Do: "open", Mirror: m, Owner: "verbs-worker", Seeds: src.seeds(), RetryAfter: 10 * time.Minute})
		control := mirror.NewControl(look(t, p))
		exists(t, control, m)

		describe := func(what string, ok func(describedPartition) bool) describedPartition {
			t.Helper()
			return operator.untilDescribed(m, topic, what, ok)
		}
		follow := func(verb, state string) {
			t.Helper()
			done := operator.verb(m, verb, topic).Done
			worker.untilState(topic, state)
			t.Logf("%s in another process: %s at most %v after the verb had returned", verb, state, time.Since(done).Round(time.Millisecond))
			describe(state, func(p describedPartition) bool { return p.State == state }) // the next verb looks at that
		}
		follow("start", "MIRRORING")
		worker.untilEnd(topic, 5)
		follow("pause", "PAUSED")
		follow("resume", "MIRRORING")
		src.denied.Store(true)
		worker.untilState(topic, "FAILED")
		if failed := describe("FAILED", func(p describedPartition) bool { return p.State == "FAILED" }); !strings.Contains(failed.Reason, "TOPIC_AUTHORIZATION_FAILED") {
			t.Errorf("the reason is %q", failed.Reason)
		}
		src.denied.Store(false)
		follow("recover", "MIRRORING")
		eventually(t, "the request to recover is taken out", func() (bool, string) {
			s, err := control.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w, _ := s.Topic(topic)
			return w.Recover == 0, print(w)
		})
		src.produce(topic, 2)
		worker.untilEnd(topic, 7)
		last := describe("in step", func(p describedPartition) bool { return p.End == "7" && p.SourceEnd == "7" })

		worker.Kill()
		dead := operator.do(order{Do: "describe", Mirror: m}).Described
		t.Logf("after kill -9:\n%s", dead.Text)
		if i := slices.IndexFunc(dead.Partitions, func(p describedPartition) bool { return p.Topic == topic }); i < 0 || dead.Partitions[i].State != "MIRRORING" ||
			dead.Partitions[i].End != "7" || dead.Partitions[i].Reported.Before(last.Reported) || dead.Seen.IsZero() {
			t.Errorf("of a process that was killed: %+v", dead)
		}
		var later described
		eventually(t, "the age grows", func() (bool, string) {
			later = operator.do(order{Do: "describe", Mirror: m}).Described
			return later.Text != dead.Text, later.Text
		})
		if !later.Seen.Equal(dead.Seen) || !slices.Equal(later.Partitions, dead.Partitions) {
			t.Errorf("nobody reports any more, and it is\n%+v\nwas\n%+v", later, dead)
		}
		operator.verb(m, "stop", topic) // asks nobody
	})
}

// exists waits until a mirror that was opened has recorded that it exists.
func exists(t *testing.T, control mirror.Control, m string) {
	t.Helper()
	eventually(t, "mirror "+m+" exists", func() (bool, string) {
		s, err := control.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, there := s.Mirror(m)
		return there, print(s)
	})
}
