/*
Package clientlistener stands between clients and the stock brokers of an Apache Kafka cluster (3.9 to 4.4), under the node id of a process that leads partitions and holds no records. For each client's connection it
has one of its own to a stock broker's listener of the same name, and passes everything through. The broker authenticates and authorizes; what it says goes to the client, but for partitions that this process leads and
the broker does not.

# What is done with which request

	request               key  told versions  what is done
	Produce                 0  3-13           passed on; partitions that are led here: POLICY_VIOLATION (44) in place of NOT_LEADER_OR_FOLLOWER (6)
	Fetch                   1  11-18          the rights are asked of the broker by a probe; partitions that are led here: the follower to read from, no records; all others: NOT_LEADER_OR_FOLLOWER
	ListOffsets             2  1-11           passed on; partitions that are led here: answered in place of 6, 74, 75
	SaslHandshake          17  1              passed on; version 0, which is followed by bytes that are no requests, is refused
	ApiVersions            18  0-4            passed on; the answer has the versions of this table
	DeleteRecords          21  0-2            passed on; partitions that are led here: POLICY_VIOLATION in place of 6
	OffsetForLeaderEpoch   23  0-4            passed on; partitions that are led here: answered in place of 6, 74, 75
	AlterReplicaLogDirs    34  none           refused: it would change the folders of whichever broker is behind the connection
	DescribeLogDirs        35  1-5            passed on; the answer has no folders: this process has none, and the broker's are told by the broker
	all others                 the broker's   passed on, and the answer too

Requests and answers that are passed on are not looked at beyond the header, nor kept: 32 KiB of them are in memory at a time. Order, correlation ids and pipelining are the client's own. An answer in place of the broker's
takes its place in the order.

# Nothing is answered before the broker has looked at the client's rights

Every request goes to the broker, over the client's own connection. Kafka looks at rights before anything else of a partition (KafkaApis): TOPIC_AUTHORIZATION_FAILED and every other such code is passed on. Only codes that the
broker finds out afterwards are replaced: that it does not lead the partition, and for a Fetch what it says of an offset.

A Fetch is not passed on as it is. From version 11 on a stock follower answers consumers by itself (KIP-392), with records, and no record is to pass through here. So the broker is asked (probe) for the same partitions at an
offset that no broker has, without session, without waiting. It answers OFFSET_OUT_OF_RANGE where it has a copy and NOT_LEADER_OR_FOLLOWER where it has none; both say that the client may read.

# Consumers

A Fetch is answered with a follower (PreferredReadReplica), the high watermark and the log start of the partition, no records, and no last stable offset (-1). Consumers then read from the follower, and come back after
metadata.max.age.ms (5 min), or when the follower does not answer (Java; franz-go 1.22 stays with a follower that dies until that is back, or the partition has another leader). Which follower: Partition.Read. None: REPLICA_NOT_AVAILABLE (9), upon which clients look at the metadata and ask again.

Fetch below version 11 cannot be told of another replica. Clients that ask for the versions find that this node has none below 11; one that sends it all the same gets UNSUPPORTED_VERSION (35) for the partitions
that are led here. Such clients, and those that send version 11 and do not follow (Java before 2.4), read mirrored topics when they are stopped.

A client that asks for the same partitions at the same offsets again within a second of the answer, because it ignores the follower, or there was none, or the partition is not led here, is answered when its MaxWait is over
(Config.MaxHold at most), as if there were nothing new.

There are no fetch sessions (KIP-227): the answer has session id 0, upon which clients send whole fetches. One that names a session is told FETCH_SESSION_ID_NOT_FOUND (70).

A partition that is handed over is one that is not led here any more: NOT_LEADER_OR_FOLLOWER, and clients look at the metadata.

ListOffsets: the start; the end, which is what is replicated (read_uncommitted), or a follower's last stable offset (read_committed); a time, which a follower is asked for. OFFSET_NOT_AVAILABLE (78) when nobody knows. Other
replica ids than a consumer's are the broker's to answer.

# Producers

A Produce is passed on with its records, as the broker looks at the client's rights for it, and its transactional id's. It does not lead the partition, so it appends nothing. Producers, idempotent and transactional ones
too, fail at once with POLICY_VIOLATION and a message (from version 8 on). With acks=0 there is no answer: the broker closes the connection, and so does this process.

# Limits

What a client sends wrongly ends its connection, with at most one line a minute in the log. A request has MaxRequestSize at most; one that has to be understood (Fetch, ListOffsets, OffsetForLeaderEpoch) 1 MiB, 64 KiB before
the client has logged in, and one of a connection at a time; an answer that has to be understood 4 MiB. 128 requests of a connection may be unanswered; then no more are read. Connections are bound in number, in total and for
each IP address, and in time: HandshakeBound, IdleBound, TransferBound for each 32 KiB that a side sends or takes. A broker that dies ends its own clients' connections. Close ends all at once.

What is kept of requests and answers that have to be understood is bound in bytes (MaxMemory), in three parts: requests as they came, until they are answered, which may be minutes where one of a group stands before them;
answers until they are sent; requests while they are decoded, for which up to 100 times their bytes are counted before it begins. One IP address may take half of each part. Whoever finds it in use waits: no more is read
of that connection, and after TransferBound it is closed. Requests and answers of up to 4 KiB do not count, so consumers of few partitions are answered whatever others do: the number of connections bounds them. Followers
are asked 64 questions at a time for all clients, 16 of them for one IP address. So a client can be in the way of others behind the same address (a NAT is one), and two addresses together in the way of those with large requests.

Besides, a connection takes about 50 KiB, with TLS 100 KiB, and 64 KiB more while it passes on: a few hundred MiB if MaxConnections are all in use.

Brokers are taken in turn by new connections; one that does not take a connection within DialBound is passed over.

# Security

TLS ends here and begins anew towards the broker. So what clients send is in this process's memory in the clear, SASL/PLAIN passwords among it; it is neither kept nor logged. SCRAM, OAUTHBEARER and GSSAPI pass through as they are,
as far as they are not bound to the TLS channel or the broker's name. A client's certificate (mutual TLS) cannot be passed through: where a broker asks for one, the connection ends (ErrClientCertificate).

The broker sees every client at this process's IP address: rules of access for hosts, and limits for each IP address, are applied to it.
*/
package clientlistener
