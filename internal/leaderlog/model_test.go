package leaderlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/internal/replicaserver"
	"github.com/clustermirror/clustermirror/logtrunc"
)

// impatient is a context that ends as soon as somebody waits for it.
type impatient struct {
	context.Context
	waited bool
}

func (c *impatient) Done() <-chan struct{} {
	c.waited = true
	done := make(chan struct{})
	close(done)
	return done
}

func (c *impatient) Err() error {
	if c.waited {
		return context.Canceled
	}
	return nil
}

func now() context.Context { return &impatient{Context: context.Background()} }

// world is a leader and three stock followers, and what the log has to be.
type world struct {
	draw      func(what string, n int) int // [0, n)
	mutate    func(*Log) leader            // what followers talk to; nil: the log
	log       *Log
	memory    *Memory
	followers []*stock
	want      int
	told      int // want, as the log was told

	truth      []copied
	start, end int64
	epoch      int32 // of the next batches
	leader     int32
	values     int
	replicated int64 // as it was last seen
	steps      []string
	waits      int             // appends that found the memory full
	backs      int             // reads from copies
	registered map[int32]int64 // broker epochs
	raised     [2]int64
	found      error
}

func newWorld(draw func(string, int) int) *world {
	w := &world{draw: draw, memory: NewMemory(int64(200 + 200*draw("memory", 6))), want: 1 + draw("want", 3), leader: 3, registered: map[int32]int64{1: 1, 2: 1, 3: 1}}
	for id := range int32(3) {
		w.followers = append(w.followers, newStock(id+1))
	}
	w.lead(Found{})
	for _, s := range w.followers {
		s.hear(w.leader)
	}
	return w
}

func (w *world) lead(f Found) {
	w.raised = [2]int64{-1, -1}
	w.log = New(Options{Topic: "t", Back: w, Memory: w.memory, Raised: func(before, start int64) { w.raised = [2]int64{before, start} }})
	w.log.Begin(f)
	w.log.Lead(w.leader)
	w.seeLive()
	w.log.Release()
}

func (w *world) seeLive() {
	var live []int32
	for _, s := range w.followers {
		if !s.dead {
			live = append(live, s.id)
		}
	}
	w.told = w.want
	w.log.SetFollowers([]int32{1, 2, 3}, live, w.registered, w.want)
}

// ReadBack reads from the copy of the first holder that is alive.
func (w *world) ReadBack(ctx context.Context, from int64, most int, holders []int32) ([]byte, error) {
	w.backs++
	for _, id := range holders {
		if s := w.followers[id-1]; !s.dead && s.start <= from {
			return readCopy(s.bytes(), from, most), nil
		}
	}
	return nil, errors.New("no broker answers")
}

func (w *world) sayf(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *world) wrong(format string, args ...any) {
	if w.found == nil {
		w.found = fmt.Errorf(format, args...)
	}
}

func (w *world) served() leader {
	if w.mutate != nil {
		return w.mutate(w.log)
	}
	return w.log
}

// ask sends a follower's request. Anything may happen until its answer comes.
func (w *world) ask(s *stock) {
	if s.asked != nil || s.dead || s.fenced {
		return
	}
	s.ask(w.served(), 60+120*w.draw("fetch bytes", 4))
	w.sayf("%d asks at %d epoch %d: %s", s.id, s.end, s.last, told(s.answer))
}

// take has a follower take its answer. What is not in memory is read back first, in the background: then the log is asked once more, as replicaserver does, and what was read goes with that answer.
func (w *world) take(s *stock) {
	if s.asked == nil || s.dead || s.fenced {
		return
	}
	if s.answer.Back && s.back == nil {
		b, err := w.log.ReadBack(now(), s.asked.Offset, 200)
		w.sayf("%d: read back at %d: %s %v", s.id, s.asked.Offset, spans(b), err)
		if s.back = b; len(b) == 0 {
			s.asked = nil // it asks again
		}
		if w.draw("later", 2) == 0 {
			return
		}
	}
	if s.asked != nil && s.answer.Back {
		s.answer = w.served().Fetch(*s.asked)
	}
	w.sayf("%d takes at %d epoch %d: %s %s", s.id, s.end, s.last, told(s.answer), spans(s.back))
	s.take(w.served())
	if s.failed != "" {
		w.wrong("follower %d failed: %s", s.id, s.failed)
	}
}

