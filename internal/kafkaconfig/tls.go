package kafkaconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"
)

// store is one PEM store: a file, or text. Both are read anew for each connection.
type store struct {
	location        string // of a file
	text            string // as set, perhaps a reference
	setting         string // the name of whichever is set
	key, keySetting string // of a key store that is set as text
	password        string // of the key, as set
}

func (s store) isSet() bool { return s.location != "" || s.text != "" }

// tlsSettings makes a TLS configuration for each connection.
type tlsSettings struct {
	trust, own     store
	checkHost      bool
	least, highest uint16
}

// howToConvert are the ways out of Java's formats.
const howToConvert = "convert it to PEM: keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12; " +
	"then openssl pkcs12 -in store.p12 -nodes -out store.pem (or, for authorities only, keytool -exportcert -rfc -keystore STORE -alias ALIAS -file store.pem)"

// newTLS checks the settings of TLS. Nothing is read yet.
func newTLS(get func(string) string, settings map[string]string) (*tlsSettings, []error) {
	var errs []error
	wrong := func(setting, problem, advice string) {
		errs = append(errs, &Error{Setting: setting, Problem: problem, Advice: advice})
	}
	set := func(name string) bool { return strings.TrimSpace(settings[name]) != "" }
	for _, name := range []string{TruststoreType, KeystoreType} {
		switch kind := get(name); strings.ToUpper(kind) {
		case "", "PEM":
		case "JKS", "PKCS12", "BCFKS":
			wrong(name, strings.ToUpper(kind)+" is one of Java's formats and is not supported", howToConvert)
		default:
			wrong(name, "is not PEM", "set PEM, or leave it out")
		}
	}
	for _, name := range []string{TruststorePassword, KeystorePassword} {
		if set(name) {
			wrong(name, "a PEM store has no password", "leave it out; a private key's password is "+KeyPassword)
		}
	}
	t := &tlsSettings{least: tls.VersionTLS12, highest: tls.VersionTLS13}

	t.trust = store{location: get(TruststoreLocation), text: settings[TruststoreCertificates], setting: TruststoreLocation}
	if t.trust.location == "" {
		t.trust.setting = TruststoreCertificates
	}
	if t.trust.location != "" && set(TruststoreCertificates) {
		wrong(TruststoreCertificates, "is set beside "+TruststoreLocation, "set one of them")
	}
	t.own = store{
		location: get(KeystoreLocation), text: settings[KeystoreChain], setting: KeystoreLocation,
		key: settings[KeystoreKey], keySetting: KeystoreLocation, password: strings.TrimSpace(settings[KeyPassword]),
	}
	if t.own.location == "" {
		t.own.setting, t.own.keySetting = KeystoreChain, KeystoreKey
	}
	switch {
	case t.own.location != "" && (set(KeystoreKey) || set(KeystoreChain)):
		wrong(KeystoreLocation, "is set beside "+KeystoreKey+" or "+KeystoreChain, "set either the file, which holds key and certificates, or both of the others")
	case set(KeystoreKey) != set(KeystoreChain):
		wrong(KeystoreKey, "only one of it and "+KeystoreChain+" is set", "set both")
	case set(KeyPassword) && !t.own.isSet():
		wrong(KeyPassword, "is set and no key is", "set "+KeystoreLocation+", or leave it out")
	}

	// Absent is Kafka's default, https; empty switches the check off.
	check, isSet := settings[HostNameCheck]
	switch strings.ToLower(strings.TrimSpace(check)) {
	case "https":
		t.checkHost = true
	case "":
		t.checkHost = !isSet
	default:
		wrong(HostNameCheck, "is neither https nor empty", "leave it out: the host name is checked")
	}

	if versions := get(EnabledProtocols); versions != "" {
		t.least, t.highest = tls.VersionTLS13, tls.VersionTLS12
		for _, v := range strings.Split(versions, ",") {
			switch strings.TrimSpace(v) {
			case "TLSv1.2":
				t.least = tls.VersionTLS12
			case "TLSv1.3":
				t.highest = tls.VersionTLS13
			default:
				wrong(EnabledProtocols, "has a version that is neither TLSv1.2 nor TLSv1.3", "older ones are not safe; name one of these or both")
				return t, errs
			}
		}
	}
	return t, errs
}

