/*
Package reconcile makes the list that KIP-1279 leaves to applications after a failover: what the old source has and the copy does not, once the source is back. It reads both sides and writes nothing.

	source, here := verify.SourceSide(…), verify.LogSide(…)
	partition, err := reconcile.Partition(ctx, source, here, reconcile.Position{LME: 5, LMO: 880}, reconcile.Options{…})

Two things are told of each partition:

  - Transactions that the mirror ended with an ABORT when it was stopped (the markers between LMO and MIRROR_PID_RESET), and how the source ended each: a COMMIT there is the disagreement.
    Of one producer id only one transaction is open at a time, and both logs are equal below LMO. So the first marker of that producer id that the source has at or above LMO is that transaction's, whatever
    its epoch: with transactions v2 it is a higher one than the data's.
  - Records that the source has at or above LMO: how many, of which transactions, of which producers, from when to when.

# What cannot be known, and is said to be so

  - The source's log begins above LMO (retention), or has gaps (compaction) below the marker: what is missing may have held the marker, and the one that is there may be of a later transaction.
  - The source lost records from below LMO: an unclean election, a truncation. Options.EndOfEpoch is asked for the end of LME. A transaction with records there may be committed, and not whole.
  - The marks of the stop are gone from the copy (retention there, or it was mirrored again since). Then a COMMIT of a transaction that began below LMO is listed as possible: whether it was open here at the
    stop, or wrote to this partition at all, no log tells.
  - No marker up to the source's high watermark: still open there; it may be committed yet.

# What it costs

The source from LMO on is read once, the copy from LMO to the reset, and up to Options.Lookback offsets below LMO for where its transactions began. Memory: one read, about 100 bytes for each transaction that is open
at once, Options.Producers producers. Options.MaxBytes ends it early; what it returns goes into Options.Resume, as JSON too, and it goes on there.
*/
package reconcile
