package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
)

// A leader that stores nothing has to learn what its partitions hold before it answers the first follower: whoever serves an empty log truncates its followers. The log is held
// until then. The copies are asked where they end, the longest becomes the log, and its leader epochs are found by looking at some batch headers: nothing is read in full.
//
// A record that MinInSyncReplicas copies had is on at least one of any R − MinInSyncReplicas + 1 of R copies, so as many are waited for, and every broker that the
// controllers see alive: one copy counted while the others were dead. When brokers stay away longer than copyWait after the first one answered, it goes on with those that are there, and says so: a stop must not wait for a dead broker for ever. Right after a take-over any copy that was
// in sync suffices. Copies that were not asked are remembered as not to be trusted beyond the end that was found, or the next process would take what was given up for the log.

const (
	copyWait     = 30 * time.Second
	copyPatience = 2 * time.Second // for a registered broker that is not alive, when enough others answer
)

// regain finds everything that this process leads after it has joined.
func (d *Destination) regain(ctx context.Context) error {
	var mine []clustermetadata.Partition
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			if p.Leader == d.cfg.NodeID {
				mine = append(mine, p)
			}
		}
	})
	errs := make(chan error, len(mine))
	for _, p := range mine {
		go func() {
			tp := mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			l := d.log(tp)
			if l == nil {
				errs <- nil
				return
			}
			err := l.work.take(ctx)
			if err == nil {
				defer l.work.release()
				err = l.regain(ctx)
			}
			if err != nil {
				d.notice(Event{Kind: Trouble, Partition: tp, Err: err, Text: "what it holds is not known yet; it is tried again when it is opened"})
			}
			errs <- nil
		}()
	}
	for range mine {
		select {
		case <-errs:
		case <-ctx.Done(): // one of them may wait for a look of longer patience, which ends with this Destination
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// regainSoon learns what a partition holds that this process leads now without having asked for it: another mirror process has given it away, or it was led here before a long
// absence. Where a creation or a take-over is under way, that does it.
func (d *Destination) regainSoon(l *Log) {
	if d.settingsInUse(l.tp.Topic) {
		return
	}
	d.spawn(func(ctx context.Context) {
		bounded, stop := context.WithTimeout(ctx, copyWait+d.cfg.RequestTimeout)
		defer stop()
		if !l.work.tryTake() {
			return
		}
		defer l.work.release()
		if l.mine("") == nil && !l.log.Held() {
			return
		}
		if err := l.regain(bounded); err != nil && ctx.Err() == nil {
			d.notice(Event{Kind: Trouble, Partition: l.tp, Err: err, Text: "what it holds is not known yet; it is tried again when it is opened"})
		}
	})
}

// bringBack returns when a partition that this process leads is known and in its shape. What a creation or a take-over left half done, because a broker or a controller failed in the
// middle of it, is finished here: whoever tries again finds the topic there, and asks for no creation.
func (l *Log) bringBack(ctx context.Context) error {
	if err := l.work.take(ctx); err != nil {
		return l.d.errorf(l.tp, "something else is under way with it: %w", err)
	}
	defer l.work.release()
	p, err := l.partition()
	if err != nil || l.mine("") == nil && !l.log.Held() && !l.misshapen(p) {
		return err
	}
	return l.regain(ctx)
}

// misshapen says that other brokers are in sync, or that an empty log has no copies yet. A log with content whose copies somebody took away is not mended here: its followers would be
// in sync before they have anything.
func (l *Log) misshapen(p clustermetadata.Partition) bool {
	return len(p.ISR) > 1 || len(p.ELR) > 0 || l.log.Start() == l.log.End() && l.incomplete(p)
}

// reshape brings what this process leads back to its shape, where something was cut short and nobody has asked for the partition since.
func (d *Destination) reshape(ctx context.Context, remembered map[string]memory) {
	var led []clustermetadata.Partition
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			m, ours := remembered[p.Topic] // others are moved away
			if ours && (m.TopicID == p.TopicID || m.Creator == d.cfg.NodeID) && p.Leader == d.cfg.NodeID {
				led = append(led, p)
			}
		}
	})
	var all sync.WaitGroup
	for _, p := range led {
		l := d.log(mirror.TopicPartition{Topic: p.Topic, Partition: p.Partition})
		if l == nil || l.id != p.TopicID || d.settingsInUse(p.Topic) || !l.misshapen(p) {
			continue
		}
		all.Go(func() {
			if !l.work.tryTake() { // whoever works on it finishes it
				return
			}
			l.work.release()
			if err := l.bringBack(ctx); err != nil && ctx.Err() == nil {
				d.notice(Event{Kind: Trouble, Partition: l.tp, Err: err, Text: "it is not in its shape; it is tried again"})
			}
		})
	}
	all.Wait()
}

