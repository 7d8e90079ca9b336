package processes_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// seeded returns a source of chance and prints its seed; CLUSTERMIRROR_PROCESSES_SEED gives another run the same.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CLUSTERMIRROR_PROCESSES_SEED"); s != "" {
		fixed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = fixed
	}
	t.Logf("seed %d (CLUSTERMIRROR_PROCESSES_SEED)", seed)
	return rand.New(rand.NewPCG(seed, 2))
}

// TestTwoProcessesUseVerbsAtOnce: two operators do the same, or the opposite, at the same moment, again and again. Each time the outcome is one that they would have had one
// after the other, the history has it in one order, and nothing that either was told is lost.
func TestTwoProcessesUseVerbsAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		r := seeded(t)
		rounds := 60
		if p.Dir == "" {
			rounds = 8
		}
		operators := []*running{begin(t, p, "operator 1"), begin(t, p, "operator 2")}
		control := mirror.NewControl(look(t, p))
		// atOnce gives both their orders and returns both answers.
		atOnce := func(orders ...order) []answer {
			t.Helper()
			first := r.IntN(2)
			operators[first].Send(orders[first])
			operators[1-first].Send(orders[1-first])
			return []answer{operators[0].Receive(), operators[1].Receive()}
		}
		settings := map[string]string{"bootstrap.servers": "localhost:1"}
		name := func(what string, i int) string { return fmt.Sprintf("races-%s-%d", what, i) }
		one := func(what string, answers []answer, refused mirror.Code) (winner int) {
			t.Helper()
			winner = slices.IndexFunc(answers, func(a answer) bool { return a.Err == "" })
			if winner < 0 || answers[1-winner].Err == "" || answers[1-winner].Code != refused {
				t.Errorf("%s: %+v; want one success and one refusal with %v", what, answers, refused)
			}
			return max(0, winner)
		}

		type done struct{ verb, mirror string }
		var want []done // what has to be in the history
		for i := range rounds {
			m := name("m", i)
			both := order{Do: "verb", Verb: "create", Mirror: m, Settings: settings}
			one("both create "+m, atOnce(both, both), mirror.ClusterMirrorAlreadyExists)
			want = append(want, done{"create", m})
			if i == 0 {
				continue
			}
			// One topic, two mirrors.
			topic, ms := name("topic", i), []string{name("m", i-1), m}
			w := one("both start "+topic, atOnce(order{Do: "verb", Verb: "start", Mirror: ms[0], Topics: []string{topic}},
				order{Do: "verb", Verb: "start", Mirror: ms[1], Topics: []string{topic}}), mirror.TopicAlreadyInClusterMirror)
			want = append(want, done{"start", ms[w]})
			// Each alters a setting of its own: neither takes the other's away.
			for k, a := range atOnce(order{Do: "verb", Verb: "alter", Mirror: m, Settings: map[string]string{"mirror.loss.policy": "keep"}},
				order{Do: "verb", Verb: "alter", Mirror: m, Settings: map[string]string{"client.id": "me"}}) {
				if a.Err != "" {
					t.Errorf("operator %d alters %s: %s", k+1, m, a.Err)
				}
				want = append(want, done{"alter", m})
			}
			// Stop, and delete: the deletion has to come behind the stop, or be refused.
			answers := atOnce(order{Do: "verb", Verb: "stop", Mirror: ms[w], Topics: []string{topic}}, order{Do: "verb", Verb: "delete", Mirror: ms[w]})
			if answers[0].Err != "" && answers[1].Err != "" || answers[0].Err != "" && answers[0].Code != mirror.UnknownClusterMirror {
				t.Errorf("stop and delete of %s: %+v", ms[w], answers)
			}
			deleted := answers[1].Err == ""
			want = append(want, done{"stop", ms[w]})
			if deleted {
				want = append(want, done{"delete", ms[w]})
			}
			s, err := control.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			entry, there := s.Mirror(m)
			if gone := deleted && ms[w] == m; there == gone {
				t.Errorf("mirror %s is there: %t, deleted: %t", m, there, gone)
			} else if there && (entry.Settings["mirror.loss.policy"] != "keep" || entry.Settings["client.id"] != "me" || entry.Settings["bootstrap.servers"] != "localhost:1") {
				t.Errorf("settings of %s: %v", m, entry.Settings)
			}
			if wish, there := s.Topic(topic); there == deleted || there && wish.MirrorName != ms[w]+".stopped" {
				t.Errorf("%s after its stop: %+v, there %t, mirror deleted %t", topic, wish, there, deleted)
			}
			if deleted { // so that the next round has both mirrors
				operators[0].do(order{Do: "verb", Verb: "create", Mirror: ms[w], Settings: settings})
				want = append(want, done{"create", ms[w]})
			}
		}

		history, err := control.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		count := map[done]int{}
		for _, d := range want {
			count[d]++
		}
		last := int64(0)
		for _, h := range history {
			if h.Number != last+1 && last > 0 {
				t.Errorf("entry %d of the history follows %d", h.Number, last)
			}
			last = h.Number
			count[done{h.Verb, h.Mirror}]--
		}
		for d, n := range count {
			if n > 0 || n < 0 && len(d.mirror) > 6 && d.mirror[:6] == "races-" {
				t.Errorf("%+v: %d more verbs succeeded than the history has", d, n)
			}
		}
	})
}

