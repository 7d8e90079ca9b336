package verify

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
)

// Sum is a SHA-256. It is not a shorter or faster hash: digests are believed instead of the bytes, also of bytes that somebody chose who can write to the topic, so nobody may be able to
// make two batches with one digest. It costs 0.5 to 1 ns a byte on processors with instructions for it, less than reading does.
type Sum [sha256.Size]byte

// String is the sum in hexadecimal.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText is String.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *Sum) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(s) {
		return fmt.Errorf("verify: %d characters are no SHA-256", len(text))
	}
	copy(s[:], b)
	return nil
}

// Digest is what is known of the batches of [From, To) without having them: those whose last offset is at or above From and below To. So each batch belongs to one of any row of ranges that
// join, whatever their borders: one that reaches over a border belongs to the range behind it, also when it begins below the log's start. The cleaner keeps last offsets. So that no border stands
// inside a batch where that can be avoided, a digest ends in front of a batch that reaches over what was asked for, if it begins behind From.
type Digest struct {
	From, To   int64
	Sum        Sum    // over the topic's name, the partition, From, To, and each batch whole and in order: base offset, leader epoch and length too, which no checksum covers
	Batches    int64  // of the range
	Bytes      int64  // of these batches
	Records    int64  // that their headers count
	First      int64  // base offset of the first batch, mirror.Unknown if there is none
	Next       int64  // the offset behind the last batch, mirror.Unknown if there is none
	Gap        int64  // between First and Next: from here on every offset has a record, as far as headers tell; First if there is none that has not
	Over       bool   // a batch reaches over all of the range: it begins at From or below and ends at To or above
	Unreadable string // why the digest ends early: bytes that are no batch, or a batch that lies where it cannot. Sum then covers the rest of what was read
}

// DigestOf computes a digest from what a side reads, chunk bytes at a time [1 MiB]. It is for whoever offers digests near the data (Digester). With most above 0 it ends behind the batch with
// which the range has so many bytes; To then says where.
func DigestOf(ctx context.Context, s Side, from, to int64, chunk int, most int64) (Digest, error) {
	if chunk <= 0 {
		chunk = defaultChunk
	}
	return digestOf(ctx, &stream{side: s, chunk: chunk, at: from, charge: func(ctx context.Context, _ int) error { return ctx.Err() }}, to, most)
}

// digestOf goes as far as to, or ends behind the batch with which it has most bytes.
func digestOf(ctx context.Context, s *stream, to, most int64) (Digest, error) {
	d := Digest{From: s.at, To: to, First: mirror.Unknown, Next: mirror.Unknown, Gap: mirror.Unknown}
	sum := sha256.New()
	partition := s.side.Partition()
	var frame [24]byte
	binary.BigEndian.PutUint64(frame[:], uint64(len(partition.Topic)))
	binary.BigEndian.PutUint64(frame[8:], uint64(partition.Partition))
	binary.BigEndian.PutUint64(frame[16:], uint64(d.From))
	sum.Write(frame[:])
	sum.Write([]byte(partition.Topic))
	for {
		f, err := s.peek(ctx, to)
		if err != nil {
			return Digest{}, err
		}
		if f.bad != nil {
			d.Unreadable = f.bad.Error()
			sum.Write(f.b)
			break
		}
		if f.beyond && f.h.BaseOffset < to {
			if d.Over = f.h.BaseOffset <= d.From; !d.Over {
				d.To = f.h.BaseOffset
			}
		}
		if !f.here() {
			break
		}
		if most > 0 && d.Bytes >= most {
			d.To = s.at
			break
		}
		sum.Write(f.b)
		if d.Batches == 0 {
			d.First, d.Gap = f.h.BaseOffset, f.h.BaseOffset
		} else if f.h.BaseOffset > d.Next {
			d.Gap = f.h.BaseOffset
		}
		if !full(&f.h) {
			d.Gap = f.h.NextOffset()
		}
		d.Batches, d.Bytes, d.Records, d.Next = d.Batches+1, d.Bytes+int64(len(f.b)), d.Records+int64(f.h.RecordCount), f.h.NextOffset()
		s.pass(&f)
	}
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(d.To)))
	sum.Sum(d.Sum[:0])
	return d, nil
}

// full says that every offset of the batch has its record, as its producer wrote it.
func full(h *batch.Header) bool { return int64(h.RecordCount) == int64(h.LastOffsetDelta)+1 }

// sameAs says that both sides are proved to hold the same.
func (d *Digest) sameAs(other *Digest) bool {
	return d.Sum == other.Sum && d.Unreadable == "" && other.Unreadable == "" && d.Batches == other.Batches && d.Bytes == other.Bytes
}
