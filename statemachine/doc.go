// Package statemachine is KIP-1279's life of a mirrored partition as data: states and legal moves, the order of steps inside PREPARING and STOPPING,
// failure bookkeeping and retries, and the records in which states are kept (StateStore). Pure: no clock, goroutine, I/O or client; MemoryStore has a mutex.
//
// A partition's record goes from one [State] to the next only where [Legal] says so. [Move] and [Fail] make the next record, [RetryTarget] and [RetryPolicy] say how a
// failed one goes on, a [StateStore] keeps records and refuses illegal, stale and foreign writes, and AppendKey, AppendPartitionState and AppendLastMirrorEpoch are
// the bytes of __mirror_state.
package statemachine
