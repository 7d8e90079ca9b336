package replicaserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka's names of the SASL mechanisms.
const (
	mechanismPlain    = "PLAIN"
	mechanismScram256 = "SCRAM-SHA-256"
	mechanismScram512 = "SCRAM-SHA-512"
)

// exchange is one run of a SASL mechanism on the server's side. step takes what the client sent; done comes with the user who is proven. Errors never hold what the client sent.
type exchange interface {
	step(message []byte) (reply []byte, user string, done bool, err error)
}

// login is where a connection's SASL login is.
type login struct {
	mechanism string   // of the last login, "" none yet
	exchange  exchange // that runs, nil none
}

// handshake begins a login, or on a connection that is logged in another one of the same mechanism (KIP-368). The error, if any, ends the connection after the answer.
func (c *connection) handshake(req *kmsg.SASLHandshakeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrSASLHandshakeResponse()
	resp.Version, resp.SupportedMechanisms = req.Version, c.server.config.mechanisms()
	sasl := &c.server.config.SASL
	switch {
	case c.login.exchange != nil:
		resp.ErrorCode = codeIllegalSASLState
		return resp, &refusal{"login", "a handshake within a login"}
	case c.authenticated && req.Mechanism != c.login.mechanism:
		resp.ErrorCode = codeIllegalSASLState
		return resp, &refusal{"login", "another mechanism than that of the first login"}
	case !slices.Contains(resp.SupportedMechanisms, req.Mechanism):
		resp.ErrorCode = codeUnsupportedMechanism
		return resp, &refusal{"mechanism", fmt.Sprintf("%.20q is not offered here; the brokers' sasl.mechanism.inter.broker.protocol must be one of %q", req.Mechanism, resp.SupportedMechanisms)}
	case req.Mechanism == mechanismPlain:
		c.login.exchange = plainExchange(sasl.Plain)
	case req.Mechanism == mechanismScram256:
		c.login.exchange = &scramExchange{newHash: sha256.New, lookup: sasl.ScramSHA256}
	case req.Mechanism == mechanismScram512:
		c.login.exchange = &scramExchange{newHash: sha512.New, lookup: sasl.ScramSHA512}
	}
	c.login.mechanism = req.Mechanism
	return resp, nil
}

// authenticate takes one message of a login. A failure ends the connection after the answer, at once; the answer does not say what failed.
func (c *connection) authenticate(req *kmsg.SASLAuthenticateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	resp.Version, resp.SASLAuthBytes = req.Version, []byte{}
	if c.login.exchange == nil {
		resp.ErrorCode = codeIllegalSASLState
		return resp, &refusal{"login", "without a handshake"}
	}
	reply, user, done, err := c.login.exchange.step(req.SASLAuthBytes)
	if err == nil && done && c.authenticated && c.principal != "User:"+user {
		err = errors.New("another user than at the first login")
	}
	if err != nil {
		message := "Authentication failed"
		resp.ErrorCode, resp.ErrorMessage = codeAuthenticationFailed, &message
		return resp, &refusal{"authentication failed", c.login.mechanism + ": " + err.Error()}
	}
	if reply != nil {
		resp.SASLAuthBytes = reply
	}
	if done {
		c.login.exchange, c.principal, c.authenticated = nil, "User:"+user, true
	}
	return resp, nil
}

// plainExchange is the mechanism PLAIN (RFC 4616).
type plainExchange func(user, password string) bool

func (verify plainExchange) step(message []byte) (reply []byte, user string, done bool, err error) {
	parts := bytes.Split(message, []byte{0})
	if len(parts) != 3 || len(parts[1]) == 0 || len(parts[2]) == 0 {
		return nil, "", false, errors.New("the message is not one of PLAIN")
	}
	if len(parts[0]) > 0 && !bytes.Equal(parts[0], parts[1]) {
		return nil, "", false, errors.New("it asks to act as another user")
	}
	if user = string(parts[1]); !verify(user, string(parts[2])) {
		return nil, "", false, errors.New("wrong user or password")
	}
	return nil, user, true, nil
}
