package secret

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	if !slices.IsSorted(settings) || len(settings) < 7 {
		t.Error(settings)
	}
	for _, name := range settings {
		if !IsSetting(name) || !InFamily(name) || !InFamily(strings.ToUpper(name)) {
			t.Errorf("%s is no secret", name)
		}
	}
	own := Settings()
	own[0] = "changed"
	if IsSetting("changed") {
		t.Error("the list is shared")
	}
	for name, want := range map[string][3]bool{ // a secret, in a family, sounds like a secret's
		"sasl.jaas.config": {true, true, true}, "sasl.jass.config": {false, true, false}, "ssl.key.password": {true, true, true}, "SSL.Key.Password": {false, true, true},
		"sasl.mechanism": {false, true, false}, "bootstrap.servers": {false, false, false}, "my.credentials": {false, false, true}, "PASSWD": {false, false, true}, "mirror.name": {false, false, false},
	} {
		if got := [3]bool{IsSetting(name), InFamily(name), Looks(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestReferences(t *testing.T) {
	for value, want := range map[string][2]bool{ // one reference, has something of that form
		"": {false, false}, "plain": {false, false}, "${env:A}": {true, true}, " ${file:/a:b}\n": {true, true}, "${directory:/a:b}": {true, true}, "${env:A}x": {false, true},
		"${env:A}${env:B}": {false, true}, "${vault:x}": {false, true}, "${none}": {false, false}, "$ {env:A}": {false, false},
	} {
		if got := [2]bool{IsReference(value), HasReference(value)}; got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	show := func(provider, path, key string) (string, error) {
		return fmt.Sprintf("<%s|%s|%s>", provider, path, key), nil
	}
	for value, want := range map[string]string{
		"plain": "plain", " ${env:A} ": "<env||A>", " x${file:/p:k} ": " x<file|/p|k> ", "${vault:a:b}${env::C}": "<vault|a|b><env||C>",
	} {
		if got, err := Replace(value, show); got != want || err != nil {
			t.Errorf("%q: %q %v, want %q", value, got, err, want)
		}
	}
	first, n := errors.New("first"), 0
	if _, err := Replace("${env:A}${env:B}", func(string, string, string) (string, error) {
		if n++; n == 1 {
			return "", first
		}
		return "", errors.New("second")
	}); err != first {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for value, want := range map[string]bool{"a:1,b:2": false, "u:p@h:1": true, "https://u@h": true, "${file:/a@b:c}": false, "${env:U}@h": true, "": false} {
		if InAddress(value) != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
}

func TestLiterals(t *testing.T) {
	const plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"ssl.key.password", "x", true}, {"ssl.key.password", "${env:P}", false}, {"ssl.key.password", "${env:P}x", true}, {"ssl.key.password", "${vault:P}", true}, {"ssl.key.password", " ", false},
		{"ssl.truststore.certificates", "PEM", false}, {"ssl.keystore.certificate.chain", "PEM", false}, {"ssl.keystore.key", "PEM", true},
		{JAAS, "${file:/a:b}", false}, {JAAS, "not a login", true}, {JAAS, plain + ` required username="a" password="${env:P}";`, false}, {JAAS, plain + ` required username="a" password="";`, false},
		{JAAS, plain + ` required username="a" password="x";`, true}, {JAAS, plain + ` required username="a" password="${env:P}x";`, true}, {JAAS, plain + ` required username="a" passwort="x";`, true},
		{JAAS, plain + ` required username="a" Password="x";`, true}, {JAAS, plain + ` required username="a"; x`, true}, {JAAS, plain + ` required /* x */ username="a";`, true},
		{JAAS, plain + " required username=\"a\"; // x", true}, {JAAS, `pass%word required;`, true}, {JAAS, "x.Y required clientId=c clientSecret=${env:S} scope='a b' extension_a=b;", false},
		{JAAS, `x.Y required unsecuredLoginStringClaim_sub="alice";`, false}, {JAAS, `x.Y required clientId=c clientSecret=s;`, true},
	} {
		if IsLiteral(c.name, c.value) != c.want {
			t.Errorf("%s=%s: %v", c.name, c.value, !c.want)
		}
	}
}

// However a line is written: if a secret is found in it by looking, it is not stored.
func TestLinesWithSecretsAreLiteral(t *testing.T) {
	const marker = "hunter2"
	values := []string{`"${env:X}"`, `'${file:/a:b}'`, `${directory:/a:b}`, marker, `"` + marker + `"`, `"a\"` + marker + `"`, `""`, `"${env:X}` + marker + `"`, `"${vault:` + marker + `}"`, `'a"` + marker + `'`}
	stored, refused := 0, 0
	lines := func(t *rapid.T) {
		line := "x.PlainLoginModule" + rapid.SampledFrom([]string{" required", " Optional", "", "\nrequired", " " + marker}).Draw(t, "flag")
		for range rapid.IntRange(0, 3).Draw(t, "options") {
			name := rapid.SampledFrom([]string{"password", "clientSecret", "Password", "passwort"}).Draw(t, "option")
			line += rapid.SampledFrom([]string{" ", "\n ", " /* " + marker + " */ ", " // " + marker + "\n"}).Draw(t, "gap") + name +
				rapid.SampledFrom([]string{"=", " = ", " "}).Draw(t, "is") + rapid.SampledFrom(values).Draw(t, "value")
		}
		line += rapid.SampledFrom([]string{";", " ;", "", "; " + marker, ";;"}).Draw(t, "end")
		literal := IsLiteral(JAAS, line)
		if !literal && strings.Contains(line, marker) {
			t.Fatalf("%q is stored", line)
		} else if literal {
			refused++
		} else {
			stored++
		}
	}
	// A short run is 20 lines, and few lines are stored: it goes on until there were some of both kinds.
	for round := 0; round < 100 && (round == 0 || stored == 0 || refused == 0); round++ {
		rapid.Check(t, lines)
	}
	if stored == 0 || refused == 0 {
		t.Errorf("%d lines were stored, %d refused", stored, refused)
	}
}
