package kafkaconfig

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestReadProperties(t *testing.T) {
	for _, c := range []struct {
		text string
		want map[string]string
	}{
		{"a=1\nb:2\nc 3\nd\te\n", map[string]string{"a": "1", "b": "2", "c": "3", "d": "e"}},
		{"  a  =  1 2  \n# c\n! d\n   # e\n\nf", map[string]string{"a": "1 2  ", "f": ""}},
		{"a=1,\\\n   2,\\\n\t3\nb=x\\\\\nc=y", map[string]string{"a": "1,2,3", "b": `x\`, "c": "y"}},
		{"a=1,\\\r\n  2\r\nb=3\rc=4", map[string]string{"a": "1,2", "b": "3", "c": "4"}},
		{"a\\ b\\:c\\=d=e\\=f\n", map[string]string{"a b:c=d": "e=f"}},
		{"a=\\u00e9\\t\\n\\q\nb=é日😀", map[string]string{"a": "é\t\nq", "b": "é日😀"}},
		{"\uFEFFa=1\n", map[string]string{"a": "1"}},
		{"a=${env:X}${b}\nb=${a}\n", map[string]string{"a": "${env:X}${b}", "b": "${a}"}},
		{"a=\\\n# not a comment\n", map[string]string{"a": "# not a comment"}},
		{"a=1\\", map[string]string{"a": "1"}},
		{"ke\\\n  y=1", map[string]string{"key": "1"}},
		{"a=\\r\\fx\\\\y\\é\n", map[string]string{"a": "\r\fx\\yé"}},
		{"a=\\uFFFD\\u0041\n", map[string]string{"a": "\uFFFDA"}},
		{"\\\n", map[string]string{}},
		{"\\\n\na=1", map[string]string{"a": "1"}},
		{"", map[string]string{}},
	} {
		p, err := ReadProperties([]byte(c.text))
		if err != nil || !maps.Equal(p.Values, c.want) {
			t.Errorf("%q gave %q, %v", c.text, p.Values, err)
		}
	}
}

func TestRepeatedKeyTheLastWins(t *testing.T) {
	p, err := ReadProperties([]byte("a=1\nb=2\n\na=3\\\n4\na:5\n"))
	if err != nil || p.Values["a"] != "5" || !slices.Equal(p.Repeated, []Repeated{{"a", 4}, {"a", 6}}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestReadPropertiesNamesTheLineAndNothingElse(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"a=1\nmarker=marker\\u00zzmarker\n", "line 2"},
		{"a=1\n\nb=marker\\\n marker\\u12", "line 3"},
		{"a=1\n =marker\n", "line 2: there is no name"},
		{"a=marker\xe9\n", "line 1: the text is not UTF-8"},
		{"a=\\ud83d\\ude00marker\n", "two \\u escapes"},
	} {
		_, err := ReadProperties([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "marker") {
			t.Errorf("%q gave %v", c.text, err)
		}
	}
}
