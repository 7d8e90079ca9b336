package statuspage

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
)

// Loud events (Warn and above) have room of their own: the many quiet ones of a busy hour do not push them out.
const (
	loudRoom  = 200
	quietRoom = 100
)

// happened is one event. It holds on to nothing else.
type happened struct {
	Time      time.Time `json:"time"`
	Level     string    `json:"level"`
	Mirror    string    `json:"mirror"`
	Topic     string    `json:"topic,omitempty"`
	Partition *int32    `json:"partition,omitempty"`
	Text      string    `json:"text"`
	order     uint64
}

// recent has the last events. The zero value is ready to use.
type recent struct {
	mu          sync.Mutex
	loud, quiet []happened
	count       uint64
}

func (r *recent) add(e mirror.Event) {
	at := e.Where()
	h := happened{Time: at.Time, Level: e.Level().String(), Mirror: strings.Clone(clip(at.Mirror, nameRoom)), Topic: strings.Clone(clip(at.Topic, nameRoom)), Text: strings.Clone(clip(e.String(), textRoom))}
	if at.Topic != "" && at.Partition >= 0 {
		n := at.Partition
		h.Partition = &n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	h.order = r.count
	if e.Level() >= slog.LevelWarn {
		r.loud = pushed(r.loud, h, loudRoom)
	} else {
		r.quiet = pushed(r.quiet, h, quietRoom)
	}
}

// pushed puts an event behind the others; beyond the room the oldest goes.
func pushed(all []happened, h happened, room int) []happened {
	if len(all) == room {
		copy(all, all[1:])
		all = all[:room-1]
	}
	return append(all, h)
}

// last are the newest events of a mirror ("" any) and topic ("" any), the newest first: so many loud ones, and so many quiet ones between them.
func (r *recent) last(name, topic string, loud, quiet int) []happened {
	name, topic = clip(name, nameRoom), clip(topic, nameRoom)
	newest := func(all []happened, most int) []happened {
		of := slices.DeleteFunc(slices.Clone(all), func(h happened) bool { return name != "" && h.Mirror != name || topic != "" && h.Topic != topic })
		return of[max(0, len(of)-most):]
	}
	r.mu.Lock()
	all := slices.Concat(newest(r.loud, loud), newest(r.quiet, quiet))
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b happened) int { return cmp.Compare(b.order, a.order) })
	return all
}
