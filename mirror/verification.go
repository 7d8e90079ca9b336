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

// Verifier compares copies with the source that they are mirrored from, while both are in use. It changes nothing. Package mirror/verify has one.
type Verifier interface {
	// Verify compares the copies in their order, each once, and has an entry for each. When ctx ends it returns with what was proved so far; the entries say what was not looked at.
	Verify(ctx context.Context, source Source, copies []CopyToVerify) []Verified
}

// CopyToVerify is a range of one partition's copy that is to be compared with the source.
type CopyToVerify struct {
	TopicPartition
	Log       Log
	From, To  int64 // [From, To); To Unknown: up to the smaller end of both
	Compacted bool  // cleanup.policy has compact on either side: what a cleaner may have taken is no hole
	// SourceTopicID is the id of the source's topic that this is a copy of; zero: whichever topic has the name now.
	SourceTopicID TopicID
}

// VerifiedVerdict is what comparing a copy with its source came to.
type VerifiedVerdict string

// The verdicts, each worse than the one before.
const (
	VerifiedIdentical VerifiedVerdict = "identical"     // what the source has of the range was compared, and the copy has the same
	VerifiedPartly    VerifiedVerdict = "no difference" // where it was looked; a part could not be compared, or was not looked at
	VerifiedNothing   VerifiedVerdict = "not compared"  // nothing was: Reason says why
	VerifiedHole      VerifiedVerdict = "HOLE"          // one side lacks what the other one has, and neither retention nor compaction explains it
	VerifiedDifferent VerifiedVerdict = "DIFFERENT"     // both sides have something there, and it is not the same
)

var verifiedVerdicts = []VerifiedVerdict{VerifiedIdentical, VerifiedPartly, VerifiedNothing, VerifiedHole, VerifiedDifferent}

// Verified is what comparing one range of a copy with its source found. It is plain data.
type Verified struct {
	Topic     string
	Partition int32
	Verdict   VerifiedVerdict
	From, To  int64 // what was to be compared, [From, To): where both have something, and no more than was asked for
	// SourceEnd and CopyEnd are the ends when it began: below them a log does not change any more. Unknown: nobody was asked.
	SourceEnd, CopyEnd int64

	Bytewise     VerifiedAmount // equal byte by byte
	Recordwise   VerifiedAmount // equal record by record: compaction wrote one side's batches anew
	Compacted    int64          // records that only one side has, each explained by compaction
	Uncomparable int64          // offsets that cannot be compared: Findings say why
	Unread       int64          // offsets of [From, To) that were not looked at: Reason says why

	Reason     string   // why something was not looked at; "" if all was
	FirstWrong int64    // the first offset with a difference, or in a hole; Unknown: there is none
	Findings   []string // a difference, holes, and what cannot be compared, one sentence each; a is the source, b the copy
	Began      time.Time
	Took       time.Duration
	Read       int64 // bytes that were read or digested, on both sides together
}

// VerifiedAmount counts what is the same on both sides.
type VerifiedAmount struct{ Batches, Records, Bytes int64 }

func (a *VerifiedAmount) add(b VerifiedAmount) {
	a.Batches, a.Records, a.Bytes = a.Batches+b.Batches, a.Records+b.Records, a.Bytes+b.Bytes
}

func (a VerifiedAmount) String() string {
	if a.Batches == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s, %s, %s", plural(int(a.Batches), "batch", "batches"), plural(int(a.Records), "record", "records"), plural(int(a.Bytes), "byte", "bytes"))
}

// Verification is what comparing copies with their source found. It is plain data.
type Verification struct {
	Mirror string
	Began  time.Time // zero: nothing was compared, and NotDone says why
	Took   time.Duration
	// NotDone is why nothing was compared at all; "" otherwise.
	NotDone string
	Ranges  []Verified // in the order in which they were compared; a partition may have several
}

// Verdict is the worst of all ranges, VerifiedNothing if there are none.
func (v Verification) Verdict() VerifiedVerdict {
	if len(v.Ranges) == 0 {
		return VerifiedNothing
	}
	return slices.MaxFunc(v.Ranges, func(a, b Verified) int { return cmp.Compare(a.Verdict.rank(), b.Verdict.rank()) }).Verdict
}

func (v VerifiedVerdict) rank() int {
	if i := slices.Index(verifiedVerdicts, v); i >= 0 {
		return i
	}
	return len(verifiedVerdicts) // of another Verifier: nothing is better known
}

