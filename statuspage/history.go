package statuspage

import (
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/statemachine"
)

const (
	samples    = 120  // of a mirror or topic that are kept
	mostTopics = 5000 // of which samples are kept, of all mirrors together
)

// unknown is the sample of what cannot be measured. It is never drawn as a number.
const unknown = -1

// ring has the last samples of one number.
type ring struct {
	at  [samples]float32
	end int // how many were taken
}

func (r *ring) add(v float64) {
	r.at[r.end%samples] = float32(v)
	r.end++
}

// values are the samples that are kept, the oldest first.
func (r *ring) values() []float32 {
	n := min(r.end, samples)
	all := make([]float32, 0, n)
	for i := r.end - n; i < r.end; i++ {
		all = append(all, r.at[i%samples])
	}
	return all
}

// lag is the lag of a mirror or topic over time: how old its oldest copy is in seconds, and how many offsets it lacks.
type lag struct{ age, offsets ring }

// add takes a sample; of nothing that is a copy there is no lag that could be known.
func (l *lag) add(risk mirror.AtRisk) {
	age, offsets := float64(unknown), float64(unknown)
	if risk.Partitions > 0 && risk.UnknownAge == 0 {
		age = risk.Age.Seconds()
	}
	if risk.Partitions > 0 && risk.UnknownOffsets == 0 {
		offsets = float64(risk.Offsets)
	}
	l.age.add(age)
	l.offsets.add(offsets)
}

// history is what is kept of one mirror.
type history struct {
	lag
	topics map[string]*lag
	last   time.Time // when the last sample was taken
}

// sample takes one of every mirror. What is not shown any more is forgotten.
func (p *Page) sample() {
	subjects := p.cfg.Mirrors()
	statuses := make([]mirror.Status, len(subjects))
	for i, s := range subjects {
		if s.Mirror != nil {
			statuses[i] = s.Mirror.Status() // without the lock: whoever looks does not wait for it
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := map[string]bool{}
	kept := 0
	for i, s := range subjects {
		if shown[s.Name] {
			continue
		}
		shown[s.Name] = true
		h := p.history[s.Name]
		if h == nil {
			h = &history{topics: map[string]*lag{}}
			p.history[s.Name] = h
		}
		h.last = time.Now()
		h.add(statuses[i].AtRisk())
		there := map[string]bool{}
		for _, t := range statuses[i].Topics {
			there[t.Topic] = true
			if h.topics[t.Topic] == nil && kept+len(h.topics) < mostTopics {
				h.topics[t.Topic] = &lag{}
			}
			if l := h.topics[t.Topic]; l != nil {
				l.add(riskOf(t))
			}
		}
		for topic := range h.topics {
			if !there[topic] {
				delete(h.topics, topic)
			}
		}
		kept += len(h.topics)
	}
	for name := range p.history {
		if !shown[name] {
			delete(p.history, name)
		}
	}
	for name := range p.looks {
		if !shown[name] {
			delete(p.looks, name)
		}
	}
}

// riskOf is what a failover of one topic would lose.
func riskOf(t mirror.TopicStatus) mirror.AtRisk {
	return mirror.Status{Topics: []mirror.TopicStatus{t}}.AtRisk()
}

// over says that the partition is no copy any more, or is becoming none: there is nothing that it could lag behind.
func over(p *mirror.PartitionStatus) bool {
	return p.State == statemachine.Stopped || p.State == statemachine.Stopping
}

// lagOver gives the samples of a mirror, or of one of its topics; false: there are none.
func (p *Page) lagOver(name, topic string) (age, offsets []float32, last time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.history[name]
	if h == nil {
		return nil, nil, time.Time{}, false
	}
	l := &h.lag
	if topic != "" {
		if l = h.topics[topic]; l == nil {
			return nil, nil, time.Time{}, false
		}
	}
	return l.age.values(), l.offsets.values(), h.last, true
}
