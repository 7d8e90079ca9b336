package mirror

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
)

// PromotionStep is how far a promotion is.
type PromotionStep string

// The steps, in their order. PromotionLowering is that of one that is given up.
const (
	PromotionRaising      PromotionStep = "raising the fence"
	PromotionVerifying    PromotionStep = "verifying the fence"
	PromotionDraining     PromotionStep = "draining"
	PromotionTransactions PromotionStep = "waiting for open transactions"
	PromotionStopping     PromotionStep = "stopping" // the point of no return
	PromotionLowering     PromotionStep = "giving up, lowering the fence"
)

// Promotion is a planned move to the destination that is under way, as it is recorded: before anything is changed at the source, so that whoever comes after a crash can end it or take it back.
type Promotion struct {
	Mirror string
	Topics []string // by name
	// Fence is Fence.String() of the fence that is raised, "" for a promotion without one; Memory is what it has to know to be lowered again (FenceMemory).
	Fence   string
	Memory  string
	Step    PromotionStep
	Since   time.Time // of Step
	Began   time.Time
	Attempt int64 // counts who has taken it up: only the newest goes on
	// Whole is a sum over where the copies ended when they had everything and no transaction open, of PromotionStopping: whoever goes on knows by it that the stop has aborted none. "": they were not
	// seen so.
	Whole  string
	Who    Operator
	Reason string
}

type promotionValue struct {
	Version int           `json:"version"`
	Topics  []string      `json:"topics"`
	Fence   string        `json:"fence,omitempty"`
	Memory  string        `json:"memory,omitempty"`
	Step    PromotionStep `json:"step"`
	Since   time.Time     `json:"since,omitzero"`
	Began   time.Time     `json:"began,omitzero"`
	Attempt int64         `json:"attempt"`
	Whole   string        `json:"whole,omitempty"`
	Host    string        `json:"host,omitempty"`
	User    string        `json:"user,omitempty"`
	Client  string        `json:"client,omitempty"`
	Reason  string        `json:"reason,omitempty"`
}

func (p *Promotion) value() promotionValue {
	return promotionValue{controlVersion, p.Topics, p.Fence, p.Memory, p.Step, p.Since, p.Began, p.Attempt, p.Whole, p.Who.Host, p.Who.User, p.Who.Client, p.Reason}
}

func (v promotionValue) promotion(mirror string) Promotion {
	return Promotion{mirror, v.Topics, v.Fence, v.Memory, v.Step, v.Since, v.Began, v.Attempt, v.Whole, Operator{v.Host, v.User, v.Client}, v.Reason}
}

// store makes it what comes back from its record.
func (p *Promotion) store() {
	p.Since, p.Began = storedTime(p.Since), storedTime(p.Began)
	p.Fence, p.Reason, p.Step = validText(p.Fence), validText(p.Reason), PromotionStep(validText(string(p.Step)))
	p.Who = Operator{validText(p.Who.Host), validText(p.Who.User), validText(p.Who.Client)}
	slices.Sort(p.Topics)
	if p.Topics = slices.Compact(p.Topics); len(p.Topics) == 0 {
		p.Topics = nil
	}
}

// sumOf is Promotion.Whole of offsets.
func sumOf(offsets map[TopicPartition]int64) string {
	sum := sha256.New()
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), compareTopicPartitions) {
		fmt.Fprintf(sum, "%q %d %d\n", tp.Topic, tp.Partition, offsets[tp])
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// sameAttempt says that a record is that of the same attempt at the same promotion: each promotion counts its attempts anew.
func (p *Promotion) sameAttempt(other Promotion) bool {
	return p.Attempt == other.Attempt && p.Began.Equal(other.Began)
}

// String says in one line which step it is at, since when, and behind which fence.
func (p *Promotion) String() string {
	return p.line(p.Since)
}

// line is String, with the age of the step where now is later than its beginning.
func (p *Promotion) line(now time.Time) string {
	since := p.Since.UTC().Format("15:04:05 UTC")
	if d := now.Sub(p.Since); d > 0 {
		since += ", " + age(d)
	}
	return fmt.Sprintf("PROMOTION UNDER WAY: %s of %s since %s; %s", p.Step, plural(len(p.Topics), "topic", "topics"), since, cmp.Or(prefixed("fence: ", p.Fence), "without a fence"))
}

// prefixed is a text that is there, with words before it.
func prefixed(words, text string) string {
	if text == "" {
		return ""
	}
	return words + text
}

// Promotion returns what is recorded of a mirror's promotion; ok is false when none is under way. Topics are shared with s.
func (s *ControlState) Promotion(mirror string) (p Promotion, ok bool) {
	i := slices.IndexFunc(s.Promotions, func(p Promotion) bool { return p.Mirror == mirror })
	if i < 0 {
		return Promotion{}, false
	}
	return s.Promotions[i], true
}

// setPromotion records a promotion in place of the mirror's earlier one, and keeps the order.
func (s *ControlState) setPromotion(p Promotion) {
	s.removePromotion(p.Mirror)
	s.Promotions = append(s.Promotions, p)
	slices.SortFunc(s.Promotions, func(a, b Promotion) int { return cmp.Compare(a.Mirror, b.Mirror) })
}

// removePromotion takes a mirror's promotion out; one that is not there is fine.
func (s *ControlState) removePromotion(mirror string) {
	s.Promotions = slices.DeleteFunc(s.Promotions, func(p Promotion) bool { return p.Mirror == mirror })
}

// fenceProvenance is the kind of Provenance for rules that a fence made at the source; its name is the rule.
const fenceProvenance = "fence"

// fencedBy are the rules that fences of the mirror made at its source.
func (s *ControlState) fencedBy(mirror string) map[ACL]bool {
	rules := map[ACL]bool{}
	for _, p := range s.provenanceOfKind(mirror, fenceProvenance) {
		if a, err := aclStored(p.Name); err == nil {
			rules[a] = true
		}
	}
	return rules
}

// noteFence remembers rules of a fence, or forgets them.
func (s *ControlState) noteFence(mirror string, rules []ACL, up bool) {
	for _, a := range rules {
		p := Provenance{Mirror: mirror, Kind: fenceProvenance, Name: a.stored()}
		if up {
			s.setProvenance(p)
		} else {
			s.removeProvenance(p)
		}
	}
}
