package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// What metadata sync remembers of topics' settings is kept in the Control as Provenance, one entry for each topic (spec decision 17).

// settingProvenance is the kind of Provenance for settings; its name is the topic.
const settingProvenance = "config"

// settingMemoryVersion is the version of the values of that kind, "v" in JSON.
const settingMemoryVersion = 1

// maxSettingMemory is how many bytes a value may have, escaped as it is in its record: a cluster takes messages of 1 MiB unless it is told otherwise.
const maxSettingMemory = 1<<20 - 4096

type (
	// settingMemory is what is remembered of one topic's settings, as it is stored.
	settingMemory struct {
		Version  int                     `json:"v"`
		Settings map[string]settingValue `json:"settings,omitempty"`
	}
	// settingValue is metadatasync.Setting.
	settingValue struct {
		Set    string  `json:"set"`
		Was    *string `json:"was,omitempty"`
		Before *string `json:"before,omitempty"`
	}
)

// encodeSettings makes the entry of the Control for one topic; nothing remembered is an entry without a value. The same settings always give the same text. Error: more than a record takes.
func encodeSettings(mirror, topic string, settings map[string]metadatasync.Setting) (Provenance, error) {
	p := Provenance{Mirror: mirror, Kind: settingProvenance, Name: topic}
	if len(settings) == 0 {
		return p, nil
	}
	v := settingMemory{settingMemoryVersion, map[string]settingValue{}}
	for name, m := range settings {
		v.Settings[name] = settingValue(m)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return p, unreadableProvenance(p, fmt.Errorf("cannot be stored: %w", err))
	}
	p.Value = strings.TrimSuffix(b.String(), "\n")
	if size := len(p.Value) + strings.Count(p.Value, `"`) + strings.Count(p.Value, `\`); size > maxSettingMemory {
		return p, unreadableProvenance(p, fmt.Errorf("it has %d bytes, and a record takes %d: exclude settings with %s", size, maxSettingMemory, propertiesExcludeSetting))
	}
	return p, nil
}

// decodeSettings reads what encodeSettings made, strictly: another version, or a field that this one does not know, is what a newer one wrote. Errors: *ControlRecordError; errors.Is finds
// ErrNewerRecord.
func decodeSettings(p Provenance) (map[string]metadatasync.Setting, error) {
	var form struct {
		Version int `json:"v"`
	}
	switch err := json.Unmarshal([]byte(p.Value), &form); {
	case err != nil:
		return nil, unreadableProvenance(p, fmt.Errorf("the value is no JSON object with a version: %w", err))
	case form.Version < 1:
		return nil, unreadableProvenance(p, errors.New("the value names no version that ever was; nobody of this program wrote it"))
	case form.Version > settingMemoryVersion:
		return nil, unreadableProvenance(p, fmt.Errorf("its version is %d, the newest known one %d: %w", form.Version, settingMemoryVersion, ErrNewerRecord))
	}
	var v settingMemory
	d := json.NewDecoder(strings.NewReader(p.Value))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		if strings.Contains(err.Error(), "unknown field") {
			err = fmt.Errorf("%w: %w", err, ErrNewerRecord)
		}
		return nil, unreadableProvenance(p, err)
	}
	settings := make(map[string]metadatasync.Setting, len(v.Settings))
	for name, m := range v.Settings {
		settings[name] = metadatasync.Setting(m)
	}
	return settings, nil
}

func sameSettings(a, b map[string]metadatasync.Setting) bool {
	return maps.EqualFunc(a, b, metadatasync.Setting.Equal)
}
