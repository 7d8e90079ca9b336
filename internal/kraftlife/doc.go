// Package kraftlife has no code: its tests run whole mirrors from real Apache Kafka into real Apache Kafka, by package kraft.
//
// Two clusters of package kafkatest stand beside each other. The one that is mirrored into consists of stock brokers: a process of package kraft joins it, leads the mirrored
// partitions, and hands them over at a stop. Each life ends in a comparison of bytes: the .log files on the stock brokers' own disks against those on the disk of the leader of the
// other side, control batches, base offsets and leader epochs included, and besides against a raw fetch. Where a mirror stopped is in the destination's own __mirror_state, so that a
// failback finds it there.
//
// Cases of the field from end to end (cases_test.go) print the plan before and the report after, and hold the plan against two pictures of the cluster that are taken without any code of plans.
//
// CLUSTERMIRROR_KAFKA decides whether the tests run (see package kafkatest). They run on Apache Kafka 4.3.1, and the basic life on 3.9.1 and 4.4.0 too. With CLUSTERMIRROR_MATRIX=all
// that life is also run on 4.0.0, 4.1.1 and 4.3.1; Maven fetches what is not on the machine.
package kraftlife
