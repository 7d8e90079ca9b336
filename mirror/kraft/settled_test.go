package kraft_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// TestRealKafkaBrokerComesBackWithItsProducerIDs: a broker that stands still until it is fenced has not lost its block of producer ids. A stop goes on without it and says so, and after the
// stop it is made to use them up.
func TestRealKafkaBrokerComesBackWithItsProducerIDs(t *testing.T) {
	c := short(t, 1, nil)
	w := watched(t, c, "ids")
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.InternalAddress(3)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	next := func() int64 { return nextProducerID(t, cl) }
	const ahead = 60 // more than this test asks for
	mirrored := next()
	for ; mirrored%1000 > 900; mirrored = next() {
	}
	mirrored += ahead
	j := join(t, c, quick)
	l := j.create("ids", 1)
	c.Pause(3)
	eventually(t, "broker 3 to be fenced", func() bool { b, _ := w.image().Broker(3); return b.Fenced })
	appendTo(t, l, batch.AppendData(nil, batch.DataSpec{ProducerID: mirrored, BaseTimestamp: time.Now().UnixMilli(), Records: []batch.Record{{Value: []byte("of the source")}}}))
	await(t, l)
	if err := l.(mirror.ProducerIDSettler).SettleProducerIDs(bound(t), mirrored); err != nil {
		t.Fatal(err)
	}
	if e := j.saw(kraft.Trouble); !strings.Contains(e.Text, "broker 3 is not alive") {
		t.Errorf("told: %s", e.Text)
	}
	w.mayLead("ids")
	if err := l.Open(bound(t)); err != nil {
		t.Fatal(err)
	}
	c.Resume(3)
	eventually(t, "broker 3 to be back", func() bool { b, _ := w.image().Broker(3); return !b.Fenced })
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	asked, id := 0, int64(-1)
	for ; id <= mirrored && asked < ahead-10; asked++ {
		id = next()
		<-tick.C
	}
	if id <= mirrored {
		t.Errorf("broker 3 still gives out %d, the mirrored id is %d", id, mirrored)
	}
	t.Logf("asked %d times", asked)
}

// nextProducerID takes an id of the broker that cl knows.
func nextProducerID(t *testing.T, cl *kgo.Client) (id int64) {
	t.Helper()
	eventually(t, "a producer id", func() bool {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis = 60_000
		resp, err := req.RequestWith(bound(t), cl.SeedBrokers()[0])
		if err != nil || resp.ErrorCode != 0 {
			return false
		}
		id = resp.ProducerID
		return true
	})
	return id
}
