package logtest

import (
	"os"
	"testing"
)

func TestFileLogSurvivesCrashes(t *testing.T) { RunCrash(t, crashFactory(none)) }

// TestCrashKitFindsMistakes runs the kit's parts on logs with mistakes; each must be found by the part named.
func TestCrashKitFindsMistakes(t *testing.T) {
	reopen := func(t testing.TB, f CrashFactory) { checkReopen(t, f) }
	torn := func(t testing.TB, f CrashFactory) { checkTornTail(t, f) }
	power := func(t testing.TB, f CrashFactory) { checkPowerCuts(t, f) }
	for _, c := range []struct {
		mistake mistake
		part    string
		find    func(testing.TB, CrashFactory)
	}{
		{losesLast, "reopen", reopen},
		{trustsLengths, "torn tail", torn},
		{keepsTornTail, "torn tail", torn},
		{losesLast, "torn tail", torn},
		{neverSyncs, "power cut", power},
		{neverSyncsNames, "power cut", power},
		{metaInPlace, "power cut", power},
		{trustsLengths, "power cut", power},
		{keepsTornTail, "power cut", power},
		{cutNotSynced, "power cut", power},
		{resetInPlace, "power cut", power},
		{ignoresErrors, "power cut", power},
		{goesOn, "power cut", power},
		{buffers, "power cut", power},
	} {
		t.Run(string(c.mistake)+" by "+c.part, func(t *testing.T) {
			found(t, func(t testing.TB) { c.find(t, crashFactory(c.mistake)) })
		})
	}
}

// TestCrashKitFindsABuffer is a test of its own, because its child processes come to it.
func TestCrashKitFindsABuffer(t *testing.T) {
	f := crashFactory(buffers)
	if dir := os.Getenv(childVariable); dir != "" {
		child(f, dir)
	}
	found(t, func(tb testing.TB) { checkKill(tb, f, t.Name()) })
}

// TestCrashKitFindsAChildThatCannotStart: a factory that fails is no log that was killed.
func TestCrashKitFindsAChildThatCannotStart(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		return // as a test would that does not come to RunCrash
	}
	found(t, func(tb testing.TB) { checkKill(tb, crashFactory(none), t.Name()) })
}
