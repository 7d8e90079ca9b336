package kraft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/clustermirror/clustermirror/internal/clientlistener"
)

// openClients opens the listener for clients, if there is to be one. What is wrong with it is a finding.
func (p *preflight) openClients() {
	cl := p.d.cfg.Clients
	if cl == nil {
		return
	}
	l, advertised, finding := bindTo(AboutClientListener, cl.Listener, cl.Listen, cl.Advertised, "clients")
	p.clientListener, p.forClients = l, advertised
	if finding != nil {
		p.add(*finding)
	}
}

// closeClients closes it again.
func (p *preflight) closeClients() {
	if p.clientListener != nil {
		_ = p.clientListener.Close()
	}
}

// clientsListener looks at the brokers' listener for clients, at the way there, and at this process's own.
func (p *preflight) clientsListener(ctx context.Context) {
	cl := p.d.cfg.Clients
	if cl == nil {
		return
	}
	if slices.Contains(p.listenerNames(), cl.Name) {
		p.addf(AboutClientListener, Blocks, "name the listener that clients use", "%s is the brokers' own listener (inter.broker.listener.name)", cl.Name)
		return
	}
	if p.clientsName() {
		p.clientsWay(ctx)
	}
	if p.clientListener == nil || p.forClients.host == "" {
		return // said already
	}
	bounded, stop := p.bounded(ctx)
	defer stop()
	if !p.ownAddress(bounded, AboutClientListener, p.clientListener, p.forClients, "clients", "when one of them comes") || cl.TLS == nil {
		return
	}
	leaf, err := ownCertificate(cl.TLS, p.forClients.host)
	if err != nil {
		p.addf(AboutClientListener, Blocks, "look at the certificate and key of Clients.TLS", "there is no certificate to show to clients: %v", err)
		return
	}
	p.validNow(AboutClientListener, leaf)
	if err := leaf.VerifyHostname(p.forClients.host); err != nil {
		p.addf(AboutClientListener, Blocks, "have a certificate made with the advertised host among its subject alternative names", "the certificate is not for the advertised host, and clients check that: %v", err)
	}
}

// clientsName looks whether all brokers have the listener, with the protocol that is to be registered: clients are told one security for a listener's name.
func (p *preflight) clientsName() bool {
	cl := p.d.cfg.Clients
	good := true
	for _, b := range p.brokers {
		l, ok := listenerOf(b.broker, cl.Name)
		switch {
		case !ok:
			p.misfit(AboutClientListener, "set Clients.Name to what the brokers call their listener for clients; all of them need it", "broker %d has no listener %s (%s)", b.broker.ID, cl.Name, listenerText(b.broker))
		case l.SecurityProtocol != int16(slices.Index(protocolIDs, cl.Protocol)):
			p.misfit(AboutClientListener, "set Clients.Protocol to that", "listener %s of broker %d speaks %s, and Clients.Protocol is %s", cl.Name, b.broker.ID, protocolName(l.SecurityProtocol), cl.Protocol)
		default:
			continue
		}
		good = false
	}
	return good && len(p.brokers) > 0
}

func protocolName(id int16) string {
	if id < 0 || int(id) >= len(protocolIDs) {
		return fmt.Sprintf("protocol %d", id)
	}
	return protocolIDs[id]
}

// clientsWay connects to the brokers' listener as it does for a client.
func (p *preflight) clientsWay(ctx context.Context) {
	cl := p.d.cfg.Clients
	errs := make([]error, len(p.brokers))
	var wg sync.WaitGroup
	for i, b := range p.brokers {
		l, _ := listenerOf(b.broker, cl.Name)
		wg.Go(func() {
			bounded, stop := p.bounded(ctx)
			defer stop()
			conn, err := clientlistener.Dial(bounded, net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))), cl.BrokerTLS)
			if err == nil {
				_ = conn.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	var asking, silent []string
	for i, b := range p.brokers {
		switch {
		case errors.Is(errs[i], clientlistener.ErrClientCertificate):
			asking = append(asking, fmt.Sprint(b.broker.ID))
		case errs[i] != nil:
			silent = append(silent, fmt.Sprint(b.broker.ID))
			p.addf(AboutClientListener, Warns, "open the way from here to that listener, and look at Clients.BrokerTLS", "listener %s of broker %d is not reached from here: %v", cl.Name, b.broker.ID, errs[i])
		}
	}
	switch {
	case len(asking) > 0:
		p.addf(AboutClientListener, Blocks, "leave Clients nil (mirrored topics are dark then), or give clients a listener without ssl.client.auth",
			"listener %s of the brokers %s asks clients for a certificate, which cannot be passed through", cl.Name, strings.Join(asking, ", "))
	case len(silent) == len(errs):
		p.addf(AboutClientListener, Blocks, "open the way from here to that listener", "no broker's listener %s is reached from here, so no client could be passed on", cl.Name)
	case len(silent) == 0:
		p.addf(AboutClientListener, Fine, "", "%s, %s; reached at all %d brokers", cl.Name, cl.Protocol, len(errs))
	}
}
