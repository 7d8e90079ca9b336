package kafkastore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/clustermirror/clustermirror/keyedlog"
	"github.com/clustermirror/clustermirror/mirror"
)

// Without a coordinator no transaction begins: nothing was written, which is known, and what to do is said.
func TestAClusterWithoutACoordinatorHasChangedNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var asked atomic.Int32
	var end atomic.Pointer[context.CancelFunc] // of the call, which gives up while it asks for the third time
	f.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if asked.Add(1)%3 == 0 {
			(*end.Load())()
		}
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		if req.GetVersion() >= 4 {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.ErrorCode = kerr.CoordinatorNotAvailable.Code
			resp.Coordinators = append(resp.Coordinators, c)
		}
		return resp, nil, true
	})
	s := open(t, f.cfg)
	call := func() context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		end.Store(&cancel)
		asked.Store(0)
		return ctx
	}
	err := s.Update(call(), put(change(key(66, "k"), "x")))
	if !errors.Is(err, keyedlog.ErrNothingWritten) || errors.Is(err, keyedlog.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "no transaction coordinator for clustermirror-control") || !strings.Contains(err.Error(), "transaction.state.log.min.isr") {
		t.Errorf("%v", err)
	}
	// The verbs say so too, though the time of their caller has run out as well.
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: mirror.NewControl(s), States: keyedlog.NewStateStore(s)})
	must(t, err)
	_, err = a.Create(call(), mirror.Settings{"bootstrap.servers": "h:9092"}, mirror.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "nothing has changed") || strings.Contains(err.Error(), "not known whether") {
		t.Errorf("%v", err)
	}
}

// Others come in between each time until the call ends. What is fenced is not committed, so that nothing was written is known.
func TestAnUpdateThatIsFencedUntilItEndsHasChangedNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := open(t, f.cfg)
	must(t, s.Update(t.Context(), put(change(key(66, "k"), "x"))))
	var asked atomic.Int32
	var end atomic.Pointer[context.CancelFunc] // of the call, which gives up at its third try
	f.ControlKey(int16(kmsg.AddPartitionsToTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if asked.Add(1) == 3 {
			(*end.Load())()
		}
		resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		for _, t := range req.(*kmsg.AddPartitionsToTxnRequest).Topics {
			answer := kmsg.NewAddPartitionsToTxnResponseTopic()
			answer.Topic = t.Topic
			for _, p := range t.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p, ErrorCode: kerr.ProducerFenced.Code})
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
	call := func() context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		end.Store(&cancel)
		asked.Store(0)
		return ctx
	}
	err := s.Update(call(), put(change(key(66, "k"), "y")))
	if !errors.Is(err, keyedlog.ErrNothingWritten) || errors.Is(err, keyedlog.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	a, err := mirror.NewAdmin(mirror.AdminConfig{Mirror: "m", Control: mirror.NewControl(s), States: keyedlog.NewStateStore(s)})
	must(t, err)
	_, err = a.Create(call(), mirror.Settings{"bootstrap.servers": "h:9092"}, mirror.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "nothing has changed") || strings.Contains(err.Error(), "not known whether") {
		t.Errorf("%v", err)
	}
}

// Where nobody answers it is said who was asked, how long, and what the network said.
func TestOpenSaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := l.Addr().String()
	must(t, l.Close())
	_, err = Open(t.Context(), Config{Seeds: []string{nobody}, Bound: 2 * time.Second})
	var silent *SilentError
	if !errors.As(err, &silent) || !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "kafkastore: no broker of "+nobody+" answered for ") ||
		!strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), Config{Seeds: []string{""}}); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("an empty address: %v", err)
	}
}
