/*
Package filestore keeps a keyedlog.Log in one folder of a local file system. Several processes of one machine may share the folder: a running mirror and a command line.

	records, err := filestore.Open("/var/lib/mirror/state", filestore.Options{})
	store := keyedlog.NewStateStore(records)

# What is on disk

	lock       who wrote or read last; flock on it keeps processes apart
	log        the records: a header, a snapshot, and what was changed since
	log.new    the next log while it is written; left over after a crash, it means nothing

The log begins with a header of 24 bytes, numbers big-endian: "CMKEYLOG", format version (4), generation (8), CRC-32C of the 20 before (4). Every format keeps these 24. Then come frames:

	length of the payload (4) | CRC-32C (4) | payload

The checksum covers the generation, the place of the frame in the file, the length and the payload, so that bytes of an older file or of another place are never taken for a frame.
A payload is its format version (1), the version of the records after it, the number of entries, and these: a session that was opened, a new record, or a key that was taken out. Numbers
are varints, names and values have their length before them. Each Update and each Open is one frame, and so is the snapshot that begins the file. A file or frame of a newer format is refused by name
(NewerError), never skipped.

# What is promised, and how

Every call holds the lock while it reads what was appended since the last one, and while it decides and writes. A frame is appended, the file is synced, and only then the call succeeds. Whoever finds frames
that another process appended syncs the file before it believes them, because that process may have died before it did. So nothing that was shown once goes away.

After a crash at any point the newest complete frame counts. What stands behind it (an incomplete frame, zeros, a frame with a wrong checksum) is nothing that anybody was told of, and the next writer cuts
it. Readers cut nothing. A bad frame with a good one behind it, a bad header and a bad snapshot cannot come from a crash, because these were synced before something was built on them: they are refused
(DamagedError), and nothing is changed.

When the log is larger than Options.CompactAbove and four times what it holds, the next generation is written beside it, synced, and renamed over it. Keys that were taken out vanish; numbers of sessions and
the version stay. A compaction that fails, mostly for want of space, fails no Update; it is tried again when the log has grown by CompactAbove.

When an append or its sync fails, the frame is cut again and the error is returned. If that fails too, the error is keyedlog.ErrOutcomeUnknown as well. After a sync that failed the system may show bytes that
the disk does not have. So the next call of the handle, whichever it is, reads the file again and writes all of it into a new generation before it goes on, or returns why it cannot.

# What is assumed

The file system is local, flock works on it, and a file can be replaced by rename. A write that is not synced may be lost, in whole or by sectors and in any order, but it changes no other bytes of the file. Nobody but this
package writes in the folder. Putting back an older copy of the log while processes run is noticed, because the version of the records would fall.

A process that is stopped (SIGSTOP) between calls holds nothing: when its writer was opened elsewhere in the meantime, it is fenced. One that is stopped within a call holds the lock, and others return a
LockedError with its process id after Options.LockWait.
*/
package filestore
