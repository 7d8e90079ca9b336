package partition

import "github.com/clustermirror/clustermirror/statemachine"

// Settled decides about a state write that was repeated because its answer was lost, and then was refused for its expected state epoch: the earlier try may have
// taken effect. What lies in the store decides. ours says that it is what the effect (Persist) wanted written; stateEpoch is then the record's, to be handed on as if
// the write had been answered. Otherwise somebody else wrote, and the refusal counts.
//
// It compares everything but the state epoch, which the store counts, and the leader epoch, of which the store keeps the highest.
func Settled(e Effect, stored statemachine.Entry) (stateEpoch int32, ours bool) {
	state := stored.State
	state.StateEpoch, state.LeaderEpoch = e.Record.StateEpoch, e.Record.LeaderEpoch
	if state != e.Record || e.LME != nil && (stored.LME == nil || *stored.LME != *e.LME) {
		return 0, false
	}
	return stored.State.StateEpoch, true
}
