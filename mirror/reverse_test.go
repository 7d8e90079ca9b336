package mirror_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermirror/clustermirror/mirror"
	"github.com/clustermirror/clustermirror/mirror/memlog"
)

// TestItem2ReverseAndStart: promoted here, and the old source is the standby; whatever dies at which step of the promotion or of the way back, in front of it or behind it, the same call again ends it, and
// once more changes nothing.
func TestItem2ReverseAndStart(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, point := range []string{"", "record", "raise", string(mirror.PromotionVerifying), string(mirror.PromotionDraining), string(mirror.PromotionStopping), "clear"} {
			synctest.Test(t, func(t *testing.T) { reverse(t, point, late, -1) })
		}
		for n := range 6 {
			synctest.Test(t, func(t *testing.T) { reverse(t, "", late, n) })
		}
	}
}

func reverse(t *testing.T, point string, late bool, change int) {
	p := newPromotion(t, 1)
	control := mirror.NewMemoryControl()
	dies := &dyingControl{Control: control, at: change, late: late}
	backwards := func() *running {
		return open(t, "back", p.b.Cluster, p.a.side, unheard, func(c *mirror.Config) {
			dies.mu.Lock()
			dies.dead = false
			dies.ctx, dies.kill = context.WithCancel(context.Background())
			dies.mu.Unlock()
			c.Control = dies
		})
	}
	back := backwards()
	defer func() {
		dies.kill()
		back.close()
	}()
	if point != "" {
		p.now.mu.Lock()
		p.now.dies = true
		p.now.fault = func(at string) (bool, bool) { return at == point && !late, at == point && late }
		p.now.mu.Unlock()
	}
	call := func() (mirror.ReverseReport, error) {
		ctx, stop := context.WithTimeout(p.now.ctx, 20*time.Minute)
		defer stop()
		defer context.AfterFunc(dies.ctx, stop)() // who called dies with the process
		return p.now.ReverseAndStart(ctx, back.Mirror, mirror.PromoteOptions{Topics: []string{"t", "u"}, Fence: p.now, Bound: 3 * time.Minute})
	}
	r, err := call()
	if err != nil || dies.gone() {
		if err != nil && point == "" && change < 0 {
			t.Fatalf("%v\n%s\n%s", err, r.Promotion, r.Plan)
		}
		p.open()
		back.close()
		back = backwards()
		// A process that has just begun may not know its partitions yet. It refuses then and changes nothing; the same again goes on.
		r, err = call()
		for n := 0; n < 10 && err != nil; n++ {
			time.Sleep(time.Second)
			r, err = call()
		}
		if err != nil {
			t.Fatalf("%s, late %v, change %d: %v\n%s\n%s", point, late, change, err, r.Promotion, r.Plan)
		}
	}
	dies.mu.Lock()
	dies.at = -1 // nobody dies any more
	dies.mu.Unlock()
	p.apps.end()
	if lost := p.apps.missing(p.b); len(lost) > 0 {
		t.Fatalf("%d acknowledged records are not at the new primary: %v", len(lost), lost)
	}
	for _, tp := range promoted {
		p.b.produce(tp.Topic, tp.Partition, "a client of the new primary")
	}
	back.untilInStep()
	for _, tp := range promoted {
		if !bytes.Equal(p.a.raw(tp.Topic, tp.Partition), p.b.raw(tp.Topic, tp.Partition)) {
			t.Errorf("%v differs", tp)
		}
		if _, err := p.a.Produce(t.Context(), tp.Topic, tp.Partition, memlog.Record{Value: []byte("no")}); err == nil {
			t.Errorf("%v: a client has written to the standby", tp)
		}
	}
	before, err := control.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r, err = call(); err != nil {
		t.Fatalf("once more: %v\n%s", err, r.Plan)
	}
	if after, err := control.History(t.Context()); err != nil || len(after) != len(before) {
		t.Errorf("once more has changed something: %v %+v", err, after)
	}
}

// dyingControl is the desired state of a process that dies at one of its changes.
type dyingControl struct {
	mirror.Control
	late bool
	mu   sync.Mutex
	at   int
	dead bool
	ctx  context.Context // of who calls in this process
	kill context.CancelFunc
}

func (c *dyingControl) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *dyingControl) Update(ctx context.Context, change func(*mirror.ControlState) error) error {
	c.mu.Lock()
	c.at--
	now := c.at == -1
	if now && !c.late {
		c.die()
	}
	dead := c.dead
	c.mu.Unlock()
	if dead {
		return errDead
	}
	err := c.Control.Update(ctx, change)
	if now {
		c.mu.Lock()
		c.die()
		c.mu.Unlock()
		return errDead
	}
	return err
}

// die is for whoever holds mu.
func (c *dyingControl) die() {
	c.dead = true
	c.kill()
}
