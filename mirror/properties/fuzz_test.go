package properties

import (
	"maps"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/magiconair/properties"
)

// refusals are all that Parse says of a text: a line's number and what is wrong, nothing of the text.
var refusals = regexp.MustCompile("^properties: (line [0-9]+: (the text is not UTF-8; .*|there is no name before the \"[=:]\"|an escape is not one of Java's: .*|" +
	"a character is written as two .u escapes; .*)|larger than 1 MiB: .*)$")

// FuzzParse: a text is refused by its line's number, without a word of it, or read; where the syntax of another reader is the same, as that one reads it. What was read is read
// again from what is written of it.
func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add(strings.ReplaceAll(sample, "\n", "\r\n"))
	f.Add("\ufeffa=1\n a : 2\n\tb\\ c\\=d   e\\\n  f\\\\\n!g\nh\\u0041=\\t\\n\\r\\f\\q\n=x")
	f.Add("a=\\ud83d\\ude00")
	f.Add("a=\\u12")
	f.Add("a=" + strings.Repeat("x\\\n", 20_000))
	f.Add(strings.Repeat("a=b\n", 20_000))
	f.Add(strings.Repeat("\\", 50_000))
	f.Add("a=b\r\rc=d\n#\\\ne=f")
	f.Fuzz(func(t *testing.T, text string) {
		var got map[string]string
		var err error
		fuzzbound.Run(t, len(text), func() { got, err = Parse(strings.NewReader(text)) })
		if err != nil {
			if !refusals.MatchString(err.Error()) {
				t.Fatalf("it says %q", err)
			}
			return
		}
		var b strings.Builder
		escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\f", `\f`, " ", `\ `, "=", `\=`, ":", `\:`, "#", `\#`, "!", `\!`)
		for name, value := range got {
			if !utf8.ValidString(name) || !utf8.ValidString(value) { // comments may be anything
				t.Fatalf("%q has the value %q", name, value)
			}
			if name == "" { // "\" alone, or a line that goes on behind it with "="
				return
			}
			b.WriteString(escape.Replace(name) + "=" + escape.Replace(value) + "\n")
		}
		if again, err := Parse(strings.NewReader(b.String())); err != nil || !maps.Equal(again, got) {
			t.Fatalf("%q became %q: %v", got, again, err)
		}
		// The other reader has other ideas of ends of lines, of lines that go on and of what is no character.
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\f\ufeff\x00\ufffd") || strings.Contains(text, "\\\n") || strings.HasSuffix(text, `\`) || strings.Contains(text, `\u`) {
			return
		}
		theirs, err := (&properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}).LoadBytes([]byte(text))
		if err != nil {
			t.Fatalf("read as %q, and the other reader says %v", got, err)
		}
		if !maps.Equal(got, theirs.Map()) {
			t.Fatalf("read as %q, the other reader reads %q", got, theirs.Map())
		}
	})
}
