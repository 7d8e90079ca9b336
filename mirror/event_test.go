package mirror_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

var rewriteEvents = flag.Bool("rewrite-events", false, "write testdata/events.txt instead of comparing with it")

// oneOfEach is every kind of event, in each of its forms.
func oneOfEach() []mirror.Event {
	at := mirror.EventMeta{Time: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), Mirror: "east", Topic: "orders", Partition: 7}
	topic, whole := at, at
	topic.Partition = mirror.Unknown
	whole.Topic, whole.Partition = "", mirror.Unknown
	broken := errors.New("connection refused")
	return []mirror.Event{
		mirror.StateChanged{EventMeta: at, From: statemachine.Preparing, To: statemachine.Mirroring},
		mirror.StateChanged{EventMeta: at, From: statemachine.Mirroring, To: statemachine.Failed, Reason: "CRC at 10"},
		mirror.StateChanged{EventMeta: at, From: statemachine.Preparing, To: statemachine.Failed, Reason: "source topic id A → B", NonRetryable: true},
		mirror.RetryScheduled{EventMeta: at, Attempt: 3, After: 3987654 * time.Microsecond, Reason: "CRC at 10"},
		mirror.RecordsDropped{EventMeta: at, From: 90, To: 100, Reason: "the source's log and ours part at 90"},
		mirror.CutMade{EventMeta: whole, Cut: mirror.ConsistentCut{GivenUp: 10, Copies: []mirror.CutCopy{{Topic: "orders", Partition: 7, Offset: 90, End: 100, Stable: 95, Records: 9, Bytes: 900}}}},
		mirror.CutMade{EventMeta: whole, Cut: mirror.ConsistentCut{GivenUp: 10, Readable: true, Copies: []mirror.CutCopy{{Topic: "orders", Partition: 7, Offset: 90, End: 100, Stable: 90, Records: 9, Bytes: 900}}}},
		mirror.CutMade{EventMeta: whole, Cut: mirror.ConsistentCut{Why: "orders-7 was not read: no disk"}},
		mirror.RecordsLost{EventMeta: at, From: 100, To: 150, Reason: "deleted at the source"},
		mirror.BatchRefetched{EventMeta: at, Reason: "CRC at 10"},
		mirror.EpochRaised{EventMeta: at, Epoch: 8},
		mirror.StartRaised{EventMeta: at, Offset: 1000},
		mirror.NothingLeft{EventMeta: at, End: 15, SourceEnd: 20},
		mirror.MarkersWritten{EventMeta: at, ResetAt: 900},
		mirror.MarkersWritten{EventMeta: at, Aborts: []mirror.AbortMarker{{ProducerID: 4001, ProducerEpoch: 2, FirstOffset: 0, Offset: 3}}, ResetAt: 4},
		mirror.LastEpochRecorded{EventMeta: at, Epoch: 5, Offset: 900},
		mirror.LeaderMoved{EventMeta: at, Leader: 2, Epoch: 6},
		mirror.LogDoubted{EventMeta: at, Reason: "what the destination log says of itself is not believed: it is to be read from 900 on, but reaches from 0 to 800; it is read whole"},
		mirror.SourceTrouble{EventMeta: whole, Broker: 2, Err: broken},
		mirror.SourceTrouble{EventMeta: whole, Broker: mirror.Unknown, Err: broken},
		mirror.SourceTrouble{EventMeta: whole, Broker: 2},
		mirror.SourceThrottled{EventMeta: whole, Broker: 2, Pause: 1234 * time.Millisecond},
		mirror.SourceThrottled{EventMeta: whole, Broker: 2},
		mirror.SourceReturned{EventMeta: whole, ClusterID: "old", Silent: at.Time.Add(-12 * time.Minute), Topics: []string{"orders", "payments"}},
		mirror.SplitBrainSeen{EventMeta: at, SplitBrain: mirror.SplitBrain{Partition: 7, From: 900, To: 907, Since: at.Time.Add(-12 * time.Minute)}},
		mirror.SplitBrainSeen{EventMeta: at, SplitBrain: mirror.SplitBrain{Partition: 7, From: 900, To: 907, Since: at.Time.Add(-12 * time.Minute), Producers: []int64{-1, 4001}}},
		mirror.CopyDiffers{EventMeta: at, Verified: mirror.Verified{Topic: "orders", Partition: 7, Verdict: mirror.VerifiedDifferent, From: 0, To: 900, FirstWrong: 640, Findings: []string{"batch at offset 640 differs in byte 71 (records)"}}},
		mirror.CopyDiffers{EventMeta: at, Verified: mirror.Verified{Topic: "orders", Partition: 7, Verdict: mirror.VerifiedHole, From: 0, To: 900, FirstWrong: 640, Findings: []string{"hole: [640,650) is missing in b"}}},
		mirror.CopyDiffers{EventMeta: at, Verified: mirror.Verified{Topic: "orders", Partition: 7, Verdict: mirror.VerifiedIdentical, From: 0, To: 900, FirstWrong: mirror.Unknown}},
		mirror.VerificationPassEnded{EventMeta: whole, Took: 3 * time.Hour, Bytes: 123_456_789, Identical: 10, Partly: 2},
		mirror.VerificationPassEnded{EventMeta: whole, Took: 3 * time.Hour, Bytes: 123_456_789, Identical: 10, Partly: 2, NotCompared: 1, Hole: 1, Different: 1},
		mirror.TopicTrouble{EventMeta: topic, Err: mirror.ErrUnknownTopic},
		mirror.TopicTrouble{EventMeta: topic},
		mirror.StoreTrouble{EventMeta: whole, Err: broken},
		mirror.StoreTrouble{EventMeta: whole},
		mirror.Fenced{EventMeta: at, Err: mirror.ErrFenced},
		mirror.MirrorDeleted{EventMeta: whole, At: at.Time},
		mirror.MirrorDeleted{EventMeta: whole, At: at.Time, Purged: true},
		mirror.WishRecorded{EventMeta: topic, Want: statemachine.WantMirroring, Reason: "the source has it, and it matches mirror.topics.include"},
		mirror.WishRecorded{EventMeta: topic, Want: statemachine.WantStopped, Reason: "it matches mirror.topics.exclude"},
		mirror.SyncTrouble{EventMeta: whole, Part: "groups", Err: broken},
		mirror.SyncTrouble{EventMeta: whole, Part: "groups"},
		mirror.SyncSkipped{EventMeta: whole, Part: "groups", Reason: "group billing: orders-0, orders-1 left where it is: active at the destination"},
		mirror.GroupMovedBack{EventMeta: at, Group: "billing", From: 900, To: 100},
		mirror.GroupsNotSettled{EventMeta: at, Groups: []string{"billing", "search"}, End: 900, Err: broken},
		mirror.GroupsNotSettled{EventMeta: at, End: 900, Err: broken},
		mirror.GroupLeft{EventMeta: whole, Group: "billing", Active: true, Partitions: []string{"orders-0 is at 700 at the destination and was at 900 at the source"}, Seen: at.Time},
		mirror.GroupLeft{EventMeta: whole, Group: "billing", Partitions: []string{"orders-0 is at nowhere at the destination and was at 900 at the source"}},
		mirror.SettingsFollowed{EventMeta: topic, Set: map[string]string{"retention.ms": "3600000", "cleanup.policy": "compact"}, Deleted: []string{"segment.bytes"}},
		mirror.RulesFollowed{EventMeta: whole, Made: []string{mirror.ACL{ResourceType: "TOPIC", ResourceName: "orders", PatternType: "LITERAL", Principal: "User:alice", Host: "*", Operation: "READ", Permission: "ALLOW"}.String()}},
		mirror.RulesFollowed{EventMeta: whole, Removed: []string{mirror.ACL{ResourceType: "GROUP", ResourceName: "bill", PatternType: "PREFIXED", Principal: "User:bob", Host: "10.0.0.1", Operation: "ALL", Permission: "DENY"}.String()}},
	}
}

