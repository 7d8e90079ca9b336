package node

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// clients is the listener for clients, which lets consumers read mirrored topics; its zero value is none.
type clients struct {
	name, listen, advertised string
	server                   kafkaconfig.Server
	most, mostOfAddress      int // connections, 0: kraft's defaults
}

// clientListener takes the listener that is not the brokers'.
func (p *parsed) clientListener(here, told map[string]string, no func(setting, problem, advice string)) {
	for _, name := range slices.Sorted(maps.Keys(here)) {
		switch {
		case name == p.inter:
		case name == p.control:
			no(listenersKey, "has the controllers' listener "+name, "take it out: a mirror node is no controller")
		case p.clients.name != "":
			no(listenersKey, fmt.Sprintf("has two listeners for clients, %s and %s", p.clients.name, name), "take one of them out")
		default:
			p.clients.name, p.clients.listen, p.clients.advertised = name, here[name], told[name]
		}
	}
}

// clientSecurity reads what clients meet. They authenticate at the brokers: of this node they see a certificate, and no more.
func (p *parsed) clientSecurity(protocol string, settings map[string]string, errs *[]error) {
	mine := maps.Clone(settings)
	if strings.HasSuffix(protocol, "SSL") {
		if auth := strings.ToLower(strings.TrimSpace(mine[kafkaconfig.ClientAuth])); auth != "" && auth != "none" {
			*errs = append(*errs, &wrong{listenerPrefix + strings.ToLower(p.clients.name) + "." + kafkaconfig.ClientAuth, "is " + auth + ", and a client's certificate cannot be passed through to the brokers",
				"leave mirrored topics unreadable until they are stopped (take " + p.clients.name + " out of " + listenersKey + "), or give clients SASL"})
		}
		mine[kafkaconfig.ClientAuth] = "none"
	}
	server, err := kafkaconfig.ParseServer(protocol, mine)
	if err != nil {
		for _, e := range unjoined(err) {
			*errs = append(*errs, named(e, p.clients.name, settings))
		}
	}
	p.clients.server = server
}

// clientListener is the listener as the cluster is joined with it, nil for none.
func (f *File) clientListener() *kraft.ClientListener {
	p := f.now()
	c := p.clients
	if c.name == "" {
		return nil
	}
	l := &kraft.ClientListener{Name: c.name, Listen: c.listen, Advertised: c.advertised, Protocol: p.protocols[c.name], MaxConnections: c.most, MaxConnectionsPerAddress: c.mostOfAddress}
	if c.server.TLS != nil {
		l.TLS = func() (*tls.Config, error) { return f.now().clients.server.TLS() }
		l.BrokerTLS = f.connections[c.name].TLS
	}
	return l
}

// tellClients has the hooks told what happens at the listener, if there is one.
func tellClients(l *kraft.ClientListener, hooks ClientHooks) {
	if l != nil {
		l.Observer = kraft.ClientObserver{Connections: hooks.Connected, Redirected: hooks.Redirected, Refused: hooks.Refused}
	}
}
