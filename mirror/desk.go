package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/partition"
	"github.com/clustermirror/clustermirror/statemachine"
)

// desk asks the source about partitions: who leads them, where their logs start and end, what it recorded for us. Questions that come in while it asks are
// asked together next, so a thousand partitions that start at once cost a few requests.
type desk struct {
	m *Mirror
	q gathering[deskItem]

	mu      sync.Mutex
	cluster string // the source's id, as first seen; "" before
	own     string // the destination's id
	// recordedSource is the source's id as configured, or as the states recorded it: to be shown until the source has said it itself.
	recordedSource string

	// While a call to the source as a whole fails, everybody is answered with its error, and it is asked again only now and then, the call that failed first.
	failure  error
	failedAt lookStep
	failures int
	notUntil time.Time
	question epochQuestion // that failed last

	origins map[string]TopicOrigin // by topic, as PREPARING saw them

	asked bool // the source has said who it is, at least once

	pinSource, pinDestination string // cluster ids that the mirror's settings name, "" if none

	confirms   *confirmation // that is asked next; nil: none
	confirming bool          // askConfirms runs
}

// epochQuestion is one question for the end of a leader epoch.
type epochQuestion struct {
	tp                 TopicPartition
	leaderEpoch, epoch int32
}

// askEpoch asks the source for the end of a leader epoch. When the source as a whole does not answer, that is noted.
func (d *desk) askEpoch(ctx context.Context, q epochQuestion) (EpochEnd, error) {
	a, err := d.m.cfg.Source.EndOffsetForEpoch(ctx, q.tp, q.leaderEpoch, q.epoch)
	if silent(err) {
		d.mu.Lock()
		d.question = q
		d.mu.Unlock()
		return a, d.failed(lookEpochs, err)
	}
	return a, err
}

// silent says that the source as a whole did not answer. A refusal is an answer: that the leader epoch in a question is an old one, for example.
func silent(err error) bool {
	var s *SourceError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &s) && (s.Code == SourceUnreachable || s.Code == SourceTimeout || s.Code == SourceAuthentication)
}

// lookStep is one of the calls that a look at the source consists of.
type lookStep uint8

const (
	lookCluster lookStep = iota
	lookTopics
	lookOffsets
	lookRecorded
	lookEpochs // asked by the partitions themselves
)

// maxLookPause is the longest time that a failing source is not asked.
const maxLookPause = time.Minute

// pausing is why the source is not asked now; nil: ask.
func (d *desk) pausing() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.notUntil) {
		return d.failure
	}
	return nil
}

// failed notes that a call failed, and returns its error. What a person has to mend, or a context that ended here, is no pause.
func (d *desk) failed(at lookStep, err error) error {
	var elsewhere *ClusterChangedError
	if err == nil || errors.As(err, &elsewhere) || d.m.ctx.Err() != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	pause := min(d.m.cfg.FetchBackoff<<min(d.failures, 10), maxLookPause)
	d.failure, d.failedAt, d.failures = err, at, d.failures+1
	d.notUntil = time.Now().Add(pause)
	return err
}

// answered notes that a look came to its end.
func (d *desk) answered() {
	d.mu.Lock()
	again := d.failures > 0
	d.failure, d.failedAt, d.failures, d.notUntil = nil, lookCluster, 0, time.Time{}
	d.mu.Unlock()
	if again {
		d.m.link.reconnect()
	}
}

// forget drops what is known of the source's failures: it is another connection now.
func (d *desk) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure, d.failedAt, d.failures, d.notUntil = nil, lookCluster, 0, time.Time{}
}

// forgetWho drops who the source is, and where its topics come from: that was learned over a connection, or for a mirror, that is no more.
func (d *desk) forgetWho() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cluster, d.recordedSource, d.origins, d.asked = "", "", nil, false
}

// expect pins the source that is recorded for this mirror. "" says nothing.
func (d *desk) expect(cluster string, settings Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cluster = cmp.Or(cluster, d.cluster)
	d.pinSource, d.pinDestination = settings.Effective(sourceClusterIDSetting), settings.Effective(destinationClusterIDSetting)
}

