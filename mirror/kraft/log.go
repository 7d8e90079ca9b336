package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
)

// Log is one partition. While this process leads it, its bytes are in the stock brokers that follow, and a window of the newest in memory. While a stock broker leads it, Start, End
// and Replicated are as that broker said last.
type Log struct {
	d  *Destination
	tp mirror.TopicPartition
	id mirror.TopicID

	log    *leaderlog.Log // what followers are served from
	served *served        // the same, as the server asks it
	work   turn           // creation, take-over, hand-over, regaining: one at a time

	cutting turn // a cut, or a look who has followed one, and what is remembered of it

	mu      sync.Mutex
	ours    bool               // its content is known and it is led here
	opening bool               // a stock leader is what we are working for
	shut    bool               // it is being given away: nothing is appended
	gone    error              // the topic was deleted
	outside replicareader.Ends // of a log that is not ours, or is gone
	lost    int64              // of a log that is gone: how much of it was not replicated
	epoch   int32              // the partition's leader epoch, as the metadata has it
	missing time.Time          // since when some copies of what is not known yet answer, and not enough
	looked  time.Time          // when that was looked at last
	inSync  map[int32]int64    // who was in sync when this process took over, with broker epochs; nil: its content is known, or was never led by others
}

var (
	_ mirror.Log               = (*Log)(nil)
	_ mirror.ProducerIDSettler = (*Log)(nil)
	_ mirror.Recoverer         = (*Log)(nil)
)

// OpenLog returns the log of one partition.
func (d *Destination) OpenLog(ctx context.Context, tp mirror.TopicPartition) (mirror.Log, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	p, err := d.partition(tp)
	if err != nil {
		return nil, err
	}
	l := d.log(tp)
	if l == nil {
		return nil, d.errorf(tp, "%w at the destination", mirror.ErrUnknownTopic)
	}
	if p.Leader == d.cfg.NodeID { // one that is known may have been left half way
		if err := l.bringBack(ctx); err != nil {
			return nil, err
		}
		return l, nil
	}
	l.mu.Lock()
	known := l.ours || l.outside.End > 0
	l.mu.Unlock()
	if known {
		return l, nil
	}
	return l, l.refresh(ctx)
}

// log is the Log of a partition that the metadata knows; nil if it does not. One of a topic that was deleted and made again is another one.
func (d *Destination) log(tp mirror.TopicPartition) *Log {
	p, err := d.partition(tp)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.logs[tp]
	if old != nil && old.id == p.TopicID {
		return old
	}
	l := &Log{d: d, tp: tp, id: p.TopicID, epoch: p.LeaderEpoch, work: newTurn(), cutting: newTurn()}
	if old != nil {
		go old.deleted() // the change that says so may still come, and finds the new one then
	}
	l.log = leaderlog.New(leaderlog.Options{Topic: tp.Topic, Partition: tp.Partition, Back: l, Memory: d.memory, Now: time.Now, Raised: l.brokersDeleted})
	l.served = &served{l.log, d.membership}
	d.logs[tp] = l
	return l
}

// begin takes what was found of the log when p was shown, and serves it, if this process still leads it.
func (l *Log) begin(p clustermetadata.Partition, found leaderlog.Found) error {
	d := l.d
	l.log.Begin(found)
	l.mu.Lock()
	// The metadata may have gone on since p. What it shows now holds; what it shows from here on is told to metadataChanged, which waits for the lock.
	now, err := d.partition(l.tp)
	switch {
	case err != nil:
	case l.gone != nil:
		err = l.gone
	case now.TopicID != p.TopicID || now.TopicID != l.id:
		err = d.errorf(l.tp, "%w at the destination: it was deleted, and another topic has its name", mirror.ErrUnknownTopic)
	case now.Leader != d.cfg.NodeID:
		err = d.errorf(l.tp, "its leader is %d and not this process: %w", now.Leader, mirror.ErrFenced)
	default:
		err = d.usable()
	}
	if err != nil {
		opening := l.opening
		l.drop()
		l.mu.Unlock()
		if now.Leader >= 0 && now.Leader != d.cfg.NodeID && now.TopicID == l.id && !opening && !d.isMirror(now.Leader) {
			d.violation(l.tp, now)
		}
		return err
	}
	l.setFollowers(now)
	l.ours, l.epoch = true, max(l.epoch, now.LeaderEpoch)
	l.missing, l.inSync = time.Time{}, nil
	l.log.Lead(l.epoch)
	l.log.Release()
	l.mu.Unlock()
	// Somebody may have changed the topic's settings while this process was away.
	d.holdSoon(l.tp.Topic)
	return nil
}

