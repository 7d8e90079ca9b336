package verify_test

import (
	"context"
	"fmt"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
	"github.com/clustermirror/clustermirror/mirror/verify"
)

// A copy is compared with its source while both are in use, and then once more after one byte of it was damaged.
func Example() {
	ctx := context.Background()
	tp := mirror.TopicPartition{Topic: "orders"}
	source, destination := memlog.New(memlog.Config{}), memlog.New(memlog.Config{})
	defer source.Close()
	defer destination.Close()
	if _, err := source.CreateLocalTopic(memlog.LocalTopic{Name: tp.Topic}); err != nil {
		panic(err)
	}
	for _, order := range []string{"one", "two", "three"} {
		if _, err := source.Produce(ctx, tp.Topic, 0, memlog.Record{Value: []byte(order)}); err != nil {
			panic(err)
		}
	}
	original, err := source.OpenLog(ctx, tp)
	if err != nil {
		panic(err)
	}
	bytes, err := original.Read(ctx, 0, 1<<20)
	if err != nil {
		panic(err)
	}

	for _, damage := range []byte{0, 1} {
		if _, err := destination.CreateTopic(ctx, mirror.TopicSpec{Name: tp.Topic, Partitions: 1}); err != nil {
			panic(err)
		}
		log, err := destination.OpenLog(ctx, tp)
		if err != nil {
			panic(err)
		}
		copied := append([]byte(nil), bytes...)
		copied[len(copied)-2] ^= damage
		if err := log.Append(ctx, log.LeaderEpoch(), copied); err != nil {
			panic(err)
		}

		a := verify.SourceSide(source, tp, verify.SourceOptions{})
		report, err := verify.Verify(ctx, a, verify.LogSide(tp, log), verify.Options{})
		if err != nil {
			panic(err)
		}
		fmt.Println(report.Equal(), report.Mismatch)
		a.Close()
		if err := destination.DeleteTopic(tp.Topic); err != nil {
			panic(err)
		}
	}
	// Output:
	// true no difference
	// false batch at offset 2 differs in byte 71 (records)
}
