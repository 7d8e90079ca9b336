package clustermetadata

import (
	"encoding/binary"
	"math"

	"github.com/clustermirror/clustermirror/statemachine"
)

// reader reads one record's body in Kafka's flexible encoding (KIP-482). After the first thing that cannot be it reads zeros, and why says what that was, without any
// byte of the record: there are passwords among them.
type reader struct {
	b   []byte
	why string
}

func (r *reader) fail(why string) {
	if r.why == "" {
		r.why = why
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail("it ends too early")
	}
	if r.why != "" {
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) int8() int8 {
	if b := r.take(1); len(b) == 1 {
		return int8(b[0])
	}
	return 0
}

func (r *reader) bool() bool { return r.int8() != 0 }

func (r *reader) uint16() uint16 {
	if b := r.take(2); len(b) == 2 {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) int16() int16 { return int16(r.uint16()) }

func (r *reader) int32() int32 {
	if b := r.take(4); len(b) == 4 {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); len(b) == 8 {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) uuid() (id [16]byte) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) topicID() statemachine.TopicID { return statemachine.TopicID(r.uuid()) }

// uvarint reads an unsigned variable-length integer of at most 31 bits: lengths, tags, types and versions.
func (r *reader) uvarint() int {
	if r.why != "" {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > math.MaxInt32 {
		r.fail("a variable-length number is wrong")
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// length reads how many elements of at least size bytes follow. null is Kafka's null.
func (r *reader) length(size int) (n int, null bool) {
	n = r.uvarint() - 1
	if n < 0 {
		return 0, true
	}
	if n > len(r.b)/size {
		r.fail("a length is longer than the record")
		return 0, false
	}
	return n, false
}

// count is length where null cannot be.
func (r *reader) count(size int) int {
	n, null := r.length(size)
	if null {
		r.fail("a field is null that cannot be")
	}
	return n
}

// text reads a string.
func (r *reader) text() string { return string(r.take(r.count(1))) }

// nullableText reads a string that may be null.
func (r *reader) nullableText() (s string, null bool) {
	n, null := r.length(1)
	return string(r.take(n)), null
}

// blob reads bytes and copies them.
func (r *reader) blob() []byte { return append([]byte(nil), r.take(r.count(1))...) }

// nodes reads node ids; nil if there are none.
func (r *reader) nodes() (ids []int32) {
	ids, null := r.nullableNodes()
	if null {
		r.fail("a field is null that cannot be")
	}
	return ids
}

// nullableNodes reads node ids that may be null.
func (r *reader) nullableNodes() (ids []int32, null bool) {
	n, null := r.length(4)
	if n == 0 {
		return nil, null
	}
	ids = make([]int32, n)
	for i := range ids {
		ids[i] = r.int32()
	}
	return ids, false
}

// uuids reads unique ids; nil if there are none.
func (r *reader) uuids() (ids [][16]byte) {
	ids, null := r.nullableUUIDs()
	if null {
		r.fail("a field is null that cannot be")
	}
	return ids
}

// nullableUUIDs reads unique ids that may be null.
func (r *reader) nullableUUIDs() (ids [][16]byte, null bool) {
	n, null := r.length(16)
	if n == 0 {
		return nil, null
	}
	ids = make([][16]byte, n)
	for i := range ids {
		ids[i] = r.uuid()
	}
	return ids, false
}

// tags reads a section of tagged fields. known reads the value of one that it knows, and leaves the others alone; nil knows none.
func (r *reader) tags(known func(tag int, value *reader) bool) {
	for n := r.uvarint(); n > 0 && r.why == ""; n-- {
		tag := r.uvarint()
		value := &reader{b: r.take(r.uvarint())}
		if known == nil || r.why != "" || !known(tag, value) {
			continue
		}
		if value.end(); value.why != "" {
			r.fail("in a tagged field: " + value.why)
		}
	}
}

// end says whether everything was right and nothing is left.
func (r *reader) end() bool {
	if len(r.b) > 0 {
		r.fail("there are bytes after its last field")
	}
	return r.why == ""
}