// incomplete says that no stock broker is a replica, or that one is still being added.
func (l *Log) incomplete(p clustermetadata.Partition) bool {
	return len(without(target(p), l.d.cfg.NodeID)) == 0 || len(p.Adding) > 0
}

// regain learns what the partition holds, serves it, and brings it to its shape. Under work; this process leads the partition.
func (l *Log) regain(ctx context.Context) error {
	d := l.d
	p, err := l.partition()
	if err != nil {
		return err
	}
	if p.Leader != d.cfg.NodeID {
		return d.errorf(l.tp, "its leader is %d and not this process: %w", p.Leader, mirror.ErrFenced)
	}
	if err := d.inSession(); err != nil { // that this node id leads it does not say that this process does
		return err
	}
	if err := d.adopt(ctx, l.tp.Topic, l.id); err != nil {
		return err
	}
	if len(p.ISR) > 1 || len(p.ELR) > 0 { // a creation or a take-over was left half way
		if err := d.guard(ctx, l.tp.Topic, l.id); err != nil { // else those that are taken out may be elected all the same
			return err
		}
		if err := d.barrier.sharing(ctx, func() error { return d.alone(ctx, l.tp) }); err != nil {
			return err
		}
	}
	if l.mine("") != nil || l.log.Held() {
		found, cuts, err := l.find(ctx, p)
		if err != nil {
			return err
		}
		if p, err = l.partition(); err != nil {
			return err
		}
		if err := l.beginCut(ctx, p, found, cuts); err != nil {
			return err
		}
	}
	if l.log.Start() == l.log.End() && l.incomplete(p) {
		return d.complete(ctx, l)
	}
	return nil
}

// beginCut remembers who has to follow the log that was found, and begins it.
func (l *Log) beginCut(ctx context.Context, p clustermetadata.Partition, found leaderlog.Found, cuts map[int32]int64) error {
	if err := l.cutting.take(ctx); err != nil {
		return l.d.errorf(l.tp, "what its replicas have truncated is being remembered: %w", err)
	}
	defer l.cutting.release()
	if err := l.rememberCuts(ctx, cuts); err != nil {
		return err
	}
	return l.begin(p, found)
}

// find asks the copies. cuts are the copies that have to follow the log that was found, and from where on: those that were not asked, or hold more or something else.
func (l *Log) find(ctx context.Context, p clustermetadata.Partition) (found leaderlog.Found, cuts map[int32]int64, err error) {
	d := l.d
	stock := without(p.Replicas, d.cfg.NodeID)
	if len(stock) == 0 {
		return leaderlog.Found{}, nil, nil // nobody ever had a copy
	}
	remembered, err := d.remembered.of(ctx, l.tp.Topic, l.id)
	if err != nil {
		return leaderlog.Found{}, nil, err
	}
	for {
		if _, err := l.partition(); err != nil {
			return leaderlog.Found{}, nil, err
		}
		whole := l.whole()
		limits := maps.Clone(remembered.Unconfirmed[l.tp.Partition])
		maps.DeleteFunc(limits, func(id int32, _ int64) bool { return slices.Contains(whole, id) })
		copies, there := l.copies(ctx, stock, limits)
		since := l.missingSince(there > 0)
		// A copy that cannot be compared is none: it would be truncated to what others have. So they are counted again afterwards.
		if l.suffice(copies, whole, since) {
			choice, err := l.compare(ctx, copies)
			if err == nil && l.suffice(copies, whole, since) {
				l.tellMissing(copies, whole)
				found, cuts = l.chosen(choice, limits)
				return found, cuts, nil
			}
		}
		if err := pause(ctx, 200); err != nil {
			all := []error{err}
			for _, c := range copies {
				all = append(all, c.Err)
			}
			return leaderlog.Found{}, nil, d.errorf(l.tp, "what it holds is not known: %d of %d copies can be asked, %d are needed; start the brokers: %w", there, len(stock), l.enough(len(stock)), errors.Join(all...))
		}
	}
}

