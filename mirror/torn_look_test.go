package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/txncut"
)

// tornSnapshot is of a night on which a v2 transaction and a v1 transaction are torn, a third one has nothing to do with them, and not all was looked at.
func tornSnapshot() Snapshot {
	orders, payments, audit := mirrored("orders", 0, 1000, 1000, 14*time.Minute), mirrored("payments", 0, 500, 510, 14*time.Minute), mirrored("payments", 1, 70, 70, 14*time.Minute)
	payments.InFlight = []Transaction{{7, 1, 480, 484}, {9, 0, 470, 490}}
	payments.LastStable = 470
	audit.InFlight = []Transaction{{7, 1, 60, 61}, {11, 4, 50, 50}}
	audit.LastStable = 50
	s := eastSnapshot(orders, payments, audit)
	s.SourceError = "dial tcp 10.0.0.1:9092: connect: connection refused"
	committed := func(id int64, epoch, markerEpoch int16, first, at int64) txncut.Piece {
		return txncut.Piece{ProducerID: id, ProducerEpoch: epoch, FirstOffset: first, LastOffset: at - 1, FirstTimestamp: 1000, Outcome: txncut.Committed, MarkerOffset: at, MarkerEpoch: markerEpoch, MarkerTimestamp: 2000}
	}
	open := func(id int64, epoch int16, first, last int64) txncut.Piece {
		return txncut.Piece{ProducerID: id, ProducerEpoch: epoch, FirstOffset: first, LastOffset: last, FirstTimestamp: 1500, MarkerOffset: -1, MarkerEpoch: -1, MarkerTimestamp: -1}
	}
	s.Transactions = &TransactionLook{Taken: planTime, Copies: []CopyLook{
		{TopicPartition: TopicPartition{"payments", 1}, End: 70, Pieces: []txncut.Piece{open(7, 1, 60, 61), open(11, 4, 50, 50)}},
		{TopicPartition: TopicPartition{"payments", 0}, End: 500, From: 100, Pieces: []txncut.Piece{open(7, 1, 480, 484), open(9, 0, 470, 490)}},
		{TopicPartition: TopicPartition{"orders", 0}, End: 1000, Pieces: []txncut.Piece{committed(7, 1, 2, 980, 990), committed(9, 0, 0, 900, 910), committed(9, 0, 0, 920, 930)}},
	}}
	return s
}

// TestReportOfTornTransactions is what a report shows of them.
func TestReportOfTornTransactions(t *testing.T) {
	s := tornSnapshot()
	r := FailoverReport{Mirror: "east", SourceClusterID: s.SourceClusterID, DestinationClusterID: s.DestinationClusterID, Began: planTime, Took: 40 * time.Millisecond,
		TornTransactions: s.Transactions.torn(0), Partitions: []FailoverResult{{Topic: "orders", FinalOffset: 1000, LME: 5, OpensAt: 1001, ResetAt: 1000, SourceEnd: Unknown}}}
	golden(t, "failover-report-torn.txt", []byte(r.String()))
}

// memoryCopy is a log of batches, which counts what is read of it.
type memoryCopy struct {
	batches [][]byte
	bases   []int64
	end     int64
	read    int
	most    int // the largest answer
	fails   error
}

func (c *memoryCopy) Start() int64 { return c.bases[0] }
func (c *memoryCopy) End() int64   { return c.end }
func (c *memoryCopy) Read(_ context.Context, from int64, most int) (b []byte, err error) {
	for i, x := range c.batches {
		next := c.end
		if i+1 < len(c.bases) {
			next = c.bases[i+1]
		}
		if next <= from || len(b) > 0 && len(b)+len(x) > most {
			continue
		}
		b = append(b, x...)
		if len(b) >= most {
			break
		}
	}
	c.read += len(b)
	c.most = max(c.most, len(b))
	return b, c.fails
}

// add appends a batch of one record of size bytes.
func (c *memoryCopy) add(spec batch.DataSpec, size int) {
	spec.BaseOffset = c.end
	spec.Records = []batch.Record{{Value: make([]byte, size)}}
	c.bases, c.batches = append(c.bases, c.end), append(c.batches, batch.AppendData(nil, spec))
	c.end++
}

func (c *memoryCopy) commit(id int64, epoch int16) {
	c.bases, c.batches = append(c.bases, c.end), append(c.batches, batch.AppendControl(nil, batch.ControlSpec{BaseOffset: c.end, ProducerID: id, ProducerEpoch: epoch, BaseSequence: -1,
		Transactional: true, Timestamp: 1000, Key: []byte{0, 0, 0, byte(batch.ControlCommit)}, Value: make([]byte, 6)}))
	c.end++
}

