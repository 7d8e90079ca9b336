package mirror_test

import (
	"context"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// transactional is a source that tells transactional ids.
type transactional struct{ *home }

type home = memlog.Cluster

func (transactional) TransactionalIDs(context.Context) ([]mirror.TransactionalID, error) {
	return []mirror.TransactionalID{{Name: "a", ProducerID: 1, State: "Empty"}, {Name: "b", ProducerID: 2, State: "Ongoing"}}, nil
}

// keptPlan is what the process at a cluster has kept.
func keptPlan(t *testing.T, s *side) *mirror.KeptPlan {
	t.Helper()
	r, err := s.Control().Reports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range r.Nodes {
		if n.Kept != nil {
			return n.Kept
		}
	}
	return nil
}

// TestAcceptance4_12APlanFromBeforeTheDisasterIsThereWhenTheSourceIsGone: made at every refresh, with what was gathered around the records; it outlives the source, and the process.
func TestAcceptance4_12APlanFromBeforeTheDisasterIsThereWhenTheSourceIsGone(tt *testing.T) {
	bubble(tt, func(tt *testing.T) {
		m := copying(tt, 1, 10, func(c *mirror.Config) { c.Source = transactional{c.Source.(*memlog.Cluster)} })
		m.a.local("left-at-home", 1)
		m.b.SetDenied(mirror.Right{Operation: "Alter", Resource: "Cluster"})
		refreshes(12)
		first := keptPlan(tt, m.b)
		if first == nil {
			tt.Fatal("no plan is kept")
		}
		if first.Partitions != 1 || first.Severity != mirror.SeveritySafe || first.Loss.String() != "none" || time.Since(first.Taken) > 2*time.Minute {
			tt.Errorf("%+v", first)
		}
		s := first.Surroundings
		expect(tt, "topics that are not mirrored", s.NotMirrored.Names, []string{"left-at-home"})
		expect(tt, "transactional ids", s.TransactionalIDs.Count, 2)
		expect(tt, "in a transaction", s.TransactionalIDs.IDs[0].Name, "b")
		if next, known := s.NextProducerID.Number.Value(); !known || next < 0 || s.NextProducerID.Seen.IsZero() {
			tt.Errorf("producer ids: %+v", s.NextProducerID)
		}
		if s.MissingRights.Count != 1 {
			tt.Errorf("rights: %+v", s.MissingRights)
		}
		refreshes(2)
		last := keptPlan(tt, m.b)
		if !last.Taken.After(first.Taken) {
			tt.Error("no plan was made at later refreshes")
		}

		m.a.SetUnreachable(true)
		refreshes(20)
		dead := keptPlan(tt, m.b)
		if time.Since(dead.Taken) < 5*time.Minute || dead.Taken.Before(last.Taken) {
			tt.Errorf("a plan of %s from a source that was gone since %s", dead.Taken, last.Taken)
		}
		expectWords(tt, mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}).String(), "TRANSACTIONAL IDS at the source: 2, 1 in a transaction (b), seen ", "NOT MIRRORED: 1 topic of the source (left-at-home), seen ",
			"RIGHTS MISSING at the destination, looked at ")

		m.again(tt) // another process, which never reaches the source
		refreshes(3)
		after := keptPlan(tt, m.b)
		expect(tt, "kept by the one before", after.Taken.Equal(dead.Taken), true)
		d, err := m.Admin().Describe(tt.Context())
		if err != nil {
			tt.Fatal(err)
		}
		expectWords(tt, d.String(), "LAST PLAN while the source answered, made ")
		expectWords(tt, d.BeforeStop("t"), "LAST PLAN while the source answered, made ", "TRANSACTIONAL IDS at the source: 2, ", "NOT MIRRORED: 1 topic of the source (left-at-home), seen ")
		expectWords(tt, mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{}).String(), "TRANSACTIONAL IDS at the source: 2, ")
	})
}
