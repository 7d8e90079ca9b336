// Package node runs mirrors as a service: a process that joins a Kafka cluster, runs the mirrors that were created there, tells how they are, hands over when it is told to end, and takes
// up changed credentials without a restart. examples/kafka-mirror is its command line.
package node
