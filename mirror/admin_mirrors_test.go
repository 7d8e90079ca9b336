package mirror

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// adminOver is the Admin of a mirror with a source.
func (w *adminWorld) adminOver(t *testing.T, c Control, source *fakeSource, change ...func(*AdminConfig)) *Admin {
	t.Helper()
	cfg := AdminConfig{Mirror: "m", Control: c, States: w, Destination: w, Operator: Operator{Host: "h", User: "u", Client: "cli"}}
	if source != nil {
		cfg.OpenSource = source.open
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := NewAdmin(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.now = func() time.Time { return planTime }
	return a
}

func wantCode(t *testing.T, what string, err error, code Code, words ...string) {
	t.Helper()
	if codeOf(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
		return
	}
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v lacks %q", what, err, word)
		}
	}
}

func entryOf(t *testing.T, c Control) (MirrorEntry, bool) {
	t.Helper()
	s := mustRead(t, c)
	return s.Mirror("m")
}

func TestSpec1_1CreateKeepsTheSettingsAndTheSourcesID(t *testing.T) {
	w, c, source := &adminWorld{}, NewMemoryControl(), &fakeSource{id: "there"}
	settings := Settings{bootstrapSetting: "a:9092", "topics.include": "orders.*", "sasl.jaas.config": `x.PlainLoginModule required username="u" password="${env:SECRET}";`}
	r, err := w.adminOver(t, c, source).Create(bg, settings, CreateOptions{Intent: Intent{Reason: "move"}})
	if err != nil || source.closed != 1 {
		t.Fatalf("%v %v, source closed %d times", r, err, source.closed)
	}
	settings[bootstrapSetting] = "changed:1"
	got, ok := entryOf(t, c)
	want := MirrorEntry{Name: "m", SourceClusterID: "there", Created: planTime, Settings: Settings{bootstrapSetting: "a:9092", topicsIncludeSetting: "orders.*",
		"sasl.jaas.config": `x.PlainLoginModule required username="u" password="${env:SECRET}";`}}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("entry %+v, want %+v", got, want)
	}
	if r.Clusters != (Clusters{SourceID: "there", SourceBootstrap: "a:9092", DestinationID: "here"}) {
		t.Errorf("clusters %+v", r.Clusters)
	}
	history, err := w.admin(t, c).History(bg)
	if err != nil || len(history) != 1 || history[0].Verb != "create" || history[0].Reason != "move" || history[0].Who.User == "" || history[0].Plan != r.Plan || strings.Contains(history[0].Detail, "SECRET") {
		t.Errorf("history %+v %v", history, err)
	}
}

func TestSpec1_1CreateRefusesInTheOrderOfTheSpec(t *testing.T) {
	for _, tc := range []struct {
		what     string
		exists   bool
		settings Settings
		code     Code
		words    []string
	}{
		{"exists, and the settings are bad", true, Settings{"no.such": "1"}, ClusterMirrorAlreadyExists, nil},
		{"unknown setting", false, Settings{"mirror.topics.includes": "a", bootstrapSetting: "a:9092"}, InvalidConfig, []string{"mirror.topics.include"}},
		{"two faults", false, Settings{"no.such": "1", bootstrapSetting: "a"}, InvalidConfig, []string{"no.such", "host:port"}},
		{"node setting", false, Settings{"mirror.num.replica.fetchers": "2", bootstrapSetting: "a:9092"}, InvalidConfig, nil},
		{"bad value", false, Settings{bootstrapSetting: "a:9092", "security.protocol": "TLS"}, InvalidConfig, nil},
		{"bad pattern", false, Settings{bootstrapSetting: "a:9092", topicsIncludeSetting: "a("}, InvalidConfig, []string{"a("}},
		{"no bootstrap", false, Settings{}, InvalidConfig, []string{bootstrapSetting}},
		{"nil", false, nil, InvalidConfig, []string{bootstrapSetting}},
		{"literal secret", false, Settings{bootstrapSetting: "a:9092", "ssl.key.password": "hunter2"}, InvalidConfig, []string{"ssl.key.password"}},
	} {
		w, c := &adminWorld{}, NewMemoryControl()
		if tc.exists {
			c = controlWith(t)
		}
		before := mustRead(t, c)
		r, err := w.adminOver(t, c, &fakeSource{id: "there"}).Create(bg, tc.settings, CreateOptions{})
		wantCode(t, tc.what, err, tc.code, tc.words...)
		if !reflect.DeepEqual(mustRead(t, c), before) || strings.Contains(fmt.Sprint(r, err), "hunter2") {
			t.Errorf("%s: %v %v", tc.what, r, err)
		}
	}
	w, c := &adminWorld{}, NewMemoryControl()
	a := w.adminOver(t, c, nil)
	if _, err := a.Create(bg, Settings{bootstrapSetting: "a:9092"}, CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := a.Create(bg, Settings{bootstrapSetting: "a:9092"}, CreateOptions{})
	wantCode(t, "the second create", err, ClusterMirrorAlreadyExists)
}

func TestF33CreateRefusesTheDestinationAsItsOwnSource(t *testing.T) {
	w, c := &adminWorld{}, NewMemoryControl()
	_, err := w.adminOver(t, c, &fakeSource{id: "here"}).Create(bg, Settings{bootstrapSetting: "alias:9092"}, CreateOptions{})
	wantCode(t, "self", err, InvalidRequest, "here", "itself")
	if _, there := entryOf(t, c); there {
		t.Error("the mirror was created")
	}
}

func TestF33StartRefusesTheDestinationAsItsOwnSource(t *testing.T) {
	w, c := &adminWorld{}, NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "here"}) })
	_, err := w.admin(t, c).Start(bg, []string{"t"}, StartOptions{})
	wantCode(t, "self", err, InvalidRequest, "here", "itself")
}

