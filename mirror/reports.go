package mirror

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Each process writes keys of its own: the owner is part of every report's key, so that a partition that moved needs no leave from whoever had it, dead or alive. Of the reports
// of one partition the one that was written last counts, by the log's version when it was written and not by clocks, which differ between hosts.

// reporterPrefix begins the writers of reports in a keyed log, where state stores write as their owners.
const reporterPrefix = "report/"

// reportWriter is the name under which an owner's reporter opens the log.
func reportWriter(owner string) string { return reporterPrefix + owner }

type (
	nodeReportValue struct {
		Version       int                `json:"version"`
		Host          string             `json:"host,omitempty"`
		PID           int                `json:"pid,omitempty"`
		Opened        time.Time          `json:"opened,omitzero"`
		Seen          time.Time          `json:"seen,omitzero"`
		Interval      int64              `json:"intervalMs,omitempty"` // milliseconds
		Refresh       int64              `json:"refreshMs,omitempty"`  // milliseconds
		SourceError   string             `json:"sourceError,omitempty"`
		DestinationID string             `json:"destinationId,omitempty"`
		Trouble       []string           `json:"trouble,omitempty"`
		GroupsSeen    time.Time          `json:"groupsSeen,omitzero"`
		Node          string             `json:"node,omitempty"`
		Program       string             `json:"program,omitempty"`
		Measured      time.Time          `json:"measured,omitzero"`
		OffsetBytes   float64            `json:"offsetBytes,omitempty"`
		Failovers     []MeasuredFailover `json:"failovers,omitempty"`
		Groups        *syncValue         `json:"groups,omitempty"`
		Settings      *syncValue         `json:"settings,omitempty"`
		AccessRules   *syncValue         `json:"accessRules,omitempty"`
		Torn          *TornTransactions  `json:"torn,omitempty"`

		Verification *VerificationStatus `json:"verification,omitempty"`
		Kept         *KeptPlan           `json:"kept,omitempty"`
	}
	syncValue struct {
		Off     string    `json:"off,omitempty"`
		At      time.Time `json:"at,omitzero"`
		Error   string    `json:"error,omitempty"`
		Skipped []string  `json:"skipped,omitempty"`
	}
	partitionReportValue struct {
		Version          int         `json:"version"`
		Written          int64       `json:"written"` // the log's version then: orders reports of several owners
		TopicID          topicIDText `json:"topicId"`
		State            stateText   `json:"state"`
		Reason           string      `json:"reason,omitempty"`
		RetryAttempt     int16       `json:"retryAttempt,omitempty"`
		SourceEnd        int64       `json:"sourceEnd"`
		SourceSeen       time.Time   `json:"sourceSeen,omitzero"`
		DestinationStart int64       `json:"destinationStart"`
		DestinationEnd   int64       `json:"destinationEnd"`
		InStep           time.Time   `json:"inStep,omitzero"`
		LostFrom         int64       `json:"lostFrom,omitempty"`
		LostTo           int64       `json:"lostTo,omitempty"`
		OpenTransactions int         `json:"openTransactions,omitempty"`
		OpenFrom         int64       `json:"openFrom,omitempty"`
		Live             bool        `json:"live,omitempty"`
		At               time.Time   `json:"at,omitzero"`
	}
)

// stateText is a state by its name: numbers of states differ between drafts of the KIP.
type stateText statemachine.State

var statesByName = func() map[string]statemachine.State {
	m := map[string]statemachine.State{statemachine.Unknown.String(): statemachine.Unknown}
	for s := statemachine.Preparing; s <= statemachine.Failed; s++ {
		m[s.String()] = s
	}
	return m
}()

func (s stateText) MarshalText() ([]byte, error) {
	name := statemachine.State(s).String()
	if _, ok := statesByName[name]; !ok {
		return nil, fmt.Errorf("%s is no state", name)
	}
	return []byte(name), nil
}

func (s *stateText) UnmarshalText(b []byte) error {
	state, ok := statesByName[string(b)]
	if !ok {
		return fmt.Errorf("state %.40q: %w", b, ErrNewerRecord)
	}
	*s = stateText(state)
	return nil
}

