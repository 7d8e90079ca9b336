package kafkastore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/clustermirror/clustermirror/internal/topicreader"
)

// sessionType is the record type of this package's own records in __mirror_control.
const sessionType = 64

// sessionRecord is who writes as one writer.
type sessionRecord struct {
	number int64
	token  string // of this opening: two processes never have the same
}

const (
	sessionVersion = 1
	tokenBytes     = 16

	// mostSessions bounds numbers that somebody else may have written, so that there is always one behind them.
	mostSessions = 1 << 53
)

func sessionKey(writer string) []byte {
	b := binary.BigEndian.AppendUint16(nil, sessionType)
	b = binary.BigEndian.AppendUint16(b, uint16(len(writer)))
	return append(b, writer...)
}

// sessionWriter is whose record a key of this type is; false: nobody's.
func sessionWriter(key []byte) (writer string, ok bool) {
	const before = 4
	if len(key) <= before || len(key)-before != int(binary.BigEndian.Uint16(key[2:])) {
		return "", false
	}
	return string(key[before:]), true
}

func (s sessionRecord) value() []byte {
	token, err := hex.DecodeString(s.token)
	if err != nil || len(token) != tokenBytes {
		panic("kafkastore: a session's token is 32 hexadecimal digits")
	}
	return append(binary.BigEndian.AppendUint64([]byte{sessionVersion}, uint64(s.number)), token...)
}

func decodeSession(value []byte) (s sessionRecord, ok bool) {
	if len(value) != 1+8+tokenBytes || value[0] != sessionVersion {
		return s, false
	}
	s = sessionRecord{number: int64(binary.BigEndian.Uint64(value[1:])), token: hex.EncodeToString(value[9:])}
	return s, s.number > 0 && s.number <= 2*mostSessions
}

// SessionRecordError: the record that says who writes as one writer cannot be read. It stands in the way of that writer's sessions only.
type SessionRecordError struct {
	Writer string
	Topic  string
	Offset int64 // in partition 0
}

func (e *SessionRecordError) Error() string {
	return fmt.Sprintf("kafkastore: the session record of writer %q at offset %d of %s cannot be read: a newer version of this program wrote it, or somebody else did; "+
		"run at least that version, or open the writer again, which writes over it", e.Writer, e.Offset, e.Topic)
}

// sessionRecords are the newest records of all writers. The one that comes last counts, whatever its number: openings of one writer come one after the other. A tombstone ends
// a session, because nobody can tell what it took out.
type sessionRecords struct {
	newest     map[string]sessionRecord
	unreadable map[string]*SessionRecordError
	last       map[string]int64 // the highest number that was read
}

func newSessionRecords() sessionRecords {
	return sessionRecords{newest: make(map[string]sessionRecord), unreadable: make(map[string]*SessionRecordError), last: make(map[string]int64)}
}

// take reads a record of the control topic's only partition that has the sessions' type. One without a writer says nothing.
func (r sessionRecords) take(k topicreader.Record) {
	writer, ok := sessionWriter(k.Key)
	if !ok {
		return
	}
	delete(r.newest, writer)
	delete(r.unreadable, writer)
	if k.Value == nil {
		return
	}
	s, ok := decodeSession(k.Value)
	if !ok {
		r.unreadable[writer] = &SessionRecordError{Writer: writer, Topic: k.Topic, Offset: k.Offset}
		return
	}
	r.newest[writer] = s
	r.last[writer] = max(r.last[writer], s.number)
}

// of is a writer's newest session, zero if it has none.
func (r sessionRecords) of(writer string) (sessionRecord, error) {
	if err := r.unreadable[writer]; err != nil {
		return sessionRecord{}, err
	}
	return r.newest[writer], nil
}

// nextSession is a number above all that a writer had, as far as anything shows: where its record was lost, what it wrote still does.
func (r *records) nextSession(writer string) int64 {
	last := r.sessions.last[writer]
	for _, v := range r.keys {
		if v.Writer == writer {
			last = max(last, v.Session)
		}
	}
	return last + 1
}
