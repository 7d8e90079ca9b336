package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// What metadata sync reads and writes (spec §6). Each ability is optional, for a Source and for a Destination, and found by type assertion: where one side lacks it, that part is not
// synchronised and Status.Metadata says so. All are safe for concurrent use, and every call ends with its context.

// GroupKind is what a group keeps at its cluster.
type GroupKind uint8

// The kinds.
const (
	OffsetGroup GroupKind = iota // committed offsets: classic, consumer (KIP-848) and streams groups (KIP-1071)
	ShareGroup                   // share-partition start offsets (KIP-932)
)

func (k GroupKind) String() string { return [...]string{"group", "share group"}[k] }

// Group is one group of a cluster. Its name is its own there, whatever its kind: a cluster has no two groups of one name (KIP-848, KIP-932).
type Group struct {
	Name   string
	Kind   GroupKind
	Active bool   // it has members, or had some when the cluster was asked
	State  string // in the cluster's own words: "Empty", "Stable", …; "" if it does not say. For a person who looks for a reason; nothing is decided by it
}

// GroupOffset is where a group goes on in one partition.
type GroupOffset struct {
	Offset      int64
	LeaderEpoch int32  // of the record before it, Unknown: none given. Share groups have none.
	Metadata    string // the application's own. Share groups have none.
}

// GroupOffsets are the offsets of one group. A partition without one is absent: an offset of 0 is an offset (F-58).
type GroupOffsets struct {
	Offsets map[TopicPartition]GroupOffset
	// Pending are partitions with a transactional commit under way: what they will be at is not known yet (KIP-447, F-55). They are absent from Offsets.
	Pending []TopicPartition
	// Unread are partitions of which the cluster does not say whether the group has an offset there: with Err, and none, that may be each that is absent from Offsets.
	Unread []TopicPartition
	// Err is why the group, or a part of it, could not be read; what is in Offsets holds all the same. ErrUnsupported: the cluster has no such groups.
	Err error
}

// hides says that a partition that is absent from Offsets may have an offset all the same.
func (g GroupOffsets) hides(tp TopicPartition) bool {
	return g.Err != nil && (len(g.Unread) == 0 || slices.Contains(g.Unread, tp))
}

// GroupReader is an ability of a Source and of a Destination: groups and their offsets.
type GroupReader interface {
	// Groups lists every group. Brokers that do not answer harm only their own: the others' groups are returned beside the error that names them (F-59).
	Groups(ctx context.Context) ([]Group, error)
	// GroupOffsets reads the offsets of these groups, committed ones only, by name. A group that does not exist, or is of another kind there, has no offsets and no Err. Every group asked for is in
	// the result; a coordinator that does not answer is the Err of its own groups (F-59). The error is for what hindered every group. A name is given once: of a name that is given with both
	// kinds, as a group that was deleted and made again as the other kind may be remembered, the last one is read, and the other has to be asked for in a call of its own.
	GroupOffsets(ctx context.Context, groups []Group) (map[string]GroupOffsets, error)
}

// GroupWriter is an ability of a Destination.
type GroupWriter interface {
	GroupReader
	// WriteGroupOffsets moves one group that has no members, or creates it. ErrGroupActive: it has members, and nothing was written; the cluster itself decides that when the write arrives, so a
	// member that has joined by then and is still there is safe (F-57). One that came, committed and went between the caller's reading and the write is not seen: a caller reads once more right
	// before it writes. A partition that was refused alone is in refused, with the cluster's words; the others are written (F-59). A *RefusedError: nothing was written for certain. Any other error: it is not known what was written; refused,
	// which may come beside it, names those that were refused before it. Kafka has no fence for a commit: one whose answer is lost, or whose context has ended, may still be carried out later,
	// also when another process has the partition or its log was opened.
	WriteGroupOffsets(ctx context.Context, group Group, offsets map[TopicPartition]GroupOffset) (refused map[TopicPartition]error, err error)
}

// ErrGroupActive: the group has members at the destination, or is of another kind there, and is not the mirror's to move.
var ErrGroupActive = errors.New("mirror: the group is active")

// TopicConfigs are the settings of one topic: those that are set on the topic itself, without defaults of the broker or the cluster.
type TopicConfigs struct {
	Values map[string]string
	Err    error // why they could not be read
}

