// Package processes has no code: its tests run mirrors and verbs in several processes that know of each other through the store only.
//
// A child is this package's test binary, started again with an environment variable. It takes orders on its standard input, one line of JSON each, and answers each with a
// line on its standard output: open a mirror, use a verb, say how the copy is. The test kills it, stops it with SIGSTOP, and lets it go on. The source is a Kafka-protocol
// cluster in the parent, which all children reach over loopback; each child has its copy in memory (package memlog), or is the command examples/custombroker with its copy
// in files.
//
// Every scenario that is about the store runs twice: with the state in one folder (mirror/filestore), and in a real Kafka cluster (mirror/kafkastore) where
// CLUSTERMIRROR_KAFKA lets it run, see package kafkatest.
//
// Times that are measured are printed and never judged; what is judged has a bound that is reached only when it will never happen.
package processes
