package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/txncut"
)

// TornPolicy is what a failover does about transactions that it would tear apart: that end committed in some partitions and aborted in others, because their COMMIT has reached one copy and not the
// other when the source is lost (package txncut).
type TornPolicy string

// The policies.
const (
	// TornAbort, the default: what has no marker is aborted, as KIP-1279 has it. Plan and report list what that tears.
	TornAbort TornPolicy = "abort"
	// TornRefuse: where a transaction is torn, or may be, nothing is stopped (*TornTransactionsError), and a person decides.
	TornRefuse TornPolicy = "refuse"
	// TornCut: every copy is cut back to the newest point at which no transaction is torn, and ends there (ConsistentCut). Beyond MaxGiveUp, where readers may have seen what would go and the caller has not
	// said that they may, or where not all of the copies can be looked at and cut together, it is as TornAbort, and says so.
	TornCut TornPolicy = "consistent-cut"
)

// known says whether there is such a policy.
func (p TornPolicy) known() bool {
	return slices.Contains([]TornPolicy{"", TornAbort, TornRefuse, TornCut}, p)
}

// stored is the policy as plans have it: the default is not named, so plans of it are as they always were.
func (p TornPolicy) stored() TornPolicy {
	if p == TornAbort {
		return ""
	}
	return p
}

// TornTransaction is one transaction that ends committed in some partitions and aborted in others, if the copies are opened as they are.
type TornTransaction struct {
	ProducerID    int64 `json:"producerId"`
	ProducerEpoch int16 `json:"producerEpoch"` // of its data
	// Possibly: under transactions v1 producer id and epoch name many transactions, so an open piece may belong to a COMMIT elsewhere, and times do not exclude it. It is treated as torn.
	Possibly  bool               `json:"possibly"`
	Committed []TransactionPlace `json:"committed"` // its COMMIT markers; of one that is possibly torn each that may be its
	Aborted   []TransactionPlace `json:"aborted"`   // the first offsets of its data where there is no marker, which a stop aborts
}

// TransactionPlace is one offset of a partition.
type TransactionPlace struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

func (p TransactionPlace) String() string {
	return fmt.Sprintf("%s-%d at %d", p.Topic, p.Partition, p.Offset)
}

// String is one line for a person.
func (t TornTransaction) String() string {
	certainty := "torn"
	if t.Possibly {
		certainty = "possibly torn"
	}
	return fmt.Sprintf("producer %d epoch %d, %s: committed in %s; aborted in %s", t.ProducerID, t.ProducerEpoch, certainty, placeNames(t.Committed), placeNames(t.Aborted))
}

func placeNames(places []TransactionPlace) string {
	var names []string
	for _, p := range places {
		names = append(names, p.String())
	}
	return few(names)
}

// TornTransactions are those that a look at the copies has found.
type TornTransactions struct {
	Looked       time.Time         `json:"looked,omitzero"` // when the look was made; zero: nobody has looked
	Transactions []TornTransaction `json:"transactions,omitempty"`
	More         int               `json:"more,omitempty"` // that a report has no room for
	// Unlooked are copies of which not everything was looked at: transactions there are not in Transactions.
	Unlooked     []UnlookedCopy `json:"unlooked,omitempty"`
	MoreUnlooked int            `json:"moreUnlooked,omitempty"` // that a report has no room for
	// Cut is the consistent cut that would leave none of them torn; nil where it was not looked for. In a report of a process that of all its topics together.
	Cut *ConsistentCut `json:"cut,omitempty"`
	// Error is why nobody has looked; "" if somebody has, or if no transaction is open, so that none can be torn.
	Error string `json:"error,omitempty"`
}

// UnlookedCopy is a copy that was looked at down to an offset: a transaction that began below it may be torn and is not found.
type UnlookedCopy struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Below     int64  `json:"below"`
	Reason    string `json:"reason,omitempty"` // why it could not be read; "" where the bytes or the time of a look were used up
}

// unread says that some copy could not be read at all, or that nobody has looked: none can be said not to be torn.
func (t *TornTransactions) unread() string {
	if t.Error != "" {
		return t.Error
	}
	for _, x := range t.Unlooked {
		if x.Reason != "" {
			return fmt.Sprintf("%s-%d was not read: %s", x.Topic, x.Partition, x.Reason)
		}
	}
	return ""
}

