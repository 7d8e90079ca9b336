package node

import (
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/mirror"
)

// Key is one setting of node.properties.
type Key struct {
	Name    string // "<listener>" stands for the name of a listener, in small letters
	Default string // "" for none
	Kafka   bool   // it has this name and meaning in a broker's or client's properties
	Doc     string
}

// The names that are read here.
const (
	nodeID            = "node.id"
	bootstrapServers  = "bootstrap.servers"
	controllers       = "controller.quorum.bootstrap.servers"
	controllerNames   = "controller.listener.names"
	interBroker       = "inter.broker.listener.name"
	listenersKey      = "listeners"
	advertised        = "advertised.listeners"
	protocolMap       = "listener.security.protocol.map"
	heartbeat         = "broker.heartbeat.interval.ms"
	session           = "broker.session.timeout.ms"
	replicationFactor = "default.replication.factor"
	minInSync         = "min.insync.replicas"
	folderKey         = "mirror.node.folder"
	mirrorNames       = "mirror.names"
	principals        = "mirror.broker.principals"
	httpListener      = "mirror.http.listener"
	pageListener      = "mirror.page.listener"
	pageRemote        = "mirror.page.remote"
	drainTimeout      = "mirror.drain.timeout.ms"
	windowBytes       = "mirror.window.bytes"
	peersKey          = "mirror.peers"
	untestedVersion   = "mirror.untested.version"
	droppedKey        = "mirror.dropped.records"
	mostClients       = "max.connections"
	mostOfAddress     = "max.connections.per.ip"

	listenerPrefix = "listener.name."
)

var keys = []Key{
	{nodeID, "", true, "Broker id of this node; no broker's, and outside the ranges of whatever manages the brokers. Processes that stand by for each other have the same."},
	{bootstrapServers, "", true, "Brokers of the destination cluster, their listener for clients: host:port, separated by commas. States and wishes are kept there."},
	{controllers, "", true, "All controllers of the destination cluster: host:port, separated by commas."},
	{controllerNames, "CONTROLLER", true, "Name of the controllers' listener, for its protocol and its settings below."},
	{interBroker, "INTERNAL", true, "Name of the listener that brokers use among themselves."},
	{listenersKey, "", true, "NAME://host:port where this node listens, separated by commas: under the brokers' listener for the brokers; a second one, named as the brokers' listener for clients, lets consumers read mirrored topics."},
	{advertised, "", true, "NAME://host:port under which they reach it; needed where a listener's host is empty or 0.0.0.0."},
	{protocolMap, "", true, "NAME:PROTOCOL, separated by commas; a listener that is not there has security.protocol."},
	{"security.protocol", "PLAINTEXT", true, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."},
	{"sasl.*, ssl.*", "", true, "Of connections to bootstrap.servers, and to the listeners where they say nothing else. Stores are PEM; secrets may be references, ${file:/path:key}."},
	{listenerPrefix + "<listener>.sasl.*, .ssl.*", "", true, "Of connections to that listener, and of this node's own side of it: ssl.keystore.* is its certificate, ssl.truststore.* says whom it trusts."},
	{listenerPrefix + "<listener>.plain.sasl.jaas.config", "", true, `Who may connect there by PLAIN: user_NAME="password". SCRAM needs nothing: its users are in the cluster.`},
	{listenerPrefix + "<listener>.ssl.client.auth", "required with SSL", true, "Whether brokers have to show certificates."},
	{heartbeat, "2000", true, "Milliseconds between heartbeats to the controllers."},
	{session, "9000", true, "What the controllers have for it: after so long without a heartbeat another process is let in."},
	{replicationFactor, "3", true, "Copies of a mirrored topic on the cluster's brokers."},
	{minInSync, "2", true, "How many of them must have a record before it counts as replicated."},
	{folderKey, "", false, "Folder of this process's identity, with the folder dropped in it. Two processes cannot share one."},
	{droppedKey, "keep", false, "keep: what a failback drops is kept in the folder dropped, unencrypted. discard: it is gone."},
	{mirrorNames, ".*", false, "Patterns (RE2, the whole name) of the mirrors that this node runs, separated by commas."},
	{principals, "", false, "Principals under which the brokers connect, separated by semicolons: User:broker-1;User:broker-2. Needed unless their listener is PLAINTEXT."},
	{httpListener, "", false, "host:port of /healthz, /readyz, /metrics and /status; empty: none."},
	{mostClients, "4000", true, "How many clients may be connected to the listener for clients."},
	{mostOfAddress, "half of max.connections", true, "How many of them may come from one IP address."},
	{pageListener, "", false, "host:port of the status page, for a browser; empty: none. It asks for no password: an address of the loopback (127.0.0.1:9701), unless mirror.page.remote=true."},
	{pageRemote, "false", false, "true: mirror.page.listener may be an address that other machines reach; whoever does sees the page."},
	{drainTimeout, "20000", false, "Longest wait for steps under way when the node is told to end, in milliseconds."},
	{windowBytes, "67108864", false, "Recent batches that are kept in memory for the brokers, over all partitions."},
	{peersKey, "", false, "Node ids of other mirror nodes in this cluster whose registration somebody took away, separated by commas."},
	{untestedVersion, "false", false, "true: join also a cluster that is newer than any that was tried."},
}

// Keys lists the settings of node.properties, with those of mirror.NodeSetting behind this package's own. The slice is the caller's.
func Keys() []Key {
	all := slices.Clone(keys)
	for _, s := range mirror.SettingDefinitions() {
		if s.Level == mirror.NodeSetting {
			all = append(all, Key{Name: s.Name, Default: s.Default, Doc: s.Doc})
		}
	}
	return all
}

// ofConnection says whether a name without a listener's prefix belongs to connections.
func ofConnection(name string) bool {
	return name == "security.protocol" || strings.HasPrefix(name, "sasl.") || strings.HasPrefix(name, "ssl.") || slices.Contains(
		[]string{"client.id", "request.timeout.ms", "connections.max.idle.ms", "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"}, name)
}
