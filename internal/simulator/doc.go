// Package simulator plays disaster recovery in one goroutine: two clusters, a mirror in each direction, clients, operators, and an adversary that lets everything go wrong that may. It runs
// the code that a mirror runs (internal/partition and the pure packages below it) in a second shell without goroutines, network or clock. One seed decides everything;
// two runs with one seed have the same transcript to the byte. The package model, which knows nothing of the code, judges what really happened.
//
// # A run
//
// A run is a header (Config) and ops, one line each (see op.go for all of them):
//
//	config seed=7 partitions=1 reply=4
//	start a-to-b
//	produce A orders-0 n=3
//	run 2s
//	fault a-to-b Append after
//	lose A
//	stop a-to-b
//	step 3
//	crash a-to-b keep=1
//	launch a-to-b
//
// Between ops the world runs by itself: run lets time pass, step lets so many events happen, so that a crash can fall between any two of them. The adversary is driven by the
// seed, sees the world, and chooses the next op; the ops it chose are the script, which replays without it. At the end of each run everything is healed and has to come to rest,
// then the source is lost for ever and a stop has to end all the same.
//
// # What is simulated
//
// Clusters: logs with three replicas that may lag, clean and unclean elections, leaders that were deposed and go on answering, or come back uncleanly with what they had, a high watermark
// that lags behind after an election, log starts that rise, compaction, topics that are deleted and made again, idempotent and transactional producers (v1, and v2 of KIP-890), transactions that end in some partitions first.
// The network: a request and its answer are events of their own; answers come late, twice, never, from the past; fetch replies are damaged, cut, or left empty;
// ends of epochs are late or not known, log starts are named and taken back, sources are old (no epochs, no epoch questions, no fences). The destination:
// logs whose replicas lag, that are full, slow, fenced by somebody, or fail before, after and half-way; a process that leads them crashes and keeps any prefix of whole batches that
// is not shorter than what was replicated. The state store: statemachine.MemoryStore, whose writes fail before or after they are done, and whose sessions are taken over.
// Consumer groups: members that come and go, offsets that move on and back, at the source and at the copy; metadatasync.Decide says where a mirror puts them, here it is asked, remembered and written.
// Processes: killed, held up, overtaken. Operators: start, pause, stop, consent, recover, in both directions, rightly and wrongly.
//
// # What is not
//
// The goroutine shell in package mirror: it has tests of its own with testing/synctest. What both shells share stands in internal/partition (Settled, Silence). Real clients, real brokers
// and real disks: see internal/chaos.
//
// # How to
//
// Replay a seed with its transcript:
//
//	go run ./internal/simulator/simulate -seed 4711 -v
//
// Shrink it to a script, keep it as a test under testdata (TestKeptScripts plays all of them; the first line says what it is about):
//
//	go run ./internal/simulator/simulate -seed 4711 -shrink > internal/simulator/testdata/what-it-is-about.txt
//
// Add a fault: give it an op in verbs (op.go), count it with Stats.fault where it takes effect and not where it is asked for, let the adversary choose it (generate.go), and say in
// cells.go in which states it has to be met, cannot be, or is met by chance and why.
//
// The test plays the seeds of testdata/seeds.txt and 50 fresh ones, which it prints; it fails when a rule is broken, when fewer than 100,000 faults, 20,000 failovers or 5,000 failbacks
// happened, or when a cell of the tables was not visited ten times. With -short it is a tenth, without the tables. What was covered:
//
//	go run ./internal/simulator/simulate -from 10001 -seeds 9500 -table
//
// # What the model does not hold against a mirror
//
// A source whose metadata tell no leader epochs (Config.Blind) proves nothing, so such a run is not judged at rest. A stop that ends a start behind its cut may carry the end of the stop
// before over: transactions of clients that the cut went through then stay open, because the log counts as theirs.
package simulator
