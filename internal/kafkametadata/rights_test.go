package kafkametadata

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/mirror"
)

// guarded answers the requests with which rights are tried, each resource with its code.
func guarded(t *testing.T, codeOf func(operation, resource, name string) int16) func(int32, kmsg.Request) (kmsg.Response, error) {
	return func(_ int32, req kmsg.Request) (kmsg.Response, error) {
		switch req := req.(type) {
		case *kmsg.DescribeACLsRequest:
			resp := kmsg.NewPtrDescribeACLsResponse()
			resp.ErrorCode = codeOf("Describe", "Cluster", "")
			return resp, nil
		case *kmsg.AlterPartitionAssignmentsRequest:
			if len(req.Topics) > 0 {
				t.Error("a reassignment would be made")
			}
			resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
			resp.ErrorCode = codeOf("Alter", "Cluster", "")
			return resp, nil
		case *kmsg.ListOffsetsRequest:
			resp := kmsg.NewPtrListOffsetsResponse()
			for _, asked := range req.Topics {
				a, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
				a.Topic, p.ErrorCode = asked.Topic, codeOf("Describe", "Topic", asked.Topic)
				a.Partitions = append(a.Partitions, p)
				resp.Topics = append(resp.Topics, a)
			}
			return resp, nil
		case *kmsg.DescribeProducersRequest:
			resp := kmsg.NewPtrDescribeProducersResponse()
			for _, asked := range req.Topics {
				a, p := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition()
				a.Topic, p.ErrorCode = asked.Topic, codeOf("Read", "Topic", asked.Topic)
				a.Partitions = append(a.Partitions, p)
				resp.Topics = append(resp.Topics, a)
			}
			return resp, nil
		case *kmsg.DescribeConfigsRequest:
			return describing(req, func(topic string, r *kmsg.DescribeConfigsResponseResource) {
				r.ErrorCode = codeOf("DescribeConfigs", "Topic", topic)
			}), nil
		case *kmsg.IncrementalAlterConfigsRequest:
			if !req.ValidateOnly {
				t.Error("settings would be changed")
			}
			resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
			for _, asked := range req.Resources {
				r := kmsg.NewIncrementalAlterConfigsResponseResource()
				r.ResourceName, r.ErrorCode = asked.ResourceName, codeOf("AlterConfigs", "Topic", asked.ResourceName)
				resp.Resources = append(resp.Resources, r)
			}
			return resp, nil
		case *kmsg.DescribeGroupsRequest:
			resp := kmsg.NewPtrDescribeGroupsResponse()
			for _, name := range req.Groups {
				g := kmsg.NewDescribeGroupsResponseGroup()
				g.Group, g.ErrorCode = name, codeOf("Describe", "Group", name)
				resp.Groups = append(resp.Groups, g)
			}
			return resp, nil
		case *kmsg.HeartbeatRequest:
			resp := kmsg.NewPtrHeartbeatResponse()
			resp.ErrorCode = codeOf("Read", "Group", req.Group)
			return resp, nil
		}
		t.Errorf("a %T was sent", req)
		return nil, errSilent
	}
}

// every right that can be found out.
func every(topic, group string) []mirror.Right {
	return []mirror.Right{
		{Operation: "Describe", Resource: "Cluster"}, {Operation: "Alter", Resource: "Cluster"},
		{Operation: "Describe", Resource: "Topic", Name: topic}, {Operation: "Read", Resource: "Topic", Name: topic},
		{Operation: "DescribeConfigs", Resource: "Topic", Name: topic}, {Operation: "AlterConfigs", Resource: "Topic", Name: topic},
		{Operation: "Describe", Resource: "Group", Name: group}, {Operation: "Read", Resource: "Group", Name: group},
	}
}

// TestMissingRights: a refusal for want of a right is a right that is missing, whatever else an answer says is one that is there, and what did not come to an answer is unknown. The order is
// that of the question.
func TestMissingRights(t *testing.T) {
	rights := slices.Concat(every("orders", "g"), every("other", "h"), every("other", "")[6:]) // a group may have no name (Kafka: GroupCoordinatorService; only members need one)
	denied := map[string]int16{"Cluster": kerr.ClusterAuthorizationFailed.Code, "Topic": kerr.TopicAuthorizationFailed.Code, "Group": kerr.GroupAuthorizationFailed.Code}
	for _, lacking := range slices.Concat(every("orders", "g"), every("other", "")[6:], []mirror.Right{{}}) {
		f := &fakeBrokers{answer: guarded(t, func(operation, resource, name string) int16 {
			if lacking == (mirror.Right{Operation: operation, Resource: resource, Name: name}) {
				return denied[resource]
			}
			return map[string]int16{"Cluster": kerr.SecurityDisabled.Code, "Topic": kerr.UnknownTopicOrPartition.Code, "Group": kerr.NotCoordinator.Code}[resource]
		})}
		missing, unknown, err := f.client().MissingRights(t.Context(), append(rights, rights...))
		want := []mirror.Right(nil)
		for _, r := range append(rights, rights...) {
			if r == lacking {
				want = append(want, r)
			}
		}
		if !slices.Equal(missing, want) || unknown != nil || err != nil {
			t.Errorf("without %v: missing %v, unknown %v, %v", lacking, missing, unknown, err)
		}
	}

	f := &fakeBrokers{answer: guarded(t, func(operation, resource, name string) int16 {
		switch {
		case operation == "Alter":
			return kerr.RequestTimedOut.Code
		case name == "h":
			return denied["Group"]
		}
		return 0
	})}
	odd := []mirror.Right{{Operation: "Write", Resource: "Topic", Name: "orders"}, {Operation: "Read", Resource: "Topic"}, {Operation: "Describe", Resource: "Cluster", Name: "x"}}
	missing, unknown, err := f.client().MissingRights(t.Context(), append(odd, rights...))
	if want := []mirror.Right{rights[14], rights[15]}; !slices.Equal(missing, want) {
		t.Errorf("missing %v", missing)
	}
	if want := append(odd, rights[1], rights[1]); !slices.Equal(unknown, want) || !errors.Is(err, kerr.RequestTimedOut) {
		t.Errorf("unknown %v, %v", unknown, err)
	}

	f.answer = func(int32, kmsg.Request) (kmsg.Response, error) { return nil, errSilent }
	if missing, unknown, err := f.client().MissingRights(t.Context(), rights); missing != nil || !slices.Equal(unknown, rights) || !errors.Is(err, errSilent) {
		t.Errorf("nobody answers: missing %v, unknown %v, %v", missing, unknown, err)
	}
	f.none = errSilent
	if missing, unknown, err := f.client().MissingRights(t.Context(), rights); missing != nil || !slices.Equal(unknown, rights) || !errors.Is(err, errSilent) {
		t.Errorf("no brokers: missing %v, unknown %v, %v", missing, unknown, err)
	}
	if missing, unknown, err := f.client().MissingRights(t.Context(), nil); missing != nil || unknown != nil || err != nil {
		t.Errorf("nothing asked: %v, %v, %v", missing, unknown, err)
	}
}
