package statemachine

import "strconv"

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
	StopCut             // only where it is asked for: to where no transaction is torn (package txncut)
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

// String is the step's name in the form of the KIP's states: CHECK_SOURCE, ASK_OWNER, …
func (s PreparingStep) String() string {
	return stepName("PreparingStep", int(s), []string{
		CheckSource: "CHECK_SOURCE", AskOwner: "ASK_OWNER", FindDivergence: "FIND_DIVERGENCE", CompareConsent: "COMPARE_CONSENT",
		CloseForWrites: "CLOSE_FOR_WRITES", AwaitReplicated: "AWAIT_REPLICATED", Compute: "COMPUTE", Truncate: "TRUNCATE",
		AwaitTruncated: "AWAIT_TRUNCATED", RaiseEpoch: "RAISE_EPOCH", PreparingDone: "DONE",
	})
}

// String is the step's name in the form of the KIP's states: ASK_OWNER, REMOVE_FETCHER, …
func (s StoppingStep) String() string {
	return stepName("StoppingStep", int(s), []string{
		StopAskOwner: "ASK_OWNER", RemoveFetcher: "REMOVE_FETCHER", QuiesceGroups: "QUIESCE_GROUPS", StopAwaitReplicated: "AWAIT_REPLICATED",
		StopCut: "CONSISTENT_CUT", RecordLME: "RECORD_LME", StopRaiseEpoch: "RAISE_EPOCH", AppendAborts: "APPEND_ABORTS", AppendReset: "APPEND_RESET", AwaitMarkers: "AWAIT_MARKERS",
		SettleProducerIDs: "SETTLE_PRODUCER_IDS", ClampGroups: "CLAMP_GROUPS", OpenLog: "OPEN_LOG", StoppingDone: "DONE",
	})
}

func stepName(kind string, step int, names []string) string {
	if step < 0 || step >= len(names) {
		return kind + "(" + strconv.Itoa(step) + ")"
	}
	return names[step]
}
