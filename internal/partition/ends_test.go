package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestDecision15ImpossibleEndsConcludeNothing: a source that says its log starts above its own high watermark is asked again by the retries, and the copy keeps
// every record.
func TestDecision15ImpossibleEndsConcludeNothing(t *testing.T) {
	c := New(Config{Mirror: "m", Topic: "t", Seed: 1})
	record := statemachine.NewPartitionState()
	record.State, record.Episode, record.StateEpoch = statemachine.Mirroring, 1, 1
	now := time.Unix(1_700_000_000, 0)
	log := LogView{Start: 0, End: 10, Replicated: 10, LeaderEpoch: 3}
	effects := append([]Effect(nil), c.Step(now, Event{Kind: Loaded, Record: record, Log: log})...)
	effects = append(effects, c.Step(now, Event{Kind: Wish, Want: statemachine.WantMirroring})...)
	looks, failed := 0, false
	for step := 0; len(effects) > 0 && !failed; step++ {
		if step > 100 {
			t.Fatal("no end to the steps at one moment")
		}
		e := effects[0]
		effects = effects[1:]
		ev := Event{Kind: Done, Token: e.Token, Log: log}
		switch e.Kind {
		case CheckSource:
			looks++
			ev.Kind, ev.Source = SourceSeen, SourceView{ClusterID: "A", LeaderID: 1, LeaderEpoch: 1, LogStart: 100, HighWatermark: 11, LME: -1, LMO: -1}
		case AskEpoch:
			ev.Kind, ev.AnswerEpoch, ev.AnswerEnd = EpochAnswer, e.Epoch, 11
		case Persist:
			failed = e.Record.State == statemachine.Failed
			if failed && (e.Record.RetryAttempt < 1 || !strings.Contains(e.Record.ErrorMessage, "above its own high watermark 11")) {
				t.Errorf("%+v", e.Record)
			}
			ev.Kind, ev.StateEpoch = Persisted, e.Record.StateEpoch
		case Reset, Truncate, RaiseStart:
			t.Fatalf("%v at %d on an answer that cannot be", e.Kind, e.Offset)
		case Emit, RemoveFetcher, ConsentUsed:
			continue
		}
		effects = append(effects, c.Step(now, ev)...)
	}
	if !failed || looks != 1 {
		t.Errorf("failed %v after %d looks", failed, looks)
	}
}
