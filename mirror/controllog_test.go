package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// watchedLog notes what is written and how often all records are walked through.
type watchedLog struct {
	*keyedlog.Memory
	mu    sync.Mutex
	wrote []string // of the last Update: "+" or "-", then the record
	walks int
}

type watchedView struct {
	keyedlog.View
	log *watchedLog
}

func (v watchedView) Each(prefix []byte, f func(keyedlog.Record) error) error {
	v.log.mu.Lock()
	v.log.walks++
	v.log.mu.Unlock()
	return v.View.Each(prefix, f)
}

func (w *watchedLog) Read(ctx context.Context, read func(keyedlog.View) error) error {
	return w.Memory.Read(ctx, func(v keyedlog.View) error { return read(watchedView{v, w}) })
}

func (w *watchedLog) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return w.Memory.Update(ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
		changes, err := decide(watchedView{v, w})
		w.wrote = nil
		for _, c := range changes {
			k, _, keyErr := decodeControlKey(c.Key)
			if keyErr != nil {
				return nil, keyErr
			}
			sign := "+"
			if c.Value == nil {
				sign = "-"
			}
			w.wrote = append(w.wrote, sign+k.String())
		}
		return changes, err
	})
}

// drawState makes any state that may be stored.
func drawState(t *rapid.T) ControlState {
	name := rapid.StringMatching(`[a-z]{1,3}`)
	text := rapid.StringN(0, 6, 20)
	when := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "no time") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanoseconds")).In(time.FixedZone("", 3600))
	})
	var s ControlState
	for _, m := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "mirrors") {
		s.Mirrors = append(s.Mirrors, MirrorEntry{m, rapid.MapOfN(text, text, 0, 3).Draw(t, "settings"), text.Draw(t, "source"), when.Draw(t, "created")})
	}
	for _, m := range rapid.SliceOfNDistinct(name, 0, 2, rapid.ID).Draw(t, "deleted") {
		s.Deleted = append(s.Deleted, DeletedMirror{m, rapid.Bool().Draw(t, "purge"), when.Draw(t, "at")})
	}
	for _, topic := range rapid.SliceOfNDistinct(rapid.StringN(1, 4, 12), 0, 4, rapid.ID).Draw(t, "topics") {
		w := TopicWish{Topic: topic, MirrorName: name.Draw(t, "mirror") + rapid.SampledFrom([]string{"", ".paused", ".stopped"}).Draw(t, "wish"),
			AdoptedFrom: text.Draw(t, "adopted"), Recover: rapid.Int64().Draw(t, "recover")}
		for range rapid.IntRange(0, 3).Draw(t, "consents") {
			w.Consents = append(w.Consents, Consent{TopicID{rapid.Byte().Draw(t, "id")}, rapid.Int32().Draw(t, "partition"), rapid.Int64().Draw(t, "from"), rapid.Int64().Draw(t, "to"),
				rapid.Int32().Draw(t, "episode")})
		}
		s.Topics = append(s.Topics, w)
	}
	for _, topic := range rapid.SliceOfNDistinct(text, 0, 3, rapid.ID).Draw(t, "origins") {
		s.Origins = append(s.Origins, TopicOrigin{name.Draw(t, "mirror"), topic, name.Draw(t, "cluster"), rapid.SliceOfN(text, 0, 3).Draw(t, "upstream")})
	}
	for _, n := range rapid.SliceOfNDistinct(text, 0, 3, rapid.ID).Draw(t, "provenance") {
		s.Provenance = append(s.Provenance, Provenance{Mirror: name.Draw(t, "mirror"), Kind: text.Draw(t, "kind"), Name: n, Value: text.Draw(t, "value")})
	}
	return s
}

func TestControlStateRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := keyedlog.NewMemory()
		c := NewControl(log)
		for range rapid.IntRange(1, 3).Draw(t, "updates") { // what was there before must not shine through
			want := drawState(t)
			err := c.Update(context.Background(), func(s *ControlState) error {
				version := s.Version
				*s = want.Clone()
				s.Version = version
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := want.normalise(); err != nil {
				t.Fatal(err)
			}
			for _, reader := range []Control{c, NewControl(log.Again())} {
				got, err := reader.Read(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				got.Version = 0
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("stored\n%#v, came back as\n%#v", want, got)
				}
			}
		}
	})
}

func TestControlKeepsSettingsExactly(t *testing.T) {
	settings := Settings{
		"empty": "", "blanks": "  a \t", "lines": "a\nb\r\n", "quotes": `"\'/`, "html": "<a href=\"x\">&amp;</a>", "unicode": "ü\u2028\u2029\U0001F600\x00\x7f\ufffd", "reference": "${file:/a b:c}",
		"": "no name", "a=b": "c", "mirror.topics.include": `orders\..*,a{1\,2}`, "escapes": `\u0041\n`, strings.Repeat("n", 3000): strings.Repeat("v", 100_000),
	}
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", Settings: settings}) })
	got, ok := func() (MirrorEntry, bool) { s := mustRead(t, c); return s.Mirror("m") }()
	if !ok || !maps.Equal(got.Settings, settings) {
		t.Errorf("came back as %q", got.Settings)
	}
	for _, bad := range []Settings{{"sasl.jaas.config": secretMarker + "\xff"}, {"\xff": secretMarker}} {
		err := c.Update(context.Background(), func(s *ControlState) error { s.SetMirror(MirrorEntry{Name: "m", Settings: bad}); return nil })
		if err == nil || strings.Contains(err.Error(), secretMarker) {
			t.Errorf("bytes that are no text: %v", err)
		}
	}
}

// TestControlVerbsWriteTheirRecordsOnly: rights are given by record type, so a verb may write no record of another one's.
func TestControlVerbsWriteTheirRecordsOnly(t *testing.T) {
	log := &watchedLog{Memory: keyedlog.NewMemory()}
	c := NewControl(log)
	consents := []Consent{{Partition: 1, From: 1, To: 2}}
	wish := TopicWish{Topic: "t", MirrorName: "m", Consents: consents}
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", Settings: Settings{"bootstrap.servers": "a:1"}})
		s.Set(wish)
		s.Set(TopicWish{Topic: "other", MirrorName: "m.paused", Recover: 3})
	})
	const stop, pause = `stop of topic "t" (record type 71)`, `pause of topic "t" (record type 72)`
	for _, step := range []struct {
		verb   string
		change func(w *TopicWish)
		want   []string
	}{
		{"pause", func(w *TopicWish) { w.MirrorName = "m.paused" }, []string{"+" + pause}},
		{"pause again", func(w *TopicWish) { w.MirrorName = "m.paused" }, nil},
		{"resume", func(w *TopicWish) { w.MirrorName = "m" }, []string{"-" + pause}},
		{"recover", func(w *TopicWish) { w.Recover++ }, []string{`+recover of topic "t" (record type 73)`}},
		{"recover again", func(w *TopicWish) { w.Recover++ }, []string{`+recover of topic "t" (record type 73)`}},
		{"stop", func(w *TopicWish) { w.MirrorName = "m.stopped" }, []string{"+" + stop}},
		{"start", func(w *TopicWish) { w.MirrorName = "m" }, []string{"-" + stop}},
		{"pause to be stopped", func(w *TopicWish) { w.MirrorName = "m.paused" }, []string{"+" + pause}},
		{"stop of a paused topic", func(w *TopicWish) { w.MirrorName = "m.stopped" }, []string{"+" + stop, "-" + pause}},
		{"adopt", func(w *TopicWish) { w.MirrorName, w.AdoptedFrom = "n", "m" }, []string{`+topic "t" (record type 66)`, "-" + stop}},
		{"use consents", func(w *TopicWish) { w.Consents = nil }, []string{`-consents of topic "t" (record type 67)`}},
	} {
		mustUpdate(t, c, func(s *ControlState) {
			w, ok := s.Topic("t")
			if !ok {
				t.Fatal("the topic is gone")
			}
			step.change(&w)
			s.Set(w)
		})
		if !slices.Equal(log.wrote, step.want) {
			t.Errorf("%s wrote %q, want %q", step.verb, log.wrote, step.want)
		}
	}
	mustUpdate(t, c, func(s *ControlState) {
		s.Remove("t")
		s.Note = &HistoryEntry{Verb: "delete"}
	})
	if want := []string{`-topic "t" (record type 66)`, `-recover of topic "t" (record type 73)`, "+history entry 1 (record type 74)"}; !slices.Equal(log.wrote, want) {
		t.Errorf("removing the topic wrote %q, want %q", log.wrote, want)
	}
}

