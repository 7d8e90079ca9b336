package node

import (
	"errors"
	"strings"

	"github.com/clustermirror/clustermirror/mirror/kraft"
)

// inProperties are names of kraft.Config and of kafkastore.Config in what those packages say, and what a node.properties has for them. Of two that begin alike the longer one comes first.
var inProperties = strings.NewReplacer(
	"name the brokers' own user in Security.Brokers", "name the brokers' own user in "+principals,
	"look at the certificate and key of Security.TLS", "look at ssl.keystore.* of the brokers' listener ("+listenerPrefix+"<listener>.ssl.keystore.*)",
	"look at the certificate and key of Clients.TLS", "look at ssl.keystore.* of the listener for clients ("+listenerPrefix+"<listener>.ssl.keystore.*)",
	"Security.PlainPassword", listenerPrefix+"<listener>.plain.sasl.jaas.config", "Security.Protocol", "that of this node ("+protocolMap+", security.protocol)",
	"Config.Security.Brokers", principals, "Security.Brokers", principals, "Security.TLS", "ssl.keystore.*",
	"set Clients.Name to", "name it in "+listenersKey+" as", "set Clients.Protocol to that", "set it to that in "+protocolMap, "Clients.Protocol", "that of this node ("+protocolMap+", security.protocol)",
	"look at Clients.BrokerTLS", "look at ssl.truststore.* of the listener for clients", "leave Clients nil", "take the listener for clients out of "+listenersKey,
	"look at its address, its log and ControllerOptions (TLS, SASL)", "look at its address, its log and the security of the controllers' listener (security.protocol, sasl.*, ssl.*)",
	"look at BrokerOptions (TLS, SASL)", "look at the security of the brokers' listener (security.protocol, sasl.*, ssl.*)",
	"Config.Controllers", controllers, "Config.Peers", peersKey, "Config.MinInSyncReplicas", minInSync, "MinInSyncReplicas", minInSync, "as many copies as Config says", "as many copies as that says",
	"in the file of --command-config", "in the node's file", "(Config.ReplicationFactor)", "in the node's file", "ReplicationFactor", replicationFactor,
	"set Config.SessionTimeout to what", "set "+session+" in the node's file to what", "Config.SessionTimeout", "in the node's file", "or set UntestedVersion", "or set "+untestedVersion+"=true",
	"UntestedVersion lets it in", untestedVersion+" lets it in", "choose a NodeID", "choose a "+nodeID, "set ListenerName to", "set "+interBroker+" to", "set Advertised to host:port", "write NAME://host:port in "+advertised,
	"set Advertised to the host name", "set "+advertised+" to the host name", "end what listens there, or choose another address", "end what listens there, or choose another one in "+listenersKey,
	"kraft: the identity folder is in use by another process", "the identity folder ("+folderKey+") is in use by another process; each needs its own",
)

// InProperties is a text of the packages under this one, for somebody who has a node.properties and no program: names of Go are settings in it. Once more changes nothing.
func InProperties(text string) string { return inProperties.Replace(text) }

// worded is an error in those words.
type worded struct{ error }

func (e worded) Error() string { return InProperties(e.error.Error()) }

func (e worded) Unwrap() error { return e.error }

// inWords is err in those words, nil for nil.
func inWords(err error) error {
	if err == nil {
		return nil
	}
	return worded{err}
}

// misfits says whether one of the findings in err, with which joining is refused, is about the configuration: a new process with the same file meets it again.
func misfits(err error) bool {
	if f, ok := err.(kraft.Finding); ok {
		return f.InConfig
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			if misfits(e) {
				return true
			}
		}
		return false
	}
	err = errors.Unwrap(err)
	return err != nil && misfits(err)
}
