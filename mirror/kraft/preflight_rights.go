package kraft

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Right is one rule (ACL) that this process's principal needs. SECURITY.md has the list with what each amounts to.
type Right struct {
	Resource  string // "Cluster", "Topic" or "Group"
	Operation string // as kafka-acls.sh writes it
}

// Rights that are needed. A rule for Read includes Describe, and one for AlterConfigs includes DescribeConfigs (Kafka: StandardAuthorizer).
var (
	ClusterAction   = Right{"Cluster", "ClusterAction"}   // registration, heartbeats, metadata, AlterPartition, AllocateProducerIds, replica fetches
	Create          = Right{"Cluster", "Create"}          // CreateTopics; Create on the topics does too
	Alter           = Right{"Cluster", "Alter"}           // AlterPartitionReassignments, ElectLeaders, UnregisterBroker
	IdempotentWrite = Right{"Cluster", "IdempotentWrite"} // InitProducerId
	DescribeCluster = Right{"Cluster", "DescribeConfigs"} // settings of brokers, for Preflight alone: without it some findings are missing, and nothing else
	ReadTopic       = Right{"Topic", "Read"}              // ListOffsets, Fetch of what copies hold
	AlterTopic      = Right{"Topic", "Alter"}             // CreatePartitions
	AlterConfigs    = Right{"Topic", "AlterConfigs"}      // IncrementalAlterConfigs, DescribeConfigs of a topic
	ReadGroup       = Right{"Group", "Read"}              // groups of metadata sync: ListGroups, OffsetFetch, OffsetCommit and their like for share groups
)

// Rights lists those of a process that joins and mirrors. The last one is not needed for joining.
func Rights() []Right {
	return []Right{ClusterAction, Create, Alter, IdempotentWrite, ReadTopic, AlterTopic, AlterConfigs, DescribeCluster}
}

// SyncRights lists what metadata sync needs beside Rights, of which it uses Alter (with the Describe that follows from it: access rules, all groups), ReadTopic (offsets in a topic) and
// AlterConfigs. Preflight does not look at them; Destination.MissingRights does.
func SyncRights() []Right { return []Right{ReadGroup} }

func (r Right) String() string { return r.Operation + " on " + r.Resource }

// probeTopic is the topic for which rights on topics are tried, if Config.Topics names none. Nothing creates it.
const probeTopic = "clustermirror.preflight"

// rightsChecked says what is missing.
type rightsChecked []Right

func (c rightsChecked) missing(r Right) bool { return slices.Contains(c, r) }

// answered notes what the answer to a probe says of a right: any other code than a refusal shows that the authorizer let it through.
func (p *preflight) answered(r Right, where, topic string, code int16, err error) {
	s := Blocks
	if r == DescribeCluster {
		s = Warns
	}
	on := r.String()
	if r.Resource == "Topic" {
		on += " " + topic
	}
	switch refused := kerr.ErrorForCode(code); {
	case err != nil:
		p.add(Finding{Kind: AboutRights, Severity: Warns, Right: r, What: fmt.Sprintf("whether %s is allowed at %s is not known: %v", on, where, err)})
	case errors.Is(refused, kerr.ClusterAuthorizationFailed), errors.Is(refused, kerr.TopicAuthorizationFailed):
		if p.rights.missing(r) {
			return
		}
		p.rights = append(p.rights, r)
		p.add(Finding{Kind: AboutRights, Severity: s, Right: r, What: fmt.Sprintf("%s is not allowed at %s", on, where), Do: "run: " + r.Command("User:THIS-PROCESS", topic)})
	default:
		p.add(Finding{Kind: AboutRights, Right: r, What: fmt.Sprintf("%s is allowed at %s", on, where)})
	}
}

// topics are those that rights are tried for.
func (p *preflight) topics() []string {
	if ts := p.d.cfg.Topics; len(ts) > 0 {
		return ts
	}
	return []string{probeTopic}
}

// controllerRights tries what controllers authorize.
func (p *preflight) controllerRights(ctx context.Context) {
	const where = "the controllers' listener"
	ask := func(req kmsg.Request) (kmsg.Response, error) {
		bounded, stop := p.bounded(ctx)
		defer stop()
		return p.d.client.Controller(bounded, req)
	}

	// No registration has the epoch −1: a broker epoch that is refused as stale was allowed to be told.
	allocate := kmsg.NewPtrAllocateProducerIDsRequest()
	allocate.BrokerID, allocate.BrokerEpoch = p.d.cfg.NodeID, -1
	resp, err := ask(allocate)
	code := int16(0)
	if err == nil {
		code = resp.(*kmsg.AllocateProducerIDsResponse).ErrorCode
	}
	p.answered(ClusterAction, where, "", code, err)

	// A reassignment of nothing.
	reassign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	reassign.TimeoutMillis = int32(preflightBound / time.Millisecond)
	resp, err = ask(reassign)
	code = 0
	if err == nil {
		code = resp.(*kmsg.AlterPartitionAssignmentsResponse).ErrorCode
	}
	p.answered(Alter, where, "", code, err)

	for _, topic := range p.topics() {
		create := kmsg.NewPtrCreateTopicsRequest()
		create.ValidateOnly, create.TimeoutMillis = true, int32(preflightBound/time.Millisecond)
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, 1, 1
		create.Topics = append(create.Topics, ct)
		resp, err = ask(create)
		code = 0
		if err == nil {
			for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
				code = t.ErrorCode
			}
		}
		p.answered(Create, where, topic, code, err)

		grow := kmsg.NewPtrCreatePartitionsRequest()
		grow.ValidateOnly, grow.TimeoutMillis = true, int32(preflightBound/time.Millisecond)
		gt := kmsg.NewCreatePartitionsRequestTopic()
		gt.Topic, gt.Count = topic, 1
		grow.Topics = append(grow.Topics, gt)
		resp, err = ask(grow)
		code = 0
		if err == nil {
			for _, t := range resp.(*kmsg.CreatePartitionsResponse).Topics {
				code = t.ErrorCode
			}
		}
		p.answered(AlterTopic, where, topic, code, err)

		alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
		alter.ValidateOnly = true
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = minInSync, kmsg.IncrementalAlterConfigOpDelete
		res.Configs = append(res.Configs, c)
		alter.Resources = append(alter.Resources, res)
		resp, err = ask(alter)
		code = 0
		if err == nil {
			for _, r := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
				code = r.ErrorCode
			}
		}
		p.answered(AlterConfigs, where, topic, code, err)
	}
}

