/*
Package filestore keeps a keyedlog.Log in one folder of a local file system. Several processes of one machine may share the folder: a running mirror and a command line.

	records, err := filestore.Open("/var/lib/mirror/state", filestore.Options{})
	store := keyedlog.NewStateStore(records)

# What is on disk

	log        the records: a header, a snapshot, and what was changed since
	log.new    the next log while it is written; left over after a crash, it means nothing
	lock       the id of the process that had the lock last; the lock itself is flock on the folder, so that removing a file frees nothing
	lock.next  the id of the process that waited for it last; flock on it is the place in the queue

The log begins with a header of 24 bytes, numbers big-endian: "CMKEYLOG", format (4), generation (8), CRC-32C of these 20 (4). Every format keeps this header. Then come
frames:

	length of the payload (4) | CRC-32C (4) | payload

The checksum covers the generation, the frame's place in the file, the length and the payload, so that bytes of an older file or of another place are never taken for a frame.
A payload is its format (1), the version of the records after it, the number of entries, and for each a kind (1: a session was opened, 2: a record, 3: a key was taken out),
session, writer, key and value. Numbers are varints, the rest has its length before it. Each Update and each Open is one frame, and so is the snapshot. A file or frame of a
newer format is refused by name (NewerError), never skipped.

# What is promised, and how

Every call holds the lock while it reads what was appended since the last one, and while it decides and writes. A frame is appended, the file is synced, and only then the call
succeeds. Whoever finds frames that another process appended syncs the file before it believes them, because that process may have died before it did. So nothing that was
shown once goes away.

After a crash at any point the newest complete frame counts. What stands behind it (an incomplete frame, zeros, a frame with a wrong checksum) is nothing that anybody was told
of, and the next writer cuts it. Readers do not. A bad frame with a good one behind it, a bad header and a bad snapshot cannot come from a crash, because all this was synced
before something was built on it: it is refused (DamagedError), and nothing is changed.

When the log is larger than Options.CompactAbove and four times what it holds, the next generation is written beside it, synced, and renamed over it. Keys that were taken out
vanish; numbers of sessions and the version stay. A compaction that fails, mostly for want of space, fails no Update; it is tried again when the log has grown by CompactAbove.

When an append or its sync fails, the frame is cut again and the error is returned. If that fails too, the error is also keyedlog.ErrOutcomeUnknown. After a sync that failed
the system may show bytes that the disk does not have. So the next call of the handle, whichever it is, reads the file again and writes all of it into a new generation before
it goes on, or returns why it cannot. One gap is left: when a sync and the cut after it fail, and another process writes behind that frame before this one's next call, a power
cut can take both.

# What is assumed

The file system is local, flock works on it, and a file can be replaced by rename. A write that is not synced may be lost, whole or by sectors and in any order, but it changes
no bytes of the file other than its own. What was synced stays as it is: a last frame that rots looks like one that a crash left, and is cut. Nobody but this package writes in
the folder, and all processes run as the same user: a file that root made is closed to others. An older copy of the log that is put back while processes run is noticed,
because the version of the records would fall.

A process that is stopped (SIGSTOP) between calls holds nothing; when its writer was opened elsewhere in the meantime, it is fenced. One that is stopped within a call keeps
others waiting, and they return a LockedError with its process id after Options.LockWait.
*/
package filestore