func (w *world) append() {
	at := w.end
	if w.draw("gap", 5) == 0 {
		at += int64(w.draw("width", 4))
	}
	var some []copied
	var chunk []byte
	for range 1 + w.draw("batches", 3) {
		w.epoch = min(w.leader, w.epoch+int32(max(0, w.draw("newer epoch", 6)-4)))
		n := 1 + w.draw("records", 5)
		w.values++
		base := at
		if len(w.truth) == 0 && len(some) == 0 && w.start == w.end && w.start > 3 && w.draw("begins below", 2) == 0 {
			base = w.start - 2
			n += 2
		}
		b := data(base, n, w.epoch, fmt.Sprintf("%05d", w.values))
		some = append(some, copied{base, base + int64(n) - 1, w.epoch, string(b)})
		chunk = append(chunk, b...)
		at = base + int64(n)
	}
	err := w.log.Append(now(), w.leader, chunk)
	w.sayf("append %s: %v", spans(chunk), err)
	switch {
	case errors.Is(err, context.Canceled):
		w.waits++
	case err != nil:
		w.wrong("append: %v", err)
	default:
		w.truth, w.end = append(w.truth, some...), at
	}
}

func (w *world) truncate() {
	to := w.start - 2 + int64(w.draw("cut", int(w.end-w.start)+4))
	if to < 0 {
		return
	}
	end, err := w.log.TruncateTo(now(), to)
	w.sayf("truncate to %d: %d %v", to, end, err)
	if err != nil {
		if to <= w.start || to >= w.end {
			w.wrong("truncation to %d of [%d, %d]: %v", to, w.start, w.end, err)
		}
		return
	}
	switch {
	case to >= w.end:
		if end != w.end {
			w.wrong("truncation to %d: the end is %d, not %d", to, end, w.end)
		}
		return
	case to <= w.start:
		w.truth, w.start, w.end = nil, to, to
	default:
		n := slices.IndexFunc(w.truth, func(b copied) bool { return b.last >= to })
		inside, below := n >= 0 && w.truth[n].base < to, w.start
		if n < 0 {
			n = len(w.truth)
		}
		if n > 0 {
			below = max(w.start, w.truth[n-1].last+1)
		}
		w.end = end
		if inside && end != max(w.truth[n].base, w.start) || !inside && (end > to || end < below) {
			w.wrong("truncation to %d: the end is %d", to, end)
		}
		w.truth = w.truth[:n]
	}
	w.replicated = min(w.replicated, w.end)
	w.lowerEpoch()
}

func (w *world) lowerEpoch() {
	w.epoch = 0
	if n := len(w.truth); n > 0 {
		w.epoch = w.truth[n-1].epoch
	}
}

func (w *world) reset() {
	to := int64(w.draw("reset", int(w.end)+10))
	w.sayf("reset to %d: %v", to, w.log.ResetTo(to))
	w.truth, w.start, w.end, w.replicated = nil, to, to, to
	w.lowerEpoch()
}

func (w *world) raise() {
	to := w.start + int64(w.draw("raise", int(w.end-w.start)+1))
	want := max(w.start, min(to, w.log.Replicated()))
	w.sayf("raise start to %d: %v", to, w.log.RaiseStart(to))
	w.start = want
	w.forgetBelow()
}

func (w *world) forgetBelow() {
	w.truth = slices.DeleteFunc(w.truth, func(b copied) bool { return b.last < w.start })
}