func TestF33CreateComparesTheSourceWithEveryPin(t *testing.T) {
	for what, change := range map[string]struct {
		settings Settings
		config   func(*AdminConfig)
		intent   Intent
		words    []string
	}{
		"setting":             {settings: Settings{sourceClusterIDSetting: "X"}, words: []string{"X", "there", sourceClusterIDSetting}},
		"config":              {config: func(c *AdminConfig) { c.SourceClusterID = "X" }, words: []string{"X", "there"}},
		"intent":              {intent: Intent{SourceClusterID: "X"}, words: []string{"X", "there"}},
		"destination setting": {settings: Settings{destinationClusterIDSetting: "Y"}, words: []string{"Y", "here", destinationClusterIDSetting}},
		"destination config":  {config: func(c *AdminConfig) { c.DestinationClusterID = "Y" }, words: []string{"Y", "here"}},
		"destination intent":  {intent: Intent{DestinationClusterID: "Y"}, words: []string{"Y", "here"}},
	} {
		w, c := &adminWorld{}, NewMemoryControl()
		settings := Settings{bootstrapSetting: "a:9092"}
		maps.Copy(settings, change.settings)
		var configs []func(*AdminConfig)
		if change.config != nil {
			configs = append(configs, change.config)
		}
		_, err := w.adminOver(t, c, &fakeSource{id: "there"}, configs...).Create(bg, settings, CreateOptions{Intent: change.intent})
		wantCode(t, what, err, InvalidRequest, change.words...)
		if v := mustRead(t, c).Version; v != 0 {
			t.Errorf("%s: something was written", what)
		}
	}
}

func TestSpec1_1CreateDoesWithoutASourceThatDoesNotAnswer(t *testing.T) {
	down := &SourceError{Code: SourceUnreachable, Operation: "metadata", Err: errDown}
	w, c := &adminWorld{}, NewMemoryControl()
	r, err := w.adminOver(t, c, &fakeSource{id: "there", err: down}).Create(bg, Settings{bootstrapSetting: "a:9092", sourceClusterIDSetting: "pinned"}, CreateOptions{})
	if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "down") {
		t.Fatalf("%v %v", r, err)
	}
	if e, _ := entryOf(t, c); e.SourceClusterID != "pinned" {
		t.Errorf("entry %+v: the pin is not kept", e)
	}
}

