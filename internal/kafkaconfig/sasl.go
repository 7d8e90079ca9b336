package kafkaconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/clustermirror/clustermirror/internal/secret"
)

// moduleOf is the login module that a mechanism needs.
var moduleOf = map[string]string{"PLAIN": plainModule, "SCRAM-SHA-256": scramModule, "SCRAM-SHA-512": scramModule, "OAUTHBEARER": oauthModule}

// callbackHandlers are the Java classes that do for Kafka's client what a token endpoint's address alone does here; files of clients have them.
var callbackHandlers = []string{
	"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
	"org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
}

// optionsOf lists the options of a module; one that ends in '_' is a prefix.
func optionsOf(module string) []string {
	switch module {
	case plainModule:
		return []string{"username", "password"}
	case scramModule:
		return []string{"username", "password", "tokenauth"}
	case oauthModule:
		return []string{
			"clientId", "clientSecret", "scope", "extension_",
			"unsecuredLoginStringClaim_", "unsecuredLoginNumberClaim_", "unsecuredLoginListClaim_", "unsecuredLoginExtension_",
			"unsecuredLoginPrincipalClaimName", "unsecuredLoginScopeClaimName", "unsecuredLoginLifetimeSeconds",
		}
	}
	return nil
}

// isOption says whether name is the option, or one of those with the prefix, that known is.
func isOption(known, name string) bool {
	return name == known || strings.HasSuffix(known, "_") && len(name) > len(known) && strings.HasPrefix(name, known)
}

// saslLogin makes what a connection shows when it authenticates.
type saslLogin struct {
	mechanism string
	jaas      string         // as set
	endpoint  *tokenEndpoint // nil: unsecured tokens
}

// newSASL checks the settings of SASL and returns the mechanism. Nothing secret is read yet.
func newSASL(get func(string) string, jaas string) (sasl.Mechanism, []error) {
	s := &saslLogin{mechanism: get(Mechanism), jaas: jaas}
	if s.mechanism == "" {
		s.mechanism = "PLAIN"
	}
	var errs []error
	if moduleOf[s.mechanism] == "" {
		e := &Error{Setting: Mechanism, Problem: "is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER", Advice: "set one of them"}
		if s.mechanism == "GSSAPI" {
			e.Problem, e.Advice = "GSSAPI (Kerberos) is not supported", "use a listener of the cluster that has PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
		}
		return nil, append(errs, e)
	}
	url, handler := get(TokenEndpoint), get(CallbackHandler)
	if url != "" && s.mechanism != "OAUTHBEARER" {
		errs = append(errs, &Error{
			Setting: TokenEndpoint, Problem: "has no effect with the mechanism " + s.mechanism, Advice: "leave it out, or set " + Mechanism + " to OAUTHBEARER",
		})
	}
	if handler != "" && (url == "" || !slices.Contains(callbackHandlers, handler)) {
		errs = append(errs, &Error{
			Setting: CallbackHandler, Problem: "Java classes cannot be used here",
			Advice: "leave it out; a token endpoint needs " + TokenEndpoint + " and the options clientId and clientSecret of " + JAAS + " only",
		})
	}
	if url != "" {
		e, err := newTokenEndpoint(url)
		if err != nil {
			errs = append(errs, err)
		}
		s.endpoint = e
	}
	switch {
	case strings.TrimSpace(jaas) == "":
		errs = append(errs, &Error{Setting: JAAS, Problem: "is not set", Advice: fmt.Sprintf("set it to: %s required … ;", moduleOf[s.mechanism])})
	case !secret.IsReference(jaas): // a reference is read when a connection authenticates
		if _, err := s.read(jaas); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	switch s.mechanism {
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			o, err := s.options()
			return plain.Auth{User: o["username"], Pass: o["password"]}, err
		}), nil
	case "SCRAM-SHA-256":
		return scram.Sha256(s.scram), nil
	case "SCRAM-SHA-512":
		return scram.Sha512(s.scram), nil
	}
	return oauth.Oauth(s.oauth), nil
}