// retain has a broker delete old batches of its copy by itself.
func (w *world) retain(s *stock) {
	n := w.draw("batches deleted", 5)
	if n = min(n, len(s.batches)); n == 0 || s.dead || s.batches[n-1].last >= s.highWatermark {
		return
	}
	s.batches = slices.Clone(s.batches[n:])
	start := s.end
	if len(s.batches) > 0 {
		start = max(s.start, s.batches[0].base)
	}
	if start > s.highWatermark {
		start = s.highWatermark // in a gap
	}
	s.start, s.segment = start, start
	s.cache.RaiseStart(start)
	w.sayf("%d deletes below %d", s.id, start)
}

// replace has a broker come back with an empty disk, if all others have everything.
func (w *world) replace(s *stock) {
	for _, o := range w.followers {
		if o != s && (o.dead || o.end < w.end || o.start > o.end || !o.has(w.truth, max(w.start, o.start), w.end)) {
			return
		}
	}
	w.sayf("%d comes back with an empty disk", s.id)
	s.wipe(0)
	s.restart()
	w.registered[s.id]++
	w.seeLive()
}

// follow takes a start that the copies made, if no copy that counts has anything below it.
func (w *world) follow(start int64) {
	if w.raised != [2]int64{w.start, start} {
		w.wrong("the start went from %d to %d, told was %d", w.start, start, w.raised)
	}
	for _, known := range w.log.Followers() {
		if s := w.followers[known.Broker-1]; known.Live && known.Position > start && known.LogStart < start && s.start < start && len(s.batches) > 0 && s.has(w.truth, max(w.start, s.start), start) {
			w.wrong("the start went from %d to %d, and %d has [%d, %d]", w.start, start, s.id, s.start, s.end)
		}
	}
	w.sayf("the start follows the copies to %d", start)
	w.start = start
	w.replicated = max(w.replicated, start)
	w.forgetBelow()
}

// crash loses the process; the next one finds the longest copy of the brokers that are alive.
func (w *world) crash() {
	f := Found{Ends: map[int32]int64{}, Limits: map[int32]int64{}}
	var best *stock
	reach := int64(-1)
	for i, known := range w.log.Followers() {
		s := w.followers[i]
		s.asked = nil
		if known.Limit >= 0 {
			f.Limits[s.id] = known.Limit
		}
		// What was cut and followed by some is told by the limit; a log reset beyond a copy's end leaves that copy without a part in it.
		end := s.end
		if known.Limit >= 0 {
			end = min(end, known.Limit)
		}
		if !s.dead && s.has(w.truth, max(w.start, s.start), end) && end >= max(w.start, s.start) {
			f.Ends[s.id] = end
			if end > reach {
				best, reach = s, end
			}
		}
	}
	if best == nil {
		return // it waits until one comes back
	}
	if live := w.log.Replicated(); reach < live {
		return // what was replicated lies with a dead broker only; recovery waits for that one too
	}
	w.log.Close()
	w.leader += 2
	cache := logtrunc.NewCache()
	w.truth = slices.DeleteFunc(w.truth, func(b copied) bool { return b.base >= reach })
	for _, b := range w.truth {
		cache.Assign(b.epoch, b.base)
	}
	if best.start > w.start { // that copy's start becomes the log's
		w.start = best.start
		w.forgetBelow()
		cache.RaiseStart(w.start)
	}
	w.end = max(w.last(), w.start)
	for _, s := range w.followers { // those that could not be asked
		if _, ok := f.Ends[s.id]; !ok {
			if limit, ok := f.Limits[s.id]; !ok || limit > w.end {
				f.Limits[s.id] = w.end
			}
		}
	}
	f.Start, f.End, f.Epochs = w.start, w.end, cache.Entries()
	w.sayf("crash; found [%d, %d] in %d, limits %v", f.Start, f.End, best.id, f.Limits)
	w.lowerEpoch()
	w.replicated = w.start
	w.lead(f)
}

