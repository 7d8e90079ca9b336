package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

// remember records groups as metadata sync does.
func remember(t *testing.T, c Control, mirror string, groups ...groupMemory) {
	t.Helper()
	mustUpdate(t, c, func(s *ControlState) {
		for _, g := range groups {
			p, err := g.encode(mirror)
			if err != nil {
				t.Fatal(err)
			}
			s.setProvenance(p)
		}
	})
}

func memoryOf(seen, wrote int64, skipped string) partitionMemory {
	m := forgottenPartition()
	m.Seen, m.Wrote, m.Here, m.Skipped = seen, wrote, wrote, skipped
	return m
}

// followedGroups are one of each kind.
func followedGroups(looked time.Time) []groupMemory {
	at := func(p partitionMemory) map[TopicPartition]partitionMemory {
		return map[TopicPartition]partitionMemory{{"orders", 0}: p, {"orders", 1}: memoryOf(metadatasync.None, metadatasync.None, skippedNoOffset)}
	}
	moved := memoryOf(500, metadatasync.None, skippedMoved)
	moved.Here = 600
	return []groupMemory{
		{Group: "billing", Looked: looked, Partitions: at(memoryOf(700, 640, skippedActive)), Active: true},
		{Group: "idle", Looked: looked.Add(-50 * time.Hour), Partitions: at(memoryOf(0, 0, ""))},
		{Group: "new"},
		{Group: "reports", Looked: looked, Partitions: at(moved)},
		{Group: "workers", Kind: ShareGroup, Looked: looked, Partitions: at(memoryOf(90, 80, skippedPending))},
	}
}

func TestDescribeSaysHowGroupsAre(t *testing.T) {
	w, c := describeWorld(t)
	remember(t, c, "other", groupMemory{Group: "of-another-mirror"})
	if d := describe(t, w, c); len(d.Groups) != 0 || strings.Contains(d.String(), "groups:") {
		t.Errorf("%+v", d.Groups)
	}
	if text := describe(t, w, c).GroupTable(); text != "groups: 0 followed, never looked at: the first look is made within 30s of the start of a process\n" {
		t.Error(text)
	}

	looked := planTime.Add(-20 * time.Minute)
	remember(t, c, "m", followedGroups(looked)...)
	dead := describe(t, w, c) // its process said nothing of groups: what it recorded says when it looked
	if want := "groups: 5 followed, looked at 20m ago; 4 not in step: billing (active at the destination), new (never looked at), reports (moved at the destination), share group workers (a transaction is committing it)\n"; !strings.Contains(dead.String(), want) {
		t.Errorf("want %q in\n%s", want, dead)
	}
	if !dead.GroupsSeen.Equal(looked) {
		t.Error(dead.GroupsSeen)
	}

	report(t, c, NodeReport{Owner: "node-1", Mirror: "m", Seen: planTime.Add(-3 * time.Second), GroupsSeen: planTime.Add(-14 * time.Second)})
	report(t, c, NodeReport{Owner: "node-2", Mirror: "m", Seen: planTime.Add(-3 * time.Second), GroupsSeen: planTime.Add(time.Hour)}) // by its own clock
	alive := describe(t, w, c)
	if !alive.GroupsSeen.Equal(planTime.Add(-14 * time.Second)) {
		t.Error(alive.GroupsSeen)
	}
	if text := alive.String(); !strings.Contains(text, "groups: 5 followed, looked at 14s ago; 4 not in step: ") {
		t.Error(text)
	}
	golden(t, "../descriptions/groups.txt", []byte(alive.GroupTable()))
}

// TestDescribeNamesGroupsThatItCannotRead: one that a newer version recorded is not shown as if it were not there.
func TestDescribeNamesGroupsThatItCannotRead(t *testing.T) {
	w, c := describeWorld(t)
	mustUpdate(t, c, func(s *ControlState) {
		s.setProvenance(Provenance{Mirror: "m", Kind: groupProvenance, Name: "newer", Value: `{"v":2}`})
	})
	d := describe(t, w, c)
	for _, text := range []string{d.String(), d.GroupTable()} {
		if !strings.Contains(text, `some groups are not shown: mirror: control record provenance of mirror "m", group "newer" (record type 69): its version is 2`) {
			t.Error(text)
		}
	}
}

// TestDescribeSaysWhichGroupsAStopTearsApart: also where no process runs that could plan a failover.
func TestDescribeSaysWhichGroupsAStopTearsApart(t *testing.T) {
	w, c := describeWorld(t)
	long := planTime.Add(-50 * time.Hour)
	at := func(topics ...string) map[TopicPartition]partitionMemory {
		partitions := map[TopicPartition]partitionMemory{}
		for _, topic := range topics {
			partitions[TopicPartition{topic, 0}] = memoryOf(700, 700, "")
		}
		return partitions
	}
	remember(t, c, "m", groupMemory{Group: "g", Looked: long, Partitions: at("orders", "clicks")}, groupMemory{Group: "quiet", Looked: long, Partitions: at("orders")},
		groupMemory{Group: "moved", Looked: long, Partitions: at("done", "orders")}, groupMemory{Group: "elsewhere", Looked: long, Partitions: at("held")})
	looked, err := groupEpisodes{Topic: "orders", Episodes: map[int32]int32{0: 0, 1: 0}}.encode("m")
	if err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, c, func(s *ControlState) { s.setProvenance(looked) })
	d := describe(t, w, c)
	text := d.GroupsOf("orders")
	for _, want := range []string{"GROUPS: 1 ON BOTH SIDES, 2 in step; see below: g; looked at 2d ago\n", "g SPANS BOTH SIDES: orders stops with this plan, clicks stays in the mirror\n",
		"clicks-0   stays  700, recorded 2d ago  700             700      unknown since 2026-03-12 01:12:44 UTC, none then\n",
		"g orders-0 goes on at 700 (as at the source, recorded 2d ago)\n", "quiet orders-0 goes on at 700 (as at the source, recorded 2d ago)\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text := d.GroupsOf("new"); text != "" {
		t.Error(text)
	}
	if text := d.GroupsOf("done"); !strings.Contains(text, "moved SPANS BOTH SIDES: done is stopped, orders stays in the mirror\n") {
		t.Error(text)
	}
}
