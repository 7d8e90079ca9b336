package keyedlogtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// disk is what outlives a crash in these tests.
type disk struct {
	mu       sync.Mutex
	records  map[string]keyedlog.Record
	sessions map[string]int64
	version  int64
	waiting  map[*log]chan struct{}
	applied  int

	reads      chan struct{} // somebody has read, for who waits
	batches    int
	torn, died chan struct{} // half of a batch is written; the process that wrote it is dead
}

func newDisk() *disk {
	return &disk{records: map[string]keyedlog.Record{}, sessions: map[string]int64{}, waiting: map[*log]chan struct{}{}, reads: make(chan struct{}),
		died: make(chan struct{}), torn: make(chan struct{})}
}

// log decides without a lock and begins anew when somebody wrote meanwhile. It is right when fault is "", and wrong in one way otherwise.
type log struct {
	*disk
	fault  string
	closed bool

	cache view // for faults of what is not fresh
}

func newLog(d *disk, fault string) *log {
	l := &log{disk: d, fault: fault}
	l.cache = l.snapshot()
	return l
}

func (l *log) is(fault string) bool { return l.fault == fault }

func (l *log) snapshot() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return view{log: l, records: maps.Clone(l.records), sessions: maps.Clone(l.sessions), version: l.disk.version}
}

func (l *log) Open(ctx context.Context, writer string) (keyedlog.Session, error) {
	if err := ctx.Err(); err != nil && !l.is("open ignores the context") {
		return nil, err
	}
	if writer == "" && !l.is("open takes no name") {
		return nil, errors.New("no name")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && !l.is("a closed log opens") {
		return nil, keyedlog.ErrClosed
	}
	l.sessions[writer]++
	l.disk.version++
	if l.is("fenced too late") {
		l.disk.version--
	}
	if l.is("open fences everybody") {
		for other := range l.sessions {
			if other != writer {
				l.sessions[other]++
			}
		}
	}
	number := l.sessions[writer]
	if l.is("numbers are all one") {
		number = 1
	}
	return &session{log: l, writer: writer, number: number, opening: l.sessions[writer]}, nil
}

func (l *log) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return l.update(ctx, nil, nil, decide)
}

// update is that of a session, or of the log if there is none.
func (l *log) update(ctx context.Context, s *session, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	stale := l.is("decisions are not fresh") || s != nil && l.is("sessions decide on what they know")
	for {
		if err := ctx.Err(); err != nil && !l.is("update ignores the context") {
			return err
		}
		v := l.snapshot()
		if stale {
			v = l.cached(v)
		}
		if err := l.lives(s); err != nil {
			if l.is("fenced without a change says nothing") {
				if changes, _ := decide(v); len(changes) == 0 {
					return nil
				}
			}
			return err
		}
		changes, err := decide(v)
		switch {
		case err == nil || l.is("errors are written"):
		case l.is("errors are wrapped"):
			return fmt.Errorf("decide: %w", err)
		default:
			return err
		}
		if ctx.Err() != nil && l.is("a cancelled update writes half") {
			changes = changes[:len(changes)/2]
		}
		if err := l.check(v, s, keys, changes); err != nil {
			return err
		}
		l.mu.Lock()
		if !stale && l.interfered(v, s, changes) {
			l.mu.Unlock()
			continue
		}
		if len(changes) == 0 && s != nil && l.is("looking writes") {
			for _, k := range keys {
				changes = append(changes, keyedlog.Change{Key: k, Value: []byte{}})
			}
		}
		applyErr := l.apply(ctx, s, changes)
		l.mu.Unlock()
		return cmp.Or(err, applyErr)
	}
}

// interfered says whether somebody wrote since v. It is called with the lock.
func (l *log) interfered(v view, s *session, changes []keyedlog.Change) bool {
	switch {
	case v.version == l.disk.version, l.is("the last one wins"), l.is("sessions do not look again") && s != nil:
		return false
	case l.is("only the changed keys count"):
		return slices.ContainsFunc(changes, func(c keyedlog.Change) bool {
			return !equal(v.records[string(c.Key)], l.records[string(c.Key)])
		})
	}
	return true
}

// cached is what this handle has seen last, and sees now.
func (l *log) cached(now view) view {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.cache
	l.cache = now
	return was
}

