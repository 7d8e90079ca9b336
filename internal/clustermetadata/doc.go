/*
Package clustermetadata builds the image of a KRaft cluster's metadata from the records of its log, __cluster_metadata: which brokers there are, who leads which partition at which
leader epoch and partition epoch, the configs, the finalized features, SCRAM users, and the next producer id.

It is pure: whoever follows the log (Fetch and FetchSnapshot at a controller, as an observer, KIP-595 and KIP-630) gives it bytes, and gets told what changed.

	im := clustermetadata.New()
	changes, err := im.Apply(clustermetadata.Whole(fetched, highWatermark))
	// next Fetch: offset im.Next(), LastFetchedEpoch im.LastEpoch()

	snapshot := clustermetadata.New() // the reply named a snapshot {end, epoch} instead
	_, err = snapshot.Apply(content)
	changes = im.Replace(snapshot, end, epoch)

# Rules

Offsets are without holes: a batch that begins above Next is a GapError. Records below Next are left out.

A record is a frame (Kafka: MetadataRecordSerde): unsigned varints of the frame version, 1, of the record's type and of its version, and then its body in the flexible encoding of
KIP-482, to the last byte.

A type that is not in the table below is left out whatever is in it: newer versions of Kafka add types. A known type in a newer version is read as the newest known version; if it
comes out even, it only has more tagged fields, which are left out. Otherwise a RecordError that is ErrNewerRecord: a field put in between cannot be told from damage, and the
cluster's metadata.version says so beforehand.

A record that contradicts the image (a change of a partition that is not there, of a broker under another epoch) is a RecordError. The image then stands before that record and takes no
more. Kafka's own brokers count an error there and go on with an old image; whoever leads partitions must not.

A record that changes nothing makes no Change. Removing a topic also removes its configs, and each of its partitions and configs has its Change, before that of the topic.

Metadata transactions (KIP-868): records between Begin and End are kept back, and applied at End; Abort drops them. Kafka uses one for the first records of a cluster, and for the
migration from ZooKeeper.

The image is what the log says. Brokers up to 4.3.1 at least may know less: where one step of theirs (a batch, or a few) takes away a mechanism's last SCRAM user and stores another
one, they forget that other one until a later record or a snapshot names it (ScramDelta takes the mechanism out of its map while it still adds to it; measured).

Errors and String methods hold nothing of a record's content: config values and credentials may be secret.

# Records

Fields in brackets are tagged. "≥ 1" is the record's version that has the field. Versions were compared in Apache Kafka 3.9.1, 4.0.0, 4.1.1, 4.3.1 and 4.4.0; where they differ it is
said.

	type  record                     field                     effect                                                        Kafka class
	0     RegisterBroker 0-4         BrokerId … Fenced         Broker, in place of the one before                            ClusterDelta, BrokerRegistration
	      (4: from 4.3.1 on)         IsMigratingZkBroker ≥ 2   read over
	                                 InControlledShutdown ≥ 1  Broker.InControlledShutdown
	                                 [0 LogDirs] ≥ 3           Broker.LogDirs
	                                 [1 CordonedLogDirs] ≥ 4   Broker.CordonedLogDirs; null: the broker has not said yet
	1     UnregisterBroker 0         BrokerId                  Broker is gone                                                ClusterDelta
	                                 BrokerEpoch               not looked at
	2     Topic 0                    Name, TopicId             Topic; an error if one of them is there already               TopicsDelta, ReplicationControlManager
	3     Partition 0-2              all                       Partition, in place of the one before                         TopicDelta, PartitionRegistration
	                                 [0 LeaderRecoveryState]   Recovering if 1
	                                 Directories ≥ 1           none, or one for each replica
	                                 [1 EligibleLeaderReplicas, 2 LastKnownElr] ≥ 2
	4     Config 0                   ResourceType              2 topic, 4 broker; others are left out                        ConfigurationsDelta
	                                 Value                     null takes the key away
	5     PartitionChange 0-2        any                       PartitionEpoch + 1                                            PartitionRegistration.merge
	                                 [0 Isr]                   absent or null: no change; so in all of them but 1 and 5
	                                 [1 Leader]                LeaderEpoch + 1 whoever it names; -1 no leader; absent or -2
	                                                           no change
	                                 [2 Replicas, 3 RemovingReplicas, 4 AddingReplicas]
	                                 [5 LeaderRecoveryState]   absent or -1: no change
	                                 [6 EligibleLeaderReplicas, 7 LastKnownElr] ≥ 2
	                                 [8 Directories] ≥ 1       absent with replicas that change: those who stay keep theirs
	7     FenceBroker 0              Id, Epoch                 Fenced; written under old metadata.versions only             ClusterDelta
	8     UnfenceBroker 0            Id, Epoch                 not Fenced; as above
	9     RemoveTopic 0              TopicId                   Topic, its Partitions and its Configs are gone                TopicsDelta, ConfigurationsDelta
	11    UserScramCredential 0      all                       ScramCredential of mechanism and name                         ScramDelta
	12    FeatureLevel 0             FeatureLevel              0 takes the feature away                                      FeaturesDelta
	15    ProducerIds 0              NextProducerId            NextProducerID                                                ProducerIdsDelta
	17    BrokerRegistrationChange   BrokerEpoch               must be the registered one                                    ClusterDelta
	      0-3 (3: from 4.3.1 on)     [0 Fenced]                1 fenced, -1 unfenced, 0 no change
	                                 [1 InControlledShutdown] ≥ 1  1 yes, 0 no change; only a registration ends it
	                                 [2 LogDirs] ≥ 2           empty: no change
	                                 [3 CordonedLogDirs] ≥ 3   null: no change; empty: none is cordoned any more
	22    RemoveUserScramCredential  Name, Mechanism           ScramCredential is gone                                       ScramDelta
	23    BeginTransaction 0         [0 Name]                  records are kept back from here on                            MetadataBatchLoader
	24    EndTransaction 0                                     they are applied
	25    AbortTransaction 0         [0 Reason]                they are dropped
	27    RegisterController 0       ControllerId, EndPoints   Controller                                                    ClusterDelta
	28    ClearElr 0 (from 4.0.0 on) TopicName, "" all         ELR and LastKnownELR are empty; PartitionEpoch + 1 where      TopicDelta
	                                                           one of them was not
	29    UnregisterController 0     ControllerId              Controller is gone                                            ClusterDelta
	      (from 4.4.0 on)

Not kept: delegation tokens (10, 26), client quotas (14), access control (18, 19), the migration from ZooKeeper (21), and what control batches say (leader changes, voters,
kraft.version).

# Tests with real Kafka

testdata/ has the metadata log, a snapshot, and what the brokers said at the end, of one cluster each of Apache Kafka 3.9.1, 4.0.0, 4.1.1, 4.3.1 and 4.4.0. TestImageIsWhatBrokersSay makes
such a cluster of 4.3.1; another version is tried with

	CLUSTERMIRROR_KAFKA=required CLUSTERMIRROR_KAFKA_VERSION=3.9.1 go test ./internal/clustermetadata -run TestImageIsWhatBrokersSay

and CLUSTERMIRROR_METADATA_DUMP=testdata has it leave the files there.
*/
package clustermetadata
