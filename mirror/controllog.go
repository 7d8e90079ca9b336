package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// NewControl returns a Control that keeps its records in log, beside others' (a StateStore may share it). Nothing but the log is shared between processes: each verb is one
// atomic update of it, so of two operators at once both are heard, one after the other. A record that a newer version wrote ends every call with a *ControlRecordError, because
// it may forbid what this version is about to do. The Log is the caller's: close it behind the Control.
func NewControl(log keyedlog.Log) Control { return &logControl{log: log} }

type logControl struct {
	log keyedlog.Log

	mu   sync.Mutex
	last *controlView // the newest one read; nil at first
}

// controlView is the desired state at one version of the log. It is not changed any more.
type controlView struct {
	records []controlRaw // sorted by key
	at      int64        // version of the log
	state   ControlState // Version is the log's when this was first seen: reports move the log and not the state
	encoded func() (map[string][]byte, error)
}

type controlRaw struct{ key, value []byte }

func (c *logControl) Read(ctx context.Context) (s ControlState, err error) {
	err = c.log.Read(ctx, func(v keyedlog.View) error {
		view, err := c.look(v)
		if err == nil {
			s = view.state.Clone()
		}
		return err
	})
	return s, err
}

// look reads the desired state; a log that has not moved, or moved only elsewhere, is not decoded again. One at a time: two that see the same state first, on both sides of
// a report, would give it two versions.
func (c *logControl) look(v keyedlog.View) (*controlView, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.last
	if last != nil && last.at == v.Version() {
		return last, nil
	}
	next := &controlView{at: v.Version()}
	same := last != nil
	err := v.Each(nil, func(r keyedlog.Record) error {
		if !isDesired(r.Key) {
			return nil
		}
		at := len(next.records)
		if last != nil && at < len(last.records) && bytes.Equal(last.records[at].key, r.Key) && bytes.Equal(last.records[at].value, r.Value) {
			next.records = append(next.records, last.records[at])
			return nil
		}
		same = false
		next.records = append(next.records, controlRaw{bytes.Clone(r.Key), bytes.Clone(r.Value)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if same && len(next.records) == len(last.records) {
		next.state, next.encoded = last.state, last.encoded
	} else if next.state, err = decodeControl(next.records); err != nil {
		return nil, err
	} else {
		next.state.Version = v.Version()
		next.encoded = sync.OnceValues(func() (map[string][]byte, error) {
			s := next.state.Clone()
			return encodeControl(&s)
		})
	}
	if c.last == nil || c.last.at < next.at {
		c.last = next
	}
	return next, nil
}

// isDesired says whether a record is the desired state's, or one that nobody knows: decoding finds that. History and reports are read by those who ask for them.
func isDesired(key []byte) bool {
	if len(key) < 2 {
		return true
	}
	t := controlType(key)
	return t < 0 || t >= firstControlRecord && t != historyRecord && t != partitionReportRecord && t != nodeReportRecord && t != answerRecord
}

func decodeControl(records []controlRaw) (ControlState, error) {
	r := newControlReader()
	for _, raw := range records {
		k, ok, err := decodeControlKey(raw.key)
		if err == nil && ok {
			err = r.add(k, raw.value)
		}
		if err != nil {
			return ControlState{}, err
		}
	}
	return r.end()
}

func (c *logControl) Update(ctx context.Context, change func(*ControlState) error) error {
	return c.log.Update(ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
		before, err := c.look(v)
		if err != nil {
			return nil, err
		}
		next := before.state.Clone()
		if err := change(&next); err != nil {
			return nil, err
		}
		had, err := before.encoded()
		if err != nil {
			return nil, err
		}
		want, err := encodeControl(&next)
		if err != nil {
			return nil, err
		}
		var changes []keyedlog.Change
		if !maps.EqualFunc(had, want, bytes.Equal) {
			changes = difference(before.records, had, want)
		}
		if next.Note != nil {
			note, err := noteChanges(v, *next.Note)
			if err != nil {
				return nil, err
			}
			changes = append(changes, note...)
		}
		return changes, fitting(changes)
	})
}

// rehearse refuses what Update would refuse of a change from before to after, without a word to the storage.
func rehearse(before, after ControlState) error {
	had, err := encodeControl(&before)
	if err != nil {
		return err
	}
	want, err := encodeControl(&after)
	if err != nil {
		return err
	}
	changes := difference(nil, had, want)
	if after.Note != nil {
		note, err := noteRecord(1, *after.Note)
		if err != nil {
			return err
		}
		changes = append(changes, note)
	}
	return fitting(changes)
}

// controlRecordLimit is the longest record, key and value together, that is written: below the 1 MiB that a Kafka topic takes unless it was configured otherwise, so that what
// one storage holds another one holds too.
const controlRecordLimit = 1_000_000

// errRecordTooLarge: a record would be larger than controlRecordLimit.
var errRecordTooLarge = fmt.Errorf("larger than %d bytes, which is what a record may have; make it smaller, or do it in several steps", controlRecordLimit)

// fitting refuses changes that a storage would refuse for their size. What is stored already is not looked at: it must hold up nobody.
func fitting(changes []keyedlog.Change) error {
	for _, c := range changes {
		if len(c.Value) > 0 && len(c.Key)+len(c.Value) > controlRecordLimit {
			k, _, err := decodeControlKey(c.Key)
			if err != nil {
				return err
			}
			return &ControlRecordError{k.String(), fmt.Errorf("%d bytes are %w", len(c.Key)+len(c.Value), errRecordTooLarge)}
		}
	}
	return nil
}

// difference is what has to be written, in order of key: what differs from had, and the removal of what is not wanted any more. A stray, which is stored and means nothing, goes
// only with a change that writes its Kafka topic anyway, or that would give it a meaning: its removal must not ask for a right that the change itself does not need.
func difference(stored []controlRaw, had, want map[string][]byte) []keyedlog.Change {
	var changes []keyedlog.Change
	var strays []controlRaw
	for key, value := range want {
		if was, ok := had[key]; !ok || !bytes.Equal(was, value) {
			changes = append(changes, keyedlog.Change{Key: []byte(key), Value: value})
		}
	}
	for _, r := range stored {
		_, meant := had[string(r.key)]
		if _, ok := want[string(r.key)]; ok {
			continue
		} else if meant {
			changes = append(changes, keyedlog.Change{Key: r.key})
		} else {
			strays = append(strays, r)
		}
	}
	written := make(map[string]bool)
	for _, c := range changes {
		written[ControlTopic(controlType(c.Key))] = true
	}
	for _, r := range strays {
		if written[ControlTopic(controlType(r.key))] || awoken(r.key, had, want) {
			changes = append(changes, keyedlog.Change{Key: r.key})
		}
	}
	slices.SortFunc(changes, func(a, b keyedlog.Change) int { return bytes.Compare(a.Key, b.Key) })
	return changes
}

// awoken says whether a stray would mean something behind a change: its topic joins a mirror, or the stop that is stronger than a pause goes.
func awoken(key []byte, had, want map[string][]byte) bool {
	k, _, err := decodeControlKey(key)
	if err != nil || len(k.names) == 0 {
		return false // it was read, so there is no such key
	}
	in := func(records map[string][]byte, recordType int16) bool {
		other, err := controlKey{recordType: recordType, names: k.names[:1]}.encode()
		_, ok := records[string(other)]
		return err == nil && ok
	}
	return in(want, topicRecord) && (!in(had, topicRecord) || k.recordType == pauseRecord && !in(want, stopRecord))
}

// keptWeighty is how many of the newest entries of weighty verbs stay however many others are written since: who only may pause must not wash out who stopped.
const keptWeighty = HistoryLimit / 2

// weighty says whether an entry is of a verb that opens, discards or changes for good. One that cannot be read, as a newer version may have written it, is.
func weighty(entry []byte) bool {
	var h historyValue
	return json.Unmarshal(entry, &h) != nil || !slices.Contains([]string{verbPause, verbResume, verbRecover, verbFollow}, h.Verb)
}

// noteChanges adds an entry to the history and takes out those beyond the limit: the oldest that need not stay. An entry that a newer version wrote must not hold up a failover.
func noteChanges(v keyedlog.View, e HistoryEntry) ([]keyedlog.Change, error) {
	var keys [][]byte
	var newest int64
	err := v.Each(appendControlType(nil, historyRecord), func(r keyedlog.Record) error {
		k, _, err := decodeControlKey(r.Key)
		if err != nil {
			return err
		}
		keys, newest = append(keys, bytes.Clone(r.Key)), max(newest, k.number)
		return nil
	})
	if err != nil {
		return nil, err
	}
	note, err := noteRecord(newest+1, e)
	if err != nil {
		return nil, err
	}
	changes := []keyedlog.Change{note}
	excess := len(keys) + 1 - HistoryLimit
	if excess <= 0 {
		return changes, nil
	}
	kept := make(map[int]bool)
	for i := len(keys) - 1; i >= 0 && len(kept) < keptWeighty; i-- {
		if value, ok := v.Get(keys[i]); ok && weighty(value.Value) {
			kept[i] = true
		}
	}
	for i := 0; i < len(keys) && excess > 0; i++ {
		if !kept[i] {
			changes = append(changes, keyedlog.Change{Key: keys[i]})
			excess--
		}
	}
	return changes, nil
}

// noteRecord is an entry of the history as it is stored.
func noteRecord(number int64, e HistoryEntry) (keyedlog.Change, error) {
	k := controlKey{recordType: historyRecord, number: number}
	key, err := k.encode()
	if err != nil {
		return keyedlog.Change{}, err
	}
	topics := make([]string, len(e.Topics))
	for i, t := range e.Topics {
		topics[i] = validText(t)
	}
	value, err := encodeControlValue(k, historyValue{
		Version: controlVersion, Time: storedTime(e.Time), Verb: validText(e.Verb), Mirror: validText(e.Mirror), Topics: topics, Host: validText(e.Who.Host),
		User: validText(e.Who.User), Client: validText(e.Who.Client), Reason: validText(e.Reason), Plan: validText(e.Plan), Detail: validText(e.Detail),
	})
	return keyedlog.Change{Key: key, Value: value}, err
}

// historyText is how many bytes of one text an entry of the history keeps.
const historyText = 10_000

// validText makes text for people storable. What is no UTF-8 in a reason, or a reason without end, must not stop what the reason is for.
func validText(s string) string {
	if len(s) > historyText {
		s = s[:historyText] + "…" // half a character at the cut becomes one below
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

func (c *logControl) Changed() <-chan struct{} { return c.log.Changed() }

func (c *logControl) History(ctx context.Context) (entries []HistoryEntry, err error) {
	err = c.log.Read(ctx, func(v keyedlog.View) error {
		entries = nil
		return v.Each(appendControlType(nil, historyRecord), func(r keyedlog.Record) error {
			k, _, err := decodeControlKey(r.Key)
			if err != nil {
				return err
			}
			var h historyValue
			if err := decodeControlValue(k, r.Value, &h); err != nil {
				return err
			}
			entries = append(entries, HistoryEntry{Number: k.number, Time: h.Time, Verb: h.Verb, Mirror: h.Mirror, Topics: h.Topics,
				Who: Operator{Host: h.Host, User: h.User, Client: h.Client}, Reason: h.Reason, Plan: h.Plan, Detail: h.Detail})
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("mirror: reading the history: %w", err)
	}
	return entries, nil
}
