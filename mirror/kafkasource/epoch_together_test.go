package kafkasource

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// TestItem4EpochQuestionsOfOneBrokerTravelTogether: a hundred partitions ask while the first request is under way, and one asks twice; that they travel together shows to none of them.
func TestItem4EpochQuestionsOfOneBrokerTravelTogether(t *testing.T) {
	const partitions = 100
	c := cluster(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	produce(t, c, "t", 7, "a", "b")
	if err := c.MoveTopicPartition("t", 9, 0); err != nil { // the same broker, in a new epoch
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked []int // partitions of each request
	first, goOn := make(chan struct{}), make(chan struct{})
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(k kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		n := 0
		for _, x := range k.(*kmsg.OffsetForLeaderEpochRequest).Topics {
			n += len(x.Partitions)
		}
		mu.Lock()
		asked = append(asked, n)
		begins := len(asked) == 1
		mu.Unlock()
		if begins {
			close(first)
			c.SleepControl(func() { <-goOn })
		}
		return nil, nil, false
	})
	s := openTo(t, c)
	topic := topicOf(t, s, "t")
	ask := func(ctx context.Context, p int32) (mirror.EpochEnd, error) {
		under := topic.Leaders[p].LeaderEpoch
		if p == 9 {
			under--
		}
		return s.EndOffsetForEpoch(ctx, mirror.TopicPartition{Topic: "t", Partition: p}, under, topic.Leaders[p].LeaderEpoch)
	}
	type answer struct {
		p   int32
		end mirror.EpochEnd
		err error
	}
	answers := make(chan answer, partitions+1)
	begin := func(ctx context.Context, p int32) {
		go func() {
			end, err := ask(ctx, p)
			answers <- answer{p, end, err}
		}()
	}
	begin(t.Context(), 0)
	<-first
	gone, leave := context.WithCancel(t.Context())
	begin(gone, 50)
	for p := range int32(partitions) {
		if p != 50 {
			begin(t.Context(), p)
		}
	}
	for waiting := 0; waiting < partitions; { // the first one is not waiting any more
		s.epochQuestions.mu.Lock()
		for _, queue := range s.epochQuestions.waiting {
			waiting = len(queue)
		}
		s.epochQuestions.mu.Unlock()
	}
	leave()
	if a := <-answers; a.p != 50 || !errors.Is(a.err, context.Canceled) {
		t.Fatalf("%+v", a)
	}
	close(goOn)
	for range partitions {
		a := <-answers
		switch {
		case a.p == 9:
			sourceError(t, a.err, mirror.SourceFencedEpoch, false)
		case a.err != nil:
			t.Errorf("%+v", a)
		case a.p == 7 && a.end.End != 2, a.p != 7 && a.end.End != 0:
			t.Errorf("%+v", a)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 2 || asked[1] != partitions-1 {
		t.Errorf("requests: %v", asked)
	}
}
