package batch

import "encoding/binary"

// Kafka's varints are zigzag-encoded, least significant group first. A position of -1 says that no number could be read: the bytes end, or the number has too many of them.

// varint32 reads a number of at most five bytes at b[at:] and says where it ends.
func varint32(b []byte, at int) (int32, int) {
	if uint(at) < uint(len(b)) {
		if u := uint32(b[at]); u < 0x80 {
			return int32(u>>1) ^ -int32(u&1), at + 1
		}
	}
	return longVarint32(b, at)
}

func longVarint32(b []byte, at int) (int32, int) {
	var u uint32
	for shift := 0; shift < 35 && at < len(b); shift += 7 {
		c := b[at]
		at++
		if shift == 28 && c > 0x0f {
			break // more than 32 bits
		}
		u |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return int32(u>>1) ^ -int32(u&1), at
		}
	}
	return 0, -1
}

// skipVarint64 says where the number at b[at:] ends: at most ten bytes.
func skipVarint64(b []byte, at int) int {
	for end := at + binary.MaxVarintLen64; at < len(b) && at < end; at++ {
		if b[at] < 0x80 {
			return at + 1
		}
	}
	return -1
}

// varint64 reads a number of at most ten bytes.
func varint64(b []byte, at int) (int64, int) {
	if at > len(b) {
		return 0, -1
	}
	v, n := binary.Varint(b[at:])
	if n <= 0 {
		return 0, -1
	}
	return v, at + n
}

// varintSize is how many bytes a number takes.
func varintSize(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
