/*
Package kafkastore keeps a keyedlog.Log on compacted topics of the destination cluster, so that the states of mirrors and what operators want of them live where the copies
live, and any process can go on where another one died.

	s, err := kafkastore.Open(ctx, kafkastore.Config{Seeds: []string{"standby:9092"}})
	if err != nil {
		return err
	}
	defer s.Close()
	states, control := keyedlog.NewStateStore(s), mirror.NewControl(s)
	_, _ = states, control // for mirror.Config

# Topics

A record is where its type says (the int16 that its key begins with). Keys and values are those of spec §8 and of package mirror, byte for byte; who wrote a record and in
which update travels in its headers (writer, session, update, of).

	__mirror_state     states and last mirror epochs, types 1 and 2, in partition statemachine.StatePartition of the key; over how many partitions keys are spread: type 63
	__mirror_control   what mirrors and topics there are, consents, questions for a failback plan …; and who writes as whom: type 64
	__mirror_stop      stop and failover
	__mirror_pause     pause, resume, recover
	__mirror_history   what was done, by whom and why
	__mirror_status    how partitions and processes are, and their answers

They are created by the first Open of a writer, or before the first record, compacted, with Config.ReplicationFactor copies of which all but one must have a record before
it counts. Topics that exist are used as they are, but one that is not compacted is refused, and one whose delete.retention.ms is below a day: what was not read for half a
day is read anew, because tombstones may be gone; and one whose max.message.bytes is below a batch of this package (257 KiB). That is looked at when a topic is new or was
made again, and every minute. They must not be deleted while anybody uses them. Partitions that are added are not used: the record of type 63, written into partition 0 with
the first state, says over how many keys are spread, and the other topics have their records in partition 0. To spread states over more, make the topic anew.

By hand, once for each topic, __mirror_state with as many partitions as it is to have (50), the others with one:

	kafka-topics.sh --bootstrap-server HOST:PORT --create --topic __mirror_state --partitions 50 --replication-factor 3 --config cleanup.policy=compact \
	  --config delete.retention.ms=86400000 --config min.insync.replicas=2 --config unclean.leader.election.enable=false --config segment.bytes=8388608 \
	  --config min.cleanable.dirty.ratio=0.1 --config min.compaction.lag.ms=60000
	for t in control stop pause history status; do
	  kafka-topics.sh --bootstrap-server HOST:PORT --create --topic __mirror_$t --partitions 1 --replication-factor 3 --config cleanup.policy=compact \
	    --config delete.retention.ms=86400000 --config min.insync.replicas=2 --config unclean.leader.election.enable=false --config segment.bytes=8388608 \
	    --config min.cleanable.dirty.ratio=0.1 --config min.compaction.lag.ms=60000
	done

One record must fit into its topic's max.message.bytes (1 MiB if nobody changed it); a larger one is a *SizeError that names it, and nothing of its update is written.

A record that lies in another topic or partition than its key's does not count, for nobody: it hides nothing, its tombstone takes nothing back, and Config.Notice is told of
it (*StrayError). So what somebody may write into one topic says nothing about what belongs into another.

A session's record that cannot be read concerns its writer only: its sessions get a *SessionRecordError until the writer is opened again, which writes over it, with a number
above all that anything in the topics shows. A tombstone on it ends the writer's session (ErrFenced), because nobody could tell what it took out.

# Why nobody writes beside another

Two kinds of transactional ids keep writers apart. InitProducerId of an id commits or aborts, before it answers, what was begun under it, and from then on refuses whoever
initialised it before (fencing). A read to the end comes behind every transaction that was committed before it began (package topicreader).

	prefix-owner-W   of writer W: its session's own records
	prefix-control   of everything else: Log.Update, and claims, which are updates by a session of keys that are not its own

Log.Update: initialise control; read to the end; decide; write in one transaction under control. Somebody who initialises control in between fences it, and it begins anew.
So updates and claims come one after the other, and each decides on all that those before it wrote.

Open(W): (o1) initialise owner-W; (o2) initialise control; (o3) read to the end; (o4) write the session's record, with a number and a random token, in one transaction under
owner-W.

Session.Update, when every named key was written by this very session: decide on what this process knows, write under owner-W. Nobody else may write such a key:
keyedlog.CheckOwner allows it only to who has read a newer session of W. That one's o4 was committed, so its o1 had fenced this session before, and its o3 had read all that
this one committed. So the records decided on are the newest ones, or the write fails.

A claim: (c1) initialise control; (c2) see that the session's record still is this session's own; (c3) initialise owner-W, read to the end, and see again; decide on what
was read; (c4) write in one transaction under control. With an Open of the same writer elsewhere there are two cases. c1 comes before o2: then either c4 was committed
before o2 answered, and o3 reads it, or o2 fences it and it is never committed. c1 comes after o2: then c3 comes after o1 and fences it. Either o4 was committed before,
then c3 reads it and the claim gives up; or o4 fails, and Open begins anew. So when Open returns, nothing of an older session can be written any more, and all that was is
read.

A claim of another writer's key is allowed when F, who wrote it in session k, has a session above k. Its o4 was read, so session k is fenced, and all that it wrote was read
too. The newer session of F itself must claim the key, and claims come one after the other.

A partition's two records (types 1 and 2 of one mirror, topic and partition) belong together: whoever may not write the one may not write the other. So a session that has
one of them writes the other without a claim, which it does whenever a mirror is stopped, and looks at it with every write.

Fenced is not always taken over: a transaction that took longer than its timeout is aborted by the cluster, which moves the epoch too. So a session whose id was fenced
reads first; if the session's record is another's it is over for good; if it is its own, it initialises the id and reads again, because somebody may have opened the writer
in between. A process that wakes up after it was taken over therefore writes nothing and fences nobody. If it wakes between o1 and o4 it fences the one that takes over,
which then begins anew.

An update whose end was sent and not answered, or answered with an error that a coordinator gives also behind its append (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and
others, see ask), is asked for again. When the answer says that the id was initialised since, its records are looked for: one with its random id is there, then it was
written; none, and no later record of its keys, then it was not, and it is tried again. keyedlog.ErrOutcomeUnknown is left for when the context ends before that is known,
when asking again is refused, and when the keys have been written again since. After any request without an answer the id is initialised again before its next transaction: a
request that comes late must not end it (KIP-890). After a claim whose outcome is unknown, the session's next update initialises control too, whatever its keys are: the
claim may have changed some of its own.

A broker that stands still (its process is stopped, its machine hangs: connections stay up and nothing is answered) is waited for no longer than the cluster leaves it its office. Once a
second without an answer others are asked who leads the partitions, or coordinates the id, now; if that is another one, the request is given up and has no answer, in all that is said above:
what is decided on a produce that was given up is decided anew, in a transaction of its own, and the end of a transaction is asked for again at the new coordinator. As long as it is not
another one, a slow broker is waited for: time alone would end transactions whose markers the old leader has to write, which holds up the id for as long as that one does not answer.

Order: what Log.Update decides on may be changed meanwhile by sessions that write their own keys; such an update counts as one before theirs.

# Reading

Read asks each broker for the ends of its partitions and fetches what is new, until a reading finds nothing new: then what it shows is what there was at a moment. Where
others write without a pause it takes the twentieth reading; that shows every update whole or not at all, but of two sessions that write at once it may show the later one
only. A transaction that a dead process left open hides what follows until its timeout (Config.TransactionTimeout, and up to 10 s more): Read waits, and says so if its
context ends. Opening the dead process's writer ends it at once.

# What is assumed of the cluster

That no record of an acknowledged write is lost: unclean.leader.election.enable=false and copies as above, for __transaction_state too (transaction.state.log.*).

That a broker which was deposed as leader learns of it, or cannot be reached. One that is cut off from the controller and still reached by clients answers with the end that its
partitions had when it was deposed. As long as a process has not seen the new leader it takes that for all there is (package topicreader). Then it can happen, for partitions that
lay there, that Read shows old records, that Session.Check holds a session to be the newest that was taken over since, and that Log.Update, a claim or an Open decides on
old records of those partitions and writes into other ones. It cannot happen that something is written into those partitions on such grounds: a write needs its in-sync copies,
min.insync.replicas of them, and these follow the new leader and answer the old one no more. Nor can a session that was taken over write its own keys, or an update be written
twice: who writes is up to the coordinator, whose answers need the copies of __transaction_state.

# Versions

View.Version is the number of offsets that were read. It is the same for all processes that have read the same, unless a topic was made again meanwhile.

# Requests and rights

	Read             ListOffsets, Fetch: DESCRIBE and READ on all topics. Every few seconds Metadata, every minute DescribeConfigs (DESCRIBE_CONFIGS if granted; without it nobody
	                 checks how they are kept)
	Check            ListOffsets, Fetch of __mirror_control
	Log.Update       Read, and under prefix-control: FindCoordinator, InitProducerId, AddPartitionsToTxn, Produce, EndTxn: WRITE on that transactional id, and on the topics of the
	                 records that really change. AddPartitionsToTxn adds all of them or none, so without a right nothing is written
	Open, claims     the same, and WRITE on prefix-owner-W and, for Open, on __mirror_control
	first Open       CreateTopics: CREATE on the topics; make them by hand where processes shall not

As kafka-acls.sh has them, with --bootstrap-server HOST:PORT --add and the principal of each role, which has everything of the roles before it:

	viewer    --allow-principal User:V --operation Read --topic __mirror_ --resource-pattern-type prefixed
	operator  --allow-principal User:O --operation Write --transactional-id clustermirror-control
	          --allow-principal User:O --operation Write --topic __mirror_pause   (pause, resume, recover)
	          --allow-principal User:O --operation Write --topic __mirror_history
	on-call   --allow-principal User:C --operation Write --topic __mirror_stop    (stop, failover)
	admin     --allow-principal User:A --operation Write --topic __mirror_control (create, start, delete, consent; ask for a failback plan)
	node      --allow-principal User:N --operation All --topic __mirror_ --resource-pattern-type prefixed
	          --allow-principal User:N --operation Write --transactional-id clustermirror- --resource-pattern-type prefixed

READ and WRITE imply DESCRIBE. Whoever may write prefix-control can hold up other updates; whoever may write prefix-owner-W can fence the process that runs as W.

Kafka checks who writes, not what. WRITE on a topic means every record of its types, by hand too, past every check of this package and of mirror, and with any header:

	__mirror_pause    pause, resume and recover every topic
	__mirror_history  write and remove history: who holds it for proof gives WRITE to few
	__mirror_stop     stop every topic and fail it over, or take a stop back
	__mirror_control  every setting of mirrors, source and consents; end the session of every process, or take its place
	__mirror_state    every state and last mirror epoch: what a failover and a failback cut off and keep
	__mirror_status   what reports say

A header writer makes a key that writer's, so that Log.Update refuses to change it (keyedlog.ErrOwned): whoever may write a topic can lock its own types' keys; opening that
writer, whose session then gets a number above the header's, and claiming the key unlocks it, and so does a tombstone by hand. The headers update and of can delay when
their own record is shown by one reading. WRITE on any of these topics also lets somebody leave a transaction open on it, which holds up Read until its timeout (the brokers'
transaction.max.timeout.ms, 15 minutes), if he may write some transactional id. None of it changes a record of another topic.
*/
package kafkastore
