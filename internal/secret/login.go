package secret

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Login is a JAAS line: a module and its options, references not resolved.
type Login struct {
	Module  string
	Options map[string]string
	Comment bool // there is a comment in it
}

// tokenKind is a kind of token of a JAAS line.
type tokenKind uint8

const (
	end tokenKind = iota
	word
	quoted
	equals
	semicolon
	broken // text says why
)

type token struct {
	kind tokenKind
	text string
	at   int // character, from 1
}

// ParseLogin reads a JAAS line: module, control flag, options, ';' (Kafka's JaasConfig). Errors name positions: any text may be the piece of a password with a stray quote.
func ParseLogin(text string) (Login, error) {
	wrong := func(at int, what string) (Login, error) {
		return Login{}, fmt.Errorf("at character %d %s", at, what)
	}
	in := &loginReader{text: []rune(text)}
	if at, problem := in.unclosed(); problem != "" {
		return wrong(at, problem)
	}
	next := in.next
	module := next()
	if module.kind != word {
		return wrong(module.at, "the class of a login module is expected")
	}
	if flag := next(); flag.kind != word || !slices.Contains([]string{"required", "requisite", "sufficient", "optional"}, strings.ToLower(flag.text)) {
		return wrong(flag.at, "one of required, requisite, sufficient and optional is expected")
	}
	l := Login{Module: module.text, Options: map[string]string{}}
	for {
		name := next()
		switch name.kind {
		case semicolon:
			if more := next(); more.kind != end {
				return wrong(more.at, "something follows the ';': exactly one login module has to be there")
			}
			l.Comment = in.comment
			return l, nil
		case end:
			return wrong(name.at, "the ';' at the end is missing")
		case word:
		default:
			return wrong(name.at, "the name of an option is expected")
		}
		if is := next(); is.kind != equals {
			return wrong(is.at, "'=' is expected after the name of an option")
		}
		value := next()
		if value.kind != word && value.kind != quoted {
			return wrong(value.at, "the value of an option is expected")
		}
		if _, again := l.Options[name.text]; again {
			return wrong(name.at, "an option comes a second time")
		}
		l.Options[name.text] = value.text
	}
}

// loginReader cuts a line as Java's StreamTokenizer does: quotes are " and ', comments // and /* */.
type loginReader struct {
	text    []rune
	i       int
	comment bool // there was one
}

// unclosed looks through the whole line for a quote or a comment that is not closed. It goes back to the begin.
func (r *loginReader) unclosed() (at int, problem string) {
	for {
		switch t := r.next(); t.kind {
		case broken:
			return t.at, t.text
		case end:
			r.i, r.comment = 0, false
			return 0, ""
		}
	}
}

// next is the next token; at the end of the line, and behind what is broken, always the same one.
func (r *loginReader) next() token {
	s := r.text
	for r.i < len(s) {
		from := r.i
		switch c := s[from]; {
		case c <= ' ':
			r.i++
		case c == '=' || c == ';':
			r.i++
			kind := equals
			if c == ';' {
				kind = semicolon
			}
			return token{kind: kind, at: from + 1}
		case c == '/' && from+1 < len(s) && s[from+1] == '/':
			r.comment = true
			for r.i < len(s) && s[r.i] != '\n' && s[r.i] != '\r' {
				r.i++
			}
		case c == '/' && from+1 < len(s) && s[from+1] == '*':
			r.comment = true
			closing := from + 2
			for closing+1 < len(s) && (s[closing] != '*' || s[closing+1] != '/') {
				closing++
			}
			if closing+1 >= len(s) {
				return token{kind: broken, at: from + 1, text: "a comment is not closed"}
			}
			r.i = closing + 2
		case c == '"' || c == '\'':
			value, after, ok := quotedText(s, from)
			if !ok {
				return token{kind: broken, at: from + 1, text: "a quote is not closed"}
			}
			r.i = after
			return token{kind: quoted, text: value, at: from + 1}
		default:
			for r.i < len(s) && s[r.i] > ' ' && !strings.ContainsRune(`=;"'`, s[r.i]) {
				r.i++
			}
			return token{kind: word, text: string(s[from:r.i]), at: from + 1}
		}
	}
	return token{kind: end, at: len(s) + 1}
}

// quotedText reads the quoted text that begins at i, with StreamTokenizer's escapes. A line end inside does not close it: it makes it wrong.
func quotedText(s []rune, i int) (value string, after int, ok bool) {
	quote := s[i]
	var b strings.Builder
	for i++; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return b.String(), i + 1, true
		case c == '\n' || c == '\r':
			return "", 0, false
		case c == '\\':
			i++
			if i == len(s) {
				return "", 0, false
			}
			if at := strings.IndexRune("abfnrtv", s[i]); at >= 0 {
				b.WriteByte("\a\b\f\n\r\t\v"[at])
				continue
			}
			if s[i] < '0' || s[i] > '7' {
				b.WriteRune(s[i])
				continue
			}
			most := 2 // digits: \377 is the largest
			if s[i] <= '3' {
				most = 3
			}
			code := rune(0)
			for n := 0; n < most && i < len(s) && s[i] >= '0' && s[i] <= '7'; n++ {
				code = code*8 + s[i] - '0'
				i++
			}
			i--
			b.WriteRune(code)
		default:
			b.WriteRune(c)
		}
	}
	return "", 0, false
}

// modulePattern is the name of a class.
var modulePattern = regexp.MustCompile(`^[\w.$]+$`)

// isOpen says whether an option of Kafka's login modules is no secret. Logins with unsecured tokens hold none at all.
func isOpen(option string) bool {
	return slices.Contains([]string{"username", "tokenauth", "clientId", "scope"}, option) || strings.HasPrefix(option, "extension_") || strings.HasPrefix(option, "unsecuredLogin")
}

// loginHoldsSecret says whether a login line holds a secret itself. A line that cannot be read counts as one, and so do an option that is not known, a secret of which only a part
// is a reference, and a comment.
func loginHoldsSecret(line string) bool {
	l, err := ParseLogin(line)
	if err != nil || l.Comment || !modulePattern.MatchString(l.Module) {
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(l.Options)) {
		if value := l.Options[name]; value != "" && !IsReference(value) && !isOpen(name) {
			return true
		}
	}
	return false
}
