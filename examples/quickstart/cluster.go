package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
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

// transaction is one open transaction of a producer.
type transaction struct {
	client *kgo.Client
	id     int64
	epoch  int16
}

// openTransactions writes 0: data of the first, 1: data of the second, 2: data of the first again.
func (c *cluster) openTransactions(ctx context.Context) (one, two *transaction, err error) {
	begin := func(name string) (*transaction, error) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.address), kgo.TransactionalID(name), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
		if err != nil {
			return nil, err
		}
		return &transaction{client: cl}, cl.BeginTransaction()
	}
	write := func(t *transaction, value string) error {
		if err := t.client.ProduceSync(ctx, &kgo.Record{Topic: payments, Value: []byte(value)}).FirstErr(); err != nil {
			return err
		}
		t.id, t.epoch, err = t.client.ProducerID(ctx)
		return err
	}
	if one, err = begin("payments-4001"); err != nil {
		return nil, nil, err
	}
	if two, err = begin("payments-4002"); err != nil {
		return nil, nil, err
	}
	for _, step := range []struct {
		t     *transaction
		value string
	}{{one, "4001 pays 10"}, {two, "4002 pays 99"}, {one, "4001 pays 20"}} {
		if err := write(step.t, step.value); err != nil {
			return nil, nil, err
		}
	}
	return one, two, nil
}

// endTransactions writes 3: COMMIT of the first, 4: ABORT of the second.
func (c *cluster) endTransactions(ctx context.Context, one, two *transaction) error {
	if err := one.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	if err := two.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return err
	}
	one.client.Close()
	two.client.Close()
	return nil
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

// disk is what a dead cluster still has.
type disk struct {
	id     string
	topics []mirror.SourceTopic
	logs   map[mirror.TopicPartition][]byte
	epochs map[mirror.TopicPartition]int32
}

// disks reads every log of the source, by a connection of its own.
func (c *cluster) disks(ctx context.Context) (*disk, error) {
	src, err := kafkasource.New(kafkasource.Config{Seeds: []string{c.address}})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	topics, err := src.Topics(ctx, orders, payments)
	if err != nil {
		return nil, err
	}
	d := &disk{id: c.id, topics: topics, logs: map[mirror.TopicPartition][]byte{}, epochs: map[mirror.TopicPartition]int32{}}
	for _, t := range topics {
		for _, p := range t.Leaders {
			tp := mirror.TopicPartition{Topic: t.Name, Partition: p.Partition}
			d.epochs[tp] = p.LeaderEpoch
			if d.logs[tp], err = drain(ctx, src, t, p); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// drain fetches one partition from its start to its end.
func drain(ctx context.Context, src mirror.Source, t mirror.SourceTopic, p mirror.SourcePartition) ([]byte, error) {
	tp := mirror.TopicPartition{Topic: t.Name, Partition: p.Partition}
	offsets, err := src.Offsets(ctx, []mirror.TopicPartition{tp})
	if err != nil {
		return nil, err
	}
	f, err := src.OpenFetcher(ctx, p.Leader, mirror.FetchOptions{})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var log []byte
	for next := offsets[tp].LogStart; next < offsets[tp].HighWatermark; {
		f.Want(mirror.FetchPosition{TopicPartition: tp, TopicID: t.ID, Offset: next, LeaderEpoch: p.LeaderEpoch, LastEpoch: mirror.Unknown})
		reply, err := f.Fetch(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range reply {
			if r.Err != nil {
				return nil, r.Err
			}
			for info, b := range mirror.Batches(r.Records) {
				log, next = append(log, b...), info.Next()
			}
		}
	}
	return log, nil
}

func (d *disk) of(topic string, partition int32) []byte {
	return d.logs[mirror.TopicPartition{Topic: topic, Partition: partition}]
}

// revive brings the old source back with all that it had, now as a cluster in memory: same cluster id, same topic ids.
func (d *disk) revive() (*memlog.Cluster, error) {
	old := memlog.New(memlog.Config{ClusterID: d.id})
	for _, t := range d.topics {
		if _, err := old.CreateLocalTopic(memlog.LocalTopic{Name: t.Name, Partitions: t.Partitions, ID: t.ID}); err != nil {
			return nil, err
		}
		for p := range t.Partitions {
			tp := mirror.TopicPartition{Topic: t.Name, Partition: p}
			if err := old.ImportLog(t.Name, p, append([]byte(nil), d.logs[tp]...), 0, d.epochs[tp]); err != nil {
				return nil, err
			}
		}
	}
	return old, nil
}

// link is the network between source and mirror. After cut nothing gets through, and nobody is told: the worst kind of break.
type link struct {
	mu    sync.Mutex
	isCut bool
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
}

func (l *link) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isCut
}

// options make a client use the link.
func (l *link) options() []kgo.Opt {
	return []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &linkConn{Conn: conn, link: l}, nil
	})}
}

// linkConn swallows what is written and what arrives once the link is cut.
type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Write(b []byte) (int, error) {
	if c.link.broken() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.link.broken() {
			return n, err
		}
	}
}
