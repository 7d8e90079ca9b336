package simulator

import (
	"fmt"
	"strings"

	"github.com/clustermirror/clustermirror/internal/partition"
)

// leastVisits is how often each cell that has to be visited is, in a full run.
const leastVisits = 10

// The columns of the tables are the states in the order of stateAt: PREPARING, EPOCH_FENCING, MIRRORING, PAUSING, PAUSED, STOPPING, STOPPED, FAILED, UNKNOWN.
// x: has to be visited leastVisits times. -: cannot be, and must not. ~: met by chance; the state lasts as long as one or two calls, or only an answer that comes late is met there.

// eventCells say in which states a core is given which events.
var eventCells = []struct {
	event partition.EventKind
	cells string
	why   string // of what is not x
}{
	{partition.Loaded, "x~x~xxxxx", "a restart while EPOCH_FENCING or PAUSING is recorded"},
	{partition.Wish, "xxxxxxxxx", ""},
	{partition.Persisted, "xxxxxxxxx", ""},
	{partition.Done, "xxxxxxxxx", ""},
	{partition.SourceSeen, "xxx~xxxx-", "nothing asks the source before PREPARING; into PAUSING an answer comes late"},
	{partition.EpochAnswer, "x~x~~xxx-", "nothing asks the source before PREPARING; EPOCH_FENCING asks no epoch, what comes is late, as in PAUSING and PAUSED"},
	{partition.Replayed, "xxxxxx~xx", "a STOPPED log is the clients', and its last batch is read only where it came back with an older leader epoch"},
	{partition.Fetched, "x~x~xxxx-", "no fetcher before MIRRORING; into EPOCH_FENCING and PAUSING a reply comes late or twice"},
	{partition.RetryDue, "x~x~~xxxx", "EPOCH_FENCING, PAUSING and PAUSED wait for nothing, a timer that was replaced is late"},
	{partition.SourceChanged, "x~x~~xxx-", "the source is not known before PREPARING; the other states last shorter than a refresh"},
	{partition.ReplicatedMoved, "x~x~xxxxx", "the states last shorter than a refresh"},
	{partition.FailPartition, "x~x~~xxxx", "the states last shorter than a refresh; a PAUSED partition is not watched"},
	{partition.Recover, "x~x~~xxxx", "an operator is seldom so quick"},
	{partition.Tuned, "xxx~xxxxx", "a restart while PAUSING is recorded"},
}

