package mirror

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/internal/metadatasync"
)

var lookedAt = time.Date(2026, 3, 1, 2, 3, 4, 567e6, time.UTC)

// rememberedGroup has every field.
func rememberedGroup() groupMemory {
	return groupMemory{
		Group: "g", Active: true, Looked: lookedAt, Partitions: map[TopicPartition]partitionMemory{
			{"orders", 10}: {Memory: metadatasync.Memory{Seen: 0, SeenEpoch: metadatasync.None, Wrote: metadatasync.None, Before: metadatasync.None}, Here: metadatasync.None, Episode: 3, Skipped: skippedActive},
			{"orders", 2}:  {Memory: metadatasync.Memory{Seen: 1 << 40, SeenEpoch: 7, Wrote: 90, Before: 80}, Here: 90, Episode: 4, Renewed: time.Date(2026, 3, 1, 2, 2, 0, 0, time.UTC)},
			{"orders", 3}:  {Memory: metadatasync.Memory{Seen: 90, SeenEpoch: 7, Wrote: 90, Before: 80, Theirs: true}, Here: 90, Episode: 4},
			{"a<&>b", 0}:   forgottenPartition(),
		},
	}
}

// TestGroupMemoryForm: the stored form of the first version stays readable for ever, and is written like this.
func TestGroupMemoryForm(t *testing.T) {
	const form = `{"v":1,"active":true,"at":1772330584567,"topics":{"a<&>b":{"0":[-1,-1,-1,-1,-1,-1,0]},"orders":{"10":[0,-1,-1,-1,-1,3,0,"active"],"2":[1099511627776,7,90,80,90,4,29538842],"3":[90,7,90,80,90,4,0,"",true]}}}`
	got, err := rememberedGroup().encode("m")
	if want := (Provenance{Mirror: "m", Kind: "group", Name: "g", Value: form}); err != nil || got != want {
		t.Errorf("%+v (%v), want\n%+v", got, err, want)
	}
	back, ok, err := decodeGroupMemory(got)
	if err != nil || !ok || !reflect.DeepEqual(back, rememberedGroup()) {
		t.Errorf("%+v %t (%v)", back, ok, err)
	}

	episodes := groupEpisodes{Topic: "orders", Episodes: map[int32]int32{0: 3, 10: 0}}
	p, err := episodes.encode("m")
	if want := (Provenance{Mirror: "m", Kind: "group-episodes", Name: "orders", Value: `{"v":1,"episodes":{"0":3,"10":0}}`}); err != nil || p != want {
		t.Errorf("%+v (%v), want\n%+v", p, err, want)
	}
	if back, ok, err := decodeGroupEpisodes(p); err != nil || !ok || !reflect.DeepEqual(back, episodes) {
		t.Errorf("%+v %t (%v)", back, ok, err)
	}
	if _, ok, err := decodeGroupMemory(p); ok || err != nil {
		t.Errorf("episodes are taken for a group (%v)", err)
	}
	if _, ok, err := decodeGroupEpisodes(got); ok || err != nil {
		t.Errorf("a group is taken for episodes (%v)", err)
	}
}

