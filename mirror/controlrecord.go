package mirror

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermirror/clustermirror/statemachine"
)

// ErrNewerRecord: a newer version of this program wrote a control record. It is not skipped, because what it says may forbid what this version is about to do.
var ErrNewerRecord = errors.New("a newer version wrote it; run at least that version")

// ControlRecordError is a control record that cannot be read, or a value that cannot be stored as one.
type ControlRecordError struct {
	Record string // which one: `stop of topic "orders" (record type 71)`
	Err    error  // what is wrong; ErrNewerRecord is found with errors.Is
}

func (e *ControlRecordError) Error() string {
	return "mirror: control record " + e.Record + ": " + e.Err.Error()
}

func (e *ControlRecordError) Unwrap() error { return e.Err }

// The record types of a Control: the int16 that a key begins with. Lower ones belong to state records and to the storages themselves, 64 among them: their sessions.
const (
	mirrorRecord          int16 = 65 // mirror
	topicRecord           int16 = 66 // topic
	consentsRecord        int16 = 67 // topic
	deletedRecord         int16 = 68 // mirror
	provenanceRecord      int16 = 69 // mirror, kind, name
	originRecord          int16 = 70 // mirror, topic
	stopRecord            int16 = 71 // topic: stopped, if the record is there
	pauseRecord           int16 = 72 // topic: paused, if the record is there and no stop is
	recoverRecord         int16 = 73 // topic
	historyRecord         int16 = 74 // number
	partitionReportRecord int16 = 75 // mirror, topic, partition, owner
	nodeReportRecord      int16 = 76 // owner, mirror
	questionRecord        int16 = 77 // mirror: what is asked of the process that runs it
	answerRecord          int16 = 78 // owner, mirror
	promotionRecord       int16 = 79 // mirror: a promotion that is under way
	failbackRecord        int16 = 80 // mirror, plan: a failback that is under way

	firstControlRecord, lastControlRecord = mirrorRecord, failbackRecord
	sessionRecord                         = firstControlRecord - 1
)

// controlRecordNames say what a record is about; each %q is a name of the key.
var controlRecordNames = map[int16]string{
	mirrorRecord:          "mirror %q",
	topicRecord:           "topic %q",
	consentsRecord:        "consents of topic %q",
	deletedRecord:         "deleted mirror %q",
	provenanceRecord:      "provenance of mirror %q, %s %q",
	originRecord:          "origin in mirror %q of topic %q",
	stopRecord:            "stop of topic %q",
	pauseRecord:           "pause of topic %q",
	recoverRecord:         "recover of topic %q",
	historyRecord:         "history",
	partitionReportRecord: "report in mirror %q of topic %q by %q",
	nodeReportRecord:      "report of %q on mirror %q",
	questionRecord:        "question for a failback plan of mirror %q",
	answerRecord:          "answer of %q on a failback of mirror %q",
	promotionRecord:       "promotion of mirror %q",
	failbackRecord:        "failback of mirror %q, plan %q",
}

// ControlTopic names the internal Kafka topic that keeps records of this type: their rights differ (who may pause, who may stop, who may do everything), and Kafka gives rights
// by topic. "" is a type that is neither a Control's nor a storage's own session record.
func ControlTopic(recordType int16) string {
	switch recordType {
	case stopRecord:
		return "__mirror_stop"
	case pauseRecord, recoverRecord:
		return "__mirror_pause"
	case historyRecord:
		return "__mirror_history"
	case partitionReportRecord, nodeReportRecord, answerRecord:
		return "__mirror_status"
	}
	if recordType >= sessionRecord && recordType <= lastControlRecord {
		return "__mirror_control"
	}
	return ""
}

// controlKey is a parsed key. Fields that its type does not have are zero.
type controlKey struct {
	recordType int16
	names      []string
	partition  int32 // of partitionReportRecord
	number     int64 // of historyRecord
}

// controlNames is how many names a key of each type has.
var controlNames = map[int16]int{
	mirrorRecord: 1, topicRecord: 1, consentsRecord: 1, deletedRecord: 1, provenanceRecord: 3, originRecord: 2, stopRecord: 1, pauseRecord: 1, recoverRecord: 1,
	historyRecord: 0, partitionReportRecord: 3, nodeReportRecord: 2, questionRecord: 1, answerRecord: 2, promotionRecord: 1,
	failbackRecord: 2,
}

