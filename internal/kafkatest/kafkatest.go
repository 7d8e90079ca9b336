// Package kafkatest runs real Apache Kafka (KRaft) for tests: the jars come from Maven Central once, the processes are plain JVMs on loopback ports, and they die with the test process.
//
//	func TestSomething(t *testing.T) {
//		c := kafkatest.Shared(t) // three brokers, one set for the whole package; name topics after the test
//		topic := c.CreateTopic(kafkatest.Topic{Name: t.Name(), Partitions: 1, Replication: 3})
//		...
//	}
//
// A test that stops, kills or pauses a broker, or needs security or another version, starts its own cluster with Start.
//
// # Whether tests run
//
// The environment variable CLUSTERMIRROR_KAFKA decides what Require (and so Start and Shared) does:
//
//   - required: a machine that cannot run Kafka fails the test.
//   - off: the test is skipped.
//   - empty: the test runs where Java and the jars (or Maven) are there, and is skipped with a line that says what is missing where they are not.
//
// CLUSTERMIRROR_KAFKA_VERSION names another default version, CLUSTERMIRROR_CACHE another cache folder.
//
// # A process that joins the cluster as one more broker
//
// Options.Controller and Options.Internal are the security that it meets; ListenerOptions, PEM and ServerTLS are what it shows, BrokerPrincipal is whom it sees. Its network is cut by
// ControllerProxies, by a proxy.Dialer (addresses that it learns by itself), and by ProxyTo (in front of its own listener). WriteAlways tries to write where nobody may,
// LogDirs and MetadataLogBytes show what brokers have on disk.
//
// # One cluster set a machine
//
// A lock in the cache folder is held from the first cluster of a process to the end of its last one (Shared: to the end of the process). Packages whose tests start Kafka take turns.
package kafkatest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
)

// T is what this package needs of a test. *testing.T and *testing.B are such; a program may bring its own.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
	Failed() bool
	Context() context.Context
}

// availability is computed once a process: what stands in the way of running Kafka.
var availability = sync.OnceValue(func() error {
	if _, err := findJava(); err != nil {
		return err
	}
	_, err := Libs(version(""))
	return err
})

// Missing says what stands in the way of running Kafka here; nil: nothing. The first call may fetch the jars. It is for programs; tests call Require.
func Missing() error { return availability() }

// Require returns if real Kafka can be run here. What else it does is told in the package's text.
func Require(t T) {
	t.Helper()
	verdict, reason := decide(os.Getenv("CLUSTERMIRROR_KAFKA"), availability)
	switch verdict {
	case fatal:
		t.Fatalf("%s", reason)
	case skip:
		t.Skipf("%s", reason)
	}
}

type verdict int

const (
	run verdict = iota
	skip
	fatal
)

func decide(mode string, missing func() error) (verdict, string) {
	switch mode {
	case "off":
		return skip, "kafka: CLUSTERMIRROR_KAFKA=off"
	case "required":
		if err := missing(); err != nil {
			return fatal, fmt.Sprintf("kafka: CLUSTERMIRROR_KAFKA=required, but %v", err)
		}
		return run, ""
	case "":
		if err := missing(); err != nil {
			return skip, fmt.Sprintf("kafka: absent, this test did not run: %v", err)
		}
		return run, ""
	default:
		return fatal, fmt.Sprintf("kafka: CLUSTERMIRROR_KAFKA=%q is unknown: use required, off, or leave it empty", mode)
	}
}

func version(asked string) string {
	if asked != "" {
		return asked
	}
	if v := os.Getenv("CLUSTERMIRROR_KAFKA_VERSION"); v != "" {
		return v
	}
	return DefaultVersion
}

// Options says what cluster to start. The zero value is one broker of the default version without security.
type Options struct {
	Brokers     int    // nodes that are brokers, ids 1 to Brokers; 0 means 1
	Controllers int    // how many of them, from id 1 on, are controllers too; 0 means 1. Three controllers survive the loss of any one node
	Version     string // of Apache Kafka; empty means the default

	// Config is put into every node's properties file after ours, so it wins.
	Config map[string]string
	// NodeConfig is put after Config, by node id.
	NodeConfig map[int32]map[string]string

	Client   Security // of the CLIENT listener: the one that Bootstrap names
	Internal Security // of the INTERNAL listener: between the brokers
	// Controller is the security of the CONTROLLER listener: brokers, and controllers among each other. SCRAM is for one controller only.
	Controller Security
	// Listeners are further listeners for clients, by name in capital letters. See Cluster.Listener.
	Listeners map[string]Security
	// Authorizer turns on the StandardAuthorizer. Super users are User:ANONYMOUS (brokers and this package's own way in, by plaintext listeners), User:admin, SuperUsers, and where
	// INTERNAL or CONTROLLER ask for certificates without SASL the brokers' and User:CN=admin.
	Authorizer bool
	SuperUsers []string // such as "User:CN=broker"

	// Proxied puts a proxy in front of each broker's CLIENT listener, and brokers advertise it: all of a client's traffic goes through. See Cluster.Proxy.
	Proxied bool

	HeapMB int // of each JVM; 0 means 512

	// Folder is where the nodes' folders lie, an empty folder of the caller's; they stay there when the cluster ends. Empty: in the cache, removed when the cluster ends.
	Folder string
}

// shared is the package's cluster.
var shared struct {
	mu sync.Mutex
	c  *cluster
}

// Shared returns the cluster that all tests of a package share: three brokers, node 1 is the controller, no security, the default version.
// Tests name their topics and groups after themselves, and leave every broker running.
func Shared(t T) *Cluster {
	t.Helper()
	Require(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.c == nil {
		c, err := boot(t, Options{Brokers: 3})
		if err != nil {
			t.Fatalf("%v", err)
		}
		shared.c = c
	}
	c := &Cluster{cluster: shared.c, t: t}
	t.Cleanup(func() { c.attachLogs() })
	for _, id := range c.Brokers() {
		if ok, why := c.node(id).alive(); !ok {
			t.Fatalf("kafkatest: broker %d of the package's shared cluster is gone (%v): an earlier test ended it, or it died", id, why)
		}
	}
	return c
}

// Start runs a cluster of the test's own and waits until all its brokers answer. It ends with the test.
func Start(t T, o Options) *Cluster {
	t.Helper()
	Require(t)
	c, err := boot(t, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	bound := &Cluster{cluster: c, t: t}
	t.Cleanup(func() {
		bound.attachLogs()
		c.close()
	})
	return bound
}

// attachLogs puts the end of each broker's log into the output of a failed test.
func (c *Cluster) attachLogs() {
	if !c.t.Failed() {
		return
	}
	for _, n := range c.nodes {
		c.t.Logf("kafkatest: end of the log of broker %d:\n%s", n.id, strings.TrimSpace(string(n.logTail(12_000))))
	}
}
