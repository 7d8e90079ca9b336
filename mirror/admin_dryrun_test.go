package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/statemachine"
)

var errDown = errors.New("down")

// deafControl answers nothing when it is down.
type deafControl struct {
	Control
	down bool
}

func (d *deafControl) Read(ctx context.Context) (ControlState, error) {
	if d.down {
		return ControlState{}, errDown
	}
	return d.Control.Read(ctx)
}

func (d *deafControl) Update(ctx context.Context, change func(*ControlState) error) error {
	if d.down {
		return errDown
	}
	return d.Control.Update(ctx, change)
}

// fakeSource answers what verbs ask a source.
type fakeSource struct {
	Source
	id      string
	topics  []string
	mirrors []SourceMirror
	err     error
	closed  int
}

func (f *fakeSource) Cluster(context.Context) (ClusterInfo, error) {
	return ClusterInfo{ID: f.id}, f.err
}

func (f *fakeSource) Topics(context.Context, ...string) ([]SourceTopic, error) {
	var topics []SourceTopic
	for _, name := range f.topics {
		topics = append(topics, SourceTopic{Topic: Topic{Name: name, Partitions: 2}})
	}
	return topics, f.err
}

func (f *fakeSource) MirrorsOf(_ context.Context, partitions []TopicPartition) ([]SourceMirror, error) {
	var found []SourceMirror
	for _, m := range f.mirrors {
		for _, tp := range partitions {
			if m.Partition == tp {
				found = append(found, m)
			}
		}
	}
	return found, f.err
}

func (f *fakeSource) LastMirrorEpochs(context.Context, string, []TopicPartition) (map[TopicPartition]statemachine.LastMirrorEpoch, error) {
	return nil, errors.New("no verb asks for this")
}

func (f *fakeSource) Close() error {
	f.closed++
	return nil
}

func (f *fakeSource) open(context.Context, Settings) (Source, error) { return f, nil }

// everyVerb is each verb in each of its forms, with a dry-run switch.
var everyVerb = []struct {
	name string
	run  func(a *Admin, topics []string, dry bool) (Result, error)
}{
	{"create", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Create(bg, Settings{bootstrapSetting: "b:9092", topicsIncludeSetting: "t.*"}, CreateOptions{DryRun: dry})
	}},
	{"create badly", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Create(bg, Settings{bootstrapSetting: "b"}, CreateOptions{DryRun: dry})
	}},
	{"delete", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Delete(bg, DeleteOptions{DryRun: dry, Purge: true})
	}},
	{"alter", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.AlterConfig(bg, Settings{topicsExcludeSetting: "t"}, []string{"client.id"}, AlterConfigOptions{DryRun: dry})
	}},
	{"start", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Start(bg, topics, StartOptions{DryRun: dry})
	}},
	{"start with consent", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Start(bg, topics, StartOptions{DryRun: dry, Consents: []Consent{{TopicID: adminTopicID("t"), Partition: 1, From: 3, To: 7, Episode: 2}}})
	}},
	{"start with patterns", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Start(bg, topics, StartOptions{DryRun: dry, Include: []string{"n.*"}, Exclude: []string{"o.*"}})
	}},
	{"start all", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Start(bg, nil, StartOptions{DryRun: dry, AllTopics: true})
	}},
	{"stop", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Stop(bg, topics, StopOptions{DryRun: dry})
	}},
	{"stop with patterns", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Stop(bg, nil, StopOptions{DryRun: dry, Patterns: []string{"t"}})
	}},
	{"stop all", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Stop(bg, nil, StopOptions{DryRun: dry, AllTopics: true})
	}},
	{"pause", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Pause(bg, topics, PauseOptions{DryRun: dry})
	}},
	{"pause all", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Pause(bg, nil, PauseOptions{DryRun: dry, AllTopics: true})
	}},
	{"resume", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Resume(bg, topics, ResumeOptions{DryRun: dry})
	}},
	{"resume all", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Resume(bg, nil, ResumeOptions{DryRun: dry, AllTopics: true})
	}},
	{"recover", func(a *Admin, topics []string, dry bool) (Result, error) {
		return a.Recover(bg, topics, RecoverOptions{DryRun: dry})
	}},
	{"recover all", func(a *Admin, _ []string, dry bool) (Result, error) {
		return a.Recover(bg, nil, RecoverOptions{DryRun: dry, AllTopics: true})
	}},
}

