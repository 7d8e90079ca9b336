package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestARepeatedPlanSucceeds: whoever is not sure that a stop was recorded uses it again, with the same plan. Another request, or something that is still to be done, has no use of
// it.
func TestARepeatedPlanSucceeds(t *testing.T) {
	w, c := &adminWorld{}, controlWith(t, wishOf("a", "m"), wishOf("b", "m"))
	w.has("m", "a", statemachine.Mirroring)
	w.has("m", "b", statemachine.Mirroring)
	a := w.admin(t, c)
	stop := func(plan string, topics ...string) (Result, error) {
		return a.Stop(bg, topics, StopOptions{Intent: Intent{Plan: plan}})
	}
	dry, err := a.Stop(bg, []string{"a"}, StopOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := stop(dry.Plan, "a"); err != nil || len(r.Topics) != 1 {
			t.Fatalf("%v %v", r, err)
		}
	}
	if history, err := a.History(bg); err != nil || len(history) != 1 {
		t.Errorf("%d entries, %v", len(history), err)
	}
	_, err = stop(dry.Plan, "a", "b")
	wantCode(t, "another request", err, InvalidRequest, "another request")
	mustUpdate(t, c, func(s *ControlState) { s.Set(wishOf("b", "m.stopped")) })
	_, err = stop(dry.Plan, "a", "b")
	wantCode(t, "another request, with nothing to do", err, InvalidRequest, "another request")
	w.broken = errDown
	mustUpdate(t, c, func(s *ControlState) { s.SetMirror(MirrorEntry{Name: "m", Created: planTime}) })
	_, err = stop(dry.Plan, "a")
	wantCode(t, "another place", err, InvalidRequest, "other clusters")
}

// TestSettingsThatNeverWorkAreRefused: what no network is needed to see is wrong is not recorded; a source that does not answer stops nobody.
func TestSettingsThatNeverWorkAreRefused(t *testing.T) {
	never := &Error{Code: InvalidConfig, Partition: -1, Message: "sasl.jaas.config is missing"}
	var opened error
	world := func(c Control) *Admin {
		w := &adminWorld{}
		return w.adminOver(t, c, nil, func(cfg *AdminConfig) {
			cfg.OpenSource = func(context.Context, Settings) (Source, error) { return &fakeSource{id: "there"}, opened }
		})
	}
	settings := Settings{"bootstrap.servers": "h:9092"}
	c := NewMemoryControl()
	opened = never
	_, err := world(c).Create(bg, settings, CreateOptions{})
	wantCode(t, "create", err, InvalidConfig, "sasl.jaas.config is missing", "nothing has changed")
	opened = errors.New("no answer")
	if r, err := world(c).Create(bg, settings, CreateOptions{}); err != nil || !strings.Contains(strings.Join(r.Notes, "\n"), "no answer") {
		t.Errorf("%v %v", r, err)
	}
	opened = never
	_, err = world(c).AlterConfig(bg, Settings{"security.protocol": "SASL_SSL"}, nil, AlterConfigOptions{})
	wantCode(t, "alter", err, InvalidConfig, "sasl.jaas.config is missing")
	if e, _ := entryOf(t, c); len(e.Settings) != 1 {
		t.Errorf("recorded: %v", e.Settings)
	}
	if _, err := world(c).AlterConfig(bg, Settings{"mirror.topics.include": "a"}, nil, AlterConfigOptions{}); err != nil {
		t.Errorf("a filter: %v", err)
	}
	opened = nil
	if _, err := world(c).AlterConfig(bg, Settings{"client.id": "x"}, nil, AlterConfigOptions{}); err != nil {
		t.Error(err)
	}
	// One word for one mistake.
	_, err = world(c).AlterConfig(bg, Settings{"ssl.key.pasword": "x"}, nil, AlterConfigOptions{})
	wantCode(t, "a mistyped secret", err, InvalidConfig, "ssl.key.password")
	if strings.Contains(err.Error(), "holds a secret") {
		t.Error(err)
	}
	_, err = world(c).AlterConfig(bg, Settings{"ssl.truststore.type": "JKS"}, nil, AlterConfigOptions{})
	wantCode(t, "a Java store", err, InvalidConfig, "keytool")
	_, err = world(c).AlterConfig(bg, Settings{stateReplicationSetting: "1"}, nil, AlterConfigOptions{})
	wantCode(t, "a node's setting", err, InvalidConfig, "--command-config")
}
