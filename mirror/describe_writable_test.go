package mirror

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/statemachine"
)

// TestTheFirstLineSaysWhoMayWriteWhich: of whatever mixture of topics a mirror has, the first line says of none that it is closed here while it is open, or may be.
func TestTheFirstLineSaysWhoMayWriteWhich(t *testing.T) {
	const mirroring, stopped, failed, unknown, stopping = statemachine.Mirroring, statemachine.Stopped, statemachine.Failed, statemachine.Unknown, statemachine.Stopping
	type topic struct {
		wanted string
		states []statemachine.State
	}
	all := func(wanted string, states ...statemachine.State) topic { return topic{wanted, states} }
	const source = "the source S, which answered 3s ago"
	for _, c := range []struct {
		name     string
		a, b     topic
		failback string // the topics of one that is under way, or was
		promoted string // those that are fenced at the source
		lost     bool   // the state store does not answer
		silent   bool   // no process has reported anything
		want     string
	}{
		{name: "all mirrored", a: all("m", mirroring), b: all("m", mirroring), want: "MIRRORING: 2 topics"},
		{name: "some stopped", a: all("m", mirroring), b: all("m.stopped", stopped), want: "PARTIALLY FAILED OVER: 1 of 2 topics (STOPPED b; MIRRORING a)"},
		{name: "all stopped", a: all("m.stopped", stopped), b: all("m.stopped", stopped), want: "FAILED OVER: 2 topics"},
		{name: "all stopped after a failback", a: all("m.stopped", stopped), b: all("m.stopped", stopped), failback: "a b", want: "FAILED OVER: 2 topics"},
		{name: "a failback of all", a: all("m", mirroring), b: all("m", mirroring), failback: "a b", want: "MIRRORING: 2 topics; WRITABLE: only " + source + "; closed here"},
		{name: "a failback of all begins", a: all("m", mirroring), b: all("m", stopped), failback: "a b",
			want: "WANTED: 2 topics, 1 of 2 partitions mirrored; WRITABLE: " + source + ", and here as before the failback: 1 of 2 partitions not known to be closed yet"},
		{name: "a failback of one, the other one mirrored", a: all("m", mirroring), b: all("m", mirroring), failback: "a", want: "MIRRORING: 2 topics; WRITABLE (a): only " + source + "; closed here"},
		{name: "a failback of one, the other one stopped", a: all("m", mirroring), b: all("m.stopped", stopped), failback: "a",
			want: "PARTIALLY FAILED OVER: 1 of 2 topics (STOPPED b; MIRRORING a); WRITABLE (a): only " + source + "; closed here"},
		{name: "a failback of all, one stopped since", a: all("m", mirroring), b: all("m.stopped", stopped), failback: "a b",
			want: "PARTIALLY FAILED OVER: 1 of 2 topics (STOPPED b; MIRRORING a); WRITABLE (a): only " + source + "; closed here"},
		{name: "a failback of all, one being stopped", a: all("m", mirroring), b: all("m.stopped", stopped, stopping), failback: "a b",
			want: "PARTIALLY FAILED OVER: 0 of 2 topics (TO BE OPENED b; MIRRORING a); 1 partition still to be opened; WRITABLE: here, 1 of 3 partitions so far, 1 not known; this mirror has not fenced " + source},
		{name: "fenced", a: all("m", mirroring), b: all("m", mirroring), failback: "a b", promoted: "a b", want: "WRITABLE: neither side; closed here, and fenced at " + source},
		{name: "one is fenced", a: all("m", mirroring), b: all("m", mirroring), failback: "a b", promoted: "b", want: "WRITABLE: only " + source + "; closed here"},
		{name: "one is fenced and open", a: all("m", mirroring), b: all("m.stopped", stopped), failback: "a b", promoted: "b", want: "WRITABLE (a): only " + source + "; closed here"},
		{name: "the state topic was lost", a: all("m", unknown), b: all("m", unknown), failback: "a b",
			want: "WRITABLE: " + source + ", and here as before the failback: 2 of 2 partitions not known to be closed yet"},
		{name: "the state topic was lost, one is stopped anew", a: all("m", failed), b: all("m.stopped", stopped), failback: "a",
			want: "WRITABLE (a): " + source + ", and here as before the failback: 1 of 1 partition not known to be closed yet"},
		{name: "states are not read", a: all("m", mirroring), b: all("m.stopped", stopped), failback: "a b", lost: true,
			want: "WRITABLE (a): " + source + ", and here as before the failback: 1 of 1 partition not known to be closed yet"},
		{name: "states are not read behind a fence", a: all("m", mirroring), b: all("m", mirroring), failback: "a b", promoted: "a b", lost: true,
			want: "WRITABLE: here, 0 of 2 partitions so far, 2 not known; fenced at " + source},
		{name: "nothing is known", a: all("m"), b: all("m"), failback: "a b", silent: true,
			want: "WRITABLE: the source S, which has not answered here yet, and here as before the failback: 2 of 2 partitions not known to be closed yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			control, w := NewMemoryControl(), &adminWorld{}
			var reported []PartitionReport
			for name, topic := range map[string]topic{"a": c.a, "b": c.b} {
				w.has("m", name, topic.states...)
				for p, s := range topic.states {
					reported = append(reported, PartitionReport{Mirror: "m", Topic: name, Partition: int32(p), TopicID: adminTopicID(name), Owner: "node-1", State: s, SourceEnd: 5, SourceSeen: planTime.Add(-3 * time.Second),
						DestinationEnd: 5, At: planTime.Add(-3 * time.Second), Live: true})
				}
			}
			for i := range w.entries {
				w.entries[i].State.Mirrored = w.entries[i].State.State == mirroring
			}
			if c.lost {
				w.entries, w.loadErr = nil, errors.New("nobody leads __mirror_state")
			}
			mustUpdate(t, control, func(s *ControlState) {
				s.SetMirror(MirrorEntry{Name: "m", SourceClusterID: "S", Created: planTime, Settings: Settings{bootstrapSetting: "kafka-1:9092"}})
				s.Set(wishOf("a", c.a.wanted))
				s.Set(wishOf("b", c.b.wanted))
				if c.failback != "" {
					s.beginFailback(Failback{Mirror: "m", Plan: "p", Topics: strings.Fields(c.failback), Step: FailbackCopying, Since: planTime, Began: planTime})
				}
				if c.promoted != "" {
					s.setPromotion(Promotion{Mirror: "m", Topics: strings.Fields(c.promoted), Fence: "f", Step: PromotionStopping, Since: planTime, Began: planTime})
				}
			})
			if !c.silent {
				report(t, control, NodeReport{Owner: "node-1", Mirror: "m", Host: "host-1", PID: 1, Opened: planTime.Add(-time.Hour), Seen: planTime, DestinationID: "here"}, reported...)
			}
			head := describe(t, w, control).Head
			if at := strings.Index(head, "WRITABLE"); at >= 0 && strings.HasPrefix(c.want, "WRITABLE") {
				head = head[at:]
			}
			if head != c.want {
				t.Errorf("\n got %s\nwant %s", head, c.want)
			}
		})
	}
}
