package kafkaconfig

import (
	"fmt"
	"slices"
	"strings"
)

// The login modules of Kafka's clients.
const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	oauthModule = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
)

// login is a JAAS line: a module and its options, references not resolved.
type login struct {
	module  string
	options map[string]string
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

type jaasToken struct {
	kind tokenKind
	text string
	at   int // character, from 1
}

// parseLogin reads a JAAS line: module, control flag, options, ';' (Kafka's JaasConfig). Errors name positions: any text may be the piece of a password with a stray quote.
func parseLogin(text string) (login, *Error) {
	wrong := func(at int, format string, args ...any) (login, *Error) {
		return login{}, &Error{
			Setting: JAAS, Problem: fmt.Sprintf("at character %d ", at) + fmt.Sprintf(format, args...),
			Advice: `write: <module class> required name="value" … ; with \" and \\ for quotes and backslashes inside a value`,
		}
	}
	tokens, at, problem := jaasTokens(text)
	if problem != "" {
		return wrong(at, "%s", problem)
	}
	next := func() jaasToken {
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
	l := login{module: module.text, options: map[string]string{}}
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
		if _, again := l.options[name.text]; again {
			return wrong(name.at, "an option comes a second time")
		}
		l.options[name.text] = value.text
	}
}

// jaasTokens cuts a JAAS line as Java's StreamTokenizer does: quotes are " and ', comments // and /* */.
func jaasTokens(text string) (tokens []jaasToken, at int, problem string) {
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
			tokens = append(tokens, jaasToken{kind: kind, at: i + 1})
			i++
		case c == '/' && i+1 < len(s) && s[i+1] == '/':
			for i < len(s) && s[i] != '\n' && s[i] != '\r' {
				i++
			}
		case c == '/' && i+1 < len(s) && s[i+1] == '*':
			closing := strings.Index(string(s[i+2:]), "*/")
			if closing < 0 {
				return nil, i + 1, "a comment is not closed"
			}
			i += 2 + len([]rune(string(s[i+2:])[:closing])) + 2
		case c == '"' || c == '\'':
			value, after, ok := jaasQuoted(s, i)
			if !ok {
				return nil, i + 1, "a quote is not closed"
			}
			tokens = append(tokens, jaasToken{kind: quoted, text: value, at: i + 1})
			i = after
		default:
			from := i
			for i < len(s) && s[i] > ' ' && !strings.ContainsRune(`=;"'`, s[i]) {
				i++
			}
			tokens = append(tokens, jaasToken{kind: word, text: string(s[from:i]), at: from + 1})
		}
	}
	return append(tokens, jaasToken{kind: end, at: len(s) + 1}), 0, ""
}

// jaasQuoted reads the quoted text that begins at i, with StreamTokenizer's escapes. A line end inside does not close it: it makes it wrong.
func jaasQuoted(s []rune, i int) (value string, after int, ok bool) {
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

// secretOptions are the options of login modules that are secrets.
var secretOptions = []string{"password", "clientSecret"}

// hasLiteralSecretInLogin says whether a JAAS line holds a secret itself. One that cannot be read counts as such, and so does a secret of which only a part is a reference.
func hasLiteralSecretInLogin(text string) bool {
	l, err := parseLogin(text)
	if err != nil {
		return true
	}
	known := optionsOf(l.module)
	for name, value := range l.options {
		secret := slices.Contains(secretOptions, name) || !slices.ContainsFunc(known, func(k string) bool { return isOption(k, name) })
		if secret && value != "" && !isReference(value) {
			return true
		}
	}
	return false
}