// drop forgets what the log holds: somebody else may change it from here on. Under mu.
func (l *Log) drop() {
	l.ours = false
	l.log.Resign()
	l.log.Hold()
	l.log.Begin(leaderlog.Found{}) // frees the memory
}

// lose gives the log up with this process's registration.
func (l *Log) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// release lets followers in again that were put off, if the log is still led here.
func (l *Log) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ours {
		l.log.Release()
	}
}

// deleted ends the log of a topic that is gone.
func (l *Log) deleted() {
	d := l.d
	l.mu.Lock()
	first := l.gone == nil
	if first && l.ours {
		l.outside = replicareader.Ends{Start: l.log.Start(), End: l.log.End()}
		l.lost = l.outside.End - l.log.Replicated()
	}
	l.gone = d.errorf(l.tp, "the topic was deleted at the destination (%w); delete it in the mirror too, or start it again to copy it anew", mirror.ErrUnknownTopic)
	l.ours = false
	err := l.gone
	l.mu.Unlock()
	l.log.Close() // frees the memory
	if first {
		d.notice(Event{Kind: TopicGone, Partition: l.tp, Err: err, Text: err.Error()})
	}
	d.mu.Lock()
	if d.logs[l.tp] == l {
		delete(d.logs, l.tp)
	}
	d.mu.Unlock()
}

// violation tells that a stock broker leads what was not handed over.
func (d *Destination) violation(tp mirror.TopicPartition, now clustermetadata.Partition) {
	err := d.errorf(tp, "broker %d leads it although it was not stopped (leader epoch %d): clients may write into the copy. Its log is not taken back: stop the topic, look at what was written, and start it again", now.Leader, now.LeaderEpoch)
	d.notice(Event{Kind: Violation, Partition: tp, Err: err, Text: err.Error()})
}

// given says that a stock broker leads the partition now, by our doing.
func (l *Log) given() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outside = replicareader.Ends{Start: l.log.Start(), End: l.log.End(), LastStable: l.log.End()}
	l.drop()
}

func (l *Log) setFollowers(p clustermetadata.Partition) {
	ids := without(p.Replicas, l.d.cfg.NodeID)
	var live []int32
	registered := map[int32]int64{}
	l.d.meta.look(func(im *clustermetadata.Image) {
		live = slices.DeleteFunc(l.d.live(im), func(id int32) bool { return !slices.Contains(ids, id) })
		for _, id := range ids {
			if b, ok := im.Broker(id); ok {
				registered[id] = b.Epoch
			}
		}
	})
	l.log.SetFollowers(ids, live, registered, l.d.cfg.MinInSyncReplicas)
}

func (l *Log) followersChanged() {
	l.mu.Lock()
	ours := l.ours
	l.mu.Unlock()
	if p, err := l.partition(); err == nil && ours {
		l.setFollowers(p)
	}
}

// metadataChanged takes a change of the partition. It is called in the order of the metadata log and must not wait.
func (l *Log) metadataChanged(c clustermetadata.Change) {
	d, now, before := l.d, c.After, c.Before
	if now.Topic == "" || now.TopicID != l.id {
		if before.TopicID == l.id { // else it tells of another topic of this name
			l.deleted()
		}
		return
	}
	l.mu.Lock()
	ours, opening := l.ours, l.opening
	l.epoch = max(l.epoch, now.LeaderEpoch)
	other := now.Leader >= 0 && now.Leader != d.cfg.NodeID
	if other {
		l.ours, l.inSync = false, nil
		l.log.Resign()
		l.log.Hold() // what it holds then is to be found out first
	}
	if now.Leader == d.cfg.NodeID && d.usable() == nil { // under mu: giving up comes before this, or after it and undoes it
		if !ours {
			l.log.Hold()
		}
		l.log.Lead(l.epoch)
	}
	l.mu.Unlock()
	switch {
	case now.Leader != d.cfg.NodeID:
	case !ours:
		d.regainSoon(l)
	case !slices.Equal(now.Replicas, before.Replicas):
		l.setFollowers(now)
	}
	if ours && other && !opening && !d.isMirror(now.Leader) {
		d.violation(l.tp, now)
	}
	if ours && !opening && !other && l.work.tryTake() { // not one of our own procedures
		l.work.release()
		if !slices.Equal(now.Replicas, before.Replicas) || !slices.Equal(now.Adding, before.Adding) || !slices.Equal(now.Removing, before.Removing) {
			d.notice(Event{Kind: ShapeChanged, Partition: l.tp, Text: fmt.Sprintf("somebody changed its replicas: %v (adding %v, removing %v), before %v (adding %v, removing %v). Copies on brokers that were taken out are deleted by their brokers",
				now.Replicas, now.Adding, now.Removing, before.Replicas, before.Adding, before.Removing)})
		}
	}
}

