package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LeftFence is the fence of a promotion that has ended: it is meant to stay up, so that no client writes at the source what no copy has, until the source is a copy itself or is given up. It is recorded
// when the promotion ends, and until LowerFence has lowered it. Whether somebody has taken it down by hand is not known here.
type LeftFence struct {
	Mirror string
	Topics []string // that it is about, by name
	Fence  string   // Fence.String()
	Memory string   // what it has to know to be lowered (FenceMemory)
	Began  time.Time
	Ended  time.Time // the promotion's times
	// Lowering is since when somebody lowers it, who may have died: it may be up, whole or in part. No promotion with a fence begins until LowerFence has ended that. Zero: nobody does.
	Lowering time.Time `json:",omitzero"`
}

// String is one line: what stands at the source, since which promotion, and what to do about it.
func (f *LeftFence) String() string {
	if !f.Lowering.IsZero() {
		return fmt.Sprintf("the fence of the promotion that ended %s is being lowered at the source for %s (%s) since %s, and may still be up: LowerFence ends that", stamp(f.Ended), few(f.Topics), f.Fence, stamp(f.Lowering))
	}
	return fmt.Sprintf("the fence of the promotion that ended %s was left up at the source for %s (%s): lower it (LowerFence) when the source is a copy or is given up", stamp(f.Ended), few(f.Topics), f.Fence)
}

// leftFenceProvenance is the kind of Provenance for fences of promotions that have ended; the name is the promotion's beginning.
const leftFenceProvenance = "left-fence"

const leftFenceVersion = 1

type leftFenceValue struct {
	Version int       `json:"v"`
	Topics  []string  `json:"topics"`
	Fence   string    `json:"fence"`
	Memory  string    `json:"memory,omitempty"`
	Began   time.Time `json:"began"`
	Ended   time.Time `json:"ended"`
	// Lowering is there only while it is lowered. A program that does not know the field cannot read the entry then, and lowers nothing.
	Lowering time.Time `json:"lowering,omitzero"`
}

// leaveFence remembers the fence of a promotion that ends.
func (s *ControlState) leaveFence(p Promotion, now time.Time) error {
	return s.setLeftFence(LeftFence{Mirror: p.Mirror, Topics: p.Topics, Fence: p.Fence, Memory: p.Memory, Began: p.Began, Ended: storedTime(now)})
}

func (s *ControlState) setLeftFence(f LeftFence) error {
	v := leftFenceValue{leftFenceVersion, f.Topics, f.Fence, f.Memory, f.Began.UTC(), f.Ended.UTC(), f.Lowering.UTC()}
	entry, err := encodeRemembered(leftFenceEntry(f.Mirror, f.Began), v)
	if err == nil {
		s.setProvenance(entry)
	}
	return err
}

func leftFenceEntry(mirror string, began time.Time) Provenance {
	return Provenance{Mirror: mirror, Kind: leftFenceProvenance, Name: began.UTC().Format(time.RFC3339Nano)}
}

// LeftFences are a mirror's fences that promotions have left up, the newest first. One whose record cannot be read is an error beside the others.
func (s *ControlState) LeftFences(mirror string) (left []LeftFence, err error) {
	for _, p := range s.provenanceOfKind(mirror, leftFenceProvenance) {
		var v leftFenceValue
		if one := decodeRemembered(p, leftFenceVersion, &v); one != nil {
			err = errors.Join(err, one)
			continue
		}
		left = append(left, LeftFence{mirror, v.Topics, v.Fence, v.Memory, v.Began, v.Ended, v.Lowering})
	}
	slices.SortStableFunc(left, func(a, b LeftFence) int { return b.Began.Compare(a.Began) })
	return left, err
}

// lowersFence says that somebody lowers a fence which a promotion of the mirror has left.
func (s *ControlState) lowersFence(mirror string) bool {
	left, _ := s.LeftFences(mirror) // one that cannot be read forbids no promotion: its owner may be gone
	return slices.ContainsFunc(left, func(f LeftFence) bool { return !f.Lowering.IsZero() })
}

// ErrOtherFence: fences are up that promotions have left, and none of them is the one that was given.
var ErrOtherFence = errors.New("mirror: another fence")

const verbLowerFence = "lower fence"

