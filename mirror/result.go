package mirror

// Intent is why a verb is used and of which clusters it is meant. Every field may be empty, unless the Admin is strict. It is recorded in the history.
type Intent struct {
	Reason string
	// Plan is Result.Plan of a dry run: the verb is refused, and nothing changes, when it would do anything else than that dry run said.
	Plan string
	// SourceClusterID and DestinationClusterID are which clusters the operator means; others are refused before anything is written.
	SourceClusterID      string
	DestinationClusterID string
}

// Clusters are the two sides of a mirror, to be shown before anything is opened, discarded or deleted. "" is not known.
type Clusters struct {
	SourceID             string
	SourceBootstrap      string
	DestinationID        string
	DestinationBootstrap string
}

// Result is what a verb did, or would do (DryRun).
type Result struct {
	Verb     string
	Mirror   string
	DryRun   bool
	Clusters Clusters
	// Topics has one result for each topic that the verb is about, in the order of the request; for patterns and for all topics by name.
	Topics []TopicResult
	// Plan names exactly what this call did or would do: the same request against the same desired state and the same clusters gives the same.
	Plan string
	// Notes are what the operator should know besides, one sentence each.
	Notes []string
}

// TopicResult is what a verb did for one topic.
type TopicResult struct {
	Topic   string
	Err     error // an *Error; nil: what was asked for is recorded
	Changed bool  // false: it was so before, or Err
}
