package metrics

import "github.com/prometheus/client_golang/prometheus"

// Of ages the difference is told and not the moment: both ends are on the node's own clock, so that a clock that is wrong here or in Prometheus changes nothing.

var described []*prometheus.Desc

// series makes one of the names that a Collector exports.
func series(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("clustermirror_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// ofCluster is one that has the destination's cluster id as its last label, empty as long as it is not known: nodes and mirrors of two clusters may have the same names.
func ofCluster(name, help string, labels ...string) *prometheus.Desc {
	return series(name, help, append(labels, "destination_cluster_id")...)
}

// Of a connection.
var certificateEnds = ofCluster("certificate_expiry_timestamp_seconds",
	"When the certificate ends that ends first, in seconds since 1970: of the own one (own), and of those that brokers showed when they were "+
		"connected to last, with the authorities that vouch for them (broker). side is source, destination or listener; mirror is empty but for source.", "side", "mirror", "certificate")

// Of the process.
var (
	buildInfo   = ofCluster("build_info", "1: what this process runs.", "node", "version", "revision", "goversion")
	nodeUp      = ofCluster("node_up", "1: the process answers.", "node")
	nodeReady   = ofCluster("node_ready", "1: the node leads and follows what it should.", "node")
	nodeState   = ofCluster("node_state", "1: the node is in this state. Others have no series.", "node", "state")
	nodeStart   = ofCluster("node_start_time_seconds", "When this process began, in seconds since 1970.", "node")
	nodeMirrors = ofCluster("node_mirrors", "Mirrors that run in this process.", "node")
)

// Of a mirror.
var (
	mirrorInfo          = ofCluster("mirror_info", "1: the mirror runs in this process. An id is empty as long as nobody has told it.", "mirror", "source_cluster_id")
	mirrorFenced        = ofCluster("mirror_fenced", "1: another process has the mirror, and this one serves nothing of it any more.", "mirror")
	mirrorTopics        = ofCluster("mirror_topics", "Topics of the mirror.", "mirror")
	mirrorTopicsTrouble = ofCluster("mirror_topics_in_trouble", "Topics that cannot be mirrored as they are.", "mirror")
	mirrorPartitions    = ofCluster("mirror_partitions", "Partitions in this state, without those that another process has.", "mirror", "state")
	mirrorHalted        = ofCluster("mirror_halted_partitions", "Partitions that another process has, and that this one has stopped serving.", "mirror")
	mirrorNotRetried    = ofCluster("mirror_failed_partitions_not_retried", "FAILED partitions that are not tried again by themselves: a person has to act.", "mirror")
	mirrorNeedConsent   = ofCluster("mirror_partitions_needing_consent", "Partitions whose start would drop records of the copy, and waits for a person's consent.", "mirror")
	mirrorRPO           = ofCluster("mirror_rpo_seconds",
		"How old the oldest copy is: seconds since the last moment at which it held everything then known at the "+
			"source, of the partition that is worst. Absent while it is unknown of any.", "mirror")
	mirrorRPOUnknown     = ofCluster("mirror_rpo_unknown", "1: there are copies of unknown age.", "mirror")
	mirrorUnknownAge     = ofCluster("mirror_copies_of_unknown_age", "Partitions of which it is not known how old their copy is, and topics that have no copy yet.", "mirror")
	mirrorLagUnknown     = ofCluster("mirror_lag_unknown_partitions", "Partitions whose lag in offsets cannot be measured now.", "mirror")
	mirrorSilence        = ofCluster("mirror_source_silence_seconds", "Seconds since the source last said where any partition ends that is to be mirrored. Absent when it never has.", "mirror")
	mirrorSilenceUnknown = ofCluster("mirror_source_silence_unknown", "1: the source has never said so in this process, though partitions are to be mirrored.", "mirror")
	mirrorOpen           = ofCluster("mirror_open_transactions", "Transactions that are open in the copies: a failover aborts them.", "mirror")
	mirrorSourceBack     = ofCluster("mirror_old_source_back", "1: the cluster that stopped topics were copied from answers again, after it did not. Absent while it is not looked at.", "mirror")
	mirrorSplitBrain     = ofCluster("mirror_split_brain_offsets", "Offsets at the source of stopped topics that were not known when these were stopped: clients write there too. Absent while it is not looked at.", "mirror")
	rehearsalGood        = ofCluster("mirror_rehearsal_last_good_timestamp_seconds", "When the last good rehearsal of a failover ended, in seconds since 1970. Absent until one was good in this process.", "mirror")
	rehearsalFailed      = ofCluster("mirror_rehearsal_failed", "1: the last rehearsal of a failover was not good. Absent until there was one in this process.", "mirror")
	rehearsalWritable    = ofCluster("mirror_rehearsal_writable_seconds", "Of the last good rehearsal: from the call of the failover until a record was acknowledged in each partition of the copy.", "mirror")
	rehearsalStep        = ofCluster("mirror_rehearsal_step_seconds", "Of the last good rehearsal: how long this step took.", "mirror", "step")
	mirrorStoreTrouble   = ofCluster("mirror_store_trouble", "1: the state store does not take what is written.", "mirror")
	mirrorFetchRate      = ofCluster("mirror_fetch_rate_limit_bytes", "Bytes that this process may receive from the source in a second (mirror.replication.throttled.rate). Absent without a limit.", "mirror")
	mirrorSharedRate     = ofCluster("mirror_shared_rate_limit_bytes", "Bytes that all mirrors of the process together may receive in a second (mirror.node.throttled.rate). Absent without a limit.", "mirror")
	mirrorHeldBack       = ofCluster("mirror_rate_limit_wait_seconds_total", "How long the limits of this mirror and of its process held fetches back, over all connections to the source. Nothing failed meanwhile.", "mirror")
	mirrorThrottled      = ofCluster("mirror_source_throttle_seconds_total", "Pauses that brokers of the source asked for because of quotas there. Copying is slower meanwhile, and nothing failed.", "mirror")
	mirrorGroups         = ofCluster("mirror_groups", "Groups of the source that are followed.", "mirror")
	syncAge              = ofCluster("mirror_sync_age_seconds",
		"Seconds since this part of metadata sync (groups, settings, rules) last came to its end without an "+
			"error. Absent when it never has, and when it is off.", "mirror", "part")
	syncUnknown = ofCluster("mirror_sync_unknown", "1: this part is to be followed, and no look has come to its end in this process.", "mirror", "part")
	syncOff     = ofCluster("mirror_sync_off", "1: this part is not followed at all: one side cannot, or nothing is to be followed.", "mirror", "part")
	syncTrouble = ofCluster("mirror_sync_trouble", "1: the last look at this part ended with an error.", "mirror", "part")
	syncSkipped = ofCluster("mirror_sync_skipped", "What the last look at this part left alone.", "mirror", "part")
)

// What a failover now would lose, and how long it would take.
var (
	mirrorRPOOffsets = ofCluster("mirror_rpo_offsets", "Offsets that the source has and copies do not hold, over all partitions. Absent while it is unknown of any.", "mirror")
	mirrorRPOBytes   = ofCluster("mirror_rpo_bytes",
		"About how many bytes mirror_rpo_offsets are, by the mean size of what was copied last. Absent while it is unknown of any partition.", "mirror")
	mirrorRPOMeasured = ofCluster("mirror_rpo_measured_age_seconds", "How old the oldest of the source ends is that mirror_rpo_offsets and mirror_rpo_bytes are counted from. Absent when there is none.", "mirror")
	mirrorPredicted   = ofCluster("mirror_failover_predicted_seconds", "How long a failover is expected to take: the longest that was measured. Absent until one was.", "mirror")
	mirrorFailover    = ofCluster("mirror_failover_last_seconds", "How long the last failover took, from the moment at which the process was told until the last partition was open. Absent until one was measured.", "mirror")
	mirrorStep        = ofCluster("mirror_failover_last_step_seconds", "What each step of it took, of the partition that was open last. Absent until one was measured.", "mirror", "step")
)

// Of the comparison of copies with their source that goes on while they are mirrored. Without it there are none.
var (
	verifyCopies   = ofCluster("verify_copies", "Copies by what the last comparison with their source came to: identical, partly (no difference where they could be compared), not_compared, hole, different.", "mirror", "result")
	verifyOldest   = ofCluster("verify_oldest_seconds", "Seconds since the oldest of the comparisons began that copies had last; a copy that had none counts from when it could have. Absent while nothing is mirrored.", "mirror")
	verifyPassAge  = ofCluster("verify_pass_age_seconds", "Seconds since the last pass over all copies ended. Absent until one has.", "mirror")
	verifyInterval = ofCluster("verify_interval_seconds", "How often each copy is to be compared (mirror.verification.interval.ms).", "mirror")
	verifyBytes    = ofCluster("verify_bytes_total", "Bytes that were read to compare copies in this process, at both clusters together.", "mirror")
	verifyWaits    = ofCluster("verify_waits", "1: nothing is compared now, because copying comes first or the source does not answer.", "mirror")
)

// Counted in this process.
var (
	lostOffsets       = ofCluster("mirror_lost_offsets_total", "Offsets that were gone at the source before they were copied.", "mirror")
	droppedOffsets    = ofCluster("mirror_dropped_offsets_total", "Offsets that were cut from copies.", "mirror")
	events            = ofCluster("events_total", "Events of mirrors by kind, as package mirror names them.", "mirror", "kind")
	destinationEvents = ofCluster("destination_events_total", "What the destination told, by kind, as package kraft names them.", "kind")
	destinationTold   = ofCluster("destination_last_event_timestamp_seconds", "When the destination last told something of a topic that needs a person, in seconds since 1970.", "kind", "topic")
)

// What was fetched and copied in this process.
var (
	fetchSeconds = ofCluster("mirror_fetch_seconds",
		"How long fetches from the source took, by what came of them: records, empty, failed. The source's own wait for records is in it, "+
			"fetch.wait.max.ms at most.", "mirror", "result")
	receivedBytes = ofCluster("mirror_received_bytes_total", "Bytes of batches that the source sent, whatever became of them.", "mirror")
	copiedBytes   = ofCluster("mirror_copied_bytes_total", "Bytes of batches that were appended to copies, as the source stores them.", "mirror")
	copiedBatches = ofCluster("mirror_copied_batches_total", "Batches that were appended to copies.", "mirror")
)

// Of a partition. Each of these is one series a partition: more names cost more than they tell.
var (
	partitionState      = series("partition_state", "1: the partition is in this state. Others have no series.", "mirror", "topic", "partition", "state")
	partitionSource     = series("partition_source_end_offset", "High watermark at the source as last measured. Absent when it never was.", "mirror", "topic", "partition")
	partitionEnd        = series("partition_destination_end_offset", "Where the copy ends.", "mirror", "topic", "partition")
	partitionReplicated = series("partition_replicated_offset", "Below it enough brokers hold the copy.", "mirror", "topic", "partition")
	partitionLag        = series("partition_lag_offsets", "Offsets that the source has and the copy does not hold. Absent while it cannot be measured.", "mirror", "topic", "partition")
	partitionLagSeconds = series("partition_lag_seconds",
		"Seconds since the last moment at which the copy held everything then known at the "+
			"source. Absent when there is none.", "mirror", "topic", "partition")
	partitionLagBytes = series("partition_lag_bytes",
		"About how many bytes partition_lag_offsets are, by the mean size of what was copied last. "+
			"Absent while it is not known, and where there are none.", "mirror", "topic", "partition")
	partitionOpen       = series("partition_open_transactions", "Transactions that are open in the copy: a failover aborts them. Absent where there are none.", "mirror", "topic", "partition")
	partitionLagUnknown = series("partition_lag_unknown", "1: the lag in offsets cannot be measured now.", "mirror", "topic", "partition")
	partitionAttempts   = series("partition_failed_attempts",
		"Attempts of a FAILED partition that have failed. Absent of others, and of one "+
			"that is not tried again.", "mirror", "topic", "partition")
	partitionNotRetried = series("partition_not_retried", "1: the partition is FAILED and not tried again by itself. Absent of others.", "mirror", "topic", "partition")
	partitionLost       = series("partition_last_lost_offsets",
		"Offsets in the last range that was gone at the source before it was copied. "+
			"Absent when there was none.", "mirror", "topic", "partition")
	partitionDropped = series("partition_last_dropped_offsets",
		"Offsets in the last range that was cut from the copy in this process. Absent "+
			"when there was none.", "mirror", "topic", "partition")
	partitionNeedConsent = series("partition_consent_needed_offsets",
		"Offsets of the copy that a start would drop, and that wait for a person's consent. "+
			"Absent when there are none.", "mirror", "topic", "partition")
)
