package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestPreflightNamesWhatStandsInTheWay: of joining and of mirroring, in one look that changes nothing.
func TestPreflightNamesWhatStandsInTheWay(t *testing.T) {
	source, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	standby, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	free.Close()
	folder := filepath.Join(t.TempDir(), "folder")
	out := &output{}
	err = preflight(t.Context(), out, options{
		source: source.ListenAddrs(), topics: []string{"orders", "ordres"}, controllers: []string{nobody}, state: standby.ListenAddrs(), listen: "127.0.0.1:0", folder: folder, name: "dr", node: 9999, replicas: 3,
	})
	if !errors.Is(err, errStandsInTheWay) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, words := range []string{
		"blocks controllers: none of the controllers [" + nobody + "] can be used", "PREFLIGHT  mirror dr\n", "blocks  source, topics: it has no such topic (ordres)",
		"blocks  destination, topics: 1 topic has more partitions than at the source (orders)",
		"blocks  destination: it has 1 of the 3 brokers", "→ add -replicas 1, ",
	} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("%q is not in\n%s", words, out)
		}
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("it has made the folder")
	}
}
