package kafkaconfig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
)

// mechanism makes the mechanism of SASL settings.
func mechanism(t *testing.T, settings map[string]string) sasl.Mechanism {
	t.Helper()
	m, errs := newSASL(func(name string) string { return settings[name] }, settings[JAAS])
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return m
}

// shows is what a mechanism shows to the broker first.
func shows(t *testing.T, m sasl.Mechanism) string {
	t.Helper()
	_, first, err := m.Authenticate(t.Context(), "broker:9092")
	if err != nil {
		t.Fatal(err)
	}
	return string(first)
}

func TestF77PasswordsAreReadAtEachAuthentication(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "s.properties"), "p=one\n")
	for _, jaas := range []string{
		plainModule + ` required username="alice" password="${file:` + file + `:p}";`,
		"${file:" + file + ":jaas}",
	} {
		password := func(p string) {
			write(t, file, "p="+p+"\njaas="+plainModule+` required username="alice" password="`+p+"\";\n")
		}
		password("one")
		m := mechanism(t, map[string]string{JAAS: jaas})
		if got := shows(t, m); m.Name() != "PLAIN" || got != "\x00alice\x00one" {
			t.Errorf("%s shows %q", m.Name(), got)
		}
		password("two")
		if got := shows(t, m); got != "\x00alice\x00two" {
			t.Errorf("after the change it shows %q", got)
		}
		write(t, file, "other=two\n")
		_, _, err := m.Authenticate(t.Context(), "")
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), file+" has no key") || e.Advice == "" {
			t.Errorf("without the key: %v", err)
		}
		password("")
		if _, _, err := m.Authenticate(t.Context(), ""); err == nil || !strings.HasPrefix(err.Error(), JAAS) {
			t.Errorf("an empty password: %v", err)
		}
	}
}

func TestMechanisms(t *testing.T) {
	t.Setenv("KAFKACONFIG_USER", "bob")
	for mech, hash := range map[string]string{"SCRAM-SHA-256": "", "SCRAM-SHA-512": ""} {
		m := mechanism(t, map[string]string{Mechanism: mech, JAAS: scramModule + ` required username="${env:KAFKACONFIG_USER}" password="x"` + hash + `;`})
		if got := shows(t, m); m.Name() != mech || !strings.HasPrefix(got, "n,,n=bob,r=") {
			t.Errorf("%s shows %q", m.Name(), got)
		}
	}
	m := mechanism(t, map[string]string{Mechanism: "SCRAM-SHA-256", JAAS: scramModule + ` required username=a password=b tokenauth=true;`})
	if got := shows(t, m); !strings.HasSuffix(got, ",tokenauth=true") {
		t.Errorf("a delegation token shows %q", got)
	}
}

func TestUnsecuredToken(t *testing.T) {
	m := mechanism(t, map[string]string{Mechanism: "OAUTHBEARER", JAAS: oauthModule + ` required unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_n="1.5"
		unsecuredLoginListClaim_scope=",a,b" unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_trace="x y";`})
	got := shows(t, m)
	token, ok := strings.CutPrefix(got, "n,,\x01auth=Bearer ")
	token, rest, _ := strings.Cut(token, "\x01")
	parts := strings.Split(token, ".")
	if !ok || rest != "trace=x y\x01\x01" || len(parts) != 3 || parts[2] != "" {
		t.Fatalf("it shows %q", got)
	}
	header, _ := base64.RawURLEncoding.DecodeString(parts[0])
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || string(header) != `{"alg":"none"}` {
		t.Fatalf("%s %v", header, err)
	}
	var claims struct {
		Sub      string
		N        float64
		Scope    []string
		Iat, Exp int64
	}
	if err := json.Unmarshal(body, &claims); err != nil || claims.Sub != "alice" || claims.N != 1.5 || len(claims.Scope) != 2 || claims.Exp-claims.Iat != 60 {
		t.Errorf("%s, %v", body, err)
	}
}