// Wrong says that something was found that must not be: a difference or a hole.
func (v VerifiedVerdict) Wrong() bool { return v.rank() >= VerifiedHole.rank() }

// String is the verification for a person: the verdict first, then a line for each range.
func (v Verification) String() string {
	var t planText
	if v.Began.IsZero() {
		t.line("VERIFICATION  mirror %s  not done: %s", v.Mirror, cmp.Or(v.NotDone, "nobody asked for it"))
		return t.String()
	}
	t.line("VERIFICATION  mirror %s  %s  took %s", v.Mirror, stamp(v.Began), v.Took.Round(10*time.Microsecond))
	var bytewise, recordwise VerifiedAmount
	var uncomparable, unread int64
	count := map[VerifiedVerdict]int{}
	var rows, notes [][]string
	for _, r := range v.Ranges {
		name := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
		bytewise.add(r.Bytewise)
		recordwise.add(r.Recordwise)
		uncomparable, unread = uncomparable+r.Uncomparable, unread+r.Unread
		count[r.Verdict]++
		rows = append(rows, []string{name, fmt.Sprintf("[%d,%d)", r.From, r.To), KnownNumber(r.SourceEnd).String(), KnownNumber(r.CopyEnd).String(), plural(int(r.Bytewise.Bytes), "byte", "bytes"), plural(int(r.Recordwise.Bytes), "byte", "bytes"),
			plural(int(r.Uncomparable+r.Unread), "offset", "offsets"), string(r.Verdict)})
		for _, f := range r.Findings {
			notes = append(notes, []string{name, f})
		}
		if r.Reason != "" {
			notes = append(notes, []string{name, r.Reason})
		}
	}
	words := map[VerifiedVerdict]string{
		VerifiedIdentical: "IDENTICAL: as far as the copy goes, it has what the source has", VerifiedPartly: "NO DIFFERENCE, but not everything was compared",
		VerifiedNothing: "NOT COMPARED", VerifiedHole: "INCOMPLETE: one side lacks what the other one has", VerifiedDifferent: "DIFFERENT: the copy has something else than the source",
	}[v.Verdict()]
	ranges := plural(len(v.Ranges), "range", "ranges")
	switch wrong, away, partly := count[VerifiedHole]+count[VerifiedDifferent], count[VerifiedNothing], count[VerifiedPartly]; {
	case wrong > 0:
		words += fmt.Sprintf(", in %d of %s", wrong, ranges)
		if away > 0 {
			words += fmt.Sprintf("; %d not compared", away)
		}
	case away > 0 && away < len(v.Ranges):
		words += fmt.Sprintf(": %d of %s; no difference in the others", away, ranges)
	case away == 0 && partly > 0 && partly < len(v.Ranges):
		words += fmt.Sprintf(", in %d of %s", partly, ranges)
	}
	t.line("%s", cmp.Or(words, string(v.Verdict())))
	t.line("byte by byte: %s; record by record: %s; cannot be compared: %s; not looked at: %d", bytewise, recordwise, plural(int(uncomparable), "offset", "offsets"), unread)
	if len(rows) > 0 {
		t.line("")
		t.table([]string{"PARTITION", "OFFSETS", "SOURCE END", "COPY END", "BYTE BY BYTE", "RECORD BY RECORD", "NOT COMPARED", "RESULT"}, rows)
	}
	for i, n := range notes {
		if i == 0 {
			t.line("")
			t.line("a is the source, b the copy.")
		}
		t.line("%s: %s", n[0], n[1])
	}
	return t.String()
}

// NotCompared is the entry of a copy of which nothing is compared.
func NotCompared(tp TopicPartition, reason string) Verified {
	return Verified{Topic: tp.Topic, Partition: tp.Partition, Verdict: VerifiedNothing, SourceEnd: Unknown, CopyEnd: Unknown, FirstWrong: Unknown, Reason: reason}
}

const cleanupPolicy = "cleanup.policy"

// CompactedTopics says of which topics cleanup.policy has compact at one of these clusters, by a setting of the topic or, of a reader that is an EffectiveConfigReader, by default. A topic of which that
// is not read is in failed; one that a cluster does not have is as the others say.
func CompactedTopics(ctx context.Context, topics []string, readers ...TopicConfigReader) (compacted map[string]bool, failed map[string]error) {
	compacted, failed = map[string]bool{}, map[string]error{}
	unread := func(topic string, err error) {
		failed[topic] = fmt.Errorf("its cleanup.policy is not known, so a hole cannot be told from compaction: %w", err)
	}
	for _, reader := range readers {
		configs, err := cleanupPolicies(ctx, reader, topics)
		for _, topic := range topics {
			switch c := configs[topic]; {
			case err != nil:
				unread(topic, err)
			case c.Err != nil:
				unread(topic, c.Err)
			default:
				compacted[topic] = compacted[topic] || strings.Contains(c.Values[cleanupPolicy], "compact")
			}
		}
	}
	return compacted, failed
}

