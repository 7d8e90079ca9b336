package filestore

import "fmt"

// LockedError: another process, or another handle of this one, held the folder's lock for as long as the call could wait.
type LockedError struct {
	Dir    string
	Holder string // process id of who took the lock last, as the lock file says; "" if it says nothing
	Err    error  // context.DeadlineExceeded or context.Canceled
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("filestore: %s is locked by process %q (%v); a call holds the lock for a moment only: see whether that process is stopped or its disk hangs, "+
		"let it go on or kill it, and try again", e.Dir, e.Holder, e.Err)
}

func (e *LockedError) Unwrap() error { return e.Err }

// DamagedError: the log holds what no crash can leave. Nothing was changed.
type DamagedError struct {
	File   string
	Offset int64 // byte in the file
	Why    string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("filestore: %s is damaged at byte %d: %s; nothing was changed: stop every process that uses the folder, keep a copy of it, "+
		"put a good copy of the file in its place, and look for what wrote there", e.File, e.Offset, e.Why)
}

// NewerError: a newer version of this package wrote the log. Nothing was changed.
type NewerError struct {
	File           string
	Offset         int64 // byte in the file: 0 is the file itself, else a frame
	Version, Known int64 // format of the file or frame, and the newest that is known here
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("filestore: %s has format %d at byte %d, this program knows formats up to %d; nothing was changed: use the newer version of the program that wrote it",
		e.File, e.Version, e.Offset, e.Known)
}
