package mirror

import (
	"slices"

	"github.com/clustermirror/clustermirror/internal/secret"
)

// CheckStored refuses secrets in settings that are to be stored: whoever may read the topic of the desired state could read them. A password, a key and a secret inside a login line
// have to be references, which each process resolves when it connects. Certificates are not secret, and no user is in an address. Errors: a *SettingError for each, which never holds the value.
func (s Settings) CheckStored() error { return joinFaults(s.storedFaults()) }

func (s Settings) storedFaults() []*SettingError {
	var faults []*SettingError
	for name, value := range s {
		if f := addressFault(name, value); f != nil {
			faults = append(faults, f)
		}
		if !isSecretSetting(name) || !secret.IsLiteral(name, value) {
			continue
		}
		problem := "holds a secret itself, which whoever reads the stored settings could read; write a reference, "
		if name == jaasSetting {
			problem += `as in password="${env:NAME}", `
		}
		faults = append(faults, &SettingError{Setting: name, Value: hiddenValue,
			Problem: problem + "${env:NAME}, ${file:/path/to/file.properties:key} or ${directory:/path:file}, and keep the value where each process runs"})
	}
	return faults
}

// mirrorFaults are what is wrong with settings that are to be stored as a mirror's.
func (s Settings) mirrorFaults() []*SettingError {
	stored := slices.DeleteFunc(s.storedFaults(), func(f *SettingError) bool { // a name that is not known is wrong enough
		_, known := lookUpSetting(f.Setting)
		return !known
	})
	return append(s.faults(MirrorSetting), stored...)
}