// lives says whether the log or the session is closed or fenced.
func (l *log) lives(s *session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && !(l.is("a closed log writes") && s == nil) && !(l.is("sessions outlive the log") && s != nil) {
		return keyedlog.ErrClosed
	}
	switch {
	case s == nil:
	case s.closed && !l.is("closed sessions write"):
		return keyedlog.ErrClosed
	case l.sessions[s.writer] != s.opening && !l.is("nobody is fenced"):
		return keyedlog.ErrFenced
	}
	return nil
}

func (l *log) check(v view, s *session, keys [][]byte, changes []keyedlog.Change) error {
	writer := ""
	if s != nil {
		writer = s.writer
		if keys == nil {
			keys = [][]byte{}
		}
	}
	switch l.fault {
	case "keys need no name":
		keys = nil
	case "nobody owns", "an owned key is left out":
		return nil
	case "the first change is checked only":
		changes = changes[:min(1, len(changes))]
	case "the log may write what was opened again":
		writer = cmp.Or(writer, "the log")
	case "nobody gives way":
		for _, c := range changes {
			if r, ok := v.Get(c.Key); ok && r.Writer != "" && r.Writer != writer {
				return keyedlog.ErrOwned
			}
		}
	}
	return keyedlog.CheckChanges(v, writer, keys, changes)
}

// apply is called with the lock.
func (l *log) apply(ctx context.Context, s *session, changes []keyedlog.Change) error {
	if len(changes) == 0 {
		return nil
	}
	l.applied++
	if l.is("updates get lost") && l.applied%5 == 0 {
		return nil
	}
	if len(changes) >= batch {
		l.batches++
	}
	for i, c := range changes {
		if i == len(changes)/2 && len(changes) >= batch && l.tear(ctx) {
			return keyedlog.ErrOutcomeUnknown
		}
		r := keyedlog.Record{Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)}
		if s != nil && !c.Release {
			r.Writer, r.Session = s.writer, s.number
		}
		gone := c.Value == nil
		switch l.fault {
		case "an owned key is left out":
			writer := ""
			if s != nil {
				writer = s.writer
			}
			if keyedlog.CheckOwner(view{log: l, records: l.records, sessions: l.sessions}, c.Key, writer) != nil {
				continue
			}
		case "release is not known":
			if s != nil {
				r.Writer, r.Session = s.writer, s.number
			}
		case "the log owns what it writes":
			if s == nil {
				r.Writer, r.Session = "the log", 1
			}
		case "tombstones are empty values":
			if gone {
				r.Value, gone = []byte{}, false
			}
		case "empty values are tombstones":
			gone = len(c.Value) == 0
		case "empty values are nil":
			if len(r.Value) == 0 {
				r.Value = nil
			}
		case "values are cut":
			r.Value = r.Value[:min(len(r.Value), 1<<15)]
		case "values are kept":
			r.Value = c.Value
		case "keys are kept":
			r.Key = c.Key
		}
		if gone {
			delete(l.records, string(c.Key))
		} else {
			l.records[string(c.Key)] = r
		}
	}
	l.disk.version++
	if s == nil && !l.is("changed never closes") {
		for who, changed := range l.waiting {
			if who == l || !l.is("changed closes at home only") {
				close(changed)
				delete(l.waiting, who)
			}
		}
	}
	return nil
}

// batch is how many changes are torn.
const batch = 6

// tear shows half of a batch until somebody has read it, or until the process dies: then it is true.
func (l *log) tear(ctx context.Context) (dead bool) {
	wait := func(c chan struct{}) {
		l.mu.Unlock()
		defer l.mu.Lock()
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
	switch {
	case l.is("half a batch can be read"):
		wait(l.reads) // which may have begun before
		wait(l.reads)
	case l.is("half a batch survives") && l.batches == 3:
		close(l.torn)
		wait(l.died)
		return true
	}
	return false
}

func (l *log) Read(ctx context.Context, read func(keyedlog.View) error) error {
	return l.read(ctx, nil, read)
}

func (l *log) read(ctx context.Context, s *session, read func(keyedlog.View) error) error {
	if err := ctx.Err(); err != nil && !l.is("read ignores the context") {
		return err
	}
	l.mu.Lock()
	if (l.closed && !l.is("a closed log reads")) || (s != nil && s.closed) {
		l.mu.Unlock()
		return keyedlog.ErrClosed
	}
	l.mu.Unlock()
	v := l.snapshot()
	if l.is("reads are one behind") || s != nil && l.is("sessions read what was") {
		v = l.cached(v)
	}
	err := read(v)
	if l.is("half a batch can be read") {
		select {
		case l.reads <- struct{}{}:
		default:
		}
	}
	if l.is("the reader's error is lost") {
		return nil
	}
	return err
}

func (l *log) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.waiting[l]
	if changed == nil {
		changed = make(chan struct{})
		switch {
		case !l.closed || l.is("changed closes after the log"):
			l.waiting[l] = changed
		case l.is("changed closes with the log"):
			close(changed)
		}
	}
	return changed
}