// dump is every byte of a keyed log.
func dump(t *testing.T, log keyedlog.Log) []byte {
	t.Helper()
	var all bytes.Buffer
	if err := log.Read(bg, func(v keyedlog.View) error {
		fmt.Fprintln(&all, v.Version())
		return v.Each(nil, func(r keyedlog.Record) error {
			fmt.Fprintf(&all, "%x=%x %q %d\n", r.Key, r.Value, r.Writer, r.Session)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all.Bytes()
}

// TestSpec1DryRunIsTheVerbWithoutItsWrite: every verb × desired state × state of the partition × fault, as acceptance asks: the result is the real one's, and no byte of the desired
// state, the history and the reports has moved.
func TestSpec1DryRunIsTheVerbWithoutItsWrite(t *testing.T) {
	faults := []string{"none", "control down", "states down", "destination down", "topic unknown", "source down", "no mirror", "deleted mirror", "embedded"}
	cells, changes := 0, 0
	for _, verb := range everyVerb {
		for _, desired := range []string{"", "m", "m.paused", "m.stopped", "other", "other.stopped"} {
			for _, state := range everyState {
				for _, fault := range faults {
					cells++
					w, log := &adminWorld{}, keyedlog.NewMemory()
					c := &deafControl{Control: NewControl(log)}
					mustUpdate(t, c, func(s *ControlState) {
						s.SetMirror(MirrorEntry{Name: "other"})
						switch fault {
						case "deleted mirror":
							s.RemoveMirror(DeletedMirror{Name: "m", At: planTime})
						case "no mirror", "embedded":
						default:
							s.SetMirror(MirrorEntry{Name: "m", Settings: Settings{bootstrapSetting: "a:9092", "client.id": "x"}, SourceClusterID: "there"})
						}
						if desired != "" {
							s.Set(wishOf("t", desired))
						}
					})
					w.has("m", "t", state, state)
					w.has("other", "t", state, state)
					source := &fakeSource{id: "there", topics: []string{"new", "t", "odd", "__inner"}}
					switch fault {
					case "states down":
						w.loadErr = errDown
					case "destination down":
						w.broken = errDown
					case "topic unknown":
						w.topics = nil
					case "source down":
						source.err = errDown
					}
					a := w.admin(t, c)
					a.cfg.OpenSource, a.now, a.embedded = source.open, func() time.Time { return planTime }, fault == "embedded"
					before := dump(t, log)
					c.down = fault == "control down"
					topics := []string{"t", "missing", "t"}
					dry, dryErr := verb.run(a, topics, true)
					if after := dump(t, log); !bytes.Equal(after, before) {
						t.Fatalf("%s, %q, %s, %s: a dry run wrote\n%s\nbefore\n%s", verb.name, desired, state, fault, after, before)
					}
					real, realErr := verb.run(a, topics, false)
					where := fmt.Sprintf("%s, %q, %s, %s", verb.name, desired, state, fault)
					if !dry.DryRun || real.DryRun {
						t.Errorf("%s: DryRun %v of the dry run, %v of the real one", where, dry.DryRun, real.DryRun)
					}
					dry.DryRun = false
					if !reflect.DeepEqual(dry, real) || !reflect.DeepEqual(dryErr, realErr) {
						t.Errorf("%s:\ndry\n%v%v\nreal\n%v%v", where, dry, dryErr, real, realErr)
					}
					changed := !bytes.Equal(dump(t, log), before)
					if changed {
						changes++
					}
					for _, x := range real.Topics {
						if x.Changed && (x.Err != nil || !changed) {
							t.Errorf("%s: %s is said to have changed: error %v, written %v", where, x.Topic, x.Err, changed)
						}
					}
					if len(real.Topics) == 0 && realErr != nil && changed {
						t.Errorf("%s: the whole request was refused, and something was written: %v", where, realErr)
					}
					c.down = false
					history, err := a.History(bg)
					if err != nil {
						t.Fatal(err)
					}
					if len(history) > 1 || len(history) == 1 && (!changed || history[0].Plan != real.Plan || history[0].Verb != real.Verb) {
						t.Errorf("%s: history %+v", where, history)
					}
				}
			}
		}
	}
	if changes < cells/10 {
		t.Errorf("only %d of %d cells changed anything: the table looks past what verbs do", changes, cells)
	}
}
