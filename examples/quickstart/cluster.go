package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is the source: a Kafka-protocol cluster in this process, and its clients.
type cluster struct {
	fake     *kfake.Cluster
	id       string
	address  string
	client   *kgo.Client
	produced int

	stop context.CancelFunc
	done sync.WaitGroup
	once sync.Once
}

func startCluster(ctx context.Context) (*cluster, error) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("old-primary"), kfake.SeedTopics(3, orders), kfake.SeedTopics(1, payments))
	if err != nil {
		return nil, err
	}
	c := &cluster{fake: fake, id: "old-primary", address: fake.ListenAddrs()[0]}
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	return c, err
}

// produceOrders writes n records over the three partitions and waits until they are acknowledged.
func (c *cluster) produceOrders(ctx context.Context, n int) error {
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: orders, Partition: int32(i % 3), Value: fmt.Appendf(nil, "order %d", c.produced+i)})
	}
	c.produced += n
	return c.client.ProduceSync(ctx, records...).FirstErr()
}

// keepProducing writes records all the time, until stopProducing.
func (c *cluster) keepProducing(ctx context.Context) {
	ctx, c.stop = context.WithCancel(ctx)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.address), kgo.DefaultProduceTopic(orders), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		panic(err) // options that cannot be wrong
	}
	c.done.Add(1)
	go func() {
		defer c.done.Done()
		defer cl.Close()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprintf("live order %d", i)))
			}
		}
	}()
}

func (c *cluster) stopProducing() {
	c.stop()
	c.done.Wait()
}

func (c *cluster) kill() {
	c.once.Do(func() {
		if c.stop != nil {
			c.stopProducing()
		}
		c.client.Close()
		c.fake.Close()
	})
}