func TestControlStopWinsOverPauseAndStraysMeanNothing(t *testing.T) {
	log := keyedlog.NewMemory()
	key := func(recordType int16, topic string) string {
		b, err := (controlKey{recordType: recordType, names: []string{topic}}).encode()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	present := []byte(`{"version":1}`)
	putRecords(t, log, map[string][]byte{
		key(topicRecord, "both"): []byte(`{"version":1,"mirror":"m"}`), key(stopRecord, "both"): present, key(pauseRecord, "both"): present,
		key(stopRecord, "stray"): present, key(pauseRecord, "stray"): present, key(recoverRecord, "stray"): []byte(`{"version":1,"count":5}`),
		key(consentsRecord, "stray"): []byte(`{"version":1,"consents":[]}`),
	})
	c := NewControl(log)
	s := mustRead(t, c)
	if want := []TopicWish{{Topic: "both", MirrorName: "m.stopped"}}; !reflect.DeepEqual(s.Topics, want) {
		t.Errorf("%+v, want %+v", s.Topics, want)
	}
	mustUpdate(t, c, func(*ControlState) {})
	if n := len(recordsOf(t, log)); n != 7 {
		t.Errorf("an update that changes nothing left %d records", n)
	}
	mustUpdate(t, c, func(s *ControlState) {
		s.Set(wishOf("both", "m"))
		s.Set(wishOf("stray", "m"))
	})
	s = mustRead(t, c)
	if want := []TopicWish{{Topic: "both", MirrorName: "m"}, {Topic: "stray", MirrorName: "m"}}; !reflect.DeepEqual(s.Topics, want) {
		t.Errorf("%+v, want %+v", s.Topics, want)
	}
}

func TestControlRefusesImpossibleStates(t *testing.T) {
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("a", "m")) })
	before := mustRead(t, c)
	for what, change := range map[string]func(*ControlState){
		"a mirror.name that nobody can read": func(s *ControlState) { s.Topics[0].MirrorName = "m.removed" },
		"no mirror.name":                     func(s *ControlState) { s.Topics[0].MirrorName = "" },
		"no topic name":                      func(s *ControlState) { s.Topics[0].Topic = "" },
		"a topic name that is no text":       func(s *ControlState) { s.Topics[0].Topic = "\xff" },
		"a topic name without end":           func(s *ControlState) { s.Topics[0].Topic = strings.Repeat("x", 40000) },
		"a topic twice":                      func(s *ControlState) { s.Topics = append(s.Topics, wishOf("a", "n")) },
		"a mirror twice": func(s *ControlState) {
			s.Mirrors = []MirrorEntry{{Name: "m"}, {Name: "m", SourceClusterID: "x"}}
		},
		"a mirror's name":         func(s *ControlState) { s.Mirrors = []MirrorEntry{{Name: "m.paused"}} },
		"a deleted mirror's name": func(s *ControlState) { s.Deleted = []DeletedMirror{{Name: ""}} },
		"a deleted mirror twice":  func(s *ControlState) { s.Deleted = []DeletedMirror{{Name: "m"}, {Name: "m", Purge: true}} },
		"an adopted mirror that is no text": func(s *ControlState) {
			s.Topics[0].AdoptedFrom = "\xff"
		},
		"an origin nowhere":         func(s *ControlState) { s.Origins = []TopicOrigin{{Mirror: "m", Topic: "a"}} },
		"an origin that is no text": func(s *ControlState) { s.Origins = []TopicOrigin{{"m", "a", "x", []string{"\xff"}}} },
		"an origin twice":           func(s *ControlState) { s.Origins = []TopicOrigin{{"m", "a", "x", nil}, {"m", "a", "y", nil}} },
		"a provenance twice": func(s *ControlState) {
			s.Provenance = []Provenance{{Mirror: "m", Kind: "group", Name: "g", Value: "1"}, {Mirror: "m", Kind: "group", Name: "g", Value: "2"}}
		},
		"a provenance that is no text": func(s *ControlState) {
			s.Provenance = []Provenance{{Mirror: "m", Kind: "group", Name: "g", Value: "\xff"}}
		},
		"a time that cannot be written": func(s *ControlState) {
			s.Mirrors = []MirrorEntry{{Name: "m", Created: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}}
		},
		"the time of a note": func(s *ControlState) { s.Note = &HistoryEntry{Time: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)} },
	} {
		if err := c.Update(context.Background(), func(s *ControlState) error { change(s); return nil }); err == nil || !strings.HasPrefix(err.Error(), "mirror: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := mustRead(t, c); !reflect.DeepEqual(after, before) {
		t.Errorf("state %+v, want %+v", after, before)
	}
}

