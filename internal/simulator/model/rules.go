package model

// rules are the names of the rules and where each stands. A rule speaks through World.fault, by its name.
var rules = map[string]string{
	"order":            "invariant 2",                   // no offset twice, order kept
	"epoch fence":      "invariant 3",                   // no record above the log's leader epoch; epochs in a log never go back
	"closed gate":      "invariant 4",                   // no client write to a closed log
	"above the end":    "invariant 5",                   // what clients write after a stop has an epoch above LME
	"log matching":     "invariant 1",                   // what a mirror appends lay at exactly this place of the source's log in these bytes, on top of the same log
	"skipped":          "invariant 1",                   // nothing that the source has is left out
	"copies":           "spec §2, decision 5",           // copies in MIRRORING only, and nothing once LME is recorded
	"one process":      "invariant 9",                   // an overtaken process changes nothing
	"opposite":         "decision 14, spec §3",          // two mirrors never run against each other
	"early marker":     "spec §5, decision 5",           // no marker before LME is recorded and the leader epoch is above it
	"abort":            "spec §5",                       // one ABORT per open transaction, in the order of first offsets, of the producer's own epoch
	"reset":            "spec §5, decision 6",           // exactly one reset, after the last ABORT
	"used offset":      "decision 18",                   // the first own batch leaves alone what the source is known to have used, and goes to End otherwise
	"replicated":       "design.md, Log",                // not above the end; a cluster by itself loses nothing below it
	"raised epoch":     "spec §5, decision 5",           // a mirror raises upwards only, and at a stop after LME is recorded
	"settled id":       "F-48, invariant 5",             // a cluster gives no settled id to anybody
	"cut common":       "decision 15, spec §3",          // never what the source has in the same bytes at the same place
	"cut state":        "spec §2",                       // cuts in PREPARING and MIRRORING, and at a stop
	"consent":          "decision 7, decision 15",       // what the source never had, and all of a log that was ever open, goes only within a consent of this episode
	"stop cut":         "invariant 6, spec §5",          // a stop cuts what is not replicated only, and nothing once LME is recorded
	"restart":          "decision 16",                   // a copy begins again only where the source's log starts, beyond the copy's end, under this policy
	"start":            "decision 16, design.md, Log",   // a log start is raised to the source's at most, and never above Replicated or the floor
	"untouched gate":   "decision 7",                    // a start that lacks a consent does not close the gate
	"gate state":       "spec §2, decision 4",           // opened at a stop, closed by a start
	"end once":         "decision 5",                    // LME and LMO are recorded once per episode, while STOPPING
	"end value":        "spec §5, decision 5",           // LME is the log's latest epoch, LMO its replicated end, of the source that was copied
	"early open":       "invariant 4, spec §5",          // the gate opens after LME, epoch, reset and replication
	"open transaction": "invariant 5",                   // none is left when the gate opens
	"settled":          "invariant 5, F-48",             // producer ids are above all mirrored ones before the gate opens
	"closed STOPPED":   "decision 4, spec §5",           // STOPPED only when open, with LME recorded
	"lost log":         "decision 19",                   // never STOPPED with the end below LMO
	"asks":             "decision 4, spec §5",           // no call to the source at a stop
	"fetches":          "spec §2",                       // fetches in MIRRORING only
	"wish":             "design.md, decision",           // nothing starts, pauses or stops by itself
	"move":             "spec §2",                       // legal moves only
	"state epoch":      "spec §2, coordinator fencing",  // +1 each
	"episode":          "decision 2, decision 5",        // +1 when PREPARING is entered from UNKNOWN or STOPPED, above that of every recorded end, the same otherwise
	"failure":          "spec §2, failure bookkeeping",  // FAILED has an attempt and a message, and only a person ends one with −1
	"group bounds":     "decision 17, spec §6",          // within log start and what is replicated, at a stop below LMO
	"group epoch":      "F-42",                          // never an epoch above the log's
	"group owner":      "decision 12",                   // an active group, or one that a client moved at the destination, is left alone
	"group late":       "decision 12, spec §6",          // none is moved once the copy is open
	"told":             "invariant 6, decisions 15, 16", // what was dropped or lost was told with its range
	"rest state":       "invariant 7",                   // a partition comes to where it is wished, or says what a person has to do
	"rest bytes":       "invariants 1, 7",               // a copy at rest is the source's log from its start on
	"rest start":       "decision 16",                   // and follows the source's start
	"rest groups":      "decisions 12, 17",              // and its groups are where the source has them, within the copy
	"stop ends":        "invariant 8",                   // a stop ends in bounded time, source or not
}
