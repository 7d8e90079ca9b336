/*
Package verify proves, while the mirror runs, that source and destination hold the same. It reads both sides, changes nothing, stops nothing, and may be ended and gone on with at any time.

# Words

	side        one of the two logs of a partition: the source's, read by its fetcher (SourceSide), or the destination's (LogSide); a and b in reports
	digest      a SHA-256 over a range's batches, bytes and all; only digests travel where a side computes them near its data (Digester)
	mismatch    both sides have something there, and it is not the same: offset, byte, field
	hole        one side lacks offsets that the other one has, and neither retention nor compaction explains it
	cannot be compared   a range of which neither can be said, with the side and the reason

# How it is compared

	a, b := verify.SourceSide(source, tp, …), verify.LogSide(tp, log)
	report, err := verify.Verify(ctx, a, b, verify.Options{})
	fmt.Println(&report)

Both ends are taken when it begins: the source's high watermark, the destination's Replicated. Only what lies below the smaller one is compared, so a mirror that is behind is no finding. Then piece by
piece, each as many offsets as have about Options.Piece bytes:

 1. The digests of both sides. Equal: every byte of the piece is the same, also what no checksum covers (base offset, leader epoch, length).
 2. Different, without compaction: halves of the piece by digest, until one batch is left; then that batch on both sides.
 3. Different, with Options.Compacted: batch by batch and record by record.

Before a mismatch or a hole is told, the bounds are asked again and the place is read again, over again from where the read had begun. A range that retention took meanwhile, or whose side was cut
(an unclean election at the source, a truncation of the copy), or that is another one each time, cannot be compared, and is told as such.

A batch belongs to the range that holds its last offset (Digest): so each batch is in one range, a batch that reaches over a border or begins below the log's start too.

# Compaction

The cleaner takes records, writes the batches that stay anew, and does it on each broker at times of its own. So two copies of one log may differ legally in records that are missing and in a batch's
length, checksum, record count, compression, base timestamp, largest timestamp and delete horizon (KIP-534). Batches are never joined or split: base and last offset, leader epoch, producer id, epoch and
sequence, and the attributes stay, and where both sides have a record its key, value, headers and timestamp stay. That is compared. Two batches of which neither shows that a cleaner wrote it (no record is
missing, no delete horizon) are compared byte by byte.

A record that one side lacks was compacted away if

  - a later record with its key, of no aborted transaction, exists on either side below its end (the end as it is then: what made the cleaner take it may be where only one side is yet);
  - or it is a tombstone, or has no key;
  - or its transaction was aborted;
  - or it is the marker of a transaction of which that side has no batch left.

Where none is found, it is a hole if above it every offset has a record on one of the sides. Otherwise what explains it may have been taken itself (a tombstone whose time was over before the mirror
came to it), and the range cannot be compared. Other control records (MIRROR_PID_RESET, leader changes) are never taken.

How far cleaning reached is derived from the data: Report.Clean is the first offset from which on both sides have a record at every offset and are equal byte by byte. What is proved there is all that
Verify can prove. Below it: that what both sides have is equal, that what one side lacks the cleaner may have taken, and that the batches are in order.

A topic without compaction has no such point: leave Compacted false, and every byte counts and every missing offset is a hole. Set it where cleanup.policy has compact on either side, or ever had since
the oldest record.

# What is not proved

  - Anything at or above To, or below From. Report.A and B have the bounds.
  - That a topic was never compacted: a Verifier goes by the cleanup.policy that counts now on either side, the brokers' default (log.cleanup.policy) included where the cluster tells it
    (mirror.EffectiveConfigReader). What a cleaner took under an earlier policy is a hole then.
  - That records which both sides hold are what a producer sent: a batch that is damaged alike on both sides is equal.
  - With compaction: that a superseded record went by the cleaner and not by damage. No reader of a compacted topic may rely on such a record. The same holds for an expired tombstone, and for what
    only one side has: it is checked by its checksum alone, which leaves out base offset and leader epoch.
  - With compaction: the largest timestamp of a batch that was emptied, and the attributes byte of records, which Kafka does not use.
  - With compaction: that base offsets are right of several batches in a row that were all moved by the same distance to where the other side's cleaner left a gap.
  - What lies behind the last batch of a log's files, and what no read shows. Order is checked within what reads return.
  - What followers hold. A LogSide reads the log that the mirror writes; copies on other brokers are read by a Side of their own. In a Kafka cluster that a process has joined (mirror/kraft) that log is
    what the process still has in memory, and else the first broker's that has it with a right checksum: a batch that is damaged on one broker alone may not be seen, and one that is on all of them is an
    error, as what cannot be read.

# What it costs

Reading: each side once, and up to half of a piece again for a mismatch. With compaction, the range below the cleaned point twice, and what is above it once more on one side as long as
a record waits for its explanation; where markers are missing, the headers of one side once more. Options.BytesPerSecond bounds reading and digesting on both sides together.
Memory: two reads of Options.Chunk bytes, or one batch of each side if that is larger; with compaction two batches' records (Options.MaxBatch) and the records that wait, about 100 bytes
each (Options.Waiting). A batch whose records take more, or a record for whose wait there is no room, cannot be compared.
Time, of logs in memory on two shared cores: 500 to 700 MB a second of both sides together by digest (SHA-256), 200 MB record by record.

# Once, continuously, after a failback

Once: Verify. When ctx ends, or Options.MaxBytes are read, the report says what was proved so far, and Report.Resume (plain data, JSON) is where the next call goes on, in this process or another one:

	report, err = verify.Verify(ctx, a, b, verify.Options{Resume: report.Resume})

Continuously: a Runner goes over many partitions at one rate, in rounds in which each has a turn, and gives one bounded report a round. With mirror.Config.VerifyRate a mirror has its copies compared so
(Verifier.VerifyContinuously): it lists those that are mirrored, lets them be read only while copying does not need the source (RunnerOptions.Await), and where a mismatch or a hole is seen first, waits until the source has
answered its own fetches again, which has it follow an election (RunnerOptions.Settle); only what is still there then is told. Places are not kept over a restart of that process: passes begin anew.

After a failback: the two clusters have changed roles, and what lies below LMO is the oldest that they share. With mirror.Config.Verifier (Verifier is one) a failback ends with a comparison: what was copied
since the cut first, which costs the delta alone, then what was there before, for mirror.Config.VerifyBound at most. The new primary is side a. The report has what was found (mirror.Verification).
After a failover the copy goes on alone: compare up to LMO (Options.To) as long as the old source can be read.
*/
package verify