// read parses a JAAS line and checks that it fits the mechanism.
func (s *saslLogin) read(jaas string) (secret.Login, *Error) {
	l, err := parseLogin(jaas)
	if err != nil {
		return secret.Login{}, err
	}
	wrong := func(advice, format string, args ...any) (secret.Login, *Error) {
		return secret.Login{}, &Error{Setting: JAAS, Problem: fmt.Sprintf(format, args...), Advice: advice}
	}
	want := moduleOf[s.mechanism]
	if l.Module != want {
		return wrong("use "+want+", or correct "+Mechanism, "the login module does not fit the mechanism %s", s.mechanism)
	}
	have := optionsOf(want)
	short := want[strings.LastIndexByte(want, '.')+1:]
	for name := range l.Options {
		if !slices.ContainsFunc(have, func(k string) bool { return isOption(k, name) }) {
			// The name is not repeated: after a stray quote it may be the piece of a password.
			return wrong("check quotes and spelling", "it has an option that is not one of %s's here: %s", short, strings.Join(have, ", "))
		}
	}
	var need []string
	switch {
	case want != oauthModule:
		need = []string{"username", "password"}
	case s.endpoint != nil:
		need = []string{"clientId", "clientSecret"}
	}
	for _, name := range need {
		if l.Options[name] == "" {
			return wrong("set it", "the option %s is not set", name)
		}
	}
	if want == oauthModule {
		for name := range l.Options {
			unsecured := strings.HasPrefix(name, "unsecuredLogin")
			if unsecured && s.endpoint != nil {
				return wrong("leave these options out, or "+TokenEndpoint, "options for unsecured tokens and a token endpoint are both set")
			}
			if !unsecured && s.endpoint == nil {
				return wrong("set "+TokenEndpoint+", or use the options unsecuredLogin… for tokens that nobody signed", "the options of a token endpoint are set, and the endpoint is not")
			}
		}
		if s.endpoint == nil {
			if _, err := unsecuredClaims(l.Options); err != nil && !hasReferences(l.Options) {
				return wrong("see Kafka's documentation of unsecured OAUTHBEARER tokens", "%v", err)
			}
		}
	}
	return l, nil
}

func hasReferences(options map[string]string) bool {
	for _, v := range options {
		if secret.HasReference(v) {
			return true
		}
	}
	return false
}

// options are the options of the login, with what the references say at this moment.
func (s *saslLogin) options() (map[string]string, error) {
	jaas := s.jaas
	if secret.IsReference(jaas) {
		var err error
		if jaas, err = resolve(JAAS, jaas); err != nil {
			return nil, err
		}
	}
	l, e := s.read(jaas)
	if e != nil {
		return nil, e
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(l.Options)) {
		v, err := resolve(JAAS+", option "+name, l.Options[name])
		if err != nil {
			return nil, err
		}
		if v == "" && slices.Contains([]string{"username", "password", "clientId", "clientSecret"}, name) {
			return nil, &Error{Setting: JAAS + ", option " + name, Problem: "what the reference names is empty", Advice: "write the value there"}
		}
		out[name] = v
	}
	return out, nil
}

func (s *saslLogin) scram(context.Context) (scram.Auth, error) {
	o, err := s.options()
	return scram.Auth{User: o["username"], Pass: o["password"], IsToken: o["tokenauth"] == "true"}, err
}

func (s *saslLogin) oauth(ctx context.Context) (oauth.Auth, error) {
	o, err := s.options()
	if err != nil {
		return oauth.Auth{}, err
	}
	prefix := "extension_"
	if s.endpoint == nil {
		prefix = "unsecuredLoginExtension_"
	}
	extensions, err := saslExtensions(prefix, o)
	if err != nil {
		return oauth.Auth{}, &Error{Setting: JAAS, Problem: err.Error(), Advice: "an extension's name has letters only, its value printable ASCII (RFC 7628)"}
	}
	a := oauth.Auth{Extensions: extensions}
	if s.endpoint != nil {
		a.Token, err = s.endpoint.token(ctx, o)
	} else {
		a.Token, err = unsecuredToken(o)
	}
	return a, err
}
