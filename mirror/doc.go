/*
Package mirror runs mirrors: it copies topics of a Source into the Logs of a Destination, fails over and fails back. It imports no Kafka client.

It never fails over by itself. It offers facts (Mirror.Status, events, plans) and does what a person, or the caller's code, says. The manual of the whole module, with the
words used here, is at its root: go doc github.com/clustermirror/clustermirror.

# For whoever runs a mirror

Open starts a mirror, Mirror.Admin has its verbs, Close ends it:

	src, err := kafkasource.New(kafkasource.Config{Seeds: []string{"localhost:9092"}})
	if err != nil {
		return err
	}
	defer src.Close()
	dst := memlog.New(memlog.Config{ClusterID: "standby"})
	m, err := mirror.Open(ctx, mirror.Config{
		Name: "dr", Source: src, Destination: dst, Store: dst.StateStore(), Sink: mirror.FileSink("/var/lib/mirror/dropped"),
		OnEvent: func(e mirror.Event) { fmt.Println(e) },
	})
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.Admin().Start(ctx, []string{"orders"}, mirror.StartOptions{})

Open needs the state store and the destination; the source may be dead. It goes on where the recorded states say, as far as the Control wants it: the default Control forgets with the process,
so after a restart start again the topics that are to be mirrored, not those that were failed over. A partition that was MIRRORING then goes on at its log's end.

Verbs record what is wanted; nil says that it is recorded, not that it is done. Mirror.Await waits for a status. Mirror.ExecuteFailover and Mirror.ExecuteFailback record,
wait and report. All of them end with their context, and none of them needs the source, except PlanFailback and what follows from it.

A Mirror that is opened exists by that. Where processes share a Control, each may use the verbs, and look at a mirror whose process has died: an Admin of one's own has
Create, Delete, AlterConfig, Start, Stop, Pause, Resume, Recover, AskFailback, Failback, AbortFailback, Await, List, Describe and History. Each verb has a dry run, and a dry run a plan:

	control := mirror.NewMemoryControl() // mirror.NewControl makes one that processes share
	admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "dr", Control: control, States: store, Destination: dst, Strict: true})
	if err != nil {
		return err
	}
	dry, err := admin.Stop(ctx, []string{"orders"}, mirror.StopOptions{DryRun: true})
	if err != nil {
		return err
	}
	fmt.Println(dry) // which clusters, which topics, and the plan's name
	_, err = admin.Stop(ctx, []string{"orders"}, mirror.StopOptions{Intent: mirror.Intent{Reason: "east is lost", Plan: dry.Plan}})

What would be done otherwise than the plan says is refused, and so is a verb that finds other clusters than those that are named or pinned. A strict Admin asks for
a reason and a plan, or the destination's cluster id, wherever something is opened, discarded or deleted. Who did what and why is in History. Topics of one topic set
(setting mirror.topic.set.NAME) are stopped together, unless a part is meant.

A failback needs both clusters, and an Admin may reach one. So it asks: the process that runs the mirror compares the logs and answers with the plan, and consent to it is recorded as
everything else is. A question waits QuestionLife for its answer, and a newer one takes its place:

	back, err := admin.AskFailback(ctx, []string{"orders"}, mirror.AskFailbackOptions{})
	if err != nil {
		return err // a *NotAnsweredError: no process runs the mirror, or it is not done
	}
	fmt.Println(back) // what would be given up, and why
	dry, err := admin.Failback(ctx, back, mirror.ConsentOptions{DryRun: true})
	if err != nil {
		return err
	}
	_, err = admin.Failback(ctx, back, mirror.ConsentOptions{Intent: mirror.Intent{Reason: "east is back", Plan: dry.Plan}})

Admin.Await waits until topics are where a verb wants them, also where the mirror runs elsewhere, and says what is missing and why: no process runs it, a consent is needed …
Description.Protection is the verdict for a script: whether what would be lost now is known.

What Describe shows comes from the Control, the state store and reports. A process reports every five seconds that it lives, so fifteen seconds after its last word it is said not to run; what
it says of a partition is about ten seconds old at most, however many partitions there are and however long nothing happened in one. Hosts whose clocks are more than a few seconds apart look
dead, or not known to live, to each other.

The night of the failover:

	plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
	fmt.Println(plan) // per partition: what may be lost, how old that knowledge is, which transactions will be aborted
	report, err := m.ExecuteFailover(ctx, plan)
	fmt.Println(report)

Before it, stop the producers of the source if they can still be reached: the mirror cannot do that, and what they write after the last fetch is not in the copy. Repeating a
failover is harmless.

Time lag (PartitionStatus.LagTime) is now minus the last moment at which the copy held everything then known at the source, on this process's clock. Timestamps of records
play no part in it. What cannot be known is Unknown or the zero time, never a number that looks like one.

# Errors and events

What a verb refuses is an *Error, with the codes of KIP-1279; other errors of a verb are the Control's or the store's. A source's errors are *SourceError, whose Code says what kind of trouble it is and whose Advice what to do. What happens in
the background has no caller to return to. It is in three places with the same words: PartitionStatus.Reason (TopicStatus.Err for a whole topic), an Event, and the Logger.
Events are handed to Config.OnEvent one at a time; those of one partition come in their order. The function is called on the mirror's own goroutines: it must not block, and must not
call the Mirror. To do more than to print or count, put the event into a channel of yours with room, and drop it when there is none.

One failed partition stops no other. FAILED is retried (Config.Retry), unless RetryAttempt is statemachine.NonRetryable: then a person has to act, and Reason says how.

# Consents and sinks

A start that would drop records of the destination is refused, with the exact range (PartitionStatus.NeedsConsent, or a FailbackPlan for all partitions at once). A Consent
allows dropping that range, of that topic id, in that episode, and nothing more; a range that has shrunk since is covered, one that has grown is not. It is used up when
MIRRORING is reached. ExecuteFailback(plan) is consent to exactly what the plan names.

One cut needs no consent: a copy that clients never wrote to follows its source when that itself lost records in an unclean election. It is reported as RecordsDropped all the same.

Records are handed to Config.Sink before any cut, with or without consent; if the sink returns an error, nothing is cut. FileSink keeps them as files that ReadSinkFile reads; Discard keeps nothing,
and has to be named, because there is no default. Package mirror/dropped gives the files back as records, each with what became of its transaction.

# Failover, drain, promotion

A failover (Failover, ExecuteFailover, Admin.Stop) makes no call to the source: it may be dead. Where a part of it still answers, FailoverOptions.Drain lets those partitions copy on, each by itself, until they have all that
the source has, or the time is over; the others are stopped at once. The end of that time is kept with the stop in the Control, so the next process goes on with it, and a stop without a drain ends it.

What would be lost now is in Status.AtRisk (Age, Offsets, about how many Bytes, OpenTransactions, and how old that knowledge is), from what was heard anyway. Each failover is measured, step by step
(FailoverReport.Steps, Status.Failovers); the plan and Describe say what the next one is expected to take: the longest of the last few, by whichever process of the mirror, and unknown until one was measured.

What a person has to know besides, and cannot ask for any more when the source is gone, is gathered at refreshes while it answers (Surroundings): transactional ids, topics that nobody mirrors, rights that are missing at the
destination, where it gives out producer ids. A plan is made at every refresh then, and what is kept of it (KeptPlan) is in the process's report: Describe shows it, with its age, when the source does not answer or no process
lives, and a dry run of a stop shows what is around the records (Description.BeforeStop).

What producers write between "caught up" and "stopped" is missing afterwards, so a planned move needs a fence. Promote raises one at the source (package mirror/fence), sees by two equal looks at its ends that nobody
writes, waits until transactions have ended, drains, looks at the ends once more, stops, and compares what it has with them: PROVED, or what is not. What goes wrong before the stop is recorded lowers the fence again, and
the mirror goes on; what a crash leaves is ended by Promote or taken back by AbortPromotion. Behind a stop the fence stays up and recorded (Description.LeftFences) until LowerFence.

Mirror.ReverseAndStart does both halves of a planned move in one call, for a program that runs a mirror in each direction: it promotes, and then has the old source copied to as the standby, if nothing is given
up by that. The same call again goes on after a crash at any step.

A failback's plan also says what follows the source back: groups at the cluster that gives records up go on where the source has them, or where the log is cut (FailbackPlan.Groups), and topic settings and access
rules become the source's (Settings, Rules). Mirror.PlanFailback asks both clusters for that and decides as the mirror will when mirroring has begun; what it could not ask is unknown, with the reason. A group that has members
there stays where it is: stop them first. What groups commit between the plan and its execution is in no plan.

A failback ends with a comparison of both logs, if there is a Config.Verifier (package mirror/verify has one): FailbackReport.Verification says how much is equal byte by byte, how much record by record, what could not be
compared and why. It begins when everything is in step, takes Config.VerifyBound at most, and changes nothing, whatever it finds.

A failback is recorded with the consent to it (Failback), and goes through these steps. A process that crashes at any of them is followed by one that goes on; each may be said again; Admin.AbortFailback
gives it up, all topics of the plan together:

	step                     recorded                          after a crash               AbortFailback                             undone by it?
	plan                     nothing                           plan anew                   nothing is under way                      nothing was done
	consent                  the wish, FailbackClosing         goes on                     STOPPED: open, as found                   yes: not a byte, not a setting
	compare and close        PREPARING, FoundOpen              compared anew               STOPPED: opened, as found                 yes: not a byte, not a setting
	first cut or write       FailbackCopying, before it        goes on, cuts the rest      PAUSED: closed copies, after the cuts     NO: the point of no return
	                                                           that was consented to       that were consented to
	catch up                 MIRRORING                         goes on at the log's end    PAUSED, where it is                       no
	promotion home           Promotion                         Promote, AbortPromotion     after AbortPromotion: PAUSED              no
	stop recorded            the wish, STOPPING                opens what is left          nothing is under way: a failover          no

Opened as found means the gate, who leads the log, and every byte and setting: clients can write there again, as before. What leader epochs were raised and partitions that a topic has got more stay. What
was given up is in Config.Sink before it is cut, and the result of AbortFailback names it. From closed copies a later failback copies the difference only. A stop of a half-done failback is no way to give
it up: it opens the logs here, while clients write at the other cluster.

The first line of Describe says who is writable while a failback is under way: only the source, here (as it opens), or neither side; and both only as long as logs here, which were open before the failback, are not known to be
closed yet. Of this side that is what the state store has now. The other side is not asked: a failback does not begin before the mirror from here was stopped there, the age of its last answer is said, and of fences
only the one of a promotion that is under way here is known.

With Config.VerifyRate the copies are compared again and again while they are mirrored: at that rate, and only while copying does not need the source. CopyDiffers tells of a difference or a hole, VerificationPassEnded of each pass
over all copies, Status.Verification and PartitionStatus.Verification how it stands. A source that does not answer is no difference: nothing is compared then, and the status says so. Nothing is changed because of what is found.

A transaction writes many partitions, and a mirror copies each on its own. So at a failover its COMMIT may be in one copy and not in another: it ends committed there and aborted here, torn apart. Plan and report list such
transactions (TornTransactions): producer id, epoch, where they are committed, and where their data are aborted. Where a transaction is open in a copy, Snapshot reads the newest part of the copies for that, never
the source: at most 64 MiB of all of them together (of each at least 64 KiB), in two seconds; the plan says below which offset it has not looked. Transactions v1 do not tell which COMMIT an open piece belongs to:
what may be torn is listed as possibly torn, and treated alike. With FailoverOptions.Torn and StopOptions.Torn TornRefuse nothing is stopped then, and the error (*TornTransactionsError) has the list. A stop from another
process goes by what the one that has the copies has reported: it looks while its source does not answer. A copy that has received nothing at all of a transaction does not show that it is torn, and
neither does one that another process has. Where a mirror's partitions are several processes', each sees its own.

With TornCut (FailoverOptions.Torn, StopOptions.Torn) no transaction that the copies show is torn: every copy is cut back to the newest point at which none is (package txncut has the algorithm and why it is the
newest), and ends there. What that gives up is in the plan, by partition with offsets, records, bytes and what readers may have seen (TornTransactions.Cut), counted as loss. The partitions of a failover wait, behind their replicas,
until all stand still; then the copies are read, the whole vector is recorded as LMO in one write of the state store, and each partition cuts its log, hands what goes to the Sink, ends what is open with ABORTs and has groups behind the cut
moved to it. A crash at any point ends in the same vector. The offsets of what was cut are used again, in a higher leader epoch: the one exception to that no offset of the source is. There is no cut, the stop is as with
TornAbort, and plan, report and event (CutMade) say why, where it would give up more than MaxGiveUp, end a partition below where the plan does, or cut a log that clients could write before it was mirrored (an earlier
stop, a failback: where they ended is not recorded); where a partition does not come to stand in time, as one that another process has: several processes cannot cut together; and where what was read of the copies is not enough, by the times
of their markers. Where the destination's copies may be read (CopyReadTeller) and something goes, the caller has to say CutReaders, or nothing is stopped (ErrCutExposed).

While topics are stopped the mirror looks at their old source every Config.OldSourceInterval, read only. SourceReturned tells that it answers again after it did not, SplitBrainSeen that it has more than was known of it
when the topic was stopped: clients write there too. Status.OldSource and TopicStatus.SplitBrain say the same until the topic is started again or the mirror is deleted.

After a failover, once the old source can be read again, package mirror/reconcile lists which transactions it committed and the copy has aborted, and which records only it has.

# Groups, topic settings, access rules

At every refresh (Config.RefreshInterval) at which the source answers and is fetched from, and at groups also when mirroring begins, a mirror looks at what its records need around them. The three parts run beside each other and
beside the copying; Status.Metadata says how each stands, events (SyncTrouble, SyncSkipped) tell what is new, and nothing of it stops a record. Topics that are paused, failed or stopped take no
part, and after a failover nothing of it is written any more. A part that one side cannot do (an ability of metadata.go that it lacks, no authorizer) is off, and said once.

Groups are moved to max(start, min(offset at the source, what the copy holds replicated, end of the offset's leader epoch in the copy)) by the process that has the partition. Whose a group's offset at the destination is, is remembered in
the Control before it is written (decision 17), so a crash or a restart moves nothing and makes nobody else's of it:

  - What the mirror wrote follows the source, also back: a rewind there is a rewind here (GroupMovedBack).
  - A group with members at the destination is never moved. The cluster itself sees to it: a member that joins at the last moment is safe, if it is still there when the commit arrives. Kafka has
    no fence for a commit: one whose answer is lost may still be carried out later, also after the log was opened.
  - What somebody else committed at the destination stays, until the group has moved on at the source beyond that place; then it follows again. Deleting the group's offsets at the
    destination has it follow at once.
  - When mirroring begins, what the destination has is from before, and is taken over, forwards or back: the old source of a failback has offsets of records that it has no more. So it is when
    the source's topic was made again and a start consented to begin anew: offsets of the topic before say nothing of this one, and a stop that comes before the next look puts groups to its start.
  - A commit keeps its metadata, and its leader epoch if the destination has reached that; a clamped one has the copy's epoch. Offsets that stand still are written again every six hours,
    because a cluster forgets those of groups without members (offsets.retention.minutes).
  - A stop first ends the moves of its partition and waits for those under way. Then it puts the groups that are the mirror's to where the source had them when they were seen last, not beyond the
    last mirror offset. It does not wait longer than CallBound for that: GroupsNotSettled names what is left, which is tried again behind the stop. GroupLeft names groups that are somebody's
    at the destination and are elsewhere than they were at the source: after a failover of a part of the topics, a group may be active there for one topic and old in another (PlanFailover says so
    before).

Topic settings are those that the source sets on the topic, but for mirror.topic.properties.exclude and tiered storage. A topic is created with them in the one call, and not at all while they
cannot be read: a compacted topic that is made with the defaults deletes what it should keep. Later they are changed one by one; what the source drops goes back to what it was here, if
the mirror had set it and nobody has changed it since.

Access rules are those that mirror.acl.include matches; * leaves out the resource CLUSTER. Missing ones are made. Removed are only rules that this mirror made, when the source has not had them
at two looks in a row, and none at all while a topic of the mirror is stopped: its applications are here now. A rule that the filter does not name any more stays.

# Goroutines, and what Close waits for

A Mirror has a few goroutines of its own, one for each connection to a source broker (Config.FetchersPerBroker), and one for a partition while that has something to do; an idle
partition has none. Calls on one partition's Log that change it come from one goroutine at a time; readers may call at the same moment. A Log that is slow holds up its own
partition; others of the same fetch reply do not wait longer than a bound for it, and a fetcher holds at most FetchOptions.MaxBytes of bytes that are still worked on, besides the
reply that it receives.

Close ends every call's context and waits until the calls into logs and stores have returned, at most Config.CallBound. It waits for no answer of the source. It changes no state.
It does not close Source, Destination and Store: they are the caller's, who closes them afterwards.

All methods of Mirror, Admin and Control may be called at the same time. Plans, reports, statuses and snapshots are plain copies.

# For whoever writes a Log, a Source or a Destination

The contract is in the comments of Log, Source and Destination, sentence by sentence; mirror/logtest checks a Log. Batches, CheckBatch and Kind are what a Log needs of batch bytes,
Compare says whether two logs are the same, and where not. Every method that takes a context must return when it ends: the mirror gives each call a bound and goes on
with the next try, but it cannot take back a goroutine that never returns. Close says so when one did not.

A Log may be wrapped to change what it does (examples/quickstart bounds one in memory). A wrapper that embeds the interface hides optional abilities: ProducerIDSettler
and Recoverer have to be passed on, and GroupWriter, TopicConfigWriter, ACLWriter and RightsChecker by one around a Destination. A process that begins reads each log whole, once, before its partition can be mirrored or stopped; a
Recoverer spares it what it knows of itself.

# For whoever tests with it

A cluster of mirror/memlog is a Source and a Destination in one, and has switches for what goes wrong: elections, lost tails, retention, recreated topics, dead brokers, held-back replicas, an
unreachable source. Nothing in this package or that one does I/O of its own (FileSink aside), so both run inside a testing/synctest bubble, where hours of retries take no time.

# Limits

  - Compressed batches are not decompressed. Their checksum, their order and their headers are checked; a batch whose header contradicts its compressed records
    (a wrong record count, offsets that do not fit) is copied as it is, and only consumers notice. In uncompressed batches each record's length and offset are checked; keys and values never are.
  - Batches of message formats v0 and v1 are refused by name.
  - A batch larger than the source sends is fetched alone, and needs as much memory. Config.MaxBatch and the Log may refuse large ones.
  - A transaction whose COMMIT had not arrived is aborted in the copy although it was committed at the source (KIP-1279). Plan and report name it, and whether it is torn: committed in another partition.
  - Of what surrounds the records groups' offsets, topic settings and access rules follow; quotas, users and their passwords, tokens and the settings of brokers do not.
  - A Mirror belongs to one process at a time. A second one that opens the same owner's store fences the first, which stops writing (ErrFenced, Status.Fenced). A call that was
    already inside a Log when its process was held up (SIGSTOP) finishes when it wakes; only the Log's own leader epoch can stop that one.
  - Clocks of processes are compared where reports are shown: an age by a clock that is behind cannot be told from silence, and is shown as the node's own. A clock ten seconds behind is enough.
*/
package mirror
