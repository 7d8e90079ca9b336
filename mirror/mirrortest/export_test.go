package mirrortest

import "github.com/clustermirror/clustermirror/mirror"

// Compared is what Verify does with one partition, without waiting for the mirror.
func Compared(d *DR, tp mirror.TopicPartition) (int64, error) { return d.verify(tp) }
