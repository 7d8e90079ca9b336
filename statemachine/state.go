// Package statemachine is KIP-1279's life of a mirrored partition as data: states and legal moves, the order of steps inside PREPARING and STOPPING,
// failure bookkeeping and retries, and the records in which states are kept (StateStore). Pure: no clock, goroutine, I/O or client.
package statemachine

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
func (s State) String() string { panic("contract") }

// Legal says whether a record may go from one state to another (spec §2; UNKNOWN→STOPPING by decision 4). Staying is always legal.
func Legal(from, to State) bool { panic("contract") }

// Desired is what the operator wants of a topic: the suffix of its mirror.name value.
type Desired int8

// The desired states.
const (
	WantMirroring Desired = 0
	WantPaused    Desired = 1 // value "m.paused"
	WantStopped   Desired = 2 // value "m.stopped"
)

func (d Desired) String() string { panic("contract") }

// MirrorNameValue is the value of mirror.name for a mirror and a wish; ParseMirrorNameValue reads one.
func MirrorNameValue(mirror string, want Desired) string { panic("contract") }

// ParseMirrorNameValue splits a mirror.name value. Errors: a name that CheckMirrorName refuses.
func ParseMirrorNameValue(value string) (mirror string, want Desired, err error) { panic("contract") }

// CheckMirrorName: 1–249 ASCII letters, digits, '.', '_', '-'; not "." or ".."; not ending in .stopped, .paused or .removed.
func CheckMirrorName(name string) error { panic("contract") }

// PreparingStep and StoppingStep are the steps inside a state, in their order. A step is re-runnable; a restart begins again at the first one.
type PreparingStep int8

// The steps of PREPARING (decisions 7, 12, 14): nothing of the log changes before Compare has passed.
const (
	CheckSource     PreparingStep = iota // cluster id, topic id, loop, reverse mirror, LME; leader and ends
	AskOwner                             // is the log ours, open, foreign?
	FindDivergence                       // rounds of end-offset-for-epoch, confirmed once
	CompareConsent                       // what would be dropped against what was consented to
	CloseForWrites                       // the gate
	AwaitReplicated                      // nobody's write is under way
	Compute                              // the same computation on the closed log: back to FindDivergence when its end moved
	Truncate
	AwaitTruncated // every replica
	RaiseEpoch     // destination leader epoch ≥ source's
	PreparingDone
)

// StoppingStep: see PreparingStep.
type StoppingStep int8

// The steps of STOPPING (design.md).
const (
	StopAskOwner StoppingStep = iota // open with an epoch above the recorded LME → done
	RemoveFetcher
	QuiesceGroups
	StopAwaitReplicated // bounded; what live followers cannot confirm is cut and reported
	RecordLME           // once per episode
	StopRaiseEpoch      // above LME
	AppendAborts
	AppendReset
	AwaitMarkers // replicated
	SettleProducerIDs
	ClampGroups
	OpenLog
	StoppingDone
)

func (s PreparingStep) String() string { panic("contract") }
func (s StoppingStep) String() string  { panic("contract") }