// found counts them.
func (t *TornTransactions) found() (certain, possible int) {
	for _, x := range t.Transactions {
		if x.Possibly {
			possible++
		} else {
			certain++
		}
	}
	return certain, possible
}

// words are how many there are, "" if none.
func (t *TornTransactions) words() string {
	certain, possible := t.found()
	var parts []string
	if certain > 0 {
		parts = append(parts, fmt.Sprintf("%d torn", certain))
	}
	if possible > 0 {
		parts = append(parts, fmt.Sprintf("%d possibly torn", possible))
	}
	if t.More > 0 {
		parts = append(parts, fmt.Sprintf("%d more", t.More))
	}
	return strings.Join(parts, ", ")
}

// within is a part of it: what is aborted in these partitions.
func (t TornTransactions) within(aborts func(TopicPartition) bool) TornTransactions {
	all := t.Transactions
	t.Transactions = nil
	for _, x := range all {
		x.Aborted = slices.DeleteFunc(slices.Clone(x.Aborted), func(p TransactionPlace) bool { return !aborts(TopicPartition{p.Topic, p.Partition}) })
		if len(x.Aborted) > 0 {
			t.Transactions = append(t.Transactions, x)
		}
	}
	return t
}

// bounded is what a report has room for.
func (t TornTransactions) bounded() TornTransactions {
	const most, mostPlaces = 50, 20
	t.More, t.Transactions = max(0, len(t.Transactions)-most), slices.Clone(t.Transactions[:min(len(t.Transactions), most)])
	for i := range t.Transactions {
		x := &t.Transactions[i]
		x.Committed, x.Aborted = x.Committed[:min(len(x.Committed), mostPlaces)], x.Aborted[:min(len(x.Aborted), mostPlaces)]
	}
	t.MoreUnlooked, t.Unlooked = max(0, len(t.Unlooked)-most), slices.Clone(t.Unlooked[:min(len(t.Unlooked), most)])
	for i := range t.Unlooked {
		t.Unlooked[i].Reason = shorten(t.Unlooked[i].Reason)
	}
	t.Error, t.Cut = shorten(t.Error), t.Cut.bounded()
	return t
}

// valid is the form in which it can be stored.
func (t *TornTransactions) valid() *TornTransactions {
	if t == nil {
		return nil
	}
	v := t.bounded()
	v.Looked, v.Error = storedTime(v.Looked), validText(v.Error)
	if v.Cut != nil {
		v.Cut.Why = validText(v.Cut.Why)
	}
	for i := range v.Unlooked {
		v.Unlooked[i].Reason = validText(v.Unlooked[i].Reason)
	}
	return &v
}

// ErrTornTransactions: a failover would tear transactions apart, and its policy is to refuse that. errors.As finds the *TornTransactionsError.
var ErrTornTransactions = errors.New("mirror: transactions would be torn apart")

// TornTransactionsError: nothing was stopped, because transactions would end committed in some partitions and aborted in others, or because it could not be looked whether any would.
type TornTransactionsError struct {
	Torn TornTransactions
}

func (e *TornTransactionsError) Error() string {
	if len(e.Torn.Transactions) == 0 {
		return "it is not known whether transactions would be torn apart: " + cmp.Or(e.Torn.unread(), "nobody has looked")
	}
	var each []string
	for _, x := range e.Torn.Transactions {
		each = append(each, x.String())
	}
	const most = 3
	if more := len(each) - most + e.Torn.More; more > 0 && len(each) > most {
		each = append(each[:most], fmt.Sprintf("and %d more", more))
	}
	return e.Torn.words() + ": " + strings.Join(each, "; ")
}

// Is says that it is ErrTornTransactions.
func (e *TornTransactionsError) Is(target error) bool { return target == ErrTornTransactions }

// refusal is why a stop is refused under TornRefuse, nil if it is not.
func (t *TornTransactions) refusal(mirror string) error {
	if len(t.Transactions) == 0 && t.unread() == "" {
		return nil
	}
	return &Error{Code: InvalidClusterMirrorState, Mirror: mirror, Partition: -1, Err: &TornTransactionsError{*t},
		Message: "nothing is stopped, because transactions may be torn apart: bring the source back and end its producers (Promote waits for their transactions), or stop with policy abort, " +
			"which ends them committed in some partitions and aborted in others. Nothing has changed"}
}

