package kraft

import (
	"crypto/tls"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// serve starts the server for the brokers.
func (d *Destination) serve(l net.Listener) (*replicaserver.Server, error) {
	s := d.cfg.Security
	c := replicaserver.Config{
		Listener: l, NodeID: d.cfg.NodeID, ClusterID: d.cluster, Topics: (*ledTopics)(d), Security: replicaserver.SecurityProtocol(d.membership.protocol), Logger: d.cfg.Logger,
		Allowed: func(principal string) bool {
			if s.IsBroker != nil {
				return s.Protocol == "PLAINTEXT" || s.IsBroker(principal)
			}
			return s.Protocol == "PLAINTEXT" || slices.Contains(s.Brokers, principal)
		},
	}
	if s.TLS != nil {
		c.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.TLS() }}
	}
	if s.Protocol == "SASL_PLAINTEXT" || s.Protocol == "SASL_SSL" {
		c.SASL.Plain = s.PlainPassword
		c.SASL.ScramSHA256, c.SASL.ScramSHA512 = d.scram(1), d.scram(2)
	}
	return replicaserver.New(c)
}

// scram looks users up in the cluster's own metadata (KIP-554): mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
func (d *Destination) scram(mechanism int8) func(user string) (replicaserver.ScramCredential, bool) {
	return func(user string) (found replicaserver.ScramCredential, ok bool) {
		d.meta.look(func(im *clustermetadata.Image) {
			var c clustermetadata.ScramCredential
			if c, ok = im.Scram(mechanism, user); ok {
				found = replicaserver.ScramCredential{Salt: c.Salt, StoredKey: c.StoredKey, ServerKey: c.ServerKey, Iterations: c.Iterations}
			}
		})
		return found, ok
	}
}

// ledTopics is the Destination as the server asks it.
type ledTopics Destination

func (t *ledTopics) ByID(id statemachine.TopicID, partition int32) (replicaserver.Partition, int16) {
	d := (*Destination)(t)
	var name string
	var ok bool
	d.meta.look(func(im *clustermetadata.Image) { name, ok = im.TopicName(id) })
	if !ok {
		return nil, kerr.UnknownTopicID.Code
	}
	if l := d.known(mirror.TopicPartition{Topic: name, Partition: partition}); l != nil && l.id == id {
		return l.served, 0
	}
	return nil, kerr.NotLeaderForPartition.Code
}

func (t *ledTopics) ByName(topic string, partition int32) (replicaserver.Partition, int16) {
	d := (*Destination)(t)
	tp := mirror.TopicPartition{Topic: topic, Partition: partition}
	if l := d.known(tp); l != nil {
		return l.served, 0
	}
	if _, err := d.partition(tp); err != nil {
		return nil, kerr.UnknownTopicOrPartition.Code
	}
	return nil, kerr.NotLeaderForPartition.Code
}