// list names the source's topics, nil if it cannot be asked now.
func (d *desk) list(ctx context.Context) []string {
	if d.pausing() != nil {
		return nil
	}
	if _, _, _, err := d.clusters(ctx); err != nil {
		return nil
	}
	topics, err := d.m.cfg.Source.Topics(ctx)
	if d.failed(lookTopics, err) != nil {
		return nil
	}
	var names []string
	for _, t := range topics {
		if !t.Internal && t.Err == nil {
			names = append(names, t.Name)
		}
	}
	return names
}

// confirm asks the source once more who it is, and which of these topics still are those that are mirrored: what was read of them before is about them then (F-28, F-33). The others are being
// deleted or made again, or cannot be looked at; the next refresh says what becomes of them. Without ids it asks only who the source is. One question is asked at a time, and those who come while it
// is share the next one. One that fails says nothing of the copying: it is neither a pause of that, nor the source's error; the next refresh sees whether the source answers.
func (d *desk) confirm(ctx context.Context, ids map[string]TopicID) (same map[string]bool, err error) {
	d.mu.Lock()
	c := d.confirms
	if c == nil {
		c = &confirmation{names: map[string]bool{}, done: make(chan struct{})}
		d.confirms = c
	}
	for name := range ids {
		c.names[name] = true
	}
	begin := !d.confirming
	d.confirming = true
	d.mu.Unlock()
	if begin {
		d.m.spawn(d.askConfirms)
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.err != nil {
		return nil, c.err
	}
	same = map[string]bool{}
	for _, t := range c.topics {
		if id, asked := ids[t.Name]; asked && t.Err == nil && t.ID == id {
			same[t.Name] = true
		}
	}
	return same, nil
}

// confirmation is one question of confirm. names are under the desk's lock until it is asked; topics and err are written before done is closed.
type confirmation struct {
	names  map[string]bool
	done   chan struct{}
	topics []SourceTopic
	err    error
}

// askConfirms asks until nobody waits any more. Who comes when a question is under way may have read later than it was asked, so it is not his.
func (d *desk) askConfirms() {
	for {
		d.mu.Lock()
		c := d.confirms
		d.confirms, d.confirming = nil, c != nil
		d.mu.Unlock()
		if c == nil {
			return
		}
		c.topics, c.err = d.askConfirm(slices.Sorted(maps.Keys(c.names)))
		close(c.done)
	}
}

func (d *desk) askConfirm(names []string) ([]SourceTopic, error) {
	ctx, stop := context.WithTimeout(d.m.ctx, d.m.cfg.CallBound)
	defer stop()
	if _, _, _, err := d.who(ctx, func(_ lookStep, err error) error { return err }); err != nil || len(names) == 0 {
		return nil, err
	}
	return d.m.cfg.Source.Topics(ctx, names...)
}

// unanswered says that the source as a whole did not answer.
func unanswered(err error) bool {
	var s *SourceError
	if errors.As(err, &s) {
		return s.Code == SourceUnreachable || s.Code == SourceTimeout || s.Code == SourceAuthentication
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// learned is the source's cluster id, "" if it has not said it, and where topics come from.
func (d *desk) learned() (cluster string, origins []TopicOrigin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.origins {
		origins = append(origins, o)
	}
	return d.cluster, origins
}

// noteOrigin remembers where a topic comes from; true: that is news.
func (d *desk) noteOrigin(o TopicOrigin) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	had, ok := d.origins[o.Topic]
	if ok && had.sameSource(o) {
		return false
	}
	if d.origins == nil {
		d.origins = map[string]TopicOrigin{}
	}
	d.origins[o.Topic] = o
	return true
}

// troubled is why the source did not answer when it was asked last, "" if it did.
func (d *desk) troubled() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		return ""
	}
	return d.failure.Error()
}

// notAskedYet is what a process says of its source before it has asked it.
const notAskedYet = "it was not asked yet"

// unasked says that the source has not said anything yet.
func (d *desk) unasked() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked {
		return ""
	}
	return notAskedYet
}

// failing is the call that failed last, the first one if none did.
func (d *desk) failing() lookStep {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failedAt
}

// stillFailing asks first what failed last: when it fails again, one call was enough to know.
func (d *desk) stillFailing(ctx context.Context, names []string, tps []TopicPartition) error {
	d.mu.Lock()
	at := d.failedAt
	d.mu.Unlock()
	switch at {
	case lookTopics:
		_, err := d.m.cfg.Source.Topics(ctx, names...)
		return d.failed(at, err)
	case lookOffsets:
		if len(tps) == 0 {
			return nil
		}
		_, err := d.m.cfg.Source.Offsets(ctx, tps)
		return d.failed(at, err)
	case lookEpochs:
		d.mu.Lock()
		q := d.question
		d.mu.Unlock()
		if _, err := d.askEpoch(ctx, q); silent(err) || err != nil && ctx.Err() != nil {
			return err
		}
		d.answered() // whatever it said: a question from before an election is refused for ever, and the partition asks a new one
	}
	return nil
}

