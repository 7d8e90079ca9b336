package kafkatest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/kafkatest/proxy"
)

// Cluster is a running cluster as one test sees it: what goes wrong in its methods ends that test. Methods are for the test's own goroutine unless they say otherwise.
type Cluster struct {
	*cluster
	t T
}

type cluster struct {
	id      string
	o       Options
	java    string
	jvmArgs []string
	dir     string
	nodes   []*node
	proxies []*proxy.Proxy
	tls     *authority // made on first need
	admin   *kgo.Client
}

const (
	startLimit  = 90 * time.Second // of a whole cluster, and of one broker that comes back
	stopLimit   = 40 * time.Second // of a clean shutdown
	waitLimit   = 60 * time.Second // of anything else that this package waits for
	firstWait   = 10 * time.Millisecond
	longestWait = 250 * time.Millisecond
)

func boot(t T, o Options) (*cluster, error) {
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Controllers == 0 {
		o.Controllers = 1
	}
	if o.HeapMB == 0 {
		o.HeapMB = 512
	}
	o.Version = version(o.Version)
	if o.Controllers > o.Brokers {
		return nil, fmt.Errorf("kafkatest: %d controllers of %d nodes", o.Controllers, o.Brokers)
	}
	if err := o.checkSecurity(); err != nil {
		return nil, err
	}
	java, err := findJava()
	if err != nil {
		return nil, err
	}
	libs, err := Libs(o.Version)
	if err != nil {
		return nil, err
	}
	if err := takeTurn(func() { t.Logf("kafka: waiting for another process's clusters to end") }); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		begin := time.Now()
		c, err := try(o, java, libs)
		if err == nil {
			t.Logf("kafka: Apache Kafka %s, %d brokers, up after %.1f s", o.Version, o.Brokers, time.Since(begin).Seconds())
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == 5 {
			giveTurn()
			return nil, err
		}
	}
}

var errPortTaken = errors.New("kafkatest: a port was taken by another process")

func try(o Options, java, libs string) (c *cluster, err error) {
	id := newID()
	c = &cluster{id: id, o: o, java: java}
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	if err := os.MkdirAll(cmp.Or(o.Folder, runDir()), 0o755); err != nil {
		return c, err
	}
	if c.dir, err = os.MkdirTemp(cmp.Or(o.Folder, runDir()), "cluster-"); err != nil {
		return c, err
	}
	log4j := filepath.Join(c.dir, "log4j2.properties")
	if err := os.WriteFile(log4j, []byte(log4jProperties), 0o644); err != nil {
		return c, err
	}
	c.jvmArgs = []string{
		"-cp", libs + "/*", fmt.Sprintf("-Xmx%dm", o.HeapMB), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+ExitOnOutOfMemoryError",
		"-Djava.awt.headless=true", "-Dlog4j2.configurationFile=" + log4j, "-Dlog4j2.disableJmx=true",
	}
	for i := range o.Brokers {
		n := &node{id: int32(i + 1), dir: filepath.Join(c.dir, fmt.Sprintf("broker-%d", i+1))}
		for _, p := range []*int{&n.ports.Client, &n.ports.Internal, &n.ports.Controller, &n.ports.Admin} {
			if *p, err = freePort(); err != nil {
				return c, err
			}
		}
		n.ports.Advertised = n.ports.Client
		n.ports.further = map[string]int{}
		for name := range o.Listeners {
			if n.ports.further[name], err = freePort(); err != nil {
				return c, err
			}
		}
		if o.Proxied {
			p, err := proxy.Listen(address(n.ports.Client))
			if err != nil {
				return c, err
			}
			c.proxies = append(c.proxies, p)
			n.ports.Advertised = p.Port()
		}
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return c, err
		}
		n.config = filepath.Join(n.dir, "server.properties")
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		p, err := c.properties(n)
		if err != nil {
			return c, err
		}
		if err := os.WriteFile(n.config, p, 0o600); err != nil {
			return c, err
		}
	}
	if err := c.format(); err != nil {
		return c, err
	}
	for _, n := range c.nodes {
		if err := n.start(java, c.jvmArgs); err != nil {
			return c, err
		}
	}
	if c.admin, err = kgo.NewClient(append(c.adminOptions(), kgo.SeedBrokers(c.addresses("ADMIN")...))...); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.waitReady(ctx); err != nil {
		for _, n := range c.nodes {
			if n.portTaken() {
				return c, fmt.Errorf("%w: %w", errPortTaken, err)
			}
		}
		return c, c.withLogs(err)
	}
	return c, c.createUsers(ctx)
}