// TestOppositeVerbsAtOnce: one operator resumes a paused topic while the other one stops it. The stop always counts. The resumption came before it, or was refused; the
// history says which, and the mirror follows.
func TestOppositeVerbsAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const m = "opposite"
		r := seeded(t)
		var topics []string
		for i := range 6 {
			topics = append(topics, fmt.Sprintf("opposite-%d", i))
		}
		src := startSource(t, "primary", topics...)
		worker := begin(t, p, "worker")
		operators := []*running{begin(t, p, "operator 1"), begin(t, p, "operator 2")}
		control := mirror.NewControl(look(t, p))
		worker.do(order{Do: "open", Mirror: m, Owner: "opposite-worker", Seeds: src.seeds()})
		exists(t, control, m)
		all := func(state string) {
			t.Helper()
			for _, topic := range topics {
				worker.untilState(topic, state)
				operators[0].untilDescribed(m, topic, state, func(p describedPartition) bool { return p.State == state })
			}
		}
		operators[0].verb(m, "start", topics...)
		all("MIRRORING")
		operators[0].verb(m, "pause", topics...)
		all("PAUSED")
		resumed := map[string]bool{}
		for _, topic := range topics {
			stops := r.IntN(2)
			operators[stops].Send(order{Do: "verb", Verb: "stop", Mirror: m, Topics: []string{topic}})
			operators[1-stops].Send(order{Do: "verb", Verb: "resume", Mirror: m, Topics: []string{topic}})
			if a := operators[stops].Receive(); a.Err != "" {
				t.Errorf("stop of %s: %s", topic, a.Err)
			}
			a := operators[1-stops].Receive()
			resumed[topic] = a.Err == ""
			if a.Err != "" && a.Code != mirror.MirrorTopicNotPaused && a.Code != mirror.InvalidClusterMirrorState {
				t.Errorf("resumption of %s: %+v", topic, a)
			}
		}
		all("STOPPED")
		history, err := control.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topics {
			var verbs []string
			for _, h := range history {
				if h.Mirror == m && (h.Verb == "stop" || h.Verb == "resume") && slices.Contains(h.Topics, topic) {
					verbs = append(verbs, h.Verb)
				}
			}
			want := []string{"stop"}
			if resumed[topic] {
				want = []string{"resume", "stop"}
			}
			if !slices.Equal(verbs, want) {
				t.Errorf("the history of %s has %v, want %v", topic, verbs, want)
			}
		}
		t.Logf("resumed before the stop: %v", resumed)
	})
}
