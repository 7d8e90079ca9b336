package mirror

import "context"

// LogReader is the reading side of a Log: every Log has it.
type LogReader interface {
	Start() int64
	End() int64
	Read(ctx context.Context, from int64, max int) ([]byte, error)
}
