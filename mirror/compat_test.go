package mirror_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
)

// What version 1 stored is read for ever: these files are never written anew.

func stored(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "compat", "v1", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStoredPlansOfVersion1AreRead(t *testing.T) {
	var failover mirror.FailoverPlan
	if err := json.Unmarshal(stored(t, "failover-plan.json"), &failover); err != nil {
		t.Fatal(err)
	}
	again, err := failover.JSON()
	if err != nil || string(again) != string(stored(t, "failover-plan.json")) {
		t.Errorf("%v\n%s", err, again)
	}
	var failback mirror.FailbackPlan
	if err := json.Unmarshal(stored(t, "failback-plan.json"), &failback); err != nil {
		t.Fatal(err)
	}
	again, err = failback.JSON()
	if err != nil || string(again) != string(stored(t, "failback-plan.json")) {
		t.Errorf("%v\n%s", err, again)
	}
	if c := failback.Consents(); len(c) == 0 {
		t.Error("the failback's consents are gone")
	}
}

func TestStoredSinkFileOfVersion1IsRead(t *testing.T) {
	f, err := mirror.ReadSinkFile(filepath.Join("testdata", "compat", "v1", "sink", "orders", "3", "00000000000000000100.00000000000000000103.0.log"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Topic != "orders" || f.Partition != 3 || f.From != 100 || f.To != 103 {
		t.Errorf("%+v", f)
	}
}

func TestAPlanOfAnotherFormIsRefusedByName(t *testing.T) {
	good := string(stored(t, "failover-plan.json"))
	for words, bad := range map[string]string{
		"a newer version wrote this plan (form 2, this one knows 1)": strings.Replace(good, `"version": 1`, `"version": 2`, 1),
		"it has no version":    strings.Replace(good, `"version": 1,`, "", 1),
		`unknown field "also"`: strings.Replace(good, `"version": 1,`, `"version": 1, "also": true,`, 1),
		"this is no plan":      "[]",
	} {
		var failover mirror.FailoverPlan
		var failback mirror.FailbackPlan
		err := json.Unmarshal([]byte(bad), &failover)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("failover, want %q: %v", words, err)
		}
		if err := json.Unmarshal([]byte(bad), &failback); err == nil {
			t.Errorf("failback, want %q", words)
		}
	}
}
