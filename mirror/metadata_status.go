package mirror

import "time"

// MetadataStatus is how metadata sync stands in this process. It is a copy.
type MetadataStatus struct {
	Groups  SyncStatus
	Configs SyncStatus
	ACLs    SyncStatus
	// FollowedGroups are the groups of the source that are followed, on partitions that this process mirrors or has stopped, by name.
	FollowedGroups []GroupStatus
}

// SyncStatus is one part of metadata sync.
type SyncStatus struct {
	Off     string    // why it is not done at all, "" if it is: one side cannot, or nothing is to be followed
	At      time.Time // when a look last came to its end without an error that hindered all of it; zero: never
	Err     error     // why the last look did not
	Skipped []string  // what the last look left alone, and why; sorted
}

// GroupStatus is one group of the source that is followed.
type GroupStatus struct {
	Group      string
	Kind       GroupKind
	Active     bool                   // it had members at the destination when it was looked at last
	Seen       time.Time              // when it was last looked at on both sides; zero: never
	Partitions []GroupPartitionStatus // by topic and partition
}

// GroupPartitionStatus is where a group is in one partition.
type GroupPartitionStatus struct {
	TopicPartition
	Source  int64  // its offset at the source when it was last seen, Unknown
	Written int64  // what the mirror wrote at the destination last, Unknown: nothing, or somebody has moved it since
	Here    int64  // where the destination has it, as seen or written last, Unknown: it has none, or was not seen
	Skipped string // why it is not where the source has it, "" if it is, or as near as the copy goes
}

// notLookedYet is why a part is not done in a young process.
const notLookedYet = "no look has come to its end in this process yet"

// hindered is why this part is not done now, in one line; "" if it is.
func (s *SyncStatus) hindered() string {
	switch {
	case s.Off != "":
		return s.Off
	case s.Err != nil:
		return OneLine(s.Err.Error())
	case s.At.IsZero():
		return notLookedYet
	}
	return ""
}
