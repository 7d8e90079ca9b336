package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
)

// TestGroups: what a mirror recorded of groups is shown while none of its processes runs, and so is who would be on both sides after a stop.
func TestGroups(t *testing.T) {
	source := startSource(t, "orders", "payments").ListenAddrs()[0]
	dir := filepath.Join(t.TempDir(), "states")
	config := writeFile(t, "dr.properties", "bootstrap.servers="+source)
	s := &session{t: t, common: []string{"--store", dir}, shown: strings.NewReplacer(source, "primary:9092", dir, "/var/lib/mirror", config, "dr.properties")}
	s.run("--create", "--mirror", "dr", "--mirror-config", config)
	s.run("--groups", "--mirror", "dr")
	s.run("--groups", "--mirror", "rd")
	s.run("--groups")

	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	if err := mirror.NewControl(records).Update(t.Context(), func(c *mirror.ControlState) error {
		for _, p := range []mirror.Provenance{
			{Mirror: "dr", Kind: "group", Name: "billing", Value: `{"v":1,"active":true,"at":1583028184567,"topics":{"orders":{"0":[3,-1,1,1,1,2,26383802,"active"],"1":[0,-1,0,0,0,2,26383802]},"payments":{"0":[5,-1,5,5,5,0,26383802]}}}`},
			{Mirror: "dr", Kind: "share-group", Name: "workers", Value: `{"v":1}`},
			{Mirror: "other", Kind: "group", Name: "of another mirror", Value: `{"v":1}`},
		} {
			if !slices.Contains(c.Provenance, p) { // an update may be tried more than once
				c.Provenance = append(c.Provenance, p)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.run("--groups", "--mirror", "dr")
	s.run("--start", "--mirror", "dr", "--topics", "orders,payments")
	s.run("--stop", "--mirror", "dr", "--topics", "orders", "--dry-run")
	golden(t, "groups.txt", masked(s.text.String()))

	_, out, _ := command(t, "--store", dir, "--json", "--groups", "--mirror", "dr")
	var got followed
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	looked := time.Date(2020, 3, 1, 2, 3, 4, 567e6, time.UTC)
	if len(got.Groups) != 2 || got.GroupsSeen == nil || !got.GroupsSeen.Equal(looked) || got.Groups[0].Recorded == nil || got.Groups[1].Recorded != nil || !got.Groups[0].Active || got.Groups[1].Kind != "share group" ||
		!slices.Equal(got.Groups[0].Partitions, []followedPartition{
			{"orders", 0, mirror.KnownNumber(3), mirror.KnownNumber(1), mirror.KnownNumber(1), mirror.KnownNumber(2), mirror.KnownNumber(0), "active at the destination", false},
			{"orders", 1, mirror.KnownNumber(0), mirror.KnownNumber(0), mirror.KnownNumber(0), mirror.KnownNumber(0), mirror.KnownNumber(0), "", false},
			{"payments", 0, mirror.KnownNumber(5), mirror.KnownNumber(5), mirror.KnownNumber(5), mirror.KnownNumber(0), mirror.KnownNumber(0), "", false},
		}) {
		t.Errorf("%s", out)
	}

	_, out, _ = command(t, "--store", dir, "--json", "--stop", "--mirror", "dr", "--topics", "orders", "--dry-run")
	var dry struct{ GroupPlaces []mirror.PlanGroupPlace }
	if err := json.Unmarshal([]byte(out), &dry); err != nil {
		t.Fatal(err)
	}
	if len(dry.GroupPlaces) != 2 || dry.GroupPlaces[0].At != mirror.KnownNumber(1) || !dry.GroupPlaces[0].Stays || dry.GroupPlaces[0].Place != mirror.KnownNumber(3) {
		t.Errorf("%s", out)
	}
}
