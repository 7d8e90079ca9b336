package keyedlog_test

import (
	"context"
	"testing"

	"github.com/clustermirror/clustermirror/keyedlog"
)

func TestMemoryHandlesShareTheRecords(t *testing.T) {
	ctx := context.Background()
	one := keyedlog.NewMemory()
	two := one.Again()
	changed := two.Changed()
	err := one.Update(ctx, func(keyedlog.View) ([]keyedlog.Change, error) {
		return []keyedlog.Change{{Key: []byte("k"), Value: []byte("v")}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("the other handle's channel is open after a change")
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	err = two.Read(ctx, func(v keyedlog.View) error {
		if r, ok := v.Get([]byte("k")); !ok || string(r.Value) != "v" {
			t.Errorf("the other handle sees %+v, %v", r, ok)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