// change is the record of a node's report.
func (n NodeReport) change() (keyedlog.Change, error) {
	return reportChange(controlKey{recordType: nodeReportRecord, names: []string{n.Owner, n.Mirror}}, nodeReportValue{Version: controlVersion, Host: validText(n.Host), PID: n.PID,
		Opened: storedTime(n.Opened), Seen: storedTime(n.Seen), Interval: n.Interval.Milliseconds(), Refresh: n.Refresh.Milliseconds(), SourceError: validText(n.SourceError), DestinationID: validText(n.DestinationID), Trouble: validTexts(n.Trouble),
		GroupsSeen: storedTime(n.GroupsSeen), Node: validText(n.Node), Program: validText(n.Version), Measured: storedTime(n.Measured), OffsetBytes: n.OffsetBytes, Failovers: n.Failovers, Groups: n.Groups.value(), Settings: n.Settings.value(),
		AccessRules: n.AccessRules.value(), Torn: n.Torn.valid(), Verification: n.Verification.valid(), Kept: n.Kept})
}

func validTexts(lines []string) (valid []string) {
	for _, line := range lines {
		valid = append(valid, validText(line))
	}
	return valid
}

func (s *SyncReport) value() *syncValue {
	if s == nil {
		return nil
	}
	return &syncValue{validText(s.Off), storedTime(s.At), validText(s.Error), validTexts(s.Skipped)}
}

func (s *syncValue) report() *SyncReport {
	if s == nil {
		return nil
	}
	return &SyncReport{s.Off, s.At, s.Error, s.Skipped}
}

// change is the record of a partition's report, but for the moment of writing.
func (p PartitionReport) change(written int64) (keyedlog.Change, error) {
	return reportChange(p.key(), partitionReportValue{Version: controlVersion, Written: written, TopicID: topicIDText(p.TopicID), State: stateText(p.State), Reason: validText(p.Reason),
		RetryAttempt: p.RetryAttempt, SourceEnd: p.SourceEnd, SourceSeen: storedTime(p.SourceSeen), DestinationStart: p.DestinationStart, DestinationEnd: p.DestinationEnd,
		InStep: storedTime(p.InStep), LostFrom: p.LostFrom, LostTo: p.LostTo, OpenTransactions: p.OpenTransactions, OpenFrom: p.OpenFrom, Live: p.Live, At: storedTime(p.At)})
}

// taken are those of the partitions that were left which another owner has reported since. What an Update is shown may be older than that.
func (r *reporter) taken(ctx context.Context, keys [][]byte, partitions []PartitionReport) (taken map[int]bool, err error) {
	if !slices.ContainsFunc(partitions, func(p PartitionReport) bool { return p.left }) {
		return nil, nil
	}
	err = r.session.Read(ctx, func(v keyedlog.View) error {
		taken = map[int]bool{}
		for i, p := range partitions {
			if !p.left {
				continue
			}
			elsewhere, err := p.elsewhere(v, keys[i])
			if err != nil {
				return err
			}
			taken[i] = elsewhere
		}
		return nil
	})
	return taken, err
}

// elsewhere says that another owner has reported the partition since this one did, under key. A report that cannot be read is a newer version's, and stops nobody: this owner's own is replaced, and
// another one's counts.
func (p PartitionReport) elsewhere(v keyedlog.View, key []byte) (found bool, err error) {
	written := func(b []byte) (int64, error) {
		var value partitionReportValue
		err := decodeControlValue(p.key(), b, &value)
		return value.Written, err
	}
	mine, there := v.Get(key)
	if !there {
		return true, nil // nothing has to be put right
	}
	last, err := written(mine.Value)
	if err != nil {
		return false, nil
	}
	prefix := appendControlName(appendControlName(appendControlType(nil, partitionReportRecord), p.Mirror), p.Topic)
	err = v.Each(binary.BigEndian.AppendUint32(prefix, uint32(p.Partition)), func(r keyedlog.Record) error {
		if bytes.Equal(r.Key, key) {
			return nil
		}
		at, err := written(r.Value)
		found = found || err != nil || at > last
		return nil
	})
	return found, err
}

