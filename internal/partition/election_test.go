package partition

import (
	"testing"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestF35AnOpenLogIsReadAnewAfterAnElection: clients write a stopped log, an unclean election takes away what they wrote, and they write more of something else. A start by the process that has read the log
// before finds where the two logs part now; what it knew would let it keep records that the source never had.
func TestF35AnOpenLogIsReadAnewAfterAnElection(t *testing.T) {
	w := failback(t)
	w.consent = nil
	w.wish(statemachine.WantMirroring) // refused, with the log read
	w.settle(t)
	if w.stored.State != statemachine.Failed || w.log.owner != OwnerOpen {
		t.Fatalf("%v, %v\n%s", w.stored.State, w.log.owner, w.out.String())
	}
	w.wish(statemachine.WantStopped)
	w.settle(t)
	w.log.cutTo(5)
	w.log.leaderEpoch = 10
	for range 4 {
		w.log.add(toBatches(data(w.log.end, w.log.end+9, 10, 10, -1, 0, 0, false, "rewritten"))[0])
	}
	w.log.settle()
	w.consent = []Consent{{TopicID: testTopic, From: 0, To: 100, Episode: w.stored.Episode + 1}}
	w.wish(statemachine.WantMirroring)
	w.settle(t)
	if w.stored.State != statemachine.Mirroring || w.log.batchLog.String() != w.src.batchLog.String() {
		t.Fatalf("%v (%s), log %v, the source has %v\n%s", w.stored.State, w.stored.ErrorMessage, &w.log.batchLog, &w.src.batchLog, w.out.String())
	}
}
