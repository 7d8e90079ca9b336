package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/filestore"
	"github.com/clustermirror/clustermirror/statemachine"
)

// TestStopSaysWhatItTearsApart: what the process of the mirror has seen in its copies is shown before consent is asked for, in text and as a document; --torn refuse stops nothing then.
func TestStopSaysWhatItTearsApart(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	dir := made(t, "a:9092", standings[3], now)
	records, err := filestore.Open(dir, filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	control := mirror.NewControl(records)
	reporter, err := control.OpenReporter(t.Context(), "dr")
	if err != nil {
		t.Fatal(err)
	}
	torn := []mirror.TornTransaction{{ProducerID: 7, ProducerEpoch: 1, Possibly: true, Committed: []mirror.TransactionPlace{{Topic: "payments", Offset: 6}}, Aborted: []mirror.TransactionPlace{{Topic: "orders", Offset: 1}}}}
	node := mirror.NodeReport{Owner: "dr", Mirror: "dr", Host: "host-1", PID: 4711, Opened: now.Add(-time.Hour), Seen: now, DestinationID: standbyID, SourceError: "no route", Torn: &mirror.TornTransactions{
		Looked: now, Transactions: torn, Unlooked: []mirror.UnlookedCopy{{Topic: "payments", Below: 5}}}}
	partition := mirror.PartitionReport{Mirror: "dr", Topic: "orders", TopicID: mirror.TopicID(statemachine.TopicID{15: 7}), Owner: "dr", State: statemachine.Mirroring, SourceEnd: 3, SourceSeen: now, DestinationEnd: 3,
		OpenTransactions: 1, OpenFrom: 1, At: now}
	report := func() {
		t.Helper()
		if err := reporter.Report(t.Context(), node, []mirror.PartitionReport{partition}); err != nil {
			t.Fatal(err)
		}
	}
	report()
	defer records.Close()
	run := func(more ...string) (int, string, string) {
		return command(t, append([]string{"--store", dir, "--stop", "--mirror", "dr", "--topics", "orders"}, more...)...)
	}

	status, out, complaints := run("--dry-run")
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, complaints)
	}
	for _, word := range []string{"note: TORN TRANSACTIONS: 1 possibly torn: committed in some partitions, and aborted in others by the stop",
		"note: producer 7 epoch 1, possibly torn: committed in payments-0 at 6; aborted in orders-0 at 1", "payments-0 not looked at below offset 5"} {
		if !strings.Contains(out, word) {
			t.Errorf("%q is missing in\n%s", word, out)
		}
	}
	status, out, complaints = run("--dry-run", "--json")
	var document struct{ TornTransactions []mirror.TornTransaction }
	if err := json.Unmarshal([]byte(out), &document); status != 0 || err != nil || !reflect.DeepEqual(document.TornTransactions, torn) {
		t.Errorf("exit status %d, %v: %+v\n%s", status, err, document.TornTransactions, complaints)
	}

	refused := func(what string, words ...string) {
		t.Helper()
		for _, more := range [][]string{{"--dry-run"}, {"--reason", "drill", "--destination-cluster-id", standbyID, "--yes"}} {
			status, out, complaints := run(append(more, "--torn", "refuse")...)
			for _, word := range append(words, "Nothing has changed", "stop with --torn abort", "--promote waits") {
				if status != 1 || !strings.Contains(complaints, word) {
					t.Errorf("%s %s: exit status %d, %q is missing in\n%s%s", what, more, status, word, out, complaints)
				}
			}
		}
		s, err := control.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if wish, _ := s.Topic("orders"); wish.MirrorName != "dr" {
			t.Errorf("%s: orders is wanted as %s", what, wish.MirrorName)
		}
	}
	refused("torn", "1 possibly torn: producer 7 epoch 1, possibly torn: committed in payments-0 at 6; aborted in orders-0 at 1")

	cut := &mirror.ConsistentCut{GivenUp: 3, Readable: true, Copies: []mirror.CutCopy{{Topic: "payments", Offset: 6, End: 9, Stable: 8, Records: 2, Bytes: 200}}}
	node.Torn.Cut = cut
	report()
	for _, c := range []struct {
		more   []string
		status int
		words  []string
	}{
		{[]string{"--cut-readers"}, 0, []string{"note: CONSISTENT CUT, as reported for all topics of the mirror together: gives up 3 offsets in 1 partition, which readers may have seen",
			"note: payments-0: consistent cut at 6: gives up [6,9), 2 records, 200 bytes; readers may have seen [6,9), those of committed records [6,8)"}},
		{[]string{"--cut-readers", "--max-give-up", "2"}, 0, []string{"it would give up 3 offsets, and at most 2 may be"}},
		{nil, 1, []string{"Nothing has changed", "say that it may (--cut-readers), or stop with --torn abort", "payments-0: consistent cut at 6"}},
		{[]string{"--max-give-up", "2"}, 0, []string{"none, the copies are stopped as they are: it would give up 3 offsets, and at most 2 may be"}},
		{[]string{"--max-give-up", "-1"}, 2, []string{"--max-give-up has to be 1 or more"}},
		{[]string{"--max-give-up", "0"}, 2, []string{"--max-give-up has to be 1 or more"}},
	} {
		status, out, complaints := run(append([]string{"--dry-run", "--torn", "consistent-cut"}, c.more...)...)
		for _, word := range c.words {
			if status != c.status || !strings.Contains(out+complaints, word) {
				t.Errorf("%s: exit status %d, %q is missing in\n%s%s", c.more, status, word, out, complaints)
			}
		}
	}
	status, out, complaints = run("--dry-run", "--json", "--torn", "consistent-cut", "--cut-readers")
	var withCut struct{ Cut *mirror.ConsistentCut }
	if err := json.Unmarshal([]byte(out), &withCut); status != 0 || err != nil || !reflect.DeepEqual(withCut.Cut, cut) {
		t.Errorf("exit status %d, %v: %+v\n%s", status, err, withCut.Cut, complaints)
	}
	if status, _, complaints := run("--dry-run", "--max-give-up", "2"); status != 2 || !strings.Contains(complaints, "are for --torn consistent-cut") {
		t.Errorf("exit status %d\n%s", status, complaints)
	}
	node.Torn = nil
	report()
	refused("not looked", "it is not known whether transactions would be torn apart: orders-0 has open transactions, and its process has not looked")
	partition.OpenTransactions, partition.OpenFrom, partition.At = 0, 0, now.Add(time.Second)
	report()
	if status, _, complaints := run("--dry-run", "--torn", "refuse"); status != 0 {
		t.Errorf("with no transaction open: exit status %d\n%s", status, complaints)
	}
	if status, _, complaints := run("--dry-run", "--torn", "cut"); status != 2 || !strings.Contains(complaints, "--torn is abort, refuse or consistent-cut") {
		t.Errorf("exit status %d\n%s", status, complaints)
	}
}