type deskItem struct {
	r                *runner
	token            partition.Token
	prepare, refresh bool
	local            bool // where the leader's own disks begin is asked too
	tries            int  // that met an election
}

func (d *desk) add(it deskItem) { d.q.add(it) }

// maxElectionTries is how often a look-up that meets an election is repeated before the partition is FAILED over it: about fifteen seconds at the default
// FetchBackoff. An election is nothing to wake a person for.
const maxElectionTries = 5

// electing says that an answer is only what a partition says while it has no settled leader.
func electing(v SourceView, err error) bool {
	if err == nil {
		return v.LeaderID < 0
	}
	var s *SourceError
	if !errors.As(err, &s) {
		return false
	}
	switch s.Code {
	case SourceNotLeader, SourceOffsetsNotReady, SourceFencedEpoch, SourceUnknownEpoch:
		return true
	}
	return false
}

// again asks once more after a pause.
func (d *desk) again(it deskItem) {
	pause := d.m.cfg.FetchBackoff << min(it.tries, 2)
	it.tries++
	d.m.spawn(func() {
		if d.m.pause(d.m.ctx, pause) {
			d.q.add(it)
		}
	})
}

func (d *desk) run() {
	for {
		items, ok := d.q.take(d.m.ctx)
		if !ok {
			return
		}
		d.answer(items)
	}
}

func blankView() SourceView {
	return SourceView{LeaderID: Unknown, LeaderEpoch: Unknown, LogStart: Unknown, HighWatermark: Unknown, LME: Unknown, LMO: Unknown}
}

func (d *desk) answer(items []deskItem) {
	ctx, stop := context.WithTimeout(d.m.ctx, d.m.cfg.CallBound)
	defer stop()
	all := func(v SourceView, err error) {
		for _, it := range items {
			it.r.tell(partition.Event{Kind: partition.SourceSeen, Token: it.token, Source: v, Err: err})
		}
	}
	if err := d.pausing(); err != nil {
		all(blankView(), err)
		return
	}
	var names []string
	var prepared, local []TopicPartition
	tps := make([]TopicPartition, 0, len(items))
	for _, it := range items {
		tps = append(tps, it.r.tp)
		if it.prepare {
			prepared = append(prepared, it.r.tp)
		}
		if it.local {
			local = append(local, it.r.tp)
		}
		if !slices.Contains(names, it.r.tp.Topic) {
			names = append(names, it.r.tp.Topic)
		}
	}
	if err := d.stillFailing(ctx, names, tps); err != nil {
		all(blankView(), err)
		return
	}
	cluster, own, v, err := d.clusters(ctx)
	if err != nil {
		all(v, err)
		return
	}
	topics, err := d.m.cfg.Source.Topics(ctx, names...)
	if d.failed(lookTopics, err) != nil {
		all(blankView(), err)
		return
	}
	byName := map[string]*SourceTopic{}
	for i := range topics {
		byName[topics[i].Name] = &topics[i]
	}
	offsets, err := d.m.cfg.Source.Offsets(ctx, tps)
	if d.failed(lookOffsets, err) != nil {
		all(blankView(), err)
		return
	}
	localStarts, unlocated := d.localStarts(ctx, local)
	recorded, refused, upstream, unknown := d.recorded(ctx, own, prepared)
	if errors.Is(unknown, ErrUnsupported) {
		unknown = nil // we may not ask: a start goes on as if nothing was recorded, because without a consent it gives nothing up
	}
	if unanswered(unknown) {
		all(blankView(), d.failed(lookRecorded, unknown))
		return
	}
	news := false
	for _, tp := range prepared {
		if unknown == nil {
			news = d.noteOrigin(TopicOrigin{Mirror: d.m.cfg.Name, Topic: tp.Topic, SourceClusterID: cluster, Upstream: upstream[tp.Topic]}) || news
		}
	}
	if news {
		d.m.poke()
	}
	if d.failing() != lookEpochs {
		d.answered()
	}
	for _, it := range items {
		v, err := view(it.r.tp, cluster, byName[it.r.tp.Topic], offsets)
		if err == nil && it.prepare {
			err = unknown // a right that is missing, a record that cannot be read: it stops those alone that need it
			if e, ok := recorded[it.r.tp]; ok && partition.IsAbout(e, it.r.id) {
				v.LME, v.LMO = e.Epoch, e.Offset
			}
			v.Refused = refused[it.r.tp]
		}
		if err == nil && it.local {
			v.LocalStart, err = localStarts[it.r.tp], unlocated
		}
		if electing(v, err) && it.tries < maxElectionTries {
			d.again(it)
			continue
		}
		it.r.tell(partition.Event{Kind: partition.SourceSeen, Token: it.token, Source: v, Err: err})
	}
}

