package kafkametadata

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// Whether the user has a right is tried with a request that needs it and comes to nothing. Brokers ask their authorizer before they look at anything else, so a refusal for want of the
// right says that it is missing, and every other answer, "no such topic" among them, that it is there. Rights that follow from others (Describe from Read, DescribeConfigs from
// AlterConfigs, anything from All; Kafka: StandardAuthorizerData) are found so too. Authorized operations (KIP-430) would be told of what exists only.

// mostTried are the topics or groups of one request.
const mostTried = 500

// probe is how one kind of right is found out: for some names at once, nil for a right on the cluster. Answers are codes, 0 for a name that is not among them.
type probe func(ctx context.Context, brokers *anyBroker, names []string) (map[string]int16, error)

// kind is a right without the name of what it is on.
type kind struct{ operation, resource string }

var probes = map[kind]probe{
	{"Describe", "Cluster"}:      tryDescribeCluster,
	{"Alter", "Cluster"}:         tryAlterCluster,
	{"Describe", "Topic"}:        tryDescribeTopics,
	{"Read", "Topic"}:            tryReadTopics,
	{"DescribeConfigs", "Topic"}: tryDescribeConfigs,
	{"AlterConfigs", "Topic"}:    tryAlterConfigs,
	{"Describe", "Group"}:        tryDescribeGroups,
	{"Read", "Group"}:            tryReadGroups,
}

// MissingRights is mirror.RightsChecker for Describe and Alter on the cluster, Describe, Read, DescribeConfigs and AlterConfigs on topics, and Describe and Read on groups; others are unknown.
// Nothing is written. One broker's rules are taken for those of all.
func (c *Client) MissingRights(ctx context.Context, rights []mirror.Right) (missing, unknown []mirror.Right, err error) {
	if len(rights) == 0 {
		return nil, nil, nil
	}
	brokers, err := c.anyBroker(ctx)
	if err != nil {
		return nil, slices.Clone(rights), err
	}
	type verdict struct {
		code int16
		err  error
	}
	found := map[mirror.Right]verdict{}
	names := map[kind][]string{}
	var kinds []kind
	for _, r := range rights {
		k := kind{r.Operation, r.Resource}
		switch _, seen := found[r]; {
		case seen:
			continue
		case probes[k] == nil:
			found[r] = verdict{err: fmt.Errorf("nothing is known of how to try %s", r)}
			continue
		case r.Resource == "Cluster" && r.Name != "", r.Resource == "Topic" && r.Name == "": // a group may have no name; it is asked about like any other
			found[r] = verdict{err: fmt.Errorf("a right on %s with the name %q cannot be tried", r.Resource, r.Name)}
			continue
		}
		found[r] = verdict{err: errLeftOut}
		if names[k] == nil {
			kinds = append(kinds, k)
		}
		names[k] = append(names[k], r.Name)
	}
	for _, k := range kinds {
		for some := range slices.Chunk(names[k], mostTried) {
			codes, err := probes[k](ctx, brokers, some)
			for _, name := range some {
				v := verdict{err: err}
				if code, answered := codes[name]; err == nil && !answered {
					v.err = errLeftOut
				} else if v.code = code; undecided(code) {
					v.err = fmt.Errorf("trying %s on %s: %w", k.operation, k.resource, kerr.ErrorForCode(code))
				}
				found[mirror.Right{Operation: k.operation, Resource: k.resource, Name: name}] = v
			}
		}
	}
	var why []error
	for _, r := range rights {
		switch v := found[r]; {
		case v.err != nil:
			unknown = append(unknown, r)
			if !slices.ContainsFunc(why, func(err error) bool { return err.Error() == v.err.Error() }) {
				why = append(why, v.err)
			}
		case unauthorized(v.code):
			missing = append(missing, r)
		}
	}
	return missing, unknown, errors.Join(why...)
}

func unauthorized(code int16) bool {
	return slices.Contains([]int16{kerr.ClusterAuthorizationFailed.Code, kerr.TopicAuthorizationFailed.Code, kerr.GroupAuthorizationFailed.Code}, code)
}

// undecided says that a broker did not get as far as asking the authorizer, or that it is not known whether it did: what it hands to the controllers may not have come back.
func undecided(code int16) bool {
	return slices.Contains([]int16{kerr.UnknownServerError.Code, kerr.RequestTimedOut.Code, kerr.BrokerNotAvailable.Code, kerr.NetworkException.Code, kerr.UnsupportedVersion.Code, kerr.NotController.Code}, code)
}

// nobody is a name that nothing has.
func nobody() string { return "clustermirror-" + rand.Text() }

// try sends one probe to a broker, and has codes read from its answer.
func try[R any](ctx context.Context, brokers *anyBroker, request func() kmsg.Request, codes func(resp R, answer func(name string, code int16))) (map[string]int16, error) {
	resp, err := askAny[R](ctx, brokers, request)
	if err != nil {
		return nil, err
	}
	found := map[string]int16{}
	codes(resp, func(name string, code int16) { found[name] = code })
	return found, nil
}

