package simulator

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/clustermirror/clustermirror/internal/simulator/model"
	"github.com/clustermirror/clustermirror/statemachine"
)

// Script is a run as text: a header and ops.
type Script struct {
	Config Config
	Ops    []string
}

// String is the script's text, one line each.
func (s Script) String() string {
	return s.Config.String() + "\n" + strings.Join(s.Ops, "\n") + "\n"
}

// ParseScript reads a script. Empty lines and lines that begin with # say nothing.
func ParseScript(text string) (Script, error) {
	var s Script
	var err error
	s.Config, _ = parseConfig("")
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "config"):
			if s.Config, err = parseConfig(line); err != nil {
				return s, err
			}
		default:
			s.Ops = append(s.Ops, line)
		}
	}
	return s, nil
}

// Outcome is how one run ended.
type Outcome struct {
	Script     Script
	Step       int              // the op at which a rule was broken; −1: none was. len(Script.Ops): at the end, when everything was healed
	Violation  *model.Violation // nil: none
	Err        error            // the simulator itself is wrong, or the script cannot be read
	Stats      Stats
	Transcript string // when it was asked for
}

// Play plays a script.
func Play(s Script, transcript bool) Outcome { return play(s, transcript, nil) }

func play(s Script, transcript bool, objector func(op string) *model.Violation) Outcome {
	w := newWorld(s.Config, transcript)
	w.objector = objector
	o := Outcome{Script: s, Step: -1}
	for i, op := range s.Ops {
		if !w.one(op, i, &o) {
			return w.outcome(o)
		}
	}
	w.finish(&o)
	return w.outcome(o)
}

// one carries out an op; false: the run is over.
func (w *world) one(op string, i int, o *Outcome) bool {
	if err := w.apply(op); err != nil {
		w.wrong(fmt.Errorf("op %d, %q: %w", i, op, err))
	}
	if w.objector != nil && !w.over() {
		if v := w.objector(op); v != nil {
			w.broken = []model.Violation{*v}
		}
	}
	if w.over() {
		o.Step = i
		return false
	}
	return true
}

func (w *world) outcome(o Outcome) Outcome {
	w.stats.Simulated = w.now.Hours()
	o.Err, o.Stats, o.Transcript = w.err, w.stats, w.out.String()
	if len(w.broken) > 0 {
		v := w.broken[0]
		o.Violation = &v
	}
	return o
}

// Seed plays the run of one seed.
func Seed(seed uint64, transcript bool) Outcome {
	rng := rand.New(rand.NewPCG(seed, 0x73696d))
	cfg := drawConfig(rng)
	w := newWorld(cfg, transcript)
	a := newAdversary(w, rng)
	o := Outcome{Script: Script{Config: cfg}, Step: -1}
	n := 60 + rng.IntN(240)
	for i := range n {
		op := a.choose()
		o.Script.Ops = append(o.Script.Ops, op)
		if !w.one(op, i, &o) {
			return w.outcome(o)
		}
	}
	w.finish(&o)
	return w.outcome(o)
}

// bounds of the end of a run.
const (
	restBound = 20 * time.Minute
	stopBound = 10 * time.Minute
)

// finish ends a run: everything is healed and has to come to rest; then the source is lost for ever, and a stop has to end all the same (invariant 8).
func (w *world) finish(o *Outcome) {
	o.Step = len(o.Script.Ops)
	w.say("--- rest")
	w.heal()
	limit := w.now + restBound
	for w.now < limit && !w.over() {
		w.run(30 * time.Second)
		if w.settled() {
			if w.run(4 * groupsEvery); w.settled() { // groups have followed what came last
				break
			}
		}
	}
	w.compare()
	w.show()
	w.each(func(r *runner) {
		if w.cfg.Blind && r.m.want != statemachine.WantStopped {
			return // a source that tells no leader epochs proves nothing: the partition waits, and says so (decision 15)
		}
		w.tell(func(m *model.World) { m.Rest(r.of) })
		if r.state == statemachine.Mirroring && w.settled() {
			w.history.rest(r)
		}
	})
	w.readOn()
	last := w.last()
	if last != nil && !w.over() {
		w.say("--- %s is lost for ever, and %s is stopped", last.source.name, last.name)
		w.lose(last.source, true)
		last.wanted(statemachine.WantStopped)
		limit := w.now + stopBound
		for w.now < limit && !w.over() {
			w.run(10 * time.Second)
			if w.stopped(last) {
				break
			}
		}
		w.compare()
		w.each(func(r *runner) {
			if r.m == last {
				w.tell(func(m *model.World) { m.Stopped(r.of) })
			}
		})
	}
	if !w.over() {
		w.readOn()
		w.history.judge()
	}
	if !w.over() {
		o.Step = -1
	}
}