// TestF28GroupMemoryNamesTheTopicItIsAbout: the source's topic ids are stored once for all partitions that have them.
func TestF28GroupMemoryNamesTheTopicItIsAbout(t *testing.T) {
	const one, two = "AQAAAAAAAAAAAAAAAAAAAA", "AgAAAAAAAAAAAAAAAAAAAA"
	g := groupMemory{Group: "g", Partitions: map[TopicPartition]partitionMemory{}}
	episodes := groupEpisodes{Topic: "t", Episodes: map[int32]int32{}, IDs: map[int32]TopicID{}}
	for partition, id := range map[int32]TopicID{10: {1}, 2: {1}, 3: {2}, 4: {}} {
		m := forgottenPartition()
		m.Topic = id
		g.Partitions[TopicPartition{"t", partition}], episodes.Episodes[partition] = m, 1
		if id != (TopicID{}) {
			episodes.IDs[partition] = id
		}
	}
	const ids = `{"` + one + `":[2,10],"` + two + `":[3]}`
	p, err := g.encode("m")
	if want := `"ids":{"t":` + ids + `}}`; err != nil || !strings.HasSuffix(p.Value, want) {
		t.Errorf("%s (%v), want …%s", p.Value, err, want)
	}
	if back, _, err := decodeGroupMemory(p); err != nil || !reflect.DeepEqual(back, g) {
		t.Errorf("%+v (%v), want %+v", back, err, g)
	}
	p, err = episodes.encode("m")
	if want := `"ids":` + ids + `}`; err != nil || !strings.HasSuffix(p.Value, want) {
		t.Errorf("%s (%v), want …%s", p.Value, err, want)
	}
	back, _, err := decodeGroupEpisodes(p)
	if err != nil || !reflect.DeepEqual(back, episodes) {
		t.Errorf("%+v (%v), want %+v", back, err, episodes)
	}
	if !back.over(2, 1, TopicID{1}) || back.over(2, 1, TopicID{2}) || !back.over(2, 1, TopicID{}) || !back.over(4, 1, TopicID{2}) {
		t.Error("the first look is over in the topic that was looked at, in no other, and where the topic is not known")
	}
	for _, ids := range []string{`{"` + one + `":[2],"` + two + `":[2]}`, `{"AAAAAAAAAAAAAAAAAAAAAA":[2]}`, `{"A":[2]}`} {
		if _, _, err := decodeGroupEpisodes(Provenance{Mirror: "m", Kind: groupEpisodesProvenance, Name: "t", Value: `{"v":1,"episodes":{"2":1},"ids":` + ids + `}`}); err == nil {
			t.Errorf("%s was read", ids)
		}
	}
}

// TestGroupMemoryReturns: what is stored comes back through a Control, and the same memory is the same text, so that nothing is written where nothing has changed.
func TestGroupMemoryReturns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Int64Min(metadatasync.None)
		moment := rapid.Custom(func(t *rapid.T) time.Time {
			return milliseconds(rapid.Int64Range(0, lastMillisecond).Draw(t, "ms")).time()
		})
		g := groupMemory{
			Kind: rapid.SampledFrom([]GroupKind{OffsetGroup, ShareGroup}).Draw(t, "kind"), Group: rapid.String().Draw(t, "group"), Active: rapid.Bool().Draw(t, "active"),
			Looked: moment.Draw(t, "looked"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "partitions") {
			if g.Partitions == nil {
				g.Partitions = map[TopicPartition]partitionMemory{}
			}
			g.Partitions[TopicPartition{rapid.String().Draw(t, "topic"), rapid.Int32Min(0).Draw(t, "partition")}] = partitionMemory{
				Memory: metadatasync.Memory{Topic: rapid.SampledFrom([]TopicID{{}, {1}, {2}}).Draw(t, "topic id"), Seen: offset.Draw(t, "seen"), SeenEpoch: rapid.Int32Min(metadatasync.None).Draw(t, "epoch"), Wrote: offset.Draw(t, "wrote"), Before: offset.Draw(t, "before"), Theirs: rapid.Bool().Draw(t, "theirs")},
				Here:   offset.Draw(t, "here"), Episode: rapid.Int32Min(metadatasync.None).Draw(t, "episode"), Renewed: (milliseconds(rapid.Int64Range(0, lastMillisecond/int64(minute)).Draw(t, "renewed")) * minute).time(),
				Skipped: rapid.SampledFrom([]string{"", skippedMoved, "\"<\u2028"}).Draw(t, "skipped"),
			}
		}
		p, err := g.encode("m")
		if err != nil {
			t.Fatal(err)
		}
		again, _ := g.encode("m")
		if p != again {
			t.Fatalf("%s\n%s", p.Value, again.Value)
		}
		records, err := encodeControl(&ControlState{Provenance: []Provenance{p}})
		if err != nil {
			t.Fatal(err)
		}
		reader := newControlReader()
		for key, value := range records {
			k, _, err := decodeControlKey([]byte(key))
			if err == nil {
				err = reader.add(k, value)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s, err := reader.end()
		if err != nil || len(s.Provenance) != 1 {
			t.Fatalf("%+v (%v)", s.Provenance, err)
		}
		back, ok, err := decodeGroupMemory(s.Provenance[0])
		if err != nil || !ok || !reflect.DeepEqual(back, g) {
			t.Fatalf("%+v became\n%+v %t (%v)", g, back, ok, err)
		}
	})
}

