// Package leaderlog is one partition's log as its leader has it when the leader stores nothing: the copies are in the follower brokers.
package leaderlog
