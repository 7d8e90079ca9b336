package statemachine

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goldenTopicID() TopicID {
	return TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
}

func TestSpec8GoldenKeys(t *testing.T) {
	k := Key{Mirror: "my-mirror", TopicID: goldenTopicID()}
	for typ, want := range map[RecordType]string{
		LastMirrorEpochsType: "000100096d792d6d6972726f720102030405060708090a0b0c0d0e0f1000000000",
		PartitionStateType:   "000200096d792d6d6972726f720102030405060708090a0b0c0d0e0f1000000000",
	} {
		if got := hex.EncodeToString(AppendKey(nil, typ, k)); got != want {
			t.Errorf("key %d\n got %s\nwant %s", typ, got, want)
		}
		gotType, got, err := DecodeKey(unhex(t, want))
		if gotType != typ || got != k || err != nil {
			t.Errorf("key %d reads as (%v, %v, %v)", typ, gotType, got, err)
		}
	}
	if got := AppendKey([]byte("front"), PartitionStateType, k); !bytes.HasPrefix(got, []byte("front\x00\x02")) {
		t.Errorf("AppendKey overwrites what is there: %q", got)
	}
}

func TestSpec8GoldenPartitionState(t *testing.T) {
	plain := PartitionState{State: Mirroring, LeaderEpoch: 4, StateEpoch: 2, PreviousState: Unknown}
	tagged := plain
	tagged.Episode = 3
	open := tagged
	open.FoundOpen = true
	hole := plain
	hole.HoleFrom, hole.HoleTo = 6, 10
	failed := PartitionState{State: Failed, LeaderEpoch: -1, StateEpoch: 7, ErrorMessage: "gone", RetryAttempt: -1, PreviousState: Mirroring}
	for _, tt := range []struct {
		record PartitionState
		golden string
	}{
		{plain, "00000200000004000000020000001000"}, // spec §8
		{tagged, "000002000000040000000200000010 01 00 04 00000003"},
		{open, "000002000000040000000200000010 02 00 04 00000003 03 01 01"},
		{hole, "000002000000040000000200000010 01 07 10 0000000000000006 000000000000000a"},
		{failed, "0000 07 ffffffff 00000007 05 676f6e65 ffff 02 00"},
	} {
		want := unhex(t, tt.golden)
		if got := AppendPartitionState(nil, tt.record); !bytes.Equal(got, want) {
			t.Errorf("%+v\n got %x\nwant %x", tt.record, got, want)
		}
		if got, err := DecodePartitionState(want); got != tt.record || err != nil {
			t.Errorf("%x reads as %+v, %v", want, got, err)
		}
	}
}

func TestSpec8GoldenLastMirrorEpoch(t *testing.T) {
	full := LastMirrorEpoch{Epoch: 3, Offset: 6, SourceClusterID: "abc", Episode: 2, SourceTopicID: goldenTopicID()}
	for _, tt := range []struct {
		record LastMirrorEpoch
		golden string
	}{
		{LastMirrorEpoch{Epoch: 3, Offset: -1}, "00000000000300"}, // spec §8
		{LastMirrorEpoch{Epoch: 3, Offset: 6}, "000000000003 01 00 08 0000000000000006"},
		{LastMirrorEpoch{Epoch: -1, Offset: 0}, "0000ffffffff 01 00 08 0000000000000000"},
		{full, "000000000003 04 00 08 0000000000000006 01 04 04 616263 02 04 00000002 03 10 0102030405060708090a0b0c0d0e0f10"},
		{LastMirrorEpoch{Epoch: 3, Offset: 6, Cut: true}, "000000000003 02 00 08 0000000000000006 04 01 01"},
	} {
		want := unhex(t, tt.golden)
		if got := AppendLastMirrorEpoch(nil, tt.record); !bytes.Equal(got, want) {
			t.Errorf("%+v\n got %x\nwant %x", tt.record, got, want)
		}
		if got, err := DecodeLastMirrorEpoch(want); got != tt.record || err != nil {
			t.Errorf("%x reads as %+v, %v", want, got, err)
		}
	}
}

