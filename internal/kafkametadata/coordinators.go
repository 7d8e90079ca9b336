package kafkametadata

// coordinators remembers which broker coordinates a group.
type coordinators struct{}