func (p PartitionReport) key() controlKey {
	return controlKey{recordType: partitionReportRecord, names: []string{p.Mirror, p.Topic, p.Owner}, partition: p.Partition}
}

func reportChange(k controlKey, value any) (c keyedlog.Change, err error) {
	if c.Key, err = k.encode(); err == nil {
		c.Value, err = encodeControlValue(k, value)
	}
	return c, err
}

func (c *logControl) Reports(ctx context.Context) (Reports, error) {
	var r Reports
	err := c.log.Read(ctx, func(v keyedlog.View) (err error) {
		r, err = readReports(v)
		return err
	})
	if err != nil {
		return Reports{}, fmt.Errorf("mirror: reading reports: %w", err)
	}
	return r, nil
}

func readReports(v keyedlog.View) (Reports, error) {
	var r Reports
	unread := func(u UnreadReport) error {
		r.Unread = append(r.Unread, u)
		return nil
	}
	r.Unread = unreadKeys(v)
	err := eachReport(v, nodeReportRecord, func(k controlKey, record keyedlog.Record) error {
		var n nodeReportValue
		if err := decodeControlValue(k, record.Value, &n); err != nil {
			return unread(UnreadReport{Mirror: k.names[1], Node: true, Err: err})
		}
		r.Nodes = append(r.Nodes, NodeReport{Owner: k.names[0], Mirror: k.names[1], Host: n.Host, PID: n.PID, Opened: n.Opened, Seen: n.Seen,
			Interval: time.Duration(n.Interval) * time.Millisecond, Refresh: time.Duration(n.Refresh) * time.Millisecond, SourceError: n.SourceError,
			DestinationID: n.DestinationID, Trouble: n.Trouble, GroupsSeen: n.GroupsSeen, Node: n.Node, Version: n.Program, Measured: n.Measured, OffsetBytes: n.OffsetBytes, Failovers: n.Failovers, Groups: n.Groups.report(),
			Settings: n.Settings.report(), AccessRules: n.AccessRules.report(), Torn: n.Torn, Verification: n.Verification, Kept: n.Kept})
		return nil
	})
	if err != nil {
		return Reports{}, err
	}
	written := make(map[int]int64) // by index in Partitions
	err = eachReport(v, partitionReportRecord, func(k controlKey, record keyedlog.Record) error {
		var p partitionReportValue
		if err := decodeControlValue(k, record.Value, &p); err != nil {
			return unread(UnreadReport{Mirror: k.names[0], Err: err})
		}
		report := PartitionReport{Mirror: k.names[0], Topic: k.names[1], Partition: k.partition, TopicID: TopicID(p.TopicID), Owner: k.names[2], State: statemachine.State(p.State),
			Reason: p.Reason, RetryAttempt: p.RetryAttempt, SourceEnd: p.SourceEnd, SourceSeen: p.SourceSeen, DestinationStart: p.DestinationStart, DestinationEnd: p.DestinationEnd,
			InStep: p.InStep, LostFrom: p.LostFrom, LostTo: p.LostTo, OpenTransactions: p.OpenTransactions, OpenFrom: p.OpenFrom, Live: p.Live, At: p.At}
		last := len(r.Partitions) - 1 // reports of one partition are neighbours: the owner ends the key
		if last < 0 || comparePartitionReports(r.Partitions[last], report) != 0 {
			r.Partitions = append(r.Partitions, report)
			last++
		} else if cmp.Or(cmp.Compare(p.Written, written[last]), report.At.Compare(r.Partitions[last].At)) <= 0 {
			return nil
		}
		r.Partitions[last], written[last] = report, p.Written
		return nil
	})
	if err != nil {
		return Reports{}, err
	}
	if r.Answers, err = readAnswers(v, unread); err != nil {
		return Reports{}, err
	}
	slices.SortFunc(r.Nodes, func(a, b NodeReport) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Mirror, b.Mirror))
	})
	slices.SortFunc(r.Partitions, comparePartitionReports)
	return r, nil
}

