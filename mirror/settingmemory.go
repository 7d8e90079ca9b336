package mirror

import (
	"fmt"
	"maps"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// What metadata sync remembers of topics' settings is kept in the Control as Provenance, one entry for each topic (spec decision 17).

// settingProvenance is the kind of Provenance for settings; its name is the topic.
const settingProvenance = "config"

// settingMemoryVersion is the version of the values of that kind, "v" in JSON.
const settingMemoryVersion = 1

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

// encodeSettings makes the entry of the Control for one topic; nothing remembered is an entry without a value. Errors are encodeRemembered's.
func encodeSettings(mirror, topic string, settings map[string]metadatasync.Setting) (Provenance, error) {
	p := Provenance{Mirror: mirror, Kind: settingProvenance, Name: topic}
	if len(settings) == 0 {
		return p, nil
	}
	v := settingMemory{settingMemoryVersion, map[string]settingValue{}}
	for name, m := range settings {
		v.Settings[name] = settingValue(m)
	}
	p, err := encodeRemembered(p, v)
	if err != nil {
		err = fmt.Errorf("%w; settings are excluded with %s", err, propertiesExcludeSetting)
	}
	return p, err
}

// decodeSettings reads what encodeSettings made. Errors are decodeRemembered's.
func decodeSettings(p Provenance) (map[string]metadatasync.Setting, error) {
	var v settingMemory
	if err := decodeRemembered(p, settingMemoryVersion, &v); err != nil {
		return nil, err
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