func TestControlPutsListsInOrder(t *testing.T) {
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) {
		s.Mirrors = []MirrorEntry{{Name: "n"}, {Name: "m", Settings: Settings{}}, {Name: "n"}}
		s.Deleted = []DeletedMirror{{Name: "z"}, {Name: "y"}, {Name: "z"}}
		s.Topics = []TopicWish{wishOf("b", "m"), {Topic: "a", MirrorName: "m", Consents: []Consent{{Partition: 2}, {Partition: 1}, {Partition: 2}}}, wishOf("b", "m")}
		s.Origins = []TopicOrigin{{"n", "a", "x", nil}, {"m", "b", "x", nil}, {"m", "a", "x", []string{}}, {"m", "a", "x", nil}}
		s.Provenance = []Provenance{{Mirror: "m", Kind: "group", Name: "b", Value: ""}, {Mirror: "m", Kind: "group", Name: "a", Value: ""}, {Mirror: "m", Kind: "config", Name: "z", Value: ""}, {Mirror: "m", Kind: "group", Name: "a", Value: ""}}
	})
	want := ControlState{
		Version: 1, Mirrors: []MirrorEntry{{Name: "m", Settings: Settings{}}, {Name: "n", Settings: Settings{}}}, Deleted: []DeletedMirror{{Name: "y"}, {Name: "z"}},
		Topics:     []TopicWish{{Topic: "a", MirrorName: "m", Consents: []Consent{{Partition: 1}, {Partition: 2}}}, wishOf("b", "m")},
		Origins:    []TopicOrigin{{"m", "a", "x", nil}, {"m", "b", "x", nil}, {"n", "a", "x", nil}},
		Provenance: []Provenance{{Mirror: "m", Kind: "config", Name: "z", Value: ""}, {Mirror: "m", Kind: "group", Name: "a", Value: ""}, {Mirror: "m", Kind: "group", Name: "b", Value: ""}},
	}
	if got := mustRead(t, c); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	changed := c.Changed()
	mustUpdate(t, c, func(s *ControlState) {
		slices.Reverse(s.Topics)
		slices.Reverse(s.Origins)
		s.Topics[1].Consents = append(s.Topics[1].Consents, Consent{Partition: 1})
		s.Version = 77
	})
	if isClosed(changed) || mustRead(t, c).Version != 1 {
		t.Error("another order of the same is written")
	}
}

