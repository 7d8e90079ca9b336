package mirror

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// FailbackQuestion asks the processes of a mirror for a failback plan: whoever reaches only the destination cannot compare logs with the source. Admin.AskFailback records it.
type FailbackQuestion struct {
	Mirror string
	Number int64 // a newer question of the mirror has a higher one
	Asked  time.Time
	Topics []string // nil: every member
	Who    Operator
	Reason string
}

// FailbackAnswer is what one process found for a question. It changes nothing.
type FailbackAnswer struct {
	Owner  string
	Mirror string
	Number int64     // FailbackQuestion.Number, and
	Asked  time.Time // FailbackQuestion.Asked: both say which question it answers
	At     time.Time // by the clock of the process
	Packed []byte    // the plan's JSON, gzip; nil: there is none, and Trouble says why
	// Trouble is why there is no plan; Code is the kind of it.
	Trouble string
	Code    Code
}

// QuestionLife is how long a question waits for its answer. For one that is older when a process comes no logs are read any more: who asked has left, and the plan would be of use to nobody. The
// answer says then that it is too old, because the clocks may differ too. It is also the longest time that a process looks for an answer, and that Admin.AskFailback waits. Ages are by the
// clock of whoever judges. A question that was answered is taken back, by who answered or who asked.
const QuestionLife = 10 * time.Minute

type (
	questionValue struct {
		Version int       `json:"version"`
		Number  int64     `json:"number"`
		Asked   time.Time `json:"asked,omitzero"`
		Topics  []string  `json:"topics,omitempty"`
		Host    string    `json:"host,omitempty"`
		User    string    `json:"user,omitempty"`
		Client  string    `json:"client,omitempty"`
		Reason  string    `json:"reason,omitempty"`
	}
	answerValue struct {
		Version int       `json:"version"`
		Number  int64     `json:"number"`
		Asked   time.Time `json:"asked,omitzero"`
		At      time.Time `json:"at,omitzero"`
		Packed  []byte    `json:"plan,omitempty"` // the plan's JSON, gzip
		Trouble string    `json:"trouble,omitempty"`
		Code    int16     `json:"code,omitempty"`
	}
)

// Question returns what is asked of a mirror's processes; ok is false when nothing is. Topics are shared with s.
func (s *ControlState) Question(mirror string) (q FailbackQuestion, ok bool) {
	i := slices.IndexFunc(s.Questions, func(q FailbackQuestion) bool { return q.Mirror == mirror })
	if i < 0 {
		return FailbackQuestion{}, false
	}
	return s.Questions[i], true
}

// SetQuestion records a question in place of the mirror's earlier one, and keeps the order.
func (s *ControlState) SetQuestion(q FailbackQuestion) {
	s.Questions = slices.DeleteFunc(s.Questions, func(other FailbackQuestion) bool { return other.Mirror == q.Mirror })
	s.Questions = append(s.Questions, q)
	slices.SortFunc(s.Questions, func(a, b FailbackQuestion) int { return cmp.Compare(a.Mirror, b.Mirror) })
}

// TakeBack takes a question out, and no other one that was asked in its place: programs that are older than questions read no desired state that has one.
func (s *ControlState) TakeBack(q FailbackQuestion) {
	s.Questions = slices.DeleteFunc(s.Questions, q.same)
}

// same says that it is no other question.
func (q FailbackQuestion) same(other FailbackQuestion) bool {
	return q.Mirror == other.Mirror && q.Number == other.Number && q.Asked.Equal(other.Asked)
}

// answeredBy says that an answer is to this question.
func (q FailbackQuestion) answeredBy(a FailbackAnswer) bool {
	return q.same(FailbackQuestion{Mirror: a.Mirror, Number: a.Number, Asked: a.Asked})
}

// change is the record of an answer.
func (a FailbackAnswer) change() (keyedlog.Change, error) {
	return reportChange(controlKey{recordType: answerRecord, names: []string{a.Owner, a.Mirror}}, answerValue{Version: controlVersion, Number: a.Number, Asked: storedTime(a.Asked),
		At: storedTime(a.At), Packed: a.Packed, Trouble: validText(a.Trouble), Code: int16(a.Code)})
}

// fits refuses an answer that is too large for a record.
func (a FailbackAnswer) fits() error {
	c, err := a.change()
	if err == nil {
		err = fitting([]keyedlog.Change{c})
	}
	return err
}

func readAnswers(v keyedlog.View, unread func(UnreadReport) error) (answers []FailbackAnswer, err error) {
	err = eachReport(v, answerRecord, func(k controlKey, record keyedlog.Record) error {
		var a answerValue
		if err := decodeControlValue(k, record.Value, &a); err != nil {
			return unread(UnreadReport{Mirror: k.names[1], Answer: true, Err: err})
		}
		answers = append(answers, FailbackAnswer{Owner: k.names[0], Mirror: k.names[1], Number: a.Number, Asked: a.Asked, At: a.At, Packed: a.Packed, Trouble: a.Trouble, Code: Code(a.Code)})
		return nil
	})
	slices.SortFunc(answers, func(a, b FailbackAnswer) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Mirror, b.Mirror))
	})
	return answers, err
}

func (r *reporter) Answer(ctx context.Context, answer FailbackAnswer) error {
	if answer.Owner != r.owner {
		return fmt.Errorf("mirror: the reporter of %q was given an answer of %q", r.owner, answer.Owner)
	}
	c, err := answer.change()
	if err == nil {
		err = fitting([]keyedlog.Change{c})
	}
	if err != nil {
		return err
	}
	return r.failed("answering", r.session.Update(ctx, [][]byte{c.Key}, func(keyedlog.View) ([]keyedlog.Change, error) { return []keyedlog.Change{c}, nil }))
}

// unpackedLimit bounds what a packed plan may become: a hundred times what a record holds.
const unpackedLimit = 100 * controlRecordLimit

// pack makes a plan small enough to be kept: its JSON, compressed.
func (p FailbackPlan) pack() ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// Plan unpacks the plan of an answer. Errors: there is none; it cannot be read; a newer version wrote it.
func (a FailbackAnswer) Plan() (plan FailbackPlan, err error) {
	if len(a.Packed) == 0 {
		return plan, errors.New("mirror: the answer holds no plan")
	}
	r, err := gzip.NewReader(bytes.NewReader(a.Packed))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r, unpackedLimit+1))
	}
	switch {
	case err != nil:
		return plan, fmt.Errorf("mirror: the plan of process %q cannot be unpacked: %w", a.Owner, err)
	case len(text) > unpackedLimit:
		return plan, fmt.Errorf("mirror: the plan of process %q is larger than %d bytes", a.Owner, unpackedLimit)
	}
	return plan, json.Unmarshal(text, &plan)
}
