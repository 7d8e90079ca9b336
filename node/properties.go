package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/closest"
	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/kafkastore"
	"github.com/clustermirror/clustermirror/mirror/kraft"
	"github.com/clustermirror/clustermirror/mirror/properties"
)

// File is a node.properties that was read. Safe for concurrent use.
type File struct {
	path     string
	warnings []string

	mu          sync.Mutex
	parsed      *parsed
	connections map[string]*kafkaconfig.Renewable // by listener; "" is bootstrap.servers
	logger      *slog.Logger
}

// parsed is what one reading of a file says.
type parsed struct {
	settings mirror.Settings
	id       int32
	options  mirror.NodeOptions
	names    mirror.Filter
	kraft    kraft.Config // without connections and servers
	inter    string       // the brokers' listener
	control  string       // the controllers' listener
	http     string
	page     string
	remote   bool // the page may be reached from other machines
	drain    time.Duration
	discard  bool
	// connections are the settings of connections, by listener; "" is bootstrap.servers.
	connections map[string]map[string]string
	protocols   map[string]string // by listener
	server      kafkaconfig.Server
	clients     clients
}

// FileError is everything that is wrong with a node.properties; each line names a setting and what to do.
type FileError struct {
	Path string
	Errs []error
}

func (e *FileError) Error() string {
	lines := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		lines[i] = err.Error()
	}
	return e.Path + ": " + strings.Join(lines, "\n")
}

func (e *FileError) Unwrap() []error { return e.Errs }

// ReadFile reads a node.properties and connects to nothing. Errors: of reading the file; *FileError, with everything that is wrong in it.
func ReadFile(path string) (*File, error) {
	f := &File{path: path, connections: map[string]*kafkaconfig.Renewable{}, logger: slog.New(slog.DiscardHandler)}
	p, err := f.read()
	if err != nil {
		return nil, err
	}
	for name, settings := range p.connections {
		if f.connections[name], err = kafkaconfig.ParseRenewable(settings); err != nil {
			return nil, &FileError{path, []error{err}}
		}
	}
	f.parsed = p
	doubts, err := properties.Check(path)
	if err != nil {
		return nil, err
	}
	for _, w := range doubts {
		f.warnings = append(f.warnings, w.String())
	}
	return f, nil
}

// Warnings are what is doubtful about the file, a line each: a setting that comes twice, a secret that others may read.
func (f *File) Warnings() []string { return slices.Clone(f.warnings) }

// Bootstrap is the destination cluster's address, for people.
func (f *File) Bootstrap() string { return f.now().settings[bootstrapServers] }

func (f *File) now() *parsed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parsed
}

func (f *File) read() (*parsed, error) {
	settings, err := properties.Load(f.path)
	if err != nil {
		return nil, err
	}
	p, errs := parse(settings)
	if len(errs) > 0 {
		return nil, &FileError{f.path, errs}
	}
	return p, nil
}

