// Package logtest checks that a [mirror.Log] keeps its contract: Run for every Log, RunCrash for one that survives its process, and FaultyDir, a directory
// in memory that loses what was not synced, tears the last write and injects errors.
//
// The kit is for whoever writes a Log. Their test is a few lines:
//
//	func TestContract(t *testing.T) {
//		logtest.Run(t, func(t testing.TB) logtest.Subject {
//			log, err := mylog.Open(t.TempDir())
//			if err != nil {
//				t.Fatal(err)
//			}
//			return logtest.Subject{Log: log, Close: log.Close}
//		})
//	}
//
//	func TestCrashes(t *testing.T) {
//		logtest.RunCrash(t, logtest.CrashFactory{Open: func(dir string) (logtest.Opened, error) {
//			log, err := mylog.Open(dir)
//			if err != nil {
//				return logtest.Opened{}, err
//			}
//			return logtest.Opened{Log: log, Close: log.Close}, nil
//		}})
//	}
package logtest
