package kafkaconfig

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
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
	for _, l := range logicalLines(strings.TrimPrefix(string(file), "\uFEFF")) {
		switch {
		case !utf8.ValidString(l.text):
			return Properties{}, fmt.Errorf("line %d: the text is not UTF-8; convert the file, for instance with iconv -f ISO-8859-1 -t UTF-8", l.number)
		case l.text == "":
			continue
		case strings.ContainsAny(l.text[:1], "=:"):
			return Properties{}, fmt.Errorf("line %d: there is no name before the %q", l.number, l.text[:1])
		}
		end := nameEnd(l.text)
		key, keyErr := unescape(l.text[:end])
		value, valueErr := unescape(withoutSeparator(l.text[end:]))
		if err := cmp.Or(keyErr, valueErr); err != nil {
			return Properties{}, fmt.Errorf("line %d: %w", l.number, err)
		}
		if _, again := p.Values[key]; again {
			p.Repeated = append(p.Repeated, Repeated{Key: key, Line: l.number})
		}
		p.Values[key] = value
	}
	return p, nil
}

const (
	blanks     = " \t\f"
	separators = "=:" + blanks
)

// nameEnd is where the name at the begin of a line ends: at the first separator that is not escaped.
func nameEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\':
			i++ // what follows is no separator
		case strings.IndexByte(separators, line[i]) >= 0:
			return i
		}
	}
	return len(line)
}

// withoutSeparator cuts what stands between name and value: blanks, and one '=' or ':' among them.
func withoutSeparator(rest string) string {
	rest = strings.TrimLeft(rest, blanks)
	if rest != "" && strings.ContainsAny(rest[:1], "=:") {
		rest = strings.TrimLeft(rest[1:], blanks)
	}
	return rest
}

// errEscape and errSurrogate repeat nothing of the text.
var (
	errEscape    = errors.New("an escape is not one of Java's: after \\u come four hexadecimal digits")
	errSurrogate = errors.New("a character is written as two \\u escapes; write the character itself, in UTF-8")
)

// unescape replaces Java's escapes: \t \n \r \f and \uXXXX; before any other character the backslash just goes.
func unescape(text string) (string, error) {
	if strings.IndexByte(text, '\\') < 0 {
		return text, nil
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			code, err := strconv.ParseUint(text[i+1:min(len(text), i+5)], 16, 16)
			if err != nil || i+5 > len(text) {
				return "", errEscape
			}
			if utf16.IsSurrogate(rune(code)) {
				return "", errSurrogate
			}
			b.WriteRune(rune(code))
			i += 4
		default:
			b.WriteByte(c) // the first byte of a character; the others follow
		}
	}
	return b.String(), nil
}

type logicalLine struct {
	number int // of the natural line where it begins
	text   string
}

// logicalLines joins lines that end in an odd number of backslashes with what follows, and leaves out empty lines and comments (java.util.Properties.load).
func logicalLines(text string) []logicalLine {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var lines []logicalLine
	var open strings.Builder
	begin := 0 // the number of the line that is open, 0 for none
	for i, natural := range strings.Split(text, "\n") {
		natural = strings.TrimLeft(natural, blanks)
		if begin == 0 {
			if natural == "" || natural[0] == '#' || natural[0] == '!' {
				continue
			}
			begin = i + 1
		}
		body := strings.TrimRight(natural, `\`)
		slashes := len(natural) - len(body)
		goesOn := slashes%2 == 1
		if goesOn {
			natural = natural[:len(natural)-1]
		}
		if open.Len() == 0 && !goesOn {
			lines, begin = append(lines, logicalLine{begin, natural}), 0
			continue
		}
		open.WriteString(natural)
		if !goesOn {
			lines, begin = append(lines, logicalLine{begin, open.String()}), 0
			open.Reset()
		}
	}
	if begin > 0 {
		lines = append(lines, logicalLine{begin, open.String()})
	}
	return lines
}
