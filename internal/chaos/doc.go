// Package chaos lets a mirror live through real faults: three brokers of Apache Kafka under load, and the mirror as a process of its own that keeps its copy on plain files
// (examples/custombroker's log). Brokers and mirrors are killed, stopped and taken over, the network is cut, held and slowed, elections are unclean, records are deleted, topics
// are recreated, and the copy's disk fills up. Each fault has to show its effect, or the run is red. Then all brokers are killed under load, the copy is failed over, and
//
//   - each partition of the copy is compared with the brokers' segment files on disk, byte for byte; what the mirror reported is the only difference allowed,
//   - each loss and each drop that the mirror reported is held against what took it: the brokers' own word on what they deleted and when, one election, one start over,
//   - the markers that end the copy are held against the transactions that were open where it ends,
//   - what clients were told is judged by internal/clienthistory.
//
// The order of the faults comes from a seed that is printed:
//
//	go test ./internal/chaos                                                       # 60 seconds of load, one round of faults
//	go test ./internal/chaos -run '^TestChaos$' -chaos.seed 7                      # the faults of seed 7 in their order
//	go run ./internal/long -part chaos -for 30m                                    # the long form
//
// When a run finds something, its folder (brokers' data, copy, states, what was dropped, events, history) stays, and the message names it; -chaos.keep keeps it in any case.
package chaos
