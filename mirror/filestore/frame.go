package filestore

import (
	"encoding/binary"
	"errors"
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
func header(b []byte) (format int, generation uint64, ok bool) {
	if len(b) < headerSize || string(b[:len(magic)]) != magic || crc32.Checksum(b[:headerSize-4], castagnoli) != binary.BigEndian.Uint32(b[headerSize-4:]) {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint64(b[12:]), true
}

// entry is one thing that a frame says.
type entry struct {
	kind       byte
	writer     string // of a session, or the owner of a record
	session    int64
	key, value []byte
}

const (
	kindSession   byte = 1 // writer, session
	kindRecord    byte = 2 // key, writer, session, value
	kindTombstone byte = 3 // key
)

func (e entry) append(b []byte) []byte {
	b = append(b, e.kind)
	if e.kind != kindSession {
		b = appendBytes(b, e.key)
	}
	if e.kind != kindTombstone {
		b = binary.AppendUvarint(appendBytes(b, e.writer), uint64(e.session))
	}
	if e.kind == kindRecord {
		b = appendBytes(b, e.value)
	}
	return b
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendFrame adds the frame that stands at a place of a generation's file.
func appendFrame(b []byte, generation uint64, at, version int64, entries []entry) ([]byte, error) {
	head := len(b)
	b = append(append(b, make([]byte, frameHead)...), frameFormat)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(version)), uint64(len(entries)))
	for _, e := range entries {
		b = e.append(b)
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

var errPayload = errors.New("its checksum is right, but its content is no list of entries")

// decode reads a payload of the known format. What it returns points into the payload.
func decode(payload []byte) (version int64, entries []entry, err error) {
	b := payload[1:]
	number := func() (n int64) {
		u, size := binary.Uvarint(b)
		if size <= 0 || u > math.MaxInt64 {
			b, err = nil, errPayload
			return 0
		}
		b = b[size:]
		return int64(u)
	}
	data := func() (d []byte) {
		n := number()
		if n > int64(len(b)) {
			b, err = nil, errPayload
			return nil
		}
		d, b = b[:n:n], b[n:]
		return d
	}
	version = number()
	for n := number(); n > 0 && err == nil; n-- {
		var e entry
		if len(b) == 0 {
			return 0, nil, errPayload
		}
		e.kind, b = b[0], b[1:]
		if e.kind < kindSession || e.kind > kindTombstone {
			return 0, nil, errPayload
		}
		if e.kind != kindSession {
			e.key = data()
		}
		if e.kind != kindTombstone {
			e.writer, e.session = string(data()), number()
		}
		if e.kind == kindRecord {
			e.value = data()
		}
		entries = append(entries, e)
	}
	if err == nil && len(b) > 0 {
		err = errPayload
	}
	return version, entries, err
}
