package clustermetadata

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
)

// randomRecord is a record that fits im, of any kind; topic ids count up from *ids.
func randomRecord(r *rand.Rand, im *Image, ids *byte) []byte {
	some := func() []int32 {
		all := []int32{1, 2, 3, 4, 5}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:1+r.IntN(4)]
	}
	name := func() string { return string(rune('a' + r.IntN(4))) }
	for {
		topics := im.Topics()
		if len(topics) == 0 || r.IntN(12) == 0 && len(topics) < 4 && *ids < 250 {
			n := name()
			if _, _, taken := im.Topic(n); taken {
				continue
			}
			*ids++
			return newTopic(n, *ids)
		}
		topic := topics[r.IntN(len(topics))]
		id, n, _ := im.Topic(topic)
		switch r.IntN(12) {
		case 0:
			return frame(removeTopic, 0, body(nil).topic(id[15]).tags())
		case 1, 2:
			return newPartition(id[15], int32(r.IntN(5)), some()...)
		case 3, 4, 5:
			if n == 0 {
				continue
			}
			var tags []body
			for i, p := range slices.Sorted(func(yield func(int32) bool) {
				for number := range im.topics[id].partitions {
					if !yield(number) {
						return
					}
				}
			}) {
				if i > 0 && r.IntN(2) > 0 {
					continue
				}
				for _, t := range []uint32{0, 2, 3, 4, 6, 7} {
					if r.IntN(3) == 0 {
						tags = append(tags, tag(t, body(nil).nodes(some()...)))
					}
				}
				if r.IntN(2) == 0 {
					tags = append(tags, tag(1, body(nil).i32(int32(r.IntN(7)-1))))
				}
				return change(id[15], p, tags...)
			}
		case 6:
			return newBroker(int32(r.IntN(5)), int64(r.IntN(3)))
		case 7:
			return frame(unregisterBroker, 0, body(nil).i32(int32(r.IntN(5))).i64(0).tags())
		case 8:
			if r.IntN(2) == 0 {
				return noConfig(TopicResource, topic, name())
			}
			return config(TopicResource, topic, name(), name())
		case 9:
			return frame(featureLevel, 0, body(nil).text(name()).i16(int16(r.IntN(3))).tags())
		case 10:
			if r.IntN(2) == 0 {
				return frame(removeUserScram, 0, body(nil).text(name()).i8(1).tags())
			}
			return frame(userScramCredential, 0, body(nil).text(name()).i8(1).blob(name()).blob(name()).blob(name()).i32(4096).tags())
		case 11:
			switch r.IntN(4) {
			case 0:
				return frame(clearELR, 0, body(nil).text(topic).tags())
			case 1:
				return frame(producerIDs, 0, body(nil).i32(1).i64(2).i64(int64(r.IntN(9)*1000)).tags())
			case 2:
				return frame(unregisterController, 0, body(nil).i32(int32(r.IntN(3))).tags())
			}
			return frame(registerController, 0, body(nil).i32(int32(r.IntN(3))).uuid(dir(1)).i8(0).count(0).count(0).tags())
		}
	}
}

