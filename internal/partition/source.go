package partition

import (
	"fmt"
	"time"

	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
)

// source is what is known of the partition at the source, and the search for the point up to which the two logs are one.
type source struct {
	src      SourceView
	seen     time.Time
	cluster  string               // the cluster that is mirrored, "" until one was seen
	topicID  statemachine.TopicID // the topic there, zero until one was seen
	caughtUp time.Time

	oldLooks int // answers of a deposed leader in a row

	search     *logtrunc.Search
	searchEnd  int64
	searchThen func(*Core)
	doubt      string // why the answers so far prove nothing, "" if they may
	firstPoint int64
	firstEpoch int32
	confirming bool // the search under way is the second one
	denied     bool
}

func newSource(cluster string) source {
	return source{
		src:     SourceView{LeaderID: -1, LeaderEpoch: -1, LogStart: -1, HighWatermark: -1, LME: -1, LMO: -1},
		cluster: cluster,
	}
}

// expect notes which cluster and topic the log was copied from so far: what the record says, else what the last stop recorded.
func (c *Core) expect() {
	if c.cluster == "" {
		c.cluster = c.rec.SourceClusterID
	}
	c.topicID = c.rec.SourceTopicID
	if c.lme == nil || c.rec.State == statemachine.Unknown {
		return // an end that another mirror recorded, perhaps out of another cluster, says nothing about whom this one copies
	}
	if c.cluster == "" {
		c.cluster = c.lme.SourceClusterID
	}
	if c.topicID == (statemachine.TopicID{}) && (c.cluster == c.lme.SourceClusterID || c.lme.SourceClusterID == "") {
		c.topicID = c.lme.SourceTopicID
	}
}

// askSource asks about the source partition with fresh metadata, and goes on when the answer is taken.
//
// A leader epoch below one that was seen of this topic is that of a leader that was deposed, or of old metadata: what it says of the log is nothing to act on (decision 15), and it is asked
// again. When that does not end, the source may really have gone back, as one that was restored from a backup has: the partition fails and says so.
func (c *Core) askSource(e Effect, then func(*Core)) {
	c.oldLooks = 0
	c.askNewSource(e, then)
}

func (c *Core) askNewSource(e Effect, then func(*Core)) {
	e.Kind, e.Refresh = CheckSource, true
	c.ask(e, func(c *Core, answer *Event) {
		v := &answer.Source
		if answer.Err != nil || v.Refused != "" || !c.deposed(v) {
			if c.accept(answer) {
				then(c)
			}
			return
		}
		message := cannotProve(fmt.Sprintf("the source names leader epoch %d, and had epoch %d before; if it was restored from a backup, stop the topic and start it again", v.LeaderEpoch, c.src.LeaderEpoch))
		c.oldLooks++
		if c.oldLooks > maxOldLooks || c.rec.RetryAttempt > 0 {
			c.fail(message, false)
			return
		}
		c.waiting = message
		c.wait(c.backoff(c.oldLooks), func(c *Core, _ *Event) {
			c.waiting = ""
			c.askNewSource(e, then)
		})
	})
}

// maxOldLooks is how many answers of a deposed leader are met with another question, in the growing waits between them, before the partition fails over them.
const maxOldLooks = 6

// deposed says that a newer leader than the one in v was seen of the topic.
func (c *Core) deposed(v *SourceView) bool {
	sameTopic := v.TopicID == (statemachine.TopicID{}) || v.TopicID == c.src.TopicID
	return sameTopic && v.LeaderEpoch >= 0 && v.LeaderEpoch < c.src.LeaderEpoch
}

// forgetLeader lets a start begin with what the source says then.
func (c *Core) forgetLeader() { c.src.LeaderID, c.src.LeaderEpoch = -1, -1 }

