package filestore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

const (
	magic      = "CMKEYLOG"
	fileFormat = 1 // of the header and the frames' heads
	headerSize = 24

	frameFormat = 1 // of a payload
	frameHead   = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHeader(b []byte, generation uint64) []byte {
	at := len(b)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, fileFormat)
	b = binary.BigEndian.AppendUint64(b, generation)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// header returns the format and generation that a whole header names; false: it is none.
func header(b []byte) (format uint32, generation uint64, ok bool) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic || crc32.Checksum(b[:headerSize-4], castagnoli) != binary.BigEndian.Uint32(b[headerSize-4:]) {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint64(b[12:]), true
}

// entry is one thing that a frame says. All kinds have all fields; what a kind has no use for is empty.
type entry struct {
	kind       byte
	session    int64
	writer     string // of a session, or the owner of a record
	key, value []byte
}

const (
	kindSession   byte = 1 // writer, session
	kindRecord    byte = 2 // key, writer, session, value
	kindTombstone byte = 3 // key
)

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendFrame adds the frame that stands at a place of a generation's file.
func appendFrame(b []byte, generation uint64, at, version int64, entries []entry) ([]byte, error) {
	head := len(b)
	b = append(append(b, make([]byte, frameHead)...), frameFormat)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(version)), uint64(len(entries)))
	for _, e := range entries {
		b = binary.AppendUvarint(append(b, e.kind), uint64(e.session))
		b = appendBytes(appendBytes(appendBytes(b, e.writer), e.key), e.value)
	}
	payload := b[head+frameHead:]
	if len(payload) > math.MaxInt32 {
		return nil, fmt.Errorf("filestore: a change of %d bytes is too large; make it in several steps", len(payload))
	}
	binary.BigEndian.PutUint32(b[head:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[head+4:], frameSum(generation, at, payload))
	return b, nil
}

func frameSum(generation uint64, at int64, payload []byte) uint32 {
	var place [20]byte
	binary.BigEndian.PutUint64(place[:], generation)
	binary.BigEndian.PutUint64(place[8:], uint64(at))
	binary.BigEndian.PutUint32(place[16:], uint32(len(payload)))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, payload)
}

// cutFrame returns the payload of the frame that b begins with; false: no whole frame is there.
func cutFrame(b []byte, generation uint64, at int64) (payload []byte, ok bool) {
	if len(b) < frameHead {
		return nil, false
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n == 0 || n > int64(len(b)-frameHead) {
		return nil, false
	}
	payload = b[frameHead : frameHead+n]
	return payload, frameSum(generation, at, payload) == binary.BigEndian.Uint32(b[4:])
}

// frameBehind looks for a whole frame that begins within b, after its first byte.
func frameBehind(b []byte, generation uint64, at int64) (where int64, ok bool) {
	for i := 1; i < len(b); i++ {
		if _, ok := cutFrame(b[i:], generation, at+int64(i)); ok {
			return at + int64(i), true
		}
	}
	return 0, false
}

// decode reads a payload of the known format. What it returns points into the payload. ok is false if it is no payload, though its checksum is right.
func decode(payload []byte) (version int64, entries []entry, ok bool) {
	b, ok := payload[1:], payload[0] == frameFormat
	number := func() int64 {
		u, size := binary.Uvarint(b)
		if size <= 0 || u > math.MaxInt64 {
			b, ok = nil, false
			return 0
		}
		b = b[size:]
		return int64(u)
	}
	data := func() (d []byte) {
		n := number()
		if n > int64(len(b)) {
			b, ok = nil, false
			return nil
		}
		d, b = b[:n:n], b[n:]
		return d
	}
	version = number()
	for n := number(); n > 0 && ok; n-- {
		var e entry
		if len(b) == 0 || b[0] < kindSession || b[0] > kindTombstone {
			return 0, nil, false
		}
		e.kind, b = b[0], b[1:]
		e.session, e.writer, e.key, e.value = number(), string(data()), data(), data()
		entries = append(entries, e)
	}
	return version, entries, ok && len(b) == 0
}
