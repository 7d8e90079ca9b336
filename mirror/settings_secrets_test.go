package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/internal/secret"
	"github.com/clustermirror/clustermirror/mirror"
)

// Every secret of Kafka's is hidden and not stored, and what connects reads settings of connections only.
func TestSecretsAreHiddenAndNotStored(t *testing.T) {
	defined := map[string]mirror.SettingDefinition{}
	for _, d := range mirror.SettingDefinitions() {
		defined[d.Name] = d
		if d.Secret != (d.Type == "password") {
			t.Errorf("%s is a %s, and secret is %v", d.Name, d.Type, d.Secret)
		}
	}
	for _, name := range secret.Settings() {
		s := mirror.Settings{name: "marker-of-a-secret"}
		if strings.Contains(s.String(), "marker") {
			t.Errorf("%s is printed: %s", name, s)
		}
		if certificates := strings.HasSuffix(name, ".certificates") || strings.HasSuffix(name, ".certificate.chain"); (s.CheckStored() == nil) != certificates {
			t.Errorf("%s is stored: %v", name, s.CheckStored() == nil)
		}
	}
	for _, name := range []string{
		kafkaconfig.Bootstrap, kafkaconfig.ClientID, kafkaconfig.RequestTimeout, kafkaconfig.SetupTimeout, kafkaconfig.SetupTimeoutMax, kafkaconfig.MaxIdle, kafkaconfig.SecurityProtocol,
		kafkaconfig.Mechanism, kafkaconfig.JAAS, kafkaconfig.TokenEndpoint, kafkaconfig.CallbackHandler, kafkaconfig.TruststoreType, kafkaconfig.TruststoreLocation,
		kafkaconfig.TruststoreCertificates, kafkaconfig.TruststorePassword, kafkaconfig.KeystoreType, kafkaconfig.KeystoreLocation, kafkaconfig.KeystoreKey, kafkaconfig.KeystoreChain,
		kafkaconfig.KeystorePassword, kafkaconfig.KeyPassword, kafkaconfig.HostNameCheck, kafkaconfig.EnabledProtocols,
	} {
		if defined[name].Level != mirror.ConnectionSetting {
			t.Errorf("%s is read for connections and is no connection setting", name)
		}
	}
}

// An address with a user in it would be printed by every description, and stored for everybody to read.
func TestAddressesHaveNoUsers(t *testing.T) {
	const marker = "hunter2-marker"
	const endpoint = "sasl.oauthbearer.token.endpoint.url"
	for _, c := range []struct{ name, value string }{
		{"bootstrap.servers", "u:" + marker + "@h:9092"}, {"bootstrap.servers", marker + "@h:9092"}, {"bootstrap.servers", "a:9092," + marker + "@h"}, {"bootstrap.servers", "${env:U}:" + marker + "@h:9092"},
		{endpoint, "https://u:" + marker + "@h"}, {endpoint, "https://" + marker + "@h/token"}, {endpoint, "https://u:" + marker + "/@h"}, {endpoint, "https://${env:U}:" + marker + "@h/token"},
		{endpoint, "https://${env:U}:${env:P}@h/token"}, {endpoint, "u:" + marker + "@h"},
	} {
		s := mirror.Settings{c.name: c.value}
		for what, err := range map[string]error{"Check": s.Check(mirror.MirrorSetting), "CheckStored": s.CheckStored()} {
			if err == nil || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), "'@'") || strings.Contains(err.Error(), marker) {
				t.Errorf("%s=%s: %s: %v", c.name, c.value, what, err)
			}
		}
		for _, text := range []string{s.String(), fmt.Sprintf("%+v %#v", s, s), s.LogValue().String()} {
			if strings.Contains(text, marker) || !strings.Contains(text, "[hidden]") {
				t.Errorf("%s=%s is printed as %s", c.name, c.value, text)
			}
		}
		// What connects refuses it too, and repeats nothing.
		all := map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
			"sasl.jaas.config": `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="c" clientSecret="${env:S}";`}
		all[c.name] = strings.NewReplacer("${env:U}", "u", "${env:P}", "p").Replace(c.value)
		if _, err := kafkaconfig.Parse(all); err == nil || !strings.Contains(err.Error(), c.name) || strings.Contains(err.Error(), marker) {
			t.Errorf("%s=%s: connecting: %v", c.name, c.value, err)
		}
	}
	for _, text := range []string{"ftp://h/token", "h:443", "https:///token"} {
		if err := (mirror.Settings{endpoint: text}).Check(); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	fine := mirror.Settings{"bootstrap.servers": "${file:/etc/me@here:b}", endpoint: "https://${env:HOST}/token", "mirror.acl.include": "TOPIC;*;*;*;User:a@b"}
	if err := fine.Check(mirror.MirrorSetting); err != nil || strings.Contains(fine.String(), "hidden") {
		t.Errorf("%v: %s", err, fine)
	}
	if err := (mirror.Settings{endpoint: "https://h/a?b=c"}).Check(mirror.MirrorSetting); err != nil {
		t.Error(err)
	}
	// One of a name that nobody knows is hidden as well.
	if s := (mirror.Settings{"registry.url": "https://u:" + marker + "@h"}); strings.Contains(fmt.Sprint(s, s.Check()), marker) {
		t.Error(s)
	}
}

// A file with both is pasted whole: what belongs beside certificates is no key.
func TestAKeyAmongCertificatesIsNotStored(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	for _, name := range []string{"ssl.keystore.certificate.chain", "ssl.truststore.certificates"} {
		if err := (mirror.Settings{name: certificate + certificate}).CheckStored(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, kind := range []string{"PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "EC private key"} {
			err := (mirror.Settings{name: certificate + "-----BEGIN " + kind + "-----\nhunter2marker\n-----END " + kind + "-----\n"}).CheckStored()
			if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "marker") {
				t.Errorf("%s with %s: %v", name, kind, err)
			}
		}
	}
}
