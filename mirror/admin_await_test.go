package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// from is an Admin in another place than the process of the mirror "m" into that cluster.
func from(t *testing.T, dst *side) *mirror.Admin {
	t.Helper()
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: dst.Control(), States: dst.StateStore(), Destination: dst.Cluster})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func shared(c *mirror.Config) { c.Control = c.Destination.(*memlog.Cluster).Control() }

func TestAdminAwaitFollowsAMirrorElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 3, shared)
		m.a.fill("t", 1, 20)
		admin := from(t, m.b)
		m.start("t")
		var told []mirror.Description
		d, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Topics: []string{"t"}, Until: mirror.ReachedMirroring}, func(d mirror.Description) { told = append(told, d) })
		if err != nil || len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 3 {
			t.Fatalf("%v\n%s", err, d)
		}
		expectWords(t, d.Head, "MIRRORING: 1 topic")
		if len(told) == 0 || len(told) > 4 || told[len(told)-1].Head != d.Head {
			t.Errorf("told of %d descriptions", len(told))
		}
		// What is so already is believed at the next heartbeat.
		began := time.Now()
		if _, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: mirror.ReachedNotFailed}, nil); err != nil || time.Since(began) > 7*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		for _, step := range []struct {
			do    func() error
			until mirror.Reached
		}{
			{func() error {
				_, err := admin.Pause(t.Context(), []string{"t"}, mirror.PauseOptions{})
				return err
			}, mirror.ReachedPaused},
			{func() error {
				_, err := admin.Resume(t.Context(), []string{"t"}, mirror.ResumeOptions{})
				return err
			}, mirror.ReachedMirroring},
			{func() error {
				_, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{})
				return err
			}, mirror.ReachedStopped},
		} {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			d, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: step.until}, nil)
			if err != nil || d.Topics[0].Partitions[2].State != step.until.String() {
				t.Errorf("%s: %v\n%s", step.until, err, d)
			}
		}
	})
}

// What does not come about by itself is said when a process has had the time to act, and not when the state is from before.
func TestAdminAwaitOfAStartThatNeedsConsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := failedOver(t)
		back := openBack(t, a, b)
		defer back.close()
		admin := onlyHere(t, a)
		if _, err := admin.Start(t.Context(), []string{"t", "u"}, mirror.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		d, err := admin.Await(bounded(t, time.Hour), mirror.AwaitOptions{Until: mirror.ReachedMirroring}, nil)
		var not *mirror.NotReachedError
		if !errors.As(err, &not) || !not.Stuck || not.Err != nil || len(not.Topics) != 2 || !not.Topics[0].Stuck && !not.Topics[1].Stuck || not.Process != "" {
			t.Fatalf("%+v", err)
		}
		expectWords(t, err.Error(), "a person has to act", "-0 is FAILED", "would drop")
		if took := time.Since(began); took < 10*time.Second || took > 90*time.Second || d.Topics[0].Partitions[0].State != "FAILED" {
			t.Errorf("after %s\n%s", took, d)
		}
		plan, err := admin.AskFailback(bounded(t, time.Minute), nil, mirror.AskFailbackOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Failback(t.Context(), plan, mirror.ConsentOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Topics: []string{"u", "t"}, Until: mirror.ReachedMirroring}, nil); err != nil {
			t.Errorf("after the consent: %v", err)
		}
	})
}

func TestAdminAwaitSaysWhyItIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 2, shared)
		admin := from(t, m.b)
		m.start("t", "nowhere")
		ctx := bounded(t, time.Minute)
		_, err := admin.Await(ctx, mirror.AwaitOptions{Until: mirror.ReachedMirroring}, nil)
		var not *mirror.NotReachedError
		if !errors.As(err, &not) || not.Stuck || !errors.Is(err, context.DeadlineExceeded) || len(not.Topics) != 1 || not.Topics[0].Topic != "nowhere" || not.Topics[0].Partition != -1 {
			t.Fatalf("%+v", err)
		}
		expectWords(t, err.Error(), "not MIRRORING yet", "nowhere: ", "unknown topic")

		m.running.close()
		if _, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual
		_, err = admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Topics: []string{"t"}, Until: mirror.ReachedStopped}, nil)
		if !errors.As(err, &not) || not.Stuck || len(not.Topics) != 2 || not.Topics[1].State != "MIRRORING" {
			t.Fatalf("%+v", err)
		}
		expectWords(t, err.Error(), "not STOPPED yet: NO PROCESS was heard of for 6", "; t-0 is MIRRORING; t-1 is MIRRORING: context deadline exceeded")
	})
}

func TestAdminAwaitOfWhatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1, shared)
		admin := from(t, m.b)
		began := time.Now()
		for _, x := range []struct {
			o    mirror.AwaitOptions
			code mirror.Code
			word string
		}{
			{mirror.AwaitOptions{}, mirror.InvalidRequest, "REACHED_0"},
			{mirror.AwaitOptions{Until: 99}, mirror.InvalidRequest, "REACHED_99"},
		} {
			if _, err := admin.Await(t.Context(), x.o, nil); !errors.Is(err, &mirror.Error{Code: x.code}) || !strings.Contains(err.Error(), x.word) {
				t.Errorf("%+v: %v", x.o, err)
			}
		}
		nobody, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "nobody", Control: m.b.Control(), States: m.b.StateStore()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nobody.Await(t.Context(), mirror.AwaitOptions{Until: mirror.ReachedStopped}, nil); !errors.Is(err, &mirror.Error{Code: mirror.UnknownClusterMirror}) {
			t.Errorf("no such mirror: %v", err)
		}
		m.until("recorded", func(mirror.Status) bool {
			s, err := m.b.Control().Read(t.Context())
			return err == nil && len(s.Mirrors) == 1
		})
		if _, err := admin.Await(t.Context(), mirror.AwaitOptions{Until: mirror.ReachedStopped}, nil); !errors.Is(err, &mirror.Error{Code: mirror.InvalidRequest}) {
			t.Errorf("no topics: %v", err)
		}
		m.start("t")
		if _, err := admin.Await(t.Context(), mirror.AwaitOptions{Topics: []string{"other"}, Until: mirror.ReachedStopped}, nil); !errors.Is(err, &mirror.Error{Code: mirror.TopicNotInClusterMirror}) {
			t.Errorf("not a member: %v", err)
		}
		var not *mirror.NotReachedError
		_, err = admin.Await(t.Context(), mirror.AwaitOptions{Until: mirror.ReachedStopped}, nil)
		if !errors.As(err, &not) || !not.Stuck {
			t.Errorf("%v", err)
		}
		expectWords(t, err.Error(), "t: it is wanted MIRRORING")
		if time.Since(began) > time.Second {
			t.Errorf("after %s", time.Since(began))
		}
	})
}

// While nothing changes, Await looks at two versions a second and describes every five.
func TestAdminAwaitAsksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPair(t, 1, shared)
		m.start("t")
		m.untilInStep()
		m.running.close()
		control := &countingControl{Control: m.b.Control()}
		admin, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: control, States: m.b.StateStore(), Destination: m.b.Cluster})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{}); err != nil {
			t.Fatal(err)
		}
		control.reads = 0
		told := 0
		if _, err := admin.Await(bounded(t, 10*time.Minute), mirror.AwaitOptions{Until: mirror.ReachedStopped}, func(mirror.Description) { told++ }); err == nil {
			t.Fatal("reached without a process")
		}
		if control.reads > 600+120+5 || told > 2 {
			t.Errorf("%d reads in ten minutes, told %d times", control.reads, told)
		}
	})
}

// countingControl counts reads.
type countingControl struct {
	mirror.Control
	reads int
}

func (c *countingControl) Read(ctx context.Context) (mirror.ControlState, error) {
	c.reads++
	return c.Control.Read(ctx)
}
