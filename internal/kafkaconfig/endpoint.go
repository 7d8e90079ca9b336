package kafkaconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/secret"
)

const (
	endpointBound   = 10 * time.Second // of one request for a token
	maxTokenAnswer  = 256 << 10
	shortestTokenOf = 5 * time.Second // a token that lives shorter is used once
)

// tokenEndpoint gets tokens with the client credentials grant (RFC 6749, section 4.4) and keeps the last one for four fifths of its life, for the same credentials.
type tokenEndpoint struct {
	address string // as set
	host    string // for errors
	client  *http.Client
	turn    chan struct{} // one request at a time; what follows belongs to its holder

	credentials [3]string
	cached      string
	until       time.Time
}

func newTokenEndpoint(address string) (*tokenEndpoint, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || secret.InAddress(address) {
		return nil, &Error{Setting: TokenEndpoint, Problem: "is not an https or http address without a user in it", Advice: "write https://host/path, and %40 for a '@' that is meant"}
	}
	return &tokenEndpoint{
		address: address, host: u.Host, turn: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: endpointBound,
			// The credentials are for this address and no other.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// token is a token for the login's credentials as they are now.
func (e *tokenEndpoint) token(ctx context.Context, options map[string]string) (string, error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-e.turn }()
	credentials := [3]string{options["clientId"], options["clientSecret"], options["scope"]}
	if e.cached != "" && credentials == e.credentials && time.Now().Before(e.until) {
		return e.cached, nil
	}
	token, life, err := e.ask(ctx, credentials)
	if err != nil {
		return "", err
	}
	e.credentials, e.cached, e.until = credentials, token, time.Now().Add(life*4/5)
	if life < shortestTokenOf {
		e.cached = ""
	}
	return token, nil
}

// oauthError is what RFC 6749 allows as an error code; anything else of the answer is not repeated.
var oauthError = regexp.MustCompile(`^[a-z_]{1,40}$`)

func (e *tokenEndpoint) ask(ctx context.Context, credentials [3]string) (token string, life time.Duration, err error) {
	wrong := func(advice, problem string, cause error) (string, time.Duration, error) {
		return "", 0, &Error{Setting: TokenEndpoint, Problem: e.host + " " + problem, Err: cause, Advice: advice}
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if credentials[2] != "" {
		form.Set("scope", credentials[2])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.address, strings.NewReader(form.Encode()))
	if err != nil {
		return wrong("correct the address", "cannot be asked", nil)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	request.SetBasicAuth(credentials[0], credentials[1])
	response, err := e.client.Do(request)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address, which may have a query
		}
		return wrong("check the address, and that it can be reached from here", "gave no token", err)
	}
	defer response.Body.Close()
	var answer struct {
		Token string  `json:"access_token"`
		Life  float64 `json:"expires_in"`
		Error string  `json:"error"`
	}
	body, readErr := io.ReadAll(io.LimitReader(response.Body, maxTokenAnswer))
	jsonErr := json.Unmarshal(body, &answer)
	switch {
	case response.StatusCode != http.StatusOK:
		said := fmt.Sprintf("refused with HTTP status %d", response.StatusCode)
		if oauthError.MatchString(answer.Error) && !repeats(credentials, answer.Error) {
			said += " and " + answer.Error
		}
		return wrong("check clientId, clientSecret and scope in "+JAAS, said, nil)
	case readErr != nil || jsonErr != nil || answer.Token == "":
		return wrong("check that the address is that of the token endpoint", "answered without an access token", nil)
	}
	if answer.Life <= 0 || answer.Life > 1e6 {
		answer.Life = 0
	}
	return answer.Token, time.Duration(answer.Life * float64(time.Second)), nil
}

// repeats says whether an answer gives a credential back.
func repeats(credentials [3]string, said string) bool {
	for _, c := range credentials[:2] {
		if c != "" && strings.Contains(said, c) {
			return true
		}
	}
	return false
}
