// Package lives is what tests share that play whole lives of a mirror on real Kafka clusters: producers, topics that are compacted, the comparison of logs byte by byte, a link to a cluster that can be cut, a process that
// joins a cluster, a mirror between two clusters with all that it told, groups and Kafka's own tools, and waiting. internal/realkafka mirrors into memory with it, internal/kraftlife and
// internal/synclife into another Kafka cluster.
package lives