// localStarts asks what of partitions is in remote storage alone, where the source can tell.
func (d *desk) localStarts(ctx context.Context, tps []TopicPartition) (map[TopicPartition]int64, error) {
	reader, ok := d.m.cfg.Source.(LocalStartReader)
	if !ok || len(tps) == 0 {
		return nil, nil
	}
	starts, err := reader.LocalStarts(ctx, tps)
	if errors.Is(err, ErrUnsupported) {
		return nil, nil
	}
	return starts, err
}

// clusters is who, and notes a source that does not answer.
func (d *desk) clusters(ctx context.Context) (source, own string, refusal SourceView, err error) {
	return d.who(ctx, d.failed)
}

// who checks who the source is. The view is for the refusal: a source that is the destination itself, or another cluster than the one known (F-33). noted is told what the source answered.
func (d *desk) who(ctx context.Context, noted func(lookStep, error) error) (source, own string, refusal SourceView, err error) {
	refusal = blankView()
	d.mu.Lock()
	own = d.own
	d.mu.Unlock()
	if own == "" {
		if own, err = d.m.cfg.Destination.ClusterID(ctx); err != nil {
			return "", "", refusal, fmt.Errorf("destination's cluster id: %w", err)
		}
	}
	info, err := d.m.cfg.Source.Cluster(ctx)
	if noted(lookCluster, err) != nil {
		return "", own, refusal, err
	}
	refusal.ClusterID = info.ID
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = true
	d.own = own
	refusal.Permanent = true
	if info.ID != "" && info.ID == own {
		return info.ID, own, refusal, fmt.Errorf("the source is the destination itself: cluster id %s on both sides; correct the source's address", own)
	}
	if d.pinDestination != "" && own != d.pinDestination {
		return info.ID, own, refusal, fmt.Errorf("destination cluster id %s: setting %s names %s; this process writes to the wrong cluster, or the setting is wrong", own, destinationClusterIDSetting, d.pinDestination)
	}
	known := d.cluster
	if d.m.cfg.SourceClusterID != "" {
		known = d.m.cfg.SourceClusterID
	}
	for _, want := range []string{d.pinSource, known} {
		if want != "" && info.ID != want {
			return info.ID, own, refusal, &ClusterChangedError{Want: want, Got: info.ID}
		}
	}
	refusal.Permanent = false
	d.cluster = info.ID
	return info.ID, own, refusal, nil
}

// anotherCluster is what a person has to read of a ClusterChangedError.
const anotherCluster = "the source's address leads to another cluster"

// ClusterChangedError: the source's address leads to another cluster than before (F-33). Nothing was fetched from it.
type ClusterChangedError struct{ Want, Got string }

func (e *ClusterChangedError) Error() string {
	return fmt.Sprintf("source cluster id %s != %s: %s; correct the address, nothing was fetched from it", e.Want, e.Got, anotherCluster)
}