// LowerFence lowers at the source what promotions that have ended have left up of this fence, the newest first, and returns what was lowered. Clients may write the topics at the source from then on: that is
// right when the source has become a copy, which its own mirror protects, or when it is given up or begins anew; before, they write what no copy has. Nothing left of any fence is fine.
//
// It may be repeated, after a crash too: that it is lowered is recorded before the source is asked, so that no promotion raises the same meanwhile, and what was lowered is taken out of the record behind that. Errors: ErrOtherPromotion while one is under way (it may have raised the same); ErrOtherFence;
// FenceElsewhereError; the fence's and the Control's, with which the record stays and the same may be tried again.
func (a *Admin) LowerFence(ctx context.Context, fence Fence) (lowered []LeftFence, err error) {
	state, err := a.cfg.Control.Read(ctx)
	if err != nil {
		return nil, a.controlFailed("reading the desired state", err)
	}
	if p, under := state.Promotion(a.cfg.Mirror); under {
		return nil, fmt.Errorf("mirror %s: %w (%s): end it or abort it first; nothing has changed", a.cfg.Mirror, ErrOtherPromotion, p.Step)
	}
	left, err := state.LeftFences(a.cfg.Mirror)
	if err != nil {
		return nil, a.controlFailed("reading which fences are up", err)
	}
	entry, _ := state.Mirror(a.cfg.Mirror)
	sourceID := cmp.Or(entry.SourceClusterID, a.cfg.SourceClusterID)
	var others []string
	for _, f := range left {
		if f.Fence != fenceName(fence) {
			others = append(others, f.Fence)
			continue
		}
		there, err := a.lowerLeft(ctx, f, fence, sourceID)
		if err != nil {
			return lowered, err
		}
		if there {
			lowered = append(lowered, f)
		}
	}
	if len(lowered) == 0 && len(others) > 0 {
		return nil, fmt.Errorf("mirror %s: %w: the one given is %q, and up are: %s; nothing has changed", a.cfg.Mirror, ErrOtherFence, fenceName(fence), strings.Join(slices.Compact(others), "; "))
	}
	return lowered, nil
}

// lowerLeft lowers one. there is false where somebody else has done that meanwhile: the source is not asked then, because a promotion may have raised the same since.
func (a *Admin) lowerLeft(ctx context.Context, f LeftFence, fence Fence, sourceID string) (there bool, err error) {
	with, err := withMemory(fence, f.Memory)
	if err == nil {
		err = atSource(ctx, theFence, with, sourceID)
	}
	if err == nil {
		there, err = a.marksLowering(ctx, &f)
	}
	if err == nil && there {
		_, err = atTheFence(ctx, "lowering it", func(ctx context.Context) error { return with.Lower(ctx, f.Topics) })
	}
	if err != nil {
		return false, fmt.Errorf("mirror %s: the fence of %s could not be lowered and may still be up (%s): %w", a.cfg.Mirror, few(f.Topics), f.Fence, err)
	}
	if !there {
		return false, nil
	}
	rules := rulesOf(with, f.Topics)
	err = a.cfg.Control.Update(ctx, func(s *ControlState) error {
		if p, under := s.Promotion(a.cfg.Mirror); under {
			return fmt.Errorf("%w (%s), begun meanwhile, and its fence may be lowered with this one: abort it, and promote again", ErrOtherPromotion, p.Step)
		}
		if _, ok := s.provenance(a.cfg.Mirror, leftFenceProvenance, leftFenceEntry(a.cfg.Mirror, f.Began).Name); !ok {
			return nil // somebody else has ended it
		}
		s.removeProvenance(leftFenceEntry(a.cfg.Mirror, f.Began))
		s.noteFence(a.cfg.Mirror, rules, false)
		s.Note = &HistoryEntry{Time: a.now(), Verb: verbLowerFence, Mirror: a.cfg.Mirror, Topics: historyNames(f.Topics), Who: a.cfg.Operator, Detail: "lowered: " + f.Fence}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("mirror %s: the fence of %s is down, and is still recorded as up: %w", a.cfg.Mirror, few(f.Topics), err)
	}
	return true, nil
}

// marksLowering records that a fence is lowered, before it is. there is false where it is not recorded as up any more.
func (a *Admin) marksLowering(ctx context.Context, f *LeftFence) (there bool, err error) {
	err = a.cfg.Control.Update(ctx, func(s *ControlState) error {
		if p, under := s.Promotion(a.cfg.Mirror); under {
			return fmt.Errorf("%w (%s): end it or abort it first; nothing has changed", ErrOtherPromotion, p.Step)
		}
		if _, there = s.provenance(a.cfg.Mirror, leftFenceProvenance, leftFenceEntry(a.cfg.Mirror, f.Began).Name); !there {
			return nil
		}
		f.Lowering = cmp.Or(f.Lowering, storedTime(a.now()))
		return s.setLeftFence(*f)
	})
	return there, err
}

// LowerFence is Admin.LowerFence.
func (m *Mirror) LowerFence(ctx context.Context, fence Fence) ([]LeftFence, error) {
	return m.admin.LowerFence(ctx, fence)
}
