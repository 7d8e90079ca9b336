package mirror_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// inState is a mirror of topic "t" with one partition in MIRRORING, PAUSED or STOPPED.
func inState(t *testing.T, state string) *pair {
	m := newPair(t, 1, shared)
	m.a.fill("t", 0, 20)
	m.start("t")
	m.untilInStep()
	admin := from(t, m.b)
	var err error
	until := mirror.ReachedMirroring
	switch state {
	case "PAUSED":
		until = mirror.ReachedPaused
		_, err = admin.Pause(t.Context(), []string{"t"}, mirror.PauseOptions{})
	case "STOPPED":
		until = mirror.ReachedStopped
		_, err = admin.Stop(t.Context(), []string{"t"}, mirror.StopOptions{})
	}
	if err == nil {
		_, err = admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: until}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A recorded state outlives the process that recorded it: only STOPPED is reached without one, also when that has died a moment ago.
func TestAwaitNeedsAProcessThatLivesNow(t *testing.T) {
	for _, tc := range []struct {
		state string
		until mirror.Reached
		done  bool
	}{
		{"MIRRORING", mirror.ReachedMirroring, false},
		{"MIRRORING", mirror.ReachedNotFailed, false},
		{"PAUSED", mirror.ReachedPaused, false},
		{"STOPPED", mirror.ReachedStopped, true},
		{"STOPPED", mirror.ReachedNotFailed, false},
	} {
		for _, dead := range []time.Duration{time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%s for %s dead for %s", tc.state, tc.until, dead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := inState(t, tc.state)
					m.running.close()
					time.Sleep(dead)
					d, err := from(t, m.b).Await(bounded(t, time.Minute), mirror.AwaitOptions{Topics: []string{"t"}, Until: tc.until}, nil)
					if tc.done {
						if err != nil {
							t.Errorf("%v\n%s", err, d)
						}
						return
					}
					var not *mirror.NotReachedError
					if !errors.As(err, &not) || not.Stuck || len(not.Topics) != 1 || not.Topics[0].State != tc.state {
						t.Fatalf("%v\n%s", err, d)
					}
					expectWords(t, err.Error(), "NO PROCESS was heard of for ", "t-0 is "+tc.state+": that was recorded, and no process has said since the wait began that it still is so")
				})
			})
		}
	}
}

// The clock of a process may be wrong. A process whose reports move is alive, and one whose reports stand still is not.
func TestAProcessWhoseClockIsWrongIsAliveAsLongAsItReports(t *testing.T) {
	for _, wrong := range []time.Duration{-40 * time.Second, 14 * time.Second, 20 * time.Second, 5 * time.Minute, -5 * time.Minute} { // how far the clock here is ahead of its
		t.Run(wrong.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := inState(t, "MIRRORING")
				here := func() *mirror.Admin {
					a := from(t, m.b)
					a.SetClock(func() time.Time { return time.Now().Add(wrong) })
					return a
				}
				for range 4 { // reports have another age each time
					time.Sleep(61300 * time.Millisecond)
					began := time.Now()
					admin := here()
					d, err := admin.Describe(t.Context())
					if err != nil || !d.Alive || d.Protection().Verdict != mirror.Protected || d.Nobody() != "" || d.Nodes[0].Silent || d.Nodes[0].ClockAhead {
						t.Errorf("%v %v\n%s", err, d.Protection(), d)
					}
					if took := time.Since(began); took > 7*time.Second {
						t.Errorf("after %s", took)
					}
					if off := d.Nodes[0].ClockBehind; off != 0 && (off-wrong).Abs() > time.Second || off == 0 && wrong.Abs() > 15*time.Second {
						t.Errorf("its clock is %s behind, and %s was found", wrong, off)
					}
					if said := strings.Contains(d.String(), "the clock of"); said != (d.Nodes[0].ClockBehind != 0) {
						t.Errorf("the clock is spoken of: %v\n%s", said, d)
					}
					began = time.Now()
					if d, err := admin.Await(bounded(t, time.Minute), mirror.AwaitOptions{Until: mirror.ReachedMirroring}, nil); err != nil || time.Since(began) > 8*time.Second {
						t.Errorf("after %s: %v\n%s", time.Since(began), err, d)
					}
				}
				m.running.close()
				time.Sleep(16 * time.Second)
				began := time.Now()
				admin := here()
				d, err := admin.Describe(t.Context())
				if took := time.Since(began); err != nil || took > 8*time.Second || d.Alive || d.Protection().Verdict == mirror.Protected || d.Nobody() == "" {
					t.Errorf("dead, after %s: %v\n%s", took, err, d)
				}
				if wrong > 0 {
					expectWords(t, d.Head, "; NO PROCESS was heard of for ")
					expectWords(t, d.Nobody(), "NO PROCESS runs this mirror (last word ")
				} else {
					expectWords(t, d.Head, "; WHETHER A PROCESS RUNS IS NOT KNOWN: the clock of ")
				}
				began = time.Now()
				if _, err := admin.Describe(t.Context()); err != nil || time.Since(began) > 0 {
					t.Errorf("watched again, %s: %v", time.Since(began), err)
				}
				if wrong < 0 { // its clock does not hide it for ever
					time.Sleep(20 * time.Second)
					d, err := admin.Describe(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					expectWords(t, d.Head, "; NO PROCESS was heard of for ")
				}
			})
		})
	}
}

// Where nobody is to be waited for, Describe waits for nobody; and it leaves time to whoever has little.
func TestDescribeWaitsForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inState(t, "MIRRORING")
		look := func(what string, most time.Duration) mirror.Description {
			t.Helper()
			began := time.Now()
			d, err := from(t, m.b).Describe(bounded(t, 4*time.Second))
			if took := time.Since(began); err != nil || took > most {
				t.Errorf("%s: %s, %v", what, took, err)
			}
			return d
		}
		look("alive", 0)
		m.running.close()
		time.Sleep(time.Minute)
		d := look("dead for a minute, and four seconds are left", 2*time.Second)
		expectWords(t, d.Head, "; NO PROCESS was heard of for 6", "s by its own clock")
		expectWords(t, d.Nobody(), "NO PROCESS is known to run this mirror (last word 6", "s ago by its own clock)")
		time.Sleep(time.Hour)
		look("dead for an hour", 0)
	})
}

// Who has not answered is judged by the same rule: the clock of a process that is dead does not keep it alive.
func TestAskFailbackWatchesReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inState(t, "MIRRORING")
		m.running.close()
		admin := from(t, m.b)
		admin.SetClock(func() time.Time { return time.Now().Add(-time.Minute) })
		_, err := admin.AskFailback(bounded(t, 30*time.Second), []string{"t"}, mirror.AskFailbackOptions{})
		var not *mirror.NotAnsweredError
		if !errors.As(err, &not) || not.Alive || not.ClockAhead || not.Ago < 25*time.Second {
			t.Fatalf("%v", err)
		}
		expectWords(t, err.Error(), "NO PROCESS runs this mirror (last word 30s ago")
	})
}
