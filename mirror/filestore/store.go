package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// Options of a Store. The zero value is good.
type Options struct {
	// LockWait is how long a call waits for other processes, if its context does not end before. 0 is 10 s.
	LockWait time.Duration
	// CompactAbove is the size in bytes below which the log is left as it is. 0 is 1 MiB. Above, it is compacted when it is four times as large as what it holds.
	CompactAbove int64
}

// Store is a keyedlog.Log in a folder. Safe for concurrent use; several handles, in one process or in several, may have the same folder. A callback must not call its own
// Store: it would wait for itself.
type Store struct {
	dir      string
	lockWait time.Duration
	who      string        // this process
	turn     chan struct{} // full while a call of this handle runs
	log      logFile       // used by whoever has the turn
	done     chan struct{} // closed by Close
	polls    sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	generation uint64 // what the last call saw
	size       int64
	version    int64
	changed    chan struct{} // nil: nobody waits
	since      int64         // the version when changed was made
}

var _ keyedlog.Log = (*Store)(nil)

// Open opens the records in a folder, or begins an empty log there. The folder, and those above it, are made if need be, for this user only (0700, files 0600). It fails with
// a LockedError, DamagedError or NewerError, or with what the file system says. The caller closes the Store.
func Open(dir string, o Options) (*Store, error) {
	in, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	return open(in, dir, o)
}

// open takes the folder over.
func open(in folder, dir string, o Options) (*Store, error) {
	if o.LockWait <= 0 {
		o.LockWait = 10 * time.Second
	}
	if o.CompactAbove <= 0 {
		o.CompactAbove = 1 << 20
	}
	s := &Store{
		dir: dir, lockWait: o.LockWait, who: strconv.Itoa(os.Getpid()), turn: make(chan struct{}, 1), done: make(chan struct{}),
		log: logFile{in: in, dir: dir, compactAbove: o.CompactAbove},
	}
	if err := s.Read(context.Background(), func(keyedlog.View) error { return nil }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Open begins a session: see keyedlog.Log.
func (s *Store) Open(ctx context.Context, writer string) (keyedlog.Session, error) {
	if writer == "" {
		return nil, errors.New("filestore: open needs a writer's name; \"\" means nobody")
	}
	opened := &session{store: s, writer: writer}
	err := s.do(ctx, func(f file) error {
		opened.number = s.log.view.sessions[writer] + 1
		return s.log.append(f, []entry{{kind: kindSession, writer: writer, session: opened.number}})
	}, nil)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Update: see keyedlog.Log. decide is called once, under the folder's lock: it should be quick.
func (s *Store) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return s.do(ctx, func(f file) error { return s.update(ctx, f, "", 0, nil, decide) }, nil)
}

// update is called in a step of do.
func (s *Store) update(ctx context.Context, f file, writer string, number int64, keys [][]byte, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	v := s.log.view
	changes, err := decide(v)
	if err != nil {
		return err
	}
	if err := keyedlog.CheckChanges(v, writer, keys, changes); err != nil || len(changes) == 0 {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	entries := make([]entry, len(changes))
	for i, c := range changes {
		switch {
		case c.Value == nil:
			entries[i] = entry{kind: kindTombstone, key: c.Key}
		case c.Release:
			entries[i] = entry{kind: kindRecord, key: c.Key, value: c.Value}
		default:
			entries[i] = entry{kind: kindRecord, key: c.Key, value: c.Value, writer: writer, session: number}
		}
	}
	return s.log.append(f, entries)
}

// Read: see keyedlog.Log. Other processes go on while read runs; other calls of this Store wait for it.
func (s *Store) Read(ctx context.Context, read func(keyedlog.View) error) error {
	return s.do(ctx, nil, read)
}

// do runs one call: it reads what is new and runs step under the folder's lock, then after without it. Both may be nil.
func (s *Store) do(ctx context.Context, step func(file) error, after func(keyedlog.View) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.lockWait)
	defer cancel()
	select {
	case <-s.done:
		return s.errClosed()
	default:
	}
	select {
	case s.turn <- struct{}{}: // free, however short the wait may be
	default:
		select {
		case s.turn <- struct{}{}:
		case <-s.done:
			return s.errClosed()
		case <-bounded.Done():
			return fmt.Errorf("filestore: %s: waiting for another call of this process: %w", s.dir, bounded.Err())
		}
	}
	defer func() { <-s.turn }()
	if err := s.locked(bounded, step); err != nil || after == nil {
		return err
	}
	return after(s.log.view)
}

func (s *Store) errClosed() error {
	return fmt.Errorf("%w: the store in %s; open it again", keyedlog.ErrClosed, s.dir)
}

// locked is the part of a call that has the folder's lock.
func (s *Store) locked(ctx context.Context, step func(file) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.log.in.Unlock()
	f, err := s.log.refresh()
	if f != nil {
		defer f.Close() // what was written is synced: a close says nothing new
	}
	if err != nil {
		return err
	}
	defer s.announce()
	if step == nil {
		return nil
	}
	return step(f)
}

// lock waits for the folder's lock. The kernel's own queue cannot be left when a context ends, so this asks again and again.
func (s *Store) lock(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 4*time.Millisecond) {
		holder, err := s.log.in.Lock(s.who)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errLocked):
			err = fmt.Errorf("filestore: folder %s cannot be locked: %w", s.dir, err)
		default:
			select {
			case <-time.After(wait):
				continue
			case <-s.done:
				err = s.errClosed()
			case <-ctx.Done():
				err = &LockedError{Dir: s.dir, Holder: holder, Err: ctx.Err()}
			}
		}
		s.log.in.Unlock() // leaves the queue
		return err
	}
}

// Close ends all sessions of this Store. It waits for calls that run.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	s.mu.Unlock()
	s.polls.Wait()
	s.turn <- struct{}{} // for ever
	return s.log.in.Close()
}