func TestControlCopiesAreDeep(t *testing.T) {
	log := keyedlog.NewMemory()
	c := storeFirst(t, log)
	want := mustRead(t, c)
	spoil := func(s *ControlState) {
		s.Mirrors[1].Settings["bootstrap.servers"], s.Mirrors[1].Name = "x", "x"
		s.Deleted[0].Name, s.Provenance[0].Value = "x", "x"
		s.Topics[0].Consents[0].From = 99
		s.Origins[0].Upstream[0] = "x"
	}
	got := mustRead(t, c)
	spoil(&got)
	no := errors.New("no")
	if err := c.Update(context.Background(), func(s *ControlState) error { spoil(s); return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	if after := mustRead(t, c); !reflect.DeepEqual(after, want) {
		t.Errorf("%+v, want\n%+v", after, want)
	}
	note := &HistoryEntry{Topics: []string{"a"}}
	s := ControlState{Note: note}
	s.Clone().Note.Topics[0] = "x"
	if note.Topics[0] != "a" {
		t.Error("a copy shares the note")
	}
}

func TestControlReadsAgainOnlyWhatChanged(t *testing.T) {
	log := &watchedLog{Memory: keyedlog.NewMemory()}
	c := storeFirst(t, log)
	mustRead(t, c)
	walks := log.walks
	for range 10 {
		mustRead(t, c)
	}
	mustUpdate(t, c, func(*ControlState) {})
	if log.walks != walks {
		t.Errorf("%d walks through the records although nothing had changed", log.walks-walks)
	}
	decoded := func() *MirrorEntry { return &c.(*logControl).last.state.Mirrors[0] }
	before, version := decoded(), mustRead(t, c).Version
	putRecords(t, log.Memory, map[string][]byte{"\x00\x01of a store": []byte("x")})
	s := mustRead(t, c)
	if decoded() != before || s.Version != version {
		t.Errorf("a change of other records: decoded again %v, version %d after %d", decoded() != before, s.Version, version)
	}
	mustUpdate(t, NewControl(log.Memory.Again()), func(s *ControlState) { s.Remove("b") })
	after := mustRead(t, c)
	if _, there := after.Topic("b"); there || after.Version <= s.Version {
		t.Errorf("another process removed the topic; version %d after %d", after.Version, s.Version)
	}
	mustUpdate(t, NewControl(log.Memory.Again()), func(s *ControlState) { s.Topics, s.Provenance = nil, nil })
	if s := mustRead(t, c); len(s.Topics) != 0 || len(s.Provenance) != 0 || len(s.Mirrors) != 2 {
		t.Errorf("%+v", s)
	}
}

func TestControlHistory(t *testing.T) {
	c := NewMemoryControl()
	ctx := context.Background()
	if h, err := c.History(ctx); err != nil || len(h) != 0 {
		t.Errorf("at first %v, %v", h, err)
	}
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("a", "m")) })
	changed := c.Changed()
	mustUpdate(t, c, func(s *ControlState) {
		s.Note = &HistoryEntry{Number: 99, Verb: "stop", Reason: "bad \xff bytes", Topics: []string{"a\xff"}}
	})
	if !isClosed(changed) || mustRead(t, c).Note != nil {
		t.Error("a note alone is no change, or Read returns it")
	}
	no := errors.New("no")
	if err := c.Update(ctx, func(s *ControlState) error { s.Note = &HistoryEntry{Verb: "x"}; return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("b", "m")) })
	h, err := c.History(ctx)
	if want := []HistoryEntry{{Number: 1, Verb: "stop", Reason: "bad \ufffd bytes", Topics: []string{"a\ufffd"}}}; err != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("%+v, %v, want %+v", h, err, want)
	}
}

