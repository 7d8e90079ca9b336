package statemachine

// StatePartition is the partition of __mirror_state that holds k: |javaHash(k)| mod n. OwnerPartition is the one of a mirror's name. n is the number of partitions, at least 1.
func StatePartition(k Key, n int32) int32 { return partitionOf(k.String(), n) }

// OwnerPartition: see StatePartition.
func OwnerPartition(mirror string, n int32) int32 { return partitionOf(mirror, n) }

// partitionOf takes the absolute value, not the sign bit's mask; the one number without an absolute value counts as 0 (Kafka: Utils.abs).
func partitionOf(s string, n int32) int32 {
	h := javaHash(s)
	switch {
	case h == -1<<31:
		h = 0
	case h < 0:
		h = -h
	}
	return h % n
}

// javaHash is Java's String.hashCode: a polynomial in 31 over UTF-16 units, modulo 2^32. Bytes that are not UTF-8 count as U+FFFD.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}
