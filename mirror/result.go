package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// reasonLength is how many characters an Intent.Reason has at most.
const reasonLength = 1000

// Intent is why a verb is used and of which clusters it is meant. Every field may be empty, unless the Admin is strict. It is recorded in the history.
type Intent struct {
	Reason string // one line, at most 1000 characters
	// Plan is Result.Plan of a dry run: the verb is refused, and nothing changes, when it would do anything else than that dry run said.
	Plan string
	// SourceClusterID and DestinationClusterID are which clusters the operator means; others are refused before anything is written.
	SourceClusterID      string
	DestinationClusterID string
	detail               string // what the history says besides: which failover or failback the verb is a part of
}

// fault is why the intent cannot be meant, "" if it can: the history shows it as one line.
func (i Intent) fault() string {
	if n := utf8.RuneCountInString(i.Reason); n > reasonLength {
		return fmt.Sprintf("a reason has at most %d characters, this one %d", reasonLength, n)
	}
	if at := strings.IndexFunc(i.Reason, forges); at >= 0 {
		r, _ := utf8.DecodeRuneInString(i.Reason[at:])
		return fmt.Sprintf("a reason is one line of text, and this one has the character %q", r)
	}
	return ""
}

// forges says whether a character in a text makes what is printed look like something else: it ends the line, moves the cursor, or turns the order round.
func forges(r rune) bool {
	if r < utf8.RuneSelf { // of the long tables nothing is there
		return r < ' ' || r == 0x7f
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// OneLine is a text that somebody else wrote, such as the reason of a HistoryEntry, for a place in a line: characters that would end the line, move the cursor or turn the order
// of reading are written as in Go.
func OneLine(text string) string {
	if strings.IndexFunc(text, forges) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if forges(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Clusters are the two sides of a mirror, to be shown before anything is opened, discarded or deleted. "" is not known.
type Clusters struct {
	SourceID             string
	SourceBootstrap      string
	DestinationID        string
	DestinationBootstrap string
}

// String is "source ID (bootstrap) → destination ID (bootstrap)". A bootstrap that is not known is left out, an id that is not known is said to be.
func (c Clusters) String() string {
	side := func(id, bootstrap string) string {
		if bootstrap == "" {
			return orUnknown(id)
		}
		return orUnknown(id) + " (" + bootstrap + ")"
	}
	return fmt.Sprintf("source %s → destination %s", side(c.SourceID, c.SourceBootstrap), side(c.DestinationID, c.DestinationBootstrap))
}

// Result is what a verb did, or would do (DryRun).
type Result struct {
	Verb     string
	Mirror   string
	DryRun   bool
	Clusters Clusters
	// Topics has one result for each topic that the verb is about, in the order of the request; for patterns and for all topics by name.
	Topics []TopicResult
	// Settings are those that AlterConfig changes, or Start and Stop by patterns and names, by name.
	Settings []SettingChange
	// Plan names exactly what this call did or would do: the same request against the same desired state and the same clusters gives the same.
	Plan string
	// Warnings are what the operator has to know first, one sentence each: what was asked for is recorded, or would be, and may still not come about.
	Warnings []string
	// Notes are what the operator should know besides, one sentence each.
	Notes []string
	// TornTransactions are those that a stop tears apart, as reported; Notes say what of it is not known.
	TornTransactions []TornTransaction
	// Cut is what a stop with TornCut would give up, of all topics of the mirror together, as reported; nil: nobody has reported it.
	Cut *ConsistentCut
}

// TopicResult is what a verb did for one topic.
type TopicResult struct {
	Topic   string
	Err     error // an *Error; nil: what was asked for is recorded
	Changed bool  // false: it was so before, or Err
	// Opens: what is asked for is a stop, also one because the topic is excluded now. It opens the topic for clients.
	Opens bool
	// Unfinished, of a topic whose stop was recorded before: what is missing yet, "" if every partition is STOPPED.
	Unfinished string

	excluded bool // it opens only because a filter excludes it now, which nobody may have meant
}

// SettingChange is one setting of a mirror before and after, as anybody may see it: a secret is "[hidden]". What is not set is "(default …)", or "(none)".
type SettingChange struct{ Name, Old, New string }

// String is "name: old → new".
func (x SettingChange) String() string { return fmt.Sprintf("%s: %s → %s", x.Name, x.Old, x.New) }

// changedSettings are the settings in which two versions of a mirror's differ, by name. Both have them under their own names.
func changedSettings(before, after Settings) (changes []SettingChange) {
	both := maps.Clone(before)
	if both == nil {
		both = Settings{}
	}
	maps.Copy(both, after)
	told := func(s Settings, name string) string {
		value, set := s[name]
		d, known := lookUpSetting(name)
		switch {
		case set && value == "":
			return "(empty)"
		case set:
			return s.shown(name)
		case known && d.Default != "":
			return "(default " + d.Default + ")"
		}
		return "(none)"
	}
	for _, name := range settingNames(both) {
		was, had := before[name]
		if now, has := after[name]; had != has || was != now {
			changes = append(changes, SettingChange{name, told(before, name), told(after, name)})
		}
	}
	return changes
}

// changeWords are changes for the history, where an entry is one record: of long values the beginning.
func changeWords(changes []SettingChange) string {
	const most = 300
	cut := func(value string) string {
		if r := []rune(value); len(r) > most {
			return string(r[:most]) + "…"
		}
		return value
	}
	var words []string
	for _, x := range changes {
		words = append(words, SettingChange{x.Name, cut(x.Old), cut(x.New)}.String())
	}
	return strings.Join(words, "; ")
}

// String is the result for a person: the warnings and which clusters it is about, then a line for each topic, then what else there is to know.
func (r Result) String() string {
	var t planText
	for _, w := range r.Warnings {
		t.line("%s", w)
	}
	t.line("%s", r.Clusters)
	done, head := "recorded", r.Verb
	if r.DryRun {
		done, head = "would be recorded", "dry run of "+r.Verb
	}
	t.line("%s, mirror %s", head, r.Mirror)
	for _, x := range r.Settings {
		t.line("%s: %s", done, x)
	}
	for _, x := range r.Topics {
		switch {
		case x.Err != nil:
			t.line("%s: REFUSED: %v", x.Topic, x.Err)
		case x.Changed && x.excluded && r.DryRun:
			t.line("%s: excluded now: would be stopped, that is opened for clients", x.Topic)
		case x.Changed && x.excluded:
			t.line("%s: excluded now: stop recorded, not open yet; watch Describe until STOPPED", x.Topic)
		case x.Changed && x.Opens && r.DryRun:
			t.line("%s: would be opened for clients", x.Topic)
		case x.Changed && x.Opens:
			t.line("%s: recorded, not open yet; watch Describe until STOPPED", x.Topic)
		case x.Changed:
			t.line("%s: %s", x.Topic, done)
		case x.Unfinished != "":
			t.line("%s: wanted already, %s", x.Topic, x.Unfinished)
		default:
			t.line("%s: is so already", x.Topic)
		}
	}
	for _, n := range r.Notes {
		t.line("note: %s", n)
	}
	if r.Plan != "" {
		t.line("plan %s", r.Plan)
	}
	return t.String()
}

// planHash is three short hashes, so that a plan that does not fit any more can say what has changed: the request, the clusters, what would be done.
func planHash(request, clusters, decisions []string) string {
	parts := make([]string, 0, 3)
	for _, p := range [][]string{request, clusters, decisions} {
		h := sha256.New()
		for _, s := range p {
			fmt.Fprintf(h, "%d:%s,", len(s), s) // lengths, so that nothing can be moved from one string to the next
		}
		parts = append(parts, hex.EncodeToString(h.Sum(nil))[:8])
	}
	return strings.Join(parts, "-")
}

// sameRequest says whether two plans are for the same request between the same clusters.
func sameRequest(a, b string) bool {
	x, y := strings.Split(a, "-"), strings.Split(b, "-")
	return len(x) == 3 && len(y) == 3 && x[0] == y[0] && x[1] == y[1]
}

// planDifference says what differs between the plan that was asked for and the one that would be carried out.
func planDifference(asked, now string) string {
	a, n := strings.Split(asked, "-"), strings.Split(now, "-")
	if len(a) != len(n) {
		return "it is not the plan of any dry run"
	}
	var differ []string
	for i, what := range []string{"it was made for another request", "it was made for other clusters or another store", "it would do something else now"} {
		if a[i] != n[i] {
			differ = append(differ, what)
		}
	}
	return strings.Join(differ, ", ")
}
