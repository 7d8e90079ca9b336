// Package mirror runs mirrors: it copies topics of a Source into the Logs of a Destination, fails over and fails back. It imports no Kafka client.
package mirror
