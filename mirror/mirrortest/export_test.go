package mirrortest

import "github.com/clustermirror/clustermirror/mirror"

// Compared is what Verify does with one partition, without waiting for the mirror.
func Compared(pair *Pair, tp mirror.TopicPartition) (int64, error) { return pair.verify(tp) }

// Status is the mirror's.
func Status(pair *Pair) mirror.Status { return pair.running.Status() }

// NewCluster is a cluster without a mirror.
func NewCluster(brokers int) (*Cluster, error) { return newCluster("alone", brokers) }

// Close ends a cluster of NewCluster.
func (c *Cluster) Close() error { return c.close() }

// Destination is the cluster as a mirror writes to it.
func (c *Cluster) Destination() mirror.Destination { return c.destination() }