// faultCells say in which states which faults take effect.
var faultCells = []struct {
	fault string
	cells string
	why   string
}{
	{"AddFetcher fails", "--x------", "fetchers are added in MIRRORING"},
	{"Append fails before", "--x--x---", "copies in MIRRORING, marks in STOPPING"},
	{"Append fails after", "--x--x---", "copies in MIRRORING, marks in STOPPING"},
	{"Append fails half", "--x--x---", "copies in MIRRORING, marks in STOPPING"},
	{"AskEpoch fails", "x-x------", "logs are compared in PREPARING and MIRRORING"},
	{"AskOwner fails", "x-x--xx~~", "FAILED and UNKNOWN ask only before a stop that may have a log to give back"},
	{"AskRecovered fails", "x~x~~x-xx", "a STOPPED log is not read; in the others only a restart reads it"},
	{"CheckSource fails", "x~x------", "the source is looked at by those who copy or are about to"},
	{"ClampGroups fails", "-----x---", "groups are clamped at a stop"},
	{"CloseForWrites fails", "x--------", "the gate is closed by a start"},
	{"Continue fails", "--x------", "fetching goes on in MIRRORING"},
	{"OpenLog fails", "-----x~~-", "a stop opens the log; STOPPED, and FAILED where only a person goes on, open again what a restart has closed"},
	{"QuiesceGroups fails", "-----x---", "group sync ends at a stop"},
	{"RaiseEpoch fails", "x~x--x~~-", "EPOCH_FENCING lasts one call; STOPPED, and FAILED that gives a log back, raise when a log came back with a lower epoch"},
	{"RaiseStart fails", "--x------", "the source's start is followed in MIRRORING"},
	{"Rebuild fails", "x~x~~x~xx", "of a STOPPED log only the last batch is read, where it came back with an older leader epoch; in the others only a restart reads it"},
	{"Reset fails", "x-~------", "a copy begins anew in PREPARING; in MIRRORING only after a loss, which is rare"},
	{"SettleProducerIDs fails", "-----x---", "ids are settled at a stop"},
	{"Truncate fails", "x-~--x---", "MIRRORING cuts only when the source has had an unclean election"},
	{"answer from the past", "x~x~~~~~~", "asked by those who copy or are about to; elsewhere the answer to an earlier question"},
	{"black hole", "x~x~~~~~~", "asked by those who copy or are about to"},
	{"link cut", "x~x~~~~~~", "asked by those who copy or are about to"},
	{"delay", "x~x~~xxx~", "asked by those who copy or are about to"},
	{"duplicate", "x~x~~~~~~", "asked by those who copy or are about to"},
	{"reordered", "x~x~~~~~~", "asked by those who copy or are about to"},
	{"corrupted in transit", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"crowded reply", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"reply cut in a batch", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"left out of a reply", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"high watermark noted before", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"batch too large", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"log start taken back", "~xx~~~~~-", "a start believes no log start that it does not look at again in MIRRORING; elsewhere what was asked before"},
	{"epoch unknown", "x~x~~~~~-", "logs are compared in PREPARING and MIRRORING; elsewhere what was asked before"},
	{"late end of an epoch", "~~x~~~~~-", "in PREPARING the epoch that is being written at the source is above the one that is asked for"},
	{"deposed leader answers", "~~x~~~~~-", "what is fetched is on its way while MIRRORING ends"},
	{"proof by silence", "~~~~~~~~-", "a hole at the end of a source's log is rare"},
	{"fenced epoch", "~~x~~~~~-", "fetches, and ends of epochs that are asked in PREPARING"},
	{"offset out of range", "~~x~~~~~-", "fetches only"},
	{"topic missing", "~~x~~~~~-", "fetches only"},
	{"not the leader", "x~x~~~~~~", "asked by those who copy or are about to"},
	{"old metadata", "x~x~~~~x~", "asked by those who copy or are about to"},
	{"no leader", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"clean election", "xxx~xxxxx", "PAUSING lasts one write"},
	{"unclean election", "x~x~~xxx~", "rare, and so are the states"},
	{"records lost by an unclean election", "x~x~~xxx~", "rare, and so are the states"},
	{"former leader leads again", "x~x~~~xx~", "rare, and so are the states"},
	{"compaction", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"log start raised", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"follower lags", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"in sync shrinks", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"leader epoch raised by somebody", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"slow log", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"log full", "~~x~~x~~-", "a log is appended to in MIRRORING and STOPPING"},
	{"process crash", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"process held up", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"take-over", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"halted", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"overtaken process fenced", "x~x~~x~~~", "only who changes the log is fenced"},
	{"crash loses the end", "x~x~~x~x~", "only a log that was appended to has an end that is not replicated"},
	{"gate closed by a restart", "x----~xx-", "a log that is copied to is closed already; before the first record nobody leads it for a mirror"},
	{"state write refused", "x~x~~xxxx", "EPOCH_FENCING, PAUSING and PAUSED last one write"},
	{"log taken by somebody", "x~x~~xx~~", "a copy that is closed; one that is STOPPED, or whose mirror has no record yet, seldom is"},
	{"log loses its end", "~~x~~x~~~", "only a log that was appended to has an end that is not replicated"},
	{"log in remote storage", "x~x~~xxxx", "EPOCH_FENCING, PAUSING and PAUSED are short or rare"},
	{"log lost", "-~~~~~x~~", "a log whose mirror has ended"},
	{"mirror deleted", "------x--", "only a mirror that is STOPPED is deleted"},
	{"leader epoch lost", "------x--", "a log whose mirror is STOPPED"},
	{"state write fails before", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"state write fails after", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"state load fails", "x~x~~xxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"source lost", "x~x~xxxxx", "EPOCH_FENCING and PAUSING last one call"},
	{"source topic deleted", "x~x~~~~xx", "a stop needs no source; the states last shorter than two refreshes"},
	{"topic deleted", "x~x~~~xxx", "rare, and so are the states"},
	{"watchdog", "x~x~~xxxx", "EPOCH_FENCING and PAUSING last one call; a PAUSED partition is not watched"},
}

// Uncovered names the cells that were visited too seldom, and those that were visited and cannot be.
func (s *Stats) Uncovered() []string {
	var wrong []string
	judge := func(name, cells string, counts func(state int) int) {
		for i := range nStates {
			n := counts(i)
			if cells[i] == 'x' && n < leastVisits || cells[i] == '-' && n > 0 {
				wrong = append(wrong, fmt.Sprintf("%s in %v: %d visits", name, stateAt(i), n))
			}
		}
	}
	for _, c := range eventCells {
		judge(c.event.String(), c.cells, func(state int) int { return s.StateEvents[state][c.event] })
	}
	for _, c := range faultCells {
		judge(c.fault, c.cells, func(state int) (n int) {
			for _, table := range []map[string]*[nStates]int{s.StateFaults, s.StateAnswers} {
				for name, row := range table {
					if strings.HasPrefix(name, c.fault) && (len(name) == len(c.fault) || strings.HasSuffix(c.fault, " fails")) {
						n += row[state]
					}
				}
			}
			return n
		})
	}
	return wrong
}
