package kafkaconfig

import (
	"strings"
	"testing"
)

func TestUnknownNamesAreRefused(t *testing.T) {
	for name, says := range map[string]string{
		"sasl.jass.config":                     "the closest known name is sasl.jaas.config",
		"ssl.truststore.certificate":           "the closest known name is ssl.truststore.certificates",
		"security.protocoll":                   "the closest known name is security.protocol",
		"sasl.kerberos.service.name":           "GSSAPI (Kerberos) is not supported",
		"ssl.cipher.suites":                    "crypto/tls",
		"ssl.protocol":                         "ssl.enabled.protocols",
		"ssl.provider":                         "crypto/tls",
		"sasl.login.refresh.window.factor":     "anew for each connection",
		"sasl.oauthbearer.jwks.endpoint.url":   "sasl.oauthbearer.token.endpoint.url",
		"sasl.client.callback.handler.class":   "Java classes",
		"security.providers":                   "Java's security providers",
		"sasl.enabled.mechanisms":              "a setting of brokers",
		"ssl.engine.factory.class":             "crypto/tls",
		"sasl.oauthbearer.token.endpoint.urls": "leave it out",
	} {
		_, err := Parse(map[string]string{Bootstrap: "a:1", name: "marker"})
		if err == nil || !strings.Contains(err.Error(), name+": ") || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "marker") {
			t.Errorf("%s gave %v", name, err)
		}
	}
	if _, err := Parse(map[string]string{Bootstrap: "a:1", "fetch.max.bytes": "7", "mirror.topics.include": "x", "socket.timeout.ms": "1"}); err != nil {
		t.Errorf("settings of others: %v", err)
	}
}

func TestHasLiteralSecret(t *testing.T) {
	jaas := func(options string) map[string]string {
		return map[string]string{JAAS: plainModule + " required " + options + ";"}
	}
	for _, c := range []struct {
		settings map[string]string
		name     string
	}{
		{nil, ""},
		{map[string]string{Bootstrap: "a:1", SecurityProtocol: "SSL", TruststoreCertificates: "x", KeystoreChain: "x"}, ""},
		{jaas(`username="alice" password="${env:P}"`), ""},
		{jaas(`username="alice" password="x"`), JAAS},
		{jaas(`username="alice" password="${env:P}x"`), JAAS},
		{jaas(`username="alice" password=""`), ""},
		{jaas(`username="alice" passwort="x"`), JAAS},
		{map[string]string{JAAS: "${file:/a:b}"}, ""},
		{map[string]string{JAAS: "not a login"}, JAAS},
		{map[string]string{JAAS: oauthModule + ` required clientId="a" clientSecret="b" scope="c";`}, JAAS},
		{map[string]string{JAAS: oauthModule + ` required clientId="a" clientSecret="${env:P}" scope="c";`}, ""},
		{map[string]string{JAAS: oauthModule + ` required unsecuredLoginStringClaim_sub="a";`}, ""},
		{map[string]string{KeystoreKey: "x", KeyPassword: "${env:P}"}, KeystoreKey},
		{map[string]string{KeyPassword: "x"}, KeyPassword},
		{map[string]string{"ssl.key.passwort": "x", "ssl.key.pasword": "", "ssl.keystore.secret": "x"}, "ssl.key.passwort"},
	} {
		name, ok := HasLiteralSecret(c.settings)
		if name != c.name || ok != (c.name != "") {
			t.Errorf("%v gave %q, %v", c.settings, name, ok)
		}
	}
}
