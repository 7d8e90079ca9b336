package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkaconfig"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/dropped"
	"github.com/clustermirror/clustermirror/statemachine"
)

// dropped is about a folder of records that were given up. Only --replay needs a cluster.
func (p *program) dropped(ctx context.Context) error {
	folder, err := dropped.List(p.droppedDir)
	if errors.Is(err, fs.ErrNotExist) {
		return usage("--dropped %s: no folder is there; a node has it in mirror.node.folder, as dropped", p.droppedDir)
	}
	if err != nil {
		return err
	}
	var o dropped.Options
	if topics := split(p.topics); len(topics) > 0 {
		o.Want = func(tp mirror.TopicPartition) bool { return slices.Contains(topics, tp.Topic) }
	}
	switch {
	case p.replay:
		return p.replayDropped(ctx, folder, o)
	case p.print:
		return p.printDropped(ctx, folder, o)
	}
	s, err := folder.Summarize(ctx, o)
	if err != nil {
		return err
	}
	if p.json {
		err = p.asJSON(s)
	} else {
		say(p.out, s.String())
	}
	return errors.Join(err, damaged(s))
}

// damaged is the exit status where something is not read, or not to its end; what is wrong is in the summary.
func damaged(s dropped.Summary) error {
	if len(s.Unread) > 0 || slices.ContainsFunc(s.Files, func(f dropped.FileSummary) bool { return f.Damage != "" }) {
		return &endedError{status: 1}
	}
	return nil
}

// notRead says of an error that something is not given for it, and that all the rest is.
func notRead(err error) bool {
	var damage *dropped.DamageError
	var unreadable *dropped.UnreadableError
	return errors.As(err, &damage) || errors.As(err, &unreadable)
}

// recordJSON is a record of the document. Bytes are in base64, null is null.
type recordJSON struct {
	Topic         string
	Partition     int32
	Offset        int64
	Timestamp     int64 // milliseconds since 1970
	Key, Value    []byte
	Headers       []dropped.Header
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	Kind          string
	Transaction   dropped.Transaction
	Again         bool
	File          string
}

func (p *program) printDropped(ctx context.Context, folder *dropped.Folder, o dropped.Options) error {
	bad, printed := 0, 0
	if p.json {
		fmt.Fprint(p.out, `{"Records":[`)
	}
	for r, err := range folder.Records(ctx, o) {
		if notRead(err) {
			bad++
			p.complain(err)
			continue
		}
		if err != nil {
			return err
		}
		if !p.json {
			if _, err := fmt.Fprintln(p.out, recordLine(r)); err != nil {
				return err
			}
			continue
		}
		b, err := json.Marshal(recordJSON{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, r.Headers, r.LeaderEpoch, r.ProducerID, r.ProducerEpoch, r.Kind, r.Transaction, r.Again, r.File.Path})
		if err != nil {
			return err
		}
		if printed++; printed > 1 {
			fmt.Fprint(p.out, ",")
		}
		if _, err := fmt.Fprintf(p.out, "\n%s", b); err != nil {
			return err
		}
	}
	if p.json {
		fmt.Fprintln(p.out, "\n]}")
	}
	if bad > 0 {
		return &endedError{status: 1}
	}
	return nil
}

// recordLine is one record for a person.
func recordLine(r dropped.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s-%d %d %s epoch %d", r.Topic, r.Partition, r.Offset, r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"), r.LeaderEpoch)
	if r.ProducerID >= 0 {
		fmt.Fprintf(&b, " producer %d epoch %d", r.ProducerID, r.ProducerEpoch)
	}
	if r.Kind != "data" {
		fmt.Fprintf(&b, " %s", r.Kind)
		if r.Transaction.Below {
			b.WriteString(" of a transaction that lies below what was dropped")
		}
		return b.String()
	}
	if r.Transaction.State != dropped.None {
		fmt.Fprintf(&b, " transaction %s", r.Transaction.State)
	}
	if r.Again {
		b.WriteString(" again")
	}
	fmt.Fprintf(&b, " key %s value %s", quotedBytes(r.Key), quotedBytes(r.Value))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " header %s=%s", strconv.Quote(h.Key), quotedBytes(h.Value))
	}
	if r.Transaction.Why != "" {
		fmt.Fprintf(&b, " (%s)", r.Transaction.Why)
	}
	return mirror.OneLine(b.String())
}

func quotedBytes(b []byte) string {
	if b == nil {
		return "null"
	}
	return strconv.Quote(string(b))
}

