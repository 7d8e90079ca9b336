package kraft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/internal/clustermetadata"
)

// While a mirror process has a topic, min.insync.replicas and unclean.leader.election.enable are held at safe values, and what the topic is to have is remembered. Somebody else who sets
// them meanwhile says what the topic is to have: that is remembered first, then told, and then the safe value is set again. Whatever ends this between two of the steps, the topic still says
// what he set, and all of it is done anew. A tool that sets them again and again is answered with growing pauses. A stop, and leader epochs that rise, wait for no pause. Somebody who sets
// exactly the safe value cannot be told from this process, and of two changes of one setting within milliseconds the first may be the one that counts.

// safeSettings are what a mirrored topic says for itself.
var safeSettings = map[string]string{minInSync: "1", uncleanElection: "false"}

const (
	mostHeldPause = time.Minute     // between two times that a topic's settings are set again
	heldQuiet     = 5 * time.Minute // after so long without a change of them the pauses begin anew
	toolTries     = 4               // so many changes one after the other are a tool's
)

// topicSettings says, by topic, who needs its safe settings now, and keeps setting them and putting them back apart.
type topicSettings struct {
	mu    sync.Mutex
	inUse map[string]int
	locks map[string]turn
	held  map[string]*holding
}

// holding is how often a topic's safe settings had to be set again.
type holding struct {
	busy  bool // somebody waits for the next time
	tries int
	last  time.Time
	told  map[string]bool
}

// rest is how long it is until the settings may be set again.
func (h *holding) rest(now time.Time) time.Duration {
	if h.tries == 0 || now.Sub(h.last) > heldQuiet {
		h.tries, h.told = 0, nil
		return 0
	}
	return max(0, min(time.Second<<min(h.tries-1, 10), mostHeldPause)-now.Sub(h.last))
}

// holding calls f with what is known of a topic, under the lock.
func (d *Destination) holding(topic string, f func(*holding)) {
	d.settings.mu.Lock()
	defer d.settings.mu.Unlock()
	if d.settings.held == nil {
		d.settings.held = map[string]*holding{}
	}
	if d.settings.held[topic] == nil {
		d.settings.held[topic] = &holding{}
	}
	f(d.settings.held[topic])
}

// tellOnce tells something of a topic's settings, and not again before it has been quiet.
func (d *Destination) tellOnce(topic string, e Event) {
	first := false
	d.holding(topic, func(h *holding) {
		if h.told == nil {
			h.told = map[string]bool{}
		}
		first = !h.told[e.Text]
		h.told[e.Text] = true
	})
	if e.Partition.Topic = topic; first {
		d.notice(e)
	}
}

// unheld are the settings that a topic does not say as it does while it is mirrored, as it says them; nil: it does not.
func (d *Destination) unheld(topic string) map[string]*string {
	says := map[string]*string{}
	d.meta.look(func(im *clustermetadata.Image) {
		for name, safe := range safeSettings {
			if v, ok := im.Config(clustermetadata.TopicResource, topic, name); !ok {
				says[name] = nil
			} else if v != safe {
				says[name] = &v
			}
		}
	})
	return says
}

// holdSoon sets a topic's safe settings again, if this process has any of its partitions and somebody else has changed them. It does not wait.
func (d *Destination) holdSoon(topic string) {
	if d.membership.brokerEpoch() < 0 || len(d.unheld(topic)) == 0 || !d.among(topic) {
		return
	}
	busy := false
	d.holding(topic, func(h *holding) { busy, h.busy = h.busy, true })
	if busy {
		return
	}
	d.spawn(func(ctx context.Context) {
		for len(d.unheld(topic)) > 0 && d.among(topic) {
			var rest time.Duration
			d.holding(topic, func(h *holding) { rest = h.rest(time.Now()) })
			if pause(ctx, int(rest.Milliseconds())) != nil {
				break
			}
			bounded, stop := d.cfg.bounded(ctx)
			err := d.holdAgain(bounded, topic)
			stop()
			if reason := d.unsafeTopic(topic); err != nil && reason != "" && ctx.Err() == nil && d.inSession() == nil {
				d.tellOnce(topic, Event{Kind: Unsafe, Err: err, Text: reason})
			}
		}
		d.holding(topic, func(h *holding) { h.busy = false })
		if ctx.Err() == nil {
			d.holdSoon(topic) // somebody may have changed them in this moment
		}
	})
}

