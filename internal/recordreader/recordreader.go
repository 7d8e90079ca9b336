// Package recordreader reads the records of batches, whatever their compression, in bounded memory. It is the one place in this module that decompresses.
package recordreader

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/batch"
)

// ErrSize: a batch's records would take more memory than they may.
var ErrSize = errors.New("the records of the batch take more memory than they may")

// Reader reads records. Safe for concurrent use.
type Reader struct {
	most  int // bytes that a batch's records may take
	codec kgo.Decompressor
}

// New returns a reader of batches whose records take at most that many bytes.
func New(most int) *Reader { return &Reader{most: most, codec: kgo.DefaultDecompressor()} }

// Timestamp is a record's time in milliseconds: the batch's where the broker sets it, otherwise relative to what, with a delete horizon, is no time of a record (KIP-534).
func Timestamp(h *batch.Header, r *batch.Record) int64 {
	if h.LogAppendTime() {
		return h.MaxTimestamp
	}
	return h.BaseTimestamp + r.TimestampDelta
}

// Records reads the records of one whole batch that passed batch.Check. They alias b where it is not compressed. Errors: ErrSize, and what is wrong with the records, a *batch.CorruptError.
func (r *Reader) Records(b []byte, h *batch.Header) ([]batch.Record, error) {
	codec := h.Codec()
	if h.RecordCount == 0 {
		return nil, nil
	}
	if codec == batch.CodecNone {
		if len(b) > r.most {
			return nil, ErrSize
		}
		return inOrder(b, h)
	}
	plain, err := r.Decompress(b[batch.HeaderSize:], codec)
	if errors.Is(err, ErrSize) {
		return nil, err
	}
	if err != nil {
		return nil, &batch.CorruptError{Offset: h.BaseOffset, Reason: "records cannot be decompressed: " + err.Error()}
	}
	// The same batch as its producer had it before it was compressed.
	same := *h
	same.Attributes &^= int16(codec)
	whole := append(make([]byte, batch.HeaderSize, batch.HeaderSize+len(plain)), plain...)
	same.Length = int32(len(whole) - (h.Size() - int(h.Length)))
	return inOrder(whole, &same)
}

// inOrder reads records and checks that their offsets rise within the batch.
func inOrder(b []byte, h *batch.Header) ([]batch.Record, error) {
	records, err := batch.ReadRecords(b, h)
	if err != nil {
		return nil, err
	}
	last := int32(-1)
	for i := range records {
		if records[i].OffsetDelta <= last || records[i].OffsetDelta > h.LastOffsetDelta {
			return nil, &batch.CorruptError{Offset: h.BaseOffset, Reason: fmt.Sprintf("record %d has offset delta %d after %d of %d", i, records[i].OffsetDelta, last, h.LastOffsetDelta)}
		}
		last = records[i].OffsetDelta
	}
	return records, nil
}

// Decompress is bounded before it begins: the client's decompressor bounds a batch at 2 GiB only.
func (r *Reader) Decompress(src []byte, codec int8) ([]byte, error) {
	var size int
	switch codec {
	case batch.CodecGzip:
		return r.gunzip(src)
	case batch.CodecSnappy:
		size = snappySize(src)
	case batch.CodecLZ4:
		size = lz4Size(src)
	case batch.CodecZstd:
		size = zstdSize(src)
	}
	if size > r.most {
		return nil, ErrSize
	}
	plain, err := r.codec.Decompress(src, kgo.CompressionCodecType(codec))
	if err == nil && len(plain) > r.most {
		return nil, ErrSize
	}
	return plain, err
}

func (r *Reader) gunzip(src []byte) ([]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(unzipped, int64(r.most)+1))
	if len(plain) > r.most {
		return nil, ErrSize
	}
	return plain, err
}

// snappySize is what snappy bytes say they hold, framed as Java's streams are or not. What cannot be read counts nothing: the decompressor refuses it.
func snappySize(src []byte) int {
	const framed, header = "\x82SNAPPY\x00", 16
	if len(src) <= header || string(src[:len(framed)]) != framed {
		n, used := binary.Uvarint(src)
		if used <= 0 || n > 1<<32 {
			return 0
		}
		return int(n)
	}
	size := 0
	for src = src[header:]; len(src) >= 4; {
		n := int(binary.BigEndian.Uint32(src))
		if src = src[4:]; n > len(src) {
			break
		}
		size += snappySize(src[:n])
		src = src[n:]
	}
	return size
}

// lz4Size bounds what an LZ4 frame holds: its blocks, each of the largest size that the frame allows.
func lz4Size(src []byte) int {
	if len(src) < 7 {
		return 0
	}
	flags, most := src[4], 1<<(8+2*(int(src[5])>>4&7))
	at := 7
	if flags&0x08 != 0 {
		at += 8 // content size
	}
	if flags&0x01 != 0 {
		at += 4 // dictionary
	}
	size := 0
	for at+4 <= len(src) {
		n := int(binary.LittleEndian.Uint32(src[at:]))
		stored := n&(1<<31) != 0
		n &^= 1 << 31
		if n == 0 {
			break
		}
		if stored {
			size += n
		} else {
			size += min(most, 255*n)
		}
		if at += 4 + n; flags&0x10 != 0 {
			at += 4 // block checksum
		}
	}
	return size
}

// zstdSize bounds what zstandard frames hold: the size that a frame declares, which the decompressor holds it to, or that of its blocks.
func zstdSize(src []byte) int {
	const magic, skippable, mostBlock = 0xFD2FB528, 0x184D2A50, 128 << 10
	size := 0
	for len(src) >= 8 {
		m := binary.LittleEndian.Uint32(src)
		if m&^0xF == skippable {
			n := int(binary.LittleEndian.Uint32(src[4:]))
			if n > len(src)-8 {
				return size
			}
			src = src[8+n:]
			continue
		}
		if m != magic {
			return size
		}
		descriptor := src[4]
		single := descriptor&0x20 != 0
		at := 5
		if !single {
			at++ // window
		}
		at += []int{0, 1, 2, 4}[descriptor&3]
		width := []int{0, 2, 4, 8}[descriptor>>6]
		if width == 0 && single {
			width = 1
		}
		if at+width > len(src) {
			return size
		}
		declared := uint64(0)
		for i := range width {
			declared |= uint64(src[at+i]) << (8 * i)
		}
		if width == 2 {
			declared += 256
		}
		at += width
		blocks := 0
		for last := false; !last; {
			if at+3 > len(src) {
				return size + blocks // the decompressor refuses the frame
			}
			head := uint32(src[at]) | uint32(src[at+1])<<8 | uint32(src[at+2])<<16
			n := int(head >> 3)
			last = head&1 != 0
			switch at += 3; head >> 1 & 3 {
			case 0: // stored
				blocks += n
				at += n
			case 1: // one byte, repeated
				blocks += n
				at++
			default:
				blocks += mostBlock
				at += n
			}
		}
		if width > 0 && declared < uint64(blocks) {
			blocks = int(declared)
		}
		size += blocks
		if descriptor&0x04 != 0 {
			at += 4 // checksum
		}
		if at > len(src) {
			return size
		}
		src = src[at:]
	}
	return size
}
