package statuspage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

// How much fits: with texts of others as long and as hostile as they can be, all of it together stays below 1 MiB.
const (
	mostMirrors    = 150
	mostWrong      = 40
	mostBad        = 60  // partitions of a mirror's page
	mostOfTopic    = 200 // partitions of a topic's page
	mostTopicRows  = 100
	mostLoud       = 40
	mostQuiet      = 20
	planRoom       = 32 << 10
	nameRoom       = 249 // of a topic, as in Kafka
	textRoom       = 400
	examplesOfEach = 2
)

// view is the page as data.
type view struct {
	Version int        `json:"version"`
	Title   string     `json:"title"`
	Taken   time.Time  `json:"taken"`
	Head    string     `json:"head"` // the worst thing, in one line
	Level   level      `json:"level"`
	Trouble []string   `json:"trouble"` // of the process
	Mirrors window     `json:"mirrorsShown"`
	List    []listed   `json:"mirrors"`
	Mirror  *detail    `json:"mirror"` // the one that is looked at; null: there are several
	Events  []happened `json:"events"` // the newest first
}

// window is which rows are shown of how many.
type window struct {
	From  int `json:"from"`
	Shown int `json:"shown"`
	Of    int `json:"of"`

	most int
}

func (w window) Next() int   { return w.From + w.Shown }
func (w window) More() bool  { return w.Next() < w.Of }
func (w window) First() int  { return w.From + 1 }
func (w window) Whole() bool { return w.Shown == w.Of }

// rows are those of a window.
func rows[T any](all []T, from, most int) ([]T, window) {
	from = min(from, len(all))
	all, w := all[from:min(len(all), from+most)], window{From: from, Of: len(all), most: most}
	w.Shown = len(all)
	return all, w
}

// listed is one of several mirrors.
type listed struct {
	Name       string   `json:"name"`
	Level      level    `json:"level"`
	Head       string   `json:"head"`
	Topics     int      `json:"topics"`
	Partitions int      `json:"partitions"`
	NotWell    int      `json:"partitionsNotWell"`
	AgeSeconds *float64 `json:"ageSeconds"` // of the oldest copy
}

// detail is one mirror.
type detail struct {
	Name        string     `json:"name"`
	Running     bool       `json:"running"`
	Taken       time.Time  `json:"taken"`
	Source      string     `json:"sourceClusterId"`
	Destination string     `json:"destinationClusterId"`
	Topic       string     `json:"topic,omitempty"` // the one that is looked at
	Risk        risk       `json:"risk"`
	Lag         *overTime  `json:"lagOverTime"` // null: no sample was taken
	WrongShown  window     `json:"wrongShown"`
	Wrong       []wrong    `json:"wrong"`
	TopicsShown window     `json:"topicsShown"`
	Topics      []topicRow `json:"topics"`
	// Partitions are those that are not well, the worst first; of a topic that is looked at: all.
	PartitionsShown window         `json:"partitionsShown"`
	Partitions      []partitionRow `json:"partitions"`
	Plan            *planned       `json:"failoverPlan"` // null: it does not run
}

// risk is what a failover now would lose.
type risk struct {
	AgeSeconds        *float64   `json:"ageSeconds"` // of the oldest copy that is known
	Oldest            string     `json:"oldest,omitempty"`
	UnknownAge        int        `json:"partitionsOfUnknownAge"`
	Offsets           int64      `json:"offsets"` // at least, if partitions are unknown
	UnknownOffsets    int        `json:"partitionsOfUnknownLag"`
	Bytes             int64      `json:"bytes"`
	UnknownBytes      int        `json:"partitionsOfUnknownBytes"`
	OpenTransactions  int        `json:"openTransactions"`
	Copies            int        `json:"copies"`
	SourceSeen        *time.Time `json:"sourceSeen"` // the oldest source end that Offsets is counted from
	SourceSeenSeconds *float64   `json:"sourceSeenAgeSeconds"`
	PredictedSeconds  *float64   `json:"failoverPredictedSeconds"`
}

// overTime are samples, the oldest first; null is one that could not be taken.
type overTime struct {
	Last            time.Time  `json:"last"`
	IntervalSeconds float64    `json:"intervalSeconds"`
	AgeSeconds      []*float64 `json:"ageSeconds"`
	Offsets         []*float64 `json:"offsets"`

	age, offsets []float32
}

// wrong is one thing that is wrong, and with how many.
type wrong struct {
	Level level    `json:"level"`
	What  string   `json:"what"` // a state, or what part of the mirror
	Count int      `json:"count"`
	Where []string `json:"where"` // the first of them
	Why   string   `json:"why"`

	rank rank
}

