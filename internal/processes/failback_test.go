package processes_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestAFailbackUnderAnotherName: a mirror is stopped, and another process fails back under another name and another owner, into the old source, with states of its own. It
// learns where the mirror had ended from the records of the first one, gives up exactly what was never mirrored, and ends with the bytes of the new primary.
func TestAFailbackUnderAnotherName(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const m, topic = "there", "there-orders"
		src := startSource(t, "primary", topic)
		src.produce(topic, 5)
		first := begin(t, p, "first")
		first.do(order{Do: "open", Mirror: m, Owner: "there-worker", Seeds: src.seeds()})
		exists(t, mirror.NewControl(look(t, p)), m)
		first.verb(m, "start", topic)
		first.untilEnd(topic, 5)
		first.verb(m, "stop", topic)
		first.untilState(topic, "STOPPED")
		src.produce(topic, 3) // never mirrored
		here := first.do(order{Do: "log", Topic: topic}).Log

		second := begin(t, place{Dir: t.TempDir()}, "second")
		a := second.do(order{Do: "failback", Mirror: "back", Owner: "back-worker", Topic: topic, Back: &failback{Records: p, Old: src.everything(topic), OldID: src.id(topic), New: here}})
		if a.Dropped != [2]int64{5, 8} {
			t.Errorf("the plan gives up [%d,%d), never mirrored was [5,8)", a.Dropped[0], a.Dropped[1])
		}
		if !bytes.Equal(a.Log.Bytes, here.Bytes) || a.Log.End != here.End {
			t.Errorf("the old source has %d bytes up to %d, the new primary %d up to %d", len(a.Log.Bytes), a.Log.End, len(here.Bytes), here.End)
		}
	})
}

// failback is what the second process needs: the logs of both clusters, which it has in memory, and where the new primary keeps its records.
type failback struct {
	Records place
	Old     []byte
	OldID   mirror.TopicID // of the topic in the old source: an end that was recorded for another id says nothing of it
	New     copied
}

type inMemory = memlog.Cluster // a Cluster that is embedded under its own name would hide the method

// primary is a cluster in memory whose mirrors keep their records elsewhere.
type primary struct {
	*inMemory
	states statemachine.StateStore
}

// LastMirrorEpochs answers from the records of the mirror that was stopped.
func (c primary) LastMirrorEpochs(ctx context.Context, source string, partitions []mirror.TopicPartition) (map[mirror.TopicPartition]statemachine.LastMirrorEpoch, error) {
	found := map[mirror.TopicPartition]statemachine.LastMirrorEpoch{}
	for _, tp := range partitions {
		topic, err := c.Topic(ctx, tp.Topic)
		if err != nil {
			return nil, err
		}
		if err := c.states.Load(ctx, func(e statemachine.Entry) error {
			if e.Key.TopicID == topic.ID && e.Key.Partition == tp.Partition && e.LME != nil && e.LME.SourceClusterID == source {
				found[tp] = *e.LME
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// failBack does all of a failback in this process.
func (c *process) failBack(ctx context.Context, o order, a *answer) (err error) {
	records, err := o.Back.Records.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	now := primary{memlog.New(memlog.Config{ClusterID: destinationID}), keyedlog.NewStateStore(records)}
	old := memlog.New(memlog.Config{ClusterID: "primary"})
	topic, err := now.CreateTopic(ctx, mirror.TopicSpec{Name: o.Topic, Partitions: 1, SourceID: o.Back.New.TopicID})
	if err != nil {
		return err
	}
	if _, err := old.CreateLocalTopic(memlog.LocalTopic{Name: o.Topic, ID: o.Back.OldID, Partitions: 1}); err != nil {
		return err
	}
	for cluster, raw := range map[*memlog.Cluster][]byte{now.inMemory: o.Back.New.Bytes, old: o.Back.Old} {
		epoch := int32(0)
		for b := range mirror.Batches(raw) {
			epoch = max(epoch, b.LeaderEpoch)
		}
		if err := cluster.ImportLog(o.Topic, 0, raw, 0, epoch); err != nil {
			return err
		}
	}
	tp := mirror.TopicPartition{Topic: topic.Name}
	l, err := now.OpenLog(ctx, tp)
	if err == nil {
		err = l.Open(ctx) // for clients: it is the primary
	}
	if err != nil {
		return err
	}
	m, err := mirror.Open(ctx, mirror.Config{
		Name: o.Mirror, Owner: o.Owner, Source: now, Destination: old, Store: keyedlog.NewStateStore(c.records), Control: c.control, Sink: mirror.Discard,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	plan, err := m.PlanFailback(ctx, o.Topic)
	if err != nil {
		return err
	}
	report, err := m.ExecuteFailback(ctx, plan)
	if err != nil {
		return err
	}
	for _, p := range report.Partitions {
		a.Dropped = [2]int64{p.DroppedFrom, p.DroppedTo}
	}
	copyOf, err := old.OpenLog(ctx, tp)
	if err != nil {
		return err
	}
	a.Log.End = copyOf.End()
	a.Log.Bytes, err = old.RawLog(o.Topic, 0)
	return err
}