// accept takes a source view that answers CheckSource; false: the partition has failed over it.
func (c *Core) accept(e *Event) bool {
	v := &e.Source
	if e.Err != nil {
		c.fail(fmt.Sprintf("the source cannot be asked: %v; check that it runs and that the mirror's credentials may describe and read topic %s", e.Err, c.cfg.Topic), e.NonRetryable || v.Permanent)
		return false
	}
	if v.Refused != "" {
		if c.cluster == "" {
			c.cluster = v.ClusterID // recorded with the failure, so that the other side of a loop can see it
		}
		c.fail(v.Refused, v.Permanent)
		return false
	}
	if !c.identity(v) {
		return false
	}
	if impossibleEnds(v.LogStart, v.HighWatermark) {
		c.fail(fmt.Sprintf("the source says that its log starts at %d, above its own high watermark %d; nothing is concluded from that, it is asked again", v.LogStart, v.HighWatermark), false)
		return false
	}
	c.learn(v)
	if v.LeaderID < 0 {
		c.fail(fmt.Sprintf("the source partition %s-%d has no leader now; bring its brokers back", c.cfg.Topic, c.cfg.Partition), false)
		return false
	}
	return true
}

// identity checks that this is still the cluster and the topic that are mirrored; false: the partition has failed over it.
func (c *Core) identity(v *SourceView) bool {
	if v.ClusterID != "" && c.cluster != "" && v.ClusterID != c.cluster {
		c.fail(fmt.Sprintf("source cluster id %s != %s: the bootstrap addresses lead to another cluster; correct them, or create a mirror for the new source", c.cluster, v.ClusterID), true)
		return false
	}
	if v.TopicID != (statemachine.TopicID{}) && c.topicID != (statemachine.TopicID{}) && v.TopicID != c.topicID {
		if c.rec.State == statemachine.Preparing {
			c.recreated = v.TopicID
			return true // CompareConsent decides
		}
		c.needs = &Consent{TopicID: c.cfg.TopicID, Partition: c.cfg.Partition, From: c.log.Start, To: c.log.End, Episode: c.rec.Episode}
		c.startOver = true
		c.fail(c.recreatedMessage(v.TopicID), true)
		return false
	}
	return true
}

func (c *Core) recreatedMessage(id statemachine.TopicID) string {
	return fmt.Sprintf("source topic id %v → %v: the topic was deleted and created again; its records are not a continuation of ours. Nothing was changed. To start over, start with consent to drop [%d, %d)",
		c.topicID, id, c.log.Start, c.log.End)
}

// learn takes over what is known in v and tells of a leader that moved.
func (c *Core) learn(v *SourceView) {
	old := c.src
	if v.ClusterID != "" {
		c.src.ClusterID = v.ClusterID
		if c.cluster == "" {
			c.cluster = v.ClusterID
		}
	}
	if v.TopicID != (statemachine.TopicID{}) {
		if v.TopicID != c.src.TopicID {
			c.src.LeaderEpoch = -1 // epochs begin anew
		}
		c.src.TopicID = v.TopicID
		if c.topicID == (statemachine.TopicID{}) {
			c.topicID = v.TopicID
		}
	}
	c.src.LeaderID = v.LeaderID
	if v.LeaderEpoch >= 0 {
		c.src.LeaderEpoch = v.LeaderEpoch
	}
	c.learnEnds(v.LogStart, v.HighWatermark)
	c.src.LME, c.src.LMO = v.LME, v.LMO
	c.src.Refused, c.src.Permanent = v.Refused, v.Permanent
	c.src.NoEpochs = v.NoEpochs
	if old.LeaderID >= 0 && v.LeaderID >= 0 && (old.LeaderID != v.LeaderID || old.LeaderEpoch != c.src.LeaderEpoch) {
		c.note(Note{Kind: LeaderMoved, LeaderID: c.src.LeaderID, Epoch: c.src.LeaderEpoch})
	}
}

// learnEnds takes over ends that were measured now; −1 is not an offset.
func (c *Core) learnEnds(start, end int64) {
	if impossibleEnds(start, end) {
		return
	}
	if start >= 0 {
		c.src.LogStart = start
	}
	if end >= 0 {
		c.src.HighWatermark = end
		if !c.denied { // the lag is unknown since the last look before
			c.seen = c.room.now
		}
		c.caughtUpNow()
	}
}

// caughtUpNow notes when the source was last asked if nothing that it had then is missing here. What it has taken since nobody knows, however late the copy is complete.
func (c *Core) caughtUpNow() {
	if c.rec.State != statemachine.Mirroring || c.src.HighWatermark < 0 || c.denied {
		return
	}
	if c.log.Replicated >= c.src.HighWatermark || c.nothingLeft && c.log.Replicated >= c.log.End && c.provenEnd >= c.src.HighWatermark {
		c.caughtUp = c.seen
	}
}