// brokerRights tries what brokers authorize, at the first one that was reached: rules are the same everywhere.
func (p *preflight) brokerRights(ctx context.Context) {
	at := slices.IndexFunc(p.brokers, func(b brokerSeen) bool { return b.err == nil })
	if at < 0 {
		return
	}
	broker := p.brokers[at].broker.ID
	where := fmt.Sprintf("the brokers' listener (asked of broker %d)", broker)
	ask := func(req kmsg.Request) (kmsg.Response, error) {
		bounded, stop := p.bounded(ctx)
		defer stop()
		return p.d.client.Broker(bounded, broker, req)
	}

	// A replica's fetch of a topic that does not exist.
	fetch := kmsg.NewPtrFetchRequest()
	fetch.ReplicaID, fetch.ReplicaState.ID, fetch.ReplicaState.Epoch = p.d.cfg.NodeID, p.d.cfg.NodeID, -1
	fetch.MaxWaitMillis, fetch.MaxBytes, fetch.SessionEpoch = 0, 1, -1
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic = probeTopic
	rand.Read(ft.TopicID[:])
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes = 1
	ft.Partitions = append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)
	resp, err := ask(fetch)
	code := int16(0)
	if err == nil {
		r := resp.(*kmsg.FetchResponse)
		code = r.ErrorCode
		for _, t := range r.Topics {
			for _, rp := range t.Partitions {
				code = rp.ErrorCode
			}
		}
	}
	p.answered(ClusterAction, where, "", code, err)

	// An epoch without an id is invalid: the broker says so after it has asked the authorizer, and gives out no id.
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = 60_000, -1, 0
	resp, err = ask(init)
	code = 0
	if err == nil {
		code = resp.(*kmsg.InitProducerIDResponse).ErrorCode
	}
	p.answered(IdempotentWrite, where, "", code, err)

	for _, topic := range p.topics() {
		describe := kmsg.NewPtrDescribeProducersRequest()
		dt := kmsg.NewDescribeProducersRequestTopic()
		dt.Topic, dt.Partitions = topic, []int32{0}
		describe.Topics = append(describe.Topics, dt)
		resp, err = ask(describe)
		code = 0
		if err == nil {
			for _, t := range resp.(*kmsg.DescribeProducersResponse).Topics {
				for _, rp := range t.Partitions {
					code = rp.ErrorCode
				}
			}
		}
		p.answered(ReadTopic, where, topic, code, err)

		if p.rights.missing(AlterConfigs) {
			continue // which includes it
		}
		settings := kmsg.NewPtrDescribeConfigsRequest()
		rs := kmsg.NewDescribeConfigsRequestResource()
		rs.ResourceType, rs.ResourceName, rs.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{minInSync}
		settings.Resources = append(settings.Resources, rs)
		resp, err = ask(settings)
		code = 0
		if err == nil {
			for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
				code = r.ErrorCode
			}
		}
		p.answered(AlterConfigs, where, topic, code, err)
	}
	if p.brokers[at].configs == nil {
		p.answered(DescribeCluster, where, "", kerr.ClusterAuthorizationFailed.Code, nil)
	} else {
		p.answered(DescribeCluster, where, "", 0, nil)
	}
}

// looked are the settings of brokers that are looked at.
var looked = []string{
	"inter.broker.listener.name", "security.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol", hostNameCheck, uncleanElection, minInSync, "remote.log.storage.system.enable", "log.dirs", "log.dir",
	"broker.session.timeout.ms", "leader.replication.throttled.rate", "follower.replication.throttled.rate",
}

const hostNameCheck = "ssl.endpoint.identification.algorithm"

// brokerConfigs are a broker's settings, nil if it does not tell them.
func (p *preflight) brokerConfigs(ctx context.Context, broker int32) map[string]string {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, fmt.Sprint(broker)
	r.ConfigNames = slices.Clone(looked)
	listener := ""
	for _, l := range p.listenerNames() {
		listener = "listener.name." + strings.ToLower(l) + "." + hostNameCheck
		r.ConfigNames = append(r.ConfigNames, listener)
	}
	req.Resources = append(req.Resources, r)
	resp, err := p.d.client.Broker(ctx, broker, req)
	if err != nil {
		return nil
	}
	resources := resp.(*kmsg.DescribeConfigsResponse).Resources
	if len(resources) != 1 || resources[0].ErrorCode != 0 {
		return nil
	}
	configs := map[string]string{}
	for _, c := range resources[0].Configs {
		if c.Value != nil {
			configs[c.Name] = *c.Value
		}
	}
	return configs
}
