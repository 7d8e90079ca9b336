// Package synclife has no code: its tests follow groups, topic settings and access rules from one real Apache Kafka cluster into another one that a process of package kraft has joined.
//
// What was followed is read back with a stock client from the destination's own brokers, and groups by the consumers that go on there after a failover: franz-go's and Kafka's own. Whole
// mirrors, the copies' bytes and the versions of Kafka are package kraftlife's matter.
//
// CLUSTERMIRROR_KAFKA decides whether the tests run (see package kafkatest). Build tag long adds the one with 5,000 partitions and 500 groups.
package synclife
