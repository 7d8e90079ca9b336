package statemachine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSpec1MirrorNames(t *testing.T) {
	long := strings.Repeat("n", 249)
	for _, name := range []string{"a", "a-b", "a.b", "a_b", "A.b-2_c", "0", "...", "-", "stopped", "paused", "removed", "a.stopped-1", "a.Stopped", "a.pausedx", long} {
		if err := CheckMirrorName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", long + "n", "a b", "a:b", "a/b", "ä", "a\x00", "a\n", "x.stopped", "x.paused", "x.removed", ".stopped", "x.paused.stopped"} {
		err := CheckMirrorName(name)
		var refused *MirrorNameError
		if !errors.As(err, &refused) || refused.Name != name || refused.Reason == "" {
			t.Errorf("%q: %v, want *MirrorNameError", name, err)
		}
	}
}

// TestSpec1EveryByteOfAMirrorName asks for each byte, at each end of a name.
func TestSpec1EveryByteOfAMirrorName(t *testing.T) {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	for c := range 256 {
		one := string([]byte{byte(c)})
		for _, name := range []string{one + "x", "x" + one} {
			err := CheckMirrorName(name)
			if (err == nil) != strings.Contains(allowed, one) {
				t.Errorf("%q: %v", name, err)
			}
			if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("holds the byte %q at position %d", one, strings.Index(name, one))) {
				t.Errorf("%q: the error does not say where: %v", name, err)
			}
		}
	}
	if err := CheckMirrorName(strings.Repeat("n", 250)); err == nil || !strings.Contains(err.Error(), "is 250 bytes long, more than 249; choose another one") {
		t.Errorf("got %v", err)
	}
}

func TestDecision1MirrorNameValue(t *testing.T) {
	for want, value := range map[Desired]string{WantMirroring: "m", WantPaused: "m.paused", WantStopped: "m.stopped"} {
		if got := MirrorNameValue("m", want); got != value {
			t.Errorf("value of %v is %q, want %q", want, got, value)
		}
		mirror, got, err := ParseMirrorNameValue(value)
		if mirror != "m" || got != want || err != nil {
			t.Errorf("%q reads as (%q, %v, %v)", value, mirror, got, err)
		}
	}
	for want, name := range map[Desired]string{WantMirroring: "MIRRORING", WantPaused: "PAUSED", WantStopped: "STOPPED", 3: "Desired(3)"} {
		if want.String() != name {
			t.Errorf("%d prints %q, want %q", int8(want), want, name)
		}
	}
	for _, value := range []string{"", ".stopped", ".paused", "m.removed", "m.paused.stopped", "m.stopped.paused", "m.stopped.stopped", "..stopped", "a b.paused", strings.Repeat("n", 250)} {
		var refused *MirrorNameError
		if mirror, want, err := ParseMirrorNameValue(value); !errors.As(err, &refused) || mirror != "" || want != 0 {
			t.Errorf("%q reads as (%q, %v, %v), want *MirrorNameError", value, mirror, want, err)
		}
	}
}

func mirrorNames() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-zA-Z0-9._-]{1,12}`),
		rapid.StringMatching(`[ab](\.|-|\.stopped|\.paused|\.stopped-)[0-9]{0,3}`),
		rapid.StringMatching(`[a-z.-]{249}`),
	).Filter(func(s string) bool { return CheckMirrorName(s) == nil })
}

func TestF70NamesRoundTripThroughTheMirrorNameValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := mirrorNames().Draw(t, "name")
		want := Desired(rapid.Int8Range(0, 2).Draw(t, "want"))
		mirror, got, err := ParseMirrorNameValue(MirrorNameValue(name, want))
		if mirror != name || got != want || err != nil {
			t.Fatalf("(%q, %v) reads as (%q, %v, %v)", name, want, mirror, got, err)
		}
	})
}

func keys() *rapid.Generator[Key] {
	return rapid.Custom(func(t *rapid.T) Key {
		k := Key{Mirror: mirrorNames().Draw(t, "mirror"), Partition: rapid.Int32Min(0).Draw(t, "partition")}
		copy(k.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic id"))
		return k
	})
}

func TestF70KeysRoundTripThroughState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, other := keys().Draw(t, "key"), keys().Draw(t, "other")
		for _, typ := range []RecordType{LastMirrorEpochsType, PartitionStateType} {
			gotType, got, err := DecodeKey(AppendKey(nil, typ, k))
			if gotType != typ || got != k || err != nil {
				t.Fatalf("%v reads as (%v, %v, %v)", k, gotType, got, err)
			}
		}
		if (k == other) != (k.String() == other.String()) {
			t.Fatalf("%#v and %#v print as %q and %q", k, other, k, other)
		}
		if c := k.Compare(other); c != -other.Compare(k) || (c == 0) != (k == other) {
			t.Fatalf("%v compares to %v as %d, and the other way as %d", k, other, c, other.Compare(k))
		}
	})
}
