package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// of is a log as another partition's.
type of struct {
	*disk
	partition int32
}

func (o of) Partition() mirror.TopicPartition {
	return mirror.TopicPartition{Topic: tp.Topic, Partition: o.partition}
}

// running starts a runner over pairs of logs and ends it after some rounds, which it returns.
func running(t *testing.T, n int, o RunnerOptions, logs ...[2]*disk) (rounds []Round, runner *Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if o.Targets == nil {
		o.Targets = func(context.Context) (all []Target, err error) {
			for i, l := range logs {
				all = append(all, Target{A: of{l[0], int32(i)}, B: of{l[1], int32(i)}})
			}
			return all, nil
		}
	}
	o.Report = func(r Round) {
		if rounds = append(rounds, r); len(rounds) == n {
			cancel()
		}
	}
	runner, err := NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := runner.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return rounds, runner
}

func TestARunnerGivesEachPartitionATurnInEachRound(t *testing.T) {
	clock := &slept{now: time.Unix(0, 0)}
	large, small := many(3000), many(10)
	rounds, _ := running(t, 9, RunnerOptions{Turn: 100_000, Options: Options{Clock: clock, Piece: 20_000}, Every: time.Hour}, [2]*disk{large, large.clone()}, [2]*disk{small, small.clone()})
	first := rounds[0]
	if first.Partitions != 2 || first.Looked != 2 || first.Completed != 1 || first.Equal != 1 || first.Wrong != 0 || first.Number != 1 || first.Read < 100_000 || first.Read > 250_000 {
		t.Errorf("%s", first)
	}
	ended := -1
	for i, r := range rounds[1:] { // the small one is not due again
		if r.Looked != 1 || r.Read > 250_000 {
			t.Errorf("%s", r)
		}
		if r.Completed == 1 {
			ended = i
		}
	}
	if ended < 1 {
		t.Errorf("the large one ended in round %d: %v", ended+2, rounds)
	}
}

func TestARunnerBeginsAPassAgainWhenItIsDue(t *testing.T) {
	clock := &slept{now: time.Unix(0, 0)}
	rounds, _ := running(t, 3, RunnerOptions{Options: Options{Clock: clock}, Every: time.Minute, Pause: time.Second}, [2]*disk{four(), four()})
	for i, r := range rounds {
		if at := r.Began.Sub(time.Unix(0, 0)); at != time.Duration(i)*time.Minute || r.Equal != 1 || r.Number != i+1 {
			t.Errorf("round %d began at %v: %s", i, at, r)
		}
	}
}

func TestARoundListsWhatIsWrongFirstAndIsBounded(t *testing.T) {
	var logs [][2]*disk
	for i := range 10 {
		a, b := four(), four()
		if i%2 == 0 {
			b.start, b.last, b.batches = 13, b.last[1:], b.batches[1:] // retention
		}
		if i > 7 {
			b.batches[1][70]++
		}
		logs = append(logs, [2]*disk{a, b})
	}
	rounds, _ := running(t, 1, RunnerOptions{Options: Options{Clock: &slept{}}, Listed: 3}, logs...)
	r := rounds[0]
	if len(r.Found) != 3 || r.MoreFound != 3 || !r.Found[0].Wrong() || !r.Found[1].Wrong() || r.Found[2].Wrong() || r.Wrong != 2 || r.Equal != 4 || r.Completed != 10 {
		t.Errorf("%s", r)
	}
	if s := r.String(); !strings.Contains(s, "orders-9 [10,17): DIFFERENT") || !strings.Contains(s, "3 more") {
		t.Errorf("%s", s)
	}
}

func TestAPartitionThatFailsHasItsNextTurnAndKeepsNoOtherFromItsOwn(t *testing.T) {
	broken := errors.New("broken")
	bad := four()
	bad.before = func(int64) error { return broken }
	rounds, _ := running(t, 2, RunnerOptions{Options: Options{Clock: &slept{}}, Every: time.Hour}, [2]*disk{bad, four()}, [2]*disk{four(), four()})
	if r := rounds[0]; len(r.Failed) != 1 || !errors.Is(r.Failed[0], broken) || r.Equal != 1 || r.Looked != 2 {
		t.Errorf("%s", r)
	}
	if r := rounds[1]; len(r.Failed) != 1 || r.Looked != 1 {
		t.Errorf("%s", r)
	}
}