func TestDecision14CreateRefusesALoop(t *testing.T) {
	from := func(topic, id string, state statemachine.State, upstream ...string) SourceMirror {
		return SourceMirror{Mirror: "back", SourceClusterID: id, Partition: TopicPartition{topic, 1}, State: state, Upstream: upstream}
	}
	for what, tc := range map[string]struct {
		include string
		mirrors []SourceMirror
		code    Code
		note    string
	}{
		"a topic that is included":          {"orders.*", []SourceMirror{from("orders", "here", statemachine.Mirroring)}, InvalidRequest, ""},
		"by way of a third cluster":         {"orders.*", []SourceMirror{from("orders", "third", statemachine.Mirroring, "fourth", "here")}, InvalidRequest, ""},
		"stopped there":                     {"orders.*", []SourceMirror{from("orders", "here", statemachine.Stopped)}, OK, ""},
		"another topic":                     {"clicks", []SourceMirror{from("orders", "here", statemachine.Mirroring)}, OK, "orders"},
		"nothing is included":               {"", []SourceMirror{from("orders", "here", statemachine.Failed)}, OK, "orders"},
		"from another cluster":              {"orders", []SourceMirror{from("orders", "third", statemachine.Mirroring)}, OK, ""},
		"from another cluster, by a fourth": {"orders", []SourceMirror{from("orders", "third", statemachine.Mirroring, "fourth")}, OK, ""},
	} {
		w, c := &adminWorld{}, NewMemoryControl()
		source := &fakeSource{id: "there", topics: []string{"orders", "clicks"}, mirrors: tc.mirrors}
		r, err := w.adminOver(t, c, source).Create(bg, Settings{bootstrapSetting: "a:9092", topicsIncludeSetting: tc.include}, CreateOptions{})
		wantCode(t, what, err, tc.code)
		if _, there := entryOf(t, c); there != (tc.code == OK) {
			t.Errorf("%s: exists %v", what, there)
		}
		if notes := strings.Join(r.Notes, "\n"); tc.code == OK && (tc.note == "") != (notes == "") || !strings.Contains(notes, tc.note) {
			t.Errorf("%s: notes %q", what, notes)
		}
		if tc.code != OK && !strings.Contains(err.Error(), "orders") {
			t.Errorf("%s: %v does not name the topic", what, err)
		}
	}
}

func TestSpec1_4Delete(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("a", "m.stopped"), wishOf("b", "m.stopped"), wishOf("o", "other"))
	w.has("m", "a", statemachine.Stopped, statemachine.Stopped)
	w.has("m", "b", statemachine.Stopped)
	mustUpdate(t, c, func(s *ControlState) {
		s.SetOrigin(TopicOrigin{Mirror: "m", Topic: "a", SourceClusterID: "there"})
		s.SetOrigin(TopicOrigin{Mirror: "other", Topic: "o", SourceClusterID: "there"})
		s.Provenance = []Provenance{{Mirror: "m", Kind: "acl", Name: "x", Value: "1"}, {Mirror: "other", Kind: "acl", Name: "x", Value: "1"}}
	})
	a := w.adminOver(t, c, nil)
	r, err := a.Delete(bg, DeleteOptions{Purge: true, Intent: Intent{Reason: "done"}})
	if err != nil || len(r.Topics) != 2 || !r.Topics[0].Changed || r.Topics[0].Topic != "a" {
		t.Fatalf("%v %v", r, err)
	}
	s := mustRead(t, c)
	if _, there := s.Mirror("m"); there || len(s.Topics) != 1 || len(s.Origins) != 1 || s.Origins[0].Mirror != "other" || len(s.Provenance) != 1 || s.Provenance[0].Mirror != "other" {
		t.Errorf("left: %+v", s)
	}
	if d, ok := s.DeletedMirror("m"); !ok || !d.Purge || !d.At.Equal(planTime) {
		t.Errorf("deleted %+v %v", d, ok)
	}
	_, err = a.Delete(bg, DeleteOptions{})
	wantCode(t, "the second delete", err, UnknownClusterMirror, "2026-03-14")
	history, err := a.History(bg)
	if err != nil || len(history) != 1 || history[0].Verb != "delete" || history[0].Detail != "purge" || !slices.Equal(history[0].Topics, []string{"a", "b"}) {
		t.Errorf("history %+v %v", history, err)
	}
	// The name is free again.
	if r, err := a.Create(bg, Settings{bootstrapSetting: "a:9092"}, CreateOptions{}); err != nil || len(r.Notes) != 1 {
		t.Errorf("create again: %v %v", r, err)
	}
	s = mustRead(t, c)
	if _, ok := s.DeletedMirror("m"); ok {
		t.Errorf("still deleted: %+v", s.Deleted)
	}
}