// check looks at what must hold after every step.
func (w *world) check() {
	start, end, replicated := w.log.Start(), w.log.End(), w.log.Replicated()
	if start > w.start {
		w.follow(start)
	}
	if start != w.start || end != w.end || replicated < start || replicated > end {
		w.wrong("the log is [%d, %d], replicated to %d; it should be [%d, %d]", start, end, replicated, w.start, w.end)
	}
	if replicated < w.replicated && w.replicated > w.start {
		w.wrong("replicated fell from %d to %d", w.replicated, replicated)
	}
	if replicated > w.replicated && replicated > start {
		have, live, both := 0, 0, 0
		for i, known := range w.log.Followers() { // who is live is as the log was told
			s := w.followers[i]
			has := s.end >= w.lastBelow(replicated) && s.has(w.truth, max(w.start, s.start), replicated)
			if has {
				have++
			}
			if known.Live {
				live++
				if has {
					both++
				}
			}
		}
		if have < max(1, min(w.told, live)) || both == 0 {
			w.wrong("replicated rose from %d to %d, which %d followers have, %d of them live; %d are live, %d wanted", w.replicated, replicated, have, both, live, w.told)
		}
	}
	w.replicated = replicated
}

func (w *world) run(steps int) error {
	for range steps {
		s := w.followers[w.draw("follower", 3)]
		switch action := w.draw("action", 42); {
		case action < 9:
			w.append()
		case action < 18:
			w.ask(s)
		case action < 26:
			w.take(s)
		case action < 27:
			w.truncate()
		case action == 27 && w.draw("really", 3) == 0:
			w.reset()
		case action == 28:
			w.raise()
		case action == 29:
			w.leader += int32(w.draw("leader epochs", 2))
			w.log.Lead(w.leader)
		case action < 32:
			s.hear(w.leader)
		case action == 32:
			w.sayf("%d dies", s.id)
			s.dead = true
		case action < 35:
			if s.dead {
				w.sayf("%d comes back", s.id)
				s.restart()
			}
		case action < 37:
			w.seeLive()
		case action == 37:
			w.log.Hold()
		case action == 38 && w.draw("really", 2) == 0:
			w.crash()
		case action == 40:
			w.retain(s)
		case action == 41 && s.dead && w.draw("really", 2) == 0:
			w.replace(s)
		case action == 39:
			w.want = 1 + w.draw("want", 3)
			w.seeLive()
		default:
			w.log.Release()
		}
		if w.check(); w.found != nil {
			return w.found
		}
	}
	return w.finish()
}

// finish has all brokers come back and fetch until nothing changes: then each copy is the log.
func (w *world) finish() error {
	w.sayf("finish")
	for _, s := range w.followers {
		if s.dead {
			s.restart()
		}
		s.hear(w.leader)
	}
	w.seeLive()
	w.log.Release()
	for range 40 + 2*len(w.truth) {
		for _, s := range w.followers {
			w.ask(s)
			w.take(s)
			w.take(s)
			if w.check(); w.found != nil {
				return w.found
			}
		}
	}
	lowest := w.followers[0].start
	for _, s := range w.followers {
		if lowest = min(lowest, s.start); s.end > w.end || s.end < w.last() || s.start < w.start || !s.has(w.truth, s.start, w.end) {
			return fmt.Errorf("follower %d ends as [%d, %d] %s\nthe log is [%d, %d] %s", s.id, s.start, s.end, spans(s.bytes()), w.start, w.end, spans(w.bytes()))
		}
	}
	if lowest != w.start {
		return fmt.Errorf("the lowest copy begins at %d, the log at %d", lowest, w.start)
	}
	if w.log.Replicated() != w.end {
		return fmt.Errorf("replicated to %d, the end is %d", w.log.Replicated(), w.end)
	}
	if err := w.log.AwaitTruncated(now()); err != nil {
		return fmt.Errorf("every follower has the log, but: %w", err)
	}
	for _, limit := range []int{1, 1 << 20} {
		var all []byte
		for from := w.start; ; {
			b, err := w.log.Read(now(), from, limit)
			if err != nil {
				return err
			}
			if len(b) == 0 {
				break
			}
			for h := range batch.All(b) {
				from = h.NextOffset()
			}
			all = append(all, b...)
		}
		if string(all) != string(w.bytes()) {
			return fmt.Errorf("read %s, the log is %s", spans(all), spans(w.bytes()))
		}
	}
	w.log.Close()
	if used := w.memory.Used(); used != 0 {
		return fmt.Errorf("%d bytes are held after the end", used)
	}
	return nil
}