// recorded looks up what the source recorded for mirrors out of our cluster; which partitions must not be started now, because the source mirrors them from us, or from
// somebody who does; and which clusters the source itself has a topic from. An error that errors.Is finds ErrUnsupported in: the source does not let us see whether it
// recorded anything. A failback that was planned without knowing that would give everything up.
func (d *desk) recorded(ctx context.Context, own string, tps []TopicPartition) (found map[TopicPartition]statemachine.LastMirrorEpoch, refused map[TopicPartition]string, upstream map[string][]string, err error) {
	reader, ok := d.m.cfg.Source.(LastMirrorEpochReader)
	if !ok || len(tps) == 0 {
		return nil, nil, nil, nil
	}
	found, err = reader.LastMirrorEpochs(ctx, own, tps)
	var denied *SourceError
	if errors.Is(err, ErrUnsupported) && !(errors.As(err, &denied) && denied.Code == SourceDenied) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("looking up the last mirror epoch at the source: %w", err)
	}
	mirrors, err := reader.MirrorsOf(ctx, tps)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("looking up the source's own mirrors: %w", err)
	}
	refused, upstream = map[TopicPartition]string{}, map[string][]string{}
	for _, s := range mirrors {
		chain := append([]string{s.SourceClusterID}, s.Upstream...)
		switch {
		case s.State == statemachine.Stopped:
		case s.SourceClusterID == "" && s.State == statemachine.Preparing:
			// It has written that it starts and not yet seen from where: perhaps from us, at the same moment (spec decision 14).
			refused[s.Partition] = fmt.Sprintf("mirror %s at the source starts %s-%d just now, and it is not known yet from where; it is looked at again",
				s.Mirror, s.Partition.Topic, s.Partition.Partition)
		case s.SourceClusterID == own:
			refused[s.Partition] = fmt.Sprintf("detected mirror loop for mirror: %s: the source mirrors %s-%d from this cluster and is %s there; stop that mirror first",
				s.Mirror, s.Partition.Topic, s.Partition.Partition, s.State)
		case slices.Contains(s.Upstream, own):
			refused[s.Partition] = fmt.Sprintf("detected mirror loop for mirror: %s: the source mirrors %s-%d from %s and is %s there, which has it from this cluster; stop one mirror of the ring first",
				s.Mirror, s.Partition.Topic, s.Partition.Partition, strings.Join(chain[:slices.Index(chain, own)], " from "), s.State)
		}
		if s.State != statemachine.Stopped && s.SourceClusterID != "" && len(chain) > len(upstream[s.Partition.Topic]) {
			upstream[s.Partition.Topic] = chain
		}
	}
	return found, refused, upstream, nil
}

// view puts together what is known of one partition.
func view(tp TopicPartition, cluster string, t *SourceTopic, offsets map[TopicPartition]SourceOffsets) (SourceView, error) {
	v := blankView()
	v.ClusterID = cluster
	if t == nil {
		return v, &SourceError{Code: SourceUnknownTopic, Operation: "metadata", Partition: tp, Err: ErrUnknownTopic, Advice: "the topic is missing at the source"}
	}
	if t.Err != nil {
		return v, t.Err
	}
	v.TopicID = t.ID
	for _, p := range t.Leaders {
		if p.Partition != tp.Partition {
			continue
		}
		if p.Err != nil && p.Leader < 0 {
			return v, p.Err
		}
		v.LeaderID, v.LeaderEpoch = p.Leader, p.LeaderEpoch
		o, ok := offsets[tp]
		if !ok {
			return v, &SourceError{Code: SourceOther, Operation: "list offsets", Partition: tp, Err: errors.New("no answer for this partition")}
		}
		if o.Err != nil {
			return v, o.Err
		}
		v.LogStart, v.HighWatermark = o.LogStart, o.HighWatermark
		return v, nil
	}
	return v, &SourceError{Code: SourceUnknownTopic, Operation: "metadata", Partition: tp, Err: errors.New("no such partition at the source"),
		Advice: "partition counts differ"}
}