// String names the record as a person would.
func (k controlKey) String() string {
	names := make([]any, len(k.names))
	for i := range k.names {
		names[i] = k.names[i]
	}
	s := fmt.Sprintf(controlRecordNames[k.recordType], names...)
	switch k.recordType {
	case partitionReportRecord:
		s += fmt.Sprintf(", partition %d", k.partition)
	case historyRecord:
		s += fmt.Sprintf(" entry %d", k.number)
	}
	return fmt.Sprintf("%s (record type %d)", s, k.recordType)
}

// appendControlType begins a key, or is the prefix of all keys of a type.
func appendControlType(b []byte, recordType int16) []byte {
	return binary.BigEndian.AppendUint16(b, uint16(recordType))
}

// controlType is the record type that a key begins with. The key has one.
func controlType(key []byte) int16 { return int16(binary.BigEndian.Uint16(key)) }

// appendControlName keeps names apart whatever they hold: length, then bytes (F-70).
func appendControlName(b []byte, name string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(name))), name...)
}

func (k controlKey) encode() ([]byte, error) {
	b := appendControlType(nil, k.recordType)
	for i, name := range k.names {
		if len(name) > math.MaxInt16 || !utf8.ValidString(name) {
			return nil, &ControlRecordError{k.String(), errors.New("a name is not UTF-8, or longer than 32,767 bytes")}
		}
		b = appendControlName(b, name)
		if k.recordType == partitionReportRecord && i == 1 {
			b = binary.BigEndian.AppendUint32(b, uint32(k.partition))
		}
	}
	if k.recordType == historyRecord {
		b = binary.BigEndian.AppendUint64(b, uint64(k.number))
	}
	return b, nil
}

// decodeControlKey reads a key of a Control. ok is false for one that is not a Control's: lower types belong to others. Errors: *ControlRecordError.
func decodeControlKey(b []byte) (k controlKey, ok bool, err error) {
	unreadable := func(what string) (controlKey, bool, error) {
		return controlKey{}, false, &ControlRecordError{fmt.Sprintf("with the key %x", b[:min(len(b), 64)]), errors.New(what)}
	}
	if len(b) < 2 {
		return unreadable("the key is shorter than a record type; nobody of this program writes such a key")
	}
	k.recordType = controlType(b)
	if k.recordType >= 0 && k.recordType < firstControlRecord {
		return controlKey{}, false, nil
	}
	names, known := controlNames[k.recordType]
	if !known {
		return controlKey{}, false, &ControlRecordError{fmt.Sprintf("of type %d", k.recordType), ErrNewerRecord}
	}
	rest := b[2:]
	for i := range names {
		if len(rest) < 2 || int(int16(binary.BigEndian.Uint16(rest))) < 0 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
			return unreadable("the key ends inside a name")
		}
		length := int(binary.BigEndian.Uint16(rest))
		name := rest[2 : 2+length]
		if !utf8.Valid(name) {
			return unreadable("a name in the key is not UTF-8")
		}
		k.names, rest = append(k.names, string(name)), rest[2+length:]
		if k.recordType == partitionReportRecord && i == 1 {
			if len(rest) < 4 {
				return unreadable("the key ends inside the partition")
			}
			k.partition, rest = int32(binary.BigEndian.Uint32(rest)), rest[4:]
		}
	}
	if k.recordType == historyRecord {
		if len(rest) < 8 {
			return unreadable("the key ends inside the number")
		}
		k.number, rest = int64(binary.BigEndian.Uint64(rest)), rest[8:]
	}
	if len(rest) > 0 {
		return unreadable("bytes follow behind the key's last field")
	}
	return k, true, nil
}

// controlVersion is the version of every value that this program writes.
const controlVersion = 1

