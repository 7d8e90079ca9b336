/*
Package leaderlog is one partition's log as its leader has it when the leader stores nothing.

The copies are in the follower brokers, stock Kafka brokers that replicate as they always do. Here, in memory, are a window of recent batches, and the numbers: start, end, leader epochs
of the batches, and every follower's position. mirror/kraft writes through it, internal/replicaserver serves it. It has no goroutine and no I/O of its own: batches that are no longer
in memory are read back through Back. It is safe for concurrent use.

# A life

	l := leaderlog.New(leaderlog.Options{Topic: …, Partition: …, Back: …, Memory: …}) // held, unknown, not led
	l.SetFollowers(replicas, live, registered, minInSync)  // and again whenever the metadata changes one of them
	l.Lead(leaderEpoch)                        // and again whenever it rises
	l.Begin(found)                             // what recovery found in the copies; a new topic: Found{}
	l.TruncateTo(…)                            // what has to be done before followers may ask
	l.Release()                                // now followers are answered
	l.Append(…)                                // …
	l.Hold(); l.Resign()                       // the leadership went; it may come back: Lead
	l.Close()                                  // frees the memory

Lead and Begin may come in either order. Until both came and the gate is open, followers get NOT_LEADER_OR_FOLLOWER: they ask again after a second and truncate nothing. This matters more than
anything else: whoever answers one follower out of an empty log truncates that follower. Whatever changes the log needs Lead and Begin, but not an open gate.

After Resign nothing but Read works. If another leader may have led in between, Hold and Begin anew before the gate opens. A Lead that follows when only the leader epoch moved goes on where it was.

# What is in memory

Append takes a chunk of batches over without copying it, and Fetch hands out slices of it, one per chunk, for writev. A chunk is held whole, and counted whole by Memory, as long as one of its batches
is part of the window. Chunks go from the oldest on, when an Append needs room; which ones, and who waits, is said at Memory. A chunk goes only if all of it is below Replicated and below the
furthest live follower's position, so that it can be read back. Every batch that ends above the window's low end is in memory; Fetch says Back for what begins below it.

What is read back is believed up to where it is known to be ours: all that a follower holds which agreed with us since the last cut, and of the others what they have confirmed. A batch that is
being read back when a cut comes is read again.

# Positions, and Replicated

A follower's position is the offset of its last Fetch that was accepted: it says what is on its side, not what was sent. Replicated, which followers are told as the high watermark, is computed from the
positions; the rule and its reasons stand at SetFollowers. It never falls but by TruncateTo, ResetTo and Begin. After Begin it starts at Start and rises within a fetch or two.

That the epochs agree is not enough after a cut: batches that are appended from the cut on can have the epoch of those that were cut, as the mirror appends what its source sends and its own
markers. So each cut leaves every follower a limit: until it has fetched at or below it, its position counts up to it at most, and a Fetch beyond it is answered with a diverging epoch that makes it cut at
exactly the limit. Begin leaves one at the end that was found. Limits are lost with the process: whoever cuts must write down who followed (Follower.Limit, AwaitTruncated), and hand it to the next
Begin (Found.Limits). A hand-over needs followers with Truncated and Position ≥ End.

# How a follower is answered

As by a Kafka leader (ReplicaManager.readFromLog, Partition.fetchRecords, LeaderEpochFileCache), in this order:

	held, unknown or not led                          NOT_LEADER_OR_FOLLOWER (6)
	its leader epoch is older, newer than ours        FENCED_LEADER_EPOCH (74), UNKNOWN_LEADER_EPOCH (75)
	no replica of this partition                      UNKNOWN_LEADER_EPOCH (75), without an epoch 6
	another broker epoch than its registration's      NOT_LEADER_OR_FOLLOWER (6)
	below Start; beyond End without an epoch;
	  a last epoch above our leader epoch             OFFSET_OUT_OF_RANGE (1)
	beyond its limit                                  diverging: its own epoch ends at the limit
	its last epoch ends before its offset here, or we
	  have an older one there                         diverging: that epoch and its end here
	its offset lies inside a batch of ours            diverging: its own epoch ends where the batch begins
	else                                              accepted: batches, or Back, or nothing

Four things differ from Kafka, and each of them only makes a follower cut what it has to. A Kafka leader's epoch cache begins the leader's own epoch at its end, ours cannot, as batches of older epochs are
appended still: so every epoch from above our latest batch's to our own ends where the latest ends (endOf). Kafka looks only where the follower's epoch ends; here the epoch at its offset is
looked at too, which tells apart epochs that began at different offsets. Limits, above. And a follower inside one of our batches, or at a Start that may lie inside one, is told to cut, for
a stock follower gives the partition up on a batch that begins below its end, unless its own log is empty.

Stock followers delete old batches of their copies by themselves, as their topic's retention says. Start follows (followStarts): it is never below what the live copies, together, still have. A follower
that asks below, with a disk that was replaced, is out of range, and begins at Start.

An empty follower (last epoch -1) is accepted anywhere in the log, as by Kafka; its position is Start until it has a batch.

# Cuts

TruncateTo drops whole batches, and leaves an end where a batch begins or ends, so that followers cut there too: LocalLog.truncateTo drops a batch that it is told to cut inside of, and keeps the end it
was told. A cut below the window looks the batch up in a copy. In a gap behind the last batch a follower's end may stay below ours for ever; one that has the last batch counts as having everything.

# Errors

ErrFenced, ErrOutOfOrder, ErrOffsetOutOfRange, ErrUnknown, ErrNoCopy and ErrClosed are found with errors.Is in an *Error, which says where. *EpochError and *PoisonError are batches that stock followers
would skip in silence, or fail on.
*/
package leaderlog
