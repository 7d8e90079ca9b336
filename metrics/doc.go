/*
Package metrics shows mirrors to Prometheus: a collector over what mirrors say of themselves, to be registered with any registry.

	c := metrics.New(look)
	registry.MustRegister(c) // and mirror.Config{OnEvent: c.Observe}

Names begin with clustermirror_ and end with their unit: _seconds, _offset (a place in a log), _offsets (how many), _total (a counter, of this process since it began), _unknown and other
words that are 1 or 0. docs/alarms.yml has alarms over them, and testdata/in-step.txt all that a node exports, with what each is.

# What is not known

An unknown is no number. Its series is absent, and a gauge whose name ends with _unknown is 1: so a comparison never takes it for 0, and an alarm can ask for it. A mirror's
clustermirror_mirror_rpo_seconds is absent while the age of a single copy is unknown, because a worst value over the others would look well. Where nothing is to be mirrored it is absent
too, and its _unknown is 0.

RPO is told as time: seconds since the last moment at which the worst copy held everything then known at the source (PartitionStatus.LagTime). While the source does not answer it grows; what
is lost by a failover now was written there in this time. Beside it mirror_rpo_offsets and, by the mean size of what was copied, mirror_rpo_bytes, both absent while they are unknown of any copy, with the age of
what they are counted from (mirror_rpo_measured_age_seconds), and mirror_open_transactions.

RTO is told as measured: mirror_failover_last_seconds, its steps, and mirror_failover_predicted_seconds, the longest of the last few failovers. Absent until one was measured.

# How much, and how fast

mirror_copied_bytes_total and mirror_copied_batches_total are what was appended to copies, mirror_received_bytes_total what the source sent; what was fetched again or cut off is only in the latter.
mirror_fetch_seconds is a histogram of fetches by what came of them (records, empty, failed), from the request until the reply was there. A source waits for records before it answers, so
in a mirror that has nothing to do they take fetch.wait.max.ms.

# Certificates

certificate_expiry_timestamp_seconds says until when the certificates are good that connections depend on: the own ones, read from their files once a minute, and those that brokers showed, with the
authorities that vouch for them, when they were connected to last. A broker that has had a new one since, and was not connected to anew, is told of with its old one.

# Which cluster

What is of a node or a mirror has the label destination_cluster_id: both sides may call their node 9999 and their mirror dr. It is empty for the moment until a process has asked its cluster.

# How many series

7 series for each partition that is mirrored: state, the source's end, the copy's end, what of it enough brokers hold, lag in offsets and in seconds, and whether the lag is unknown. A stopped
partition has 4. Up to 7 more are there of a partition that is behind, has open transactions, is FAILED, has lost or dropped records, or needs a person's consent. With a mirror come about 130, 31 of them its kinds of events and 45 how long fetches took. So
a mirror has about 35,100 with 5,000 partitions. Where that is too many, let Prometheus drop clustermirror_partition_.* (metric_relabel_configs): the alarms need none of them, people
at a dashboard do.

A node with a listener for clients has 10 more: client_connections, client_redirected_partitions_total, and client_connections_refused_total by reason. Others have none of them.

# What is not here

When a delegation token expires: only its cluster knows. Tokens of OAuth are renewed by themselves. Whether the old source has come back after a failover, and whether somebody writes there: nothing looks at it then.
Go's and the process's own metrics: register prometheus's collectors beside this one.
*/
package metrics
