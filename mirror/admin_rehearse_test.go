package mirror

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// What the Control would refuse, a dry run refuses with the same words.
func TestDryRunRefusesWhatCannotBeRecorded(t *testing.T) {
	huge := strings.Repeat("x", controlRecordLimit)
	create := func(settings Settings) func(a *Admin, dry bool) (Result, error) {
		return func(a *Admin, dry bool) (Result, error) { return a.Create(bg, settings, CreateOptions{DryRun: dry}) }
	}
	alter := func(settings Settings) func(a *Admin, dry bool) (Result, error) {
		return func(a *Admin, dry bool) (Result, error) {
			return a.AlterConfig(bg, settings, nil, AlterConfigOptions{DryRun: dry})
		}
	}
	for what, tc := range map[string]struct {
		there  bool
		source string
		run    func(a *Admin, dry bool) (Result, error)
		code   Code // −1: not one of the codes
		words  string
	}{
		"a client id that is no text":      {false, "there", create(Settings{bootstrapSetting: "a:9092", "client.id": "\xff"}), InvalidConfig, "setting client.id: is not UTF-8"},
		"a pin that is no text":            {false, "there", create(Settings{bootstrapSetting: "a:9092", sourceClusterIDSetting: "\xff"}), InvalidConfig, "source.cluster.id: is not UTF-8"},
		"another pin that is no text":      {true, "there", alter(Settings{destinationClusterIDSetting: "\xff"}), InvalidConfig, "is not UTF-8"},
		"a secret that is no text":         {true, "there", alter(Settings{"ssl.key.password": "${env:\xff}"}), InvalidConfig, "is not UTF-8"},
		"a source whose name is no text":   {false, "\xff", create(Settings{bootstrapSetting: "a:9092"}), -1, "not UTF-8"},
		"settings without end":             {false, "there", create(Settings{bootstrapSetting: "a:9092", "client.id": huge}), InvalidRequest, `mirror "m" (record type 65)`},
		"settings without end, afterwards": {true, "there", alter(Settings{"client.id": huge}), InvalidRequest, "larger than 1000000 bytes"},
	} {
		log := keyedlog.NewMemory()
		w, c := &adminWorld{}, NewControl(log)
		if tc.there {
			mustUpdate(t, c, func(s *ControlState) {
				s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "there", Settings: Settings{bootstrapSetting: "a:9092"}})
			})
		}
		a := w.adminOver(t, c, &fakeSource{id: tc.source})
		before := dump(t, log)
		dry, dryErr := tc.run(a, true)
		real, realErr := tc.run(a, false)
		wantCode(t, what+", dry", dryErr, tc.code, tc.words)
		wantCode(t, what, realErr, tc.code, tc.words)
		if dry.DryRun = false; !reflect.DeepEqual(dry, real) || dryErr == nil || realErr == nil || dryErr.Error() != realErr.Error() {
			t.Errorf("%s:\ndry\n%v%v\nreal\n%v%v", what, dry, dryErr, real, realErr)
		}
		if !bytes.Equal(dump(t, log), before) {
			t.Errorf("%s: something was written", what)
		}
	}
}

// A name without end in the history, or a record without end that somebody has stored, holds up no failover.
func TestStopIsRecordedWhateverStandsBesideIt(t *testing.T) {
	log := keyedlog.NewMemory()
	w, c := &adminWorld{}, NewControl(log)
	mustUpdate(t, c, func(s *ControlState) {
		s.SetMirror(MirrorEntry{Name: "m"})
		s.Set(wishOf("t", "m"))
	})
	key, err := controlKey{recordType: mirrorRecord, names: []string{"other"}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	putRecords(t, log, map[string][]byte{string(key): []byte(`{"version":1,"settings":{"client.id":"` + strings.Repeat("x", 2*controlRecordLimit) + `"}}`)})
	w.has("m", "t", statemachine.Mirroring)
	name := strings.Repeat("ö\x01", 1<<20)
	a := w.adminOver(t, c, nil, func(cfg *AdminConfig) { cfg.Operator.Client = name })
	for what, reason := range map[string]string{"too long": strings.Repeat("ö", 1001), "two lines": "drill\n2026-01-01 stop by root", "a carriage return": "drill\rfake", "turned round": "a\u202eb",
		"a line separator": "a\u2028b", "an escape": "a\x1b[2K", "without end": strings.Repeat("x", 2<<20)} {
		for _, dry := range []bool{true, false} {
			_, err := a.Stop(bg, []string{"t"}, StopOptions{DryRun: dry, Intent: Intent{Reason: reason}})
			wantCode(t, what, err, InvalidRequest, "a reason ")
		}
	}
	reason := strings.Repeat("ö", 1000)
	dry, err := a.Stop(bg, []string{"t"}, StopOptions{DryRun: true, Intent: Intent{Reason: reason}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := a.Stop(bg, []string{"t"}, StopOptions{Intent: Intent{Reason: reason, Plan: dry.Plan}}); err != nil {
		t.Fatal(r, err)
	}
	history, err := a.History(bg)
	if err != nil || len(history) != 1 || history[0].Reason != reason || len(history[0].Who.Client) > historyText+8 || !strings.HasPrefix(history[0].Who.Client, "ö\x01ö") {
		t.Errorf("%v, %d entries", err, len(history))
	}
}

// The largest entry that can be made of texts fits.
func TestLargestEntryOfTheHistoryFits(t *testing.T) {
	text := strings.Repeat("\x01", 2*historyText)
	e := HistoryEntry{Verb: text, Mirror: text, Who: Operator{text, text, text}, Reason: text, Plan: text, Detail: text}
	for range historyTopics {
		e.Topics = append(e.Topics, strings.Repeat("t", 249))
	}
	c := NewMemoryControl()
	mustUpdate(t, c, func(s *ControlState) { s.Note = &e })
	if h, err := c.History(bg); err != nil || len(h) != 1 {
		t.Errorf("%v %d", err, len(h))
	}
	err := c.Update(context.Background(), func(s *ControlState) error {
		s.SetMirror(MirrorEntry{Name: "m", Settings: Settings{"client.id": strings.Repeat("x", controlRecordLimit)}})
		return nil
	})
	var wrong *ControlRecordError
	if !errors.As(err, &wrong) || !errors.Is(err, errRecordTooLarge) {
		t.Error(err)
	}
}