func TestAListThatFailsIsAskedForAgain(t *testing.T) {
	asked := 0
	rounds, _ := running(t, 2, RunnerOptions{Options: Options{Clock: &slept{}}, Targets: func(context.Context) ([]Target, error) {
		if asked++; asked == 1 {
			return nil, errors.New("no list")
		}
		return []Target{{A: four(), B: four()}}, nil
	}})
	if len(rounds[0].Failed) != 1 || rounds[1].Equal != 1 {
		t.Errorf("%v", rounds)
	}
}

func TestARateIsSharedByAllPartitions(t *testing.T) {
	clock := &slept{now: time.Unix(0, 0)}
	var logs [][2]*disk
	for range 10 {
		logs = append(logs, [2]*disk{many(100), many(100)})
	}
	rounds, _ := running(t, 1, RunnerOptions{Options: Options{Clock: clock, BytesPerSecond: 5000}}, logs...)
	if took := rounds[0].Ended.Sub(rounds[0].Began); took < time.Duration(rounds[0].Read-50_000)*time.Second/5000 || rounds[0].Equal != 10 {
		t.Errorf("%v for %s", took, rounds[0])
	}
}

func TestARunnerGoesOnWhereAnEarlierOneStood(t *testing.T) {
	a := many(3000)
	b := a.clone()
	b.batches[2900][70]++
	o := RunnerOptions{Turn: 100_000, Options: Options{Clock: &slept{}, Piece: 20_000}}
	_, first := running(t, 2, o, [2]*disk{a, b})
	text, err := json.Marshal(first.Places()[of{a, 0}.Partition()])
	if err != nil {
		t.Fatal(err)
	}
	place := new(Resume)
	if err := json.Unmarshal(text, place); err != nil || place.Report.At < 1000 {
		t.Fatalf("%v, %+v", err, place)
	}
	o.Places = map[mirror.TopicPartition]*Resume{of{a, 0}.Partition(): place}
	a.before = func(from int64) error {
		if from < place.Report.At {
			return fmt.Errorf("read at %d again", from)
		}
		return nil
	}
	rounds, _ := running(t, 6, o, [2]*disk{a, b})
	i := slices.IndexFunc(rounds, func(r Round) bool { return r.Wrong > 0 })
	if i < 0 || rounds[i].Found[0].Mismatch.Offset != 8700 || rounds[i].Found[0].From != 0 {
		t.Errorf("%v", rounds)
	}
}

func TestARunnerNeedsTargetsAndAReport(t *testing.T) {
	if _, err := NewRunner(RunnerOptions{}); err == nil {
		t.Error("it was made of nothing")
	}
}

// pairOf lists one pair of logs.
func pairOf(a, b *disk) func(context.Context) ([]Target, error) {
	return func(context.Context) ([]Target, error) { return []Target{{A: a, B: b}}, nil }
}

// What looks different is looked at once more when the sides are at rest, before it is told: a copy that follows its source meanwhile is no finding, and is compared anew.
func TestWhatIsTheSameWhenTheSidesAreAtRestIsNoFinding(t *testing.T) {
	a, b := four(), four()
	b.batches[1][70]++
	var told []string
	settled := 0
	rounds, _ := running(t, 2, RunnerOptions{
		Options: Options{Clock: &slept{}}, Targets: pairOf(a, b),
		Settle: func(context.Context, mirror.TopicPartition) error {
			settled++
			b.batches[1][70]--
			return nil
		},
		Looked: func(r Report, _ time.Time, err error) { told = append(told, fmt.Sprint(r.Wrong(), r.Equal(), err)) },
	})
	if rounds[0].Wrong != 0 || len(rounds[0].Failed) != 1 || rounds[1].Equal != 1 || settled != 1 {
		t.Errorf("settled %d times, %v", settled, rounds)
	}
	if want := []string{"false false it looked different at offset 13, and did not when it was looked at again; it is compared anew", "false true <nil>"}; !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}

