package kafkaconfig

import (
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/secret"
)

// Names of settings of the side that is connected to.
const (
	ClientAuth = "ssl.client.auth"
	PlainJAAS  = "plain.sasl.jaas.config"
)

// Server is how a listener shows who it is, and whom it lets in. Stores and passwords are read anew for each connection.
type Server struct {
	TLS           func() (*tls.Config, error)      // nil: no TLS
	PlainPassword func(user, password string) bool // nil: no users for PLAIN are set
	Certificates  func() []Certificate             // the own one, read now; nil: no TLS
}

// ServerNames are the settings that ParseServer knows.
var ServerNames = []string{
	KeystoreType, KeystoreLocation, KeystoreKey, KeystoreChain, KeyPassword, TruststoreType, TruststoreLocation, TruststoreCertificates, EnabledProtocols, ClientAuth, PlainJAAS,
}

// ParseServer makes a Server of a listener's settings as Kafka's brokers have them: ssl.keystore.* is its certificate, ssl.truststore.* says whose certificates clients may have,
// ssl.client.auth whether they need one, plain.sasl.jaas.config (of listener.name.<listener>.plain.sasl.jaas.config) has options user_NAME="password". The error joins an *Error for each thing
// that is wrong.
func ParseServer(protocol string, settings map[string]string) (Server, error) {
	var errs []error
	wrong := func(setting, problem, advice string) {
		errs = append(errs, &Error{Setting: setting, Problem: problem, Advice: advice})
	}
	values := map[string]string{}
	for _, name := range ServerNames {
		v := settings[name]
		if !secret.IsSetting(name) && name != PlainJAAS {
			var err error
			if v, err = resolve(name, v); err != nil {
				errs = append(errs, err)
			}
		}
		values[name] = strings.TrimSpace(v)
	}
	get := func(name string) string { return values[name] }
	var s Server
	if strings.HasSuffix(protocol, "SSL") {
		only := map[string]string{}
		for _, name := range ServerNames {
			if v, ok := settings[name]; ok && strings.HasPrefix(name, "ssl.") && name != ClientAuth {
				only[name] = v
			}
		}
		t, faults := newTLS(get, only)
		errs = append(errs, faults...)
		if !t.own.isSet() {
			wrong(KeystoreLocation, "is not set, and a listener with TLS needs a certificate", "set it to a PEM file with the key and the certificates")
		}
		auth := tls.NoClientCert
		switch strings.ToLower(orElse(get(ClientAuth), map[bool]string{true: "required", false: "none"}[protocol == "SSL"])) {
		case "required":
			auth = tls.RequireAndVerifyClientCert
		case "requested":
			auth = tls.VerifyClientCertIfGiven
		case "none":
		default:
			wrong(ClientAuth, "is none of required, requested and none", "set one of them")
		}
		if auth != tls.NoClientCert && !t.trust.isSet() {
			wrong(TruststoreLocation, "is not set, and clients are to show certificates", "set it to a PEM file with the authority that signs theirs")
		}
		s.TLS = func() (*tls.Config, error) { return t.server(auth) }
		s.Certificates = t.own.certificates
	}
	if jaas := settings[PlainJAAS]; strings.TrimSpace(jaas) != "" {
		if !strings.HasPrefix(protocol, "SASL_") {
			wrong(PlainJAAS, "has no effect with the protocol "+protocol, "leave it out, or correct listener.security.protocol.map")
		}
		if !secret.IsReference(jaas) {
			if _, err := plainUsers(jaas); err != nil {
				errs = append(errs, err)
			}
		}
		s.PlainPassword = func(user, password string) bool {
			users, err := plainUsers(jaas)
			if err != nil {
				return false
			}
			want, ok := users["user_"+user]
			if want, err = resolve(PlainJAAS, want); err != nil || !ok || want == "" {
				return false
			}
			return subtle.ConstantTimeCompare([]byte(want), []byte(password)) == 1
		}
	}
	return s, errors.Join(errs...)
}

// plainUsers reads the users of a listener, as they are now.
func plainUsers(jaas string) (map[string]string, error) {
	if secret.IsReference(jaas) {
		var err error
		if jaas, err = resolve(PlainJAAS, jaas); err != nil {
			return nil, err
		}
	}
	l, err := secret.ParseLogin(jaas)
	wrong := func(problem, advice string) (map[string]string, error) {
		return nil, &Error{Setting: PlainJAAS, Problem: problem, Advice: advice}
	}
	const how = `write: ` + plainModule + ` required user_NAME="password" … ;`
	switch {
	case err != nil:
		return wrong(err.Error(), how)
	case l.Module != plainModule:
		return wrong("the login module is not PlainLoginModule", how)
	}
	names := 0
	for name := range l.Options {
		if strings.HasPrefix(name, "user_") {
			names++
		} else if !slices.Contains([]string{"username", "password"}, name) {
			return wrong("it has an option that is neither username, password nor user_NAME", "check quotes and spelling")
		}
	}
	if names == 0 {
		return wrong("it names no user", how)
	}
	return l.Options, nil
}

// server reads the stores and makes the configuration for one connection that comes in.
func (t *tlsSettings) server(auth tls.ClientAuthType) (*tls.Config, error) {
	pair, err := t.own.pair()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: t.least, MaxVersion: t.highest, ClientAuth: auth}
	if auth != tls.NoClientCert {
		text, err := t.trust.read()
		if err != nil {
			return nil, err
		}
		certs, err := certificates(text)
		if err != nil {
			return nil, unreadable(t.trust.setting, t.trust.location, err)
		}
		c.ClientCAs = x509.NewCertPool()
		for _, cert := range certs {
			c.ClientCAs.AddCert(cert)
		}
	}
	return c, nil
}
