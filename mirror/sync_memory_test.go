package mirror

import (
	"errors"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

func TestMissedRulesAreForgottenWithTheMirror(t *testing.T) {
	y := &ruleSync{}
	alice := ACL{Principal: "User:alice"}
	y.note(0, func() { y.missed, y.unsaved = []ACL{alice}, map[ACL]struct{}{alice: {}} })
	y.forget()
	if y.missed != nil || y.unsaved != nil {
		t.Errorf("missed %v, unsaved %v", y.missed, y.unsaved)
	}
	y.note(0, func() { y.missed = []ACL{alice} }) // of a look that began before
	if y.missed != nil {
		t.Errorf("missed %v", y.missed)
	}
}

func TestSettingsAreStoredInAFormOfTheirOwn(t *testing.T) {
	was, before := "1", "<2>"
	settings := map[string]metadatasync.Setting{"b": {Set: "3", Was: &was, Before: &before}, "a": {Set: "compact"}}
	p, err := encodeSettings("m", "t", settings)
	want := Provenance{Mirror: "m", Kind: "config", Name: "t", Value: `{"v":1,"settings":{"a":{"set":"compact"},"b":{"set":"3","was":"1","before":"<2>"}}}`}
	if err != nil || p != want {
		t.Fatalf("%+v, %v", p, err)
	}
	if back, err := decodeSettings(p); err != nil || !sameSettings(back, settings) {
		t.Errorf("%+v, %v", back, err)
	}
	if p, err := encodeSettings("m", "t", nil); err != nil || p.Value != "" {
		t.Errorf("nothing: %+v, %v", p, err)
	}
	for value, newer := range map[string]bool{
		`{"v":2}`: true, `{"v":1,"more":1}`: true, `{"v":1,"settings":{"a":{"set":"1","more":1}}}`: true, `{"v":0}`: false, `{}`: false, `x`: false, ``: false, `{"v":1,"settings":[]}`: false,
	} {
		p.Value = value
		if got, err := decodeSettings(p); !errors.As(err, new(*ControlRecordError)) || errors.Is(err, ErrNewerRecord) != newer || !strings.Contains(err.Error(), "config") {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
	settings["b"] = metadatasync.Setting{Set: strings.Repeat(`"`, maxRemembered/4)}
	if _, err := encodeSettings("m", "t", settings); err == nil || !strings.Contains(err.Error(), propertiesExcludeSetting) || strings.Contains(err.Error(), "group") {
		t.Errorf("too large: %v", err)
	}
}
