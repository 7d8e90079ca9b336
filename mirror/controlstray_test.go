package mirror

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

func strayKey(recordType int16, topic string) string {
	key, err := controlKey{recordType: recordType, names: []string{topic}}.encode()
	if err != nil {
		panic(err)
	}
	return string(key)
}

// strays are records of a topic that is in no mirror.
func strays(topic string) map[string][]byte {
	present := []byte(`{"version":1}`)
	return map[string][]byte{
		strayKey(stopRecord, topic): present, strayKey(pauseRecord, topic): present, strayKey(recoverRecord, topic): []byte(`{"version":1,"count":5}`),
		strayKey(consentsRecord, topic): []byte(`{"version":1,"consents":[{"topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":0,"from":1,"to":2,"episode":1}]}`),
	}
}

// Who may stop and nothing else can stop, whatever lies about in the other topics.
func TestStraysAskForNoRight(t *testing.T) {
	const history = "+history entry 1 (record type 74)"
	for what, tc := range map[string]struct {
		run  func(a *Admin) (Result, error)
		want []string
	}{
		"stop": {func(a *Admin) (Result, error) { return a.Stop(bg, []string{"t"}, StopOptions{}) },
			[]string{`+stop of topic "t" (record type 71)`, `-stop of topic "stray" (record type 71)`, history}},
		"pause": {func(a *Admin) (Result, error) { return a.Pause(bg, []string{"t"}, PauseOptions{}) },
			[]string{`+pause of topic "t" (record type 72)`, `-pause of topic "stray" (record type 72)`, `-recover of topic "stray" (record type 73)`, history}},
		"start": {func(a *Admin) (Result, error) { return a.Start(bg, []string{"new"}, StartOptions{}) },
			[]string{`+topic "new" (record type 66)`, `-consents of topic "stray" (record type 67)`, history}},
		"start of its topic": {func(a *Admin) (Result, error) { return a.Start(bg, []string{"stray"}, StartOptions{}) },
			[]string{`+topic "stray" (record type 66)`, `-consents of topic "stray" (record type 67)`, `-stop of topic "stray" (record type 71)`, `-pause of topic "stray" (record type 72)`,
				`-recover of topic "stray" (record type 73)`, history}},
	} {
		log := &watchedLog{Memory: keyedlog.NewMemory()}
		mustUpdate(t, NewControl(log), func(s *ControlState) {
			s.SetMirror(MirrorEntry{Name: "m"})
			s.Set(wishOf("t", "m"))
		})
		putRecords(t, log, strays("stray"))
		w := &adminWorld{}
		w.has("m", "t", statemachine.Mirroring)
		if r, err := tc.run(w.admin(t, NewControl(log))); err != nil {
			t.Errorf("%s: %v %v", what, r, err)
		}
		slices.Sort(log.wrote)
		slices.Sort(tc.want)
		if !slices.Equal(log.wrote, tc.want) {
			t.Errorf("%s wrote %q, want %q", what, log.wrote, tc.want)
		}
	}
}

// Whatever lies about, what is read back is what was wanted.
func TestStraysMeanNothing(t *testing.T) {
	topics := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		log := keyedlog.NewMemory()
		stored := map[string][]byte{}
		for _, topic := range topics {
			for key, value := range strays(topic) {
				if rapid.Bool().Draw(t, fmt.Sprintf("%x", key)) {
					stored[key] = value
				}
			}
			if rapid.Bool().Draw(t, "in a mirror") {
				stored[strayKey(topicRecord, topic)] = []byte(`{"version":1,"mirror":"m"}`)
			}
		}
		c := NewControl(log)
		err := log.Update(bg, func(keyedlog.View) (changes []keyedlog.Change, err error) {
			for key, value := range stored {
				changes = append(changes, keyedlog.Change{Key: []byte(key), Value: value})
			}
			return changes, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			topic := rapid.SampledFrom(topics).Draw(t, "topic")
			name := rapid.SampledFrom([]string{"", "m", "m.stopped", "m.paused"}).Draw(t, "wish")
			count := rapid.Int64Range(0, 2).Draw(t, "recover")
			var want []TopicWish
			if err := c.Update(bg, func(s *ControlState) error {
				if s.Remove(topic); name != "" {
					s.Set(TopicWish{Topic: topic, MirrorName: name, Recover: count})
				}
				want = s.Clone().Topics
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			got, err := NewControl(log).Read(bg)
			if err != nil || !slices.EqualFunc(got.Topics, want, func(a, b TopicWish) bool { return reflect.DeepEqual(a, b) }) {
				t.Fatalf("%+v, want %+v; %v", got.Topics, want, err)
			}
		}
	})
}