func TestSpec1_4DeleteRefusesInTheOrderOfTheSpec(t *testing.T) {
	for _, desired := range []string{"m", "m.paused", "m.stopped"} {
		for _, state := range everyState {
			w, c := &adminWorld{}, controlWith(t, wishOf("t", desired))
			w.has("m", "t", statemachine.Stopped, state)
			code := OK
			switch {
			case state != statemachine.Stopped:
				code = InvalidClusterMirrorState // before the desired state
			case desired != "m.stopped":
				code = ClusterMirrorNotEmpty
			}
			before := mustRead(t, c)
			_, err := w.admin(t, c).Delete(bg, DeleteOptions{})
			wantCode(t, desired+" "+state.String(), err, code)
			if same := reflect.DeepEqual(mustRead(t, c), before); same != (code != OK) {
				t.Errorf("%s %s: %v, unchanged %v", desired, state, err, same)
			}
		}
	}
	w := &adminWorld{}
	_, err := w.admin(t, NewMemoryControl()).Delete(bg, DeleteOptions{})
	wantCode(t, "no mirror", err, UnknownClusterMirror, "List")
	// A topic that nobody ever took up has nothing to open; one that cannot be looked up may have.
	c := controlWith(t, wishOf("never", "m.stopped"))
	if _, err := w.admin(t, c).Delete(bg, DeleteOptions{DryRun: true}); err != nil {
		t.Errorf("a topic that does not exist: %v", err)
	}
	w.broken = errDown
	_, err = w.admin(t, c).Delete(bg, DeleteOptions{})
	wantCode(t, "destination down", err, InvalidClusterMirrorState)
}

func TestSpec1_5AlterConfig(t *testing.T) {
	for _, tc := range []struct {
		what  string
		set   Settings
		unset []string
		code  Code
		after Settings
		words []string // of the result or the error
	}{
		{"nothing", nil, nil, InvalidRequest, nil, nil},
		{"unknown key beside a good one", Settings{"no.such": "1", topicsIncludeSetting: "a"}, nil, InvalidConfig, nil, []string{"no.such"}},
		{"unknown key to unset", nil, []string{"no.such"}, InvalidConfig, nil, []string{"no.such"}},
		{"required", nil, []string{bootstrapSetting}, InvalidConfig, nil, []string{bootstrapSetting}},
		{"pattern", Settings{topicsIncludeSetting: "a("}, nil, InvalidRegularExpression, nil, []string{"a("}},
		{"pattern and unknown key", Settings{topicsIncludeSetting: "a(", "no.such": "1"}, nil, InvalidConfig, nil, nil},
		{"set and unset", Settings{topicsIncludeSetting: "a"}, []string{"topics.include"}, InvalidRequest, nil, nil},
		{"secret", Settings{"ssl.key.password": "hunter2"}, nil, InvalidConfig, nil, nil},
		{"another source", Settings{sourceClusterIDSetting: "X"}, nil, InvalidRequest, nil, []string{"X", "there"}},
		{"another destination", Settings{destinationClusterIDSetting: "Y"}, nil, InvalidRequest, nil, []string{"Y", "here"}},
		{"filter", Settings{topicsExcludeSetting: "t.*,__.*"}, nil, OK,
			Settings{bootstrapSetting: "a:9092", "client.id": "x", topicsExcludeSetting: "t.*,__.*"}, []string{"\nt1: excluded now: stop recorded"}},
		{"connection", Settings{"client.id": "y"}, nil, OK, Settings{bootstrapSetting: "a:9092", "client.id": "y"}, []string{"anew"}},
		{"alias", Settings{"topics.include": "a"}, []string{"client.id"}, OK, Settings{bootstrapSetting: "a:9092", topicsIncludeSetting: "a"}, nil},
		{"the same", Settings{"client.id": "x"}, []string{topicsIncludeSetting}, OK, nil, []string{"already"}},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t1", "m"), wishOf("t2", "m.stopped"), wishOf("u", "m"))
		mustUpdate(t, c, func(s *ControlState) {
			s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092", "client.id": "x"}})
		})
		before := mustRead(t, c)
		r, err := w.admin(t, c).AlterConfig(bg, tc.set, tc.unset, AlterConfigOptions{})
		wantCode(t, tc.what, err, tc.code)
		after := mustRead(t, c)
		if tc.after == nil {
			if !reflect.DeepEqual(after, before) {
				t.Errorf("%s: something was applied: %+v", tc.what, after)
			}
		} else if e, _ := after.Mirror("m"); !reflect.DeepEqual(e.Settings, tc.after) || len(after.Topics) != 3 {
			t.Errorf("%s: settings %v", tc.what, e.Settings)
		}
		said := fmt.Sprint(r, err)
		for _, word := range tc.words {
			if !strings.Contains(said, word) {
				t.Errorf("%s: %s lacks %q", tc.what, said, word)
			}
		}
		if strings.Contains(said, "hunter2") {
			t.Errorf("%s: a secret is shown", tc.what)
		}
	}
	_, err := (&adminWorld{}).admin(t, NewMemoryControl()).AlterConfig(bg, Settings{"no.such": "1"}, nil, AlterConfigOptions{})
	wantCode(t, "no mirror", err, UnknownClusterMirror)
}