// TestALookAtTransactionsIsBoundedInBytes: it reads the newest part, no more than it may, says down to where, and knows what is open although it began below.
func TestALookAtTransactionsIsBoundedInBytes(t *testing.T) {
	c := &memoryCopy{}
	c.add(batch.DataSpec{ProducerID: 9, ProducerEpoch: 3, Transactional: true, BaseTimestamp: 1000}, 100) // open to the end
	for range 5000 {
		c.add(batch.DataSpec{ProducerID: -1, BaseTimestamp: 1000}, 100)
	}
	c.add(batch.DataSpec{ProducerID: 7, ProducerEpoch: 1, Transactional: true, BaseTimestamp: 1000}, 100)
	c.commit(7, 2)
	c.add(batch.DataSpec{ProducerID: -1, BaseTimestamp: 1000}, 100)
	open := []Transaction{{9, 3, 0, 0}}
	size := len(c.batches[1])
	for _, most := range []int{size, 100 * size, 1000 * size, 100_000 * size} {
		c.read, c.most = 0, 0
		look := CopyLook{TopicPartition: TopicPartition{"t", 0}, End: c.end, From: c.end}
		look.read(t.Context(), boundedLog{c, time.Second, readChunk}, most, open)
		all := most > 10_000*size
		if c.read > most+2*size || all != (look.From == 0) || look.Error != "" {
			t.Errorf("of %d bytes %d were read, down to %d: %s", most, c.read, look.From, look.Error)
		}
		var found []string
		for _, p := range look.Pieces {
			found = append(found, fmt.Sprint(p.ProducerID, " ", p.ProducerEpoch, " from ", p.FirstOffset, " ", p.Outcome))
		}
		want := []string{"7 1 from 5001 committed", "9 3 from 0 open"}
		if all {
			want = []string{"9 3 from 0 open", "7 1 from 5001 committed"}
		}
		if most == size {
			want = want[1:]
		}
		if !reflect.DeepEqual(found, want) {
			t.Errorf("with %d bytes: %q, want %q", most, found, want)
		}
	}
	c.fails = errors.New("no disk")
	look := CopyLook{TopicPartition: TopicPartition{"t", 0}, End: c.end, From: c.end}
	look.read(t.Context(), boundedLog{c, time.Second, readChunk}, 1000*size, open)
	if !strings.Contains(look.Error, "no disk") || look.From != c.end || len(look.Pieces) != 1 {
		t.Errorf("of a log that cannot be read: %+v", look)
	}
}

// TestTornTransactionsFitAReport: and say how many are left out.
func TestTornTransactionsFitAReport(t *testing.T) {
	all := TornTransactions{Looked: planTime}
	for i := range 1000 {
		x := TornTransaction{ProducerID: int64(i)}
		for p := range 1000 {
			x.Committed = append(x.Committed, TransactionPlace{"orders", int32(p), 1 << 40})
			x.Aborted = append(x.Aborted, TransactionPlace{"payments", int32(p), 1 << 40})
		}
		all.Transactions = append(all.Transactions, x)
		all.Unlooked = append(all.Unlooked, UnlookedCopy{Topic: "orders", Partition: int32(i), Below: 1 << 40, Reason: strings.Repeat("x", 10_000)})
	}
	v := all.valid()
	b, err := json.Marshal(v)
	if err != nil || len(b) > 400_000 || v.More != 950 || v.MoreUnlooked != 950 {
		t.Errorf("%d bytes, %d more, %d more: %v", len(b), v.More, v.MoreUnlooked, err)
	}
	if line := v.words(); line != "50 torn, 950 more" {
		t.Error(line)
	}
	if len(all.Transactions[0].Committed) != 1000 {
		t.Error("what was found was changed")
	}
	c := NewMemoryControl()
	r, err := c.OpenReporter(t.Context(), "o")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Report(t.Context(), NodeReport{Owner: "o", Mirror: "m", Torn: &all}, nil); err != nil {
		t.Fatal(err)
	}
	reports, err := c.Reports(t.Context())
	if err != nil || !reflect.DeepEqual(reports.Nodes[0].Torn, v) {
		t.Errorf("%v\n%+v\n%+v", err, reports.Nodes[0].Torn, v)
	}
}