type topicRow struct {
	Topic      string   `json:"topic"`
	Level      level    `json:"level"`
	MirrorName string   `json:"mirrorName"` // what is wanted
	Partitions int      `json:"partitions"`
	NotWell    int      `json:"partitionsNotWell"`
	States     string   `json:"states"`
	Why        string   `json:"why,omitempty"` // of the topic as a whole
	AgeSeconds *float64 `json:"ageSeconds"`
	UnknownAge int      `json:"partitionsOfUnknownAge"`
	Offsets    int64    `json:"offsets"`
	UnknownLag int      `json:"partitionsOfUnknownLag"`

	copies int
	rank   rank
}

type partitionRow struct {
	Topic          string     `json:"topic"`
	Partition      int32      `json:"partition"`
	Level          level      `json:"level"`
	State          string     `json:"state"`
	Why            string     `json:"why,omitempty"`
	CopyEnd        int64      `json:"copyEnd"`
	SourceEnd      *int64     `json:"sourceEnd"`
	SourceSeen     *time.Time `json:"sourceSeen"`
	SeenAgeSeconds *float64   `json:"sourceSeenAgeSeconds"`
	Offsets        *int64     `json:"lagOffsets"`
	AgeSeconds     *float64   `json:"ageSeconds"`
	Open           int        `json:"openTransactions"`

	copy bool
}

// planned is the failover plan as it would be made now, as far as it fits.
type planned struct {
	Taken    time.Time       `json:"taken"`
	Hash     string          `json:"hash"`
	Severity mirror.Severity `json:"severity"`
	Text     string          `json:"text"`
	Cut      bool            `json:"cut"`
}

func plannedOf(plan mirror.FailoverPlan) planned {
	text := plan.String()
	shown := wholeLines(text, planRoom)
	return planned{Taken: plan.Taken, Hash: plan.Hash(), Severity: plan.Severity, Text: shown, Cut: len(shown) < len(text)}
}

// view makes the page; found is false where what is asked for is not there. plan is that of the mirror that is looked at, nil if there is none.
func (p *Page) view(asked asking) (v view, plan *mirror.FailoverPlan, found bool) {
	subjects := p.cfg.Mirrors()
	looks := p.lookAt(subjects)
	v = view{Version: 1, Title: clip(p.cfg.Title, nameRoom), Taken: time.Now().UTC().Truncate(time.Millisecond), Level: good, Trouble: []string{}}
	at := -1
	if asked.mirror == "" && len(subjects) == 1 {
		at = 0
	} else if asked.mirror != "" {
		at = slices.IndexFunc(subjects, func(s Subject) bool { return s.Name == asked.mirror })
		if at < 0 {
			return v, nil, false
		}
	}
	if asked.topic != "" && at < 0 {
		return v, nil, false
	}
	list := make([]listed, 0, len(subjects))
	first := at // whose head is the page's
	for i, s := range subjects {
		list = append(list, listedOf(s, looks[i]))
		if at < 0 && (first < 0 || list[i].Level.worse(list[first].Level)) {
			first = i
		}
	}
	switch {
	case first < 0:
		v.Head, v.Level = "NO MIRROR runs here", warning
	case at < 0:
		v.Head, v.Level = mirror.OneLine(list[first].Name)+": "+list[first].Head, list[first].Level
	default:
		v.Head, v.Level = list[first].Head, list[first].Level
	}
	if trouble := p.cfg.Trouble(); len(trouble) > 0 {
		for _, text := range trouble[:min(len(trouble), mostWrong)] {
			v.Trouble = append(v.Trouble, line(text, textRoom))
		}
		if v.Level != bad {
			v.Head = v.Trouble[0]
		}
		if v.Level = worst(v.Level, warning); first >= 0 {
			v.Level = bad // what it should run is there, and stands on something that does not hold
		}
	}
	name := ""
	if at < 0 {
		slices.SortStableFunc(list, func(a, b listed) int {
			return cmp.Or(cmp.Compare(order[a.Level], order[b.Level]), cmp.Compare(a.Name, b.Name))
		})
		v.List, v.Mirrors = rows(list, asked.from, mostMirrors)
	} else {
		name = subjects[at].Name
		v.List, v.Mirrors = list[at:at+1], window{From: at, Shown: 1, Of: len(list)}
		v.Mirror = &detail{Name: clip(name, nameRoom), Wrong: []wrong{}, Topics: []topicRow{}, Partitions: []partitionRow{}}
		if looks[at] != nil {
			if !v.Mirror.fill(looks[at], asked) {
				return v, nil, false
			}
			plan = &looks[at].plan
		} else if asked.topic != "" {
			return v, nil, false
		}
		if problem := subjects[at].Problem; problem != "" {
			v.Mirror.Wrong = append([]wrong{{Level: bad, What: "MIRROR", Count: 1, Where: []string{}, Why: line(problem, textRoom)}}, v.Mirror.Wrong...)
			v.Mirror.WrongShown.Shown++
			v.Mirror.WrongShown.Of++
		}
		if age, offsets, last, ok := p.lagOver(name, asked.topic); ok {
			v.Mirror.Lag = &overTime{last.UTC().Truncate(time.Millisecond), p.cfg.Interval.Seconds(), known(age), known(offsets), age, offsets}
		}
	}
	v.Events = p.recent.last(name, asked.topic, mostLoud, mostQuiet)
	if v.Events == nil {
		v.Events = []happened{}
	}
	return v, plan, true
}

