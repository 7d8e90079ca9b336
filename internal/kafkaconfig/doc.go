// Package kafkaconfig turns Kafka's property names for connections and security into options of the client: bootstrap.servers, security.protocol, sasl.*, ssl.* (spec §7).
//
// # Secrets
//
// A value may hold references, in the way of Kafka's config providers (KIP-297, KIP-421, KIP-887): ${env:NAME}, ${file:/path/to/file.properties:key}, ${directory:/path:file}.
// References in passwords, keys and certificates are resolved when a connection is made or authenticates, each time anew, and files of certificates and keys are read then.
// So what was changed in a file is taken up at the next connection or re-authentication (KIP-368), without a restart. Other values are resolved once, by Parse.
//
// No error, no log line and no printed value of this package holds a value of a secret setting: errors name the setting, the reference's path and key, and a position.
//
// # What differs from Kafka's Java client
//
// Stores of certificates are PEM (KIP-651): Java's own formats are refused with the command that converts them, and a type that is not set means PEM.
//
// A setting of the sasl., ssl. and security. families that is not known here is refused, and so is one that says who is trusted, or who the client is, where the chosen
// security.protocol does not use it: a typing error must not weaken security.
//
// A token endpoint's certificate is judged by the authorities of this machine (crypto/x509, SSL_CERT_FILE), not by ssl.truststore.*.
package kafkaconfig
