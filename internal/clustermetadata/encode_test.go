package clustermetadata

import (
	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/statemachine"
)

// body writes records' bodies, as a controller does.
type body []byte

func (b body) i8(v int8) body            { return kbin.AppendInt8(b, v) }
func (b body) i16(v int16) body          { return kbin.AppendInt16(b, v) }
func (b body) i32(v int32) body          { return kbin.AppendInt32(b, v) }
func (b body) i64(v int64) body          { return kbin.AppendInt64(b, v) }
func (b body) text(v string) body        { return kbin.AppendCompactString(b, v) }
func (b body) null() body                { return append(b, 0) }
func (b body) blob(v string) body        { return kbin.AppendCompactBytes(b, []byte(v)) }
func (b body) uuid(v ...[16]byte) body   { return append(b, v[0][:]...) }
func (b body) topic(n byte) body         { return b.uuid(topicID(n)) }
func (b body) count(n int) body          { return kbin.AppendCompactArrayLen(b, n) }
func (b body) varint(v uint32) body      { return kbin.AppendUvarint(b, v) }
func (b body) tag(n uint32, v body) body { return append(b.varint(n).varint(uint32(len(v))), v...) }

func (b body) nodes(ids ...int32) body {
	b = b.count(len(ids))
	for _, id := range ids {
		b = b.i32(id)
	}
	return b
}

func (b body) uuids(ids ...[16]byte) body {
	b = b.count(len(ids))
	for _, id := range ids {
		b = b.uuid(id)
	}
	return b
}

// tags writes the section: pairs made by tag.
func (b body) tags(all ...body) body {
	b = b.varint(uint32(len(all)))
	for _, t := range all {
		b = append(b, t...)
	}
	return b
}

func tag(n uint32, v body) body { return body(nil).tag(n, v) }

func topicID(n byte) statemachine.TopicID { return statemachine.TopicID{15: n} }
func dir(n byte) [16]byte                 { return [16]byte{0: n} }

// frame is a whole record.
func frame(kind, version uint32, b body) []byte {
	return append(body(nil).varint(1).varint(kind).varint(version), b...)
}

// pack makes one batch of records at an offset.
func pack(base int64, epoch int32, records ...[]byte) []byte {
	spec := batch.DataSpec{BaseOffset: base, LeaderEpoch: epoch, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	for i, r := range records {
		spec.Records = append(spec.Records, batch.Record{OffsetDelta: int32(i), Value: r})
	}
	return batch.AppendData(nil, spec)
}

// control makes a control batch at an offset, such as a leader change.
func control(base int64, epoch int32) []byte {
	return batch.AppendControl(nil, batch.ControlSpec{BaseOffset: base, LeaderEpoch: epoch, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
		Key: []byte{0, 0, 0, 2}, Value: []byte{0, 0}})
}

func newTopic(name string, n byte) []byte {
	return frame(topicRecord, 0, body(nil).text(name).topic(n).tags())
}

func newPartition(n byte, number int32, replicas ...int32) []byte {
	dirs := make([][16]byte, len(replicas))
	for i, r := range replicas {
		dirs[i] = dir(byte(r))
	}
	return frame(partitionRecord, 2, body(nil).i32(number).topic(n).nodes(replicas...).nodes(replicas...).nodes().nodes().i32(replicas[0]).i32(0).i32(0).uuids(dirs...).tags())
}

func change(n byte, number int32, tags ...body) []byte {
	return frame(partitionChange, 2, body(nil).i32(number).topic(n).tags(tags...))
}

func newBroker(id int32, epoch int64) []byte {
	return frame(registerBroker, 4, body(nil).i32(id).i8(0).uuid(dir(byte(id))).i64(epoch).
		count(1).text("INTERNAL").text("host").i16(9092).i16(0).tags().
		count(1).text("metadata.version").i16(1).i16(30).tags().
		text("rack").i8(1).i8(0).tags(tag(0, body(nil).uuids(dir(7)))))
}

func config(kind ResourceType, name, key, value string) []byte {
	return frame(configRecord, 0, body(nil).i8(int8(kind)).text(name).text(key).text(value).tags())
}

func noConfig(kind ResourceType, name, key string) []byte {
	return frame(configRecord, 0, body(nil).i8(int8(kind)).text(name).text(key).null().tags())
}
