package kafkaconfig

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// unsecuredClaims makes the claims of an unsecured token of a login's options (Kafka's OAuthBearerUnsecuredLoginCallbackHandler), without the times.
// Errors repeat no value.
func unsecuredClaims(options map[string]string) (map[string]any, error) {
	claims := map[string]any{}
	for name, value := range options {
		kind, claim, ok := strings.Cut(strings.TrimPrefix(name, "unsecuredLogin"), "_")
		if !ok || kind == "Extension" {
			continue
		}
		if claim == "iat" || claim == "exp" {
			return nil, fmt.Errorf("the claim %s is set by the client itself", claim)
		}
		if _, again := claims[claim]; again {
			return nil, fmt.Errorf("the claim %s is set twice", claim)
		}
		switch kind {
		case "StringClaim":
			claims[claim] = value
		case "NumberClaim":
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("the claim %s is not a number", claim)
			}
			claims[claim] = n
		case "ListClaim": // the first character is what separates the items
			var items []string
			if value != "" {
				items = strings.Split(value[1:], value[:1])
			}
			claims[claim] = items
		}
	}
	principal := orElse(options["unsecuredLoginPrincipalClaimName"], "sub")
	if s, ok := claims[principal].(string); !ok || s == "" {
		return nil, fmt.Errorf("the option unsecuredLoginStringClaim_%s, who the client is, is not set", principal)
	}
	if _, err := lifetime(options); err != nil {
		return nil, err
	}
	return claims, nil
}

func lifetime(options map[string]string) (time.Duration, error) {
	seconds, err := strconv.ParseInt(orElse(options["unsecuredLoginLifetimeSeconds"], "3600"), 10, 32)
	if err != nil || seconds < 1 {
		return 0, errors.New("the option unsecuredLoginLifetimeSeconds is not a number of seconds from 1 on")
	}
	return time.Duration(seconds) * time.Second, nil
}

// unsecuredToken is a token that nobody signed, for clusters that accept such: tests and trials.
func unsecuredToken(options map[string]string) (string, error) {
	claims, err := unsecuredClaims(options)
	if err != nil {
		return "", &Error{Setting: JAAS, Problem: err.Error(), Advice: "see Kafka's documentation of unsecured OAUTHBEARER tokens"}
	}
	life, _ := lifetime(options)
	now := time.Now()
	claims["iat"], claims["exp"] = now.Unix(), now.Add(life).Unix()
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(body) + ".", nil
}

var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x21-\x7E \t\r\n]+$`)
)

// saslExtensions are the options with a prefix, checked as RFC 7628 asks.
func saslExtensions(prefix string, options map[string]string) (map[string]string, error) {
	extensions := map[string]string{}
	for name, value := range options {
		short, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if !extensionName.MatchString(short) || short == "auth" || !extensionValue.MatchString(value) {
			return nil, errors.New("an option " + prefix + "… has a name or value that SASL does not allow")
		}
		extensions[short] = value
	}
	return extensions, nil
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