// The values. Version comes first; what is empty is left out.
type (
	mirrorValue struct {
		Version         int       `json:"version"`
		Settings        Settings  `json:"settings,omitempty"`
		SourceClusterID string    `json:"sourceClusterId,omitempty"`
		Created         time.Time `json:"created,omitzero"`
	}
	topicValue struct {
		Version     int    `json:"version"`
		Mirror      string `json:"mirror"`
		AdoptedFrom string `json:"adoptedFrom,omitempty"`
	}
	consentsValue struct {
		Version  int            `json:"version"`
		Consents []consentValue `json:"consents"`
	}
	consentValue struct {
		TopicID   topicIDText `json:"topicId"`
		Partition int32       `json:"partition"`
		From      int64       `json:"from"`
		To        int64       `json:"to"`
		Episode   int32       `json:"episode"`
	}
	deletedValue struct {
		Version int       `json:"version"`
		Purge   bool      `json:"purge,omitempty"`
		At      time.Time `json:"at,omitzero"`
	}
	provenanceValue struct {
		Version int    `json:"version"`
		Value   string `json:"value,omitempty"`
	}
	originValue struct {
		Version         int      `json:"version"`
		SourceClusterID string   `json:"sourceClusterId"`
		Upstream        []string `json:"upstream,omitempty"`
	}
	stopValue struct { // that it is there says that a stop is wanted
		Version    int       `json:"version"`
		DrainUntil time.Time `json:"drainUntil,omitzero"`
		Cut        *cutValue `json:"cut,omitempty"`
	}
	cutValue struct {
		Asked     time.Time `json:"asked"`
		MaxGiveUp int64     `json:"maxGiveUp,omitempty"`
		Readers   bool      `json:"readers,omitempty"`
		ClockSkew int64     `json:"clockSkewNs,omitempty"` // nanoseconds
		Floors    []int64   `json:"floors,omitempty"`
	}
	presentValue struct { // of a pause: that it is there is all
		Version int `json:"version"`
	}
	recoverValue struct {
		Version int   `json:"version"`
		Count   int64 `json:"count"`
	}
	historyValue struct {
		Version int       `json:"version"`
		Time    time.Time `json:"time,omitzero"`
		Verb    string    `json:"verb,omitempty"`
		Mirror  string    `json:"mirror,omitempty"`
		Topics  []string  `json:"topics,omitempty"`
		Host    string    `json:"host,omitempty"`
		User    string    `json:"user,omitempty"`
		Client  string    `json:"client,omitempty"`
		Reason  string    `json:"reason,omitempty"`
		Plan    string    `json:"plan,omitempty"`
		Detail  string    `json:"detail,omitempty"`
	}
)

// topicIDText is a topic id as Kafka prints it.
type topicIDText TopicID

func (t topicIDText) MarshalText() ([]byte, error) { return []byte(TopicID(t).String()), nil }

func (t *topicIDText) UnmarshalText(b []byte) error {
	if len(b) != base64.RawURLEncoding.EncodedLen(len(t)) {
		return fmt.Errorf("topic id %.40q has %d characters, not %d", b, len(b), base64.RawURLEncoding.EncodedLen(len(t)))
	}
	_, err := base64.RawURLEncoding.Decode(t[:], b)
	return err
}

