package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestAlterToAnotherCluster: an address of another cluster is refused, with both ids; one where nobody listens is recorded with a warning.
func TestAlterToAnotherCluster(t *testing.T) {
	t.Parallel() // it waits for an address where nobody is
	source := startSource(t, "orders").ListenAddrs()[0]
	other, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(standbyID))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	common := []string{"--store", filepath.Join(t.TempDir(), "states"), "--mirror", "dr"}
	run := func(status int, words []string, args ...string) {
		t.Helper()
		got, out, complaints := command(t, append(common, args...)...)
		if got != status {
			t.Errorf("%v: exit status %d\n%s%s", args, got, out, complaints)
		}
		for _, w := range words {
			if !strings.Contains(out+complaints, w) {
				t.Errorf("%v: no %q in\n%s%s", args, w, out, complaints)
			}
		}
	}
	run(0, nil, "--create", "--mirror-config", writeFile(t, "dr.properties", "bootstrap.servers="+source))
	run(2, []string{"leads to cluster " + standbyID, "the source of this mirror is cluster " + sourceID, "Nothing has changed"}, "--alter", "--mirror-config", writeFile(t, "other.properties", "bootstrap.servers="+other.ListenAddrs()[0]))
	run(5, []string{"source " + sourceID + " (" + source + ")"}, "--describe")
	run(0, []string{"the source, cluster " + sourceID + ", was not compared: nobody answers there"}, "--alter", "--mirror-config", writeFile(t, "nobody.properties", "bootstrap.servers="+nobody.Addr().String()))
	run(5, []string{nobody.Addr().String()}, "--describe")
}