func TestLoginsThatDoNotFit(t *testing.T) {
	for _, c := range []struct{ mechanism, jaas, says string }{
		{"GSSAPI", "x", "GSSAPI (Kerberos) is not supported"},
		{"marker", "x", "none of PLAIN"},
		{"", "", "is not set; set it to: " + plainModule},
		{"", scramModule + ` required username="a" password="b";`, "does not fit the mechanism PLAIN; use " + plainModule},
		{"SCRAM-SHA-256", plainModule + ` required username="a" password="b";`, "use " + scramModule},
		{"PLAIN", `marker.Module required username="a" password="b";`, "does not fit"},
		{"PLAIN", plainModule + ` required username="a";`, "the option password is not set"},
		{"PLAIN", plainModule + ` required password="a";`, "the option username is not set"},
		{"PLAIN", plainModule + ` required username="a" password="marker" marker="x";`, "one of PlainLoginModule's here: username, password"},
		{"PLAIN", plainModule + ` required username="a" password="b" user_bob="marker";`, "one of PlainLoginModule's here: username, password"},
		{"OAUTHBEARER", oauthModule + ` required;`, "unsecuredLoginStringClaim_sub, who the client is, is not set"},
		{"OAUTHBEARER", oauthModule + ` required unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_n="marker";`, "is not a number"},
		{"OAUTHBEARER", oauthModule + ` required unsecuredLoginStringClaim_sub="a" unsecuredLoginStringClaim_exp="marker";`, "exp is set by the client"},
		{"OAUTHBEARER", oauthModule + ` required unsecuredLoginStringClaim_sub="a" unsecuredLoginLifetimeSeconds="0";`, "unsecuredLoginLifetimeSeconds"},
		{"OAUTHBEARER", oauthModule + ` required clientId="a" clientSecret="marker";`, "the endpoint is not"},
	} {
		_, err := Parse(map[string]string{Bootstrap: "a:1", SecurityProtocol: "SASL_PLAINTEXT", Mechanism: c.mechanism, JAAS: c.jaas})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "marker") {
			t.Errorf("%s, %s\ngave %v, not %q", c.mechanism, c.jaas, err, c.says)
		}
	}
}

// endpoint is a token endpoint that answers as handle does. asked counts.
func endpoint(t *testing.T, handle http.HandlerFunc) (settings map[string]string, secretFile string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	secretFile = write(t, filepath.Join(t.TempDir(), "s.properties"), "s=marker\n")
	return map[string]string{
		Mechanism: "OAUTHBEARER", TokenEndpoint: server.URL + "/token", CallbackHandler: callbackHandlers[0],
		JAAS: oauthModule + ` required clientId="mirror-eu" clientSecret="${file:` + secretFile + `:s}" scope="a b" extension_cluster="lkc";`,
	}, secretFile, asked
}

func TestTokenEndpoint(t *testing.T) {
	settings, secretFile, asked := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "mirror-eu" || r.Method != http.MethodPost || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"access_token":"token-%s","token_type":"Bearer","expires_in":300}`, password)
	})
	m := mechanism(t, settings)
	for range 3 {
		if got := shows(t, m); got != "n,,\x01auth=Bearer token-marker\x01cluster=lkc\x01\x01" {
			t.Errorf("it shows %q", got)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for a token that holds for 300 s", n)
	}
	// A changed secret is taken up although the old token would hold.
	write(t, secretFile, "s=new\n")
	if got := shows(t, m); !strings.Contains(got, "Bearer token-new\x01") || asked.Load() != 2 {
		t.Errorf("after the change it shows %q, asked %d times", got, asked.Load())
	}
}

func TestTokenEndpointThatRefuses(t *testing.T) {
	for _, c := range []struct {
		answer http.HandlerFunc
		says   string
	}{
		{func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":"invalid_client","error_description":"marker"}`)
		}, "status 401 and invalid_client; check clientId"},
		{func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error":"the_marker"}`)
		}, "status 400; check"},
		{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/marker", http.StatusFound)
		}, "status 302"},
		{func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `<html>marker`) }, "without an access token"},
		{func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"access_token":""}`) }, "without an access token"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "gave no token"},
	} {
		settings, _, asked := endpoint(t, c.answer)
		_, _, err := mechanism(t, settings).Authenticate(t.Context(), "")
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "marker") {
			t.Errorf("gave %v, not %q", err, c.says)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%q: asked %d times", c.says, n)
		}
	}
}

func TestTokenEndpointThatIsSilentEndsWithItsContext(t *testing.T) {
	released := make(chan struct{})
	settings, _, _ := endpoint(t, func(http.ResponseWriter, *http.Request) { <-released })
	defer close(released)
	m := mechanism(t, settings)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	results := make(chan error, 2)
	for range 2 { // one asks, the other waits for its turn
		go func() {
			_, _, err := m.Authenticate(ctx, "")
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it gave %v", err)
		}
	}
}

func TestTokenEndpointAddress(t *testing.T) {
	for _, address := range []string{"marker", "ftp://host/x", "https://", "https://user:marker@host/x", "http://a b/"} {
		if _, err := newTokenEndpoint(address); err == nil || strings.Contains(err.Error(), "marker") {
			t.Errorf("%s gave %v", address, err)
		}
	}
}
