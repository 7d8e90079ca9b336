// Package kraft is a mirror.Destination for an Apache Kafka cluster as it is: the process joins the cluster (KRaft, 3.9 to 4.4) as one more broker, leads the mirrored partitions, and
// the cluster's own brokers copy from it by Kafka's replication, byte for byte. A failover hands the leadership to them. No broker is changed, and nothing is stored here but who this
// process is.
//
//	d, err := kraft.Join(ctx, kraft.Config{
//		NodeID:      9999,                                 // an id that no broker has
//		Controllers: []string{"10.0.0.1:9093", "10.0.0.2:9093", "10.0.0.3:9093"},
//		Listen:      "0.0.0.0:9990", Advertised: "mirror-1.example.com:9990",
//		Folder:      "/var/lib/mirror",
//		Remember:    log, // the keyedlog.Log on which Control and StateStore stand
//	})
//	m, err := mirror.Open(ctx, mirror.Config{Destination: d, …})
//
// Preflight looks at a cluster and changes nothing; Join does that first. SECURITY.md says what rights the process needs, what they amount to, and how to take them away. Read "Limits"
// before the first use on a cluster that matters.
//
// # The parts
//
//	metadata.go       follows __cluster_metadata: everything believed of the cluster comes from there
//	membership.go     registration, heartbeats, fencing; identity.go: who this process is
//	standby.go        waiting for one's turn under a node id, and how a process stands; resign.go: leaving one's place to who waits
//	creation.go       a new topic, and the shape in which a mirrored partition stands
//	fence.go          raising leader epochs; barrier.go keeps fences away from what they would break
//	handover.go       Log.Open: a stock broker becomes the leader
//	takeover.go       Log.CloseForWrites: this process becomes the leader of a partition that is the clients'
//	recovery.go       what partitions hold, after a restart
//	producerids.go    keeps the cluster's producer ids above the mirrored ones
//	give.go           moving a partition to another mirror process; force.go: opening without any (node.GiveUp does it for a whole node, and records it)
//	left.go           what a cluster has of a node id; unregister.go: the kill switch
//	foreign.go        partitions of others that the cluster places here; limits.go: largest batches; settings.go, remembered.go: what is to be put back
//	readable.go       the listener for clients, if there is one
//	groups.go         for metadata sync: groups, topicconfigs.go: settings of topics, acls.go: access rules, rights.go: what may be done of that; brokers.go: whom they ask
//
// internal/replicaserver answers the brokers, internal/clientlistener the clients, internal/leaderlog is the log that they copy, internal/replicareader reads their copies, internal/clustermetadata understands the metadata.
//
// # How a mirrored partition stands
//
//	replicas [9999 1 2 3]  in sync [9999]  eligible []  nothing adding or removing
//	topic:  min.insync.replicas=1  unclean.leader.election.enable=false
//
// Two guarantees rest on that, and each has its own tests:
//
// No stock broker leads before the partition is handed over. The controllers elect from the in-sync replicas, from the eligible leader replicas (KIP-966), or uncleanly. The in-sync
// replicas are this process alone. A stock broker becomes eligible only by leaving the in-sync replicas while fewer than min.insync.replicas are left, and that is 1. Unclean elections are
// off for the topic itself, whatever the cluster says. What an operator forces by ElectLeaders is seen within a second (Event Violation), and a partition that a stock broker leads is never
// silently taken back. A setting that an operator changes is taken for what he wants the topic to have: it is remembered for the hand-over, told (Event SettingKept), and the safe value is set
// again; settings.go says how. Nothing is appended and no leader epoch is raised before that, and where it fails an Event Unsafe says why.
//
// The copy survives. The stock brokers are full replicas and not additions under way: a reassignment that somebody cancels (Cruise Control does before it begins) would delete the copies
// of the added brokers at once. There is nothing to cancel.
//
// If this process dies its partitions have no leader: nobody reads, nobody writes, nothing is lost. It comes back as their leader, under its own incarnation at once, or another process
// under the same node id when the session has ended (9 s), or at once after Resign. Any number of processes may be started under one node id, from folders of their own: the controllers let
// one in, the others wait in Join.
//
// # The conversation
//
// "Kafka" names where stock Kafka reacts, for whoever wants to check it there.
//
//	what                     request, and what counts in it                              Kafka                                                shown by
//	features, versions       ApiVersions to a controller                                 ControllerApis                                       TestRealKafkaFirstLife
//	metadata                 Fetch, topic id …01, replica −1, current leader epoch       KafkaRaftClient.handleFetchRequest                   internal/clustermetadata
//	join                     BrokerRegistration: features [finalized, highest tried],    ClusterControlManager.registerBroker                 TestRealKafkaFirstLife
//	                         one log dir, previous broker epoch
//	stay                     BrokerHeartbeat every 2 s, metadata offset, cordoned dirs   BrokerHeartbeatManager, ReplicationControlManager    TestRealKafka…Session…
//	create                   CreateTopics [9999], the two settings                       ReplicationControlManager.createTopic                TestRealKafkaFirstLife
//	followers                AlterPartitionReassignments [9999 1 2 3]                    PartitionReassignmentReplicas                        TestRealKafkaFirstLife
//	complete, then alone     AlterPartition: in sync all, then [9999]                    ReplicationControlManager.alterPartition,            TestRealKafkaFirstLife
//	                                                                                     PartitionChangeBuilder
//	copy                     served: ApiVersions, ListOffsets, Fetch 13–18,              ReplicaFetcherThread, AbstractFetcherThread          TestRealKafkaLogContract
//	                         OffsetForLeaderEpoch
//	share groups' lag        served: ListOffsets −1 of replica −1 (the end),             NetworkPartitionMetadataClient,                      TestRealKafkaSyncRights
//	                         FindCoordinator 4–6 (there is none here)                    PersisterStateManager
//	transactions             served: WriteTxnMarkers (nothing to mark; the coordinator  TransactionMarkerRequestCompletionHandler            TestRealKafkaReadable
//	                         leaves the partition out)
//	reading                  served to clients, on the listener of Config.Clients: the  FetchSessionHandler, ReplicaManager (KIP-392)        TestRealKafkaReadable
//	                         table in internal/clientlistener
//	truncate                 Fetch answers with a diverging epoch                        AbstractFetcherThread.truncateOnFetchResponse        TestRealKafkaFirstLife
//	epoch + 2                BrokerHeartbeat want fence, then not                        ReplicationControlManager.handleBrokerFenced         TestRealKafkaFirstLife
//	producer ids             AllocateProducerIds, InitProducerId                         ProducerIdControlManager, RPCProducerIdManager       TestF48…
//	hand-over                AlterPartitionReassignments [1 2], AlterPartition           PartitionChangeBuilder.completeReassignmentIfNeeded  TestRealKafkaHandOver…
//	                         in sync [9999 1 2] → NEW_LEADER_ELECTED
//	take-over                IncrementalAlterConfigs, AlterPartitionReassignments,       Partition.maybeExpandIsr (the leader),               TestRealKafkaTakeOver…
//	                         Fetch as replica 9999, ElectLeaders preferred,              ReplicationControlManager.electLeaders
//	                         AlterPartition in sync [9999]
//	what copies hold         ListOffsets −2, Fetch −3, to followers                      ReplicaManager.fetchOffset, readFromLog              internal/replicareader
//	resign                   BrokerHeartbeat want fence; the next process registers      ClusterControlManager.registerBroker,                TestRealKafkaResign
//	                         under the same incarnation                                  BrokerHeartbeatTracker
//	leave, kill switch       UnregisterBroker                                            ClusterControlManager                                TestRealKafkaFirstLife, TestRealKafkaUnregister
//
// # Hand-over
//
// The reassignment's target are the live followers that have the whole log. It completes only when every one of them is in sync, so a dead broker in it would make a failover hang, and
// naming the others in sync would already let them be elected. One AlterPartition with this process and exactly the target completes it: election, replicas and in-sync replicas change in
// one record. Replicas that were left out are remembered before and added again afterwards; Kafka brings them up to date when they return.
//
// # Take-over
//
// For a failback the stock replicas stay members, because taking them out would delete their logs. What is dangerous about that is written beside the steps in takeover.go. The log is
// held from before the first step: asked for the partition, the server says "not leader", and followers ask again a second later without changing anything. It does not matter when the
// controllers elect this process.
//
// # After a restart
//
// A leader with an empty log makes its followers empty. So the log is held until the copies were asked: where each ends (ListOffsets −2) and which leader epochs it has (some batch
// headers); the longest is the log. As many copies are waited for as make sure that a record which MinInSyncReplicas copies had is among them, for 30 s after the first one answers; then it
// goes on with those that live. Right after a take-over one copy that was in sync suffices. A log that goes on without some copies says so, and they are not trusted beyond the end that
// was found until they have followed it; nor is a copy that had not followed a truncation (Config.Remember keeps both).
//
// A follower's position counts for the registration under which it fetched (its broker epoch, KIP-903): a broker that restarts may have lost what it had, and is neither counted nor named
// in sync before it fetches again. Fetches under another broker epoch than the registered one are put off.
//
// mirror.Log.Replicated is what MinInSyncReplicas followers have, or as many as live, at least one. It is what the copy is worth without this process; End is only memory.
//
// # Producer ids
//
// A stock broker that is handed a mirrored partition knows the mirrored producers, and does not know MIRROR_PID_RESET. A new producer of this cluster with one of their ids would have its
// first records taken for repetitions: answered with success, and dropped. So the controllers' counter is moved above an id before a batch with it is appended, and the brokers use up the
// blocks of ids that they hold, in the background after the first batch and after each move of the counter; a stop waits for what is left of that.
//
// Not covered is a producer of this cluster that has such an id already: it was given out before the mirrored one was first seen, or in the moments after that until the brokers had used up
// their blocks. It has to begin anew (a producer does when it is started) before it writes to the topic after the stop. A broker that is registered and not alive at the stop (cut off, or in
// a controlled shutdown) may come back with its blocks, unless its process begins anew; an Event names it, and it uses them up when it is back, as long as this process lives.
//
// # What Kafka does that one would not guess
//
// Each was seen on 4.3.1, and a test of this package holds it.
//
//   - A reassignment completes only when every replica of its target is in sync, also one that only takes replicas away: while this process is alone in sync, nothing that somebody
//     else asks for completes, and the copies stay.
//   - A reassignment that adds nobody keeps what an earlier one was adding, even replicas that it takes away, and then never ends; one that takes nobody away keeps what was to be removed.
//     Only a cancel helps.
//   - Fetch with replica id −2 ends at the high watermark that the broker knows, which after a restart without a leader may be 0; replica id −3 reads to the log end.
//   - ApiVersions from version 3 on has to name the client's software; without it Kafka tells nothing, neither versions nor features.
//   - A topic's own unclean.leader.election.enable=false holds against true in server.properties and for the cluster, through fences, deaths and restarts. With true for the topic, the first stock replica is
//     elected in the moment in which this process dies.
//   - min.insync.replicas raised to 2 while this process is alone in sync makes nobody eligible: only a shrinking of the in-sync replicas under 2 or more does.
//   - min.insync.replicas changed while this process is fenced clears the eligible leaders (KIP-966), this process among them: the partition has no leader when the process is back, until
//     somebody asks for an unclean election, which elects the first living replica: this process. Owner says so.
//   - ElectLeaders with type UNCLEAN does nothing while this process leads, and elects the first stock replica while it is fenced.
//   - Since 4.0 a broker that has itself fenced keeps its node id for the rest of its session: only its own incarnation may register. In 3.9 it does not.
//   - After UnregisterBroker and a new registration the leader comes back as RECOVERING, from the last known leader; nothing is lost.
//   - A feature cannot be lowered under what a registered broker supports. Features that are not finalized are registered from 0, so that an operator can finalize them.
//   - A stock broker that died a moment ago is alive for the controllers until its session ends: brokers that answer come first in a hand-over, or clients would wait for a dead leader.
//   - A process that comes back at another address within its session is not found by its followers before leader epochs change.
//
// # Metadata sync
//
// Destination is a mirror.GroupWriter, TopicConfigWriter, ACLWriter and RightsChecker. Groups and access rules are asked of the stock brokers, through internal/kafkametadata; settings of topics
// are read from the metadata and changed by the controllers. While a topic is mirrored, its min.insync.replicas and unclean.leader.election.enable are this process's: what is read and changed
// is what the topic will have when it is stopped, remembered beside Config.Remember's other records, and put back by the hand-over. The rights that this needs are SyncRights; see SECURITY.md.
//
// # Readable mirrored topics
//
// With Config.Clients the process registers the brokers' listener for clients besides, and mirrored topics can be read while they are mirrored: groups, read_committed, admin tools. Consumers fetch once from this process, are told of
// a stock follower (KIP-392), read from it, and ask again after metadata.max.age.ms. So it carries no records, and costs one Fetch and a few bytes for each consumer in that time. A follower is chosen that lives, has all that
// is replicated and what is asked for; in the consumer's rack (client.rack) if one is there; consumers are spread over the others. Followers learn of the high watermark with their next fetch, so consumers are behind by that.
//
// A producer's first send fails with POLICY_VIOLATION and a text that says why; it is not repeated, by idempotent and transactional producers neither. Everything else is passed through to a stock broker, which authenticates and
// authorizes the client. See internal/clientlistener for the table of requests, SECURITY.md for what passes through this process's memory and what cannot (client certificates; access rules by host).
//
// At a stop clients learn the new leader by NOT_LEADER_OR_FOLLOWER or their next look at the metadata; groups go on at the same offsets, as their offsets are the destination cluster's own. Committed offsets of a group that
// reads here are written by its consumers; metadata sync leaves a group with members alone.
//
// Without Config.Clients, the default, mirrored topics are dark. Whether an application may read a copy before the failover is its owner's decision: it may see records that a failback drops again.
//
// # Limits
//
//   - Brokers need a listener of their own (inter.broker.listener.name) that no client uses: clients of a listener are told of every broker that has it.
//   - A consistent cut (mirror.TornCut) is of the partitions that one process leads. Of a mirror whose topics are several processes', none is cut, and the failover says so. The brokers follow a cut as every other, by
//     leader epochs: they truncate before they are counted as having the markers behind it. One that is dead meanwhile follows when it is back.
//   - Without Config.Clients mirrored topics cannot be read before the failover: admin tools on other listeners see LISTENER_NOT_FOUND for them, clients wait and time out.
//   - With it, brokers that ask clients for certificates (mutual TLS) are refused, consumers have to follow KIP-392 (Java from 2.4 on), and share groups do not read mirrored topics.
//   - On a cluster whose operator manages brokers by their ids (Strimzi takes every unknown id out at each reconciliation) the process is unregistered again and again. It does not
//     register again by itself.
//   - DeleteTopics, DeleteRecords, CreatePartitions and reassignments by others are seen and told, and cannot be prevented.
//   - Between two requests of a creation, while the topic is empty, the death of this process makes a stock broker the leader. The same moment, with every copy complete, is in Give.
//   - The brokers apply the topic's own retention to their copies, as to any topic: what it does not say for itself is as the destination's cluster has it, 7 days if nobody said otherwise, also where
//     the source keeps records for ever. What every copy has deleted is not in the mirror any more: Start rises, and an event tells which offsets. Give the topic the source's retention.ms and
//     retention.bytes.
//   - Leader epochs rise by two for everything that this process leads, each time with a moment without a leader.
//   - Not supported, and refused by Preflight or named there: tiered storage, several log directories of this process.
package kraft