func (l *log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if !l.is("changed closes after the log") {
		delete(l.waiting, l)
	}
	switch l.fault {
	case "close forgets":
		clear(l.records)
	case "close fences all":
		for writer := range l.sessions {
			l.sessions[writer]++
		}
	}
	return nil
}

type session struct {
	*log
	writer          string
	number, opening int64
	closed          bool // guarded by mu
}

func (s *session) Number() int64 { return s.number }

func (s *session) Update(ctx context.Context, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return s.update(ctx, s, keys, decide)
}

func (s *session) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.lives(s); !s.is("check always says yes") || errors.Is(err, keyedlog.ErrClosed) {
		return err
	}
	return nil
}

func (s *session) Read(ctx context.Context, read func(keyedlog.View) error) error {
	return s.read(ctx, s, read)
}

func (s *session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.is("close fences the next session") {
		s.sessions[s.writer]++
	}
	return nil
}

type view struct {
	log      *log
	records  map[string]keyedlog.Record
	sessions map[string]int64
	version  int64
}

func (v view) Get(key []byte) (keyedlog.Record, bool) {
	r, ok := v.records[string(key)]
	return r, ok
}

func (v view) Each(prefix []byte, f func(keyedlog.Record) error) error {
	keys := slices.Sorted(maps.Keys(v.records))
	switch v.log.fault {
	case "each has another order":
		slices.Reverse(keys)
	case "each shows the first twice":
		keys = append(keys[:min(1, len(keys))], keys...)
	case "each leaves the last one out":
		if len(keys) > 10 {
			keys = keys[:len(keys)-1]
		}
	case "each ignores the prefix":
		prefix = nil
	}
	for _, k := range keys {
		if !strings.HasPrefix(k, string(prefix)) {
			continue
		}
		if err := f(v.records[k]); err != nil {
			if v.log.is("each loses the error") {
				return nil
			}
			return err
		}
	}
	return nil
}

func (v view) Session(writer string) int64 {
	if v.log.is("sessions are not seen") {
		return min(1, v.sessions[writer])
	}
	return v.sessions[writer]
}

func (v view) Version() int64 {
	switch v.log.fault {
	case "versions stand still":
		return 1
	case "versions fall":
		return -v.version
	case "versions count records":
		return int64(len(v.records))
	}
	return v.version
}

// crashed is the log of the next process.
func (l *log) crashed() *log {
	if l.is("half a batch survives") {
		<-l.torn
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.disk
	switch l.fault {
	case "half a batch survives":
		select {
		case <-l.died:
		default:
			close(l.died)
		}
	case "crash loses everything":
		next = newDisk()
	case "crash loses the owners":
		for k, r := range l.records {
			r.Writer, r.Session = "", 0
			l.records[k] = r
		}
	case "crash loses the numbers":
		clear(l.sessions)
	case "crash loses updates of the log":
		maps.DeleteFunc(l.records, func(_ string, r keyedlog.Record) bool { return r.Writer == "" })
	case "crash begins versions anew":
		l.disk.version = 0
	case "the past writes on":
		// the next process has its own numbers, so that nobody is fenced across a crash
		next = newDisk()
		next.records, next.sessions, next.version = l.records, maps.Clone(l.sessions), l.disk.version
	}
	return &log{disk: next, fault: l.fault}
}

func open(fault string, options Options) Factory {
	return func(testing.TB) Fixture {
		current := newLog(newDisk(), fault)
		return Fixture{
			Log:   current,
			Again: func() keyedlog.Log { return newLog(current.disk, fault) },
			Crash: func() (keyedlog.Log, error) {
				current = current.crashed()
				return current, nil
			},
			Options: options,
		}
	}
}

// recorder stands for a test, so that failing can be seen.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	problems []string
}

