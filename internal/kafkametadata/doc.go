// Package kafkametadata reads and writes what a Kafka cluster keeps beside its logs, through the stock protocol: groups and their offsets, settings of topics, access rules, and what the
// user of a connection may do. kafkasource reads with it, kraft reads and writes with it. Nothing here decides anything: what is to be written is package metadatasync's and mirror's.
//
// Requests are grouped: one for each broker that has something to say, whatever the number of groups, topics and partitions. A broker that does not answer harms only what it alone can
// answer. Coordinators are looked up once and remembered until one says that it is none any more.
package kafkametadata
