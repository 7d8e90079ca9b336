package partition

import (
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
	"pgregory.net/rapid"
)

// TestARecoveredLogIsKnownAsOneThatIsRead lets logs that say what need not be read be copied, cut by what the source loses, trimmed, stopped, written by clients and failed back, with a
// restart wherever it may be. After each the core knows of the log what reading it whole would tell, and where nothing was read it knows it by the log's word.
func TestARecoveredLogIsKnownAsOneThatIsRead(t *testing.T) {
	partly, again := 0, 0
	// A short run may meet few of the rare cases: then it goes on.
	for rounds := 0; rounds == 0 || !t.Failed() && rounds < 20 && (partly < 20 || again < 5); rounds++ {
		recoverLogs(t, &partly, &again)
	}
	if !t.Failed() && (partly < 20 || again < 5) {
		t.Errorf("compared %d times what is known of a log that was not read whole; a log was asked again after a cut %d times", partly, again)
	}
}

func recoverLogs(t *testing.T, partly, again *int) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t)
		defer func() { *partly += c.partly }()
		c.cfg.Loss = LossRestart
		c.log.recovers = true
		c.log.lower = func(k Recovered) Recovered {
			if rapid.IntRange(0, 3).Draw(t, "less") == 0 {
				k.From = c.log.start + int64(rapid.IntRange(0, int(k.From-c.log.start)).Draw(t, "from"))
			}
			return k
		}
		check := c.onEffect
		cut := false
		c.onEffect = func(e *Effect) {
			check(e)
			if cut && e.Kind == AskRecovered {
				(*again)++
			}
			cut = e.Kind == Truncate || cut && e.Kind == Emit
		}
		c.src.view.LeaderEpoch = 1
		c.src.cache = logtrunc.NewCache(logtrunc.Entry{Epoch: 1})
		c.load()
		c.wish(statemachine.WantMirroring)
		rest := func() {
			for range 10 {
				c.run(500, nil)
				c.invariants()
				if c.parked != nil && c.timer == nil || !c.due() {
					return
				}
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "length") {
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0, 1:
				for range rapid.IntRange(1, 6).Draw(t, "batches") {
					c.sourceAppend()
				}
			case 2, 3:
				c.crash()
			case 4, 5:
				c.election(true)
				c.step(Event{Kind: SourceChanged, Source: c.src.look()})
			case 6:
				c.src.raiseStart(min(c.src.hw(), c.src.start+int64(rapid.IntRange(0, 3).Draw(t, "trim"))))
				c.src.cache.RaiseStart(c.src.start)
			case 7:
				c.wish(statemachine.WantStopped)
				rest()
				if rapid.Bool().Draw(t, "restart in the stop") {
					c.wish(statemachine.WantMirroring)
					c.run(rapid.IntRange(0, 6).Draw(t, "steps"), nil)
					c.crash()
					c.wish(statemachine.WantStopped)
					rest()
				}
				for range rapid.IntRange(0, 3).Draw(t, "client batches") {
					if c.log.owner == OwnerOpen {
						c.log.leaderEpoch++
						c.log.add(toBatches(data(c.log.end, c.log.end+1, c.log.leaderEpoch, 1, -1, 0, 0, false, fmt.Sprint("client", c.salt)))[0])
						c.log.settle()
					}
				}
				c.src.view.LeaderEpoch = max(c.src.view.LeaderEpoch, c.log.leaderEpoch) + 1 // it was the clients' log's mirror meanwhile
				c.src.cache.Assign(c.src.view.LeaderEpoch, c.src.end)
				c.src.view.LME, c.src.view.LMO = c.lme.Epoch, c.lme.Offset
				c.consent = []Consent{{TopicID: testTopic, From: c.log.start, To: c.log.end, Episode: c.stored.Episode + 1}}
				c.wish(statemachine.WantMirroring)
			}
			rest()
		}
	})
}
