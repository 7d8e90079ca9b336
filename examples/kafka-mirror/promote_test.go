package main

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestPromoteShowsItsPlanAndAsksFirst: a dry run shows what would be stopped, and without consent, with a wrong word, or with nothing under way nothing changes.
func TestPromoteShowsItsPlanAndAsksFirst(t *testing.T) {
	t.Parallel()
	source := startSource(t, "orders").ListenAddrs()[0]
	other, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(standbyID))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	elsewhere := writeFile(t, "operator.properties", "bootstrap.servers="+other.ListenAddrs()[0])
	for _, s := range standings {
		if s.name != "MIRRORING" {
			continue
		}
		dir := made(t, source, s, time.Now())
		before := bytesOf(t, dir)
		for _, c := range []struct {
			args   string
			status int
			words  string
		}{
			{"--promote --topics orders --dry-run", 0, "promote"},
			{"--promote --topics orders", 2, "--promote needs --reason TEXT"},
			{"--promote --topics orders --reason r", 2, "add --plan"},
			{"--promote --topics orders --fence wall", 2, "--fence is acl, quota or none"},
			{"--promote --topics orders --bound 3s", 2, "--bound has to be 10s or more"},
			{"--promote --topics ordres --reason r --yes --destination-cluster-id " + standbyID, 1, "in no mirror"},
			{"--promote --topics orders --fence-config " + elsewhere + " --reason r --yes --destination-cluster-id " + standbyID, 2, "works on cluster " + standbyID + ", and the source of the mirror is cluster " + sourceID},
			{"--abort-promotion", 0, "no fence of one is recorded as up"},
			{"--lower-fence", 0, "no fence of a promotion is recorded as up"},
		} {
			status, out, complaints := command(t, append(strings.Fields(c.args), "--store", dir, "--mirror", "dr")...)
			if status != c.status || !strings.Contains(out+complaints, c.words) {
				t.Errorf("%s: exit %d\n%s%s", c.args, status, out, complaints)
			}
		}
		if after := bytesOf(t, dir); !maps.Equal(after, before) {
			t.Error("the store has changed")
		}
	}
}
