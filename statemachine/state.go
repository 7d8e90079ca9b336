package statemachine

import "strconv"

// State is where a partition stands. The numbers are what is stored (spec decision 1).
type State int8

// The states of KIP-1279.
const (
	Preparing    State = 0
	EpochFencing State = 1
	Mirroring    State = 2
	Pausing      State = 3
	Paused       State = 4
	Stopping     State = 5
	Stopped      State = 6
	Failed       State = 7
	Unknown      State = 16 // a member without a record
)

// String is the KIP's name: PREPARING, MIRRORING, …
func (s State) String() string {
	switch s {
	case Preparing:
		return "PREPARING"
	case EpochFencing:
		return "EPOCH_FENCING"
	case Mirroring:
		return "MIRRORING"
	case Pausing:
		return "PAUSING"
	case Paused:
		return "PAUSED"
	case Stopping:
		return "STOPPING"
	case Stopped:
		return "STOPPED"
	case Failed:
		return "FAILED"
	case Unknown:
		return "UNKNOWN"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// known says whether s is one of the states above; a number of another draft or a damaged record is not.
func (s State) known() bool { return Preparing <= s && s <= Failed || s == Unknown }

// Legal says whether a record may go from one state to another (spec §2; UNKNOWN→STOPPING by decision 4). Staying is always legal.
// A FAILED partition may go back to where it failed (its retry), except to STOPPED: it is stopped again through STOPPING. A number that is no state is never legal.
func Legal(from, to State) bool {
	if !from.known() || !to.known() {
		return false
	}
	if from == to || to == Failed {
		return true
	}
	switch from {
	case Unknown:
		return to == Preparing || to == Stopping
	case Preparing, EpochFencing:
		return to == Mirroring || to == Stopping
	case Mirroring:
		return to == EpochFencing || to == Pausing || to == Stopping
	case Pausing:
		return to == Paused || to == Stopping
	case Paused:
		return to == Mirroring || to == Stopping
	case Stopping:
		return to == Stopped
	case Stopped:
		return to == Preparing
	case Failed:
		return to != Stopped && to != Unknown
	}
	return false
}