// refresh looks at the source's metadata once: identity, leaders, missing topics, new partitions. It names no partition, so it costs the same for many.
// answered: the source is the one that is known, and has told its topics.
func (d *desk) refresh(ctx context.Context, missed map[string]int) (answered bool) {
	ctx, stop := context.WithTimeout(ctx, d.m.cfg.CallBound)
	defer stop()
	runners := d.m.memberRunners()
	if len(runners) == 0 {
		return false
	}
	for _, r := range runners {
		r.noteReplicated()
	}
	if d.pausing() != nil {
		return false
	}
	names := d.m.memberTopics()
	if d.stillFailing(ctx, names, nil) != nil {
		return false
	}
	cluster, _, refusal, err := d.clusters(ctx)
	if err != nil {
		if refusal.Permanent {
			for _, r := range runners {
				r.send(partition.Event{Kind: partition.FailPartition, Err: err, NonRetryable: true, Source: SourceView{Permanent: true}})
			}
		}
		return false
	}
	topics, err := d.m.cfg.Source.Topics(ctx, names...)
	if d.failed(lookTopics, err) != nil {
		return false
	}
	if d.failing() == lookCluster || d.failing() == lookTopics {
		d.answered()
	}
	byName := map[string]*SourceTopic{}
	for i := range topics {
		byName[topics[i].Name] = &topics[i]
	}
	for _, name := range names {
		t := byName[name]
		if t == nil {
			missed[name]++
		} else {
			delete(missed, name)
			if t.Err == nil {
				d.m.sourceTopic(t)
			}
		}
	}
	var stuck []*runner
	for _, r := range runners {
		t := byName[r.tp.Topic]
		if t == nil {
			if missed[r.tp.Topic] >= 2 { // one look may be a mistake
				r.send(partition.Event{Kind: partition.FailPartition, NonRetryable: true, Source: SourceView{Permanent: true},
					Err: errors.New("the source topic is deleted; the copy is kept: stop the topic to use it, or delete it here and start again")})
			}
			continue
		}
		if t.Err != nil {
			continue
		}
		for _, p := range t.Leaders {
			if p.Partition != r.tp.Partition || p.Leader < 0 {
				continue
			}
			r.seenMu.Lock()
			seen := r.seen
			r.seenMu.Unlock()
			if seen.TopicID == t.ID && p.LeaderEpoch >= 0 && p.LeaderEpoch < seen.LeaderEpoch {
				continue // metadata from before an election (decision 15)
			}
			if seen.ClusterID != "" && (seen.LeaderID != p.Leader || seen.LeaderEpoch != p.LeaderEpoch && p.LeaderEpoch >= 0 || seen.TopicID != t.ID) {
				seen.ClusterID, seen.LeaderID, seen.LeaderEpoch, seen.TopicID = cluster, p.Leader, p.LeaderEpoch, t.ID
				seen.LogStart, seen.HighWatermark = Unknown, Unknown
				r.tell(partition.Event{Kind: partition.SourceChanged, Source: seen})
			}
		}
		if r.standsStill() {
			stuck = append(stuck, r)
		}
	}
	d.watchdog(ctx, stuck)
	return true
}

// standsStill says that the partition should be copied but nothing has fetched it for too long.
func (r *runner) standsStill() bool {
	r.coreMu.Lock()
	st := r.core.Status()
	r.coreMu.Unlock()
	if st.Record.State != statemachine.Mirroring || st.Want != statemachine.WantMirroring || st.Waiting != "" {
		return false // what waits says what for, and goes on by itself
	}
	after, end, slowed := r.m.cfg.WatchdogAfter, r.log.End(), r.m.link.slowedBy(r.tp) != ""
	r.seenMu.Lock()
	defer r.seenMu.Unlock()
	// Answers may come and bring nothing: then it is behind at one and the same end, look after look. (An idle partition has not moved for long either.)
	if behind := st.Source.HighWatermark > end && !st.NothingLeft; !behind || slowed {
		r.behindSince = time.Time{}
	} else if r.behindSince.IsZero() || r.behindAt != end {
		r.behindSince, r.behindAt = time.Now(), end
	}
	fruitless := !r.behindSince.IsZero() && time.Since(r.behindSince) > after
	return fruitless || time.Since(r.moved) > after && r.m.link.stuck(r.tp, after)
}

// watchdog fails partitions that stand still although the source is ahead (F-74), so that they are tried again and are not shown as mirroring meanwhile.
func (d *desk) watchdog(ctx context.Context, stuck []*runner) {
	if len(stuck) == 0 {
		return
	}
	tps := make([]TopicPartition, len(stuck))
	for i, r := range stuck {
		tps[i] = r.tp
	}
	offsets, err := d.m.cfg.Source.Offsets(ctx, tps)
	if err != nil {
		return
	}
	for _, r := range stuck {
		o, ok := offsets[r.tp]
		if !ok || o.Err != nil || o.HighWatermark <= r.log.End() {
			continue
		}
		r.seenMu.Lock()
		since := time.Since(r.moved).Round(time.Second)
		r.moved = time.Now()
		r.seenMu.Unlock()
		r.send(partition.Event{Kind: partition.FailPartition,
			Err: fmt.Errorf("no progress for %s while the source is ahead: source end %d, mirror end %d; starting it again", since, o.HighWatermark, r.log.End())})
	}
}
