package kafkasource

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestTransactionalIDsOfASource: each broker is asked for those that it coordinates.
func TestTransactionalIDsOfASource(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	asked := 0
	c.ControlKey(int16(kmsg.ListTransactions), func(req kmsg.Request) (kmsg.Response, error, bool) { // one request at a time
		c.KeepControl()
		asked++
		resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
		x := kmsg.NewListTransactionsResponseTransactionState()
		x.TransactionalID, x.ProducerID, x.TransactionState = string(rune('z'-asked)), int64(asked), "Ongoing"
		resp.TransactionStates = append(resp.TransactionStates, x)
		return resp, nil, true
	})
	ids, err := openTo(t, c).TransactionalIDs(t.Context())
	want := []mirror.TransactionalID{{Name: "w", ProducerID: 3, State: "Ongoing"}, {Name: "x", ProducerID: 2, State: "Ongoing"}, {Name: "y", ProducerID: 1, State: "Ongoing"}}
	if err != nil || !slices.Equal(ids, want) {
		t.Errorf("%v, %+v", err, ids)
	}
}

func TestASourceBeforeKafka3TellsNoTransactionalIDs(t *testing.T) {
	old := openTo(t, cluster(t, kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V2_8_0())))
	if ids, err := old.TransactionalIDs(t.Context()); !errors.Is(err, mirror.ErrUnsupported) {
		t.Errorf("Kafka 2.8: %v, %+v", err, ids)
	}
}