// lastBelow is the end of the last batch that begins below offset.
func (w *world) lastBelow(offset int64) int64 {
	end := w.start
	for _, b := range w.truth {
		if b.base < offset {
			end = min(offset, b.last+1)
		}
	}
	return end
}

// last is the end of the last batch; the end may lie above it.
func (w *world) last() int64 {
	if n := len(w.truth); n > 0 {
		return w.truth[n-1].last + 1
	}
	return w.start
}

func (w *world) bytes() []byte {
	var b []byte
	for _, c := range w.truth {
		b = append(b, c.bytes...)
	}
	return b
}

func TestFollowersEndUpWithTheLog(t *testing.T) { rapid.Check(t, followersEndUpWithTheLog) }

func followersEndUpWithTheLog(r *rapid.T) {
	w := newWorld(func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(r, what) })
	if err := w.run(150); err != nil {
		for _, step := range w.steps {
			r.Log(step)
		}
		r.Fatal(err)
	}
}

// seeded runs the model from seeds until it says no.
func seeded(t *testing.T, runs int, mutate func(*Log) leader) (seed int, err error) {
	t.Helper()
	for seed := range runs {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		w := newWorld(func(_ string, n int) int { return random.IntN(n) })
		w.mutate = mutate
		if err := w.run(300); err != nil {
			return seed, fmt.Errorf("%w, after\n%s", err, strings.Join(w.steps, "\n"))
		}
	}
	return 0, nil
}

// mutant changes what followers are answered.
type mutant struct {
	*Log
	change func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer
}

func (m mutant) Fetch(q replicaserver.FetchQuery) replicaserver.FetchAnswer {
	return m.change(m.Log, q)
}

func TestFollowersEndUpWithTheLogFromSeeds(t *testing.T) {
	if seed, err := seeded(t, 1000, nil); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

// TestModelSaysNo: each of these leaders is wrong, and the model finds it.
func TestModelSaysNo(t *testing.T) {
	for name, change := range map[string]func(*Log, replicaserver.FetchQuery) replicaserver.FetchAnswer{
		"tells nobody where logs part": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			a := l.Fetch(q)
			a.Diverging = false
			return a
		},
		"has followers cut one offset too late": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			a := l.Fetch(q)
			a.DivergingEnd++
			return a
		},
		"leaves out a batch": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			a := l.Fetch(q)
			if len(a.Batches) > 1 {
				a.Batches = a.Batches[1:]
			}
			return a
		},
		"counts what was sent as received": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			a := l.Fetch(q)
			for h := range batch.All(slices.Concat(a.Batches...)) {
				q.Offset, q.LastFetchedEpoch = h.NextOffset(), h.LeaderEpoch
			}
			l.Fetch(q)
			return a
		},
		"believes epochs after a cut": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			l.follower(q.Broker).limit = none
			return l.Fetch(q)
		},
		"never tells its start": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			a := l.Fetch(q)
			a.LogStart = 0
			return a
		},
		"tells a start above what is replicated": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			a := l.Fetch(q)
			if a.Code == 0 {
				a.LogStart = l.End()
			}
			return a
		},
		"does not know epochs above its batches'": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			if a := l.Fetch(q); a.Code != 0 || q.LastFetchedEpoch <= l.epochs.Latest() {
				return a
			}
			return replicaserver.FetchAnswer{Code: codeOffsetOutOfRange}
		},
		"does not follow the starts of copies": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			q.LogStart = 0
			return l.Fetch(q)
		},
		"lets a follower have a part of a batch": func(l *Log, q replicaserver.FetchQuery) replicaserver.FetchAnswer {
			q.LogStart = q.Offset
			return l.Fetch(q)
		},
	} {
		if seed, err := seeded(t, 2000, func(l *Log) leader { return mutant{l, change} }); err == nil {
			t.Errorf("a leader that %s passes", name)
		} else {
			t.Logf("seed %d: a leader that %s: %.80q", seed, name, err.Error())
		}
	}
}
