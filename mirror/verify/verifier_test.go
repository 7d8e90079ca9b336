package verify

import (
	"context"
	"strings"
	"testing"

	"github.com/clustermirror/clustermirror/mirror"
)

// A copy that has just begun has nothing that could be compared: in no way of comparing is it identical, nor equal. Where nobody has anything of what was asked for, it is.
func TestACopyThatHasNothingYetIsNotCompared(t *testing.T) {
	whole, begun := many(10), &disk{}
	for _, c := range []struct {
		name    string
		a, b    *disk
		o       Options
		equal   bool
		verdict mirror.VerifiedVerdict
	}{
		{"the copy has nothing", whole, begun, Options{}, false, mirror.VerifiedNothing},
		{"of what was asked for", whole, diskOf(whole.batches[:2]...), Options{From: whole.last[4]}, false, mirror.VerifiedNothing},
		{"up to what was asked for", whole, diskOf(whole.batches[:5]...), Options{To: whole.last[1]}, true, mirror.VerifiedIdentical},
		{"the source has deleted what was asked for", &disk{start: 40, end: 50}, begun, Options{To: 20}, true, mirror.VerifiedIdentical},
		{"both are empty", begun, begun, Options{}, true, mirror.VerifiedIdentical},
		{"the copy is behind what the source still has", &disk{start: 40, end: 50}, whole, Options{}, false, mirror.VerifiedNothing},
		{"the source is empty", begun, whole, Options{}, false, mirror.VerifiedIdentical},
	} {
		r := look(t, c.a, c.b, c.o)
		v := Verified(&r, nil)
		if r.Equal() != c.equal || v.Verdict != c.verdict || (v.Verdict == mirror.VerifiedNothing) != (v.Reason == "the copy has nothing of it yet") {
			t.Errorf("%s: equal %v, %s (%s)", c.name, r.Equal(), v.Verdict, v.Reason)
		}
		if nothing := strings.Contains(r.String(), "nothing in common"); nothing == c.equal {
			t.Errorf("%s: %s", c.name, &r)
		}
	}
}

func TestACopyThatHasNothingYetIsNotIdenticalInAPassThatGoesOn(t *testing.T) {
	p := newPair(t, 0)
	p.write(3)
	ctx, stop := context.WithCancel(t.Context())
	var passes []mirror.Verified
	Verifier{Options: Options{Clock: &slept{}}}.VerifyContinuously(ctx, p.src, mirror.ContinuousVerification{
		Copies: func(context.Context) ([]mirror.CopyToVerify, error) {
			return []mirror.CopyToVerify{{TopicPartition: tp, Log: p.copy, To: mirror.Unknown}}, nil
		},
		Looked: func(v mirror.Verified, ended bool) {
			if ended {
				passes = append(passes, v)
				stop()
			}
		},
	})
	if len(passes) != 1 || passes[0].Verdict != mirror.VerifiedNothing || passes[0].Reason != "the copy has nothing of it yet" {
		t.Errorf("%+v", passes)
	}
}

// A copy that was there when it began has lost nothing by a source that was cut meanwhile.
func TestACutSourceIsNoCopyThatHasNothing(t *testing.T) {
	whole := many(10)
	cut := &cutAfterAsking{disk: whole}
	r := look(t, cut, whole.clone(), Options{})
	if v := Verified(&r, nil); v.Verdict != mirror.VerifiedNothing || v.Reason != "" || r.To != 0 || len(v.Findings) != 1 {
		t.Errorf("%+v", v)
	}
}

// cutAfterAsking is a log that is emptied when its bounds were asked for.
type cutAfterAsking struct{ *disk }

func (c *cutAfterAsking) Bounds(ctx context.Context) (Bounds, error) {
	b, err := c.disk.Bounds(ctx)
	c.disk = &disk{}
	return b, err
}

// The number of offsets that cannot be compared counts also those of ranges that are not listed any more.
func TestEveryOffsetThatCannotBeComparedIsCounted(t *testing.T) {
	var r Report
	for i := range int64(20) {
		r.cannot(Compaction, 1, 10*i, 10*i+3, 4)
	}
	r.cannot(Compaction, 1, 193, 195, 4)
	if v := Verified(&r, nil); v.Uncomparable != 62 || len(v.Findings) != 5 || r.MoreFindings == 0 {
		t.Errorf("%d, %q", v.Uncomparable, v.Findings)
	}
}
