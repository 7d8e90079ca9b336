package kafkaconfig

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/secret"
)

func TestParse(t *testing.T) {
	t.Setenv("KAFKACONFIG_SEEDS", "c:3")
	c, err := Parse(map[string]string{
		Bootstrap: " a:1 ,[::1]:2,,${env:KAFKACONFIG_SEEDS}", ClientID: "me", RequestTimeout: "7000", MaxIdle: "5000", SetupTimeout: "60000", SecurityProtocol: "SASL_SSL",
		JAAS: plainModule + ` required username="a" password="b";`, TruststoreLocation: "/not/read/yet",
	})
	if err != nil || !slices.Equal(c.Seeds, []string{"a:1", "[::1]:2", "c:3"}) || c.RequestTimeout != 7*time.Second {
		t.Fatalf("%+v, %v", c, err)
	}
	cl, err := kgo.NewClient(c.Options...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, o := range []struct {
		opt  any
		want any
	}{{kgo.ClientID, "me"}, {kgo.ConnIdleTimeout, 5 * time.Second}, {kgo.RequestTimeoutOverhead, 7 * time.Second}} {
		if got := cl.OptValue(o.opt); got != o.want {
			t.Errorf("got %v, not %v", got, o.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		says     []string
	}{
		{map[string]string{}, []string{"bootstrap.servers: is not set"}},
		{map[string]string{Bootstrap: "a"}, []string{"address 1 of the list is not host:port"}},
		{map[string]string{Bootstrap: "a:1,b:x"}, []string{"address 2"}},
		{map[string]string{Bootstrap: "a:1,:9"}, []string{"address 2"}},
		{map[string]string{Bootstrap: "a:99999"}, []string{"address 1"}},
		{map[string]string{Bootstrap: "a:1", RequestTimeout: "marker", MaxIdle: "0"}, []string{"request.timeout.ms: is not a whole number", "connections.max.idle.ms: is not"}},
		{map[string]string{Bootstrap: "a:1", SetupTimeout: "2000", SetupTimeoutMax: "1000"}, []string{"is below"}},
		{map[string]string{Bootstrap: "a:1", SecurityProtocol: "TLS"}, []string{"none of PLAINTEXT, SSL"}},
		{map[string]string{Bootstrap: "a:1", TruststoreLocation: "/x"}, []string{"ssl.truststore.location: has no effect with security.protocol PLAINTEXT"}},
		{map[string]string{Bootstrap: "a:1", SecurityProtocol: "SSL", JAAS: "marker"}, []string{"sasl.jaas.config: has no effect with security.protocol SSL"}},
		{map[string]string{Bootstrap: "a:1", SecurityProtocol: "SASL_PLAINTEXT", TokenEndpoint: "https://x/y", JAAS: plainModule + ` required username="a" password="marker";`},
			[]string{"has no effect with the mechanism PLAIN"}},
		{map[string]string{Bootstrap: "a:1", SecurityProtocol: "SASL_PLAINTEXT", CallbackHandler: "marker", JAAS: plainModule + ` required username="a" password="marker";`},
			[]string{"Java classes cannot be used here"}},
		{map[string]string{Bootstrap: "${env:KAFKACONFIG_NONE}"}, []string{"KAFKACONFIG_NONE is not set"}},
	} {
		_, err := Parse(c.settings)
		for _, w := range c.says {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "marker") {
				t.Errorf("%v gave %v, not %q", c.settings, err, w)
			}
		}
		var e *Error
		if !errors.As(err, &e) || e.Advice == "" {
			t.Errorf("%v: an error without advice", c.settings)
		}
	}
}

// TestNoSecretIsEverSaid puts a marker wherever a secret can stand, right and wrong, and looks for it in whatever can be printed.
func TestNoSecretIsEverSaid(t *testing.T) {
	const marker = "Tr0ub4dor"
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "s.properties"), "good="+marker+"\njaas="+plainModule+" required username=\"a\" password=\""+marker+"\" "+marker+"=\"x\";\n")
	bad := write(t, filepath.Join(dir, "bad.properties"), "good="+marker+"\\uzz"+marker)
	write(t, filepath.Join(dir, "pem"), "-----BEGIN PRIVATE KEY-----\n"+marker+"\n-----END PRIVATE KEY-----\n")
	// A listener that closes: connections get as far as they can.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	secretsIn := []string{
		marker, `"` + marker, marker + `";`, "${env:" + "KAFKACONFIG_NONE}" + marker, marker + "${" + marker + ":" + marker + "}", "${file:" + file + ":good}", "${file:" + bad + ":good}",
		"${file:" + file + ":none}", "${file:" + file + ":jaas}", "${directory:" + dir + ":pem}", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + marker + "\n-----END ENCRYPTED PRIVATE KEY-----",
	}
	var jaas []string
	for _, s := range secretsIn {
		jaas = append(jaas, s)
		for _, module := range []string{plainModule, scramModule, oauthModule, "x." + marker} {
			jaas = append(jaas,
				module+` required username="a" password="`+s+`";`, module+` required username="a" password="x`+s+`"y"`+s+`";`, module+` required username='a' password=`+s+`;`,
				module+` required clientId="a" clientSecret="`+s+`";`, module+` required unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_x="`+s+`";`, module+" "+s+";",
				module+` required username="a" password="b" `+s+`="c";`, module+` required username="a" `+s)
		}
	}
	tried := 0
	check := func(settings map[string]string) {
		tried++
		c, err := Parse(settings)
		said := fmt.Sprintf("%v %+v %#v", err, c, c)
		if err == nil {
			var log bytes.Buffer
			cl, err := kgo.NewClient(append(c.Options, kgo.SeedBrokers(l.Addr().String()), kgo.RequestRetries(0), kgo.RetryTimeout(time.Second),
				kgo.WithLogger(kgo.BasicLogger(&log, kgo.LogLevelDebug, nil)))...)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range cl.OptValues(kgo.SASL) {
				said += fmt.Sprintf("%v %+v %#v", m, m, m)
			}
			said += fmt.Sprintf("%+v", cl.Ping(t.Context()))
			cl.Close()
			said += log.String()
		}
		if strings.Contains(said, marker) {
			t.Errorf("%q is told: %s", marker, said)
		}
		if name, _ := HasLiteralSecret(settings); strings.Contains(name, marker) {
			t.Errorf("%q is a setting's name", name)
		}
	}
	for _, j := range jaas {
		for _, m := range []string{"PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"} {
			check(map[string]string{Bootstrap: "a:1", SecurityProtocol: "SASL_PLAINTEXT", Mechanism: m, JAAS: j})
		}
		check(map[string]string{Bootstrap: "a:1", SecurityProtocol: "SASL_PLAINTEXT", "sasl.jass.config": j})
	}
	for _, s := range secretsIn {
		for _, name := range append(secret.Settings(), "ssl.key.passwrd", "ssl.keystore.pasword", "security.secret") {
			check(map[string]string{Bootstrap: "a:1", SecurityProtocol: "SSL", name: s})
		}
		check(map[string]string{Bootstrap: "a:1", SecurityProtocol: "SSL", KeystoreChain: s, KeystoreKey: s, KeyPassword: s, TruststoreCertificates: s})
		check(map[string]string{Bootstrap: "a:1", SecurityProtocol: "SSL", KeystoreLocation: filepath.Join(dir, "pem"), KeyPassword: s})
	}
	t.Logf("%d settings tried", tried)
}
