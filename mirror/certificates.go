package mirror

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Certificate says until when a certificate is good that connections depend on.
type Certificate struct {
	Own  bool   // the one that is shown to the other side; else what the other side shows
	Of   string // the setting that names it, or the other side's host:port
	Ends time.Time
}

// CertificateReader is an optional ability of a Source: it knows which certificates its connections depend on. A mirror asks once a RefreshInterval, and shows them in Status.
type CertificateReader interface {
	// Certificates are the own one, as it is now, and those that brokers showed when they were connected to last. It may read files, and asks nobody. The slice is the caller's.
	Certificates() []Certificate
}

// certificates are those of a mirror's source as last read. They are read beside everything else: a file may be on a disk that does not answer.
type certificates struct {
	mu      sync.Mutex
	reading bool
	last    []Certificate // not changed once it is here
}

func (c *certificates) read(from CertificateReader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading {
		return
	}
	c.reading = true
	go func() {
		all := from.Certificates()
		slices.SortFunc(all, func(a, b Certificate) int { return strings.Compare(a.Of, b.Of) })
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reading, c.last = false, all
	}()
}

func (c *certificates) now() []Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.last)
}