func TestEveryEventHasATextAndALevel(t *testing.T) {
	var got bytes.Buffer
	for _, e := range oneOfEach() {
		fmt.Fprintf(&got, "%-5s  %s\n", e.Level(), e)
	}
	for _, s := range []statemachine.State{statemachine.Preparing, statemachine.EpochFencing, statemachine.Mirroring, statemachine.Pausing, statemachine.Paused,
		statemachine.Stopping, statemachine.Stopped, statemachine.Failed, statemachine.Unknown} {
		fmt.Fprintf(&got, "state  %s\n", s)
	}
	path := filepath.Join("testdata", "events.txt")
	if *rewriteEvents {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("texts have changed; look, then go test -run %s -rewrite-events\n%s", t.Name(), got.String())
	}
}

// TestEventsAreOneLineOfWhatOthersWrote: groups may be called anything, and settings, rules and errors have others' words in them. The text is one line that a terminal shows as it is; what the
// event holds stays as it was.
func TestEventsAreOneLineOfWhatOthersWrote(t *testing.T) {
	const odd, shown = "evil\x1b[2J\r\nSAFE\u202e\u2028 g2", `evil\x1b[2J\r\nSAFE\u202e\u2028 g2`
	whole := mirror.EventMeta{Mirror: "east", Partition: mirror.Unknown}
	at := mirror.EventMeta{Mirror: "east", Topic: "orders"}
	broken := errors.New("asking for group " + odd)
	for _, e := range []mirror.Event{
		mirror.GroupMovedBack{EventMeta: at, Group: odd, From: 900, To: 100},
		mirror.GroupsNotSettled{EventMeta: at, Groups: []string{"billing", odd}, End: 900, Err: errors.New("silent")},
		mirror.GroupLeft{EventMeta: whole, Group: odd, Partitions: []string{"orders-0"}},
		mirror.GroupLeft{EventMeta: whole, Group: "billing", Partitions: []string{odd}},
		mirror.SyncSkipped{EventMeta: whole, Part: "groups", Reason: "group " + odd + ": active at the destination"},
		mirror.SettingsFollowed{EventMeta: at, Set: map[string]string{"retention.ms": odd}},
		mirror.SettingsFollowed{EventMeta: at, Deleted: []string{odd}},
		mirror.RulesFollowed{EventMeta: whole, Made: []string{odd}},
		mirror.RulesFollowed{EventMeta: whole, Removed: []string{odd}},
		mirror.StateChanged{EventMeta: at, To: statemachine.Failed, Reason: odd},
		mirror.WishRecorded{EventMeta: at, Want: statemachine.WantStopped, Reason: odd},
	} {
		if s := e.String(); !strings.Contains(s, shown) {
			t.Errorf("%T: %q does not show %q", e, s, shown)
		}
	}
	for _, e := range []mirror.Event{
		mirror.SyncTrouble{EventMeta: whole, Part: "groups", Err: broken}, mirror.GroupsNotSettled{EventMeta: at, Groups: []string{"billing"}, End: 900, Err: broken},
		mirror.SourceTrouble{EventMeta: whole, Broker: 2, Err: broken}, mirror.TopicTrouble{EventMeta: at, Err: broken}, mirror.StoreTrouble{EventMeta: whole, Err: broken}, mirror.Fenced{EventMeta: at, Err: broken},
	} {
		if s := e.String(); strings.ContainsAny(s, "\x1b\r\n\u202e\u2028") || !strings.Contains(s, `evil\x1b[2J\r; SAFE\u202e\u2028 g2`) {
			t.Errorf("%T: %q", e, s)
		}
	}
	two := mirror.SyncTrouble{EventMeta: whole, Part: "groups", Err: errors.Join(errors.New("broker 1 is silent"), errors.New("broker 2 is silent"))}
	if want := "east: groups are not followed: broker 1 is silent; broker 2 is silent"; two.String() != want {
		t.Errorf("%q, want %q", two, want)
	}
}

func TestNoKindOfEventIsMissingInTheTexts(t *testing.T) {
	have := map[string]bool{}
	for _, e := range oneOfEach() {
		have[strings.TrimPrefix(fmt.Sprintf("%T", e), "mirror.")] = true
	}
	f, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil || fn.Name.Name != "String" {
			continue
		}
		name := fn.Recv.List[0].Type.(*ast.Ident).Name
		if kinds++; !have[name] {
			t.Errorf("%s is not among the texts", name)
		}
	}
	if kinds < 10 {
		t.Errorf("only %d kinds were found", kinds)
	}
}
