// Package kafkasource reads a Kafka cluster as the source of a mirror.
//
// Any Kafka from 2.1 on is read, and what newer ones offer is used: topic ids (KIP-516), the last fetched epoch and diverging epochs (KIP-595),
// leader hints with addresses (KIP-951). Each Fetcher has a connection and an incremental fetch session (KIP-227) of its own; look-ups share another client.
//
// A cluster that is the destination of mirrors itself tells what they recorded (topics __mirror_state and __mirror_control, see LastMirrorEpochs): where a failback has to begin, and
// whether a mirror would close a loop. A failback needs the right to READ the first one, a chain of mirrors both; a one-way mirror from any other cluster needs neither.
//
// Over a link with a round trip of 20 ms or more, up to four partitions of a broker that are far behind are asked for several times at once, each time for where the
// request before will probably end (Config.ReadAheadBytes): such a link is filled by one partition, and memory is bounded by that many bytes for each fetcher. What comes is
// passed on in order, in one leader epoch, as if it had been asked for one by one; Counts tells how many such requests there were, and how many were of no use.
//
// A Source only reads: it fetches as a consumer does, READ_UNCOMMITTED, and no look-up of it creates a topic.
// Every call ends within Config.Bound (a Fetch within FetchOptions.MaxWait more), whatever the brokers do.
package kafkasource
