package statemachine

import (
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func TestSpec8PartitionVectors(t *testing.T) {
	one := goldenTopicID()
	high := TopicID{0: 0xff, 1: 0xff, 2: 0xff, 3: 0xff, 4: 0xff, 5: 0xff, 6: 0xff, 7: 0xff, 15: 1}
	if got, want := one.String(), "AQIDBAUGBwgJCgsMDQ4PEA"; got != want {
		t.Errorf("topic id prints %s, want %s", got, want)
	}
	for _, tt := range []struct {
		key       Key
		text      string
		of50, of3 int32
	}{
		{Key{"my-mirror", one, 0}, "my-mirror:AQIDBAUGBwgJCgsMDQ4PEA:0", 41, 0},
		{Key{"my-mirror", one, 1}, "my-mirror:AQIDBAUGBwgJCgsMDQ4PEA:1", 42, 1},
		{Key{"my-mirror", one, 2}, "my-mirror:AQIDBAUGBwgJCgsMDQ4PEA:2", 43, 2},
		{Key{"a-to-b", one, 0}, "a-to-b:AQIDBAUGBwgJCgsMDQ4PEA:0", 7, 1},
		{Key{"b-to-a", high, 7}, "b-to-a:__________8AAAAAAAAAAQ:7", 48, 0},
		{Key{"m", high, 49}, "m:__________8AAAAAAAAAAQ:49", 35, 1},
	} {
		if got := tt.key.String(); got != tt.text {
			t.Errorf("key prints %s, want %s", got, tt.text)
		}
		if got50, got3 := StatePartition(tt.key, 50), StatePartition(tt.key, 3); got50 != tt.of50 || got3 != tt.of3 {
			t.Errorf("%v lies in partition %d of 50 and %d of 3, want %d and %d", tt.key, got50, got3, tt.of50, tt.of3)
		}
	}
	for name, want := range map[string][2]int32{"my-mirror": {12, 1}, "a-to-b": {34, 2}, "b-to-a": {34, 2}, "polygenelubricants": {0, 0}} {
		if got50, got3 := OwnerPartition(name, 50), OwnerPartition(name, 3); got50 != want[0] || got3 != want[1] {
			t.Errorf("mirror %s is owned by partition %d of 50 and %d of 3, want %v", name, got50, got3, want)
		}
	}
}

func TestSpec8HashVectors(t *testing.T) {
	for text, want := range map[string]int32{
		"m:__________8AAAAAAAAAAQ:49": -1548764935,
		"a-to-b":                      -1472817284,
		"b-to-a":                      -1444188134,
		"polygenelubricants":          -1 << 31,
		"":                            0,
	} {
		if got := javaHash(text); got != want {
			t.Errorf("hash of %q is %d, want %d", text, got, want)
		}
	}
}

func TestSpec8HashIsOverUTF16Units(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		var want int32
		for _, unit := range utf16.Encode([]rune(s)) {
			want = 31*want + int32(unit)
		}
		if got := javaHash(s); got != want {
			t.Fatalf("hash of %q is %d, want %d", s, got, want)
		}
		n := rapid.Int32Range(1, 1000).Draw(t, "partitions")
		if p := partitionOf(s, n); p < 0 || p >= n {
			t.Fatalf("partition %d of %d", p, n)
		}
	})
	if got, want := javaHash("🚢"), int32(31*0xD83D+0xDEA2); got != want {
		t.Errorf("hash of a surrogate pair is %d, want %d", got, want)
	}
}
