package secret

import (
	"regexp"
	"slices"
	"strings"
)

// pattern is the form of Kafka's config providers (KIP-297): provider, path (optional), key.
var pattern = regexp.MustCompile(`\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}`)

// providers are those that are known here.
var providers = []string{"env", "file", "directory"}

// IsReference says whether a value is one reference to a provider that is known, and nothing else but blanks.
func IsReference(value string) bool {
	value = strings.TrimSpace(value)
	m := pattern.FindStringSubmatch(value)
	return m != nil && m[0] == value && slices.Contains(providers, m[1])
}

// HasReference says whether something in a value has the form of a reference, to whatever provider.
func HasReference(value string) bool { return pattern.MatchString(value) }

// Replace replaces everything that has the form of a reference with what look says of it: provider, path ("" if there is none), key. Blanks around a value that is one reference
// are dropped. The first error of look is returned.
func Replace(value string, look func(provider, path, key string) (string, error)) (string, error) {
	if IsReference(value) {
		value = strings.TrimSpace(value)
	}
	var failed error
	out := pattern.ReplaceAllStringFunc(value, func(r string) string {
		part := pattern.FindStringSubmatch(r)
		v, err := look(part[1], part[2], part[3])
		if err != nil && failed == nil {
			failed = err
		}
		return v
	})
	return out, failed
}
