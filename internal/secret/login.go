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
	tokens, comment, at, problem := loginTokens(text)
	if problem != "" {
		return wrong(at, problem)
	}
	next := func() token {
		t := tokens[0]
		if t.kind != end {
			tokens = tokens[1:]
		}
		return t
	}
	module := next()
	if module.kind != word {
		return wrong(module.at, "the class of a login module is expected")
	}
	if flag := next(); flag.kind != word || !slices.Contains([]string{"required", "requisite", "sufficient", "optional"}, strings.ToLower(flag.text)) {
		return wrong(flag.at, "one of required, requisite, sufficient and optional is expected")
	}
	l := Login{Module: module.text, Options: map[string]string{}, Comment: comment}
	for {
		name := next()
		switch name.kind {
		case semicolon:
			if more := next(); more.kind != end {
				return wrong(more.at, "something follows the ';': exactly one login module has to be there")
			}
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

// loginTokens cuts a line as Java's StreamTokenizer does: quotes are " and ', comments // and /* */.
func loginTokens(text string) (tokens []token, comment bool, at int, problem string) {
	s := []rune(text)
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c <= ' ':
			i++
		case c == '=' || c == ';':
			kind := equals
			if c == ';' {
				kind = semicolon
			}
			tokens = append(tokens, token{kind: kind, at: i + 1})
			i++
		case c == '/' && i+1 < len(s) && s[i+1] == '/':
			comment = true
			for i < len(s) && s[i] != '\n' && s[i] != '\r' {
				i++
			}
		case c == '/' && i+1 < len(s) && s[i+1] == '*':
			comment = true
			closing := strings.Index(string(s[i+2:]), "*/")
			if closing < 0 {
				return nil, true, i + 1, "a comment is not closed"
			}
			i += 2 + len([]rune(string(s[i+2:])[:closing])) + 2
		case c == '"' || c == '\'':
			value, after, ok := quotedText(s, i)
			if !ok {
				return nil, comment, i + 1, "a quote is not closed"
			}
			tokens = append(tokens, token{kind: quoted, text: value, at: i + 1})
			i = after
		default:
			from := i
			for i < len(s) && s[i] > ' ' && !strings.ContainsRune(`=;"'`, s[i]) {
				i++
			}
			tokens = append(tokens, token{kind: word, text: string(s[from:i]), at: from + 1})
		}
	}
	return append(tokens, token{kind: end, at: len(s) + 1}), comment, 0, ""
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
