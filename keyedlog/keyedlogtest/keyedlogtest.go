// Package keyedlogtest is the conformance kit of keyedlog.Log: whoever implements one runs it against his own.
//
//	func TestLog(t *testing.T) {
//		keyedlogtest.Run(t, func(tb testing.TB) keyedlogtest.Fixture {
//			return keyedlogtest.Fixture{Log: mylog.Open(tb.TempDir())}
//		})
//	}
//
// Each rule is a sub-test with a log of its own. What a rule demands stands in the doc comments of keyedlog.Log, Session, View and Change.
package keyedlogtest

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// Fixture is one log under test, new and empty.
type Fixture struct {
	Log keyedlog.Log
	// Again opens the same storage once more, as another process would. nil: the Log is the only handle, and what is asked of two is asked of it alone.
	Again func() keyedlog.Log
	// Crash ends the process that has Log, as a kill would, at whatever moment it is called, also while an Update is under way, and returns the log of the next process.
	// What the old process still holds may go on trying to write. nil: the log does not outlive its process, and the rules about crashes are left out.
	Crash   func() (keyedlog.Log, error)
	Options Options
}

// Options are how much is asked of a log. The zero value is for one in memory or in a file; one across a network may want less.
type Options struct {
	// Writers is how many goroutines write at once through each of two handles, 0 → 4.
	Writers int
	// Rounds is how often each of them writes, and how often rules repeat what they do, 0 → 8.
	Rounds int
	// Records is how many records lie in the log where many do, 0 → 200. All are written in one step.
	Records int
	// Interference is how long a decision waits for somebody else's update to come in between, 0 → 100 ms. A log that lets nobody in while it decides waits as long, about twenty
	// times in a run. One whose update takes longer is not asked whether it decides anew.
	Interference time.Duration
	// Timeout bounds one rule, so that a log that hangs fails, 0 → 1 min. A change has to be seen elsewhere in that time too.
	Timeout time.Duration
	// Key makes the n-th key, for a log that keeps some kinds of keys in another way. Keys differ; no key begins with another one; several goroutines ask. nil: keys of a record type that nobody uses.
	Key func(n int) []byte
}

// Factory makes the Fixture of one rule. It frees what it took, handles of Again and Crash included, in tb.Cleanup.
type Factory = func(tb testing.TB) Fixture

// Run checks every rule.
func Run(t *testing.T, open Factory) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) { r.run(t, open) })
	}
}

// rule is one sentence of the contract.
type rule struct {
	name  string
	check func(s *suite)
	again bool // needs Fixture.Again
	crash bool // needs Fixture.Crash
}

func (r rule) run(tb testing.TB, open Factory) {
	f := open(tb)
	switch {
	case r.again && f.Again == nil:
		tb.Log("the log offers no Again: it has one handle")
		return
	case r.crash && f.Crash == nil:
		tb.Log("the log offers no Crash: it does not outlive its process")
		return
	}
	s := &suite{TB: tb, log: f.Log, again: f.Again, crash: f.Crash, key: f.Options.Key}
	s.writers = cmp.Or(f.Options.Writers, 4)
	s.rounds = cmp.Or(f.Options.Rounds, 8)
	s.records = cmp.Or(f.Options.Records, 200)
	s.interference = cmp.Or(f.Options.Interference, 100*time.Millisecond)
	if s.key == nil {
		s.key = plainKey
	}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithTimeout(context.Background(), cmp.Or(f.Options.Timeout, time.Minute))
	defer cancel()
	r.check(s)
}

func rules() []rule {
	return []rule{
		{name: "OpenRefusesNoName", check: openRefusesNoName},
		{name: "OpenFencesEarlierSessions", check: openFencesEarlierSessions},
		{name: "OpenFencesWhileDeciding", check: openFencesWhileDeciding},
		{name: "OpenEndsARunningWriter", check: openEndsARunningWriter},
		{name: "OpenLeavesOtherWritersAlone", check: openLeavesOtherWritersAlone},
		{name: "OpenSeesWhatWasWritten", check: openSeesWhatWasWritten},
		{name: "NumbersGrow", check: numbersGrow},
		{name: "RacingOpensLeaveOne", check: racingOpensLeaveOne},
		{name: "CloseEndsTheSessionOnly", check: closeEndsTheSessionOnly},
		{name: "CloseOfTheLogEndsItsSessions", check: closeOfTheLogEndsItsSessions},
		{name: "CloseLeavesOtherHandlesAlone", check: closeLeavesOtherHandlesAlone, again: true},

		{name: "WriterOwnsTheKey", check: writerOwnsTheKey},
		{name: "OwnershipIsAllOrNothing", check: ownershipIsAllOrNothing},
		{name: "OpenedOwnerGivesWay", check: openedOwnerGivesWay},
		{name: "ReleasedKeysAreNobodys", check: releasedKeysAreNobodys},
		{name: "UpdateOfTheLogOwnsNothing", check: updateOfTheLogOwnsNothing},
		{name: "TombstonesTakeOut", check: tombstonesTakeOut},
		{name: "RacingWritersOwnOnce", check: racingWritersOwnOnce},
		{name: "SessionsWriteNamedKeysOnly", check: sessionsWriteNamedKeysOnly},

		{name: "EmptyIsNotNil", check: emptyIsNotNil},
		{name: "ValuesComeBack", check: valuesComeBack},
		{name: "ErrorWritesNothing", check: errorWritesNothing},
		{name: "NoChangesWriteNothing", check: noChangesWriteNothing},
		{name: "SlicesAreNotKept", check: slicesAreNotKept},
		{name: "InterferenceBeginsAnew", check: interferenceBeginsAnew},
		{name: "InterferenceEndsWithTheContext", check: interferenceEndsWithTheContext},
		{name: "DecisionsAreSerial", check: decisionsAreSerial},
		{name: "OwnKeysMayMoveMeanwhile", check: ownKeysMayMoveMeanwhile},
		{name: "OwnedMeanwhileIsRefused", check: ownedMeanwhileIsRefused},
		{name: "RacingUpdatesAllCount", check: racingUpdatesAllCount},
		{name: "RacingSessionsAllCount", check: racingSessionsAllCount},
		{name: "BatchesAreWholeToReaders", check: batchesAreWholeToReaders},

		{name: "ReadIsFreshAcrossHandles", check: readIsFreshAcrossHandles},
		{name: "SessionReadsItsOwnWrites", check: sessionReadsItsOwnWrites},
		{name: "CallbacksErrorIsReturned", check: callbacksErrorIsReturned},
		{name: "EachIsInOrderOfKey", check: eachIsInOrderOfKey},
		{name: "VersionGrows", check: versionGrows},
		{name: "ChangedClosesAcrossHandles", check: changedClosesAcrossHandles},

		{name: "ChangedStaysOpenAfterClose", check: changedStaysOpenAfterClose, again: true},

		{name: "EndedContextDoesNothing", check: endedContextDoesNothing},
		{name: "CancelledWhileDecidingIsAllOrNothing", check: cancelledWhileDecidingIsAllOrNothing},

		{name: "CrashKeepsWhatWasWritten", check: crashKeepsWhatWasWritten, crash: true},
		{name: "CrashKeepsOwnersAndNumbers", check: crashKeepsOwnersAndNumbers, crash: true},
		{name: "CrashFencesThePast", check: crashFencesThePast, crash: true},
		{name: "CrashInTheMiddleIsAllOrNothing", check: crashInTheMiddleIsAllOrNothing, crash: true},
	}
}
