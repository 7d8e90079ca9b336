package node

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/clustermirror/clustermirror/statuspage"
)

// Page is the status page of this node's mirrors (package statuspage), as it is served at Config.Page. It may be mounted anywhere, and answers requests that name the loopback, or with
// Config.PageRemote any host. Run takes the samples of lag that it shows, where Config.Page is set.
func (n *Node) Page() http.Handler { return n.page }

func (n *Node) newPage() (*statuspage.Page, error) {
	var hosts []string
	if n.cfg.PageRemote {
		hosts = []string{"*"}
	}
	return statuspage.New(statuspage.Config{Title: "node " + n.cfg.Name, Hosts: hosts, Trouble: n.unwell, Mirrors: func() []statuspage.Subject {
		var all []statuspage.Subject
		for _, r := range n.inOrder() {
			all = append(all, r.subject())
		}
		return all
	}})
}

// subject is the mirror for the page.
func (r *run) subject() statuspage.Subject {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := statuspage.Subject{Name: r.name, Problem: r.problem}
	switch {
	case r.mirror != nil:
		s.Mirror = r.mirror
	case s.Problem == "":
		s.Problem = beingOpened
	}
	return s
}

// beingOpened is why a mirror does not run yet.
const beingOpened = "it is being opened"

// misplacedPage says why the page may not be served there, "" if it may.
func misplacedPage(address string, remote bool) string {
	if address == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "is not host:port, as in 127.0.0.1:9701"
	}
	ip, err := netip.ParseAddr(host)
	if remote || strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback() {
		return ""
	}
	return "can be reached from other machines, and asks for no password; name an address of the loopback, as 127.0.0.1:9701"
}