// holdAgain does it now.
func (d *Destination) holdAgain(ctx context.Context, topic string) error {
	lock := d.settingsLock(topic)
	if err := lock.take(ctx); err != nil {
		return fmt.Errorf("kraft: settings of topic %s: something else is under way with them: %w", topic, err)
	}
	defer lock.release()
	if err := d.inSession(); err != nil {
		return err
	}
	if err := d.meta.caughtUp(ctx); err != nil {
		return err
	}
	tries := 0
	var says map[string]*string
	for {
		now := d.unheld(topic)
		t, ok := d.topic(topic)
		if !ok || len(now) == 0 || !d.among(topic) {
			return nil
		}
		if tries > 0 && sameSettings(says, now) {
			break
		}
		if says = now; tries == 0 {
			d.holding(topic, func(h *holding) {
				h.rest(time.Now())
				h.tries, h.last = h.tries+1, time.Now()
				tries = h.tries
			})
		}
		var others map[string]*string
		held := false
		if err := d.remembered.do(ctx, rememberedChange{topic: topic, id: t.ID, old: true, f: func(m *memory) {
			if held = m.Configs != nil; held {
				others = m.keep(says)
			}
		}}); err != nil {
			return err
		}
		if !held { // it is being created, or found, and not remembered yet
			return nil
		}
		d.tellKept(topic, others)
		// He may have changed it once more meanwhile, and a peer may have set it again.
		if err := d.meta.caughtUp(ctx); err != nil {
			return err
		}
	}
	if tries == toolTries {
		d.tellOnce(topic, Event{Kind: Trouble, Text: fmt.Sprintf("%s of topic %s are changed again and again while it is mirrored, as by a tool that keeps settings as they are written down: they are set back each time, "+
			"after pauses of up to %v in which nothing is appended. Have the tool leave the topic alone until it is stopped", strings.Join([]string{minInSync, uncleanElection}, " and "), topic, mostHeldPause)})
	}
	safe := map[string]*string{}
	for name := range says {
		v := safeSettings[name]
		safe[name] = &v
	}
	if err := d.setConfigs(ctx, topic, safe); err != nil {
		return err
	}
	return d.meta.caughtUp(ctx)
}

// tellKept tells whoever has set a held setting what becomes of it.
func (d *Destination) tellKept(topic string, values map[string]*string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		what := fmt.Sprintf("%s was deleted from topic %s while it is mirrored: it will have none of its own after the stop", name, topic)
		if v := values[name]; v != nil {
			what = fmt.Sprintf("%s=%s was set on topic %s while it is mirrored: kept for the time after the stop", name, *v, topic)
		}
		d.tellOnce(topic, Event{Kind: SettingKept, Text: fmt.Sprintf("%s; until then %s holds", what, safeSettings[name])})
	}
}

// holdLed does holdAgain for every topic that this process leads a partition of.
func (d *Destination) holdLed(ctx context.Context) error {
	topics := map[string]bool{}
	d.meta.look(func(im *clustermetadata.Image) {
		for _, p := range im.PartitionsOf(d.cfg.NodeID) {
			if p.Leader == d.cfg.NodeID && unsafeConfig(im, p.Topic) != "" {
				topics[p.Topic] = true
			}
		}
	})
	var mu sync.Mutex
	var failed []error
	var all sync.WaitGroup
	for topic := range topics {
		all.Go(func() {
			if err := d.holdAgain(ctx, topic); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	all.Wait()
	return errors.Join(failed[:min(len(failed), 3)]...)
}

// keep takes what a topic says for what somebody wants it to have, where it does not say that by a mirror process's doing, and returns what it took.
func (m *memory) keep(says map[string]*string) (others map[string]*string) {
	others = map[string]*string{}
	for name, value := range says {
		if !slices.ContainsFunc(m.Said[name], func(own *string) bool { return sameText(own, value) }) {
			others[name] = value
		}
	}
	m.Configs = maps.Clone(m.Configs)
	maps.Copy(m.Configs, others)
	return others
}

// say notes what the topic may say without somebody else's doing.
func (m *memory) say(values map[string]*string) {
	said := map[string][]*string{}
	maps.Copy(said, m.Said)
	for name, value := range values {
		if !slices.ContainsFunc(said[name], func(own *string) bool { return sameText(own, value) }) {
			said[name] = append(slices.Clone(said[name]), value)
		}
	}
	m.Said = said
}

// keepSettings says that a take-over or a creation of this topic is under way: its settings are not put back meanwhile.
func (d *Destination) keepSettings(topic string) {
	d.settings.mu.Lock()
	defer d.settings.mu.Unlock()
	if d.settings.inUse == nil {
		d.settings.inUse = map[string]int{}
	}
	d.settings.inUse[topic]++
}

func (d *Destination) freeSettings(topic string) {
	d.settings.mu.Lock()
	defer d.settings.mu.Unlock()
	if d.settings.inUse[topic]--; d.settings.inUse[topic] == 0 {
		delete(d.settings.inUse, topic)
	}
}

func (d *Destination) settingsInUse(topic string) bool { return d.settingsUsers(topic) > 0 }

func (d *Destination) settingsUsers(topic string) int {
	d.settings.mu.Lock()
	defer d.settings.mu.Unlock()
	return d.settings.inUse[topic]
}

func (d *Destination) settingsLock(topic string) turn {
	d.settings.mu.Lock()
	defer d.settings.mu.Unlock()
	if d.settings.locks == nil {
		d.settings.locks = map[string]turn{}
	}
	if d.settings.locks[topic] == nil {
		d.settings.locks[topic] = newTurn()
	}
	return d.settings.locks[topic]
}

// sameSettings says whether settings are the same; nil values are settings that are not set.
func sameSettings(a, b map[string]*string) bool {
	return maps.EqualFunc(a, b, func(x, y *string) bool { return (x == nil) == (y == nil) && (x == nil || *x == *y) })
}