// listedOf is a mirror in one row. l is nil if it does not run.
func listedOf(s Subject, l *look) listed {
	row := listed{Name: clip(s.Name, nameRoom), Level: good}
	if l == nil {
		row.Level, row.Head = bad, line("DOES NOT RUN: "+cmp.Or(s.Problem, "it is not known why"), textRoom)
		return row
	}
	row.Head = clip(l.snapshot.Head(), textRoom)
	if l.status.Fenced != nil {
		row.Head = line("FENCED: another process has it, this one has stopped serving it; "+row.Head, textRoom)
		row.Level = bad
	}
	if s.Problem != "" {
		row.Level = bad
	}
	for _, w := range troubles(l) {
		row.Level = worst(row.Level, w.Level)
	}
	for i := range l.status.Topics {
		t := &l.status.Topics[i]
		row.Topics++
		for j := range t.Partitions {
			row.Partitions++
			if r := rankOf(&t.Partitions[j]); r != well {
				row.NotWell++
				row.Level = worst(row.Level, r.level())
			}
		}
	}
	if r := l.status.AtRisk(); r.Partitions > 0 && r.UnknownAge == 0 {
		row.AgeSeconds = seconds(r.Age)
	}
	return row
}

// fill shows what is known of a mirror. false: the topic that is asked for is not there.
func (d *detail) fill(l *look, asked asking) bool {
	s := &l.status
	d.Running, d.Taken, d.Source, d.Destination, d.Topic = true, s.Taken.UTC().Truncate(time.Millisecond), clip(s.SourceClusterID, nameRoom), clip(s.DestinationClusterID, nameRoom), clip(asked.topic, nameRoom)
	topics := s.Topics
	if asked.topic != "" {
		i := slices.IndexFunc(topics, func(t mirror.TopicStatus) bool { return t.Topic == asked.topic })
		if i < 0 {
			return false
		}
		topics = topics[i : i+1]
	}
	d.Risk = riskNow(s.Taken, mirror.Status{Topics: topics}.AtRisk(), s.Failovers)
	var partitions []*mirror.PartitionStatus
	all := make([]topicRow, 0, len(topics))
	for i := range topics {
		all = append(all, topicRowOf(&topics[i]))
		for j := range topics[i].Partitions {
			if p := &topics[i].Partitions[j]; asked.topic != "" || rankOf(p) != well {
				partitions = append(partitions, p)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b topicRow) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.NotWell, a.NotWell), cmp.Compare(order2(b.AgeSeconds), order2(a.AgeSeconds)), cmp.Compare(a.Topic, b.Topic))
	})
	slices.SortFunc(partitions, worstFirst)
	var found []wrong
	if asked.topic == "" {
		found = troubles(l)
		d.Topics, d.TopicsShown = rows(all, asked.from, mostTopicRows)
	} else {
		found = topicTroubles(&topics[0])
		d.Topics, d.TopicsShown = rows(all, 0, 1)
	}
	found = gathered(append(found, wrongs(partitions)...))
	d.Wrong, d.WrongShown = rows(found, 0, mostWrong-1)
	var shown []*mirror.PartitionStatus
	if asked.topic == "" {
		shown, d.PartitionsShown = rows(partitions, 0, mostBad)
	} else {
		shown, d.PartitionsShown = rows(partitions, asked.from, mostOfTopic)
	}
	for _, p := range shown {
		d.Partitions = append(d.Partitions, partitionRowOf(p, s.Taken))
	}
	d.Plan = &l.planned
	return true
}

