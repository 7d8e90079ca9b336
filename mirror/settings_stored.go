package mirror

import (
	"regexp"
	"slices"
	"strings"
)

// CheckStored refuses secrets in settings that are to be stored: whoever may read the topic of the desired state could read them. A password, a key and a secret inside a login line
// have to be references, which each process resolves when it connects. Certificates are not secret. Errors: a *SettingError for each, which never holds the value.
func (s Settings) CheckStored() error {
	var faults []*SettingError
	for name, value := range s {
		value = strings.TrimSpace(value)
		if value == "" || !isSecretSetting(name) || isReference(value) || name == truststoreCertsSetting || name == certificateChainSetting || name == jaasSetting && !loginHoldsSecret(value) {
			continue
		}
		problem := "holds a secret itself, which whoever reads the stored settings could read; write a reference, "
		if name == jaasSetting {
			problem += `as in password="${env:NAME}", `
		}
		faults = append(faults, &SettingError{Setting: name, Value: hiddenValue,
			Problem: problem + "${env:NAME}, ${file:/path/to/file.properties:key} or ${directory:/path:file}, and keep the value where each process runs"})
	}
	return joinFaults(faults)
}

// isReference says whether a value is one reference to a provider that is known, and nothing else.
func isReference(value string) bool {
	m := referencePattern.FindStringSubmatch(value)
	return m != nil && m[0] == value && slices.Contains([]string{"env", "file", "directory"}, m[1])
}

const loginValue = `"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*'|[^\s=;"'/][^\s=;"']*`

var (
	// loginPattern is a login line: class, control flag, options, ';'.
	loginPattern  = regexp.MustCompile(`^[\w.$]+\s+(?i:required|requisite|sufficient|optional)((?:\s+[^\s=;"'/]+\s*=\s*(?:` + loginValue + `))*)\s*;$`)
	optionPattern = regexp.MustCompile(`\s+([^\s=;"'/]+)\s*=\s*(` + loginValue + `)`)
)

// openOptions are those of Kafka's login modules that are no secrets; unsecured logins hold none at all.
var openOptions = []string{"username", "tokenauth", "clientId", "scope"}

// loginHoldsSecret says whether a login line holds a secret itself. A line that cannot be read counts as one, and so does an option that is not known.
func loginHoldsSecret(line string) bool {
	m := loginPattern.FindStringSubmatch(line)
	if m == nil {
		return true
	}
	seen := map[string]bool{}
	for _, option := range optionPattern.FindAllStringSubmatch(m[1], -1) {
		name, value := option[1], option[2]
		if seen[name] {
			return true
		}
		seen[name] = true
		if quote := value[0]; quote == '"' || quote == '\'' {
			value = value[1 : len(value)-1]
		}
		open := slices.Contains(openOptions, name) || strings.HasPrefix(name, "unsecuredLogin") || strings.HasPrefix(name, "extension_")
		if !open && value != "" && !isReference(value) {
			return true
		}
	}
	return false
}
