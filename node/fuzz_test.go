package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
)

// FuzzReadFile: whatever a node.properties says, it is refused with what is wrong, or what a node is made of holds: an id, addresses, times that pass, copies that can be there.
func FuzzReadFile(f *testing.F) {
	f.Add(enough)
	f.Add(enough + "listener.name.internal.ssl.client.auth=required\nlistener.security.protocol.map=INTERNAL:SASL_SSL,CONTROLLER:SSL\nssl.keystore.location=none.pem\n")
	f.Add(enough + "inter.broker.listener.name=\u212a\nlisteners=\u212a://10.0.0.9:9990\nlistener.name.k.x=1\n")
	f.Add(enough + "mirror.peers=1,2,x\nreplication.factor=3\nmin.insync.replicas=9\n")
	f.Add("sasl.jaas.config=a required;\nsecurity.protocol=SASL_SSL\n")
	f.Add(enough + strings.Repeat("x", 50_000) + "=1\n")
	f.Add(enough + "controller.quorum.bootstrap.servers=" + strings.Repeat("a:1,", 10_000) + "\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		// A setting may name any file, and some files of a system have no end.
		if strings.Contains(text, "/dev") || strings.Contains(text, "/proc") || strings.Contains(text, "/sys") || strings.Contains(text, "://") && strings.Contains(text, "token.endpoint") {
			return
		}
		path := filepath.Join(dir, "node.properties")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var file *File
		var err error
		// Settings of connections are read for each of the three kinds of them.
		fuzzbound.Run(t, 3*len(text), func() { file, err = ReadFile(path) })
		if err != nil {
			var wrong *FileError
			if !strings.Contains(err.Error(), path) || errors.As(err, &wrong) && len(wrong.Errs) == 0 {
				t.Fatalf("error %T %v", err, err)
			}
			return
		}
		p := file.parsed
		k := p.kraft
		if k.NodeID < 1 || len(k.Controllers) == 0 || file.Bootstrap() == "" || k.Folder == "" || k.Listen == "" {
			t.Fatalf("%+v", k)
		}
		if k.HeartbeatInterval <= 0 || k.HeartbeatInterval >= k.SessionTimeout/2 || p.drain <= 0 || k.Window < 1<<20 {
			t.Fatalf("heartbeat %v, session %v, drain %v, window %d", k.HeartbeatInterval, k.SessionTimeout, p.drain, k.Window)
		}
		if k.ReplicationFactor < 1 || k.MinInSyncReplicas < 1 || k.MinInSyncReplicas > k.ReplicationFactor || k.ReplicationFactor > 1<<15-1 {
			t.Fatalf("%d copies, %d in sync", k.ReplicationFactor, k.MinInSyncReplicas)
		}
		if restart, err := file.Reload(); err != nil || len(restart) > 0 {
			t.Fatalf("the same file read again: %q, %v", restart, err)
		}
	})
}