// TestAlterConfigSaysWhatItChanges: each setting with what it was and is, in the result and in the history, and what comes of it besides.
func TestAlterConfigSaysWhatItChanges(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("orders", "m"), wishOf("done", "m.stopped"))
	long := strings.Repeat("x", 2000)
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092", "ssl.key.password": "${env:OLD_KEY}", "client.id": "x", groupsExcludeSetting: "back"}})
	})
	at := map[TopicPartition]partitionMemory{{"orders", 0}: {Here: 7}, {"orders", 1}: {Here: Unknown}, {"orders", 2}: {Here: 9}}
	remember(t, c, "m", groupMemory{Group: "billing", Partitions: at}, groupMemory{Group: "back", Partitions: at}, groupMemory{Group: "stays", Partitions: at}, groupMemory{Group: "bare", Kind: ShareGroup})
	a := w.adminOver(t, c, &fakeSource{id: "there", topics: []string{"orders", "news", "done", "__own"}})
	set := Settings{topicsExcludeSetting: "ord.*", topicsIncludeSetting: ".*", groupsExcludeSetting: "b(illing|are)", "ssl.key.password": "${env:NEW_KEY}", "mirror.topic.set.s": long}
	changes := []string{
		"client.id: x → (none)", "mirror.groups.exclude: back → b(illing|are)", "mirror.topic.set.s: (none) → " + long, "mirror.topics.exclude: (default __.*) → ord.*",
		"mirror.topics.include: (none) → .*", "ssl.key.password: [hidden] → [hidden]",
	}
	for _, dry := range []bool{true, false} {
		r, err := a.AlterConfig(bg, set, []string{"client.id"}, AlterConfigOptions{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		text := r.String()
		done, opens := "recorded: ", "orders: excluded now: stop recorded, not open yet; watch Describe until STOPPED\n"
		if dry {
			done, opens = "would be recorded: ", "orders: excluded now: would be stopped, that is opened for clients\n"
		}
		for _, want := range append([]string{
			"\n" + opens, "\nnote: the mirror finds at its next refresh, and starts: news\n", "note: mirror.topics.exclude loses its default __.*: ",
			"\nnote: not followed any more, and its offset at the destination stays where it is: share group bare (no offset there is known), billing (orders-0 at 7, orders-2 at 9)\n",
			"\nnote: followed again: back (orders-0 at 7, orders-2 at 9)\n",
		}, changes...) {
			if strings.Contains(want, " → ") {
				want = "\n" + done + want + "\n"
			}
			if !strings.Contains(text, want) {
				t.Errorf("dry run %v: lacks %q:\n%s", dry, want, text)
			}
		}
		if strings.Contains(text, "_KEY") || strings.Contains(text, "stays (") || len(r.Settings) != len(changes) {
			t.Errorf("dry run %v:\n%s", dry, text)
		}
	}
	history, err := a.History(bg)
	if err != nil || len(history) != 1 {
		t.Fatalf("%+v %v", history, err)
	}
	changes[2] = "mirror.topic.set.s: (none) → " + long[:300] + "…"
	if want := strings.Join(changes, "; "); history[0].Detail != want {
		t.Errorf("the history has\n%s\nwant\n%s", history[0].Detail, want)
	}
	// Patterns of a start change settings too.
	r, err := a.Start(bg, nil, StartOptions{Include: []string{"future.*"}})
	if want := []SettingChange{{topicsIncludeSetting, ".*", ".*,future.*"}}; err != nil || !slices.Equal(r.Settings, want) {
		t.Errorf("start: %v %v, want %v", r.Settings, err, want)
	}
	// A filter that is put back takes the default in again, and a source that does not answer is told of.
	a = w.adminOver(t, c, &fakeSource{id: "there", err: errDown})
	r, err = a.AlterConfig(bg, nil, []string{topicsExcludeSetting}, AlterConfigOptions{DryRun: true})
	if err != nil || !strings.Contains(r.String(), "mirror.topics.exclude: ord.* → (default __.*)\n") || strings.Contains(r.String(), "loses") || !strings.Contains(r.String(), "was not seen: down") {
		t.Errorf("%v\n%s", err, r)
	}
}

// TestSpec1_5APinThatIsWrongCanBeMended: the settings that a verb is compared with are those that it makes.
func TestSpec1_5APinThatIsWrongCanBeMended(t *testing.T) {
	w, c := &adminWorld{}, NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092", sourceClusterIDSetting: "typo"}})
	})
	a := w.admin(t, c)
	_, err := a.Start(bg, []string{"t"}, StartOptions{})
	wantCode(t, "start", err, InvalidRequest, "typo", "there")
	if _, err := a.AlterConfig(bg, Settings{sourceClusterIDSetting: "there"}, nil, AlterConfigOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Start(bg, []string{"t"}, StartOptions{}); err != nil {
		t.Error(err)
	}
}

