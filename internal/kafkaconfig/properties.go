package kafkaconfig

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

// Properties is what a Java properties file says.
type Properties struct {
	Values   map[string]string
	Repeated []Repeated // in the file's order
}

// Repeated is a key that was there before. As in Java the last value counts.
type Repeated struct {
	Key  string
	Line int // of the later one, from 1
}

// ReadProperties reads a Java properties file in UTF-8: comments with # or !, keys that end at '=', ':' or a space, escapes, lines that go on after a backslash at their end.
// References ${…} are left as they are. Java's own reader takes bytes for ISO-8859-1, so with ASCII (and \u escapes) both read the same; bytes that are not UTF-8 are refused.
// An error names a line and nothing of its text.
func ReadProperties(file []byte) (Properties, error) {
	p := Properties{Values: map[string]string{}}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	for _, l := range logicalLines(strings.TrimPrefix(string(file), "\uFEFF")) {
		if !utf8.ValidString(l.text) {
			return Properties{}, fmt.Errorf("line %d: the text is not UTF-8; convert the file, for instance with iconv -f ISO-8859-1 -t UTF-8", l.number)
		}
		if l.text != "" && strings.ContainsAny(l.text[:1], "=:") {
			return Properties{}, fmt.Errorf("line %d: there is no name before the %q", l.number, l.text[:1])
		}
		// Line by line, because only then is a key that comes twice seen. The library's own errors repeat what they cannot read.
		one, err := loader.LoadBytes([]byte(l.text))
		if err != nil {
			return Properties{}, fmt.Errorf("line %d: an escape is not one of Java's: after \\u come four hexadecimal digits", l.number)
		}
		for _, key := range one.Keys() {
			value := one.GetString(key, "")
			if strings.ContainsRune(key+value, utf8.RuneError) && !strings.ContainsRune(l.text, utf8.RuneError) {
				return Properties{}, fmt.Errorf("line %d: a character is written as two \\u escapes; write the character itself, in UTF-8", l.number)
			}
			if _, again := p.Values[key]; again {
				p.Repeated = append(p.Repeated, Repeated{Key: key, Line: l.number})
			}
			p.Values[key] = value
		}
	}
	return p, nil
}

type logicalLine struct {
	number int // of the natural line where it begins
	text   string
}

// logicalLines joins lines that end in an odd number of backslashes with what follows, and leaves out empty lines and comments (java.util.Properties.load).
func logicalLines(text string) []logicalLine {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var lines []logicalLine
	var open *logicalLine
	for i, natural := range strings.Split(text, "\n") {
		natural = strings.TrimLeft(natural, " \t\f")
		if open == nil {
			if natural == "" || natural[0] == '#' || natural[0] == '!' {
				continue
			}
			open = &logicalLine{number: i + 1}
		}
		body := strings.TrimRight(natural, `\`)
		slashes := len(natural) - len(body)
		goesOn := slashes%2 == 1
		if goesOn {
			natural = natural[:len(natural)-1]
		}
		open.text += natural
		if !goesOn {
			lines, open = append(lines, *open), nil
		}
	}
	if open != nil {
		lines = append(lines, *open)
	}
	return lines
}