// Headers of a record that is written again: where it was.
const (
	fromTopic, fromPartition, fromOffset = "dropped.topic", "dropped.partition", "dropped.offset"
	fromTransaction                      = "dropped.transaction" // only of one that no COMMIT was there for
)

// again is a record that is to be written: into a partition by its key, as any producer does, or, without a key, by the number of the partition where it was. So records of one key keep their order.
func again(r dropped.Record, into string) *kgo.Record {
	x := &kgo.Record{Topic: into, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		x.Headers = append(x.Headers, kgo.RecordHeader(h))
	}
	x.Headers = append(x.Headers, kgo.RecordHeader{Key: fromTopic, Value: []byte(r.Topic)}, kgo.RecordHeader{Key: fromPartition, Value: strconv.AppendInt(nil, int64(r.Partition), 10)},
		kgo.RecordHeader{Key: fromOffset, Value: strconv.AppendInt(nil, r.Offset, 10)})
	if s := r.Transaction.State; s != dropped.None && s != dropped.Committed {
		x.Headers = append(x.Headers, kgo.RecordHeader{Key: fromTransaction, Value: []byte(s.String())})
	}
	x.Partition = r.Partition // of a record without a key; byKey uses it
	return x
}

// byKey is the partitioner of what is written again.
func byKey() kgo.Partitioner {
	keyed := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		of := keyed.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Key == nil {
				return int(r.Partition) % n
			}
			return of.Partition(r, n)
		}
	})
}

// replayedJSON is what a --replay did, or without --yes would do.
type replayedJSON struct {
	Into         string
	DryRun       bool
	Records      int64          // that are written; of an error those that are known to be
	Skipped      int64          // with --skip
	LeftOut      dropped.Counts // because of their transactions
	Again        int64          // left out because another file has them too
	Damage       []string
	NotAnswered  int64      `json:",omitempty"` // the records of the last request, of which it is not known whether they are there
	FirstOfThose string     `json:",omitempty"`
	Error        *errorJSON `json:",omitempty"`
}

// Records that are produced at once: what one failure leaves unknown.
const atOnce, bytesAtOnce = 500, 1 << 20

