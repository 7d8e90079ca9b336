// Package secret knows which of Kafka's settings hold secrets, how a value refers to a secret that is kept elsewhere, and where in a value a secret may stand itself. What stores
// settings, what prints them and what connects with them ask here, so that they agree. Nothing is looked up: that is internal/kafkaconfig's.
package secret

import (
	"slices"
	"strings"
)

// JAAS is the setting whose value is a login line: names, and secrets beside them.
const JAAS = "sasl.jaas.config"

const (
	truststoreCertificates = "ssl.truststore.certificates"
	keystoreChain          = "ssl.keystore.certificate.chain"
)

// settings are those that Kafka gives the type PASSWORD, sorted.
var settings = []string{
	JAAS, "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.client.credentials.client.secret",
	"ssl.key.password", keystoreChain, "ssl.keystore.key", "ssl.keystore.password", truststoreCertificates, "ssl.truststore.password",
}

// Settings lists the settings whose values are never printed, sorted. The result is the caller's.
func Settings() []string { return slices.Clone(settings) }

// IsSetting says whether the value of a setting is never printed.
func IsSetting(name string) bool { return slices.Contains(settings, name) }

// InFamily says whether a name is of the families for security, in whatever case it is written.
func InFamily(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "sasl.") || strings.HasPrefix(name, "ssl.") || strings.HasPrefix(name, "security.")
}

// Looks says whether a name that nobody knows sounds like a secret's: it may be a mistyped one.
func Looks(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"password", "passwd", "secret", "jaas", "key", "passphrase", "token", "credential"}, func(w string) bool { return strings.Contains(name, w) })
}

// IsLiteral says whether the value of a secret setting is, or has in it, the secret itself instead of a reference to where it is kept. Certificates are no secrets in this sense, but a key
// beside them is.
func IsLiteral(name, value string) bool {
	switch value = strings.TrimSpace(value); {
	case value == "", IsReference(value):
		return false
	case name == truststoreCertificates, name == keystoreChain:
		return strings.Contains(strings.ToUpper(value), "PRIVATE KEY") // whole PEM files have both, and are pasted as they are
	case name == JAAS:
		return loginHoldsSecret(value)
	}
	return true
}

// InAddress says whether an address, or a list of addresses, may have a user and a password in it: no host and no path of Kafka's has a '@'. References are not looked into.
func InAddress(value string) bool { return strings.Contains(pattern.ReplaceAllString(value, ""), "@") }
