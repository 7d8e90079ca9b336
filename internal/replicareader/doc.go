// Package replicareader reads the copies of partitions that stock Kafka brokers hold: leaders, followers, and copies of partitions that nobody leads.
package replicareader
