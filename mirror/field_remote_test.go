package mirror_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestF86SlowRemoteReadsAreNoFailure: the older half of a log is in the source's remote storage, and a read of it takes longer than any bound of ours. All of it is copied in order,
// nothing is FAILED or tried again, no empty reply is taken for a hole, and the plan of a failover in between knows what is missing.
func TestF86SlowRemoteReadsAreNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, 1, func(c *mirror.Config) { c.Fetch.PartitionMaxBytes = 1 }) // a batch a reply, so each one is read from remote storage by itself
		p.a.fill("t", 0, 10)
		const takes = 3 * time.Minute // the watchdog barks after one
		if err := p.a.SetRemote("t", 0, 5, takes); err != nil {
			t.Fatal(err)
		}
		p.start("t")
		waits := p.untilOne("waiting for remote storage", "t", 0, func(x mirror.PartitionStatus) bool { return x.Reason != "" && x.State == statemachine.Mirroring })
		expectWords(t, waits.Reason, "remote storage", "offset 0", "up to 5")
		time.Sleep(takes / 2) // virtual
		x := p.one("t", 0)
		expect(t, "state", x.State, statemachine.Mirroring)
		if x.LagOffsets != 10 || x.NothingLeft {
			t.Errorf("lag %d, nothing left %v", x.LagOffsets, x.NothingLeft)
		}
		plan := mirror.PlanFailover(p.Snapshot(), mirror.FailoverOptions{})
		if plan.Severity == mirror.SeveritySafe {
			t.Errorf("a failover that gives up what is in remote storage is called safe:\n%s", plan)
		}
		p.inStepAndSame()
		for _, e := range p.told() {
			switch e := e.(type) {
			case mirror.NothingLeft, mirror.RetryScheduled, mirror.SourceTrouble, mirror.RecordsLost:
				t.Errorf("told: %s", e)
			case mirror.StateChanged:
				if e.To == statemachine.Failed {
					t.Errorf("told: %s", e)
				}
			}
		}
	})
}

// TestF86RemoteReadsThatFail: what a broker says when its remote storage fails is waited out.
func TestF86RemoteReadsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, 1)
		p.a.fill("t", 0, 10)
		failing := time.Now().Add(3 * time.Minute)
		p.a.SetHooks(memlog.Hooks{Reply: func(_ int32, reply []mirror.FetchedPartition) []mirror.FetchedPartition {
			for i := range reply {
				if time.Now().Before(failing) && len(reply[i].Records) > 0 {
					reply[i].Records, reply[i].HighWatermark, reply[i].LogStart, reply[i].LastStable = nil, -1, -1, -1
					reply[i].Err = &mirror.SourceError{Code: mirror.SourceOther, Operation: "fetch", Partition: reply[i].TopicPartition, Err: context.DeadlineExceeded}
				}
			}
			return reply
		}})
		p.start("t")
		p.inStepAndSame()
		for _, e := range eventsOf[mirror.StateChanged](p.running) {
			if e.To == statemachine.Failed {
				t.Errorf("told: %s", e)
			}
		}
	})
}

// counting counts what a sink is handed.
type counting struct{ n int }

func (c *counting) Dropped(context.Context, mirror.TopicPartition, int64, int64, []byte) error {
	c.n++
	return nil
}

// TestF86CutIntoRemoteStorageIsRefused: the copy would have to be cut in its remote part. That is FAILED before anything is changed, with consent too, and not tried again.
func TestF86CutIntoRemoteStorageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &counting{}
		p := newPair(t, 1, func(c *mirror.Config) { c.Sink = sink })
		p.a.fill("t", 0, 6)
		p.b.local("t", 1)
		p.b.fill("t", 0, 9)
		if err := p.b.SetRemote("t", 0, 4, 0); err != nil {
			t.Fatal(err)
		}
		before := p.b.raw("t", 0)
		untouched := func(when string) {
			t.Helper()
			x := p.untilFailed("t", 0, "cannot truncate into remote storage", "down to 4 only", "Nothing was changed")
			if x.RetryAttempt != statemachine.NonRetryable || x.Owner != mirror.OwnerOpen || sink.n > 0 || !bytes.Equal(p.b.raw("t", 0), before) {
				t.Errorf("%s: attempt %d, %s, %d pieces handed to the sink, log changed %v", when, x.RetryAttempt, x.Owner, sink.n, !bytes.Equal(p.b.raw("t", 0), before))
			}
		}
		p.start("t")
		untouched("a start")
		topic, err := p.b.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		consent := mirror.Consent{TopicID: topic.ID, From: 0, To: 9, Episode: 1}
		if _, err := p.Admin().Start(t.Context(), []string{"t"}, mirror.StartOptions{Consents: []mirror.Consent{consent}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual: no retry brings it about
		untouched("a start with consent")
		p.b.produce("t", 0, "clients go on")
	})
}

// TestF86DestinationThatRefusesRemoteStorage: a destination that takes over no log with remote storage says so when the log is to be closed. That is FAILED at once, and nothing has changed.
func TestF86DestinationThatRefusesRemoteStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, 1)
		p.b.local("t", 1)
		var asked int
		p.b.SetHooks(memlog.Hooks{Before: func(_ context.Context, call memlog.Call) error {
			if call.Operation == "Log.CloseForWrites" {
				asked++
				return fmt.Errorf("topic t is tiered: %w", mirror.ErrRemoteStorage)
			}
			return nil
		}})
		p.start("t")
		x := p.untilFailed("t", 0, "cannot be closed for client writes", "topic t is tiered")
		time.Sleep(time.Hour) // virtual
		if x.RetryAttempt != statemachine.NonRetryable || x.Owner != mirror.OwnerOpen || asked != 1 {
			t.Errorf("attempt %d, %s, asked %d times", x.RetryAttempt, x.Owner, asked)
		}
		p.b.produce("t", 0, "clients go on")
	})
}
