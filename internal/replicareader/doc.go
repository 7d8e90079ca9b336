// Package replicareader reads the copies of partitions that stock Kafka brokers hold: of leaders, of followers, and of partitions that nobody leads. It tells where a copy
// starts and ends (Ends), reads its batches (Read), finds its leader epochs without reading it (Epochs), compares copies (Compare) and says which copy is the log when the
// leader without a store is lost (Choose). It writes nothing, keeps nothing, and changes no broker.
//
//	r := replicareader.New(client)                          // anything that sends a request to a broker by its id
//	ends, err := r.Ends(ctx, 2, targets)                    // thousands of partitions in three requests
//	epochs, err := r.Epochs(ctx, 2, t, e.Start, e.End)      // O(epochs · log n) small reads
//	choice, err := replicareader.Choose(copies)             // one Copy a broker
//	part, err := r.Read(ctx, choice.Broker, t, from, 1<<20) // whole, checked batches
//
// # Which request tells what
//
// Measured on Apache Kafka 3.9.1, 4.3.1 and 4.4.0; a test holds it. "Copy" is a follower's, with or without a leader.
//
//	request                              to the leader              to another copy
//	ListOffsets, replica id -2           log start, log end         the same
//	  with isolation level 1 (committed) log end, not the LSO       the same
//	ListOffsets, replica id -1           log start, HW or LSO       6 NOT_LEADER_OR_FOLLOWER
//	OffsetForLeaderEpoch, -2 or -1       epoch and its end          6 NOT_LEADER_OR_FOLLOWER
//	Fetch, replica id -3                 up to the log end          up to the log end
//	Fetch, replica id -2 or -1           up to the HW               up to the HW that this broker knows
//	Fetch, LastStableOffset              LSO                        its own LSO, at most the HW it knows
//	Fetch 12 and later, LastFetchedEpoch diverging epoch, its end   the same, out of its own epoch cache
//	Fetch above the log end, below start 1 OFFSET_OUT_OF_RANGE      the same
//	anything, to a broker without a copy                            6 (100 UNKNOWN_TOPIC_ID by an unknown id, 3 by an unknown name)
//
// Replica id -2 of a Fetch (Kafka: DEBUGGING_CONSUMER_ID) is a consumer's: it is bounded by the high watermark, and below version 11 a copy that does not lead refuses it. On a
// follower that matters most when it matters: a broker that starts while nobody leads knows only the high watermark that it wrote down (every 5 s, at a clean stop, or not at
// all), and what lies above looks as if it were not there. Replica id -3 (Kafka: FUTURE_LOCAL_REPLICA_ID, FetchIsolation.LOG_END) reads to the log end, in all versions.
// So Ends asks ListOffsets with -2, Read asks Fetch with -3. Both need rights of a client only, DESCRIBE and READ on the
// topic: to a broker only ids from 0 on are followers, who need CLUSTER_ACTION (KafkaApis.handleFetchRequest; read there, not measured). Brokers from 3.5 on are read (Fetch
// version 15): in versions 12 to 14 kmsg cannot write the replica id without a tag that they refuse, by closing the connection.
//
// The last stable offset of a copy is safe to read from, as no transaction is open below it, but may lie far below the truth, down to the log start, for the same reason. So
// may the log start: a broker that was killed has the one that it wrote down (every 60 s) until the leader or an operator raises it again.
//
// A broker's epoch cache is not used for Epochs: it knows epochs under which nothing was written (a leader notes its own at once), and forgets what the log start passed. Batch
// headers are what another log's cache is built of, so they are what counts.
//
// # Reading
//
// Read asks for one partition with MaxWait 0. A broker gives the first batch whole, whatever the limits are; should it come cut, Read asks again for as much as its header
// says. A wrong checksum is read again twice. An answer without the partition is a quota (client quotas hold back this reader too): Read waits as long as the broker says, and
// asks again. Everything is bounded by the context, and by it alone: give each call one. Tiered storage was not tried.
//
// # Choosing
//
// Choose takes the highest end up to each copy's limit, and says of each other copy what it lacks, what it holds besides, and whether it diverges by the end-offset rule over
// the epochs. It is a pure function: read all replicas, decide what to do about those that could not be read, then choose. Same epochs do not prove same bytes; Compare does.
package replicareader
