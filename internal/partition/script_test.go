package partition

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/clustermirror/clustermirror/internal/batch"
	"github.com/clustermirror/clustermirror/logtrunc"
	"github.com/clustermirror/clustermirror/statemachine"
	"github.com/clustermirror/clustermirror/txnabort"
)

// A script is a transcript: a command, "----", and what the core then wants done, one effect a line; a line with * is told to the world.
// Run with -rewrite after a change and read the diff. The commands stand in script.do.
type script struct {
	*world
	held map[EffectKind]bool
}

func runScript(t *testing.T, path string) {
	t.Helper()
	s := &script{world: newWorld(), held: map[EffectKind]bool{}}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		s.out.Reset()
		s.do(t, d)
		out := s.out.String()
		if out == "" {
			return "nothing\n"
		}
		return out
	})
}

func (s *script) do(t *testing.T, d *datadriven.TestData) {
	args := map[string]string{}
	var flags []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			flags = append(flags, a.Key)
			continue
		}
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	num := func(key string, to *int64) {
		if v, ok := args[key]; ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				d.Fatalf(t, "%s: %v", key, err)
			}
			*to = n
		}
	}
	num32 := func(key string, to *int32) {
		n := int64(*to)
		num(key, &n)
		*to = int32(n)
	}
	flag := func(name string) bool {
		for _, f := range flags {
			if f == name {
				return true
			}
		}
		return false
	}
	err := func() error {
		if v, ok := args["err"]; ok {
			return errors.New(v)
		}
		return nil
	}
	switch d.Cmd {
	case "config": // loss=restart|fail|keep floor= max-batch= cluster=
		switch args["loss"] {
		case "fail":
			s.cfg.Loss = LossFail
		case "keep":
			s.cfg.Loss = LossKeep
		}
		num("floor", &s.cfg.StartFloor)
		num32("max-batch", &s.cfg.MaxBatch)
		if v, ok := args["cluster"]; ok {
			s.cfg.SourceCluster = v
		}
	case "source": // epoch= leader= start= local= hw= cluster= topic= lme= lmo= refused= down|up no-epochs cut-reply=; batches to append
		v := &s.src.view
		num32("epoch", &v.LeaderEpoch)
		num32("leader", &v.LeaderID)
		num32("lme", &v.LME)
		num("lmo", &v.LMO)
		if a, ok := args["cluster"]; ok {
			v.ClusterID = a
		}
		if a, ok := args["topic"]; ok {
			v.TopicID = statemachine.TopicID{a[0]}
		}
		if a, ok := args["refused"]; ok {
			v.Refused = strings.ReplaceAll(a, "_", " ")
		} else if flag("refused") {
			v.Refused = ""
		}
		if flag("down") {
			s.src.down = true
		}
		if flag("up") {
			s.src.down = false
		}
		if flag("no-epochs") {
			v.NoEpochs = true
		}
		if flag("unknown-ends") || flag("known-ends") {
			s.src.blind = flag("unknown-ends")
		}
		if flag("unsupported") {
			s.src.unsupported = true
		}
		cut := int64(-1)
		num("cut", &cut)
		if cut >= 0 {
			s.src.cutTo(cut)
		}
		size := int64(0)
		num("cut-reply", &size)
		s.src.cutSize = int(size)
		for _, b := range s.batches(t, d) {
			s.src.add(b)
		}
		start := s.src.start
		num("start", &start)
		s.src.raiseStart(start)
		if s.src.end < start {
			s.src.end = start
		}
		num("hw", &s.src.end2)
		num("local", &s.src.local)
		fmt.Fprintf(&s.out, "source %v, high watermark %d, epoch %d\n", &s.src.batchLog, s.src.hw(), v.LeaderEpoch)
	case "answers": // epoch=: the source answers this, in order: "epoch end" lines
		epoch := int32(0)
		num32("epoch", &epoch)
		if s.src.answers == nil {
			s.src.answers = map[int32][]logtrunc.Round{}
		}
		for _, line := range strings.Split(d.Input, "\n") {
			var r logtrunc.Round
			if _, err := fmt.Sscan(line, &r.Epoch, &r.End); err != nil {
				d.Fatalf(t, "%q: %v", line, err)
			}
			s.src.answers[epoch] = append(s.src.answers[epoch], r)
		}
		fmt.Fprintf(&s.out, "%d answers for epoch %d\n", len(s.src.answers[epoch]), epoch)
	case "log": // epoch= start= end= replicated= lowest-cut= owner= lag|no-lag recovers piece=; batches to append
		num32("epoch", &s.log.leaderEpoch)
		if flag("lag") {
			s.log.lag = true
		}
		if flag("no-lag") {
			s.log.lag = false
		}
		s.log.recovers = s.log.recovers || flag("recovers")
		piece := int64(s.log.piece)
		num("piece", &piece)
		s.log.piece = int(piece)
		if flag("wipe") {
			s.log.batches, s.log.start, s.log.end = nil, 0, 0
		}
		cut := int64(-1)
		num("cut", &cut)
		if cut >= 0 {
			s.log.cutTo(cut)
		}
		for _, b := range s.batches(t, d) {
			s.log.add(b)
		}
		start := s.log.start
		num("start", &start)
		s.log.raiseStart(start)
		s.log.end = max(s.log.end, start)
		s.log.settle()
		num("replicated", &s.log.replicated)
		num("lowest-cut", &s.log.lowestCut)
		switch args["owner"] {
		case "ours":
			s.log.owner = OwnerOurs
		case "open":
			s.log.owner = OwnerOpen
		case "foreign":
			s.log.owner = OwnerForeign
		}
		fmt.Fprintf(&s.out, "log %v, replicated %d, epoch %d, %v\n", &s.log.batchLog, s.log.replicated, s.log.leaderEpoch, s.log.owner)
	case "says": // from= epochs=epoch@start,…: a log that can be asked what of it need not be read says this, and not what is so; neither: it says what is so
		s.log.lower = func(k Recovered) Recovered {
			num("from", &k.From)
			if v, ok := args["epochs"]; ok {
				k.Epochs = nil
				for _, entry := range strings.Split(v, ",") {
					var e logtrunc.Entry
					if _, err := fmt.Sscanf(entry, "%d@%d", &e.Epoch, &e.Start); err != nil {
						d.Fatalf(t, "epochs: %v", err)
					}
					k.Epochs = append(k.Epochs, e)
				}
			}
			return k
		}
		fmt.Fprintf(&s.out, "ok\n")
	case "stored": // state= episode= leader-epoch= mirrored attempt= previous= message= lme= lmo= lme-episode= lme-cluster=
		states := map[string]statemachine.State{}
		for _, st := range []statemachine.State{
			statemachine.Preparing, statemachine.EpochFencing, statemachine.Mirroring, statemachine.Pausing, statemachine.Paused, statemachine.Stopping,
			statemachine.Stopped, statemachine.Failed, statemachine.Unknown,
		} {
			states[st.String()] = st
		}
		s.stored.State = states[args["state"]]
		if s.stored.State == statemachine.Preparing && args["state"] != "PREPARING" {
			d.Fatalf(t, "no such state: %q", args["state"])
		}
		s.stored.StateEpoch, s.stored.FoundOpen, s.stored.Mirrored = 10, false, flag("mirrored")
		num32("episode", &s.stored.Episode)
		num32("leader-epoch", &s.stored.LeaderEpoch)
		n := int64(0)
		num("attempt", &n)
		s.stored.RetryAttempt = int16(n)
		if v, ok := args["previous"]; ok {
			s.stored.PreviousState = states[v]
		}
		if v, ok := args["message"]; ok {
			s.stored.ErrorMessage = v
		}
		if _, ok := args["lmo"]; ok {
			s.lme = &statemachine.LastMirrorEpoch{SourceClusterID: "A", SourceTopicID: sourceTopic}
			num32("lme", &s.lme.Epoch)
			num("lmo", &s.lme.Offset)
			num32("lme-episode", &s.lme.Episode)
		}
		fmt.Fprintf(&s.out, "stored %v\n", s.stored.State)
	case "load":
		s.load()
	case "crash": // keep-open: the log comes back as it was; without-cut: the stop is wanted again without the cut that it was asked for with
		if flag("without-cut") {
			s.asksCut = false
		}
		owner := s.log.owner
		if flag("keep-open") {
			s.world.log.owner = OwnerOurs
			defer func() { s.world.log.owner = owner }()
		}
		s.crash()
	case "wish": // start|pause|stop consent=from-to episode= cut=offset: a stop that asks for a consistent cut, which is to be there; below 0: nothing is to be cut
		if _, asks := args["cut"]; asks {
			s.asksCut = true
			num("cut", &s.cutAt)
		}
		if v, ok := args["consent"]; ok {
			k := Consent{TopicID: s.cfg.TopicID, Partition: s.cfg.Partition}
			from, to, _ := strings.Cut(v, "-")
			k.From, _ = strconv.ParseInt(from, 10, 64)
			k.To, _ = strconv.ParseInt(to, 10, 64)
			num32("episode", &k.Episode)
			if flag("other-topic") {
				k.TopicID = statemachine.TopicID{9}
			}
			s.consent = []Consent{k}
		}
		switch {
		case flag("start"):
			s.wish(statemachine.WantMirroring)
		case flag("pause"):
			s.wish(statemachine.WantPaused)
		case flag("stop"):
			s.wish(statemachine.WantStopped)
		default:
			d.Fatalf(t, "wish what?")
		}
	case "hold", "release": // kinds that run does not answer
		for _, f := range flags {
			s.held[effectKind(t, d, f)] = d.Cmd == "hold"
		}
		fmt.Fprintf(&s.out, "ok\n")
	case "run": // limit=
		limit := int64(300)
		num("limit", &limit)
		s.run(int(limit), s.held)
		if limit == 300 && len(s.pending) > 0 && !s.held[s.pending[0].Kind] {
			d.Fatalf(t, "no end")
		}
	case "done", "fail", "fail-after", "half": // the oldest pending effect (of a kind)
		i := 0
		if len(flags) > 0 {
			k := effectKind(t, d, flags[0])
			for i < len(s.pending) && s.pending[i].Kind != k {
				i++
			}
		}
		if i >= len(s.pending) {
			d.Fatalf(t, "nothing of the kind is pending: %v", s.pending)
		}
		s.answer(i, map[string]fault{"done": noFault, "fail": failBefore, "fail-after": failAfter, "half": half}[d.Cmd])
	case "again": // the last answer comes a second time
		s.step(s.last[len(s.last)-1])
	case "again-all": // every answer so far comes a second time
		for _, ev := range s.last {
			s.step(ev)
		}
	case "timer":
		if !s.due() {
			d.Fatalf(t, "no wait is pending")
		}
	case "timers": // waits pass and answers come until a fetch waits or count waits have passed
		count := int64(1)
		num("count", &count)
		for range count {
			if !s.due() {
				break
			}
			s.run(300, s.held)
		}
	case "fetched": // code= offset= epoch= hw= start= lso= leader= leader-epoch= cut-batch= crowded diverging=epoch/end err=; batches
		e := s.parked
		if e == nil {
			for i := range s.pending {
				if k := s.pending[i].Kind; k == AddFetcher || k == Continue {
					e = &s.pending[i]
					e2 := *e
					e = &e2
					s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
					break
				}
			}
		}
		if e == nil {
			d.Fatalf(t, "no fetch is under way")
		}
		s.parked = nil
		f := Fetch{Offset: e.Offset, LeaderEpoch: e.Epoch, HighWatermark: s.src.hw(), LastStable: s.src.hw(), LogStart: s.src.start, LeaderID: -1, CurrentEpoch: -1}
		for c := FetchOK; c <= FetchUnsupported; c++ {
			if c.String() == args["code"] {
				f.Code = c
			}
		}
		if v := args["code"]; v != "" && f.Code.String() != v {
			d.Fatalf(t, "no such code: %s", v)
		}
		num("offset", &f.Offset)
		num32("epoch", &f.LeaderEpoch)
		num("hw", &f.HighWatermark)
		num("start", &f.LogStart)
		num32("leader", &f.LeaderID)
		num32("leader-epoch", &f.CurrentEpoch)
		num32("cut-batch", &f.CutBatch)
		f.Crowded = flag("crowded")
		f.Err = err()
		if v, ok := args["diverging"]; ok {
			if _, err := fmt.Sscanf(v, "%d/%d", &f.DivergingEpoch, &f.DivergingEnd); err != nil {
				d.Fatalf(t, "diverging: %v", err)
			}
		}
		for _, b := range s.batches(t, d) {
			f.Records = append(f.Records, b.bytes...)
			if h, _, err := batch.Next(b.bytes); err == nil && args["hw"] == "" {
				f.HighWatermark = max(f.HighWatermark, h.NextOffset()) // a source that has these batches
			}
		}
		cut := int64(0)
		num("cut-last", &cut)
		f.Records = f.Records[:len(f.Records)-int(cut)]
		ev := Event{Kind: Fetched, Token: e.Token, Fetch: f}
		s.last = append(s.last, ev)
		s.step(ev)
	case "changed": // the source's news, as source
		ev := Event{Kind: SourceChanged, Source: SourceView{LeaderID: -1, LeaderEpoch: -1, LogStart: -1, HighWatermark: -1, LME: -1, LMO: -1}, Err: err()}
		if !flag("nothing") {
			ev.Source = s.src.look()
		}
		ev.Source.Permanent = flag("permanent")
		s.step(ev)
	case "replicated": // to=
		s.log.replicated = s.log.end
		num("to", &s.log.replicated)
		s.step(Event{Kind: ReplicatedMoved, Log: s.log.view()})
	case "fail-partition":
		s.step(Event{Kind: FailPartition, Err: err(), NonRetryable: flag("non-retryable")})
	case "recover":
		s.step(Event{Kind: Recover})
	case "fenced":
		s.fenced = true
		fmt.Fprintf(&s.out, "ok\n")
	case "advance":
		dur, err := time.ParseDuration(flags[0])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = s.now.Add(dur)
		fmt.Fprintf(&s.out, "ok\n")
	case "show": // the log and what is stored
		fmt.Fprintf(&s.out, "log %v, replicated %d, epoch %d, %v\n", &s.log.batchLog, s.log.replicated, s.log.leaderEpoch, s.log.owner)
		fmt.Fprintf(&s.out, "stored %v episode=%d", s.stored.State, s.stored.Episode)
		if s.stored.FoundOpen {
			s.out.WriteString(" found-open")
		}
		if s.lme != nil {
			fmt.Fprintf(&s.out, " LME=%d LMO=%d of episode %d from cluster %s", s.lme.Epoch, s.lme.Offset, s.lme.Episode, s.lme.SourceClusterID)
		}
		fmt.Fprintln(&s.out)
	case "status":
		fmt.Fprint(&s.out, s.core.Status())
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

func effectKind(t *testing.T, d *datadriven.TestData, name string) EffectKind {
	for k := Persist; k <= Halt; k++ {
		if k.String() == name {
			return k
		}
	}
	d.Fatalf(t, "no such effect: %s", name)
	return 0
}

// batches reads lines as cases.md writes them: "0-4/n5 e5 P7.0 T s0", "5-5 e5 COMMIT P7.0", "6-6 e9 RESET"; more words: "salt=x", "bad-crc", "bad-length", "magic=1".
// A line may hold several, separated by ";". A range with "*N" is cut into batches of N offsets.
func (s *script) batches(t *testing.T, d *datadriven.TestData) []modelBatch {
	list, err := readBatches(d.Input)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return list
}

// mostBatches and mostRecords bound what one range of a line may make: a longer number is a slip.
const (
	mostBatches = 1000
	mostRecords = 10_000 // of all batches together
)

func readBatches(text string) (list []modelBatch, err error) {
	wrong := func(line, format string, args ...any) ([]modelBatch, error) {
		return nil, fmt.Errorf("%q: %s", line, fmt.Sprintf(format, args...))
	}
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var base, last, step int64
		n := int64(-1)
		spec, each, _ := strings.Cut(words[0], "*")
		spec, count, hasCount := strings.Cut(spec, "/n")
		number := func(text string, bits int) (n int64) {
			n, e := strconv.ParseInt(text, 10, bits)
			err = cmp.Or(err, e)
			return n
		}
		if from, to, ok := strings.Cut(spec, "-"); ok {
			base, last = number(from, 64), number(to, 64)
		} else {
			return wrong(line, "no range of offsets")
		}
		if hasCount {
			n = number(count, 32)
		}
		step = last - base + 1
		if each != "" {
			step = number(each, 32)
		}
		epoch, pid, pepoch, seq, txn, control, salt := int32(0), int64(-1), int64(0), int64(-1), false, "", "v"
		var damage []string
		for _, w := range words[1:] {
			switch {
			case w == "T":
				txn = true
			case w == "COMMIT" || w == "ABORT" || w == "RESET":
				control = w
			case strings.HasPrefix(w, "salt="):
				salt = w[5:]
			case strings.HasPrefix(w, "bad-"), strings.HasPrefix(w, "magic="):
				damage = append(damage, w)
			case w[0] == 'e':
				epoch = int32(number(w[1:], 32))
			case w[0] == 'P':
				a, b, _ := strings.Cut(w[1:], ".")
				pid = number(a, 64)
				if b != "" {
					pepoch = number(b, 16)
				}
			case w[0] == 's':
				seq = number(w[1:], 32)
			default:
				return wrong(line, "what is %q?", w)
			}
		}
		switch {
		case err != nil:
			return wrong(line, "%v", err)
		case base < 0 || last < base || step < 1 || (last-base)/step >= mostBatches || step > math.MaxInt32 || max(n, 1) > mostRecords ||
			n < 0 && last-base >= mostRecords || max(n, 1)*((last-base)/step+1) > mostRecords:
			return wrong(line, "these are no batches, or too many or too large ones")
		}
		for b := base; b <= last; b += step {
			l := min(b+step-1, last)
			records := int(l - b + 1)
			if n >= 0 {
				records = int(n)
			}
			var bytes []byte
			switch control {
			case "RESET":
				bytes = txnabort.PIDReset(b, epoch, 1_600_000_000_000)
			case "":
				bytes = data(b, l, epoch, records, pid, int16(pepoch), int32(seq), txn, salt)
			default:
				bytes = marker(b, epoch, control == "COMMIT", pid, int16(pepoch))
			}
			made := toBatches(bytes)
			if len(made) != 1 {
				return wrong(line, "this makes no batch")
			}
			m := made[0]
			for _, w := range damage {
				switch w {
				case "bad-crc":
					m.bytes[len(m.bytes)-1] ^= 1
				case "bad-length": // a record's length is nonsense, the checksum is right
					if len(m.bytes) == batch.HeaderSize {
						return wrong(line, "the batch has no record")
					}
					m.bytes[batch.HeaderSize] = 0x7e
					fixCRC(m.bytes)
				case "bad-delta": // the header says one offset less than its records need
					m.bytes[26]--
					fixCRC(m.bytes)
				case "magic=0", "magic=1":
					m.bytes[16] = w[6] - '0'
				default:
					return wrong(line, "what is %q?", w)
				}
			}
			list = append(list, m)
		}
	}
	return list, nil
}
