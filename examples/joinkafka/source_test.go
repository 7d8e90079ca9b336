package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestTheSourceIsRecorded: verbs elsewhere can ask it, what somebody has recorded stays, and a deleted mirror is not made again.
func TestTheSourceIsRecorded(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	address := fake.ListenAddrs()[0]
	for what, tc := range map[string]struct {
		before func(s *mirror.ControlState)
		want   string // bootstrap.servers of the mirror, "" if there is none
	}{
		"no mirror":   {func(*mirror.ControlState) {}, address},
		"one without": {func(s *mirror.ControlState) { s.SetMirror(mirror.MirrorEntry{Name: "dr"}) }, address},
		"one with": {func(s *mirror.ControlState) {
			s.SetMirror(mirror.MirrorEntry{Name: "dr", Settings: mirror.Settings{"bootstrap.servers": "primary:9092"}})
		}, "primary:9092"},
		"deleted once": {func(s *mirror.ControlState) { s.RemoveMirror(mirror.DeletedMirror{Name: "dr"}) }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			control := mirror.NewMemoryControl()
			if err := control.Update(t.Context(), func(s *mirror.ControlState) error { tc.before(s); return nil }); err != nil {
				t.Fatal(err)
			}
			source, err := kafkasource.New(kafkasource.Config{Seeds: fake.ListenAddrs()})
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			memory := memlog.New(memlog.Config{ClusterID: "StdZqbTwueFxgHciKmNwyv"})
			defer memory.Close()
			m, err := mirror.Open(t.Context(), mirror.Config{Name: "dr", Source: source, Destination: memory, Store: memory.StateStore(), Control: control, Sink: mirror.Discard})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			o := options{name: "dr", source: fake.ListenAddrs()}
			for range 2 { // the second time it is there
				wanted, err := control.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := recordSource(t.Context(), m.Admin(), wanted, o); err != nil {
					t.Fatal(err)
				}
			}
			after, err := control.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if entry, there := after.Mirror("dr"); there != (tc.want != "") || entry.Settings["bootstrap.servers"] != tc.want {
				t.Errorf("%+v, want %q", entry, tc.want)
			}
			if history, err := m.Admin().History(t.Context()); err != nil || len(history) > 1 || len(history) == 1 && tc.want != address {
				t.Errorf("%v %+v", err, history)
			}
		})
	}
}