// riskNow is what is at risk, with the age of what that is counted from.
func riskNow(now time.Time, r mirror.AtRisk, measured []mirror.MeasuredFailover) risk {
	x := risk{UnknownAge: r.UnknownAge, Offsets: r.Offsets, UnknownOffsets: r.UnknownOffsets, Bytes: r.Bytes, UnknownBytes: r.UnknownBytes, OpenTransactions: r.OpenTransactions, Copies: r.Partitions}
	if r.Age != mirror.Unknown {
		x.AgeSeconds, x.Oldest = seconds(r.Age), place(r.Worst.Topic, r.Worst.Partition)
	}
	if !r.Seen.IsZero() {
		seen := r.Seen.UTC().Truncate(time.Millisecond)
		x.SourceSeen, x.SourceSeenSeconds = &seen, seconds(max(0, now.Sub(r.Seen)))
	}
	if longest, ok := mirror.PredictFailover(measured); ok {
		x.PredictedSeconds = seconds(longest.Took)
	}
	return x
}

// troubles are what is wrong with a mirror besides its partitions.
func troubles(l *look) (all []wrong) {
	s := &l.status
	add := func(level level, what, why string, where ...string) {
		for i := range where {
			where[i] = line(where[i], nameRoom)
		}
		all = append(all, wrong{Level: level, What: what, Count: 1, Where: slices.Concat([]string{}, where), Why: line(why, textRoom)})
	}
	if s.Fenced != nil {
		add(bad, "FENCED", s.Fenced.Error())
	}
	follows := copies(s)
	if l.snapshot.SourceError != "" && follows {
		add(bad, "SOURCE", "it does not answer: "+l.snapshot.SourceError)
	}
	open := make(map[string]bool, len(s.Topics))
	for i := range s.Topics {
		open[s.Topics[i].Topic] = true
		all = append(all, topicTroubles(&s.Topics[i])...)
	}
	for _, t := range l.snapshot.Topics {
		if !open[t.Topic] && t.Reason != "" {
			add(warning, "TOPIC", t.Reason, t.Topic)
		}
	}
	if o := s.OldSource; o != nil && !o.Returned.IsZero() {
		add(warning, "OLD SOURCE", "it answers again since "+stamp(o.Returned)+": keep its clients from it before they write there too, then plan the failback")
	}
	if n := l.snapshot.Unwanted; n > 0 {
		add(warning, "STORE", fmt.Sprintf("it has %d partitions in this mirror, not stopped, of topics that nobody wants here", n))
	}
	for _, part := range []struct {
		name string
		said mirror.SyncStatus
	}{{"GROUPS", s.Metadata.Groups}, {"TOPIC SETTINGS", s.Metadata.Configs}, {"ACCESS RULES", s.Metadata.ACLs}} {
		if follows && part.said.Off == "" && part.said.Err != nil {
			add(warning, part.name, "not followed now: "+part.said.Err.Error())
		}
	}
	return all
}

// copies says whether anything is to be copied: else nothing hangs on the source, and a silent one is as it should be.
func copies(s *mirror.Status) bool {
	return s.AtRisk().Partitions > 0 || slices.ContainsFunc(s.Topics, func(t mirror.TopicStatus) bool {
		return len(t.Partitions) == 0 && t.MirrorName != statemachine.MirrorNameValue(s.Mirror, statemachine.WantStopped)
	})
}

// topicTroubles are what is wrong with a topic besides its partitions.
func topicTroubles(t *mirror.TopicStatus) (all []wrong) {
	if t.Err != nil {
		all = append(all, wrong{Level: bad, What: "TOPIC", Count: 1, Where: []string{line(t.Topic, nameRoom)}, Why: line(t.Err.Error(), textRoom)})
	}
	for _, b := range t.SplitBrain {
		all = append(all, wrong{Level: bad, What: "SPLIT BRAIN", Count: 1, Where: []string{place(t.Topic, b.Partition)}, Why: line(b.String(), textRoom)})
	}
	return all
}

// wrongs is what is wrong with these partitions.
func wrongs(partitions []*mirror.PartitionStatus) (all []wrong) {
	for _, p := range partitions {
		if r := rankOf(p); r != well {
			all = append(all, wrong{Level: r.level(), What: p.State.String(), Count: 1, Where: []string{place(p.Topic, p.Partition)}, Why: line(why(p), textRoom), rank: r})
		}
	}
	return all
}

