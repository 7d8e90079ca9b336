package replicaserver

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/statemachine"
)

// whole is what goes over the wire.
func whole(e *fetchEncoder, correlation int32, code int16, session, leader int32, partitions []*partitionAnswer) []byte {
	return bytes.Join(e.encode(correlation, code, session, leader, partitions), nil)
}

// TestAnswerBytes has an answer byte by byte, as FetchResponse.json of Kafka says for the versions 13 to 18.
func TestAnswerBytes(t *testing.T) {
	id := func(b byte) (id statemachine.TopicID) { id[15] = b; return id }
	partitions := []*partitionAnswer{
		{id(0xa1), 3, FetchAnswer{LeaderEpoch: 4, HighWatermark: 0x102, LastStableOffset: -1, LogStart: 7, Batches: [][]byte{{0xba, 0xbb}, {0xbc}}, Size: 3}},
		{id(0xa1), 4, FetchAnswer{LeaderEpoch: 4, HighWatermark: 9, LastStableOffset: 8, Diverging: true, DivergingEpoch: 2, DivergingEnd: 0x1ff}},
		{id(0xa2), 0, FetchAnswer{Code: codeFencedLeaderEpoch, LeaderEpoch: 6, HighWatermark: -1, LastStableOffset: -1, LogStart: -1}},
	}
	want := strings.ReplaceAll(strings.ReplaceAll(`
		000000c1 | 00000007 | 00 | 00000000 | 0000 | 00003039 | 03
		000000000000000000000000000000a1 | 03
		00000003 | 0000 | 0000000000000102 | ffffffffffffffff | 0000000000000007 | 00 | ffffffff | 04 babbbc | 00
		00000004 | 0000 | 0000000000000009 | 0000000000000008 | 0000000000000000 | 00 | ffffffff | 01 | 01 00 0d 00000002 00000000000001ff 00
		00
		000000000000000000000000000000a2 | 02
		00000000 | 004a | ffffffffffffffff | ffffffffffffffff | ffffffffffffffff | 00 | ffffffff | 01 | 01 01 09 0000270f 00000006 00
		00
		00`, "|", ""), "\t", "")
	want = strings.Join(strings.Fields(want), "")
	if got := hex.EncodeToString(whole(&fetchEncoder{}, 7, 0, 12345, 9999, partitions)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := hex.EncodeToString(whole(&fetchEncoder{}, 1, codeInvalidSessionEpoch, 0, 9999, nil)); got != "00000011"+"00000001"+"00"+"00000000"+"0047"+"00000000"+"01"+"00" {
		t.Errorf("an answer without partitions: %s", got)
	}
}

// TestAnswersAreReadAsTheyWereMeant decodes with kmsg what was encoded.
func TestAnswersAreReadAsTheyWereMeant(t *testing.T) {
	var e fetchEncoder // one, as a connection has
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Int64Range(-1, 1<<62)
		var partitions []*partitionAnswer
		for range rapid.IntRange(0, 6).Draw(t, "partitions") {
			p := &partitionAnswer{topic: statemachine.TopicID{byte(rapid.IntRange(1, 3).Draw(t, "topic"))}, partition: rapid.Int32().Draw(t, "partition")}
			p.Code, p.LeaderEpoch = rapid.SampledFrom([]int16{0, codeNotLeader, codeFencedLeaderEpoch, codeUnknownLeaderEpoch}).Draw(t, "code"), rapid.Int32Range(-1, 1<<30).Draw(t, "leader epoch")
			p.HighWatermark, p.LastStableOffset, p.LogStart = offset.Draw(t, "high watermark"), offset.Draw(t, "last stable offset"), offset.Draw(t, "log start")
			if p.Diverging = rapid.Bool().Draw(t, "diverging"); p.Diverging {
				p.DivergingEpoch, p.DivergingEnd = rapid.Int32Range(0, 1<<30).Draw(t, "diverging epoch"), rapid.Int64Range(0, 1<<62).Draw(t, "diverging end")
			}
			for range rapid.IntRange(0, 3).Draw(t, "batches") {
				b := bytes.Repeat([]byte{byte(rapid.IntRange(0, 255).Draw(t, "filling"))}, rapid.SampledFrom([]int{1, 61, 127, 128, smallBatch, smallBatch + 1, 20_000}).Draw(t, "size"))
				p.Batches, p.Size = append(p.Batches, b), p.Size+len(b)
			}
			partitions = append(partitions, p)
		}
		code, session := rapid.Int16().Draw(t, "code"), rapid.Int32().Draw(t, "session")
		b := whole(&e, 77, code, session, 9999, partitions)
		for version := int16(13); version <= 18; version++ {
			frame, err := readFrame(bytes.NewReader(b))
			if err != nil || len(frame) != len(b)-4 || !bytes.Equal(frame[:5], []byte{0, 0, 0, 77, 0}) {
				t.Fatalf("%d of %d bytes, %v", len(frame), len(b), err)
			}
			var resp kmsg.FetchResponse
			resp.Version = version
			if err := resp.ReadFrom(frame[5:]); err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
			if resp.ErrorCode != code || resp.SessionID != session || resp.ThrottleMillis != 0 || len(resp.Brokers) != 0 {
				t.Fatalf("version %d: %+v", version, resp)
			}
			n := 0
			for i, rt := range resp.Topics {
				if i > 0 && rt.TopicID == resp.Topics[i-1].TopicID {
					t.Fatalf("version %d: topic %x is named twice in a row", version, rt.TopicID)
				}
				for _, got := range rt.Partitions {
					want := partitions[n]
					n++
					leader := kmsg.NewFetchResponseTopicPartitionCurrentLeader()
					if (want.Code == codeFencedLeaderEpoch || want.Code == codeUnknownLeaderEpoch) && want.LeaderEpoch >= 0 {
						leader.LeaderID, leader.LeaderEpoch = 9999, want.LeaderEpoch
					}
					diverging := kmsg.NewFetchResponseTopicPartitionDivergingEpoch()
					if want.Diverging {
						diverging.Epoch, diverging.EndOffset = want.DivergingEpoch, want.DivergingEnd
					}
					if rt.TopicID != want.topic || got.Partition != want.partition || got.ErrorCode != want.Code || got.HighWatermark != want.HighWatermark || got.LastStableOffset != want.LastStableOffset ||
						got.LogStartOffset != want.LogStart || !bytes.Equal(got.RecordBatches, bytes.Join(want.Batches, nil)) || got.PreferredReadReplica != -1 || len(got.AbortedTransactions) != 0 ||
						!reflect.DeepEqual(got.CurrentLeader, leader) || !reflect.DeepEqual(got.DivergingEpoch, diverging) || !reflect.DeepEqual(got.SnapshotID, kmsg.NewFetchResponseTopicPartitionSnapshotID()) {
						t.Fatalf("version %d: got %+v, want %+v", version, got, want)
					}
				}
			}
			if n != len(partitions) {
				t.Fatalf("version %d: %d partitions, want %d", version, n, len(partitions))
			}
		}
		e.forget()
	})
}

// TestLargeBatchesAreNotCopied looks whether the bytes that are written are those that the partition gave.
func TestLargeBatchesAreNotCopied(t *testing.T) {
	small, large := make([]byte, smallBatch), make([]byte, smallBatch+1)
	var e fetchEncoder
	pieces := e.encode(1, 0, 0, 9999, []*partitionAnswer{{FetchAnswer: FetchAnswer{Batches: [][]byte{small, large, large, small}, Size: 2 * (len(small) + len(large))}}})
	if len(pieces) != 4 || &pieces[1][0] != &large[0] || &pieces[2][0] != &large[0] {
		t.Errorf("%d pieces", len(pieces))
	}
	e.forget()
	for i := range e.cuts {
		if e.cuts[i].batch != nil {
			t.Errorf("batch %d is held after the answer", i)
		}
	}
}
