package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/keyedlog/keyedlogtest"
)

// fake is a cluster in this process, whose answers a test may choose.
type fake struct {
	*kfake.Cluster
	cfg Config
	raw *kgo.Client // sends what a test says, once
}

func newFake(t testing.TB) *fake {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	must(t, err)
	t.Cleanup(c.Close)
	cfg := Config{Seeds: c.ListenAddrs(), StatePartitions: 2, ReplicationFactor: 1}
	raw, err := cfg.client()
	must(t, err)
	t.Cleanup(raw.Close)
	return &fake{c, cfg, raw}
}

// honest is no error code.
const honest int16 = -100

// ends lets answer judge each end of a transaction from now on: the nth, beginning with 1. do has the cluster carry it out. An answer of honest leaves it to the cluster.
func (f *fake) ends(t *testing.T, answer func(nth int, do func()) (code int16)) {
	var n atomic.Int32
	f.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		end := req.(*kmsg.EndTxnRequest)
		code := honest
		if n.Load() >= 0 {
			nth := int(n.Add(1))
			f.SleepControl(func() {
				code = answer(nth, func() {
					before := n.Swap(-1) // this one's own request is no other
					again := *end
					if _, err := again.RequestWith(context.Background(), f.raw); err != nil {
						t.Error(err)
					}
					n.Store(before)
				})
			})
		}
		if code == honest {
			return nil, nil, false
		}
		resp := end.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = code
		return resp, nil, true
	})
}

// unsettled are the codes that a coordinator answers also after it wrote down that a transaction is committed.
var unsettled = []*kerr.Error{
	kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.RequestTimedOut, kerr.UnknownServerError, kerr.KafkaStorageError,
	kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
}

// A commit is carried out and answered with an error that settles nothing, and before it is asked for again somebody else has the id.
func TestACommitAnsweredWithAnErrorIsLookedFor(t *testing.T) {
	for _, code := range unsettled {
		for _, committed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, committed %v", code.Message, committed), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				a, b := open(t, f.cfg), open(t, f.cfg)
				k, other := key(66, "k"), key(66, "other")
				update(t, b, change(k, "0"), change(other, "0"))
				f.ends(t, func(nth int, do func()) int16 {
					if nth > 1 {
						return honest
					}
					if committed {
						do()
					}
					update(t, b, change(other, "1"))
					return code.Code
				})
				decided := 0
				must(t, a.Update(t.Context(), func(v keyedlog.View) ([]keyedlog.Change, error) {
					decided++
					return count(k, false)(v)
				}))
				expect(t, b, k, "1")
				if committed && decided != 1 {
					t.Errorf("decided %d times", decided)
				}
			})
		}
	}
}

// A cluster that settles nothing until the context ends leaves the outcome unknown, and whoever asks next sees what is there.
func TestACommitThatIsNeverSettledIsUnknown(t *testing.T) {
	for _, code := range unsettled {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			a, b := open(t, f.cfg), open(t, f.cfg)
			k, free := key(66, "k"), key(72, "free")
			n := opened(t, a, "w")
			write(t, n, change(k, "0"))
			var cancel context.CancelFunc
			var passed atomic.Bool
			f.ends(t, func(nth int, do func()) int16 {
				switch {
				case passed.Load():
					return honest
				case nth == 1:
					do()
				default:
					cancel()
				}
				return code.Code
			})
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			cancel = stop
			defer stop()
			// A claim, which changes an own key too.
			err := n.Update(ctx, [][]byte{k, free}, func(v keyedlog.View) ([]keyedlog.Change, error) {
				changes, err := count(k, false)(v)
				return append(changes, change(free, "1")), err
			})
			passed.Store(true)
			if !errors.Is(err, keyedlog.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want %v and %v", err, keyedlog.ErrOutcomeUnknown, context.Canceled)
			}
			must(t, n.Update(t.Context(), [][]byte{k}, count(k, false)))
			expect(t, b, k, "2 by w/1")
			expect(t, b, free, "1 by w/1")
		})
	}
}

// What cannot be asked for again is not settled by reading either: the commit may still come.
func TestACommitThatMayStillComeIsUnknown(t *testing.T) {
	f := newFake(t)
	f.cfg.TransactionTimeout = 200 * time.Millisecond // after which it no longer hides what follows
	a := open(t, f.cfg)
	k := key(66, "k")
	update(t, a, change(k, "0"))
	f.ends(t, func(nth int, _ func()) int16 {
		if nth == 1 {
			return kerr.NotCoordinator.Code
		}
		return kerr.TransactionalIDAuthorizationFailed.Code
	})
	if err := a.Update(t.Context(), count(k, false)); !errors.Is(err, keyedlog.ErrOutcomeUnknown) || !errors.Is(err, keyedlog.ErrDenied) {
		t.Errorf("error %v, want %v", err, keyedlog.ErrOutcomeUnknown)
	}
}

// A session's own records count as known before they are read: they were not written since.
func TestOwnRecordsThatWereNotReadAreNoOthers(t *testing.T) {
	f := newFake(t)
	a, b := open(t, f.cfg), open(t, f.cfg)
	k := key(66, "k")
	n := opened(t, a, "w")
	write(t, n, change(k, "0"))
	f.ends(t, func(nth int, _ func()) int16 {
		if nth > 1 {
			return honest
		}
		must(t, b.newProducer(b.ownerID("w")).init(t.Context()))
		return kerr.NotCoordinator.Code // nothing was committed
	})
	must(t, n.Update(t.Context(), [][]byte{k}, count(k, false)))
	expect(t, b, k, "1 by w/1")
}

// The contract on a cluster in this process. TestRealKeyedLog has it on Kafka.
func TestKeyedLogOnAFake(t *testing.T) {
	keyedlogtest.Run(t, func(tb testing.TB) keyedlogtest.Fixture {
		cfg := newFake(tb).cfg
		s, l := process(tb, cfg)
		return keyedlogtest.Fixture{
			Log:   s,
			Again: func() keyedlog.Log { return open(tb, cfg) },
			Crash: func() (keyedlog.Log, error) {
				kill(s, l)
				s, l = process(tb, cfg)
				return s, nil
			},
			Options: keyedlogtest.Options{Writers: 2, Rounds: 3},
		}
	})
}
