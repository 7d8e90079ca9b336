package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
)

// What connects and what stores have to agree on what is secret: the packages may not share code, because this one knows no client.
func TestSecretsAreThoseOfConnections(t *testing.T) {
	defined := map[string]mirror.SettingDefinition{}
	for _, d := range mirror.SettingDefinitions() {
		defined[d.Name] = d
		if kafkaconfig.IsSecret(d.Name) != d.Secret {
			t.Errorf("%s: secret is %v here", d.Name, d.Secret)
		}
	}
	for _, name := range kafkaconfig.SecretNames() {
		s := mirror.Settings{name: "marker-of-a-secret"}
		if strings.Contains(s.String(), "marker") {
			t.Errorf("%s is printed: %s", name, s)
		}
		_, literal := kafkaconfig.HasLiteralSecret(s)
		if err := s.CheckStored(); literal && err == nil {
			t.Errorf("%s may be stored", name)
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

func TestCheckStoredRefusesWhateverHoldsASecretForConnections(t *testing.T) {
	modules := []string{
		"org.apache.kafka.common.security.plain.PlainLoginModule", "org.apache.kafka.common.security.scram.ScramLoginModule",
		"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
	}
	options := [][]string{{"username", "password"}, {"username", "password", "tokenauth"}, {"clientId", "clientSecret", "scope"}}
	values := []string{`"${env:X}"`, `'${file:/a:b}'`, `${directory:/a:b}`, `plain`, `"quoted"`, `"a\"b"`, `""`, `"${env:X}more"`, `"${vault:x}"`, `'a"b'`}
	stored, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(0, 2).Draw(t, "module")
		line := modules[m] + rapid.SampledFrom([]string{" required", " Optional", "", "\nrequired"}).Draw(t, "flag")
		for range rapid.IntRange(0, 3).Draw(t, "options") {
			name := rapid.SampledFrom(append(options[m], "Password")).Draw(t, "option")
			line += fmt.Sprintf("%s%s%s%s", rapid.SampledFrom([]string{" ", "\n ", " /* x */ ", " // x\n"}).Draw(t, "gap"), name,
				rapid.SampledFrom([]string{"=", " = ", " "}).Draw(t, "is"), rapid.SampledFrom(values).Draw(t, "value"))
		}
		line += rapid.SampledFrom([]string{";", " ;", "", "; more", ";;"}).Draw(t, "end")
		s := mirror.Settings{kafkaconfig.JAAS: line}
		_, literal := kafkaconfig.HasLiteralSecret(s)
		if err := s.CheckStored(); err == nil && literal {
			t.Fatalf("%q is stored", line)
		} else if err == nil {
			stored++
		} else {
			refused++
		}
	})
	if stored == 0 || refused == 0 {
		t.Errorf("%d lines were stored, %d refused", stored, refused)
	}
}