// An address, or a credential, that leads to another cluster is refused before anything is recorded; nobody there is a warning, as the process that runs the mirror compares too (F-33).
func TestAlterConfigOfTheConnectionAsksWhoAnswers(t *testing.T) {
	for what, tc := range map[string]struct {
		pinned, answers string
		err             error
		set             Settings
		code            Code
		words, warning  string
	}{
		"the same":               {"there", "there", nil, Settings{bootstrapSetting: "b:9092"}, OK, "", ""},
		"another":                {"there", "elsewhere", nil, Settings{bootstrapSetting: "b:9092"}, InvalidConfig, "b:9092 leads to cluster elsewhere, and the source of this mirror is cluster there", ""},
		"nobody":                 {"there", "", errDown, Settings{bootstrapSetting: "b:9092"}, OK, "", "the source, cluster there, was not compared: nobody answers there (" + errDown.Error() + ")"},
		"not known yet":          {"", "elsewhere", nil, Settings{bootstrapSetting: "b:9092"}, OK, "", ""},
		"nobody, not known yet":  {"", "", errDown, Settings{bootstrapSetting: "b:9092"}, OK, "", ""},
		"pinned by the settings": {"", "elsewhere", nil, Settings{bootstrapSetting: "b:9092", sourceClusterIDSetting: "there"}, InvalidConfig, "leads to cluster elsewhere", ""},
		"no connection setting":  {"there", "elsewhere", nil, Settings{topicsExcludeSetting: "t"}, OK, "", ""},
	} {
		for _, dry := range []bool{true, false} {
			c := controlWith(t)
			mustUpdate(t, c, func(s *ControlState) {
				s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: tc.pinned, Settings: Settings{bootstrapSetting: "a:9092"}})
			})
			source := &fakeSource{id: tc.answers, err: tc.err}
			r, err := (&adminWorld{}).adminOver(t, c, source).AlterConfig(bg, tc.set, nil, AlterConfigOptions{DryRun: dry})
			if tc.code != OK || err != nil {
				wantCode(t, what, err, tc.code, tc.words)
			}
			if got := strings.Join(r.Warnings, "\n"); !strings.HasPrefix(got, tc.warning) || tc.warning == "" && got != "" {
				t.Errorf("%s: warnings %q", what, got)
			}
			if entry, _ := entryOf(t, c); tc.code != OK && entry.Settings[bootstrapSetting] != "a:9092" || tc.code == OK && !dry && len(r.Settings) == 0 {
				t.Errorf("%s: %v is recorded, %+v", what, entry.Settings, r)
			}
			if tc.set[bootstrapSetting] != "" && tc.err == nil && source.closed != 1 {
				t.Errorf("%s: the source was closed %d times", what, source.closed)
			}
		}
	}
}