func encodeControlValue(k controlKey, value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // for whoever reads the topic
	if err := e.Encode(value); err != nil {
		return nil, &ControlRecordError{k.String(), fmt.Errorf("cannot be stored: %w", err)}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeControlValue reads a value strictly: another version, or a field that this version does not know, is what a newer one wrote.
func decodeControlValue(k controlKey, b []byte, value any) error {
	fail := func(format string, args ...any) error {
		return &ControlRecordError{k.String(), fmt.Errorf(format, args...)}
	}
	if !utf8.Valid(b) {
		return fail("the value is not UTF-8")
	}
	var v struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return fail("the value is no JSON object with a version: %w", err)
	}
	switch {
	case v.Version == nil || *v.Version < controlVersion:
		return fail("the value names no version that ever was; nobody of this program wrote it")
	case *v.Version > controlVersion:
		return fail("its version is %d, the newest known one %d: %w", *v.Version, controlVersion, ErrNewerRecord)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		if strings.Contains(err.Error(), "unknown field") {
			return fail("%w: %w", err, ErrNewerRecord)
		}
		return fail("%w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fail("something follows behind the value")
	}
	return nil
}

// DecodeTopicOrigin reads the record of where a mirrored topic comes from, as a Control of another cluster stored it: for whoever asks a source what it mirrors itself (spec
// decision 14). ok is false for a key of another kind. value nil, a tombstone, gives an origin without SourceClusterID: it was taken out. Errors: *ControlRecordError.
func DecodeTopicOrigin(key, value []byte) (o TopicOrigin, ok bool, err error) {
	if len(key) < 2 || controlType(key) != originRecord {
		return TopicOrigin{}, false, nil
	}
	k, _, err := decodeControlKey(key)
	if err != nil {
		return TopicOrigin{}, false, err
	}
	o = TopicOrigin{Mirror: k.names[0], Topic: k.names[1]}
	if value == nil {
		return o, true, nil
	}
	var v originValue
	if err := decodeControlValue(k, value, &v); err != nil {
		return TopicOrigin{}, false, err
	}
	o.SourceClusterID, o.Upstream = v.SourceClusterID, v.Upstream
	return o, true, nil
}

// value is the cut as a stop's record has it, nil if none is asked for.
func (w CutWish) value() *cutValue {
	if w.Asked.IsZero() {
		return nil
	}
	return &cutValue{w.Asked, w.MaxGiveUp, w.Readers, int64(w.ClockSkew), w.Floors}
}

func (v *cutValue) wish() CutWish {
	if v == nil {
		return CutWish{}
	}
	return CutWish{v.Asked, v.MaxGiveUp, v.Readers, time.Duration(v.ClockSkew), v.Floors}
}

// encodeControl makes the records of a state: key → value. The state is put in order first. Errors: *ControlRecordError, or what makes the state impossible.
func encodeControl(s *ControlState) (map[string][]byte, error) {
	if err := s.normalise(); err != nil {
		return nil, err
	}
	records := make(map[string][]byte)
	var err error
	put := func(value any, recordType int16, names ...string) {
		if err != nil {
			return
		}
		k := controlKey{recordType: recordType, names: names}
		var key, b []byte
		if key, err = k.encode(); err != nil {
			return
		}
		if b, err = encodeControlValue(k, value); err == nil {
			records[string(key)] = b
		}
	}
	for _, m := range s.Mirrors {
		put(mirrorValue{controlVersion, m.Settings, m.SourceClusterID, m.Created}, mirrorRecord, m.Name)
	}
	for _, d := range s.Deleted {
		put(deletedValue{controlVersion, d.Purge, d.At}, deletedRecord, d.Name)
	}
	for _, w := range s.Topics {
		mirror, want, parseErr := w.Wish()
		if parseErr != nil {
			return nil, parseErr
		}
		put(topicValue{controlVersion, mirror, w.AdoptedFrom}, topicRecord, w.Topic)
		switch want {
		case statemachine.WantStopped:
			put(stopValue{controlVersion, w.DrainUntil, w.Cut.value()}, stopRecord, w.Topic)
		case statemachine.WantPaused:
			put(presentValue{controlVersion}, pauseRecord, w.Topic)
		}
		if w.Recover != 0 {
			put(recoverValue{controlVersion, w.Recover}, recoverRecord, w.Topic)
		}
		if len(w.Consents) > 0 {
			v := consentsValue{Version: controlVersion}
			for _, c := range w.Consents {
				v.Consents = append(v.Consents, consentValue{topicIDText(c.TopicID), c.Partition, c.From, c.To, c.Episode})
			}
			put(v, consentsRecord, w.Topic)
		}
	}
	for _, o := range s.Origins {
		put(originValue{controlVersion, o.SourceClusterID, o.Upstream}, originRecord, o.Mirror, o.Topic)
	}
	for _, q := range s.Questions {
		put(questionValue{controlVersion, q.Number, q.Asked, q.Topics, q.Who.Host, q.Who.User, q.Who.Client, q.Reason}, questionRecord, q.Mirror)
	}
	for _, p := range s.Promotions {
		put(p.value(), promotionRecord, p.Mirror)
	}
	for _, f := range s.Failbacks {
		put(f.value(), failbackRecord, f.Mirror, f.Plan)
	}
	for _, p := range s.Provenance {
		put(provenanceValue{controlVersion, p.Value}, provenanceRecord, p.Mirror, p.Kind, p.Name)
		if key, keyErr := (controlKey{recordType: provenanceRecord, names: []string{p.Mirror, p.Kind, p.Name}}).encode(); p.unread != "" && keyErr == nil {
			records[string(key)] = []byte(p.raw)
		}
	}
	return records, err
}

// controlReader puts a state together from its records, in any order.
type controlReader struct {
	state    ControlState
	topics   map[string]*TopicWish // MirrorName is the mirror alone until end
	stopped  map[string]stopValue
	paused   map[string]bool
	recovers map[string]int64
	consents map[string][]Consent
}

func newControlReader() *controlReader {
	return &controlReader{topics: map[string]*TopicWish{}, stopped: map[string]stopValue{}, paused: map[string]bool{}, recovers: map[string]int64{}, consents: map[string][]Consent{}}
}

// add reads one record. What is history or a report is left alone.
func (r *controlReader) add(k controlKey, value []byte) error {
	decode := func(v any) error { return decodeControlValue(k, value, v) }
	switch k.recordType {
	case mirrorRecord:
		var v mirrorValue
		if err := decode(&v); err != nil {
			return err
		}
		r.state.Mirrors = append(r.state.Mirrors, MirrorEntry{k.names[0], v.Settings, v.SourceClusterID, v.Created})
	case deletedRecord:
		var v deletedValue
		if err := decode(&v); err != nil {
			return err
		}
		r.state.Deleted = append(r.state.Deleted, DeletedMirror{k.names[0], v.Purge, v.At})
	case topicRecord:
		var v topicValue
		if err := decode(&v); err != nil {
			return err
		}
		if err := statemachine.CheckMirrorName(v.Mirror); err != nil {
			return &ControlRecordError{k.String(), err}
		}
		r.topics[k.names[0]] = &TopicWish{Topic: k.names[0], MirrorName: v.Mirror, AdoptedFrom: v.AdoptedFrom}
	case stopRecord:
		var v stopValue
		if err := decode(&v); err != nil {
			return err
		}
		r.stopped[k.names[0]] = v
	case pauseRecord:
		var v presentValue
		if err := decode(&v); err != nil {
			return err
		}
		r.paused[k.names[0]] = true
	case recoverRecord:
		var v recoverValue
		if err := decode(&v); err != nil {
			return err
		}
		r.recovers[k.names[0]] = v.Count
	case consentsRecord:
		var v consentsValue
		if err := decode(&v); err != nil {
			return err
		}
		for _, c := range v.Consents {
			r.consents[k.names[0]] = append(r.consents[k.names[0]], Consent{TopicID(c.TopicID), c.Partition, c.From, c.To, c.Episode})
		}
	case originRecord:
		var v originValue
		if err := decode(&v); err != nil {
			return err
		}
		r.state.Origins = append(r.state.Origins, TopicOrigin{k.names[0], k.names[1], v.SourceClusterID, v.Upstream})
	case questionRecord:
		var v questionValue
		if err := decode(&v); err != nil {
			return err
		}
		r.state.Questions = append(r.state.Questions, FailbackQuestion{k.names[0], v.Number, v.Asked, v.Topics, Operator{v.Host, v.User, v.Client}, v.Reason})
	case promotionRecord:
		var v promotionValue
		if err := decode(&v); err != nil {
			return err
		}
		r.state.Promotions = append(r.state.Promotions, v.promotion(k.names[0]))
	case failbackRecord:
		var v failbackValue
		if err := decode(&v); err != nil {
			return err
		}
		r.state.Failbacks = append(r.state.Failbacks, v.failback(k.names[0], k.names[1]))
	case provenanceRecord:
		p := Provenance{Mirror: k.names[0], Kind: k.names[1], Name: k.names[2]}
		var v provenanceValue
		if err := decode(&v); err != nil {
			p.raw, p.unread = string(value), err.Error()
		} else {
			p.Value = v.Value
		}
		r.state.Provenance = append(r.state.Provenance, p)
	}
	return nil
}

// end returns the state. A stop, pause, recover or consent of a topic that is in no mirror means nothing; difference says when it is taken out.
func (r *controlReader) end() (ControlState, error) {
	for topic, w := range r.topics {
		want := statemachine.WantMirroring
		if stop, ok := r.stopped[topic]; ok {
			want, w.DrainUntil, w.Cut = statemachine.WantStopped, stop.DrainUntil, stop.Cut.wish()
		} else if r.paused[topic] {
			want = statemachine.WantPaused
		}
		w.MirrorName, w.Recover, w.Consents = statemachine.MirrorNameValue(w.MirrorName, want), r.recovers[topic], r.consents[topic]
		r.state.Topics = append(r.state.Topics, *w)
	}
	err := r.state.normalise()
	return r.state, err
}