// config reads the stores and makes the configuration for one connection to host.
func (t *tlsSettings) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: t.least, MaxVersion: t.highest}
	if t.trust.isSet() {
		text, err := t.trust.read()
		if err != nil {
			return nil, err
		}
		certs, err := certificates(text)
		if err != nil {
			return nil, unreadable(t.trust.setting, t.trust.location, err)
		}
		c.RootCAs = x509.NewCertPool()
		for _, cert := range certs {
			c.RootCAs.AddCert(cert)
		}
	}
	if t.own.isSet() {
		pair, err := t.own.pair()
		if err != nil {
			return nil, err
		}
		// Whatever authorities the server names: the one certificate that there is, so that a refusal speaks of it.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	if !t.checkHost {
		// What crypto/tls does is done here without the name.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
			for _, cert := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(cert)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return c, nil
}

// read is the store's text as it is now.
func (s store) read() (string, error) {
	if s.location == "" {
		return resolve(s.setting, s.text)
	}
	b, err := readFile(s.location)
	if err != nil {
		return "", &Error{Setting: s.setting, Problem: "the file cannot be read", Err: err, Advice: "correct the path, or its permissions for this process's user"}
	}
	return string(b), nil
}

// pair is the key store's certificate as it is now, if it is good.
func (s store) pair() (tls.Certificate, error) {
	pair, err := s.load()
	if err != nil {
		return tls.Certificate{}, err
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		// The server would refuse it, with fewer words.
		return tls.Certificate{}, &Error{
			Setting: s.setting, Problem: "the client certificate expired at " + pair.Leaf.NotAfter.UTC().Format(time.RFC3339),
			Advice: "put a new certificate there; it is taken up at the next connection",
		}
	}
	return pair, nil
}

// load reads the key store's certificate.
func (s store) load() (tls.Certificate, error) {
	chain, err := s.read()
	if err != nil {
		return tls.Certificate{}, err
	}
	key := chain
	if s.location == "" {
		if key, err = resolve(s.keySetting, s.key); err != nil {
			return tls.Certificate{}, err
		}
	}
	password, err := resolve(KeyPassword, s.password)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := keyPair(chain, key, password)
	if err != nil {
		return tls.Certificate{}, unreadable(s.keySetting, s.location, err)
	}
	return pair, nil
}

// unreadable says why PEM cannot be used and what to do. path is empty for text.
func unreadable(setting, path string, err error) *Error {
	e := &Error{Setting: setting, Problem: "cannot be used", Err: err, Advice: "check the PEM text"}
	if path != "" {
		e.Problem = path + " cannot be used"
	}
	switch {
	case errors.Is(err, errNoPEM):
		e.Advice = "if it is a Java or PKCS12 store, " + howToConvert
	case errors.Is(err, errOldCipher), errors.Is(err, errScheme):
		e.Advice = "convert the key: openssl pkcs8 -topk8 -v2 aes-256-cbc -in KEY -out key.pem"
	case errors.Is(err, errNoPassword), errors.Is(err, errWrongKey):
		e.Advice = "set " + KeyPassword + " to its password"
	}
	return e
}

// explain says in the settings' terms why a connection to host failed in TLS; what it cannot explain it returns as it is.
func explain(host string, err error) error {
	var (
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &record):
		return &Error{Setting: SecurityProtocol, Problem: host + " does not answer in TLS", Err: err, Advice: "use the cluster's TLS listener, or a protocol without SSL"}
	case errors.As(err, &authority):
		return &Error{
			Setting: TruststoreLocation, Problem: "the certificate of " + host + " is not signed by an authority that is trusted here", Err: err,
			Advice: "put the authority's certificate there, or into " + TruststoreCertificates,
		}
	case errors.As(err, &name):
		return &Error{
			Setting: HostNameCheck, Problem: "the certificate of " + host + " is for other names", Err: err,
			Advice: "use a name that is in the certificate in " + Bootstrap + " and in the brokers' advertised.listeners, or give the brokers certificates with this name",
		}
	case errors.As(err, &invalid):
		return &Error{Setting: SecurityProtocol, Problem: "the certificate of " + host + " is not valid", Err: err, Advice: "renew it at the broker, and check the clock of this machine"}
	case errors.As(err, &op) && op.Op == "remote error":
		return &Error{
			Setting: KeystoreLocation, Problem: host + " refused the TLS connection", Err: err,
			Advice: "if it asks for client certificates, set one that is valid and signed by an authority that the broker trusts",
		}
	}
	return err
}

// tlsConn explains alerts that arrive late: in TLS 1.3 a server judges the client's certificate after the handshake.
type tlsConn struct {
	net.Conn
	host string
}

func (c *tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = explain(c.host, err)
	}
	return n, err
}