// gathered are things that are wrong, the worst first: those that differ only in where they are, together.
func gathered(all []wrong) []wrong {
	type same struct {
		level     level
		what, why string
		rank      rank
	}
	at := map[same]int{}
	var few []wrong
	for _, w := range all {
		key := same{w.Level, w.What, w.Why, w.rank}
		i, ok := at[key]
		if !ok {
			at[key] = len(few)
			few = append(few, w)
			continue
		}
		few[i].Count += w.Count
		few[i].Where = append(few[i].Where, w.Where...)
		few[i].Where = few[i].Where[:min(len(few[i].Where), examplesOfEach)]
	}
	slices.SortStableFunc(few, func(a, b wrong) int {
		return cmp.Or(cmp.Compare(order[a.Level], order[b.Level]), cmp.Compare(a.rank, b.rank), cmp.Compare(b.Count, a.Count))
	})
	return few
}

func topicRowOf(t *mirror.TopicStatus) topicRow {
	row := topicRow{Topic: clip(t.Topic, nameRoom), MirrorName: line(t.MirrorName, nameRoom), Partitions: len(t.Partitions), Level: good, rank: well}
	if t.Err != nil {
		row.Level, row.rank, row.Why = bad, failed, line(t.Err.Error(), textRoom)
	} else if len(t.Partitions) == 0 {
		row.Level, row.rank, row.Why = warning, elsewhere, "its partitions are not open here yet"
	}
	states := map[statemachine.State]int{}
	var seen []statemachine.State
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if states[p.State] == 0 {
			seen = append(seen, p.State)
		}
		states[p.State]++
		if r := rankOf(p); r != well {
			row.NotWell++
			row.rank = min(row.rank, r)
			row.Level = worst(row.Level, r.level())
		}
	}
	slices.SortStableFunc(seen, func(a, b statemachine.State) int { return cmp.Compare(states[b], states[a]) })
	var words []string
	for _, s := range seen {
		words = append(words, fmt.Sprintf("%d %s", states[s], s))
	}
	row.States = strings.Join(words, ", ")
	r := riskOf(*t)
	row.copies, row.UnknownAge, row.Offsets, row.UnknownLag = r.Partitions, r.UnknownAge, r.Offsets, r.UnknownOffsets
	if r.Age != mirror.Unknown {
		row.AgeSeconds = seconds(r.Age)
	}
	return row
}

func partitionRowOf(p *mirror.PartitionStatus, now time.Time) partitionRow {
	row := partitionRow{Topic: clip(p.Topic, nameRoom), Partition: p.Partition, Level: rankOf(p).level(), State: p.State.String(), Why: line(strings.TrimPrefix(why(p)+more(p, now), "; "), textRoom), CopyEnd: p.Replicated, Open: len(p.InFlight), copy: !over(p)}
	if p.SourceEnd != mirror.Unknown && !p.SourceSeen.IsZero() {
		end, seen := p.SourceEnd, p.SourceSeen.UTC().Truncate(time.Millisecond)
		row.SourceEnd, row.SourceSeen, row.SeenAgeSeconds = &end, &seen, seconds(max(0, now.Sub(p.SourceSeen)))
	}
	if !over(p) {
		if p.LagOffsets != mirror.Unknown {
			offsets := p.LagOffsets
			row.Offsets = &offsets
		}
		if p.LagTime != mirror.Unknown {
			row.AgeSeconds = seconds(p.LagTime)
		}
	}
	return row
}

// place names a partition.
func place(topic string, partition int32) string {
	return line(topic, nameRoom) + "-" + strconv.Itoa(int(partition))
}

// known are samples for JSON.
func known(all []float32) []*float64 {
	out := make([]*float64, len(all))
	for i, v := range all {
		if v != unknown {
			x := math.Round(float64(v)*1000) / 1000
			out[i] = &x
		}
	}
	return out
}

func seconds(d time.Duration) *float64 {
	s := math.Round(d.Seconds()*1000) / 1000
	return &s
}

// order2 is an age for sorting: one that nobody knows is the worst.
func order2(age *float64) float64 {
	if age == nil {
		return math.Inf(1)
	}
	return *age
}

// clip is a text that is not longer than so many characters, and valid UTF-8.
func clip(s string, room int) string {
	if len(s) <= room {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	n := 0
	for i := range s {
		if n++; n == room {
			return strings.ToValidUTF8(s[:i], "\uFFFD") + "…"
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// line is a text of others for a place in a line, not longer than so many characters by much.
func line(s string, room int) string { return mirror.OneLine(clip(s, room)) }

// wholeLines is the beginning of a text, cut between lines.
func wholeLines(s string, room int) string {
	if len(s) <= room {
		return s
	}
	return s[:strings.LastIndexByte(s[:room], '\n')+1]
}

// span is a time in words that fit beside a number: "<1s", "12s", "3m", "2h", "4d".
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "<1s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