// TransactionLook is what a look at the copies of a mirror has shown of their transactions: Mirror.Snapshot looks, wherever one is open. It asks no source.
type TransactionLook struct {
	Taken  time.Time
	Copies []CopyLook // in any order
	// Readable: clients may read the copies while they are mirrored, as far as the Destination tells (CopyReadTeller).
	Readable bool
}

// CopyLook is a look at one copy.
type CopyLook struct {
	TopicPartition
	Start, End int64 // of what a stop keeps: the log's start, and its replicated end, or where the mirror ended
	From       int64 // what lies below was not read; Start: everything was
	// Floor is the lowest offset that the copy may be cut to (TornCut): Start, or End where clients could write the log before this episode, as where they ended is not recorded.
	Floor  int64
	Pieces []txncut.Piece // of its transactions, as far down as was read
	Error  string         // why it could not be read, "" if it was

	within time.Duration // the bound of the look
	edge   lookEdge
	sizes  []sizeFrom // by offset
}

// torn says which transactions are torn if the copies are opened.
func (l *TransactionLook) torn(skew time.Duration) TornTransactions {
	t := TornTransactions{Looked: l.Taken.Round(0).UTC()}
	copies := l.sorted()
	partitions := make([]txncut.Partition, 0, len(copies))
	for _, c := range copies {
		partitions = append(partitions, c.partition())
		if c.From > c.Start || c.Error != "" {
			t.Unlooked = append(t.Unlooked, UnlookedCopy{Topic: c.Topic, Partition: c.Partition, Below: c.From, Reason: c.Error})
		}
	}
	places := func(all []txncut.Place) (places []TransactionPlace) {
		for _, p := range all {
			places = append(places, TransactionPlace(p))
		}
		return places
	}
	for _, x := range txncut.Find(partitions, txncut.Options{Skew: skew}).Torn {
		t.Transactions = append(t.Transactions, TornTransaction{ProducerID: x.ProducerID, ProducerEpoch: x.ProducerEpoch, Possibly: x.Certainty == txncut.Possible,
			Committed: places(x.Committed), Aborted: places(x.Missing)})
	}
	return t
}

// sorted are the copies by topic and partition.
func (l *TransactionLook) sorted() []CopyLook {
	copies := slices.Clone(l.Copies)
	slices.SortFunc(copies, func(a, b CopyLook) int { return compareTopicPartitions(a.TopicPartition, b.TopicPartition) })
	return copies
}

// partition is the copy as package txncut has it.
func (c *CopyLook) partition() txncut.Partition {
	return txncut.Partition{Topic: c.Topic, Number: c.Partition, Floor: c.Start, End: c.End, Pieces: c.Pieces, Complete: true}
}

// planTorn puts what is torn into a plan, and what is done about it. It returns how many offsets that gives up.
func (p *FailoverPlan) planTorn(s *Snapshot) (givenUp int64) {
	look := s.Transactions
	stops, opens := map[TopicPartition]bool{}, 0
	for i := range p.Partitions {
		x := &p.Partitions[i]
		stops[TopicPartition{x.Topic, x.Partition}] = x.Outcome != OutcomeRefused
		opens += len(x.Aborts)
	}
	switch {
	case look != nil:
		p.TornTransactions = look.torn(p.ClockSkew).within(func(tp TopicPartition) bool { return stops[tp] })
	case opens > 0:
		p.TornTransactions.Error = "nobody has looked at the copies"
	}
	switch p.TornPolicy {
	case TornRefuse:
		if p.TornTransactions.refusal(p.Mirror) != nil {
			p.Severity = SeverityRefused
		}
	case TornCut:
		givenUp = p.planCut(s)
		if p.TornTransactions.Cut.refusal(p.Mirror, p.CutReaders) != nil {
			p.Severity = SeverityRefused
		}
	}
	return givenUp
}

