/*
Package replicaserver is the server side of Kafka's replication protocol: stock brokers of Apache Kafka 3.9 to 4.4 connect to it as followers of the partitions that this process leads, copy their batches
byte by byte, and are cut where their logs part. What a partition answers is Partition's business; connections, logins, sessions, waiting, limits and bytes are this package's.

# What is answered

	request               key  versions  who sends it, and when
	ApiVersions            18  0-4       every broker at the start of a connection; 0 within a SASL login. A newer version is answered in version 0 with code 35 and the range (KIP-511)
	SaslHandshake          17  1         brokers, on SASL listeners
	SaslAuthenticate       36  0-2       brokers, on SASL listeners; again on the same connection if they like (KIP-368). The session's lifetime is told as 0: without end
	ListOffsets             2  7-11      a follower whose log is empty, or whose position is outside of ours: the end (-1), the start (-2), the start in local storage (-4, which is the same here)
	                                     brokers that coordinate share groups, with replica id -1: the end alone (KIP-932, the lag of a group)
	FindCoordinator        10  4-6       brokers that look for the state of share groups, at any node: with COORDINATOR_NOT_AVAILABLE (15), upon which they ask another one
	WriteTxnMarkers        27  1-2       transaction coordinators, of a producer that named a mirrored partition: with UNSUPPORTED_FOR_MESSAGE_FORMAT (43), upon which they leave that partition out
	OffsetForLeaderEpoch   23  3-4       a follower that must find where an epoch ends, other than by Fetch
	Fetch                   1  13-18     followers all the time (13-14 with ReplicaId, from 15 on with ReplicaState, KIP-903)

Nothing else is advertised. A request of another kind or version, one before the login, one that cannot be read or is too large ends its connection with one line in the log and a call of Observer.Refused:
this listener is not registered for clients, so whoever sends such a thing is in the wrong place. ListOffsets of other timestamps is answered with INVALID_REQUEST (42), as no follower looks up times.

# Who is answered

Only brokers read here. Two things must be true of a Fetch, a ListOffsets or an OffsetForLeaderEpoch: its replica id is 0 or above and not our own, and Config.Allowed knows the connection's principal. If not,
each partition is answered with TOPIC_AUTHORIZATION_FAILED (29), by which clients stop with an error that says so; NOT_LEADER_OR_FOLLOWER would have them ask again for ever, and a closed connection would
say nothing. So consumers (replica id -1) and debug readers (-2) get nothing, on purpose: what is here may still be cut, and the topic is dark until it is handed over. One question of replica id -1 is answered, to
allowed principals: where logs end, the high watermark. Coordinators of share groups ask it whenever a group's offsets are read.

	security protocol     principal
	PLAINTEXT             User:ANONYMOUS
	SSL                   User:<subject of the client's certificate>, if Config.TLS asked for one and verified it; else User:ANONYMOUS
	SASL_PLAINTEXT        User:<user of the login>
	SASL_SSL              User:<user of the login>

A subject is printed as Java's X500Principal.getName does, which is what Kafka uses where ssl.principal.mapping.rules is not set: the most specific part first, "User:CN=broker-1,OU=kafka,O=Acme"; a backslash
stands in front of , = + < > # ; " and \, and of spaces at a value's ends; attributes other than CN, C, L, ST, STREET, O, OU, UID and DC are numbers with hexadecimal values. Whoever uses mapping rules applies
them in Allowed. The mechanisms are PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; without channel binding and delegation tokens). A failed login is answered with
SASL_AUTHENTICATION_FAILED (58), which does not say whether the user or the password was wrong, and the connection ends at once. Passwords and proofs are never in a log line or an error.

Certificates and credentials may change while the server runs: each connection asks Config.TLS and Config.SASL, and each request asks Allowed.

# Fetch sessions (KIP-227)

	session id  epoch  what it is
	any         -1     a full fetch without a session
	any         0      a full fetch that asks for one; a session of the same broker with that id ends. The answer has the new id, or 0 if there is no place
	id          n      an incremental fetch: what it does not name is as it was last named

A session belongs to the connection that made it, one at a time, and ends with it: Kafka's followers begin anew on a new connection (FetchSessionHandler). There are at most Config.MaxSessions; if all are taken,
the one that was unused for longest gives way if that is more than Config.SessionEviction. Then, or with a wrong id or a wrong broker, the code is FETCH_SESSION_ID_NOT_FOUND (70), with a wrong epoch
INVALID_FETCH_SESSION_EPOCH (71), and the follower begins anew at once. FETCH_SESSION_TOPIC_ID_ERROR cannot be: all versions name topics by id. A session from which everything was taken is closed, with the id 0.

An incremental answer holds the partitions with batches, an error or a diverging epoch, and those whose high watermark or log start is another than the follower was last told. The first three are in each
answer until the follower names the partition with another position or takes it out; it may have been unable to use what it got.

The cost of a fetch is that of what changed: partitions say when there may be something new (Partition.Subscribe), and only those and the ones that the request names are asked. Partition.Fetch is called for
each named partition, as the follower's position is news; for another one it may be called with the same position as before, or not at all while nothing happens, however many fetches come.

Who is served first: partitions wait in a line. One that was sent batches goes to its end; one whose batches found no room keeps its place. So a busy partition cannot starve another one.

# Limits of an answer

Batches of one partition stay within its PartitionMaxBytes and all of them within MaxBytes of the request and Config.MaxResponseBytes, but for the first batches of an answer, which may be above (Kafka:
minOneMessage); whoever does not fit waits for the next answer. A fetch waits until there are MinBytes, or an error, a diverging epoch, or in a session another high watermark or log start, at most MaxWait and
Config.MaxWait; Close ends all waits. Batches are written as they are (writev on TCP without TLS); only those up to 512 bytes are copied.

Batches that are not in memory (FetchAnswer.Back) are read beside the fetches of the session, which go on with what other partitions have; what was read is in the first answer after. At a time there are at
most 4 readings for one session, Config.MaxReadBacks in the server, each within Config.ReadBackBound. What one session has read and not yet fetched is at most MaxBytes of its request and 16 MiB. A reading that
fails is answered with KAFKA_STORAGE_ERROR (56): the follower tries again after replica.fetch.backoff.ms. What was read is dropped if the leader epoch is another one by then. A fetch without a session cannot
take up later what was read, so it waits up to 5 s longer for it.

# Limits of connections

One goroutine for each connection: one request is read, answered, and then the next one is read. Until a connection is authenticated and allowed, its requests may have 64 KiB and it has Config.HandshakeBound
in all; after that MaxRequestSize, IdleBound and TransferBound hold. Memory for a request grows as its bytes come. A session holds at most 200,000 partitions. There are at most Config.MaxConnections. Close
returns within a second after its context ended, if the partitions keep their promise to return when a context ends.
*/
package replicaserver