// What still is different is told, each time, and waited for once only.
func TestWhatIsDifferentWhenTheSidesAreAtRestIsAFinding(t *testing.T) {
	for name, damage := range map[string]func(*disk){
		"mismatch": func(b *disk) { b.batches[1][70]++ },
		"hole":     func(b *disk) { b.batches, b.last = slices.Delete(b.batches, 1, 2), slices.Delete(b.last, 1, 2) },
	} {
		a, b := four(), four()
		damage(b)
		settled := 0
		rounds, _ := running(t, 3, RunnerOptions{
			Options: Options{Clock: &slept{}}, Every: time.Second, Targets: pairOf(a, b),
			Settle: func(context.Context, mirror.TopicPartition) error { settled++; return nil },
		})
		for _, r := range rounds {
			if r.Wrong != 1 || len(r.Failed) != 0 {
				t.Errorf("%s: %s", name, r)
			}
		}
		if settled != 1 {
			t.Errorf("%s: settled %d times", name, settled)
		}
	}
}

// Where it cannot be looked at again nothing is told. A difference that only whole passes show is told when the second one has shown it.
func TestWhatCannotBeLookedAtAgainIsNoFinding(t *testing.T) {
	busy := errors.New("not at rest")
	a, b := four(), four()
	b.batches[1][70]++
	rounds, _ := running(t, 2, RunnerOptions{Options: Options{Clock: &slept{}}, Targets: pairOf(a, b), Settle: func(context.Context, mirror.TopicPartition) error { return busy }})
	for _, r := range rounds {
		if r.Wrong != 0 || len(r.Failed) != 1 || !errors.Is(r.Failed[0], busy) {
			t.Errorf("%s", r)
		}
	}
	passes := 0
	rounds, _ = running(t, 2, RunnerOptions{
		Options: Options{Clock: &slept{}}, Targets: func(context.Context) ([]Target, error) {
			passes++
			b.batches[1][70] = a.batches[1][70] + 1
			return []Target{{A: a, B: b}}, nil
		},
		Settle: func(context.Context, mirror.TopicPartition) error { b.batches[1][70] = a.batches[1][70]; return nil },
	})
	if rounds[0].Wrong != 0 || rounds[1].Wrong != 1 {
		t.Errorf("%v", rounds)
	}
}

// Whoever waits for a partition to be read is asked before each read, and an error ends the turn: the next one goes on from there.
func TestATurnEndsWhereItMayNotBeRead(t *testing.T) {
	a := many(3000)
	asked, stop := 0, errors.New("not now")
	var at []int64
	rounds, _ := running(t, 3, RunnerOptions{
		Options: Options{Clock: &slept{}, Piece: 20_000}, Targets: pairOf(a, a.clone()),
		Await: func(context.Context, mirror.TopicPartition) error {
			if asked++; asked == 30 {
				return stop
			}
			return nil
		},
		Looked: func(r Report, began time.Time, err error) { at = append(at, r.At) },
	})
	if !errors.Is(rounds[0].Failed[0], stop) || rounds[1].Equal != 1 || at[0] == 0 || at[0] >= at[1] {
		t.Errorf("%v, %v", rounds, at)
	}
}

// A side that keeps a connection loses it when its turn is over.
func TestARunnerClosesSides(t *testing.T) {
	closed := 0
	running(t, 2, RunnerOptions{Options: Options{Clock: &slept{}}, Every: time.Second, Targets: func(context.Context) ([]Target, error) {
		return []Target{{A: closing{four(), &closed}, B: four()}}, nil
	}})
	if closed != 2 {
		t.Errorf("closed %d times", closed)
	}
}

type closing struct {
	*disk
	n *int
}

func (c closing) Close() error { *c.n++; return nil }
