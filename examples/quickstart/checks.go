package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// checklist is what was checked, and what did not hold.
type checklist struct {
	lines  []string
	failed []string
}

func (c *checklist) check(name string, err error) {
	if err != nil {
		c.failed = append(c.failed, fmt.Sprintf("%q", name))
		c.lines = append(c.lines, "  NO   "+name+": "+err.Error())
		return
	}
	c.lines = append(c.lines, "  yes  "+name)
}

func (c *checklist) String() string { return "Checks:\n" + strings.Join(c.lines, "\n") }

func (c *checklist) err() error {
	if len(c.failed) > 0 {
		return fmt.Errorf("%d of %d checks did not hold: %s", len(c.failed), len(c.lines), strings.Join(c.failed, ", "))
	}
	return nil
}

// copyIsSource: below its final offset every partition of the copy has the source's bytes.
func (c *checklist) copyIsSource(ctx context.Context, d *disk, copy *memlog.Cluster, report mirror.FailoverReport) {
	name := "the copy has the source's bytes at the source's offsets"
	for _, p := range report.Partitions {
		got, err := readLog(ctx, copy, p.Topic, p.Partition)
		if err != nil {
			c.check(name, err)
			return
		}
		if want := below(d.log(p.Topic, p.Partition), p.FinalOffset); !bytes.Equal(below(got, p.FinalOffset), want) {
			c.check(name, fmt.Errorf("%s-%d differs below its final offset %d", p.Topic, p.Partition, p.FinalOffset))
			return
		}
	}
	c.check(name, nil)
}

// below is the part of a log whose batches begin below an offset.
func below(log []byte, offset int64) []byte {
	n := 0
	for info, b := range mirror.Batches(log) {
		if info.Base >= offset {
			break
		}
		n += len(b)
	}
	return log[:n]
}

// markers: 0 to 2 are the source's, then one ABORT for each transaction that was open, then the reset, and nothing else.
func (c *checklist) markers(log []byte, one, two *transaction) {
	var got []string
	for info, b := range mirror.Batches(log) {
		got = append(got, fmt.Sprintf("%d %s %d", info.Base, mirror.Kind(b), info.ProducerID))
	}
	want := []string{
		fmt.Sprintf("0 data %d", one.id), fmt.Sprintf("1 data %d", two.id), fmt.Sprintf("2 data %d", one.id),
		fmt.Sprintf("3 ABORT %d", one.id), fmt.Sprintf("4 ABORT %d", two.id), "5 MIRROR_PID_RESET -1",
	}
	var err error
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		err = fmt.Errorf("the log is [%s], not [%s]", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	c.check("one ABORT for each open transaction, then one MIRROR_PID_RESET", err)
}

func (c *checklist) firstRecord(offset int64) {
	var err error
	if offset != 6 {
		err = fmt.Errorf("the first new record is at offset %d, not 6", offset)
	}
	c.check("the first new record follows the markers", err)
}

// readCommitted: consumers of the new primary see no record of an aborted transaction, and every new one.
func (c *checklist) readCommitted(ctx context.Context, primary *memlog.Cluster) {
	records, err := primary.Consume(ctx, payments, 0, 0, memlog.ReadCommitted)
	var got []string
	for _, r := range records {
		got = append(got, fmt.Sprintf("%d %s", r.Offset, r.Value))
	}
	if err == nil && strings.Join(got, ", ") != "6 new payment 1, 7 new payment 2" {
		err = fmt.Errorf("read_committed shows [%s]", strings.Join(got, ", "))
	}
	c.check("read_committed consumers see the new payments and nothing of the aborted transactions", err)
}

// identical: after the failback both clusters hold the same bytes. It returns the number of batches compared.
func (c *checklist) identical(ctx context.Context, old, primary *memlog.Cluster) int64 {
	var n int64
	var failed error
	for _, tp := range []mirror.TopicPartition{{Topic: payments}, {Topic: orders}, {Topic: orders, Partition: 1}, {Topic: orders, Partition: 2}} {
		a, err := old.OpenLog(ctx, tp)
		if err == nil {
			var b mirror.Log
			if b, err = primary.OpenLog(ctx, tp); err == nil {
				var comparison mirror.Comparison
				comparison, err = mirror.Compare(ctx, a, b, mirror.CompareOptions{})
				n += comparison.Batches
				fmt.Printf("%s-%d: %s\n", tp.Topic, tp.Partition, comparison)
				if err == nil && !comparison.Equal() {
					err = fmt.Errorf("%s-%d: %s", tp.Topic, tp.Partition, comparison)
				}
			}
		}
		failed = errors.Join(failed, err)
	}
	c.check("both clusters are byte-identical after the failback", failed)
	return n
}

// verified: the failback's own comparison, made while both clusters were in use, says the same.
func (c *checklist) verified(v mirror.Verification) {
	var err error
	if v.Verdict() != mirror.VerifiedIdentical {
		err = fmt.Errorf("%s %s", v.Verdict(), v.NotDone)
	}
	c.check("the failback has verified that by itself", err)
}

// asPlanned: what the old source gave up is exactly what the plan named.
func (c *checklist) asPlanned(plan mirror.FailbackPlan, sink *memorySink) {
	var err error
	if plan.Dropped == 0 || sink.offsets != plan.Dropped {
		err = fmt.Errorf("the plan gives up %d offsets, the sink has %d", plan.Dropped, sink.offsets)
	}
	c.check("the old source gave up exactly what the plan named", err)
}

// nothingLost: each record that the source had when it died is in the copy, below the final offset, or in the sink.
func (c *checklist) nothingLost(ctx context.Context, d *disk, primary *memlog.Cluster, report mirror.FailoverReport, sink *memorySink) {
	var failed error
	for _, p := range report.Partitions {
		log, err := readLog(ctx, primary, p.Topic, p.Partition)
		had, copied := countRecords(d.log(p.Topic, p.Partition)), countRecords(below(log, p.FinalOffset))
		kept := sink.kept[mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}]
		if err == nil && copied+kept != had {
			err = fmt.Errorf("%s-%d: the source had %d records, the copy has %d of them and the sink %d", p.Topic, p.Partition, had, copied, kept)
		}
		failed = errors.Join(failed, err)
	}
	c.check("no record is lost: each one of the old source is in the copy or in the sink", failed)
}
