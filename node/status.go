package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/metrics"
	"github.com/clustermirror/clustermirror/mirror"
)

// State is what a node does.
type State uint8

// The states, in their order.
const (
	Starting   State = iota // it opens what it needs
	StandingBy              // another process has its place
	Running
	Draining // it was told to end
	Ended
)

func (s State) String() string {
	return [...]string{"starting", "standing by", "running", "draining", "ended"}[s]
}

// MarshalText is the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is how a node is at one moment. It is a copy.
type Status struct {
	Node    string
	Version string
	State   State
	Since   time.Time // when the state began
	Taken   time.Time
	Reasons []string       // why it is not ready, none if it is
	Mirrors []MirrorStatus // by name: those that it runs or should run
	// Certificates are those that this process depends on, the one that ends first in front.
	Certificates []CertificateStatus `json:",omitempty"`
	looks        []mirror.Status     // of those that are open
	cluster      string              // the destination's id
	own          Certificates
}

// MirrorStatus is one mirror of a node.
type MirrorStatus struct {
	Name    string
	Running bool
	Problem string // why it does not run, or not as it should; "" if all is well
	// Failed counts partitions that are FAILED, Partitions all that are served here.
	Partitions, Failed int
}

// Ready says that the node leads and follows what it should. Partitions that are FAILED do not make it unready: another process under its id would not do better, and each is an alarm of its own.
func (s *Status) Ready() bool { return len(s.Reasons) == 0 }

// String is the status for a person.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s (version %s) %s since %s\n", s.Node, s.Version, s.State, s.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
	for _, m := range s.Mirrors {
		fmt.Fprintf(&b, "mirror %s: ", m.Name)
		switch {
		case !m.Running:
			fmt.Fprintf(&b, "does not run: %s\n", m.Problem)
		case m.Problem != "":
			fmt.Fprintf(&b, "%d partitions, %d FAILED: %s\n", m.Partitions, m.Failed, m.Problem)
		default:
			fmt.Fprintf(&b, "%d partitions, %d FAILED\n", m.Partitions, m.Failed)
		}
	}
	for _, r := range s.Reasons {
		fmt.Fprintf(&b, "not ready: %s\n", r)
	}
	return b.String()
}

// Status says how the node is. It asks nobody, and may be called at any time.
func (n *Node) Status() Status {
	n.mu.Lock()
	s := Status{Node: n.cfg.Name, Version: n.cfg.Version, State: n.state, Since: n.since, Taken: time.Now(), cluster: n.clusterID, own: n.certificates}
	n.mu.Unlock()
	s.Reasons = n.unwell()
	for _, r := range n.inOrder() {
		m, look := r.status()
		if look != nil {
			s.looks = append(s.looks, *look)
		}
		s.Mirrors = append(s.Mirrors, m)
		if m.Problem != "" && s.State == Running {
			s.Reasons = append(s.Reasons, "mirror "+m.Name+": "+m.Problem)
		}
	}
	s.Certificates = certificatesOf(s.own, s.looks)
	return s
}

// inOrder are the node's mirrors by name.
func (n *Node) inOrder() []*run {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.runs), func(a, b *run) int { return strings.Compare(a.name, b.name) })
}

// unwell is why the node itself is not ready, whatever its mirrors are.
func (n *Node) unwell() (reasons []string) {
	n.mu.Lock()
	state, why, destination, reading := n.state, n.why, n.destination, n.reading
	n.mu.Unlock()
	switch {
	case state != Running:
		reason := state.String()
		if why != "" {
			reason += ": " + why
		}
		reasons = append(reasons, reason)
	case destination != nil:
		if err := destination.Standing(); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	if reading != nil {
		reasons = append(reasons, "what is wanted cannot be read: "+reading.Error())
	}
	return reasons
}

// look is the status as metrics want it.
func (n *Node) look() metrics.Look {
	s := n.Status()
	return metrics.Look{Node: s.Node, DestinationClusterID: s.cluster, State: s.State.String(), Ready: s.Ready(), Mirrors: s.looks, Taken: s.Taken, Destination: s.own.Destination, Listener: s.own.Listener, Version: s.Version}
}