// cleanupPolicies are the policies that count, as far as the reader tells defaults: what a broker's cleaner took is no hole, whoever told it to.
func cleanupPolicies(ctx context.Context, reader TopicConfigReader, topics []string) (map[string]TopicConfigs, error) {
	if effective, ok := reader.(EffectiveConfigReader); ok {
		return effective.EffectiveConfigs(ctx, topics, cleanupPolicy)
	}
	return reader.TopicConfigs(ctx, topics)
}

// unreadable are settings that nobody can be asked for now.
type unreadable struct{ err error }

func (u unreadable) TopicConfigs(context.Context, []string) (map[string]TopicConfigs, error) {
	return nil, u.err
}

// compactedTopics is CompactedTopics of both sides, as far as they tell settings at all.
func (m *Mirror) compactedTopics(ctx context.Context, topics []string) (compacted map[string]bool, failed map[string]error) {
	var readers []TopicConfigReader
	reader, err := sourceAbility[TopicConfigReader](ctx, m)
	if err != nil {
		reader = unreadable{err}
	}
	if !errors.Is(err, ErrUnsupported) {
		readers = append(readers, reader)
	}
	if reader, ok := m.cfg.Destination.(TopicConfigReader); ok {
		readers = append(readers, reader)
	}
	bounded, stop := context.WithTimeout(ctx, m.cfg.CallBound)
	defer stop()
	return CompactedTopics(bounded, topics, readers...)
}

// verify compares ranges of this mirror's copies with its source. The Log and Compacted of each are filled in.
func (m *Mirror) verify(ctx context.Context, copies []CopyToVerify) Verification {
	v := Verification{Mirror: m.cfg.Name, Began: time.Now(), Ranges: []Verified{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(m.ctx, stop)() // Close waits for nobody's reading
	var topics []string
	for _, c := range copies {
		topics = append(topics, c.Topic)
	}
	slices.Sort(topics)
	compacted, failed := m.compactedTopics(ctx, slices.Compact(topics))
	var known []CopyToVerify
	for _, c := range copies {
		err := failed[c.Topic]
		if err == nil {
			c.Log, err = m.cfg.Destination.OpenLog(ctx, c.TopicPartition)
		}
		if err != nil {
			v.Ranges = append(v.Ranges, NotCompared(c.TopicPartition, err.Error()))
			continue
		}
		c.Compacted = compacted[c.Topic]
		known = append(known, c)
	}
	if len(known) > 0 {
		v.Ranges = append(v.Ranges, m.cfg.Verifier.Verify(ctx, m.cfg.Source, known)...)
	}
	v.Took = time.Since(v.Began)
	return v
}

// verifyFailback is the last step of a failback: what was copied since the cut first, then what was there before. It is bounded and changes nothing, whatever it finds.
func (m *Mirror) verifyFailback(ctx context.Context, plan *FailbackPlan, results []FailbackResult) Verification {
	if m.cfg.Verifier == nil {
		return Verification{Mirror: m.cfg.Name, NotDone: "this mirror has no Verifier"}
	}
	var since, before []CopyToVerify
	var away []Verified
	for _, r := range results {
		tp := TopicPartition{r.Topic, r.Partition}
		if r.Err != nil {
			away = append(away, NotCompared(tp, "it is not in step with its source"))
			continue
		}
		point := int64(0)
		if i := slices.IndexFunc(plan.Partitions, func(p FailbackPartition) bool { return p.Topic == r.Topic && p.Partition == r.Partition }); i >= 0 {
			point, _ = plan.Partitions[i].CommonPoint.Value()
		}
		since = append(since, CopyToVerify{TopicPartition: tp, From: point, To: Unknown})
		if point > 0 {
			before = append(before, CopyToVerify{TopicPartition: tp, To: point})
		}
	}
	ctx, stop := context.WithTimeout(ctx, m.cfg.VerifyBound)
	defer stop()
	v := m.verify(ctx, append(since, before...))
	v.Ranges = append(v.Ranges, away...)
	return v
}
