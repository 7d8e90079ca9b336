package kraft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
	"github.com/clustermirror/clustermirror/internal/leaderlog"
	"github.com/clustermirror/clustermirror/internal/replicareader"
	"github.com/clustermirror/clustermirror/mirror"
)

// A leader that stores nothing has to learn what its partitions hold before it answers the first follower: whoever serves an empty log truncates its followers. The log is held
// until then. The copies are asked where they end, the longest becomes the log, and its leader epochs are found by looking at some batch headers: nothing is read in full.
//
// A record that MinInSyncReplicas copies had is on at least one of any R − MinInSyncReplicas + 1 of R copies, so as many are waited for; when brokers stay away longer than
// copyWait, it goes on with those that are there, and says so: a stop must not wait for a dead broker for ever.

const copyWait = 30 * time.Second

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
		if d.barrier.share(bounded) != nil {
			return
		}
		defer d.barrier.unshare()
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
// middle of it, is finished here: whoever tries again finds the topic there, and asks for no creation. It touches the in-sync replicas, so no fence may meet it.
func (l *Log) bringBack(ctx context.Context) error {
	for shared := false; ; shared = true {
		if err := l.work.take(ctx); err != nil {
			return l.d.errorf(l.tp, "something else is under way with it: %w", err)
		}
		p, err := l.d.partition(l.tp)
		if err != nil || l.mine("") == nil && !l.log.Held() && !l.misshapen(p) {
			l.work.release()
			return err
		}
		if shared {
			defer l.work.release()
			return l.regain(ctx)
		}
		l.work.release() // the barrier comes first, as everywhere
		if err := l.d.barrier.share(ctx); err != nil {
			return l.d.errorf(l.tp, "leader epochs are being raised: %w", err)
		}
		defer l.d.barrier.unshare()
	}
}

// misshapen says that other brokers are in sync, or that an empty log has no copies yet. A log with content whose copies somebody took away is not mended here: its followers would be
// in sync before they have anything.
func (l *Log) misshapen(p clustermetadata.Partition) bool {
	return len(p.ISR) > 1 && len(p.Adding) == 0 || l.log.Start() == l.log.End() && l.incomplete(p)
}

// incomplete says that no stock broker is a replica, or that one is still being added.
func (l *Log) incomplete(p clustermetadata.Partition) bool {
	return len(without(target(p), l.d.cfg.NodeID)) == 0 || len(p.Adding) > 0
}

// regain learns what the partition holds, serves it, and brings it to its shape. Under work; this process leads the partition, and nothing fences it.
func (l *Log) regain(ctx context.Context) error {
	d := l.d
	p, err := d.partition(l.tp)
	if err != nil {
		return err
	}
	if p.Leader != d.cfg.NodeID {
		return d.errorf(l.tp, "its leader is %d and not this process: %w", p.Leader, mirror.ErrFenced)
	}
	if len(p.ISR) > 1 && len(p.Adding) == 0 { // a crash left a creation or a take-over half way
		if err := d.alone(ctx, l.tp); err != nil {
			return err
		}
	}
	if err := d.adopt(ctx, l.tp.Topic, l.id); err != nil {
		return err
	}
	if l.mine("") != nil || l.log.Held() {
		found, err := l.find(ctx, p)
		if err != nil {
			return err
		}
		if p, err = d.partition(l.tp); err != nil {
			return err
		}
		l.begin(p, found)
	}
	if l.log.Start() == l.log.End() && l.incomplete(p) {
		return d.complete(ctx, l)
	}
	return nil
}

