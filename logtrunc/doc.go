// Package logtrunc says where a log has to be cut: the leader-epoch cache with Kafka's rules (LeaderEpochFileCache), the truncation at the last mirror epoch
// (KIP-1279, PREPARING), and the search for the point where two logs part (KIP-101, KIP-279).
//
// It computes and never cuts. Three questions, three answers:
//
//   - which epoch wrote what? [Cache], fed with the epoch and base offset of every batch in the log;
//   - where did the mirror in the other direction end? [LMEPoint];
//   - up to where are our log and the source's the same? [Search], a dialogue of end-offset-for-epoch questions.
//
// Pure: no clock, goroutine, I/O or client.
package logtrunc

// Unknown is an epoch or offset that nobody recorded.
const Unknown = -1