func (r *recorder) Helper() {}

func (r *recorder) Log(...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// problems runs one rule and returns what it said.
func problems(t *testing.T, name string, f Factory) []string {
	t.Helper()
	all := rules()
	i := slices.IndexFunc(all, func(r rule) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("there is no rule %s", name)
	}
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // Fatalf ends its goroutine
		defer close(done)
		all[i].run(r, f)
	}()
	<-done
	return r.problems
}

// unhurried never takes an update that comes in between for one that cannot: this log lets everybody in.
var unhurried = Options{Interference: time.Minute}

func TestKitAcceptsARightLog(t *testing.T) {
	Run(t, open("", unhurried))
}

func TestKitAcceptsALogWithOneHandle(t *testing.T) {
	Run(t, func(testing.TB) Fixture { return Fixture{Log: newLog(newDisk(), ""), Options: unhurried} })
}

func TestKitSaysNo(t *testing.T) {
	refused := map[string]bool{}
	for _, c := range []struct{ fault, rule string }{
		{"open takes no name", "OpenRefusesNoName"},
		{"nobody is fenced", "OpenFencesEarlierSessions"},
		{"fenced without a change says nothing", "OpenFencesEarlierSessions"},
		{"check always says yes", "OpenFencesEarlierSessions"},
		{"fenced too late", "OpenFencesWhileDeciding"},
		{"sessions read what was", "OpenEndsARunningWriter"},
		{"open fences everybody", "OpenLeavesOtherWritersAlone"},
		{"sessions decide on what they know", "OpenSeesWhatWasWritten"},
		{"numbers are all one", "NumbersGrow"},
		{"sessions are not seen", "NumbersGrow"},
		{"nobody is fenced", "RacingOpensLeaveOne"},
		{"closed sessions write", "CloseEndsTheSessionOnly"},
		{"close fences the next session", "CloseEndsTheSessionOnly"},
		{"sessions outlive the log", "CloseOfTheLogEndsItsSessions"},
		{"a closed log opens", "CloseOfTheLogEndsItsSessions"},
		{"a closed log writes", "CloseOfTheLogEndsItsSessions"},
		{"a closed log reads", "CloseOfTheLogEndsItsSessions"},
		{"close forgets", "CloseLeavesOtherHandlesAlone"},
		{"close fences all", "CloseLeavesOtherHandlesAlone"},

		{"nobody owns", "WriterOwnsTheKey"},
		{"the first change is checked only", "OwnershipIsAllOrNothing"},
		{"an owned key is left out", "OwnershipIsAllOrNothing"},
		{"nobody gives way", "OpenedOwnerGivesWay"},
		{"the log may write what was opened again", "OpenedOwnerGivesWay"},
		{"release is not known", "ReleasedKeysAreNobodys"},
		{"the log owns what it writes", "UpdateOfTheLogOwnsNothing"},
		{"tombstones are empty values", "TombstonesTakeOut"},
		{"nobody owns", "RacingWritersOwnOnce"},
		{"keys need no name", "SessionsWriteNamedKeysOnly"},

		{"empty values are tombstones", "EmptyIsNotNil"},
		{"empty values are nil", "EmptyIsNotNil"},
		{"values are cut", "ValuesComeBack"},
		{"errors are written", "ErrorWritesNothing"},
		{"errors are wrapped", "ErrorWritesNothing"},
		{"looking writes", "NoChangesWriteNothing"},
		{"values are kept", "SlicesAreNotKept"},
		{"keys are kept", "SlicesAreNotKept"},
		{"the last one wins", "InterferenceBeginsAnew"},
		{"sessions do not look again", "InterferenceBeginsAnew"},
		{"update ignores the context", "InterferenceEndsWithTheContext"},
		{"only the changed keys count", "DecisionsAreSerial"},
		{"only the changed keys count", "OwnKeysMayMoveMeanwhile"},
		{"the last one wins", "OwnKeysMayMoveMeanwhile"},
		{"the last one wins", "OwnedMeanwhileIsRefused"},
		{"updates get lost", "RacingUpdatesAllCount"},
		{"updates get lost", "RacingSessionsAllCount"},
		{"half a batch can be read", "BatchesAreWholeToReaders"},

		{"reads are one behind", "ReadIsFreshAcrossHandles"},
		{"decisions are not fresh", "ReadIsFreshAcrossHandles"},
		{"sessions read what was", "SessionReadsItsOwnWrites"},
		{"the reader's error is lost", "CallbacksErrorIsReturned"},
		{"each loses the error", "CallbacksErrorIsReturned"},
		{"each has another order", "EachIsInOrderOfKey"},
		{"each shows the first twice", "EachIsInOrderOfKey"},
		{"each leaves the last one out", "EachIsInOrderOfKey"},
		{"each ignores the prefix", "EachIsInOrderOfKey"},
		{"versions stand still", "VersionGrows"},
		{"versions fall", "VersionGrows"},
		{"versions count records", "VersionGrows"},
		{"changed never closes", "ChangedClosesAcrossHandles"},
		{"changed closes at home only", "ChangedClosesAcrossHandles"},
		{"changed closes with the log", "ChangedStaysOpenAfterClose"},
		{"changed closes after the log", "ChangedStaysOpenAfterClose"},

		{"open ignores the context", "EndedContextDoesNothing"},
		{"update ignores the context", "EndedContextDoesNothing"},
		{"read ignores the context", "EndedContextDoesNothing"},
		{"a cancelled update writes half", "CancelledWhileDecidingIsAllOrNothing"},

		{"crash loses everything", "CrashKeepsWhatWasWritten"},
		{"crash loses updates of the log", "CrashKeepsWhatWasWritten"},
		{"crash begins versions anew", "CrashKeepsWhatWasWritten"},
		{"crash loses the owners", "CrashKeepsOwnersAndNumbers"},
		{"crash loses the numbers", "CrashKeepsOwnersAndNumbers"},
		{"the past writes on", "CrashFencesThePast"},
		{"half a batch survives", "CrashInTheMiddleIsAllOrNothing"},
	} {
		refused[c.rule] = true
		t.Run(strings.ReplaceAll(c.fault, " ", "_")+"/"+c.rule, func(t *testing.T) {
			options := unhurried
			if strings.HasPrefix(c.fault, "changed") { // what never comes is waited for
				options.Timeout = 200 * time.Millisecond
			}
			if len(problems(t, c.rule, open(c.fault, options))) == 0 {
				t.Errorf("the rule %s passes a log with the fault %q", c.rule, c.fault)
			}
			if said := problems(t, c.rule, open("", unhurried)); len(said) > 0 {
				t.Errorf("the rule %s refuses a right log: %q", c.rule, said)
			}
		})
	}
	for _, r := range rules() {
		if !refused[r.name] {
			t.Errorf("nothing makes the rule %s say no", r.name)
		}
	}
}