// randomLog is a log of batches, some of them control batches, and where each begins and ends.
func randomLog(t *testing.T, r *rand.Rand, n int) (log []byte, ends []int) {
	t.Helper()
	im := New()
	var ids byte
	epoch := int32(1)
	for range n {
		b := control(im.Next(), epoch)
		if r.IntN(8) > 0 {
			ahead := New()
			if _, err := ahead.Apply(log); err != nil {
				t.Fatal(err)
			}
			var records [][]byte
			for range 1 + r.IntN(4) {
				rec := randomRecord(r, ahead, &ids)
				if _, err := ahead.Apply(pack(ahead.Next(), epoch, rec)); err != nil {
					t.Fatal(err)
				}
				records = append(records, rec)
			}
			b = pack(im.Next(), epoch, records...)
		} else {
			epoch++
		}
		log = append(log, b...)
		ends = append(ends, len(log))
		if _, err := im.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	return log, ends
}

func seeds(t *testing.T, n int, f func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for range n {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func TestInPiecesAsAtOnce(t *testing.T) {
	seeds(t, 30, func(t *testing.T, r *rand.Rand) {
		log, ends := randomLog(t, r, 30)
		whole := New()
		want, err := whole.Apply(log)
		if err != nil {
			t.Fatal(err)
		}
		checkIndex(t, whole)
		im := New()
		var got []Change
		for at := 0; at < len(ends); {
			from, to := at, at+1+r.IntN(len(ends)-at)
			from -= min(from, r.IntN(3)) // some of it again
			start := 0
			if from > 0 {
				start = ends[from-1]
			}
			changes, err := im.Apply(log[start:ends[to-1]])
			if err != nil {
				t.Fatal(err)
			}
			got, at = append(got, changes...), to
		}
		if !reflect.DeepEqual(got, want) || picture(im) != picture(whole) || im.Next() != whole.Next() || im.LastEpoch() != whole.LastEpoch() {
			t.Errorf("in pieces:\n%s\nat once:\n%s", picture(im), picture(whole))
		}
		follow(t, New(), want, whole)
	})
}

// follow checks that changes are complete and true: whoever had the image im before them, and looks into after for what they name, then has all of after.
func follow(t *testing.T, im *Image, all []Change, after *Image) {
	t.Helper()
	s := &changes{}
	for _, c := range all {
		switch c.Kind {
		case TopicCreated:
			im.addTopic(c.Name, c.TopicID, s)
		case TopicDeleted:
			if len(im.topics[c.TopicID].partitions) > 0 {
				t.Errorf("topic %s goes before its partitions", c.Name)
			}
			im.dropTopic(im.topics[c.TopicID], s)
		case PartitionChanged:
			top := im.topics[c.TopicID]
			number := max(c.Before.Partition, c.After.Partition)
			if old := top.partitions[number]; !reflect.DeepEqual(old, c.Before) {
				t.Errorf("before: %+v, was %+v", c.Before, old)
			}
			if c.After.Topic == "" {
				im.dropPartition(top, number, s)
			} else {
				im.putPartition(top, c.After, s)
			}
		case BrokerChanged:
			im.setBroker(c.Broker, found(after.brokers, c.Broker), s)
		case ControllerChanged:
			im.setController(c.Broker, found(after.controllers, c.Broker), s)
		case ConfigChanged:
			value, ok := after.Config(c.Resource, c.Name, c.Key)
			im.setConfig(resource{c.Resource, c.Name}, c.Key, value, !ok, s)
		case FeatureChanged:
			im.setFeature(c.Name, after.features[c.Name], s)
		case ScramChanged:
			im.setScram(scramUser{c.Mechanism, c.Name}, found(after.scram, scramUser{c.Mechanism, c.Name}), s)
		case ProducerIDsChanged:
			im.setProducerID(after.producerID, s)
		}
	}
	if got, want := picture(im), picture(after); got != want {
		t.Errorf("who follows the changes has\n%s\nwant\n%s", got, want)
	}
	checkIndex(t, im)
}

func TestReplaceIsAsIfAllHadBeenApplied(t *testing.T) {
	seeds(t, 40, func(t *testing.T, r *rand.Rand) {
		log, ends := randomLog(t, r, 40)
		whole, snapshot, im, follower := New(), New(), New(), New()
		have := log[:ends[r.IntN(len(ends))]]
		if r.IntN(3) == 0 {
			have, _ = randomLog(t, r, 20) // of another cluster altogether
		}
		for _, x := range []struct {
			im *Image
			b  []byte
		}{{whole, log}, {snapshot, log}, {im, have}, {follower, have}} {
			if _, err := x.im.Apply(x.b); err != nil {
				t.Fatal(err)
			}
		}
		im.transaction = &transaction{}
		changes := im.Replace(snapshot, 1234, 56)
		if picture(im) != picture(whole) || im.Next() != 1234 || im.LastEpoch() != 56 || im.transaction != nil {
			t.Errorf("replaced:\n%s\napplied:\n%s", picture(im), picture(whole))
		}
		checkIndex(t, im)
		for _, c := range changes {
			if c.Offset != 1234 {
				t.Errorf("change at %d", c.Offset)
			}
		}
		follow(t, follower, changes, whole)
		apply(t, im, newBroker(77, 1)) // it goes on
	})
}

func TestReplaceNamesATopicThatIsAnotherOne(t *testing.T) {
	im := applied(t, newTopic("a", 1), newPartition(1, 0, 1), newTopic("b", 2))
	changes := im.Replace(applied(t, newTopic("a", 9), newPartition(9, 0, 1), newTopic("c", 2)), 50, 4)
	var kinds []ChangeKind
	for _, c := range changes {
		kinds = append(kinds, c.Kind)
	}
	if !slices.Equal(kinds, []ChangeKind{PartitionChanged, TopicDeleted, TopicDeleted, TopicCreated, PartitionChanged, TopicCreated}) || changes[1].TopicID != topicID(1) || changes[3].TopicID != topicID(9) {
		t.Errorf("%+v", changes)
	}
	checkIndex(t, im)
}

func TestReplaceAndABadRecord(t *testing.T) {
	im, bad := New(), New()
	if _, err := im.Apply(pack(0, 1, change(1, 0))); !isRecordError(err) {
		t.Fatal(err)
	}
	im.Replace(applied(t, newTopic("a", 1)), 10, 2)
	apply(t, im, newPartition(1, 0, 1)) // a good snapshot heals
	if _, err := bad.Apply(pack(0, 1, change(1, 0))); !isRecordError(err) {
		t.Fatal(err)
	}
	im.Replace(bad, 20, 2)
	if _, err := im.Apply(pack(20, 2, newTopic("b", 2))); !isRecordError(err) {
		t.Errorf("a snapshot that could not be read, and then %v", err)
	}
}

// FuzzApply: whatever comes, Apply returns, and what it leaves agrees with itself. The bytes come as they are, and as a record's value behind records that are right.
func FuzzApply(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if f.Add(b[:min(len(b), 4000)]); filepath.Ext(file) != ".log" {
			continue
		}
		for h, whole := range batch.All(b) {
			if records, err := batch.ReadRecords(whole, &h); err == nil && !h.Control() {
				f.Add(records[0].Value)
			}
		}
	}
	f.Add(change(1, 0, tag(2, body(nil).nodes(3, 3, 3))))
	f.Add(newBroker(1, 40))
	f.Add(frame(userScramCredential, 0, body(nil).text("a").i8(1).blob("").blob("").blob("").i32(1).tags()))
	start := pack(0, 1, newTopic("a", 1), newPartition(1, 0, 1, 2), newBroker(1, 40), frame(beginTransaction, 0, body(nil).tags()), frame(endTransaction, 0, body(nil).tags()))
	f.Fuzz(func(t *testing.T, b []byte) {
		var raw *Image
		var err error
		fuzzbound.Run(t, len(b), func() {
			raw = New()
			_, err = raw.Apply(b)
		})
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
		checkIndex(t, raw)
		im := New()
		if _, err := im.Apply(start); err != nil {
			t.Fatal(err)
		}
		before := picture(im)
		if _, err := im.Apply(pack(5, 1, b)); err != nil && picture(im) != before {
			t.Errorf("%v, and the image was changed", err)
		}
		checkIndex(t, im)
		follower, snapshot := New(), New()
		if _, err := follower.Apply(start); err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.Apply(start); err != nil {
			t.Fatal(err)
		}
		known := New()
		known.Replace(snapshot, 5, 1)
		follow(t, follower, known.Replace(im, im.Next(), 1), im)
		Whole(b, 10)
	})
}