// tryDescribeCluster asks for the rules of a topic that does not exist.
func tryDescribeCluster(ctx context.Context, brokers *anyBroker, _ []string) (map[string]int16, error) {
	return try(ctx, brokers, func() kmsg.Request {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.ResourceType, req.ResourceName, req.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(nobody()), kmsg.ACLResourcePatternTypeLiteral
		req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		return req
	}, func(resp *kmsg.DescribeACLsResponse, answer func(string, int16)) { answer("", resp.ErrorCode) })
}

// tryAlterCluster asks for a reassignment of nothing.
func tryAlterCluster(ctx context.Context, brokers *anyBroker, _ []string) (map[string]int16, error) {
	return try(ctx, brokers, func() kmsg.Request {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.TimeoutMillis = int32(brokers.client.bound.Milliseconds())
		return req
	}, func(resp *kmsg.AlterPartitionAssignmentsResponse, answer func(string, int16)) {
		answer("", resp.ErrorCode)
	})
}

// tryDescribeTopics asks where first partitions end: unlike Metadata in old versions, that never creates a topic (F-31).
func tryDescribeTopics(ctx context.Context, brokers *anyBroker, topics []string) (map[string]int16, error) {
	return try(ctx, brokers, func() kmsg.Request {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		for _, topic := range topics {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = topic
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp = -1
			t.Partitions = append(t.Partitions, p)
			req.Topics = append(req.Topics, t)
		}
		return req
	}, func(resp *kmsg.ListOffsetsResponse, answer func(string, int16)) {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answer(t.Topic, p.ErrorCode)
			}
		}
	})
}

// tryReadTopics asks for the producers of first partitions (KIP-664, Kafka 2.8 and later).
func tryReadTopics(ctx context.Context, brokers *anyBroker, topics []string) (map[string]int16, error) {
	return try(ctx, brokers, func() kmsg.Request {
		req := kmsg.NewPtrDescribeProducersRequest()
		for _, topic := range topics {
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic, t.Partitions = topic, []int32{0}
			req.Topics = append(req.Topics, t)
		}
		return req
	}, func(resp *kmsg.DescribeProducersResponse, answer func(string, int16)) {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answer(t.Topic, p.ErrorCode)
			}
		}
	})
}

// tried is a setting that every topic has.
const tried = "retention.ms"

// tryDescribeConfigs asks for one setting.
func tryDescribeConfigs(ctx context.Context, brokers *anyBroker, topics []string) (map[string]int16, error) {
	return try(ctx, brokers, func() kmsg.Request { return describeTopics(topics, []string{tried}) }, func(resp *kmsg.DescribeConfigsResponse, answer func(string, int16)) {
		for _, r := range resp.Resources {
			answer(r.ResourceName, r.ErrorCode)
		}
	})
}

// tryAlterConfigs asks whether a setting could be taken back.
func tryAlterConfigs(ctx context.Context, brokers *anyBroker, topics []string) (map[string]int16, error) {
	changes := map[string]mirror.TopicConfigChange{}
	for _, topic := range topics {
		changes[topic] = mirror.TopicConfigChange{Delete: []string{tried}}
	}
	return try(ctx, brokers, func() kmsg.Request {
		req := alterTopics(topics, changes)
		req.ValidateOnly = true
		return req
	}, func(resp *kmsg.IncrementalAlterConfigsResponse, answer func(string, int16)) {
		for _, r := range resp.Resources {
			answer(r.ResourceName, r.ErrorCode)
		}
	})
}

// tryDescribeGroups asks for groups. A broker that is not a group's coordinator says so after it has asked the authorizer.
func tryDescribeGroups(ctx context.Context, brokers *anyBroker, groups []string) (map[string]int16, error) {
	return try(ctx, brokers, func() kmsg.Request {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = groups
		return req
	}, func(resp *kmsg.DescribeGroupsResponse, answer func(string, int16)) {
		for _, g := range resp.Groups {
			answer(g.Group, g.ErrorCode)
		}
	})
}

// mostHeartbeats are under way at a time.
const mostHeartbeats = 100

// tryReadGroups sends for each group the heartbeat of a member that it does not have.
func tryReadGroups(ctx context.Context, brokers *anyBroker, groups []string) (map[string]int16, error) {
	codes := map[string]int16{}
	for some := range slices.Chunk(groups, mostHeartbeats) {
		answers, errs := make([]int16, len(some)), make([]error, len(some))
		var all sync.WaitGroup
		for i, group := range some {
			own := *brokers
			own.ids = slices.Clone(brokers.ids)
			all.Go(func() {
				resp, err := askAny[*kmsg.HeartbeatResponse](ctx, &own, func() kmsg.Request {
					req := kmsg.NewPtrHeartbeatRequest()
					req.Group, req.MemberID = group, nobody()
					return req
				})
				if errs[i] = err; err == nil {
					answers[i] = resp.ErrorCode
				}
			})
		}
		all.Wait()
		if err := cmp.Or(errs...); err != nil {
			return nil, err
		}
		for i, group := range some {
			codes[group] = answers[i]
		}
	}
	return codes, nil
}