// enough is how many of so many copies have to be asked.
func (l *Log) enough(copies int) int { return max(1, copies-l.d.cfg.MinInSyncReplicas+1) }

// suffice says whether what some copies hold may be taken for all that there is. whole are the brokers of which one suffices; since is when the first of these copies answered.
func (l *Log) suffice(copies []replicareader.Copy, whole []int32, since time.Time) bool {
	there, soon, alive := 0, false, false
	for _, c := range copies {
		switch {
		case c.Err == nil && slices.Contains(whole, c.Broker):
			return true
		case c.Err == nil:
			there++
		default: // after a power loss of the whole cluster they come back one by one
			l.d.meta.look(func(im *clustermetadata.Image) {
				b, registered := im.Broker(c.Broker)
				soon, alive = soon || registered, alive || registered && !b.Fenced
			})
		}
	}
	waited := time.Since(since)
	// One that the controllers see alive may be the only one that has what counted as replicated while the others were dead.
	return there == len(copies) || there >= l.enough(len(copies)) && !alive && (!soon || waited > copyPatience) || there > 0 && waited > copyWait
}

// missingSince is when the first copy answered of a log that is not known yet: calls end before copyWait has passed. It begins anew when none answers, and when nobody has looked for long.
func (l *Log) missingSince(any bool) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !any || l.missing.IsZero() || now.Sub(l.looked) > 4*copyWait {
		l.missing = now
	}
	l.looked = now
	return l.missing
}

// noteWhole notes who is in sync while a stock broker led last: each of them has everything that was acknowledged, and until this process appends, one of them suffices to know it.
func (l *Log) noteWhole(p clustermetadata.Partition) {
	if p.Leader != l.d.cfg.NodeID || len(p.ISR) < 2 || !l.log.Held() {
		return
	}
	epochs := map[int32]int64{}
	l.d.meta.look(func(im *clustermetadata.Image) {
		for _, id := range without(p.ISR, l.d.cfg.NodeID) {
			if b, ok := im.Broker(id); ok {
				epochs[id] = b.Epoch
			}
		}
	})
	l.mu.Lock()
	l.inSync = epochs
	l.mu.Unlock()
}

