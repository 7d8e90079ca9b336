// Package memlog is a Kafka cluster in memory: a [mirror.Destination] and a [mirror.Source] in one, for tests, harnesses and the quickstart.
//
// A Cluster keeps whole record batches byte for byte. It has topics with ids, brokers that lead partitions, leader epochs, simulated in-sync replicas and a high
// watermark, an epoch cache and producer state for every log, and a state store of its own. Nothing in it does I/O, and it waits with timers and channels only,
// so that it runs inside a testing/synctest bubble.
//
// A topic that is made by [Cluster.CreateTopic] is a mirror's copy: its gate is closed, clients get READ_ONLY_TOPIC until the mirror opens it. A topic made by
// [Cluster.CreateLocalTopic] belongs to clients: it is what a cluster has as a source. Clients write with [Cluster.Produce] and [Cluster.NewProducer] and read
// with [Cluster.Consume]. Elections, lost tails, retention, recreated topics, held-back and dead replicas, dead brokers and faults of single calls are methods of Cluster.
//
// It has groups and what they keep ([Cluster.CommitOffset], [Cluster.JoinGroup] …), settings of topics and access rules, and a mirror follows and writes them as at a real cluster.
//
// Where Kafka and this package differ, the difference is simpler: acks are 1 (a test waits for replicas with Log.AwaitReplicated), an election is over at once,
// groups have members and offsets but assign nothing, and access rules are kept but forbid nothing ([Cluster.SetDenied] does).
package memlog
