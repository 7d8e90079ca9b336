/*
Package clustermirror is the map of a module that mirrors Kafka topics: KIP-1279 Cluster Mirroring as Go packages.

A mirror copies topics from a source cluster to a destination, byte for byte and offset for offset. While the source lives the copy is read-only and follows it.
When the source is lost the copy is made writable (failover). When the old source comes back it becomes a mirror of the new one without copying everything again
(failback). This page is the manual; package mirror has the API.

The library never fails over by itself. It offers facts (states, ends, ages, errors) and waits for a person, or for the caller's code.

# Words

	source, destination    the cluster read from, the cluster written to
	batch                  the unit that producers write and brokers store; it is copied unchanged
	leader epoch           a number that grows with each election of a partition's leader; every batch carries the one it was written under
	log end offset         where the next batch goes
	high watermark         the offset below which all in-sync replicas have the log
	last stable offset     the first offset of the oldest open transaction, or the high watermark when none is open
	LME, LMO               last mirror epoch and last mirror offset: where a mirror ended, recorded when it is stopped
	PREPARING … STOPPED    the states of a mirrored partition
	episode                one life of a mirror from PREPARING to STOPPED; a partition may have several
	gate                   the switch of a destination log that keeps clients from writing
	consent                a person's permission to drop exactly named records
	sink                   where records go before they are dropped
	spec §n, decision n    in comments: the project's own specification of KIP-1279's behaviour, from which the rule comes
	F-nn                   in comments and tests: a failure from the field that the rule or the test answers

# The life of a partition

	                 start                        aligned                      stop
	UNKNOWN/STOPPED ───────▶ PREPARING ─────────▶ MIRRORING ─────────▶ STOPPING ─────────▶ STOPPED
	                              │                ▲  │  ▲                 ▲                 (clients write)
	                              │        resume  │  │  └── EPOCH_FENCING │
	                              │     PAUSED ────┘  │      (a batch's    │
	                              │        ▲          │       epoch is     │
	                              │     PAUSING ◀─────┘ pause above ours)  │
	                              ▼                                        │
	                           FAILED ── retry ▶ where it was      from every state of a member

PREPARING checks before it changes anything: that the source is the cluster it was, the topic the topic it was, that no mirror runs the other way; then it finds the
point up to which both logs are the same. Records of the destination beyond that point would be dropped, so a start that would drop any is refused with the exact range
until somebody consents to that range. Only then is the gate closed, the log cut, and every replica waited for.

MIRRORING fetches as a consumer does, so the source's in-sync replicas are not touched. Every batch passes one check (checksum, order, leader epoch) and is
appended as it came. Nothing is decompressed; of the records of an uncompressed batch only the frames are walked.
When the source itself loses records in an unclean election, a copy that clients never wrote to follows it without being asked; one that was open before needs consent.

STOPPING needs no source. In this order: stop fetching; stop moving groups; wait for the replicas (Config.ReplicaWait), and cut what they cannot confirm by then; record LME
and LMO; raise the leader epoch above LME; append an ABORT for each open transaction and one MIRROR_PID_RESET; wait for the replicas again; settle producer ids; put
groups to where the source had them last, never behind LMO; open the gate; record STOPPED. After a crash at any of these the same steps are run again and end in the same result. Producer
ids are an optional ability of a Log (ProducerIDSettler), groups one of a Destination (GroupWriter); without them there is nothing to do there.

FAILED harms one partition only. Status says why and what to do. It is retried with growing pauses, without end unless Config.Retry says otherwise. What a person has
to decide (another cluster behind the address, a recreated topic, records that would be dropped) is not retried.

# What is durable before what

  - A state change is in the StateStore before anything is done because of it.
  - A batch is in the Log before the partition's position moves. The position is the log's end; there is no second record of progress.
  - Readers, LMO, lag and plans use Log.Replicated, what survives the loss of this process; only fetching uses Log.End.
  - LME and LMO are recorded once per episode, before the leader epoch is raised and before the first marker is appended.
  - The gate opens after the markers are replicated, and STOPPED is recorded after the gate is open. The destination is the truth about openness; the store only records it.
  - Records that a truncation will drop are in the Sink before it happens.

# Failover

	plan := mirror.PlanFailover(m.Snapshot(), mirror.FailoverOptions{})
	fmt.Println(plan)
	report, err := m.ExecuteFailover(ctx, plan)

The plan is a pure function of what is known at that moment, and prints what would be lost, how old that knowledge is, and which transactions will be aborted. A failover
never refuses because ends have moved since: it reports the difference. Transactions whose COMMIT had not arrived are aborted in the copy although they were committed
at the source; this is KIP-1279's rule, and the report names them. Those that are committed in one partition and aborted in another are listed beside them as torn; with
FailoverOptions.Torn TornRefuse the failover is refused instead, and with TornCut every copy is cut back to the newest point at which none is torn.

# Failback

The old source now is the destination of a new mirror in the other direction. That mirror asks the cluster that took over where the mirror out of the old one ended (LME, LMO), finds the
exact point by asking for the end offsets of leader epochs, and needs consent to drop what lies beyond: records that were never mirrored.

	plan, err := back.PlanFailback(ctx, "orders")
	fmt.Println(plan)                        // what would be given up, per partition; where groups go on; settings and access rules that follow back
	report, err := back.ExecuteFailback(ctx, plan) // consent to exactly this

A new primary can only be asked if its Source is a mirror.LastMirrorEpochReader. A cluster of mirror/memlog is one. mirror/kafkasource is one, where the mirror into that
cluster kept its states there (mirror/kafkastore) and the user may read them.
Without one nothing proves what both logs have in common, and the plan names the whole log as what would be dropped.

# How to write a Log

Implement mirror.Log: a list of whole batches with a start, an end, and a gate. examples/custombroker is a worked one on plain files. Three things matter:

  - Append stores the bytes verbatim. The next offset is in the batch's header (mirror.Batches), never a count of records. Gaps are legal.
  - Replicated must not run ahead of what survives a crash.
  - The gate is closed from the log's creation on and after every restart, until Open.

mirror/logtest checks a Log sentence by sentence, and has a crash kit for logs that survive their process.

# How to write a Source

Implement mirror.Source and mirror.Fetcher. Every call must end with its context. Report errors as *mirror.SourceError: its Code decides what the mirror does next. Never turn an error
into an offset. mirror/kafkasource is the one for Kafka; mirror/memlog's cluster is one in memory.

# How to write a StateStore

Better write a keyedlog.Log: a few keyed records with atomic conditional batches. keyedlog.NewStateStore and mirror.NewControl then keep states, desired state, history and reports in
it, and processes that share it follow each other. mirror/filestore and mirror/kafkastore are two; keyedlog/keyedlogtest checks one.

Or implement statemachine.StateStore alone: conditional writes under an owner's name, where opening a name fences whoever had it. A write that was reported must survive.
statemachine/storetest checks it.

# Several processes

A mirror's partitions belong to an owner's name (Config.Owner). A process that opens the name takes everything over from the recorded states, and fences the one that had it: that one
serves nothing any more, and when it was only held up it asks its store before it changes another byte. Verbs (mirror.Admin) come from any process, also while no process
mirrors, and never from two at once: each is one conditional write. What processes report stays readable when they are dead, with its age.

# Packages

	mirror                             Log, Source, Destination; Mirror, Admin, plans, Compare
	mirror/kafkasource                 a Source over franz-go
	mirror/properties                  settings from Java properties files
	mirror/memlog                      a cluster in memory: Destination and Source
	mirror/fence                       fences at a Kafka source for a promotion, and an end for transactions left open there
	mirror/filestore                   the keyed log in one folder, shared by the processes of a machine
	mirror/kafkastore                  the keyed log on compacted topics
	node                               a mirror node: a service that runs the mirrors of a Kafka cluster
	metrics                            mirrors in the eyes of Prometheus
	statuspage                         mirrors on one page for a browser, read only; the same as JSON
	mirror/kraft                       the Kafka destination: one more broker, which leads the mirrored partitions
	mirror/verify                      proof that source and destination hold the same, while the mirror runs
	mirror/dropped                     what a sink kept of dropped records, read back with what became of their transactions
	mirror/rehearsal                   a canary topic that is failed over and brought back on schedule
	mirror/reconcile                   what the old source has after a failover and the copy has not
	mirror/logtest                     conformance and crash kit for a Log
	mirror/mirrortest                  failovers and failbacks of a service's own clients in its go test
	statemachine                pure   states, moves, steps, retries; StateStore and its records; MemoryStore
	statemachine/storetest             conformance kit for a StateStore
	keyedlog                           keyed records with atomic conditional batches; a StateStore over them
	keyedlog/keyedlogtest              conformance kit for a keyed log
	producerstate               pure   producers and in-flight transactions of one log
	logtrunc                    pure   leader-epoch cache, truncation at the last mirror epoch, the point where two logs part
	txnabort                    pure   the ABORT markers and the MIRROR_PID_RESET that end a mirror
	txncut                      pure   which transactions a failover tears apart, and the newest cut at which none is torn
	internal/batch              pure   the bytes of record batches
	internal/recordreader              the records of batches, whatever their compression
	internal/partition          pure   the core of one partition: Step(event) → effects
	internal/closest            pure   the name that a mistyped one was meant to be
	internal/secret             pure   which settings are secret, and references to secrets kept elsewhere
	internal/clustermetadata    pure   a KRaft cluster's metadata, built from the records of its log
	internal/clientlistener            passes clients through to stock brokers, sends consumers of what is led here to followers
	internal/replicaserver             the server side of Kafka's replication protocol
	internal/leaderlog                 one partition's log as a leader has it whose followers hold the copies
	internal/kraftclient               single requests to controllers and brokers
	internal/metadatasync              what to write so that groups, topic settings and access rules follow the source; pure
	internal/kafkametadata             groups, topic settings, access rules and rights of a cluster, by the stock protocol
	internal/kraftlife                 whole lives of a mirror between two real clusters
	internal/nodelife                  mirror nodes as processes: started, ended, upgraded, given new credentials
	internal/synclife                  tests of what follows besides the records, between two real clusters
	internal/replicareader             the copies that stock brokers hold, and which one is the log
	internal/topicreader               compacted topics read to their end
	internal/asking                    requests to a cluster of which a broker may stand still
	internal/kafkaconfig               Kafka's property names for connections and security
	internal/kafkatest                 real Apache Kafka for tests
	internal/kafkatest/proxy           a bad network in front of it
	internal/kafkatest/lives           what tests of whole lives on real clusters share
	internal/kafkatest/children        other processes that tests give orders to, kill and hold up
	internal/realkafka                 whole mirrors against real Apache Kafka
	internal/processes                 mirrors and verbs in several processes
	internal/clientmove                tests of clients that go from one cluster to the other
	internal/runbook                   tests that follow the pages of the runbook
	internal/deployment                what the files for deployment say, held against the code
	internal/check                     the test command
	internal/casecheck                 the field cases, their tests and mutants
	internal/fuzzrun                   runs the fuzz targets in turn
	internal/fuzzbound                 the time and the memory that a fuzzed input may cost
	internal/overlay                   builds the module with patches, for the tests of tests
	internal/mutate                    small generated changes of the pure code, and whether a test notices
	internal/simulator/seeded          known bugs put back, and how soon the simulator finds them
	internal/layout                    the import graph, purity, and the code in prose
	internal/pictures                  the pictures of the status page, made by a browser
	internal/bench                     speed, lag and memory, beside a bare fetcher, a copier of records and MirrorMaker 2
	internal/clienthistory      pure   what clients saw, judged with the words of Jepsen's checker for logs
	internal/simulator                 disaster recovery in one goroutine: the core in a second shell, an adversary, a model that judges
	internal/simulator/simulate        plays seeds and scripts
	internal/simulator/model    pure   what a mirror may do, from the specification alone
	internal/chaos                     a mirror's process and real brokers under faults
	internal/chaos/talk                what the chaos test and its mirror's processes say to each other
	internal/long                      the long forms of tests, by the hour
	examples/quickstart                the whole story in one command
	examples/custombroker              a broker on plain files, with mirrors
	examples/kafka-mirror              the verbs on a command line
	examples/two-clusters              a whole life between two real clusters in one command

A pure package has no goroutine, clock, I/O or client; time and randomness are arguments.
*/
package clustermirror
