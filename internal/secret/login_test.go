package secret

import (
	"maps"
	"strings"
	"testing"
)

// The login modules of Kafka's clients.
const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	oauthModule = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
)

func TestParseLogin(t *testing.T) {
	for _, c := range []struct {
		text    string
		module  string
		options map[string]string
	}{
		{plainModule + ` required username="alice" password="x";`, plainModule, map[string]string{"username": "alice", "password": "x"}},
		{"\n" + plainModule + " required\n  username='al\"ice'\n  password=\"a\\\"b\\\\c\\t\\101\\7x\" ;\n", plainModule, map[string]string{"username": `al"ice`, "password": "a\"b\\c\tA\ax"}},
		{"/* ours; */ " + scramModule + " SUFFICIENT // who\nusername=bob password=secret9 tokenauth=true;", scramModule,
			map[string]string{"username": "bob", "password": "secret9", "tokenauth": "true"}},
		{plainModule + ` requisite username=${env:U} password="${file:/a b/c.properties:k=v;}";`, plainModule,
			map[string]string{"username": "${env:U}", "password": "${file:/a b/c.properties:k=v;}"}},
		{plainModule + ` optional username="" password="привет";`, plainModule, map[string]string{"username": "", "password": "привет"}},
		{plainModule + ` required password="/* no comment */ // nor this";`, plainModule, map[string]string{"password": "/* no comment */ // nor this"}},
		{"/* π */" + oauthModule + ` required;`, oauthModule, map[string]string{}},
	} {
		l, err := ParseLogin(c.text)
		if err != nil || l.Module != c.module || !maps.Equal(l.Options, c.options) {
			t.Errorf("%s\ngave %q, %q, %v", c.text, l.Module, l.Options, err)
		}
	}
}

func TestParseLoginSaysWhere(t *testing.T) {
	const p = "a.B"
	for _, c := range []struct{ text, says string }{
		{``, "at character 1 the class"},
		{`"a.B" required;`, "at character 1 the class"},
		{p + ` username="x";`, "at character 5 one of required"},
		{p + ` needed username="x";`, "at character 5 one of required"},
		{p + ` required username="x"`, "at character 26 the ';'"},
		{p + ` required username=;`, "at character 23 the value"},
		{p + ` required username "x";`, "at character 23 '='"},
		{p + ` required ="x";`, "at character 14 the name"},
		{p + ` required username="x;`, "at character 23 a quote is not closed"},
		{p + " required username=\"x\ny\";", "at character 23 a quote is not closed"},
		{p + ` required password="ab"cd";`, "at character 29 a quote is not closed"},
		{p + ` required a="1" a="2";`, "a second time"},
		{p + ` required; c.D required;`, "exactly one login module"},
		{p + ` required /* x`, "a comment is not closed"},
		{p + ` required a="\`, "a quote is not closed"},
	} {
		_, err := ParseLogin(c.text)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s\ngave %v, not %q", c.text, err, c.says)
		}
	}
}

func FuzzParseLogin(f *testing.F) {
	f.Add(plainModule + ` required username="alice" password="x\"y";`)
	f.Add("/*x*/ a b c='\\377';")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLogin(text)
		if err != nil {
			return
		}
		// Written again, with quotes, it reads the same.
		var b strings.Builder
		b.WriteString(l.Module + " required")
		for name, value := range l.Options {
			if strings.ContainsAny(value, "\n\r") {
				return
			}
			b.WriteString(" " + name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`)
		}
		again, err := ParseLogin(b.String() + ";")
		if err != nil || !maps.Equal(again.Options, l.Options) {
			t.Errorf("%q became %q: %v", l.Options, again.Options, err)
		}
	})
}
