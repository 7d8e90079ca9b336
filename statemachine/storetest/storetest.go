// Package storetest is the conformance kit of statemachine.StateStore: whoever implements a store runs it against his own.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB) storetest.Fixture {
//			return storetest.Fixture{Store: mystore.Open(tb.TempDir())}
//		})
//	}
//
// Each rule is a sub-test with a store of its own. What a rule demands stands in the doc comments of statemachine.StateStore, Session and Write.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// Fixture is one store under test, new and empty.
type Fixture struct {
	Store statemachine.StateStore
	// Crash ends the store as a killed process would, at whatever moment it is called, also while a Write is under way, and returns the store of the next process.
	// What the old process still holds may go on trying to write. nil: the store does not outlive its process, and the rules about crashes are left out.
	Crash func() (statemachine.StateStore, error)
}

// Factory makes the Fixture of one rule. It frees what it took in tb.Cleanup.
type Factory func(tb testing.TB) Fixture

// timeout bounds one rule, so that a store that hangs fails.
const timeout = time.Minute

// Run checks every rule.
func Run(t *testing.T, factory Factory) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) { r.run(t, factory) })
	}
}

// rule is one sentence of the contract.
type rule struct {
	name  string
	check func(s *suite)
	crash bool // needs Fixture.Crash
}

func (r rule) run(tb testing.TB, factory Factory) {
	f := factory(tb)
	if r.crash && f.Crash == nil {
		tb.Log("the store offers no Crash: it does not outlive its process")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r.check(&suite{TB: tb, ctx: ctx, store: f.Store, crash: f.Crash})
}

func rules() []rule {
	return []rule{
		{name: "OpenRefusesNoName", check: openRefusesNoName},
		{name: "OpenFencesEarlierSessions", check: openFencesEarlierSessions},
		{name: "OpenLeavesOtherOwnersAlone", check: openLeavesOtherOwnersAlone},
		{name: "RacingOpensLeaveOne", check: racingOpensLeaveOne},
		{name: "CloseEndsTheSessionOnly", check: closeEndsTheSessionOnly},

		{name: "StateEpochCountsWrites", check: stateEpochCountsWrites},
		{name: "ExpectedStateEpochMustMatch", check: expectedStateEpochMustMatch},
		{name: "LeaderEpochBelowHighestIsFenced", check: leaderEpochBelowHighestIsFenced},
		{name: "MovesAreLegalOnly", check: movesAreLegalOnly},
		{name: "ChecksComeInOrder", check: checksComeInOrder},
		{name: "ContradictionsAreRefused", check: contradictionsAreRefused},

		{name: "FirstWriterOwnsTheKey", check: firstWriterOwnsTheKey},
		{name: "TakeFromNeedsTheOldOwnerOpened", check: takeFromNeedsTheOldOwnerOpened},
		{name: "TakeFromNamesTheOwner", check: takeFromNamesTheOwner},
		{name: "TakeFromMayBeRepeated", check: takeFromMayBeRepeated},
		{name: "RacingOwnersLeaveOne", check: racingOwnersLeaveOne},

		{name: "EmptyBatch", check: emptyBatch},
		{name: "RefusedAlone", check: refusedAlone},
		{name: "BatchIsJudgedInOrder", check: batchIsJudgedInOrder},
		{name: "WriteWithoutChangeChecksOnly", check: writeWithoutChangeChecksOnly},
		{name: "RacingWritersLeaveOne", check: racingWritersLeaveOne},
		{name: "EveryFieldComesBack", check: everyFieldComesBack},
		{name: "LMEAloneLeavesTheState", check: lmeAloneLeavesTheState},
		{name: "LMEIsWrittenOncePerEpisode", check: lmeIsWrittenOncePerEpisode},
		{name: "StoreCopies", check: storeCopies},

		{name: "DeleteForgetsAllButLME", check: deleteForgetsAllButLME},
		{name: "PurgeForgetsAll", check: purgeForgetsAll},
		{name: "DeleteOfNothingSucceeds", check: deleteOfNothingSucceeds},
		{name: "DeleteIsChecked", check: deleteIsChecked},

		{name: "LoadShowsEveryKeyOnce", check: loadShowsEveryKeyOnce},
		{name: "LoadNeverShowsLessThanWritten", check: loadNeverShowsLessThanWritten},
		{name: "LoadEndsWithTheCallbacksError", check: loadEndsWithTheCallbacksError},

		{name: "CancelledContextDoesNothing", check: cancelledContextDoesNothing},
		{name: "CancelledInTheMiddleIsAllOrNothing", check: cancelledInTheMiddleIsAllOrNothing},

		{name: "CrashKeepsWhatWasWritten", check: crashKeepsWhatWasWritten, crash: true},
		{name: "CrashKeepsOwners", check: crashKeepsOwners, crash: true},
		{name: "CrashFencesThePast", check: crashFencesThePast, crash: true},
		{name: "CrashInTheMiddleIsAllOrNothing", check: crashInTheMiddleIsAllOrNothing, crash: true},
	}
}