func newID() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] &^= 0x80 // an id must not start with '-': command lines take it for an option
	id := base64.RawURLEncoding.EncodeToString(b)
	return strings.ReplaceAll(id, "-", "A")
}

// format prepares the nodes' data folders. Kafka's own tool formats node 1; the other folders are copies under their own node and directory ids, which saves a JVM each.
func (c *cluster) format() error {
	first := c.nodes[0]
	args := append(slices.Clone(c.jvmArgs), "kafka.tools.StorageTool", "format", "-t", c.id, "-c", first.config)
	args = append(args, c.o.firstUsers()...)
	cmd := exec.Command(c.java, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, first.dir
	if err := StartProcess(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("kafkatest: format broker 1: %w\n%s", err, out.Bytes())
	}
	meta, err := os.ReadFile(filepath.Join(first.dataDir(), "meta.properties"))
	if err != nil {
		return err
	}
	for _, n := range c.nodes[1:] {
		// From 4.4 on there is a folder with the first records in it.
		if err := os.CopyFS(n.dataDir(), os.DirFS(first.dataDir())); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(n.dataDir(), "meta.properties"), rewriteMeta(meta, n.id), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func rewriteMeta(meta []byte, id int32) []byte {
	lines := strings.Split(string(meta), "\n")
	for i, l := range lines {
		switch {
		case strings.HasPrefix(l, "node.id="):
			lines[i] = fmt.Sprintf("node.id=%d", id)
		case strings.HasPrefix(l, "directory.id="):
			lines[i] = "directory.id=" + newID()
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

// properties is the node's configuration file.
func (c *cluster) properties(n *node) ([]byte, error) {
	replication := fmt.Sprint(min(3, c.o.Brokers))
	roles := "broker"
	listeners := fmt.Sprintf("CLIENT://%s,INTERNAL://%s,ADMIN://%s", address(n.ports.Client), address(n.ports.Internal), address(n.ports.Admin))
	if int(n.id) <= c.o.Controllers {
		roles = "broker,controller"
		listeners += ",CONTROLLER://" + address(n.ports.Controller)
	}
	var voters []string
	for _, v := range c.nodes[:c.o.Controllers] {
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, address(v.ports.Controller)))
	}
	advertised := fmt.Sprintf("CLIENT://%s,INTERNAL://%s,ADMIN://%s", address(n.ports.Advertised), address(n.ports.Internal), address(n.ports.Admin))
	protocols := fmt.Sprintf("ADMIN:PLAINTEXT,CLIENT:%s,INTERNAL:%s,CONTROLLER:%s", c.o.Client.protocol(), c.o.Internal.protocol(), c.o.Controller.protocol())
	for _, name := range slices.Sorted(maps.Keys(c.o.Listeners)) {
		at := fmt.Sprintf(",%s://%s", name, address(n.ports.further[name]))
		listeners, advertised = listeners+at, advertised+at
		protocols += fmt.Sprintf(",%s:%s", name, c.o.Listeners[name].protocol())
	}
	p := map[string]string{
		"process.roles":                                    roles,
		"node.id":                                          fmt.Sprint(n.id),
		"controller.quorum.voters":                         strings.Join(voters, ","),
		"listeners":                                        listeners,
		"advertised.listeners":                             advertised,
		"listener.security.protocol.map":                   protocols,
		"inter.broker.listener.name":                       "INTERNAL",
		"controller.listener.names":                        "CONTROLLER",
		"log.dirs":                                         n.dataDir(),
		"num.partitions":                                   "1",
		"auto.create.topics.enable":                        "false",
		"offsets.topic.replication.factor":                 replication,
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         replication,
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": replication,
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"controlled.shutdown.enable":                       "true",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "4",
		"log.cleaner.dedupe.buffer.size":                   "16777216",
		"metadata.log.max.snapshot.interval.ms":            "0",
	}
	if c.o.Authorizer {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = strings.Join(c.superUsers(), ";")
	}
	for name, s := range c.o.listeners() {
		if err := c.listenerProperties(p, n, strings.ToLower(name), s); err != nil {
			return nil, err
		}
	}
	maps.Copy(p, c.o.Config)
	maps.Copy(p, c.o.NodeConfig[n.id])
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(p[k], "\n", "\\\n"))
	}
	return b.Bytes(), nil
}

const log4jProperties = `status = error
appenders = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n%throwable
rootLogger.level = info
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = out
logger.config.name = org.apache.kafka.common.config
logger.config.level = warn
logger.server.name = kafka.server.KafkaConfig
logger.server.level = warn
# tells of every refused write with acks=0: thousands of lines with WriteAlways
logger.requests.name = kafka.server.KafkaApis
logger.requests.level = warn
`

// ID is the cluster id.
func (c *cluster) ID() string { return c.id }

// Version is the version of Apache Kafka.
func (c *cluster) Version() string { return c.o.Version }

// Brokers lists the ids of all nodes, running or not.
func (c *cluster) Brokers() []int32 {
	ids := make([]int32, len(c.nodes))
	for i, n := range c.nodes {
		ids[i] = n.id
	}
	return ids
}

// Bootstrap is where clients connect: the advertised CLIENT address of every node.
func (c *cluster) Bootstrap() []string {
	var a []string
	for _, n := range c.nodes {
		a = append(a, address(n.ports.Advertised))
	}
	return a
}

// Listener is where clients connect to one of Options.Listeners: its address on every node.
func (c *Cluster) Listener(name string) []string {
	c.t.Helper()
	if _, ok := c.o.Listeners[name]; !ok {
		c.t.Fatalf("kafkatest: this cluster was started without a listener %s", name)
	}
	return c.addresses(name)
}

// addresses are those of one listener on all nodes that have it. CLIENT's are not the proxies'.
func (c *cluster) addresses(listener string) []string {
	var a []string
	for _, n := range c.nodes {
		switch port := n.ports.further[listener]; {
		case listener == "CLIENT":
			a = append(a, address(n.ports.Client))
		case listener == "INTERNAL":
			a = append(a, address(n.ports.Internal))
		case listener == "ADMIN":
			a = append(a, address(n.ports.Admin))
		case listener != "CONTROLLER":
			a = append(a, address(port))
		case int(n.id) <= c.o.Controllers:
			a = append(a, address(n.ports.Controller))
		}
	}
	return a
}

// InternalAddress is a node's listener for other brokers.
func (c *Cluster) InternalAddress(broker int32) string {
	return address(c.node(broker).ports.Internal)
}

// ControllerAddresses lists the listeners of the controllers.
func (c *cluster) ControllerAddresses() []string { return c.addresses("CONTROLLER") }

// Proxy is what stands in front of a broker's CLIENT listener, with Options.Proxied.
func (c *Cluster) Proxy(broker int32) *proxy.Proxy {
	c.t.Helper()
	c.node(broker)
	if len(c.proxies) == 0 {
		c.t.Fatalf("kafkatest: this cluster was started without Proxied")
	}
	return c.proxies[broker-1]
}

// ProxyTo opens a proxy in front of any address, such as the own listener of a process that joins the cluster. It ends with the test.
func (c *Cluster) ProxyTo(address string) *proxy.Proxy {
	c.t.Helper()
	p, err := proxy.Listen(address)
	if err != nil {
		c.t.Fatalf("kafkatest: proxy to %s: %v", address, err)
	}
	c.t.Cleanup(func() { p.Close() })
	return p
}

// ControllerProxies opens a proxy in front of each controller's listener, in the order of ControllerAddresses, for a process from outside: the cluster's own nodes do not use them.
// A process that asks a controller where the active one is learns its real address and may leave the proxies out; a proxy.Dialer that cuts ControllerAddresses catches that too.
// Every call opens new proxies. They end with the test.
func (c *Cluster) ControllerProxies() []*proxy.Proxy {
	c.t.Helper()
	var proxies []*proxy.Proxy
	for _, a := range c.ControllerAddresses() {
		proxies = append(proxies, c.ProxyTo(a))
	}
	return proxies
}

// DataDir is a broker's log folder on disk.
func (c *Cluster) DataDir(broker int32) string { return c.node(broker).dataDir() }

// Log is what a broker has printed since it was first started.
func (c *Cluster) Log(broker int32) string {
	return string(c.node(broker).logTail(64 << 20))
}

func (c *cluster) internalAddresses() []string { return c.addresses("INTERNAL") }

func (c *Cluster) node(id int32) *node {
	c.t.Helper()
	if id < 1 || int(id) > len(c.nodes) {
		c.t.Fatalf("kafkatest: there is no broker %d, only 1 to %d", id, len(c.nodes))
	}
	return c.nodes[id-1]
}

// Stop shuts a broker down cleanly and waits for its end.
func (c *Cluster) Stop(broker int32) { c.end(broker, syscall.SIGTERM) }

// Kill ends a broker at once (SIGKILL), as a crash would.
func (c *Cluster) Kill(broker int32) { c.end(broker, syscall.SIGKILL) }

func (c *Cluster) end(broker int32, s syscall.Signal) {
	c.t.Helper()
	if err := c.node(broker).end(s, stopLimit); err != nil {
		c.t.Fatalf("%v", err)
	}
}

// StartBroker starts a broker that was stopped or killed, on its old ports and data, and waits until it and all others answer.
func (c *Cluster) StartBroker(broker int32) {
	c.t.Helper()
	c.LaunchBroker(broker)
	c.WaitReady()
}

// LaunchBroker starts a broker like StartBroker and does not wait.
func (c *Cluster) LaunchBroker(broker int32) {
	c.t.Helper()
	if err := c.node(broker).start(c.java, c.jvmArgs); err != nil {
		c.t.Fatalf("%v", err)
	}
}

// Pause freezes a broker's process (SIGSTOP): connections stay, nothing answers. When it returns all threads stand.
func (c *Cluster) Pause(broker int32) {
	c.t.Helper()
	c.signal(broker, syscall.SIGSTOP)
	if err := c.node(broker).awaitStopped(); err != nil {
		c.t.Fatalf("kafkatest: pause broker %d: %v", broker, err)
	}
}

// Resume lets a paused broker go on.
func (c *Cluster) Resume(broker int32) { c.signal(broker, syscall.SIGCONT) }

func (c *Cluster) signal(broker int32, s syscall.Signal) {
	c.t.Helper()
	if err := c.node(broker).signal(s); err != nil {
		c.t.Fatalf("%v", err)
	}
}

// WaitReady waits until every running broker is unfenced and knows every other running one.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startLimit)
	defer cancel()
	if err := c.waitReady(ctx); err != nil {
		c.t.Fatalf("%v", c.withLogs(err))
	}
}

func (c *cluster) waitReady(ctx context.Context) error {
	for _, n := range c.nodes {
		if _, why := n.alive(); why != nil && why.Error() == "not started" {
			continue
		}
		if err := c.waitNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// waitNode waits until n's own metadata names all running brokers.
func (c *cluster) waitNode(ctx context.Context, n *node) error {
	cl, err := kgo.NewClient(append(c.adminOptions(), kgo.SeedBrokers(address(n.ports.Admin)), kgo.RequestRetries(0), kgo.DialTimeout(2*time.Second))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return poll(ctx, fmt.Sprintf("broker %d to know all running brokers", n.id), func(ctx context.Context) (bool, error) {
		if ok, why := n.alive(); !ok {
			return false, final(fmt.Errorf("broker %d ended: %v", n.id, why))
		}
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		resp, err := cl.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return false, err
		}
		known := map[int32]bool{}
		for _, b := range resp.(*kmsg.MetadataResponse).Brokers {
			known[b.NodeID] = true
		}
		for _, other := range c.nodes {
			if ok, _ := other.alive(); ok && !other.isPaused() && !known[other.id] {
				return false, fmt.Errorf("broker %d does not know broker %d", n.id, other.id)
			}
		}
		return true, nil
	})
}

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// final marks an error of a poll as one that waiting does not heal.
func final(err error) error { return finalError{err} }

// poll asks until done, with growing pauses. It asks processes that have no way to call back.
func poll(ctx context.Context, what string, ask func(context.Context) (done bool, err error)) error {
	pause := firstWait
	for {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		done, err := ask(one)
		cancel()
		if done {
			return nil
		}
		if errors.As(err, new(finalError)) {
			return fmt.Errorf("kafkatest: waiting for %s: %w", what, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("kafkatest: waited in vain for %s; last answer: %v: %w", what, err, ctx.Err())
		}
		pause = min(2*pause, longestWait)
	}
}

func (c *cluster) withLogs(err error) error {
	var b strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "\n--- end of the log of broker %d\n%s", n.id, n.logTail(6000))
	}
	return fmt.Errorf("%w%s", err, b.String())
}

// close ends all processes, removes the data and gives the turn back.
func (c *cluster) close() {
	c.release()
	giveTurn()
}

func (c *cluster) release() {
	if c.admin != nil {
		c.admin.Close()
	}
	for _, n := range c.nodes {
		n.end(syscall.SIGKILL, stopLimit)
	}
	var closers []io.Closer
	for _, p := range c.proxies {
		closers = append(closers, p)
	}
	for _, cl := range closers {
		cl.Close()
	}
	if c.dir != "" && c.o.Folder == "" {
		os.RemoveAll(c.dir)
	}
}
