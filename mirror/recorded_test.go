package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// denyRecords makes a source answer with err when it is asked what it recorded as a destination.
func denyRecords(s *side, err error) {
	s.SetHooks(memlog.Hooks{Before: func(_ context.Context, call memlog.Call) error {
		if call.Operation == "Source.LastMirrorEpochs" {
			return err
		}
		return nil
	}})
}

// TestADeniedRecordStopsThoseAloneThatNeedIt: topics that are mirrored already go on, over an election too, however often another one's start is refused.
func TestADeniedRecordStopsThoseAloneThatNeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A", Brokers: 2}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("old", 1)
		a.local("new", 1)
		a.fill("old", 0, 1)
		m := open(t, "a-to-b", a.Cluster, b)
		defer m.close()
		m.start("old")
		m.until("in step", func(s mirror.Status) bool { return each(s, inStep) })
		denyRecords(a, &mirror.SourceError{Code: mirror.SourceDenied, Operation: "last mirror epochs", Err: errors.New("denied"), Advice: "grant it"})
		m.start("new")
		m.untilFailed("new", 0, "denied", "grant it")
		time.Sleep(10 * time.Minute) // virtual
		if _, err := a.ElectLeader("old", 0); err != nil {
			t.Fatal(err)
		}
		a.fill("old", 0, 1)
		time.Sleep(5 * time.Second) // virtual
		if p := m.one("old", 0); p.End != 2 || !inStep(p) {
			t.Errorf("five seconds after an election: %s", show(m.Status()))
		}
		denyRecords(a, nil)
		m.until("all in step", func(s mirror.Status) bool { return each(s, inStep) })
	})
}

// TestDecision7WithoutARightToSeeRecordsNoFailbackIsPlanned: a start of an empty copy needs nothing of them; a plan that does not know them would give everything up.
func TestDecision7WithoutARightToSeeRecordsNoFailbackIsPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(t, memlog.Config{ClusterID: "A"}), newSide(t, memlog.Config{ClusterID: "B"})
		a.local("t", 1)
		a.fill("t", 0, 3)
		unseen := &mirror.SourceError{Code: mirror.SourceDenied, Operation: "last mirror epochs", Err: fmt.Errorf("%w: denied", mirror.ErrUnsupported), Advice: "grant it"}
		denyRecords(a, unseen)
		m := open(t, "a-to-b", a.Cluster, b)
		defer m.close()
		m.start("t")
		m.untilInStep()
		for err, refused := range map[error]bool{unseen: true, mirror.ErrUnsupported: false} {
			denyRecords(a, err)
			plan, planErr := m.PlanFailback(t.Context(), "t")
			if planErr != nil {
				t.Fatal(planErr)
			}
			expect(t, "refused", plan.Severity == mirror.SeverityRefused, refused)
			if refused {
				expectWords(t, plan.String(), "denied", "grant it")
				expect(t, "consents", len(plan.Consents()), 0)
			}
		}
		// A log that clients wrote is not given up because of it.
		b.local("own", 1)
		b.fill("own", 0, 2)
		a.local("own", 1)
		denyRecords(a, unseen)
		m.start("own")
		p := m.untilFailed("own", 0)
		expect(t, "owner", p.Owner, mirror.OwnerOpen)
		expect(t, "end", p.End, 2)
		expect(t, "state", p.State, statemachine.Failed)
	})
}