// TestGroupMemoryRefused: a value that this version does not understand is refused by name, and never read in part.
func TestGroupMemoryRefused(t *testing.T) {
	for _, c := range []struct {
		kind, value, says string
		newer             bool
	}{
		{"group", ``, "no JSON object", false},
		{"group", `{}`, "no version", false},
		{"group", `{"v":0}`, "no version", false},
		{"group", `{"v":2,"topics":7}`, "its version is 2", true},
		{"share-group", `{"v":1,"lease":3}`, "unknown field", true},
		{"group", `{"v":1} {}`, "after top-level value", false},
		{"group", `{"v":1,"at":-1}`, "no moment", false},
		{"group", `{"v":1,"at":9223372036854775807}`, "no moment", false},
		{"group", `{"v":1,"topics":{"t":{"0":[1,2,3]}}}`, "has 3 values", false},
		{"group", `{"v":1,"topics":{"t":{"0":[1,2,3,4,5,6,7,"a",true,10]}}}`, "has 10 values", false},
		{"group", `{"v":1,"topics":{"t":{"0":[1,2,3,4,5,6,7,"a",9]}}}`, "cannot unmarshal", false},
		{"group", `{"v":1,"topics":{"t":{"0":[-2,2,3,4,5,6,7]}}}`, "below -1", false},
		{"group", `{"v":1,"topics":{"t":{"0":[1,2,null,4,5,6,7]}}}`, "null", false},
		{"group", `{"v":1,"topics":{"t":{"-1":[1,2,3,4,5,6,7]}}}`, "partition -1", false},
		{"group", `{"v":1,"topics":{"t":{"0":[1,2,3,9223372036854775808,5,6,7]}}}`, "cannot unmarshal", false},
		{"group-episodes", `{"v":2}`, "its version is 2", true},
		{"group-episodes", `{"v":1,"episodes":{"-1":0}}`, "partition -1", false},
		{"group-episodes", `{"v":1,"episodes":{"1":-1}}`, "episode -1", false},
	} {
		p := Provenance{Mirror: "m", Kind: c.kind, Name: "readers", Value: c.value}
		_, isGroup, err := decodeGroupMemory(p)
		if c.kind == groupEpisodesProvenance {
			_, isGroup, err = decodeGroupEpisodes(p)
		}
		if err == nil || !isGroup || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `"readers"`) || errors.Is(err, ErrNewerRecord) != c.newer || !errors.As(err, new(*ControlRecordError)) {
			t.Errorf("%s: %v", c.value, err)
		}
	}
}

// TestGroupMemoryFits: a group with 5,000 partitions and the longest numbers fits into one record, and one that does not is refused before it is written.
func TestGroupMemoryFits(t *testing.T) {
	g := groupMemory{Group: "g", Looked: lookedAt, Partitions: map[TopicPartition]partitionMemory{}}
	fill := func(n int) (Provenance, error) {
		for i := range n {
			g.Partitions[TopicPartition{fmt.Sprintf("%s-%d", strings.Repeat("t", 40), i), math.MaxInt32}] = partitionMemory{
				Memory: metadatasync.Memory{Seen: math.MaxInt64, SeenEpoch: math.MaxInt32, Wrote: math.MaxInt64, Before: math.MaxInt64}, Here: math.MaxInt64, Episode: math.MaxInt32, Renewed: lookedAt, Skipped: skippedNoOffset,
			}
		}
		return g.encode("m")
	}
	p, err := fill(5000)
	if err != nil {
		t.Fatal(err)
	}
	k := controlKey{recordType: provenanceRecord, names: []string{p.Mirror, p.Kind, p.Name}}
	value, err := encodeControlValue(k, provenanceValue{controlVersion, p.Value})
	if err != nil || len(value) > controlRecordLimit-1000 {
		t.Errorf("%d bytes (%v)", len(value), err)
	}
	t.Logf("%d bytes", len(value))
	if _, err := fill(20000); err == nil || !strings.Contains(err.Error(), "a record takes") {
		t.Error(err)
	}
	for _, name := range []string{"\xff", strings.Repeat("g", math.MaxInt16+1)} {
		if _, err := (groupMemory{Group: name}).encode("m"); err == nil || !strings.Contains(err.Error(), "longer than 32,767") {
			t.Errorf("%.100s", err)
		}
	}
}