// heal ends every fault. Processes that are overtaken or halted are replaced.
func (w *world) heal() {
	limited := w.cfg.MaxBatch > 0
	w.cfg.MaxBatch = 0
	for _, m := range w.mirrors {
		m.link = link{}
		m.armed = nil
	}
	for _, c := range w.clusters {
		w.lose(c, false)
		c.storeFail, c.groupFail = storeFault{}, groupFault{}
	}
	w.logs(func(l *partitionLog) {
		l.full, l.slow, l.noLeader = false, 0, false
		l.raiseEpoch(l.top, model.Cluster, "")
		for i := range l.replicas {
			l.replicas[i].stuck = false
		}
		l.follow()
		for i := range l.replicas {
			l.replicas[i].inSync = true
		}
	})
	for _, p := range w.clients.producers {
		if p.ended {
			w.end(p.name, p.commits, -1)
		}
	}
	for _, m := range w.mirrors {
		for _, p := range append([]*process(nil), m.processes...) {
			if p.held {
				p.resume()
			}
		}
		stale := len(m.processes) != 1 || limited
		for _, p := range m.processes {
			for _, r := range p.runners {
				stale = stale || r.halted
			}
		}
		if stale {
			for len(m.processes) > 0 {
				m.processes[0].crash(0)
			}
			m.launch()
		}
	}
}

// each visits every partition that a newest process runs.
func (w *world) each(do func(*runner)) {
	for _, m := range w.mirrors {
		if p := m.newest(); p != nil {
			for _, r := range p.runners {
				if !r.l.gone {
					do(r)
				}
			}
		}
	}
}

// settled says that every partition is where its wish is, or that only a person helps.
func (w *world) settled() bool {
	ok := true
	w.each(func(r *runner) {
		st := r.core.Status()
		switch {
		case r.state == statemachine.Failed && (st.Record.RetryAttempt == statemachine.NonRetryable || r.l.taken):
		case r.m.want == statemachine.WantStopped:
			ok = ok && (r.state == statemachine.Stopped || r.state == statemachine.Unknown) && r.l.open
		case r.m.want == statemachine.WantPaused:
			ok = ok && (r.state == statemachine.Paused || r.state == statemachine.Stopped || r.state == statemachine.Unknown)
		default:
			src := r.m.source.log(r.l.at.Topic, r.l.at.Partition)
			ok = ok && r.state == statemachine.Mirroring && src != nil && (r.l.high >= src.high || st.NothingLeft)
		}
	})
	return ok
}

func (w *world) stopped(m *mirror) bool {
	ok := true
	w.each(func(r *runner) {
		if r.m == m {
			ok = ok && r.state == statemachine.Stopped && r.l.open
		}
	})
	return ok
}

// last is a mirror that is to be stopped at the end, nil if none runs.
func (w *world) last() *mirror {
	for _, m := range w.mirrors {
		if p := m.newest(); m.member && p != nil && len(p.runners) > 0 && m.want != statemachine.WantStopped {
			return m
		}
	}
	for _, m := range w.mirrors {
		if p := m.newest(); m.member && p != nil && len(p.runners) > 0 {
			return m
		}
	}
	return nil
}
