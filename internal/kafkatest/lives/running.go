package lives

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/clustermirror/clustermirror/internal/kafkatest"
	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/kafkasource"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Running is a mirror between two real clusters, with everything it told.
type Running struct {
	*mirror.Mirror
	From   *kafkatest.Cluster // nil if it is not one of Kafka
	To     *Joined
	Link   *Link
	Sink   *DroppedSink
	Config mirror.Config

	t    testing.TB
	done bool

	mu     sync.Mutex
	events []mirror.Event
}

// Open starts a mirror of a cluster into the one that was joined; from is nil where change names another source. It is closed when the test ends.
func Open(t testing.TB, name string, from *kafkatest.Cluster, to *Joined, change ...func(*mirror.Config)) *Running {
	t.Helper()
	r := &Running{t: t, From: from, To: to, Link: NewLink(), Sink: &DroppedSink{}}
	r.Config = mirror.Config{
		Name: name, Owner: name, Destination: to.Destination, Store: keyedlog.NewStateStore(to.Store), Control: mirror.NewControl(to.Store), Sink: r.Sink,
		RefreshInterval: 500 * time.Millisecond, FetchBackoff: 100 * time.Millisecond, CallBound: 10 * time.Second, Fetch: mirror.FetchOptions{MaxWait: 100 * time.Millisecond},
		Retry: mirror.RetryPolicy{Initial: 200 * time.Millisecond, Max: time.Second}, Seed: 1,
		OnEvent: func(e mirror.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	for _, f := range change {
		f(&r.Config)
	}
	var err error
	if r.Config.Source == nil {
		if r.Config.Source, err = kafkasource.New(kafkasource.Config{Seeds: from.Bootstrap(), Bound: 3 * time.Second, ClientOptions: []kgo.Opt{kgo.Dialer(r.Link.Dial)}}); err != nil {
			t.Fatal(err)
		}
	}
	if r.Mirror, err = mirror.Open(Limited(t), r.Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.End)
	return r
}

// End closes the mirror and its source; if the test failed it shows what was told.
func (r *Running) End() {
	if r.done {
		return
	}
	r.done = true
	if err := errors.Join(r.Close(), r.Config.Source.Close()); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	if r.t.Failed() {
		for _, e := range r.Told() {
			r.t.Logf("%s %v", e.Where().Time.Format("05.000"), e)
		}
	}
}

// Told are the events so far.
func (r *Running) Told() []mirror.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]mirror.Event(nil), r.events...)
}

// Set sets settings of the mirror beside those that it has.
func (r *Running) Set(settings mirror.Settings) {
	r.t.Helper()
	if err := r.Config.Control.Update(Limited(r.t), func(s *mirror.ControlState) error {
		e, _ := s.Mirror(r.Config.Name)
		e.Name = r.Config.Name
		all := maps.Clone(settings)
		for name, value := range e.Settings {
			if _, ok := all[name]; !ok {
				all[name] = value
			}
		}
		e.Settings = all
		s.SetMirror(e)
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

// Start starts topics.
func (r *Running) Start(topics ...string) {
	r.t.Helper()
	if _, err := r.Admin().Start(Limited(r.t), topics, mirror.StartOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// Pause pauses a topic and waits until its partition 0 is paused.
func (r *Running) Pause(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Pause(Limited(r.t), []string{topic}, mirror.PauseOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.Until("paused", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Paused })
}

// Resume resumes a topic.
func (r *Running) Resume(topic string) {
	r.t.Helper()
	if _, err := r.Admin().Resume(Limited(r.t), []string{topic}, mirror.ResumeOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// Failover fails over all topics.
func (r *Running) Failover() mirror.FailoverReport {
	r.t.Helper()
	report, err := r.Mirror.Failover(Limited(r.t), mirror.FailoverOptions{})
	r.t.Log(report)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

// Failback plans, and does what was planned.
func (r *Running) Failback(topics ...string) mirror.FailbackPlan {
	r.t.Helper()
	plan, err := r.PlanFailback(Limited(r.t), topics...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Log(plan)
	report, err := r.ExecuteFailback(Limited(r.t), plan)
	r.t.Log(report)
	if err != nil {
		r.t.Fatal(err)
	}
	return plan
}

// Until waits for one partition.
func (r *Running) Until(what, topic string, partition int32, ok func(mirror.PartitionStatus) bool) mirror.PartitionStatus {
	r.t.Helper()
	var p mirror.PartitionStatus
	Eventually(r.t, what, func() (bool, string) {
		s := r.Status()
		p = One(s, topic, partition)
		return ok(p), Show(s)
	})
	return p
}

// InStep waits until the copy of a partition ends at end, enough brokers have it, and nothing is missing.
func (r *Running) InStep(topic string, partition int32, end int64) mirror.PartitionStatus {
	r.t.Helper()
	return r.Until(fmt.Sprintf("%s-%d is copied up to %d", topic, partition, end), topic, partition, func(p mirror.PartitionStatus) bool {
		return p.State == statemachine.Mirroring && p.End == end && p.Replicated == end && p.LagOffsets == 0 && p.SourceEnd == end
	})
}

// UntilFailed waits until partition 0 of a topic is FAILED for a reason that has these words.
func (r *Running) UntilFailed(topic string, words ...string) mirror.PartitionStatus {
	r.t.Helper()
	p := r.Until("failed", topic, 0, func(p mirror.PartitionStatus) bool { return p.State == statemachine.Failed })
	for _, w := range words {
		if !strings.Contains(p.Reason, w) {
			r.t.Errorf("the reason %q does not say %q", p.Reason, w)
		}
	}
	return p
}