// TestGroupStatuses: groups can be shown while no process runs, and one that cannot be read hides no other.
func TestGroupStatuses(t *testing.T) {
	share := groupMemory{Kind: ShareGroup, Group: "a"}
	var s ControlState
	for _, g := range []groupMemory{rememberedGroup(), share} {
		p, err := g.encode("m")
		if err != nil {
			t.Fatal(err)
		}
		other := p
		other.Mirror = "other"
		s.Provenance = append(s.Provenance, p, other)
	}
	s.Provenance = append(s.Provenance, Provenance{Mirror: "m", Kind: "group", Name: "newer", Value: `{"v":9}`}, Provenance{Mirror: "m", Kind: "acl", Name: "x"})
	got, err := GroupStatuses(s, "m")
	want := []GroupStatus{
		{Group: "a", Kind: ShareGroup},
		{Group: "g", Active: true, Seen: lookedAt, Partitions: []GroupPartitionStatus{
			{TopicPartition: TopicPartition{"a<&>b", 0}, Source: Unknown, Written: Unknown, Here: Unknown},
			{TopicPartition: TopicPartition{"orders", 2}, Source: 1 << 40, Written: 90, Here: 90},
			{TopicPartition: TopicPartition{"orders", 3}, Source: 90, Written: 90, Here: 90},
			{TopicPartition: TopicPartition{"orders", 10}, Source: 0, Written: Unknown, Here: Unknown, Skipped: "active at the destination"},
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	if !errors.Is(err, ErrNewerRecord) || !strings.Contains(err.Error(), `"newer"`) {
		t.Error(err)
	}
}

// TestSkippedWords: each reason to leave a group has a code of its own, and words; a code of another version is shown as it is.
func TestSkippedWords(t *testing.T) {
	for reason, want := range map[metadatasync.Reason]string{metadatasync.InStep: "", metadatasync.NoOffset: "no offset at the source", metadatasync.IsActive: "active at the destination", metadatasync.Moved: "moved at the destination"} {
		if got := skippedWords(skippedCode(reason)); got != want {
			t.Errorf("reason %d: %q, want %q", reason, got, want)
		}
	}
	if got := skippedWords("newer"); got != "newer" {
		t.Errorf("%q", got)
	}
}

// FuzzGroupMemory: whatever is read comes back equal from what is written of it.
func FuzzGroupMemory(f *testing.F) {
	p, err := rememberedGroup().encode("m")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.Value)
	f.Add(`{"v":1}`)
	f.Add(`{"v":1,"topics":{"t":{"01":[1,2,3,4,5,6,7,""]},"u":{},"w":null}}`)
	f.Fuzz(func(t *testing.T, value string) {
		var g groupMemory
		var err error
		fuzzbound.Run(t, len(value), func() { g, _, err = decodeGroupMemory(Provenance{Mirror: "m", Kind: "group", Name: "g", Value: value}) })
		if err != nil {
			return
		}
		p, err := g.encode("m")
		if err != nil {
			return // longer than a record
		}
		back, _, err := decodeGroupMemory(p)
		if err != nil || !reflect.DeepEqual(back, g) {
			t.Errorf("%+v became\n%+v (%v)", g, back, err)
		}
	})
}