func TestKitLeavesOutWhatAFixtureHasNot(t *testing.T) {
	ran := 0
	for _, r := range rules() {
		if r.crash || r.again {
			r.check = func(*suite) { t.Errorf("%s ran without its hook", r.name) }
		} else {
			r.check = func(*suite) { ran++ }
		}
		r.run(t, func(testing.TB) Fixture { return Fixture{Log: newLog(newDisk(), "")} })
	}
	if ran < 30 {
		t.Errorf("%d rules ran", ran)
	}
}

func TestKitReportsALogThatDoesNotComeBack(t *testing.T) {
	said := problems(t, "CrashFencesThePast", func(testing.TB) Fixture {
		return Fixture{Log: newLog(newDisk(), ""), Crash: func() (keyedlog.Log, error) { return nil, errors.New("disk on fire") }}
	})
	if len(said) != 1 || !strings.Contains(said[0], "disk on fire") {
		t.Errorf("problems: %q", said)
	}
}

func TestKitUsesTheKeysThatItIsGiven(t *testing.T) {
	var current *log
	options := Options{Writers: 1, Rounds: 1, Records: 3, Interference: time.Minute, Key: func(n int) []byte { return fmt.Appendf(nil, "%05d", n) }}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			r.run(t, func(tb testing.TB) Fixture {
				f := open("", options)(tb)
				current = f.Log.(*log)
				return f
			})
			for k := range current.records {
				if len(k) != 5 || k > "00020" {
					t.Errorf("key %q", k)
				}
			}
		})
	}
}
