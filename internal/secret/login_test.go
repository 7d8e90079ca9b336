package secret

import (
	"maps"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
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

// TestQuotedTextIsReadAsJavaDoes: the escapes of java.io.StreamTokenizer. An octal one has three digits if the first is at most 3, else two; \8 and \9 are none.
func TestQuotedTextIsReadAsJavaDoes(t *testing.T) {
	for written, want := range map[string]string{
		`\a\b\f\n\r\t\v`: "\a\b\f\n\r\t\v", `\\\"\'\x\8\9\/`: `\"'x89/`, `\0`: "\x00", `\7`: "\a", `\12`: "\n", `\60`: "0", `\067`: "7", `\101`: "A", `\377`: "ÿ", `\400`: " 0", `\777`: "?7",
		`\3770`: "ÿ0", `\1013`: "A3", `\18`: "\x018", `\108`: "\b8", `\7a`: "\aa", `\3/`: "\x03/",
	} {
		l, err := ParseLogin(plainModule + ` required password="` + written + `";`)
		if err != nil || l.Options["password"] != want {
			t.Errorf("%s is read as %q, %v, want %q", written, l.Options["password"], err, want)
		}
	}
}

// TestTokensOfALogin: blanks are what is not above the blank, a word ends at any of = ; and the quotes, a comment at the end of its line.
func TestTokensOfALogin(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"\tx.Y\x01required\x1fa=!b;":                  {"a": "!b"},
		"x.Y required a=b//c\n;":                      {"a": "b//c"},
		"x.Y required // a=1;\r a=2;":                 {"a": "2"},
		"x.Y required // a=1;\n a=2;":                 {"a": "2"},
		"/**/x.Y /* π */ required /*a=1*/ a=2/*;":     {"a": "2/*"},
		"x.Y required a='b\"c'd=\"e'f\";":             {"a": `b"c`, "d": "e'f"},
		"x.Y required a=b/ c=/d;":                     {"a": "b/", "c": "/d"},
		"x.Y required a=b; //":                        {"a": "b"},
		"x.Y required a=b; /* the rest is silence */": {"a": "b"},
	} {
		l, err := ParseLogin(text)
		if err != nil || !maps.Equal(l.Options, want) {
			t.Errorf("%q is read as %q, %v, want %q", text, l.Options, err, want)
		}
	}
	if _, err := ParseLogin("x.Y required\n/* a"); err == nil || !strings.Contains(err.Error(), "at character 14 a comment is not closed") {
		t.Errorf("got %v", err)
	}
	if _, err := ParseLogin("x.Y required a=b; /"); err == nil {
		t.Error("a slash at the end is accepted")
	}
	for _, text := range []string{"x.Y required a='b\rc';", "x.Y required a='b\nc';"} {
		if _, err := ParseLogin(text); err == nil {
			t.Errorf("%q: a quote goes on in the next line", text)
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
	f.Add("a required" + strings.Repeat(" b=c", 20_000) + ";")
	f.Add("a required" + strings.Repeat(" /**/", 20_000) + ";")
	f.Add("a required b=\"" + strings.Repeat(`\\x`, 30_000) + "\";")
	f.Fuzz(func(t *testing.T, text string) {
		var l Login
		var err error
		fuzzbound.Run(t, len(text), func() { l, err = ParseLogin(text) })
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
