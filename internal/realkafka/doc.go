// Package realkafka has no code: its tests run whole mirrors against real Apache Kafka.
//
// The source is a cluster of package kafkatest, read by package kafkasource; the destination is a cluster in memory (package memlog). Each test ends in a
// comparison of bytes: what the copy holds against the .log files on the source broker's disk, control batches, base offsets and leader epochs included, and
// besides against a raw fetch.
//
// # Which Kafka
//
// CLUSTERMIRROR_KAFKA decides whether the tests run (see package kafkatest). They run on Apache Kafka 4.3.1, and the basic life of a mirror on 3.9.1 too.
// With CLUSTERMIRROR_MATRIX=all that life is also run on 4.0.0, 4.1.1 and 4.4.0; Maven fetches what is not on the machine.
//
// # Clusters
//
// Tests that leave the brokers alone share kafkatest's cluster of the package. Those that pause, stop or kill brokers share a second one and leave it healthy. What needs
// passwords, an authorizer or a proxy shares a third, of one broker.
package realkafka