func comparePartitionReports(a, b PartitionReport) int {
	return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// eachReport leaves out records whose key cannot be read: unreadKeys has them.
func eachReport(v keyedlog.View, recordType int16, f func(controlKey, keyedlog.Record) error) error {
	return v.Each(appendControlType(nil, recordType), func(r keyedlog.Record) error {
		k, _, err := decodeControlKey(r.Key)
		if err != nil {
			return nil
		}
		return f(k, r)
	})
}

func unreadKeys(v keyedlog.View) (unread []UnreadReport) {
	for _, t := range []int16{nodeReportRecord, partitionReportRecord, answerRecord} {
		_ = v.Each(appendControlType(nil, t), func(r keyedlog.Record) error { // nothing that it calls fails
			if _, _, err := decodeControlKey(r.Key); err != nil {
				unread = append(unread, UnreadReport{Err: err})
			}
			return nil
		})
	}
	return unread
}

func (c *logControl) OpenReporter(ctx context.Context, owner string) (Reporter, error) {
	if owner == "" {
		return nil, errors.New("mirror: a reporter needs its owner's name")
	}
	session, err := c.log.Open(ctx, reportWriter(owner))
	if err != nil {
		return nil, fmt.Errorf("mirror: opening the reporter of %q: %w", owner, err)
	}
	return &reporter{owner: owner, session: session}, nil
}

type reporter struct {
	owner   string
	session keyedlog.Session
}

func (r *reporter) Report(ctx context.Context, node NodeReport, partitions []PartitionReport) error {
	if node.Owner != r.owner {
		return fmt.Errorf("mirror: the reporter of %q was given a report of %q", r.owner, node.Owner)
	}
	first, err := node.change()
	if err != nil {
		return err
	}
	keys := [][]byte{first.Key}
	for _, p := range partitions {
		if p.Owner != r.owner {
			return fmt.Errorf("mirror: the reporter of %q was given a report of %q on %s-%d", r.owner, p.Owner, p.Topic, p.Partition)
		}
		key, err := p.key().encode()
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	taken, err := r.taken(ctx, keys[1:], partitions)
	if err != nil {
		return r.failed("reading reports", err)
	}
	return r.failed("reporting", r.session.Update(ctx, keys, func(v keyedlog.View) ([]keyedlog.Change, error) {
		changes := []keyedlog.Change{first}
		for i, p := range partitions {
			c, err := p.change(v.Version())
			if taken[i] {
				c.Value = nil
			}
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
		return changes, nil
	}))
}

// Forget leaves what another owner's living session wrote: keyedlog.CheckOwner is the rule.
func (r *reporter) Forget(ctx context.Context, mirror string) error {
	var keys [][]byte
	mine := func(v keyedlog.View, key []byte) bool {
		return keyedlog.CheckOwner(v, key, reportWriter(r.owner)) == nil
	}
	err := r.session.Read(ctx, func(v keyedlog.View) error {
		keys = nil
		collect := func(name int) func(controlKey, keyedlog.Record) error {
			return func(k controlKey, record keyedlog.Record) error {
				if k.names[name] == mirror && mine(v, record.Key) {
					keys = append(keys, bytes.Clone(record.Key))
				}
				return nil
			}
		}
		return errors.Join(eachReport(v, partitionReportRecord, collect(0)), eachReport(v, nodeReportRecord, collect(1)), eachReport(v, answerRecord, collect(1)))
	})
	if err != nil || len(keys) == 0 {
		return r.failed("reading reports", err)
	}
	return r.failed("forgetting reports", r.session.Update(ctx, keys, func(v keyedlog.View) ([]keyedlog.Change, error) {
		var changes []keyedlog.Change
		for _, key := range keys {
			if _, there := v.Get(key); there && mine(v, key) {
				changes = append(changes, keyedlog.Change{Key: key})
			}
		}
		return changes, nil
	}))
}

func (r *reporter) Close() error { return r.session.Close() }

func (r *reporter) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, keyedlog.ErrFenced) {
		err = fmt.Errorf("%w: %w", statemachine.ErrFenced, err)
	}
	return fmt.Errorf("mirror: reporter of %q: %s: %w", r.owner, what, err)
}
