package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// enough is the shortest file of a node.
const enough = `node.id=9999
bootstrap.servers=standby-1:9092
controller.quorum.bootstrap.servers=standby-1:9093,standby-2:9093
listeners=INTERNAL://10.0.0.9:9990
mirror.node.folder=/var/lib/kafka-mirror
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.properties")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestShortestFileHasKafkasDefaults(t *testing.T) {
	f, err := ReadFile(write(t, enough))
	if err != nil {
		t.Fatal(err)
	}
	c, k := f.Config(), f.Kraft()
	if c.Name != "9999" || !c.Mirrors("any") || c.HTTP != "" || c.DrainBound != 20*time.Second {
		t.Errorf("%+v", c)
	}
	if k.NodeID != 9999 || !slices.Equal(k.Controllers, []string{"standby-1:9093", "standby-2:9093"}) || k.Listen != "10.0.0.9:9990" || k.Folder != "/var/lib/kafka-mirror" ||
		k.ReplicationFactor != 3 || k.MinInSyncReplicas != 2 || k.Security.Protocol != "PLAINTEXT" || k.Window != kraft.DefaultWindow || k.SessionTimeout != 9*time.Second {
		t.Errorf("%+v", k)
	}
}

// TestEveryMistakeIsNamed: one file with everything wrong says everything at once, and each line says what to do.
func TestEveryMistakeIsNamed(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"nothing at all":        {"", "node.id: is not set; choose an id"},
		"no listeners":          {"node.id=1\n", "listeners: is not set; say where the brokers reach this node, as in INTERNAL://10.0.0.9:9990"},
		"mistyped":              {enough + "mirror.node.foldr=/x\n", "mirror.node.foldr: is not known; the closest known name is mirror.node.folder"},
		"of a mirror":           {enough + "mirror.topics.include=a\n", "mirror.topics.include: belongs to a mirror, not to a node; put it into the file of kafka-mirror --create"},
		"id is a word":          {enough + "node.id=nine\n", "node.id: is not a whole number"},
		"wrong listener":        {strings.Replace(enough, "INTERNAL:", "BROKERS:", 1), "listeners: does not have the brokers' listener INTERNAL; add INTERNAL://host:port, or correct inter.broker.listener.name"},
		"no address":            {strings.Replace(enough, "10.0.0.9:9990", "10.0.0.9", 1), `listeners: has "INTERNAL://10.0.0.9", which is not NAME://host:port`},
		"every address":         {strings.Replace(enough, "10.0.0.9:9990", ":9990", 1), "advertised.listeners: does not have INTERNAL, and its listener is on every address"},
		"protocol":              {enough + "listener.security.protocol.map=INTERNAL:SASL\n", `listener.security.protocol.map: has "INTERNAL:SASL", which is not NAME:PROTOCOL`},
		"login without use":     {enough + "sasl.jaas.config=x\n", "sasl.jaas.config: has no effect with security.protocol PLAINTEXT"},
		"login of a listener":   {enough + "listener.name.controller.sasl.jaas.config=x\n", "sasl.jaas.config: has no effect with security.protocol PLAINTEXT"},
		"strange listener":      {enough + "listener.name.other.sasl.jaas.config=x\n", "listener.name.other.sasl.jaas.config: is about a listener that this node does not know; its listeners are internal, controller"},
		"strange of a listener": {enough + "listener.name.internal.ssl.client.atuh=none\n", "listener.name.internal.ssl.client.atuh: is not known"},
		"principals":            {enough + "security.protocol=SASL_PLAINTEXT\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";\n", "mirror.broker.principals: is not set; name the principals"},
		"certificate":           {enough + "listener.security.protocol.map=INTERNAL:SSL\nmirror.broker.principals=User:CN=b\n", "ssl.keystore.location: is not set, and a listener with TLS needs a certificate"},
		"heartbeat":             {enough + "broker.session.timeout.ms=3000\n", "broker.heartbeat.interval.ms: is 2000, and broker.session.timeout.ms is 3000"},
		"copies":                {enough + "default.replication.factor=65539\n", "default.replication.factor: is above 32767"},
		"replicas":              {enough + "default.replication.factor=1\nmin.insync.replicas=2\n", "min.insync.replicas: is above default.replication.factor"},
		"dropped":               {enough + "mirror.dropped.records=maybe\n", "mirror.dropped.records: is neither keep nor discard"},
		"pattern":               {enough + "mirror.names=(\n", "mirror.names: "},
		"http":                  {enough + "mirror.http.listener=9700\n", "mirror.http.listener: is not host:port; as in 127.0.0.1:9700"},
		"number of mirror":      {enough + "mirror.num.replica.fetchers=0\n", "mirror.num.replica.fetchers"},
		"peers":                 {enough + "mirror.peers=a\n", `mirror.peers: has "a", which is no node id`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadFile(write(t, c.text))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\n does not say %q", err, c.says)
			}
		})
	}
}