func TestSpec8LaterDraftWithOffset(t *testing.T) {
	for golden, want := range map[string]LastMirrorEpoch{
		"0000 00000003 0000000000000006 00":              {Epoch: 3, Offset: 6}, // spec §8
		"0000 00000003 0000000000000000 00":              {Epoch: 3, Offset: 0},
		"0000 ffffffff ffffffffffffffff 00":              {Epoch: -1, Offset: -1},
		"0000 00000003 00ffffffffffffff 00":              {Epoch: 3, Offset: 1<<56 - 1},
		"0000 00000003 0000000000000006 01 00 02 aabb":   {Epoch: 3, Offset: 6}, // a tag there is the draft's, not ours
		"0000 00000003 0000000000000006 01 09 04 616263": {},
	} {
		got, err := DecodeLastMirrorEpoch(unhex(t, golden))
		if strings.HasSuffix(golden, "616263") {
			if err == nil {
				t.Errorf("%s reads as %+v", golden, got)
			}
			continue
		}
		if got != want || err != nil {
			t.Errorf("%s reads as %+v, %v; want %+v", golden, got, err, want)
		}
	}
	for _, bad := range []string{"0000 00000003 0100000000000006 00", "0000 00000003 fffffffffffffffe 00", "0000 00000003", "0000 00000003 000000"} {
		if got, err := DecodeLastMirrorEpoch(unhex(t, bad)); err == nil {
			t.Errorf("%s reads as %+v", bad, got)
		}
	}
}

// TestSpec8NoBytesReadInTwoWays: whatever we write as the page's form is not the draft's, and the other way round.
func TestSpec8NoBytesReadInTwoWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawLME(t)
		if got, err := DecodeLastMirrorEpoch(AppendLastMirrorEpoch(nil, e)); got != e || err != nil {
			t.Fatalf("%+v reads as %+v, %v", e, got, err)
		}
		draft := LastMirrorEpoch{Epoch: e.Epoch, Offset: rapid.Int64Range(-1, maxDraftOffset-1).Draw(t, "draft offset")}
		b := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(draft.Epoch))
		b = append(binary.BigEndian.AppendUint64(b, uint64(draft.Offset)), 0)
		if got, err := DecodeLastMirrorEpoch(b); got != draft || err != nil {
			t.Fatalf("draft %x reads as %+v, %v; want %+v", b, got, err, draft)
		}
	})
}

func drawLME(t *rapid.T) LastMirrorEpoch {
	e := LastMirrorEpoch{
		Epoch:           rapid.Int32().Draw(t, "epoch"),
		Offset:          rapid.Int64().Draw(t, "offset"),
		SourceClusterID: rapid.String().Draw(t, "cluster"),
		Episode:         rapid.Int32().Draw(t, "episode"),
		Cut:             rapid.Bool().Draw(t, "cut"),
	}
	copy(e.SourceTopicID[:], rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, "topic id"))
	return e
}

func TestPartitionStateRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := PartitionState{
			State:         rapid.SampledFrom(allStates()).Draw(t, "state"),
			LeaderEpoch:   rapid.Int32().Draw(t, "leader epoch"),
			StateEpoch:    rapid.Int32().Draw(t, "state epoch"),
			ErrorMessage:  rapid.String().Draw(t, "message"),
			RetryAttempt:  rapid.Int16().Draw(t, "attempt"),
			PreviousState: rapid.SampledFrom(allStates()).Draw(t, "previous"),
			Episode:       rapid.Int32().Draw(t, "episode"),
			FoundOpen:     rapid.Bool().Draw(t, "found open"),
			WasOpen:       rapid.Bool().Draw(t, "was open"),
			Mirrored:      rapid.Bool().Draw(t, "mirrored"),
			AwaitsCut:     rapid.Bool().Draw(t, "awaits cut"),
			HoleFrom:      rapid.Int64().Draw(t, "hole from"),
			HoleTo:        rapid.Int64().Draw(t, "hole to"),
		}
		if got, err := DecodePartitionState(AppendPartitionState(nil, s)); got != s || err != nil {
			t.Fatalf("%+v reads as %+v, %v", s, got, err)
		}
	})
}

func TestMessagesThatAreNotUTF8StayReadable(t *testing.T) {
	s := NewPartitionState()
	s.ErrorMessage = "broker said \xff\xfe"
	got, err := DecodePartitionState(AppendPartitionState(nil, s))
	if err != nil || got.ErrorMessage != "broker said \uFFFD" {
		t.Errorf("reads as %q, %v", got.ErrorMessage, err)
	}
	raw := unhex(t, "0000 07 ffffffff 00000007 03 fffe 0001 02 00")
	if got, err := DecodePartitionState(raw); err != nil || got.ErrorMessage != "\uFFFD" {
		t.Errorf("reads as %q, %v", got.ErrorMessage, err)
	}
}

