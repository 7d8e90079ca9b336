package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/fuzzbound"
	"github.com/clustermirror/clustermirror/internal/recordreader"
)

// The bound that is known before anything is decompressed is never below what comes out, and not more above it than a block.
func TestTheSizeOfCompressedRecordsIsBoundedBeforehand(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for _, plain := range [][]byte{[]byte("x"), bytes.Repeat([]byte("abc"), 10), noise[:1000], noise, make([]byte, 100), make([]byte, 3_000_000), append(make([]byte, 500_000), noise...)} {
		for codec := range codecs {
			small := compress(codec, plain)
			for _, most := range []int{len(plain) - 1, len(plain) + 4<<20} {
				got, err := newDecoder(most).Decompress(small, codec)
				switch {
				case most < len(plain) && !errors.Is(err, recordreader.ErrSize):
					t.Errorf("codec %d, %d bytes with %d allowed: %d bytes, %v", codec, len(plain), most, len(got), err)
				case most >= len(plain) && (err != nil || !bytes.Equal(got, plain)):
					t.Errorf("codec %d, %d bytes with %d allowed: %d bytes, %v", codec, len(plain), most, len(got), err)
				}
			}
		}
	}
}

func TestABombIsRefusedBeforeItTakesMemory(t *testing.T) {
	for codec := range codecs {
		bomb := compress(codec, make([]byte, 64<<20))
		d := newDecoder(1 << 20)
		fuzzbound.Run(t, 128<<10, func() { // 9 MiB are allowed
			if _, err := d.Decompress(bomb, codec); !errors.Is(err, recordreader.ErrSize) {
				t.Errorf("codec %d: %v", codec, err)
			}
		})
	}
}

// Java's clients frame snappy in blocks.
func TestFramedSnappyIsRead(t *testing.T) {
	plain := bytes.Repeat([]byte("records "), 100)
	framed := append([]byte("\x82SNAPPY\x00"), 0, 0, 0, 1, 0, 0, 0, 1)
	for _, part := range [][]byte{plain[:300], plain[300:]} {
		block := compress(batch.CodecSnappy, part)
		if bytes.HasPrefix(block, []byte("\x82SNAPPY")) {
			block = block[20:]
		}
		framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(block))), block...)
	}
	if got, err := newDecoder(1000).Decompress(framed, batch.CodecSnappy); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := newDecoder(700).Decompress(framed, batch.CodecSnappy); !errors.Is(err, recordreader.ErrSize) {
		t.Errorf("%v", err)
	}
}

func TestRecordsOfAnyCodecAreRead(t *testing.T) {
	for codec := range int8(5) {
		c := write(7, "a", "b=", "", "d").compressed(codec)
		c.records[3].headers = []batch.RecordHeader{{Key: "h", Value: nil}, {Key: "", Value: []byte("x")}}
		b := c.bytes()
		h, _, err := batch.Next(b)
		if err != nil || batch.Check(b, &h) != nil {
			t.Fatal(err)
		}
		records, err := newDecoder(1<<20).Records(b, &h)
		if err != nil || len(records) != 4 {
			t.Fatalf("codec %d: %v, %v", codec, records, err)
		}
		for i, want := range c.records {
			got := records[i]
			if h.BaseOffset+int64(got.OffsetDelta) != want.offset || recordreader.Timestamp(&h, &got) != want.time || !sameBytes(got.Key, want.key) || !sameBytes(got.Value, want.value) || len(got.Headers) != len(want.headers) {
				t.Errorf("codec %d, record %d: %+v", codec, i, got)
			}
		}
	}
}