func (l *Log) setShut(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = is
}

func (l *Log) setOpening(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opening = is
}

// mine is why this process may not change the log, nil if it may.
func (l *Log) mine(what string) error {
	if err := l.d.usable(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.gone != nil:
		return l.gone
	case !l.ours:
		return l.d.errorf(l.tp, "%s: this process does not lead it: %w", what, mirror.ErrFenced)
	}
	return nil
}

// known is mapped to what mirror.Log promises.
func known(err error) error {
	if err == nil {
		return nil
	}
	for own, theirs := range map[error]error{
		leaderlog.ErrFenced: mirror.ErrFenced, leaderlog.ErrOutOfOrder: mirror.ErrOutOfOrder, leaderlog.ErrOffsetOutOfRange: mirror.ErrOffsetOutOfRange,
		leaderlog.ErrClosed: mirror.ErrFenced, // the topic was deleted
	} {
		if errors.Is(err, own) {
			return fmt.Errorf("kraft: %w (%w)", err, theirs)
		}
	}
	return err
}

// Start is the log start offset.
func (l *Log) Start() int64 { s, _, _ := l.ends(); return s }

// End is where the next batch goes.
func (l *Log) End() int64 { _, e, _ := l.ends(); return e }

// Replicated is below which MinInSyncReplicas followers have the log, or as many as live.
func (l *Log) Replicated() int64 { _, _, r := l.ends(); return r }

func (l *Log) ends() (start, end, replicated int64) {
	l.mu.Lock()
	ours, outside, replicated := l.ours, l.outside, l.outside.End-l.lost
	l.mu.Unlock()
	if ours {
		return l.log.Start(), l.log.End(), l.log.Replicated()
	}
	return outside.Start, outside.End, replicated
}

// LeaderEpoch is the partition's leader epoch.
func (l *Log) LeaderEpoch() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// appendable is why nothing may be appended now although this process leads the partition: whoever could be elected would have it before the topic is stopped, or nobody copies it.
func (l *Log) appendable() error {
	l.mu.Lock()
	shut := l.shut
	l.mu.Unlock()
	if shut {
		return l.d.errorf(l.tp, "it is being given to another mirror process: %w", mirror.ErrFenced)
	}
	if err := l.d.exposed(l.tp); err != nil {
		return err
	}
	p, err := l.partition()
	if err == nil && p.Leader == l.d.cfg.NodeID && l.misshapen(p) {
		return l.d.errorf(l.tp, "its copies are not complete yet (replicas %v, adding %v); that is finished when it is opened again, or within seconds", p.Replicas, p.Adding)
	}
	return err
}

// Append adds batches to what followers copy. It first moves the cluster's producer ids above those in the batches, so that no broker is given one of them any more. What brokers hold from
// before they use up soon after that, in the background; a producer that was given such an id until then has it.
func (l *Log) Append(ctx context.Context, leaderEpoch int32, batches []byte) error {
	if err := l.mine("append"); err != nil {
		return err
	}
	err := l.appendable()
	if err != nil && l.d.unsafeTopic(l.tp.Topic) != "" && onlyMarkers(batches) { // a stop's own, which wait for no pause
		if herr := l.d.holdAgain(ctx, l.tp.Topic); herr != nil {
			return errors.Join(err, herr)
		}
		err = l.appendable()
	}
	if err != nil {
		return err
	}
	highest, largest, at := int64(-1), 0, int64(-1)
	for h := range batch.All(batches) {
		highest = max(highest, h.ProducerID)
		if h.Size() > largest {
			largest, at = h.Size(), h.BaseOffset
		}
	}
	if err := l.fits(ctx, largest, at); err != nil {
		return err
	}
	if err := l.d.producers.raise(ctx, highest); err != nil {
		return l.d.errorf(l.tp, "%w", err)
	}
	return known(l.log.Append(ctx, leaderEpoch, batches))
}