func (p *program) replayDropped(ctx context.Context, folder *dropped.Folder, o dropped.Options) (err error) {
	bounded, stop := context.WithTimeout(ctx, p.timeout)
	defer stop()
	if p.place, err = p.openPlace(bounded); err != nil {
		return err
	}
	defer p.place.close()
	if err := p.mayReplayInto(bounded); err != nil {
		return err
	}
	connection, err := kafkaconfig.Parse(p.place.connection)
	if err != nil {
		return usage("--command-config %s: %v", p.commandConfig, err)
	}
	client, err := kgo.NewClient(append(connection.Options, kgo.SeedBrokers(connection.Seeds...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(byKey()))...)
	if err != nil {
		return fmt.Errorf("--bootstrap-server %s: %w", p.bootstrap, err)
	}
	defer client.Close()
	done := replayedJSON{Into: p.into, DryRun: !p.yes, Damage: []string{}}
	var part []*kgo.Record
	var first string
	size := 0
	write := func() error {
		defer func() { part, size = nil, 0 }()
		if p.yes && len(part) > 0 {
			bounded, stop := context.WithTimeout(ctx, p.timeout) // not the client's own bound, which counts from a record's timestamp
			defer stop()
			for _, x := range client.ProduceSync(bounded, part...) {
				if x.Err != nil {
					done.NotAnswered, done.FirstOfThose = int64(len(part)), first
					return fmt.Errorf("writing into topic %s: %w", p.into, x.Err)
				}
			}
		}
		done.Records += int64(len(part))
		return nil
	}
	for r, err := range folder.Records(ctx, o) {
		switch {
		case notRead(err):
			done.Damage = append(done.Damage, err.Error())
			continue
		case err != nil:
			return p.replayed(done, err)
		case r.Kind != "data":
			continue
		case r.Again:
			done.Again++
			continue
		case r.Transaction.State != dropped.None && r.Transaction.State != dropped.Committed && !p.every:
			done.leaveOut(r.Transaction.State)
			continue
		case done.Skipped < p.skip:
			done.Skipped++
			continue
		}
		if len(part) == 0 {
			first = fmt.Sprintf("%s-%d at %d", r.Topic, r.Partition, r.Offset)
		}
		part, size = append(part, again(r, p.into)), size+len(r.Key)+len(r.Value)
		if len(part) == atOnce || size >= bytesAtOnce {
			if err := write(); err != nil {
				return p.replayed(done, err)
			}
		}
	}
	return p.replayed(done, write())
}

func (d *replayedJSON) leaveOut(s dropped.State) {
	switch s {
	case dropped.Aborted:
		d.LeftOut.Aborted++
	case dropped.Open:
		d.LeftOut.Open++
	default:
		d.LeftOut.Unknown++
	}
}

// mayReplayInto refuses a topic that is not there, which would be made with whatever a broker makes it with, and one that a mirror writes.
func (p *program) mayReplayInto(ctx context.Context) error {
	if _, err := p.place.topics.Topic(ctx, p.into); errors.Is(err, mirror.ErrUnknownTopic) {
		return usage("--into %s: there is no such topic at %s; make it first. Nothing has changed", p.into, p.bootstrap)
	} else if err != nil {
		return err
	}
	state, err := mirror.NewControl(p.place.records).Read(ctx)
	if err != nil {
		return err
	}
	for _, w := range state.Topics {
		if owner, want, err := w.Wish(); w.Topic == p.into && (err != nil || want != statemachine.WantStopped) {
			return usage("--into %s: mirror %s writes this topic, and nobody else may; write into another one, or at the cluster that it is mirrored from. Nothing has changed", p.into, cmp.Or(owner, "(unreadable)"))
		}
	}
	return nil
}

// replayed shows what was done. err is why it ended early.
func (p *program) replayed(done replayedJSON, err error) error {
	if err != nil {
		done.Error = &errorJSON{Message: oneLine(err)}
		if k := (*kerr.Error)(nil); errors.As(err, &k) {
			done.Error.Code = k.Message
		}
	}
	if p.json {
		if shown := p.asJSON(done); shown != nil {
			return shown
		}
	} else {
		p.sayReplayed(done)
	}
	switch {
	case err != nil:
		return err
	case len(done.Damage) > 0:
		return &endedError{status: 1}
	}
	return nil
}

func (p *program) sayReplayed(done replayedJSON) {
	what := "written, and acknowledged by all replicas in sync"
	if done.DryRun {
		what = "would be written"
	}
	fmt.Fprintf(p.out, "%s %s: into topic %s at %s\n", counted(int(done.Records), "record"), what, mirror.OneLine(done.Into), mirror.OneLine(p.bootstrap))
	if done.Skipped > 0 {
		fmt.Fprintf(p.out, "skipped: %d (--skip)\n", done.Skipped)
	}
	if l := done.LeftOut; l != (dropped.Counts{}) {
		fmt.Fprintf(p.out, "left out: %d aborted, %d open when the log was cut, %d whose transaction's end is unknown; --every writes them too\n", l.Aborted, l.Open, l.Unknown)
	}
	if done.Again > 0 {
		fmt.Fprintf(p.out, "left out: %d that another file has too\n", done.Again)
	}
	for _, d := range done.Damage {
		fmt.Fprintln(p.out, mirror.OneLine("not read: "+d))
	}
	switch {
	case done.Error != nil && done.NotAnswered > 0:
		fmt.Fprintf(p.out, "of the next %d, from %s on, it is not known which are there: look at the headers %s, %s and %s of what the topic has; to go on behind what is acknowledged: --skip %d\n",
			done.NotAnswered, mirror.OneLine(done.FirstOfThose), fromTopic, fromPartition, fromOffset, done.Skipped+done.Records)
	case done.DryRun:
		fmt.Fprintln(p.out, "nothing was written; --yes writes. Writing twice makes records twice: each has headers that say where it was")
	}
}

// checkDropped refuses what is missing or contradicts itself.
func (o *options) checkDropped() error {
	switch {
	case o.print && o.replay:
		return usage("--print shows records, and --replay writes them: leave one of the two out")
	case !o.replay && (o.into != "" || o.every || o.skip != 0 || o.yes):
		return usage("--into, --every, --skip and --yes are for --replay")
	case !o.replay && (o.bootstrap != "" || o.store != "" || o.commandConfig != ""):
		return usage("--dropped reads a folder and asks nobody: --bootstrap-server, --command-config and --store are for other verbs, or for --replay")
	case o.replay && (o.bootstrap == "" || o.store != ""):
		return usage("--replay needs --bootstrap-server HOST:PORT: the cluster to write to")
	case o.replay && o.into == "":
		return usage("--replay needs --into TOPIC")
	case o.skip < 0:
		return usage("--skip has to be 0 or more")
	}
	if info, err := os.Stat(o.droppedDir); err == nil && !info.IsDir() {
		return usage("--dropped %s: this is a file; name the folder, which has TOPIC/PARTITION in it", o.droppedDir)
	}
	return nil
}
