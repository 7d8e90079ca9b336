package kraft_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaRetentionOfCopies: the stock brokers delete from their copies what is older than their retention. The log begins where they begin, and it is told.
func TestRealKafkaRetentionOfCopies(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 2, Config: map[string]string{"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}})
	j := join(t, c)
	l := j.create("retained", 1)
	old := batch.DataSpec{LeaderEpoch: 0, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, BaseTimestamp: time.Now().AddDate(0, 0, -30).UnixMilli()}
	for i := range int32(20) {
		old.Records = append(old.Records, batch.Record{OffsetDelta: i, Value: []byte("old")})
	}
	appendTo(t, l, batch.AppendData(nil, old))
	await(t, l)
	appendTo(t, l, data(20, 0, 3, "new")) // so much younger that it begins another segment
	eventually(t, "the log to begin where the copies begin", func() bool { return l.Start() == 20 })
	await(t, l)
	if l.End() != 23 || l.Replicated() != 23 {
		t.Errorf("it ends at %d, replicated to %d", l.End(), l.Replicated())
	}
	if _, err := l.Read(bound(t), 0, 1000); !errors.Is(err, mirror.ErrOffsetOutOfRange) {
		t.Errorf("a read of what is deleted: %v", err)
	}
	if b, err := l.Read(bound(t), 20, 1000); err != nil || len(b) == 0 {
		t.Errorf("a read of what is there: %d bytes, %v", len(b), err)
	}
	if e := j.saw(kraft.Trouble); !strings.Contains(e.Text, "offsets 0 to 19 from every copy") || e.Partition.Topic != "retained" {
		t.Errorf("told: %+v", e)
	}
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	if at := produce(t, c, "retained", 0, "after"); at != 23 {
		t.Errorf("a client wrote at %d", at)
	}
}