// startSearch asks where our log, cut at end, and the source's part.
func (c *Core) startSearch(end int64, then func(*Core)) {
	cache := c.epochs
	if end < c.log.End {
		cache = logtrunc.NewCache(c.epochs.Entries()...)
		cache.TruncateTo(end)
	}
	c.search = logtrunc.NewSearch(cache, min(c.firstRecord(), end), end)
	c.searchEnd, c.searchThen, c.doubt = end, then, ""
	c.searchOn()
}

func (c *Core) searchOn() {
	if epoch, ok := c.search.Ask(); ok && c.doubt == "" {
		c.ask(Effect{Kind: AskEpoch, Epoch: epoch, Under: c.src.LeaderEpoch}, (*Core).epochAnswer)
		return
	}
	c.searchThen(c)
}

func (c *Core) epochAnswer(e *Event) {
	asked, _ := c.search.Ask()
	switch {
	case e.Err != nil && e.Source.NoEpochs:
		c.src.NoEpochs = true
		c.search = nil
	case e.Err != nil:
		c.fail(fmt.Sprintf("the source cannot be asked where epoch %d ends: %v; check that it runs", asked, e.Err), false)
		return
	default:
		c.search.Answer(e.AnswerEpoch, e.AnswerEnd)
		point, proved := c.search.Result()
		switch {
		case !proved || point >= c.searchEnd:
		case c.src.LeaderEpoch < 0:
			c.doubt = fmt.Sprintf("the source does not tell its leader epoch, so its answer (epoch %d, end %d) may be old", e.AnswerEpoch, e.AnswerEnd)
		case e.AnswerEpoch >= c.src.LeaderEpoch:
			// The end of the epoch that is being written only grows: it is late, not lower.
			c.doubt = fmt.Sprintf("the source's end %d in its current epoch %d is below ours, %d", e.AnswerEnd, e.AnswerEpoch, c.searchEnd)
		}
	}
	if c.src.NoEpochs {
		c.searchThen(c)
		return
	}
	c.searchOn()
}

// found is what the search that has ended says: the common point, and why it is not one ("" if it is). Without epochs at the source our end stands.
func (c *Core) found() (point int64, doubt string) {
	if c.src.NoEpochs || c.search == nil {
		return c.searchEnd, ""
	}
	point, proved := c.search.Result()
	point = max(point, c.log.Start)
	switch {
	case c.doubt != "":
		return c.searchEnd, c.doubt
	case !proved && len(c.search.Rounds()) == 0:
		return c.searchEnd, "our log holds no leader epochs to compare"
	case !proved:
		last := c.search.Rounds()[len(c.search.Rounds())-1]
		return c.searchEnd, fmt.Sprintf("the source answers (epoch %d, end %d) for our epoch %d, which proves nothing", last.Epoch, last.End, last.Ask)
	}
	return point, ""
}

func (c *Core) rounds() []logtrunc.Round {
	if c.search == nil {
		return nil
	}
	return c.search.Rounds()
}

// everStopped says that clients may have written to this log: a cut then needs consent (decision 15). A log that they wrote before this mirror had it counts too: what an old
// primary and its successor both had is no less theirs because the successor loses it.
func (c *Core) everStopped() bool { return c.ended() || c.rec.Episode > 1 || c.rec.WasOpen }

// ended says that a LastMirrorEpoch tells where a mirror ended, not only where it comes from.
func (c *Core) ended() bool { return c.lme != nil }

// consented says that dropping [from, to) was allowed. A range that has shrunk since is less loss and allowed too.
func (c *Core) consented(from, to int64) bool {
	for _, k := range c.consents {
		if k.TopicID == c.cfg.TopicID && k.Partition == c.cfg.Partition && k.Episode == c.rec.Episode && k.From <= from && to <= k.To {
			return true
		}
	}
	return false
}

func (c *Core) anyConsent() bool {
	for _, k := range c.consents {
		if k.TopicID == c.cfg.TopicID && k.Partition == c.cfg.Partition && k.Episode == c.rec.Episode {
			return true
		}
	}
	return false
}

func (c *Core) useConsents() {
	if len(c.consents) > 0 {
		c.consents = nil
		c.emit(Effect{Kind: ConsentUsed})
	}
	c.needs = nil
}