// line is the verdict on torn transactions; "" where none is open.
func (t *TornTransactions) line(policy TornPolicy) string {
	const head = "TORN TRANSACTIONS: "
	switch words := t.words(); {
	case words != "" && policy == TornRefuse:
		return "REFUSED: " + words + ", and the policy is to refuse that; see below what to do"
	case words != "" && policy == TornCut && t.Cut != nil && t.Cut.Why == "":
		return head + words + " as the copies are, none seen after the consistent cut" + behindNote + "; see below"
	case words != "":
		return head + words + ": committed in some partitions, aborted in others; see below"
	case t.unread() != "" && policy == TornRefuse:
		return "REFUSED: whether transactions are torn is not known (" + t.unread() + "), and the policy is to refuse that"
	case t.unread() != "":
		return head + "not known: " + t.unread()
	case !t.Looked.IsZero() && len(t.Unlooked) > 0:
		return head + "none is seen, as far down as was looked" + behindNote + "; see below"
	case !t.Looked.IsZero():
		return head + "none seen" + behindNote
	}
	return ""
}

// behindNote is what no look at copies tells: a commit of which one copy has its part, and another, which is behind, has nothing yet (txncut's Result.Unseen).
const behindNote = "; a copy that is behind may lack its part of one"

// lines are what a person has to know of it before a stop, where a process has looked.
func (t *TornTransactions) lines(now time.Time) (lines []string) {
	words := t.words()
	if words == "" || t.Looked.IsZero() {
		if !t.Looked.IsZero() && t.unread() != "" {
			lines = append(lines, "TORN TRANSACTIONS: not known: "+t.unread())
		}
		return lines
	}
	lines = append(lines, fmt.Sprintf("TORN TRANSACTIONS: %s: committed in some partitions, and aborted in others by the stop (as reported %s)", words, age(max(0, now.Sub(t.Looked)))))
	const most = 20
	for _, x := range t.Transactions[:min(len(t.Transactions), most)] {
		lines = append(lines, x.String())
	}
	if more := len(t.Transactions) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more transactions", more))
	}
	if line := t.unlookedLine(); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// unlookedLine says what was not looked at, "" if everything was.
func (t *TornTransactions) unlookedLine() string {
	if len(t.Unlooked) == 0 {
		return ""
	}
	var names []string
	for _, x := range t.Unlooked {
		names = append(names, fmt.Sprintf("%s-%d not looked at below offset %d%s", x.Topic, x.Partition, x.Below, because(x.Reason)))
	}
	const most = 5
	if more := len(names) - most + t.MoreUnlooked; more > 0 {
		names = append(names[:min(len(names), most)], fmt.Sprintf("and %d more", more))
	}
	return "A transaction that began further down may be torn and is not in this list: " + strings.Join(names, ", ")
}

// mostTorn is how many are shown in a text.
const mostTorn = 50

// text is the section of a plan or report.
func (t *TornTransactions) text(to *planText, policy TornPolicy) {
	if len(t.Transactions) == 0 && len(t.Unlooked) == 0 {
		return
	}
	to.line("")
	if len(t.Transactions) > 0 {
		var rows [][]string
		for _, x := range t.Transactions[:min(len(t.Transactions), mostTorn)] {
			certainty := "torn"
			if x.Possibly {
				certainty = "possibly torn"
			}
			rows = append(rows, []string{fmt.Sprint(x.ProducerID), fmt.Sprint(x.ProducerEpoch), certainty, placeNames(x.Committed), placeNames(x.Aborted)})
		}
		to.table([]string{"PRODUCER", "EPOCH", "TRANSACTION", "COMMITTED", "ABORTED, FROM"}, rows)
		if more := len(t.Transactions) - len(rows) + t.More; more > 0 {
			to.line("and %d more; those that were found are in JSON", more)
		}
		to.line("")
		to.line("COMMITTED: where its COMMIT is in the copy. ABORTED, FROM: where its data are and no COMMIT, from the first offset on: a stop aborts them. possibly torn: the producer uses transactions")
		to.line("v1, whose copies do not tell to which of its transactions an open piece belongs; it is treated as torn.")
		if policy == TornRefuse {
			to.line("What to do: bring the source back and end its producers, or promote, which waits for their transactions; or plan with policy abort, which tears the transactions above.")
		}
	}
	if line := t.unlookedLine(); line != "" {
		to.line("%s", line)
	}
}
