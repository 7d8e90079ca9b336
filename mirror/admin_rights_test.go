package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
)

// deniedLog is a storage that lets its user read, or nothing.
type deniedLog struct {
	keyedlog.Log
	read bool
}

var errNoRight = fmt.Errorf("%w to Write topic __mirror_stop", keyedlog.ErrDenied)

func (d deniedLog) Read(ctx context.Context, read func(keyedlog.View) error) error {
	if !d.read {
		return errNoRight
	}
	return d.Log.Read(ctx, read)
}

func (d deniedLog) Update(ctx context.Context, decide func(keyedlog.View) ([]keyedlog.Change, error)) error {
	return d.Log.Update(ctx, func(v keyedlog.View) ([]keyedlog.Change, error) {
		if _, err := decide(v); err != nil {
			return nil, err
		}
		return nil, errNoRight
	})
}

func TestSpec1_11AMissingRightIsAnAuthorizationFailure(t *testing.T) {
	for _, read := range []bool{true, false} {
		log := keyedlog.NewMemory()
		all := NewControl(log)
		if err := all.Update(t.Context(), func(s *ControlState) error {
			s.SetMirror(MirrorEntry{Name: "m"})
			s.Set(TopicWish{Topic: "t", MirrorName: "m"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		w := &adminWorld{}
		_, err := w.admin(t, NewControl(deniedLog{log, read})).Stop(t.Context(), []string{"t"}, StopOptions{})
		var e *Error
		if !errors.As(err, &e) || e.Code != ClusterMirrorAuthorizationFailed || !errors.Is(err, keyedlog.ErrDenied) {
			t.Errorf("may read: %t: %v", read, err)
		}
		s := mustRead(t, all)
		if got, _ := s.Topic("t"); got.MirrorName != "m" {
			t.Errorf("changed: %+v", got)
		}
	}
}