// whole are those of noteWhole that have not restarted since.
func (l *Log) whole() (ids []int32) {
	l.mu.Lock()
	epochs := l.inSync
	l.mu.Unlock()
	l.d.meta.look(func(im *clustermetadata.Image) {
		for id, epoch := range epochs {
			if b, ok := im.Broker(id); ok && b.Epoch == epoch {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// tellMissing tells of copies that were not asked.
func (l *Log) tellMissing(copies []replicareader.Copy, whole []int32) {
	var missing []int32
	var why []error
	for _, c := range copies {
		if c.Err != nil {
			missing, why = append(missing, c.Broker), append(why, c.Err)
		}
	}
	if len(missing) == 0 {
		return
	}
	text := "what they hold beyond the others is given up"
	if there := len(copies) - len(missing); there < l.enough(len(copies)) && !slices.ContainsFunc(copies, func(c replicareader.Copy) bool { return c.Err == nil && slices.Contains(whole, c.Broker) }) {
		text = "records that counted as replicated are given up if only they have them"
	}
	l.d.notice(Event{Kind: Trouble, Partition: l.tp, Err: errors.Join(why...), Text: fmt.Sprintf("it goes on with %d of %d copies: brokers %v could not be asked what they hold; %s", len(copies)-len(missing), len(copies), missing, text)})
}

// askable refuses a take-over for which too few copies could be asked what they hold, while clients still have the topic.
func (l *Log) askable(ctx context.Context, p clustermetadata.Partition) error {
	stock := without(target(p), l.d.cfg.NodeID)
	copies, there := l.copies(ctx, stock, nil)
	if there >= l.enough(len(stock)) || slices.ContainsFunc(copies, func(c replicareader.Copy) bool { return c.Err == nil && slices.Contains(p.ISR, c.Broker) }) {
		return nil
	}
	var all []error
	for _, c := range copies {
		all = append(all, c.Err)
	}
	return l.d.errorf(l.tp, "take-over: only %d of %d copies can be asked what they hold, and %d are needed; start the brokers: %w", there, len(stock), l.enough(len(stock)), errors.Join(all...))
}

// copies asks the living replicas where their copies end, and says how many answered.
func (l *Log) copies(ctx context.Context, stock []int32, limits map[int32]int64) (copies []replicareader.Copy, there int) {
	live := l.d.liveBrokers()
	copies = make([]replicareader.Copy, len(stock))
	for i, id := range stock {
		c := &copies[i]
		c.Broker = id
		c.Limit, c.Unconfirmed = limits[id]
		if !slices.Contains(live, id) {
			c.Err = fmt.Errorf("broker %d is not alive", id)
			continue
		}
		e, err := l.d.ends.do(ctx, endsQuestion{id, l.target()})
		if c.Err = errors.Join(err, e.Err); c.Err != nil {
			continue
		}
		c.Start, c.End = e.Start, e.End
		there++
	}
	return copies, there
}

// compare finds the copies' leader epochs and the one that is the log.
func (l *Log) compare(ctx context.Context, copies []replicareader.Copy) (replicareader.Choice, error) {
	select { // each look is a row of small reads from the same few brokers
	case l.d.looking <- struct{}{}:
		defer func() { <-l.d.looking }()
	case <-ctx.Done():
		return replicareader.Choice{}, l.d.errorf(l.tp, "what it holds is not known: %w", ctx.Err())
	}
	for i := range copies {
		c := &copies[i]
		if c.Err != nil {
			continue
		}
		c.Epochs, c.Err = l.d.reader.Epochs(ctx, c.Broker, l.target(), c.Start, c.End)
	}
	choice, err := replicareader.Choose(copies)
	if err != nil {
		return choice, l.d.errorf(l.tp, "%w", err)
	}
	return choice, nil
}

// chosen is the log, as the copies were compared, and which of them have to be cut.
func (l *Log) chosen(choice replicareader.Choice, limits map[int32]int64) (leaderlog.Found, map[int32]int64) {
	found := leaderlog.Found{Start: choice.Start, End: choice.End, Epochs: choice.Epochs, Ends: map[int32]int64{}, Limits: limits}
	cuts := map[int32]int64{}
	for _, s := range choice.Standings {
		switch {
		case s.Err != nil:
			cuts[s.Broker] = choice.End
		case s.Diverged:
			cuts[s.Broker] = s.Common
			l.d.notice(Event{Kind: Trouble, Partition: l.tp, Text: fmt.Sprintf("the copy of broker %d parts from that of broker %d, which is the log now, at %d; it is truncated there", s.Broker, choice.Broker, s.Common)})
		case s.Beyond.From < s.Beyond.To:
			cuts[s.Broker] = choice.End
		}
		if s.Err == nil {
			found.Ends[s.Broker] = s.Common
		}
	}
	return found, cuts
}

// rememberTruncation remembers that no replica has followed a cut at offset yet.
func (l *Log) rememberTruncation(ctx context.Context, offset int64) error {
	p, err := l.partition()
	if err != nil {
		return err
	}
	cuts := map[int32]int64{}
	for _, id := range without(p.Replicas, l.d.cfg.NodeID) {
		cuts[id] = offset
	}
	return l.rememberCuts(ctx, cuts)
}

// rememberCuts remembers up to where copies may be trusted until they have followed a cut. Under cutting.
func (l *Log) rememberCuts(ctx context.Context, cuts map[int32]int64) error {
	if len(cuts) == 0 {
		return nil
	}
	return l.d.remembered.change(ctx, l.tp.Topic, l.id, func(m *memory) {
		if m.Unconfirmed == nil {
			m.Unconfirmed = map[int32]map[int32]int64{}
		}
		if m.Unconfirmed[l.tp.Partition] == nil {
			m.Unconfirmed[l.tp.Partition] = map[int32]int64{}
		}
		of := m.Unconfirmed[l.tp.Partition]
		for id, cut := range cuts {
			if limit, ok := of[id]; !ok || cut < limit {
				of[id] = cut
			}
		}
	})
}

// confirmTruncation forgets which replicas were to truncate, as far as they have.
func (l *Log) confirmTruncation(ctx context.Context) {
	if l.mine("") != nil || l.cutting.take(ctx) != nil {
		return
	}
	defer l.cutting.release() // a cut that is remembered meanwhile must not be forgotten for one that was followed
	m, err := l.d.remembered.of(ctx, l.tp.Topic, l.id)
	if err != nil || len(m.Unconfirmed[l.tp.Partition]) == 0 {
		return
	}
	var done []int32
	for _, f := range l.log.Followers() {
		if _, ok := m.Unconfirmed[l.tp.Partition][f.Broker]; ok && f.Agrees() {
			done = append(done, f.Broker)
		}
	}
	if len(done) == 0 {
		return
	}
	err = l.d.remembered.change(ctx, l.tp.Topic, l.id, func(m *memory) {
		for _, id := range done {
			delete(m.Unconfirmed[l.tp.Partition], id)
		}
		if len(m.Unconfirmed[l.tp.Partition]) == 0 {
			delete(m.Unconfirmed, l.tp.Partition)
		}
		if len(m.Unconfirmed) == 0 {
			m.Unconfirmed = nil
		}
	})
	if err != nil && ctx.Err() == nil {
		l.d.notice(Event{Kind: Trouble, Partition: l.tp, Err: err, Text: "which replicas have truncated is not remembered; it is tried again"})
	}
}

// Recovered says what is known of the log without reading it.
func (l *Log) Recovered(ctx context.Context) (mirror.Recovered, error) {
	d := l.d
	p, err := l.partition()
	if err != nil {
		return mirror.Recovered{}, err
	}
	start, end, _ := l.ends()
	r := mirror.Recovered{From: start, HighestProducerID: -1}
	d.meta.look(func(im *clustermetadata.Image) { r.HighestProducerID = im.NextProducerID() - 1 })
	l.mu.Lock()
	ours := l.ours
	l.mu.Unlock()
	holders := []int32{p.Leader}
	if ours {
		// A copy's last stable offset counts once it has followed every cut; right after one, a follower is on its way.
		_ = l.log.AwaitFollowers(ctx, func(_ int64, fs []leaderlog.Follower) bool {
			return !slices.ContainsFunc(fs, func(f leaderlog.Follower) bool { return f.Live }) || slices.ContainsFunc(fs, func(f leaderlog.Follower) bool { return f.Live && f.Agrees() })
		})
		if err := ctx.Err(); err != nil {
			return mirror.Recovered{}, l.d.errorf(l.tp, "no follower has followed the last cut: %w; %s", err, l.lateness())
		}
		holders = nil
		for _, f := range l.log.Followers() {
			if f.Agrees() {
				holders = append(holders, f.Broker)
			}
		}
		for _, e := range l.log.Epochs() {
			r.Epochs = append(r.Epochs, mirror.EpochStart{Epoch: e.Epoch, Start: e.Start})
		}
	}
	for _, id := range holders {
		if id < 0 || !slices.Contains(d.liveBrokers(), id) {
			continue
		}
		e, err := d.ends.do(ctx, endsQuestion{id, l.target()})
		if err != nil || e.Err != nil || e.LastStable < 0 {
			continue
		}
		r.From = max(r.From, min(e.LastStable, end))
		if !ours {
			epochs, err := d.reader.Epochs(ctx, id, l.target(), e.Start, e.End)
			if err != nil {
				return mirror.Recovered{From: start, HighestProducerID: -1}, err
			}
			for _, e := range epochs {
				r.Epochs = append(r.Epochs, mirror.EpochStart{Epoch: e.Epoch, Start: e.Start})
			}
		}
	}
	return r, nil
}

// endsQuestion asks one broker where its copy of a partition ends.
type endsQuestion struct {
	broker int32
	target replicareader.Target
}

func (d *Destination) askEnds(ctx context.Context, qs []endsQuestion) ([]replicareader.Ends, error) {
	return askEnds(ctx, d.reader, qs)
}

// askEnds asks for many copies with few requests.
func askEnds(ctx context.Context, reader *replicareader.Reader, qs []endsQuestion) ([]replicareader.Ends, error) {
	byBroker := map[int32][]replicareader.Target{}
	for _, q := range qs {
		byBroker[q.broker] = append(byBroker[q.broker], q.target)
	}
	type answer struct {
		broker int32
		ends   map[replicareader.Target]replicareader.Ends
	}
	answers := make(chan answer, len(byBroker))
	for id, targets := range byBroker {
		go func() {
			ends, _ := reader.Ends(ctx, id, targets) // every target has its own error
			answers <- answer{id, ends}
		}()
	}
	all := map[int32]map[replicareader.Target]replicareader.Ends{}
	for range byBroker {
		a := <-answers
		all[a.broker] = a.ends
	}
	out := make([]replicareader.Ends, len(qs))
	for i, q := range qs {
		out[i] = all[q.broker][q.target]
	}
	return out, nil
}
