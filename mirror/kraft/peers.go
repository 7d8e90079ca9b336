package kraft

import (
	"slices"
	"sync/atomic"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
)

// Other mirror processes are brokers of the cluster too: they register as this one does. What they lead is not open to clients, they have no copies, and they answer nobody but brokers. Each
// registers one log directory, whose id follows from its node id (directoryID), so it is recognised without being named.

// peers knows them.
type peers struct {
	named   []int32                // Config.Peers
	cluster atomic.Pointer[string] // the cluster's id, nil before a broker has told it
}

// mirror says whether a broker is a mirror process.
func (p *peers) mirror(im *clustermetadata.Image, id int32) bool {
	if slices.Contains(p.named, id) {
		return true
	}
	cluster := p.cluster.Load()
	if cluster == nil {
		return false
	}
	b, ok := im.Broker(id)
	return ok && slices.Equal(b.LogDirs, [][16]byte{directoryID(*cluster, id)})
}

// isMirror says whether a broker is a mirror process. Not under the metadata's lock: there d.peers.mirror.
func (d *Destination) isMirror(id int32) (is bool) {
	d.meta.look(func(im *clustermetadata.Image) { is = d.peers.mirror(im, id) })
	return is
}
