// Package replicaserver is the server side of Kafka's replication protocol: stock brokers of Apache Kafka 3.9 to 4.4 connect to it as followers of partitions that this process leads.
package replicaserver
