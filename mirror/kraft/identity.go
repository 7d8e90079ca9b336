package kraft

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// identity is who this process is to the controllers. An incarnation id is a promise that there is one process under it: it is used again only under the lock on its folder and in
// the same boot of the machine, so a copied or restored folder never makes two processes one broker. The log directory's id is the same for every process under a node id in a
// cluster, and the broker epoch of the last registration stands in the cluster's metadata: neither has to be kept.
type identity struct {
	folder string
	lock   *folderLock
	saved  savedIdentity
}

type savedIdentity struct {
	Version     int      `json:"version"`
	NodeID      int32    `json:"node_id"`
	ClusterID   string   `json:"cluster_id"`
	Incarnation [16]byte `json:"incarnation"`
	Boot        string   `json:"boot"`
	Place       string   `json:"place"` // of the lock file: a copy of the folder has another one
}

// ErrFolderInUse: another process has the identity folder.
var ErrFolderInUse = errors.New("kraft: the identity folder is in use by another process")

// openIdentity locks the folder and reads who was here.
func openIdentity(folder string) (*identity, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("kraft: identity folder: %w", err)
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return nil, err
	}
	id := &identity{folder: folder, lock: lock}
	b, err := os.ReadFile(id.file())
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		lock.release()
		return nil, fmt.Errorf("kraft: identity: %w", err)
	case len(bytes.Trim(b, "\x00")) == 0: // the machine lost power before the content was on its disk: a file system may keep the name and the length only
	default:
		if err := json.Unmarshal(b, &id.saved); err != nil || id.saved.Version != 1 {
			lock.release()
			return nil, fmt.Errorf("kraft: identity file %s cannot be read (version %d, %v); it holds nothing that cannot be made anew: delete it", id.file(), id.saved.Version, err)
		}
	}
	return id, nil
}

func (id *identity) file() string { return filepath.Join(id.folder, "identity.json") }

// incarnation is the id to register with: the saved one if this is the same node, cluster and boot, otherwise a new one, which is saved before it is used.
func (id *identity) incarnation(node int32, cluster string) (incarnation [16]byte, again bool, err error) {
	boot := bootID()
	if s := id.saved; s.NodeID == node && s.ClusterID == cluster && boot != "" && s.Boot == boot && s.Place == id.lock.place {
		return s.Incarnation, true, nil
	}
	return id.renew(node, cluster)
}

// renew makes a new incarnation.
func (id *identity) renew(node int32, cluster string) (incarnation [16]byte, again bool, err error) {
	rand.Read(incarnation[:])
	return incarnation, false, id.keep(incarnation, node, cluster)
}

// keep saves an incarnation, before it is used: a new one, or one that a process which has resigned has left to this one alone.
func (id *identity) keep(incarnation [16]byte, node int32, cluster string) error {
	s := savedIdentity{Version: 1, NodeID: node, ClusterID: cluster, Incarnation: incarnation, Boot: bootID(), Place: id.lock.place}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fresh := id.file() + ".new"
	if err := writeDurably(fresh, b); err != nil {
		return fmt.Errorf("kraft: identity: %w", err)
	}
	// Where the rename itself is lost, the next process is a new one: the folder need not be on the disk.
	if err := os.Rename(fresh, id.file()); err != nil {
		return fmt.Errorf("kraft: identity: %w", err)
	}
	id.saved = s
	return nil
}

// writeDurably returns when the file's content is on the disk.
func writeDurably(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// forget drops the incarnation: after a clean leave nobody comes again under it, and after a resignation whoever takes it. A machine that loses power before the removal is on its disk
// boots anew, and then it is not used either.
func (id *identity) forget() error {
	if err := os.Remove(id.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kraft: identity: %w", err)
	}
	id.saved = savedIdentity{}
	return nil
}

func (id *identity) close() { id.lock.release() }

// bootID names this boot of this machine, "" if it cannot be known; then no incarnation is used twice.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// directoryID is the id of the one log directory that is registered: always the same for a node id in a cluster, so partitions need not be told of another one.
func directoryID(cluster string, node int32) [16]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "clustermirror log directory of broker %d in cluster %s", node, cluster))
	id := [16]byte(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a random UUID's form; never one of Kafka's reserved ids, which are small numbers
	return id
}