func TestSpec1_2ListNamesTopicsThatAreNotStopped(t *testing.T) {
	c := controlWith(t, wishOf("a", "m"), wishOf("b", "m.paused"), wishOf("c", "m.stopped"), wishOf("d", "other.stopped"))
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092"}})
	})
	a := (&adminWorld{}).admin(t, c)
	got, err := a.List(bg, ListOptions{TopicNames: true})
	want := []ListedMirror{
		{Name: "m", SourceBootstrap: "a:9092", SourceClusterID: "there", TopicCount: 2, Stopped: 1, TopicNames: []string{"a", "b"}},
		{Name: "other", Stopped: 1, TopicNames: []string{}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = a.List(bg, ListOptions{}); err != nil || got[0].TopicNames != nil || got[0].TopicCount != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := (&adminWorld{}).admin(t, &deafControl{Control: c, down: true}).List(bg, ListOptions{}); !errors.Is(err, errDown) {
		t.Errorf("control down: %v", err)
	}
}

// TestDeleteAsksTheStateStoreForEveryPartition: with the mirror goes whoever would open what only the store knows of.
func TestDeleteAsksTheStateStoreForEveryPartition(t *testing.T) {
	nobody := func(c *AdminConfig) { c.Destination = nil }
	for what, tc := range map[string]struct {
		states []statemachine.State
		change func(*AdminConfig)
		words  []string // of the refusal; none: it is deleted
	}{
		"stopping and failed, no destination": {[]statemachine.State{statemachine.Stopping, statemachine.Failed, statemachine.Stopped}, nobody, []string{"partition 0 (STOPPING)", "partition 1 (FAILED)", adminTopicID("t").String()}},
		"stopped, no destination":             {[]statemachine.State{statemachine.Stopped, statemachine.Unknown}, nobody, nil},
		"of another topic":                    {[]statemachine.State{statemachine.Mirroring}, func(c *AdminConfig) { c.Destination = &adminWorld{} }, []string{"partition 0 (MIRRORING)", "Abandon"}},
	} {
		w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.stopped"))
		w.has("m", "t", tc.states...)
		w.has("other", "x", statemachine.Mirroring)
		_, err := w.adminOver(t, c, nil, tc.change).Delete(bg, DeleteOptions{})
		_, there := entryOf(t, c)
		if len(tc.words) == 0 {
			if err != nil || there {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		wantCode(t, what, err, InvalidClusterMirrorState, tc.words...)
		if !there {
			t.Errorf("%s: deleted", what)
		}
	}

	// The destination says which topics there are: what is left of a deleted one is let go of only when that is asked for, what is left of a living one never.
	w, c := &adminWorld{}, controlWith(t, wishOf("t", "m.stopped"))
	w.has("m", "old", statemachine.Failed)
	w.has("m", "t", statemachine.Stopped)
	delete(w.topics, "old")
	_, err := w.adminOver(t, c, nil, nobody).Delete(bg, DeleteOptions{Abandon: true})
	wantCode(t, "nobody knows what there is", err, InvalidClusterMirrorState, "partition 0 (FAILED)")
	_, err = w.adminOver(t, c, nil).Delete(bg, DeleteOptions{})
	wantCode(t, "not asked for", err, InvalidClusterMirrorState, "partition 0 (FAILED)")
	w.topics["t"] = Topic{Name: "t", ID: adminTopicID("old"), Partitions: 0}
	_, err = w.adminOver(t, c, nil).Delete(bg, DeleteOptions{Abandon: true})
	wantCode(t, "it is a topic of this mirror", err, InvalidClusterMirrorState, "t partition 0 (FAILED)")
	w.has("m", "t", statemachine.Stopped)
	a := w.adminOver(t, c, nil)
	r, err := a.Delete(bg, DeleteOptions{Abandon: true})
	if _, there := entryOf(t, c); err != nil || there || !strings.Contains(strings.Join(r.Notes, "\n"), "partition 0 (FAILED)") {
		t.Errorf("%v %v", r, err)
	}
	if history, err := a.History(bg); err != nil || len(history) != 1 || !strings.Contains(history[0].Detail, "abandoned topic id "+adminTopicID("old").String()) {
		t.Errorf("%v %v", history, err)
	}
}
