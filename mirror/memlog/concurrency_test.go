package memlog_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestEverythingAtOnce produces, elects, holds replicas back, trims and asks while one fetcher copies the log. The copy must be the log.
func TestEverythingAtOnce(t *testing.T) {
	const writes = 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from, topic := source(t, memlog.Config{Brokers: 2, Replicas: 3})
	to, log := destination(t, memlog.Config{Replicas: 2})
	if _, err := from.CreateLocalTopic(memlog.LocalTopic{Name: "other"}); err != nil {
		t.Fatal(err)
	}

	var writers, others sync.WaitGroup
	writers.Go(func() {
		for range writes {
			if _, err := from.Produce(ctx, "orders", 0, records("plain")...); err != nil {
				t.Error(err)
				return
			}
		}
	})
	writers.Go(func() {
		p := from.NewProducer(memlog.ProducerOptions{Transactions: memlog.TransactionV2})
		for i := range writes / 4 {
			if err := p.Begin(); err != nil {
				t.Error(err)
				return
			}
			end := p.Commit
			if i%3 == 0 {
				end = p.Abort
			}
			_, err := p.Produce(ctx, "orders", 0, records("in a transaction")...)
			if err := errors.Join(err, end(ctx)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	writers.Go(func() {
		for i := range writes {
			switch i % 8 {
			case 0:
				from.ElectLeader("orders", 0)
			case 1:
				from.HoldReplica("orders", 0, 1)
			case 2:
				from.KillReplica("orders", 0, 2)
			case 3:
				from.ReleaseReplica("orders", 0, 1)
			case 4:
				from.ReviveReplica("orders", 0, 2)
			case 5:
				from.RecreateTopic("other", 2)
			case 6:
				from.Produce(ctx, "other", 0, records("x")...)
			}
		}
		from.ReleaseReplica("orders", 0, 1)
	})
	others.Go(func() {
		for ctx.Err() == nil {
			from.Topics(ctx)
			from.Offsets(ctx, []mirror.TopicPartition{orders, {Topic: "other"}})
			from.EndOffsetForEpoch(ctx, orders, -1, 3)
			from.OffsetsAt(ctx, time.Now(), []mirror.TopicPartition{orders})
			from.Consume(ctx, "orders", 0, 0, memlog.ReadCommitted)
		}
	})
	finished := make(chan struct{})
	go func() { writers.Wait(); close(finished) }()

	copied := func() bool {
		select {
		case <-finished:
		default:
			return false
		}
		if t.Failed() {
			return true
		}
		offsets, err := from.Offsets(ctx, []mirror.TopicPartition{orders})
		return err == nil && offsets[orders].HighWatermark == log.End() && offsets[orders].HighWatermark >= writes+writes/2
	}
	leader, epoch := int32(1), int32(0)
	for !copied() {
		f, err := from.OpenFetcher(ctx, leader, mirror.FetchOptions{MaxWait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for moved := false; !moved && !copied(); {
			f.Want(mirror.FetchPosition{TopicPartition: orders, TopicID: topic.ID, Offset: log.End(), LeaderEpoch: epoch, LastEpoch: -1})
			reply, err := f.Fetch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range reply {
				if p.Err != nil {
					if p.CurrentLeader == nil {
						t.Fatal(p.Err)
					}
					moved, leader, epoch = true, p.CurrentLeader.Leader, p.CurrentLeader.LeaderEpoch
					continue
				}
				if len(p.Records) == 0 {
					continue
				}
				now, err := to.RaiseLeaderEpochs(ctx, map[mirror.TopicPartition]int32{orders: epoch})
				if err == nil {
					err = log.Append(ctx, now[orders], p.Records)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		f.Close()
	}
	cancel()
	others.Wait()
	a, _ := from.RawLog("orders", 0)
	b, _ := to.RawLog("orders", 0)
	if !bytes.Equal(a, b) {
		t.Errorf("the copy, %d bytes, is not the log, %d bytes", len(b), len(a))
	}
}
