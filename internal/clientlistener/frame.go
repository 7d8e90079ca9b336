package clientlistener

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// header is what every request begins with (Kafka: RequestHeader).
type header struct {
	key, version int16
	correlation  int32
}

// fixedHeader is how many bytes of a request are a header's without the client id and the tags.
const fixedHeader = 8

func readFixedHeader(b []byte) header {
	return header{int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:])), int32(binary.BigEndian.Uint32(b[4:]))}
}

// bodyOf skips the rest of a request's header: the client id, and tags.
func bodyOf(b []byte, flexible bool) (body []byte, ok bool) {
	if len(b) < fixedHeader+2 {
		return nil, false
	}
	client := int(int16(binary.BigEndian.Uint16(b[fixedHeader:])))
	b = b[fixedHeader+2:]
	if client > len(b) {
		return nil, false
	}
	if b = b[max(client, 0):]; flexible {
		return skipTags(b)
	}
	return b, true
}

// skipTags skips tagged fields (KIP-482).
func skipTags(b []byte) (rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)) {
		return nil, false
	}
	b = b[w:]
	for range n {
		_, w := binary.Uvarint(b)
		if w <= 0 {
			return nil, false
		}
		b = b[w:]
		size, w := binary.Uvarint(b)
		if w <= 0 || size > uint64(len(b)-w) {
			return nil, false
		}
		b = b[w+int(size):]
	}
	return b, true
}

// acksOf reads the acks of a Produce from its beginning: they come after the transactional id.
func acksOf(body []byte, flexible bool) (acks int16, ok bool) {
	size := -1
	if flexible {
		n, w := binary.Uvarint(body)
		if w <= 0 || n > 1<<16 {
			return 0, false
		}
		size, body = int(n)-1, body[w:]
	} else {
		if len(body) < 2 {
			return 0, false
		}
		size, body = int(int16(binary.BigEndian.Uint16(body))), body[2:]
	}
	size = max(size, 0)
	if len(body) < size+2 {
		return 0, false
	}
	return int16(binary.BigEndian.Uint16(body[size:])), true
}

var errCutOff = errors.New("it is cut off")

// message is what kmsg reads and writes.
type message interface {
	ReadFrom([]byte) error
	AppendTo([]byte) []byte
}

// decode reads a message's body. A decoder that panics on it costs its sender the connection, not everybody the process.
func decode(m message, body []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be read: %v", r)
		}
	}()
	return m.ReadFrom(body)
}

// withLength puts the length before what follows its place.
func withLength(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// encodeAnswer is a whole answer with its length and header.
func encodeAnswer(key int16, correlation int32, resp kmsg.Response) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4, 256), uint32(correlation))
	if key != keyApiVersions && resp.IsFlexible() { // KIP-511: the header of an answer to ApiVersions never has tags
		b = append(b, 0)
	}
	return withLength(resp.AppendTo(b))
}

// answerBody skips the rest of an answer's header after the correlation id.
func answerBody(key int16, flexible bool, b []byte) ([]byte, bool) {
	if key != keyApiVersions && flexible {
		return skipTags(b)
	}
	return b, true
}