// TopicConfigReader is an ability of a Source and of a Destination.
type TopicConfigReader interface {
	// TopicConfigs reads the settings of these topics. A topic that does not exist is absent. What a Destination sets for its own purposes while it has a topic is not shown: a topic's
	// settings are those that it will have when it is stopped.
	TopicConfigs(ctx context.Context, topics []string) (map[string]TopicConfigs, error)
}

// EffectiveConfigReader is an optional ability of a Source and of a Destination that is a TopicConfigReader: it tells what counts for a topic, the setting of its own or else what its brokers and its
// cluster have for it.
type EffectiveConfigReader interface {
	// EffectiveConfigs reads these settings of topics as they count now. What it cannot read is told as by TopicConfigs.
	EffectiveConfigs(ctx context.Context, topics []string, names ...string) (map[string]TopicConfigs, error)
}

// TopicConfigChange is a change of one topic's settings. What it does not name stays as it is (KIP-339).
type TopicConfigChange struct {
	Set    map[string]string
	Delete []string // back to the default
}

// RefusedError is a destination's no to one change: it has answered, and nothing of the change was done. An error of a change that is none may have been carried out.
type RefusedError struct {
	Setting bool  // it is the values of a topic's settings that it does not take, so that it may take some of them alone (F-65)
	Err     error // in the cluster's words
}

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// TopicConfigWriter is an ability of a Destination.
type TopicConfigWriter interface {
	TopicConfigReader
	// AlterTopicConfigs changes settings of topics. Each topic is changed whole or not at all, and alone: the result has the error of those that were refused, with the cluster's words (F-65),
	// and a *RefusedError where nothing was changed for certain. Where that says that it is a setting, a mirror tries the topic's settings one by one.
	AlterTopicConfigs(ctx context.Context, changes map[string]TopicConfigChange) map[string]error
}

// ACL is one access rule, in the words of kafka-acls.sh. A word for which this version has no name stands as UNKNOWN(16), with Kafka's number: such a rule can be listed and compared, and neither
// made nor removed.
type ACL struct {
	ResourceType string // TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER
	ResourceName string
	PatternType  string // LITERAL, PREFIXED
	Principal    string // User:alice
	Host         string
	Operation    string // READ, WRITE, ALL …
	Permission   string // ALLOW, DENY
}

func (a ACL) String() string {
	return fmt.Sprintf("%s %s to %s on %s %s %s from host %s", a.Permission, a.Principal, a.Operation, a.PatternType, a.ResourceType, a.ResourceName, a.Host)
}

// ErrNoAuthorizer: the cluster has no access rules at all (Kafka's SECURITY_DISABLED, 54).
var ErrNoAuthorizer = errors.New("mirror: the cluster has no authorizer, so it has no access rules")

// ACLReader is an ability of a Source and of a Destination.
type ACLReader interface {
	// ACLs lists every access rule. ErrNoAuthorizer: there are none.
	ACLs(ctx context.Context) ([]ACL, error)
}

// ACLWriter is an ability of a Destination.
type ACLWriter interface {
	ACLReader
	// CreateACLs adds rules; one that is there already is fine. Errors are those of single rules, by their place in the list; nil: all of them were added.
	// A *RefusedError is that of a rule that was not added for certain: it is not the mirror's, if somebody else adds it then.
	CreateACLs(ctx context.Context, rules []ACL) []error
	// DeleteACLs removes exactly these rules; one that is gone already is fine. Errors as for CreateACLs.
	DeleteACLs(ctx context.Context, rules []ACL) []error
}

// Right is one permission, in the words of kafka-acls.sh.
type Right struct {
	Operation string // Describe, Read, DescribeConfigs, AlterConfigs, Alter …
	Resource  string // Cluster, Topic, Group
	Name      string // of the topic or group; "" for the cluster
}

func (r Right) String() string {
	if r.Name == "" {
		return r.Operation + " on " + r.Resource
	}
	return r.Operation + " on " + r.Resource + " " + r.Name
}

// RightsChecker is an ability of a Source and of a Destination: what its user may do.
type RightsChecker interface {
	// MissingRights says which of these rights this connection's user lacks, in the order in which they were given, and changes nothing. A topic or group need not exist.
	// unknown are those that could not be found out; the error says why. A cluster without an authorizer lacks none.
	MissingRights(ctx context.Context, rights []Right) (missing, unknown []Right, err error)
}
