package kafkaconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/closest"
	"github.com/clustermirror/clustermirror/internal/secret"
)

// Names of the settings that Parse knows.
const (
	Bootstrap        = "bootstrap.servers"
	ClientID         = "client.id"
	RequestTimeout   = "request.timeout.ms"
	SetupTimeout     = "socket.connection.setup.timeout.ms"
	SetupTimeoutMax  = "socket.connection.setup.timeout.max.ms"
	MaxIdle          = "connections.max.idle.ms"
	SecurityProtocol = "security.protocol"

	Mechanism       = "sasl.mechanism"
	JAAS            = secret.JAAS
	TokenEndpoint   = "sasl.oauthbearer.token.endpoint.url"
	CallbackHandler = "sasl.login.callback.handler.class"

	TruststoreType         = "ssl.truststore.type"
	TruststoreLocation     = "ssl.truststore.location"
	TruststoreCertificates = "ssl.truststore.certificates"
	TruststorePassword     = "ssl.truststore.password"
	KeystoreType           = "ssl.keystore.type"
	KeystoreLocation       = "ssl.keystore.location"
	KeystoreKey            = "ssl.keystore.key"
	KeystoreChain          = "ssl.keystore.certificate.chain"
	KeystorePassword       = "ssl.keystore.password"
	KeyPassword            = "ssl.key.password"
	HostNameCheck          = "ssl.endpoint.identification.algorithm"
	EnabledProtocols       = "ssl.enabled.protocols"
)

var known = []string{
	Bootstrap, ClientID, RequestTimeout, SetupTimeout, SetupTimeoutMax, MaxIdle, SecurityProtocol,
	Mechanism, JAAS, TokenEndpoint, CallbackHandler,
	TruststoreType, TruststoreLocation, TruststoreCertificates, TruststorePassword, KeystoreType, KeystoreLocation, KeystoreKey, KeystoreChain, KeystorePassword, KeyPassword,
	HostNameCheck, EnabledProtocols,
}

// identity are the settings that say who is trusted and who a client is. Where one is set and the protocol does not use it, something else was meant.
var identity = []string{
	JAAS, TokenEndpoint, TruststoreLocation, TruststoreCertificates, TruststorePassword, KeystoreLocation, KeystoreKey, KeystoreChain, KeystorePassword, KeyPassword,
}

// javaOnly are Kafka's settings that mean nothing outside Java, or that nothing here does, by name or by a prefix that ends in a dot, with the reason.
var javaOnly = map[string]string{
	"sasl.kerberos.":                       "GSSAPI (Kerberos) is not supported; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
	"sasl.login.":                          "logins are done anew for each connection and re-authentication",
	"sasl.client.callback.handler.class":   "Java classes cannot be used here",
	"sasl.oauthbearer.":                    "of OAUTHBEARER only " + TokenEndpoint + " and the options of " + JAAS + " are supported",
	"ssl.protocol":                         "TLS versions are chosen with " + EnabledProtocols,
	"ssl.cipher.suites":                    "the cipher suites are those of Go's crypto/tls",
	"ssl.provider":                         "TLS is Go's crypto/tls",
	"ssl.engine.factory.class":             "TLS is Go's crypto/tls",
	"ssl.keymanager.algorithm":             "TLS is Go's crypto/tls",
	"ssl.trustmanager.algorithm":           "TLS is Go's crypto/tls",
	"ssl.secure.random.implementation":     "TLS is Go's crypto/tls",
	"ssl.client.auth":                      "it is a setting of brokers",
	"ssl.principal.mapping.rules":          "it is a setting of brokers",
	"security.providers":                   "Java's security providers cannot be used here",
	"security.inter.broker.protocol":       "it is a setting of brokers",
	"sasl.enabled.mechanisms":              "it is a setting of brokers; a client has " + Mechanism,
	"sasl.mechanism.inter.broker.protocol": "it is a setting of brokers",
	"sasl.mechanism.controller.protocol":   "it is a setting of brokers",
	"sasl.server.":                         "it is a setting of brokers",
	"ssl.allow.dn.changes":                 "it is a setting of brokers",
	"ssl.allow.san.changes":                "it is a setting of brokers",
}

// HasLiteralSecret says whether a secret stands in the settings themselves instead of a reference to where it is kept, and the first name, in sorted order, of one that holds it.
// What is stored of a mirror may hold references only. Certificates are not secret in this sense, nor are the options of a login that name a user.
func HasLiteralSecret(settings map[string]string) (name string, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		mistyped := secret.InFamily(name) && !slices.Contains(known, name) && secret.Looks(name) // it may hold what its owner takes for a secret
		if (secret.IsSetting(name) || mistyped) && secret.IsLiteral(name, settings[name]) {
			return name, true
		}
	}
	return "", false
}

// unknownOf lists the names of the security families that Parse does not know, sorted.
func unknownOf(settings map[string]string) []string {
	var names []string
	for name := range settings {
		if secret.InFamily(name) && !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// refuse says why a name of the security families is not accepted.
func refuse(name string) *Error {
	for n, why := range javaOnly {
		if n == name || strings.HasSuffix(n, ".") && strings.HasPrefix(name, n) {
			return &Error{Setting: name, Problem: "is not supported", Advice: "leave it out: " + why}
		}
	}
	return &Error{Setting: name, Problem: "is not known", Advice: "the closest known name is " + closest.Name(name, slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !secret.InFamily(k) })) + "; leave it out if that is not what is meant"}
}