func TestEmptyMessageReadsAsNone(t *testing.T) {
	got, err := DecodePartitionState(unhex(t, "0000 02 00000004 00000002 01 0000 10 00"))
	if err != nil || got.ErrorMessage != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecision2UnknownTagsAreSkipped(t *testing.T) {
	got, err := DecodePartitionState(unhex(t, "0000 02 00000004 00000002 00 0000 10 03 00 04 00000003 09 02 abcd 8001 00"))
	if want := (PartitionState{State: Mirroring, LeaderEpoch: 4, StateEpoch: 2, PreviousState: Unknown, Episode: 3}); got != want || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	lme, err := DecodeLastMirrorEpoch(unhex(t, "0000 00000003 02 02 04 00000002 09 01 ff"))
	if want := (LastMirrorEpoch{Epoch: 3, Offset: -1, Episode: 2}); lme != want || err != nil {
		t.Errorf("%+v, %v; want %+v", lme, err, want)
	}
}

// pageReader reads a value as a program does that knows only the KIP page's layout: fixed fields, then tagged fields, all of which it skips.
func pageReader(t *testing.T, value []byte, fixed int) []byte {
	t.Helper()
	fields, rest := value[:fixed], value[fixed:]
	next := func() uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			t.Fatalf("%x: no number where a tagged field should be", value)
		}
		rest = rest[n:]
		return v
	}
	for range next() {
		next()
		size := next()
		if uint64(len(rest)) < size {
			t.Fatalf("%x: a tagged field is cut", value)
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		t.Fatalf("%x: %d bytes left over", value, len(rest))
	}
	return fields
}

func TestDecision2AReaderOfThePageSkipsOurTags(t *testing.T) {
	lme := LastMirrorEpoch{Epoch: 3, Offset: 6, SourceClusterID: strings.Repeat("c", 200), Episode: 2, SourceTopicID: goldenTopicID()}
	if got := pageReader(t, AppendLastMirrorEpoch(nil, lme), 6); !bytes.Equal(got, unhex(t, "000000000003")) {
		t.Errorf("fields %x", got)
	}
	s := PartitionState{State: Mirroring, LeaderEpoch: 4, StateEpoch: 2, PreviousState: Unknown, Episode: 3}
	if got := pageReader(t, AppendPartitionState(nil, s), 15); !bytes.Equal(got, unhex(t, "000002000000040000000200000010")) {
		t.Errorf("fields %x", got)
	}
}

func TestHostileRecordsAreTypedErrors(t *testing.T) {
	state := func(b []byte) error { _, err := DecodePartitionState(b); return err }
	lme := func(b []byte) error { _, err := DecodeLastMirrorEpoch(b); return err }
	key := func(b []byte) error { _, _, err := DecodeKey(b); return err }
	for _, tt := range []struct {
		name   string
		decode func([]byte) error
		bytes  string
		offset int
	}{
		{"state: empty", state, "", 0},
		{"state: version 1", state, "0001 02 00000004 00000002 00 0000 10 00", 0},
		{"state: version -1", state, "ffff 02 00000004 00000002 00 0000 10 00", 0},
		{"state: no state", state, "0000 08 00000004 00000002 00 0000 10 00", 2},
		{"state: no previous state", state, "0000 02 00000004 00000002 00 0000 ff 00", 14},
		{"state: message longer than the record", state, "0000 07 00000004 00000002 ffffffff0f 61", 16},
		{"state: message length of 6 bytes", state, "0000 07 00000004 00000002 ffffffffff01 61", 11},
		{"state: message length above 32 bits", state, "0000 07 00000004 00000002 ffffffff1f 61", 11},
		{"state: no tags", state, "0000 02 00000004 00000002 00 0000 10", 15},
		{"state: four thousand million tags", state, "0000 02 00000004 00000002 00 0000 10 ffffffff0f", 20},
		{"state: tag longer than the record", state, "0000 02 00000004 00000002 00 0000 10 01 05 ffffffff0f", 22},
		{"state: tags fall", state, "0000 02 00000004 00000002 00 0000 10 02 09 00 04 00", 20},
		{"state: tag twice", state, "0000 02 00000004 00000002 00 0000 10 02 00 04 00000001 00 04 00000002", 24},
		{"state: episode of 3 bytes", state, "0000 02 00000004 00000002 00 0000 10 01 00 03 000001", 18},
		{"state: found open of 2 bytes", state, "0000 02 00000004 00000002 00 0000 10 01 03 02 0001", 18},
		{"state: mirrored of 2 bytes", state, "0000 02 00000004 00000002 00 0000 10 01 05 02 0001", 18},
		{"state: bytes left over", state, "0000 02 00000004 00000002 00 0000 10 00 00", 16},
		{"LME: empty", lme, "", 0},
		{"LME: version 1", lme, "0001 00000003 00", 0},
		{"LME: LMO of 4 bytes", lme, "0000 00000003 01 00 04 00000006", 9},
		{"LME: null cluster", lme, "0000 00000003 01 01 01 00", 9},
		{"LME: cluster longer than its tag", lme, "0000 00000003 01 01 04 05 616263", 9},
		{"LME: cluster shorter than its tag", lme, "0000 00000003 01 01 04 03 616263", 9},
		{"LME: episode of 5 bytes", lme, "0000 00000003 01 02 05 0000000001", 9},
		{"LME: topic id of 15 bytes", lme, "0000 00000003 01 03 0f 0102030405060708090a0b0c0d0e0f", 9},
		{"key: empty", key, "", 0},
		{"key: negative length", key, "0001 ffff", 4},
		{"key: name longer than the key", key, "0001 7fff 61", 4},
		{"key: name is not UTF-8", key, "0001 0001 ff 0102030405060708090a0b0c0d0e0f10 00000000", 5},
		{"key: cut", key, "0001 0001 61 0102030405060708090a0b0c0d0e0f10 000000", 21},
		{"key: bytes left over", key, "0001 0001 61 0102030405060708090a0b0c0d0e0f10 00000000 00", 25},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.decode(unhex(t, tt.bytes))
			var bad *RecordError
			if !errors.As(err, &bad) || bad.Err == nil || bad.Record == "" || errors.Is(err, ErrUnknownRecord) {
				t.Fatalf("error %v, want *RecordError", err)
			}
			if bad.Offset != tt.offset {
				t.Errorf("error at byte %d, want %d: %v", bad.Offset, tt.offset, err)
			}
		})
	}
}

