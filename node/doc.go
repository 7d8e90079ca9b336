// Package node runs mirrors as a service: a process that joins a Kafka cluster, runs the mirrors that were created there, tells how they are, hands over when it is told to end, and takes
// up changed credentials without a restart. examples/kafka-mirror is its command line; deploy/ beside it has the files for it.
//
//	file, err := node.ReadFile("node.properties")
//	if err != nil {
//		return err
//	}
//	n, err := node.New(file.Config())
//	if err != nil {
//		return err
//	}
//	return n.Run(ctx) // until ctx ends
//
// # What it runs
//
// Which mirrors there are, and what is wanted of them, stands in the destination cluster (mirror.Control). A node follows it: it opens a Mirror for each mirror that was created there and
// that Config.Mirrors lets it run, opens its source from the settings that the mirror was created with, and goes on with it while the node lives. Verbs (mirror.Admin, kafka-mirror)
// need no node: they record, and whichever node runs the mirror follows.
//
// # Several nodes
//
// One node id is one mirror service in the cluster. Any number of processes may run under the same id: the controllers let one of them in, the others stand by and are let in when its
// session ends, or at once when it ends in order. Nothing else is needed for a take-over, no shared disk and no election: what a node knows stands in the cluster.
//
// Nodes with different ids share nothing. A mirror belongs to the node id that runs it, because that id leads its partitions. A node does not run a mirror that another id has: it says so
// in its status, and tries again. Where several ids are used, Config.Mirrors (mirror.names) says which runs what.
//
// # Is the copy right
//
// With mirror.node.throttled.rate in its file all mirrors of a node together receive no more bytes in a second than that from their sources (mirror.SharedRate), whatever each one's own limit is.
//
// With mirror.verification.rate in its file a node compares the copies of its mirrors with their sources while it mirrors them (mirror.Config.VerifyRate): each once in mirror.verification.interval.ms
// if the rate lets it, and only while copying needs neither. What is found is told and changes nothing. A new process begins its passes anew, and remembers what was found wrong until it has compared that itself.
//
// # Its end
//
// When the context of Run ends the node drains: it waits until no partition is in the middle of a stop or a pause (at most Config.DrainBound), ends its mirrors (calls under way into logs and
// stores may take 10 s more), hands its place to a standby (Destination.Resign, after creations, take-overs and hand-overs under way), and Run returns nil. A node that is killed instead loses nothing: whoever comes under its id goes on where the recorded states say; it takes the
// controllers one session (9 s) to notice.
//
// A node whose registration was taken away by somebody (UnregisterBroker) ends with ErrThrownOut and must not be started again by a machine.
//
// # How it is
//
// Status says how the node and each of its mirrors are, as Go values; Handler serves the same over HTTP:
//
//	/healthz   503 when the loop of a node that runs has stood still for two minutes, otherwise 200, also while it waits for its turn. For the supervisor: restart
//	/readyz    200 while it leads and follows what it should; 503 with the reasons, one a line. A standby is not ready, and says that it stands by
//	/metrics   package metrics, in the format of Prometheus
//	/status    Status as JSON
//
// Nothing is served unless Config.HTTP names an address. The pages show names of topics, offsets and errors, no record and no secret; they ask for no password.
//
// Config.Page has the status page (package statuspage) served for a browser, at an address of its own: what is wrong and why, lag over time, topics, partitions, the failover plan. It is off, and
// stays on this machine unless Config.PageRemote says otherwise.
//
// # Credentials
//
// Secrets that settings refer to (${file:…}, certificates) are read anew with each connection, so renewing them needs nothing. What stands in the file itself is taken up by File.Reload
// (SIGHUP at the command line): new connections use it; a file with a mistake changes nothing. Reload names what changed that needs a new process.
package node
