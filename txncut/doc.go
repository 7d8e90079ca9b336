/*
Package txncut says which transactions a failover tears apart, and where all copies can be cut so that none is torn.

# The problem

A transaction may write many partitions. Its coordinator decides it once, and then writes a COMMIT into each of them, one after the other. A mirror copies each partition on its own, so
when the source is lost the COMMIT may have reached one copy and not another:

	source   orders-0    │ a a a │ x x │ C │ y │          copy   orders-0    │ a a a │ x x │ C │ y │   COMMIT is there
	         payments-0  │ b │ a a │ C │                         payments-0  │ b │ a a │               it is not

	a: the transaction's data   C: its COMMIT   b, x, y: something else

A stop ends what is open with an ABORT. So the transaction ends committed in orders and aborted in payments: it is torn, and whoever relied on "both or none" sees one.
[Find] lists such transactions. [Cut] finds the newest cut at which there are none:

	copy   orders-0    │ a a a │ x x ▌ C │ y │   cut here: C and y are given up, and the stop writes an ABORT in C's place
	       payments-0  │ b │ a a ▌               and here

To take a COMMIT away costs what lies behind it in its partition, other transactions' commits included. Those tear their own transactions elsewhere, whose commits go too, and so on:
a domino. Therefore the cut is a policy, never a default.

# What to do about it

  - abort: what KIP-1279 does, and what a failover without this package does. Nothing is given up but the torn transactions' atomicity. Find says which they are, so that a report can
    name them.
  - refuse: the failover waits for a person. Right where the source may come back soon and half a transaction is worse than no service.
  - consistent cut: every copy is cut at Cut's vector first, and the stop records that as its LMO. No transaction that the logs show is torn; the newest records of some partitions are
    given up instead. Options.MaxGiveUp and Partition.Floor bound it; beyond them there is no cut ([CutResult].Broken says why and which transaction led there), the caller falls back to
    one of the other two, and says so.

What is given up was in the copy, and readers on the standby may have seen it: in each partition [cut, End) those who read uncommitted records, and [cut, Stable) those who read
committed ones. Of it, committed data is what CutResult.Undone lists as Committed, and what was written outside transactions. The offsets are used again, by the stop's markers and
by clients; readers must be behind the cut before that, which is what clamping their groups to the LMO does. At the source the records still exist, above the LMO: a failback finds
them there as records that were never mirrored.

# What logs tell

A [Piece] is what one copy holds of one transaction; [Reader] finds them in the bytes. Pieces in different partitions are one transaction where producer id and epoch say so.

v2 (KIP-890, transaction.version 2): the coordinator raises the producer's epoch with every end, and the marker carries the raised one. So a COMMIT with a higher epoch than the data
of its piece is v2, and (producer id, epoch of the data) names ONE transaction. An open piece of that name in another partition is of the same transaction: it is torn for certain
([Certain]).

v1 (older clients, or transaction.version below 2): the marker has the data's epoch, and the producer goes on with it. (producer id, epoch) names MANY transactions, one after the
other. An open piece of that name may belong to any COMMIT of it ([Possible]), unless the COMMIT is older than the piece. Times tell that: the marker's is by a broker's clock, the first
of the piece by the producer's, which is believed to be ahead by [Options].Skew at most. What is possibly torn is treated as torn.

Mind what that means for a v1 producer that commits more often than once in a Skew: what the cut takes away is open in the copy and may belong to the COMMIT before it in another
partition, which goes too, and so on, back to the producer's last pause that was longer than the Skew. With five minutes and Kafka Streams before KIP-890 that is its start, and
MaxGiveUp is what ends it. Where clocks are known to be right, a Skew below the time from a COMMIT to the producer's next record costs no more than v2 does.

Open pieces tell no version; an ABORT tells none either (see [Piece.Version]). Where a producer became v2 without a new epoch, at the upgrade of its cluster, its name has commits of both
kinds; it is torn for certain only where times exclude the v1 ones.

What no mirrored log can show:

  - A copy that has received nothing of a transaction. If payments lagged a little more, no log would say that the transaction has data there. Only somebody who knew how far the
    source was can say that a copy is complete (Partition.Complete); [Result].Unseen lists the commits that a copy which is not complete does not vouch for. No cut helps them, as
    nobody knows where.
  - Which of a v1 producer's transactions an open piece is of, beyond times.
  - Data before the Reader's beginning, unless it is given the transactions in flight there; so begin where the producers' state is known, at the Floor or below.
  - What compaction took: a transaction whose data in a partition are all gone is not there.

An open piece where the source itself has no marker is no different: the source was lost between two markers of one transaction. It is as torn.

# How the cut is found

Say that a cut keeps a marker if it lies below the partition's end in the cut. What is torn at a cut is judged as a reader of the cut logs would judge it, who does not know how the pieces
ended whose markers were cut away; and we remember that pieces existed which such a reader does not see at all. So, for each COMMIT x and each piece y that may be of x's transaction
(of the same producer id and epoch, in another partition, and begun early enough):

	the cut keeps x  ⇒  y is decided, and the cut keeps y's marker            (1)

An ABORT that is cut away is forgotten like a COMMIT: its piece is open again in the copy, and may be of any v1 transaction of its name.

Cut begins with the copies' ends. Pieces whose markers are not kept are put in a queue. Each is taken out once: commits that (1) forbids because of it are cut away, at their markers,
and whatever that takes with it is put in the queue too, with the piece that led to it as its cause. When the queue is empty, nothing is torn.

It terminates: a piece is put in the queue at most once, and no end ever rises.

It is the newest, and there is only one: call a vector of ends, none above the copies' ends, good if it satisfies (1) for all pairs. No good vector keeps a piece that is in the
queue. That is so for those open to begin with. Let it be so for y when it is taken out: by (1) no good vector keeps the commits x that go because of y, so in each good vector the end
of x's partition is at or below x's marker, and what lies behind that marker is kept by none either; that is all that is put in the queue because of y. So each good vector is at or below
the result in every partition. And the result is good, because the queue is empty. Therefore it is the greatest of the good ones: the greatest fixpoint of "cut at every commit that is
torn". (That there is a greatest one is seen from (1) alone: it has one premise, so of two good vectors the newer end in each partition gives a good one.)

It is on a batch's boundary, as a marker is a batch of its own. A cut of the cut is itself: nothing is torn in it, judged from the pieces or from the logs that were cut.

The floors and MaxGiveUp take no part in the search. Each good vector is at or below what was found so far, so when that breaks a bound, each good vector does.

Cost: O(n log n) time and O(n) memory for n pieces in all partitions, whatever their names. The commits of one name are sorted by time once, and each piece in the queue takes those not
yet taken, down to its own time. That it does not count against commits of its own partition takes no more than the two least times of different partitions.

# How to use it

Once per failover, for all its partitions together, and for every other partition that the same producers write. Not per topic: what is left out cannot be seen to be torn.

 1. Stop the fetchers of all partitions and end group sync; wait until no append and no commit is under way. From here on the copies stand still.
 2. Wait for the replicas, bounded. End is Log.Replicated: what lies above is not counted on.
 3. Read each log with a Reader, from the Floor (or from below it, where the producers' state is known) to the end. The Floor is the log's start, or where clients could last write: the
    offset at which the present episode began to mirror, if the log was open before. A partition that was stopped before takes part with End and Floor at its LMO.
 4. Find, for the report; Cut, if that is the policy. No cut: the policy to fall back to, and a report that says so. Nothing torn: go on as usual.
 5. Record the whole vector before the first log is cut. From logs of which some are cut already another vector may come out: a piece that is gone asks for nothing. A stop that is run
    again after a crash takes the recorded one. Package mirror records it as the LMEs and LMOs of all partitions, in one atomic write: LMO is the cut, LME the epoch of the last batch below it.
 6. Cut each log at its offset (what is dropped goes to the sink, if there is one). Whether that was done the log says: a COMMIT lies at LMO, or does not.
 7. Then as every stop, but under a leader epoch above each that what was cut may have, so that replicas follow: ABORT what is open, reset, clamp groups to the LMO, open.

Pure: no clock, goroutine, I/O or client. Functions may be called concurrently; a Reader may not.
*/
package txncut