// onlyMarkers says whether all of these batches are markers, as those are that a stop writes.
func onlyMarkers(batches []byte) bool {
	for h := range batch.All(batches) {
		if !h.Control() {
			return false
		}
	}
	return true
}

// Read returns whole batches: from memory, from a follower, or from the stock broker that leads.
func (l *Log) Read(ctx context.Context, from int64, max int) ([]byte, error) {
	if err := l.d.ended(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	ours := l.ours
	l.mu.Unlock()
	if ours {
		b, err := l.log.Read(ctx, from, max)
		if deleted := (*replicareader.RangeError)(nil); errors.As(err, &deleted) && from < deleted.Start { // a moment ago; Start follows with the next fetch
			return nil, l.d.errorf(l.tp, "read at %d: %w (%w)", from, err, mirror.ErrOffsetOutOfRange)
		}
		return b, known(err)
	}
	p, err := l.partition()
	if err != nil {
		return nil, err
	}
	if p.Leader < 0 || p.Leader == l.d.cfg.NodeID {
		return nil, l.d.errorf(l.tp, "read at %d: no broker leads it now", from)
	}
	b, err := l.d.reader.Read(ctx, p.Leader, l.target(), from, max)
	if beyond := (*replicareader.RangeError)(nil); errors.As(err, &beyond) {
		return nil, l.d.errorf(l.tp, "read at %d: %w (%w)", from, err, mirror.ErrOffsetOutOfRange)
	}
	return b, err
}

// brokersDeleted tells that Start has risen by what the stock brokers did. It is called under the log's lock.
func (l *Log) brokersDeleted(before, start int64) {
	l.d.spawn(func(context.Context) {
		l.d.notice(Event{Kind: Trouble, Partition: l.tp, Text: fmt.Sprintf("the brokers deleted offsets %d to %d from every copy, as the topic's retention at the destination says, or because somebody sent DeleteRecords: they are not in the mirror any more. "+
			"If the source still has them, give the destination's topic the source's retention.ms and retention.bytes (what a topic does not say for itself is as its own cluster has it), and mirror it anew if they are needed", before, start-1)})
	})
}

// partition is what the metadata says of this log's partition; of another topic that got its name it says nothing.
func (l *Log) partition() (clustermetadata.Partition, error) { return l.d.partitionOf(l.tp, l.id) }

func (l *Log) target() replicareader.Target {
	return replicareader.Target{Topic: l.tp.Topic, ID: l.id, Partition: l.tp.Partition}
}

// ReadBack reads what is no longer in memory from a follower that has it.
func (l *Log) ReadBack(ctx context.Context, from int64, max int, holders []int32) ([]byte, error) {
	live := l.d.liveBrokers()
	err := l.d.errorf(l.tp, "read at %d: no live broker has it (holders %v, alive %v)", from, holders, live)
	for _, id := range holders {
		if !slices.Contains(live, id) {
			continue
		}
		var b []byte
		if b, err = l.d.reader.Read(ctx, id, l.target(), from, max); err == nil {
			return b, nil
		}
	}
	return nil, err
}

// TruncateTo cuts the log. Which replicas may still hold what is cut is remembered before that, so that after a crash none of them is taken for the log beyond the cut.
func (l *Log) TruncateTo(ctx context.Context, offset int64) (int64, error) {
	if err := l.mine("truncate"); err != nil {
		return 0, err
	}
	if err := l.cutting.take(ctx); err != nil {
		return 0, l.d.errorf(l.tp, "what its replicas have truncated is being remembered: %w", err)
	}
	defer l.cutting.release()
	cut, err := l.log.CutEnd(ctx, offset) // inside a batch it goes lower than was asked for
	if err != nil {
		return 0, known(err)
	}
	if cut < l.log.End() {
		if err := l.rememberTruncation(ctx, cut); err != nil {
			return 0, err
		}
	}
	end, err := l.log.TruncateTo(ctx, cut)
	return end, known(err)
}

// ResetTo drops everything.
func (l *Log) ResetTo(ctx context.Context, start int64) error {
	if err := l.mine("reset"); err != nil {
		return err
	}
	if err := l.cutting.take(ctx); err != nil {
		return l.d.errorf(l.tp, "what its replicas have truncated is being remembered: %w", err)
	}
	defer l.cutting.release()
	if l.log.Start() != l.log.End() {
		if err := l.rememberTruncation(ctx, min(start, l.log.Start())); err != nil {
			return err
		}
	}
	return known(l.log.ResetTo(start))
}

// RaiseStart moves the log start; followers raise theirs when they hear of it.
func (l *Log) RaiseStart(ctx context.Context, start int64) error {
	if err := l.mine("raise the start of"); err != nil {
		return err
	}
	return known(l.log.RaiseStart(start))
}

// AwaitReplicated waits until enough followers have the log up to offset.
func (l *Log) AwaitReplicated(ctx context.Context, offset int64) error {
	if _, _, replicated := l.ends(); replicated >= offset {
		return nil
	}
	if err := l.mine("wait for the replicas of"); err != nil {
		return err
	}
	if err := l.log.AwaitReplicated(ctx, offset); err != nil {
		return l.d.errorf(l.tp, "%w; %s", known(err), l.lateness())
	}
	return nil
}

// lateness says who has how much.
func (l *Log) lateness() string {
	p, err := l.partition()
	if err != nil {
		return ""
	}
	ready, others := l.caughtUp(without(p.Replicas, l.d.cfg.NodeID))
	return fmt.Sprintf("brokers %v have everything up to %d; %s", ready, l.log.End(), others)
}

// AwaitTruncated waits until the live followers have truncated as this log was.
func (l *Log) AwaitTruncated(ctx context.Context) error {
	if err := l.mine("wait for the truncation of"); err != nil {
		return err
	}
	if err := l.log.AwaitTruncated(ctx); err != nil {
		return l.d.errorf(l.tp, "%w; %s", known(err), l.lateness())
	}
	l.confirmTruncation(ctx)
	return nil
}

// Owner says who leads the partition, as the cluster's metadata has it.
func (l *Log) Owner(ctx context.Context) (mirror.Ownership, int32, error) {
	d := l.d
	if err := d.usable(); err != nil {
		return mirror.OwnerForeign, l.LeaderEpoch(), err
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return mirror.OwnerForeign, l.LeaderEpoch(), err
	}
	l.mu.Lock()
	gone := l.gone
	l.mu.Unlock()
	if gone != nil {
		return mirror.OwnerForeign, l.LeaderEpoch(), gone
	}
	p, err := l.partition()
	if err != nil {
		return mirror.OwnerForeign, l.LeaderEpoch(), err
	}
	switch leads, err := d.whoLeads(p); leads {
	case weLead:
		if err := l.bringBack(ctx); err != nil {
			return mirror.OwnerForeign, p.LeaderEpoch, err
		}
		return mirror.OwnerOurs, l.LeaderEpoch(), nil
	case peerLeads:
		return mirror.OwnerForeign, p.LeaderEpoch, nil
	case weReturn:
		return mirror.OwnerForeign, p.LeaderEpoch, err
	case nobodyLeads:
		return mirror.OwnerOpen, p.LeaderEpoch, err
	}
	return mirror.OwnerOpen, p.LeaderEpoch, l.refresh(ctx)
}

// refresh asks the stock leader where its log starts and ends.
func (l *Log) refresh(ctx context.Context) error {
	p, err := l.partition()
	if err != nil {
		return err
	}
	if p.Leader < 0 || p.Leader == l.d.cfg.NodeID || l.d.isMirror(p.Leader) {
		return nil // a peer answers brokers only
	}
	e, err := l.d.ends.do(ctx, endsQuestion{p.Leader, l.target()})
	if err = errors.Join(err, e.Err); err != nil {
		return l.d.errorf(l.tp, "asking its leader %d where it ends: %w", p.Leader, err)
	}
	l.mu.Lock()
	l.outside = e
	l.mu.Unlock()
	return nil
}

// SettleProducerIDs returns when no live broker of the cluster will give out an id up to highest. Of brokers that are not alive an Event tells.
func (l *Log) SettleProducerIDs(ctx context.Context, highest int64) error {
	if err := l.d.producers.settle(ctx, highest); err != nil {
		return l.d.errorf(l.tp, "%w", err)
	}
	return nil
}
