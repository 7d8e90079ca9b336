package kafkatest

import (
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeACL asks for the one rule that r created.
func describeACL(r kadm.CreateACLsResult) *kmsg.DescribeACLsRequest {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType = r.Type
	req.ResourceName = kmsg.StringPtr(r.Name)
	req.ResourcePatternType = r.Pattern
	req.Principal = kmsg.StringPtr(r.Principal)
	req.Host = kmsg.StringPtr(r.Host)
	req.Operation = r.Operation
	req.PermissionType = r.Permission
	return req
}

func countACLs(response kmsg.Response) int {
	n := 0
	for _, res := range response.(*kmsg.DescribeACLsResponse).Resources {
		n += len(res.ACLs)
	}
	return n
}
