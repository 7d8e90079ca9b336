package kraft

import (
	"net"
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

var _ net.Listener
