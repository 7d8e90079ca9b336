package replicaserver

import (
	"encoding/binary"
	"net"
	"slices"

	"github.com/clustermirror/clustermirror/statemachine"
)

// smallBatch is the size up to which a batch is copied beside the fields instead of being a piece of its own: below it a copy is cheaper than one more entry of writev.
const smallBatch = 512

// keptHead is the largest buffer that an encoder keeps for its next answer: that of an answer full of small batches.
const keptHead = 4 << 20

// partitionAnswer is one partition in the answer to a Fetch.
type partitionAnswer struct {
	topic     statemachine.TopicID
	partition int32
	FetchAnswer
}

// fetchEncoder writes the answer to a Fetch of version 13 to 18, which all look alike: fields by hand, batches as they are.
// Not safe for concurrent use. What it returns is good until its next use.
type fetchEncoder struct {
	head   []byte // all fields, and small batches
	cuts   []cut
	pieces net.Buffers
}

// cut is a batch that goes between the bytes of head before at and those from at on.
type cut struct {
	at    int
	batch []byte
}

// encode returns the answer with its length as pieces to be written in order. leader is this process's id. The partitions of a topic that follow each other share its id, as in Kafka.
func (e *fetchEncoder) encode(correlation int32, code int16, session, leader int32, partitions []*partitionAnswer) net.Buffers {
	size := 64
	for _, p := range partitions {
		size += 112 // at most, with its topic
		for _, batch := range p.Batches {
			if len(batch) <= smallBatch {
				size += len(batch)
			}
		}
	}
	b, batches := append(slices.Grow(e.head[:0], size), 0, 0, 0, 0), 0
	e.cuts = e.cuts[:0]
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0)          // tags of the header
	b = append(b, 0, 0, 0, 0) // throttle time
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	b = binary.BigEndian.AppendUint32(b, uint32(session))
	topics := 0
	for i, p := range partitions {
		if i == 0 || p.topic != partitions[i-1].topic {
			topics++
		}
	}
	b = binary.AppendUvarint(b, uint64(topics)+1)
	for i := 0; i < len(partitions); {
		n := 1
		for i+n < len(partitions) && partitions[i+n].topic == partitions[i].topic {
			n++
		}
		b = append(b, partitions[i].topic[:]...)
		b = binary.AppendUvarint(b, uint64(n)+1)
		for _, p := range partitions[i : i+n] {
			b = binary.BigEndian.AppendUint32(b, uint32(p.partition))
			b = binary.BigEndian.AppendUint16(b, uint16(p.Code))
			b = binary.BigEndian.AppendUint64(b, uint64(p.HighWatermark))
			b = binary.BigEndian.AppendUint64(b, uint64(p.LastStableOffset))
			b = binary.BigEndian.AppendUint64(b, uint64(p.LogStart))
			b = append(b, 0)                      // no list of aborted transactions: followers copy markers
			b = append(b, 0xff, 0xff, 0xff, 0xff) // no preferred replica
			b = binary.AppendUvarint(b, uint64(p.Size)+1)
			for _, batch := range p.Batches {
				if len(batch) <= smallBatch {
					b = append(b, batch...)
				} else {
					e.cuts = append(e.cuts, cut{len(b), batch})
					batches += len(batch)
				}
			}
			b = appendPartitionTags(b, leader, &p.FetchAnswer)
		}
		b = append(b, 0) // tags of the topic
		i += n
	}
	b = append(b, 0) // tags of the answer
	binary.BigEndian.PutUint32(b, uint32(len(b)-4+batches))
	e.head = b
	e.pieces = e.pieces[:0]
	from := 0
	for _, c := range e.cuts {
		if c.at > from {
			e.pieces = append(e.pieces, b[from:c.at])
		}
		e.pieces, from = append(e.pieces, c.batch), c.at
	}
	return append(e.pieces, b[from:])
}

// forget lets the batches of the last answer go.
func (e *fetchEncoder) forget() {
	clear(e.cuts)
	clear(e.pieces[:cap(e.pieces)])
	if cap(e.head) > keptHead {
		e.head = nil
	}
}

// appendPartitionTags appends a partition's tagged fields: the diverging epoch (KIP-595), and with an error about leader epochs the leader that is known here (KIP-951).
func appendPartitionTags(b []byte, leader int32, a *FetchAnswer) []byte {
	tellLeader := (a.Code == codeFencedLeaderEpoch || a.Code == codeUnknownLeaderEpoch) && a.LeaderEpoch >= 0
	switch {
	case a.Diverging && tellLeader:
		b = append(b, 2)
	case a.Diverging || tellLeader:
		b = append(b, 1)
	default:
		return append(b, 0)
	}
	if a.Diverging {
		b = append(b, 0, 4+8+1)
		b = binary.BigEndian.AppendUint32(b, uint32(a.DivergingEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(a.DivergingEnd))
		b = append(b, 0)
	}
	if tellLeader {
		b = append(b, 1, 4+4+1)
		b = binary.BigEndian.AppendUint32(b, uint32(leader))
		b = binary.BigEndian.AppendUint32(b, uint32(a.LeaderEpoch))
		b = append(b, 0)
	}
	return b
}