func TestControlHistoryIsBounded(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	for i := range HistoryLimit + 5 {
		mustUpdate(t, c, func(s *ControlState) { s.Note = &HistoryEntry{Detail: fmt.Sprint(i + 1)} })
	}
	check := func(first, last int64) {
		t.Helper()
		h, err := c.History(context.Background())
		if err != nil || int64(len(h)) != last-first+1 || h[0].Number != first || h[len(h)-1].Number != last {
			t.Fatalf("%d entries, %v", len(h), err)
		}
		for _, e := range h {
			if e.Detail != fmt.Sprint(e.Number) {
				t.Fatalf("%+v", e)
			}
		}
	}
	check(6, HistoryLimit+5)
	// Entries that were more than the limit, as another version may have kept them, go in one step.
	many := map[string][]byte{}
	for n := range uint64(3) {
		many[string(binary.BigEndian.AppendUint64(appendControlType(nil, historyRecord), n+3))] = []byte(`{"version":1}`)
	}
	putRecords(t, log, many)
	mustUpdate(t, c, func(s *ControlState) { s.Note = &HistoryEntry{Detail: fmt.Sprint(HistoryLimit + 6)} })
	check(7, HistoryLimit+6)
}

// TestHistoryKeepsWeightyEntries: whoever may only pause, or a pattern that is followed without end, does not wash out who stopped.
func TestHistoryKeepsWeightyEntries(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	note := func(verb string) {
		mustUpdate(t, c, func(s *ControlState) { s.Note = &HistoryEntry{Verb: verb} })
	}
	newer := binary.BigEndian.AppendUint64(appendControlType(nil, historyRecord), 1)
	putRecords(t, log, map[string][]byte{string(newer): []byte(`{"version":9,"verb":{}}`)})
	for _, verb := range []string{"create", "stop", "start", "alter", "delete"} {
		note(verb)
	}
	for i := range HistoryLimit + 10 {
		note([]string{"pause", "resume", "recover", "follow patterns"}[i%4])
	}
	numbers := func() (all []int64) {
		err := log.Read(context.Background(), func(v keyedlog.View) error {
			all = nil
			return v.Each(appendControlType(nil, historyRecord), func(r keyedlog.Record) error {
				k, _, err := decodeControlKey(r.Key)
				all = append(all, k.number)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := numbers()
	if len(all) != HistoryLimit || !slices.Equal(all[:7], []int64{1, 2, 3, 4, 5, 6, 23}) || all[len(all)-1] != HistoryLimit+16 {
		t.Errorf("%d entries, %v … %d", len(all), all[:8], all[len(all)-1])
	}
	// Weighty ones are bounded too, and leave room for others.
	for range HistoryLimit + 7 {
		note("stop")
	}
	for range HistoryLimit {
		note("pause")
	}
	all = numbers()
	if weighty := HistoryLimit + 16 + HistoryLimit + 7; len(all) != HistoryLimit || all[0] != int64(weighty-keptWeighty+1) || all[keptWeighty-1] != int64(weighty) {
		t.Errorf("%d entries, %d … %d", len(all), all[0], all[keptWeighty-1])
	}
}

func TestControlUpdatesOfManyProcessesAreAllKept(t *testing.T) {
	log := keyedlog.NewMemory()
	var all sync.WaitGroup
	for p := range 4 {
		c := NewControl(log.Again())
		for i := range 25 {
			all.Go(func() {
				topic := fmt.Sprintf("t-%d-%d", p, i)
				err := c.Update(context.Background(), func(s *ControlState) error {
					s.Set(wishOf(topic, "m"))
					s.Note = &HistoryEntry{Topics: []string{topic}}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if s, err := c.Read(context.Background()); err != nil {
					t.Error(err)
				} else if _, there := s.Topic(topic); !there {
					t.Errorf("%s is not there after its update", topic)
				}
			})
		}
	}
	all.Wait()
	c := NewControl(log)
	if s := mustRead(t, c); len(s.Topics) != 100 {
		t.Errorf("%d topics", len(s.Topics))
	}
	h, err := c.History(context.Background())
	if err != nil || len(h) != 100 || h[99].Number != 100 {
		t.Errorf("%d entries, %v", len(h), err)
	}
}

func TestControlSaysWhenItsLogIsClosed(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, err := c.Read(ctx)
	_, histErr := c.History(ctx)
	_, repErr := c.Reports(ctx)
	_, openErr := c.OpenReporter(ctx, "o")
	for i, err := range []error{err, c.Update(ctx, func(*ControlState) error { return nil }), histErr, repErr, openErr} {
		if !errors.Is(err, keyedlog.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// oddNames are names that hold separators of others (F-70), the longest topic name among them.
func oddNames() []string {
	return []string{"b-1", "b", "a.b", "a", "x.stopped", "x.paused", "x", "b.1", "b_1", "m:x", "m/x", "1", "12", strings.Repeat("x", 249), strings.Repeat("x", 248)}
}

// TestF70NamesRoundTripThroughControl: every topic in mirrors with odd names keeps its own wish, consents, origin and report.
func TestF70NamesRoundTripThroughControl(t *testing.T) {
	log := keyedlog.NewMemory()
	c := NewControl(log)
	mirrors := []string{"a", "a.b", "b-1", "a.stopped.x", strings.Repeat("m", 249)}
	ends := []string{"", ".paused", ".stopped"}
	var want ControlState
	var reports []PartitionReport
	for i, topic := range oddNames() {
		m := mirrors[i%len(mirrors)]
		want.Set(TopicWish{Topic: topic, MirrorName: m + ends[i%3], Recover: int64(i), Consents: []Consent{{Partition: int32(i), To: int64(i)}}})
		for j, m := range mirrors {
			want.SetOrigin(TopicOrigin{Mirror: m, Topic: topic, SourceClusterID: fmt.Sprintf("c-%d-%d", i, j)})
			for _, partition := range []int32{1, 2, 12, 0} {
				reports = append(reports, PartitionReport{Mirror: m, Topic: topic, Partition: partition, Owner: "o-1", SourceEnd: int64(len(reports))})
			}
		}
	}
	mustUpdate(t, c, func(s *ControlState) { *s = want.Clone() })
	r, err := c.OpenReporter(context.Background(), "o-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Report(context.Background(), NodeReport{Owner: "o-1", Mirror: "a"}, reports); err != nil {
		t.Fatal(err)
	}
	got := mustRead(t, NewControl(log.Again()))
	if !reflect.DeepEqual(got.Topics, want.Topics) || !reflect.DeepEqual(got.Origins, want.Origins) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	for _, w := range got.Topics {
		m, _, err := w.Wish()
		if err != nil || !slices.Contains(mirrors, m) {
			t.Errorf("topic %q is in mirror %q, %v", w.Topic, m, err)
		}
	}
	seen, err := c.Reports(context.Background())
	if err != nil || len(seen.Partitions) != len(reports) {
		t.Fatalf("%d reports of %d, %v", len(seen.Partitions), len(reports), err)
	}
	for _, p := range reports {
		if !slices.ContainsFunc(seen.Partitions, func(q PartitionReport) bool { return reflect.DeepEqual(p, q) }) {
			t.Errorf("the report of %s/%s-%d is lost", p.Mirror, p.Topic, p.Partition)
		}
	}
}

// TestF70AmbiguousMirrorNamesAreRefused: a mirror whose name ends like a wish cannot be stored in any place.
func TestF70AmbiguousMirrorNamesAreRefused(t *testing.T) {
	for _, name := range []string{"a.stopped", "a.paused", "a.removed", ".stopped"} {
		for what, change := range map[string]func(*ControlState){
			"created": func(s *ControlState) { s.SetMirror(MirrorEntry{Name: name}) },
			"started": func(s *ControlState) { s.Set(wishOf("t", name+".paused")) },
		} {
			if err := NewMemoryControl().Update(context.Background(), func(s *ControlState) error { change(s); return nil }); err == nil {
				t.Errorf("mirror %q is %s", name, what)
			}
		}
	}
}
