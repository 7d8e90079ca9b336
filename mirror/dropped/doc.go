/*
Package dropped reads back the records that a mirror gave up: the folder of a mirror.FileSink, as batches or as records. It changes nothing there.

	folder, err := dropped.List(dir)
	for record, err := range folder.Records(ctx, dropped.Options{}) {
		var damage *dropped.DamageError
		if errors.As(err, &damage) {
			continue // a file is damaged from some place on; the others follow
		}
		var unreadable *dropped.UnreadableError
		if errors.As(err, &unreadable) {
			continue // a folder in it cannot be read; the others follow
		}
		…
	}

# Runs

What one truncation dropped lies in one file or in several, of which each begins where the one before ends: a run. A truncation drops all that a log has from some offset on, so a run ends where the log
ended. One partition may have several runs: of failbacks at different times, or because a truncation was tried again from another offset. In that case the same batches lie in two runs, and the second time
they are marked as given already (Batch.Again). Same means the whole header with its checksum; batches that differ at the same offsets belong to different histories, and both are given.

# What is told of transactions

Markers lie behind the data that they end, so what was dropped of a transaction has its marker in the same run, if it had one at all:

	none        it is of no transaction
	committed   its COMMIT was dropped too
	aborted     its ABORT was dropped too
	open        neither was there when the log was cut
	unknown     the marker may have been in something that is not there now: behind damage, in a place that cannot be read, or in a file that is missing. Why says which

Transaction.Whole says that the transaction began within the run. Where it is false, its first records may lie below the run, in what both logs have in common, and there the copy has an end of
its own for it: the ABORT with which the mirror ended it at the failover. A marker of which the run has no data at all is one whose whole transaction lies there (Transaction.Below); of a COMMIT that is the
disagreement which a failback's plan lists.

A run does not tell whether it was cut at all: a Sink is asked first, and where it then refuses a later part, the log keeps everything.
Where a whole log was given up because the source no longer had what follows (the policy restart), the end of an open transaction may lie in the new copy.

# What it costs

Each run is read twice, first for its markers; a run that overlaps earlier ones is compared with them while it is read. Memory: two batches (Options.MaxBatch), and about 100 bytes for each transaction of the
run, of which at most Options.Transactions are followed.
*/
package dropped
