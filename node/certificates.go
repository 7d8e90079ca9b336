package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
)

// Certificates are those that a node depends on, besides those of its mirrors' sources.
type Certificates struct {
	Destination []mirror.Certificate // of its own connections to the destination
	Listener    []mirror.Certificate // that its own listeners show
}

// CertificateStatus is one certificate that a node depends on, in its Status.
type CertificateStatus struct {
	Side   string // source, destination or listener
	Mirror string // whose source it is; "" for the other sides
	mirror.Certificate
}

// certificatesInterval is how often they are read.
const certificatesInterval = time.Minute

// watchCertificates reads them until ctx ends. Nobody waits for it: a file may be on a disk that does not answer.
func (n *Node) watchCertificates(ctx context.Context) {
	for {
		c := n.cfg.Certificates()
		n.mu.Lock()
		n.certificates = c
		n.mu.Unlock()
		if !pause(ctx, certificatesInterval) {
			return
		}
	}
}

// certificatesOf are those of a node and of its mirrors, those that end first in front.
func certificatesOf(c Certificates, looks []mirror.Status) (all []CertificateStatus) {
	add := func(side, name string, of []mirror.Certificate) {
		for _, x := range of {
			all = append(all, CertificateStatus{side, name, x})
		}
	}
	add("destination", "", c.Destination)
	add("listener", "", c.Listener)
	for i := range looks {
		add("source", looks[i].Mirror, looks[i].Certificates)
	}
	slices.SortStableFunc(all, func(a, b CertificateStatus) int { return cmp.Or(a.Ends.Compare(b.Ends), cmp.Compare(a.Of, b.Of)) })
	return all
}

// Certificates reads those of the file's connections and listeners, as they are now.
func (f *File) Certificates() (c Certificates) {
	p := f.now()
	for _, connection := range f.connections {
		for _, x := range connection.Certificates() {
			if found := mirror.Certificate(x); !slices.Contains(c.Destination, found) { // connections have most in common
				c.Destination = append(c.Destination, found)
			}
		}
	}
	for _, server := range []kafkaconfig.Server{p.server, p.clients.server} {
		if server.Certificates == nil {
			continue
		}
		for _, x := range server.Certificates() {
			c.Listener = append(c.Listener, mirror.Certificate(x))
		}
	}
	return c
}
