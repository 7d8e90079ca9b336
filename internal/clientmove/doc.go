// Package clientmove holds what docs/clients.md says of clients that go from one cluster to another at a failover: Kafka's own producer and consumer, of two versions, and franz-go's, behind an
// address that is moved. It has tests only; what they measure they print.
package clientmove
