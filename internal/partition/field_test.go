package partition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The field cases that concern the core, each by its transcript (cases.md).

func field(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		t.Run(n, func(t *testing.T) { runScript(t, filepath.Join("testdata", n+".txt")) })
	}
}

func TestF01TrailingMarker(t *testing.T) { field(t, "f01_trailing_marker") }
func TestF02EmptyBatch(t *testing.T)     { field(t, "f02_empty_batch") }
func TestF04NextOffset(t *testing.T)     { field(t, "f04_next_offset") }
func TestF05HoleAtTheEnd(t *testing.T) {
	field(t, "f05_hole_at_the_end", "f05_hole_at_failover", "f05_hole_after_a_reset", "f05_crowded", "f05_proof_is_of_one_end")
}
func TestF07StartInsideABatch(t *testing.T)    { field(t, "f07_start_inside_a_batch") }
func TestF10CutReply(t *testing.T)             { field(t, "f10_cut_reply") }
func TestF11Checksum(t *testing.T)             { field(t, "f11_checksum", "f11_damage_below_our_end") }
func TestF12BatchTooLarge(t *testing.T)        { field(t, "f12_batch_too_large") }
func TestF14CompressionNotServed(t *testing.T) { field(t, "f14_compression_not_served") }
func TestF15OldFormats(t *testing.T)           { field(t, "f15_old_formats") }
func TestF17OddTimes(t *testing.T)             { field(t, "f17_odd_times") }
func TestF20NoGuessing(t *testing.T)           { field(t, "f20_no_guessing") }
func TestF21LogStartFollowed(t *testing.T)     { field(t, "f21_log_start_followed", "f21_floor") }
func TestF23SourceBeyondOurEnd(t *testing.T)   { field(t, "f23_source_beyond_our_end") }
func TestF24UnknownOffsets(t *testing.T)       { field(t, "f24_unknown_offsets") }
func TestF28TopicRecreated(t *testing.T)       { field(t, "f28_topic_recreated") }
func TestF30DestinationRebuilt(t *testing.T)   { field(t, "f30_destination_rebuilt") }
func TestF33OtherCluster(t *testing.T)         { field(t, "f33_other_cluster") }
func TestF35UncleanElection(t *testing.T)      { field(t, "f35_unclean_election") }
func TestF36TwoRounds(t *testing.T)            { field(t, "f36_two_rounds", "f36_inside_a_batch") }
func TestF41NoFalseLoss(t *testing.T)          { field(t, "f41_lagging_answer", "f41_no_epochs") }
func TestF46OpenTransaction(t *testing.T)      { field(t, "f46_open_transaction_at_failover") }
func TestF47MarkerMeetsMarker(t *testing.T)    { field(t, "f47_marker_meets_marker") }
func TestF48ProducerIDs(t *testing.T)          { field(t, "f48_producer_ids") }
func TestF50FirstSequence(t *testing.T)        { field(t, "f50_first_sequence") }
func TestF52NewerTransactions(t *testing.T)    { field(t, "f52_newer_transactions") }
func TestF54StableEnd(t *testing.T)            { field(t, "f54_stable_end") }
func TestF73Denied(t *testing.T)               { field(t, "f73_denied") }
func TestF74NotCopied(t *testing.T)            { field(t, "f74_not_copied") }
func TestF81PositionFromTheLog(t *testing.T)   { field(t, "f81_position_from_the_log") }
func TestF83FailoverFromFailed(t *testing.T)   { field(t, "f83_failover_from_failed") }
func TestF84Failback(t *testing.T)             { field(t, "f84_failback") }
func TestF19Retention(t *testing.T) {
	field(t, "f19_retention_restart", "f19_retention_fail", "f19_retention_keep", "f19_retention_keep_in_a_transaction")
}
func TestF26ElectionAnswers(t *testing.T) {
	field(t, "f26_election_answers", "f26_offset_out_of_range")
}
func TestF38StaleReplies(t *testing.T) {
	field(t, "f38_stale_replies", "f38_newer_epoch_in_a_reply")
}
func TestF40EpochUnknown(t *testing.T) {
	field(t, "f40_epoch_unknown", "f40_batches_without_epochs", "f40_source_knows_later_epochs_only")
}

// TestScripts runs the transcripts that are not a field case.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, p := range paths {
		name := strings.TrimSuffix(filepath.Base(p), ".txt")
		if isField(name) {
			continue
		}
		t.Run(name, func(t *testing.T) { runScript(t, p) })
	}
}

func isField(name string) bool {
	return len(name) > 3 && name[0] == 'f' && name[1] >= '0' && name[1] <= '9'
}

// TestEveryFieldTranscriptIsRun finds a transcript of a field case that no test above names.
func TestEveryFieldTranscriptIsRun(t *testing.T) {
	self, err := os.ReadFile("field_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if missing := notNamed(t, string(self)); len(missing) > 0 {
		t.Errorf("no test runs %v", missing)
	}
	if len(notNamed(t, strings.ReplaceAll(string(self), `"f84_failback"`, ""))) != 1 {
		t.Error("the check sees nothing")
	}
}

func notNamed(t *testing.T, text string) (missing []string) {
	paths, err := filepath.Glob("testdata/f[0-9]*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, p := range paths {
		if name := strings.TrimSuffix(filepath.Base(p), ".txt"); !strings.Contains(text, `"`+name+`"`) {
			missing = append(missing, name)
		}
	}
	return missing
}
func TestF86TieredSource(t *testing.T) { field(t, "f86_remote_source", "f86_remote_then_stop") }
func TestF86TieredDestination(t *testing.T) {
	field(t, "f86_remote_destination", "f86_remote_destination_mirroring", "f86_remote_destination_restart")
}