// Reload reads the file again. Credentials, and whom this node trusts, are taken up: connections that are made from now on use them, and a broker whose principal is not named any more is
// not answered any more. restart names settings that are different from those in use and need a new process; they are not taken up. With an error nothing has changed.
func (f *File) Reload() (restart []string, err error) {
	fresh, err := f.read()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	inUse := f.parsed.settings
	next := mirror.Settings{} // what is in use, with the credentials of the file
	for name, value := range inUse {
		if !credential(name) {
			next[name] = value
		}
	}
	for name, value := range fresh.settings {
		if credential(name) {
			next[name] = value
		}
	}
	all := maps.Clone(inUse)
	maps.Copy(all, fresh.settings)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, had := inUse[name]
		is, has := fresh.settings[name]
		if (was != is || had != has) && !credential(name) {
			restart = append(restart, name)
		}
	}
	p, errs := parse(next)
	for name, c := range f.connections {
		if len(errs) == 0 {
			if err := c.Check(p.connections[name]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if len(errs) > 0 {
		if len(restart) > 0 {
			errs = append(errs, fmt.Errorf("its credentials do not fit the settings in use, because these have changed too, which needs a new process: %s", strings.Join(restart, ", ")))
		}
		return nil, &FileError{f.path, errs}
	}
	for name, c := range f.connections {
		if err := c.Renew(p.connections[name]); err != nil {
			return nil, &FileError{f.path, []error{err}}
		}
	}
	f.parsed = p
	return restart, nil
}

// credential says whether Reload takes a setting up.
func credential(name string) bool {
	if rest, ok := strings.CutPrefix(name, listenerPrefix); ok {
		_, name, _ = strings.Cut(rest, ".")
	}
	return strings.HasPrefix(name, "sasl.") || strings.HasPrefix(name, "ssl.") || name == kafkaconfig.PlainJAAS || name == principals
}

// Log lets what the node opens write to logger. Call it before Config.
func (f *File) Log(logger *slog.Logger) { f.logger = logger }

// Config makes the Config of a node that joins the Kafka cluster of the file.
func (f *File) Config() Config {
	p := f.now()
	sink := mirror.FileSink(filepath.Join(p.kraft.Folder, "dropped"))
	if p.discard {
		sink = mirror.Discard
	}
	return Config{
		Name: strconv.Itoa(int(p.id)), Mirrors: p.names.Includes, Options: p.options, HTTP: p.http, Page: p.page, PageRemote: p.remote, DrainBound: p.drain, Sink: sink, Logger: f.logger, OpenSource: kafkasource.Open,
		Open: f.open, ClusterID: f.clusterID, Join: f.join, Certificates: f.Certificates,
	}
}

// Records opens the log of states and wishes in the destination cluster. Errors: *FileError where files that settings name cannot be read; those of kafkastore.Open.
func (f *File) Records(ctx context.Context) (*kafkastore.Store, error) {
	if err := f.missingFiles(); err != nil {
		return nil, err
	}
	p := f.now()
	client := f.connections[""]
	defer tellSilence(f.logger, client.Seeds())()
	records, err := kafkastore.Open(ctx, kafkastore.Config{
		Seeds: client.Seeds(), ClientOptions: client.Options(), StatePartitions: p.options.StatePartitions, ReplicationFactor: p.options.StateReplicationFactor,
		Notice: func(err error) { f.logger.Warn("a record that does not count", "error", err) },
	})
	return records, inWords(err)
}

// open opens the log, and makes its topics if they are not there: once this node is a broker the cluster might place them on it.
func (f *File) open(ctx context.Context) (Records, error) {
	records, err := f.Records(ctx)
	if err != nil {
		return nil, err // not records: a nil *Store in Records is not nil
	}
	session, err := records.Open(ctx, "node/"+strconv.Itoa(int(f.now().id)))
	if err == nil {
		err = session.Close()
	}
	if err != nil {
		return nil, errors.Join(inWords(err), records.Close())
	}
	return records, nil
}

// Kraft is the configuration with which the cluster is joined, without Remember.
func (f *File) Kraft() kraft.Config {
	p := f.now()
	c := p.kraft
	c.ControllerOptions, c.BrokerOptions = f.connections[p.control].Options(), f.connections[p.inter].Options()
	c.Logger = f.logger
	c.Clients = f.clientListener()
	c.Security = kraft.ListenerSecurity{Protocol: p.protocols[p.inter], Brokers: c.Security.Brokers, IsBroker: func(principal string) bool { return slices.Contains(f.now().kraft.Security.Brokers, principal) }}
	if p.server.TLS != nil {
		c.Security.TLS = func() (*tls.Config, error) { return f.now().server.TLS() }
	}
	if p.server.PlainPassword != nil {
		c.Security.PlainPassword = func(user, password string) bool {
			check := f.now().server.PlainPassword
			return check != nil && check(user, password)
		}
	}
	return c
}

func (f *File) join(ctx context.Context, records keyedlog.Log, hooks Hooks) (Destination, error) {
	c := f.Kraft()
	c.Remember = records
	tellClients(c.Clients, hooks.Clients)
	c.Notice = func(e kraft.Event) {
		hooks.Notice(e.Kind.String(), e.Partition.Topic)
		switch {
		case e.Kind != kraft.StandingBy:
		case e.Err != nil:
			hooks.StandingBy(e.Text)
		default:
			hooks.StandingBy("")
		}
	}
	d, err := kraft.Join(ctx, c)
	if errors.Is(err, kraft.ErrUnregistered) { // while it stood by
		return nil, fmt.Errorf("%w: %w", ErrThrownOut, err)
	}
	if errors.Is(err, kraft.ErrPreflight) && misfits(err) {
		return nil, &FileError{f.path, []error{inWords(err)}}
	}
	if err != nil {
		return nil, inWords(err)
	}
	return joined{d, c}, nil
}

// joined is a Kafka cluster that was joined.
type joined struct {
	*kraft.Destination
	config kraft.Config
}

// Replaced asks the cluster whether another process has this node's place: then nobody has thrown it out, and a new process may stand by.
func (j joined) Replaced(ctx context.Context) bool {
	r, err := kraft.Left(ctx, j.config)
	return err == nil && r.Registration != kraft.NotRegistered && !r.Stranger
}

func (j joined) Standing() error {
	s := j.Destination.Standing()
	switch {
	case errors.Is(s.Lost, kraft.ErrUnregistered):
		return fmt.Errorf("%w: %w", ErrThrownOut, s.Lost)
	case s.Lost != nil:
		return fmt.Errorf("%w: %w", ErrLost, s.Lost)
	case s.Registered && !s.Fenced.IsZero() && time.Since(s.Fenced) < fencedShortly:
		return nil
	}
	return s.Err()
}

// fencedShortly is how long raising leader epochs may have it fenced without anybody being told.
const fencedShortly = 5 * time.Second

// wrong is what is wrong with one setting.
type wrong struct{ Setting, Problem, Advice string }

func (e *wrong) Error() string { return e.Setting + ": " + e.Problem + "; " + e.Advice }

// parse checks everything that a file says and returns everything that is wrong.
func parse(settings mirror.Settings) (*parsed, []error) {
	p := &parsed{settings: settings, connections: map[string]map[string]string{}, protocols: map[string]string{}}
	var errs []error
	no := func(setting, problem, advice string) { errs = append(errs, &wrong{setting, problem, advice}) }
	own := mirror.Settings{} // those of package mirror
	var known []string
	for _, k := range Keys() {
		known = append(known, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		isKey := slices.ContainsFunc(keys, func(k Key) bool { return k.Name == name })
		isNode := slices.ContainsFunc(mirror.SettingDefinitions(), func(s mirror.SettingDefinition) bool {
			return s.Level == mirror.NodeSetting && (s.Name == name || slices.Contains(s.Aliases, name))
		})
		switch {
		case isNode:
			own[name] = settings[name]
		case isKey, ofConnection(name), strings.HasPrefix(name, listenerPrefix):
		case slices.ContainsFunc(mirror.SettingDefinitions(), func(s mirror.SettingDefinition) bool { return s.Name == name || slices.Contains(s.Aliases, name) }):
			no(name, "belongs to a mirror, not to a node", "put it into the file of kafka-mirror --create or --alter")
		default:
			no(name, "is not known", "the closest known name is "+closest.Name(name, known))
		}
	}
	options, err := mirror.NodeOptionsFrom(own)
	if err != nil {
		errs = append(errs, unjoined(err)...)
	}
	if err := own.Check(mirror.NodeSetting); err != nil {
		errs = append(errs, unjoined(err)...)
	}
	p.options = options

	get := func(name string) string { return strings.TrimSpace(settings[name]) }
	number := func(name string, otherwise, least int64) int64 {
		n, err := kafkaconfig.ReadInt(name, get(name), otherwise, least)
		if err != nil {
			errs = append(errs, err)
		}
		return n
	}
	need := func(name, what string) string {
		v := get(name)
		if v == "" {
			no(name, "is not set", what)
		}
		return v
	}
	if need(nodeID, "choose an id that no broker of the destination has, as in node.id=9999") != "" {
		p.id = int32(number(nodeID, 0, 1))
	}
	k := &p.kraft
	k.NodeID = p.id
	k.Controllers = list(need(controllers, "name all controllers of the destination, as in standby-1:9093,standby-2:9093,standby-3:9093"), ",")
	need(bootstrapServers, "name brokers of the destination, their listener for clients, as in standby-1:9092,standby-2:9092")
	k.Folder = need(folderKey, "name a folder of this process alone, as in /var/lib/kafka-mirror")
	p.control, p.inter = cmp.Or(get(controllerNames), "CONTROLLER"), cmp.Or(get(interBroker), "INTERNAL")
	k.ListenerName = get(interBroker)
	k.ReplicationFactor, k.MinInSyncReplicas = int(number(replicationFactor, kraft.DefaultReplicationFactor, 1)), int(number(minInSync, 0, 1))
	if k.ReplicationFactor > math.MaxInt16 {
		no(replicationFactor, "is above 32767", "a topic has that many copies at most")
	}
	if k.MinInSyncReplicas == 0 {
		k.MinInSyncReplicas = min(k.ReplicationFactor, kraft.DefaultMinInSyncReplicas)
	}
	if k.MinInSyncReplicas > k.ReplicationFactor {
		no(minInSync, fmt.Sprintf("is above %s, which is %d", replicationFactor, k.ReplicationFactor), "lower it: no record could count as replicated")
	}
	k.Window = number(windowBytes, kraft.DefaultWindow, 1<<20)
	k.HeartbeatInterval = time.Duration(number(heartbeat, kraft.DefaultHeartbeatInterval.Milliseconds(), 1)) * time.Millisecond
	k.SessionTimeout = time.Duration(number(session, kraft.DefaultSessionTimeout.Milliseconds(), 1)) * time.Millisecond
	if k.HeartbeatInterval >= k.SessionTimeout/2 {
		no(heartbeat, fmt.Sprintf("is %d, and %s is %d: one late heartbeat would have this node fenced", k.HeartbeatInterval.Milliseconds(), session, k.SessionTimeout.Milliseconds()),
			"make it less than half of that, which has to be as the controllers have it")
	}
	p.clients.most, p.clients.mostOfAddress = int(number(mostClients, 0, 1)), int(number(mostOfAddress, 0, 1))
	p.drain = time.Duration(number(drainTimeout, 20_000, 1)) * time.Millisecond
	for _, peer := range list(get(peersKey), ",") {
		n, err := strconv.ParseInt(peer, 10, 32)
		if err != nil {
			no(peersKey, fmt.Sprintf("has %q, which is no node id", peer), "write numbers, separated by commas")
		}
		k.Peers = append(k.Peers, int32(n))
	}
	switch get(untestedVersion) {
	case "", "false":
	case "true":
		k.UntestedVersion = true
	default:
		no(untestedVersion, "is neither true nor false", "leave it out")
	}
	switch get(droppedKey) {
	case "", "keep":
	case "discard":
		p.discard = true
	default:
		no(droppedKey, "is neither keep nor discard", "leave it out: records are kept")
	}
	if p.names, err = mirror.NewFilter(list(cmp.Or(get(mirrorNames), ".*"), ","), nil); err != nil {
		no(mirrorNames, err.Error(), "write regular expressions (RE2) that match whole names, separated by commas")
	}
	if p.http = get(httpListener); p.http != "" {
		if _, port, err := net.SplitHostPort(p.http); err != nil || port == "" {
			no(httpListener, "is not host:port", "as in 127.0.0.1:9700")
		}
	}
	switch get(pageRemote) {
	case "", "false":
	case "true":
		p.remote = true
	default:
		no(pageRemote, "is neither true nor false", "leave it out: the page stays on this machine")
	}
	if p.page = get(pageListener); p.page != "" {
		if why := misplacedPage(p.page, p.remote); why != "" {
			no(pageListener, why, "or set "+pageRemote+"=true, if everybody who can reach it may see it")
		}
	}
	p.listeners(get, no)
	p.security(get, no, &errs)
	return p, errs
}

// named puts the listener's prefix before the setting of an error, if the listener has the setting for itself.
func named(err error, listener string, own map[string]string) error {
	e := kafkaconfig.Find(err)
	if e == nil {
		return err
	}
	if _, ok := own[e.Setting]; !ok {
		return err
	}
	full := *e
	full.Setting = listenerPrefix + strings.ToLower(listener) + "." + e.Setting
	return &full
}

func list(text, separator string) (items []string) {
	for _, item := range strings.Split(text, separator) {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// unjoined are the errors that errors.Join put together.
func unjoined(err error) []error {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		return many.Unwrap()
	}
	return []error{err}
}

// listeners reads where this node listens.
func (p *parsed) listeners(get func(string) string, no func(setting, problem, advice string)) {
	read := func(key string) map[string]string {
		found := map[string]string{}
		for _, item := range list(get(key), ",") {
			name, address, ok := strings.Cut(item, "://")
			_, port, err := net.SplitHostPort(address)
			if !ok || err != nil || name == "" || port == "" {
				if strings.Contains(item, "@") { // somebody's password
					item = "[hidden]"
				}
				no(key, fmt.Sprintf("has %q, which is not NAME://host:port", item), "as in "+p.inter+"://10.0.0.9:9990")
				continue
			}
			if _, twice := found[name]; twice {
				no(key, "names "+name+" twice", "a node has one address for each listener")
			}
			found[name] = address
		}
		return found
	}
	here, told := read(listenersKey), read(advertised)
	var ok bool
	if p.kraft.Listen, ok = here[p.inter]; !ok && get(listenersKey) == "" {
		no(listenersKey, "is not set", "say where the brokers reach this node, as in "+p.inter+"://10.0.0.9:9990")
	} else if !ok {
		no(listenersKey, "does not have the brokers' listener "+p.inter, "add "+p.inter+"://host:port, or correct "+interBroker)
	}
	p.kraft.Advertised = told[p.inter]
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if _, ok := here[name]; !ok {
			no(advertised, "has "+name+", which "+listenersKey+" does not have", "add it there too")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(here)) {
		host, _, _ := net.SplitHostPort(here[name])
		if ip := net.ParseIP(host); told[name] == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
			no(advertised, "does not have "+name+", and its listener is on every address", "say under which one it is reached, as in "+name+"://mirror-1.example.com:9990")
		}
	}
	p.clientListener(here, told, no)
}

// security reads who is connected to in which way.
func (p *parsed) security(get func(string) string, no func(setting, problem, advice string), errs *[]error) {
	byDefault := cmp.Or(get("security.protocol"), "PLAINTEXT")
	p.protocols[""], p.protocols[p.inter], p.protocols[p.control] = byDefault, byDefault, byDefault
	if p.clients.name != "" {
		p.protocols[p.clients.name] = byDefault
	}
	for _, item := range list(get(protocolMap), ",") {
		name, protocol, _ := strings.Cut(item, ":")
		if !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, protocol) {
			no(protocolMap, fmt.Sprintf("has %q, which is not NAME:PROTOCOL", item), "the protocols are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL")
			continue
		}
		p.protocols[name] = protocol
	}
	names := []string{"", p.inter, p.control}
	if p.clients.name != "" {
		names = append(names, p.clients.name)
	}
	// Which settings a listener has of its own.
	own := map[string]map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.settings)) {
		rest, ok := strings.CutPrefix(name, listenerPrefix)
		if !ok {
			continue
		}
		i := slices.IndexFunc(names, func(n string) bool { return n != "" && strings.HasPrefix(rest, strings.ToLower(n)+".") })
		if i < 0 {
			no(name, "is about a listener that this node does not know", "its listeners are "+strings.ToLower(strings.Join(names[1:], ", ")))
			continue
		}
		setting := rest[len(strings.ToLower(names[i]))+1:] // a letter may be longer or shorter in small
		if !ofConnection(setting) && !slices.Contains(kafkaconfig.ServerNames, setting) {
			no(name, "is not known", "the closest known name is "+listenerPrefix+strings.ToLower(names[i])+"."+closest.Name(setting, kafkaconfig.ServerNames))
			continue
		}
		if own[names[i]] == nil {
			own[names[i]] = map[string]string{}
		}
		own[names[i]][setting] = p.settings[name]
	}
	seen := map[string]bool{}
	for _, name := range names {
		protocol := p.protocols[name]
		both := map[string]string{} // what the listener says, and what it inherits as far as its protocol has a use for it
		for setting, value := range p.settings {
			useless := strings.HasPrefix(setting, "ssl.") && !strings.HasSuffix(protocol, "SSL") || strings.HasPrefix(setting, "sasl.") && !strings.HasPrefix(protocol, "SASL_")
			if ofConnection(setting) && (name == "" || !useless) {
				both[setting] = value
			}
		}
		maps.Copy(both, own[name])
		client := maps.Clone(both)
		for _, setting := range []string{kafkaconfig.ClientAuth, kafkaconfig.PlainJAAS} {
			delete(client, setting)
		}
		client["security.protocol"] = protocol
		if name != "" && name == p.clients.name { // clients authenticate there, this node does not: it is asked for no certificate either
			client["security.protocol"] = "PLAINTEXT"
			if strings.HasSuffix(protocol, "SSL") {
				client["security.protocol"] = "SSL"
			}
			maps.DeleteFunc(client, func(setting, _ string) bool {
				return strings.HasPrefix(setting, "sasl.") || strings.HasPrefix(setting, "ssl.key")
			})
		}
		client[bootstrapServers] = p.settings[bootstrapServers]
		if name == p.control {
			client[bootstrapServers] = p.settings[controllers]
		}
		p.connections[name] = client
		if _, err := kafkaconfig.Parse(client); err != nil && client[bootstrapServers] != "" {
			for _, e := range unjoined(err) {
				e = named(e, name, own[name])
				if !seen[e.Error()] { // of what is inherited, once
					seen[e.Error()] = true
					*errs = append(*errs, e)
				}
			}
		}
		switch name {
		case p.inter:
			server, err := kafkaconfig.ParseServer(protocol, both)
			if err != nil {
				for _, e := range unjoined(err) {
					*errs = append(*errs, named(e, name, own[name]))
				}
			}
			p.server = server
		case "", p.control:
		default:
			p.clientSecurity(protocol, both, errs)
		}
	}
	p.kraft.Security.Brokers = list(p.settings[principals], ";")
	if p.protocols[p.inter] != "PLAINTEXT" && len(p.kraft.Security.Brokers) == 0 {
		no(principals, "is not set", "name the principals under which the brokers connect, as in User:broker-1;User:broker-2; nobody else is answered")
	}
}