func TestUnknownRecordTypesCanBeTold(t *testing.T) {
	for _, b := range []string{"0003", "0000 0001 61", "ffff", "0003 0001 61 0102030405060708090a0b0c0d0e0f10 00000000"} {
		_, _, err := DecodeKey(unhex(t, b))
		var bad *RecordError
		if !errors.Is(err, ErrUnknownRecord) || !errors.As(err, &bad) {
			t.Errorf("key %s: error %v, want ErrUnknownRecord in a *RecordError", b, err)
		}
	}
}

func TestEveryCutOfARecordIsAnError(t *testing.T) {
	s := AppendPartitionState(nil, PartitionState{State: Failed, ErrorMessage: "gone", PreviousState: Mirroring, Episode: 3})
	e := AppendLastMirrorEpoch(nil, LastMirrorEpoch{Epoch: 3, Offset: 6, SourceClusterID: "abc", Episode: 2, SourceTopicID: goldenTopicID()})
	k := AppendKey(nil, PartitionStateType, Key{Mirror: "m", TopicID: goldenTopicID()})
	for i := range s {
		if _, err := DecodePartitionState(s[:i]); err == nil {
			t.Errorf("state cut to %d bytes is read", i)
		}
	}
	for i := range e {
		if got, err := DecodeLastMirrorEpoch(e[:i]); err == nil {
			t.Errorf("LME cut to %d bytes reads as %+v", i, got)
		}
	}
	for i := range k {
		if _, _, err := DecodeKey(k[:i]); err == nil {
			t.Errorf("key cut to %d bytes is read", i)
		}
	}
}

func TestDecodingAllocatesNoMoreThanTheInput(t *testing.T) {
	hostile := [][]byte{
		unhex(t, "0000 07 00000004 00000002 ffffffff0f 61"),
		unhex(t, "0000 02 00000004 00000002 00 0000 10 ffffffff0f"),
		unhex(t, "0001 7fff 61"),
	}
	const rounds = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		for _, b := range hostile {
			_, _ = DecodePartitionState(b)
			_, _ = DecodeLastMirrorEpoch(b)
			_, _, _ = DecodeKey(b)
		}
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / rounds; n > 1<<16 {
		t.Errorf("%d bytes allocated for three small records", n)
	}
}

func TestAppendKeyRefusesNamesWithoutAForm(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a name of 32,768 bytes was written")
		}
	}()
	AppendKey(nil, PartitionStateType, Key{Mirror: strings.Repeat("m", 32768)})
}