// find asks the copies.
func (l *Log) find(ctx context.Context, p clustermetadata.Partition) (leaderlog.Found, error) {
	d := l.d
	stock := without(p.Replicas, d.cfg.NodeID)
	if len(stock) == 0 {
		return leaderlog.Found{}, nil // nobody ever had a copy
	}
	remembered, err := d.remembered.of(ctx, l.tp.Topic, l.id)
	if err != nil {
		return leaderlog.Found{}, err
	}
	limits := remembered.Unconfirmed[l.tp.Partition]
	enough := max(1, len(stock)-d.cfg.MinInSyncReplicas+1)
	began := time.Now()
	for {
		if now, err := d.partition(l.tp); err != nil {
			return leaderlog.Found{}, err
		} else if now.TopicID != l.id {
			return leaderlog.Found{}, d.errorf(l.tp, "%w at the destination: it was deleted, and another topic has its name", mirror.ErrUnknownTopic)
		}
		copies, there := l.copies(ctx, stock, limits)
		if there >= enough || there > 0 && time.Since(began) > copyWait {
			if there < enough {
				d.notice(Event{Kind: Trouble, Partition: l.tp, Text: fmt.Sprintf("only %d of %d copies can be asked what they hold: records that no other copy has are given up if they are on the missing ones", there, len(stock))})
			}
			return l.choose(ctx, copies, limits)
		}
		select {
		case <-ctx.Done():
			var all []error
			for _, c := range copies {
				all = append(all, c.Err)
			}
			return leaderlog.Found{}, d.errorf(l.tp, "what it holds is not known: %d of %d copies can be asked, %d are needed; start the brokers: %w", there, len(stock), enough, errors.Join(append(all, ctx.Err())...))
		case <-time.After(200 * time.Millisecond):
		}
	}
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

func (l *Log) choose(ctx context.Context, copies []replicareader.Copy, limits map[int32]int64) (leaderlog.Found, error) {
	choice, err := l.compare(ctx, copies)
	if err != nil {
		return leaderlog.Found{}, err
	}
	for _, s := range choice.Diverged() {
		l.d.notice(Event{Kind: Trouble, Partition: l.tp, Text: fmt.Sprintf("the copy of broker %d parts from that of broker %d, which is the log now, at %d; it is truncated there", s.Broker, choice.Broker, s.Common)})
	}
	found := leaderlog.Found{Start: choice.Start, End: choice.End, Epochs: choice.Epochs, Ends: map[int32]int64{}, Limits: limits}
	for _, s := range choice.Standings {
		if s.Err == nil {
			found.Ends[s.Broker] = s.Common
		}
	}
	return found, nil
}

// rememberTruncation remembers that no replica has followed a cut at offset yet.
func (l *Log) rememberTruncation(ctx context.Context, offset int64) error {
	p, err := l.d.partition(l.tp)
	if err != nil {
		return err
	}
	return l.d.remembered.change(ctx, l.tp.Topic, l.id, func(m *memory) {
		if m.Unconfirmed == nil {
			m.Unconfirmed = map[int32]map[int32]int64{}
		}
		if m.Unconfirmed[l.tp.Partition] == nil {
			m.Unconfirmed[l.tp.Partition] = map[int32]int64{}
		}
		of := m.Unconfirmed[l.tp.Partition]
		for _, id := range without(p.Replicas, l.d.cfg.NodeID) {
			if limit, ok := of[id]; !ok || offset < limit {
				of[id] = offset
			}
		}
	})
}

// confirmTruncation forgets which replicas were to truncate, as far as they have.
func (l *Log) confirmTruncation(ctx context.Context) {
	if l.mine("") != nil {
		return
	}
	m, err := l.d.remembered.of(ctx, l.tp.Topic, l.id)
	if err != nil || len(m.Unconfirmed[l.tp.Partition]) == 0 {
		return
	}
	var done []int32
	for _, f := range l.log.Followers() {
		if _, ok := m.Unconfirmed[l.tp.Partition][f.Broker]; ok && f.Truncated && f.Limit < 0 {
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
	p, err := d.partition(l.tp)
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
			return !slices.ContainsFunc(fs, func(f leaderlog.Follower) bool { return f.Live }) || slices.ContainsFunc(fs, func(f leaderlog.Follower) bool { return f.Live && f.Truncated && f.Limit < 0 })
		})
		if err := ctx.Err(); err != nil {
			return mirror.Recovered{}, l.d.errorf(l.tp, "no follower has followed the last cut: %w; %s", err, l.lateness())
		}
		holders = nil
		for _, f := range l.log.Followers() {
			if f.Truncated && f.Limit < 0 {
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

// askEnds asks for many copies with few requests.
func (d *Destination) askEnds(ctx context.Context, qs []endsQuestion) ([]replicareader.Ends, error) {
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
			ends, _ := d.reader.Ends(ctx, id, targets) // every target has its own error
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
