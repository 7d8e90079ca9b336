// Package logtest checks that a [mirror.Log] keeps its contract: Run for every Log, RunCrash for one that survives its process, and FaultyDir, a directory
// in memory that loses what was not synced, tears the last write and injects errors.
//
// The kit is for whoever writes a Log. A test of theirs is a few lines:
//
//	func TestContract(t *testing.T) {
//		logtest.Run(t, logtest.Factory{New: func(t testing.TB) logtest.Instance { … }})
//	}
package logtest
