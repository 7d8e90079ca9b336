package replicaserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
	"strings"
)

var (
	errScramMessage = errors.New("the message is not one of SCRAM")
	errScramLogin   = errors.New("wrong user or password")
)

// scramExchange is the server's side of SCRAM (RFC 5802) without channel binding: two messages from the client, two answers.
type scramExchange struct {
	newHash func() hash.Hash
	lookup  func(user string) (ScramCredential, bool)

	user        string
	credential  ScramCredential
	binding     string // the client's first field, which it repeats
	nonce       string // the client's and ours
	clientFirst string // the client's first message without binding
	serverFirst string
}

func (s *scramExchange) step(message []byte) (reply []byte, user string, done bool, err error) {
	if s.serverFirst == "" {
		reply, err = s.first(string(message))
		return reply, "", false, err
	}
	reply, err = s.final(string(message))
	return reply, s.user, err == nil, err
}

// first answers the client's first message with the salt.
func (s *scramExchange) first(message string) ([]byte, error) {
	fields := strings.SplitN(message, ",", 3)
	if len(fields) < 3 {
		return nil, errScramMessage
	}
	// n: no channel binding; y: the client could, but believes that the server cannot, which is true.
	if fields[0] != "n" && fields[0] != "y" {
		return nil, errors.New("channel binding is not offered")
	}
	s.binding, s.clientFirst = fields[0]+","+fields[1]+",", fields[2]
	attributes := strings.Split(s.clientFirst, ",")
	if len(attributes) < 2 || !strings.HasPrefix(attributes[0], "n=") || !strings.HasPrefix(attributes[1], "r=") {
		return nil, errScramMessage
	}
	for _, a := range attributes[2:] {
		if a == "tokenauth=true" {
			return nil, errors.New("delegation tokens are not for brokers")
		}
	}
	user, ok := unescapeName(attributes[0][2:])
	clientNonce := attributes[1][2:]
	if !ok || user == "" || !isNonce(clientNonce) {
		return nil, errScramMessage
	}
	if as := fields[1]; as != "" {
		if name, ok := unescapeName(strings.TrimPrefix(as, "a=")); !ok || !strings.HasPrefix(as, "a=") || name != user {
			return nil, errors.New("it asks to act as another user")
		}
	}
	if s.credential, ok = s.lookup(user); !ok || len(s.credential.StoredKey) != s.newHash().Size() || len(s.credential.ServerKey) != s.newHash().Size() {
		return nil, errScramLogin
	}
	s.user, s.nonce = user, clientNonce+rand.Text()
	s.serverFirst = "r=" + s.nonce + ",s=" + base64.StdEncoding.EncodeToString(s.credential.Salt) + ",i=" + strconv.Itoa(int(s.credential.Iterations))
	return []byte(s.serverFirst), nil
}

// final checks the client's proof, and proves in turn that the server knows the user.
func (s *scramExchange) final(message string) ([]byte, error) {
	at := strings.LastIndex(message, ",p=")
	if at < 0 {
		return nil, errScramMessage
	}
	without, proofText := message[:at], message[at+3:]
	fields := strings.Split(without, ",")
	if len(fields) < 2 || fields[0] != "c="+base64.StdEncoding.EncodeToString([]byte(s.binding)) || fields[1] != "r="+s.nonce {
		return nil, errScramMessage
	}
	proof, err := base64.StdEncoding.DecodeString(proofText)
	if err != nil || len(proof) != len(s.credential.StoredKey) {
		return nil, errScramMessage
	}
	signed := s.clientFirst + "," + s.serverFirst + "," + without
	key := make([]byte, len(proof))
	subtle.XORBytes(key, proof, s.sign(s.credential.StoredKey, signed))
	h := s.newHash()
	h.Write(key)
	if subtle.ConstantTimeCompare(h.Sum(nil), s.credential.StoredKey) != 1 {
		return nil, errScramLogin
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(s.sign(s.credential.ServerKey, signed))), nil
}

func (s *scramExchange) sign(key []byte, text string) []byte {
	m := hmac.New(s.newHash, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// unescapeName reads a user's name: a comma is =2C, an equals sign =3D, and no other equals sign may be in it.
func unescapeName(s string) (name string, ok bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "=")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), true
		case strings.HasPrefix(after, "2C"):
			b.WriteByte(',')
		case strings.HasPrefix(after, "3D"):
			b.WriteByte('=')
		default:
			return "", false
		}
		s = after[2:]
	}
}

// isNonce says whether a client's nonce is printable and has no comma.
func isNonce(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e || s[i] == ',' {
			return false
		}
	}
	return s != ""
}