// TestSecretsAreNotRepeated: no error has the value of a secret, and no printed configuration.
func TestSecretsAreNotRepeated(t *testing.T) {
	const jaas = `org.apache.kafka.common.security.plain.PlainLoginModule required username="mirror" password="geheim" user_broker="geheim2";`
	_, err := ReadFile(write(t, enough+"security.protocol=SASL_PLAINTEXT\nsasl.jaas.config="+jaas+"\nlistener.name.internal.plain.sasl.jaas.config="+strings.Replace(jaas, "Plain", "Plian", 1)+"\nsasl.jaas.confg="+jaas+"\n"))
	if err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("%v", err)
	}
	for _, key := range []string{"listeners=INTERNAL://", "advertised.listeners=INTERNAL://", "mirror.http.listener=", "mirror.page.listener=", "bootstrap.servers=", "controller.quorum.bootstrap.servers="} {
		if _, err := ReadFile(write(t, enough+key+"user:geheim@127.0.0.1:1\n")); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestListenerForClients: a second listener lets clients read; dark is the default, and mutual TLS is refused with the reason.
func TestListenerForClients(t *testing.T) {
	certificates := filepath.Join(t.TempDir(), "store.pem")
	readable := strings.Replace(enough, "9990", "9990,CLIENT://0.0.0.0:9991", 1) + "advertised.listeners=CLIENT://mirror.example.com:9991\n"
	secure := readable + "listener.security.protocol.map=CLIENT:SASL_SSL\nlistener.name.client.ssl.keystore.location=" + certificates + "\nlistener.name.client.ssl.truststore.location=" + certificates + "\n"
	f, err := ReadFile(write(t, enough))
	if err != nil || f.Kraft().Clients != nil {
		t.Errorf("it is not dark: %v", err)
	}
	if f, err = ReadFile(write(t, readable)); err != nil {
		t.Fatal(err)
	}
	if c := f.Kraft().Clients; c == nil || c.Name != "CLIENT" || c.Listen != "0.0.0.0:9991" || c.Advertised != "mirror.example.com:9991" || c.Protocol != "PLAINTEXT" || c.TLS != nil || c.BrokerTLS != nil || c.MaxConnections != 0 || c.MaxConnectionsPerAddress != 0 {
		t.Errorf("%+v", c)
	}
	if f, err = ReadFile(write(t, readable+"max.connections=100\nmax.connections.per.ip=10\n")); err != nil {
		t.Fatal(err)
	}
	limited := f.Kraft().Clients
	if limited.MaxConnections != 100 || limited.MaxConnectionsPerAddress != 10 {
		t.Errorf("%+v", limited)
	}
	told := 0
	tellClients(limited, ClientHooks{Connected: func(n int) { told += n }, Redirected: func(n int32) { told += 10 * int(n) }, Refused: func(string) { told += 100 }})
	tellClients(nil, ClientHooks{})
	limited.Observer.Connections(1)
	limited.Observer.Redirected(1)
	limited.Observer.Refused("memory")
	if told != 111 {
		t.Errorf("of what happens there %d was told", told)
	}
	if f, err = ReadFile(write(t, secure)); err != nil {
		t.Fatal(err)
	}
	if c := f.Kraft().Clients; c == nil || c.Protocol != "SASL_SSL" || c.TLS == nil || c.BrokerTLS == nil {
		t.Errorf("%+v", c)
	}
	for text, says := range map[string]string{
		secure + "listener.name.client.ssl.client.auth=required\n":        "listener.name.client.ssl.client.auth: is required, and a client's certificate cannot be passed through to the brokers",
		readable + "max.connections=none\n":                               "max.connections: is not a whole number",
		strings.Replace(readable, "CLIENT", "CONTROLLER", 2):              "listeners: has the controllers' listener CONTROLLER",
		strings.Replace(readable, ",CLIENT", ",A://:1,B://:2,CLIENT", 1):  "listeners: has two listeners for clients",
		strings.Replace(readable, "CLIENT://mirror", "OTHER://mirror", 1): "advertised.listeners: has OTHER, which listeners does not have",
	} {
		if _, err := ReadFile(write(t, text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v\n does not say %q", err, says)
		}
	}
}

// TestReloadTakesCredentialsUp: a login that changed in the file is used, other settings are named, and a file with a mistake changes nothing.
func TestReloadTakesCredentialsUp(t *testing.T) {
	const jaas = "security.protocol=SASL_PLAINTEXT\nmirror.broker.principals=User:admin\nsasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"mirror\" password=\"PASSWORD\";\n" +
		"listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=\"PASSWORD\";\n"
	path := write(t, enough+strings.ReplaceAll(jaas, "PASSWORD", "one"))
	f, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	let := f.Kraft().Security.PlainPassword
	if !let("admin", "one") || let("admin", "two") || let("admin", "") || let("other", "one") {
		t.Error("it lets others in than the file says")
	}
	rewrite := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(enough + strings.ReplaceAll(jaas, "PASSWORD", "two") + "mirror.names=dr\n")
	restart, err := f.Reload()
	if err != nil || !slices.Equal(restart, []string{"mirror.names"}) {
		t.Errorf("restart for %v, %v", restart, err)
	}
	if let("admin", "one") || !let("admin", "two") {
		t.Error("it does not use the new password")
	}
	if restart, err := f.Reload(); err != nil || !slices.Equal(restart, []string{"mirror.names"}) {
		t.Errorf("what still needs a new process is forgotten: %v, %v", restart, err)
	}
	if is := f.Kraft().Security.IsBroker; !is("User:admin") || is("User:other") {
		t.Error("it trusts others than the file says")
	}
	rewrite(enough + strings.ReplaceAll(strings.ReplaceAll(jaas, "PASSWORD", "two"), "User:admin", "User:other"))
	if is := f.Kraft().Security.IsBroker; !is("User:admin") {
		t.Error("it reads the file by itself")
	} else if _, err := f.Reload(); err != nil || is("User:admin") || !is("User:other") {
		t.Errorf("a principal that is taken out stays in: %v", err)
	}
	// What needs a new process is not taken up: here credentials that fit another protocol only.
	rewrite(enough)
	if _, err := f.Reload(); err == nil || !strings.Contains(err.Error(), "which needs a new process: security.protocol") || !let("admin", "two") {
		t.Errorf("the end of SASL: %v", err)
	}
	rewrite(enough + strings.ReplaceAll(jaas, "PASSWORD", "three") + "listener.security.protocol.map=INTERNAL:SASL_SSL\nlistener.name.internal.ssl.keystore.location=/nowhere\n")
	if _, err := f.Reload(); err == nil || f.Kraft().Security.Protocol != "SASL_PLAINTEXT" || !let("admin", "two") {
		t.Errorf("another protocol: %v, and it uses %s", err, f.Kraft().Security.Protocol)
	}
	rewrite(strings.ReplaceAll(enough, "node.id", "node.ids"))
	if _, err := f.Reload(); err == nil || !let("admin", "two") {
		t.Errorf("a file with a mistake: %v", err)
	}
}

func TestServerPasswordsMayBeReferences(t *testing.T) {
	secrets := filepath.Join(t.TempDir(), "secrets.properties")
	set := func(password string) {
		if err := os.WriteFile(secrets, []byte("broker="+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("one")
	f, err := ReadFile(write(t, enough+"listener.security.protocol.map=INTERNAL:SASL_PLAINTEXT\nmirror.broker.principals=User:admin\n"+
		"listener.name.internal.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"mirror\" password=\"x\";\n"+
		"listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_admin=\"${file:"+secrets+":broker}\";\n"))
	if err != nil {
		t.Fatal(err)
	}
	let := f.Kraft().Security.PlainPassword
	if !let("admin", "one") || let("admin", "two") {
		t.Error("the reference is not read")
	}
	set("two")
	if let("admin", "one") || !let("admin", "two") {
		t.Error("a changed secret needs more than to be changed")
	}
}
