package kraft

import (
	"maps"
	"sync"
)

// topicSettings says, by topic, who needs its safe settings now, and keeps setting them and putting them back apart.
type topicSettings struct {
	mu    sync.Mutex
	inUse map[string]int
	locks map[string]turn
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
